"""Numbers from rasters: statistics of bands, shares of classes, means over footprints of samples.

All are gathered block by block, of pixels that have a value.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from rasterio.enums import Resampling
from rasterio.windows import Window

from comal.errors import InvalidInputError
from comal.geo.crs import Projection, projection
from comal.geo.footprints import Footprints
from comal.grid.quadbin import z_order
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import (
    RasterSource,
    check_read,
    crs_name,
    open_raster,
    place,
    read_valid,
    refuse_complex,
)

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# -- statistics of bands ---------------------------------------------------------------------------

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
        refuse_complex(dataset.dtypes, where)
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


def _valid_blocks(
    dataset: Any, band: int, limits: Limits, where: str
) -> Iterator[npt.NDArray[Any]]:
    for window in windows(dataset):
        check_read(dataset, window.width * window.height, limits, where)
        (pixels,), (valid,) = read_valid(dataset, [band], window=window)
        yield pixels.ravel() if valid is None else pixels[valid]


class _Values:
    """What is known of the values of a band, joined block by block."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self.count = 0
        self.low, self.high = np.inf, -np.inf
        self.mean = self.squares = 0.0
        self.least = 0
        self.counts: Any = None
        """Of integers of 8 and 16 bits how often each occurs, from `least` on."""
        self.kept: list[Any] | None = []
        """The values of other types, while they are not too many."""
        if kind.kind in "iu" and kind.itemsize <= 2:
            limits = np.iinfo(kind)
            self.least, self.kept = int(limits.min), None
            self.counts = np.zeros(int(limits.max) - self.least + 1, np.int64)

    def add(self, pixels: Any) -> None:
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
        if self.counts is not None:
            numbers = pixels.astype(np.int64) - self.least
            self.counts += np.bincount(numbers, minlength=len(self.counts))
        elif self.kept is not None:
            self.kept.append(pixels)
            self.kept = None if total > _EXACT else self.kept


Quantile = Callable[[Floats], Floats]


def _band(dataset: Any, band: int, limits: Limits, where: str) -> tuple[Floats, Quantile]:
    """min, max, mean, std and valid percent of a band, and the function of its quantiles."""
    found = _Values(np.dtype(dataset.dtypes[band - 1]))
    for pixels in _valid_blocks(dataset, band, limits, where):
        found.add(pixels)
    share = 100.0 * found.count / (dataset.width * dataset.height)
    if not found.count:
        return np.array([np.nan] * 4 + [0.0]), lambda q: np.full(len(q), np.nan)
    std = float(np.sqrt(found.squares / found.count))
    row = np.array([found.low, found.high, found.mean, std, share])
    if found.counts is not None:
        return row, lambda q: _from_counts(found.counts, q) + found.least
    if found.kept is not None:
        values = np.concatenate(found.kept).astype(np.float64)
        return row, lambda q: np.asarray(np.quantile(values, q))
    bins = np.zeros(_BINS, np.int64)
    span = found.high - found.low or 1.0
    for pixels in _valid_blocks(dataset, band, limits, where):
        position = (pixels.astype(np.float64) - found.low) / span * _BINS
        bins += np.bincount(np.minimum(position, _BINS - 1).astype(np.int64), minlength=_BINS)
    width = (found.high - found.low) / _BINS
    return row, lambda q: found.low + (_from_counts(bins, q) + 0.5) * width


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


# -- means over footprints -------------------------------------------------------------------------
#
# Each footprint is a set of places spread evenly over it, four or more to a pixel of the layer in
# each direction, so a pixel counts by the share of the footprint that it covers. The places of
# many footprints are looked up together, block by block, and a block of the layer is read once. A
# layer that is much finer than a footprint is read through its overviews.

_PER_PIXEL = 4  # places to a pixel of the layer, each way
_FEWEST, _MOST = 8, 96  # places to a footprint, each way
_PLACES = 1 << 21  # places in memory at a time
_LEAST_COSINE = 0.01
_SAME = 1e-6  # of a pixel
_TILE = 1024  # pixels of the layer that are read at a time, each way


@dataclass(frozen=True, slots=True)
class Layer:
    """A band of a raster that the user names."""

    source: RasterSource
    band: int = 1

    @classmethod
    def of(cls, value: Any) -> Layer:
        """A layer from a layer, a path, bytes or a pair (path, band)."""
        if isinstance(value, Layer):
            return value
        if isinstance(value, tuple) and len(value) == 2:
            return cls(value[0], int(value[1]))
        if isinstance(value, str | bytes | os.PathLike):
            return cls(value)
        raise InvalidInputError(
            "not a raster layer", found=type(value).__name__, expected="a path or (path, band)"
        )


def sample_footprint(
    layer: Any, footprints: Footprints, *, limits: Limits = DEFAULT_LIMITS
) -> Floats:
    """Mean of a layer over each footprint.

    Parameters
    ----------
    layer
        `Layer`, path, bytes or (path, band). It must have a CRS and a geotransform.
    footprints
        n footprints, as `comal.geo.footprints` makes them.
    limits
        As for `open_raster`.

    Returns
    -------
    Array of n in the unit of the layer; NaN where no valid pixel lies in the footprint.

    Raises
    ------
    InvalidInputError
        The layer has no such band or no place on the earth.
    """
    chosen = Layer.of(layer)
    result = np.full(len(footprints), np.nan)
    with open_raster(chosen.source, limits) as dataset:
        grid = _Grid.of(dataset, chosen, limits)
        for rows, per_side, shrink in _classes(footprints, grid):
            step = max(1, _PLACES // (per_side * per_side))
            for start in range(0, len(rows), step):
                some = rows[start : start + step]
                lon, lat, weight = footprints.places(some, per_side)
                result[some] = grid.means(lon, lat, weight, shrink)
    return result


def _classes(footprints: Footprints, grid: _Grid) -> Iterator[tuple[Rows, int, int]]:
    """Footprints that need the same number of places and the same overview.

    Yields rows (ordered along a curve, so that neighbours are read together), places each way,
    and the power of two by which the layer is shrunk.
    """
    extent = footprints.extents() / grid.pixel_size(footprints.centres()[1])
    known = np.flatnonzero(np.isfinite(extent))
    pixels = np.maximum(extent[known], 1e-6)
    # Shrunk so that a footprint never has more than _MOST places, with _PER_PIXEL to a pixel.
    shrink = np.maximum(0, np.ceil(np.log2(pixels * _PER_PIXEL / _MOST) - _SAME)).astype(np.int64)
    # A multiple of whole pixels: then footprints aligned with the layer have an exact mean.
    whole = np.ceil(pixels / (1 << shrink) - _SAME).astype(np.int64)
    per_side = (whole * _PER_PIXEL).clip(_FEWEST, _MOST)
    per_side = np.where(footprints.is_place()[known], 1, per_side)
    for power, side in sorted(set(zip(shrink.tolist(), per_side.tolist(), strict=True))):
        rows = known[(shrink == power) & (per_side == side)]
        along = np.argsort(z_order(*footprints.take(rows).centres()), kind="stable")
        yield rows[along], side, 1 << power


@dataclass(frozen=True, slots=True)
class _Grid:
    """An open layer, its place and its band."""

    dataset: Any
    band: int
    source: Projection
    inverse: Any
    sides: tuple[float, float]
    """Width and height of a pixel in metres, at the equator for degrees."""
    limits: Limits
    where: str

    @classmethod
    def of(cls, dataset: Any, layer: Layer, limits: Limits) -> _Grid:
        where = place(layer.source)
        if not dataset.crs or dataset.transform.is_identity or dataset.transform.is_degenerate:
            raise InvalidInputError(
                "layer without a place on the earth", where=where, expected="CRS and geotransform"
            )
        if layer.band not in dataset.indexes:
            raise InvalidInputError(
                "no such band", where=where, found=layer.band, expected=f"1 to {dataset.count}"
            )
        source = projection(crs_name(dataset.crs) or "", where)
        t = dataset.transform
        sides = float(np.hypot(t.a, t.d)) * source.unit, float(np.hypot(t.b, t.e)) * source.unit
        return cls(dataset, layer.band, source, ~t, sides, limits, where)

    def pixel_size(self, lat: Floats) -> Floats:
        """Shorter side of a pixel on the ground, in metres, at latitudes."""
        width = np.full(len(lat), self.sides[0])
        if self.source.is_geographic:
            width *= np.maximum(np.cos(np.radians(lat)), _LEAST_COSINE)
        smaller: Floats = np.minimum(width, self.sides[1])
        return smaller

    def means(self, lon: Floats, lat: Floats, weight: Floats, shrink: int) -> Floats:
        """Weighted means over the places (n, m) of n footprints."""
        column, row = self._positions(lon, lat)
        values = self._values(column.ravel(), row.ravel(), shrink).reshape(lon.shape)
        valid = np.isfinite(values) & (weight > 0)
        total = np.where(valid, weight, 0.0).sum(axis=1)
        summed = np.where(valid, values * weight, 0.0).sum(axis=1)
        result = np.full(len(lon), np.nan)
        np.divide(summed, total, out=result, where=total > 0)
        return result

    def _positions(self, lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
        """Columns and rows in the layer, as fractions; NaN outside of its CRS."""
        x, y = self.source.from_lonlat(lon, lat)
        t = self.inverse
        column = t.a * x + t.b * y + t.c
        row = t.d * x + t.e * y + t.f
        if self.source.is_geographic and t.d == 0:
            # A layer of longitudes 0..360, or one that reaches over 180, meets them a turn later.
            turn = abs(t.a) * 360
            column = np.where(column < 0, column + turn, column)
            column = np.where(column >= self.dataset.width, column - turn, column)
        return column, row

    def _values(self, column: Floats, row: Floats, shrink: int) -> Floats:
        """Pixels at positions of the layer, NaN where there is none."""
        result = np.full(len(column), np.nan)
        with np.errstate(invalid="ignore"):
            inside = (column >= 0) & (column < self.dataset.width)
            inside &= (row >= 0) & (row < self.dataset.height)
        places = np.flatnonzero(inside)
        if not len(places):
            return result
        side = _TILE * shrink
        across = -(-self.dataset.width // side)
        tile = (row[places] // side).astype(np.int64) * across
        tile += (column[places] // side).astype(np.int64)
        order = np.argsort(tile, kind="stable")
        places, tile = places[order], tile[order]
        numbers, starts = np.unique(tile, return_index=True)
        for number, mine in zip(numbers, np.split(places, starts[1:]), strict=True):
            top, left = (int(part) * side for part in divmod(number, across))
            pixels, steps = self._read(left, top, side, shrink)
            at_row = np.minimum((row[mine] - top) // steps[0], pixels.shape[0] - 1)
            at_column = np.minimum((column[mine] - left) // steps[1], pixels.shape[1] - 1)
            result[mine] = pixels[at_row.astype(np.int64), at_column.astype(np.int64)]
        return result

    def _read(self, left: int, top: int, side: int, shrink: int) -> tuple[Floats, Floats]:
        """Pixels of a tile with NaN for invalid ones, and how many of the layer each stands for."""
        width = min(side, self.dataset.width - left)
        height = min(side, self.dataset.height - top)
        shape = (-(-height // shrink), -(-width // shrink))
        check_read(self.dataset, shape[0] * shape[1], self.limits, self.where)
        request = {
            "window": Window(left, top, width, height),
            "out_shape": shape,
            "resampling": Resampling.average if shrink > 1 else Resampling.nearest,
        }
        (found,), (valid,) = read_valid(self.dataset, [self.band], **request)
        pixels = found.astype(np.float64)
        if valid is not None:
            pixels[~valid] = np.nan
        return pixels, np.array([height / shape[0], width / shape[1]])
