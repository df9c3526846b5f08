"""Every function of SQL against numpy, shapely and the package quadbin, in files of all layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import quadbin as package  # type: ignore[import-untyped] # without stubs
import shapely

from comal import grid, raquet
from comal.errors import InvalidInputError, InvalidMetadataError, LimitExceededError, QueryError
from comal.raquet.querying.session import tile_scans
from comal.storage import CountingSource
from tests.raquet.build import Plan, cell, framed, noise, stored, write
from tests.raquet.query.areas import TILES, place_of
from tests.support import SHARED, needs_shared

FIXTURES = SHARED / "fixtures" / "raquet"
PLAN = Plan(bands=(("land", "uint8", 0), ("height", "float32", -9.0)))
WHOLE = "POLYGON((0 0, 90 0, 90 66, 0 66, 0 0))"
ELSEWHERE = "POLYGON((80 0, 81 0, 81 1, 80 0))"
WORLD = shapely.box(-180, -86, 180, 86).wkt


def pixels() -> dict[tuple[int, int, int], list[Any]]:
    """Two bands of two types; band 2 has another nodata value, and one tile of it is NULL."""
    found: dict[tuple[int, int, int], list[Any]] = {(4, 8, 5): [noise(90), noise(91, "float32")]}
    for number, tile in enumerate(TILES):
        one, other = noise(number), noise(number + 20, "float32")
        one[2, 3], other[4, 5] = 0, -9
        found[tile] = [one, other]
    found[5, 17, 11][1] = None
    return found


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("sql") / "two.parquet", pixels(), PLAN)


@pytest.fixture(scope="module")
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
    for tile in TILES:
        part = pixels()[tile][band]
        if part is not None:
            found[place_of(tile)] = without(part, (0, -9)[band])
    return found


def middle(column: float, row: float) -> tuple[float, float]:
    """Longitude and latitude of a place on the mosaic."""
    lon, lat = grid.xy_to_lonlat(16 + column / 16, 10 + row / 16, 5)
    return float(lon), float(lat)


def box(left: float, top: float, right: float, bottom: float) -> Any:
    (west, north), (east, south) = middle(left, top), middle(right, bottom)
    return shapely.box(west, south, east, north)


def agrees(found: Any, wanted: Any) -> bool:
    """Numbers, and structs and lists of them."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(agrees(found[k], wanted[k]) for k in wanted)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agrees, found, wanted))
    if wanted is None or found is None:
        return found is wanted
    return bool(found == pytest.approx(wanted))


# -- functions of a tile ---------------------------------------------------------------------------


def stats(values: Any) -> dict[str, Any]:
    values = values[~np.isnan(values)].astype(float)
    spread = values.std(ddof=1)
    return {
        "count": len(values), "sum": values.sum(), "mean": values.mean(), "min": values.min(),
        "max": values.max(), "stddev": spread, "stddev_pop": values.std(), "stddev_samp": spread,
    }  # fmt: skip


def listed(values: Any) -> list[float | None]:
    return [None if np.isnan(value) else value for value in values.ravel()]


def without(band: Any, nodata: float) -> Any:
    return np.where(band == nodata, np.nan, band.astype(float))


Oracle = Callable[[Any, Any], Any]
LAND: dict[str, Callable[[Any], Any]] = {
    "ST_RasterSummaryStats(land, metadata)": lambda a: stats(without(a, 0)),
    "ST_RasterSummaryStats(land, metadata, 5)": lambda a: stats(without(a, 5)),
    "raquet_pixel(land, metadata, 7, 9)": lambda a: a[9, 7],
    "raquet_pixel(land, metadata, 3, 2)": lambda a: None,
    "raquet_pixel(land, metadata, 0, 7, 9)": lambda a: a[9, 7],
    "raquet_decode_band(land, metadata)": lambda a: a.ravel().tolist(),
    "raquet_decode_band(b, metadata, 'land')": lambda a: a.ravel().tolist(),
    "ST_BandMath(land, land, 'divide', metadata)": lambda a: listed(without(a, 0) / without(a, 0)),
}
BOTH: dict[str, Oracle] = {
    "ST_RasterSummaryStats(height, metadata)": lambda a, b: stats(b),
    "ST_NormalizedDifference(land, height, metadata)": lambda a, b: listed((a - b) / (a + b)),
    "ST_NormalizedDifferenceStats(land, height, metadata)": lambda a, b: stats((a - b) / (a + b)),
    "ST_BandMath(land, height, 'add', metadata)": lambda a, b: listed(a + b),
    "ST_BandMath(land, height, 'subtract', metadata)": lambda a, b: listed(a - b),
    "ST_BandMath(land, height, 'multiply', metadata)": lambda a, b: listed(a * b),
}


def test_functions_of_a_tile(opened: raquet.RaquetConnection) -> None:
    calls = [*LAND, *BOTH]
    text = ", ".join(f"{call} AS c{n}" for n, call in enumerate(calls))
    rows = opened.sql(f"SELECT block, {text} FROM (SELECT *, land AS b FROM raster)").to_pylist()
    tiles = {cell(tile): bands for tile, bands in pixels().items()}
    assert len(rows) == len(TILES)
    wrong = []
    for row in rows:
        land, height = tiles[row["block"]]
        wanted = [oracle(land) for oracle in LAND.values()]
        for oracle in BOTH.values():
            has = height is not None
            wanted.append(oracle(without(land, 0), without(height, -9)) if has else None)
        found = [row[f"c{n}"] for n in range(len(calls))]
        wrong += [
            (call, value, right)
            for call, value, right in zip(calls, found, wanted, strict=True)
            if not agrees(value, right)
        ]
    assert wrong == []


def test_values_at_points(opened: raquet.RaquetConnection) -> None:
    places = [(0, 0), (31, 31), (3, 2), (5, 4), (17, 9), (16, 15), (1, 1)]
    points = [middle(column + 0.5, row + 0.5) for column, row in places]
    at = " FROM read_raquet_at('raster', $lon, $lat)"
    forms = ("ST_Point($lon, $lat)", "'POINT(' || $lon || ' ' || $lat || ')'")
    for band, name in enumerate(("land", "height")):
        for (column, row), (lon, lat) in zip(places, points, strict=True):
            wanted = mosaic(band)[row, column]
            for form in forms:
                query = f"SELECT ST_RasterValue(block, {name}, {form}, metadata)"
                assert agrees(one(opened, query + at, lon=lon, lat=lat), listed(wanted)[0])
    lon, lat = points[-1]
    query = "SELECT ST_RasterValue(block, b, $p, metadata, 'height') FROM"
    query += f" (SELECT block, height AS b, metadata{at})"
    found = one(opened, query, p=shapely.Point(lon, lat).wkb, lon=lon, lat=lat)
    assert agrees(found, mosaic(1)[1, 1])
    everywhere = "SELECT ST_RasterValue(block, land, $p::GEOMETRY, metadata) v FROM raster"
    values = opened.sql(everywhere, p=f"POINT({lon} {lat})").column(0).to_pylist()
    assert sorted(value is None for value in values) == [False, True, True, True]
    assert opened.sql("SELECT * FROM read_raquet_at('raster', -100.0, 10.0)").num_rows == 0


# -- regions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hole", [False, True])
def test_regions_and_clips(opened: raquet.RaquetConnection, hole: bool) -> None:
    region, inside = box(4, 4, 28, 28), np.zeros((32, 32), bool)
    inside[4:28, 4:28] = True
    if hole:
        region = region.difference(box(10, 10, 22, 22))
        inside[10:22, 10:22] = False
    for band, name in enumerate(("land", "height")):
        query = f"SELECT ST_RegionStats({name}, block, $r, metadata) FROM raster"
        assert agrees(one(opened, query, r=region.wkt), stats(mosaic(band)[inside]))
    query = (
        "SELECT block, ST_Clip(land, block, $r, metadata) a,"
        " ST_ClipMask(land, block, $r, metadata, -1) b,"
        " len(ST_Clip(land, block, $r, metadata, 9)) c FROM raster"
    )
    for found in opened.sql(query, r=region.wkt).to_pylist():
        z, x, y = (int(part) for part in grid.tiles(found["block"]))
        own, land = inside[place_of((z, x, y))], pixels()[z, x, y][0]
        assert found["a"] == land[own & (land != 0)].tolist()
        assert found["b"] == np.where(own & (land != 0), land.astype(float), -1).ravel().tolist()
        assert found["c"] == (land[own] != 9).sum()


def test_region_statistics_choose_a_zoom(opened: raquet.RaquetConnection) -> None:
    valid, coarse = (~np.isnan(mosaic(0))).sum(), 256
    other = sum((pixels()[tile][0] != 7).sum() for tile in TILES)
    part = shapely.box(0, 40, 22.5, 66).wkt
    # 64 tiles of zoom 5 lie on the whole, but few on the part, which has all that there is.
    for more, region, count in (
        ("", WHOLE, valid), (", NULL, 'max'", WHOLE, valid), (", NULL, 'auto'", WHOLE, coarse),
        (", NULL, 'auto'", part, valid), (", NULL, 'min'", WHOLE, coarse),
        (", NULL, 0", WHOLE, coarse), (", 7", WHOLE, other),
    ):  # fmt: skip
        query = f"SELECT ST_RegionStats(land, block, $r, metadata{more}).count FROM raster_pyramid"
        assert one(opened, query, r=region) == count, more
    query = "SELECT ST_RegionStats(land, block, $r, metadata) FROM raster"
    for condition, region in ((" WHERE block = 5", WHOLE), ("", ELSEWHERE)):
        found = one(opened, query + condition, r=region)
        assert (found["count"], found["mean"]) == (0, None)
    found = opened.sql(
        "SELECT name, ST_RegionStats(land, block, region, metadata).count AS n FROM raster,"
        f" (VALUES ('all', '{WHOLE}'), ('none', '{ELSEWHERE}')) z(name, region)"
        " GROUP BY name ORDER BY name"
    )
    assert found.to_pylist() == [{"name": "all", "n": 1020}, {"name": "none", "n": 0}]


def test_regions_across_the_antimeridian(tmp_path: Path) -> None:
    tiles: dict[Any, Any] = {(3, x, 3): [noise(x)] for x in (0, 1, 6, 7)}
    tiles |= {(2, x, 1): [noise(10 + x)] for x in (0, 3)}
    path = write(tmp_path / "a.parquet", tiles)
    south, north = 2.0, 38.0
    parts = [shapely.box(150, south, 180, north), shapely.box(-180, south, -150, north)]
    count = "SELECT ST_RegionStats(band_1, block, $r, metadata{}).count FROM {}"
    with raquet.connect(path) as connection:
        wanted = one(connection, count.format("", "raster"), r=shapely.MultiPolygon(parts).wkt)
        assert wanted > 0
        beyond = [shapely.box(150, south, 210, north), shapely.box(-210, south, -150, north)]
        counts = raquet.zonal(path, beyond, stats=["count"]).column("band_1_count")
        assert counts.to_pylist() == [wanted, wanted]
        for region in beyond:
            for more, table in (
                ("", "raster"),
                ("", "raster WHERE ST_Intersects(block, $r)"),
                ("", "read_raquet('raster', $r)"),
                # 60 degrees are few tiles: the finest zoom is the one that is meant.
                (", NULL, 'auto'", "raster_pyramid"),
            ):
                assert one(connection, count.format(more, table), r=region.wkt) == wanted
        query = "SELECT block FROM raster WHERE ST_Contains($r, block)"
        assert connection.sql(query, r=shapely.box(130, -1, 230, 42).wkt).num_rows == 2


# -- numbers at the edge ---------------------------------------------------------------------------


def test_integers_beyond_the_exact_ones_of_doubles(tmp_path: Path) -> None:
    least, most = -(2**63), 2**63 - 1
    values = noise(1, "int64") + 2**60
    values[0, :3], values[1, :5], values[2, :7] = least, most, most - 1
    path = write(tmp_path / "a.parquet", {(0, 0, 0): [values]}, Plan(bands=[("v", "int64", least)]))
    calls = (
        "ST_RasterSummaryStats(v, metadata{}).count",
        "len(ST_Clip(v, block, $w, metadata{}))",
        "ST_RegionStats(v, block, $w, metadata{}).count",
    )
    with raquet.connect(path) as connection:
        for nodata, count in (("", 253), (f", {most}", 251), (f", {most - 1}", 249)):
            for call in calls:
                query = f"SELECT {call.format(nodata)} n FROM raster, (SELECT $w)"
                assert one(connection, query, w=WORLD) == count


NOTHING = [
    "ST_RasterValue(block, land, 'POINT EMPTY', metadata)",
    "ST_RasterValue(block, land, ST_Point('nan'::DOUBLE, 0), metadata)",
    "ST_RasterValue(block, land, ST_Point('inf'::DOUBLE, 0), metadata)",
    "ST_RasterValue(block, land, ST_Point(NULL, 0), metadata)",
    "ST_RasterValue(block, NULL::BLOB, ST_Point(1, 41), metadata, 'land')",
    "ST_RasterValue(block, land, ST_Point(-1, -1), metadata)",
    "ST_X('POINT EMPTY')",
    "ST_RasterSummaryStats(NULL::BLOB, metadata)",
    "ST_NormalizedDifference(land, NULL::BLOB, metadata, name2 := 'height')",
    "ST_Clip(land, block, NULL, metadata)",
    "ST_Band(metadata, 'x')",
    "quadbin_to_wkt(NULL)",
]


def test_where_there_is_nothing_there_is_no_value(opened: raquet.RaquetConnection) -> None:
    text = ", ".join(f"{call} AS c{n}" for n, call in enumerate(NOTHING))
    for row in opened.sql(f"SELECT {text} FROM raster").to_pylist():
        assert [call for n, call in enumerate(NOTHING) if row[f"c{n}"] is not None] == []


FAULTS = {
    f"ST_RasterValue(block, land, '{WHOLE}', metadata)": "not a point",
    "ST_RasterValue(block, land, 'POINT(', metadata)": "not a geometry",
    "ST_RasterValue(block, land, 'POINT(1 1)', metadata, 'x')": "no such band",
    "ST_RasterValue(7, land, ST_Point(1, 1), metadata)": "not a QUADBIN cell",
    "ST_RasterSummaryStats(b, metadata)": "not clear which band",
    "ST_RasterSummaryStats(land, metadata, alpha := 5)": "alpha is not a blob",
    "ST_RasterSummaryStats(land, metadata, 'five')": "nodata is not a number",
    "ST_RegionStats(land, block, 'POLYGON((0 0,1 1,1 0,0 1,0 0))', metadata)": "not a valid",
    f"ST_RegionStats(land, block, '{WHOLE}', metadata, NULL, 'best')": "no such resolution",
    "ST_BandMath(land, land, 'power', metadata)": "no such operation",
    "raquet_pixel(land, metadata, 16, 0)": "no such pixel",
    "raquet_pixel(land, metadata, 2, 3, 3)": "no such band",
    "quadbin_from_tile(8, 0, 3)": "no such tile",
    "quadbin_to_tile(17)": "not a QUADBIN cell",
    "quadbin_pixel_xy(1.0, 1.0, 3, 0)": "block size out of range",
    "quadbin_pixel_xy(1.0, 1.0, 3, -5)": "block size out of range",
    "QUADBIN_POLYFILL('POINT(1 1)', 3, 'most')": "mode",
    "(SELECT block FROM read_raquet_at('other', 1.0, 1.0))": "other_pyramid does not exist",
    "nothing": "nothing",
}


@pytest.mark.parametrize("call", FAULTS)
def test_what_cannot_be_says_so(opened: raquet.RaquetConnection, call: str) -> None:
    with pytest.raises((InvalidInputError, QueryError), match=FAULTS[call]):
        opened.sql(f"SELECT {call} FROM (SELECT *, height AS b FROM raster)")


def test_results_and_tables_that_are_not_there(opened: raquet.RaquetConnection) -> None:
    with pytest.raises(QueryError) as caught:
        opened.sql("SELECT * FROM level0")
    assert "raster, tiles, overviews, metadata" in str(caught.value.hint)
    with pytest.raises(LimitExceededError):
        opened.sql("SELECT * FROM tiles", max_rows=3)


@pytest.mark.parametrize("blob", [b"", b"\x1f\x8b\x08\0rotten"])
def test_blobs_that_are_none(tmp_path: Path, blob: bytes) -> None:
    path = write(tmp_path / "a.parquet", {(0, 0, 0): [blob]})
    for call in (
        "ST_RasterSummaryStats(band_1, metadata)",
        f"ST_RegionStats(band_1, block, '{WORLD}', metadata)",
    ):
        with pytest.raises(InvalidMetadataError):
            raquet.sql(path, f"SELECT {call} FROM raster")


# -- cells and tables ------------------------------------------------------------------------------

CELL = package.tile_to_cell((5, 3, 3))
CELLS: dict[str, Any] = {
    "quadbin_from_tile(5, 3, 3)": CELL,
    "quadbin_to_tile($c)": {"x": 5, "y": 3, "z": 3},
    "quadbin_resolution($c)": 3,
    "quadbin_from_lonlat(11.5, 48.1, 9)": package.point_to_cell(11.5, 48.1, 9),
    "list_value(quadbin_to_lonlat($c).lon, quadbin_to_lonlat($c).lat)": list(
        package.cell_to_point(CELL)
    ),
    "struct_extract_at(quadbin_to_bbox($c), 4)": package.cell_to_bounding_box(CELL)[3],
    "quadbin_to_parent($c)": package.cell_to_parent(CELL, 2),
    "quadbin_to_parent($c, 1)": package.cell_to_parent(CELL, 1),
    "quadbin_to_children($c)": sorted(package.cell_to_children(CELL, 4)),
    "len(quadbin_to_children($c, 5))": 16,
    "list_sort(quadbin_sibling($c))": sorted(
        package.cell_to_children(package.cell_to_parent(CELL, 2), 3)
    ),
    "quadbin_kring($c, 1)": sorted(package.k_ring(CELL, 1)),
    "ST_XMax(quadbin_to_wkt($c))": package.cell_to_bounding_box(CELL)[2],
    "ST_YMin(ST_GeomFromGeoJSON(quadbin_to_geojson($c)))": package.cell_to_bounding_box(CELL)[1],
    "ST_YMax(ST_GeomFromQuadbin($c))": package.cell_to_bounding_box(CELL)[3],
    "quadbin_is_valid($c)": True,
    "quadbin_is_valid(5)": False,
    "quadbin_pixel_xy(45.1, 40.9, 3)": {"pixel_x": 0, "pixel_y": 0},
    f"QUADBIN_POLYFILL('{WHOLE}', 4, 'contains')": grid.geometry_cells(
        shapely.from_wkt(WHOLE), 4, "contains"
    ).tolist(),
    "ST_X(ST_Point(3, 4)) + ST_Y('POINT(3 4)'::GEOMETRY)": 7,
    "(SELECT ST_Band(metadata, 'height') FROM metadata)": 1,
    "(SELECT raquet_parse_metadata(metadata).num_bands FROM metadata)": 2,
    "(SELECT count(*) FROM raster)": 4,
    "(SELECT count(*) FROM overviews)": 1,
    "(SELECT count(*) FROM raster_pyramid)": 5,
    "(SELECT count(*) FROM read_raquet('raster'))": 5,
    "(SELECT count(*) FROM read_raquet_metadata('raster'))": 1,
    "(SELECT count(DISTINCT metadata) FROM raster)": 1,
    "(SELECT list_sort(list(block)) FROM read_raquet('raster', $g))": sorted(
        cell(tile) for tile in ((5, 16, 10), (5, 17, 10))
    ),
    "(SELECT block FROM read_raquet('raster', $g, 4))": cell((4, 8, 5)),
    "(SELECT block FROM ST_Raster('raster', $g, 2))": cell((4, 8, 5)),
    "(SELECT block FROM ST_RasterAt('raster', ST_Point($x, $y)))": cell((5, 16, 10)),
    "(SELECT block FROM read_raquet_at('raster', $x, $y, 4))": cell((4, 8, 5)),
    "(SELECT count(*) FROM raster WHERE ST_Intersects(block, $g))": 2,
    "(SELECT count(*) FROM raster WHERE ST_Contains(ST_MakeEnvelope(-1, -1, 91, 67), block))": 4,
}


def test_cells_and_tables(opened: raquet.RaquetConnection) -> None:
    lon, lat = middle(1, 1)
    text = ", ".join(f"{call} AS c{n}" for n, call in enumerate(CELLS))
    query = f"SELECT {text} FROM (SELECT $c AS c, $g AS g, $x AS x, $y AS y)"
    (row,) = opened.sql(query, c=CELL, g=box(2, 3, 20, 9).wkt, x=lon, y=lat).to_pylist()
    found = list(row.values())
    assert [
        (call, value)
        for (call, wanted), value in zip(CELLS.items(), found, strict=True)
        if not agrees(value, wanted)
    ] == []


def test_tables_and_their_columns(opened: raquet.RaquetConnection) -> None:
    assert opened.tables == ("raster", "tiles", "overviews", "metadata")
    index = opened.sql("SELECT * FROM tiles ORDER BY block").to_pylist()
    assert [(row["z"], row["x"], row["y"]) for row in index] == sorted(TILES, key=cell)
    assert index[0]["west"] == pytest.approx(0)
    row = opened.sql("SELECT * FROM metadata").to_pylist()[0]
    assert (row["min_zoom"], row["max_zoom"], row["bands"]) == (4, 5, ["land", "height"])
    assert opened.metadata["raster"].max_zoom == 5


# -- layouts and sets ------------------------------------------------------------------------------


def test_names_that_need_quotes(path: Path, tmp_path: Path) -> None:
    bands = (('height "above" sea', "uint8", 0), ("x", "float32", None))
    quoted = write(
        tmp_path / "q.parquet", {TILES[0]: [noise(1), noise(2, "float32")]}, Plan(bands=bands)
    )
    query = 'SELECT ST_RasterSummaryStats("height ""above"" sea", metadata).sum FROM "order"'
    with raquet.connect({"order": quoted}) as opened:
        assert one(opened, query) == noise(1).sum()
        assert one(opened, "SELECT count(*) FROM read_raquet('order')") == 1


def test_a_column_that_sql_has_no_type_for_is_told(path: Path, tmp_path: Path) -> None:
    table = pq.read_table(path)
    half = pa.nulls(len(table), pa.float16())
    pq.write_table(table.append_column("half", half), tmp_path / "half.parquet")
    with pytest.raises(QueryError, match="'half': halffloat"):
        raquet.sql(tmp_path / "half.parquet", "SELECT block FROM raster")


def test_interleaved_tiles(tmp_path: Path) -> None:
    red, blue = noise(1, "uint16"), noise(2, "uint16")
    bands = (("red", "uint16", None), ("blue", "uint16", 7))
    plan = Plan(bands=bands, interleaved=True, nested=True)
    path = write(tmp_path / "i.parquet", {tile: [red, blue] for tile in TILES}, plan)
    lon, lat = middle(3.5, 2.5)
    calls = {
        "raquet_pixel_interleaved(pixels, metadata, 1, 3, 2)": blue[2, 3],
        "ST_RasterValue(block, pixels, ST_Point($x, $y), metadata, 'blue')": blue[2, 3],
        "ST_RasterSummaryStats(pixels, metadata).count": 256,
        "ST_BandMath(pixels, pixels, 'add', metadata, 'red', 'blue')": listed(
            red + without(blue, 7)
        ),
    }
    with raquet.connect(path) as opened:
        for call, wanted in calls.items():
            query = f"SELECT {call} FROM read_raquet_at('raster', $x, $y)"
            assert agrees(one(opened, query, x=lon, y=lat), wanted), call


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
            query = f"SELECT octet_length(land) FROM raster WHERE block = {cell(TILES[1])}"
            size = one(connection, query)
            assert (counting.requests, counting.round_trips) == (1, 1)
            assert size < counting.bytes < size + 100
        assert file.tile(*TILES[0]).shape == (2, 16, 16)


LAYOUTS: list[dict[str, Any]] = [
    {},
    {"dictionary": True, "codec": "snappy", "pages": False, "rows_in_group": 2},
    {"block_type": pa.int64()},
    {"pages": False, "metadata_at": "last"},
    {"large": True, "metadata_at": "inside", "rows_in_group": 1},
    {},
]


def test_files_of_a_set_in_all_layouts(tmp_path: Path) -> None:
    """One scan goes through files with the same columns, others apart; rows are those of each."""
    parts: list[Path] = []
    every: dict[int, bytes | None] = {}
    for number, layout in enumerate(LAYOUTS):
        tiles: dict[Any, Any] = {
            (4, x, number): [noise(100 * number + x), None if x == 1 else noise(x)]
            for x in range(number + 3)
        }
        every |= {cell(tile): framed(stored(bands[0])) for tile, bands in tiles.items()}
        plan = Plan(bands=(("land", "uint8", 0), ("more", "uint8", 0)), **layout)
        parts.append(write(tmp_path / f"{number}.parquet", tiles, plan))
    with raquet.open(parts) as file:
        assert len(tile_scans(file.store, [])) == 2
    with raquet.connect(parts) as opened:
        some = sorted(every)[::4]
        for condition, wanted in (
            ("true", every.keys()),
            (f"block IN ({', '.join(map(str, some))})", some),
            ("octet_length(land) > 0", every.keys()),
            ("more IS NULL", [cell((4, 1, number)) for number in range(len(LAYOUTS))]),
            ("block = 7", []),
        ):
            found = opened.sql(f"SELECT block, land FROM raster WHERE {condition}").to_pylist()
            assert {row["block"]: row["land"] for row in found} == {at: every[at] for at in wanted}
            assert len(found) == len(wanted)


def test_several_data_sets_and_parts(path: Path, tmp_path: Path) -> None:
    parts = []
    for name, columns in (("a", (8, 16)), ("b", (17,))):
        tiles = {tile: bands for tile, bands in pixels().items() if tile[1] in columns}
        plan = Plan(bands=PLAN.bands, change={"minresolution": 4})
        parts.append(write(tmp_path / f"{name}.parquet", tiles, plan))
    with raquet.connect({"whole": path, "parts": parts}) as opened:
        assert "parts_overviews" in opened.tables
        same = (
            "SELECT count(*) FROM whole JOIN parts USING (block)"
            " WHERE whole.land = parts.land AND whole.height IS NOT DISTINCT FROM parts.height"
        )
        assert one(opened, same) == 4
        assert one(opened, "SELECT count(*) FROM parts_pyramid") == 5
    with pytest.raises(InvalidMetadataError, match="do not belong"):
        raquet.connect([path, write(tmp_path / "c.parquet", {(5, 1, 1): [noise(1)]})])
    for name in ("", "Raster", "a b", "tiles", "x;y"):
        with pytest.raises(InvalidInputError, match="name of a table"):
            raquet.connect({name: path})
    with pytest.raises(InvalidInputError, match="not a RaQuet file"):
        raquet.connect([])


def test_a_region_of_more_cells_than_a_list_holds(tmp_path: Path) -> None:
    """Of a world of 2**40 cells; a region cuts its tiles as a list of cells would."""
    tiles: dict[Any, Any] = {(20, 524_288 + n, 400_000): [noise(n)] for n in range(6)}
    path = write(tmp_path / "fine.parquet", tiles)
    cells = grid.cells(20, np.arange(524_288, 524_294), 400_000)
    west, south, east, north = (float(side) for side in grid.bounds(cells[2]))
    part = shapely.box(west + 1e-6, south + 1e-6, east + 1.5 * (east - west), north - 1e-6)
    count = "SELECT count(*) FROM read_raquet('raster', $g)"
    with raquet.connect(path) as opened:
        assert one(opened, count, g=WORLD) == 6
        assert one(opened, count, g=part.wkt) == len(grid.geometry_cells(part, 20)) == 3
        assert one(opened, count, g="POLYGON EMPTY") == 0
        assert one(opened, count, g=ELSEWHERE) == 0
    with raquet.open(path) as file:
        counting = CountingSource(file.store.sources[0])
        file.store.sources, file.store._held = (counting,), [None]
        with raquet.connect(file) as opened:
            query = "SELECT sum(octet_length(band_1)) FROM read_raquet('raster', $g)"
            assert one(opened, query, g=part.wkt) > 0
        assert counting.bytes < 3 * 400  # of the three tiles alone


def test_a_file_without_tiles(path: Path, tmp_path: Path) -> None:
    table = pq.read_table(path)
    empty = tmp_path / "empty.parquet"
    pq.write_table(table.filter(pa.compute.equal(table["block"], 0)), empty)
    with raquet.connect(empty) as connection:
        for view in ("raster", "tiles", "overviews"):
            assert connection.sql(f"SELECT * FROM {view}").num_rows == 0
        query = f"SELECT ST_RegionStats(land, block, '{WORLD}', metadata).count FROM raster"
        assert one(connection, query) == 0
    assert raquet.statistics(empty).column("count").to_pylist() == [0, 0]
    assert raquet.zonal(empty, shapely.box(0, 0, 1, 1)).num_rows == 1
    # Beside a file that has some.
    query = "SELECT count(land) AS n FROM raster"
    assert raquet.sql([empty, path], query).column("n").to_pylist() == [4]


def test_one_query(path: Path) -> None:
    query = "SELECT count(*) AS n FROM raster WHERE block > $least"
    assert raquet.sql(path, query, least=0).to_pylist() == [{"n": 4}]
    assert raquet.sql(path, query, {"least": 0}, isolated=True).to_pylist() == [{"n": 4}]
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
