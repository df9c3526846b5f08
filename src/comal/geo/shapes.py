"""Shapes, boxes and centroids in degrees, even across the antimeridian and the poles.

Longitudes of a shape are continuous: across the antimeridian they exceed 180. `cut` wraps them into
-180..180 as GeoJSON wants it (RFC 7946, 3.1.9); `meet` compares a shape with a box as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.geo import wkb
from comal.geo.boxes import Corners, arc_width, continuous, ring_boxes, union_box, wrap
from comal.geo.crs import LONLAT, Projection, groups, projection
from comal.lazy import shapely

Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
Rows = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Bounds = tuple[float, ...]

_SAME = 1e-9  # degrees
_FARTHEST = 1080  # degrees
_LONGEST = 2_500.0  # metres: at most half a metre of error after the transformation
_PIECES = 96  # at most this many along the edges of a small geometry, few more along a large one


def geometries(source: Projection, column: Any, where: str = "geometry") -> Objects:
    """WKB in a CRS as shapes in degrees; None for null and for shapes outside of the earth."""
    shapes = wkb.to_shapely(column, where)
    if source.transformer is not None:
        shapes = shapes if source.is_geographic else densified(source, shapes)
        points, index = shapely.get_coordinates(shapes, return_index=True)
        degrees = np.column_stack(source.to_lonlat(points[:, 0], points[:, 1]))
        lost = np.unique(index[~np.isfinite(degrees).all(axis=1)])
        shapes = shapely.set_coordinates(shapes, np.nan_to_num(degrees))
        shapes[lost] = None
    return unrolled(shapes)


def unrolled(shapes: Objects) -> Objects:
    """Geometries in degrees with continuous longitudes; a ring around a pole includes that pole.

    An edge longer than 180 degrees crosses the antimeridian, unless its ring would collapse.
    """
    west, _, east, _ = lonlat_boxes(projection(LONLAT), shapes)
    low, _, high, _ = shapely.bounds(shapes).T
    with np.errstate(invalid="ignore"):
        width = arc_width(west, east)
        broken = np.flatnonzero((high - low > width + _SAME) | (width >= 360))
    if not len(broken):
        return shapes
    result = np.array(shapes, object)
    for row in broken:
        first, last = west[row], west[row] + width[row]
        result[row] = _mended(result[row], first, last)
    return result


def _mended(shape: Any, first: float, last: float) -> Any:
    """One geometry with continuous longitudes, in the arc from `first` to `last`."""
    parts = shapely.get_parts(shapely.get_parts([shape]))
    polar = [_turns(part) for part in parts]
    if any(polar):
        return shapely.union_all(
            [_polygon(part) if turns else part for part, turns in zip(parts, polar, strict=True)]
        )
    if last - first >= 360:
        return shape
    points = shapely.get_coordinates(shape)
    points[points[:, 0] < first - _SAME, 0] += 360
    points[points[:, 0] > last + _SAME, 0] -= 360
    return shapely.set_coordinates(shape, points)


def _turns(part: Any) -> bool:
    """Whether the edge of a polygon goes around a pole."""
    if not isinstance(part, shapely.Polygon) or part.is_empty:
        return False
    lon = shapely.get_coordinates(part.exterior)[:, 0]
    straight = continuous(lon, np.zeros(1, np.int64))
    return bool(abs(straight[-1] - straight[0]) > 180)


def _polygon(part: Any) -> Any:
    """A polygon around a pole, with its holes cut out."""
    rings = []
    for ring in (part.exterior, *part.interiors):
        lon, lat = shapely.get_coordinates(ring).T
        straight = continuous(lon, np.zeros(1, np.int64))
        if abs(straight[-1] - straight[0]) > 180:
            rings.append(around_pole(straight, lat))
        else:
            rings.append(shapely.Polygon(np.column_stack([straight, lat])))
    outer, *holes = (shapely.union_all(list(_turned(ring))) for ring in rings)
    return outer if not holes else shapely.difference(outer, shapely.union_all(holes))


def around_pole(lon: Floats, lat: Floats) -> Any:
    """The area of a ring of continuous longitudes around a pole, including that pole."""
    pole = 90.0 if lat.max() + lat.min() >= 0 else -90.0
    ring = [*zip(lon, lat, strict=True), (lon[-1], pole), (lon[0], pole)]
    return shapely.make_valid(shapely.Polygon(ring), method="structure", keep_collapsed=False)


def meet(shapes: Objects, bounds: Bounds) -> Bools:
    """Which shapes meet a box of west, south, east, north; west > east crosses the antimeridian."""
    west, south, east, north = bounds
    arcs = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    result = np.zeros(len(shapes), np.bool_)
    for shift in (-360.0, 0.0, 360.0):
        for start, end in arcs:
            window = shapely.box(start + shift, south, end + shift, north)
            result |= shapely.intersects(shapes, window)
    return result


def cut(shapes: Objects) -> Objects:
    """Shapes within -180..180, split in two across the antimeridian (RFC 7946, 3.1.9).

    One whose longitudes are no degrees, but beyond three turns, stays as it is.
    """
    low, _, high, _ = shapely.bounds(shapes).T
    with np.errstate(invalid="ignore"):
        over = (low < -180 - _SAME) | (high > 180 + _SAME)
        over = np.flatnonzero(over & (low >= -_FARTHEST) & (high <= _FARTHEST))
    result = np.array(shapes, object)
    for row in over:
        result[row] = shapely.union_all(list(_turned(shapes[row])))
    return result


def _turned(shape: Any) -> Iterator[Any]:
    """The parts of a shape on each copy of the world, shifted into -180..180."""
    low, _, high, _ = shapely.bounds(shape)
    for turn in range(int(np.floor((low + 180) / 360)), int(np.ceil((high - 180) / 360)) + 1):
        world = shapely.box(-180 + 360 * turn, -90, 180 + 360 * turn, 90)
        part = shapely.intersection(shape, world)
        if shapely.get_dimensions(part) == shapely.get_dimensions(shape):
            yield shapely.transform(part, lambda xy, turn=turn: xy - [360 * turn, 0])


# -- boxes -----------------------------------------------------------------------------------------


def geometry_boxes(geometry: Any, crs: Any = LONLAT) -> Corners:
    """Boxes of geometries: west, south, east, north in degrees.

    An edge longer than 180 degrees in a geographic CRS crosses the antimeridian.

    Parameters
    ----------
    geometry
        Arrow binary array of n geometries as WKB, in their CRS, x before y.
    crs
        Text for all rows or Arrow array of n texts.

    Returns
    -------
    Four arrays of n; NaN for null and empty geometries. West > east crosses the antimeridian;
    parts on both sides of it give the smallest arc that covers them.

    Raises
    ------
    InvalidInputError
        A CRS that PROJ does not know.
    InvalidMetadataError
        A row is not WKB.
    """
    result = np.full((4, len(geometry)), np.nan)
    for source, rows in groups(crs, len(geometry)):
        result[:, rows] = lonlat_boxes(source, wkb.to_shapely(geometry.take(pa.array(rows))))
    return result[0], result[1], result[2], result[3]


def lonlat_boxes(source: Projection, geometries: Objects) -> Floats:
    """Boxes (4, n) of shapely geometries in the CRS of `source`; steps over 180 degrees wrap."""
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


# -- centroids -------------------------------------------------------------------------------------


def geometry_centroids(
    geometry: Any, crs: Any = LONLAT, *, check_antimeridian: bool = True
) -> tuple[Floats, Floats]:
    """Longitude and latitude of the centroids of geometries.

    The centroid is computed in the plane of the CRS and then transformed. In a geographic CRS a
    geometry across the antimeridian is first made continuous, so that its centroid is inside it and
    not on the other side of the earth; without `check_antimeridian`, coordinates in degrees are
    used unchanged. Parameters and errors are those of `geometry_boxes`.
    """
    lon, lat = np.full(len(geometry), np.nan), np.full(len(geometry), np.nan)
    for source, rows in groups(crs, len(geometry)):
        shapes = wkb.to_shapely(geometry.take(pa.array(rows)))
        if source.is_geographic and check_antimeridian:
            shapes = unrolled(shapes)
        # GEOS refuses all geometries if one has non-finite coordinates.
        coordinates, row = shapely.get_coordinates(shapes, return_index=True)
        shapes[row[~np.isfinite(coordinates).all(axis=1)]] = None
        middle = shapely.centroid(shapes)
        middle[shapely.is_empty(middle)] = None
        lon[rows], lat[rows] = source.to_lonlat(shapely.get_x(middle), shapely.get_y(middle))
    return wrap(lon), lat
