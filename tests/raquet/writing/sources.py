"""Rasters on and off the Web Mercator grid, and what a correct file of them holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from pyproj import Transformer
from rasterio.enums import Resampling
from rasterio.transform import Affine
from rasterio.warp import reproject

import comal.raquet
from comal.grid import quadbin
from tests.raster.rasters import write as write_tiff

Array = npt.NDArray[Any]

CIRCUMFERENCE = 2 * np.pi * 6378137.0
HALF = CIRCUMFERENCE / 2
BLOCK = 32


def on_grid(
    path: Path,
    pixels: Any,
    *,
    pixel_zoom: int = 15,
    column: int = 16_380,
    row: int = 10_300,
    south_up: bool = False,
    **named: Any,
) -> Path:
    """A raster whose pixels are those of a grid 2**pixel_zoom pixels wide."""
    pixels = np.asarray(pixels)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    size = CIRCUMFERENCE / 2**pixel_zoom
    west, north = column * size - HALF, HALF - row * size
    affine = (west, size, 0.0, north, 0.0, -size)
    if south_up:
        affine = (west, size, 0.0, north - pixels.shape[1] * size, 0.0, size)
        pixels = pixels[:, ::-1]
    return write_tiff(path, pixels, crs="EPSG:3857", affine=affine, **named)


def noise(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Values all over the range of a type, neighbours alike enough to be compressed."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return (rng.standard_normal(shape) * 1000).astype(kind)
    limits = np.iinfo(kind)
    return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)


def assembled(path: Path, zoom: int | None = None, fill: Any = 0) -> tuple[Array, int, int]:
    """All tiles of a zoom as one array, with its column and row on the grid."""
    with comal.raquet.open(path) as raster:
        zoom = raster.metadata.max_zoom if zoom is None else zoom
        _, x, y = quadbin.tiles(raster.cells(zoom))
        block = raster.metadata.block_width
        left, top = int(x.min()), int(y.min())
        shape = ((int(y.max()) - top + 1) * block, (int(x.max()) - left + 1) * block)
        first = raster.tile(zoom, int(x[0]), int(y[0]))
        whole = np.full((len(first), *shape), fill, first.dtype)
        for column, row in zip(x.tolist(), y.tolist(), strict=True):
            at = np.s_[
                :,
                (row - top) * block : (row - top + 1) * block,
                (column - left) * block : (column - left + 1) * block,
            ]
            whole[at] = raster.tile(zoom, column, row)
        return whole, left * block, top * block


def warped(source: Path, like: Path, *, method: str = "nearest") -> Array:
    """What rasterio makes of the source on the grid of a file, in one go."""
    whole, left, top = assembled(like)
    with comal.raquet.open(like) as raster:
        side = raster.metadata.block_width << raster.metadata.max_zoom
    size = CIRCUMFERENCE / side
    with rasterio.open(source) as dataset:
        fill = 0 if dataset.nodata is None else dataset.nodata
        target = np.full(whole.shape, fill, dataset.dtypes[0])
        reproject(
            rasterio.band(dataset, list(dataset.indexes)),
            target,
            dst_transform=Affine(size, 0, left * size - HALF, 0, -size, HALF - top * size),
            dst_crs="EPSG:3857",
            resampling=Resampling[method],
            UNIFIED_SRC_NODATA="NO",
        )
    return target


def misplaced(source: Path, like: Path, slack: float = 0.13) -> float:
    """Share of the values of a file that are of no source pixel within `slack` of where they are.

    GDAL interpolates positions and may be off by 1/8 pixel; these are computed one by one.
    """
    with rasterio.open(source) as dataset:
        pixels, nodata, transform = dataset.read(), dataset.nodata, tuple(dataset.transform)[:6]
        crs = dataset.crs.to_wkt()
    fill = 0 if nodata is None else nodata
    whole, left, top = assembled(like, fill=fill)
    with comal.raquet.open(like) as raster:
        size = CIRCUMFERENCE / (raster.metadata.block_width << raster.metadata.max_zoom)
    _, height, width = whole.shape
    x, y = np.meshgrid(left + np.arange(width) + 0.5, top + np.arange(height) + 0.5)
    placed = Transformer.from_crs("EPSG:3857", crs, always_xy=True)
    east, north = placed.transform(x * size - HALF, HALF - y * size)
    a, _, c, _, e, f = transform
    columns, rows = (east - c) / a, (north - f) / e
    right = np.zeros(whole.shape, bool)
    for dx in (-slack, 0.0, slack):
        for dy in (-slack, 0.0, slack):
            i, j = np.floor(rows + dy), np.floor(columns + dx)
            inside = (i >= 0) & (j >= 0) & (i < pixels.shape[1]) & (j < pixels.shape[2])
            at = np.where(inside, i, 0).astype(int), np.where(inside, j, 0).astype(int)
            found = np.where(inside, pixels[:, at[0], at[1]], np.array(fill, pixels.dtype))
            right |= (found == whole) | ((found != found) & (whole != whole))  # noqa: PLR0124
    return float(1 - right.mean())


def utm(path: Path, pixels: Any, **named: Any) -> Path:
    """A raster in UTM zone 32, 30 m."""
    return write_tiff(
        path, pixels, crs="EPSG:32632", affine=(600_000, 30, 0, 5_300_000, 0, -30), **named
    )
