from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    NotThisFormatError,
    UnsupportedVersionError,
)
from comal.plan import ByteRange
from comal.taco import wire
from tests.support import SHARED

FIXTURES = SHARED / "fixtures" / "taco"


def head(
    payload: bytes, name: bytes = b"TACO_HEADER", *, crc: int | None = None, extra: bytes = b""
) -> bytes:
    """The first bytes of an archive, laid out by hand."""
    crc = zlib.crc32(payload) if crc is None else crc
    fields = (10, 0, 0, 0, 0x21, crc, len(payload), len(payload), len(name), len(extra))
    return b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", *fields) + name + extra + payload


def payload(*spans: tuple[int, int], count: int | None = None) -> bytes:
    values = [value for span in spans for value in span]
    values += [0] * (14 - len(values))
    return struct.pack("<B3x14Q", len(spans) if count is None else count, *values)


# What a real archive's header holds, byte for byte.
FLAT = payload((4739, 6351), (11135, 3394))


def test_header_of_a_reference_file() -> None:
    header = wire.parse_header(head(FLAT), 15028, "flat.tacozip")
    assert header.levels == (ByteRange(4739, 6351),)
    assert header.collection == ByteRange(11135, 3394)
    assert header.problems == ()
    assert wire.pack_header([(4739, 6351), (11135, 3394)]) == FLAT
    assert head(FLAT).index(FLAT) == wire.HEADER_OFFSET == 41
    assert len(head(FLAT)) == wire.HEADER_END == 157


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 2**40), st.integers(1, 2**30)), min_size=2, max_size=7))
def test_header_round_trip(spans: list[tuple[int, int]]) -> None:
    header = wire.parse_header(head(wire.pack_header(spans)), 2**62, "x")
    assert [(s.offset, s.size) for s in (*header.levels, header.collection)] == spans


def test_wrong_checksum_is_a_problem_and_no_refusal() -> None:
    header = wire.parse_header(head(FLAT, crc=1), 15028, "x")
    assert [problem.code for problem in header.problems] == ["taco-header-crc"]


def test_ghost_of_an_older_writer_is_read_through_its_local_header() -> None:
    header = wire.parse_header(head(FLAT, b"TACO_GHOST"), 15028, "x")
    assert header.collection == ByteRange(11135, 3394)


BROKEN = [
    (head(payload(count=0)), "interrupted"),
    (head(payload((157, 10), count=1)), "damaged"),
    (head(payload((157, 10), count=8)), "damaged"),
    (head(payload((157, 10), count=255)), "damaged"),
    (head(b"\x02\x01" + FLAT[2:]), "damaged"),
    (head(payload((157, 10), (167, 10), (177, 1), count=2)), "unused slots"),
    (head(payload((157, 10), (99_999, 10))), "outside"),
    (head(payload((157, 10), (2**64 - 1, 2**64 - 1))), "outside"),
    (head(payload((157, 0), (167, 10))), "outside"),
    (head(payload((157, 2**64 - 5), (167, 10))), "outside"),
    (head(FLAT)[:100], "damaged"),
    (head(FLAT, extra=b"\0" * 4), "damaged"),
]


@pytest.mark.parametrize(("data", "text"), BROKEN)
def test_broken_header(data: bytes, text: str) -> None:
    with pytest.raises(InvalidMetadataError, match=text):
        wire.parse_header(data, 15028, "x.tacozip")


FOREIGN = [
    (b"", NotThisFormatError),
    (b"PK\x03\x04", NotThisFormatError),
    (b"PAR1" + bytes(200), NotThisFormatError),
    (head(FLAT, b"first.txt"), NotThisFormatError),
    (head(FLAT, b"__cozip__"), UnsupportedVersionError),
]


@pytest.mark.parametrize(("data", "kind"), FOREIGN)
def test_foreign_bytes(data: bytes, kind: type[ComalError]) -> None:
    with pytest.raises(kind):
        wire.parse_header(data, 15028, "x")


@given(st.binary(max_size=200))
def test_any_bytes_give_a_header_or_our_error(data: bytes) -> None:
    for parse in (wire.parse_header, wire.parse_tacocat_header):
        for start in (b"", head(b"")[:41], wire.TACOCAT_MAGIC):
            try:
                header = parse(start + data, 1000, "x")
            except ComalError:
                continue
            assert all(span.end <= 1000 for span in (*header.levels, header.collection))


def test_tacocat_header_of_a_reference_file() -> None:
    levels, collection = [(128, 5361), (5489, 2842), (8331, 5672)], (14003, 3224)
    packed = wire.pack_tacocat_header(levels, collection)
    assert len(packed) == 128
    assert packed[:16].hex() == "5441434f434154000100000002000000"
    header = wire.parse_tacocat_header(packed, 17227, "x")
    assert [(s.offset, s.size) for s in header.levels] == levels
    assert (header.collection.offset, header.collection.size) == collection


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda b: b[:60], InvalidMetadataError),
        (lambda b: b[:8] + struct.pack("<I", 2) + b[12:], UnsupportedVersionError),
        (lambda b: b[:12] + struct.pack("<I", 6) + b[16:], InvalidMetadataError),
        (lambda b: b[:16] + struct.pack("<Q", 2**63) + b[24:], InvalidMetadataError),
        (lambda b: b"X" + b[1:], NotThisFormatError),
    ],
)
def test_broken_tacocat_header(change: object, kind: type[ComalError]) -> None:
    assert callable(change)
    packed = wire.pack_tacocat_header([(128, 10)], (138, 10))
    with pytest.raises(kind):
        wire.parse_tacocat_header(change(packed), 1000, "x")
