"""Overviews: four pixels become one, and pixels without data do not count.

Means of integers are exact and rounded half up, including 64 bits. A mean that would equal the
nodata value is changed to the next value, so that the pixel stays valid.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.raster.statistics import Number
from comal.raster.values import Mask, valid_mask
from comal.raster.warping import Patch

Array = npt.NDArray[Any]
Four = tuple[Array, Array, Array, Array]
Reduce = Callable[[Array, Mask | None], tuple[Array, Mask | None]]

AVERAGE, MODE, NEAREST, MINIMUM, MAXIMUM = "average", "mode", "nearest", "min", "max"
METHODS = (AVERAGE, MODE, NEAREST, MINIMUM, MAXIMUM)


def check_method(method: str) -> str:
    """The canonical name of a method; raises an error if it is unknown."""
    found = {"near": NEAREST}.get(method, method)
    if found not in METHODS:
        raise InvalidInputError(
            "unknown overview resampling", found=method, expected=", ".join(METHODS)
        )
    return found


def halved(
    patch: Patch,
    methods: tuple[str, ...],
    nodata: tuple[Number | None, ...],
    alpha: int | None = None,
    padding: tuple[Number, ...] = (),
) -> Patch:
    """A patch with even rows and columns at half its resolution.

    `methods` and `nodata` have an entry per band; `padding` (default 0) fills uncovered pixels of
    bands without a nodata value. The band at `alpha` weights the averages of the others, and says
    which of their pixels are counted and compared.
    """
    padding = padding or (0,) * len(methods)
    covered = None
    if patch.covered is not None:
        covered = np.logical_or.reduce(_four(patch.covered))
        covered = None if covered.all() else covered
    weight = None if alpha is None else patch.bands[alpha]
    bands = []
    for at, (pixels, method, empty) in enumerate(zip(patch.bands, methods, nodata, strict=True)):
        fill = padding[at] if empty is None else empty
        valid = valid_mask(pixels, empty, patch.covered)
        if method == AVERAGE and weight is not None and at != alpha:
            made, kept = _weighted(pixels, weight, valid)
        elif method == NEAREST:
            made = _first(pixels, patch.covered)
            kept = None if valid is None else _first(valid, patch.covered)
        else:
            made, kept = _REDUCE[method](pixels, valid)
            if weight is not None and at != alpha:
                shown = valid_mask(pixels, empty, patch.covered, weight)
                seen, some = _REDUCE[method](pixels, shown)
                made = seen if some is None else np.where(some, seen, made)
        made = made.astype(pixels.dtype, copy=False)
        if method == AVERAGE and empty is not None and empty == empty:  # noqa: PLR0124 - NaN
            made = _off_nodata(made, kept, empty)
        bands.append(made if kept is None else np.where(kept, made, made.dtype.type(fill)))
    return Patch(bands, covered)


def _off_nodata(made: Array, kept: Mask | None, nodata: Number) -> Array:
    value = made.dtype.type(nodata)
    hit = made == value
    if kept is not None:
        hit &= kept
    if not hit.any():
        return made
    if made.dtype.kind == "f":
        other = np.nextafter(value, made.dtype.type(np.inf), dtype=made.dtype)
    else:
        top = np.iinfo(made.dtype).max
        other = made.dtype.type(nodata + 1 if nodata < top else nodata - 1)
    return np.where(hit, other, made)


def _four(pixels: Array) -> Four:
    """North-west, north-east, south-west and south-east pixel of each square."""
    return pixels[0::2, 0::2], pixels[0::2, 1::2], pixels[1::2, 0::2], pixels[1::2, 1::2]


def _counts(valid: Mask) -> Array:
    rows = valid[0::2].astype(np.uint8) + valid[1::2]
    return np.asarray(rows[:, 0::2] + rows[:, 1::2])


def _average(pixels: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    if pixels.dtype.kind == "f":
        return _average_floats(pixels, valid)
    if pixels.dtype.itemsize == 8:
        return _average_long(pixels, valid)
    wide = np.int32 if pixels.dtype.itemsize <= 2 else np.int64
    if valid is None:
        narrow = np.uint16 if pixels.dtype == np.uint8 else wide
        return _sum(pixels, narrow) + 2 >> 2, None
    count = _counts(valid)
    total = _sum(np.where(valid, pixels, pixels.dtype.type(0)), wide)
    some = np.maximum(count, 1)
    # Half up: the floor of total / count + 1/2.
    return (2 * total + some) // (2 * some.astype(wide)), count > 0


def _sum(pixels: Array, dtype: Any) -> Array:
    rows = np.add(pixels[0::2], pixels[1::2], dtype=dtype)
    return np.asarray(rows[:, 0::2] + rows[:, 1::2])


def _average_floats(pixels: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    # Sums of pairs are exact in the wider type, except for extreme values.
    wide = np.float32 if pixels.dtype.itemsize == 2 else np.float64
    if valid is None:
        return _sum(pixels, wide) * wide(0.25), None
    count = _counts(valid)
    total = _sum(np.where(valid, pixels, pixels.dtype.type(0)), wide)
    return total / np.maximum(count, 1), count > 0


def _average_long(pixels: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    """The mean of 64-bit integers from quotients and remainders, whose sums fit into 64 bits."""
    if valid is None:
        valid = np.ones(pixels.shape, bool)
    count = np.maximum(_counts(valid), 1).astype(pixels.dtype)
    zero = pixels.dtype.type(0)
    quotients = np.zeros(count.shape, pixels.dtype)
    rests = np.zeros(count.shape, np.int64)
    for one, good in zip(_four(pixels), _four(valid), strict=True):
        quotient, rest = np.divmod(np.where(good, one, zero), count)
        quotients += quotient
        rests += rest.astype(np.int64)
    divisor = count.astype(np.int64)
    carried = (2 * rests + divisor) // (2 * divisor)
    return quotients + carried.astype(pixels.dtype), _counts(valid) > 0


def _weighted(pixels: Array, weight: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    """Mean weighted by alpha; the plain mean if all four pixels are transparent."""
    if valid is not None:
        weight = np.where(valid, weight, weight.dtype.type(0))
    plain, kept = _average(pixels, valid)
    if pixels.dtype.kind == "f" or pixels.dtype.itemsize > 2 or weight.dtype.kind == "f":
        share = weight.astype(np.float64)
        total = _sum(share, np.float64)
        mean = _sum(np.where(share > 0, pixels, 0) * share, np.float64) / np.where(
            total > 0, total, 1
        )
        if pixels.dtype.kind in "iu":
            limits = np.iinfo(pixels.dtype)
            top = float(limits.max)
            # As a float, the maximum of 64-bit integers is rounded up out of their range.
            top = top if int(top) <= limits.max else float(np.nextafter(top, 0))
            mean = np.clip(np.floor(mean + 0.5), limits.min, top)
    else:
        share = weight.astype(np.int64)
        total = _sum(share, np.int64)
        some = np.maximum(total, 1)
        mean = (2 * _sum(pixels * share, np.int64) + some) // (2 * some)
    # Each is cast separately, since a float cannot hold all 64-bit integers.
    return np.where(total > 0, mean.astype(pixels.dtype), plain.astype(pixels.dtype)), kept


def _first(pixels: Array, covered: Mask | None) -> Array:
    """The north-western pixel of each square, or the first one that the source covers."""
    best, *others = _four(pixels)
    if covered is not None:
        some, *goods = _four(covered)
        for value, good in zip(others, goods, strict=True):
            best, some = np.where(good & ~some, value, best), some | good
    return np.ascontiguousarray(best)


def _mode(pixels: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    """The most frequent value, the lowest in a tie."""
    values = _four(pixels)
    goods = (None,) * 4 if valid is None else _four(valid)
    counts = [np.zeros(values[0].shape, np.uint8) for _ in values]
    for i in range(4):
        for j in range(4):
            same = np.ones(values[0].shape, bool) if i == j else values[i] == values[j]
            for good in (goods[i], goods[j]):
                if good is not None:
                    same = same & good
            counts[i] += same
    best, most = values[0], counts[0]
    for value, count in zip(values[1:], counts[1:], strict=True):
        better = (count > most) | ((count == most) & (count > 0) & (value < best))
        best, most = np.where(better, value, best), np.maximum(count, most)
    return best, None if valid is None else most > 0


def _extreme(pick: Any, pixels: Array, valid: Mask | None) -> tuple[Array, Mask | None]:
    values = _four(pixels)
    if valid is None:
        return pick(pick(values[0], values[1]), pick(values[2], values[3])), None
    goods = _four(valid)
    best, some = values[0], goods[0]
    for value, good in zip(values[1:], goods[1:], strict=True):
        better = good & (~some | (pick(value, best) == value))
        best, some = np.where(better, value, best), some | good
    return best, some


_REDUCE: dict[str, Reduce] = {
    AVERAGE: _average,
    MODE: _mode,
    MINIMUM: lambda pixels, valid: _extreme(np.minimum, pixels, valid),
    MAXIMUM: lambda pixels, valid: _extreme(np.maximum, pixels, valid),
}
