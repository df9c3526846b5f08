"""The main job on real rasters: converted, checked, read back as rasterio warps them, and asked."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
from pyproj import Transformer
from rasterio.features import rasterize

import comal.raquet
from tests.raquet.writing.sources import CIRCUMFERENCE, HALF, assembled, misplaced, warped
from tests.support import SHARED, needs_shared

pytestmark = needs_shared
DATA = SHARED / "data"

WARPED: dict[str, dict[str, Any]] = {
    "srtm_sanfrancisco_int16": {},
    "landsat7_rgb_utm18": {},
    "nlcd_landcover_palette": {"zoom_strategy": "upper"},
    "nodata_nan": {},
    "world_rgb_4326": {},
}
ASKED = {"srtm_sanfrancisco_int16", "landsat7_rgb_utm18", "nlcd_landcover_palette"}
"""Of which an area is asked, too."""
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
    path = _converted(tmp_path, name, nodata="none", **WARPED[name])
    assert misplaced(source, path) == 0
    with rasterio.open(source) as dataset:
        fill = 0 if dataset.nodata is None else dataset.nodata
    whole, _, _ = assembled(path, fill=fill)
    # GDAL's own shortcuts differ with the size of what is warped at once.
    assert (whole == warped(source, path)).mean() > 0.98
    if name not in ASKED:
        return
    # Pixels are others, what they say of an area is not, nor how much of it is of which class.
    area, values = star_of(source)
    found = clipped(path, area)
    assert found.mean() == pytest.approx(values.mean(), abs=0.02 * values.std())
    assert found.std() == pytest.approx(values.std(), rel=0.02)
    if "palette" in name:
        for value, count in zip(*np.unique(values, return_counts=True), strict=True):
            assert (found == value).mean() == pytest.approx(count / len(values), abs=0.003)


def star_of(source: Path) -> tuple[Any, Any]:
    """An area in degrees, no box, with a hole, and the valid pixels in it, by rasterio."""
    with rasterio.open(source) as dataset:
        west, south, east, north = dataset.bounds
        pixels, transform, crs = dataset.read(1), dataset.transform, dataset.crs
        valid = dataset.read_masks(1) > 0
    middle, size = ((west + east) / 2, (south + north) / 2), min(east - west, north - south) / 2
    angles = np.linspace(0, 2 * np.pi, 15)[:-1]
    reach = np.where(np.arange(14) % 2, 0.9, 0.4) * size
    points = np.c_[middle[0] + reach * np.cos(angles), middle[1] + reach * np.sin(angles)]
    area = shapely.Polygon(points).difference(shapely.Point(middle).buffer(0.2 * size))
    inside = rasterize([(area, 1)], pixels.shape, transform=transform) > 0
    turn = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    # Edges of a plane are bent in degrees, so they are cut small before.
    fine = shapely.segmentize(area, area.length / 4_000)
    degrees = shapely.transform(fine, lambda points: np.c_[turn.transform(*points.T)])
    return degrees, pixels[inside & valid].astype(np.float64)


def clipped(path: Path, area: Any) -> Any:
    """Values in an area by SQL, which statistics of the same area must agree with."""
    clip = "ST_Clip(band_1, block, $area, metadata)"
    with comal.raquet.connect(path) as connection:
        wkb = shapely.to_wkb(area)
        rows = connection.sql(f"SELECT unnest({clip}) AS v FROM raster", area=wkb)
        query = (
            "SELECT s.* FROM (SELECT ST_RegionStats(band_1, block, $area, metadata) s FROM raster)"
        )
        (told,) = connection.sql(query, area=wkb).to_pylist()
    found = rows["v"].to_numpy().astype(np.float64)
    assert (told["count"], told["min"], told["max"]) == (len(found), found.min(), found.max())
    assert (told["mean"], told["stddev_pop"]) == pytest.approx((found.mean(), found.std()))
    return found


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
    # On the grid of the raster the answers are the same to the last pixel.
    area, values = star_of(DATA / f"{name}.tif")
    assert len(values) > 100
    np.testing.assert_array_equal(np.sort(clipped(path, area)), np.sort(values))


def test_the_world_mask_at_a_coarse_zoom(tmp_path: Path) -> None:
    path, source = tmp_path / "a.parquet", DATA / "world_mask_36000x18000.tif"
    with pytest.warns(UserWarning, match="cut at"):
        made = comal.raquet.write(source, path, zoom=3)
    assert (made.min_zoom, made.max_zoom, made.width) == (0, 3, 2048)
    assert comal.raquet.check(path, level="full", statistics=True).counts == {}
    rng = np.random.default_rng(1)
    lon, lat = rng.uniform(-180, 180, 500), rng.uniform(-80, 80, 500)
    with comal.raquet.open(path) as raster, rasterio.open(source) as own:
        right = np.array([one[0] for one in own.sample(zip(lon, lat, strict=True))])
        assert (raster.points(lon, lat)[0] == right).mean() > 0.98
