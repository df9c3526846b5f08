"""A raster on the grid is copied: every type, every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comal.raquet
from tests.raquet.writing.sources import BLOCK, assembled, noise, on_grid


def _converted(tmp_path: Path, source: Any, **options: Any) -> Path:
    target = tmp_path / "out.parquet"
    comal.raquet.write(source, target, **{"block_size": BLOCK, "overwrite": True, **options})
    return target


def test_a_raster_stored_south_up_is_bit_identical(tmp_path: Path) -> None:
    """All types are asked by ``test_pixel_law``."""
    pixels = noise((2, 70, 90), "int16")
    source = on_grid(tmp_path / "a.tif", pixels, south_up=True)
    with comal.raquet.open(_converted(tmp_path, source)) as raster:
        found = raster.read(bands=[1, 2], masked=True).data
    inside = ~np.ma.getmaskarray(found[0])
    np.testing.assert_array_equal(found[:, inside].data, pixels.reshape(2, -1))
    assert np.ma.getmaskarray(found)[:, ~inside].all()


def test_padding_does_not_count_and_nodata_is_kept(tmp_path: Path) -> None:
    pixels = noise((70, 90), "int16", seed=1)
    pixels[:40, :50] = -7
    source = on_grid(tmp_path / "a.tif", pixels, nodata=-7)
    path = _converted(tmp_path, source, spec_version="0.5.0")
    whole, left, top = assembled(path, fill=-7)
    at = np.s_[10_300 - top : 10_370 - top, 16_380 - left : 16_470 - left]
    np.testing.assert_array_equal(whole[0][at], pixels)
    assert (whole[0] != -7).sum() == (pixels != -7).sum()
    with comal.raquet.open(path) as raster:
        band = raster.bands[0]
        assert band.nodata == -7
        assert band.statistics is not None
        assert band.statistics.valid_percent == pytest.approx(100 * (pixels != -7).mean())
        assert band.histogram is not None
        assert sum(band.histogram["counts"]) == (pixels != -7).sum()


def test_empty_tiles_are_left_out(tmp_path: Path) -> None:
    pixels = np.zeros((96, 96), np.uint8)
    pixels[70, 70] = 1
    source = on_grid(tmp_path / "a.tif", pixels, column=16_384, row=10_240, nodata=0)
    path = _converted(tmp_path, source, min_zoom=8)
    with comal.raquet.open(path) as raster:
        assert [len(raster.cells(zoom)) for zoom in raster.zooms] == [1, 1, 1]
        assert raster.metadata.num_blocks == 1


def test_masked_integers_get_an_alpha_band_and_floats_nan(tmp_path: Path) -> None:
    mask = np.full((70, 90), 255, np.uint8)
    mask[20:30] = 0
    pixels = noise((70, 90), "uint16")
    source = on_grid(tmp_path / "a.tif", pixels, mask=mask)
    whole, left, top = assembled(_converted(tmp_path, source))
    at = np.s_[10_300 - top : 10_370 - top, 16_380 - left : 16_470 - left]
    np.testing.assert_array_equal(whole[1][at], mask)
    np.testing.assert_array_equal(whole[0][at], pixels)
    with comal.raquet.open(tmp_path / "out.parquet") as raster:
        assert [band.colorinterp for band in raster.bands] == ["gray", "alpha"]
        assert raster.bands[0].statistics is not None
        assert raster.bands[0].statistics.count == 60 * 90
    source = on_grid(tmp_path / "f.tif", noise((70, 90), "float32"), mask=mask)
    whole, left, top = assembled(_converted(tmp_path, source), fill=np.nan)
    assert len(whole) == 1
    assert np.isnan(whole[0]).sum() == whole[0].size - 60 * 90
    filled, _, _ = assembled(_converted(tmp_path, source, nodata=-1))
    assert (filled == -1).sum() == np.isnan(whole).sum()


def test_nodata_can_be_given_and_replaced(tmp_path: Path) -> None:
    pixels = np.arange(6300, dtype=np.int16).reshape(70, 90) % 50
    source = on_grid(tmp_path / "a.tif", pixels, nodata=0)
    whole, left, top = assembled(_converted(tmp_path, source, nodata={"band_1": 99}), fill=99)
    at = np.s_[10_300 - top : 10_370 - top, 16_380 - left : 16_470 - left]
    np.testing.assert_array_equal(whole[0][at], np.where(pixels == 0, 99, pixels))


def test_bands_are_chosen_and_named(tmp_path: Path) -> None:
    pixels = noise((3, 40, 40), "uint8")
    source = on_grid(tmp_path / "a.tif", pixels)
    path = _converted(tmp_path, source, bands={"blue": 3, "red": "band_1"}, nodata="none")
    whole, left, top = assembled(path)
    at = np.s_[10_300 - top : 10_340 - top, 16_380 - left : 16_420 - left]
    np.testing.assert_array_equal(whole[0][at], pixels[2])
    np.testing.assert_array_equal(whole[1][at], pixels[0])
    with comal.raquet.open(path) as raster:
        assert [(band.name, band.source_band) for band in raster.bands] == [("blue", 3), ("red", 1)]


def test_what_the_bands_say_of_themselves_survives(tmp_path: Path) -> None:
    import rasterio

    source = on_grid(
        tmp_path / "a.tif", noise((40, 40), "uint8"), colours={1: (9, 8, 7, 255), 2: (1, 1, 1, 0)}
    )
    with rasterio.open(source, "r+") as dataset:
        dataset.set_band_description(1, "classes")
        dataset.set_band_unit(1, "kinds")
        dataset.scales, dataset.offsets = [0.5], [3.0]
    for version in ("0.1.0", "0.5.0"):
        path = _converted(tmp_path, source, spec_version=version)
        with comal.raquet.open(path) as raster:
            band = raster.bands[0]
            assert raster.metadata.version == version
        assert (band.description, band.unit, band.scale, band.offset) == (
            "classes",
            "kinds",
            0.5,
            3,
        )
        assert band.colorinterp == "palette"
        assert band.colortable is not None
        assert band.colortable[1] == (9, 8, 7, 255)
