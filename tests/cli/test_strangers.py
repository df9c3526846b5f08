"""Files of other formats are named, and the error says what can be done with them."""

from __future__ import annotations

import shlex
import sqlite3
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio import Affine

from comal import formats
from comal.errors import NotThisFormatError
from tests.cli.conftest import Run
from tests.support import SHARED, needs_shared


def refusal(path: Path) -> NotThisFormatError:
    with pytest.raises(NotThisFormatError) as caught:
        formats.sniff(path)
    return caught.value


def command(error: NotThisFormatError) -> list[str]:
    """The words of the command that the hint ends with."""
    assert error.hint is not None
    words = shlex.split(error.hint.rpartition(": ")[2])
    assert words.pop(0) == "comal"
    return words


def raster(path: Path, driver: str) -> Path:
    place = Affine(1 / 32, 0, 10, 0, -1 / 32, 41)
    with rasterio.open(
        path, "w", driver=driver, width=32, height=32, count=3, dtype="uint8",
        crs="EPSG:4326", transform=place,
    ) as dataset:  # fmt: skip
        dataset.write(np.arange(3 * 32 * 32, dtype=np.uint8).reshape(3, 32, 32))
    return path


def mbtiles(path: Path) -> Path:
    picture = raster(path.with_suffix(".png"), "PNG").read_bytes()
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE tiles (zoom_level int, tile_column int, tile_row int, tile_data blob)"
        )
        database.execute("CREATE TABLE metadata (name text, value text)")
        database.execute("INSERT INTO metadata VALUES ('format', 'png')")
        database.execute(
            "INSERT INTO tiles VALUES (0, 0, 0, ?)",
            [picture],
        )
    database.close()
    return path


@pytest.mark.parametrize(
    ("name", "driver", "kind"),
    [
        ("x.tif", "GTiff", "a TIFF"),
        ("a name.TIFF", "GTiff", "a TIFF"),
        ("no suffix", "GTiff", "a TIFF"),
        ("x.jp2", "JP2OpenJPEG", "a JPEG 2000"),
    ],
)
def test_a_raster_becomes_raquet_by_the_command_of_the_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, name: str, driver: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(raster(tmp_path / name, driver))
    assert str(error.found).startswith(kind)
    words = command(error)
    run(*words)
    assert formats.sniff(words[-1]).format.name == "raquet"


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"\x89PNG\r\n\x1a\n", "a PNG"),
        (b"\xff\xd8\xff\xe0", "a JPEG"),
        (b"RIFF\x00\x00\x00\x00WEBP", "a WebP"),
        (b"\x89HDF\r\n\x1a\n", "a netCDF or HDF5"),
        (b"CDF\x01", "a netCDF"),
    ],
)
def test_pictures_and_arrays_are_named(tmp_path: Path, head: bytes, kind: str) -> None:
    path = tmp_path / "x.png"
    path.write_bytes(head + bytes(64))
    error = refusal(path)
    assert str(error.found).startswith(kind)
    assert command(error)[-2:] == [str(path), "x.parquet"]


def test_mbtiles_becomes_tapalcatl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(mbtiles(tmp_path / "x.mbtiles"))
    assert error.found == "an SQLite database, as MBTiles is"
    words = command(error)
    run(*words)
    assert formats.sniff(words[-1]).format.name == "tapalcatl"


@needs_shared
def test_pmtiles_becomes_tapalcatl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.chdir(tmp_path)
    error = refusal(SHARED / "data" / "stamen_toner_z0-3_ccby.pmtiles")
    assert error.found == "a PMTiles file"
    words = command(error)
    run(*words)
    assert formats.sniff(words[-1]).format.name == "tapalcatl"


@pytest.mark.parametrize(("name", "head"), [("x.db", b"SQLite format 3\0"), ("x", b"PMTiles\x03")])
def test_tiles_are_told_by_their_name(tmp_path: Path, name: str, head: bytes) -> None:
    """`comal convert` knows them by their suffix; the hint must not lead in a circle."""
    (tmp_path / name).write_bytes(head + bytes(64))
    assert "rename" in str(refusal(tmp_path / name).hint)


def test_a_table_says_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"id": ["a"], "path": ["a.tif"]}), path)
    error = refusal(path)
    assert error.found == "a Parquet table with the columns 'id, path'"
    assert command(error) == ["convert", str(path), "x.tacozip"]


def test_the_columns_of_a_wide_table_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({f"column\n{number}": [1] for number in range(200)}), path)
    found = str(refusal(path).found)
    assert len(found) < 120
    assert "\n" not in found


def test_a_plain_zip_is_to_be_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", b"x")
    error = refusal(path)
    assert error.found == "a ZIP whose first entry is 'readme.txt'"
    assert "unpack" in str(error.hint)


@pytest.mark.parametrize(
    ("file", "target"), [("a.tif", "plain.tacozip"), ("0/0/0.png", "plain-tiles")]
)
def test_a_folder_of_rasters_or_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, file: str, target: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plain" / file
    path.parent.mkdir(parents=True)
    raster(path, "GTiff" if file == "a.tif" else "PNG")
    words = command(refusal(tmp_path / "plain"))
    assert words[-1] == target
    run(*words)
    formats.sniff(words[-1])


@pytest.mark.parametrize("page", [b"<!DOCTYPE html>\n<html>", b"\n <html><body>", b"<?xml version"])
def test_a_page_in_place_of_the_file(tmp_path: Path, page: bytes) -> None:
    (tmp_path / "x.tacozip").write_bytes(page)
    assert "page" in str(refusal(tmp_path / "x.tacozip").found)


@pytest.mark.parametrize("data", [b"", b"hello", b"{}"])
def test_what_nobody_knows_has_a_hint_too(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x").write_bytes(data)
    assert refusal(tmp_path / "x").hint


@pytest.mark.parametrize("words", [["check"], ["info"], ["ls"], ["get", "key"], ["serve"]])
def test_every_command_says_it(tmp_path: Path, words: list[str], run: Run) -> None:
    path = str(raster(tmp_path / "x.tif", "GTiff"))
    verb, *key = words
    assert f"comal convert {path} x.parquet" in run(verb, path, *key, code=5).stderr
