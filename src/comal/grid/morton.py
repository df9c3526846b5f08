"""Morton codes: two numbers of up to 31 bits interleaved to one, bit by bit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.grid.arguments import integers, together

Ints = npt.NDArray[np.int64]

# Each step halves the distance over which bits still have to move.
_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)
_LARGEST = (1 << 31) - 1
_FINEST = (1 << 21) - 1
_COMPACT = (
    (1, 0x3333333333333333),
    (2, 0x0F0F0F0F0F0F0F0F),
    (4, 0x00FF00FF00FF00FF),
    (8, 0x0000FFFF0000FFFF),
    (16, 0x00000000FFFFFFFF),
)


def interleave(x: npt.ArrayLike, y: npt.ArrayLike) -> Ints:
    """Morton codes of columns and rows.

    Parameters
    ----------
    x, y
        Integers from 0 to 2**31 - 1, of one shape or broadcast to one.

    Returns
    -------
    int64 array: bit 2i is bit i of `x`, bit 2i + 1 is bit i of `y`.

    Raises
    ------
    InvalidInputError
        No integers, integers out of range, or shapes that do not fit.
    """
    across, down = integers(x, "column"), integers(y, "row")
    together(across, down)
    # A negative number has its highest bit set, so that one comparison sees both ends.
    if np.any((across | down).view(np.uint64) > _LARGEST):
        raise InvalidInputError("out of range of a Morton code", expected="0 to 2**31 - 1")
    across, down = np.broadcast_arrays(across, down)
    return _spread(across) | (_spread(down) << 1)


def deinterleave(code: npt.ArrayLike) -> tuple[Ints, Ints]:
    """Columns and rows of Morton codes: the reverse of `interleave`."""
    codes = np.asarray(code, np.int64)
    return _compact(codes), _compact(codes >> 1)


def z_order(lon: npt.ArrayLike, lat: npt.ArrayLike) -> Ints:
    """Keys of places along a Z-order curve.

    Longitude and latitude are scaled to 0..1, multiplied by 2^21 - 1 and truncated, then
    interleaved.

    Parameters
    ----------
    lon, lat
        n places in degrees, finite.

    Returns
    -------
    n keys below 2^42.
    """
    across = (np.asarray(lon, np.float64) + 180.0) / 360.0 * _FINEST
    up = (np.asarray(lat, np.float64) + 90.0) / 180.0 * _FINEST
    return interleave(across.astype(np.int64), up.astype(np.int64))


def _spread(values: Ints) -> Ints:
    result = values.copy()
    shifted = np.empty_like(result)
    for shift, mask in _SPREAD:
        np.left_shift(result, shift, out=shifted)
        result |= shifted
        result &= mask
    return result


def _compact(values: Ints) -> Ints:
    result = np.bitwise_and(values, 0x5555555555555555)
    shifted = np.empty_like(result)
    for shift, mask in _COMPACT:
        np.right_shift(result, shift, out=shifted)
        result |= shifted
        result &= mask
    return result
