"""Arcs of longitude that rings of coordinates cover, where the antimeridian is no edge.

Longitudes along a ring are made continuous: a step of more than 180 degrees goes the other way
round. A ring that ends 360 degrees from where it started goes around a pole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from comal.geo.boxes import wrap_arcs

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Corners = tuple[Floats, Floats, Floats, Floats]

_FLAT = 1e-9  # degrees: a ring this narrow after unwrapping has collapsed


def continuous(lon: Floats, starts: Rows) -> Floats:
    """Longitudes of rings without jumps.

    Parameters
    ----------
    lon
        Longitudes of m vertices in degrees, ring after ring.
    starts
        Position of the first vertex of each ring, ascending, the first 0.
    """
    steps = np.diff(lon, prepend=lon[:1])
    steps[starts] = 0
    turns = np.where(np.abs(steps) > 180, -360 * np.round(steps / 360), 0.0)
    total = np.cumsum(turns)
    sizes = np.diff(np.append(starts, len(lon)))
    result: Floats = lon + total - np.repeat(total[starts], sizes)
    return result


def ring_boxes(lon: Floats, lat: Floats, starts: Rows) -> Corners:
    """Boxes of closed rings (or lines, or single points) given in degrees.

    A step of more than 180 degrees crosses the antimeridian, except in a ring that would collapse
    to a line by that: then it goes around the whole world, as the ring of a global raster does.
    Inside a ring that goes around a pole lies that pole.

    Parameters
    ----------
    lon, lat
        Vertices of all rings, m each, finite.
    starts
        Position of the first vertex of each of n rings.

    Returns
    -------
    west, south, east, north of n rings; west > east across the antimeridian.
    """
    unrolled = continuous(lon, starts)
    west = np.minimum.reduceat(unrolled, starts)
    east = np.maximum.reduceat(unrolled, starts)
    south = np.minimum.reduceat(lat, starts)
    north = np.maximum.reduceat(lat, starts)
    raw = np.maximum.reduceat(lon, starts) - np.minimum.reduceat(lon, starts)
    ends = np.append(starts[1:], len(lon)) - 1
    around = np.abs(unrolled[ends] - unrolled[starts]) > 180
    world = around | ((east - west < _FLAT) & (raw >= 360 - _FLAT))
    west, east = np.where(world, -180.0, west), np.where(world, 180.0, east)
    upper = around & (north + south >= 0)
    north = np.where(upper, 90.0, north)
    south = np.where(around & ~upper, -90.0, south)
    west, east = wrap_arcs(west, east)
    return west, south, east, north


def edge_points(per_edge: int) -> Any:
    """A closed ring around the unit square: (4 * per_edge + 1, 2), starting and ending at 0, 0."""
    t = np.arange(per_edge) / per_edge
    zero, one = np.zeros(per_edge), np.ones(per_edge)
    u = np.concatenate([t, one, 1 - t, zero, [0.0]])
    v = np.concatenate([zero, t, one, 1 - t, [0.0]])
    return np.stack([u, v], axis=1)
