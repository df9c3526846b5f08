"""Where chips of a raster are: computed from their numbers, only where there are tiles.

Positions are pixels of one zoom, counted from the north-west corner of the world. Columns continue
across the antimeridian. Rectangles are left, top, right and bottom, the latter two not included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.ml.order import Ints, key_of, mixed
from comal.raquet.reading.windows import Grid, in_tiles, merged

_MOST = 1 << 62
"""Most places of a grid, so that their numbers fit 64 bits."""


@dataclass(frozen=True, slots=True, eq=False)
class GridPlaces:
    """First pixels at multiples of a stride.

    All places of the grid are numbered row by row; those with tiles are runs of these numbers.
    """

    stride: int
    first: tuple[int, int]
    """Column and row of the first place, in strides."""
    across: int
    """Places in a row."""
    starts: Ints
    """The number at which each run starts."""
    ends: Ints
    """How many places all runs up to each have."""

    def __len__(self) -> int:
        return int(self.ends[-1])

    def at(self, numbers: Ints) -> Ints:
        """Columns and rows of first pixels, shape (n, 2)."""
        run = np.searchsorted(self.ends, numbers, side="right")
        places = self.starts[run] + numbers - np.append(0, self.ends)[run]
        rows, columns = np.divmod(places, self.across)
        first = np.array(self.first, np.int64)
        return (np.column_stack([columns, rows]) + first) * np.int64(self.stride)


@dataclass(frozen=True, slots=True, eq=False)
class RandomPlaces:
    """First pixels of chips whose centres are drawn from all pixels of some rectangles."""

    count: int
    key: int
    shift: int
    """Pixels from the first one of a chip to its centre."""
    last_row: int
    """The last row in which a chip may begin."""
    rectangles: Ints
    """Shape (4, n)."""

    def __len__(self) -> int:
        return self.count

    def at(self, numbers: Ints) -> Ints:
        """Columns and rows of first pixels, shape (n, 2)."""
        left, top, right, bottom = self.rectangles
        ends = np.cumsum((right - left) * (bottom - top))
        # 53 bits, as many as a float holds, so that a draw is below 1.
        share = (mixed(numbers.astype(np.uint64), self.key) >> np.uint64(11)) * 2.0**-53
        pixels = np.minimum((share * ends[-1]).astype(np.int64), ends[-1] - 1)
        which = np.searchsorted(ends, pixels, side="right")
        down, across = np.divmod(pixels - np.append(0, ends)[which], (right - left)[which])
        rows = (top[which] + down - self.shift).clip(0, self.last_row)
        return np.column_stack([left[which] + across - self.shift, rows])


Places = GridPlaces | RandomPlaces


def on_grid(
    file: Any, grid: Grid, bbox: Sequence[float] | None, size: int, stride: int
) -> GridPlaces:
    """Chips with a pixel in a tile, within `bbox`; without one, with a pixel in the bounds."""
    region = _region(file, grid, bbox, size)
    (left, top), (right, bottom) = region[:2].tolist(), region[2:].tolist()
    if bbox is None:
        first = max(0, (left - size) // stride + 1), max(0, (top - size) // stride + 1)
        last = (right - 1) // stride, min(bottom - 1, grid.height - size) // stride
    else:
        first = -(-left // stride), -(-top // stride)
        last = (right - size) // stride, (bottom - size) // stride
    across, down = (max(0, last[axis] - first[axis] + 1) for axis in (0, 1))
    if across * down > _MOST:
        raise InvalidInputError("the grid of chips has too many places", found=across * down)
    parts = in_tiles(file.cells(grid.zoom), grid, region)
    # The first and last chips that touch each rectangle, in strides.
    x0, y0 = np.maximum((parts[:2] - size) // stride + 1, _upright(first))
    x1, y1 = np.minimum((parts[2:] - 1) // stride, _upright(last))
    heights = np.where(x1 >= x0, np.maximum(y1 - y0 + 1, 0), 0)
    part = np.repeat(np.arange(len(heights)), heights)
    rows = y0[part] + np.arange(len(part)) - (np.cumsum(heights) - heights)[part]
    before = (rows - first[1]) * across - first[0]
    starts, stops = merged(before + x0[part], before + x1[part] + 1)
    if not len(starts):
        raise _nowhere(file, bbox, size)
    return GridPlaces(stride, first, across, starts, np.cumsum(stops - starts))


def at_random(
    file: Any, grid: Grid, bbox: Sequence[float] | None, size: int, count: int, seed: int
) -> RandomPlaces:
    """Chips with their centres in tiles, within `bbox`; without one, in the bounds if they fit."""
    region, shift = _region(file, grid, bbox, size), size // 2
    centres = region + np.repeat([shift, shift - size + 1], 2)
    if bbox is not None or (centres[:2] < centres[2:]).all():
        region = centres
    parts = in_tiles(file.cells(grid.zoom), grid, region)
    if not parts.shape[1]:
        raise _nowhere(file, bbox, size)
    return RandomPlaces(count, key_of(seed), shift, grid.height - size, parts)


def _region(file: Any, grid: Grid, bbox: Sequence[float] | None, size: int) -> Ints:
    if size > min(grid.width, grid.height):
        raise InvalidInputError("a chip is larger than the world", found=size)
    left, top, width, height = grid.span(file.bounds if bbox is None else bbox)
    return np.array([left, top, left + width, top + height], np.int64)


def _upright(pair: Sequence[int] | Ints) -> Ints:
    return np.array(pair, np.int64)[:, None]


def _nowhere(file: Any, bbox: Sequence[float] | None, size: int) -> InvalidInputError:
    return InvalidInputError(
        "no chip with a tile fits", where=file.href, found=f"size {size}, bbox {bbox}"
    )
