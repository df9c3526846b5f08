"""The page index: where each page of a column lies, and what bounds its values.

Struct and field numbers are those of ``parquet.thrift``. A file of a hundred thousand pages is
parsed by arrays: in the compact protocol every byte below 128 ends a token, and a page location
always has the same seven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, InvalidMetadataError, translated
from comal.plan import ByteRange, Piece, Plan
from comal.table.footer import Footer, where_of
from comal.table.shapes import varints
from comal.table.thrift import BINARY, I32, I64, LIST, STRUCT, CompactReader

Ints = npt.NDArray[np.int64]

_TOKENS = 7
"""Of a page location: head and value of three fields, and the end of the struct."""
_HEADS = (0x16, 0x15, 0x16)  # field 1 i64 offset, field 2 i32 size, field 3 i64 first row
_GAP = 1 << 20
"""Bytes between two parts of an index that are fetched to save a request."""
_BROKEN: dict[type[BaseException], type[ComalError]] = {IndexError: InvalidMetadataError}


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of a leaf column in all row groups, in the order of the file."""

    offset: Ints
    """Where each page starts with its header, as an offset in the object."""
    size: Ints
    """Its bytes, header included."""
    first_row: Ints
    """Its first row, counted through the file."""

    @property
    def one_row_each(self) -> bool:
        """Whether every page holds exactly the row whose number it has."""
        rows = self.first_row
        return bool((rows == np.arange(len(rows))).all())


@dataclass(frozen=True, slots=True)
class PageIndex:
    """What was read of the page index of a file."""

    pages: dict[int, Pages]
    """By leaf column."""
    keys: Ints | None
    """The values of the key column, one for each row, where its index tells them."""


def page_index_plan(
    footer: Footer, leaves: Sequence[int], key: int | None = None, known: Sequence[Piece] = ()
) -> Plan[PageIndex]:
    """Read the offset indexes of `leaves`, and the values of the column `key` from its index.

    No request where the pieces that are known hold everything, else one, unless the parts lie
    more than 1 MiB apart.

    Parameters
    ----------
    footer
        Of the file.
    leaves
        Leaf columns; those without an index in every row group are left out of the result.
    key
        Leaf column of 64-bit integers whose values are wanted: they stand in its column index
        when every page holds one row.
    known
        Pieces of the object that are here already.

    Raises
    ------
    InvalidMetadataError
        An index that reaches out of the file, or pages out of their column chunk or out of order.
    """
    layout, where = footer.layout, where_of(footer.span)
    offsets = [leaf for leaf in leaves if _is_whole(layout.offset_index[:, leaf])]
    keys = key is not None and _is_whole(layout.column_index[:, key])
    spans = [layout.offset_index[:, leaf] for leaf in offsets]
    if keys:
        spans.append(layout.column_index[:, key])
    if not spans:
        return PageIndex({}, None)
    table = np.concatenate(spans)
    _check_spans(table, footer, where)
    pieces = [*known, footer.tail]
    base = np.array([footer.span.offset, 0], np.int64)
    wanted = _missing(table + base, pieces, footer.span.href)
    if wanted:
        pieces += yield wanted
    found = _Held(pieces, footer.span.offset)
    pages = {leaf: _pages(footer, leaf, found, where) for leaf in offsets}
    return PageIndex(pages, _keys(footer, int(key or 0), found, where) if keys else None)


def _is_whole(spans: Ints) -> bool:
    return len(spans) > 0 and bool((spans > 0).all())


def _check_spans(spans: Ints, footer: Footer, where: str) -> None:
    starts, sizes = spans[:, 0], spans[:, 1]
    outside = (sizes > footer.span.size) | (starts > footer.span.size - sizes)
    if outside.any():
        raise InvalidMetadataError("page index reaches outside of the Parquet file", where=where)
    # Parts are joined: those that overlap would take more memory than the file has bytes.
    total = int(sizes.sum())
    if total > footer.span.size:
        raise InvalidMetadataError(
            "parts of the page index overlap",
            where=where,
            found=f"{total} bytes",
            expected=f"at most {footer.span.size}",
        )


def _missing(spans: Ints, pieces: Sequence[Piece], href: str) -> list[ByteRange]:
    """Ranges that hold all spans which no piece holds, few of them."""
    starts, ends = spans[:, 0], spans[:, 0] + spans[:, 1]
    held = np.zeros(len(spans), np.bool_)
    for piece in pieces:
        held |= (starts >= piece.offset) & (ends <= piece.end)
    if held.all():
        return []
    order = np.argsort(starts[~held], kind="stable")
    starts, ends = starts[~held][order], np.maximum.accumulate(ends[~held][order])
    breaks = np.flatnonzero(starts[1:] > ends[:-1] + _GAP) + 1
    firsts = [0, *breaks.tolist()]
    lasts = [*breaks.tolist(), len(starts)]
    return [
        ByteRange(int(starts[first]), int(ends[last - 1] - starts[first]), href)
        for first, last in zip(firsts, lasts, strict=True)
    ]


class _Held:
    """Bytes of spans, out of pieces."""

    def __init__(self, pieces: Sequence[Piece], base: int) -> None:
        self._pieces = list(reversed(pieces))
        self._base = base

    def joined(self, spans: Ints) -> tuple[bytes, Ints]:
        """The bytes of all spans one behind the other, and where each starts among them."""
        parts = [self._slice(start, size) for start, size in spans.tolist()]
        ends = np.cumsum(spans[:, 1])
        return b"".join(parts), ends - spans[:, 1]

    def _slice(self, start: int, size: int) -> bytes:
        for piece in self._pieces:
            if piece.holds(start + self._base, size):
                return piece.slice(start + self._base, size)
        raise AssertionError("a piece answers its request")


# -- offset index ---------------------------------------------------------------------------------


def _pages(footer: Footer, leaf: int, held: _Held, where: str) -> Pages:
    """OffsetIndex: 1 page_locations, each 1 offset, 2 compressed_page_size, 3 first_row_index."""
    layout = footer.layout
    spans = layout.offset_index[:, leaf]
    data, begins = held.joined(spans)
    place = f"{where}, offset index of leaf column {leaf}"
    with translated(_BROKEN, "page index is broken", where=place):
        lists = [_list_head(data, begin, STRUCT, place) for begin in begins.tolist()]
    bodies = np.array([at for at, _ in lists], np.int64)
    counts = np.array([count for _, count in lists], np.int64)
    located = _locations(data, bodies, counts)
    if located is None:
        with translated(_BROKEN, "page index is broken", where=place):
            located = _locations_one_by_one(data, bodies.tolist(), counts.tolist(), place)
    offset, size, row = located.T
    group = np.repeat(np.arange(len(counts)), counts)
    _check_pages(footer, leaf, group, (offset, size, row), place)
    begin_of_group = np.cumsum(layout.rows) - layout.rows
    return Pages(offset + footer.span.offset, size, row + begin_of_group[group])


def _list_head(data: bytes, at: int, kind: int, where: str) -> tuple[int, int]:
    """Where the elements of the list in field 1 start, and how many there are."""
    if data[at] != 0x10 | LIST:
        raise InvalidMetadataError("page index is broken", where=where, found="no list")
    head = data[at + 1]
    at += 2
    count = head >> 4
    if count == 15:
        reader = CompactReader(data, at)
        count, at = reader.varint(), reader.at
    if head & 0x0F != kind or count > len(data) - at:
        raise InvalidMetadataError("page index is broken", where=where, found="list of others")
    return at, count


def _locations(data: bytes, bodies: Ints, counts: Ints) -> Ints | None:
    """All page locations by arrays, shape (pages, 3); None where the tokens are others."""
    octets = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(octets < 0x80)
    total = int(counts.sum())
    if total == 0:
        return np.empty((0, 3), np.int64)
    first = np.searchsorted(ends, bodies)
    before = np.cumsum(counts) - counts
    tokens = np.arange(total * _TOKENS) + np.repeat(first - before * _TOKENS, counts * _TOKENS)
    if tokens[-1] >= len(ends) or (tokens < 0).any():
        return None
    stop = ends[tokens].reshape(total, _TOKENS)
    start = np.empty_like(stop)
    start[:, 1:] = stop[:, :-1] + 1
    start[1:, 0] = stop[:-1, -1] + 1
    begins_list = before[counts > 0]
    start[begins_list, 0] = bodies[counts > 0]
    if (start[:, ::2] != stop[:, ::2]).any():
        return None
    if (octets[stop[:, :-1:2]] != np.array(_HEADS, np.uint8)).any() or octets[stop[:, -1]].any():
        return None
    return varints(octets, start[:, 1::2], stop[:, 1::2])


def _locations_one_by_one(
    data: bytes, bodies: Sequence[int], counts: Sequence[int], where: str
) -> Ints:
    """As `_locations`, for fields in another order or that do not exist yet."""
    located: list[tuple[int, int, int]] = []
    for body, count in zip(bodies, counts, strict=True):
        reader = CompactReader(data, body)
        for _ in range(count):
            found = {1: -1, 2: -1, 3: -1}
            for number, kind in reader.fields():
                if number in found and kind in {I32, I64}:
                    found[number] = reader.integer()
                else:
                    reader.skip(kind)
            if max(abs(value) for value in found.values()) >= 2**63:
                raise InvalidMetadataError("page index holds an impossible number", where=where)
            located.append((found[1], found[2], found[3]))
    return np.array(located, np.int64).reshape(-1, 3)


def _check_pages(
    footer: Footer, leaf: int, group: Ints, located: tuple[Ints, Ints, Ints], where: str
) -> None:
    """Pages lie in their chunk one behind the other, and share out the rows of their group."""
    layout = footer.layout
    offset, size, row = located
    counts = np.bincount(group, minlength=len(layout.rows))
    if ((counts == 0) & (layout.rows > 0)).any():
        raise InvalidMetadataError("page index lists no page of a row group", where=where)
    start = layout.start[group, leaf]
    end = start + layout.size[group, leaf]
    outside = (offset < start) | (size <= 0) | (offset > end) | (size > end - offset)
    first = np.ones(len(group), np.bool_)
    first[1:] = group[1:] != group[:-1]
    rows = layout.rows[group]
    disorder = first & (row != 0)
    disorder[1:] |= ~first[1:] & ((row[1:] <= row[:-1]) | (offset[1:] < offset[:-1] + size[:-1]))
    wrong = np.flatnonzero(outside | disorder | (row >= rows))
    if len(wrong):
        at = int(wrong[0])
        raise InvalidMetadataError(
            "page index does not fit its column",
            where=f"{where}, page {at}",
            found=f"{size[at]} bytes at {offset[at]}, row {row[at]}",
            expected=f"within {start[at]} to {end[at]}, behind the page before",
        )


# -- column index ---------------------------------------------------------------------------------


def _keys(footer: Footer, leaf: int, held: _Held, where: str) -> Ints | None:
    """ColumnIndex: 1 null_pages, 2 min_values, 3 max_values. None unless a page is a row."""
    layout = footer.layout
    data, begins = held.joined(layout.column_index[:, leaf])
    octets = np.frombuffer(data, np.uint8)
    place = f"{where}, column index of leaf column {leaf}"
    with translated(_BROKEN, "page index is broken", where=place):
        keys = _keys_at_once(data, octets, begins, layout.rows, place)
    if keys is not None:
        return keys
    parts: list[Ints] = []
    with translated(_BROKEN, "page index is broken", where=place):
        for begin, rows in zip(begins.tolist(), layout.rows.tolist(), strict=True):
            found = _group_keys(data, octets, begin, rows, place)
            if found is None:
                return None
            parts.append(found)
    return np.concatenate(parts)


_STRIDE = 9
"""Of an 8-byte value in a list: its length, then the value."""


def _keys_at_once(
    data: bytes, octets: npt.NDArray[np.uint8], begins: Ints, rows: Ints, where: str
) -> Ints | None:
    """The keys of all groups, where those of as many rows differ in nothing but keys and nulls."""
    keys: list[Ints] = [_NO_KEYS] * len(rows)
    for count in np.unique(rows).tolist():
        groups = np.flatnonzero(rows == count)
        starts = begins[groups].tolist()
        if _group_keys(data, octets, starts[0], count, where) is None:
            return None
        head = _null_pages(data, starts[0], where)[0] - count - starts[0]
        low = 2 * head + count
        high = low + head + count * _STRIDE
        width = high + count * _STRIDE
        if max(starts) + width > len(octets):
            return None
        blocks = np.stack([octets[start : start + width] for start in starts])
        heads = np.r_[:head, head + count : low, low + count * _STRIDE : high]
        values = blocks[:, low : low + count * _STRIDE].reshape(-1, count, _STRIDE)
        again = blocks[:, high:].reshape(-1, count, _STRIDE)
        if (
            (blocks[:, heads] != blocks[0, heads]).any()
            or (values[:, :, 0] != _STRIDE - 1).any()
            or (values != again).any()
        ):
            return None
        found = np.ascontiguousarray(values[:, :, 1:]).view("<i8").astype(np.int64, copy=False)
        for group, part in zip(groups.tolist(), found.reshape(-1, count), strict=True):
            keys[group] = part
    return np.concatenate(keys)


_NO_KEYS = np.empty(0, np.int64)


def _group_keys(
    data: bytes, octets: npt.NDArray[np.uint8], begin: int, rows: int, where: str
) -> Ints | None:
    at, count = _null_pages(data, begin, where)
    if count != rows:
        return None
    bounds: list[npt.NDArray[Any]] = []
    for _ in range(2):
        at, listed = _list_head(data, at, BINARY, where)
        size = rows * _STRIDE
        block = octets[at : at + size]
        if listed != rows or len(block) != size:
            return None
        values = block.reshape(rows, _STRIDE)
        if (values[:, 0] != _STRIDE - 1).any():
            return None
        bounds.append(values[:, 1:])
        at += size
    if (bounds[0] != bounds[1]).any():
        return None
    return np.ascontiguousarray(bounds[0]).view("<i8").reshape(rows).astype(np.int64, copy=False)


def _null_pages(data: bytes, begin: int, where: str) -> tuple[int, int]:
    """Behind the list of booleans in field 1, and its length; a boolean takes a byte."""
    if data[begin] != 0x10 | LIST:
        raise InvalidMetadataError("page index is broken", where=where, found="no list")
    reader = CompactReader(data, begin + 1)
    _, count = reader.items()
    return reader.at + count, count
