"""Formats are told by their bytes."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import comal
from comal import formats
from comal.errors import NotThisFormatError, ObjectNotFoundError, UnsupportedVersionError
from comal.formats.sniff import FORMATS
from tests.servers.http import HttpServer
from tests.support import SHARED, needs_shared


def zipped(name: str, comment: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, b"x")
        archive.comment = comment
    return file.getvalue()


def parquet(**columns: list[int]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


REFUSED = [
    (zipped("__cozip__"), "TACO 3"),
]
TILES = [
    zipped("0/0/0.png"),
    zipped("0/0/0@2x.png"),
    zipped("0/0/0"),
    zipped("meta", b'{"tapalcatl": "2.0.0"}'),
    b' {"tapalcatl": "2.0.0"}',
    b'{"source": "{z}/{x}/{y}.zip", "formats": {}}',
]


@pytest.mark.parametrize(("data", "title"), REFUSED)
def test_formats_that_cannot_be_read_yet_are_refused_by_name(
    tmp_path: Path, data: bytes, title: str
) -> None:
    path = tmp_path / "x.tacozip"
    path.write_bytes(data)
    with pytest.raises(UnsupportedVersionError, match=title):
        comal.open(path)


@pytest.mark.parametrize("data", TILES)
def test_tilesets_of_any_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tacozip"
    path.write_bytes(data)
    assert formats.sniff(path).format.name == "tapalcatl"


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"PK\x03\x04", zipped("readme.txt"), parquet(a=[1]), b'{"type": "Feature"}'],
)
def test_anything_else_is_no_format(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tacozip"
    path.write_bytes(data)
    with pytest.raises(NotThisFormatError):
        formats.sniff(path)


def test_the_name_does_not_matter(flat: Path, tmp_path: Path) -> None:
    plain = tmp_path / "no suffix"
    flat.rename(plain)
    assert formats.sniff(plain).format.name == "taco"
    with comal.open(plain) as dataset:
        assert len(dataset.data) == 5


def test_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(NotThisFormatError):
        formats.sniff(tmp_path)


def test_nothing_there(tmp_path: Path, http_server: HttpServer) -> None:
    with pytest.raises(ObjectNotFoundError):
        formats.sniff(tmp_path / "absent")
    with pytest.raises(ObjectNotFoundError):
        formats.sniff(http_server.url_for("/absent"))


def test_names_are_unique_and_stable() -> None:
    names = [known.name for known in FORMATS]
    assert names == ["taco", "taco-v3", "taco-v1", "tortilla", "raquet", "tapalcatl"]


@needs_shared
def test_containers_of_other_writers() -> None:
    folder = SHARED / "fixtures" / "taco"
    for name in (
        "flat.tacozip",
        "flat_folder",
        "cat",
        "cat/.tacocat",
        "tacocat_binary/__TACOCAT__",
    ):
        assert formats.sniff(folder / name).format.name == "taco"


@needs_shared
@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("raquet/**/*.parquet", "raquet"),
        ("tapalcatl/**/*.zip", "tapalcatl"),
        ("tapalcatl/**/meta.json", "tapalcatl"),
    ],
)
def test_other_formats_are_told_apart(pattern: str, name: str) -> None:
    paths = list((SHARED / "fixtures").glob(pattern))
    assert paths
    for path in paths:
        assert formats.sniff(path).format.name == name


@needs_shared
def test_a_folder_on_a_server(http_server: HttpServer) -> None:
    url = http_server.serve_folder(SHARED / "fixtures" / "taco" / "flat_folder", "data")
    assert formats.sniff(url).how == "folder that holds COLLECTION.json"
