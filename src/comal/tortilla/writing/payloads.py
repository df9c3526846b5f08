"""Where the bytes of items come from, told for whole tables at once.

A table may hold a million items, so its payloads are columns: paths of local files, byte strings,
or spans of other files. Samples that were made one by one have theirs in a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.limits import MIB
from comal.plan import ByteRange
from comal.storage import Source
from comal.tortilla.writing.appender import Appender

Ints = npt.NDArray[np.int64]
Heads = npt.NDArray[np.uint8]
"""The first 16 bytes of n items, shape (n, 16); zeros where an item is shorter."""
Bools = npt.NDArray[np.bool_]

HEAD = 16
UNKNOWN = -1
"""Size of a payload that is only known when it has been read."""
_BLOCK = 16 * MIB
"""What is held at once of spans of other files."""
_CHUNK = 8 * MIB


@dataclass(frozen=True, slots=True)
class Copied:
    """What was seen of payloads while they were copied."""

    sizes: Ints
    heads: Heads | None = None
    """None where payloads are copied as they are, unseen."""
    empty: Bools | None = None
    """Whether a payload has bytes and all of them are zero."""


class Payloads(Protocol):
    """The bytes of n items."""

    def __len__(self) -> int:
        """How many items."""
        ...

    def sizes(self) -> Ints:
        """Size of each payload in bytes now, `UNKNOWN` where only reading tells."""
        ...

    def take(self, rows: Ints) -> Payloads:
        """The payloads of `rows`, in that order."""
        ...

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`, before they are copied."""
        ...

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append the payloads of rows ``start .. stop``; each must be as long as it was."""
        ...

    def rasters(self, rows: Ints) -> list[Any]:
        """What `comal.raster` opens for `rows`; None where it has no way to the bytes."""
        ...

    def local_paths(self) -> Iterator[str]:
        """The local files that are read."""
        ...

    def place(self, row: int) -> str:
        """Where the payload of a row is, for messages."""
        ...


def head_rows(heads: Sequence[Any]) -> Heads:
    """The first bytes of payloads as an array."""
    joined = b"".join(bytes(head[:HEAD]).ljust(HEAD, b"\0") for head in heads)
    return np.frombuffer(joined, np.uint8).reshape(-1, HEAD)


def all_zero(data: Any) -> bool:
    """Whether a buffer holds bytes and all are zero."""
    view = memoryview(data)
    return bool(view and view[0] == 0 and not np.frombuffer(view, np.uint8).any())


@dataclass(frozen=True, slots=True)
class Nothing:
    """Items without a payload of their own: nested files are made while they are written."""

    count: int

    def __len__(self) -> int:
        return self.count

    def sizes(self) -> Ints:
        """All zero."""
        return np.zeros(self.count, np.int64)

    def take(self, rows: Ints) -> Nothing:
        """As many items."""
        return Nothing(len(rows))

    def heads(self, rows: Ints) -> Heads:
        """All zero."""
        return np.zeros((len(rows), HEAD), np.uint8)

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Write nothing."""
        del out
        return Copied(np.zeros(stop - start, np.int64))

    def rasters(self, rows: Ints) -> list[Any]:
        """None are there."""
        return [None] * len(rows)

    def local_paths(self) -> Iterator[str]:
        """None are read."""
        return iter(())

    def place(self, row: int) -> str:
        """That there is nothing."""
        return f"nested item in row {row}"


@dataclass(frozen=True, slots=True)
class Blobs:
    """Payloads in memory: an Arrow array of binary or large_binary; null is empty."""

    data: Any

    @classmethod
    def of(cls, column: Any) -> Blobs:
        """From a binary column of any Arrow spelling."""
        if isinstance(column, pa.ChunkedArray):
            wide = pa.large_binary()
            if column.num_chunks != 1:
                column = pa.chunked_array([chunk.cast(wide) for chunk in column.chunks], wide)
            column = column.combine_chunks()
        if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
            column = column.cast(pa.large_binary())
        return cls(pc.fill_null(column, b"") if column.null_count else column)

    def __len__(self) -> int:
        return len(self.data)

    def _bounds(self, start: int, stop: int) -> Ints:
        wide = pa.types.is_large_binary(self.data.type)
        buffer = self.data.buffers()[1]
        if buffer is None or not len(self.data):
            return np.zeros(stop - start + 1, np.int64)
        offsets = np.frombuffer(buffer, np.int64 if wide else np.int32)
        first = self.data.offset + start
        return offsets[first : first + stop - start + 1].astype(np.int64)

    @property
    def _bytes(self) -> memoryview:
        return memoryview(self.data.buffers()[2] or b"")

    def sizes(self) -> Ints:
        """Lengths of the byte strings."""
        return np.diff(self._bounds(0, len(self)))

    def take(self, rows: Ints) -> Blobs:
        """The payloads of `rows`."""
        if _is_run(rows):
            return Blobs(self.data.slice(int(rows[0]), len(rows)))
        wide = self.data if pa.types.is_large_binary(self.data.type) else None
        # Bytes that are taken anew may be more than 32 bits of offsets can tell.
        wide = self.data.cast(pa.large_binary()) if wide is None else wide
        return Blobs(wide.take(pa.array(rows)))

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        if not len(rows):
            return np.zeros((0, HEAD), np.uint8)
        first = int(rows.min())
        bounds = self._bounds(first, int(rows.max()) + 1)
        return self._gathered(bounds[rows - first], bounds[rows - first + 1])

    def _gathered(self, starts: Ints, stops: Ints) -> Heads:
        data = np.frombuffer(self._bytes, np.uint8)
        if not len(data):
            return np.zeros((len(starts), HEAD), np.uint8)
        places = starts[:, None] + np.arange(HEAD)
        found = data[np.minimum(places, len(data) - 1)]
        return np.where(places < stops[:, None], found, 0).astype(np.uint8)

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append a run of neighbours as they lie in memory."""
        bounds = self._bounds(start, stop)
        data = self._bytes
        first, last = int(bounds[0]), int(bounds[-1])
        for at in range(first, last, _CHUNK):
            out.write(data[at : min(at + _CHUNK, last)])
        heads = self._gathered(bounds[:-1], bounds[1:])
        sizes = np.diff(bounds)
        empty = (sizes > 0) & ~heads.any(axis=1)
        for row in np.flatnonzero(empty).tolist():
            empty[row] = all_zero(data[int(bounds[row]) : int(bounds[row + 1])])
        return Copied(sizes, heads, empty)

    def rasters(self, rows: Ints) -> list[Any]:
        """The bytes of `rows`."""
        return [self.data[row].as_py() for row in rows.tolist()]

    def local_paths(self) -> Iterator[str]:
        """None are read."""
        return iter(())

    def place(self, row: int) -> str:
        """That it is in memory, and its row."""
        return f"bytes in memory, row {row}"


@dataclass(frozen=True, slots=True)
class Spans:
    """Payloads that are byte ranges of other files; `source` is a position in `sources`."""

    sources: Sequence[Source]
    source: Ints
    offsets: Ints
    lengths: Ints

    def __len__(self) -> int:
        return len(self.offsets)

    def sizes(self) -> Ints:
        """Lengths of the ranges."""
        return self.lengths

    def take(self, rows: Ints) -> Spans:
        """The payloads of `rows`."""
        return Spans(self.sources, self.source[rows], self.offsets[rows], self.lengths[rows])

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`, those of one file in one fetch."""
        found: list[bytes] = [b""] * len(rows)
        owner, sizes = self.source[rows], np.minimum(self.lengths[rows], HEAD)
        for position in np.unique(owner).tolist():
            mine = np.flatnonzero((owner == position) & (sizes > 0))
            heads = self.sources[position].fetch_spans(self.offsets[rows[mine]], sizes[mine])
            for n, head in zip(mine.tolist(), heads, strict=True):
                found[n] = head
        return head_rows(found)

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append the ranges; neighbours that touch are read as one, far ones in one fetch."""
        rows = slice(start, stop)
        block: list[tuple[int, ByteRange]] = []
        held = 0
        for position, offset, size in _runs(
            self.source[rows], self.offsets[rows], self.lengths[rows]
        ):
            for at in range(offset, offset + size, _CHUNK):
                piece = ByteRange(at, min(_CHUNK, offset + size - at))
                if held + piece.size > _BLOCK:
                    self._copy_block(block, out)
                    block, held = [], 0
                block.append((position, piece))
                held += piece.size
        self._copy_block(block, out)
        return Copied(self.lengths[rows])

    def _copy_block(self, block: Sequence[tuple[int, ByteRange]], out: Appender) -> None:
        found: list[bytes] = [b""] * len(block)
        for position in {position for position, _ in block}:
            mine = [n for n, (owner, _) in enumerate(block) if owner == position]
            wanted = [block[n][1] for n in mine]
            for n, piece in zip(mine, self.sources[position].fetch(wanted), strict=True):
                # A source raises when an object ends early; this is the last word on it.
                assert len(piece.data) == block[n][1].size
                found[n] = piece.data
        for data in found:
            out.write(data)

    def rasters(self, rows: Ints) -> list[Any]:
        """Spans of local files; other ones are fetched."""
        from comal.raster import Span  # noqa: PLC0415 - loads GDAL

        found: list[Any] = []
        for row in rows.tolist():
            source = self.sources[int(self.source[row])]
            span = ByteRange(int(self.offsets[row]), int(self.lengths[row]))
            if "://" in source.href:
                found.append(source.fetch([span])[0].data)
            else:
                found.append(Span(source.href, span.offset, span.size))
        return found

    def local_paths(self) -> Iterator[str]:
        """The files that hold the spans."""
        used = np.unique(self.source).tolist()
        yield from (self.sources[n].href for n in used if "://" not in self.sources[n].href)

    def place(self, row: int) -> str:
        """The file and the range in it."""
        href = self.sources[int(self.source[row])].href
        return f"{href} (bytes {self.offsets[row]}+{self.lengths[row]})"


def _runs(source: Ints, offsets: Ints, lengths: Ints) -> Iterator[tuple[int, int, int]]:
    """Ranges in their order, those that touch the one before joined with it."""
    filled = np.flatnonzero(lengths > 0)
    source, offsets, lengths = source[filled], offsets[filled], lengths[filled]
    if not len(filled):
        return
    apart = (offsets[1:] != offsets[:-1] + lengths[:-1]) | (source[1:] != source[:-1])
    bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(filled)]
    for first, last in pairwise(bounds):
        size = int(offsets[last - 1] + lengths[last - 1] - offsets[first])
        yield int(source[first]), int(offsets[first]), size


def _is_run(rows: Ints) -> bool:
    return bool(len(rows) and rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all())
