"""Files are told apart by their bytes; the error about other files says what to do with them."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio import Affine

import comal
from comal import formats
from comal.errors import NotThisFormatError, ObjectNotFoundError, UnsupportedVersionError
from comal.formats.sniff import FORMATS
from tests.cli.conftest import Run
from tests.servers.http import HttpServer
from tests.support import SHARED, needs_shared


def zipped(name: str, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"x")
        archive.comment = comment
    return file.getvalue()


def parquet(**columns: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


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
        columns = "zoom_level int, tile_column int, tile_row int, tile_data blob"
        database.execute(f"CREATE TABLE tiles ({columns})")
        database.execute("CREATE TABLE metadata (name text, value text)")
        database.execute("INSERT INTO metadata VALUES ('format', 'png')")
        database.execute("INSERT INTO tiles VALUES (0, 0, 0, ?)", [picture])
    database.close()
    return path


# -- archives --------------------------------------------------------------------------------------


def test_names_are_unique_and_stable() -> None:
    names = [known.name for known in FORMATS]
    assert names == ["taco", "taco-v3", "taco-v1", "tortilla", "raquet", "tapalcatl"]


def test_a_format_that_cannot_be_read_yet_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.tacozip").write_bytes(zipped("__cozip__"))
    with pytest.raises(UnsupportedVersionError, match="TACO 3"):
        comal.open(tmp_path / "x.tacozip")


def test_the_name_does_not_matter(flat: Path, tmp_path: Path) -> None:
    plain = tmp_path / "no suffix"
    flat.rename(plain)
    assert formats.sniff(plain).format.name == "taco"
    with comal.open(plain) as dataset:
        assert len(dataset.data) == 5
    for data in (
        *(zipped("0/0/0.png"), zipped("0/0/0@2x.png"), zipped("0/0/0")),
        *(zipped("meta", b'{"tapalcatl": "2.0.0"}'), b' {"tapalcatl": "2.0.0"}'),
        b'{"source": "{z}/{x}/{y}.zip", "formats": {}}',
    ):
        plain.write_bytes(data)
        assert formats.sniff(plain).format.name == "tapalcatl", data


def test_nothing_there(tmp_path: Path, http_server: HttpServer) -> None:
    for place in (tmp_path / "absent", http_server.url_for("/absent")):
        with pytest.raises(ObjectNotFoundError):
            formats.sniff(place)
    with pytest.raises(NotThisFormatError):
        formats.sniff(tmp_path)


@needs_shared
def test_files_of_other_writers(http_server: HttpServer) -> None:
    fixtures = SHARED / "fixtures"
    folder = fixtures / "taco"
    taco = ("flat.tacozip", "flat_folder", "cat", "cat/.tacocat", "tacocat_binary/__TACOCAT__")
    expected = {folder / name: "taco" for name in taco}
    expected |= dict.fromkeys(fixtures.glob("raquet/**/*.parquet"), "raquet")
    expected |= dict.fromkeys(fixtures.glob("tapalcatl/**/*.zip"), "tapalcatl")
    expected |= dict.fromkeys(fixtures.glob("tapalcatl/**/meta.json"), "tapalcatl")
    assert {path: formats.sniff(path).format.name for path in expected} == expected
    assert set(expected.values()) == {"taco", "raquet", "tapalcatl"}
    url = http_server.serve_folder(folder / "flat_folder", "data")
    assert formats.sniff(url).how == "folder that holds COLLECTION.json"


# -- anything else ---------------------------------------------------------------------------------


def refusal(path: Path) -> NotThisFormatError:
    with pytest.raises(NotThisFormatError) as caught:
        formats.sniff(path)
    assert caught.value.hint
    return caught.value


def command(error: NotThisFormatError, **names: Path) -> list[str]:
    """The words of the first command of the hint, with names in the places that it leaves open."""
    words = str(error.hint).partition(": comal ")[2].partition(",")[0].partition(";")[0].split()
    return [str(names.get(word, word)) for word in words]


@pytest.mark.parametrize(
    ("name", "what", "target", "kind"),
    [
        ("x.tif", "GTiff", "OUT.parquet", "raquet"),
        ("no suffix", "GTiff", "OUT.parquet", "raquet"),
        ("x.jp2", "JP2OpenJPEG", "OUT.parquet", "raquet"),
        ("x.mbtiles", "", "OUT-tiles", "tapalcatl"),
        ("plain/a.tif", "GTiff", "OUT.tacozip", "taco"),
    ],
)
def test_the_command_of_the_hint_converts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, name: str, what: str, target: str,
    kind: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    path = raster(tmp_path / name, what) if what else mbtiles(tmp_path / name)
    path = tmp_path / "plain" if name.startswith("plain") else path
    words = command(refusal(path), FILE=path, FOLDER=path)
    assert words[-1] == target
    run(*words)
    assert formats.sniff(target).format.name == kind


NAMED = {
    b"\x89PNG\r\n\x1a\n": "a PNG",
    b"\xff\xd8\xff\xe0": "a JPEG",
    b"RIFF\x00\x00\x00\x00WEBP": "a WebP",
    b"\x89HDF\r\n\x1a\n": "a netCDF or HDF5",
    b"CDF\x01": "a netCDF",
    b"II*\0": "a TIFF",
    b"SQLite format 3\0": "an SQLite database, as MBTiles is",
    b"PMTiles\x03": "a PMTiles file",
    zipped("readme.txt"): "a ZIP whose first entry is 'readme.txt'",
    parquet(id=["a"], path=["a.tif"]): "a Parquet table with the columns 'id, path'",
    b"<!DOCTYPE html>\n<html>": "a page",
    b"\n <html><body>": "a page",
    b"<?xml version": "a page",
}


def test_what_is_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for head, kind in NAMED.items():
        padding = b"" if head[:2] in {b"PK", b"PA"} else bytes(64)
        path.write_bytes(head + padding)
        error = refusal(path)
        assert kind.removeprefix("a ") in str(error.found), head
    for data in (b"", b"x", b"PK\x03\x04", b"hello", b"{}", b'{"type": "Feature"}'):
        path.write_bytes(data)
        refusal(path)


def test_the_columns_of_a_wide_table_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(parquet(**{f"column\n{number}": [1] for number in range(200)}))
    found = str(refusal(path).found)
    assert len(found) < 120
    assert "\n" not in found


def test_every_command_says_it(tmp_path: Path, run: Run) -> None:
    path = str(raster(tmp_path / "x.tif", "GTiff"))
    for verb, *key in (["check"], ["info"], ["ls"], ["get", "key"], ["serve"]):
        assert "make it RaQuet: comal raquet create" in run(verb, path, *key, code=5).stderr
