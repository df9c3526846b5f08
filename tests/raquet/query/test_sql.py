from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import quadbin as package  # type: ignore[import-untyped] # without stubs
import shapely

from comal import grid, raquet
from comal.errors import InvalidInputError, InvalidMetadataError, LimitExceededError, QueryError
from comal.raquet.querying.scanning import tile_scans
from comal.storage import CountingSource
from tests.raquet.build import Plan, cell, framed, noise, stored, write
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "raquet"
BLOCK = 16
TILES = [(5, x, y) for x in (16, 17) for y in (10, 11)]


def pixels() -> dict[tuple[int, int, int], list[Any]]:
    """Two bands of two types; band 2 has another nodata value, and one tile of it is NULL."""
    found: dict[tuple[int, int, int], list[Any]] = {(4, 8, 5): [noise(90), noise(91, "float32")]}
    for number, tile in enumerate(TILES):
        one, other = noise(number), noise(number + 20, "float32")
        one[2, 3], other[4, 5] = 0, -9
        found[tile] = [one, other]
    found[5, 17, 11][1] = None
    return found


PLAN = Plan(bands=(("land", "uint8", 0), ("height", "float32", -9.0)))
ELSEWHERE = "POLYGON((80 0, 81 0, 81 1, 80 0))"
WHOLE = "POLYGON((0 0, 90 0, 90 66, 0 66, 0 0))"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "two.parquet", pixels(), PLAN)


@pytest.fixture
def opened(path: Path) -> Iterator[raquet.RaquetConnection]:
    with raquet.connect(path) as connection:
        yield connection


def one(connection: raquet.RaquetConnection, query: str, **params: Any) -> Any:
    """The only value of a query."""
    table = connection.sql(query, **params)
    assert (table.num_rows, table.num_columns) == (1, 1)
    return table.column(0)[0].as_py()


def mosaic(band: int) -> Any:
    """The finest zoom as one array, 32 x 32; NaN where nothing is valid."""
    found = np.full((32, 32), np.nan)
    nodata = (0, -9)[band]
    for z, x, y in TILES:
        tile = pixels()[z, x, y][band]
        if tile is not None:
            part = tile.astype(float)
            part[part == nodata] = np.nan
            found[(y - 10) * 16 : (y - 9) * 16, (x - 16) * 16 : (x - 15) * 16] = part
    return found


def middle(column: float, row: float) -> tuple[float, float]:
    """Longitude and latitude of a place on the mosaic."""
    lon, lat = grid.xy_to_lonlat(16 + column / 16, 10 + row / 16, 5)
    return float(lon), float(lat)


def test_views_hide_overviews_and_metadata(opened: raquet.RaquetConnection) -> None:
    assert opened.tables == ("raster", "tiles", "overviews", "metadata")
    assert one(opened, "SELECT count(*) FROM raster") == 4
    assert one(opened, "SELECT count(*) FROM overviews") == 1
    assert one(opened, "SELECT count(*) FROM raster_pyramid") == 5
    index = opened.sql("SELECT * FROM tiles ORDER BY block").to_pylist()
    assert [(row["z"], row["x"], row["y"]) for row in index] == sorted(TILES, key=cell)
    assert index[0]["west"] == pytest.approx(0)
    row = opened.sql("SELECT * FROM metadata").to_pylist()[0]
    assert (row["min_zoom"], row["max_zoom"], row["bands"]) == (4, 5, ["land", "height"])
    assert one(opened, "SELECT count(DISTINCT metadata) FROM raster") == 1
    assert opened.metadata["raster"].max_zoom == 5


def test_values_at_points(opened: raquet.RaquetConnection) -> None:
    query = (
        "SELECT ST_RasterValue(block, {0}, ST_Point($lon, $lat), metadata)"
        " FROM read_raquet_at('raster', $lon, $lat)"
    )
    for band, name in enumerate(("land", "height")):
        for column, row in ((0, 0), (31, 31), (3, 2), (5, 4), (17, 9), (16, 15)):
            lon, lat = middle(column + 0.5, row + 0.5)
            found = one(opened, query.format(name), lon=lon, lat=lat)
            expected = mosaic(band)[row, column]
            assert found == (None if np.isnan(expected) else pytest.approx(expected))
    lon, lat = middle(1.5, 1.5)
    named = (
        "SELECT ST_RasterValue(block, b, 'POINT({} {})', metadata, 'height')"
        " FROM (SELECT block, height AS b, metadata FROM read_raquet_at('raster', {}, {}))"
    )
    assert one(opened, named.format(lon, lat, lon, lat)) == pytest.approx(mosaic(1)[1, 1])


def test_points_elsewhere(opened: raquet.RaquetConnection) -> None:
    lon, lat = middle(1.5, 1.5)
    everywhere = "SELECT ST_RasterValue(block, land, $p::GEOMETRY, metadata) v FROM raster"
    found = opened.sql(everywhere, p=f"POINT({lon} {lat})").column(0).to_pylist()
    assert sorted(value is None for value in found) == [False, True, True, True]
    assert opened.sql("SELECT * FROM read_raquet_at('raster', -100.0, 10.0)").num_rows == 0
    wkb = shapely.to_wkb(shapely.Point(lon, lat))
    found = opened.sql(
        "SELECT ST_RasterValue(block, land, $p, metadata) v FROM raster WHERE v IS NOT NULL", p=wkb
    )
    assert found.column(0).to_pylist() == [mosaic(0)[1, 1]]
    with pytest.raises(InvalidInputError, match="no point"):
        opened.sql(f"SELECT ST_RasterValue(block, land, '{WHOLE}', metadata) FROM raster")
    with pytest.raises(InvalidInputError, match="no geometry"):
        opened.sql("SELECT ST_RasterValue(block, land, 'POINT(', metadata) FROM raster")


def test_a_band_is_known_by_its_column(opened: raquet.RaquetConnection) -> None:
    with pytest.raises(InvalidInputError, match="not clear which band"):
        opened.sql(
            "SELECT ST_RasterSummaryStats(b, metadata)"
            " FROM (SELECT height AS b, metadata FROM raster)"
        )
    with pytest.raises(InvalidInputError, match="no such band"):
        opened.sql("SELECT ST_RasterValue(block, land, 'POINT(1 1)', metadata, 'x') FROM raster")


def test_summaries(opened: raquet.RaquetConnection) -> None:
    rows = opened.sql(
        "SELECT block, ST_RasterSummaryStats(land, metadata) a,"
        " ST_RasterSummaryStats(height, metadata) b,"
        " ST_RasterSummaryStats(land, metadata, 5) c FROM raster"
    ).to_pylist()
    tiles = {cell(tile): bands for tile, bands in pixels().items()}
    for row in rows:
        land, height = tiles[row["block"]]
        valid = land[land != 0].astype(float)
        found = row["a"]
        assert (found["count"], found["sum"]) == (len(valid), valid.sum())
        assert (found["min"], found["max"]) == (valid.min(), valid.max())
        assert found["mean"] == pytest.approx(valid.mean())
        assert found["stddev"] == found["stddev_samp"] == pytest.approx(valid.std(ddof=1))
        assert found["stddev_pop"] == pytest.approx(valid.std())
        assert row["c"]["count"] == (land != 5).sum()
        if height is None:
            assert row["b"] is None
        else:
            valid = height[height != -9].astype(float)
            assert row["b"]["mean"] == pytest.approx(valid.mean())


def test_region_statistics_see_holes(opened: raquet.RaquetConnection) -> None:
    corners = [middle(*place) for place in ((4, 4), (28, 4), (28, 28), (4, 28))]
    hole = [middle(*place) for place in ((10, 10), (22, 10), (22, 22), (10, 22))]
    region = shapely.Polygon(corners, [hole])
    inside = np.zeros((32, 32), bool)
    inside[4:28, 4:28] = True
    inside[10:22, 10:22] = False
    for band, name in enumerate(("land", "height")):
        values = mosaic(band)[inside]
        values = values[~np.isnan(values)]
        found = one(
            opened,
            f"SELECT ST_RegionStats({name}, block, $region, metadata) FROM raster",
            region=region.wkt,
        )
        assert found["count"] == len(values)
        assert found["mean"] == pytest.approx(values.mean())
        assert found["stddev_pop"] == pytest.approx(values.std())
        assert found["stddev"] == pytest.approx(values.std(ddof=1))
        assert (found["min"], found["max"]) == (values.min(), values.max())


def test_region_statistics_choose_a_zoom(opened: raquet.RaquetConnection) -> None:
    query = "SELECT ST_RegionStats(land, block, $r, metadata{}).count FROM raster_pyramid"
    valid = (~np.isnan(mosaic(0))).sum()
    assert one(opened, query.format(""), r=WHOLE) == valid
    assert one(opened, query.format(", NULL, 'max'"), r=WHOLE) == valid
    # 64 tiles of zoom 5 lie on the whole, but few on what has data.
    assert one(opened, query.format(", NULL, 'auto'"), r=WHOLE) == 256
    part = shapely.box(0, 40, 22.5, 66).wkt
    assert one(opened, query.format(", NULL, 'auto'"), r=part) == valid
    assert one(opened, query.format(", NULL, 'min'"), r=WHOLE) == 256
    assert one(opened, query.format(", NULL, 0"), r=WHOLE) == 256
    assert one(opened, query.format(", 7"), r=WHOLE) == sum(
        (pixels()[tile][0] != 7).sum() for tile in TILES
    )
    with pytest.raises(InvalidInputError, match="resolution"):
        opened.sql(query.format(", NULL, 'best'"), r=WHOLE)
    nowhere = one(
        opened, query.format("").replace(".count", ""), r="POLYGON((80 0,81 0,81 1,80 0))"
    )
    assert nowhere["count"] == 0
    assert nowhere["mean"] is None


def test_region_statistics_of_no_rows(opened: raquet.RaquetConnection) -> None:
    query = "SELECT ST_RegionStats(land, block, $r, metadata).count FROM raster WHERE block = 5"
    assert one(opened, query, r=WHOLE) == 0


def test_names_that_need_quotes(tmp_path: Path) -> None:
    bands = (('height "above" sea', "uint8", 0), ("x", "float32", None))
    tile = {TILES[0]: [noise(1), noise(2, "float32")]}
    path = write(tmp_path / "q.parquet", tile, Plan(bands=bands))
    query = 'SELECT ST_RasterSummaryStats("height ""above"" sea", metadata).sum FROM raster'
    with raquet.connect(path) as opened:
        assert one(opened, query) == noise(1).sum()


def test_regions_of_a_table(opened: raquet.RaquetConnection) -> None:
    found = opened.sql(
        "SELECT name, ST_RegionStats(land, block, region, metadata).count AS n FROM raster,"
        f" (VALUES ('all', '{WHOLE}'), ('none', '{ELSEWHERE}')) z(name, region)"
        " GROUP BY name ORDER BY name"
    )
    assert found.to_pylist() == [{"name": "all", "n": 1020}, {"name": "none", "n": 0}]


def test_clips(opened: raquet.RaquetConnection) -> None:
    west, north = middle(2, 3)
    east, south = middle(6, 9)
    box = shapely.box(west, south, east, north).wkt
    values = mosaic(0)[3:9, 2:6]
    found = one(
        opened,
        f"SELECT ST_Clip(land, block, $g, metadata) FROM raster WHERE block = {cell(TILES[0])}",
        g=box,
    )
    assert found == values[~np.isnan(values)].tolist()
    masked = one(
        opened,
        "SELECT ST_ClipMask(land, block, $g, metadata, -1) FROM raster"
        f" WHERE block = {cell(TILES[0])}",
        g=box,
    )
    expected = np.full((16, 16), -1.0)
    expected[3:9, 2:6] = np.where(np.isnan(values), -1, values)
    assert masked == expected.ravel().tolist()
    fewer = one(
        opened,
        f"SELECT len(ST_Clip(land, block, $g, metadata, 9)) FROM raster"
        f" WHERE block = {cell(TILES[0])}",
        g=box,
    )
    assert fewer == (pixels()[TILES[0]][0][3:9, 2:6] != 9).sum()


def test_arithmetic(opened: raquet.RaquetConnection) -> None:
    one_band, other = (band.astype(float) for band in pixels()[TILES[0]])
    valid = (one_band != 0) & (other != -9)
    where = f"FROM raster WHERE block = {cell(TILES[0])}"
    found = one(opened, f"SELECT ST_NormalizedDifference(land, height, metadata) {where}")
    expected = ((one_band - other) / (one_band + other)).ravel()
    assert [value is None for value in found] == (~valid.ravel()).tolist()
    assert [v for v in found if v is not None] == pytest.approx(expected[valid.ravel()])
    stats = one(opened, f"SELECT ST_NormalizedDifferenceStats(land, height, metadata) {where}")
    assert stats["count"] == valid.sum()
    assert stats["mean"] == pytest.approx(expected[valid.ravel()].mean())
    more = one(
        opened, f"SELECT ST_NormalizedDifferenceStats(land, height, metadata, 3).count {where}"
    )
    assert more == ((one_band != 3) & (other != 3)).sum()
    for word, operation in (("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply)):
        found = one(opened, f"SELECT ST_BandMath(land, height, '{word}', metadata) {where}")
        kept = [value for value in found if value is not None]
        assert kept == pytest.approx(operation(one_band, other)[valid])
    found = one(opened, f"SELECT ST_BandMath(land, land, 'divide', metadata) {where}")
    assert {value for value in found if value is not None} == {1.0}
    with pytest.raises(InvalidInputError, match="operation"):
        opened.sql(f"SELECT ST_BandMath(land, land, 'power', metadata) {where}")


def test_pixels_and_documents(opened: raquet.RaquetConnection) -> None:
    where = f"FROM raster WHERE block = {cell(TILES[0])}"
    land = pixels()[TILES[0]][0]
    assert one(opened, f"SELECT raquet_pixel(land, metadata, 7, 9) {where}") == land[9, 7]
    assert one(opened, f"SELECT raquet_pixel(land, metadata, 0, 7, 9) {where}") == land[9, 7]
    assert (
        one(opened, f"SELECT raquet_decode_band(land, metadata) {where}") == land.ravel().tolist()
    )
    named = f"SELECT raquet_decode_band(b, metadata, 'land') FROM (SELECT *, land AS b {where})"
    assert one(opened, named) == land.ravel().tolist()
    with pytest.raises(InvalidInputError, match="no such pixel"):
        opened.sql(f"SELECT raquet_pixel(land, metadata, 16, 0) {where}")
    assert one(opened, "SELECT ST_Band(metadata, 'height') FROM metadata") == 1
    assert one(opened, "SELECT ST_Band(metadata, 'x') FROM metadata") is None
    document = one(opened, "SELECT raquet_parse_metadata(metadata) FROM metadata")
    assert (document["compression"], document["num_bands"]) == ("gzip", 2)


def test_interleaved_tiles(tmp_path: Path) -> None:
    tiles = {tile: [noise(1, "uint16"), noise(2, "uint16")] for tile in TILES}
    bands = (("red", "uint16", None), ("blue", "uint16", 7))
    path = write(tmp_path / "i.parquet", tiles, Plan(bands=bands, interleaved=True, nested=True))
    with raquet.connect(path) as opened:
        query = "SELECT raquet_pixel_interleaved(pixels, metadata, 1, 3, 2) FROM raster LIMIT 1"
        assert one(opened, query) == noise(2, "uint16")[2, 3]
        lon, lat = middle(3.5, 2.5)
        value = (
            "SELECT ST_RasterValue(block, pixels, ST_Point($lon, $lat), metadata, 'blue')"
            " FROM read_raquet_at('raster', $lon, $lat)"
        )
        assert one(opened, value, lon=lon, lat=lat) == noise(2, "uint16")[2, 3]
        found = one(
            opened, f"SELECT ST_RegionStats(pixels, block, '{WHOLE}', metadata) FROM raster"
        )
        assert found["count"] == 4 * 256
        both = (
            "SELECT ST_BandMath(pixels, pixels, 'add', metadata, 'red', 'blue') FROM raster LIMIT 1"
        )
        total = (noise(1, "uint16") + noise(2, "uint16")).ravel()
        valid = (noise(2, "uint16") != 7).ravel()
        found = one(opened, both)
        assert [v for v in found if v is not None] == total[valid].tolist()


def test_tiles_of_areas_and_places(opened: raquet.RaquetConnection) -> None:
    west, north = middle(2, 3)
    east, south = middle(20, 9)
    box = shapely.box(west, south, east, north).wkt
    found = opened.sql("SELECT block FROM read_raquet('raster', $g)", g=box)
    assert set(found.column(0).to_pylist()) == {cell((5, 16, 10)), cell((5, 17, 10))}
    assert one(opened, "SELECT block FROM read_raquet('raster', $g, 4)", g=box) == cell((4, 8, 5))
    assert one(opened, "SELECT block FROM ST_Raster('raster', $g, 2)", g=box) == cell((4, 8, 5))
    assert one(opened, "SELECT count(*) FROM read_raquet('raster')") == 5
    lon, lat = middle(1, 1)
    point = f"POINT({lon} {lat})"
    assert one(opened, "SELECT block FROM ST_RasterAt('raster', $p)", p=point) == cell((5, 16, 10))
    at = "SELECT block FROM read_raquet_at('raster', $lon, $lat, 4)"
    assert one(opened, at, lon=lon, lat=lat) == cell((4, 8, 5))
    assert one(opened, "SELECT count(*) FROM read_raquet_metadata('raster')") == 1
    box_test = "SELECT count(*) FROM raster WHERE ST_Intersects(block, $g)"
    assert one(opened, box_test, g=box) == 2
    whole = "SELECT count(*) FROM raster WHERE ST_Contains($g, block)"
    assert one(opened, whole, g="POLYGON((-1 -1, 91 -1, 91 67, -1 67, -1 -1))") == 4
    with pytest.raises(QueryError, match="other_pyramid does not exist"):
        opened.sql("SELECT * FROM read_raquet_at('other', 1.0, 1.0)")


def test_cells(opened: raquet.RaquetConnection) -> None:
    block = package.tile_to_cell((5, 3, 3))
    row = opened.sql(
        "SELECT quadbin_from_tile(5, 3, 3) a, quadbin_to_tile($c) b, quadbin_resolution($c) c,"
        " quadbin_from_lonlat(11.5, 48.1, 9) d, quadbin_to_lonlat($c) e, quadbin_to_bbox($c) f,"
        " quadbin_to_parent($c) g, quadbin_to_parent($c, 1) h, quadbin_to_children($c) i,"
        " quadbin_sibling($c) j, quadbin_kring($c, 1) k, quadbin_to_wkt($c) l,"
        " quadbin_to_geojson($c) m, quadbin_is_valid($c) n, quadbin_pixel_xy(45.1, 40.9, 3) o,"
        " quadbin_is_valid(5) p, quadbin_to_children($c, 5) q",
        c=block,
    ).to_pylist()[0]
    assert row["a"] == block
    assert row["b"] == {"x": 5, "y": 3, "z": 3}
    assert row["c"] == 3
    assert row["d"] == package.point_to_cell(11.5, 48.1, 9)
    assert tuple(row["e"].values()) == pytest.approx(package.cell_to_point(block))
    assert tuple(row["f"].values()) == pytest.approx(package.cell_to_bounding_box(block))
    assert row["g"] == package.cell_to_parent(block, 2)
    assert row["h"] == package.cell_to_parent(block, 1)
    assert row["i"] == sorted(package.cell_to_children(block, 4))
    assert sorted(row["j"]) == sorted(package.cell_to_children(package.cell_to_parent(block, 2), 3))
    assert row["k"] == sorted(package.k_ring(block, 1))
    assert shapely.from_wkt(row["l"]).bounds == pytest.approx(package.cell_to_bounding_box(block))
    assert shapely.equals(shapely.from_geojson(row["m"]), shapely.from_wkt(row["l"]))
    assert (row["n"], row["p"]) == (True, False)
    assert row["o"] == {"pixel_x": 0, "pixel_y": 0}
    assert len(row["q"]) == 16
    filled = one(opened, f"SELECT QUADBIN_POLYFILL('{WHOLE}', 4, 'contains')")
    assert filled == grid.geometry_cells(shapely.from_wkt(WHOLE), 4, "contains").tolist()
    assert one(opened, "SELECT quadbin_to_wkt(NULL)") is None
    assert one(opened, "SELECT ST_X(ST_Point(3, 4)) + ST_Y('POINT(3 4)'::GEOMETRY)") == 7
    box = one(opened, "SELECT ST_GeomFromQuadbin($c)", c=block)
    assert shapely.from_wkb(box).bounds == pytest.approx(package.cell_to_bounding_box(block))
    with pytest.raises(InvalidInputError, match="no such tile"):
        opened.sql("SELECT quadbin_from_tile(8, 0, 3)")
    with pytest.raises(InvalidInputError, match="no QUADBIN cell"):
        opened.sql("SELECT quadbin_to_tile(17)")
    with pytest.raises(InvalidInputError, match="mode"):
        opened.sql("SELECT QUADBIN_POLYFILL('POINT(1 1)', 3, 'most')")


def test_only_select(opened: raquet.RaquetConnection) -> None:
    for query in ("CREATE TABLE a (b INT)", "SELECT 1; SELECT 2", "FROM read_csv('/etc/passwd')"):
        with pytest.raises(QueryError):
            opened.sql(query)
    with pytest.raises(QueryError) as caught:
        opened.sql("SELECT * FROM level0")
    assert "raster, tiles, overviews, metadata" in str(caught.value.hint)
    with pytest.raises(LimitExceededError):
        opened.sql("SELECT * FROM tiles", max_rows=3)


def test_only_the_pages_of_a_tile_are_read(path: Path) -> None:
    with raquet.open(path) as file:
        store = file.store
        counting = CountingSource(store.sources[0])
        store.sources = (counting,)
        store._held = [None]
        with raquet.connect(file) as connection:
            assert counting.bytes == 0
            assert one(connection, "SELECT count(*) FROM raster") == 4
            assert counting.requests == 0
            size = one(
                connection,
                f"SELECT octet_length(land) FROM raster WHERE block = {cell(TILES[1])}",
            )
            assert (counting.requests, counting.round_trips) == (1, 1)
            assert size < counting.bytes < size + 100
        assert file.tile(*TILES[0]).shape == (2, 16, 16)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(dictionary=True, codec="snappy", pages=False, rows_in_group=2, metadata_at="last"),
        Plan(large=True, metadata_at="inside", rows_in_group=1),
    ],
)
def test_files_without_pages(tmp_path: Path, plan: Plan) -> None:
    plan.bands = PLAN.bands
    path = write(tmp_path / "other.parquet", pixels(), plan)
    with raquet.connect(path) as opened:
        rows = opened.sql(
            "SELECT block, raquet_decode_band(land, metadata) p FROM raster"
        ).to_pylist()
        assert len(rows) == 4
        tiles = {cell(tile): bands for tile, bands in pixels().items()}
        assert all(row["p"] == tiles[row["block"]][0].ravel().tolist() for row in rows)
        some = opened.sql(f"SELECT land FROM raster WHERE block = {cell(TILES[2])}")
        assert some.num_rows == 1
        null = opened.sql("SELECT block FROM raster WHERE height IS NULL")
        assert null.column(0).to_pylist() == [cell((5, 17, 11))]


def test_files_of_a_set_in_all_layouts(tmp_path: Path) -> None:
    """One scan goes through files with the same columns, others apart; rows are those of each."""
    plain: dict[str, Any] = {"bands": (("land", "uint8", 0),), "rows_in_group": 3}
    layouts: list[dict[str, Any]] = [
        {},
        {"dictionary": True, "codec": "snappy", "pages": False},
        {"block_type": pa.int64()},
        {"pages": False, "metadata_at": "last"},
        {"large": True},
        {},
    ]
    parts: list[Path] = []
    every: dict[int, bytes] = {}
    for number, layout in enumerate(layouts):
        tiles: dict[Any, Any] = {
            (4, x, number): [noise(100 * number + x)] for x in range(number + 3)
        }
        every |= {cell(tile): framed(stored(pixels)) for tile, (pixels,) in tiles.items()}
        parts.append(write(tmp_path / f"{number}.parquet", tiles, Plan(**plain, **layout)))
    with raquet.open(parts) as file:
        assert len(tile_scans(file.store, [])) == 2
    with raquet.connect(parts) as opened:
        found = opened.sql("SELECT block, land FROM raster").to_pylist()
        assert len(found) == len(every)
        assert {row["block"]: row["land"] for row in found} == every
        some = sorted(every)[::4]
        some_of = f"SELECT block, land FROM raster WHERE block IN ({', '.join(map(str, some))})"
        found = opened.sql(some_of).to_pylist()
        assert {row["block"]: row["land"] for row in found} == {one: every[one] for one in some}
        size = opened.sql("SELECT count(*) n FROM raster WHERE octet_length(land) > 0")
        assert size.column("n").to_pylist() == [len(every)]
        assert opened.sql("SELECT land FROM raster WHERE block = 7").num_rows == 0


def test_several_data_sets_and_parts(tmp_path: Path) -> None:
    every = pixels()
    first = {tile: bands for tile, bands in every.items() if tile[1] in (8, 16)}
    rest = {tile: bands for tile, bands in every.items() if tile[1] not in (8, 16)}
    whole = write(tmp_path / "whole.parquet", every, PLAN)
    zooms = {"minresolution": 4}
    one_part = write(tmp_path / "a.parquet", first, PLAN)
    other = write(tmp_path / "b.parquet", rest, Plan(bands=PLAN.bands, change=zooms))
    with raquet.connect({"whole": whole, "parts": [one_part, other]}) as opened:
        assert "parts_overviews" in opened.tables
        same = (
            "SELECT count(*) FROM whole JOIN parts USING (block)"
            " WHERE whole.land = parts.land AND whole.height IS NOT DISTINCT FROM parts.height"
        )
        assert one(opened, same) == 4
        assert one(opened, "SELECT count(*) FROM parts_pyramid") == 5
    with pytest.raises(InvalidMetadataError, match="do not belong"):
        raquet.connect([whole, write(tmp_path / "c.parquet", {(5, 1, 1): [noise(1)]})])
    for name in ("", "Raster", "a b", "tiles", "x;y"):
        with pytest.raises(InvalidInputError, match="name of a table"):
            raquet.connect({name: whole})
    with pytest.raises(InvalidInputError, match="no RaQuet file"):
        raquet.connect([])


def test_data_sets_may_have_names_that_sql_knows(path: Path) -> None:
    with raquet.connect({"order": path}) as opened:
        assert one(opened, 'SELECT count(*) FROM "order"') == 4
        assert one(opened, "SELECT count(*) FROM read_raquet('order')") == 5


def test_broken_tiles_are_told(tmp_path: Path) -> None:
    tiles = pixels()
    tiles[TILES[1]][0] = b"\x1f\x8b\x08\0rotten"
    path = write(tmp_path / "x.parquet", tiles, PLAN)
    with pytest.raises(InvalidMetadataError):
        raquet.sql(path, "SELECT ST_RasterSummaryStats(land, metadata) FROM raster")


def test_one_query(path: Path) -> None:
    query = "SELECT count(*) AS n FROM raster WHERE block > $least"
    assert raquet.sql(path, query, least=0).to_pylist() == [{"n": 4}]
    assert raquet.sql(path, query, {"least": 0}, isolated=True).to_pylist() == [{"n": 4}]
    with pytest.raises(QueryError):
        raquet.sql(path, "SELECT nothing")
    with pytest.raises(InvalidInputError, match="isolated"):
        raquet.sql([path], query, least=0, isolated=True)


@needs_shared
def test_files_of_other_writers() -> None:
    for name, more in (
        ("raquet-io/v0.1.0/s_rgba_u8", ", alpha := band_4"),
        ("carto/example_data_2025", ""),
        ("raquet-io/v0.9.0/ts_sst", ""),
    ):
        path = FIXTURES / f"{name}.parquet"
        with raquet.connect(path) as opened, raquet.open(path) as file:
            high = file.zooms[-1]
            steps = 1 if file.times is None else len(file.times)
            count = one(opened, "SELECT count(*) FROM raster")
            assert count == len(file.cells(high)) * steps
            rows = opened.sql(
                f"SELECT block, ST_RasterSummaryStats(band_1, metadata{more}).count n FROM raster"
            )
            assert rows.num_rows == count
            if file.times is None:
                valid = file.read(bands=[1], masked=True).data.count()
                assert sum(rows.column("n").to_pylist()) == valid
    with raquet.connect(FIXTURES / "raquet-io" / "v0.9.0" / "ts_sst.parquet") as opened:
        found = opened.sql("SELECT time_cf, block FROM raster WHERE time_cf > 50 ORDER BY 1")
        assert all(value > 50 for value in found.column(0).to_pylist())
        assert one(opened, "SELECT count(DISTINCT time_ts) FROM raster") == 4
