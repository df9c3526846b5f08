"""TACO 2.0 in bytes: the two headers and the plans that open a container. No I/O here.

Integers are little-endian (6.3, 6.5).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from isal import isal_zlib

from comal import strictjson
from comal.errors import (
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    Problem,
    UnsupportedVersionError,
    counted,
    shown,
)
from comal.limits import DEFAULT_LIMITS, KIB, Limits
from comal.plan import ByteRange, Head, Piece, Plan, Tail, Wanted, Whole, cut, together
from comal.table import Footer, footer_plan
from comal.taco import spec
from comal.ziparchive.local import local_before, prefix_size

Container = Literal["zip", "folder", "tacocat", "tacocat-folder"]

# -- TACO_HEADER (6.3) ----------------------------------------------------------------------------
# The first entry of the ZIP, stored and never with an extra field, so that its payload starts at
# byte 41: a count, three zero bytes, and seven pairs (u64 offset, u64 size). The pairs are
# level0 .. levelN and then COLLECTION.json.

HEADER_NAME = "TACO_HEADER"
HEADER_OFFSET = 41
HEADER_PAYLOAD = 116
HEADER_END = HEADER_OFFSET + HEADER_PAYLOAD
_SLOTS = 7
_PAIRS = struct.Struct("<14Q")
_LOCAL = struct.Struct("<4sHHHHHIIIHH")

_GHOST_NAME = b"TACO_GHOST"
_COZIP_NAME = b"__cozip__"

# -- __TACOCAT__ (6.5) ----------------------------------------------------------------------------
# Magic, u32 version, u32 index of the deepest level, seven pairs: level0 .. level5, then the JSON,
# always in the last slot.

TACOCAT_MAGIC = b"TACOCAT\0"
TACOCAT_VERSION = 1
TACOCAT_HEADER = struct.Struct("<8sII14Q")

_LOCAL_PREFIX = prefix_size(len(spec.LEVEL_PATHS[0]))
"""Bytes to read before a slot's span so that they include the entry's local header."""
DEFAULT_TAIL = 256 * KIB
"""Bytes read at the end of a container; they hold the metadata of most archives."""
_LEVEL_TAIL = 64 * KIB
"""Bytes read at the end of a level for its footer, if that is not in the container's tail. A level
that is no longer than that tail is read whole, which saves the round trip for its columns."""


@dataclass(frozen=True, slots=True)
class Header:
    """Spans of the metadata of a container."""

    levels: tuple[ByteRange, ...]
    collection: ByteRange
    problems: tuple[Problem, ...] = ()
    """Faults of a header that can still be used."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A container whose header, collection and Parquet footers have been read."""

    container: Container
    collection: dict[str, Any]
    footers: tuple[Footer, ...]
    header: Header | None
    """None for containers that are folders."""
    pieces: tuple[Piece, ...] = ()
    """Bytes fetched from the container's own object, for reuse by later plans."""
    problems: tuple[Problem, ...] = ()


def pack_header(spans: Sequence[tuple[int, int]]) -> bytes:
    """The 116 bytes of TACO_HEADER for the spans of level0 .. levelN and COLLECTION.json."""
    return struct.pack("<B3x", len(spans)) + _pack_pairs(spans)


def _pack_pairs(spans: Sequence[tuple[int, int]]) -> bytes:
    padded = [*spans, *[(0, 0)] * (_SLOTS - len(spans))]
    return _PAIRS.pack(*(value for span in padded for value in span))


def parse_header(head: bytes, total: int, where: str) -> Header:
    """TACO_HEADER from the first 157 bytes of an object of `total` bytes.

    Raises for a count outside 2-7, slack that is not zero, or a span outside of the object.
    """
    payload, crc_is_right = _header_payload(head, where)
    count = payload[0]
    if count == 0:
        raise InvalidMetadataError(
            "TACO_HEADER is empty: the write was interrupted",
            where=f"{where} (byte {HEADER_OFFSET})",
            hint="write the archive again",
        )
    if not 2 <= count <= _SLOTS or any(payload[1:4]):
        raise InvalidMetadataError(
            "TACO_HEADER is damaged",
            where=f"{where} (bytes {HEADER_OFFSET}+4)",
            found=payload[:4].hex(),
            expected="a count of 2 to 7 and three zero bytes",
        )
    values = _PAIRS.unpack(payload[4:])
    pairs = list(zip(values[::2], values[1::2], strict=True))
    if any(offset or size for offset, size in pairs[count:]):
        raise InvalidMetadataError("TACO_HEADER has spans in unused slots", where=where)
    spans = [_span(pair, slot, total, where) for slot, pair in enumerate(pairs[:count])]
    problems: tuple[Problem, ...] = ()
    if not crc_is_right:
        problems = (Problem("taco-header-crc", where, "the checksum of TACO_HEADER is wrong"),)
    return Header(tuple(spans[:-1]), spans[-1], problems)


def _beginning(head: bytes) -> str:
    """What a file begins with, for messages."""
    return f"first bytes {head[:8].hex(' ')}" if head else "an empty file"


def _header_payload(head: bytes, where: str) -> tuple[bytes, bool]:
    if not head.startswith(b"PK\x03\x04") or len(head) < _LOCAL.size:
        raise NotThisFormatError("not a TACO archive", where=where, found=_beginning(head))
    fields = _LOCAL.unpack_from(head)
    crc, name_size, extra_size = fields[6], fields[9], fields[10]
    name = head[30 : 30 + name_size]
    if name == _COZIP_NAME:
        raise UnsupportedVersionError(
            "TACO 3 is another format", where=where, expected="a TACO 2 archive"
        )
    if name not in {HEADER_NAME.encode(), _GHOST_NAME}:
        raise NotThisFormatError(
            "not a TACO archive",
            where=where,
            found=f"a ZIP whose first entry is {shown(name.decode('latin-1'))}",
            expected=f"{HEADER_NAME} as the first entry",
        )
    # tacozip 0.5 wrote the same payload under another name of ten letters.
    start = 30 + name_size + (extra_size if name == _GHOST_NAME else 0)
    payload = head[start : start + HEADER_PAYLOAD]
    if len(payload) < HEADER_PAYLOAD or (name != _GHOST_NAME and extra_size):
        raise InvalidMetadataError(
            "TACO_HEADER is damaged", where=where, expected=f"{HEADER_PAYLOAD} bytes at byte 41"
        )
    return payload, isal_zlib.crc32(payload) == crc


def _span(pair: tuple[int, int], slot: int, total: int, where: str) -> ByteRange:
    offset, size = pair
    if size == 0 or offset > total or size > total - offset:
        raise InvalidMetadataError(
            f"slot {slot} of the header points outside the file",
            where=where,
            found=f"bytes {offset}+{size}",
            expected=f"a span within {total} bytes",
        )
    return ByteRange(offset, size)


def pack_tacocat_header(levels: Sequence[tuple[int, int]], collection: tuple[int, int]) -> bytes:
    """The 128 bytes that begin a ``__TACOCAT__`` file (6.5)."""
    pairs = [*levels, *[(0, 0)] * (_SLOTS - 1 - len(levels)), collection]
    return TACOCAT_MAGIC + struct.pack("<II", TACOCAT_VERSION, len(levels) - 1) + _pack_pairs(pairs)


def parse_tacocat_header(head: bytes, total: int, where: str) -> Header:
    """The header of a ``__TACOCAT__`` file of `total` bytes; errors as `parse_header`."""
    if not head.startswith(TACOCAT_MAGIC):
        raise NotThisFormatError("not a TACOCAT file", where=where, found=_beginning(head))
    if len(head) < TACOCAT_HEADER.size:
        raise InvalidMetadataError(
            "the TACOCAT header is cut short", where=where, found=f"{len(head)} bytes"
        )
    _, version, deepest, *values = TACOCAT_HEADER.unpack_from(head)
    if version != TACOCAT_VERSION:
        raise UnsupportedVersionError(
            "unknown version of TACOCAT", where=where, found=version, expected=TACOCAT_VERSION
        )
    if deepest >= spec.MAX_LEVELS:
        raise InvalidMetadataError(
            "the TACOCAT header names too many levels",
            where=where,
            found=deepest + 1,
            expected=f"at most {spec.MAX_LEVELS}",
        )
    pairs = list(zip(values[::2], values[1::2], strict=True))
    levels = tuple(_span(pairs[n], n, total, where) for n in range(deepest + 1))
    return Header(levels, _span(pairs[-1], _SLOTS - 1, total, where))


# -- row groups of an index ------------------------------------------------------------------------
# Key-value metadata of the level tables of a TACOCAT that comal writes; other readers ignore it.
# It says that the rows were compared with their ZIPs, and holds a box around the places of each row
# group. The rows and ends of the row groups tell whether the table is still the one described.

GROUPS_KEY = "comal:groups"
_NOWHERE = (math.nan,) * 4


def pack_groups(rows: Sequence[int], ends: Sequence[int], boxes: Sequence[Any]) -> str:
    """The value of `GROUPS_KEY`: per row group its rows, its end in the file, and a box or None."""
    return strictjson.dumps({"rows": rows, "ends": ends, "boxes": boxes}, indent=None).decode()


def parse_groups(footer: Footer, limits: Limits = DEFAULT_LIMITS) -> Any:
    """Boxes of the row groups, shape (row groups, 4), NaN if unknown; None without `GROUPS_KEY`.

    None also if that describes another table, as after the rows were written anew.
    """
    text = (footer.metadata.metadata or {}).get(GROUPS_KEY.encode())
    layout = footer.layout
    if text is None or not len(layout.rows):
        return None
    try:
        document = strictjson.loads(text, footer.where, limits)
        rows, ends = (np.array(document[key], np.int64) for key in ("rows", "ends"))
        boxes = np.array([box or _NOWHERE for box in document["boxes"]], np.float64)
    except (InvalidMetadataError, LookupError, TypeError, ValueError, OverflowError):
        return None
    starts = layout.start.min(axis=1)[1:]
    same = np.array_equal(rows, layout.rows) and np.array_equal(ends[:-1], starts)
    return boxes if same and boxes.shape == (len(rows), 4) else None


# -- plans that open a container ------------------------------------------------------------------


def open_plan(
    where: str, *, tail: int = DEFAULT_TAIL, limits: Limits = DEFAULT_LIMITS
) -> Plan[Opened]:
    """Open a ZIP or a ``__TACOCAT__`` file, told apart by the first bytes.

    One round trip of two requests if the last `tail` bytes hold all footers and the collection;
    otherwise one more, and a third for a footer beyond 64 KiB.
    """
    head, end = yield [Head(HEADER_END + _LOCAL_PREFIX), Tail(tail)]
    is_index = head.data.startswith(TACOCAT_MAGIC)
    parse = parse_tacocat_header if is_index else parse_header
    header = parse(head.data, head.total, where)
    kind: Container = "tacocat" if is_index else "zip"
    opened = yield from _read_metadata(kind, header, [head, end], where, limits)
    return opened


def _read_metadata(
    container: Container, header: Header, known: list[Piece], where: str, limits: Limits
) -> Plan[Opened]:
    spans = [*header.levels, header.collection]
    prefix = _LOCAL_PREFIX if container == "zip" else 0
    missing: list[Wanted] = []
    limits.check("json_bytes", header.collection.size, where)
    for span in header.levels:
        ending = span.size if span.size <= DEFAULT_TAIL else _LEVEL_TAIL
        here = cut(known, span.end - ending, ending) or cut(known, span.offset, span.size)
        if here is None:
            missing.append(ByteRange(span.end - ending, ending))
    start = max(0, header.collection.offset - prefix)
    if cut(known, start, header.collection.end - start) is None:
        missing.append(ByteRange(start, header.collection.end - start))
    if missing:
        known += yield missing
    raw = cut(known, header.collection.offset, header.collection.size)
    assert raw is not None, "what was missing has been fetched"
    footers = yield from together([footer_plan(span, known, limits) for span in header.levels])
    if container == "zip":
        names = [*spec.LEVEL_PATHS[: len(header.levels)], spec.COLLECTION]
        yield from _check_slots(spans, names, known, header, where)
    return Opened(
        container,
        strictjson.loads(raw.data, f"{where}: {spec.COLLECTION}", limits),
        tuple(footers),
        header,
        tuple(known),
        header.problems,
    )


def _check_slots(
    spans: Sequence[ByteRange],
    names: Sequence[str],
    known: Sequence[Piece],
    header: Header,
    where: str,
) -> Plan[None]:
    """Compare slots with the local headers before them: a slot must not point into a hole.

    Only headers fetched already are compared, so that opening costs no extra request. If the
    checksum of TACO_HEADER is wrong, the others are fetched too, as nothing else proves the spans.
    """
    starts = [max(0, span.offset - _LOCAL_PREFIX) for span in spans]
    before = [ByteRange(at, span.offset - at) for at, span in zip(starts, spans, strict=True)]
    heads = [cut(known, one.offset, one.size) for one in before]
    missing = [one for one, head in zip(before, heads, strict=True) if head is None]
    if header.problems and missing:
        fetched = iter((yield missing))
        heads = [next(fetched) if head is None else head for head in heads]
    for head, span, name in zip(heads, spans, names, strict=True):
        if head is not None:
            local_before(head.data, name, span.size, where=where)


def open_folder_plan(
    where: str,
    *,
    container: Container = "folder",
    limits: Limits = DEFAULT_LIMITS,
) -> Plan[Opened]:
    """Open a folder: COLLECTION.json, then the footers of all levels at once (6.1, 6.4).

    The folder form of TACOCAT (`container` ``tacocat-folder``) has its tables beside the JSON.
    """
    (piece,) = yield [Whole(limits.json_bytes, spec.COLLECTION)]
    document = strictjson.loads(piece.data, f"{where}/{spec.COLLECTION}", limits)
    pit = spec.PITSchema.from_dict(document.get(spec.PIT_SCHEMA), where=where)
    prefix = "" if container == "tacocat-folder" else "METADATA/"
    hrefs = [f"{prefix}level{level}.parquet" for level in range(pit.levels)]
    try:
        tails = yield [Tail(_LEVEL_TAIL, href) for href in hrefs]
    except ObjectNotFoundError as error:
        raise InvalidMetadataError(
            "a level of the dataset is missing",
            where=where,
            found=str(error.where),
            expected=f"{counted(len(hrefs), 'level')}, as {spec.PIT_SCHEMA} says",
        ) from error
    footers = yield from together(
        [
            footer_plan(ByteRange(0, tail.total, href), [tail], limits)
            for href, tail in zip(hrefs, tails, strict=True)
        ]
    )
    return Opened(container, document, tuple(footers), None)
