"""Headers of every generation, written and read from one table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import ComalError, LimitExceededError
from comal.limits import Limits
from comal.plan import ByteRange, run
from comal.tortilla.wire import Header, Opened, open_plan, pack_header, parse_header
from tests.fakes import MemorySource
from tests.tortilla import build
from tests.tortilla.build import Item

HEADERS = [
    # First bytes of published files; the rest of each header is zero.
    (
        Header(ByteRange(121402, 8286)),
        129688,
        bytes.fromhex("23793ada0100000000005e200000000000000100000000000000"),
    ),
    (
        Header(ByteRange(117753, 16027), magic=b"WX", collection=ByteRange(133780, 1765)),
        135545,
        bytes.fromhex(
            "5758f9cb0100000000009b3e0000000000000100000000000000940a020000000000e506000000000000"
        ),
    ),
    (
        Header(ByteRange(44293, 6099), layout="v0.1", driver="GTiff"),
        50392,
        bytes.fromhex("237905ad000000000000d317000000000000")
        + b"GTiff".ljust(24)
        + (1).to_bytes(8, "little"),
    ),
    (
        Header(
            ByteRange(300, 40), parts=3, layout="v0.1", driver="GTiff", collection=ByteRange(340, 7)
        ),
        347,
        b"#y"
        + (300).to_bytes(8, "little")
        + (40).to_bytes(8, "little")
        + b"GTiff".ljust(24)
        + b"".join(number.to_bytes(8, "little") for number in (3, 340, 7)),
    ),
]


@pytest.mark.parametrize(("header", "total", "head"), HEADERS)
def test_bytes_to_header_and_back(header: Header, total: int, head: bytes) -> None:
    assert parse_header(head.ljust(200, b"\0"), total, "x") == header
    if header.layout == "v0.5":
        assert pack_header(header) == head.ljust(200, b"\0")


def test_the_oldest_header_has_50_bytes() -> None:
    header = Header(ByteRange(44193, 93), layout="v0.0", driver="GTiff")
    packed = b"#y" + bytes.fromhex("a1ac000000000000 5d00000000000000") + b"GTiff".ljust(32)
    assert parse_header(packed + b"II*\0", 44286, "x") == header
    assert header.size == 50


@settings(max_examples=200)
@given(st.binary(max_size=220), st.integers(0, 2**65))
def test_any_bytes_are_a_header_or_an_error_of_ours(tail: bytes, total: int) -> None:
    for magic in (b"#y", b"WX", b""):
        head = (magic + tail)[:200]
        try:
            header = parse_header(head, max(total, len(head)), "x")
        except ComalError:
            continue
        assert header.footer.end <= max(total, len(head))


@settings(max_examples=100)
@given(
    # Beyond, the bytes of both could be letters: a text that happens to begin with the magic.
    st.integers(200, 2**59),
    st.integers(0, 2**59),
    st.integers(0, 2**32),
    st.booleans(),
)
def test_written_headers_are_read(offset: int, size: int, parts: int, taco: bool) -> None:
    collection = ByteRange(offset + size, 9) if taco else None
    magic = b"WX" if taco else b"#y"
    header = Header(ByteRange(offset, size), parts, magic, collection=collection)
    assert parse_header(pack_header(header), 2**64, "x") == header


def opened(data: bytes, **how: object) -> tuple[Opened, MemorySource]:
    source = MemorySource.of(data)
    return run(open_plan("x", **how), source.fetch), source  # type: ignore[arg-type]


def test_one_round_trip_when_the_tail_holds_the_footer() -> None:
    data = build.built([Item(f"i{n}", bytes(1000)) for n in range(50)], collection={"id": "x"})
    found, source = opened(data)
    assert (source.round_trips, source.requests) == (1, 2)
    assert found.collection == b'{"id": "x"}'


def test_two_round_trips_when_the_footer_is_larger() -> None:
    data = build.built([Item(f"i{n}", b"x") for n in range(50)], trailing=bytes(5000))
    found, source = opened(data, tail=100)
    assert source.round_trips == 2
    assert found.footer.data.endswith(b"PAR1")


def test_footers_over_the_limit_are_not_fetched() -> None:
    data = build.built([Item("a", b"x")])
    with pytest.raises(LimitExceededError):
        opened(data, limits=Limits(table_bytes=100))
    taco = build.built([Item("a", b"x")], collection=b"{" + b" " * 500 + b"}")
    with pytest.raises(LimitExceededError):
        opened(taco, limits=Limits(json_bytes=100))
