"""Sources and targets of tiles: MBTiles, PMTiles, folders, tilesets, iterables."""
