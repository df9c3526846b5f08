from __future__ import annotations

import numpy as np
import pytest
from pyproj import Transformer

from comal import grid


def test_positions_are_those_of_proj() -> None:
    random = np.random.default_rng(1)
    lon, lat = random.uniform(-180, 180, 500), random.uniform(-85, 85, 500)
    east, north = Transformer.from_crs(4326, 3857, always_xy=True).transform(lon, lat)
    x, y = grid.lonlat_to_xy(lon, lat, 10)
    size = grid.CIRCUMFERENCE / 1024
    np.testing.assert_allclose(x * size - grid.HALF, east, atol=1e-6)
    np.testing.assert_allclose(grid.HALF - y * size, north, atol=1e-6)
    back = grid.xy_to_lonlat(x, y, 10)
    np.testing.assert_allclose(back, (lon, lat), atol=1e-9)


def test_boxes_of_tiles() -> None:
    assert grid.tile_box_3857(0, 0, 0) == (-grid.HALF, -grid.HALF, grid.HALF, grid.HALF)
    assert grid.tile_box_3857(1, 1, 0) == (0, 0, grid.HALF, grid.HALF)
    west, south, east, north = grid.tile_box_3857(3, np.array([0, 7]), 7)
    assert west.tolist() == pytest.approx([-grid.HALF, grid.HALF * 0.75])
    assert np.all(south == pytest.approx(-grid.HALF))
    assert np.all(east > west)
    assert np.all(north > south)


def test_pixels() -> None:
    assert grid.pixel_size(0) == pytest.approx(156543.03392804097)
    assert grid.pixel_size([10, 11], 512).tolist() == pytest.approx(
        [grid.CIRCUMFERENCE / 1024 / 512, grid.CIRCUMFERENCE / 2048 / 512]
    )


def test_edges() -> None:
    assert grid.lonlat_to_xy(180, 90, 4) == pytest.approx((16, 0), abs=1e-9)
    assert grid.lonlat_to_xy(-180, -90, 4) == pytest.approx((0, 16), abs=1e-9)
    assert grid.lonlat_to_xy(270, 0, 4) == pytest.approx((4, 8))
    x, y = grid.lonlat_to_xy([np.nan, 3.0], [1.0, np.nan], 4)
    assert np.isnan(x).tolist() == [True, False]
    assert np.isnan(y).tolist() == [False, True]
