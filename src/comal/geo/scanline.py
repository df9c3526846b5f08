"""Areas as runs of pixels: by pixel centre, by touch, or by the covered share of each pixel.

A grid is given by the positions of its rows: columns are one unit wide and start at 0, rows may
have any height, so that areas with edges straight in longitude and latitude can be intersected with
rows of Web Mercator. All areas are processed at once: an edge is cut into one piece for each row
that it crosses, and pieces are sorted, without loops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.lazy import shapely

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Method = Literal["centre", "all_touched", "fractional"]

METHODS: tuple[Method, ...] = ("centre", "all_touched", "fractional")
_LEAST = 1e-12
"""Shares of a pixel below this are rounding errors."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Edges of n areas, ordered by area.

    Rings are oriented so that the inside of an area is always on the same side of its edges.
    """

    zone: Ints
    """Area of each edge, ascending."""
    u0: Floats
    v0: Floats
    u1: Floats
    v1: Floats
    """Ends of each edge: u to the east, v to the south, in any unit."""

    @classmethod
    def of(cls, areas: Any) -> Edges:
        """Edges of shapely polygons and multipolygons; y is negated, so that v grows to the south.

        Other and invalid geometries are refused.
        """
        shapes = np.asarray(areas, object)
        kinds = shapely.get_type_id(shapes)
        empty = (kinds < 0) | shapely.is_empty(shapes)
        polygon, multi = shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON
        wrong = ~empty & (kinds != polygon) & (kinds != multi)
        if wrong.any():
            raise InvalidInputError(
                "a zone is not an area", where=f"zone {int(np.argmax(wrong))}", expected="polygons"
            )
        invalid = ~empty & ~shapely.is_valid(shapes)
        if invalid.any():
            row = int(np.argmax(invalid))
            raise InvalidInputError(
                "a zone is not a valid geometry",
                where=f"zone {row}",
                found=shapely.is_valid_reason(shapes[row]),
                hint="repair the zone with shapely.make_valid",
            )
        parts, owner = shapely.get_parts(shapes[~empty], return_index=True)
        numbers = np.flatnonzero(~empty)[owner]
        rings, part = shapely.get_rings(shapely.orient_polygons(parts), return_index=True)
        points, ring = shapely.get_coordinates(rings, return_index=True)
        inside = np.flatnonzero(ring[1:] == ring[:-1])
        start, end = points[inside], points[inside + 1]
        return cls(numbers[part][ring[inside]], start[:, 0], -start[:, 1], end[:, 0], -end[:, 1])

    def on(self, west: float, width: float) -> Edges:
        """The same edges with u in columns of `width`, counted from `west`."""
        return Edges(
            self.zone, (self.u0 - west) / width, self.v0, (self.u1 - west) / width, self.v1
        )

    def take(self, chosen: Any) -> Edges:
        """Some of the edges."""
        return Edges(
            self.zone[chosen], self.u0[chosen], self.v0[chosen], self.u1[chosen], self.v1[chosen]
        )


@dataclass(frozen=True, slots=True)
class Spans:
    """Runs of pixels of areas, ordered by area, row and column; runs of one area do not overlap."""

    zone: Ints
    row: Ints
    start: Ints
    stop: Ints
    """First column, and the one after the last."""
    weight: Floats
    """Share of each pixel of the run that the area covers; 1 except for ``fractional``."""

    def __len__(self) -> int:
        return len(self.zone)

    def mask(self, height: int, width: int) -> npt.NDArray[np.float64]:
        """The weights as one image (height, width), summed over areas."""
        change = np.zeros((height, width + 1))
        np.add.at(change, (self.row, self.start), self.weight)
        np.add.at(change, (self.row, self.stop), -self.weight)
        return np.cumsum(change, axis=1)[:, :-1]


def area_spans(
    edges: Edges, borders: Floats, centres: Floats, width: int, method: Method = "centre"
) -> Spans:
    """The pixels of a grid inside areas.

    Parameters
    ----------
    edges
        Edges of the areas, with u in columns of the grid: 0 is its west border.
    borders
        v of the borders of its rows, ascending, one more than there are rows.
    centres
        v of the centres of its rows.
    width
        Columns of the grid.
    method
        ``centre``: pixels whose centre is inside; ``all_touched``: also those that an edge
        crosses; ``fractional``: all of these, weighted by the exact share of the pixel that is
        covered, for rows as high as they are in v.
    """
    if method not in METHODS:
        raise InvalidInputError("unknown method", found=method, expected=", ".join(METHODS))
    low, high = np.minimum(edges.v0, edges.v1), np.maximum(edges.v0, edges.v1)
    edges = edges.take(np.flatnonzero((high >= borders[0]) & (low <= borders[-1])))
    if method == "fractional":
        return _covered(edges, borders, width)
    inner = _inner(edges, centres, width)
    if method == "centre":
        return inner
    return _united(inner, _touched(edges, borders, width), len(centres))


# -- pixel centres ---------------------------------------------------------------------------------


def _inner(edges: Edges, centres: Floats, width: int) -> Spans:
    """Pixels between each odd crossing of a row's centre line and the next are inside."""
    first = np.searchsorted(centres, np.minimum(edges.v0, edges.v1), side="left")
    last = np.searchsorted(centres, np.maximum(edges.v0, edges.v1), side="left")
    which, row = _expanded(first, last)
    part = edges.take(which)
    at = part.u0 + (centres[row] - part.v0) / (part.v1 - part.v0) * (part.u1 - part.u0)
    order = np.lexsort((at, row, part.zone))
    column = np.ceil(np.clip(at[order], -1, width + 1) - 0.5).astype(np.int64).clip(0, width)
    zone, row = part.zone[order][::2], row[order][::2]
    start, stop = column[::2], column[1::2]
    some = np.flatnonzero(stop > start)
    return Spans(zone[some], row[some], start[some], stop[some], np.ones(len(some)))


# -- touched pixels --------------------------------------------------------------------------------


def _touched(edges: Edges, borders: Floats, width: int) -> Spans:
    """For each edge and row, the columns that the edge crosses."""
    piece = _pieces(edges, borders)
    low, high = np.minimum(piece.u0, piece.u1), np.maximum(piece.u0, piece.u1)
    start = np.floor(np.clip(low, -1, width)).astype(np.int64).clip(0, width)
    stop = (np.floor(np.clip(high, -1, width)).astype(np.int64) + 1).clip(0, width)
    some = np.flatnonzero(stop > start)
    return Spans(piece.zone[some], piece.row[some], start[some], stop[some], np.ones(len(some)))


def _united(one: Spans, other: Spans, rows: int) -> Spans:
    zone = np.concatenate([one.zone, other.zone])
    row = np.concatenate([one.row, other.row])
    start = np.concatenate([one.start, other.start])
    stop = np.concatenate([one.stop, other.stop])
    if not len(zone):
        return one
    order = np.lexsort((start, row, zone))
    zone, row, start, stop = zone[order], row[order], start[order], stop[order]
    # One axis for all rows of all areas, with gaps between them.
    line = (zone * rows + row) * (int(stop.max()) + 2)
    reach = np.maximum.accumulate(line + stop)
    fresh = np.concatenate([[True], line[1:] + start[1:] > reach[:-1]])
    begin = np.flatnonzero(fresh)
    end = np.concatenate([begin[1:], [len(zone)]]) - 1
    stops = reach[end] - line[begin]
    return Spans(zone[begin], row[begin], start[begin], stops, np.ones(len(begin)))


# -- shares of pixels ------------------------------------------------------------------------------


def _covered(edges: Edges, borders: Floats, width: int) -> Spans:
    """Shares of pixels, summed from signed areas.

    An edge adds its height in a row to every pixel right of it, and to the pixels that it crosses
    that height times the share of the pixel that is right of it.
    """
    piece = _pieces(edges, borders)
    height = borders[piece.row + 1] - borders[piece.row]
    rise = (piece.v1 - piece.v0) / height
    zone, row, column, cover, area = _cells(piece, rise, width)
    cells = int(width) + 1
    rows = len(borders)
    key, inverse = np.unique((zone * rows + row) * cells + column, return_inverse=True)
    cover = np.bincount(inverse, cover, len(key)).astype(np.float64)
    area = np.bincount(inverse, area, len(key)).astype(np.float64)
    line, column = np.divmod(key, cells)
    fresh = np.flatnonzero(np.concatenate([[True], line[1:] != line[:-1]])) if len(key) else key
    running = np.cumsum(cover)
    before_line = np.repeat(
        running[fresh] - cover[fresh], np.diff(np.concatenate([fresh, [len(key)]]))
    )
    after = running - before_line
    here = after - cover + area
    following = np.concatenate([column[1:], [width]]) if len(key) else column
    last = np.concatenate([line[1:] != line[:-1], [True]]) if len(key) else np.empty(0, np.bool_)
    following = np.where(last, width, following)
    # A run for each pixel with an edge, and one for the pixels up to the next.
    starts = np.stack([column, column + 1], axis=1).ravel()
    stops = np.stack([column + 1, following], axis=1).ravel()
    weight = np.abs(np.stack([here, after], axis=1).ravel())
    lines = np.repeat(line, 2)
    some = np.flatnonzero((stops > starts) & (starts < width) & (weight > _LEAST))
    zones, rows_of = np.divmod(lines[some], rows)
    return Spans(zones, rows_of, starts[some], stops[some], weight[some].clip(0, 1))


def _cells(piece: _Pieces, rise: Floats, width: int) -> tuple[Ints, Ints, Ints, Floats, Floats]:
    """Pieces cut at column borders: area, row, column, height, and the share right of it."""
    across = piece.u1 - piece.u0
    steep = np.abs(across) < _LEAST
    slope = np.where(steep, 1.0, across)
    low, high = np.minimum(piece.u0, piece.u1), np.maximum(piece.u0, piece.u1)
    left = np.where(steep, low < 0, (np.minimum(high, 0) - np.minimum(low, 0)) / np.abs(slope))
    # Edges west of the grid count as running along its border.
    outer = np.flatnonzero(left > 0)
    inside = np.flatnonzero((high >= 0) & (low < width) & ~(steep & (low < 0)))
    first = np.floor(np.clip(low[inside], 0, width)).astype(np.int64)
    last = np.where(
        steep[inside], first + 1, np.ceil(np.clip(high[inside], 0, width)).astype(np.int64)
    )
    which, column = _expanded(first, np.maximum(last, first + 1))
    which = inside[which]
    enter = np.clip(low[which], column, column + 1)
    leave = np.clip(high[which], column, column + 1)
    share = np.where(steep[which], 1.0, (leave - enter) / np.abs(slope[which]))
    cover = rise[which] * share
    right = cover * (1 - ((enter + leave) / 2 - column))
    edge = rise[outer] * left[outer]
    return (
        np.concatenate([piece.zone[which], piece.zone[outer]]),
        np.concatenate([piece.row[which], piece.row[outer]]),
        np.concatenate([column, np.zeros(len(outer), np.int64)]),
        np.concatenate([cover, edge]),
        np.concatenate([right, edge]),
    )


# -- pieces of edges -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Pieces:
    """Edges cut at the borders of rows."""

    zone: Ints
    row: Ints
    u0: Floats
    v0: Floats
    u1: Floats
    v1: Floats


def _pieces(edges: Edges, borders: Floats) -> _Pieces:
    low, high = np.minimum(edges.v0, edges.v1), np.maximum(edges.v0, edges.v1)
    rows = len(borders) - 1
    first = (np.searchsorted(borders, low, side="right") - 1).clip(0, rows - 1)
    last = np.searchsorted(borders, high, side="left").clip(first + 1, rows)
    which, row = _expanded(first, last)
    part = edges.take(which)
    top, bottom = borders[row], borders[row + 1]
    down = part.v1 - part.v0
    flat = down == 0
    steep = np.where(flat, 1.0, down)
    v0, v1 = np.clip(part.v0, top, bottom), np.clip(part.v1, top, bottom)
    u0 = np.where(flat, part.u0, part.u0 + (v0 - part.v0) / steep * (part.u1 - part.u0))
    u1 = np.where(flat, part.u1, part.u0 + (v1 - part.v0) / steep * (part.u1 - part.u0))
    return _Pieces(part.zone, row, u0, v0, u1, v1)


def _expanded(first: Any, last: Any) -> tuple[Ints, Ints]:
    """For each pair the numbers ``first .. last - 1``, and the index of the pair."""
    count = np.maximum(np.asarray(last, np.int64) - first, 0)
    which = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return which, np.arange(len(which)) - before[which] + np.asarray(first, np.int64)[which]
