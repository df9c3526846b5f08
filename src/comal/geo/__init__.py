"""Boxes, WKB, footprints and times, vectorised over rows.

`boxes` and `times` need numpy only, `wkb` loads shapely when a geometry is not a plain point, and
`footprint` loads pyproj when a CRS is not EPSG:4326.
"""
