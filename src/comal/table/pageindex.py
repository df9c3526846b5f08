"""The page index: the offset of each page of a column, and the bounds of its values.

Struct and field numbers are those of ``parquet.thrift``. A file of a hundred thousand pages is
parsed by arrays: in the compact protocol every byte below 128 ends a token, and a page location
always has the same seven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, InvalidMetadataError, translated
from comal.limits import KIB
from comal.plan import ByteRange, Piece, Plan
from comal.table.footer import Footer
from comal.table.thrift import BINARY, I32, I64, LIST, STRUCT, CompactReader, varints

Ints = npt.NDArray[np.int64]
Octets = npt.NDArray[np.uint8]

_TOKENS = 7
"""Tokens of a page location: header and value of three fields, and the end of the struct."""
_HEADS = (0x16, 0x15, 0x16)  # field 1 i64 offset, field 2 i32 size, field 3 i64 first row
_GAP = 1 << 20
"""Bytes between two parts of an index that are fetched rather than making another request."""
_AS_THEY_LIE = 256 * KIB
"""Bytes of index parts that are used together with the gaps between them, if already fetched."""
_FEW = 200
"""Bytes of page locations below which reading one after the other takes less time than arrays."""
_AT_ONCE = 1 << 16
"""Pages whose locations are read together."""
_BROKEN: dict[type[BaseException], type[ComalError]] = {IndexError: InvalidMetadataError}


@dataclass(frozen=True, slots=True)
class Pages:
    """The data pages of a leaf column in all row groups, in the order of the file."""

    offset: Ints
    """Offset of each page, with its header, in the object."""
    size: Ints
    """Size of each page in bytes, including its header."""
    first_row: Ints
    """First row of each page, counted from the start of the file."""

    @property
    def one_row_each(self) -> bool:
        """Whether each page holds exactly the row with its number."""
        rows = self.first_row
        return bool((rows == np.arange(len(rows))).all())


@dataclass(frozen=True, slots=True)
class PageIndex:
    """The contents of the page index of a file."""

    pages: dict[int, Pages]
    """By leaf column."""
    keys: Ints | None
    """The values of the key column, one per row, if its index holds them."""


def page_index_plan(
    footer: Footer, leaves: Sequence[int], key: int | None = None, known: Sequence[Piece] = ()
) -> Plan[PageIndex]:
    """Read the offset indexes of `leaves`, and the values of the column `key` from its index.

    Makes no request if the known pieces hold everything, else one, or more if the parts are more
    than 1 MiB apart.

    Parameters
    ----------
    footer
        The footer of the file.
    leaves
        Leaf columns; those without an index in every row group are left out of the result.
    key
        Leaf column of 64-bit integers whose values are wanted: its column index holds them if
        every page is one row.
    known
        Pieces of the object that are fetched already.

    Raises
    ------
    InvalidMetadataError
        An index outside of the file, or pages outside of their column chunk or out of order.
    """
    layout, where = footer.layout, footer.where
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
    pages = _pages(footer, offsets, found, where)
    return PageIndex(pages, _keys(footer, int(key or 0), found) if keys else None)


def _is_whole(spans: Ints) -> bool:
    return len(spans) > 0 and bool((spans > 0).all())


def _check_spans(spans: Ints, footer: Footer, where: str) -> None:
    starts, sizes = spans[:, 0], spans[:, 1]
    outside = (sizes > footer.span.size) | (starts > footer.span.size - sizes)
    if outside.any():
        raise InvalidMetadataError("the page index reaches outside the Parquet file", where=where)
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
    """A few ranges that cover all spans which no piece holds."""
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
    """Bytes of spans, from pieces."""

    def __init__(self, pieces: Sequence[Piece], base: int) -> None:
        self._pieces = list(reversed(pieces))
        self._base = base

    def together(self, spans: Ints) -> tuple[bytes, Ints]:
        """Bytes that hold all spans, and the position of each in them."""
        listed = spans.tolist()
        first = min(start for start, _ in listed)
        whole = max(start + size for start, size in listed) - first
        if whole <= min(_AS_THEY_LIE, 2 * sum(size for _, size in listed)):
            for piece in self._pieces:
                if piece.holds(first + self._base, whole):
                    return piece.slice(first + self._base, whole), spans[:, 0] - first
        parts = [self._slice(start, size) for start, size in listed]
        ends = np.cumsum(spans[:, 1])
        return b"".join(parts), ends - spans[:, 1]

    def _slice(self, start: int, size: int) -> bytes:
        for piece in self._pieces:
            if piece.holds(start + self._base, size):
                return piece.slice(start + self._base, size)
        raise AssertionError("a piece answers its request")


# -- offset index ---------------------------------------------------------------------------------


def _pages(footer: Footer, leaves: Sequence[int], held: _Held, where: str) -> dict[int, Pages]:
    """OffsetIndex: 1 page_locations, each 1 offset, 2 compressed_page_size, 3 first_row_index.

    Several leaf columns are read at once, as each array operation costs as much as a hundred pages.
    """
    rows = footer.layout.rows
    most = max(1, _AT_ONCE // max(1, int(rows.sum())))
    found: dict[int, Pages] = {}
    for first in range(0, len(leaves), most):
        some = leaves[first : first + most]
        place = f"{where}, offset index of leaf column {' or '.join(map(str, some))}"
        located, counts = _located(footer, some, held, place)
        if ((counts == 0) & (rows > 0)).any():
            raise InvalidMetadataError("the page index lists no page of a row group", where=place)
        column, group = np.divmod(np.repeat(np.arange(counts.size), counts.ravel()), len(rows))
        _check_pages(footer, np.array(some)[column], group, located, where)
        offset, size, row = located[:, 0], located[:, 1], located[:, 2]
        first_row = row + (np.cumsum(rows) - rows)[group]
        ends = np.cumsum(counts.sum(axis=1)).tolist()
        for leaf, begin, end in zip(some, [0, *ends], ends, strict=False):
            mine = slice(begin, end)
            # Contiguous copies, so that each lookup reads one array.
            found[leaf] = Pages(
                offset[mine] + footer.span.offset, size[mine].copy(), first_row[mine]
            )
    return found


def _located(footer: Footer, leaves: Sequence[int], held: _Held, where: str) -> tuple[Ints, Ints]:
    """Page locations of some leaf columns, shape (pages, 3), and their counts.

    The counts have shape (leaf columns, row groups).
    """
    layout = footer.layout
    spans = layout.offset_index[:, leaves].swapaxes(0, 1).reshape(-1, 2)
    data, begins = held.together(spans)
    octets, ends = np.frombuffer(data, np.uint8), begins + spans[:, 1]
    few = len(data) < _FEW
    if not few:
        counts = np.tile(layout.rows, len(leaves))  # the usual case: every page holds a row
        bodies = begins + _head_sizes(counts)
        # The counts in row groups and list heads take memory only if there are bytes for them.
        fits = bool((counts <= (ends - bodies) // _TOKENS).all())
    if few or not (fits and _are_heads(octets, begins, counts, np.full(len(counts), STRUCT))):
        with translated(_BROKEN, "the page index is broken", where=where):
            lists = [_list_head(data, begin, STRUCT, where) for begin in begins.tolist()]
        bodies = np.array([at for at, _ in lists], np.int64)
        counts = np.array([count for _, count in lists], np.int64)
        if (counts > ends - bodies).any():
            raise InvalidMetadataError(
                "the page index is broken", where=where, found="more pages than bytes"
            )
    located = None if few else _locations(octets, bodies, counts)
    if located is None:
        with translated(_BROKEN, "the page index is broken", where=where):
            located = _locations_one_by_one(data, bodies.tolist(), counts.tolist(), where)
    return located, counts.reshape(len(leaves), -1)


def _list_head(data: bytes, at: int, kind: int, where: str) -> tuple[int, int]:
    """Position of the first element of the list in field 1, and the number of elements."""
    if data[at] != 0x10 | LIST:
        raise InvalidMetadataError("the page index is broken", where=where, found="not a list")
    head = data[at + 1]
    at += 2
    count = head >> 4
    if count == 15:
        reader = CompactReader(data, at)
        count, at = reader.varint(), reader.at
    if head & 0x0F != kind or count > len(data) - at:
        raise InvalidMetadataError(
            "the page index is broken", where=where, found="a list of another type"
        )
    return at, count


def _head_sizes(counts: Ints) -> Ints:
    """Bytes of the heads of lists with this many elements, including the field header."""
    # Up to 14 fit in the head itself, more in a varint behind it.
    found: Ints = np.searchsorted(_SIZES, counts, side="right") + 2
    return found


def _are_heads(octets: Octets, begins: Ints, counts: Ints, kinds: Ints) -> bool:
    """Whether lists of these lengths and kinds begin there, each in the field after the last.

    False also if the bytes end too early; `_list_head` finds the error of each list.
    """
    sizes = _head_sizes(counts)
    if not len(begins) or int(begins.min()) < 0 or int((begins + sizes).max()) > len(octets):
        return False
    first = (np.minimum(counts, _IN_HEAD) << 4) | kinds
    if (octets[begins] != 0x10 | LIST).any() or (octets[begins + 1] != first).any():
        return False
    for place in range(int(sizes.max()) - 2):
        rows = np.flatnonzero(sizes > place + 2)
        more = (sizes[rows] > place + 3) * 0x80
        part = counts[rows] >> 7 * place & 0x7F
        if (octets[begins[rows] + place + 2] != part | more).any():
            return False
    return True


_IN_HEAD = 15
_SIZES = np.array([_IN_HEAD, 1 << 7, 1 << 14, 1 << 21, 1 << 28], np.int64)
"""Numbers of elements from which a head takes one more byte."""


def _locations(octets: Octets, bodies: Ints, counts: Ints) -> Ints | None:
    """All page locations by arrays, shape (pages, 3); None if the tokens differ."""
    total = int(counts.sum())
    if total == 0:
        return np.empty((0, 3), np.int64)
    ends = np.flatnonzero(octets < 0x80).astype(_SMALL)
    filled = counts > 0
    first = np.searchsorted(ends, bodies[filled])
    before = (np.cumsum(counts) - counts)[filled]
    sizes = counts[filled] * _TOKENS
    tokens = np.repeat((first - before * _TOKENS).astype(_SMALL), sizes)
    tokens += np.arange(total * _TOKENS, dtype=_SMALL)
    if tokens[-1] >= len(ends) or int(tokens.min()) < 0:
        return None
    stop = ends[tokens]
    lengths = np.diff(stop, prepend=stop[:1])
    lengths[before * _TOKENS] = stop[before * _TOKENS] - bodies[filled] + 1
    if (lengths.reshape(total, _TOKENS)[:, ::2] != 1).any():
        return None
    stop = stop.reshape(total, _TOKENS)
    if (octets[stop[:, :-1:2]] != np.array(_HEADS, np.uint8)).any() or octets[stop[:, -1]].any():
        return None
    return varints(octets, stop[:, :-1:2] + 1, stop[:, 1::2])


_SMALL = np.int32
"""For positions in an index, which is far smaller than 2 GiB: less memory to move."""


def _locations_one_by_one(
    data: bytes, bodies: Sequence[int], counts: Sequence[int], where: str
) -> Ints:
    """As `_locations`, for fields in another order or unknown fields."""
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
                raise InvalidMetadataError("the page index holds an impossible number", where=where)
            located.append((found[1], found[2], found[3]))
    return np.array(located, np.int64).reshape(-1, 3)


def _check_pages(footer: Footer, leaf: Ints, group: Ints, located: Ints, where: str) -> None:
    """Check that pages follow one another in their chunk, and divide the rows of their group.

    `leaf` and `group` give the chunk of each page; pages of one chunk are consecutive.
    """
    layout = footer.layout
    offset, size, row = located[:, 0], located[:, 1], located[:, 2]
    start = layout.start[group, leaf]
    end = start + layout.size[group, leaf]
    rows = layout.rows[group]
    outside = (offset < start) | (size <= 0) | (offset > end) | (size > end - offset)
    first = np.ones(len(group), np.bool_)
    first[1:] = (group[1:] != group[:-1]) | (leaf[1:] != leaf[:-1])
    disorder = first & (row != 0)
    disorder[1:] |= ~first[1:] & ((row[1:] <= row[:-1]) | (offset[1:] < offset[:-1] + size[:-1]))
    wrong = np.flatnonzero(outside | disorder | (row >= rows))
    if len(wrong):
        at = int(wrong[0])
        raise InvalidMetadataError(
            "the page index does not fit its column",
            where=f"{where}, column {leaf[at]}, row group {group[at]}",
            found=f"{size[at]} bytes at {offset[at]}, row {row[at]}",
            expected=f"within {start[at]} to {end[at]}, after the page before",
        )


# -- column index ---------------------------------------------------------------------------------


_STRIDE = 9
"""Bytes of an 8-byte value in a list: its length, then the value."""


def _keys(footer: Footer, leaf: int, held: _Held) -> Ints | None:
    """ColumnIndex: 1 null_pages, 2 min_values, 3 max_values. None unless each page is one row."""
    spans = footer.layout.column_index[:, leaf]
    data, begins = held.together(spans)
    found: list[bytes] = []
    places = begins.tolist(), spans[:, 1].tolist(), footer.layout.rows.tolist()
    for begin, size, rows in zip(*places, strict=True):
        values = _values(data[begin : begin + size], rows)
        if values is None:
            return None
        found.append(values)
    octets = np.frombuffer(b"".join(found), np.uint8).reshape(-1, _STRIDE)
    return np.ascontiguousarray(octets[:, 1:]).view("<i8").ravel().astype(np.int64, copy=False)


def _values(index: bytes, rows: int) -> bytes | None:
    """The values of a column index, with their lengths, if each of `rows` pages has only one."""
    size = rows * _STRIDE
    try:
        at, flags = _list_head(index, 0, index[1] & 0x0F, "")  # either code for a boolean
        low, lows = _list_head(index, at + rows, BINARY, "")
        high, highs = _list_head(index, low + size, BINARY, "")
    except (IndexError, InvalidMetadataError):
        return None
    values = index[low : low + size]
    if not 0 < rows == flags == lows == highs or values != index[high : high + size]:
        return None
    return values if values[::_STRIDE] == bytes((_STRIDE - 1,)) * rows else None
