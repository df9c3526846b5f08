"""Which rows meet a box, or lie in a range of time, told for whole columns at once.

A box is one of `comal.geo.boxes`: west, south, east, north in degrees, west > east across the
antimeridian. A row matches when it has a point in common with it; edges count. What is null, and
what has no place on the earth, matches nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.geo import boxes, footprint, times, wkb
from comal.geo.crs import Projection, groups, projection
from comal.geo.geometry import densified, unrolled
from comal.geo.rings import Corners, edge_points

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]
Bounds = tuple[float, ...]

_PER_EDGE = 24
_BLOCK = 16_384
_SECOND = 1_000_000


def intersecting(geometry: Any, bounds: Bounds, where: str) -> Bools:
    """Which WKB geometries in degrees meet the box; points need no geometry library."""
    west, south, east, north = wkb.bounds(geometry, where)
    result = boxes.boxes_intersect(west, south, east, north, bounds)
    with np.errstate(invalid="ignore"):
        extended = np.flatnonzero((west < east) | (south < north))
    if len(extended):
        shapes = wkb.to_shapely(geometry.take(pa.array(extended)), where)
        result[extended] = _meet(unrolled(shapes), bounds)
    return result


def projected_intersecting(geometry: Any, source: Projection, bounds: Bounds, where: str) -> Bools:
    """Which WKB geometries in the CRS of `source` meet the box."""
    import shapely  # noqa: PLC0415 - 40 ms that points never need

    shapes = densified(source, wkb.to_shapely(geometry, where))
    points, index = shapely.get_coordinates(shapes, return_index=True)
    degrees = np.column_stack(source.to_lonlat(points[:, 0], points[:, 1]))
    lost = np.unique(index[~np.isfinite(degrees).all(axis=1)])
    shapes = shapely.set_coordinates(shapes, np.nan_to_num(degrees))
    # A geometry that has no place on the earth meets nothing.
    shapes[lost] = None
    return _meet(unrolled(shapes), bounds)


def rasters_intersecting(
    crs: Any, geotransform: Any, shape: Any, bounds: Bounds
) -> tuple[Bools, Bools]:
    """Which rasters meet the box, by the outline that they have in degrees.

    Parameters
    ----------
    crs, geotransform, shape
        As for `footprint.footprints`.
    bounds
        The box.

    Returns
    -------
    Which of the n rasters meet it, and of which the place is known.

    Raises
    ------
    InvalidInputError
        A CRS that PROJ does not know, or lists of wrong length.
    """
    corners = footprint.footprints(crs, geotransform, shape)
    result = boxes.boxes_intersect(*corners, bounds)
    affine, size = footprint.affine_of(geotransform), footprint.size_of(shape)
    doubtful = result & ~_certain(corners, bounds)
    for name, rows in groups(crs, len(result)):
        source, mine = projection(name), rows[doubtful[rows]]
        for start in range(0, len(mine), _BLOCK):
            some = mine[start : start + _BLOCK]
            result[some] = _outlines_meet(source, affine[some], size[some], bounds)
    known = ~np.isnan(np.stack(corners)).any(axis=0)
    return result, np.asarray(known, np.bool_)


def _certain(corners: Corners, bounds: Bounds) -> Bools:
    """Of outlines whose boxes meet `bounds`, which certainly do so too.

    An outline reaches all four sides of its box and is in one piece. So it meets a box that has
    room for all of its longitudes or all of its latitudes. One around a pole has no outline in
    degrees, and its box counts.
    """
    west, south, east, north = corners
    box = boxes.validate_bbox(bounds)
    width = boxes.arc_width(west, east)
    room = boxes.arc_width(box.west, box.east)
    with np.errstate(invalid="ignore"):
        tall = (south >= box.south) & (north <= box.north)
        wide = (room >= 360) | (np.mod(west - box.west, 360) + width <= room)
        return np.asarray(tall | wide | (width >= 360), np.bool_)


def _outlines_meet(source: Projection, affine: Floats, size: Floats, bounds: Bounds) -> Bools:
    """Which rasters of one CRS, whose boxes do, meet the box."""
    import shapely  # noqa: PLC0415 - as above

    x, y = footprint.places(affine, size, *edge_points(_PER_EDGE).T)
    lon, lat = source.to_lonlat(x, y)
    result = np.ones(len(lon), bool)
    # Of one that lies in part outside of the earth the box is all that is known.
    whole = np.flatnonzero(np.isfinite(lon).all(axis=1))
    shapes = shapely.polygons(np.stack([lon[whole], lat[whole]], axis=2))
    if source.transformer is not None:  # plain longitudes go on behind 180 as they are
        shapes = unrolled(shapes)
    result[whole] = _meet(shapes, bounds)
    return result


def _meet(shapes: Objects, bounds: Bounds) -> Bools:
    """Which geometries in degrees, of which some go on beyond 180, meet the box."""
    import shapely  # noqa: PLC0415 - as above

    west, south, east, north = bounds
    arcs = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    result = np.zeros(len(shapes), np.bool_)
    for shift in (-360.0, 0.0, 360.0):
        for start, end in arcs:
            window = shapely.box(start + shift, south, end + shift, north)
            result |= shapely.intersects(shapes, window)
    return result


def within(
    values: Any, start: int | None, end: int | None, where: str, *, seconds: bool = False
) -> Bools:
    """Which times lie in a range, both ends included.

    Parameters
    ----------
    values
        Arrow column, as `times.timestamps` takes it.
    start, end
        Microseconds since 1970 UTC, as `times.parse_range` gives them; None is an open end.
    where
        The column, for messages.
    seconds
        Numbers are seconds since 1970, not microseconds.
    """
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if seconds and is_number:
        # Ends in seconds, for times in microseconds may not fit 64 bits.
        start = None if start is None else -(-start // _SECOND)
        end = None if end is None else end // _SECOND
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), pc.floor(column), None)
    else:
        column = times.timestamps(column, where).cast(pa.int64())
    result = np.asarray(pc.is_valid(column), np.bool_)
    moments = np.asarray(pc.fill_null(column, 0))
    if start is not None:
        result = result & (moments >= start)
    if end is not None:
        result = result & (moments <= end)
    return result
