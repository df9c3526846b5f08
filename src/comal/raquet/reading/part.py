"""One file, opened: its document, its ids, and where the pages of its tiles lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidMetadataError, NotThisFormatError, counted, shown
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import ByteRange, Piece, Plan, Tail
from comal.raquet import spec
from comal.raquet.reading.columns import columns_plan
from comal.raquet.spec import Metadata
from comal.raquet.wire import parse_metadata
from comal.table import Footer, footer_plan
from comal.table.pageindex import Pages, page_index_plan

Ints = npt.NDArray[np.int64]

TAIL = 65_536
_INDEX_PER_FOOTER = 24
_MOST_GUESSED = 8 * MIB
"""What is read in front of a footer that did not fit the first read, as the page index lies there:
so many times the footer, and no more than this."""
_ENCODINGS = (1 << 0) | (1 << 3)
"""PLAIN for values, RLE for levels."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What is known of one file once it is open. Rows are those of the Parquet table."""

    where: str
    """How messages call it."""
    footer: Footer
    metadata: Metadata
    document: str
    """The metadata as they stand in the file."""
    ids: Ints
    """``block`` of each row; 0 in the metadata row."""
    pages: dict[str, Pages]
    """Pages of the columns whose every row is a page that can be read as it lies in the file."""
    required: frozenset[str]
    """Columns without NULLs."""
    time: npt.NDArray[np.float64] | None
    """``time_cf`` of each row."""
    stamps: npt.NDArray[np.datetime64] | None
    """``time_ts`` of each row, NaT where it is NULL."""

    @property
    def row_ends(self) -> Ints:
        """Where each row group ends."""
        return np.cumsum(self.footer.layout.rows)


def part_plan(where: str, limits: Limits = DEFAULT_LIMITS, tail: int = TAIL) -> Plan[Part]:
    """Open one file.

    One round trip for a small file, two where the page index is longer than the first read; one
    more where the ids or the document must be read from their columns.

    Raises
    ------
    NotThisFormatError
        No Parquet file, or one without the columns of RaQuet.
    InvalidMetadataError, UnsupportedVersionError, LimitExceededError
        A broken file, or a document that cannot be used.
    """
    (end,) = yield [Tail(tail)]
    if end.data[-4:] not in {b"PAR1", b"PARE"} or end.total < 12:
        raise NotThisFormatError(
            "not a RaQuet file",
            where=where,
            found=f"an object of {end.total} bytes that ends in {end.data[-4:].hex(' ')}",
            expected="a Parquet file",
        )
    known = [end]
    size = int.from_bytes(end.data[-8:-4], "little") + 8
    if len(end.data) < size <= end.total - 4:
        limits.check("table_bytes", size, where)
        more = min(end.total, size + min(size * _INDEX_PER_FOOTER, _MOST_GUESSED))
        known += yield [ByteRange(end.total - more, more)]
    footer = yield from footer_plan(ByteRange(0, end.total), known[::-1], limits)
    _check_columns(footer, where)
    names = _plain_columns(footer)
    leaves = {name: footer.layout.leaves[name][0] for name in names}
    early = _early_document(footer, limits)
    index = yield from page_index_plan(
        footer, list(leaves.values()), footer.layout.leaves[spec.BLOCK][0], known
    )
    pages = {
        name: index.pages[leaf]
        for name, leaf in leaves.items()
        if leaf in index.pages and _is_row_each(index.pages[leaf], footer)
    }
    rest = yield from _rest(footer, index.keys, early, limits, known, where)
    layout = footer.layout
    metadata = parse_metadata(rest.document, where, limits)
    _check_bands(metadata, footer, where)
    return Part(
        where,
        footer,
        metadata,
        rest.document,
        rest.ids,
        pages,
        frozenset(name for name in names if layout.required[leaves[name]]),
        rest.time,
        rest.stamps,
    )


def _is_row_each(pages: Pages, footer: Footer) -> bool:
    return len(pages.first_row) == int(footer.layout.rows.sum()) and pages.one_row_each


# -- columns --------------------------------------------------------------------------------------


def _check_columns(footer: Footer, where: str) -> None:
    """RaQuet 0.1.0: a file must contain block, metadata and one or more band columns."""
    schema = footer.schema
    names = set(schema.names)
    missing = [name for name in (spec.BLOCK, spec.METADATA) if name not in names]
    if missing:
        raise NotThisFormatError(
            "Parquet file is no RaQuet file",
            where=where,
            found=f"columns {shown(', '.join(schema.names), 200)}",
            expected=f"columns {', '.join(missing)}",
        )
    block, document = schema.field(spec.BLOCK).type, schema.field(spec.METADATA).type
    if block not in {pa.uint64(), pa.int64()} or not _is_text(document):
        raise NotThisFormatError(
            "Parquet file is no RaQuet file",
            where=where,
            found=f"block {block}, metadata {document}",
            expected="block uint64 or int64, metadata string",
        )


def _is_text(kind: Any) -> bool:
    # Text that an old writer did not mark as such comes as bytes.
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _check_bands(metadata: Metadata, footer: Footer, where: str) -> None:
    for name in metadata.columns:
        index = footer.schema.get_field_index(name)
        if index < 0 or not pa.types.is_binary(footer.schema.field(index).type):
            raise InvalidMetadataError(
                "band without a column of bytes",
                where=where,
                found=f"band {shown(name)}: "
                + ("no column" if index < 0 else str(footer.schema.field(index).type)),
            )


def _plain_columns(footer: Footer) -> list[str]:
    """Columns of bytes without codec, dictionary or lists: their pages hold values as they are."""
    layout = footer.layout
    found = []
    for name, leaves in layout.leaves.items():
        leaf = leaves[0] if len(leaves) == 1 else -1
        if leaf < 0 or not layout.flat[leaf] or layout.width[leaf] or name == spec.METADATA:
            continue
        if layout.codec[:, leaf].any() or (layout.encodings[:, leaf] & ~_ENCODINGS).any():
            continue
        found.append(name)
    return found


# -- ids and document -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rest:
    document: str
    ids: Ints
    time: npt.NDArray[np.float64] | None
    stamps: npt.NDArray[np.datetime64] | None


def _early_document(footer: Footer, limits: Limits) -> str | None:
    """The document out of the footer, where a writer has put it there as well."""
    found = (footer.metadata.metadata or {}).get(spec.METADATA_KEY.encode())
    if found is None or len(found) > limits.json_bytes:
        return None
    try:
        return str(found, "utf-8")
    except UnicodeDecodeError:
        return None


def _rest(
    footer: Footer,
    keys: Ints | None,
    early: str | None,
    limits: Limits,
    known: Sequence[Piece],
    where: str,
) -> Plan[_Rest]:
    """What has to be read from columns: ids, times, the document."""
    groups = range(len(footer.layout.rows))
    timed = [name for name in (spec.TIME_CF, spec.TIME_TS) if name in footer.schema.names]
    names = list(timed)
    if keys is None:
        names.append(spec.BLOCK)
        # The ids are not known, and so not where the document is. Its column is short, as it is
        # NULL in all other rows.
        names.append(spec.METADATA)
    table = (yield from columns_plan(footer, names, groups, limits, known)) if names else None
    ids = keys if keys is not None else _ids(table, where)
    at = _metadata_row(ids, where)
    if keys is None:
        assert table is not None, "it was read for the ids"
        column = table.column(spec.METADATA)
        if len(column) - column.null_count > 1:
            raise InvalidMetadataError(
                "metadata stand in several rows",
                where=where,
                found=len(column) - column.null_count,
                expected=1,
            )
        text = column[at].as_py()
    elif early is not None:
        text = early
    else:
        ends = np.cumsum(footer.layout.rows)
        group = int(np.searchsorted(ends, at, side="right"))
        found = yield from columns_plan(footer, [spec.METADATA], [group], limits, known)
        text = found.column(0)[at - int(ends[group]) + found.num_rows].as_py()
    return _Rest(_text(text, where), ids, *_times(table, timed, ids, where))


def _text(text: object, where: str) -> str:
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not isinstance(text, str):
        raise InvalidMetadataError("the metadata row holds no metadata", where=where)
    return text


def _ids(table: Any, where: str) -> Ints:
    column = table.column(spec.BLOCK)
    if column.null_count:
        raise InvalidMetadataError(
            "block is NULL", where=where, found=counted(column.null_count, "row")
        )
    ids: Ints = column.to_numpy()
    # An id of 2**63 or more becomes negative here, and is no cell either.
    return ids.astype(np.int64, copy=False)


def _metadata_row(ids: Ints, where: str) -> int:
    """RaQuet 0.1.0: the document stands in the row where block = 0."""
    rows = np.flatnonzero(ids == 0)
    if len(rows) != 1:
        raise InvalidMetadataError(
            "no metadata row" if len(rows) == 0 else "several metadata rows",
            where=where,
            found=f"{len(rows)} rows with block 0",
            expected=1,
        )
    return int(rows[0])


def _times(
    table: Any, timed: Sequence[str], ids: Ints, where: str
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.datetime64] | None]:
    if spec.TIME_CF not in timed:
        return None, None
    column = table.column(spec.TIME_CF)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidMetadataError("time_cf is no number", where=where, found=str(column.type))
    values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
    if not np.isfinite(values[ids != 0]).all():
        raise InvalidMetadataError("a tile has no time", where=where, found="time_cf is NULL")
    if spec.TIME_TS not in timed or not pa.types.is_timestamp(table.column(spec.TIME_TS).type):
        return values, None
    stamps = table.column(spec.TIME_TS).cast(pa.timestamp("us"), safe=False).to_numpy()
    return values, stamps.astype("datetime64[us]")
