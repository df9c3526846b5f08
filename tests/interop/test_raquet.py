"""RaQuet to and fro: our files in the reference package and in table engines, theirs here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
import rasterio

from comal import raquet
from comal.grid import quadbin
from tests.interop.environments import drive
from tests.raquet.writing.sources import assembled, noise, on_grid, utm

pytestmark = pytest.mark.interop

PEER = "raquet-0.9.0"
Array = Any


@dataclass(frozen=True)
class Case:
    """A raster, and how it is written."""

    pixels: Array
    options: dict[str, Any] = field(default_factory=dict)
    raster: dict[str, Any] = field(default_factory=dict)
    warped: bool = False


def masked(pixels: Array, nodata: float) -> Array:
    """The same with a corner that has no data."""
    pixels = pixels.copy()
    pixels[..., :70, :90] = nodata
    return pixels


RGB = {n: (n, 255 - n, n // 2, 255) for n in range(1, 256)}
CASES = {
    "uint8": Case(noise((1, 150, 170), "uint8")),
    "three bands": Case(noise((3, 150, 170), "uint8")),
    "int16 with nodata": Case(
        masked(noise((1, 150, 170), "int16"), -32768), raster={"nodata": -32768}
    ),
    "uint16, blocks of 128": Case(noise((2, 300, 170), "uint16"), {"block_size": 128}),
    "int32, blocks of 16": Case(noise((1, 60, 70), "int32"), {"block_size": 16}),
    "uint32": Case(noise((1, 150, 170), "uint32")),
    "float32 with nodata": Case(
        masked(noise((1, 150, 170), "float32"), -9999), raster={"nodata": -9999}
    ),
    "float64": Case(noise((1, 150, 170), "float64")),
    "palette": Case(masked(noise((1, 150, 170), "uint8"), 0), raster={"nodata": 0, "colours": RGB}),
    "not compressed": Case(noise((1, 150, 170), "uint8"), {"compression": None}),
    "without overviews": Case(noise((1, 150, 170), "uint8"), {"min_zoom": 10}),
    "wide rows": Case(noise((1, 150, 170), "uint8"), {"block_dtype": "int64"}),
    "warped": Case(noise((1, 150, 170), "uint8"), warped=True),
}
WRITTEN = [(name, "0.5.0") for name in CASES] + [(name, "0.1.0") for name in list(CASES)[1::3]]
"""Cases and versions: what is in the tiles does not depend on the version."""


@dataclass
class Ours:
    """What we wrote, and what the reference package says of it."""

    folder: Path
    answers: dict[tuple[str, str, str], Any] = field(default_factory=dict)

    def path(self, name: str, version: str) -> Path:
        """Our file."""
        return self.folder / f"{list(CASES).index(name)}-{version}.parquet"

    def export(self, name: str, version: str) -> Path:
        """Their GeoTIFF of it."""
        return self.path(name, version).with_suffix(".tif")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    folder = tmp_path_factory.mktemp("ours")
    found = Ours(folder)
    jobs, keys = [], []
    for number, (name, version) in enumerate(WRITTEN):
        case = CASES[name]
        make = utm if case.warped else on_grid
        source = make(folder / f"source{number}.tif", case.pixels, **case.raster)
        path = found.path(name, version)
        raquet.write(source, path, spec_version=version, **{"block_size": 32, **case.options})
        jobs.append({"do": "export", "from": str(path), "to": str(found.export(name, version))})
        keys.append((name, version, "export"))
        if version == "0.5.0":
            jobs.append({"do": "validate", "from": str(path)})
            keys.append((name, version, "validate"))
    answers = drive(PEER, "raquet_io.py", tmp_path_factory.mktemp("home"), jobs)
    found.answers = dict(zip(keys, answers, strict=True))
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_reference_validates_our_files(ours: Ours, name: str) -> None:
    answer = ours.answers[name, "0.5.0", "validate"]
    assert answer == {"valid": True, "errors": [], "warnings": []}


@pytest.mark.parametrize(("name", "version"), WRITTEN)
def test_the_reference_exports_our_pixels(ours: Ours, name: str, version: str) -> None:
    case = CASES[name]
    nodata = case.raster.get("nodata")
    expected, left, top = assembled(ours.path(name, version), fill=nodata or 0)
    with rasterio.open(ours.export(name, version)) as raster:
        pixels = raster.read()
        assert raster.crs.to_epsg() == 3857
        size = raster.transform.a
        assert raster.transform.e == pytest.approx(-size)
        place = [round((raster.transform.c + 20037508.342789244) / size),
                 round((20037508.342789244 - raster.transform.f) / size)]  # fmt: skip
        if nodata is not None:
            assert raster.nodata == nodata
        if "colours" in case.raster:
            assert raster.colormap(1)[7] == RGB[7]
    assert place == [left, top]
    assert pixels.dtype == expected.dtype
    np.testing.assert_array_equal(pixels, expected)
    if not case.warped:
        # The source is on the grid: its pixels are there as they were.
        column, row = 16_380 - left, 10_300 - top
        height, width = case.pixels.shape[1:]
        # An alpha band is added where a value for padding is not free.
        found = pixels[: len(case.pixels), row : row + height, column : column + width]
        assert np.array_equal(found, case.pixels)


THEIRS = {
    "uint8": (Case(noise((1, 150, 210), "uint8")), {}),
    "three bands": (Case(noise((3, 150, 210), "uint8")), {}),
    "int16 with nodata": (
        Case(masked(noise((1, 150, 210), "int16"), -32768), raster={"nodata": -32768}),
        {},
    ),
    "uint16": (Case(noise((2, 150, 210), "uint16")), {}),
    "float32": (Case(masked(noise((1, 150, 210), "float32"), -1), raster={"nodata": -1}), {}),
    "float64": (Case(noise((1, 150, 210), "float64")), {}),
    "palette": (
        Case(masked(noise((1, 150, 210), "uint8"), 0), raster={"nodata": 0, "colours": RGB}),
        {},
    ),
    "tile statistics": (Case(noise((1, 150, 210), "uint8")), {"tile_stats": True}),
    "streaming": (Case(noise((1, 150, 210), "uint8")), {"streaming": True}),
    "interleaved": (Case(noise((3, 150, 210), "uint8")), {"band_layout": "interleaved"}),
    "bytes that take turns": (Case(noise((3, 150, 210), "uint16")), {"band_layout": "interleaved"}),
    "small row groups": (Case(noise((1, 150, 210), "uint8")), {"row_group_size": 3}),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("theirs")
    jobs, found = [], {}
    for number, (name, (case, more)) in enumerate(THEIRS.items()):
        source = on_grid(folder / f"source{number}.tif", case.pixels, **case.raster)
        found[name] = folder / f"{number}.parquet"
        options = {"block_zoom": 6, "more": more}
        jobs.append(
            {"do": "convert", "from": str(source), "to": str(found[name]), "options": options}
        )
    drive(PEER, "raquet_io.py", tmp_path_factory.mktemp("home"), jobs)
    return found


@pytest.mark.parametrize("name", THEIRS)
def test_their_files_here(theirs: dict[str, Path], name: str, tmp_path: Path) -> None:
    case, _ = THEIRS[name]
    turns = name == "bytes that take turns"
    with raquet.open(theirs[name], byte_interleaved=turns) as raster:
        metadata = raster.metadata
        assert (metadata.block_width, metadata.max_zoom) == (64, 9)
        assert [band.dtype for band in metadata.bands] == [str(case.pixels.dtype)] * len(
            case.pixels
        )
        nodata = case.raster.get("nodata")
        assert all(band.nodata == nodata for band in metadata.bands)
        if "colours" in case.raster:
            assert metadata.bands[0].colortable is not None
            assert metadata.bands[0].colortable[7] == RGB[7]
        z, x, y = quadbin.tiles(raster.cells(9))
        assert set(z.tolist()) == {9}
        fill = 0 if nodata is None else nodata
        tiles = list(zip(x.tolist(), y.tolist(), strict=True))
        assert len(tiles) == len(set(tiles)) == metadata.num_blocks
        left, top, right, bottom = 16_380, 10_300, 16_380 + 210, 10_300 + 150
        for column, row in tiles:
            whole = np.full((len(case.pixels), 64, 64), fill, case.pixels.dtype)
            x0, y0 = max(left, column * 64), max(top, row * 64)
            x1, y1 = min(right, column * 64 + 64), min(bottom, row * 64 + 64)
            if x1 > x0 and y1 > y0:
                whole[:, y0 - row * 64 : y1 - row * 64, x0 - column * 64 : x1 - column * 64] = (
                    case.pixels[:, y0 - top : y1 - top, x0 - left : x1 - left]
                )
            assert np.array_equal(raster.tile(9, column, row), whole)
        covered = {
            (column, row)
            for column in range(left // 64, -(-right // 64))
            for row in range(top // 64, -(-bottom // 64))
        }
        assert covered <= set(tiles)
    report = raquet.check(theirs[name])
    assert report.ok, report.problems
    assert ("raquet-byte-interleaved" in report.counts) == turns
    # What is wrong with their layout can be mended without a change of pixels.
    mended = tmp_path / "mended.parquet"
    raquet.repair(theirs[name], mended, byte_interleaved=turns)
    with raquet.open(mended) as raster, raquet.open(theirs[name], byte_interleaved=turns) as old:
        for cell in old.cells().tolist():
            key = quadbin.tiles(cell)
            if raster.has_tile(*key):
                assert np.array_equal(raster.tile(*key), old.tile(*key))


def test_table_engines_find_the_same_rows(ours: Ours) -> None:
    path = ours.path("three bands", "0.1.0")
    table = pq.read_table(path)
    document = json.loads(table.filter(table["block"].to_numpy() == 0)["metadata"][0].as_py())
    with raquet.open(path) as raster:
        cells = raster.cells().tolist()
        blobs = {cell: raster.raw_blob(*quadbin.tiles(cell), "band_2") for cell in cells}
    assert table.num_rows == len(cells) + 1
    with duckdb.connect() as base:
        query = "SELECT {} FROM read_parquet(?) WHERE block = ?"
        rows = base.execute(query.format("metadata"), [str(path), 0]).fetchall()
        assert [json.loads(text) for (text,) in rows] == [document]
        for cell in cells[:: max(1, len(cells) // 7)]:
            found = base.execute(query.format("band_2"), [str(path), cell]).fetchall()
            assert found == [(blobs[cell],)]
    frame = pl.read_parquet(path)
    lazy = pl.scan_parquet(path)
    for number in [0, *cells[:: max(1, len(cells) // 7)]]:
        # Polars trusts the flag that says rows are sorted.
        eager = frame.filter(pl.col("block") == number)
        assert eager.height == 1
        assert eager.equals(lazy.filter(pl.col("block") == number).collect())
        assert eager["band_2"][0] == blobs.get(number)
    assert frame["block"].min() == 0
    assert frame["block"].max() == max(cells)
    assert frame.sort("block")["block"].to_list() == [0, *sorted(cells)]
    panda = pd.read_parquet(path, filters=[("block", "==", cells[0])])
    assert panda["band_2"].tolist() == [blobs[cells[0]]]
    assert pd.read_parquet(path).query("block == 0")["metadata"].map(json.loads).tolist() == [
        document
    ]
