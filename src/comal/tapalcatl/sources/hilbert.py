"""Tile ids of PMTiles: zooms one after another, each along a Hilbert curve.

The library of that format computes one id at a time; a pyramid has millions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from comal.tapalcatl.sources.base import Keys
from comal.tapalcatl.wire import BASES

Int64s = npt.NDArray[np.int64]
_BASES = np.array(BASES, np.int64)


def tile_ids(z: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike) -> Int64s:
    """Ids of tiles, of which all coordinates are arrays or numbers of one shape."""
    zs, xs, ys = (np.array(values, np.int64) for values in np.broadcast_arrays(z, x, y))
    along = np.zeros_like(xs)
    for level in range(int(zs.max(initial=0)) - 1, -1, -1):
        side = np.int64(1) << level
        right, down = (xs & side) > 0, (ys & side) > 0
        quarter = (3 * right.astype(np.int64)) ^ down
        along += np.where(level < zs, quarter << (2 * level), 0)
        xs, ys = _turned(side, xs & (side - 1), ys & (side - 1), right, down, zs > level)
    ids: Int64s = _BASES[zs] + along
    return ids


def tiles_of(ids: Int64s) -> Keys:
    """Zooms, columns and rows of ids."""
    z = np.searchsorted(_BASES, ids, side="right") - 1
    left = ids - _BASES[z]
    x, y = np.zeros_like(left), np.zeros_like(left)
    for level in range(int(z.max(initial=0))):
        side = np.int64(1) << level
        right = (left >> 1) & 1
        down = (left & 1) ^ right
        inside = level < z
        x, y = _turned(side, x, y, right > 0, down > 0, inside)
        x += np.where(inside, right << level, 0)
        y += np.where(inside, down << level, 0)
        left >>= 2
    return z.astype(np.int64), x, y


def _turned(
    side: np.int64,
    x: Int64s,
    y: Int64s,
    right: npt.NDArray[np.bool_],
    down: npt.NDArray[np.bool_],
    inside: npt.NDArray[np.bool_],
) -> tuple[Int64s, Int64s]:
    """The upper quarters are mirrored at a diagonal, each at its own."""
    upper = inside & ~down
    flipped = upper & right
    x, y = np.where(flipped, side - 1 - x, x), np.where(flipped, side - 1 - y, y)
    return np.where(upper, y, x), np.where(upper, x, y)
