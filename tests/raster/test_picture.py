from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import Resampling
from rasterio.windows import Window

from comal import raster
from comal.errors import InvalidInputError
from comal.raster.opening import read_valid
from tests.raster.rasters import write


def decoded(png: bytes) -> Any:
    with rasterio.MemoryFile(png) as memory, memory.open(driver="PNG") as dataset:
        return dataset.read()


pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def test_stretch_and_transparency(tmp_path: Path) -> None:
    pixels = np.linspace(1000, 2000, 101 * 10).reshape(10, 101).astype(np.uint16)
    pixels[0, 0] = 0
    picture = decoded(raster.preview(write(tmp_path / "a.tif", pixels, nodata=0)))
    assert picture.shape == (4, 10, 101)
    assert np.array_equal(picture[0], picture[2])
    assert picture[3, 0, 0] == 0
    assert (picture[3].ravel()[1:] == 255).all()
    assert picture[0].min() == 0
    assert picture[0].max() == 255
    assert (np.diff(picture[0].ravel()[1:].astype(int)) >= 0).all()


@pytest.mark.parametrize("fill", [1, -9999])
def test_an_edge_without_a_nodata_value_does_not_make_the_rest_pale(
    tmp_path: Path, fill: int
) -> None:
    pixels = np.linspace(20_000, 21_000, 100 * 100).reshape(100, 100).astype(np.int16)
    pixels[:, :30] = fill
    shade = decoded(raster.preview(write(tmp_path / "a.tif", pixels)))[0].astype(int)
    assert (shade[:, :30] == 0).all()
    inside = shade[:, 30:]
    # What is dark there is still told from the edge, and all the shades above are used.
    assert 16 <= inside.min() <= 48
    assert inside.max() == 255
    assert (np.diff(inside, axis=1) >= 0).all()
    assert len(np.unique(inside)) > 200


def test_percentiles_that_are_asked_for(tmp_path: Path) -> None:
    pixels = np.linspace(20_000, 21_000, 100 * 100).reshape(100, 100).astype(np.int16)
    pixels[:, :30] = 1
    path = write(tmp_path / "a.tif", pixels)
    shade = decoded(raster.preview(path, percentiles=(0, 100)))[0]
    assert (shade[:, :30] == 0).all()
    assert shade[:, 30:].min() == round((pixels[0, 30] - 1) / (21_000 - 1) * 255)


def test_two_classes_are_black_and_white(tmp_path: Path) -> None:
    pixels = np.zeros((10, 10), np.uint8)
    pixels[3:5] = 1
    shade = decoded(raster.preview(write(tmp_path / "a.tif", pixels)))[0]
    assert np.array_equal(shade, pixels * 255)


def test_eight_bit_colour_is_shown_as_it_is(tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 99, (3, 8, 9)).astype(np.uint8)
    path = write(tmp_path / "a.tif", pixels, photometric="RGB")
    assert np.array_equal(decoded(raster.preview(path))[:3], pixels)
    assert np.array_equal(decoded(raster.preview(path, bands=(3, 2, 1)))[:3], pixels[::-1])
    with raster.open_raster(path) as dataset:
        assert np.array_equal(decoded(raster.preview(dataset))[:3], pixels)


def test_colour_table(tmp_path: Path) -> None:
    colours = {1: (10, 20, 30, 255), 2: (40, 50, 60, 255)}
    pixels = np.array([[1, 2], [2, 0]], np.uint8)
    path = write(tmp_path / "a.tif", pixels, colours=colours, nodata=0)
    picture = decoded(raster.preview(path))
    assert picture[:, 0, 0].tolist() == [10, 20, 30, 255]
    assert picture[:, 0, 1].tolist() == [40, 50, 60, 255]
    assert picture[3, 1, 1] == 0


def test_size_and_orientation(tmp_path: Path) -> None:
    pixels = np.repeat(np.arange(200, dtype=np.float32)[:, None], 100, axis=1)
    south_up = (300000.0, 10.0, 0.0, 8700000.0, 0.0, 10.0)
    picture = decoded(raster.preview(write(tmp_path / "a.tif", pixels, affine=south_up), size=50))
    assert picture.shape == (4, 50, 25)
    assert picture[0, 0, 0] > picture[0, -1, 0]


@pytest.mark.parametrize(
    "pixels",
    [
        np.full((4, 4), 7, np.int16),
        np.full((4, 4), np.nan, np.float64),
        np.ones((2, 4, 4), np.uint16),
        np.ones((4, 4), np.complex64),
    ],
)
def test_dull_rasters(tmp_path: Path, pixels: Any) -> None:
    assert decoded(raster.preview(write(tmp_path / "a.tif", pixels))).shape == (4, 4, 4)


def test_wrong_bands(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", np.ones((2, 4, 4), np.uint8))
    for bands in ((1, 2), (3,), (0,)):
        with pytest.raises(InvalidInputError, match="bands"):
            raster.preview(path, bands=bands)


@pytest.mark.parametrize("nodata", [None, 3.0], ids=["undeclared", "beside nodata"])
@pytest.mark.parametrize("hole", [np.nan, np.inf, -np.inf])
def test_one_pixel_without_a_value_does_not_spoil_a_mean(
    tmp_path: Path, hole: float, nodata: float | None
) -> None:
    pixels = np.random.default_rng(1).integers(1, 9, (64, 96)).astype("float32")
    pixels[[0, 21, 60], [0, 50, 95]] = hole
    pixels[32:40, 8:16] = hole
    path = write(tmp_path / "a.tif", pixels, nodata=nodata)
    blocks = pixels.reshape(8, 8, 12, 8)
    hidden = ~np.isfinite(blocks) | (blocks == nodata)
    truth = np.ma.MaskedArray(blocks, hidden).mean(axis=(1, 3))
    with rasterio.open(path) as dataset:
        (found,), (valid,) = read_valid(
            dataset, [1], out_shape=(8, 12), resampling=Resampling.average
        )
        whole = Window(16, 8, 64, 32)
        (part,), _ = read_valid(
            dataset, [1], window=whole, out_shape=(4, 8), resampling=Resampling.average
        )
    assert valid is not None
    assert (~valid).sum() == 1
    np.testing.assert_array_equal(~valid, np.ma.getmaskarray(truth))
    np.testing.assert_allclose(found[valid], truth.compressed(), rtol=1e-6)
    np.testing.assert_allclose(part, truth[1:5, 2:10].data, rtol=1e-6)
    picture = decoded(raster.preview(path, size=12))
    np.testing.assert_array_equal(picture[3] > 0, valid)
