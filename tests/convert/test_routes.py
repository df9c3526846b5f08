"""`comal.convert.convert`: one door for every pair of formats, read back by other libraries."""

from __future__ import annotations

import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio

from comal.convert import convert
from comal.errors import InvalidInputError
from tests.convert.migrated import FIELDS, leaves
from tests.raquet.writing.sources import noise, on_grid
from tests.tortilla.build import Item, built


@pytest.fixture
def raster(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return on_grid(tmp_path / "in" / "a.tif", noise((1, 64, 64), "uint8"), nodata=0)


def _pixels(path: Path) -> Any:
    """The pixels that are not nodata, in the order of rows; whole tiles may stand around them."""
    with rasterio.open(path) as dataset:
        pixels = dataset.read(1)
    return pixels[pixels != 0]


def test_a_raster_into_each_form_of_raquet(raster: Path, tmp_path: Path) -> None:
    made, again, back = (tmp_path / name for name in ("a.parquet", "b.parquet", "b.tif"))
    assert convert(raster, made, block_size=32).kind == "raster"
    assert "block" in pq.read_schema(made).names
    assert convert(str(made), again).to_dict()["from"] == "raquet"
    assert pq.read_table(again).num_rows == pq.read_table(made).num_rows
    assert convert(made, back).to_dict()["to"] == "cog"
    assert np.array_equal(_pixels(back), _pixels(raster))


def test_raquet_into_each_form_of_tiles(raster: Path, tmp_path: Path) -> None:
    made, drawn, tiles = (tmp_path / name for name in ("a.parquet", "tiles", "t.mbtiles"))
    convert(raster, made)
    count = convert(made, drawn).written["tiles"]
    assert convert(drawn, tiles).to_dict()["tiles"] == count
    with sqlite3.connect(tiles) as base:
        assert base.execute("SELECT count(*) FROM tiles").fetchone() == (count,)
    assert convert(tiles, tmp_path / "one.zip").kind == "tiles"
    assert zipfile.is_zipfile(tmp_path / "one.zip")


def test_samples_into_each_container(raster: Path, tmp_path: Path) -> None:
    packed, folder, again = (tmp_path / name for name in ("a.tacozip", "folder", "b.tacozip"))
    assert convert(raster.parent, packed, **FIELDS).kind == "rasters"
    assert convert(packed, folder).to_dict() == {
        "source": str(packed),
        "from": "zip",
        "output": str(folder),
    }
    assert convert(folder, again).kind == "folder"
    assert list(leaves(packed).values()) == list(leaves(again).values()) == [raster.read_bytes()]
    with pytest.raises(InvalidInputError, match="has that form already"):
        convert(packed, tmp_path / "c.tacozip")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.tortilla"
    path.write_bytes(built([Item("a", b"1"), Item("c", b"22")]))
    return path


def test_a_tortilla_with_its_report(old: Path, tmp_path: Path) -> None:
    made = convert(old, dry_run=True)
    assert made.report is not None
    assert {one.field for one in made.report.missing} >= {"id", "licenses"}
    made = convert([old], tmp_path / "new.tacozip", ids={"a": "first"}, pad=False, **FIELDS)
    assert (made.kind, made.report is not None) == ("tortilla", True)
    assert leaves(tmp_path / "new.tacozip") == {"first": b"1", "c": b"22"}


@pytest.mark.parametrize(
    ("make", "name", "options", "told"),
    [
        (lambda old, tif: tif, "o.parquet", {"bands": 1}, "--bands"),
        (lambda old, tif: tif, "o.parquet", {"dry_run": True}, "--dry-run"),
        (lambda old, tif: tif.parent, "o.tacozip", {"ids": {}}, "--ids"),
        (lambda old, tif: tif.parent, "o.tacozip", {"variable": "x"}, "--variable"),
        (lambda old, tif: tif, "o.parquet", {"pad": True}, "--pad"),
        (lambda old, tif: tif, "o.parquet", {"licenses": ["MIT"]}, "--license"),
        (lambda old, tif: old, "o.tacozip", {"rename": True}, "--rename"),
    ],
)
def test_options_of_others_are_refused(
    old: Path,
    raster: Path,
    tmp_path: Path,
    make: Callable[[Path, Path], Path],
    name: str,
    options: dict[str, Any],
    told: str,
) -> None:
    with pytest.raises(InvalidInputError, match=told) as caught:
        convert(make(old, raster), tmp_path / name, **options)
    assert f"{next(iter(options))}=" in str(caught.value)
    assert not (tmp_path / name).exists()


def test_no_target(old: Path) -> None:
    with pytest.raises(InvalidInputError, match="nowhere to write"):
        convert(old)
