"""What an alpha band hides has no value for functions of SQL, as for rasterio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp

from comal import grid, raquet
from comal.errors import InvalidInputError
from tests.raquet.build import noise
from tests.raquet.writing.sources import on_grid

COLUMN, ROW = 32 * 500 + 5, 32 * 300 + 3
COLOURS = ("red", "green", "blue", "alpha")
# GDAL takes an alpha band for a mask where it is the second of two, or the fourth of four.
OPTIONS: dict[str, dict[str, Any]] = {
    "0.1.0": {},
    "0.5.0": {"spec_version": "0.5.0", "tile_statistics": True},
    "interleaved": {"spec_version": "0.5.0", "layout": "interleaved"},
}


def source(path: Path, kind: str = "alpha") -> Path:
    """Three bands of 45 x 70 pixels, of which a mask hides some."""
    shown = np.full((45, 70), 255, "uint8")
    shown[10:20, 5:40] = 0
    shown[30, 50] = 1
    pixels = noise(1, shape=(3, 45, 70))
    if kind == "alpha":
        pixels = np.concatenate([pixels, shown[None]])
    on_grid(path, pixels, column=COLUMN, row=ROW)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as dataset:
        if kind == "alpha":
            dataset.colorinterp = [ColorInterp[name] for name in COLOURS]
        else:
            dataset.write_mask(shown)
    return path


def made(tmp_path: Path, options: str = "0.1.0", kind: str = "alpha", **named: Any) -> Path:
    """`source` as RaQuet, with the last band called ``alpha``."""
    path = tmp_path / "a.parquet"
    bands = {"red": 1, "nir": 2, "blue": 3, **({"alpha": 4} if kind == "alpha" else {})}
    named = {"zoom": 10, "min_zoom": 10, "block_size": 32, "bands": bands, **named}
    raquet.write(source(tmp_path / "a.tif", kind), path, **OPTIONS[options], **named)
    return path


def wanted(tmp_path: Path) -> Any:
    """The bands as rasterio masks them."""
    with rasterio.open(tmp_path / "a.tif") as dataset:
        return dataset.read(masked=True)[:3]


def place(column: float, row: float) -> tuple[float, float]:
    """Longitude and latitude of a pixel of the source."""
    x, y = (COLUMN + column) / 32, (ROW + row) / 32
    lon, lat = grid.xy_to_lonlat(x, y, 10)
    return float(lon), float(lat)


def box(left: float, top: float, right: float, bottom: float) -> str:
    (west, north), (east, south) = place(left, top), place(right, bottom)
    corners = ((west, south), (east, south), (east, north), (west, north), (west, south))
    return "POLYGON((" + ", ".join(f"{x!r} {y!r}" for x, y in corners) + "))"


def column_of(options: str, name: str) -> str:
    return "pixels" if options == "interleaved" else name


@pytest.mark.parametrize(
    ("options", "kind"), [("0.1.0", "alpha"), ("0.5.0", "mask"), ("interleaved", "alpha")]
)
def test_functions_that_are_told_the_block(tmp_path: Path, options: str, kind: str) -> None:
    path = made(tmp_path, options, kind)
    pixels = wanted(tmp_path)
    column = column_of(options, "nir")
    with raquet.connect(path) as connection:
        for x, y in ((4, 12), (5, 10), (39, 19), (40, 19), (50, 30), (69, 44)):
            lon, lat = place(x + 0.5, y + 0.5)
            query = f"SELECT ST_RasterValue(block, {column}, ST_Point($x, $y), metadata, 'nir') v"
            row = connection.sql(query + " FROM read_raquet_at('raster', $x, $y)", x=lon, y=lat)
            expected = pixels[1, y, x]
            assert row.column("v").to_pylist() == [None if expected is np.ma.masked else expected]
        area, inside = box(2, 3, 45, 33), pixels[1, 3:33, 2:45].compressed().astype(float)
        stats = f"ST_RegionStats({column}, block, $area, metadata, NULL, NULL, 'nir')"
        found = connection.sql(f"SELECT {stats} AS s FROM raster", area=area)
        found = found.column("s")[0].as_py()
        assert (found["count"], found["sum"]) == (len(inside), inside.sum())
        assert (found["min"], found["max"]) == (inside.min(), inside.max())
        assert found["stddev_pop"] == pytest.approx(inside.std())
        if options == "interleaved":
            return
        clips = connection.sql(
            "SELECT ST_Clip(nir, block, $area, metadata) c FROM raster", area=area
        )
        values = sorted(value for one in clips.column("c").to_pylist() for value in one)
        assert values == sorted(inside.tolist())
        fills = "SELECT ST_ClipMask(nir, block, $area, metadata, -1) c FROM raster"
        flat = connection.sql(fills, area=area).column("c").to_pylist()
        assert sorted(value for one in flat for value in one if value != -1) == values
        # The band that hides is there as a whole.
        query = "SELECT ST_RegionStats(alpha, block, $area, metadata).count FROM raster"
        assert connection.sql(query, area=area).column(0).to_pylist() == [30 * 43]


def test_functions_that_are_not_told_the_block(tmp_path: Path) -> None:
    path = made(tmp_path)
    red, nir, _ = wanted(tmp_path).astype(float)
    with raquet.connect(path) as connection:
        query = "SELECT ST_RasterSummaryStats(nir, metadata, alpha := alpha) AS s FROM raster"
        rows = connection.sql(query).column("s").to_pylist()
        assert sum(row["count"] for row in rows) == nir.count()
        assert sum(row["sum"] or 0 for row in rows) == nir.sum()
        query = "SELECT ST_NormalizedDifference(nir, red, metadata, alpha := alpha) d FROM raster"
        found = [one for row in connection.sql(query).column("d").to_pylist() for one in row]
        expected = ((nir - red) / (nir + red)).compressed()
        np.testing.assert_allclose(
            np.sort([one for one in found if one is not None]), np.sort(expected)
        )
        stats = "ST_NormalizedDifferenceStats(nir, red, metadata, alpha := alpha)"
        rows = connection.sql(f"SELECT {stats} AS s FROM raster").column("s").to_pylist()
        assert sum(row["count"] for row in rows) == len(expected)
        query = "SELECT ST_BandMath(nir, red, 'subtract', metadata, alpha := alpha) d FROM raster"
        found = [one for row in connection.sql(query).column("d").to_pylist() for one in row]
        found = sorted(one for one in found if one is not None)
        assert found == sorted((nir - red).compressed().tolist())
        for call in (
            "ST_RasterSummaryStats(nir, metadata)",
            "ST_NormalizedDifference(nir, red, metadata)",
            "ST_NormalizedDifferenceStats(nir, red, metadata)",
            "ST_BandMath(nir, red, 'add', metadata)",
        ):
            with pytest.raises(InvalidInputError, match="hides") as caught:
                connection.sql(f"SELECT {call} FROM raster")
            assert "alpha := alpha" in (caught.value.hint or "")
        # What the blob itself holds, and the band that hides.
        assert connection.sql("SELECT ST_RasterSummaryStats(alpha, metadata) FROM raster")
        assert connection.sql("SELECT raquet_decode_band(nir, metadata) FROM raster")


def test_a_null_alpha_tile_hides_all_and_a_column_that_is_passed_counts(tmp_path: Path) -> None:
    path = made(tmp_path)
    with raquet.connect(path) as connection:
        query = (
            "SELECT ST_RasterSummaryStats(nir, metadata, alpha := NULL::BLOB).count AS own,"
            " ST_RegionStats(nir, block, $area, metadata, alpha := NULL::BLOB).count AS region,"
            " ST_RegionStats(nir, block, $area, metadata, alpha := nir).count AS other"
            " FROM raster GROUP BY ALL"
        )
        rows = connection.sql(query, area=box(0, 0, 70, 45)).to_pylist()
        assert {row["own"] for row in rows} == {0}
        assert {row["region"] for row in rows} == {0}
        # All pixels of `nir` are above 0 where the source has any.
        assert sum(row["other"] for row in rows) == 45 * 70


def test_parts_joins_and_foreign_documents(tmp_path: Path) -> None:
    path = made(tmp_path)
    raquet.partition(path, tmp_path / "parts", zoom=10)
    count = wanted(tmp_path)[1].count()
    stats = "ST_RegionStats({0}.nir, block, $area, {0}.metadata).count"
    everything = box(0, 0, 70, 45)
    with raquet.connect({"one": path, "parts": tmp_path / "parts"}) as connection:
        query = f"SELECT {stats.format('one')} a, {stats.format('parts')} b"
        found = connection.sql(f"{query} FROM one JOIN parts USING (block)", area=everything)
        assert found.to_pylist() == [{"a": count, "b": count}]
        query = (
            "SELECT ST_RegionStats(nir, block, $area, replace(metadata, 'comal', 'other')) FROM one"
        )
        with pytest.raises(InvalidInputError, match="hides"):
            connection.sql(query, area=everything)


def test_a_time_series_needs_the_column(tmp_path: Path) -> None:
    first = source(tmp_path / "a.tif")
    second = on_grid(tmp_path / "b.tif", noise(2, shape=(4, 45, 70)), column=COLUMN, row=ROW)
    with rasterio.open(second, "r+") as dataset:
        dataset.colorinterp = [ColorInterp[one] for one in COLOURS]
    bands = {"red": 1, "nir": 2, "blue": 3, "alpha": 4}
    path = tmp_path / "t.parquet"
    raquet.write(
        [first, second],
        path,
        time=["2025-01-01", "2025-02-01"],
        bands=bands,
        zoom=10,
        min_zoom=10,
        block_size=32,
    )
    stats = "SELECT time_cf, ST_RegionStats(nir, block, $area, metadata{}).count AS n FROM raster"
    stats += " GROUP BY time_cf ORDER BY time_cf"
    area = box(0, 0, 70, 45)
    with raquet.connect(path) as connection:
        found = connection.sql(stats.format(", alpha := alpha"), area=area)
        assert found.column("n").to_pylist() == [wanted(tmp_path)[1].count(), 45 * 70]
        with pytest.raises(InvalidInputError, match="hides"):
            connection.sql(stats.format(""), area=area)
