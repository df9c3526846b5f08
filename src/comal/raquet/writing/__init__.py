"""Writing RaQuet: rasters into tiles, their overviews and statistics, and the table of them."""
