"""Functions of QUADBIN cells for the SQL of every format: ``quadbin_*``."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from comal import grid
from comal.grid.cover import geometry_cells
from comal.query.columns import real, shapes, texts, whole

ID = pa.uint64()
IDS = pa.list_(ID)
TILE = pa.struct([("x", pa.int32()), ("y", pa.int32()), ("z", pa.int32())])
POINT = pa.struct([("lon", pa.float64()), ("lat", pa.float64())])
BOX = pa.struct([(name, pa.float64()) for name in ("min_lon", "min_lat", "max_lon", "max_lat")])
PIXEL = pa.struct([("pixel_x", pa.int32()), ("pixel_y", pa.int32())])

Call = Callable[..., Any]


def from_tile(x: Any, y: Any, z: Any) -> Any:
    """``quadbin_from_tile(x, y, z)``."""
    return grid.cells(whole(z, "zoom"), whole(x, "column"), whole(y, "row"))


def to_tile(cell: Any) -> Any:
    """``quadbin_to_tile(cell)``."""
    z, x, y = grid.tiles(whole(cell, "cell"))
    return _struct(TILE, x, y, z)


def from_lonlat(lon: Any, lat: Any, z: Any) -> Any:
    """``quadbin_from_lonlat(lon, lat, zoom)``."""
    return grid.from_lonlat(real(lon, "longitude"), real(lat, "latitude"), whole(z, "zoom"))


def to_lonlat(cell: Any) -> Any:
    """``quadbin_to_lonlat(cell)``: its middle."""
    return _struct(POINT, *grid.centres(whole(cell, "cell")))


def resolution(cell: Any) -> Any:
    """``quadbin_resolution(cell)``."""
    return grid.zooms(whole(cell, "cell")).astype(np.int32)


def to_bbox(cell: Any) -> Any:
    """``quadbin_to_bbox(cell)``."""
    return _struct(BOX, *grid.bounds(whole(cell, "cell")))


def pixel_xy(lon: Any, lat: Any, z: Any, block: Any = None) -> Any:
    """``quadbin_pixel_xy(lon, lat, zoom[, block_size])``: the pixel of a point in its tile."""
    zoom = whole(z, "zoom")
    size = 256 if block is None else whole(block, "block size")
    found = []
    for position in grid.lonlat_to_xy(real(lon, "longitude"), real(lat, "latitude"), zoom):
        tile = np.minimum(np.floor(position), 2.0**zoom - 1)
        found.append(np.minimum((position - tile) * size, size - 1).astype(np.int32))
    return _struct(PIXEL, *found)


def to_parent(cell: Any, z: Any = None) -> Any:
    """``quadbin_to_parent(cell[, zoom])``."""
    cells = whole(cell, "cell")
    zoom = np.maximum(grid.zooms(cells) - 1, 0) if z is None else whole(z, "zoom")
    return grid.parents(cells, zoom)


def to_children(cell: Any, z: Any = None) -> Any:
    """``quadbin_to_children(cell[, zoom])``."""
    cells = whole(cell, "cell")
    zooms = [None] * len(cells) if z is None else whole(z, "zoom").tolist()
    return [grid.children(one, zoom) for one, zoom in zip(cells.tolist(), zooms, strict=True)]


def sibling(cell: Any) -> Any:
    """``quadbin_sibling(cell)``: the four children of its parent."""
    return list(grid.siblings(whole(cell, "cell")))


def kring(cell: Any, k: Any) -> Any:
    """``quadbin_kring(cell, k)``."""
    pairs = zip(whole(cell, "cell").tolist(), whole(k, "distance").tolist(), strict=True)
    return [grid.k_ring(one, reach) for one, reach in pairs]


def is_valid(cell: Any) -> Any:
    """``quadbin_is_valid(cell)``."""
    return grid.is_valid(whole(cell, "cell"))


def to_wkt(cell: Any) -> Any:
    """``quadbin_to_wkt(cell)``: its box."""
    import shapely  # noqa: PLC0415

    boxes = shapely.box(*grid.bounds(whole(cell, "cell")))
    return pa.array(shapely.to_wkt(boxes, rounding_precision=-1), pa.string())


def to_geojson(cell: Any) -> Any:
    """``quadbin_to_geojson(cell)``: its box."""
    rows = np.stack(grid.bounds(whole(cell, "cell")), axis=1).tolist()
    return [
        json.dumps({"type": "Polygon", "coordinates": [[[w, s], [e, s], [e, n], [w, n], [w, s]]]})
        for w, s, e, n in rows
    ]


def polyfill(geometry: Any, z: Any, mode: Any = None) -> Any:
    """``QUADBIN_POLYFILL(geometry, zoom[, mode])``; the mode is ``intersects`` if absent."""
    import shapely  # noqa: PLC0415

    zooms = whole(z, "zoom").tolist()
    modes: Any = ["intersects"] * len(zooms) if mode is None else texts(mode, "mode")
    keys = zip(shapely.to_wkb(shapes(geometry)).tolist(), zooms, modes, strict=True)
    return [_filled(wkb, zoom, how.lower()) for wkb, zoom, how in keys]


@lru_cache(maxsize=64)
def _filled(wkb: bytes, zoom: int, mode: Any) -> Any:
    """Cells of a geometry; a query asks for the same ones several times."""
    import shapely  # noqa: PLC0415

    return geometry_cells(shapely.from_wkb(wkb), zoom, mode)


def _struct(kind: Any, *parts: Any) -> Any:
    arrays = [pa.array(part, field.type) for part, field in zip(parts, kind, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))


CALLS: dict[str, tuple[Call, Any, str]] = {
    "quadbin_from_tile": (from_tile, ID, "UBIGINT"),
    "quadbin_to_tile": (to_tile, TILE, "STRUCT(x INTEGER, y INTEGER, z INTEGER)"),
    "quadbin_from_lonlat": (from_lonlat, ID, "UBIGINT"),
    "quadbin_to_lonlat": (to_lonlat, POINT, "STRUCT(lon DOUBLE, lat DOUBLE)"),
    "quadbin_resolution": (resolution, pa.int32(), "INTEGER"),
    "quadbin_to_bbox": (
        to_bbox,
        BOX,
        "STRUCT(min_lon DOUBLE, min_lat DOUBLE, max_lon DOUBLE, max_lat DOUBLE)",
    ),
    "quadbin_pixel_xy": (pixel_xy, PIXEL, "STRUCT(pixel_x INTEGER, pixel_y INTEGER)"),
    "quadbin_to_parent": (to_parent, ID, "UBIGINT"),
    "quadbin_to_children": (to_children, IDS, "UBIGINT[]"),
    "quadbin_sibling": (sibling, IDS, "UBIGINT[]"),
    "quadbin_kring": (kring, IDS, "UBIGINT[]"),
    "quadbin_is_valid": (is_valid, pa.bool_(), "BOOLEAN"),
    "quadbin_to_wkt": (to_wkt, pa.string(), "VARCHAR"),
    "quadbin_to_geojson": (to_geojson, pa.string(), "VARCHAR"),
    "quadbin_polyfill": (polyfill, IDS, "UBIGINT[]"),
}
"""Name in SQL, what it calls for rows without nulls, and its type for Arrow and for SQL."""
