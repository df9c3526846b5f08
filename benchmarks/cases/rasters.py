"""The two rasters of the RaQuet cases, made the same on every machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.transform import Affine
from rasterio.windows import Window

STRIPE = 512


def _relief(rows: Any, columns: Any, octaves: int = 9) -> Any:
    """Smooth hills with detail at every scale, as float64 of about -1 to 1."""
    height = np.zeros(np.broadcast_shapes(rows.shape, columns.shape))
    for octave in range(octaves):
        wave = 2.0 ** (-8 + octave)
        phase = 1.7 * octave
        height += (
            np.sin(rows * wave + phase + 1.3 * np.sin(columns * wave * 0.7))
            * np.cos(columns * wave * 1.1 - phase)
            / 2.0**octave
        )
    return height


def _write(path: Path, size: int, profile: dict[str, Any], pixels: Any) -> None:
    noise = np.random.default_rng(5)
    layout = {"driver": "GTiff", "width": size, "height": size, "tiled": True, "bigtiff": "YES"}
    with rasterio.open(path, "w", blockxsize=256, blockysize=256, **layout, **profile) as raster:
        for top in range(0, size, STRIPE):
            rows = np.arange(top, min(top + STRIPE, size))[:, None] / 40.0
            relief = _relief(rows, np.arange(size)[None, :] / 40.0)
            raster.write(pixels(relief, noise), window=Window(0, top, size, rows.shape[0]))


def rgb(path: Path, size: int = 4096) -> None:
    """Three bands of uint8 in UTM 18 N, 30 m."""

    def pixels(relief: Any, noise: Any) -> Any:
        grain = noise.normal(0, 6, (3, *relief.shape))
        bands = np.stack([relief, relief**2, 1 - relief])
        return np.clip(110 + 60 * bands + grain, 0, 255).astype(np.uint8)

    transform = Affine(30, 0, 300_000, 0, -30, 4_600_000)
    profile = {"count": 3, "dtype": "uint8", "crs": "EPSG:32618", "transform": transform}
    _write(path, size, {**profile, "compress": "deflate", "photometric": "rgb"}, pixels)


def dem(path: Path, size: int = 10_000) -> None:
    """One band of float32 in degrees, with nodata where the sea would be."""

    def pixels(relief: Any, noise: Any) -> Any:
        height = 1500 + 1400 * relief + noise.normal(0, 0.5, relief.shape)
        return np.where(height < 40, -9999, height).astype(np.float32)[None]

    transform = Affine(1 / 3600, 0, 6.0, 0, -1 / 3600, 47.0)
    profile = {"count": 1, "dtype": "float32", "crs": "EPSG:4326", "transform": transform}
    _write(path, size, {**profile, "nodata": -9999, "compress": "deflate"}, pixels)


RASTERS = {"rgb": rgb, "dem": dem}
