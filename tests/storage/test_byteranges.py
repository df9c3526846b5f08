"""Laws of answers with many ranges, and of the requests that ask for them."""

from __future__ import annotations

import email
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from comal.plan import ByteRange
from comal.storage.coalesce import bundled
from comal.storage.httpwire import (
    NotFittingError,
    boundary_of,
    most_bytes,
    read_parts,
)
from comal.storage.location import parse_href
from comal.storage.multirange import range_header
from comal.storage.remote import Ask
from tests.servers.multipart import HONEST, Form

# Data that looks like the frame around it.
ALPHABET = st.sampled_from(
    [b"\r", b"\n", b"-", b"--B", b"--B--", b"\r\n--B\r\n", b"x", b"\0", b"\xff"]
)
DATA = st.lists(ALPHABET, min_size=1, max_size=120).map(b"".join)


@st.composite
def cases(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int]]]:
    """Bytes, and ascending ranges of them as starts and stops."""
    data = draw(DATA)
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), min_size=2, max_size=16)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    return data, spans


def sized(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return [(start, stop - start) for start, stop in spans]


def reader(body: bytes, steps: list[int] | None = None) -> tuple[Callable[[int], bytes], list[int]]:
    """A body that comes in pieces of any size, and what was taken of it."""
    at, turn = [0], [0]

    def read(most: int) -> bytes:
        step = steps[turn[0] % len(steps)] if steps else most
        turn[0] += 1
        piece = body[at[0] : at[0] + min(step, most)]
        at[0] += len(piece)
        return piece

    return read, at


FORMS = st.builds(
    Form,
    boundary=st.sampled_from([b"B", b"00000000000000000001", b"a b:c=d", b"[lka9uw3]", b"B--"]),
    preamble=st.sampled_from([b"", b"\r\n"]),
    epilogue=st.sampled_from([b"", b"\r\n", b"\n", b"\r\nThe end"]),
    fields=st.sampled_from([b"", b"X-Other: 1\r\n", b'etag: "1"\r\n']),
)


@settings(max_examples=400, deadline=None)
@given(cases(), FORMS, st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_every_form_gives_the_bytes(
    case: tuple[bytes, list[tuple[int, int]]], form: Form, steps: list[int]
) -> None:
    data, spans = case
    assume(len(spans) > 1)
    read, _ = reader(b"".join(form.body(data, spans)), steps)
    found = read_parts(read, form.boundary, sized(spans), len(data))
    assert found == [data[start:stop] for start, stop in spans]


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=40, max_size=400), st.data())
def test_the_standard_library_sees_the_same_parts(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.sets(st.integers(0, len(data)), min_size=4, max_size=12)))
    spans = list(zip(cuts[::2], cuts[1::2], strict=False))
    form = replace(HONEST, boundary=b"3d6b6a416f9b5", epilogue=b"\r\n")
    assume(form.boundary not in data)
    body = b"".join(form.body(data, spans))
    header = f"Content-Type: {form.content_type}\r\n\r\n".encode()
    message = email.message_from_bytes(header + body)
    theirs = [part.get_payload(decode=True) for part in message.walk()][1:]
    read, _ = reader(body)
    assert read_parts(read, boundary_of(form.content_type), sized(spans), len(data)) == theirs


@settings(max_examples=600, deadline=None)
@given(cases(), st.data())
def test_a_broken_frame_gives_no_wrong_byte(
    case: tuple[bytes, list[tuple[int, int]]], draw: st.DataObject
) -> None:
    data, spans = case
    pieces = list(HONEST.body(data, spans))
    # Data stands in every fifth piece; everything else is frame.
    number = draw.draw(st.sampled_from([n for n in range(len(pieces)) if n % 5 != 4]))
    at = draw.draw(st.integers(0, max(0, len(pieces[number]) - 1)))
    new = draw.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=3)))
    pieces[number] = pieces[number][:at] + new + pieces[number][at + 1 :]
    read, _ = reader(b"".join(pieces))
    try:
        found = read_parts(read, HONEST.boundary, sized(spans), len(data))
    except NotFittingError:
        return
    assert found == [data[start:stop] for start, stop in spans]


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.binary(max_size=300), DATA))
def test_any_bytes_at_all(body: bytes) -> None:
    spans = [(0, 3), (10, 20), (50, 1)]
    for whole in (body, b"--B\r\n" + body):
        with suppress(NotFittingError):
            assert all(read_parts(reader(whole)[0], b"B", spans, 100))


@pytest.mark.parametrize(
    "body",
    [
        b"x" * 10_000_000,
        b"\r\n" * 5_000_000,
        b"--B\r\n" + b"X: " + b"x" * 10_000_000,
        b"--B\r\n" + b"X: x\r\n" * 1_000_000,
        b"--B\r\nContent-Range: bytes 0-2/100\r\n\r\nabc" + b"x" * 10_000_000,
        b"--B\r\nContent-Range: bytes 0-2/100\r\n\r\nabc\r\n--B" + b" " * 10_000_000,
        b"--B\r\nContent-Range: bytes 0-9999999/100\r\n\r\n" + b"x" * 10_000_000,
        b"--B\r\nContent-Range: bytes 0-9223372036854775806/100\r\n\r\n" + b"x" * 10_000_000,
        b"--B\r\nContent-Range: bytes 0-2/100\r\n\r\nabc\r\n" * 200_000,
    ],
)
def test_little_is_read_of_an_endless_answer(body: bytes) -> None:
    spans = [(0, 3), (10, 20)]
    read, taken = reader(body)
    with pytest.raises(NotFittingError):
        read_parts(read, b"B", spans, 100)
    assert taken[0] <= most_bytes(spans) + 65536


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"Content-Type: image/png\r\n",
        b"Content-Range bytes 0-2/100\r\n",
        b" Content-Range: bytes 0-2/100\r\n",
        b"Content-Range : bytes 0-2/100\r\n",
        b"Content-Range: bytes 0-2/100\r\ncontent-range: bytes 0-2/100\r\n",
        b"Content-Range: bytes 0-2/101\r\n",
        b"Content-Range: bytes 0-2/*\r\n",
        b"Content-Range: bytes */100\r\n",
        b"Content-Range: items 0-2/100\r\n",
        b"Content-Range: bytes 2-0/100\r\n",
        b"Content-Range: bytes 0-1/100\r\n",
        b"Content-Range: bytes 1-2/100\r\n",
        b"Content-Range: bytes 3-5/100\r\n",
        b"Content-Range: bytes 10-2/100\r\n",
        b"Content-Range: bytes -0-2/100\r\n",
    ],
)
def test_parts_that_were_not_asked_for(head: bytes) -> None:
    body = b"--B\r\n" + head + b"\r\nabc\r\n--B--\r\n"
    with pytest.raises(NotFittingError):
        read_parts(reader(body)[0], b"B", [(0, 3), (10, 20)], 100)


def test_names_of_fields_have_no_case() -> None:
    body = b"--B\r\nX:\r\nCONTENT-RANGE:bytes  0-2/100\r\n\r\nabc\r\n--B--"
    assert read_parts(reader(body)[0], b"B", [(0, 3)], 100) == [b"abc"]


def test_a_part_may_not_bring_much_that_nobody_wants() -> None:
    spans = [(0, 1), (1_000_000, 1)]
    body = b"--B\r\nContent-Range: bytes 0-1000000/2000000\r\n\r\n"
    read, taken = reader(body + bytes(1_000_001) + b"\r\n--B--")
    with pytest.raises(NotFittingError):
        read_parts(read, b"B", spans, 2_000_000)
    assert taken[0] <= len(b"--B\r\n") + 65536


@pytest.mark.parametrize(
    ("value", "boundary"),
    [
        ("multipart/byteranges; boundary=abc", b"abc"),
        ("Multipart/ByteRanges;BOUNDARY=abc", b"abc"),
        ('multipart/byteranges; boundary="a b"', b"a b"),
        ("multipart/byteranges; boundary=[lka9uw3et5vxy]", b"[lka9uw3et5vxy]"),
        ("multipart/byteranges; boundary=" + "x" * 70, b"x" * 70),
        ("multipart/byteranges; boundary=" + "x" * 71, None),
        ("multipart/byteranges; boundary=", None),
        ('multipart/byteranges; boundary=""', None),
        ('multipart/byteranges; boundary="a\\"b"', None),
        ("multipart/byteranges; charset=x; boundary=abc", None),
        ('multipart/byteranges; boundary="a', None),
        ("multipart/byteranges; boundary=a; boundary=a", None),
        ("multipart/byteranges; boundary=ä", None),
        ("multipart/byteranges; boundary = a", None),
        ("multipart/byteranges", None),
        ("multipart/mixed; boundary=abc", None),
        ("application/octet-stream", None),
        ("", None),
    ],
)
def test_boundaries(value: str, boundary: bytes | None) -> None:
    if boundary is None:
        with pytest.raises(NotFittingError):
            boundary_of(value)
    else:
        assert boundary_of(value) == boundary


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(-40, 3_000_000_000_000), st.integers(1, 3_000_000)), max_size=300
    ),
    st.integers(1, 64),
    st.sampled_from([1, 1000, 1 << 20, 8 << 20]),
)
def test_bundles(steps: list[tuple[int, int]], lanes: int, largest: int) -> None:
    spans: list[tuple[int, int]] = []
    at = 0
    for gap, size in steps:
        # A gap below nothing is an overlap, which cut ranges may have.
        at = max(spans[-1][0] if spans else 0, at + gap)
        spans.append((at, size))
        at += size
    found = bundled(spans, lanes, largest)
    assert [index for bundle in found for index in bundle] == list(range(len(spans)))
    for bundle in found:
        asked = [spans[index] for index in bundle]
        assert len(asked) <= 128
        if len(asked) > 1:
            assert sum(size for _, size in asked) <= largest
            ends = [start + size for start, size in asked]
            assert all(end <= start for end, (start, _) in zip(ends, asked[1:], strict=False))
            location = parse_href("http://x/y")
            header = range_header([Ask(location, ByteRange(*span), None) for span in asked])
            assert len(header) < 4096 + 8
    if sum(size for _, size in spans) <= min(largest, 1 << 20) and len(spans) <= 100:
        overlaps = sum(
            spans[n][0] < spans[n - 1][0] + spans[n - 1][1] for n in range(1, len(spans))
        )
        assert len(found) == bool(spans) + overlaps


def test_bytes_are_dealt_to_all_connections() -> None:
    spans = [(n * 100_000, 20_000) for n in range(1000)]
    assert len(bundled(spans, 64, 8 << 20)) == 20
    assert len(bundled(spans, 4, 8 << 20)) == 8
    large = [(n * 1_000_000, 500_000) for n in range(1000)]
    assert len(bundled(large, 64, 8 << 20)) == 67
    assert len(bundled(large, 1, 8 << 20)) == 63
