"""Where rasters end, as a polygon of few points: what tells their pixels from padding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import shapely

from comal.grid.mercator import xy_to_lonlat
from comal.raster.gridding import Footprint

_TOLERANCE = 0.05
"""Part of a pixel by which the outline may be beside the edge."""
_MOST_POINTS = 20_000


def outline(
    footprints: Iterable[Footprint], bounds: Sequence[float], pixel_zoom: int
) -> dict[str, Any] | None:
    """What rasters cover together, where that is not simply their bounds.

    Parameters
    ----------
    footprints
        Where the rasters lie.
    bounds
        West, south, east, north of all, in degrees; west > east across the antimeridian.
    pixel_zoom
        The world is 2**pixel_zoom pixels wide.

    Returns
    -------
    A GeoJSON MultiPolygon in degrees, cut at the antimeridian, its edges straight on the Web
    Mercator plane and no more than 1/20 pixel beside those of the rasters. None where the bounds
    say the same, and where the rasters are too many for it to be small.
    """
    return outline_of([_polygon(one) for one in set(footprints)], bounds, pixel_zoom)


def outline_of(
    polygons: Sequence[Any], bounds: Sequence[float], pixel_zoom: int
) -> dict[str, Any] | None:
    """What polygons on the unit square cover together; see `outline`."""
    pixel = 2.0**-pixel_zoom
    whole = shapely.union_all(polygons)
    if whole.is_empty:
        return None
    extent = _boxes(bounds, whole)
    if whole.symmetric_difference(extent).area <= _TOLERANCE * pixel * extent.length:
        return None
    small = whole.simplify(_TOLERANCE * pixel)
    parts = [part for part in shapely.get_parts(small) if isinstance(part, shapely.Polygon)]
    if not parts or shapely.get_num_coordinates(small) > _MOST_POINTS:
        return None
    digits = max(5, math.ceil(-math.log10(pixel * 360 * _TOLERANCE / 5)))
    coordinates = [
        [_degrees(ring, digits) for ring in (part.exterior, *part.interiors)] for part in parts
    ]
    return {"type": "MultiPolygon", "coordinates": coordinates}


def _polygon(one: Footprint) -> Any:
    """A footprint on the unit square, what goes on beyond its edges on the other side."""
    west, north, east, south = one.box
    polygon: Any = shapely.box(west, north, east, south)
    if one.ring is not None:
        edge = shapely.Polygon(one.ring)
        polygon = edge if edge.is_valid else polygon
    world = shapely.box(0, 0, 1, 1)
    first, last = math.floor(polygon.bounds[0]), math.ceil(polygon.bounds[2])
    return shapely.union_all(
        [
            shapely.transform(polygon, lambda points, turn=turn: points - [turn, 0]) & world
            for turn in range(first, max(last, first + 1))
        ]
    )


def _boxes(bounds: Sequence[float], whole: Any) -> Any:
    """The bounds on the unit square; latitudes are those of the rasters in any case."""
    _, north, _, south = whole.bounds
    west, east = bounds[0] / 360 + 0.5, bounds[2] / 360 + 0.5
    spans = [(west, east)] if west < east else [(west, 1.0), (0.0, east)]
    return shapely.union_all([shapely.box(left, north, right, south) for left, right in spans])


def _degrees(ring: Any, digits: int) -> list[list[float]]:
    points = shapely.get_coordinates(ring)
    lon, lat = xy_to_lonlat(points[:, 0], points[:, 1], 0)
    rounded: list[list[float]] = np.round(np.stack([lon, lat], axis=1), digits).tolist()
    return rounded
