"""Answers that hold many ranges: ``multipart/byteranges`` (RFC 9110, 14.6), read within bounds.

How long a part is says its ``Content-Range``, so that its bytes may look like anything, also like
the boundary. A part is believed only where it is made of ranges that were asked for; no memory is
taken for what a header merely claims.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from comal.limits import KIB
from comal.storage.http_answer import parse_content_range

Read = Callable[[int], bytes]
"""Reads up to so many bytes; none at the end."""

_BLOCK = 64 * KIB
_SLACK = 64 * KIB
_HEADERS = 2 * KIB
_PREAMBLE = 4 * KIB
_PARAMETER = re.compile(
    r"""[ \t]*;[ \t]*(?:([!#$%&'*+.^_`|~0-9A-Za-z-]+)=("(?:[^"\\]|\\.)*"|[^\s;"]+))?"""
)
# RFC 2046, 5.1.1 allows fewer characters, but servers in use write brackets, too. No blank at
# the end: it could not be told from padding.
_BOUNDARY = re.compile(r"[ -~]{0,69}[!-~]")


class NotFittingError(Exception):
    """An answer that cannot be what was asked for. It never leaves `comal.storage`."""


def most_bytes(spans: Sequence[tuple[int, int]]) -> int:
    """How long an answer to ranges may be, with what holds its parts together.

    A server may send what lies between two ranges with them, or a range twice, but not much.
    """
    return _most_content(spans) + _PREAMBLE + len(spans) * _HEADERS


def _most_content(spans: Sequence[tuple[int, int]]) -> int:
    return 2 * sum(size for _, size in spans) + _SLACK


def boundary_of(content_type: str) -> bytes:
    """The boundary that a ``Content-Type`` names.

    Raises
    ------
    NotFittingError
        It is of another type, or names none, several or an impossible one.
    """
    kind, separator, rest = content_type.partition(";")
    if kind.strip().lower() != "multipart/byteranges":
        raise NotFittingError("another type")
    named = _parameters(separator + rest.rstrip(" \t")).get("boundary", [])
    if len(named) != 1 or _BOUNDARY.fullmatch(named[0]) is None:
        raise NotFittingError("no boundary")
    return named[0].encode("ascii")


def _parameters(text: str) -> dict[str, list[str]]:
    """Parameters of a media type by name (RFC 9110, 5.6.6)."""
    found: dict[str, list[str]] = {}
    at = 0
    while at < len(text):
        match = _PARAMETER.match(text, at)
        if match is None:
            raise NotFittingError("not a media type")
        name, value = match.groups()
        if name is not None:
            if value.startswith('"'):
                value = re.sub(r"\\(.)", r"\1", value[1:-1])
            found.setdefault(name.lower(), []).append(value)
        at = match.end()
    return found


def read_parts(
    read: Read, boundary: bytes, spans: Sequence[tuple[int, int]], total: int
) -> list[bytes | None]:
    """The bytes of each of `spans` from a multipart answer; None for those that it leaves out.

    Parameters
    ----------
    read
        Where the body comes from.
    boundary
        As `boundary_of` gives it.
    spans
        Offsets and sizes that were asked for, ascending and without overlap. Their parts may come
        in any order, twice, or several in one with what lies between them (RFC 9110, 15.3.7.2).
    total
        Size of the object in bytes.

    Raises
    ------
    NotFittingError
        The body is no such answer, or goes on where it should end.
    """
    stream = _Stream(read)
    asked = _Asked(spans)
    delimiter, last = b"--" + boundary, b"--" + boundary + b"--"
    line, left = b"", _PREAMBLE
    while line != delimiter:
        line = stream.line(left, any_end=True)
        left -= len(line) + 1
    # Each part brings at least one of the ranges.
    for _ in spans:
        start, size = _part_range(stream, total)
        asked.put(start, stream.take(asked.room(start, size)))
        # The end of line before a delimiter belongs to the delimiter (RFC 2046, 5.1.1).
        if stream.line(0):
            raise NotFittingError("a part longer than its range")
        line = stream.line(_HEADERS, any_end=True)
        if line == last:
            return asked.found
        if line != delimiter:
            raise NotFittingError("no boundary behind a part")
    raise NotFittingError("more parts than ranges")


def read_one(
    read: Read, start: int, size: int, spans: Sequence[tuple[int, int]]
) -> list[bytes | None]:
    """As `read_parts`, from a body that is a single range."""
    asked = _Asked(spans)
    asked.put(start, _Stream(read).take(asked.room(start, size)))
    return asked.found


def _part_range(stream: _Stream, total: int) -> tuple[int, int]:
    """Offset and size of a part from its header fields; its bytes come next."""
    left = _HEADERS
    found: tuple[int, int, int] | None = None
    while line := stream.line(left):
        left -= len(line) + 1
        name, colon, value = line.decode("latin-1").partition(":")
        if not colon or not name or name != name.strip():
            raise NotFittingError("a part with a broken header")
        if name.lower() == "content-range":
            if found is not None:
                raise NotFittingError("a part with two ranges")
            found = parse_content_range(value)
            if found is None:
                raise NotFittingError("a part with a broken range")
    if found is None or found[2] != total:
        raise NotFittingError("a part of nothing that was asked for")
    return found[0], found[1]


class _Asked:
    """Ranges that were asked for, and the bytes that have come for them."""

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.found: list[bytes | None] = [None] * len(spans)
        self._spans = spans
        self._starts = {offset: index for index, (offset, _) in enumerate(spans)}
        self._ends = {offset + size: index for index, (offset, size) in enumerate(spans)}
        self._left = _most_content(spans)

    def room(self, start: int, size: int) -> int:
        """The size of a part, if it may come: it begins with one range and ends with one."""
        first, last = self._starts.get(start), self._ends.get(start + size)
        self._left -= size
        if first is None or last is None or last < first or self._left < 0:
            raise NotFittingError("a part that was not asked for")
        return size

    def put(self, start: int, data: bytes) -> None:
        """Keep a part that `room` has let in."""
        for index in range(self._starts[start], self._ends[start + len(data)] + 1):
            offset, size = self._spans[index]
            begin = offset - start
            piece = data if size == len(data) else data[begin : begin + size]
            if self.found[index] not in (None, piece):
                raise NotFittingError("two parts that contradict each other")
            self.found[index] = piece


class _Stream:
    """Lines and bytes of a body; lines end with CRLF, or with LF as some servers write."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._kept = bytearray()
        self._end: int | None = None

    def line(self, most: int, *, any_end: bool = False) -> bytes:
        """The next line without its end and blanks before that, of at most `most` bytes.

        Unless `any_end`, all lines must end alike: else a byte that is lost beside a line break
        could be made up for by one of a part.
        """
        begin = 0
        while (end := self._kept.find(b"\n", begin, most + 2)) < 0:
            begin = len(self._kept)
            data = b"" if begin >= most + 2 else self._read(_BLOCK)
            if not data:
                return self._last_line(most)
            self._kept += data
        line = bytes(self._kept[:end]).removesuffix(b"\r")
        del self._kept[: end + 1]
        if not any_end:
            if self._end is None:
                self._end = end - len(line)
            if self._end != end - len(line) or b"\r" in line:
                raise NotFittingError("lines that end in different ways")
        return line.rstrip(b" \t")

    def _last_line(self, most: int) -> bytes:
        """What stands before the end of the body, where a last line needs no end."""
        if not 0 < len(self._kept) <= most:
            raise NotFittingError("an endless line, or none where one belongs")
        line = bytes(self._kept)
        self._kept.clear()
        return line.rstrip(b" \t")

    def take(self, size: int) -> bytes:
        """Exactly `size` bytes."""
        parts = [bytes(self._kept[:size])]
        del self._kept[:size]
        left = size - len(parts[0])
        while left:
            data = self._read(min(left, _BLOCK))
            if not data:
                raise NotFittingError("the answer ends within a part")
            parts.append(data)
            left -= len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)
