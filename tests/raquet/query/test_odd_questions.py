"""Questions at the edge: of no place, of no pixels, beyond 180 degrees, with large numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from comal import raquet
from comal.errors import InvalidInputError, InvalidMetadataError
from tests.raquet.build import Plan, noise, write

WORLD = shapely.box(-180, -86, 180, 86).wkt


@pytest.fixture
def path(tmp_path: Path) -> Path:
    plan = Plan(bands=(("a", "uint8", 0), ("b", "uint8", 0)))
    return write(tmp_path / "a.parquet", {(1, 0, 0): [noise(1), None], (1, 1, 0): [None] * 2}, plan)


@pytest.mark.parametrize(
    "call",
    [
        "ST_RasterValue(block, a, 'POINT EMPTY', metadata)",
        "ST_RasterValue(block, a, ST_Point('nan'::DOUBLE, 0), metadata)",
        "ST_RasterValue(block, a, ST_Point('inf'::DOUBLE, 0), metadata)",
        "ST_RasterValue(block, a, ST_Point(NULL, 0), metadata)",
        "ST_RasterValue(block, NULL::BLOB, ST_Point(-1, 1), metadata, 'a')",
        "ST_RasterValue(block, b, ST_Point(-1, 1), metadata)",
        "ST_RasterValue(block, a, ST_Point(-1, -1), metadata)",
        "ST_X('POINT EMPTY')",
        "ST_RasterSummaryStats(b, metadata)",
        "ST_NormalizedDifference(a, b, metadata)",
        "ST_Clip(b, block, NULL, metadata)",
    ],
)
def test_where_there_is_nothing_there_is_no_value(path: Path, call: str) -> None:
    found = raquet.sql(path, f"SELECT {call} AS v FROM raster").column("v").to_pylist()
    assert found == [None, None]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("raquet_pixel(a, metadata, 2, 3, 3)", "no such band"),
        ("ST_RasterSummaryStats(a, metadata, alpha := 5)", "alpha is no blob"),
        ("ST_RasterSummaryStats(a, metadata, 'five')", "nodata is no number"),
        ("ST_RegionStats(a, block, 'POLYGON((0 0,1 1,1 0,0 1,0 0))', metadata)", "no valid"),
        ("ST_RasterValue(7, a, ST_Point(1, 1), metadata)", "no QUADBIN cell"),
    ],
)
def test_what_cannot_be_says_so(path: Path, call: str, what: str) -> None:
    with pytest.raises(InvalidInputError, match=what):
        raquet.sql(path, f"SELECT {call} FROM raster WHERE a IS NOT NULL")


def test_blobs_that_are_none(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {(0, 0, 0): [b""]})
    for call in (
        "ST_RasterSummaryStats(band_1, metadata)",
        f"ST_RegionStats(band_1, block, '{WORLD}', metadata)",
    ):
        with pytest.raises(InvalidMetadataError):
            raquet.sql(path, f"SELECT {call} FROM raster")


def test_a_file_without_tiles(path: Path, tmp_path: Path) -> None:
    table = pq.read_table(path)
    empty = tmp_path / "empty.parquet"
    pq.write_table(table.filter(pa.compute.equal(table["block"], 0)), empty)
    with raquet.connect(empty) as connection:
        for view in ("raster", "tiles", "overviews"):
            assert connection.sql(f"SELECT * FROM {view}").num_rows == 0
        query = f"SELECT ST_RegionStats(a, block, '{WORLD}', metadata) AS s FROM raster"
        stats = connection.sql(query).column("s")[0].as_py()
        assert (stats["count"], stats["mean"]) == (0, None)
    assert raquet.statistics(empty).column("count").to_pylist() == [0, 0]
    assert raquet.zonal(empty, shapely.box(0, 0, 1, 1)).num_rows == 1
    # Beside a file that has some.
    query = "SELECT count(a) AS n FROM raster"
    assert raquet.sql([empty, path], query).column("n").to_pylist() == [1]


def test_integers_beyond_the_exact_ones_of_doubles(tmp_path: Path) -> None:
    least, most = -(2**63), 2**63 - 1
    pixels = noise(1, "int64") + 2**60
    pixels[0, :3] = least
    pixels[1, :5] = most
    pixels[2, :7] = most - 1
    path = write(tmp_path / "a.parquet", {(0, 0, 0): [pixels]}, Plan(bands=[("v", "int64", least)]))
    calls = (
        "ST_RasterSummaryStats(v, metadata{}).count",
        "len(ST_Clip(v, block, $w, metadata{}))",
        "ST_RegionStats(v, block, $w, metadata{}).count",
    )
    with raquet.connect(path) as connection:
        for nodata, count in (("", 253), (f", {most}", 251), (f", {most - 1}", 249)):
            for call in calls:
                query = f"SELECT {call.format(nodata)} n FROM raster, (SELECT $w)"
                assert connection.sql(query, w=WORLD).column("n").to_pylist() == [count]


def test_nan_is_never_a_value(tmp_path: Path) -> None:
    pixels = noise(2, "float32")
    pixels[:3] = np.nan
    for nodata in ("NaN", None, -9.0):
        path = tmp_path / f"{nodata}.parquet"
        write(path, {(0, 0, 0): [pixels]}, Plan(bands=[("v", "float32", nodata)]))
        query = (
            "SELECT ST_RasterSummaryStats(v, metadata).count AS a,"
            " ST_RasterSummaryStats(v, metadata, 'nan'::DOUBLE).count AS b,"
            " ST_NormalizedDifferenceStats(v, v, metadata).count AS c,"
            " len(ST_Clip(v, block, $w, metadata)) AS d, raquet_pixel(v, metadata, 0, 0) AS e"
            " FROM raster"
        )
        (row,) = raquet.sql(path, query, w=WORLD).to_pylist()
        assert row == {"a": 208, "b": 208, "c": 208, "d": 208, "e": None}


def test_regions_across_the_antimeridian(tmp_path: Path) -> None:
    tiles: dict[Any, Any] = {(3, x, 3): [noise(x)] for x in (0, 1, 6, 7)}
    tiles |= {(2, x, 1): [noise(10 + x)] for x in (0, 3)}
    path = write(tmp_path / "a.parquet", tiles)
    south, north = 2.0, 38.0
    parts = [shapely.box(150, south, 180, north), shapely.box(-180, south, -150, north)]
    count = "ST_RegionStats(band_1, block, $r, metadata).count"
    with raquet.connect(path) as connection:
        expected = (
            connection.sql(f"SELECT {count} AS n FROM raster", r=shapely.MultiPolygon(parts).wkt)
            .column("n")
            .to_pylist()
        )
        assert expected[0] > 0
        for region in (shapely.box(150, south, 210, north), shapely.box(-210, south, -150, north)):
            for table in (
                "raster",
                "raster WHERE ST_Intersects(block, $r)",
                "read_raquet('raster', $r)",
            ):
                found = connection.sql(f"SELECT {count} AS n FROM {table}", r=region.wkt)
                assert found.column("n").to_pylist() == expected
            # 60 degrees are few tiles: the finest zoom is the one that is meant.
            query = (
                "SELECT ST_RegionStats(band_1, block, $r, metadata, NULL, 'auto').count AS n"
                " FROM raster_pyramid"
            )
            found = connection.sql(query, r=region.wkt)
            assert found.column("n").to_pylist() == expected
        wide = shapely.box(130, -1, 230, 42).wkt
        query = "SELECT block FROM raster WHERE ST_Contains($r, block)"
        assert connection.sql(query, r=wide).num_rows == 2


@pytest.mark.parametrize(
    "named", [{"stats": ()}, {"zoom": "x"}, {"zoom": 1.5}, {"bands": [1]}, {"stats": "mean"}]
)
def test_arguments_of_statistics(path: Path, named: Any) -> None:
    with pytest.raises(InvalidInputError):
        raquet.statistics(path, **named)


@pytest.mark.parametrize(
    "named",
    [{"bbox": one} for one in ("abcd", 5, (0, 0, 1), (0, 0, None, 1))]
    + [{"bands": one} for one in (5.0, [0], [["a"]], [])],
)
def test_arguments_of_exports(path: Path, tmp_path: Path, named: Any) -> None:
    with pytest.raises(InvalidInputError):
        raquet.to_geotiff(path, tmp_path / "a.tif", **named)
    assert not (tmp_path / "a.tif").exists()
