"""Array arguments: integers, coordinates, and shapes that can be broadcast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, translated

NO_ARRAY: dict[type[BaseException], type[InvalidInputError]] = {
    TypeError: InvalidInputError,
    ValueError: InvalidInputError,
}
"""Errors of numpy for arguments that are not arrays of numbers, for `translated`."""


def integers(values: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    """Whole numbers as an int64 array; nothing is rounded.

    Raises
    ------
    InvalidInputError
        Anything other than signed 64-bit integers.
    """
    try:  # not `translated`, which takes longer than the rest for a single number
        given = np.asarray(values)
    except ValueError as error:
        raise InvalidInputError(
            f"a {what} is not a 64-bit integer", found=str(error), expected="integers"
        ) from error
    if given.size == 0:
        return given.astype(np.int64)
    if given.dtype.kind not in "iu":
        raise InvalidInputError(
            f"a {what} is not a 64-bit integer", found=str(given.dtype), expected="integers"
        )
    result = given.astype(np.int64, copy=False)
    if given.dtype == np.uint64 and (result < 0).any():
        raise InvalidInputError(f"a {what} is too large", found=int(given.max()))
    return result


def reals(values: npt.ArrayLike, what: str) -> npt.NDArray[np.float64]:
    """Numbers as a float64 array.

    Raises
    ------
    InvalidInputError
        Anything other than numbers. None is refused, although numpy converts it to NaN.
    """
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise InvalidInputError(
            f"a {what} is not a number", found=str(error), expected="numbers"
        ) from error
    if given.dtype.kind in "fiu" or given.size == 0:
        return given.astype(np.float64, copy=False)
    raise InvalidInputError(f"a {what} is not a number", found=str(given.dtype), expected="numbers")


def together(*arrays: npt.NDArray[Any]) -> None:
    """Refuse arrays that cannot be broadcast to one shape.

    Raises
    ------
    InvalidInputError
        The shapes cannot be broadcast.
    """
    try:
        np.broadcast(*arrays)
    except ValueError as error:
        raise InvalidInputError(
            "arrays whose shapes do not fit",
            found=" and ".join(str(array.shape) for array in arrays),
            expected="one shape, or numbers",
        ) from error


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
    with translated(NO_ARRAY, "not a list of tiles", expected="zoom, column and row of each"):
        given = tiles if isinstance(tiles, np.ndarray) else np.array(list(tiles))
    if given.size == 0:
        return np.empty((0, 3), np.int64)
    if given.ndim != 2 or given.shape[1] != 3:
        raise InvalidInputError(
            "not a list of tiles",
            found=f"an array of shape {given.shape}",
            expected="zoom, column and row of each: shape (n, 3)",
        )
    return integers(given, "tile")
