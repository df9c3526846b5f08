"""Payloads that are entries of ZIP archives, verified while they are copied.

The local header of an entry is right before its bytes, so it is fetched in the same request: its
name, size and checksum reveal a wrong span, an index that is older than its archive, and bit rot.
Blocks are compared at once; only unusual headers are parsed one by one.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import InvalidMetadataError, shown
from comal.limits import DEFAULT_LIMITS, KIB, MIB, Limits
from comal.plan import ByteRange, Piece, Wanted
from comal.samples.payloads import Ints, Spans
from comal.storage import Source
from comal.storage.coalesce import Merged, coalesce
from comal.storage.wrappers import SourceWrapper
from comal.ziparchive import STORE, extracted, wire
from comal.ziparchive.directory import slices
from comal.ziparchive.headermaking import checksums
from comal.ziparchive.local import local_before, prefix_size

_GAP = 64 * KIB
"""Largest gap between two samples that is cheaper to read than to skip by another request."""
_LOCAL_GAP = 16 * KIB
_REQUEST = 4 * MIB
_GROUP = 32 * MIB
"""Bytes to fetch at once, gaps included."""
_UNUSUAL = wire.FLAG_ENCRYPTED | wire.FLAG_DESCRIPTOR | wire.FLAG_STRONG_ENCRYPTION

_Bools = npt.NDArray[np.bool_]
Crcs = npt.NDArray[np.uint32]


class LimitedSource(SourceWrapper):
    """A source that fetches at most `limit` ranges at once."""

    def __init__(self, source: Source, limit: int) -> None:
        super().__init__(source)
        self.limit = max(1, limit)

    def over(self, source: Source) -> LimitedSource:
        """The same limit for another source."""
        return LimitedSource(source, self.limit)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order."""
        pieces: list[Piece] = []
        for start in range(0, len(wanted), self.limit):
            pieces += self.source.fetch(wanted[start : start + self.limit])
        return pieces


@dataclass(frozen=True, slots=True)
class _Entries(Spans):
    """Samples that are entries of ZIP archives."""

    names: Any = field(kw_only=True)
    """Arrow strings: the expected entry name of each row after `folder`."""
    folder: str = field(default="", kw_only=True)
    """What the names of all entries begin with: made for few rows, it is not held for all."""

    def name(self, row: int) -> str:
        """The name of an entry."""
        return f"{self.folder}{self.names[row].as_py()}"

    def place(self, row: int) -> str:
        """The sample and the span of its bytes."""
        name = shown(self.name(row), 120)
        where = self.sources[int(self.source[row])].href
        return f"sample {name} in {where} (bytes {self.offsets[row]}+{self.lengths[row]})"


@dataclass(frozen=True, slots=True)
class ZipEntries(_Entries):
    """Samples of other archives, by the spans in their indexes."""

    limit: int = 100
    """Maximum number of requests in flight."""

    @classmethod
    def joined(cls, parts: Sequence[ZipEntries]) -> ZipEntries:
        """The rows of all `parts`, one after the other; shared archives are kept once."""
        sources: list[Source] = []
        known: dict[int, int] = {}
        source = []
        for part in parts:
            for item in part.sources:
                if id(item) not in known:
                    known[id(item)] = len(sources)
                    sources.append(item)
            places = np.array([known[id(item)] for item in part.sources], np.int64)
            source.append(places[part.source])
        return cls(
            sources,
            np.concatenate(source),
            np.concatenate([part.offsets for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            names=pa.concat_arrays([part.names for part in parts]),
            folder=parts[0].folder,
            limit=min(part.limit for part in parts),
        )

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """Fetch `rows`, adjacent ones together, and compare each with its local header."""
        del sizes  # local headers are compared instead
        order, parts = [np.zeros(0, np.int64)], []
        for places, entries, source in self._by_source(rows):
            order.append(places)
            for first, last, fetched in _fetched(entries, source):
                parts.append(_taken(entries, first, last, fetched))
        joined = pa.concat_arrays(parts) if parts else pa.array([], pa.binary())
        back = np.concatenate(order)
        if (back[1:] >= back[:-1]).all():
            return joined
        return joined.take(pa.array(np.argsort(back)))

    def views(self, rows: Ints, sizes: Ints) -> list[Any]:
        """As `block`, but nothing is copied from what is fetched."""
        del sizes
        found: list[Any] = [b""] * len(rows)
        for places, entries, source in self._by_source(rows):
            for first, last, fetched in _fetched(entries, source):
                taken = _viewed(entries, first, last, fetched)
                for place, view in zip(places[first:last].tolist(), taken, strict=True):
                    found[place] = view
        return found

    def _by_source(self, rows: Ints) -> Iterator[tuple[Ints, ZipEntries, Source]]:
        """For each archive the positions of its entries in `rows`, by ascending offsets."""
        order = np.lexsort((self.offsets[rows], self.source[rows]))
        owners = self.source[rows[order]]
        for position in np.unique(owners).tolist():
            mine = order[owners == position]
            chosen = self.take(rows[mine])
            names = pc.binary_join_element_wise(self.folder, chosen.names, "")
            yield mine, replace(chosen, names=names, folder=""), self.sources[position]

    def open(self, row: int) -> BinaryIO:
        """One entry as a stream that raises `InvalidMetadataError` if its checksum is wrong."""
        source = self.sources[int(self.source[row])]
        name, offset, size = self.name(row), int(self.offsets[row]), int(self.lengths[row])
        before = min(offset, prefix_size(len(name.encode())))
        (piece,) = source.fetch([ByteRange(offset - before, before)])
        header = local_before(piece.data, name, size, where=self.place(row))

        def judge(crc: int) -> None:
            if crc != header.crc:
                raise _damaged(self, row, crc, header.crc)

        step = min(_GROUP, self.limit * _REQUEST)
        return cast("BinaryIO", _CheckedStream(source, ByteRange(offset, size), step, judge))


# -- a block of entries ---------------------------------------------------------------------------


class _Group(NamedTuple):
    """Requests that were sent at once."""

    merged: Merged
    begin: int
    """The first of them."""
    pieces: list[bytes]


def _fetched(entries: ZipEntries, source: Source) -> Iterator[tuple[int, int, _Group]]:
    """Runs of entries of one archive, in ascending order of their offsets, and their bytes."""
    name_sizes = _name_sizes(entries.names)
    for row in np.flatnonzero(entries.offsets < wire.LOCAL_SIZE + name_sizes)[:1].tolist():
        raise InvalidMetadataError(
            "the span is not that of the sample",
            where=entries.place(row),
            expected="a local header before the sample",
        )
    # The same for all rows, so that the starts of ranges ascend too.
    before = prefix_size(int(name_sizes.max(initial=0)))
    starts = np.maximum(0, entries.offsets - before)
    gap = _LOCAL_GAP if source.location.is_local else _GAP
    merged = coalesce(starts, entries.offsets + entries.lengths - starts, gap, _REQUEST)
    limited = LimitedSource(source, entries.limit)
    first = 0
    for begin, end in _groups(merged, entries.limit):
        ranges = zip(
            merged.starts[begin:end].tolist(), merged.sizes[begin:end].tolist(), strict=True
        )
        pieces = limited.fetch([ByteRange(start, size) for start, size in ranges])
        # `owner` ascends, because offsets do.
        last = int(np.searchsorted(merged.owner, end))
        yield first, last, _Group(merged, begin, [piece.data for piece in pieces])
        first = last


def _groups(merged: Merged, limit: int) -> Iterator[tuple[int, int]]:
    """Runs of requests to send at once; a range of several requests is never split."""
    whole = np.zeros(len(merged.starts) + 1, np.bool_)
    whole[merged.owner] = True
    whole[-1] = True
    begin, size = 0, 0
    for index, length in enumerate(merged.sizes.tolist()):
        full = size + length > _GROUP or index - begin >= limit
        if index > begin and full and whole[index]:
            yield begin, index
            begin, size = index, 0
        size += length
    if len(merged.sizes):
        yield begin, len(merged.sizes)


def _taken(entries: ZipEntries, first: int, last: int, group: _Group) -> Any:
    """The payloads of the rows ``first .. last`` as an Arrow array."""
    data = b"".join(group.pieces)
    merged, rows = group.merged, np.arange(first, last)
    sizes = merged.sizes[group.begin :]
    bases = np.cumsum(sizes) - sizes
    owner = merged.owner[rows]
    places = entries.offsets[rows] - merged.starts[owner] + bases[owner - group.begin]
    crcs = _expected(entries, rows, places, data)
    _refuse_overlaps(entries, rows)
    payloads = slices(data, places, entries.lengths[rows])
    _compare(entries, rows, checksums(payloads), crcs)
    return payloads


def _viewed(entries: ZipEntries, first: int, last: int, group: _Group) -> list[memoryview]:
    """The payloads of the rows ``first .. last`` in what was fetched."""
    merged, rows = group.merged, np.arange(first, last)
    owner = merged.owner[rows]
    used = np.unique(owner)
    ends = np.append(used[1:], group.begin + len(group.pieces))
    runs = {  # a long range has several requests
        one: memoryview(b"".join(group.pieces[one - group.begin : end - group.begin]))
        for one, end in zip(used.tolist(), ends.tolist(), strict=True)
    }
    before = prefix_size(int(_name_sizes(entries.names).max(initial=0)))
    heads, views = [], []
    places = entries.offsets[rows] - merged.starts[owner]
    spans = zip(owner.tolist(), places.tolist(), entries.lengths[rows].tolist(), strict=True)
    for run, start, length in spans:
        data = runs[run]
        heads.append(bytes(data[max(0, start - before) : start]).rjust(before, b"\0"))
        views.append(data[start : start + length])
    crcs = _expected(entries, rows, before * np.arange(1, len(rows) + 1), b"".join(heads))
    _refuse_overlaps(entries, rows)
    _compare(entries, rows, checksums(views), crcs)
    return views


def _refuse_overlaps(entries: ZipEntries, rows: Ints) -> None:
    starts, sizes = entries.offsets[rows], entries.lengths[rows]
    for row in rows[:-1][starts[1:] < starts[:-1] + sizes[:-1]][:1].tolist():
        raise InvalidMetadataError(
            "two samples overlap",
            where=entries.place(row + 1),
            found=f"begins inside {entries.place(row)}",
        )


def _compare(entries: ZipEntries, rows: Ints, found: Crcs, crcs: Crcs) -> None:
    for row in np.flatnonzero(found != crcs)[:1].tolist():
        raise _damaged(entries, int(rows[row]), int(found[row]), int(crcs[row]))


def _expected(entries: ZipEntries, rows: Ints, places: Ints, data: bytes) -> Crcs:
    """The checksums in the local headers; raises if a header is not that of its row."""
    names = entries.names.take(pa.array(rows))
    name_sizes = _name_sizes(names)
    lengths = entries.lengths[rows]
    heads = places - wire.LOCAL_SIZE - name_sizes
    inside = heads >= 0
    every = np.ndarray((max(0, len(data) - wire.LOCAL_SIZE + 1),), wire.LOCAL, data, strides=(1,))
    crcs = np.zeros(len(rows), np.uint32)
    usual = np.zeros(len(rows), np.bool_)
    if len(every):
        records = every[np.minimum(np.maximum(heads, 0), len(every) - 1)]
        crcs = records["crc"].copy()
        usual = (
            inside
            & (records["signature"] == wire.LOCAL_SIGNATURE)
            & (records["method"] == wire.STORE)
            & (records["flags"] & _UNUSUAL == 0)
            & (records["name_size"] == name_sizes)
            & (records["extra_size"] == 0)
            & (records["csize"] == lengths)
            & (records["size"] == lengths)
        )
        usual &= _same_names(data, heads + wire.LOCAL_SIZE, names, name_sizes, usual)
    for row in np.flatnonzero(~usual).tolist():
        crcs[row] = _unusual(entries, int(rows[row]), int(places[row]), data)
    return crcs


def _same_names(data: bytes, starts: Ints, names: Any, sizes: Ints, candidates: _Bools) -> _Bools:
    """Which of the candidates have the bytes of their names at `starts`."""
    same = np.zeros(len(starts), np.bool_)
    rows = np.flatnonzero(candidates)
    ends = starts[rows] + sizes[rows]
    if len(rows) == 0 or (starts[rows][1:] < ends[:-1]).any():
        return same  # overlapping headers are parsed one by one
    found = slices(data, starts[rows], sizes[rows])
    equal = pc.equal(found, names.take(pa.array(rows)).cast(pa.binary()))
    same[rows] = equal.to_numpy(zero_copy_only=False)
    return same


def _unusual(entries: ZipEntries, row: int, place: int, data: bytes) -> int:
    """The checksum from a header with extra fields; raises if it is not that of the row."""
    name = entries.names[row].as_py()
    before = min(place, prefix_size(len(name.encode())))
    size = int(entries.lengths[row])
    prefix = data[place - before : place]
    return int(local_before(prefix, name, size, where=entries.place(row)).crc)


def _name_sizes(names: Any) -> Ints:
    return np.asarray(pc.binary_length(names).to_numpy(zero_copy_only=False), np.int64)


# -- one large entry ------------------------------------------------------------------------------


class _CheckedStream(io.RawIOBase):
    """The bytes of one entry, fetched some MiB at a time; the checksum is compared at the end."""

    def __init__(
        self, source: Source, span: ByteRange, step: int, judge: Callable[[int], None]
    ) -> None:
        super().__init__()
        self._source, self._step, self._judge = source, step, judge
        self._position, self._left = span.offset, span.size
        self._buffer, self._used = b"", 0
        self._crc = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return self.readall()
        if self._used == len(self._buffer) and self._left:
            self._refill()
        taken = self._buffer[self._used : self._used + size]
        self._used += len(taken)
        return taken

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def _refill(self) -> None:
        (piece,) = self._source.fetch([ByteRange(self._position, min(self._left, self._step))])
        self._buffer, self._used = piece.data, 0
        self._position += len(piece.data)
        self._left -= len(piece.data)
        self._crc = crc32(piece.data, self._crc)
        if not self._left:
            self._judge(self._crc)


@dataclass(frozen=True, slots=True)
class CheckedEntries(_Entries):
    """Entries of an archive by its directory, with their methods and checksums."""

    size: Ints = field(kw_only=True)
    """Bytes of each sample; `lengths` are those in the archive."""
    crc: Ints = field(kw_only=True)
    method: Ints = field(kw_only=True)
    limits: Limits = DEFAULT_LIMITS

    def sizes(self) -> Ints:
        """Bytes of each sample."""
        return self.size

    def block(self, rows: Ints, sizes: Ints) -> Any:
        """The bytes of `rows`."""
        stored = self.fetched(rows, np.where(sizes > 0, self.lengths[rows], 0))
        found = zip(rows.tolist(), sizes.tolist(), stored, strict=True)
        return pa.array(
            [self._content(row, data) if size else b"" for row, size, data in found], pa.binary()
        )

    def open(self, row: int) -> BinaryIO:
        """One payload as a stream, which raises at its end if the checksum is wrong."""
        span = ByteRange(int(self.offsets[row]), int(self.lengths[row]))
        source = self.sources[int(self.source[row])]
        if self.method[row] != STORE:
            (piece,) = source.fetch([span])
            return io.BytesIO(self._content(row, piece.data))

        def judge(crc: int) -> None:
            if crc != self.crc[row]:
                raise _damaged(self, row, crc, int(self.crc[row]))

        return cast("BinaryIO", _CheckedStream(source, span, _GROUP, judge))

    def _content(self, row: int, data: bytes) -> bytes:
        return extracted(
            data,
            method=int(self.method[row]),
            size=int(self.size[row]),
            crc=int(self.crc[row]),
            where=self.place(row),
            limits=self.limits,
        )


# -- errors ---------------------------------------------------------------------------------------


def _damaged(entries: _Entries, row: int, found: int, expected: int) -> InvalidMetadataError:
    return InvalidMetadataError(
        "checksum mismatch",
        where=entries.place(row),
        found=f"crc {found:08x}",
        expected=f"{expected:08x}",
        hint="the archive is damaged; fetch it again",
    )
