"""The footer of a Parquet file that is a span of an object, checked before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidMetadataError, LimitExceededError, translated
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Piece, Plan
from comal.table.layout import Layout, read_layout
from comal.table.schema import check_schema, plain_schema

TAIL = 65_536
_MAGIC = b"PAR1"
_ENCRYPTED = b"PARE"

# What pyarrow raises for bytes that are not what they claim to be. Nothing but pyarrow runs where
# this is used, so these kinds cannot hide a mistake of ours.
BROKEN: dict[type[BaseException], type[ComalError]] = {
    pa.ArrowMemoryError: LimitExceededError,
    pa.ArrowException: InvalidMetadataError,
    OSError: InvalidMetadataError,
    ValueError: InvalidMetadataError,
    OverflowError: InvalidMetadataError,
    MemoryError: LimitExceededError,
    KeyError: InvalidMetadataError,
    IndexError: InvalidMetadataError,
    TypeError: InvalidMetadataError,
    NotImplementedError: InvalidMetadataError,
}


@dataclass(frozen=True, slots=True)
class Footer:
    """What a Parquet file says about itself."""

    metadata: Any
    """`pyarrow.parquet.FileMetaData`."""
    schema: Any
    """Arrow schema in plain types; see `schema.plain_schema`."""
    layout: Layout
    """Row groups and column chunks, inside of the file."""
    span: ByteRange
    """The whole file as a span of its object."""
    tail: Piece
    """The end of the file with the footer, so that nothing needs to fetch it again."""


def where_of(span: ByteRange) -> str:
    """How messages call a table."""
    return f"{span.href or 'table'} (bytes {span.offset}+{span.size})"


def footer_plan(
    span: ByteRange, known: Sequence[Piece] = (), limits: Limits = DEFAULT_LIMITS
) -> Plan[Footer]:
    """Fetch and check the footer of the Parquet file that fills `span`.

    No request when `known` holds the footer, else one; a second for a footer over 64 KiB.

    Raises
    ------
    InvalidMetadataError
        Not a Parquet file, a broken footer, counts that contradict each other, column names with
        control characters or twice.
    LimitExceededError
        Footer, columns, names or nesting over `limits`.
    """
    where = where_of(span)
    if span.size < 12:
        raise InvalidMetadataError(
            "not a Parquet file", where=where, found=f"{span.size} bytes", expected="12 at least"
        )
    pieces = list(known)
    end = _held(pieces, span.offset + span.size - 8, 8)
    if end is None:
        size = min(TAIL, span.size)
        pieces += yield [ByteRange(span.end - size, size, span.href)]
        end = _held(pieces, span.end - 8, 8)
        assert end is not None, "a piece answers its request"
    size = _footer_size(end, span, limits, where)
    # pyarrow reads the last 64 KiB of any file: kept where they are here, they cost no request.
    kept = max(size, min(TAIL, span.size))
    data = _held(pieces, span.end - kept, kept) or _held(pieces, span.end - size, size)
    total = pieces[-1].total
    if data is None:
        (piece,) = yield [ByteRange(span.end - size, size, span.href)]
        data = piece.data
    tail = Piece(data, span.end - len(data), total)
    return _parsed(tail, size, span, limits, where)


def _parsed(tail: Piece, size: int, span: ByteRange, limits: Limits, where: str) -> Footer:
    footer = tail.data[-size:]
    layout = read_layout(footer[:-8], span.size - size, where)
    with translated(BROKEN, "Parquet footer is broken", where=where):
        # Only what is safe on hostile bytes is asked of this object; see `thrift`.
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer))
        limits.check("table_columns", metadata.num_columns, where)
        schema = metadata.schema.to_arrow_schema()
        check_schema(schema, limits, where)
        if list(layout.leaves) != schema.names or metadata.num_row_groups != len(layout.rows):
            raise InvalidMetadataError("Parquet schema is broken", where=where)
        # Refuses some fields that the schema of a damaged footer may hold, such as null types
        # that are required.
        return Footer(metadata, plain_schema(schema), layout, span, tail)


def _held(pieces: Sequence[Piece], offset: int, size: int) -> bytes | None:
    for piece in pieces:
        if piece.holds(offset, size):
            return piece.slice(offset, size)
    return None


def _footer_size(end: bytes, span: ByteRange, limits: Limits, where: str) -> int:
    if end[4:] == _ENCRYPTED:
        raise InvalidMetadataError("Parquet file is encrypted", where=where)
    if end[4:] != _MAGIC:
        raise InvalidMetadataError(
            "not a Parquet file", where=where, found=end[4:].hex(), expected=_MAGIC.hex()
        )
    size = int.from_bytes(end[:4], "little") + 8
    if size + 4 > span.size:
        raise InvalidMetadataError(
            "Parquet footer is longer than the file",
            where=where,
            found=f"{size} bytes",
            expected=f"at most {span.size - 4}",
        )
    limits.check("table_bytes", size, where)
    return size
