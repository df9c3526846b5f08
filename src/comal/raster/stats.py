"""Statistics of bands, block by block, of pixels that have a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.windows import Window

from comal.errors import InvalidInputError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import RasterSource, check_read, open_raster, place, read_valid

Floats = npt.NDArray[np.float64]

COLUMNS = ("min", "max", "mean", "std", "valid %", "p25", "p50", "p75", "p95")
QUANTILES = (0.25, 0.5, 0.75, 0.95)

_CELLS = 1 << 22  # pixels in memory at a time
_EXACT = 1 << 25  # so many values of other types are held for exact quantiles
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
    interpolate linearly, as ``numpy.percentile`` does. They are exact for integers of 8 and 16
    bits, and for other types up to 33 million valid pixels; above that they come from a histogram
    of 65 536 bins over the range of the band, so they are at most one bin off.

    Parameters
    ----------
    source
        Path, bytes or span.
    scale, offset
        Statistics are those of ``pixel * scale + offset``; numbers for all bands or one each.
    limits
        As for `open_raster`.

    Returns
    -------
    Array (bands, 9): min, max, mean, std (of the population), valid pixels in percent, p25, p50,
    p75, p95. NaN where a band has no valid pixel.
    """
    where = place(source)
    with open_raster(source, limits) as dataset:
        _refuse_complex(dataset, where)
        rows = [_band(dataset, band, limits, where) for band in dataset.indexes]
        return _scaled(rows, scale, offset, where)


def class_shares(
    source: RasterSource, classes: Sequence[int], *, limits: Limits = DEFAULT_LIMITS
) -> Floats:
    """Share of each class in each band of a categorical raster.

    Returns
    -------
    Array (bands, classes) of numbers from 0 to 1 that sum to 1: valid pixels of the class among
    those of all given classes. NaN where no pixel is of any of them.
    """
    values = np.asarray(classes, np.float64)
    if values.ndim != 1 or not len(values) or len(np.unique(values)) != len(values):
        raise InvalidInputError(
            "invalid class values", found=list(classes), expected="distinct numbers"
        )
    order = np.argsort(values)
    with open_raster(source, limits) as dataset:
        _refuse_complex(dataset, place(source))
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


def windows(dataset: Any, cells: int = _CELLS) -> Iterator[Window]:
    """Windows that cover a raster, of whole blocks and about `cells` pixels."""
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


def _refuse_complex(dataset: Any, where: str) -> None:
    for name in dataset.dtypes:
        if "complex" in name:
            raise InvalidInputError(
                "complex pixels have no order", where=where, found=name, expected="real numbers"
            )


def _valid_blocks(
    dataset: Any, band: int, limits: Limits, where: str
) -> Iterator[npt.NDArray[Any]]:
    for window in windows(dataset):
        check_read(dataset, window.width * window.height, limits, where)
        (pixels,), (valid,) = read_valid(dataset, [band], window=window)
        yield pixels.ravel() if valid is None else pixels[valid]


class _Moments:
    """Count, extremes, mean and sum of squared deviations, joined block by block."""

    def __init__(self) -> None:
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self.mean = self.squares = 0.0

    def add(self, pixels: npt.NDArray[Any]) -> None:
        """Join a block (Chan, Golub and LeVeque 1979: no difference of large squares)."""
        if not pixels.size:
            return
        mean = float(pixels.mean(dtype=np.float64))
        squares = float(np.square(np.subtract(pixels, mean, dtype=np.float64)).sum())
        total = self.count + pixels.size
        shift = mean - self.mean
        self.squares += squares + shift * shift * self.count * pixels.size / total
        self.mean += shift * pixels.size / total
        self.count = total
        self.low = min(self.low, float(pixels.min()))
        self.high = max(self.high, float(pixels.max()))


Quantile = Callable[[Floats], Floats]


def _band(dataset: Any, band: int, limits: Limits, where: str) -> tuple[Floats, Quantile]:
    """min, max, mean, std and valid percent of a band, and the function of its quantiles."""
    kind = np.dtype(dataset.dtypes[band - 1])
    moments = _Moments()
    counts, low = None, 0
    if kind.kind in "iu" and kind.itemsize <= 2:
        low = int(np.iinfo(kind).min)
        counts = np.zeros(int(np.iinfo(kind).max) - low + 1, np.int64)
    kept: list[npt.NDArray[Any]] | None = [] if counts is None else None
    for pixels in _valid_blocks(dataset, band, limits, where):
        moments.add(pixels)
        if counts is not None:
            counts += np.bincount(pixels.astype(np.int64) - low, minlength=len(counts))
        elif kept is not None:
            kept.append(pixels)
            if moments.count > _EXACT:
                kept = None
    share = 100.0 * moments.count / (dataset.width * dataset.height)
    if not moments.count:
        return np.array([np.nan] * 4 + [0.0]), lambda q: np.full(len(q), np.nan)
    std = float(np.sqrt(moments.squares / moments.count))
    row = np.array([moments.low, moments.high, moments.mean, std, share])
    if counts is not None:
        known = counts
        return row, lambda q: _from_counts(known, q) + low
    if kept is not None:
        values = np.concatenate(kept)
        return row, lambda q: np.asarray(np.quantile(values.astype(np.float64), q))
    binned = _histogram(dataset, band, moments, limits, where)
    width = (moments.high - moments.low) / _BINS
    return row, lambda q: moments.low + (_from_counts(binned, q) + 0.5) * width


def _histogram(
    dataset: Any, band: int, moments: _Moments, limits: Limits, where: str
) -> npt.NDArray[np.int64]:
    counts = np.zeros(_BINS, np.int64)
    span = moments.high - moments.low or 1.0
    for pixels in _valid_blocks(dataset, band, limits, where):
        position = (pixels.astype(np.float64) - moments.low) / span * _BINS
        counts += np.bincount(np.minimum(position, _BINS - 1).astype(np.int64), minlength=_BINS)
    return counts


def _from_counts(counts: npt.NDArray[np.int64], q: Floats) -> Floats:
    """Quantiles of the bins, with linear interpolation between neighbouring ranks."""
    ends = np.cumsum(counts)
    rank = q * (ends[-1] - 1)
    below, above = np.floor(rank), np.ceil(rank)
    first = np.searchsorted(ends, below, side="right")
    second = np.searchsorted(ends, above, side="right")
    result: Floats = first + (second - first) * (rank - below)
    return result


def _scaled(rows: Sequence[tuple[Floats, Quantile]], scale: Any, offset: Any, where: str) -> Floats:
    factors, offsets = np.asarray(scale, np.float64), np.asarray(offset, np.float64)
    if any(part.ndim > 1 or part.size not in {1, len(rows)} for part in (factors, offsets)):
        raise InvalidInputError(
            "scaling does not fit the bands", where=where, expected=f"one number or {len(rows)}"
        )
    factors = np.broadcast_to(factors.ravel(), len(rows))
    offsets = np.broadcast_to(offsets.ravel(), len(rows))
    result = np.empty((len(rows), len(COLUMNS)))
    for band, (row, quantile) in enumerate(rows):
        factor = factors[band]
        q = np.array(QUANTILES)
        low, high, mean, std, share = row
        if factor < 0:  # the order is turned round: the lowest pixel gives the highest value
            low, high, q = high, low, 1 - q
        values = np.array([low, high, mean, 0.0, 0.0, *quantile(q)])
        result[band] = values * factor + offsets[band]
        result[band, 3:5] = std * abs(factor), share
    return result
