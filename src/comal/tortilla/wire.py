"""Tortilla and TACO v1 in bytes: headers of every generation and the plans that open a file.

No I/O here. Integers are unsigned, 64 bits, little-endian ("Format").

Three headers were published. Layout names are the first versions of the writer that made them:

- ``v0.5``, 200 bytes: magic, FO, FL, DP; with magic ``WX`` also CO and CL at byte 26.
- ``v0.1``, 200 bytes: magic, FO, FL, then the GDAL driver of all items in 24 bytes, DP at byte 42,
  and CO and CL at byte 50.
- ``v0.0``, 50 bytes: magic, FO, FL, then the driver in 32 bytes. The footer is Parquet or JSON.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from comal.errors import ComalError, InvalidMetadataError, NotThisFormatError
from comal.limits import DEFAULT_LIMITS, KIB, MIB, Limits
from comal.plan import ByteRange, Head, Piece, Plan, Tail, Wanted, cut

Layout = Literal["v0.5", "v0.1", "v0.0"]

TORTILLA_MAGIC = b"#y"
TACO_MAGIC = b"WX"
MAGICS = (TORTILLA_MAGIC, TACO_MAGIC)

HEADER_SIZE = 200
OLDEST_HEADER_SIZE = 50
SIZES: dict[Layout, int] = {
    "v0.5": HEADER_SIZE,
    "v0.1": HEADER_SIZE,
    "v0.0": OLDEST_HEADER_SIZE,
}
_START = struct.Struct("<2sQQ")
_V05 = struct.Struct("<2sQQQQQ")
_V01 = struct.Struct("<2sQQ24sQQQ")

_PRINTABLE = re.compile(rb"[\x20-\x7e]+")
_TEXT = re.compile(rb"[\x20-\x7e\t\r\n]+")

DEFAULT_TAIL = 64 * KIB
"""Bytes of a file's end that are read with its header: the footer of a few thousand items."""
CHILD_TAIL = 16 * KIB
"""The same for a nested file: published footers of nested files take 7 to 13 KB."""
CHILD_WHOLE = MIB
"""A single nested file up to this size is fetched whole: one request instead of two."""


@dataclass(frozen=True, slots=True)
class Header:
    """The spans in a file, relative to its beginning."""

    footer: ByteRange
    parts: int = 1
    """DP: number of files in the whole set. 0 occurs in broken files."""
    magic: bytes = TORTILLA_MAGIC
    layout: Layout = "v0.5"
    driver: str | None = None
    """DF: the GDAL driver of all items, if the header has one."""
    collection: ByteRange | None = None
    """The JSON that makes it a TACO v1."""

    @property
    def size(self) -> int:
        """Size of the header, and the least offset of an item."""
        return SIZES[self.layout]

    @property
    def is_taco(self) -> bool:
        """Whether this is a TACO v1."""
        return self.magic == TACO_MAGIC or self.collection is not None


def pack_header(header: Header) -> bytes:
    """The 200 bytes of a header of the current layout."""
    footer, collection = header.footer, header.collection or ByteRange(0, 0)
    spans = (footer.offset, footer.size, header.parts, collection.offset, collection.size)
    return _V05.pack(header.magic, *spans).ljust(HEADER_SIZE, b"\0")


def parse_header(head: bytes, total: int, where: str) -> Header:
    """The header from the first 200 bytes (or all) of a file of `total` bytes.

    The bytes distinguish the layouts: a number of parts never looks like the name of a driver.
    """
    if head[:2] not in MAGICS or _TEXT.fullmatch(head[2:18]):
        raise NotThisFormatError(
            "not a Tortilla file",
            where=where,
            found=f"first bytes {head[:8].hex(' ')}" if head else "an empty file",
            expected="the magic #y or WX and two offsets",
        )
    layout = _layout(head)
    size = SIZES[layout]
    if len(head) < size:
        raise InvalidMetadataError(
            "the header is cut short", where=where, found=f"{total} bytes", expected=f"{size} bytes"
        )
    magic, offset, length = _START.unpack_from(head)
    footer = _span("footer", offset, length, size, total, where)
    driver, parts, collection = None, 1, (0, 0)
    if layout == "v0.5":
        parts, *ending = _V05.unpack_from(head)[3:]
        if magic == TACO_MAGIC:
            collection = ending[0], ending[1]
    elif layout == "v0.1":
        field, parts, *ending = _V01.unpack_from(head)[3:]
        driver, collection = _driver(field), (ending[0], ending[1])
    else:
        driver = _driver(head[18:50])
    span = None
    if any(collection) or magic == TACO_MAGIC:
        span = _span("collection", *collection, size, total, where)
    return Header(footer, parts, magic, layout, driver, span)


def _layout(head: bytes) -> Layout:
    if not _PRINTABLE.fullmatch(head[18:26]):
        return "v0.5"
    return "v0.0" if _PRINTABLE.fullmatch(head[42:50]) else "v0.1"


def _driver(field: bytes) -> str:
    return field.decode("ascii", "replace").strip(" \0")


def _span(what: str, offset: int, size: int, start: int, total: int, where: str) -> ByteRange:
    # Python integers do not wrap, and nothing is allocated before this check.
    if offset < start or offset + size > total:
        raise InvalidMetadataError(
            f"the {what} lies outside the file",
            where=where,
            found=f"bytes {offset}+{size}",
            expected=f"a span within bytes {start} to {total}",
            hint="the file is cut short or damaged; fetch it again",
        )
    return ByteRange(offset, size)


# -- plans that open a file ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opened:
    """A file, or a nested file, whose header and footer are read."""

    header: Header
    footer: Piece
    """The bytes of the footer; its offset counts from the beginning of the object."""
    base: int
    """Offset of the file in its object; 0 unless it is nested."""
    size: int
    """Bytes of the file."""
    collection: bytes | None = None
    """The JSON of a TACO v1, not parsed yet."""
    kept: tuple[Piece, ...] = ()
    """The bytes of a nested file that was fetched whole: its items need no further request."""


def open_plan(
    where: str, *, tail: int = DEFAULT_TAIL, limits: Limits = DEFAULT_LIMITS
) -> Plan[Opened]:
    """Open a file that is an object of its own.

    One round trip of two requests if the last `tail` bytes contain footer and collection, else
    another one for the missing bytes.
    """
    head, end = yield [Head(HEADER_SIZE), Tail(tail)]
    file = _File(ByteRange(0, head.total), where, [head, end], limits)
    if file.missing:
        file.known += yield file.missing
    return file.opened()


class _File:
    """A file whose ends are read: the spans that are needed, and those still missing."""

    def __init__(self, span: ByteRange, where: str, known: list[Piece], limits: Limits) -> None:
        self.span, self.known = span, known
        head = known[0].slice(span.offset, min(HEADER_SIZE, span.size))
        self.header = parse_header(head, span.size, where)
        footer, collection = self.header.footer, self.header.collection
        limits.check("table_bytes", footer.size, f"{where}: footer")
        if collection is not None:
            limits.check("json_bytes", collection.size, f"{where}: collection")
        self.needed = [
            ByteRange(span.offset + one.offset, one.size)
            for one in (footer, collection)
            if one is not None
        ]
        self.missing: list[Wanted] = [
            one for one in self.needed if cut(known, one.offset, one.size) is None
        ]

    def opened(self, *, keep: bool = False) -> Opened:
        footer, *rest = (cut(self.known, one.offset, one.size) for one in self.needed)
        assert footer is not None, "what was missing has been fetched"
        collection = rest[0].data if rest and rest[0] is not None else None
        span, kept = self.span, self.known if keep else []
        whole = tuple(piece for piece in kept if piece.holds(span.offset, span.size))
        return Opened(self.header, footer, span.offset, span.size, collection, whole)


def children_plan(
    spans: Sequence[ByteRange], where: Sequence[str], *, limits: Limits = DEFAULT_LIMITS
) -> Plan[list[Opened | ComalError]]:
    """Open files that are items of one object, all in one round trip.

    The header gives the span of the footer, which is nearly always at the end of the file, so both
    ends are requested at once. Neighbours touch, so the end of one and the beginning of the next
    are one request; a single small file is fetched whole. Files with broken content yield their
    error.
    """
    single = len(spans) == 1
    wanted = [_ends(span, single=single) for span in spans]
    pieces = iter((yield [want for ends in wanted for want in ends]))
    files = [
        _child(span, name, [next(pieces) for _ in ends], limits)
        for span, name, ends in zip(spans, where, wanted, strict=True)
    ]
    sound = [file for file in files if isinstance(file, _File)]
    missing = [span for file in sound for span in file.missing]
    if missing:
        more = iter((yield missing))
        for file in sound:
            file.known += [next(more) for _ in file.missing]
    return [file.opened(keep=single) if isinstance(file, _File) else file for file in files]


def _ends(span: ByteRange, *, single: bool) -> list[Wanted]:
    if span.size <= (CHILD_WHOLE if single else CHILD_TAIL + HEADER_SIZE):
        return [span]
    return [
        ByteRange(span.offset, HEADER_SIZE),
        ByteRange(span.end - CHILD_TAIL, CHILD_TAIL),
    ]


def _child(span: ByteRange, where: str, known: list[Piece], limits: Limits) -> _File | ComalError:
    """A nested file, or the error of its content, which must not affect others."""
    try:
        return _File(span, where, known, limits)
    except NotThisFormatError as error:
        return InvalidMetadataError(
            "an item of format TORTILLA is not a Tortilla",
            where=where,
            found=error.found,
            expected="the magic #y or WX",
        )
    except ComalError as error:
        return error
