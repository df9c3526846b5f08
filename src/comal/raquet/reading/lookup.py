"""From a cell and a time step to the row that holds the tile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidMetadataError

Ints = npt.NDArray[np.int64]

ABSENT = -1

_HEADER = 0x4800000000000000
_BELOW = (1 << 52) - 1
_SPREAD = [sum((byte >> bit & 1) << 2 * bit for bit in range(8)) for byte in range(256)]


def cell_of(z: int, x: int, y: int) -> int:
    """Id of one tile, as `comal.grid.quadbin.cells` gives it, without the cost of an array.

    The caller has checked that zoom, column and row exist.
    """
    spread = _SPREAD
    code = spread[x & 255] | spread[y & 255] << 1
    if z > 8:
        code |= (spread[x >> 8 & 255] | spread[y >> 8 & 255] << 1) << 16
    if z > 16:
        code |= (spread[x >> 16 & 255] | spread[y >> 16 & 255] << 1) << 32
    if z > 24:
        code |= (spread[x >> 24] | spread[y >> 24] << 1) << 48
    return _HEADER | z << 52 | code << (52 - 2 * z) | _BELOW >> 2 * z


class Lookup:
    """The rows of one file or of several, counted through all of them.

    Parameters
    ----------
    ids
        ``block`` of each row; metadata rows have 0.
    steps
        Number of the time step of each row, or None without time.
    where
        What an error calls the file.

    Notes
    -----
    Nothing here is a Python object per tile: a million tiles take some 16 MB, or 8 where the rows
    stand in the order of their ids.
    """

    def __init__(self, ids: Ints, steps: Ints | None, where: str) -> None:
        self._where = where
        self._order: Ints | None = None
        if steps is not None:
            self._order = np.lexsort((steps, ids))
        elif len(ids) and not (ids[1:] >= ids[:-1]).all():
            self._order = np.argsort(ids, kind="stable")
        self.ids = ids if self._order is None else ids[self._order]
        """All ids, ascending."""
        self.steps = None if steps is None else steps[self._order]
        """The time steps in the same order."""
        # Scalars are looked up by bisection, which is faster on a memoryview than in numpy.
        self._ids = np.ascontiguousarray(self.ids).data
        self._steps = None if self.steps is None else np.ascontiguousarray(self.steps).data
        self._rows = None if self._order is None else self._order.data

    def row(self, cell: int, step: int = 0) -> int:
        """The row of a tile, or `ABSENT`.

        Raises
        ------
        InvalidMetadataError
            The tile stands there twice.
        """
        ids = self._ids
        at = bisect_left(ids, cell)
        end = len(ids)
        if at == end or ids[at] != cell:
            return ABSENT
        if self._steps is not None:
            last = bisect_right(ids, cell, at)
            at = bisect_left(self._steps, step, at, last)
            if at == last or self._steps[at] != step:
                return ABSENT
            twice = at + 1 < last and self._steps[at + 1] == step
        else:
            twice = at + 1 < end and ids[at + 1] == cell
        if twice:
            raise self._twice(cell)
        return at if self._rows is None else self._rows[at]

    def rows(self, cells: Ints, step: int = 0) -> Ints:
        """The rows of many tiles, `ABSENT` where there is none; the errors are those of `row`."""
        if not len(self.ids):
            return np.full(len(cells), ABSENT, np.int64)
        last = len(self.ids) - 1
        begin = np.searchsorted(self.ids, cells)
        if self.steps is None:
            at = begin
            found = self.ids[np.minimum(at, last)] == cells
            following = np.minimum(at + 1, last)
            twice = found & (following > at) & (self.ids[following] == cells)
        else:
            end = np.searchsorted(self.ids, cells, side="right")
            at = _bisected(self.steps, step, begin, end)
            found = (at < end) & (self.steps[np.minimum(at, last)] == step)
            twice = found & (at + 1 < end) & (self.steps[np.minimum(at + 1, last)] == step)
        if twice.any():
            raise self._twice(int(cells[twice][0]))
        rows = at if self._order is None else self._order[np.minimum(at, last)]
        return np.where(found, rows, ABSENT)

    def between(self, first: int, last: int) -> Ints:
        """The different ids from `first` to `last`, both included, ascending."""
        begin, end = np.searchsorted(self.ids, [first, last + 1])
        found = self.ids[begin:end]
        return found[np.flatnonzero(np.append(True, found[1:] != found[:-1])[: len(found)])]

    def counts(self, cells: Ints) -> Ints:
        """How many rows each of these cells has."""
        begin, end = (np.searchsorted(self.ids, cells, side) for side in ("left", "right"))
        return np.asarray(end - begin)

    def _twice(self, cell: int) -> InvalidMetadataError:
        return InvalidMetadataError(
            "tile stands twice", where=self._where, found=f"block {cell}", expected="one row"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.ids, self.steps, self._order, self._where)


def _bisected(values: Ints, wanted: int, begin: Ints, end: Ints) -> Ints:
    """In each of many ascending runs of `values` the first place that is not below `wanted`."""
    low, high = begin.copy(), end.copy()
    while (unsure := low < high).any():
        middle = (low + high) >> 1
        below = unsure & (values[np.where(unsure, middle, 0)] < wanted)
        low = np.where(below, middle + 1, low)
        high = np.where(unsure & ~below, middle, high)
    return low


def _rebuilt(ids: Ints, steps: Ints | None, order: Ints | None, where: str) -> Lookup:
    lookup = object.__new__(Lookup)
    lookup._where = where
    lookup._order, lookup.ids, lookup.steps = order, ids, steps
    lookup._ids = ids.data
    lookup._steps = None if steps is None else steps.data
    lookup._rows = None if order is None else order.data
    return lookup


def joined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Arrays of several files as one, and where each of them starts in it."""
    sizes = np.array([len(part) for part in parts], np.int64)
    return np.concatenate(parts), np.cumsum(sizes) - sizes
