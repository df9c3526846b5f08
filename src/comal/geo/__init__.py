"""Boxes, WKB, footprints and times, vectorised over rows.

`boxes` and `times` need numpy only, `wkb` loads shapely when a geometry is no plain point, and
`footprint` loads pyproj when a CRS is no EPSG:4326.
"""
