"""Laws of headers; what the layouts of all generations say is asked in `test_formats.py`."""

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


def test_one_round_trip_when_the_tail_holds_the_footer_else_two() -> None:
    items = [Item(f"i{n}", b"x") for n in range(50)]
    data = build.built(items, collection={"id": "x"}, trailing=bytes(5000))
    for tail, round_trips in ((20_000, 1), (100, 2)):
        found, source = opened(data, tail=tail)
        assert source.round_trips == round_trips
        assert found.footer.data.endswith(b"PAR1")
        assert found.collection == b'{"id": "x"}'


def test_footers_over_the_limit_are_not_fetched() -> None:
    data = build.built([Item("a", b"x")])
    with pytest.raises(LimitExceededError):
        opened(data, limits=Limits(table_bytes=100))
    taco = build.built([Item("a", b"x")], collection=b"{" + b" " * 500 + b"}")
    with pytest.raises(LimitExceededError):
        opened(taco, limits=Limits(json_bytes=100))
