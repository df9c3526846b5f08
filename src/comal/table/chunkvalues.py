"""Single byte strings out of a column chunk, without reading or decoding all of it.

Writers that know nothing of tiles put tens of megabytes of them into one page, most often the
dictionary, and compress it with Snappy, which leaves as it is what is compressed already. Where a
value lies in such a page is found by the lengths in it: a value is four bytes of length and the
bytes (PLAIN), and an element of Snappy says how many bytes it stands for.

Whatever is unusual is left to who decodes whole chunks. Struct and field numbers are those of
``parquet.thrift``; elements are those of Snappy's ``format_description.txt``.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from types import EllipsisType
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidMetadataError
from comal.table.thrift import STRUCT, CompactReader

Read = Callable[[int, int], bytes]
"""Gives bytes of the object: from an offset on, so many."""
Ints = npt.NDArray[np.int64]

UNCOMPRESSED, SNAPPY = 0, 1
CODECS = (UNCOMPRESSED, SNAPPY)
"""Codecs in which values can be found."""

_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_PLAIN, _PLAIN_DICTIONARY, _RLE, _RLE_DICTIONARY = 0, 2, 3, 8
_HEADERS = (64, 4 << 10, 64 << 10)
"""Bytes that are read for the header of a page, and what is tried when that was too little."""
_NO_CHECKSUM = 1 << 40
_MOST_INDEXES = 16 << 20
"""Bytes of a page of indexes, which is read whole."""
_FRAGMENT = 1 << 16
"""What Snappy compresses at a time: no element of its own compressor reaches out of it."""
_ELEMENTS, _PER_ELEMENT = 256, 8 << 10
"""So many elements, and one more for so many bytes, are worth a walk; of more, decoding is."""
_SEEN = 64
"""Bytes that are read for the head of an element, and of those that follow close behind."""


class _UnusualError(Exception):
    """The chunk is none in which values are found. It never leaves this module."""


class ChunkValues:
    """The values of one chunk of a flat column of byte strings; for several threads.

    Parameters
    ----------
    start, size
        Where the chunk lies in its object.
    codec
        One of `CODECS`.
    rows
        How many there are.
    required
        Whether the column holds no NULL, and so no levels.
    """

    def __init__(self, start: int, size: int, codec: int, rows: int, *, required: bool) -> None:
        self._at, self._end, self._rows = start, start + size, rows
        self._codec, self._required = codec, required
        self._lock = threading.Lock()
        self._usual = codec in CODECS
        self._dictionary: _Strings | None = None
        self._first = [0]
        self._pages: list[tuple[_Strings, Ints | None]] = []

    def value(self, row: int, read: Read, most: int) -> bytes | EllipsisType | None:
        """The value of a row that is counted within the chunk.

        Parameters
        ----------
        row
            From 0 on.
        read
            Reads the object.
        most
            Bytes that a value may have.

        Returns
        -------
        None for NULL, ``...`` where the chunk must be decoded as a whole: it has other pages,
        checksums, a longer value, or is broken.
        """
        with self._lock:
            if not self._usual:
                return ...
            try:
                return self._value(row, read, most)
            except (_UnusualError, InvalidMetadataError):
                self._usual = False
                return ...

    def _value(self, row: int, read: Read, most: int) -> bytes | None:
        while self._first[-1] <= row:
            self._next_page(read)
        page = bisect_right(self._first, row) - 1
        strings, order = self._pages[page]
        at = row - self._first[page]
        if order is not None:
            at = int(order[at])
            if at < 0:
                return None
        return strings.value(at, read, most)

    def _next_page(self, read: Read) -> None:
        page = _page_at(self._at, self._end, read)
        if page.values > self._rows - (0 if page.is_dictionary else self._first[-1]):
            raise _UnusualError
        body = _Stored(page) if self._codec == UNCOMPRESSED else _Snappy(page)
        if page.is_dictionary:
            if self._dictionary is not None or page.encoding not in {_PLAIN, _PLAIN_DICTIONARY}:
                raise _UnusualError
            self._dictionary = _Strings(body, 0, page.values)
        elif page.encoding == _PLAIN:
            begin, order = self._levels(page, lambda at, size: body.part(at, size, read))
            self._pages.append((_Strings(body, begin, page.values), order))
        else:
            self._pages.append(self._looked_up(page, body, read))
        if not page.is_dictionary:
            self._first.append(self._first[-1] + page.values)
        self._at = page.end

    def _looked_up(self, page: _Page, body: _Stored | _Snappy, read: Read) -> tuple[_Strings, Ints]:
        """A page of indexes: the levels, a byte with the width, then runs (RLE_DICTIONARY)."""
        usual = {_PLAIN_DICTIONARY, _RLE_DICTIONARY}
        if self._dictionary is None or page.encoding not in usual or page.size > _MOST_INDEXES:
            raise _UnusualError
        data = body.whole(read)
        begin, order = self._levels(page, lambda at, size: data[at : at + size])
        count = page.values if order is None else int(order.max(initial=-1)) + 1
        if begin >= len(data):
            raise _UnusualError
        found = _runs(data[begin + 1 :], data[begin], count)
        if order is None:
            return self._dictionary, found
        # A NULL has no index: it stays below 0.
        return self._dictionary, np.where(order < 0, -1, np.r_[found, 0][order])

    def _levels(self, page: _Page, part: Read) -> tuple[int, Ints | None]:
        """Where values start in a page, and for each row which it has; None for each its own."""
        if self._required:
            return 0, None
        size = int.from_bytes(part(0, 4), "little")
        if page.levels != _RLE or size > page.size - 4:
            raise _UnusualError
        there = _runs(part(4, size), 1, page.values) != 0
        if there.all():
            return 4 + size, None
        return 4 + size, np.where(there, np.cumsum(there) - 1, -1)


# -- pages ----------------------------------------------------------------------------------------


class _Page(NamedTuple):
    is_dictionary: bool
    start: int
    """Where its body starts in the object."""
    stored: int
    size: int
    """Bytes of the body without codec."""
    values: int
    encoding: int
    levels: int
    """Encoding of the definition levels."""

    @property
    def end(self) -> int:
        return self.start + self.stored


def _page_at(at: int, end: int, read: Read) -> _Page:
    """PageHeader: 1 type, 2 and 3 sizes, 4 crc, 5 and 7 the headers of data and dictionary."""
    for size in _HEADERS:
        try:
            page = _page(CompactReader(read(at, min(size, end - at))), at)
        except IndexError:
            continue
        if page.start <= page.end <= end:
            return page
        break
    raise _UnusualError


def _page(reader: CompactReader, at: int) -> _Page:
    head = {1: -1, 2: -1, 3: -1, 4: _NO_CHECKSUM}
    data, dictionary = {1: -1, 2: -1, 3: -1}, {1: -1, 2: -1}

    def within(found: dict[int, int]) -> Callable[[int], None]:
        def read(kind: int) -> None:
            if kind != STRUCT:
                raise _UnusualError
            reader.numbers(found)

        return read

    reader.numbers(head, {5: within(data), 7: within(dictionary)})
    inner = {_DATA_PAGE: data, _DICTIONARY_PAGE: dictionary}.get(head[1])
    # A checksum holds for the page as a whole.
    if inner is None or min(head[2], head[3], inner[1]) < 0 or head[4] != _NO_CHECKSUM:
        raise _UnusualError
    return _Page(
        head[1] == _DICTIONARY_PAGE,
        at + reader.at,
        head[3],
        head[2],
        inner[1],
        inner[2],
        data[3],
    )


def _runs(data: bytes, width: int, count: int) -> Ints:
    """Numbers of some bits in runs: one repeated, or eights packed from the lowest bit on (RLE)."""
    if width > 32:
        raise _UnusualError
    found, have = np.zeros(count, np.int64), 0
    reader = CompactReader(data)
    while have < count:
        try:
            head = reader.varint()
        except IndexError as error:
            raise _UnusualError from error
        packed = head & 1
        many = min((head >> 1) * (8 if packed else 1), count - have)
        stored = (head >> 1) * width if packed else -(-width // 8)
        part = data[reader.at : reader.at + stored]
        reader.at += stored
        if not many or 8 * len(part) < width * (many if packed else 1):
            raise _UnusualError
        if packed and width:
            bits = np.unpackbits(np.frombuffer(part, np.uint8), bitorder="little")
            rows = bits[: many * width].reshape(many, width)
            found[have : have + many] = rows @ (1 << np.arange(width, dtype=np.int64))
        else:
            found[have : have + many] = int.from_bytes(part, "little")
        have += many
    return found


class _Strings:
    """Byte strings one behind the other, each with its length in front (PLAIN)."""

    def __init__(self, body: _Stored | _Snappy, begin: int, count: int) -> None:
        self._body, self._count = body, count
        self._starts = [begin]

    def value(self, at: int, read: Read, most: int) -> bytes:
        """The value of a number."""
        body, starts = self._body, self._starts
        if at >= self._count:
            raise _UnusualError
        while len(starts) < at + 2:
            size = int.from_bytes(body.part(starts[-1], 4, read), "little")
            starts.append(starts[-1] + 4 + size)
        start, end = starts[at] + 4, starts[at + 1]
        if end - start > most:
            raise _UnusualError
        return body.part(start, end - start, read)


# -- codecs ---------------------------------------------------------------------------------------


class _Stored:
    """The body of a page without codec."""

    def __init__(self, page: _Page) -> None:
        if page.size != page.stored:
            raise _UnusualError
        self._start, self._size = page.start, page.size

    def part(self, at: int, size: int, read: Read) -> bytes:
        """Some bytes of it."""
        if at + size > self._size:
            raise _UnusualError
        return read(self._start + at, size)

    def whole(self, read: Read) -> bytes:
        """All of it."""
        return self.part(0, self._size, read)


class _Snappy:
    """The body of a page in Snappy: a length, then literals and copies of what came before."""

    def __init__(self, page: _Page) -> None:
        self._start, self._end, self._size = page.start, page.end, page.size
        self._outs = [0]
        """Where each element starts in what it stands for; the last one is still to be walked."""
        self._ins: list[int] = []
        """Where it starts in the object."""
        self._literals: list[int] = []
        """Where its bytes start, -1 for a copy."""
        self._seen, self._from = b"", 0

    def part(self, at: int, size: int, read: Read) -> bytes:
        """Some bytes of what it stands for."""
        if at + size > self._size:
            raise _UnusualError
        if size == 0:
            return b""
        self._walk(at + size, read)
        outs = self._outs
        first = bisect_right(outs, at) - 1
        if self._literals[first] >= 0 and at + size <= outs[first + 1]:
            return read(self._literals[first] + at - outs[first], size)
        # Copies reach back to the start of their fragment at most; if not, the codec refuses.
        begin = at - at % _FRAGMENT
        low, high = bisect_left(outs, begin), bisect_left(outs, at + size)
        if outs[low] != begin:
            raise _UnusualError
        stored = read(self._ins[low], self._ins[high] - self._ins[low])
        return _inflated(stored, outs[high] - begin)[at - begin : at - begin + size]

    def whole(self, read: Read) -> bytes:
        """All of it."""
        start = self._begin(read)
        return _inflated(read(start, self._end - start), self._size)

    def _begin(self, read: Read) -> int:
        """Where the elements start: behind the length, a varint."""
        reader = CompactReader(read(self._start, min(5, self._end - self._start)))
        try:
            size = reader.varint()
        except IndexError as error:
            raise _UnusualError from error
        if size != self._size:
            raise _UnusualError
        return self._start + reader.at

    def _walk(self, until: int, read: Read) -> None:
        """Find the elements that stand for the first `until` bytes."""
        if not self._ins:
            self._ins.append(self._begin(read))
        outs, ins, literals = self._outs, self._ins, self._literals
        while outs[-1] < until:
            at = ins[-1]
            head = self._head(at, read)
            tag, kind = head[0], head[0] & 3
            if kind == 0:
                more = max((tag >> 2) - 59, 0)
                size = 1 + (int.from_bytes(head[1 : 1 + more], "little") if more else tag >> 2)
                following = at + 1 + more + size
                literals.append(at + 1 + more)
            else:
                size = 4 + (tag >> 2 & 7) if kind == 1 else 1 + (tag >> 2)
                following = at + (2, 3, 5)[kind - 1]
                literals.append(-1)
            outs.append(outs[-1] + size)
            ins.append(following)
            walked = following - self._start
            if following > self._end or len(outs) > _ELEMENTS + walked // _PER_ELEMENT:
                raise _UnusualError

    def _head(self, at: int, read: Read) -> bytes:
        """Five bytes, or those that are left."""
        if not self._from <= at <= self._from + len(self._seen) - 5:
            if at >= self._end:
                raise _UnusualError
            self._seen, self._from = read(at, min(_SEEN, self._end - at)), at
        return self._seen[at - self._from :][:5]


def _inflated(elements: bytes, size: int) -> bytes:
    """What elements of Snappy stand for that copy from one another alone."""
    length, left = bytearray(), size
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    length.append(left)
    try:
        codec = pa.Codec("snappy")
        found: bytes = codec.decompress(bytes(length) + elements, size, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise _UnusualError from error
    return found
