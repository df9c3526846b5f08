"""What tiles can be written as: MBTiles, PMTiles, loose files."""
