"""Statistics of bands, computed piece by piece and merged without loss.

Integers are summed exactly. Types of 8 and 16 bits are counted value by value, which makes their
quantiles and most frequent values exact too; those of wider types come from pixels on a regular
lattice, and are exact only if the lattice contains all pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import (
    RasterSource,
    check_read,
    open_raster,
    place,
    read_valid,
    refuse_complex,
)
from comal.raster.values import Mask

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Number = int | float

_CHUNK = 1 << 19
_SAMPLE = 1 << 20
_SAMPLE_LEAST = 1 << 15
_SUMS = ("total", "squares", "mean", "m2")


@dataclass(slots=True)
class BandSums:
    """Running statistics of the valid pixels of one band."""

    dtype: str
    count: int = 0
    low: Number | None = None
    high: Number | None = None
    total: Number = 0
    squares: Number = 0
    mean: float = 0.0
    m2: float = 0.0
    """Sum of squared differences from the mean; only for floats."""
    values: Array | None = None
    """Bit patterns of the distinct values, ascending: of a narrow type, or if all are counted."""
    counts: Array | None = None
    """Count of each value."""
    sample: list[Array] = field(default_factory=list)
    """Pixels on the lattice; only for wide types."""

    def add(self, other: BandSums) -> None:
        """Add the statistics of other pixels."""
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
        if not is_counted(self.dtype):
            every = np.append(self.counts, counts)
            self.values, places = np.unique(np.append(self.values, values), return_inverse=True)
            self.counts = np.zeros(len(self.values), np.int64)
            np.add.at(self.counts, places, every)
            return
        table = np.zeros(1 << 8 * np.dtype(self.dtype).itemsize, np.int64)
        table[self.values] = self.counts
        table[values] += counts
        self.values = np.flatnonzero(table).astype(values.dtype)
        self.counts = table[self.values]


@dataclass(slots=True)
class ValueSums(BandSums):
    """Running statistics of valid pixels that come in pieces, without their places."""

    step: int = 1
    """Distance of the pixels in `sample`; a power of 3, as powers of 2 would meet the same columns
    in every image."""

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> ValueSums:
        """From its fields, in which arrays are lists, and sums beyond all floats are None."""
        lost = {name: math.nan for name in _SUMS if plain[name] is None}
        sums = cls(**{**plain, **lost})
        kind = np.dtype(sums.dtype)
        if sums.values is not None:
            sums.values = np.array(sums.values, f"u{kind.itemsize}")
            sums.counts = np.array(sums.counts, np.int64)
        sums.sample = [np.array(part, kind) for part in sums.sample]
        return sums

    def take(self, values: Array, most: int, *, all_counted: bool = False) -> None:
        """Add pixels, shape (n,), of which `sample` keeps at most `most`.

        With `all_counted`, integers of wide types are counted value by value, too.
        """
        for start in range(0, len(values), _CHUNK):
            part = values[start : start + _CHUNK]
            sums = sums_of(part[None], None, step=self.step, x=self.count, y=self.step // 2)
            if all_counted and sums.values is None:
                found, sums.counts = np.unique(part, return_counts=True)
                sums.values, sums.sample = found.view(f"u{part.itemsize}"), []
            self.add(sums)
            self._thin(self.step, most)

    def join(self, other: ValueSums, most: int) -> None:
        """Add the statistics of other pixels; `sample` keeps at most `most`."""
        other._thin(self.step, most)
        self._thin(other.step, most)
        self.add(other)
        self._thin(self.step, most)

    def _thin(self, step: int, most: int) -> None:
        """Keep fewer pixels until they are `step` apart, and at most `most`."""
        kept = np.concatenate([np.empty(0, self.dtype), *self.sample])
        while self.step < step or len(kept) > most:
            kept, self.step = kept[1::3].copy(), self.step * 3
        self.sample = [kept] if len(kept) else []


def is_counted(dtype: str) -> bool:
    """Whether every value of the type is counted."""
    return np.dtype(dtype).itemsize <= 2


def lattice_step(pixels: int, bands: int) -> int:
    """Spacing of the pixels that are sampled for wide types, a power of two."""
    most = max(_SAMPLE // max(bands, 1), _SAMPLE_LEAST)
    step = 1
    while pixels > most * step * step:
        step *= 2
    return step


def sums_of(pixels: Array, valid: Mask | None, *, step: int, x: int, y: int) -> BandSums:
    """Statistics of the valid pixels of an array.

    The array has rows and columns; all pixels are valid if `valid` is None. Its first pixel is at x
    and y on the grid; every `step`-th pixel of the grid is on the lattice.
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


@np.errstate(over="ignore", invalid="ignore")  # a sum beyond all floats is left out of the file
def _summed(values: Array) -> BandSums:
    """Statistics of a wide type, for a piece small enough that its sums do not overflow."""
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
    # The magnitude in four limbs of 16 bits: the sums of their products fit into 64 bits.
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
    """Statistics of a type of 8 or 16 bits, from the counts of its values."""
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
    """Statistics from counts of values; `values` are bit patterns."""
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


def ordered(sums: BandSums) -> tuple[Array, Array]:
    """Distinct values, ascending, and their counts."""
    if sums.values is not None and sums.counts is not None:
        numbers = sums.values.view(sums.dtype)
        order = np.argsort(numbers, kind="stable")
        return numbers[order], sums.counts[order]
    if sums.sample:
        found = np.unique(np.concatenate(sums.sample), return_counts=True)
        return found[0], found[1]
    return np.empty(0, sums.dtype), np.empty(0, np.int64)


# -- bands of a raster ----------------------------------------------------------------------------

COLUMNS = ("min", "max", "mean", "std", "valid %", "p25", "p50", "p75", "p95")
QUANTILES = (0.25, 0.5, 0.75, 0.95)

_CELLS = 1 << 22  # pixels in memory at a time
_EXACT = 1 << 25  # most values of other types that are held for exact quantiles
_BINS = 1 << 16


def band_stats(
    source: RasterSource,
    *,
    scale: float | Sequence[float] = 1.0,
    offset: float | Sequence[float] = 0.0,
    limits: Limits = DEFAULT_LIMITS,
) -> Floats:
    """Statistics of each band of a raster.

    Pixels that are nodata, masked, transparent, NaN or infinite do not count. Quantiles
    interpolate linearly, as ``numpy.percentile`` does. They are exact for types of 8 and 16 bits,
    and for other types up to 33 million valid pixels; above that they come from a histogram of
    65 536 bins over the range of the band, so they are at most one bin off.

    Parameters
    ----------
    source
        Path, bytes or span.
    scale, offset
        Statistics are those of ``pixel * scale + offset``; one number, or one per band.
    limits
        As for `open_raster`.

    Returns
    -------
    Array (bands, 9): min, max, mean, std (of the population), valid pixels in percent, p25, p50,
    p75, p95. NaN if a band has no valid pixel.
    """
    where = place(source)
    with open_raster(source, limits) as dataset:
        refuse_complex(dataset.dtypes, where)
        rows = [_band(dataset, band, limits, where) for band in dataset.indexes]
        return _scaled(rows, scale, offset, where)


def class_shares(
    source: RasterSource, classes: Sequence[int], *, limits: Limits = DEFAULT_LIMITS
) -> Floats:
    """Fraction of each class in each band of a categorical raster.

    Returns
    -------
    Array (bands, classes) of numbers from 0 to 1 that sum to 1: valid pixels of the class among
    those of all given classes. NaN if no pixel has any of them.
    """
    values = np.asarray(classes, np.float64)
    if values.ndim != 1 or not len(values) or len(np.unique(values)) != len(values):
        raise InvalidInputError(
            "invalid class values", found=list(classes), expected="distinct numbers"
        )
    order = np.argsort(values)
    with open_raster(source, limits) as dataset:
        refuse_complex(dataset.dtypes, place(source))
        counts = np.zeros((dataset.count, len(values)))
        for band in dataset.indexes:
            for pixels in _valid_blocks(dataset, band, limits, place(source)):
                position = np.searchsorted(values[order], pixels)
                position = np.minimum(position, len(values) - 1)
                found = position[values[order][position] == pixels]
                counts[band - 1, order] += np.bincount(found, minlength=len(values))
    total = counts.sum(axis=1, keepdims=True)
    shares: Floats = np.full_like(counts, np.nan)
    np.divide(counts, total, out=shares, where=total > 0)
    return shares


def windows(dataset: Any, cells: int = _CELLS) -> Iterator[Any]:
    """Windows that cover a raster, of complete blocks and about `cells` pixels."""
    from rasterio.windows import Window  # noqa: PLC0415 - sums of arrays need no GDAL

    block_rows, block_columns = dataset.block_shapes[0]
    columns = min(dataset.width, max(1, cells // (block_rows * block_columns)) * block_columns)
    rows = min(dataset.height, max(1, cells // (columns * block_rows)) * block_rows)
    for row in range(0, dataset.height, rows):
        for column in range(0, dataset.width, columns):
            yield Window(
                column,
                row,
                min(columns, dataset.width - column),
                min(rows, dataset.height - row),
            )


def _valid_blocks(
    dataset: Any, band: int, limits: Limits, where: str
) -> Iterator[npt.NDArray[Any]]:
    for window in windows(dataset):
        check_read(dataset, window.width * window.height, limits, where)
        (pixels,), (valid,) = read_valid(dataset, [band], window=window)
        yield pixels.ravel() if valid is None else pixels[valid]


Quantile = Callable[[Floats], Floats]


def _band(dataset: Any, band: int, limits: Limits, where: str) -> tuple[Floats, Quantile]:
    """min, max, mean, std and valid percent of a band, and a function for its quantiles."""
    sums = BandSums(dataset.dtypes[band - 1])
    for pixels in _valid_blocks(dataset, band, limits, where):
        if len(pixels):
            sums.add(sums_of(pixels[:, None], None, step=1, x=0, y=0))
        if sums.count > _EXACT:
            sums.sample.clear()
    share = 100.0 * sums.count / (dataset.width * dataset.height)
    if sums.low is None or sums.high is None:
        return np.array([np.nan] * 4 + [0.0]), lambda q: np.full(len(q), np.nan)
    row = np.array([sums.low, sums.high, *moments(sums), share], np.float64)
    if sums.values is not None:
        numbers, counts = ordered(sums)
        return row, lambda q: quantiles(numbers.astype(np.float64), counts, q)
    if sums.sample:
        values = np.concatenate(sums.sample).astype(np.float64)
        return row, lambda q: np.asarray(np.quantile(values, q))
    low, width = row[0], (row[1] - row[0]) / _BINS
    bins = np.zeros(_BINS, np.int64)
    for pixels in _valid_blocks(dataset, band, limits, where):
        position = (pixels.astype(np.float64) - low) / (width or 1.0)
        bins += np.bincount(np.minimum(position, _BINS - 1).astype(np.int64), minlength=_BINS)
    return row, lambda q: quantiles(low + (np.arange(_BINS) + 0.5) * width, bins, q)


@np.errstate(over="ignore", invalid="ignore")
def quantiles(values: Floats, counts: npt.NDArray[np.int64], q: Floats) -> Floats:
    """Quantiles of ascending values, with linear interpolation between neighbouring ranks."""
    ends = np.cumsum(counts)
    rank = q * (ends[-1] - 1)
    below, above = np.floor(rank), np.ceil(rank)
    first = values[np.searchsorted(ends, below, side="right")]
    second = values[np.searchsorted(ends, above, side="right")]
    part, step = rank - below, second - first
    # A step may be too wide for a float.
    wide = np.where(np.isfinite(step), first + step * part, first * (1 - part) + second * part)
    return np.asarray(wide)


def _scaled(rows: Sequence[tuple[Floats, Quantile]], scale: Any, offset: Any, where: str) -> Floats:
    factors, offsets = np.asarray(scale, np.float64), np.asarray(offset, np.float64)
    if any(part.ndim > 1 or part.size not in {1, len(rows)} for part in (factors, offsets)):
        raise InvalidInputError(
            "the scaling does not fit the bands", where=where, expected=f"1 or {len(rows)} numbers"
        )
    factors = np.broadcast_to(factors.ravel(), len(rows))
    offsets = np.broadcast_to(offsets.ravel(), len(rows))
    result = np.empty((len(rows), len(COLUMNS)))
    for band, (row, quantile) in enumerate(rows):
        factor = factors[band]
        q = np.array(QUANTILES)
        low, high, mean, std, share = row
        if factor < 0:  # reverses the order: the lowest pixel gives the highest value
            low, high, q = high, low, 1 - q
        values = np.array([low, high, mean, 0.0, 0.0, *quantile(q)])
        result[band] = values * factor + offsets[band]
        result[band, 3:5] = std * abs(factor), share
    return result
