"""The main job on real rasters: converted, checked, and read back as rasterio warps them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

import comal.raquet
from comal.grid import quadbin
from tests.raquet.writing.sources import CIRCUMFERENCE, HALF, assembled, misplaced, warped
from tests.support import SHARED, needs_shared

pytestmark = needs_shared
DATA = SHARED / "data"

WARPED = [
    "srtm_sanfrancisco_int16",
    "landsat7_rgb_utm18",
    "landsat8_a_uint16_utm18",
    "nlcd_landcover_palette",
    "nodata_nan",
    "aerial_colorado_rgb_15cm",
    "world_rgb_4326",
]
COPIED = ["web_mercator_uint16", "hillshade_colorado_3857"]


def _converted(tmp_path: Path, name: str, **options: Any) -> Path:
    path = tmp_path / f"{name}.parquet"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the raster reaches beyond")
        comal.raquet.write(DATA / f"{name}.tif", path, **options)
    assert comal.raquet.check(path, level="full", statistics=True).counts == {}
    return path


@pytest.mark.parametrize("name", WARPED)
def test_warped(tmp_path: Path, name: str) -> None:
    source = DATA / f"{name}.tif"
    path = _converted(tmp_path, name, nodata="none")
    assert misplaced(source, path) == 0
    with rasterio.open(source) as dataset:
        fill = 0 if dataset.nodata is None else dataset.nodata
    whole, _, _ = assembled(path, fill=fill)
    # GDAL's own shortcuts differ with the size of what is warped at once.
    assert (whole == warped(source, path)).mean() > 0.98


@pytest.mark.parametrize("name", COPIED)
def test_copied(tmp_path: Path, name: str) -> None:
    path = _converted(tmp_path, name)
    with rasterio.open(DATA / f"{name}.tif") as dataset:
        pixels, fill, transform = dataset.read(), dataset.nodata, dataset.transform
    whole, left, top = assembled(path, fill=fill)
    with comal.raquet.open(path) as raster:
        size = CIRCUMFERENCE / (raster.metadata.block_width << raster.metadata.max_zoom)
    column = round((transform.c + HALF) / size) - left
    row = round((HALF - transform.f) / size) - top
    full = np.full((len(pixels), 4096, 4096), fill, pixels.dtype)
    full[:, 1024 : 1024 + whole.shape[1], 1024 : 1024 + whole.shape[2]] = whole
    _, height, width = pixels.shape
    at = np.s_[:, 1024 + row : 1024 + row + height, 1024 + column : 1024 + column + width]
    np.testing.assert_array_equal(full[at], pixels)


def test_across_the_antimeridian(tmp_path: Path) -> None:
    path = _converted(tmp_path, "dateline_uint16_utm60")
    with (
        comal.raquet.open(path) as raster,
        rasterio.open(DATA / "dateline_uint16_utm60.tif") as own,
    ):
        assert raster.metadata.max_zoom == 10
        pixels = own.read(1)
        rng = np.random.default_rng(0)
        rows, columns = rng.integers(5, own.height - 5, 200), rng.integers(5, own.width - 5, 200)
        x, y = own.transform.c + (columns + 0.5) * own.transform.a, None
        y = own.transform.f + (rows + 0.5) * own.transform.e
        from pyproj import Transformer

        lon, lat = Transformer.from_crs(own.crs, "EPSG:4326", always_xy=True).transform(x, y)
        assert (np.abs(lon) <= 180).all()
        assert (lon > 0).any()
        assert (lon < 0).any()
        found = raster.points(lon, lat)[0]
        near = np.stack([pixels[rows + i, columns + j] for i in (-1, 0, 1) for j in (-1, 0, 1)])
        assert (near == found).any(axis=0).mean() > 0.99


def test_the_world_mask_at_a_coarse_zoom(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.warns(UserWarning, match="cut at"):
        made = comal.raquet.write(DATA / "world_mask_36000x18000.tif", path, zoom=2)
    assert (made.min_zoom, made.max_zoom, made.width) == (0, 2, 1024)
    assert comal.raquet.check(path, level="full", statistics=True).counts == {}


@pytest.mark.slow
def test_the_world_mask_and_the_colours(tmp_path: Path) -> None:
    path = tmp_path / "world.parquet"
    with pytest.warns(UserWarning, match="cut at"):
        comal.raquet.write(DATA / "world_mask_36000x18000.tif", path, zoom=5)
    with comal.raquet.open(path) as raster:
        with rasterio.open(DATA / "world_mask_36000x18000.tif") as own:
            rng = np.random.default_rng(1)
            lon, lat = rng.uniform(-180, 180, 500), rng.uniform(-80, 80, 500)
            right = np.array([one[0] for one in own.sample(zip(lon, lat, strict=True))])
        assert (raster.points(lon, lat)[0] == right).mean() > 0.98
    path = _converted(tmp_path, "colormap_7168x8704_3857")
    whole, left, top = assembled(path)
    with rasterio.open(DATA / "colormap_7168x8704_3857.tif") as own:
        pixels = own.read(1)
        table = own.colormap(1)
    full = np.zeros_like(pixels)
    row, column = top - 12_717_568, left - 9_372_416
    full[row : row + whole.shape[1], column : column + whole.shape[2]] = whole[0]
    np.testing.assert_array_equal(full, pixels)
    with comal.raquet.open(path) as raster:
        assert dict(raster.bands[0].colortable or {}) == table
        assert set(quadbin.zooms(raster.cells()).tolist()) == set(range(11, 18))
