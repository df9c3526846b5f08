"""What tiles come from: MBTiles, PMTiles, folders, tilesets, iterables."""
