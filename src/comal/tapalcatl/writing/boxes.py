"""Bounds of a pyramid: what its source says, never narrower than its tiles.

Readers answer "no tile" outside of the bounds, so that a box that misses a tile hides it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from comal.tapalcatl.addressing import tile_bounds, tile_range
from comal.tapalcatl.spec import WORLD, Bounds

Extents = Mapping[int, tuple[int, int, int, int]]
"""For each zoom the first and last column and row: (x, y, x, y)."""


class Placed(Protocol):
    """Tiles of any kind; arrays of shape (n,)."""

    @property
    def z(self) -> npt.NDArray[np.int64]:
        """Zooms."""
        ...

    @property
    def x(self) -> npt.NDArray[np.int64]:
        """Columns."""
        ...

    @property
    def y(self) -> npt.NDArray[np.int64]:
        """Rows from the north."""
        ...


def extents_of(tiles: Placed) -> dict[int, tuple[int, int, int, int]]:
    """For each zoom of some tiles the first and last column and row."""
    found = {}
    for z in np.unique(tiles.z).tolist():
        x, y = tiles.x[tiles.z == z], tiles.y[tiles.z == z]
        found[z] = (int(x.min()), int(y.min()), int(x.max()), int(y.max()))
    return found


def bounds_of(extents: Extents, said: Bounds | None) -> Bounds:
    """The box of what a source says, or of its deepest zoom, widened where tiles lie outside.

    West > east in `said` is taken for the whole circle.
    """
    if not extents:
        return WORLD if said is None else said
    box = _box(max(extents), extents[max(extents)]) if said is None else _ordered(said)
    for zoom, extent in extents.items():
        if not covers(box, zoom, extent):
            box = union(box, _box(zoom, extent))
    return box


def covers(box: Bounds, zoom: int, extent: tuple[int, int, int, int]) -> bool:
    """Whether the tiles of a zoom within an extent all touch the box."""
    columns, rows = tile_range(box, zoom)
    return (
        columns[0] <= extent[0]
        and rows[0] <= extent[1]
        and columns[-1] >= extent[2]
        and rows[-1] >= extent[3]
    )


def _ordered(box: Bounds) -> Bounds:
    west, south, east, north = box
    return (-180.0, south, 180.0, north) if west > east else box


def _box(zoom: int, extent: tuple[int, int, int, int]) -> Bounds:
    west, _, _, north = tile_bounds(zoom, extent[0], extent[1])
    _, south, east, _ = tile_bounds(zoom, extent[2], extent[3])
    return west, south, east, north


def union(one: Bounds, other: Bounds) -> Bounds:
    """The smallest box that holds both."""
    return (
        min(one[0], other[0]),
        min(one[1], other[1]),
        max(one[2], other[2]),
        max(one[3], other[3]),
    )
