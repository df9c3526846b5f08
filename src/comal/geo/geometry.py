"""Boxes and centroids of geometries of any CRS, in longitude and latitude of EPSG:4326."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.geo import wkb
from comal.geo.boxes import union_box, wrap
from comal.geo.crs import Projection, groups, projection
from comal.geo.rings import Corners, ring_boxes

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]

_BLOCK = 65_536
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
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            result[:, some] = _boxes(source, _take(geometry, some), check=check_antimeridian)
    return result[0], result[1], result[2], result[3]


def geometry_centroids(
    geometry: Any, crs: Any = "EPSG:4326", *, check_antimeridian: bool = True
) -> tuple[Floats, Floats]:
    """Longitude and latitude of the centroids of geometries.

    The centroid is taken in the plane of the CRS and then transformed. In a geographic CRS a
    geometry over the antimeridian is first made continuous, so that its centroid lies within it
    and not on the other side of the earth. Parameters and errors are those of `geometry_boxes`.
    """
    lon, lat = np.full(len(geometry), np.nan), np.full(len(geometry), np.nan)
    for name, rows in groups(crs, len(geometry)):
        source = projection(name)
        for start in range(0, len(rows), _BLOCK):
            some = rows[start : start + _BLOCK]
            part = _take(geometry, some)
            lon[some], lat[some] = _centroids(source, part, check=check_antimeridian)
    return wrap(lon), lat


def _take(geometry: Any, rows: Rows) -> Any:
    return geometry.take(pa.array(rows))


def _boxes(source: Projection, geometry: Any, *, check: bool) -> Floats:
    if source.is_geographic and not check:
        west, south, east, north = wkb.bounds(geometry)
        west, south = source.to_lonlat(west, south)
        east, north = source.to_lonlat(east, north)
        return np.stack([west, south, east, north])
    return lonlat_boxes(source, wkb.to_shapely(geometry))


def lonlat_boxes(source: Projection, geometries: Objects) -> Floats:
    """Boxes (4, n) of shapely geometries in the CRS of `source`; steps over 180 degrees cross."""
    import shapely  # noqa: PLC0415

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
    import shapely  # noqa: PLC0415

    length = shapely.length(geometries)
    step = np.maximum(length / _PIECES, _LONGEST / source.unit)
    result = np.array(geometries, object)
    usable = np.isfinite(step) & (length > 0)
    result[usable] = shapely.segmentize(result[usable], step[usable])
    return result


def _shells(geometries: Objects) -> tuple[Objects, Rows]:
    """Points, lines and outer rings of all geometries, each with its row, rows ascending."""
    import shapely  # noqa: PLC0415

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


def _centroids(source: Projection, geometry: Any, *, check: bool) -> tuple[Floats, Floats]:
    import shapely  # noqa: PLC0415

    geometries = wkb.to_shapely(geometry)
    if source.is_geographic and check:
        from comal.geo.shapes import unrolled  # noqa: PLC0415 - that module imports this one

        geometries = unrolled(geometries)
    # GEOS refuses all of them for the sake of one.
    coordinates, row = shapely.get_coordinates(geometries, return_index=True)
    geometries[row[~np.isfinite(coordinates).all(axis=1)]] = None
    middle = shapely.centroid(geometries)
    middle[shapely.is_empty(middle)] = None
    return source.to_lonlat(shapely.get_x(middle), shapely.get_y(middle))
