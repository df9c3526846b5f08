"""A raster on the grid is copied: every type, every bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import comal.raquet
from tests.raquet.writing.sources import BLOCK, noise, on_grid


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


def test_padding_does_not_count(tmp_path: Path) -> None:
    pixels = noise((70, 90), "int16", seed=1)
    pixels[:40, :50] = -7
    source = on_grid(tmp_path / "a.tif", pixels, nodata=-7)
    with comal.raquet.open(_converted(tmp_path, source, spec_version="0.5.0")) as raster:
        (band,) = raster.bands
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
