"""Cells of boxes and geometries, as few ranges of ids.

All descendants of a cell at one zoom are one range of ids, so the cells of a box or a geometry are
found by descending from the whole world: cells completely inside become ranges, those at the edge
are split, one zoom at a time.

A range is a row (first, last) of an int64 array, both ends included. Cells are half-open: a box
or an area that only touches an edge of a cell does not overlap it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, LimitExceededError, translated
from comal.grid.arguments import NO_ARRAY, integers
from comal.grid.mercator import LATITUDE_LIMIT, lonlat_to_xy, xy_to_lonlat
from comal.grid.quadbin import cells as cell_ids
from comal.grid.quadbin import (
    children,
    descendants,
    from_lonlat,
    tiles,
    zooms,
    zooms_of,
)
from comal.lazy import shapely

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Mode = Literal["intersects", "center", "contains"]

_WORLD = 0x480FFFFFFFFFFFFF
_CELLS = 1 << 25
_EDGE = 1 << 20
_FARTHEST = 1080
"""Degrees: a geometry is looked for on each copy of the world that it reaches."""


def bbox_windows(bbox: Sequence[float], z: int) -> Ints:
    """Columns and rows of the tiles of zoom `z` that a box overlaps.

    Parameters
    ----------
    bbox
        West, south, east and north in degrees of EPSG:4326; west > east crosses the antimeridian.
        A box without width or height is a point or a line, and overlaps the tiles it is in.
    z
        Zoom, 0 to 26.

    Returns
    -------
    int64 array (n, 4) of first column, first row, last column, last row, all included. One row,
    two for a box across the antimeridian, none for a box beyond the limit of Web Mercator.

    Raises
    ------
    InvalidInputError
        Not four finite numbers, south > north, longitudes beyond 180 or latitudes beyond 90.
    """
    west, south, east, north = _checked(bbox)
    zoom = int(zooms_of(z))
    if south >= LATITUDE_LIMIT or north <= -LATITUDE_LIMIT:
        return np.empty((0, 4), np.int64)
    parts = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    windows = []
    for left, right in parts:
        x, y = lonlat_to_xy([left, right], [north, south], zoom)
        x0, x1 = _span(x, zoom)
        y0, y1 = _span(y, zoom)
        windows.append((x0, y0, x1, y1))
    if len(windows) == 2 and windows[0][0] <= windows[1][2]:
        # Both parts end in one column: at coarse zooms they overlap.
        return np.array([(0, windows[0][1], (1 << zoom) - 1, windows[0][3])], np.int64)
    return np.array(windows, np.int64)


def bbox_ranges(bbox: Sequence[float], z: int) -> Ints:
    """Id ranges of the cells of zoom `z` that a box overlaps; see `bbox_windows`.

    Returns
    -------
    int64 array (n, 2), ascending, without overlaps.

    Raises
    ------
    LimitExceededError
        More than a million cells along the edge.
    """
    return merge_ranges(_stacked([_window_ranges(one, z) for one in bbox_windows(bbox, z)]))


def bbox_cells(bbox: Sequence[float], z: int) -> Ints:
    """The cells of zoom `z` that a box overlaps, ascending; see `bbox_windows`."""
    return range_cells(bbox_ranges(bbox, z))


def _window_ranges(window: Ints, zoom: int) -> Ints:
    """Id ranges of a window of tiles: first column and row, last column and row."""
    x0, y0, x1, y1 = window.tolist()

    def split(found: Ints) -> tuple[Bools, Bools]:
        own, x, y = tiles(found)
        shift = zoom - own
        left, top = x << shift, y << shift
        right, bottom = left + (1 << shift) - 1, top + (1 << shift) - 1
        touched = (left <= x1) & (right >= x0) & (top <= y1) & (bottom >= y0)
        inside = (left >= x0) & (right <= x1) & (top >= y0) & (bottom <= y1)
        return touched, inside

    return _descend(zoom, split, _ancestor(zoom, x0, y0, x1, y1))


def geometry_ranges(geometry: Any, z: int, mode: Mode = "intersects") -> Ints:
    """Id ranges of the cells of zoom `z` that belong to a geometry.

    Parameters
    ----------
    geometry
        A shapely geometry in degrees of EPSG:4326, with straight edges in longitude and latitude.
        Longitudes may exceed -180..180, up to three turns.
    z
        Zoom, 0 to 26.
    mode
        ``intersects``: cells that an area overlaps, a line touches, or that contain a point.
        ``center``: cells whose centre is in an area; points and lines have none.
        ``contains``: cells completely inside an area.

    Returns
    -------
    int64 array (n, 2), ascending, without overlaps.

    Raises
    ------
    InvalidInputError
        Not a geometry, an invalid one, longitudes that are no degrees, an unknown mode, or a zoom
        out of range.
    LimitExceededError
        More than a million cells along the edge.
    """
    zoom = int(zooms_of(z))
    if mode not in {"intersects", "center", "contains"}:
        raise InvalidInputError(
            "unknown mode", found=mode, expected="intersects, center or contains"
        )
    found = []
    for part, dimension in _parts(geometry):
        if dimension < 2 and mode != "intersects":
            continue
        if dimension == 0:
            found.append(_of_points(part, zoom))
        else:
            splitter = _Splitter(part, mode, zoom=zoom, area=dimension == 2)
            found.append(_descend(zoom, splitter, _above(part, dimension, zoom)))
    return merge_ranges(_stacked(found))


def geometry_cells(geometry: Any, z: int, mode: Mode = "intersects") -> Ints:
    """The cells of zoom `z` that belong to a geometry, ascending; see `geometry_ranges`.

    Raises
    ------
    LimitExceededError
        More than 33 million cells; `geometry_ranges` has no such limit.
    """
    return range_cells(geometry_ranges(geometry, z, mode))


def range_cells(ranges: npt.ArrayLike) -> Ints:
    """All cells of ranges, in order; each range has one zoom."""
    pairs = _pairs(ranges)
    if not len(pairs):
        return np.empty(0, np.int64)
    step = np.left_shift(1, 52 - 2 * np.asarray(zooms(pairs[:, 0])))
    count = (pairs[:, 1] - pairs[:, 0]) // step + 1
    _check_count(int(count.sum()))
    before = np.repeat(np.cumsum(count) - count, count)
    within = np.arange(len(before), dtype=np.int64) - before
    return cast("Ints", np.repeat(pairs[:, 0], count) + within * np.repeat(step, count))


def merge_ranges(ranges: npt.ArrayLike) -> Ints:
    """Ranges in ascending order, with overlapping and adjacent ones merged.

    `ranges` is an integer array (n, 2) of first and last cells, in any order; each range has one
    zoom.
    """
    pairs = _pairs(ranges)
    if len(pairs) < 2:
        return pairs
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    last = np.maximum.accumulate(pairs[:, 1])
    step = np.left_shift(1, 52 - 2 * np.asarray(zooms(last)))
    apart = pairs[1:, 0] - last[:-1] > step[:-1]
    starts = np.concatenate([[0], np.flatnonzero(apart) + 1])
    ends = np.concatenate([starts[1:], [len(pairs)]]) - 1
    return np.stack([pairs[starts, 0], last[ends]], axis=1)


def in_ranges(cell: npt.ArrayLike, ranges: npt.ArrayLike) -> Bools:
    """Whether ids are in ranges, which must ascend and not overlap, as those of this module."""
    ids, pairs = integers(cell, "cell"), _pairs(ranges)
    if not len(pairs):
        return np.zeros(ids.shape, np.bool_)
    at = np.searchsorted(pairs[:, 0], ids, side="right") - 1
    return cast("Bools", (at >= 0) & (ids <= pairs[np.maximum(at, 0), 1]))


# -- descending ------------------------------------------------------------------------------------


def _ancestor(zoom: int, x0: int, y0: int, x1: int, y1: int) -> int:
    """The finest cell that contains two tiles."""
    up = max((x0 ^ x1).bit_length(), (y0 ^ y1).bit_length())
    return cell_ids(zoom - up, x0 >> up, y0 >> up)


def _above(geometry: Any, dimension: int, zoom: int) -> int:
    """A cell that contains all cells of a geometry."""
    if dimension < 2:
        return _WORLD  # a line also touches cells beside its box
    west, south, east, north = geometry.bounds
    last = (1 << zoom) - 1
    x, y = lonlat_to_xy(np.clip([west, east], -180, 180), [north, south], zoom)
    (x0, x1), (y0, y1) = (np.minimum(np.floor(one), last).astype(int).tolist() for one in (x, y))
    return _ancestor(zoom, x0, y0, x1, y1)


def _descend(zoom: int, split: Any, start: int) -> Ints:
    """Ranges of zoom `zoom` below `start`.

    `split` returns which of some cells are touched and which are inside.
    """
    found: list[Ints] = []
    cells = np.array([start], np.int64)
    while True:
        touched, inside = split(cells)
        whole, edge = cells[touched & inside], cells[touched & ~inside]
        found.append(_ranges_of(whole, zoom))
        if not len(edge):
            break
        if int(zooms(edge[0])) == zoom:
            found.append(_ranges_of(edge, zoom))
            break
        if len(edge) > _EDGE:
            raise LimitExceededError("too many cells along an edge", expected=f"at most {_EDGE}")
        cells = children(edge).ravel()
    return _stacked(found)


def _ranges_of(cells: Ints, zoom: int) -> Ints:
    return np.stack(descendants(cells, zoom), axis=1) if len(cells) else _NONE


class _Splitter:
    """Which cells an area or a line touches or contains."""

    def __init__(self, geometry: Any, mode: Mode, *, zoom: int, area: bool) -> None:
        shapely.prepare(geometry)
        self._geometry, self._mode, self._zoom, self._area = geometry, mode, zoom, area

    def __call__(self, cells: Ints) -> tuple[Bools, Bools]:
        z, x, y = tiles(cells)
        inset = _same(int(z[0])) if self._area else 0.0
        boxes = _boxes(x, y, z, inset)
        touched = np.asarray(shapely.intersects(self._geometry, boxes))
        inside = np.zeros(len(cells), np.bool_)
        if self._area:
            inside[touched] = shapely.covers(self._geometry, boxes[touched])
        if int(z[0]) == self._zoom and self._mode == "contains":
            touched &= inside
        elif int(z[0]) == self._zoom and self._mode == "center":
            lon, lat = xy_to_lonlat(x + 0.5, y + 0.5, z)
            touched &= shapely.intersects_xy(self._geometry, lon, lat)
        return touched, inside


def _boxes(x: Ints, y: Ints, z: Ints, inset: float) -> Any:
    west, north = xy_to_lonlat(x + inset, y + inset, z)
    east, south = xy_to_lonlat(x + (1 - inset), y + (1 - inset), z)
    return shapely.box(west, south, east, north)


def _of_points(points: Any, zoom: int) -> Ints:
    lon, lat = shapely.get_coordinates(points).T
    cells = np.unique(from_lonlat(lon, lat, zoom))
    return np.stack([cells, cells], axis=1)


def _parts(geometry: Any) -> list[tuple[Any, int]]:
    """Points, lines and areas of a geometry, once for each turn around the world."""
    if not isinstance(geometry, shapely.Geometry):
        raise InvalidInputError(
            "not a geometry", found=type(geometry).__name__, expected="a shapely geometry"
        )
    if not shapely.is_valid(geometry):
        raise InvalidInputError("invalid geometry", found=shapely.is_valid_reason(geometry))
    first, _, last, _ = geometry.bounds
    if max(-first, last) > _FARTHEST:  # false for an empty one
        raise InvalidInputError(
            "the longitudes of a geometry are no degrees",
            found=f"{first:g} to {last:g}",
            expected=f"-{_FARTHEST} to {_FARTHEST}",
        )
    pieces = shapely.get_parts(geometry)
    while (shapely.get_type_id(pieces) >= shapely.GeometryType.MULTIPOINT).any():
        pieces = shapely.get_parts(pieces)
    pieces = pieces[~shapely.is_empty(pieces)]
    dimensions = shapely.get_dimensions(pieces)
    found = []
    for dimension in range(3):
        mine = pieces[dimensions == dimension]
        if not len(mine):
            continue
        whole = shapely.union_all(mine) if len(mine) > 1 else mine[0]
        west, _, east, _ = shapely.bounds(whole)
        turns = range(int(np.floor((west + 180) / 360)), int(np.ceil((east - 180) / 360)) + 1)
        for turn in turns or (0,):
            moved = shapely.transform(whole, lambda points, turn=turn: points - [360 * turn, 0])
            found.append((moved if turn else whole, dimension))
    return found


# -- helpers ---------------------------------------------------------------------------------------

_NONE = np.empty((0, 2), np.int64)


def _checked(bbox: Sequence[float]) -> tuple[float, float, float, float]:
    with translated(NO_ARRAY, "a box has four edges", expected="west, south, east, north"):
        edges = tuple(float(edge) for edge in bbox)
    if len(edges) != 4 or not np.isfinite(edges).all():
        raise InvalidInputError("a box has four edges", expected="west, south, east, north")
    west, south, east, north = edges
    if south > north or max(abs(south), abs(north)) > 90 or max(abs(west), abs(east)) > 180:
        raise InvalidInputError(
            "not a box on the earth",
            found=edges,
            expected="degrees, south <= north; west > east crosses the antimeridian",
        )
    return west, south, east, north


def _span(edges: Floats, zoom: int) -> tuple[int, int]:
    """First and last tile between two fractional positions; an edge on a line is not beyond it."""
    last = (1 << zoom) - 1
    # Positions come from degrees: within rounding errors of a line, they are on it.
    near = np.round(edges)
    low, high = np.where(np.abs(edges - near) < _same(zoom), near, edges)
    first = min(int(np.floor(low)), last)
    return first, max(first, min(int(np.ceil(high)) - 1, last))


def _same(zoom: int) -> float:
    """Least overlap with a cell as a share of its side: more than the rounding of degrees."""
    return max(1e-9, 1e-15 * 2.0**zoom)


def _stacked(found: Sequence[Ints]) -> Ints:
    return np.concatenate([_NONE, *found])


def _pairs(ranges: npt.ArrayLike) -> Ints:
    pairs = integers(ranges, "range of cells")
    if pairs.size and (pairs.ndim != 2 or pairs.shape[1] != 2):
        raise InvalidInputError(
            "not ranges of cells",
            found=f"an array of shape {pairs.shape}",
            expected="first and last cell of each: shape (n, 2)",
        )
    return pairs.reshape(-1, 2)


def _check_count(count: int) -> None:
    if count > _CELLS:
        raise LimitExceededError(
            "too many cells", found=count, expected=f"at most {_CELLS}", hint="ask for ranges"
        )
