"""Writing RaQuet: the tiles, overviews and statistics of rasters, and their table."""
