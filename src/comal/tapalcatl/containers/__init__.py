"""What tiles come from and go to: MBTiles, PMTiles, folders, tilesets, iterables."""
