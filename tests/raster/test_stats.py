from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from comal import raster
from comal.errors import InvalidInputError
from comal.raster import statistics as stats
from tests.raster.rasters import write
from tests.support import SHARED, needs_shared


def expected(valid: Any, total: int) -> list[float]:
    valid = np.asarray(valid, np.float64)
    quantiles = np.percentile(valid, [25, 50, 75, 95])
    share = 100 * len(valid) / total
    return [valid.min(), valid.max(), valid.mean(), valid.std(), share, *quantiles]


@pytest.mark.parametrize(
    "dtype", ["uint8", "int8", "uint16", "int16", "int32", "float32", "float64"]
)
@pytest.mark.parametrize("layout", [{}, {"tiled": True, "blockxsize": 16, "blockysize": 32}])
def test_statistics_are_those_of_numpy(tmp_path: Path, dtype: str, layout: dict[str, Any]) -> None:
    random = np.random.default_rng(3)
    pixels = random.normal(20, 30, (2, 50, 70)).round(0 if dtype != "float32" else 3)
    pixels = np.clip(pixels, 0 if dtype.startswith("u") else -100, 120).astype(dtype)
    found = raster.band_stats(write(tmp_path / "a.tif", pixels, nodata=7, **layout))
    for band, row in zip(pixels, found, strict=True):
        np.testing.assert_allclose(row, expected(band[band != 7], band.size), rtol=1e-12)


def test_blocks_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of a few pixels give the same as one read, moments and histograms alike."""
    pixels = np.random.default_rng(4).normal(1e6, 1, (64, 64)).astype(np.float32)
    path = write(tmp_path / "a.tif", pixels, tiled=True, blockxsize=16, blockysize=16)
    monkeypatch.setattr(stats.windows, "__defaults__", (300,))
    with raster.open_raster(path) as dataset:
        assert len(list(stats.windows(dataset))) == 16
    np.testing.assert_allclose(raster.band_stats(path)[0], expected(pixels.ravel(), 4096))
    monkeypatch.setattr(stats, "_EXACT", 100)
    approximate = raster.band_stats(path)[0]
    np.testing.assert_allclose(approximate[:5], expected(pixels.ravel(), 4096)[:5])
    bin_width = float(np.ptp(pixels)) / 65536
    np.testing.assert_allclose(
        approximate[5:], expected(pixels.ravel(), 4096)[5:], atol=2 * bin_width + 0.002
    )


def test_a_band_without_valid_pixels(tmp_path: Path) -> None:
    pixels = np.stack([np.zeros((2, 2)), np.ones((2, 2))]).astype(np.uint8)
    found = raster.band_stats(write(tmp_path / "a.tif", pixels, nodata=0))
    assert np.isnan(found[0]).tolist() == [True] * 4 + [False] + [True] * 4
    assert found[0, 4] == 0
    assert found[1].tolist() == [1, 1, 1, 0, 100, 1, 1, 1, 1]


@pytest.mark.parametrize("factor", [2.5, -2.5])
def test_scaling(tmp_path: Path, factor: float) -> None:
    pixels = np.random.default_rng(5).integers(0, 200, (2, 30, 30)).astype(np.uint8)
    path = write(tmp_path / "a.tif", pixels)
    found = raster.band_stats(path, scale=[factor, 1], offset=3)
    np.testing.assert_allclose(found[0], expected(pixels[0].ravel() * factor + 3, 900))
    np.testing.assert_allclose(found[1], expected(pixels[1].ravel() + 3.0, 900))
    with pytest.raises(InvalidInputError, match="scaling"):
        raster.band_stats(path, scale=[1, 2, 3])


def test_classes(tmp_path: Path) -> None:
    pixels = np.array([[1, 1, 5], [9, 0, 0]], np.uint8)
    path = write(tmp_path / "a.tif", pixels, nodata=0)
    assert raster.class_shares(path, [5, 1]).tolist() == [[1 / 3, 2 / 3]]
    assert raster.class_shares(path, [1, 5, 7, 9]).tolist() == [[0.5, 0.25, 0, 0.25]]
    assert np.isnan(raster.class_shares(path, [3])).all()
    for wrong in ([], [1, 1]):
        with pytest.raises(InvalidInputError, match="class"):
            raster.class_shares(path, wrong)


def test_complex_pixels_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", np.ones((2, 2), np.complex64))
    with pytest.raises(InvalidInputError, match="complex"):
        raster.band_stats(path)


@needs_shared
@pytest.mark.parametrize(
    "name", ["landsat8_a_uint16_utm18.tif", "nodata_nan.tif", "srtm_sanfrancisco_int16.tif"]
)
def test_real_rasters(name: str) -> None:
    path = SHARED / "data" / name
    with rasterio.open(path) as dataset:
        for band, row in zip(dataset.read(masked=True), raster.band_stats(path), strict=True):
            valid = band.compressed()
            valid = valid[np.isfinite(valid)]
            np.testing.assert_allclose(row, expected(valid, band.size), rtol=1e-6)
