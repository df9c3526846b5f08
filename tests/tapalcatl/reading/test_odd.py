"""Odd and hostile archives: right bytes or a clear error, and the other tiles still there."""

from __future__ import annotations

import struct
import tempfile
import tracemalloc
import warnings
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    UnsupportedVersionError,
)
from comal.limits import Limits
from comal.tapalcatl import TapalcatlWarning, TileSet
from comal.tapalcatl.reading import index
from tests.tapalcatl.making import data_of
from tests.tapalcatl.odd import METADATA, Entry, archive, tiles
from tests.tapalcatl.reading.test_remote import META

PLACES = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)]


def opened(tmp_path: Path, data: bytes, **options: object) -> TileSet:
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    return tapalcatl.open(path, **options)  # type: ignore[arg-type]


READ: dict[str, bytes] = {
    "plain": archive(tiles()),
    "deflated": archive(tiles(deflate=True)),
    "data descriptors": archive(tiles(descriptor=True)),
    "deflated with data descriptors": archive(tiles(deflate=True, descriptor=True)),
    "longer local extra": archive(tiles(local_extra=struct.pack("<HH", 0xD935, 196) + bytes(196))),
    "huge local extra": archive(tiles(local_extra=struct.pack("<HH", 0xD935, 9000) + bytes(9000))),
    "comment of 65 535 bytes": archive(tiles(), METADATA + b" " * (65_535 - len(METADATA))),
    "date 0": archive(tiles(date=0, time=0)),
    "end record in the comment": archive(tiles(), METADATA + b"PK\5\6" + bytes(18) + b"xx"),
    "whole end record in the comment": archive(tiles(), METADATA + b"PK\5\6" + bytes(18)),
    "bytes behind": archive(tiles(), behind=b"trailing bytes"),
    "stub, not shifted": archive(tiles(), stub=b"#!/bin/sh\n"),
    "stub, shifted": archive(tiles(), stub=b"#!/bin/sh\n", shifted=True),
    "other local name": archive(tiles(local_name=b"x")),
    "gap before the directory": archive(tiles(), gap=bytes(100)),
    "no comment": archive(tiles(), b""),
    "comment with line breaks": archive(tiles(), b'\xef\xbb\xbf{\n"tapalcatl":\t"2.0.0"\r\n}'),
    "comment that is no JSON": archive(tiles(), b"zip made by hand"),
    "comment that nests too deep": archive(tiles(), b"[" * 5000),
    "wrong count in the end record": archive(tiles(), count=4),
    "not sorted": archive(tiles()[::-1]),
    "other names": archive(
        [
            *(
                Entry(name, b"no tile")
                for name in (
                    b"/0/0/0.png",
                    b"../0/0/0.png",
                    b"0\\0\\0.png",
                    b"00/0/0.png",
                    b"0/0/",
                    b"README.md",
                    b"1/7/7.png",
                    b"\xff\xfe",
                    b"",
                )
            ),
            *tiles(),
        ]
    ),
}


def test_headers_and_times(tmp_path: Path) -> None:
    exact = struct.pack("<HHBi", 0x5455, 5, 1, 1_600_000_001)
    entries = [
        Entry(b"0/0/0.png", b"a", comment=b'[{"X-A":"1"},{"Set-Cookie":"b"}]', extra=exact),
        Entry(b"1/0/0.png", b"b", comment=b'{"X-A":"2"}'),
        Entry(b"1/1/0.png", b"c", comment=b"not JSON", date=0, time=0),
        Entry(b"1/0/1.png", b"d", date=0xFFFF, time=0xFFFF),
    ]
    tileset = opened(tmp_path, archive(entries))
    found = [tileset.tile(*place) for place in PLACES[:4]]
    headers = [tile.headers[1:] for tile in found if tile is not None]
    assert headers == [(("X-A", "1"),), (("X-A", "2"),), (), ()]
    times = [tile.modified for tile in found if tile is not None]
    assert times == [1_600_000_001, 1_541_013_026, None, None]
    assert found[1] is not None
    assert found[1].last_modified == "Wed, 31 Oct 2018 19:10:26 GMT"


def test_old_default_headers_of_an_archive(tmp_path: Path) -> None:
    comment = b'{"headers":[{"Content-Encoding":"gzip"},{"X-A":"1"}],"formats":{"png":"a/b"}}'
    tile = opened(tmp_path, archive(tiles(), comment)).tile(0, 0, 0)
    assert tile is not None
    assert tile.headers == (("Content-Encoding", "gzip"), ("X-A", "1"), ("Content-Type", "a/b"))


def test_names_without_extension_and_scales(tmp_path: Path) -> None:
    entries = [
        Entry(b"0/0/0", b"plain"),
        Entry(b"0/0/0@2x", b"twice"),
        Entry(b"0/0/0@0.5x", b"half"),
        Entry(b"0/0/0@2x.png", b"png"),
    ]
    comment = b'{"formats":{"":"text/plain","png":"image/png"}}'
    tileset = opened(tmp_path, archive(entries, comment))

    def data(**options: object) -> bytes | None:
        tile = tileset.tile(0, 0, 0, **options)  # type: ignore[arg-type]
        return None if tile is None else tile.data

    assert data() == b"plain"
    assert data(scale=2) == b"twice"
    assert data(scale=0.5) == b"half"
    assert data(ext="png") is None
    assert data(ext="png", scale=2) == b"png"
    assert tileset.tile(0, 0, 0).content_type == "text/plain"  # type: ignore[union-attr]


def test_the_only_scale_is_taken(tmp_path: Path) -> None:
    tileset = opened(tmp_path, archive([Entry(b"0/0/0@2x.png", b"x")], b""))
    tile = tileset.tile(0, 0, 0)
    assert tile is not None
    assert tile.scale == 2
    assert tileset.tile(0, 0, 0, scale=1) is None


@pytest.mark.parametrize("count", [0, 2_000], ids=["few", "many"])
@pytest.mark.parametrize("deflate", [False, True])
def test_the_last_of_two_names_counts_and_is_told(
    tmp_path: Path, count: int, deflate: bool
) -> None:
    old, new = (Entry(b"0/0/0.png", text, deflate=deflate) for text in (b"old", b"new"))
    more = [Entry(b"11/%d/7.png" % x, b"x") for x in range(count)]
    entries = [old, *tiles()[1:], *more, new]
    reads: list[Callable[[TileSet], object]] = [
        lambda tileset: tileset.tile(0, 0, 0),
        lambda tileset: tileset.stored_tile(0, 0, 0),
        lambda tileset: tileset.tiles([(0, 0, 0)]),
        lambda tileset: len(tileset.keys()),
    ]
    for read in reads:
        tileset = opened(tmp_path, archive(entries))
        with pytest.warns(TapalcatlWarning, match="'0/0/0.png' stands more than once") as told:
            read(tileset)
        assert len(told) == 1, "once for an archive"
        assert data_of(tileset, 0, 0, 0) == b"new"
        assert len(tileset.keys()) == 5 + count
    with zipfile.ZipFile(tmp_path / "a.zip") as oracle:
        assert oracle.read("0/0/0.png") == b"new"


# -- what fails alone -----------------------------------------------------------------------------

_BOMB = zlib.compressobj(9, zlib.DEFLATED, -15)
_MEBIBYTE = _BOMB.compress(bytes(1 << 20)) + _BOMB.flush(zlib.Z_FULL_FLUSH)
BOMB = 50 * _MEBIBYTE + _BOMB.flush()

BROKEN: dict[str, Entry] = {
    "wrong CRC": Entry(b"1/1/0.png", b"x" * 50, crc=1),
    "wrong CRC, deflated": Entry(b"1/1/0.png", b"x" * 50, deflate=True, crc=1),
    "inflates to more": Entry(b"1/1/0.png", b"x" * 500, deflate=True, size=100),
    "inflates to less": Entry(b"1/1/0.png", b"x" * 500, deflate=True, size=1000),
    "stored with two sizes": Entry(b"1/1/0.png", b"x" * 50, size=49),
    "not deflate": Entry(b"1/1/0.png", b"\xff" * 50, method=8),
    "bomb": Entry(b"1/1/0.png", BOMB, method=8, size=100, crc=0),
    "bomb that says so": Entry(b"1/1/0.png", BOMB, method=8, size=50 << 20, crc=1),
    "bzip2": Entry(b"1/1/0.png", b"BZh9", method=12),
    "encrypted": Entry(b"1/1/0.png", b"x" * 50, flags=1),
    "compressed size past the end": Entry(b"1/1/0.png", b"x", csize=1 << 30, size=1 << 30),
    "4 GiB without ZIP64": Entry(b"1/1/0.png", b"x", csize=0xFFFFFFFF, size=0xFFFFFFFF),
    "ZIP64 field too short": Entry(
        b"1/1/0.png", b"x", csize=0xFFFFFFFF, size=0xFFFFFFFF, extra=struct.pack("<HHQ", 1, 8, 5)
    ),
    "ZIP64 beyond any file": Entry(
        b"1/1/0.png",
        b"x",
        csize=0xFFFFFFFF,
        size=0xFFFFFFFF,
        extra=struct.pack("<HHQQ", 1, 16, 2**64 - 1, 2**64 - 1),
    ),
    "compressed size into the next": Entry(b"1/1/0.png", b"x", csize=100, size=100),
    "offset past the end": Entry(b"1/1/0.png", b"x", offset=1 << 30),
    "offset inside another": Entry(b"1/1/0.png", b"x", offset=7),
    "no local header there": Entry(b"1/1/0.png", b"", offset=240),
}


ALONE = {**BROKEN, "another tile": Entry(b"1/1/0.png", b"x" * 50, local_name=b"5/9/9.png")}
DOORS: list[Callable[..., object]] = [
    lambda tileset, **named: tileset.tile(1, 1, 0, **named),
    lambda tileset, **named: tileset.tiles(PLACES, **named)[2],
    lambda tileset, **named: list(tileset.iter_tiles(PLACES, **named))[2],
]


def outcome(door: Callable[..., object], tileset: TileSet, **named: object) -> object:
    try:
        return door(tileset, **named)
    except (InvalidMetadataError, LimitExceededError) as error:
        return str(error)


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize("name", ALONE)
def test_a_broken_tile_fails_alone(
    tmp_path: Path, name: str, by_columns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every door; without the checksum it fails or succeeds alike."""
    monkeypatch.setattr(index, "_BY_NAME_IN_FEW", 0 if by_columns else 1 << 30)
    entries = tiles()
    entries[2] = ALONE[name]
    limits = Limits(tile_bytes=1 << 20)
    tileset = opened(tmp_path, archive(entries), limits=limits)
    tracemalloc.start()
    found = [outcome(door, tileset) for door in DOORS]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert "1/1/0" in str(found[0])
    assert isinstance(found[0], str)
    unchecked = [outcome(door, tileset, verify=False) for door in DOORS]
    for results in (found, unchecked):
        assert results == results[:1] * len(DOORS)
    others = [0, 1, 3, 4]
    for many in (tileset.tiles, tileset.iter_tiles):
        there = [tile.data for tile in many(PLACES[n] for n in others) if tile is not None]
        assert there == [entries[n].data for n in others]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        b"not a ZIP" * 100,
        READ["plain"][:-1],
        READ["plain"][: len(READ["plain"]) // 2],
        READ["plain"][:-30],
        b"PK\5\6" + bytes(17),
    ],
)
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    with pytest.raises((NotThisFormatError, InvalidMetadataError)):
        opened(tmp_path, data)


# A changed byte of the version may make a newer one of it.
@pytest.mark.filterwarnings("ignore::comal.tapalcatl.spec.TapalcatlWarning")
@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(READ["plain"]) - 1), st.integers(1, 255))
def test_any_changed_byte_gives_the_right_bytes_or_our_error(at: int, change: int) -> None:
    data = bytearray(READ["deflated" if at % 2 else "plain"])
    at %= len(data)
    data[at] ^= change
    entries = {place: entry.data for place, entry in zip(PLACES, tiles(), strict=True)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.zip"
        path.write_bytes(data)
        try:
            tileset = tapalcatl.archive(path)
        except ComalError:
            return
        for place in entries:
            try:
                tile = tileset.tile(*place)
            except ComalError:
                continue
            # The directory rules: a name changed there makes one tile of another.
            assert tile is None or tile.data in entries.values()


@pytest.mark.filterwarnings("ignore:.*more than once:comal.tapalcatl.TapalcatlWarning")
@pytest.mark.parametrize("deflate", [False, True])
def test_a_name_that_was_changed_leads_to_no_other_tile(tmp_path: Path, deflate: bool) -> None:
    data = archive(tiles(deflate=deflate))
    at = data.rindex(b"1/1/0.png")
    # One bit of the directory, which no checksum covers: the last of two names wins.
    tileset = opened(tmp_path, data[: at + 2] + b"0" + data[at + 3 :])
    for read in (tileset.tile, tileset.stored_tile):
        with pytest.raises(InvalidMetadataError, match="another tile"):
            read(1, 0, 0)
    assert tileset.tile(1, 1, 0) is None
    assert tileset.tile(1, 1, 1) is not None
    with pytest.raises(InvalidMetadataError, match="another tile"):
        tapalcatl.to_directory(tileset, tmp_path / "out")


def test_a_local_header_that_is_shorter_than_it_seems(tmp_path: Path) -> None:
    """Its payload is not where the directory alone would put it: the checksum tells."""
    name, data = b"0/0/0.png", bytes(range(200))
    entry = Entry(name, data, local_name=b"0")
    path = tmp_path / "a.zip"
    path.write_bytes(archive([entry], b"", gap=bytes(len(name) - 1)))
    with tapalcatl.open(path) as tileset:
        tile = tileset.tile(0, 0, 0)
        stored = tileset.stored_tile(0, 0, 0)
    assert tile is not None
    assert tile.data == data
    assert stored is not None
    assert stored.payload == data


# -- versions that are known, newer, or not known --------------------------------------------------


CODES = {"document-version", "comment-version", "newer-version"}


def places(folder: Path, version: str) -> tuple[Path, Path]:
    """A document and an archive, both of a version as JSON says it."""
    document = (META % "{z}/{x}/{y}.zip").replace('"2.0.0"', version)
    (folder / "meta.json").write_text(document)
    comment = METADATA.replace(b'"2.0.0"', version.encode())
    (folder / "a.zip").write_bytes(archive(tiles(), comment))
    return folder, folder / "a.zip"


@pytest.mark.parametrize(
    "version", ['"2.0.0"', '"2.0"', '"2.0.9"', '"2"', "2", "2.0", "null", '"2.0.0-rc.1"']
)
def test_known_versions(tmp_path: Path, version: str) -> None:
    for place in places(tmp_path, version):
        assert tapalcatl.open(place).metadata.version.startswith("2")
        assert not CODES & tapalcatl.check(place).counts.keys()


@pytest.mark.parametrize("version", ['"3.0.0"', '"1.0.0"', '"20.0.0"', '"two"', '""', "3"])
def test_versions_that_are_not_known(tmp_path: Path, version: str) -> None:
    codes = ("document-version", "comment-version")
    for place, code in zip(places(tmp_path, version), codes, strict=True):
        with pytest.raises(UnsupportedVersionError, match=r"expected 2\.x") as caught:
            tapalcatl.open(place)
        assert version.strip('"') in str(caught.value)
        report = tapalcatl.check(place)
        assert report.counts == {code: 1}
        assert version.strip('"') in report.problems[0].message
    with pytest.raises(UnsupportedVersionError):
        tapalcatl.archive(tmp_path / "a.zip")


@pytest.mark.parametrize("number", [0, 1])
def test_newer_versions_are_read_with_a_warning(tmp_path: Path, number: int) -> None:
    place = places(tmp_path, '"2.1.0"')[number]
    with pytest.warns(TapalcatlWarning, match=r"'2\.1\.0' may say more") as caught:
        tileset = tapalcatl.open(place)
    assert tileset.metadata.version == "2.1.0"
    assert [Path(one.filename).name for one in caught] == [Path(__file__).name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert CODES & tapalcatl.check(place).counts.keys() == {"newer-version"}


def test_what_a_caller_says_counts(tmp_path: Path) -> None:
    _, place = places(tmp_path, '"3.0.0"')
    known = tapalcatl.TileSetMetadata(formats={"png": ()})
    tile = tapalcatl.archive(place, metadata=known).tile(1, 1, 0)
    assert tile is not None
    assert tile.data == tiles()[2].data
