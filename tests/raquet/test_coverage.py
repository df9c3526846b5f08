"""Padding of tiles at the edge is no pixel, though the format has no mask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rasterio
import shapely
from hypothesis import given
from hypothesis import strategies as st
from rasterio.features import rasterize
from rasterio.transform import Affine

from comal import grid, raquet
from comal.raquet.reading.coverage import coverages
from comal.raquet.spec import Band, Metadata
from tests.raquet.writing.sources import noise, on_grid, utm
from tests.support import SHARED, needs_shared

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning"),
]


def made(source: Path, path: Path, **options: Any) -> Path:
    raquet.write(source, path, **{"block_size": 32, **options})
    return path


def source_of(path: Path) -> Any:
    with raquet.open(path) as raster:
        return raster.metadata.custom["comal"]["source"]


def valid_of(pixels: Any) -> Any:
    return ~np.ma.getmaskarray(pixels)


@pytest.fixture
def aligned(tmp_path: Path) -> Path:
    """70 x 45 pixels of 1 to 9 that begin 5 pixels to the east and 3 south of a tile's corner."""
    pixels = np.random.default_rng(3).integers(1, 10, (45, 70), "uint8")
    source = on_grid(tmp_path / "a.tif", pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    return made(source, tmp_path / "a.parquet", zoom=10)


def test_a_raster_on_the_grid_has_its_own_pixels_and_no_others(aligned: Path) -> None:
    assert "footprint" not in source_of(aligned)
    with raquet.open(aligned) as raster, rasterio.open(aligned.with_suffix(".tif")) as source:
        window = raster.read(masked=True)
        inside = np.zeros(window.data.shape[1:], bool)
        inside[3:48, 5:75] = True
        np.testing.assert_array_equal(valid_of(window.data[0]), inside)
        np.testing.assert_array_equal(window.data[0].compressed(), source.read(1).ravel())
        tile = raster.tile(10, 500, 300, masked=True)
        np.testing.assert_array_equal(valid_of(tile[0]), inside[:32, :32])
        np.testing.assert_array_equal(
            valid_of(raster.tiles([(10, 500, 300)], masked=True)[0]), [inside[:32, :32]]
        )
        assert np.isnan(raster.tile(10, 500, 300, scaled=True)[0, 0, 0])
        # What is stored is there for those who ask for it.
        assert raster.tile(10, 500, 300)[0, 0, 0] == 0
        statistics = raster.bands[0].statistics
        assert statistics is not None
        assert statistics.count == inside.sum()


def test_points_on_padding_have_no_value(aligned: Path) -> None:
    size = 360 / (32 << 10)
    with raquet.open(aligned) as raster:
        x = 32 * 500 + np.array([4.5, 5.5, 74.5, 75.5, 33.5])
        y = np.full(5, 32 * 300 + 20.5)
        lon, lat = grid.xy_to_lonlat(x / 32, y / 32, 10)
        found = raster.points(lon, lat, masked=True)
        np.testing.assert_array_equal(valid_of(found[0]), [False, True, True, False, True])
        assert raster.point(float(lon[0]), float(lat[0])).tolist() == [0]
        assert float(lon[1] - lon[0]) == pytest.approx(size)


def test_queries_and_statistics_do_not_count_padding(aligned: Path) -> None:
    with rasterio.open(aligned.with_suffix(".tif")) as source:
        pixels = source.read(1)
    (row,) = raquet.statistics(aligned, stats=["count", "sum", "min"]).to_pylist()
    assert row == {"band": "band_1", "count": pixels.size, "sum": pixels.sum(), "min": 1}
    world = shapely.box(-179, -80, 179, 80)
    with raquet.connect(aligned) as connection:
        query = (
            "SELECT ST_RegionStats(band_1, block, $area, metadata) AS s,"
            " sum(len(ST_Clip(band_1, block, $area, metadata))) AS n FROM raster"
        )
        (found,) = connection.sql(query, area=world.wkt).to_pylist()
        assert (found["s"]["count"], found["s"]["min"], found["n"]) == (pixels.size, 1, pixels.size)
        lon, lat = grid.xy_to_lonlat([500.03, 500.2], [300.5, 300.5], 10)
        at = "SELECT ST_RasterValue(block, band_1, ST_Point($x, $y), metadata) AS v"
        for x, y, known in zip(lon, lat, (False, True), strict=True):
            query = f"{at} FROM read_raquet_at('raster', $x, $y)"
            (value,) = connection.sql(query, x=float(x), y=float(y)).to_pylist()
            assert (value["v"] is not None) == known


def footprint_mask(source: Path, transform: Any, shape: tuple[int, int]) -> Any:
    """Pixels whose centres lie on the source, by PROJ."""
    from pyproj import Transformer

    with rasterio.open(source) as dataset:
        back, width, height = ~dataset.transform, dataset.width, dataset.height
        to_source = Transformer.from_crs("EPSG:3857", dataset.crs, always_xy=True)
    column, row = np.meshgrid(np.arange(shape[1]) + 0.5, np.arange(shape[0]) + 0.5)
    a, _, c, _, e, f = transform
    x, y = to_source.transform(a * column + c, e * row + f)
    u, v = back.a * x + back.b * y + back.c, back.d * x + back.e * y + back.f
    return (u >= 0) & (u <= width) & (v >= 0) & (v <= height)


def test_a_warped_raster_is_no_rectangle(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((300, 420), "uint16"))
    path = made(source, tmp_path / "a.parquet")
    corners = source_of(path)["footprint"]["coordinates"]
    assert 5 <= len(corners[0][0]) < 40
    with raquet.open(path) as raster:
        for zoom in raster.zooms:
            window = raster.read(zoom=zoom, masked=True)
            found = valid_of(window.data[0])
            wanted = footprint_mask(source, window.transform, found.shape)
            around = found.shape[0] + found.shape[1]
            assert (found != wanted).sum() <= around * 0.05
            if zoom == raster.zooms[-1]:
                statistics = raster.bands[0].statistics
                assert statistics is not None
                assert statistics.count == pytest.approx(found.sum(), abs=around * 0.05)
        picture = raquet.preview(path, size=256)
    with rasterio.MemoryFile(picture) as memory, memory.open() as drawn:
        clear = (drawn.read(4) == 0).mean()
    assert 0.01 < clear < 0.3


def test_bands_with_nodata_need_no_footprint(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((60, 80), "uint16"), nodata=0)
    assert "footprint" not in source_of(made(source, tmp_path / "a.parquet"))


def test_a_mosaic_has_the_outline_of_all(tmp_path: Path) -> None:
    paths = [
        on_grid(
            tmp_path / f"{n}.tif", np.full((40, 40), n + 1, "uint8"), column=32 * at, row=32 * at
        )
        for n, at in enumerate((300, 301))
    ]
    path = tmp_path / "m.parquet"
    raquet.write(paths, path, block_size=32, zoom=10)
    with raquet.open(path) as raster:
        window = raster.read(masked=True).data[0]
        np.testing.assert_array_equal(valid_of(window), np.ma.getdata(window) > 0)
        assert window.count() == 2 * 1600 - 64


@needs_shared
def test_a_raster_across_the_antimeridian(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    raquet.write(SHARED / "data" / "dateline_uint16_utm60.tif", path, zoom=6)
    with raquet.open(path) as raster:
        assert raster.bounds[0] == -180
        assert raster.bounds[2] == 180
        assert raster.extent[0] > 170
        assert raster.extent[2] < -170
        window = raster.read(masked=True)
        assert window.data.shape[2] < 400
        statistics = raster.bands[0].statistics
        assert statistics is not None
        assert statistics.count == pytest.approx(window.data.count(), rel=0.01)
    done = raquet.to_geotiff(path, tmp_path / "d.tif")
    with rasterio.open(tmp_path / "d.tif") as dataset:
        assert dataset.width == done.width < 400
        np.testing.assert_array_equal(dataset.read_masks(1) > 0, valid_of(window.data[0]))


def test_exports_have_a_mask_where_nodata_does_not_tell(aligned: Path, tmp_path: Path) -> None:
    for write, name in ((raquet.to_geotiff, "a.tif"), (raquet.to_cog, "b.tif")):
        write(aligned, tmp_path / f"out_{name}")
        with rasterio.open(tmp_path / f"out_{name}") as dataset:
            assert dataset.nodata is None
            assert dataset.read_masks(1).sum() == 255 * 45 * 70
            assert sorted(one.name for one in tmp_path.glob("*.msk")) == []
    box = grid.bounds(grid.cells(10, 501, 300))
    raquet.to_geotiff(aligned, tmp_path / "c.tif", bbox=[float(one) for one in box])
    with rasterio.open(tmp_path / "c.tif") as dataset:
        assert dataset.mask_flag_enums[0][0].name == "per_dataset"


def test_bands_that_are_added_keep_their_own_source(aligned: Path, tmp_path: Path) -> None:
    other = on_grid(
        tmp_path / "o.tif", np.full((30, 30), 7, "uint8"), column=32 * 501 + 9, row=32 * 300 + 9
    )
    path = tmp_path / "both.parquet"
    raquet.append_bands(aligned, other, path, names={"band_1": "x"})
    with raquet.open(aligned) as one, raquet.open(path) as both:
        window = both.read(masked=True).data
        np.testing.assert_array_equal(valid_of(window[0]), valid_of(one.read(masked=True).data[0]))
        np.testing.assert_array_equal(valid_of(window[1]), np.ma.getdata(window[1]) == 7)
        assert window[1].count() == 900
    assert raquet.check(path, level="full").ok


def test_files_of_other_sources_are_one_set(tmp_path: Path) -> None:
    pixels = np.full((1, 20, 20), 5, "uint8")
    paths = []
    for n, column in enumerate((300, 302)):
        source = on_grid(tmp_path / f"{n}.tif", pixels, column=32 * column + 3, row=32 * 300)
        paths.append(made(source, tmp_path / f"{n}.parquet", zoom=10, min_zoom=10))
    with raquet.open(paths) as raster:
        window = raster.read(masked=True).data
        np.testing.assert_array_equal(valid_of(window), np.ma.getdata(window) == 5)
    (row,) = raquet.statistics(paths, stats=["count", "mean"]).to_pylist()
    assert (row["count"], row["mean"]) == (800, 5)
    with raquet.connect(paths) as connection:
        query = "SELECT ST_RegionStats(band_1, block, $a, metadata).max AS m FROM raster"
        area = shapely.box(-179, -80, 179, 80).wkt
        assert connection.sql(query, a=area).to_pylist() == [{"m": 5}]


def metadata(source: Any, **named: Any) -> Metadata:
    bands = (Band(name="band_1", dtype="uint8", **named),)
    return Metadata(
        block_width=16,
        block_height=16,
        min_zoom=0,
        max_zoom=0,
        bounds=(-180, -85, 180, 85),
        width=16,
        height=16,
        bands=bands,
        custom={"comal": source},
    )


@pytest.mark.parametrize(
    "source",
    [
        None,
        [],
        {"source": 5},
        {"source": {"bounds": None}},
        {"source": {"bounds": [0, 0, 1]}},
        {"source": {"bounds": [0, 5, 1, 4]}},
        {"source": {"bounds": [0, "0", 1, 1]}},
        {"source": {"bounds": [0, True, 1, 1]}},
        {"source": {"bounds": [0, 0, 1e300, 1]}},
        {"source": {"footprint": {"type": "Point", "coordinates": [0, 0]}}},
        {"source": {"footprint": {"type": "MultiPolygon"}}},
        {"source": {"footprint": {"type": "MultiPolygon", "coordinates": [[[[0, 0], [1, 1]]]]}}},
        {"source": {"footprint": {"type": "MultiPolygon", "coordinates": 7}}},
        {"source": {"bounds": [0, 0, 1, 1]}, "sources": {"band_1": None}},
        {"source": {"bounds": [0, 0, 1, 1]}, "sources": {"band_1": 3}},
    ],
)
def test_what_says_nothing_hides_nothing(source: Any) -> None:
    assert coverages([metadata(source)]) == (None,)


def test_nodata_is_enough() -> None:
    told = {"source": {"bounds": [0, 0, 1, 1]}}
    assert coverages([metadata(told, nodata=0)]) == (None,)
    (cover,) = coverages([metadata(told, nodata=300)])  # no pixel can have it
    assert cover is not None


@given(
    st.lists(st.tuples(st.integers(0, 63), st.integers(0, 63)), min_size=3, max_size=8),
    st.integers(0, 40),
    st.integers(0, 40),
)
def test_windows_and_tiles_are_those_of_gdal(
    points: list[tuple[int, int]], column: int, row: int
) -> None:
    polygon = shapely.convex_hull(shapely.MultiPoint(np.array(points) + 0.3))
    if polygon.geom_type != "Polygon":
        return
    corners = shapely.get_coordinates(polygon)
    lon, lat = grid.xy_to_lonlat(corners[:, 0] / 64, corners[:, 1] / 64, 0)
    document = json.loads(
        json.dumps(
            {
                "source": {
                    "footprint": {
                        "type": "MultiPolygon",
                        "coordinates": [[np.stack([lon, lat], axis=1).tolist()]],
                    }
                }
            }
        )
    )
    (cover,) = coverages([metadata(document)])
    assert cover is not None
    wanted = rasterize([(polygon, 1)], (64, 64), transform=Affine.identity()) > 0
    centres = shapely.points(np.stack(np.meshgrid(*[np.arange(64) + 0.5] * 2), axis=-1))
    sure = shapely.distance(polygon.exterior, centres) > 1e-6
    whole = cover.window((0, 0, 64, 64), (64, 64))
    np.testing.assert_array_equal((whole if whole is not None else True) & sure, wanted & sure)
    part = cover.window((column, row, 20, 20), (64, 64))
    cut = np.s_[row : row + 20, column : column + 20]
    shown = np.ones((20, 20), bool) if part is None else part
    np.testing.assert_array_equal(shown & sure[cut], wanted[cut] & sure[cut])
    around = cover.window((column - 64, 0, 64, 64), (64, 64))
    rolled = np.roll(wanted & sure, -column, axis=1)
    shown = np.ones((64, 64), bool) if around is None else around
    np.testing.assert_array_equal(shown & np.roll(sure, -column, axis=1), rolled)
    tile = cover.tile(2, 1, 2, (16, 16))
    shown = np.ones((16, 16), bool) if tile is None else tile
    at = np.s_[32:48, 16:32]
    np.testing.assert_array_equal(shown & sure[at], wanted[at] & sure[at])


def test_repair_and_parts_keep_the_outline(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((300, 420), "uint16"))
    path = made(source, tmp_path / "a.parquet")
    raquet.repair(path, tmp_path / "r.parquet")
    assert source_of(tmp_path / "r.parquet") == source_of(path)
    raquet.partition(path, tmp_path / "parts", zoom=12)
    with raquet.open(path) as one, raquet.open(tmp_path / "parts") as many:
        wanted, found = one.read(masked=True).data, many.read(masked=True).data
        np.testing.assert_array_equal(valid_of(wanted), valid_of(found))
    assert isinstance(raquet.statistics(tmp_path / "parts"), pa.Table)
