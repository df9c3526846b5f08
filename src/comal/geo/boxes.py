"""Boxes of longitude and latitude on a sphere; they may cross the antimeridian.

A box is (west, south, east, north) in degrees of EPSG:4326. West > east means that it crosses the
antimeridian (RFC 7946, 5.2). NaN in any corner means that there is no geometry.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

# Gaps that differ by less are equal; then the box that does not cross the antimeridian is chosen.
_SAME_GAP = 1e-9


class Box(NamedTuple):
    """(west, south, east, north) in degrees; west > east crosses the antimeridian."""

    west: float
    south: float
    east: float
    north: float

    @property
    def crosses_antimeridian(self) -> bool:
        """Whether the box crosses longitude 180."""
        return self.west > self.east


def validate_bbox(bbox: Sequence[float], where: str = "bbox") -> Box:
    """Check a box of the caller and wrap its longitudes into -180..180.

    Parameters
    ----------
    bbox
        West, south, east, north in degrees. West > east is a box across the antimeridian.
        Longitudes from -360 to 360 are wrapped; a width of 360 or more is the whole circle.
    where
        What the box belongs to, for error messages.

    Raises
    ------
    InvalidInputError
        Not four finite numbers, latitudes outside -90..90 or in the wrong order, longitudes
        outside -360..360.
    """
    expected = "four finite numbers: west, south, east, north"
    try:
        numbers = [float(value) for value in bbox]
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "invalid box", where=where, found=repr(bbox)[:80], expected=expected
        ) from error
    if len(numbers) != 4 or not all(map(math.isfinite, numbers)):
        raise InvalidInputError("invalid box", where=where, found=numbers, expected=expected)
    west, south, east, north = numbers
    if not -90 <= south <= north <= 90:
        raise InvalidInputError(
            "invalid latitudes of a box",
            where=where,
            found=f"south {south}, north {north}",
            expected="-90 <= south <= north <= 90",
        )
    if not (-360 <= west <= 360 and -360 <= east <= 360):
        raise InvalidInputError(
            "invalid longitudes of a box",
            where=where,
            found=f"west {west}, east {east}",
            expected="degrees between -360 and 360",
        )
    wests, easts = wrap_arcs(np.array([west]), np.array([east]))
    return Box(float(wests[0]), south, float(easts[0]), north)


def wrap(lon: npt.ArrayLike) -> Floats:
    """Longitudes wrapped into -180..180; those already inside stay unchanged."""
    values = np.asarray(lon, np.float64)
    with np.errstate(invalid="ignore"):
        outside = np.abs(values) > 180
        wrapped = np.mod(values + 180, 360) - 180
    return np.where(outside & np.isfinite(values), wrapped, values)


def wrap_arcs(west: npt.ArrayLike, east: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Arcs of longitude in one form: within -180..180, west > east across the antimeridian.

    An arc of 360 degrees or more becomes -180..180. An end on the antimeridian gets the sign of the
    side of its arc, so that 170..-180 becomes 170..180.
    """
    west, east = np.asarray(west, np.float64), np.asarray(east, np.float64)
    with np.errstate(invalid="ignore"):
        full = east - west >= 360
    start, end = wrap(west), wrap(east)
    end = np.where((end == -180) & (start != -180), 180.0, end)
    start = np.where((start == 180) & (end != 180), -180.0, start)
    return np.where(full, -180.0, start), np.where(full, 180.0, end)


def boxes_intersect(
    west: npt.ArrayLike,
    south: npt.ArrayLike,
    east: npt.ArrayLike,
    north: npt.ArrayLike,
    bbox: Sequence[float],
) -> Bools:
    """Which boxes have a point in common with `bbox`; edges count.

    Parameters
    ----------
    west, south, east, north
        Arrays of n corners in degrees; west > east crosses the antimeridian. For points pass the
        same array twice. NaN matches nothing.
    bbox
        The other box, as for `validate_bbox`.

    Returns
    -------
    Boolean array of n.
    """
    box = validate_bbox(bbox)
    wests, easts = wrap_arcs(west, east)
    souths, norths = np.asarray(south, np.float64), np.asarray(north, np.float64)
    with np.errstate(invalid="ignore"):
        crossing = wests > easts
        if box.crosses_antimeridian:
            hit = crossing | (easts >= box.west) | (wests <= box.east)
        else:
            right, left = easts >= box.west, wests <= box.east
            hit = np.where(crossing, right | left, right & left)
            # Longitudes -180 and 180 are one meridian.
            if box.east == 180:
                hit |= wests == -180
            if box.west == -180:
                hit |= easts == 180
        hit &= (souths <= box.north) & (norths >= box.south)
    # A crossing test is true if one side is; NaN on the other side must not match.
    known = np.isfinite(wests) & np.isfinite(easts) & np.isfinite(souths) & np.isfinite(norths)
    result: Bools = hit & known
    return result


def union_box(
    west: npt.ArrayLike, south: npt.ArrayLike, east: npt.ArrayLike, north: npt.ArrayLike
) -> Box | None:
    """The smallest box that holds all boxes, on the circle of longitudes; None without any.

    The parameters are arrays of n corners in degrees; boxes with NaN are ignored. The smallest arc
    leaves out the largest gap between the arcs; among equal gaps the result that does not cross the
    antimeridian is chosen. Arcs that leave no gap give -180..180.
    """
    corners = np.stack([np.asarray(v, np.float64).ravel() for v in (west, south, east, north)])
    corners = corners[:, np.isfinite(corners).all(axis=0)]
    if corners.shape[1] == 0:
        return None
    wests, easts = wrap_arcs(corners[0], corners[2])
    low, high = float(corners[1].min()), float(corners[3].max())
    starts = np.where(wests == 180, -180.0, wests)  # a point there is at the front of the circle
    order = np.lexsort((wests, starts))
    starts, wests, easts = starts[order], wests[order], easts[order]
    ends = np.where(easts < wests, easts + 360, easts)
    ends = np.where(wests == 180, -180.0, ends)
    i = _widest_gap(starts, ends)
    if i is None:
        return Box(-180.0, low, 180.0, high)
    # The end before the gap, as the original number: adding and subtracting 360 rounds. It is
    # that of the arc that reaches farthest, maybe one from behind the antimeridian.
    last = int(np.argmax(ends))
    if i and float(ends[:i].max()) >= float(ends[last]) - 360:
        last = int(np.argmax(ends[:i]))
    first_west, last_east = wrap_arcs(wests[i : i + 1], easts[last : last + 1])
    return Box(float(first_west[0]), low, float(last_east[0]), high)


def _widest_gap(starts: Floats, ends: Floats) -> int | None:
    """Index of the arc behind the widest gap, or None when the arcs close the circle.

    `starts` ascend within -180..180, `ends` are at most 540.
    """
    around = float(ends.max()) - 360  # how far the arcs that pass the antimeridian reach
    covered = np.maximum.accumulate(np.concatenate(([around], ends[:-1])))
    gaps = starts - covered
    widest = float(gaps.max())
    if widest <= 0:
        return None
    return 0 if gaps[0] >= widest - _SAME_GAP else int(np.argmax(gaps))


def unturned(box: Sequence[float]) -> list[float]:
    """The box for who compares its edges as numbers; across the antimeridian, all longitudes.

    So TileJSON wants it (3.0.0, 3.4), and clients of WMTS.
    """
    west, south, east, north = box
    return list(box) if -180 <= west <= east <= 180 else [-180.0, south, 180.0, north]


def arc_width(west: npt.ArrayLike, east: npt.ArrayLike) -> Any:
    """Width in degrees of arcs of longitude, 0..360; west > east crosses the antimeridian."""
    wests, easts = wrap_arcs(west, east)
    return np.where(easts < wests, easts + 360 - wests, easts - wests)


# -- rings -----------------------------------------------------------------------------------------


Rows = npt.NDArray[np.int64]
Corners = tuple[Floats, Floats, Floats, Floats]

_FLAT = 1e-9  # degrees: a ring this narrow after unwrapping has collapsed


def continuous(lon: Floats, starts: Rows) -> Floats:
    """Longitudes in degrees of the vertices of rings, ring after ring, without jumps.

    `starts` are indices of the first vertex of each ring, ascending, the first 0.
    """
    steps = np.diff(lon, prepend=lon[:1])
    steps[starts] = 0
    turns = np.where(np.abs(steps) > 180, -360 * np.round(steps / 360), 0.0)
    total = np.cumsum(turns)
    sizes = np.diff(np.append(starts, len(lon)))
    result: Floats = lon + total - np.repeat(total[starts], sizes)
    return result


def ring_boxes(lon: Floats, lat: Floats, starts: Rows) -> Corners:
    """Boxes of n closed rings (or lines, or single points) given in degrees.

    A step of more than 180 degrees crosses the antimeridian, except in a ring that would collapse
    to a line by that: then it goes around the world, as the ring of a global raster does. The box
    of a ring around a pole includes that pole. `starts` are those of `continuous`. West > east is a
    box across the antimeridian.
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
