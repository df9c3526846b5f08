"""Where samples are: geometries for GeoJSON, and the box of all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import ComalError
from comal.geo import boxes, footprint, wkb, wkt
from comal.geo.crs import LONLAT, groups, projection
from comal.geo.rings import Corners
from comal.table.columns import one_array
from comal.tortilla import spec as tortilla_spec

Floats = npt.NDArray[np.float64]

_DIGITS = 7
"""Decimals of a degree, about a centimetre."""
_SHAPES = ("stac:tensor_shape", tortilla_spec.RASTER_SHAPE)


def outline_columns(schema: Any, shapes: Sequence[str] = _SHAPES) -> tuple[str, str, str] | None:
    """CRS, geotransform and shape of rasters; None where one is missing or of another type.

    Parameters
    ----------
    schema
        Of the rows. Files of strangers hold anything under these names.
    shapes
        Names of the shape, the best first.
    """
    for shape in shapes:
        names = (tortilla_spec.CRS, tortilla_spec.GEOTRANSFORM, shape)
        if set(names) <= set(schema.names):
            crs, *lists = (schema.field(name).type for name in names)
            if pa.types.is_string(crs) and all(map(_is_numbers, lists)):
                return names
    return None


def _is_numbers(kind: Any) -> bool:
    if not (pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def bounds_of(table: Any, outlines: Corners | None = None) -> list[float] | None:
    """The box of all rows, None when nothing is known; `outlines` are their boxes if known."""
    try:
        corners = _corners(table) if outlines is None else outlines
    except ComalError:
        return None  # a CRS or a list that is none; `comal check` tells
    box = None if corners is None else boxes.union_box(*corners)
    return None if box is None else [round(float(edge), _DIGITS) for edge in box]


def geometries(table: Any) -> list[dict[str, Any] | None]:
    """For each row its geometry as GeoJSON, in degrees; the most telling that it has.

    A geometry column first, then the outline of the raster, then its centre.
    """
    found: list[dict[str, Any] | None] = [None] * table.num_rows
    for source in (_from_shapes, _from_rasters, _from_centres):
        if None not in found:
            break
        try:
            some = source(table)
        except ComalError:
            continue  # broken places are none; the sample itself is shown
        found = [old if old is not None else new for old, new in zip(found, some, strict=True)]
    return found


def box_of(geometry: dict[str, Any] | None) -> list[float] | None:
    """West, south, east, north of a geometry; west > east across the antimeridian."""
    if geometry is None:
        return None
    if geometry["type"] == "MultiPolygon" and len(geometry["coordinates"]) == 2:
        east_side, west_side = (np.array(ring[0]) for ring in geometry["coordinates"])
        if east_side[:, 0].max() == 180 and west_side[:, 0].min() == -180:
            both = np.concatenate([east_side, west_side])[:, 1]
            ends = east_side[:, 0].min(), both.min(), west_side[:, 0].max(), both.max()
            return [float(edge) for edge in ends]
    points = np.array(_flat(geometry["coordinates"])).reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    return [float(low[0]), float(low[1]), float(high[0]), float(high[1])]


def _flat(value: Any) -> list[float]:
    if isinstance(value, list | tuple) and value and isinstance(value[0], int | float):
        return list(value[:2])
    return [number for part in value for number in _flat(part)]


# -- the ways to a place ---------------------------------------------------------------------------


def _nothing(table: Any) -> list[dict[str, Any] | None]:
    return [None] * table.num_rows


def _from_shapes(table: Any) -> list[dict[str, Any] | None]:
    if "istac:geometry" not in table.column_names:
        return _nothing(table)
    import shapely  # noqa: PLC0415 - 40 ms that rows without shapes never need

    column = one_array(table.column("istac:geometry"))
    shapes = wkb.to_shapely(column)
    if "istac:crs" in table.column_names:
        names = pc.fill_null(one_array(table.column("istac:crs")), LONLAT)
        for name, rows in groups(names, len(shapes)):
            source = projection(name)
            if source.transformer is not None:
                shapes[rows] = shapely.transform(
                    shapes[rows],
                    lambda points, source=source: np.column_stack(
                        source.to_lonlat(points[:, 0], points[:, 1])
                    ),
                )
    return [None if shape is None else _geojson(shape) for shape in shapes]


def _geojson(shape: Any) -> dict[str, Any] | None:
    import shapely  # noqa: PLC0415 - as above

    rounded = shapely.transform(shape, lambda points: np.round(points, _DIGITS))
    if rounded.is_empty or not np.isfinite(shapely.get_coordinates(rounded)).all():
        return None
    document: dict[str, Any] = json.loads(shapely.to_geojson(rounded))
    return document


def _from_rasters(table: Any) -> list[dict[str, Any] | None]:
    """The four corners of each raster, and a box where these cross the antimeridian."""
    names = outline_columns(table.schema)
    if names is None:
        return _nothing(table)
    crs, affines, shapes = (one_array(table.column(name)) for name in names)
    affine, size = footprint.affine_of(affines), footprint.size_of(shapes)
    corner_u, corner_v = np.array([0.0, 1, 1, 0]), np.array([1.0, 1, 0, 0])
    lon, lat = np.full((len(affine), 4), np.nan), np.full((len(affine), 4), np.nan)
    for name, rows in groups(crs, len(affine)):
        x, y = footprint.places(affine[rows], size[rows], corner_u, corner_v)
        lon[rows], lat[rows] = (part.reshape(-1, 4) for part in _lonlat(name, x, y))
    return [_outline(lon[row], lat[row]) for row in range(len(affine))]


def _lonlat(name: str, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    return projection(name).to_lonlat(x.ravel(), y.ravel())


def _outline(lon: Floats, lat: Floats) -> dict[str, Any] | None:
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        return None
    if lon.max() - lon.min() <= 180:
        ring = np.round(np.column_stack([lon, lat]), _DIGITS).tolist()
        return {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
    # RFC 7946, 3.1.9: what crosses the antimeridian is cut there.
    west, east = lon[lon > 0].min(), lon[lon <= 0].max()
    south, north = lat.min(), lat.max()
    parts = [_ring(west, south, 180.0, north), _ring(-180.0, south, east, north)]
    return {"type": "MultiPolygon", "coordinates": [[part] for part in parts]}


def _ring(west: float, south: float, east: float, north: float) -> list[list[float]]:
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    return [[round(float(x), _DIGITS), round(float(y), _DIGITS)] for x, y in corners]


def _from_centres(table: Any) -> list[dict[str, Any] | None]:
    lon, lat = _centres(table)
    return [
        {"type": "Point", "coordinates": [round(x, _DIGITS), round(y, _DIGITS)]}
        if np.isfinite(x) and np.isfinite(y)
        else None
        for x, y in zip(lon.tolist(), lat.tolist(), strict=True)
    ]


def _centres(table: Any) -> tuple[Floats, Floats]:
    lon, lat = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    for name in ("stac:centroid", "istac:centroid"):
        if name not in table.column_names:
            continue
        column = one_array(table.column(name))
        if pa.types.is_binary(column.type):
            some = wkb.points_xy(column)
        elif pa.types.is_string(column.type):
            some = wkt.points_xy(column)
        else:
            continue
        missing = np.isnan(lon)
        lon, lat = np.where(missing, some[0], lon), np.where(missing, some[1], lat)
    return lon, lat


def _corners(table: Any) -> Corners | None:
    """Boxes of all rows: of rasters, else of geometries, else of centres."""
    names = outline_columns(table.schema)
    if names is not None:
        return footprint.footprints(*(one_array(table.column(name)) for name in names))
    if "istac:geometry" in table.column_names and "istac:crs" not in table.column_names:
        return wkb.bounds(one_array(table.column("istac:geometry")))
    lon, lat = _centres(table)
    return None if np.isnan(lon).all() else (lon, lat, lon, lat)
