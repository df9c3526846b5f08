"""Laws of answers with many ranges."""

from __future__ import annotations

import email
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from comal.storage.httpwire import NotFittingError, check_parts, read_parts
from tests.servers.multipart import HONEST, Form

# Data that looks like the frame around it.
ALPHABET = st.sampled_from(
    [b"\r", b"\n", b"-", b"--B", b"--B--", b"\r\n--B\r\n", b"x", b"\0", b"\xff"]
)
DATA = st.lists(ALPHABET, min_size=1, max_size=120).map(b"".join)
Spans = list[tuple[int, int]]


@st.composite
def cases(draw: st.DrawFn, data: st.SearchStrategy[bytes] = DATA) -> tuple[bytes, Spans]:
    """Bytes, and ascending ranges of them as starts and stops."""
    found = draw(data)
    cuts = sorted(draw(st.sets(st.integers(0, len(found)), min_size=2, max_size=16)))
    return found, list(zip(cuts[::2], cuts[1::2], strict=False))


def parts_of(body: bytes, boundary: bytes, spans: Spans, total: int) -> list[bytes]:
    return read_parts(body, boundary, [(start, stop - start) for start, stop in spans], total)


FORMS = st.builds(
    Form,
    boundary=st.sampled_from([b"B", b"00000000000000000001", b"a b:c=d", b"[lka9uw3]", b"B--"]),
    preamble=st.sampled_from([b"", b"\r\n"]),
    epilogue=st.sampled_from([b"", b"\r\n", b"\n", b"\r\nThe end"]),
    fields=st.sampled_from([b"", b"X-Other: 1\r\n", b'etag: "1"\r\n']),
)


@settings(max_examples=300, deadline=None)
@given(cases(), FORMS)
def test_every_form_gives_the_bytes(case: tuple[bytes, Spans], form: Form) -> None:
    data, spans = case
    assume(len(spans) > 1)
    body = b"".join(form.body(data, spans))
    assert parts_of(body, form.boundary, spans, len(data)) == [data[a:b] for a, b in spans]


@settings(max_examples=200, deadline=None)
@given(cases(st.binary(min_size=40, max_size=400)))
def test_the_standard_library_sees_the_same_parts(case: tuple[bytes, Spans]) -> None:
    data, spans = case
    form = replace(HONEST, boundary=b"3d6b6a416f9b5", epilogue=b"\r\n")
    assume(form.boundary not in data and len(spans) > 1)
    body = b"".join(form.body(data, spans))
    header = f"Content-Type: {form.content_type}\r\n\r\n".encode()
    message = email.message_from_bytes(header + body)
    theirs = [part.get_payload(decode=True) for part in message.walk()][1:]
    boundary = check_parts({"Content-Type": form.content_type}, spans)
    assert parts_of(body, boundary, spans, len(data)) == theirs


@settings(max_examples=500, deadline=None)
@given(cases(), st.data())
def test_a_broken_frame_gives_no_wrong_byte(case: tuple[bytes, Spans], draw: st.DataObject) -> None:
    data, spans = case
    pieces = list(HONEST.body(data, spans))
    # Data stands in every fifth piece; everything else is frame.
    number = draw.draw(st.sampled_from([n for n in range(len(pieces)) if n % 5 != 4]))
    at = draw.draw(st.integers(0, max(0, len(pieces[number]) - 1)))
    new = draw.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=3)))
    pieces[number] = pieces[number][:at] + new + pieces[number][at + 1 :]
    with suppress(NotFittingError):
        found = parts_of(b"".join(pieces), HONEST.boundary, spans, len(data))
        assert found == [data[start:stop] for start, stop in spans]


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
        b"Content-Range: bytes 10-2/100\r\n",
        b"Content-Range: bytes -0-2/100\r\n",
        b"Content-Range: bytes 0-2/100\r\nX:" + b"x" * 3000 + b"\r\n",
    ],
)
def test_parts_that_were_not_asked_for(head: bytes) -> None:
    with pytest.raises(NotFittingError):
        read_parts(b"--B\r\n" + head + b"\r\nabc\r\n--B--\r\n", b"B", [(0, 3)], 100)


def test_names_of_fields_have_no_case() -> None:
    body = b"--B\r\nX:\r\nCONTENT-RANGE:bytes  0-2/100\r\n\r\nabc\r\n--B--"
    assert read_parts(body, b"B", [(0, 3)], 100) == [b"abc"]
