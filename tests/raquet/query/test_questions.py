"""Questions about areas, answered by DuckDB on a converted raster and by numpy on the raster."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
import rasterio
import shapely
from pyproj import Transformer
from rasterio.features import rasterize

from comal import grid, raquet
from tests.raquet.writing.sources import noise, on_grid, utm
from tests.support import SHARED, needs_shared

DATA = SHARED / "data"
# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

_REGION = "SELECT s.* FROM (SELECT ST_RegionStats({}, block, $area, metadata{}) AS s FROM raster)"


def star(west: float, south: float, east: float, north: float) -> Any:
    """An area that is no box, with a hole, well inside a box."""
    middle, size = ((west + east) / 2, (south + north) / 2), min(east - west, north - south) / 2
    angles = np.linspace(0, 2 * np.pi, 15)[:-1]
    reach = np.where(np.arange(14) % 2, 0.9, 0.4) * size
    points = np.c_[middle[0] + reach * np.cos(angles), middle[1] + reach * np.sin(angles)]
    return shapely.Polygon(points).difference(shapely.Point(middle).buffer(0.2 * size))


def lonlat(area: Any, crs: Any) -> Any:
    """An area in degrees. Edges of Web Mercator are bent there, so they are cut small before."""
    turn = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
    fine = shapely.segmentize(area, max(area.length / 4_000, 1e-9))
    return shapely.transform(fine, lambda points: np.c_[turn.transform(*points.T)])


def answered(path: Path, area: Any, band: str = "band_1") -> dict[str, Any]:
    with raquet.open(path) as file:
        interleaved = file.metadata.interleaved
    # Where all bands share a column, the one that is meant has to be named.
    column, name = ("pixels", f", NULL, NULL, '{band}'") if interleaved else (band, "")
    table = raquet.sql(path, _REGION.format(column, name), area=shapely.to_wkb(area))
    return dict(table.to_pylist()[0])


def of_source(path: Path, area: Any, band: int = 1) -> Any:
    """The valid pixels of a raster whose middles lie in an area in its own CRS."""
    with rasterio.open(path) as dataset:
        pixels, transform = dataset.read(band), dataset.transform
        valid = dataset.read_masks(band) > 0
    if transform.e > 0:
        pixels, valid = pixels[::-1], valid[::-1]
        transform = transform @ rasterio.Affine(1, 0, 0, 0, -1, len(pixels))
    inside = rasterize([(area, 1)], pixels.shape, transform=transform) > 0
    return pixels[inside & valid].astype(np.float64)


def confirmed(source: Path, path: Path, band: int = 1) -> None:
    """On the grid of the raster the answers are the same to the last pixel."""
    with rasterio.open(source) as dataset:
        area, crs = star(*dataset.bounds), dataset.crs
    values = of_source(source, area, band)
    assert len(values) > 100
    found = answered(path, lonlat(area, crs), f"band_{band}")
    assert found["count"] == len(values)
    assert found["sum"] == pytest.approx(values.sum())
    assert (found["min"], found["max"]) == (values.min(), values.max())
    assert found["mean"] == pytest.approx(values.mean())
    assert found["stddev_pop"] == pytest.approx(values.std())
    zonal = raquet.zonal(path, [area], crs=crs.to_wkt(), bands=[f"band_{band}"]).to_pylist()[0]
    assert zonal[f"band_{band}_count"] == len(values)
    assert zonal[f"band_{band}_sum"] == pytest.approx(values.sum())


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint32", "float32"])
@pytest.mark.parametrize("layout", ["sequential", "interleaved"])
def test_a_raster_on_the_grid(tmp_path: Path, dtype: str, layout: str) -> None:
    pixels = noise((2, 200, 230), dtype)
    pixels[:, :40, :90] = 7
    source = on_grid(tmp_path / "a.tif", pixels, nodata=7)
    path = tmp_path / "a.parquet"
    raquet.write(source, path, block_size=32, layout=layout, spec_version="0.5.0")
    for band in (1, 2):
        confirmed(source, path, band)


def test_a_raster_that_is_warped(tmp_path: Path) -> None:
    """Its pixels are others, what they say of an area is not."""
    y, x = np.mgrid[:300, :320]
    pixels = (1000 + 400 * np.sin(x / 40) * np.cos(y / 50)).astype("float32")
    source = utm(tmp_path / "a.tif", pixels, nodata=-1)
    path = tmp_path / "a.parquet"
    raquet.write(source, path, block_size=64, resampling="bilinear")
    with rasterio.open(source) as dataset:
        area, crs = star(*dataset.bounds), dataset.crs
    values = of_source(source, area)
    found = answered(path, lonlat(area, crs))
    assert found["mean"] == pytest.approx(values.mean(), rel=2e-3)
    assert found["stddev_pop"] == pytest.approx(values.std(), rel=2e-2)


def test_plain_sql_on_tile_statistics(tmp_path: Path) -> None:
    """Any DuckDB answers for a cell and what is below it, without a function of comal."""
    pixels = noise((256, 256), "int16")
    source = on_grid(tmp_path / "a.tif", pixels, column=16_384, row=10_240, nodata=-5)
    path = tmp_path / "a.parquet"
    raquet.write(source, path, block_size=32, zoom=10, spec_version="0.5.0", tile_statistics=True)
    parent = grid.cells(8, 128, 80)  # 4 x 4 tiles, the upper left quarter
    first, last = grid.descendants(parent, 10)
    with duckdb.connect() as plain:
        found = plain.execute(
            "SELECT sum(band_1_count), sum(band_1_sum), min(band_1_min), max(band_1_max)"
            " FROM read_parquet($path) WHERE block BETWEEN $first AND $last",
            {"path": str(path), "first": first, "last": last},
        ).fetchall()
    values = pixels[:128, :128][pixels[:128, :128] != -5]
    assert found == [(len(values), values.sum(), values.min(), values.max())]


@needs_shared
@pytest.mark.parametrize("name", ["web_mercator_uint16", "hillshade_colorado_3857"])
def test_real_rasters_on_the_grid(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    raquet.write(DATA / f"{name}.tif", path)
    confirmed(DATA / f"{name}.tif", path)


@needs_shared
@pytest.mark.parametrize(
    "name", ["srtm_sanfrancisco_int16", "landsat8_a_uint16_utm18", "landsat7_rgb_utm18"]
)
def test_real_rasters_that_are_warped(tmp_path: Path, name: str) -> None:
    source, path = DATA / f"{name}.tif", tmp_path / "a.parquet"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the raster reaches beyond")
        raquet.write(source, path)
    with rasterio.open(source) as dataset:
        area, crs = star(*dataset.bounds), dataset.crs
    values = of_source(source, area)
    found = answered(path, lonlat(area, crs))
    assert found["mean"] == pytest.approx(values.mean(), abs=0.02 * values.std())
    assert found["stddev_pop"] == pytest.approx(values.std(), rel=0.02)


@needs_shared
def test_shares_of_classes(tmp_path: Path) -> None:
    """A palette: how much of an area is of which class."""
    source, path = DATA / "nlcd_landcover_palette.tif", tmp_path / "a.parquet"
    raquet.write(source, path, zoom_strategy="upper")
    with rasterio.open(source) as dataset:
        area, crs = star(*dataset.bounds), dataset.crs
    values = of_source(source, area)
    table = raquet.sql(
        path,
        "SELECT v AS class, count(*) AS n FROM (SELECT unnest(ST_Clip(band_1, block, $area,"
        " metadata)) AS v FROM raster) GROUP BY v",
        area=shapely.to_wkb(lonlat(area, crs)),
    )
    counts = dict(zip(*(table.column(name).to_pylist() for name in ("class", "n")), strict=True))
    total = sum(counts.values())
    for value, count in zip(*np.unique(values, return_counts=True), strict=True):
        assert counts.get(value, 0) / total == pytest.approx(count / len(values), abs=0.003)
