"""Broken and hostile tilesets through every door: right bytes or an error of ours."""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    UnsafeContentError,
)
from tests.attacks.reading import Key, checked, commands, held, read_tileset
from tests.attacks.test_mutants import JSON
from tests.servers.http import HttpServer
from tests.tapalcatl.checking.test_check import MVT, ODD, PNG, SOUND
from tests.tapalcatl.odd import Entry, appended, archive, tiles
from tests.tapalcatl.reading.test_odd import BROKEN, READ
from tests.zips import with_zip64_end

PLACES: list[Key] = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]
TRUTH = dict(zip(PLACES, (entry.data for entry in tiles()), strict=True))
PICTURES = dict.fromkeys(PLACES, PNG)


def with_entry(entry: Entry) -> bytes:
    """A sound archive but for its third entry, tile 1/1/0."""
    entries = tiles()
    entries[2] = entry
    return archive(entries)


def deflated(size: int) -> bytes:
    """So many MiB of zeros, of which one is packed."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return block * (size >> 20) + packer.flush()


BOMB = deflated(256 << 20)
HUGE = 0xFFFFFFFF


def zip64(*numbers: int) -> bytes:
    return struct.pack(f"<HH{len(numbers)}Q", 1, 8 * len(numbers), *numbers)


def header_lines(count: int) -> bytes:
    return json.dumps([{"X-A": "b" * 50}] * count).encode()


SOUND_ARCHIVE = archive(tiles(), b"")
BOMBS: dict[str, bytes] = {
    "inflates to 256 MiB, says 100 bytes": with_entry(
        Entry(b"1/1/0.png", BOMB, method=8, size=100)
    ),
    "inflates to 256 MiB, says so": with_entry(
        Entry(b"1/1/0.png", BOMB, method=8, size=256 << 20, crc=1)
    ),
    "inflates to 256 MiB, says 60 MiB": with_entry(
        Entry(b"1/1/0.png", BOMB, method=8, size=60 << 20, crc=1)
    ),
    "inflates to 50 MiB with another checksum": with_entry(
        Entry(b"1/1/0.png", deflated(50 << 20), method=8, size=50 << 20, crc=1)
    ),
    "a tile of 4 GiB": with_entry(Entry(b"1/1/0.png", b"x", csize=HUGE, size=HUGE)),
    "a tile of 2**63 bytes": with_entry(
        Entry(b"1/1/0.png", b"x", csize=HUGE, size=HUGE, extra=zip64(1 << 63, 1 << 63))
    ),
    "an offset of 2**63": with_entry(
        Entry(b"1/1/0.png", b"x", offset=HUGE, extra=zip64((1 << 63) - 1))
    ),
    "two billion entries": with_zip64_end(SOUND_ARCHIVE, values=(1 << 31, 58 * 5, 0)),
    "a directory of 2**63 bytes": with_zip64_end(SOUND_ARCHIVE, values=(5, 1 << 63, 0)),
    "a directory that wraps": with_zip64_end(SOUND_ARCHIVE, values=(5, 1 << 63, (1 << 64) - 8)),
    "a directory before the file": with_zip64_end(SOUND_ARCHIVE, values=(5, 290, (1 << 64) - 290)),
    "headers without end": with_entry(Entry(b"1/1/0.png", b"x", comment=header_lines(900))),
    "a comment nested thirty thousand deep": archive(tiles(), b"[" * 60_000),
    "a comment with a number of sixty thousand digits": archive(
        tiles(), b'{"minzoom":' + b"9" * 60_000 + b"}"
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_take_no_memory_and_no_time(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    path.write_bytes(BOMBS[name])
    with held(memory=130 << 20):
        found = read_tileset(path, TRUTH if "comment" in name else {**TRUTH, (1, 1, 0): b"x"})
    assert found.wrong == []
    if found.opened and "comment" not in name and "headers" not in name:
        assert found.errors
        assert all(
            isinstance(error, LimitExceededError | InvalidMetadataError) for error in found.errors
        )
    with held(memory=130 << 20):
        report = checked(tapalcatl, path)
    assert report is None or report.total
    exits = commands(path)
    assert exits["check"][0] != 0 or "headers" in name or "comment" in name


PACKED = {
    "gzip in DEFLATE": dict.fromkeys(PLACES, gzip.compress(MVT, mtime=0)),
    "headers of the comment": {key: gzip.compress(PICTURES[key], mtime=0) for key in PICTURES},
}
"""What is in archives of tiles that are compressed twice."""
CORPUS: dict[str, tuple[bytes, dict[Key, bytes]]] = {
    **{f"sound: {name}": (data, PACKED.get(name, PICTURES)) for name, data in SOUND.items()},
    **{f"odd: {name}": (data, PICTURES) for name, (data, _) in ODD.items()},
    **{f"read: {name}": (data, TRUTH) for name, data in READ.items()},
    "read: one local record for all": (
        archive([Entry(e.name, b"sea", share=e.name[:1] == b"1") for e in tiles()]),
        dict.fromkeys(PLACES, b"sea"),
    ),
    "read: no entries": (archive([]), {}),
    **{
        f"broken: {name}": (with_entry(entry), {**TRUTH, (1, 1, 0): entry.data})
        for name, entry in BROKEN.items()
    },
}


@pytest.mark.parametrize("name", CORPUS)
def test_every_door(name: str, tmp_path: Path) -> None:
    data, truth = CORPUS[name]
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    with held(memory=130 << 20):
        found = read_tileset(path, truth)
    assert found.wrong == []
    kind = name.partition(":")[0]
    if kind in ("sound", "read"):
        assert found.errors == []
        assert found.right == set(truth)
        with tapalcatl.open(path) as tileset:
            assert set(map(tuple, tileset.keys().tolist())) == set(truth)
            assert tileset.tile(2, 0, 0) is None
    if kind == "broken":
        assert found.errors
        # One broken tile takes no other with it, but for those that it overlaps.
        assert found.right >= set(truth) - {(1, 1, 0), (1, 0, 1)}
    exits = commands(path)
    if kind == "sound":
        assert {code for code, _ in exits.values()} == {0}


NAMES = [
    b"../../../../tmp/comal-attack/0/0/0.png",
    b"/tmp/comal-attack.png",
    b"0/0/0.png\0.sh",
    b"0/0/0.png\n1/1/1.png",
    b"0/0/0.\xff\xfe",
    "0/0/0.p\u202eng".encode(),
    b"0\\0\\0.png",
    b"C:0/0/0.png",
    b"00/00/00.png",
    b"+0/0/0.png",
    b"0/0/-1.png",
    "\u0660/0/0.png".encode(),
    b"0/0/0@1e400x.png",
    b"0/0/0@" + b"9" * 400 + b"x.png",
    b"99999999999999999999/0/0.png",
    b"26/67108864/0.png",
    b"0/0/0." + b"x" * 60_000,
    b"",
    b".",
    b"\x1b[31m0/0/0.png",
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_names_are_tiles_or_nothing(name: bytes, tmp_path: Path) -> None:
    home = tmp_path / "in"
    home.mkdir()
    path = home / "a.zip"
    path.write_bytes(archive([*tiles(), Entry(name, b"hostile")]))
    with held():
        found = read_tileset(path, TRUTH)
    assert found.wrong == []
    assert found.right == set(TRUTH)
    exits = commands(path)
    assert not any(mark in output for _, output in exits.values() for mark in ("\x1b", "\u202e"))
    assert exits["check"][0] in (0, 1)
    # What is written of it stays within the target.
    for number, write in enumerate((tapalcatl.to_directory, tapalcatl.to_mbtiles)):
        try:
            write(path, home / f"out{number}")
        except ComalError:
            continue
    files = [one for one in tmp_path.rglob("*") if one.is_file()]
    assert all(one.is_relative_to(home) for one in files)
    assert not any(one.read_bytes() == b"hostile" and one.parent == home for one in files)
    assert not Path("/tmp/comal-attack.png").exists()


META: dict[str, Any] = {
    "tapalcatl": "2.0.0",
    "minzoom": 0,
    "maxzoom": 1,
    "bounds": [-180, -85.0511287798066, 180, 85.0511287798066],
    "formats": {"png": "image/png"},
    "metatile": 1,
    "materializedZooms": [0],
    "source": "{z}/{x}/{y}.zip",
}
READ_DOCUMENTS: dict[str, Any] = {
    "sound": META,
    "an absolute source": {**META, "source": "/etc/{z}/{x}/{y}"},
    "a source of a file": {**META, "source": "file:///etc/{z}/{x}/{y}"},
    "a header with a line break": {**META, "formats": {"png": [{"X-A": "b\r\nSet-Cookie: c"}]}},
    "a name with an escape": {**META, "name": "\x1b[31m"},
    "headers that are not passed on": {
        **META,
        "formats": {"png": [{"Set-Cookie": "a"}, {"Content-Length": "1"}]},
    },
}
REFUSED_DOCUMENTS: dict[str, Any] = {
    "no JSON": "{",
    "a list": [META],
    "a source that leaves": {**META, "source": "../{z}/{x}/{y}.zip"},
    "a source without places": {**META, "source": "passwd"},
    "a source with more places": {**META, "source": "{z}/{x}/{y}/{0.__class__}.zip"},
    "a source with a null": {**META, "source": "{z}/{x}/{y}\0.zip"},
    "a metatile of no power of two": {**META, "metatile": 3},
    "a metatile of 2**40": {**META, "metatile": 1 << 40},
    "a negative metatile": {**META, "metatile": -1},
    "zooms of 2**40": {**META, "materializedZooms": [1 << 40]},
    "a thousand zooms": {**META, "materializedZooms": list(range(1000))},
    "zooms that are texts": {**META, "materializedZooms": ["0"]},
    "no zooms": {**META, "materializedZooms": []},
    "bounds of texts": {**META, "bounds": ["a", "b", "c", "d"]},
    "bounds beyond numbers": json.dumps(META).replace("-85.0511287798066", "-1e999", 1),
    "formats that are a list": {**META, "formats": ["png"]},
    "half a character": {**META, "name": "\ud800"},
}


@pytest.mark.parametrize("name", [*READ_DOCUMENTS, *REFUSED_DOCUMENTS])
def test_documents(name: str, tmp_path: Path) -> None:
    refused = name in REFUSED_DOCUMENTS
    document = (REFUSED_DOCUMENTS if refused else READ_DOCUMENTS)[name]
    text = document if isinstance(document, str) else json.dumps(document)
    (tmp_path / "0" / "0").mkdir(parents=True)
    entries = [Entry(entry.name, PNG) for entry in tiles()]
    (tmp_path / "0" / "0" / "0.zip").write_bytes(archive(entries))
    path = tmp_path / "meta.json"
    path.write_text(text)
    with held():
        found = read_tileset(path, PICTURES)
    assert found.wrong == []
    if refused:
        assert found.errors
        assert found.right == set()
    elif "source" not in name:
        assert found.right == set(TRUTH)
    exits = commands(path)
    assert not any("\x1b" in output for _, output in exits.values())
    if "source" not in name:
        assert (exits["check"][0] == 0) != refused


@pytest.mark.parametrize(
    "source",
    ["file:///etc/{z}/{x}/{y}", "/etc/{z}/{x}/{y}.zip", "file:/etc/{z}/{x}/{y}", "../{z}/{x}/{y}"],
)
def test_a_remote_document_names_no_files_of_ours(
    source: str, tmp_path: Path, http_server: HttpServer
) -> None:
    (tmp_path / "meta.json").write_text(json.dumps({**META, "source": source}))
    url = http_server.serve_folder(tmp_path, "set")
    kinds = UnsafeContentError, AccessDeniedError
    with pytest.raises(kinds), tapalcatl.open(f"{url}/meta.json") as tileset:
        tileset.tile(0, 0, 0)


def test_links_out_of_the_tileset_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.zip"
    outside.write_bytes(archive(tiles()))
    tree = tmp_path / "in"
    (tree / "0" / "0").mkdir(parents=True)
    (tree / "0" / "0" / "0.zip").symlink_to(outside)
    (tree / "meta.json").write_text(json.dumps(META))
    found = read_tileset(tree, TRUTH)
    assert found.right == set()
    assert all(isinstance(error, UnsafeContentError) for error in found.errors)
    assert found.errors


def test_what_a_crash_leaves_is_read_as_it_was(tmp_path: Path) -> None:
    first = archive(tiles())
    new = Entry(b"1/1/1.png", b"changed")
    whole = appended(first, [new], tiles()[:4])
    path = tmp_path / "a.zip"
    for size in {*range(len(first), len(whole), 37), len(whole) - 1}:
        path.write_bytes(whole[:size])
        found = read_tileset(path, TRUTH)
        assert found.wrong == []
        if size == len(first):
            assert found.right == set(TRUTH)
    path.write_bytes(whole)
    assert read_tileset(path, {**TRUTH, (1, 1, 1): b"changed"}).right == set(TRUTH)


_ANY = JSON | st.floats() | st.integers(-(2**70), 2**70)


@settings(max_examples=25)
@given(key=st.sampled_from([*META, "minscale", "maxscale", "root", "headers", "name"]), value=_ANY)
def test_any_value_in_the_documents(tmp_path: Path, key: str, value: Any) -> None:
    text = json.dumps({**META, key: value})
    entries = [Entry(entry.name, PNG) for entry in tiles()]
    (tmp_path / "0" / "0").mkdir(parents=True, exist_ok=True)
    inner = tmp_path / "0" / "0" / "0.zip"
    inner.write_bytes(archive(entries, text.encode()[:65_535]))
    (tmp_path / "meta.json").write_text(text)
    for path in (inner, tmp_path):
        assert read_tileset(path, PICTURES).wrong == []
        checked(tapalcatl, path)


@settings(max_examples=25)
@given(comment=st.binary(max_size=60) | _ANY.map(lambda value: json.dumps(value).encode()))
def test_any_comment_of_an_entry(tmp_path: Path, comment: bytes) -> None:
    entries = [Entry(entry.name, PNG, comment=comment[:65_535]) for entry in tiles()]
    path = tmp_path / "a.zip"
    path.write_bytes(archive(entries))
    found = read_tileset(path, PICTURES)
    assert found.wrong == []
    assert found.right == set(PICTURES)
    checked(tapalcatl, path)
