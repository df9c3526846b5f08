"""Centres and footprints of rasters and geometries, in longitude and latitude of EPSG:4326.

A raster is a CRS, a geotransform in GDAL order and a shape whose last two numbers are rows and
columns (``stac:crs``, ``stac:geotransform``, ``stac:tensor_shape``). All six numbers of the
geotransform count, so rotated rasters are right. Rows are grouped by CRS and each group is
transformed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError
from comal.geo import wkb
from comal.geo.boxes import (
    Corners,
    arc_width,
    boxes_intersect,
    edge_points,
    ring_boxes,
    union_box,
    wrap,
    wrap_arcs,
)
from comal.geo.crs import Projection, groups, projection
from comal.lazy import pc, shapely

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# The chord of an arc of 2.5 km on the ground is 12 cm off, of 5 km half a metre.
_SMALL = 10_000.0
_FEW, _MANY = 2, 24
BLOCK = 65_536
_TOGETHER = 64
"""Neighbours whose outlines are looked at as one."""
_COARSE = 8
_SLACK = 0.1
_POLAR = 80.0


def centroids(crs: Any, geotransform: Any, shape: Any) -> tuple[Floats, Floats]:
    """Longitude and latitude of raster centres.

    Parameters
    ----------
    crs
        Text for all rows or Arrow array of n texts.
    geotransform
        Arrow list column or array (n, 6): x0, dx, rotation, y0, rotation, dy.
    shape
        Arrow list column or array (n, k >= 2); the last two are rows and columns.

    Returns
    -------
    lon, lat in degrees, arrays of n; NaN where a part is null or the place is on no earth.

    Raises
    ------
    InvalidInputError
        A CRS that PROJ does not know, or lists of wrong length.
    """
    affine, size = affine_of(geotransform), size_of(shape)
    lon, lat = np.full(len(affine), np.nan), np.full(len(affine), np.nan)
    half = np.full(1, 0.5)
    for name, rows in groups(crs, len(affine)):
        x, y = places(affine[rows], size[rows], half, half)
        lon[rows], lat[rows] = projection(name).to_lonlat(x[:, 0], y[:, 0])
    return wrap(lon), lat


def footprints(crs: Any, geotransform: Any, shape: Any) -> Corners:
    """Boxes of rasters: west, south, east, north in degrees.

    Edges are densified before they are transformed, so the box holds bulging edges; a raster over
    the antimeridian has west > east, one over a pole reaches to it and spans all longitudes.
    Parameters and errors are those of `centroids`; a row without footprint is NaN.
    """
    affine, size = affine_of(geotransform), size_of(shape)
    result = np.full((4, len(affine)), np.nan)
    for name, rows in groups(crs, len(affine)):
        source = projection(name)
        for start in range(0, len(rows), BLOCK):
            some = rows[start : start + BLOCK]
            result[:, some] = _boxes(source, affine[some], size[some])
    return result[0], result[1], result[2], result[3]


def possibly_within(
    crs: Any, geotransform: Any, shape: Any, bounds: Sequence[float]
) -> npt.NDArray[np.bool_]:
    """Which rasters may meet a box; the others certainly do not.

    Rasters of one CRS are taken together in cells of some 64 neighbours, whose outlines are
    transformed in place of theirs. Parameters are those of `centroids`, and the box.
    """
    affine, size = affine_of(geotransform), size_of(shape)
    result = np.ones(len(affine), np.bool_)
    for name, rows in groups(crs, len(affine)):
        result[rows] = _near(projection(name), affine[rows], size[rows], bounds)
    return result


def _near(
    source: Projection, affine: Floats, size: Floats, bounds: Sequence[float]
) -> npt.NDArray[np.bool_]:
    result = np.ones(len(affine), np.bool_)
    x, y = places(affine, size, *edge_points(1)[:4].T)
    sides = np.stack([x.min(axis=1), x.max(axis=1), y.min(axis=1), y.max(axis=1)])
    known = np.flatnonzero(np.isfinite(sides).all(axis=0))
    if len(known) < _TOGETHER * 4:
        return result
    sides = sides[:, known]
    steps = int(np.sqrt(len(known) / _TOGETHER))
    cells = _cells(sides, steps)
    order = np.argsort(cells, kind="stable")
    starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
    left, low = (np.minimum.reduceat(side[order], starts)[:, None] for side in sides[::2])
    right, high = (np.maximum.reduceat(side[order], starts)[:, None] for side in sides[1::2])
    u, v = edge_points(_COARSE).T
    x, y = left + (right - left) * u, low + (high - low) * v
    if source.transformer is None:
        west, south, east, north = _plain_boxes(x, y)
    else:
        west, south, east, north = _transformed_boxes(source, x, y)
    # Edges bulge between their points by much less than this.
    wide, tall = arc_width(west, east), north - south
    room, height = wide * _SLACK, tall * _SLACK
    met = boxes_intersect(west - room, south - height, west + wide + room, north + height, bounds)
    # Nor is anything said where a part is outside of the earth, or a pole is near.
    unsure = ~np.isfinite(source.to_lonlat(x, y)[0]).all(axis=1)
    unsure |= (south < -_POLAR) | (north > _POLAR)
    result[known[order]] = np.repeat(met | unsure, np.diff(np.append(starts, len(order))))
    return result


def _cells(sides: Floats, steps: int) -> npt.NDArray[np.int64]:
    """Numbers of cells, so many each way, in which the middles of rasters lie."""
    cells = np.zeros(sides.shape[1], np.int64)
    for first, last in (sides[:2], sides[2:]):
        middle = (first + last) / 2
        low, high = middle.min(), middle.max()
        part = (middle - low) * (steps / (high - low) if high > low else 0.0)
        cells = cells * steps + np.minimum(part.astype(np.int64), steps - 1)
    return cells


def _boxes(source: Projection, affine: Floats, size: Floats) -> Floats:
    result = np.full((4, len(affine)), np.nan)
    with np.errstate(invalid="ignore"):
        extent = np.maximum(
            np.hypot(affine[:, 1], affine[:, 4]) * size[:, 1],
            np.hypot(affine[:, 2], affine[:, 5]) * size[:, 0],
        )
    known = np.isfinite(extent) & np.isfinite(affine).all(axis=1)
    small = known & (extent * source.unit <= _SMALL)
    for rows, per_edge in ((small, _FEW), (known & ~small, _MANY)):
        if rows.any():
            u, v = edge_points(per_edge).T
            x, y = places(affine[rows], size[rows], u, v)
            if source.transformer is None:
                result[:, rows] = _plain_boxes(x, y)
            else:
                result[:, rows] = _transformed_boxes(source, x, y)
    return result


def _plain_boxes(lon: Floats, lat: Floats) -> Floats:
    """Boxes of rings whose longitudes are continuous as they are, such as 170..190 or 0..360."""
    west, east = wrap_arcs(lon.min(axis=1), lon.max(axis=1))
    low, high = lat.min(axis=1), lat.max(axis=1)
    return np.stack([west, low.clip(-90, 90), east, high.clip(-90, 90)])


def _transformed_boxes(source: Projection, x: Floats, y: Floats) -> Floats:
    lon, lat = source.to_lonlat(x, y)
    result = np.full((4, len(x)), np.nan)
    whole = np.isfinite(lon).all(axis=1)
    if not source.is_geographic:
        lon = without_poles(lon, lat)
    if whole.any():
        count, width = int(whole.sum()), lon.shape[1]
        starts = np.arange(count, dtype=np.int64) * width
        result[:, whole] = ring_boxes(lon[whole].ravel(), lat[whole].ravel(), starts)
    for row in np.flatnonzero(~whole):
        result[:, row] = _partial_box(source, x[row], y[row])
    return result


def without_poles(lon: Floats, lat: Floats) -> Floats:
    """A vertex on a pole has every longitude: it takes that of the vertex before it."""
    polar = np.abs(lat) > 90 - 1e-9
    if not polar.any():
        return lon
    position = np.where(polar, -1, np.arange(lon.shape[1]))
    last = np.maximum.accumulate(position, axis=1)
    first = np.argmin(polar, axis=1)[:, None]
    return np.take_along_axis(lon, np.where(last < 0, first, last), axis=1)


def _partial_box(source: Projection, x: Floats, y: Floats) -> Floats:
    """Box of a raster of which a part lies outside of the earth, from places within it."""
    t = np.linspace(0, 1, 33)
    u, v = (part.ravel() for part in np.meshgrid(t, t))
    corner = np.arange(4) * ((len(x) - 1) // 4)  # the ring starts at 0, 0 and goes by 1, 0
    weights = np.stack([(1 - u) * (1 - v), u * (1 - v), u * v, (1 - u) * v])
    lon, lat = source.to_lonlat(x[corner] @ weights, y[corner] @ weights)
    box = union_box(lon, lat, lon, lat)
    return np.array(box if box is not None else [np.nan] * 4)


def places(affine: Floats, size: Floats, u: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Coordinates of places in rasters, in their CRS.

    Parameters
    ----------
    affine, size
        Arrays (n, 6) and (n, 2) as `affine_of` and `size_of` give them.
    u, v
        m places from 0 to 1 along columns and rows.

    Returns
    -------
    x and y, arrays (n, m).
    """
    columns, rows = size[:, 1:2] * u, size[:, 0:1] * v
    x = affine[:, 0:1] + columns * affine[:, 1:2] + rows * affine[:, 2:3]
    y = affine[:, 3:4] + columns * affine[:, 4:5] + rows * affine[:, 5:6]
    return x, y


def affine_of(geotransform: Any, where: str = "geotransform") -> Floats:
    """A column of geotransforms as an array (n, 6); NaN for null."""
    if isinstance(geotransform, pa.Array | pa.ChunkedArray):
        return _last(geotransform, 6, 6, where)
    affine = np.asarray(geotransform, np.float64)
    if affine.ndim != 2 or affine.shape[1] != 6:
        raise _wrong_length(where, affine.shape[1:], "six numbers")
    return affine


def size_of(shape: Any, where: str = "tensor_shape") -> Floats:
    """The last two numbers (rows, columns) of a column of shapes as an array (n, 2)."""
    if isinstance(shape, pa.Array | pa.ChunkedArray):
        return _last(shape, 2, None, where)
    size = np.asarray(shape, np.float64)
    if size.ndim != 2 or size.shape[1] < 2:
        raise _wrong_length(where, size.shape[1:], "at least two numbers")
    return size[:, -2:]


def _last(column: Any, count: int, exactly: int | None, where: str) -> Floats:
    """The last `count` numbers of each list; NaN for null lists."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    known = present(column)
    wrong = known & ((lengths != exactly) if exactly else (lengths < count))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        expected = f"{exactly} numbers" if exactly else f"at least {count} numbers"
        raise _wrong_length(f"{where}, row {row}", int(lengths[row]), expected)
    result = np.full((len(column), count), np.nan)
    flat = column.values.to_numpy(zero_copy_only=False)
    result[known] = flat[offsets[1:][known, None] + np.arange(-count, 0)]
    return result


def present(column: Any) -> npt.NDArray[np.bool_]:
    """Which rows of an Arrow column are not null."""
    if column.null_count == 0:
        return np.ones(len(column), bool)
    valid: npt.NDArray[np.bool_] = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return valid


def _wrong_length(where: str, found: object, expected: str) -> InvalidInputError:
    return InvalidInputError(
        "list of wrong length", where=where, found=f"length {found}", expected=expected
    )


# -- of geometries ---------------------------------------------------------------------------------


Objects = npt.NDArray[np.object_]

_LONGEST = 2_500.0  # metres: half a metre off at most after the transformation
_SAME = 1e-9  # degrees
_PIECES = 96  # at most so many along the edges of a small geometry, few more along a large one


def geometry_boxes(
    geometry: Any, crs: Any = "EPSG:4326", *, check_antimeridian: bool = True
) -> Corners:
    """Boxes of geometries: west, south, east, north in degrees.

    Parameters
    ----------
    geometry
        Arrow binary array of n geometries as WKB, in their CRS, x before y.
    crs
        Text for all rows or Arrow array of n texts.
    check_antimeridian
        Take an edge longer than 180 degrees in a geographic CRS as one over the antimeridian.
        Without it, coordinates in degrees are taken as they stand.

    Returns
    -------
    Four arrays of n; NaN for null and empty geometries. West > east crosses the antimeridian;
    parts on both sides of it give the smallest arc that holds them.

    Raises
    ------
    InvalidInputError
        A CRS that PROJ does not know.
    InvalidMetadataError
        A row is no WKB.
    """
    result = np.full((4, len(geometry)), np.nan)
    for name, rows in groups(crs, len(geometry)):
        source = projection(name)
        for start in range(0, len(rows), BLOCK):
            some = rows[start : start + BLOCK]
            result[:, some] = _geometry_boxes(
                source, take(geometry, some), check=check_antimeridian
            )
    return result[0], result[1], result[2], result[3]


def take(geometry: Any, rows: Rows) -> Any:
    """Some rows of an Arrow array."""
    return geometry.take(pa.array(rows))


def _geometry_boxes(source: Projection, geometry: Any, *, check: bool) -> Floats:
    if source.is_geographic and not check:
        west, south, east, north = wkb.bounds(geometry)
        west, south = source.to_lonlat(west, south)
        east, north = source.to_lonlat(east, north)
        return np.stack([west, south, east, north])
    return lonlat_boxes(source, wkb.to_shapely(geometry))


def lonlat_boxes(source: Projection, geometries: Objects) -> Floats:
    """Boxes (4, n) of shapely geometries in the CRS of `source`; steps over 180 degrees cross."""
    result = np.full((4, len(geometries)), np.nan)
    if not source.is_geographic:
        geometries = densified(source, geometries)
    shells, owner = _shells(geometries)
    coordinates, part = shapely.get_coordinates(shells, return_index=True)
    if not len(coordinates):
        return result
    lon, lat = source.to_lonlat(coordinates[:, 0], coordinates[:, 1])
    finite = np.isfinite(lon) & np.isfinite(lat)
    lon, lat, part = lon[finite], lat[finite], part[finite]
    present, starts = np.unique(part, return_index=True)
    if not len(present):
        return result
    boxes = np.stack(ring_boxes(lon, lat, starts.astype(np.int64)))
    owner = owner[present]
    rows, first, count = np.unique(owner, return_index=True, return_counts=True)
    result[:, rows] = boxes[:, first]
    for row, start, parts in zip(rows, first, count, strict=True):
        if parts > 1:
            result[:, row] = union_box(*boxes[:, start : start + parts])
    return result


def densified(source: Projection, geometries: Objects) -> Objects:
    """The geometries with vertices close enough to be transformed."""
    length = shapely.length(geometries)
    step = np.maximum(length / _PIECES, _LONGEST / source.unit)
    result = np.array(geometries, object)
    usable = np.isfinite(step) & (length > 0)
    result[usable] = shapely.segmentize(result[usable], step[usable])
    return result


def _shells(geometries: Objects) -> tuple[Objects, Rows]:
    """Points, lines and outer rings of all geometries, each with its row, rows ascending."""
    rows = np.flatnonzero(~(shapely.is_missing(geometries) | shapely.is_empty(geometries)))
    parts = geometries[rows]
    while True:
        parts, index = shapely.get_parts(parts, return_index=True)
        rows = rows[index]
        if not (shapely.get_type_id(parts) >= shapely.GeometryType.MULTIPOINT).any():
            break
    areas = shapely.get_type_id(parts) == shapely.GeometryType.POLYGON
    parts = np.array(parts, object)
    parts[areas] = shapely.get_exterior_ring(parts[areas])
    return parts, rows.astype(np.int64)
