"""Answers to requests for many ranges, honest ones and all others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_MANY = re.compile(r"bytes=\d+-\d+(,\d+-\d+)+")

Span = tuple[int, int]


def many_spans(header: str | None, size: int) -> list[Span] | None:
    """Starts and stops of a header with several ranges, without those behind the end."""
    if header is None or _MANY.fullmatch(header) is None:
        return None
    pairs = [one.split("-") for one in header.removeprefix("bytes=").split(",")]
    spans = [(int(first), min(size, int(last) + 1)) for first, last in pairs]
    return [span for span in spans if span[0] < span[1]]


@dataclass(frozen=True, slots=True)
class Form:
    """How a multipart answer is written; as it stands it is what nginx writes.

    Attributes
    ----------
    backwards
        Whether the last range comes first.
    merge
        Bytes between two ranges up to which they become one part.
    drop
        How many ranges are left out at the end.
    shift
        Added to the numbers of each ``Content-Range``.
    total
        Added to the size that each ``Content-Range`` names.
    said
        The boundary that ``Content-Type`` names, as it stands there.
    fields
        Further header fields of each part.
    garbage
        Bytes between each part and the delimiter behind it.
    endless
        What is repeated for ever: nothing, ``headers``, ``parts`` or ``body``.
    close
        Whether the answer ends as it should.
    cut
        The connection ends after so many bytes, if not negative.
    chunked
        Whether the answer comes in chunks of unknown length.
    span
        A ``Content-Range`` beside the parts, which has no business there.
    """

    backwards: bool = False
    merge: int = -1
    drop: int = 0
    shift: int = 0
    total: int = 0
    boundary: bytes = b"00000000000000000001"
    said: str | None = None
    newline: bytes = b"\r\n"
    preamble: bytes = b"\r\n"
    epilogue: bytes = b"\r\n"
    fields: bytes = b""
    garbage: bytes = b""
    endless: str = ""
    close: bool = True
    cut: int = -1
    chunked: bool = False
    span: str = ""
    kind: str = "multipart/byteranges"

    @property
    def content_type(self) -> str:
        said = self.said if self.said is not None else self.boundary.decode()
        return f"{self.kind}; boundary={said}"

    def body(self, data: bytes, spans: Sequence[Span]) -> Iterator[bytes]:
        """The answer in pieces; without end where it is endless."""
        parts = self._parts(spans)
        if self.endless == "parts":
            parts = parts * 1_000_000
        yield self.preamble
        for start, stop in parts:
            yield b"--" + self.boundary + self.newline
            yield from self._head(start, stop, len(data))
            yield data[start:stop]
            while self.endless == "body":
                yield b"x" * 65536
            yield self.garbage + self.newline
        if self.close:
            yield b"--" + self.boundary + b"--" + self.epilogue

    def _head(self, start: int, stop: int, size: int) -> Iterator[bytes]:
        yield b"Content-Type: application/octet-stream" + self.newline
        while self.endless == "headers":
            yield b"X-More: " + b"x" * 100 + self.newline
        first, last = start + self.shift, stop - 1 + self.shift
        span = f"Content-Range: bytes {first}-{last}/{size + self.total}".encode()
        yield self.fields + span + self.newline + self.newline

    def _parts(self, spans: Sequence[Span]) -> list[Span]:
        parts: list[Span] = []
        for start, stop in spans[: len(spans) - self.drop]:
            if parts and start - parts[-1][1] <= self.merge:
                parts[-1] = parts[-1][0], stop
            else:
                parts.append((start, stop))
        return parts[::-1] if self.backwards else parts


HONEST = Form()
