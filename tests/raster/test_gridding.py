"""Which zoom and which tiles a raster takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import shapely

from comal.errors import InvalidInputError
from comal.grid.mercator import xy_to_lonlat
from comal.raster.describing import describe
from comal.raster.gridding import (
    Grid,
    Member,
    choose_zoom,
    footprint,
    outline,
    overview_zoom,
    pixel_offset,
    plan_grid,
    raw_zoom,
    tile_range,
)
from tests.raster.rasters import write
from tests.support import SHARED, needs_shared

# Zooms and sizes in pixels that other writers choose as well, but for what they get wrong.
REAL = {
    "aerial_colorado_rgb_15cm": (19.6314, 18, 20, 768, 512),
    "fullearth_float64_4326": (0.4025, 0, 0, 256, 256),
    "greenland_int16_utm21": (8.8024, 4, 9, 3584, 3328),
    "hillshade_colorado_3857": (14.0, 11, 14, 1024, 1024),
    "landsat7_rgb_utm18": (8.8886, 6, 9, 1280, 1024),
    "landsat8_a_uint16_utm18": (8.5004, 6, 9, 1536, 1536),
    "landsat8_b_uint16_utm18": (8.5008, 6, 9, 1280, 1536),
    "nlcd_landcover_palette": (12.0256, 10, 12, 768, 1024),
    "nodata_nan": (9.0503, 7, 9, 768, 768),
    "srtm_sanfrancisco_int16": (11.1045, 10, 11, 512, 512),
    "web_mercator_uint16": (8.0, 5, 8, 1024, 1024),
    "world_rgb_4326": (0.6727, 0, 1, 512, 512),
    "colormap_7168x8704_3857": (17.0, 11, 17, 7168, 8704),
    "world_mask_36000x18000": (6.7811, 0, 7, 32768, 32768),
}


def planned(
    path: Path, block: int = 256, strategy: str = "auto", zoom: int | None = None, **named: Any
) -> tuple[Grid, tuple[Member, ...], float]:
    info = describe(path, **named)
    prints = [footprint(info)]
    raw = raw_zoom(prints, block)
    chosen = choose_zoom(raw, strategy) if zoom is None else zoom
    low = overview_zoom(prints, block, chosen)
    return *plan_grid([info], prints, zoom=chosen, min_zoom=low, block=block), raw


def size(grid: Grid) -> tuple[int, int]:
    hull = grid.hull
    return (hull.east - hull.west + 1) * grid.block, (hull.south - hull.north + 1) * grid.block


@needs_shared
@pytest.mark.parametrize("name", REAL)
def test_real_rasters(name: str) -> None:
    raw, low, zoom, width, height = REAL[name]
    grid, _, found = planned(SHARED / "data" / f"{name}.tif")
    assert (round(found, 4), grid.min_zoom, grid.zoom) == (raw, low, zoom)
    assert size(grid) == (width, height)


@needs_shared
@pytest.mark.parametrize(
    ("name", "block", "strategy", "right"),
    [
        ("nlcd_landcover_palette", 256, "lower", (10, 12, 768, 1024)),
        ("nlcd_landcover_palette", 256, "upper", (10, 13, 1536, 1792)),
        ("nlcd_landcover_palette", 512, "upper", (9, 12, 1536, 2048)),
        ("nlcd_landcover_palette", 1024, "upper", (8, 11, 2048, 3072)),
        ("srtm_sanfrancisco_int16", 256, "lower", (10, 11, 512, 512)),
        ("web_mercator_uint16", 256, "upper", (5, 8, 1024, 1024)),
        ("web_mercator_uint16", 256, "lower", (5, 8, 1024, 1024)),
        ("hillshade_colorado_3857", 256, "upper", (11, 14, 1024, 1024)),
    ],
)
def test_strategies(name: str, block: int, strategy: str, right: tuple[int, ...]) -> None:
    grid, _, _ = planned(SHARED / "data" / f"{name}.tif", block, strategy)
    assert (grid.min_zoom, grid.zoom, *size(grid)) == right


@needs_shared
def test_across_the_antimeridian() -> None:
    grid, members, _ = planned(SHARED / "data" / "dateline_uint16_utm60.tif")
    assert grid.zoom == 10
    assert len(grid.ranges) == len(members) == 2
    east, west = grid.ranges
    assert (east.west, west.east) == (0, 1023)
    assert grid.extent[0] > 177 > grid.extent[2]
    assert [member.shift for member in members] == [0, 0]


def _lonlat(path: Path, west: float, north: float, step: float, n: int = 60) -> Path:
    pixels = np.ones((n, n), np.uint8)
    return write(path, pixels, crs="EPSG:4326", affine=(west, step, 0, north, 0, -step))


def test_longitudes_beyond_180_are_moved(tmp_path: Path) -> None:
    path = _lonlat(tmp_path / "a.tif", 170, 10, 0.5)
    grid, members, _ = planned(path)
    assert [member.shift for member in members] == [0, -1]
    assert [round(member.box[0], 3) for member in members] == [0.972, 0.0]
    assert grid.extent[0] == pytest.approx(170)
    assert grid.extent[2] == pytest.approx(-160)


def test_the_whole_earth_and_its_poles(tmp_path: Path) -> None:
    pixels = np.ones((180, 360), np.uint8)
    for west in (-180, 0):
        affine = (west, 1, 0, 90, 0, -1)
        path = write(tmp_path / "a.tif", pixels, crs="EPSG:4326", affine=affine)
        info = describe(path)
        place = footprint(info)
        assert place.clipped
        grid, _, _ = planned(path)
        assert grid.zoom == 0
        assert size(grid) == (256, 256)
        assert grid.extent[0::2] == (-180.0, 180.0)


@pytest.mark.parametrize("crs", ["EPSG:4326", "EPSG:4269"])
@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("columns", [1, 2, 100])
def test_the_whole_earth_in_few_pixels_takes_one_tile(
    tmp_path: Path, columns: int, rows: int, crs: str
) -> None:
    affine = (-180, 360 / columns, 0, 90, 0, -180 / rows)
    path = write(tmp_path / "a.tif", np.ones((rows, columns)), crs=crs, affine=affine)
    grid, _, _ = planned(path)
    assert (grid.zoom, size(grid)) == (0, (256, 256))


@pytest.mark.parametrize("step", [1e3, 1e9, 1e300])
def test_a_raster_around_countless_worlds_has_no_edge(tmp_path: Path, step: float) -> None:
    affine = (-180, step, 0, 60, 0, -1)
    path = write(tmp_path / "a.tif", np.ones((20, 20)), crs="EPSG:4326", affine=affine)
    place = footprint(describe(path))
    assert place.ring is None
    assert (place.box[0], place.box[2]) == (0, 1)
    assert outline([place], (-180, 40, 180, 60), 8) is None


@pytest.mark.parametrize("crs", ["EPSG:3413", "EPSG:3031"])
def test_a_raster_around_the_pole_reaches_all_longitudes(tmp_path: Path, crs: str) -> None:
    affine = (-2e6, 2e4, 0, 3e6, 0, -2e4)
    path = write(tmp_path / "a.tif", np.ones((300, 300), np.uint8), crs=crs, affine=affine)
    place = footprint(describe(path))
    assert place.clipped
    north = crs == "EPSG:3413"
    assert (place.box[0], place.box[2], place.box[1 if north else 3]) == (0, 1, 1 - north)
    u, v = np.meshgrid(np.arange(0.005, 1, 0.01), np.arange(0.005, 1, 0.01))
    lon, lat = xy_to_lonlat(u, v, 0)
    x, y = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(lon, lat)
    inside = (x > -2e6) & (x < 4e6) & (y > -3e6) & (y < 3e6)
    np.testing.assert_array_equal(shapely.contains_xy(shapely.Polygon(place.ring), u, v), inside)


def test_edges_near_a_tile_line_are_on_it() -> None:
    pixel = 1 / 2**18
    box = (0.25 - 0.009 * pixel, 0.25, 0.5 + 0.009 * pixel, 0.5)
    found = tile_range(box, 10, 256)
    assert (found.west, found.east, found.north, found.south) == (256, 511, 256, 511)
    wider = (0.25 - 0.02 * pixel, 0.25, 0.5 + 0.02 * pixel, 0.5)
    assert (tile_range(wider, 10, 256).west, tile_range(wider, 10, 256).east) == (255, 512)


def test_only_rasters_on_the_pixels_are_aligned(tmp_path: Path) -> None:
    step = 2 * np.pi * 6378137 / 2**15
    half = np.pi * 6378137

    def offset(x: float, y: float, dx: float, dy: float, skew: float = 0.0) -> Any:
        affine = (x * step - half, dx * step, skew, half - y * step, 0, dy * step)
        pixels = np.ones((50, 60), np.uint8)
        path = write(tmp_path / "a.tif", pixels, crs="EPSG:3857", affine=affine)
        return pixel_offset(describe(path), 15)

    assert offset(100, 200, 1, -1) == (100, 200)
    assert offset(100.005, 199.996, 1, -1) == (100, 200)
    assert offset(100, 250, 1, 1) == (100, 200)
    assert offset(100.05, 200, 1, -1) is None
    assert offset(100, 200, 1.00001, -1) is None
    assert offset(100, 200, 2, -2) is None
    assert offset(100, 200, 1, -1, skew=0.1) is None


def test_zooms_end_at_26() -> None:
    assert choose_zoom(-1.2, "auto") == 0
    with pytest.warns(UserWarning, match="26"):
        assert choose_zoom(27.4, "lower") == 26
    with pytest.raises(InvalidInputError, match="strategy"):
        choose_zoom(3.0, "nearest")


def test_rotated_rasters_have_the_extent_of_their_corners(tmp_path: Path) -> None:
    straight = (600_000, 30, 0, 5_300_000, 0, -30)
    turned = (
        600_000,
        30 * np.cos(0.5),
        30 * np.sin(0.5),
        5_300_000,
        30 * np.sin(0.5),
        -30 * np.cos(0.5),
    )
    pixels = np.ones((100, 100), np.uint8)
    boxes = []
    for affine in (straight, turned):
        path = write(tmp_path / "a.tif", pixels, crs="EPSG:32632", affine=affine)
        boxes.append(footprint(describe(path)).box)
    wide = [box[2] - box[0] for box in boxes]
    assert wide[1] / wide[0] == pytest.approx(np.cos(0.5) + np.sin(0.5), rel=0.05)
