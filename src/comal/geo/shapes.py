"""Areas in degrees as shapely geometries, also over the antimeridian and around the poles.

Longitudes of a shape are continuous: one over the antimeridian goes on beyond 180. `cut` brings it
into -180..180 as GeoJSON wants it (RFC 7946, 3.1.9); `meet` compares it with a box as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.geo import wkb
from comal.geo.boxes import arc_width, continuous, edge_points, wrap
from comal.geo.crs import Projection, groups, projection
from comal.geo.footprints import BLOCK, densified, lonlat_boxes, places, take, without_poles
from comal.lazy import shapely

Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
Bools = npt.NDArray[np.bool_]
Bounds = tuple[float, ...]

_PER_EDGE = 24
_SAME = 1e-9  # degrees
_PLAIN = Projection("", is_geographic=True, unit=1.0)


def outlines(source: Projection, affine: Floats, size: Floats) -> Objects:
    """Outlines of n rasters of one CRS; None of those that lie in part outside of the earth.

    Parameters
    ----------
    source
        Their CRS.
    affine, size
        Arrays (n, 6) and (n, 2) as `comal.geo.footprints` has them.
    """
    lon, lat = source.to_lonlat(*places(affine, size, *edge_points(_PER_EDGE).T))
    result = np.full(len(lon), None, object)
    whole = np.flatnonzero(np.isfinite(lon).all(axis=1) & np.isfinite(lat).all(axis=1))
    if not len(whole):
        return result
    lon, lat = lon[whole], lat[whole].clip(-90, 90)
    if source.transformer is not None:  # plain longitudes go on behind 180 as they are
        if not source.is_geographic:
            lon = without_poles(lon, lat)
        starts = np.arange(len(lon), dtype=np.int64) * lon.shape[1]
        lon = continuous(lon.ravel(), starts).reshape(lon.shape)
    around = np.abs(lon[:, -1] - lon[:, 0]) > 180
    result[whole[~around]] = shapely.polygons(np.stack([lon, lat], axis=2)[~around])
    for row in np.flatnonzero(around):
        result[whole[row]] = _around_pole(lon[row], lat[row])
    return result


def geometries(source: Projection, column: Any, where: str = "geometry") -> Objects:
    """WKB in a CRS as shapes in degrees; None for null and for what has no place on the earth."""
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
    """Geometries in degrees with continuous longitudes; a ring around a pole holds that pole.

    An edge longer than 180 degrees goes over the antimeridian, unless its ring would collapse.
    """
    west, _, east, _ = lonlat_boxes(_PLAIN, shapes)
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
    """One geometry whose longitudes become continuous, in the arc from `first` to `last`."""
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
    """A polygon around a pole, its holes cut out of it."""
    rings = []
    for ring in (part.exterior, *part.interiors):
        lon, lat = shapely.get_coordinates(ring).T
        straight = continuous(lon, np.zeros(1, np.int64))
        if abs(straight[-1] - straight[0]) > 180:
            rings.append(_around_pole(straight, lat))
        else:
            rings.append(shapely.Polygon(np.column_stack([straight, lat])))
    outer, *holes = (shapely.union_all(list(_turned(ring))) for ring in rings)
    return outer if not holes else shapely.difference(outer, shapely.union_all(holes))


def _around_pole(lon: Floats, lat: Floats) -> Any:
    """What a ring of continuous longitudes around a pole holds, that pole included."""
    pole = 90.0 if lat.max() + lat.min() >= 0 else -90.0
    ring = [*zip(lon, lat, strict=True), (lon[-1], pole), (lon[0], pole)]
    return shapely.make_valid(shapely.Polygon(ring), method="structure", keep_collapsed=False)


def meet(shapes: Objects, bounds: Bounds) -> Bools:
    """Which shapes meet a box of west, south, east, north; west > east over the antimeridian."""
    west, south, east, north = bounds
    arcs = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    result = np.zeros(len(shapes), np.bool_)
    for shift in (-360.0, 0.0, 360.0):
        for start, end in arcs:
            window = shapely.box(start + shift, south, end + shift, north)
            result |= shapely.intersects(shapes, window)
    return result


def cut(shapes: Objects) -> Objects:
    """Shapes within -180..180, those over the antimeridian in two parts (RFC 7946, 3.1.9)."""
    low, _, high, _ = shapely.bounds(shapes).T
    with np.errstate(invalid="ignore"):
        over = np.flatnonzero((low < -180 - _SAME) | (high > 180 + _SAME))
    result = np.array(shapes, object)
    for row in over:
        result[row] = shapely.union_all(list(_turned(shapes[row])))
    return result


def _turned(shape: Any) -> Iterator[Any]:
    """The parts of a shape on each copy of the world, brought to the one of -180..180."""
    low, _, high, _ = shapely.bounds(shape)
    for turn in range(int(np.floor((low + 180) / 360)), int(np.ceil((high - 180) / 360)) + 1):
        world = shapely.box(-180 + 360 * turn, -90, 180 + 360 * turn, 90)
        part = shapely.intersection(shape, world)
        if shapely.get_dimensions(part) == shapely.get_dimensions(shape):
            yield shapely.transform(part, lambda xy, turn=turn: xy - [360 * turn, 0])


# -- centroids -------------------------------------------------------------------------------------


def geometry_centroids(
    geometry: Any, crs: Any = "EPSG:4326", *, check_antimeridian: bool = True
) -> tuple[Floats, Floats]:
    """Longitude and latitude of the centroids of geometries.

    The centroid is taken in the plane of the CRS and then transformed. In a geographic CRS a
    geometry over the antimeridian is first made continuous, so that its centroid lies within it
    and not on the other side of the earth. Parameters and errors are those of
    `comal.geo.footprints.geometry_boxes`.
    """
    lon, lat = np.full(len(geometry), np.nan), np.full(len(geometry), np.nan)
    for name, rows in groups(crs, len(geometry)):
        source = projection(name)
        for start in range(0, len(rows), BLOCK):
            some = rows[start : start + BLOCK]
            part = take(geometry, some)
            lon[some], lat[some] = _centroids(source, part, check=check_antimeridian)
    return wrap(lon), lat


def _centroids(source: Projection, geometry: Any, *, check: bool) -> tuple[Floats, Floats]:
    geometries = wkb.to_shapely(geometry)
    if source.is_geographic and check:
        geometries = unrolled(geometries)
    # GEOS refuses all of them for the sake of one.
    coordinates, row = shapely.get_coordinates(geometries, return_index=True)
    geometries[row[~np.isfinite(coordinates).all(axis=1)]] = None
    middle = shapely.centroid(geometries)
    middle[shapely.is_empty(middle)] = None
    return source.to_lonlat(shapely.get_x(middle), shapely.get_y(middle))
