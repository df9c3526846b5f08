"""Tiles as they are handed to calls that take many: tuples, or one array."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, translated
from comal.grid.arguments import NO_ARRAY, integers

Ints = npt.NDArray[np.int64]


def tile_rows(tiles: Iterable[Any]) -> Ints:
    """Zoom, column and row of tiles as int64, shape (n, 3).

    Parameters
    ----------
    tiles
        Triples of whole numbers, or an array of shape (n, 3).

    Raises
    ------
    InvalidInputError
        Anything else.
    """
    with translated(NO_ARRAY, "no list of tiles", expected="zoom, column and row of each"):
        given = tiles if isinstance(tiles, np.ndarray) else np.array(list(tiles))
    if given.size == 0:
        return np.empty((0, 3), np.int64)
    if given.ndim != 2 or given.shape[1] != 3:
        raise InvalidInputError(
            "no list of tiles",
            found=f"an array of shape {given.shape}",
            expected="zoom, column and row of each: shape (n, 3)",
        )
    return integers(given, "tile")
