"""The directory of an archive as a reader keeps it: 36 bytes an entry, found by bisection.

The entries that are tiles are sorted by suffix and tile. A record says where the tile's bytes are,
up to the beginning of the next record in the file, so that one read brings local header and payload
however long the header's extra field is.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from comal.errors import Problem
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Plan
from comal.tapalcatl.spec import ArchiveMetadata, read_comment
from comal.tapalcatl.times import modified_times
from comal.tapalcatl.wire import TileNames, parse_names
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire

TAIL: Final = 65_536
SLACK: Final = 1_024
"""Bytes beyond name and payload that are read for an extra field at most, should a gap follow."""
BAD: Final = 0x8000
ENCRYPTED: Final = 0x4000
"""Marks in the method of a record."""
_MOST = 0xFFFFFFFF


def _dtype(wide: str) -> np.dtype[np.void]:
    places = [(name, wide) for name in ("offset", "span", "csize", "size")]
    return np.dtype(
        [*places, ("crc", "<u4"), ("modified", "<u4"), ("method", "<u2"), ("name_size", "<u2")]
    )


_SMALL, _LARGE = _dtype("<u4"), _dtype("<u8")


class Record(NamedTuple):
    """Where one tile is, and what the directory says of it."""

    offset: int
    """Of its local header."""
    span: int
    """Bytes to the next record."""
    csize: int
    size: int
    crc: int
    modified: int
    """Seconds since 1970, 0 where nothing is said."""
    method: int
    """With the marks `BAD` and `ENCRYPTED`."""
    name_size: int


@dataclass(frozen=True)
class ArchiveIndex:
    """The tiles of one archive."""

    keys: Mapping[str, tuple[Sequence[int], int]]
    """For each suffix its sorted `tile_keys`, and the number of the first one's record."""
    records: memoryview
    unpack: Any
    """``unpack_from`` of a record."""
    record_size: int
    comments: Mapping[int, bytes]
    """Comments of entries by number of the record."""
    metadata: ArchiveMetadata | None
    problems: tuple[Problem, ...]
    total: int
    """Bytes of the archive."""
    end: int
    """Where the entries' part of it ends."""
    count: int
    """Entries of the directory, tiles or not."""
    lowest: int | None = None
    highest: int | None = None
    """First and last zoom that occur."""

    def __len__(self) -> int:
        return len(self.records) // self.record_size

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Every suffix that occurs."""
        return tuple(self.keys)

    @property
    def weight(self) -> int:
        """Bytes that this takes in memory, about."""
        comments = sum(map(len, self.comments.values())) + 200 * len(self.comments)
        return len(self.records) + 8 * len(self) + comments + 2_000 + 300 * len(self.keys)

    def find(self, suffix: str, key: int) -> int:
        """The number of a tile's record, or -1."""
        entry = self.keys.get(suffix)
        if entry is None:
            return -1
        keys, first = entry
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            return first + at
        return -1

    def record(self, number: int) -> Record:
        """A record by its number."""
        return Record(*self.unpack(self.records, number * self.record_size))

    def fields(self, number: int) -> tuple[int, int, int, int, int, int, int, int]:
        """As `record`, without names."""
        found: tuple[int, int, int, int, int, int, int, int]
        found = self.unpack(self.records, number * self.record_size)
        return found

    @cached_property
    def table(self) -> Any:
        """The records as a NumPy array."""
        kind = _SMALL if self.record_size == _SMALL.itemsize else _LARGE
        return np.frombuffer(self.records, kind)


def index_plan(
    where: str,
    tail: int = TAIL,
    limits: Limits = DEFAULT_LIMITS,
    prefix: bytes = b"",
) -> Plan[ArchiveIndex]:
    """Fetch the directory of an archive: the last `tail` bytes, more only where it is longer."""
    directory = yield from directory_plan("", tail, limits, where=where, lenient=True)
    return build_index(directory, where, prefix, limits)


def build_index(
    directory: Directory, where: str, prefix: bytes = b"", limits: Limits = DEFAULT_LIMITS
) -> ArchiveIndex:
    """The tiles of a parsed directory."""
    metadata, problems = read_comment(directory.comment, f"{where}, comment", limits)
    names = parse_names(directory.raw_names, prefix)
    order, counts = _order(names)
    rows = names.rows if order is None else names.rows[order]
    keys = names.keys if order is None else names.keys[order]
    large = directory.total > _MOST
    records = _records(directory, rows, _LARGE if large else _SMALL)
    parts: dict[str, tuple[Sequence[int], int]] = {}
    first = 0
    for suffix, count in zip(names.suffixes, counts, strict=True):
        parts[suffix] = (memoryview(keys[first : first + count].data), first)
        first += count
    return ArchiveIndex(
        keys=parts,
        records=memoryview(records.view(np.uint8)),
        unpack=struct.Struct("<QQQQIIHH" if large else "<IIIIIIHH").unpack_from,
        record_size=records.dtype.itemsize,
        comments=_comments(directory, rows),
        metadata=metadata,
        problems=(*directory.problems, *problems),
        total=directory.total,
        end=directory.start,
        count=len(directory),
        lowest=int(names.z.min()) if len(names) else None,
        highest=int(names.z.max()) if len(names) else None,
    )


def _order(names: TileNames) -> tuple[Any, list[int]]:
    """The order by suffix and tile (None when it is that already), and tiles of each suffix.

    Of several entries with one name the last is kept, as existing readers do.
    """
    if len(names) == 0:
        return None, [0] * len(names.suffixes)
    keys = names.keys
    if len(names.suffixes) == 1:
        if (keys[1:] > keys[:-1]).all():
            return None, [len(keys)]
        order = np.argsort(keys, kind="stable")
    else:
        order = np.lexsort((keys, names.suffix))
    codes, ordered = names.suffix[order], keys[order]
    last = np.append((ordered[1:] != ordered[:-1]) | (codes[1:] != codes[:-1]), [True])
    kept = order[last]
    return kept, np.bincount(names.suffix[kept], minlength=len(names.suffixes)).tolist()


def _records(directory: Directory, rows: Any, kind: np.dtype[np.void]) -> Any:
    spans = _spans(directory)
    records = np.empty(len(rows), kind)
    most = np.iinfo(kind["size"]).max
    method = directory.method.copy()
    np.minimum(method, ENCRYPTED - 1, out=method)
    encrypted = zip_wire.FLAG_ENCRYPTED | zip_wire.FLAG_STRONG_ENCRYPTION | zip_wire.FLAG_MASKED
    method[(directory.flags & encrypted) > 0] |= ENCRYPTED
    if directory.bad is not None:
        method[directory.bad] |= BAD
    columns = {
        "offset": np.maximum(directory.header_offset, 0),
        "span": spans,
        "csize": directory.csize,
        "size": directory.size,
    }
    for name, values in columns.items():
        # What does not fit is beyond every limit, and refused for that when it is asked for.
        chosen = values[rows]
        records[name] = chosen if int(chosen.max(initial=0)) <= most else np.minimum(chosen, most)
    records["crc"] = directory.crc[rows]
    records["modified"] = modified_times(directory)[rows]
    records["method"] = method[rows]
    records["name_size"] = directory.name_size[rows]
    return records


def _spans(directory: Directory) -> Any:
    """Bytes from each local header to the next record, at most a slack behind the payload."""
    starts = directory.header_offset
    least = np.minimum(directory.csize, directory.total) + zip_wire.LOCAL_SIZE + directory.name_size
    if (starts[1:] > starts[:-1]).all():
        following = np.append(starts[1:], directory.start)
    else:
        distinct = np.unique(np.append(starts, directory.start))
        at = np.searchsorted(distinct, starts, side="right")
        following = distinct[np.minimum(at, len(distinct) - 1)]
    # A local header at least, so that readers of one need not look at the length.
    return np.clip(following - starts, zip_wire.LOCAL_SIZE, least + SLACK)


def _comments(directory: Directory, rows: Any) -> dict[int, bytes]:
    if directory.comments is None:
        return {}
    comments = directory.comments.take(rows)
    sizes = np.diff(np.frombuffer(comments.buffers()[1], _offsets(comments))[: len(rows) + 1])
    return {row: comments[row].as_py() for row in np.flatnonzero(sizes).tolist()}


def _offsets(values: Any) -> Any:
    return np.int64 if str(values.type).startswith("large") else np.int32
