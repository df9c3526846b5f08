"""Tiles found by name in a directory as it stands, and by columns: the same, whatever is odd."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import ComalError
from comal.plan import Piece, Tail, run
from comal.tapalcatl.reading import index as module
from comal.tapalcatl.reading.index import ArchiveIndex, index_plan, near_index
from comal.tapalcatl.wire import key_tile
from comal.ziparchive import directory_bytes_plan, parse_directory
from comal.ziparchive.raw import regular
from tests.tapalcatl.making import data_of
from tests.tapalcatl.odd import METADATA, Entry, appended, archive, tiles
from tests.tapalcatl.reading.test_odd import BROKEN, READ

pytestmark = pytest.mark.filterwarnings("ignore:.*more than once:comal.tapalcatl.TapalcatlWarning")

NAMES = [b"0/0/0.png", b"1/0/0.png", b"1/1/0.png", b"1/0/1.png", b"1/1/1.png"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go on by name for as long as it works."""
    monkeypatch.setattr(module, "_BY_NAME", 1 << 30)
    monkeypatch.setattr(module, "_BY_NAME_IN_FEW", 1 << 30)


def fetcher(data: bytes) -> Any:
    def fetch(wanted: Any) -> list[Piece]:
        pieces = []
        for want in wanted:
            start = max(0, len(data) - want.size) if isinstance(want, Tail) else want.offset
            pieces.append(Piece(data[start : start + want.size], start, len(data)))
        return pieces

    return fetch


def by_columns(data: bytes, prefix: bytes) -> ArchiveIndex:
    """The long way, whatever the archive."""
    content, end = run(directory_bytes_plan(where="a"), fetcher(data))
    return ArchiveIndex(parse_directory(content, end, "a", lenient=True), end, "a", prefix)


def outcome(make: Any) -> tuple[ArchiveIndex | None, str]:
    try:
        return make(), ""
    except ComalError as error:
        return None, f"{type(error).__name__}: {error}"


TILES = [(z, x, y) for z in range(3) for x in range(1 << z) for y in range(1 << z)]
SUFFIXES = [".png", "", "@2x.png", ".pn", "png", ".png.png", ".mvt", "/0.png", "@2.png", "\xff"]


def compare(data: bytes, prefix: bytes = b"") -> ArchiveIndex | None:
    """Hold both ways against one another; the index by name where there is one."""
    expected, error = outcome(lambda: by_columns(data, prefix))
    found, same_error = outcome(lambda: run(index_plan("a", prefix=prefix), fetcher(data)))
    assert same_error == error
    near, _ = outcome(lambda: near_index(fetcher(data), "a", prefix=prefix))
    if expected is None or found is None:
        assert near is None
        return None
    for other in (found, near):
        if other is None:
            continue
        for suffix in {*SUFFIXES, *expected.columns.keys}:
            known = map(key_tile, expected.columns.keys.get(suffix, ((),))[0])
            for tile in [*known, *TILES]:
                assert other.lookup(suffix, tile) == expected.lookup(suffix, tile)
        assert other.suffixes == expected.suffixes
        assert (other.total, other.end, other.count) == (
            expected.total,
            expected.end,
            expected.count,
        )
        assert other.metadata == expected.metadata
        assert len(other) == len(expected)
        assert other.problems == expected.problems
        assert (other.columns.lowest, other.columns.highest) == (
            expected.columns.lowest,
            expected.columns.highest,
        )
        assert np.array_equal(other.columns.table, expected.columns.table)
        assert other.columns.comments == expected.columns.comments
    content, end = run(directory_bytes_plan(where="a"), fetcher(data))
    if regular(content, end) is None:
        assert near is None
        return None
    return found


MORE: dict[str, bytes] = {
    "comments, extra fields, times": archive(
        [
            Entry(b"0/0/0.png", b"a", comment=b'{"X-A":"1"}', extra=b"UT\5\0\1\0\0\1\2"),
            Entry(b"1/0/0.png", b"b", extra=b"UT\1\0\1", date=0, time=0),
            Entry(b"1/0/1.png", b"c", comment=b"1/1/1.png", date=0xFFFF, time=0xFFFF),
        ]
    ),
    "a date after 2106": archive([Entry(b"0/0/0.png", b"a", date=127 << 9 | 12 << 5 | 31)]),
    "a name twice": archive([*tiles(), Entry(b"0/0/0.png", b"new")]),
    "shared": archive([Entry(b"0/0/0.png", b"s"), Entry(b"1/0/0.png", b"s", share=True)]),
    "an update": appended(archive(tiles()), [Entry(b"1/1/1.png", b"new")], tiles()[:4]),
    "names in names": archive([Entry(b"1%d/0/0.png" % i, b"x") for i in range(20)] + tiles()),
    "a hundred names in names": archive([Entry(b"%d0/0/0.png" % i, b"") for i in range(1, 300)]),
    "a header in a comment": archive(
        [
            Entry(b"0/0/0.png", b"x"),
            Entry(b"1/0/0.png", b"y", comment=b"PK\1\2" + bytes(42) + b"1/1/1.png"),
        ]
    ),
    "a header in a name": archive([Entry(b"PK\1\2" + bytes(42) + b"1/1/1.png", b"y"), *tiles()]),
    "no entries": archive([]),
    "only other names": archive([Entry(b"README.md", b""), Entry(b"0/0/", b"")]),
    "other extensions": archive([*tiles(), Entry(b"2/0/0@2x.jpg", b"x"), Entry(b"2/1/0", b"x")]),
    "a digit before the extension": archive([*tiles(), Entry(b"2/0/0.1.png", b"x")]),
    "larger than its archive": archive([*tiles(), Entry(b"2/0/0.png", b"", csize=1 << 20)]),
    "bzip2 and more": archive([Entry(b"0/0/0.png", b"x", method=0xFFFF), *tiles()]),
    "masked": archive([Entry(b"0/0/0.png", b"x", flags=0x2000), *tiles()]),
    "a name that is no UTF-8": archive([Entry(b"\xff\xfe", b"", flags=0x800), *tiles()]),
    "two hundred": archive([Entry(b"8/%d/3.png" % i, b"x" * (i % 7)) for i in range(256)]),
    "a thousand": archive([Entry(b"10/%d/3.png" % i, b"x" * (i % 7)) for i in range(1000)]),
    "a thousand backwards": archive([Entry(b"10/%d/3.png" % i, b"") for i in range(999, -1, -1)]),
    "one of three hundred too far": archive(
        [Entry(b"9/%d/3.png" % i, b"", offset=1 << 28 if i == 9 else None) for i in range(300)]
    ),
}
CORPUS = {
    **{f"read, {name}": data for name, data in READ.items()},
    **{
        f"broken, {name}": archive([*tiles()[:2], entry, *tiles()[3:]])
        for name, entry in BROKEN.items()
    },
    **MORE,
}


@pytest.mark.parametrize("name", CORPUS)
def test_both_ways_agree(name: str) -> None:
    compare(CORPUS[name])
    compare(CORPUS[name], b"dark/")
    compare(CORPUS[name], b"1/")


def test_usual_archives_are_looked_up_by_name() -> None:
    for name in ("read, plain", "read, deflated", "read, not sorted", "a name twice", "shared"):
        assert compare(CORPUS[name]) is not None, name
    told = ("comments, extra fields, times", "a date after 2106", "masked")
    for name in ("a thousand", "an update", *told):
        assert compare(CORPUS[name]) is not None, name
    for name in ("a header in a comment", "read, wrong count in the end record"):
        assert compare(CORPUS[name]) is None, name


PARTS = st.sampled_from([b"0", b"1", b"3", b"01", b"", b"12", b"-1", b"999"])
ENTRY_NAMES = st.one_of(
    st.sampled_from(NAMES),
    st.builds(
        lambda z, x, y, end: z + b"/" + x + b"/" + y + end,
        PARTS,
        PARTS,
        PARTS,
        st.sampled_from([b".png", b"", b"@2x.png", b".mvt", b".1.png", b"@x", b".p ng"]),
    ),
    st.sampled_from([b"dark/0/0/0.png", b"a", b"PK\1\2", b"", b"\xff"]),
)
ENTRIES = st.builds(
    Entry,
    ENTRY_NAMES,
    st.binary(max_size=40),
    deflate=st.booleans(),
    method=st.sampled_from([None, None, None, 0, 8, 12, 0x4000, 0xFFFF]),
    flags=st.sampled_from([0, 0, 0, 8, 1, 0x40, 0x800, 0x2000]),
    csize=st.sampled_from([None, None, None, None, 0, 70, 1 << 20, 0xFFFFFFFF]),
    size=st.sampled_from([None, None, None, None, 0, 1 << 31, 0xFFFFFFFF]),
    offset=st.sampled_from([None, None, None, None, None, 0, 31, 1 << 20, 0xFFFFFFFF]),
    extra=st.sampled_from(
        [b"", b"", b"UT\5\0\1\1\2\3\4", b"UT", struct.pack("<HHQQQ", 1, 24, 9, 9, 0)]
    ),
    comment=st.sampled_from([b"", b"", b"0/0/0.png", b"PK\1\2", b'{"X-A":"1"}']),
    local_name=st.sampled_from([None, None, b"x"]),
    share=st.booleans(),
    date=st.integers(0, 0xFFFF),
    time=st.integers(0, 0xFFFF),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(ENTRIES, max_size=12),
    st.sampled_from([METADATA, b"", b"PK\5\6" + bytes(18), b"\xff{"]),
    st.sampled_from([b"", b"stub"]),
    st.booleans(),
    st.sampled_from([b"", b"gap"]),
    st.sampled_from([b"", b"", b"behind"]),
    st.sampled_from([None, None, 0, 3]),
    st.sampled_from([b"", b"", b"dark/"]),
)
def test_both_ways_agree_on_anything(
    entries: list[Entry],
    comment: bytes,
    stub: bytes,
    shifted: bool,
    gap: bytes,
    behind: bytes,
    count: int | None,
    prefix: bytes,
) -> None:
    data = archive(
        entries, comment, stub=stub, shifted=shifted, gap=gap, behind=behind, count=count
    )
    compare(data, prefix)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(CORPUS)), st.data())
def test_both_ways_agree_on_broken_bytes(name: str, draw: st.DataObject) -> None:
    data = bytearray(CORPUS[name][-2_000:])
    for _ in range(draw.draw(st.integers(1, 3))):
        at = draw.draw(st.integers(0, max(0, len(data) - 1)))
        if data:
            data[at] = draw.draw(st.integers(0, 255))
    compare(bytes(CORPUS[name][:-2_000] + bytes(data)))


def test_an_end_record_in_a_long_comment_is_told_apart(tmp_path: Path) -> None:
    """The first tail of a file is short; the true end record stands before it."""
    fakes = {
        "of nothing": b"PK\5\6" + bytes(18),
        "of a directory that is none": struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 1, 1, 50, 9, 0),
    }
    for name, fake in fakes.items():
        path = tmp_path / f"{name}.zip"
        path.write_bytes(archive(tiles(), METADATA + b" " * 9_000 + fake))
        with tapalcatl.open(path) as tileset:
            assert data_of(tileset, 1, 1, 1) == tiles()[4].data


def test_after_some_tiles_columns_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BY_NAME_IN_FEW", 3)
    index = run(index_plan("a"), fetcher(CORPUS["read, plain"]))
    found = [index.lookup(".png", (1, 1, 1)) for _ in range(6)]
    assert found == found[:1] * 6
    assert found[0] is not None
    assert index._regular is None
