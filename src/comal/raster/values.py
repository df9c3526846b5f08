"""Which pixels have a value: the rules that all readers, writers and images use.

A pixel of a band has a value unless

- it is the nodata value of that band, compared in the type of the band; a nodata value that the
  type cannot hold matches no pixel;
- it is NaN or infinite, declared or not;
- its source does not cover it: it is outside of what was warped, in padding, in a missing tile, or
  under a mask that is 0;
- the alpha band of the raster is 0 there. That masks the other bands and not the alpha band, whose
  0 is a value; a single band is never alpha.

These rules apply to each band: a pixel may have a value in one band and none in another. Only an
image decides for the pixel as a unit: it shows the pixel if any of the drawn bands has a value, and
a band without one contributes 0. A formula over bands has a value where all bands that it uses have
one and its result is finite.

A mask is an array of bools, True where there is a value, or None if all pixels have one, so that
nothing is computed for rasters without nodata and alpha. Nothing here imports GDAL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

ALPHA = "alpha"
"""Colour interpretation of a band whose zeros mask the others."""
_RGB = ("red", "green", "blue")


def stored_nodata(nodata: Any, dtype: Any) -> Any:
    """A nodata value as a scalar of `dtype`; None without one, or if the type cannot hold it.

    Integers of any size stay exact, and a whole float is accepted for integer types.
    """
    if nodata is None:
        return None
    kind = np.dtype(dtype)
    if kind.kind == "f":
        with np.errstate(over="ignore"):
            found = kind.type(whole_nodata(nodata, kind))
        # No pixel can have a number that overflows to infinity in this type.
        return None if np.isinf(found) and abs(nodata) != math.inf else found
    if not isinstance(nodata, int | np.integer):
        if not float(nodata).is_integer():
            return None
        nodata = int(nodata)
    limits = np.iinfo(kind)
    return kind.type(nodata) if limits.min <= nodata <= limits.max else None


def whole_nodata(nodata: Any, dtype: Any) -> int | float:
    """A nodata value as the number to compare pixels with: an int if type and value are whole.

    What no type can hold, such as -1.8e308, is a float: as an int, JSON would have all its digits.
    """
    is_whole = isinstance(nodata, int | np.integer) or float(nodata).is_integer()
    if np.dtype(dtype).kind in "iu" and is_whole and -(2**63) <= nodata < 2**64:
        return int(nodata)
    try:
        return float(nodata)
    except OverflowError:
        return math.inf if nodata > 0 else -math.inf


def alpha_at(colours: Sequence[str | None]) -> int | None:
    """Position of the alpha band, by the colour interpretations of all bands; None without one."""
    found = [at for at, colour in enumerate(colours) if colour == ALPHA]
    return found[0] if found and len(colours) > 1 else None


def valid_mask(
    pixels: Array, nodata: Any, covered: Mask | None = None, alpha: Array | None = None
) -> Mask | None:
    """Which pixels of one band have a value; None if all have one.

    Parameters
    ----------
    pixels
        Pixels in the type of the band, of any shape.
    nodata
        Nodata value of the band, None without one.
    covered
        Where its source has pixels that its own mask, if any, does not hide; None for everywhere.
    alpha
        Pixels of the alpha band; None without one, and for the alpha band itself.
    """
    valid = covered
    if pixels.dtype.kind in "fc":
        valid = both(valid, np.isfinite(pixels))
    hole = None if nodata is None else stored_nodata(nodata, pixels.dtype)
    if hole is not None and np.isfinite(hole):
        valid = both(valid, pixels != hole)
    if alpha is not None:
        valid = both(valid, alpha != 0)
    return None if valid is None or valid.all() else valid


def valid_masks(
    planes: Sequence[Array],
    nodata: Sequence[Any],
    covered: Mask | None = None,
    alpha: int | None = None,
) -> list[Mask | None]:
    """`valid_mask` of each band of a raster.

    `alpha` is the position of the alpha band, as returned by `alpha_at`.
    """
    return [
        valid_mask(plane, hole, covered, None if alpha in (None, at) else planes[alpha])
        for at, (plane, hole) in enumerate(zip(planes, nodata, strict=True))
    ]


def seen(masks: Sequence[Mask | None]) -> Mask | None:
    """Which pixels an image of bands with these masks shows: those with a value in any band."""
    found: Mask | None = None
    for mask in masks:
        if mask is None:
            return None
        found = mask if found is None else found | mask
    return found


def colour_table(colours: Mapping[int, Sequence[int]], size: int) -> npt.NDArray[np.uint8]:
    """RGBA of values from 0, shape (size, 4); values without a colour are transparent."""
    table = np.zeros((size, 4), np.uint8)
    for value, colour in colours.items():
        if 0 <= value < size:
            table[value] = colour
    return table


def rgb_bands(colours: Sequence[str | None]) -> tuple[int, ...]:
    """Numbers of the first bands that are red, green and blue; empty unless all three are there."""
    found = {(colour or "").lower(): band for band, colour in reversed([*enumerate(colours, 1)])}
    return tuple(found[colour] for colour in _RGB) if found.keys() >= set(_RGB) else ()


def default_bands(colours: Sequence[str | None]) -> tuple[int, ...]:
    """Numbers of the bands to show, by the colour interpretations of all."""
    visible = tuple(band for band, colour in enumerate(colours, 1) if colour != ALPHA)
    return rgb_bands(colours) or visible[: 3 if len(visible) >= 3 else 1] or (1,)


def drawn_range(low: float, high: float) -> tuple[float, float]:
    """Values that become black and white; a single value becomes middle grey."""
    half = max(1.0, abs(low) / 16)
    return (low, high) if low < high else (low - half, low + half)


def as_array(mask: Mask | None, shape: tuple[int, ...]) -> Mask:
    """A mask as an array, which may be read-only."""
    return np.broadcast_to(np.True_, shape) if mask is None else mask


def occurring(pixels: Array, valid: Mask | None) -> Array:
    """Distinct values of pixels; for types wider than 16 bits only the minimum and maximum."""
    values = pixels if valid is None else pixels[valid]
    if pixels.dtype.itemsize > 2:
        return np.array([values.min(), values.max()]) if values.size else values
    bits = np.ascontiguousarray(values).view(f"u{pixels.dtype.itemsize}")
    found = np.flatnonzero(np.bincount(bits.ravel(), minlength=1))
    return found.astype(bits.dtype).view(pixels.dtype)


def both(one: Mask | None, other: Mask) -> Mask:
    """Where both masks have a value."""
    return other if one is None else one & other
