"""Regular directories: finding entries by name, without parsing the directory into columns.

A reader that wants one entry need not parse the directory. If the signature of a header occurs only
at the starts of headers, a name that is found behind one is the name of an entry. Everything else
is left to `directory.parse_directory`, which handles irregular archives; this module only detects
that an archive is regular.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Piece, Plan
from comal.ziparchive import wire
from comal.ziparchive.directory import (
    TAIL,
    Directory,
    chain,
    directory_bytes_plan,
    headers,
    parse_directory,
)
from comal.ziparchive.end import End
from comal.ziparchive.headermaking import flat

Uint32s = npt.NDArray[np.uint32]

_FEW: Final = 192
"""Up to this many headers are read one by one, which is faster than passes over arrays."""
_MOST_TRIES: Final = 64
"""Occurrences of a name that are not an entry's, before the search is given up."""
_END_MARK = wire.END_SIGNATURE.to_bytes(4, "little")
_LOCATOR_MARK = wire.LOCATOR64_SIGNATURE.to_bytes(4, "little")
_MARK = wire.CENTRAL_SIGNATURE.to_bytes(4, "little")
_CHAIN = struct.Struct("<I16xIIHHH8xI").unpack_from
_HEADER = struct.Struct("<8xHHHHIIIHHH8xI").unpack_from
_ENCRYPTED = wire.FLAG_ENCRYPTED | wire.FLAG_STRONG_ENCRYPTION | wire.FLAG_MASKED


class Found(NamedTuple):
    """One entry, from its header."""

    offset: int
    """Offset of the local header in the object."""
    following: int
    """Offset of the next local header, or of the directory."""
    csize: int
    size: int
    crc: int
    method: int
    time: int
    date: int
    name_size: int
    extra: bytes
    comment: bytes


@dataclass(slots=True, eq=False)
class RegularDirectory:
    """A contiguous directory whose local headers all precede it."""

    data: bytes
    end: End
    offsets: Sequence[int]
    """Stated offsets of the local headers, ascending."""
    starts: Uint32s | None = None
    """Start of each header in `data`; None for few headers, which are found quickly."""

    def find(self, name: bytes) -> Found | None:
        """The entry of this name, or None; `LookupError` if this search cannot decide."""
        data, entry = self.data, None
        at = data.find(name)
        for _ in range(_MOST_TRIES):
            if at < 0:
                return entry
            header = at - wire.CENTRAL_SIZE
            if header >= 0 and data.startswith(_MARK, header):
                found = _HEADER(data, header)
                if found[7] == len(name):
                    if entry is not None:
                        raise LookupError
                    entry = self._found(found, at + len(name))
            at = data.find(name, at + 1)
        raise LookupError

    @property
    def first_name(self) -> bytes:
        """The name of the first entry; empty if there is none."""
        size = int.from_bytes(self.data[28:30], "little")
        return self.data[wire.CENTRAL_SIZE : wire.CENTRAL_SIZE + size]

    def all_end_with(self, ending: bytes) -> bool:
        """Whether each name ends with a digit followed by `ending`."""
        starts, records = headers(self.data, "", self.starts)
        stops = starts + wire.CENTRAL_SIZE + records["name_size"]
        data = np.frombuffer(self.data, np.uint8)
        for back, byte in enumerate(reversed(ending), 1):
            if not (data[stops - back] == byte).all():
                return False
        digits = data[stops - len(ending) - 1] - np.uint8(0x30)
        return bool((digits < 10).all())

    def _found(self, header: tuple[int, ...], stop: int) -> Found:
        flags, method, time, date, crc, csize, size, name, extra, comment, offset = header
        end = self.end
        last = bisect_right(self.offsets, offset)
        following = int(self.offsets[last]) if last < len(self.offsets) else end.start - end.shift
        outside = csize > end.start - end.shift - wire.LOCAL_SIZE - offset
        if flags & _ENCRYPTED or outside:
            raise LookupError
        middle = stop + extra
        return Found(
            offset + end.shift,
            following + end.shift,
            csize,
            size,
            crc,
            method,
            time,
            date,
            name,
            self.data[stop:middle],
            self.data[middle : middle + comment],
        )


def regular_end(tail: Piece) -> End | None:
    """The end record of an archive, if the tail holds only one and it is regular.

    Everything else is left to `end.find_end`: several records, ZIP64, volumes, bytes before or
    behind the archive, and archives without entries.
    """
    data = tail.data
    at = data.rfind(_END_MARK)
    if at < wire.LOCATOR64_SIZE or data.find(_END_MARK, 0, at) >= 0:
        return None
    if len(data) - at < wire.END_SIZE or data.startswith(_LOCATOR_MARK, at - wire.LOCATOR64_SIZE):
        return None
    _, disk, first_disk, here, count, size, start, comment = wire.END.unpack_from(data, at)
    position = tail.offset + at
    if (
        disk
        or first_disk
        or here != count
        or not 0 < count * wire.CENTRAL_SIZE <= size
        or start + size != position
        or position + wire.END_SIZE + comment != tail.total
    ):
        return None
    return End(count, start, size, position, data[at + wire.END_SIZE :], tail.total)


def regular(data: bytes, end: End) -> RegularDirectory | None:
    """The directory without parsing; None if anything about its headers is irregular."""
    if end.count <= _FEW:
        offsets, starts = _few_offsets(data, end.count), None
    else:
        offsets, starts = _many_offsets(data, end.count)
    # Sizes and offsets of 4 294 967 295 are in ZIP64 fields.
    room = min(end.start - end.shift - wire.LOCAL_SIZE, wire.U32 - 1)
    if offsets is None or (len(offsets) and offsets[-1] > room):
        return None
    return RegularDirectory(data, end, offsets, starts)


def _few_offsets(data: bytes, count: int) -> Sequence[int] | None:
    if data.count(_MARK) != count or count * wire.CENTRAL_SIZE > len(data):
        return None
    offsets = []
    at, last = 0, len(data) - wire.CENTRAL_SIZE
    for _ in range(count):
        if at > last:
            return None
        mark, csize, size, name, extra, comment, offset = _CHAIN(data, at)
        if mark != wire.CENTRAL_SIGNATURE or wire.U32 in (csize, size):
            return None
        offsets.append(offset)
        at += wire.CENTRAL_SIZE + name + extra + comment
    offsets.sort()
    return offsets if at == len(data) else None


def _many_offsets(data: bytes, count: int) -> tuple[Sequence[int] | None, Uint32s | None]:
    found = chain(data)
    if found is None or len(found[0]) != count or found[2] != len(data):
        return None, None
    starts, records, _ = found
    if (records["csize"] == wire.U32).any() or (records["size"] == wire.U32).any():
        return None, None
    offsets = records["offset"].copy()
    if not (offsets[1:] >= offsets[:-1]).all():
        offsets.sort()
    return memoryview(np.ascontiguousarray(offsets, np.uint32).data), starts.astype(np.uint32)


# -- directories that are continued ----------------------------------------------------------------


@dataclass(frozen=True)
class StoredDirectory:
    """The directory of an archive as columns, and its bytes for appending."""

    end: End
    """The end record that points to it."""
    data: bytes
    """Its headers, without the end record."""
    starts: wire.Int64s
    """Start of each header in `data`."""
    directory: Directory
    """The headers as columns."""

    def __len__(self) -> int:
        return len(self.starts)

    def named(self, names: Any) -> Any:
        """Which entries have one of these names, a list or an Arrow array of str; in Arrow."""
        known = self.directory.raw_names
        return pc.is_in(known, value_set=flat(names, "names").cast(known.type))

    def kept(self, rows: npt.NDArray[np.bool_]) -> bytes:
        """The headers of the entries whose row is True."""
        dropped = np.flatnonzero(~rows)
        if not len(dropped):
            return self.data
        stops = np.append(self.starts[1:], len(self.data))
        # Headers between the dropped ones are copied in one piece.
        ends = [*self.starts[dropped].tolist(), len(self.data)]
        begins = [0, *stops[dropped].tolist()]
        return b"".join(
            [self.data[begin:end] for begin, end in zip(begins, ends, strict=True) if begin < end]
        )


def stored_directory_plan(
    href: str = "", tail: int = TAIL, limits: Limits = DEFAULT_LIMITS
) -> Plan[StoredDirectory]:
    """As `directory_plan`, also returning the bytes."""
    where = href or "archive"
    data, end = yield from directory_bytes_plan(href, tail, limits, where=where)
    if end.shift:
        raise InvalidMetadataError(
            "the archive does not begin where its offsets say",
            where=where,
            found=f"{end.shift} bytes before it",
            hint="write the archive anew",
        )
    starts, _ = headers(data, where)
    directory = parse_directory(data, end, where, same_names=False, known=starts)
    return StoredDirectory(end, data, starts, directory)
