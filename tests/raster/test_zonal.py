from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError
from comal.geo import footprints, wkb
from comal.raster import Layer, layers, sample_footprint
from tests.raster.rasters import write
from tests.support import wkb_of

UTM = "EPSG:32718"


def utm_layer(folder: Path, **options: Any) -> tuple[Path, Any]:
    """A layer of 100 m pixels, 40 x 60, whose origin is that of the footprints below."""
    pixels = np.random.default_rng(2).uniform(0, 100, (40, 60)).astype(np.float32)
    affine = (300000, 100, 0, 8700000, 0, -100)
    return write(folder / "layer.tif", pixels, affine=affine, **options), pixels


def chip(column: float, row: float, side: int, crs: str = UTM) -> footprints.Footprints:
    """A raster of side x side pixels of 10 m."""
    affine = [[300000 + column * 100, 10, 0, 8700000 - row * 100, 0, -10]]
    return footprints.raster_footprints(crs, affine, [[side, side]])


def test_whole_pixels(tmp_path: Path) -> None:
    path, pixels = utm_layer(tmp_path)
    for column, row, cells in ((0, 0, 1), (3, 5, 2), (10, 10, 10), (0, 0, 40)):
        found = sample_footprint(path, chip(column, row, cells * 10))
        wanted = pixels[row : row + cells, column : column + cells].mean(dtype=np.float64)
        assert found[0] == pytest.approx(wanted, rel=1e-6)


def test_parts_of_pixels_count_by_their_area(tmp_path: Path) -> None:
    path, pixels = utm_layer(tmp_path)
    found = sample_footprint(path, chip(0.5, 0.25, 10))
    corner = pixels[:2, :2].astype(np.float64)
    wanted = (np.outer([0.75, 0.25], [0.5, 0.5]) * corner).sum()
    assert found[0] == pytest.approx(wanted, rel=1e-6)


def test_invalid_pixels_do_not_count(tmp_path: Path) -> None:
    pixels = np.array([[1, 0], [0, 3]], np.float64)
    affine = (300000, 100, 0, 8700000, 0, -100)
    path = write(tmp_path / "a.tif", pixels, affine=affine, nodata=0)
    assert sample_footprint(path, chip(0, 0, 20))[0] == 2
    assert np.isnan(sample_footprint(path, chip(1, 0, 10))[0])
    assert np.isnan(sample_footprint(path, chip(50, 50, 10))[0])


def test_other_crs(tmp_path: Path) -> None:
    """A plane in longitude and latitude: its mean is its value at the centre of the footprint."""
    lon = -80 + 0.01 * (np.arange(600) + 0.5)
    lat = -10 - 0.01 * (np.arange(400) + 0.5)
    plane = (2 * lon[None, :] + 3 * lat[:, None]).astype(np.float64)
    path = write(tmp_path / "p.tif", plane, crs="EPSG:4326", affine=(-80, 0.01, 0, -10, 0, -0.01))
    for side in (100, 2000, 20000):
        footprint = chip(0, 0, side)
        x, y = footprint.centres()
        found = sample_footprint(path, footprint)
        assert found[0] == pytest.approx(2 * x[0] + 3 * y[0], abs=0.02)


def test_large_footprints_use_overviews(tmp_path: Path) -> None:
    pixels = np.random.default_rng(8).uniform(0, 1, (2048, 2048)).astype(np.float32)
    path = write(
        tmp_path / "a.tif", pixels, affine=(300000, 10, 0, 8700000, 0, -10),
        tiled=True, blockxsize=256, blockysize=256, overviews=[2, 4, 8, 16, 32, 64],
    )  # fmt: skip
    found = sample_footprint(path, chip(0, 0, 2048))
    assert found[0] == pytest.approx(pixels.mean(), abs=2e-3)


def test_antimeridian_and_layers_of_0_to_360(tmp_path: Path) -> None:
    by_lon = np.tile(np.r_[np.zeros(10), np.full(340, 5.0), np.full(10, 2.0)], (180, 1))
    path = write(tmp_path / "a.tif", by_lon, crs="EPSG:4326", affine=(-180, 1, 0, 90, 0, -1))
    turned = np.roll(by_lon, 180, axis=1)
    other = write(tmp_path / "b.tif", turned, crs="EPSG:4326", affine=(0, 1, 0, 90, 0, -1))
    footprint = footprints.raster_footprints("EPSG:4326", [[175, 1, 0, 5, 0, -1]], [[10, 10]])
    area = shapely.from_wkt("POLYGON ((175 -5, -175 -5, -175 5, 175 5, 175 -5))")
    outline = footprints.geometry_footprints(wkb_of([area]))
    for layer in (path, other):
        assert sample_footprint(layer, footprint)[0] == pytest.approx(1)
        assert sample_footprint(layer, outline)[0] == pytest.approx(1)


def test_geometries_and_places(tmp_path: Path) -> None:
    path, pixels = utm_layer(tmp_path)
    triangle = shapely.Polygon([(300000, 8700000), (300000, 8699000), (301000, 8699000)])
    outline = footprints.geometry_footprints(wkb_of([triangle, None]), UTM)
    inside = np.tril(np.ones((10, 10)))
    np.fill_diagonal(inside, 0.5)
    wanted = (pixels[:10, :10] * inside).sum() / inside.sum()
    found = sample_footprint(path, outline)
    assert found[0] == pytest.approx(wanted, rel=0.03)
    assert np.isnan(found[1])
    lon, lat = chip(7.5, 3.5, 0).centres()
    places = footprints.point_footprints(wkb.point([lon[0], np.nan], [lat[0], 0]))
    found = sample_footprint(path, places)
    assert found[0] == pixels[3, 7]
    assert np.isnan(found[1])


def test_a_thin_geometry_is_not_lost(tmp_path: Path) -> None:
    path, pixels = utm_layer(tmp_path)
    line = shapely.LineString([(300050, 8699950), (300950, 8699950)])
    found = sample_footprint(path, footprints.geometry_footprints(wkb_of([line]), UTM))
    assert pixels[0, :10].min() <= found[0] <= pixels[0, :10].max()


def test_many_rows_give_what_each_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = utm_layer(tmp_path)
    random = np.random.default_rng(6)
    count = 200
    affine = np.tile([300000.0, 10, 0, 8700000, 0, -10], (count, 1))
    affine[:, 0] += random.uniform(-500, 6000, count)
    affine[:, 3] -= random.uniform(-500, 4000, count)
    sides = random.integers(1, 60, count)
    crs = pa.array([UTM, "EPSG:32719"]).take(pa.array(np.arange(count) % 2))
    many = footprints.raster_footprints(crs, affine, np.stack([sides, sides], axis=1))
    together = sample_footprint(path, many)
    monkeypatch.setattr(layers, "_PLACES", 64)
    monkeypatch.setattr(layers, "_TILE", 7)
    np.testing.assert_array_equal(sample_footprint(path, many), together)
    alone = [sample_footprint(path, many.take(np.array([row])))[0] for row in range(20)]
    np.testing.assert_allclose(alone, together[:20])
    assert np.isfinite(together).sum() > 50


def test_first_known() -> None:
    crs = pa.array([UTM, None])
    grids = footprints.raster_footprints(crs, [[3e5, 10, 0, 87e5, 0, -10]] * 2, [[4, 4]] * 2)
    places = footprints.point_footprints(wkb.point([1, 2], [3, 4]))
    found = footprints.first_known([grids, places])
    assert found.is_place().tolist() == [False, True]
    assert found.centres()[0][1] == 2


def test_layers_must_have_a_place_and_the_band(tmp_path: Path) -> None:
    bare = write(tmp_path / "a.png", np.zeros((2, 2), np.uint8), driver="PNG", affine=None)
    with pytest.raises(InvalidInputError, match="not georeferenced"):
        sample_footprint(bare, chip(0, 0, 10))
    path, _ = utm_layer(tmp_path)
    with pytest.raises(InvalidInputError, match="band"):
        sample_footprint((path, 2), chip(0, 0, 10))
    with pytest.raises(InvalidInputError, match="layer"):
        sample_footprint(5, chip(0, 0, 10))
    assert Layer.of((path, 1)) == Layer(path, 1)
