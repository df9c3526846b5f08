"""Finding and parsing the central directory, of sound archives and of hostile ones."""

from __future__ import annotations

import struct
from unittest.mock import ANY

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import MemorySource
from tests.ziparchive.archives import Entry, archive, contents, opened
from tests.zips import end_record, with_zip64_end

from comal.errors import InvalidMetadataError, LimitExceededError, NotThisFormatError
from comal.limits import Limits
from comal.plan import ByteRange, Piece, Tail, run
from comal.ziparchive import directory_plan
from comal.ziparchive.directory import headers

TWO = archive([Entry("first", b"1111"), Entry("second", b"22")])
START = TWO.index(b"PK\1\2")
END = TWO.index(b"PK\5\6")


MANY = archive([Entry(f"{row:0100}", b"") for row in range(1000)])
AT = MANY.index(b"PK\1\2")


@pytest.mark.parametrize(
    ("data", "count", "further"),
    [
        (TWO, 2, []),
        (MANY, 1000, [ByteRange(AT, len(MANY) - AT - 22)]),
        (archive([Entry("a", b"1")], comment=b"c" * 65_535), 1, [ANY]),
    ],
    ids=["small", "a long directory", "a long comment"],
)
def test_the_tail_is_fetched_and_what_it_lacks(
    data: bytes, count: int, further: list[object]
) -> None:
    source = MemorySource.of(data)
    assert len(run(directory_plan(), source.fetch)) == count
    first, *more = source.log
    assert first == [Tail(65_536)]
    assert more == ([further] if further else [])


def test_no_request_where_the_tail_is_known() -> None:
    source = MemorySource({"sub/x.zip": TWO})
    known = [Piece(TWO[-200:], len(TWO) - 200, len(TWO))]
    directory = run(directory_plan("sub/x.zip", known=known), source.fetch)
    assert (len(directory), source.requests) == (2, 0)
    run(directory_plan("sub/x.zip", tail=42, known=[Piece(b"", 0, 9)]), source.fetch)
    assert source.requests == 2


def test_find() -> None:
    directory = opened(archive([Entry(name, b"") for name in ("a", "b", "é")]))
    assert [directory.find(name) for name in ("a", "é", "z", "")] == [0, 2, -1, -1]
    found = directory.find_many(pa.array(["é", "z", "a", "a"]))
    assert found.dtype == np.int64
    assert found.tolist() == [2, -1, 0, 0]
    assert directory.find_many(pa.array([], pa.string())).tolist() == []
    assert directory.find_many(pa.chunked_array([["b"], ["x"]])).tolist() == [1, -1]
    assert directory.find_many(pa.array(["b"], pa.large_string())).tolist() == [1]


def test_of_several_entries_with_one_name_the_last_is_found() -> None:
    data = archive([Entry("aa", b"1"), Entry("bb", b"2"), Entry("cc", b"3")])
    directory = opened(data.replace(b"cc", b"aa"))
    assert not directory.unique
    assert [directory.find(name) for name in ("aa", "bb", "cc")] == [2, 1, -1]
    assert directory.find_many(pa.array(["bb", "aa", "cc"])).tolist() == [1, 2, -1]


def test_payload_offsets_without_extra_fields() -> None:
    assert opened(TWO).payload_offsets.tolist() == [35, 39 + 36]
    assert opened(archive([])).payload_offsets.tolist() == []


@pytest.mark.parametrize(
    ("name", "flags", "expected", "codes"),
    [
        (b"abc", 0, "abc", []),
        ("é!".encode(), 0x0800, "é!", []),
        ("é!".encode(), 0, "é!", []),
        (b"\x82bc", 0, "ébc", []),
        (b"\xffbc", 0x0800, "\xa0bc", ["zip-name-encoding"]),
    ],
)
def test_names_that_are_not_ascii(name: bytes, flags: int, expected: str, codes: list[str]) -> None:
    data = archive([Entry("xyz", b"1"), Entry("other", b"2")]).replace(b"xyz", name)
    at = data.index(b"PK\1\2")
    data = data[: at + 8] + struct.pack("<H", flags) + data[at + 10 :]
    directory = opened(data)
    assert directory.names.to_pylist() == [expected, "other"]
    assert directory.raw_names.to_pylist() == [name, b"other"]
    assert [problem.code for problem in directory.problems] == codes


def changed(offset: int, new: bytes, data: bytes = TWO) -> bytes:
    return data[:offset] + new + data[offset + len(new) :]


def with_end(**named: int) -> bytes:
    fields = {"count": 2, "size": END - START, "offset": START, "disk": 0, **named}
    return TWO[:END] + end_record(
        count=fields["count"], size=fields["size"], offset=fields["offset"], disk=fields["disk"]
    )


BROKEN: dict[str, bytes] = {
    "nothing": b"",
    "no archive": b"x" * 70_000,
    "end cut off": TWO[:-1],
    "only the end": TWO[END:],
    "start cut off": TWO[50:],
    "hole in the middle": TWO[:30] + TWO[40:],
    "count too large": with_end(count=3),
    "count too small": with_end(count=1),
    "count zero": with_end(count=0),
    "count largest": with_end(count=0xFFFF),
    "size too large": with_end(size=END - START + 1),
    "size too small": with_end(size=END - START - 1),
    "size beyond the file": with_end(size=0xFFFFFFFE),
    "size largest": with_end(size=0xFFFFFFFF),
    "offset beyond the file": with_end(offset=0xFFFFFFFE),
    "offset largest": with_end(offset=0xFFFFFFFF),
    "several volumes": with_end(disk=1),
    "another volume": changed(END + 4, b"\1\0"),
    "directory on another volume": changed(END + 6, b"\1\0"),
    "entries on another volume": changed(END + 8, b"\1\0"),
    "ZIP64: another volume": with_zip64_end(TWO, disk=1),
    "ZIP64: directory on another volume": with_zip64_end(TWO, first_disk=1),
    "ZIP64: entries on another volume": with_zip64_end(TWO, here=-1),
    "ZIP64: count": with_zip64_end(TWO, values=(2**63, END - START, START)),
    "ZIP64: size": with_zip64_end(TWO, values=(2, 2**63, START)),
    "ZIP64: offset": with_zip64_end(TWO, values=(2, END - START, 2**64 - 1)),
    "ZIP64: a huge directory": with_zip64_end(TWO, values=(2**40, 2**50, 0)),
    "ZIP64: all largest": with_zip64_end(TWO, values=(2**64 - 1, 2**64 - 1, 2**64 - 1)),
    "ZIP64: no record": with_zip64_end(TWO).replace(b"PK\6\6", b"PK\6\5"),
    "ZIP64: no locator": with_zip64_end(TWO).replace(b"PK\6\7", b"PK\6\5"),
    "signature of the first": changed(START, b"PK\1\3"),
    "signature of the second": changed(START + 51, b"XX"),
    "name too long": changed(START + 28, b"\xff\xff"),
    "extra too long": changed(START + 51 + 30, b"\1\0"),
    "member beyond the file": changed(START + 20, b"\0\1"),
    "header beyond the file": changed(START + 42, b"\0\1"),
    "header in the directory": changed(START + 42, struct.pack("<I", START)),
    "overlap": changed(START + 51 + 42, struct.pack("<I", 5)),
    "another size on one header": changed(START + 51 + 42, bytes(4)),
}


def test_the_comment_is_what_stands_behind_the_end_record() -> None:
    said = b"about PK\5\6 itself"
    directory = opened(archive([Entry("a", b"1")], comment=said))
    assert directory.comment == said
    assert opened(TWO).comment == b""


@pytest.mark.parametrize("case", BROKEN)
def test_broken_archives_are_refused(case: str) -> None:
    other = case in {"nothing", "no archive", "end cut off"}
    error = NotThisFormatError if other else InvalidMetadataError
    with pytest.raises(error) as caught:
        opened(BROKEN[case])
    assert type(caught.value) is error
    assert caught.value.where is not None


def test_every_truncation_is_refused() -> None:
    for size in range(len(TWO)):
        with pytest.raises((NotThisFormatError, InvalidMetadataError)):
            opened(TWO[:size])


def test_every_entry_outside_is_named() -> None:
    data = changed(START + 42, b"\0\0\1\0")
    with pytest.raises(InvalidMetadataError) as caught:
        opened(data)
    assert [problem.code for problem in caught.value.problems] == ["zip-span"]
    assert "first" in caught.value.problems[0].place


ODD: dict[str, tuple[bytes, list[str]]] = {
    "bytes behind": (TWO + b"trailing", ["zip-trailing-bytes"]),
    "bytes in front": (b"stub" * 9 + TWO, ["zip-prefix"]),
    "gap before the end": (TWO[:END] + b"gap" + TWO[END:], ["zip-gap"]),
    "end record without comment in the comment": (
        archive([Entry("first", b"1111"), Entry("second", b"22")], comment=b"PK\5\6" + bytes(17)),
        [],
    ),
    "empty end record in the comment": (
        archive([Entry("first", b"1111"), Entry("second", b"22")], comment=b"PK\5\6" + bytes(18)),
        ["zip-two-ends"],
    ),
    "ZIP64": (with_zip64_end(TWO), []),
    "ZIP64 that nothing needs": (with_zip64_end(TWO, plain=True), []),
    "ZIP64: another place": (with_zip64_end(TWO, stated=7), ["zip-zip64-locator"]),
    "ZIP64: other numbers than the short one": (
        with_zip64_end(TWO, plain=True, values=(3, 9, 9)),
        ["zip-zip64-mismatch"],
    ),
    "ZIP64: bytes in front": (b"stub" + with_zip64_end(TWO), ["zip-zip64-locator", "zip-prefix"]),
    "ZIP64: a locator of nothing": (
        with_zip64_end(TWO, plain=True, stated=2**64 - 1).replace(b"PK\6\6", b"XXXX"),
        ["zip-zip64-locator", "zip-gap"],
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_odd_archives_open_and_say_so(case: str) -> None:
    data, codes = ODD[case]
    directory = opened(data)
    assert [problem.code for problem in directory.problems] == codes
    assert contents(data) == {"first": b"1111", "second": b"22"}


def test_of_two_archives_in_a_row_the_last_counts() -> None:
    data = TWO + archive([Entry("new", b"n")], base_offset=len(TWO))
    assert contents(data) == {"new": b"n"}
    assert opened(data).problems == ()


def test_two_end_records_that_both_hold() -> None:
    # The second archive is the comment of the first: readers that search differently disagree.
    hidden = TWO[:END] + end_record(
        count=2, size=END - START, offset=START, comment=TWO[START:END] + bytes(22)
    )
    at = END + 22
    hidden = hidden[:-22] + end_record(count=2, size=END - START, offset=at)
    directory = opened(hidden)
    assert directory.start == at
    assert [problem.code for problem in directory.problems] == ["zip-two-ends"]


def entry_with_zip64(extra: bytes, *, size: int = 0xFFFFFFFF) -> bytes:
    """One entry whose sizes stand in an extra field of the directory."""
    local = archive([Entry("a", b"1234")])
    start = local.index(b"PK\1\2")
    central = bytearray(local[start : start + 47])
    struct.pack_into("<II", central, 20, size, size)
    struct.pack_into("<H", central, 30, len(extra))
    directory = bytes(central) + extra
    return local[:start] + directory + end_record(count=1, size=len(directory), offset=start)


def test_zip64_field_of_an_entry() -> None:
    other = struct.pack("<HH", 0x5455, 3) + b"abc"
    field = struct.pack("<HHQQ", 1, 16, 4, 4)
    for extra in (field, other + field, field + other):
        directory = opened(entry_with_zip64(extra))
        assert (directory.size.tolist(), directory.csize.tolist()) == ([4], [4])


@pytest.mark.parametrize(
    "extra",
    [
        b"",
        struct.pack("<HHQ", 1, 8, 4),
        struct.pack("<HHQQ", 1, 17, 4, 4),
        struct.pack("<HHQQ", 1, 16, 2**63, 4),
        struct.pack("<HHQQ", 1, 16, 4, 2**64 - 1),
        struct.pack("<HHQQ", 1, 16, 4, 5),
    ],
)
def test_zip64_field_that_lies(extra: bytes) -> None:
    with pytest.raises(InvalidMetadataError, match=r"entry|ZIP64"):
        opened(entry_with_zip64(extra))


@pytest.mark.parametrize("limits", [Limits(table_rows=1), Limits(table_bytes=60)])
def test_limits(limits: Limits) -> None:
    source = MemorySource.of(TWO)
    with pytest.raises(LimitExceededError):
        run(directory_plan(limits=limits), source.fetch)
    assert source.requests == 1


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.binary(max_size=60), st.binary(max_size=60)), max_size=30))
def test_headers_with_any_names(parts: list[tuple[bytes, bytes]]) -> None:
    """Names and extra fields may hold signatures; the chain decides."""
    data, expected = bytearray(), []
    for plain, extra in parts:
        name = plain.replace(b"\0", b"PK\1\2")
        expected.append(len(data))
        data += struct.pack("<4s24xHHH12x", b"PK\1\2", len(name), len(extra), 0) + name + extra
    starts, records = headers(bytes(data), "here")
    assert starts.tolist() == expected
    assert len(records) == len(expected)
