"""Means of a layer over the footprints of samples.

Each footprint is sampled at evenly spaced points, four or more per pixel of the layer in each
direction, so a pixel counts by the fraction of the footprint that it covers. The points of many
footprints are looked up together, block by block, and a block of the layer is read once. A layer
that is much finer than a footprint is read through its overviews.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
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
)

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_PER_PIXEL = 4  # points per pixel of the layer, in each direction
_FEWEST, _MOST = 8, 96  # points per footprint, in each direction
_PLACES = 1 << 21  # points in memory at a time
_LEAST_COSINE = 0.01
_SAME = 1e-6  # of a pixel
_TILE = 1024  # side in pixels of the blocks in which the layer is read


@dataclass(frozen=True, slots=True)
class Layer:
    """A band of a raster."""

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
        n footprints from `comal.geo.footprints`.
    limits
        As for `open_raster`.

    Returns
    -------
    Array of n in the unit of the layer; NaN if the footprint contains no valid pixel.

    Raises
    ------
    InvalidInputError
        The layer has no such band or no georeference.
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
    """Groups of footprints that need the same number of points and the same overview.

    Yields rows (ordered along a curve, so that neighbours are read together), points in each
    direction, and the power of two by which the layer is shrunk.
    """
    extent = footprints.extents() / grid.pixel_size(footprints.centres()[1])
    known = np.flatnonzero(np.isfinite(extent))
    pixels = np.maximum(extent[known], 1e-6)
    # Shrunk so that a footprint has at most _MOST points per side, at _PER_PIXEL per pixel.
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
    """An open layer with its georeference and band."""

    dataset: Any
    band: int
    source: Projection
    inverse: Any
    sides: tuple[float, float]
    """Width and height of a pixel in metres; for degrees, at the equator."""
    limits: Limits
    where: str

    @classmethod
    def of(cls, dataset: Any, layer: Layer, limits: Limits) -> _Grid:
        where = place(layer.source)
        if not dataset.crs or dataset.transform.is_identity or dataset.transform.is_degenerate:
            raise InvalidInputError(
                "the layer is not georeferenced",
                where=where,
                expected="a CRS and a geotransform",
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
        """Shorter side of a pixel on the ground in metres, by latitude."""
        width = np.full(len(lat), self.sides[0])
        if self.source.is_geographic:
            width *= np.maximum(np.cos(np.radians(lat)), _LEAST_COSINE)
        smaller: Floats = np.minimum(width, self.sides[1])
        return smaller

    def means(self, lon: Floats, lat: Floats, weight: Floats, shrink: int) -> Floats:
        """Weighted means over the points (n, m) of n footprints."""
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
            # For a layer with longitudes 0..360, or beyond 180, positions wrap by a full turn.
            turn = abs(t.a) * 360
            column = np.where(column < 0, column + turn, column)
            column = np.where(column >= self.dataset.width, column - turn, column)
        return column, row

    def _values(self, column: Floats, row: Floats, shrink: int) -> Floats:
        """Pixels at positions of the layer; NaN outside of it."""
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
        """Pixels of a tile with NaN for invalid ones, and their height and width in the layer."""
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
