"""The Z-order curve over longitude and latitude, which keeps neighbours together."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_BITS = 21
_LARGEST = (1 << _BITS) - 1
# Doubling the distance between bits, step by step (Morton 1966).
_SPREAD = (
    (16, 0x0000FFFF0000FFFF),
    (8, 0x00FF00FF00FF00FF),
    (4, 0x0F0F0F0F0F0F0F0F),
    (2, 0x3333333333333333),
    (1, 0x5555555555555555),
)


def z_order(lon: npt.ArrayLike, lat: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Keys of places along a Z-order curve.

    Longitude and latitude are scaled to 0..1, multiplied by 2^21 - 1 and truncated; their bits
    are interleaved, those of the longitude in the even positions.

    Parameters
    ----------
    lon, lat
        n places in degrees, finite.

    Returns
    -------
    n keys below 2^42.
    """
    x = ((np.asarray(lon, np.float64) + 180.0) / 360.0 * _LARGEST).astype(np.uint64)
    y = ((np.asarray(lat, np.float64) + 90.0) / 180.0 * _LARGEST).astype(np.uint64)
    key: npt.NDArray[np.int64] = (_spread(x) | (_spread(y) << np.uint64(1))).astype(np.int64)
    return key


def _spread(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The bits of each number moved to its even positions."""
    for shift, mask in _SPREAD:
        bits = (bits | (bits << np.uint64(shift))) & np.uint64(mask)
    return bits
