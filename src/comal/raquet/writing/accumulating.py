"""Statistics of a band, gathered piece by piece and merged without loss.

Integers are summed exactly. Types of 8 and 16 bits are counted value by value, which gives their
quantiles and most frequent values exactly as well; those of wider types come from pixels on a
regular lattice, and are exact only when the lattice holds them all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.raquet.spec import BandStatistics, Number
from comal.raster.values import Mask

Array = npt.NDArray[Any]

QUANTILES = range(3, 20)
"""Numbers of parts into which quantiles cut the pixels, each with one value fewer."""
TOP = 100
BUCKETS = 256
VERSION = "1"
"""Version of how these statistics are computed."""
_MOST = 10**36
_CHUNK = 1 << 19
_SAMPLE = 1 << 20
_SAMPLE_LEAST = 1 << 15


@dataclass(slots=True)
class BandSums:
    """What is known of the valid pixels of one band so far."""

    dtype: str
    count: int = 0
    low: Number | None = None
    high: Number | None = None
    total: Number = 0
    squares: Number = 0
    mean: float = 0.0
    m2: float = 0.0
    """Sum of squared differences from the mean; for floats."""
    values: Array | None = None
    """Bit patterns of the values of a narrow type that occur, ascending."""
    counts: Array | None = None
    """How often each does."""
    sample: list[Array] = field(default_factory=list)
    """Of wide types: pixels on the lattice."""

    def add(self, other: BandSums) -> None:
        """Merge the statistics of other pixels."""
        if other.count == 0:
            return
        low, high = (
            (other.low, other.high)
            if self.count == 0
            else (min(self.low, other.low), max(self.high, other.high))  # type: ignore[type-var]
        )
        both = self.count + other.count
        # Chan, Golub and LeVeque: updating formulae for the variance.
        step = other.mean - self.mean
        self.m2 += other.m2 + step * step * self.count * other.count / both
        self.mean += step * other.count / both
        self.count, self.low, self.high = both, low, high
        self.total += other.total
        self.squares += other.squares
        self.sample += other.sample
        if other.values is not None:
            self._add_counts(other.values, other.counts)

    def _add_counts(self, values: Array, counts: Array | None) -> None:
        assert counts is not None
        if self.values is None or self.counts is None:
            self.values, self.counts = values, counts
            return
        table = np.zeros(1 << 8 * np.dtype(self.dtype).itemsize, np.int64)
        table[self.values] = self.counts
        table[values] += counts
        self.values = np.flatnonzero(table).astype(values.dtype)
        self.counts = table[self.values]


@dataclass(slots=True)
class Totals:
    """Statistics of all bands of a raster."""

    bands: list[BandSums]
    covered: int = 0
    """Pixels that the source covers, valid or not."""

    @classmethod
    def of(cls, dtypes: tuple[str, ...]) -> Totals:
        """Nothing counted yet."""
        return cls([BandSums(dtype) for dtype in dtypes])

    def add(self, other: Totals) -> None:
        """Merge the statistics of other pixels."""
        self.covered += other.covered
        for mine, theirs in zip(self.bands, other.bands, strict=True):
            mine.add(theirs)


def is_counted(dtype: str) -> bool:
    """Whether every value of the type is counted."""
    return np.dtype(dtype).itemsize <= 2


def lattice_step(pixels: int, bands: int) -> int:
    """Distance of the pixels that are kept of wide types, a power of two."""
    most = max(_SAMPLE // max(bands, 1), _SAMPLE_LEAST)
    step = 1
    while pixels > most * step * step:
        step *= 2
    return step


def sums_of(pixels: Array, valid: Mask | None, *, step: int, x: int, y: int) -> BandSums:
    """Statistics of the valid pixels of an array.

    Rows and columns; all are valid when `valid` is None. The array lies at x and y on the grid, in
    pixels, of which every `step`-th is on the lattice.
    """
    dtype = pixels.dtype.name
    if is_counted(dtype):
        return _counted(pixels, valid)
    sums = BandSums(dtype)
    rows = max(1, _CHUNK // pixels.shape[1])
    for top in range(0, len(pixels), rows):
        part = pixels[top : top + rows]
        good = None if valid is None else valid[top : top + rows]
        sums.add(_summed(part.ravel() if good is None else part[good]))
    first_row, first_column = (step // 2 - y) % step, (step // 2 - x) % step
    kept = pixels[first_row::step, first_column::step]
    good = None if valid is None else valid[first_row::step, first_column::step]
    sample = kept.ravel().copy() if good is None else kept[good]
    if len(sample):
        sums.sample.append(sample)
    return sums


def _summed(values: Array) -> BandSums:
    """Of a wide type, in one piece that is small enough for its sums."""
    sums = BandSums(values.dtype.name, len(values))
    if not len(values):
        return sums
    sums.low, sums.high = values.min().item(), values.max().item()
    if values.dtype.kind == "f":
        wide = values.astype(np.float64)
        total = float(wide.sum())
        sums.total, sums.squares = total, float((wide * wide).sum())
        sums.mean = total / len(values)
        wide -= sums.mean
        wide *= wide
        sums.m2 = float(wide.sum())
    else:
        sums.total, sums.squares = _exact_sums(values)
    return sums


def _exact_sums(values: Array) -> tuple[int, int]:
    """Sum and sum of squares of integers of 32 or 64 bits, of at most 2**20 values."""
    if values.dtype.itemsize == 4:
        wide = values.astype(np.int64)
        high, low = wide >> 16, wide & 0xFFFF
        squares = (
            (int((high * high).sum()) << 32)
            + (int((high * low).sum()) << 17)
            + int((low * low).sum())
        )
        return int(wide.sum()), squares
    shift = values.dtype.type(32)
    high = (values >> shift).astype(np.int64)
    low = (values & values.dtype.type(0xFFFFFFFF)).astype(np.int64)
    total = (int(high.sum()) << 32) + int(low.sum())
    # The magnitude in four limbs of 16 bits: their products sum up within 64 bits.
    magnitude = values.astype(np.uint64)
    if values.dtype.kind == "i":
        magnitude = np.where(values < 0, np.uint64(0) - magnitude, magnitude)
    limbs = [
        ((magnitude >> np.uint64(16 * at)) & np.uint64(0xFFFF)).astype(np.int64) for at in range(4)
    ]
    squares = sum(
        int((limbs[i] * limbs[j]).sum()) << 16 * (i + j) for i in range(4) for j in range(4)
    )
    return total, squares


def _counted(pixels: Array, valid: Mask | None) -> BandSums:
    """Of a type of 8 or 16 bits, from how often each of its values occurs."""
    bits = np.dtype(np.uint8 if pixels.dtype.itemsize == 1 else np.uint16)
    table = np.zeros(1 << 8 * bits.itemsize, np.int64)
    rows = max(1, _CHUNK // pixels.shape[1])
    for top in range(0, len(pixels), rows):
        part = pixels[top : top + rows]
        if valid is None:
            table += _bincount(np.ascontiguousarray(part).view(bits))
        else:
            good = valid[top : top + rows]
            table += _bincount(np.ascontiguousarray(part[good]).view(bits))
    found = np.flatnonzero(table)
    return counted_sums(pixels.dtype.name, found.astype(bits), table[found])


def _bincount(values: Array) -> Array:
    flat = values.reshape(-1)
    if flat.dtype.itemsize == 1 and flat.size % 2 == 0 and flat.size > 1 << 16:
        # Two pixels at a time, which halves the work.
        pairs = np.bincount(flat.view(np.uint16), minlength=1 << 16).reshape(256, 256)
        return np.asarray(pairs.sum(axis=0) + pairs.sum(axis=1))
    return np.asarray(np.bincount(flat, minlength=1 << 8 * flat.dtype.itemsize))


def counted_sums(dtype: str, values: Array, counts: Array) -> BandSums:
    """Statistics from how often values occur; `values` are bit patterns."""
    sums = BandSums(dtype, int(counts.sum()), values=values, counts=counts)
    if not sums.count:
        return sums
    numbers = values.view(dtype)
    sums.low, sums.high = numbers.min().item(), numbers.max().item()
    if np.dtype(dtype).kind == "f":
        wide = numbers.astype(np.float64)
        sums.total = float((wide * counts).sum())
        sums.squares = float((wide * wide * counts).sum())
        sums.mean = sums.total / sums.count
        sums.m2 = float(((wide - sums.mean) ** 2 * counts).sum())
    else:
        wide = numbers.astype(np.int64)
        sums.total = int((wide * counts).sum())
        sums.squares = int((wide * wide * counts).sum())
    return sums


def moments(sums: BandSums) -> tuple[float, float]:
    """Mean and population standard deviation."""
    if np.dtype(sums.dtype).kind == "f":
        return sums.mean, math.sqrt(max(sums.m2, 0.0) / sums.count)
    total, squares = int(sums.total), int(sums.squares)
    spread = sums.count * squares - total * total
    return total / sums.count, math.sqrt(spread) / sums.count


def finished(sums: BandSums, covered: int | None, *, step: int) -> BandStatistics:
    """The statistics as the metadata have them."""
    percent = None
    if covered is not None:
        percent = 100.0 * sums.count / covered if covered else 0.0
    if not sums.count:
        return BandStatistics(
            count=0, valid_percent=percent, approximated=False, version=VERSION, top_values={}
        )
    mean, stddev = moments(sums)
    numbers, counts = ordered(sums)
    return BandStatistics(
        count=sums.count,
        min=sums.low,
        max=sums.high,
        mean=mean,
        stddev=stddev,
        sum=_writable(sums.total),
        sum_squares=_writable(sums.squares),
        valid_percent=percent,
        quantiles=_quantiles(numbers, counts),
        top_values=_top_values(numbers, counts),
        approximated=not is_counted(sums.dtype) and step > 1,
        version=VERSION,
    )


def _writable(number: Number) -> Number:
    """A sum as JSON can hold it: exact, unless it has more digits than readers accept."""
    return float(number) if abs(number) >= _MOST else number


def histogram(sums: BandSums) -> dict[str, Any] | None:
    """Counts of 256 equal ranges between minimum and maximum; both ends belong to it."""
    numbers, counts = ordered(sums)
    if not len(numbers) or sums.low is None or sums.high is None:
        return None
    low, high = float(sums.low), float(sums.high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    width = (high - low) / BUCKETS or 1.0
    at = np.clip((numbers.astype(np.float64) - low) / width, 0, BUCKETS - 1).astype(np.int64)
    found = np.bincount(at, weights=counts.astype(np.float64), minlength=BUCKETS)
    whole = found.sum()
    if whole and whole != sums.count:
        # Of a sample: as many in all as there are pixels.
        ends = np.floor(np.cumsum(found) * (sums.count / whole) + 0.5)
        found = np.diff(ends, prepend=0.0)
    return {
        "min": sums.low,
        "max": sums.high,
        "buckets": BUCKETS,
        "counts": [int(one) for one in found],
    }


def ordered(sums: BandSums) -> tuple[Array, Array]:
    """Values that occur, ascending, and how often each does."""
    if sums.values is not None and sums.counts is not None:
        numbers = sums.values.view(sums.dtype)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], sums.counts[order]
    if sums.sample:
        found = np.unique(np.concatenate(sums.sample), return_counts=True)
        return found[0], found[1]
    return np.empty(0, sums.dtype), np.empty(0, np.int64)


def _quantiles(numbers: Array, counts: Array) -> dict[str, tuple[Number, ...]]:
    """As ``numpy.quantile(..., method="lower")`` finds them: values that occur."""
    ends = np.cumsum(counts)
    if not len(ends):
        return {}
    found = {}
    for parts in QUANTILES:
        at = np.floor((ends[-1] - 1) * _shares(parts)).astype(np.int64)
        picked = numbers[np.searchsorted(ends, at, side="right")]
        found[str(parts)] = tuple(picked.tolist())
    return found


@cache
def _shares(parts: int) -> Array:
    return np.arange(1, parts) / parts


def _top_values(numbers: Array, counts: Array) -> dict[str, int]:
    if numbers.dtype.kind == "f":
        return {}
    order = np.lexsort((numbers, -counts))[:TOP]
    return {
        str(value): int(count)
        for value, count in zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
    }
