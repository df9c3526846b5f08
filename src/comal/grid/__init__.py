"""QUADBIN cells and Web Mercator tiles, vectorised over numpy arrays.

A cell is a tile of the XYZ scheme of EPSG:3857 as one 64-bit number: zoom first, then the Morton
code of column and row. `comal.grid.quadbin` converts, `comal.grid.cover` finds the cells of boxes
and geometries, `comal.grid.mercator` implements the projection. All functions take numbers,
sequences or arrays, and return Python numbers for numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from comal.public import exports

if TYPE_CHECKING:
    from comal.grid.cover import bbox_cells as bbox_cells
    from comal.grid.cover import bbox_ranges as bbox_ranges
    from comal.grid.cover import bbox_windows as bbox_windows
    from comal.grid.cover import geometry_cells as geometry_cells
    from comal.grid.cover import geometry_ranges as geometry_ranges
    from comal.grid.cover import in_ranges as in_ranges
    from comal.grid.cover import merge_ranges as merge_ranges
    from comal.grid.cover import range_cells as range_cells
    from comal.grid.mercator import CIRCUMFERENCE as CIRCUMFERENCE
    from comal.grid.mercator import HALF as HALF
    from comal.grid.mercator import LATITUDE_LIMIT as LATITUDE_LIMIT
    from comal.grid.mercator import lonlat_to_xy as lonlat_to_xy
    from comal.grid.mercator import pixel_size as pixel_size
    from comal.grid.mercator import tile_box_3857 as tile_box_3857
    from comal.grid.mercator import xy_to_lonlat as xy_to_lonlat
    from comal.grid.quadbin import MAX_ZOOM as MAX_ZOOM
    from comal.grid.quadbin import bounds as bounds
    from comal.grid.quadbin import cells as cells
    from comal.grid.quadbin import centres as centres
    from comal.grid.quadbin import children as children
    from comal.grid.quadbin import deinterleave as deinterleave
    from comal.grid.quadbin import descendants as descendants
    from comal.grid.quadbin import from_lonlat as from_lonlat
    from comal.grid.quadbin import interleave as interleave
    from comal.grid.quadbin import is_valid as is_valid
    from comal.grid.quadbin import k_ring as k_ring
    from comal.grid.quadbin import neighbours as neighbours
    from comal.grid.quadbin import parents as parents
    from comal.grid.quadbin import siblings as siblings
    from comal.grid.quadbin import tiles as tiles
    from comal.grid.quadbin import zooms as zooms

__all__, __getattr__, __dir__ = exports(__name__)
