"""One open file: its document, its ids, and the offsets of the pages of its tiles."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidMetadataError, NotThisFormatError, counted, shown
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import ByteRange, Piece, Plan, Tail, Wanted
from comal.raquet import spec
from comal.raquet.spec import Metadata
from comal.raquet.wire import parse_metadata
from comal.table import Footer, ParquetTable, footer_plan
from comal.table.pageindex import Pages, page_index_plan

Ints = npt.NDArray[np.int64]

TAIL = 65_536
_INDEX_PER_FOOTER = 24
_MOST_GUESSED = 8 * MIB
"""Bytes to read before a footer that did not fit the first read, since the page index is there:
this multiple of the footer size, up to this maximum."""
_ENCODINGS = (1 << 0) | (1 << 3)
"""PLAIN for values, RLE for levels."""


@dataclass(frozen=True, slots=True, eq=False)
class TileFile:
    """One open file. Rows are those of the Parquet table."""

    where: str
    """Name of the file in messages."""
    footer: Footer
    metadata: Metadata
    document: str
    """The metadata document as stored."""
    ids: Ints
    """``block`` of each row; 0 in the metadata row."""
    pages: dict[str, Pages]
    """Pages of columns in which every row is a page of its own, without codec or dictionary."""
    required: frozenset[str]
    """Columns without NULLs."""
    time: npt.NDArray[np.float64] | None
    """``time_cf`` of each row."""
    stamps: npt.NDArray[np.datetime64] | None
    """``time_ts`` of each row, NaT for NULL."""

    @property
    def row_ends(self) -> Ints:
        """Where each row group ends."""
        return np.cumsum(self.footer.layout.rows)

    def nulls(self, name: str) -> int:
        """NULLs of a column, that of the metadata row included, where statistics count them."""
        metadata, leaf = self.footer.metadata, self.footer.layout.leaves[name][0]
        chunks = (metadata.row_group(at).column(leaf) for at in range(metadata.num_row_groups))
        found = [chunk.statistics for chunk in chunks if chunk.is_stats_set]
        return sum(one.null_count or 0 for one in found if one.has_null_count)


def file_plan(
    where: str, limits: Limits = DEFAULT_LIMITS, *, alone: bool = False
) -> Plan[TileFile]:
    """Open one file; with `alone`, nothing before its footer stays in memory.

    A small file takes one round trip, two if the page index is longer than the first read, and
    one more if the ids or the document must be read from their columns.

    Raises
    ------
    NotThisFormatError
        The file is not Parquet, or lacks the columns of RaQuet.
    InvalidMetadataError, UnsupportedVersionError, LimitExceededError
        The file is broken, or its document is unusable.
    """
    (end,) = yield [Tail(TAIL)]
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
    document, ids, table = yield from _rest(footer, index.keys, early, limits, known, where)
    layout = footer.layout
    metadata = parse_metadata(document, where, limits)
    _check_bands(metadata, footer, where)
    return TileFile(
        where,
        footer.alone() if alone else footer,
        metadata,
        document,
        ids,
        pages,
        frozenset(name for name in names if layout.required[leaves[name]]),
        *_times(table, ids, where),
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
            "the Parquet file is not a RaQuet file",
            where=where,
            found=f"columns {shown(', '.join(schema.names), 200)}",
            expected=f"columns {', '.join(missing)}",
        )
    block, document = schema.field(spec.BLOCK).type, schema.field(spec.METADATA).type
    if block not in {pa.uint64(), pa.int64()} or not _is_text(document):
        raise NotThisFormatError(
            "the Parquet file is not a RaQuet file",
            where=where,
            found=f"block {block}, metadata {document}",
            expected="block uint64 or int64, metadata string",
        )


def _is_text(kind: Any) -> bool:
    # Text without the string annotation, by old writers, is binary.
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _check_bands(metadata: Metadata, footer: Footer, where: str) -> None:
    for name in metadata.columns:
        index = footer.schema.get_field_index(name)
        if index < 0 or not pa.types.is_binary(footer.schema.field(index).type):
            raise InvalidMetadataError(
                "a band has no column of bytes",
                where=where,
                found=f"band {shown(name)}: "
                + ("no column" if index < 0 else str(footer.schema.field(index).type)),
            )


def _plain_columns(footer: Footer) -> list[str]:
    """Binary columns without codec, dictionary or lists: their pages hold the plain values."""
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


def _early_document(footer: Footer, limits: Limits) -> str | None:
    """The copy of the document in the footer, if the writer has put one there."""
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
) -> Plan[tuple[str, Ints, Any]]:
    """The document, the ids, and a table of times, read from columns as needed."""
    groups = range(len(footer.layout.rows))
    names = [name for name in (spec.TIME_CF, spec.TIME_TS) if name in footer.schema.names]
    if keys is None:
        # Without ids the row of the document is unknown too. Its column is short, since it is
        # NULL in all other rows.
        names += [spec.BLOCK, spec.METADATA]
    table = (yield from _columns_plan(footer, names, groups, limits, known)) if names else None
    ids = keys if keys is not None else _ids(table, where)
    at = _metadata_row(ids, where)
    if keys is None:
        assert table is not None, "it was read for the ids"
        column = table.column(spec.METADATA)
        if len(column) - column.null_count > 1:
            raise InvalidMetadataError(
                "several rows hold metadata",
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
        found = yield from _columns_plan(footer, [spec.METADATA], [group], limits, known)
        text = found.column(0)[at - int(ends[group]) + found.num_rows].as_py()
    return _text(text, where), ids, table


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
    # An id of 2**63 or more becomes negative here; it is not a valid cell anyway.
    return ids.astype(np.int64, copy=False)


def _metadata_row(ids: Ints, where: str) -> int:
    """RaQuet 0.1.0: the document is in the row where block = 0."""
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
    table: Any, ids: Ints, where: str
) -> tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.datetime64] | None]:
    names = () if table is None else table.column_names
    if spec.TIME_CF not in names:
        return None, None
    column = table.column(spec.TIME_CF)
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InvalidMetadataError("time_cf is not a number", where=where, found=str(column.type))
    values = column.cast(pa.float64(), safe=False).to_numpy().astype(np.float64)
    if not np.isfinite(values[ids != 0]).all():
        raise InvalidMetadataError("a tile has no time", where=where, found="time_cf is NULL")
    if spec.TIME_TS not in names or not pa.types.is_timestamp(table.column(spec.TIME_TS).type):
        return values, None
    stamps = table.column(spec.TIME_TS).cast(pa.timestamp("us"), safe=False).to_numpy()
    return values, stamps.astype("datetime64[us]")


# -- column chunks ---------------------------------------------------------------------------------


class _Nowhere:
    """A source for tables whose bytes have all been fetched."""

    def fetch(self, wanted: Sequence[Wanted]) -> NoReturn:
        """Raise an error: the column reaches outside of its chunks."""
        raise InvalidMetadataError("the column reaches outside its chunk", found=str(wanted[:1]))


def read_columns(
    footer: Footer,
    names: Sequence[str],
    groups: Sequence[int],
    limits: Limits,
    pieces: Sequence[Piece],
) -> Any:
    """Columns of row groups as an Arrow table, from pieces that hold their chunks."""
    known = [*pieces, footer.tail]
    return ParquetTable(_Nowhere(), footer, known=known, limits=limits).read(names, groups)


def _columns_plan(
    footer: Footer,
    names: Sequence[str],
    groups: Sequence[int],
    limits: Limits,
    known: Sequence[Piece],
) -> Plan[Any]:
    """The same as `read_columns`, fetching the chunks in one round trip."""
    layout = footer.layout
    leaves = [leaf for name in names for leaf in layout.leaves[name]]
    size = int(layout.size[np.ix_(list(groups), leaves)].sum())
    limits.check("table_bytes", size, f"{footer.span.href or 'table'}, columns")
    missing = chunk_ranges(footer, names, groups, [*known, footer.tail])
    pieces = (yield missing) if missing else []
    return read_columns(footer, names, groups, limits, [*known, *pieces])


def chunk_ranges(
    footer: Footer, names: Sequence[str], groups: Sequence[int], known: Sequence[Piece] = ()
) -> list[ByteRange]:
    """Ranges of the column chunks of some columns and row groups, except those in `known`."""
    layout, span = footer.layout, footer.span
    leaves = [leaf for name in names for leaf in layout.leaves[name]]
    chosen = np.ix_(list(groups), leaves)
    sizes = layout.size[chosen].ravel().tolist()
    starts = (layout.start[chosen] + span.offset).ravel().tolist()
    return [
        ByteRange(start, size, span.href)
        for start, size in zip(starts, sizes, strict=True)
        if not any(piece.holds(start, size) for piece in known)
    ]


# -- rows of tiles ---------------------------------------------------------------------------------


ABSENT = -1

_HEADER = 0x4800000000000000
_BELOW = (1 << 52) - 1
_SPREAD = [sum((byte >> bit & 1) << 2 * bit for bit in range(8)) for byte in range(256)]


def cell_of(z: int, x: int, y: int) -> int:
    """Id of one tile, the same as `comal.grid.quadbin.cells`, without the cost of an array.

    The caller has validated zoom, column and row.
    """
    spread = _SPREAD
    code = spread[x & 255] | spread[y & 255] << 1
    if z > 8:
        code |= (spread[x >> 8 & 255] | spread[y >> 8 & 255] << 1) << 16
    if z > 16:
        code |= (spread[x >> 16 & 255] | spread[y >> 16 & 255] << 1) << 32
    if z > 24:
        code |= (spread[x >> 24] | spread[y >> 24] << 1) << 48
    return _HEADER | z << 52 | code << (52 - 2 * z) | _BELOW >> 2 * z


class TileIndex:
    """The rows of one or several files, numbered across all of them, by id and time step.

    Metadata rows have the id 0. There is no Python object per tile: a million tiles take some
    16 MB, or 8 if the rows are in the order of their ids.
    """

    def __init__(self, ids: Ints, steps: Ints | None, where: str) -> None:
        self._where = where
        self._order: Ints | None = None
        if steps is not None:
            self._order = np.lexsort((steps, ids))
        elif len(ids) and not (ids[1:] >= ids[:-1]).all():
            self._order = np.argsort(ids, kind="stable")
        self.ids = ids if self._order is None else ids[self._order]
        """All ids, ascending."""
        self.steps = None if steps is None else steps[self._order]
        """The time steps in the same order."""
        self._look()

    def _look(self) -> None:
        # Single ids are looked up by bisection, which is faster on a memoryview than in numpy.
        self._ids = np.ascontiguousarray(self.ids).data
        self._steps = None if self.steps is None else np.ascontiguousarray(self.steps).data
        self._rows = None if self._order is None else self._order.data

    def row(self, cell: int, step: int = 0) -> int:
        """The row of a tile, or `ABSENT`; a tile that appears twice is an error."""
        ids = self._ids
        at = bisect_left(ids, cell)
        end = len(ids)
        if at == end or ids[at] != cell:
            return ABSENT
        if self._steps is not None:
            last = bisect_right(ids, cell, at)
            at = bisect_left(self._steps, step, at, last)
            if at == last or self._steps[at] != step:
                return ABSENT
            twice = at + 1 < last and self._steps[at + 1] == step
        else:
            twice = at + 1 < end and ids[at + 1] == cell
        if twice:
            raise self._twice(cell)
        return at if self._rows is None else self._rows[at]

    def rows(self, cells: Ints, step: int = 0) -> Ints:
        """The rows of many tiles, `ABSENT` if there is none; raises the errors of `row`."""
        if not len(self.ids):
            return np.full(len(cells), ABSENT, np.int64)
        last = len(self.ids) - 1
        begin = np.searchsorted(self.ids, cells)
        if self.steps is None:
            at = begin
            found = self.ids[np.minimum(at, last)] == cells
            following = np.minimum(at + 1, last)
            twice = found & (following > at) & (self.ids[following] == cells)
        else:
            end = np.searchsorted(self.ids, cells, side="right")
            at = _bisected(self.steps, step, begin, end)
            found = (at < end) & (self.steps[np.minimum(at, last)] == step)
            twice = found & (at + 1 < end) & (self.steps[np.minimum(at + 1, last)] == step)
        if twice.any():
            raise self._twice(int(cells[twice][0]))
        rows = at if self._order is None else self._order[np.minimum(at, last)]
        return np.where(found, rows, ABSENT)

    def between(self, first: int, last: int) -> Ints:
        """The unique ids from `first` to `last`, inclusive, ascending."""
        begin, end = np.searchsorted(self.ids, [first, last + 1])
        found = self.ids[begin:end]
        return found[np.flatnonzero(np.append(True, found[1:] != found[:-1])[: len(found)])]

    def rows_between(self, first: int, last: int, step: int | None = None) -> Ints:
        """The rows with ids from `first` to `last`, of one time step or of all, ascending."""
        begin, end = np.searchsorted(self.ids, [first, last + 1])
        at = np.arange(begin, end)
        if step is not None and self.steps is not None:
            at = at[self.steps[at] == step]
        return at if self._order is None else np.sort(self._order[at])

    def counts(self, cells: Ints) -> Ints:
        """Number of rows of each cell."""
        begin, end = (np.searchsorted(self.ids, cells, side) for side in ("left", "right"))
        return np.asarray(end - begin)

    def _twice(self, cell: int) -> InvalidMetadataError:
        return InvalidMetadataError(
            "the tile appears twice", where=self._where, found=f"block {cell}", expected="one row"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ids": None, "_steps": None, "_rows": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._look()


def _bisected(values: Ints, wanted: int, begin: Ints, end: Ints) -> Ints:
    """The first index that is not below `wanted`, in each of many ascending runs of `values`."""
    low, high = begin.copy(), end.copy()
    while (unsure := low < high).any():
        middle = (low + high) >> 1
        below = unsure & (values[np.where(unsure, middle, 0)] < wanted)
        low = np.where(below, middle + 1, low)
        high = np.where(unsure & ~below, middle, high)
    return low
