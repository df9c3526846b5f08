"""The directory of an archive as a reader keeps it.

The first tiles are found by name in the directory as it stands, where there is nothing unusual in
it: whoever reads one tile of an archive does not wait until all others have been sorted. After
some tiles it becomes columns, 36 bytes an entry, found by bisection: the entries that are tiles are
sorted by suffix and tile. A record says where the tile's bytes are, up to the beginning of the next
record in the file, so that one read brings local header and payload however long the header's extra
field is.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import Problem
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Fetch, Plan, Tail
from comal.tapalcatl.spec import ArchiveMetadata, TapalcatlWarning, Tile, read_comment
from comal.tapalcatl.wire import (
    BASES,
    Int64s,
    TileNames,
    dos_moment,
    is_suffix,
    key_tiles,
    modified_times,
    parse_name,
    parse_names,
    ut_seconds,
)
from comal.ziparchive import Directory, directory_bytes_plan, parse_directory
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.end import End
from comal.ziparchive.headermaking import value_offsets
from comal.ziparchive.raw import RegularDirectory, regular, regular_end

TAIL: Final = 65_536
_NEAR: Final = 4_096
"""Bytes of a file's end that hold some sixty entries and a comment."""
SLACK: Final = 1_024
"""Bytes beyond name and payload that are read for an extra field at most, should a gap follow."""
BAD: Final = 0x8000
ENCRYPTED: Final = 0x4000
"""Marks in the method of a record."""
_MOST = 0xFFFFFFFF
_BY_NAME: Final = 4
_BY_NAME_IN_FEW: Final = 64
_FEW: Final = 1_024
"""So many tiles are looked up by name before columns are made, which costs as much as some of
them; in an archive of few entries that is half a millisecond."""
Fields = tuple[int, int, int, int, int, int, int, int]
"""A `Record` before it has names, as the hot path takes it."""


def _dtype(wide: str) -> np.dtype[np.void]:
    places = [(name, wide) for name in ("offset", "span", "csize", "size")]
    return np.dtype(
        [*places, ("crc", "<u4"), ("modified", "<u4"), ("method", "<u2"), ("name_size", "<u2")]
    )


_SMALL, _LARGE = _dtype("<u4"), _dtype("<u8")
_LATEST: Final = (1 << 32) - 1
"""The last moment that is told apart, in 2106; dates of ZIP go on to the end of 2107."""


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


class ArchiveIndex:
    """The tiles of one archive."""

    def __init__(
        self,
        directory: RegularDirectory | Directory,
        end: End,
        where: object,
        prefix: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.total = end.total
        """Bytes of the archive."""
        self.end = end.start
        """Where the entries' part of it ends."""
        self.comment = end.comment
        """The comment of the archive, as it stands."""
        # A key may be spelt with escapes.
        self.may_have_headers = b'"headers"' in end.comment or b"\\" in end.comment
        """Whether the comment may hold headers of every tile, which only the oldest ones have."""
        self._where, self._prefix, self._limits = where, prefix, limits
        self._columns: Columns | None = None
        self._regular: RegularDirectory | None = None
        if isinstance(directory, RegularDirectory):
            self._regular = directory
            # Columns are smaller, but for comments of entries, of which nothing is known yet.
            few = end.count <= _FEW
            weight = len(directory.data) + (40 if few else 12) * end.count + 3_000
            self._left = _BY_NAME_IN_FEW if few else _BY_NAME
        else:
            self._columns = _columns(directory, prefix)
            weight = self._columns.weight
        self.weight = weight + len(end.comment)
        """Bytes that this takes in memory, about."""

    @property
    def count(self) -> int:
        """Entries of the directory, tiles or not."""
        directory = self._regular
        return self.columns.count if directory is None else directory.end.count

    def __len__(self) -> int:
        return len(self.columns)

    def lookup(self, suffix: str, tile: Tile) -> tuple[Fields, bytes | None] | None:
        """The record of a tile and the comment of its entry, or None."""
        columns = self._columns
        if columns is None:
            try:
                return self._by_name(suffix, tile)
            except LookupError:
                columns = self.columns
        entry = columns.keys.get(suffix)
        if entry is None:
            return None
        keys, first = entry
        z, x, y = tile
        key = BASES[z] + (x << z) + y
        # Where no tile is missing before it, a tile is as far from the first as its key; else
        # it is nearer.
        count = len(keys)
        at = key - keys[0]
        if at < 0:
            return None
        if at >= count or keys[at] != key:
            at = bisect_left(keys, key, 0, min(at, count))
            if at == count or keys[at] != key:
                return None
        number = first + at
        fields = columns.unpack(columns.records, number * columns.record_size)
        return fields, columns.comments.get(number) if columns.comments else None

    def _by_name(self, suffix: str, tile: Tile) -> tuple[Fields, bytes | None] | None:
        """As `lookup`, without columns; LookupError where these are needed."""
        self._left -= 1
        directory = self._regular
        if self._left < 0 or directory is None:
            raise LookupError
        if not is_suffix(suffix):
            return None
        found = directory.find(b"%b%d/%d/%d%b" % (self._prefix, *tile, suffix.encode()))
        if found is None:
            return None
        offset, following, csize, size, crc, method, time, date, name_size, extra, comment = found
        modified = ut_seconds(extra) if extra else None
        if modified is None:
            modified = dos_moment(date, time)
        # As `_spans` has it.
        span = min(following - offset, csize + zip_wire.LOCAL_SIZE + name_size + SLACK)
        span = max(span, zip_wire.LOCAL_SIZE)
        method = min(method, ENCRYPTED - 1)
        fields = offset, span, csize, size, crc, min(modified, _LATEST), method, name_size
        return fields, comment or None

    @property
    def columns(self) -> Columns:
        """All tiles as columns, which are made when they are first asked for."""
        directory = self._regular  # looked at first: it goes when columns are there
        columns = self._columns
        if columns is None:
            # Two threads may do this at once, and come to the same.
            assert directory is not None
            whole = parse_directory(
                directory.data,
                directory.end,
                str(self._where),
                lenient=True,
                known=directory.starts,
            )
            columns = self._columns = _columns(whole, self._prefix)
        self._regular = None
        return columns

    def offsets(self) -> Any:
        """Where the local headers of all tiles begin."""
        return self.columns.table["offset"]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is odd about directory and comment."""
        return (*self.columns.problems, *self.comment_problems)

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Every suffix that occurs."""
        directory = self._regular
        if self._columns is None and directory is not None:
            only = _only_suffix(directory, self._prefix)
            if only is not None:
                return (only,)
        return tuple(self.columns.keys)

    @property
    def metadata(self) -> ArchiveMetadata | None:
        """What the comment of the archive says, if it can be understood."""
        return self._read_comment[0]

    @property
    def comment_problems(self) -> Sequence[Problem]:
        """What is wrong with the comment of the archive."""
        return self._read_comment[1]

    @cached_property
    def _read_comment(self) -> tuple[ArchiveMetadata | None, list[Problem]]:
        return read_comment(self.comment, f"{self._where}, comment", self._limits)


def index_plan(
    where: str, tail: int = TAIL, limits: Limits = DEFAULT_LIMITS, prefix: bytes = b""
) -> Plan[ArchiveIndex]:
    """Fetch the directory of an archive: the last `tail` bytes, more only where it is longer."""
    data, end = yield from directory_bytes_plan("", tail, limits, where=where)
    directory = regular(data, end) or parse_directory(data, end, where, lenient=True)
    return ArchiveIndex(directory, end, where, prefix, limits)


def near_index(
    fetch: Fetch, where: object, limits: Limits = DEFAULT_LIMITS, prefix: bytes = b""
) -> ArchiveIndex | None:
    """As `index_plan`, for files: a short tail at first, as another read of one costs nothing.

    None where that is too short to be sure, or anything is unusual.
    """
    (tail,) = fetch([Tail(_NEAR)])
    end = regular_end(tail)
    if end is None or end.count > limits.table_rows or end.size > limits.table_bytes:
        return None
    if end.start < tail.offset:
        (tail,) = fetch([ByteRange(end.start, end.size)])
    directory = regular(tail.data[end.start - tail.offset : end.position - tail.offset], end)
    return None if directory is None else ArchiveIndex(directory, end, where, prefix, limits)


def _only_suffix(directory: RegularDirectory, prefix: bytes) -> str | None:
    """The suffix of all tiles, where each name ends with a digit and one extension; else None."""
    first = directory.first_name
    parsed = parse_name(first.removeprefix(prefix).decode("latin-1"))
    if parsed is None or not first.startswith(prefix) or not parsed[1].startswith("."):
        return None
    # Of a tile's name the digit is the row's: "@2x" ends with a letter.
    return parsed[1] if directory.all_end_with(parsed[1].encode()) else None


@dataclass(frozen=True, slots=True)
class Columns:
    """All tiles of an archive, sorted by suffix and tile."""

    keys: Mapping[str, tuple[Sequence[int], int]]
    """For each suffix its sorted `tile_keys`, and the number of the first one's record."""
    records: memoryview
    """All records, one behind the other."""
    unpack: Any
    """``unpack_from`` of a record."""
    record_size: int
    """Bytes of a record."""
    comments: Mapping[int, bytes]
    """Comments of entries by number of the record."""
    problems: tuple[Problem, ...]
    """What is odd about the directory."""
    count: int
    """Entries of the directory, tiles or not."""
    lowest: int | None
    """The first zoom that occurs."""
    highest: int | None
    """The last zoom that occurs."""

    def __len__(self) -> int:
        return len(self.records) // self.record_size

    @property
    def weight(self) -> int:
        """Bytes that this takes in memory, about."""
        comments = sum(map(len, self.comments.values())) + 200 * len(self.comments)
        return len(self.records) + 8 * len(self) + comments + 2_000 + 300 * len(self.keys)

    @property
    def all_keys(self) -> tuple[Int64s, npt.NDArray[np.int32]]:
        """`tile_keys` and codes of suffixes of all records, by number."""
        keys = [np.asarray(part, np.int64) for part, _ in self.keys.values()]
        codes = [np.full(len(part), code, np.int32) for code, part in enumerate(keys)]
        if not keys:
            return np.zeros(0, np.int64), np.zeros(0, np.int32)
        return np.concatenate(keys), np.concatenate(codes)

    @property
    def table(self) -> Any:
        """The records as a NumPy array."""
        kind = _SMALL if self.record_size == _SMALL.itemsize else _LARGE
        return np.frombuffer(self.records, kind)


def _columns(directory: Directory, prefix: bytes) -> Columns:
    """The tiles of a parsed directory."""
    names = parse_names(directory.raw_names, prefix)
    order, counts = _order(names)
    if sum(counts) < len(names):
        directory.warn_of_twins(names.rows, TapalcatlWarning)
    rows = names.rows if order is None else names.rows[order]
    keys = names.keys if order is None else names.keys[order]
    large = directory.total > _MOST
    records = _records(directory, rows, _LARGE if large else _SMALL)
    parts: dict[str, tuple[Sequence[int], int]] = {}
    first = 0
    for suffix, count in zip(names.suffixes, counts, strict=True):
        parts[suffix] = (memoryview(keys[first : first + count].data), first)
        first += count
    return Columns(
        keys=parts,
        records=memoryview(records.view(np.uint8)),
        unpack=struct.Struct("<QQQQIIHH" if large else "<IIIIIIHH").unpack_from,
        record_size=records.dtype.itemsize,
        comments=_comments(directory, rows),
        problems=directory.problems,
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
        ordered = keys[order]
        if (ordered[1:] != ordered[:-1]).all():
            return order, [len(keys)]
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
    records["modified"] = np.minimum(modified_times(directory)[rows], _LATEST)
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
    sizes = np.diff(value_offsets(comments))
    return {row: comments[row].as_py() for row in np.flatnonzero(sizes).tolist()}


SCHEMA: Final = pa.schema(
    [
        ("key", pa.string()),
        ("href", pa.string()),
        ("offset", pa.int64()),
        ("size", pa.int64()),
        ("method", pa.int32()),
        ("crc", pa.uint32()),
        ("z", pa.int32()),
        ("x", pa.int64()),
        ("y", pa.int64()),
        ("suffix", pa.string()),
    ]
)
"""``offset`` and ``size`` are those of the stored bytes, where the local header holds no extra
field but ZIP64's; `TileSet.stored_tile` reads the header and knows."""


def entry_table(index: ArchiveIndex, href: str, root: Tile | None) -> Any:
    """The tiles of an archive as a table of `SCHEMA`; below a root, where names are relative."""
    table, (keys, codes) = index.columns.table, index.columns.all_keys
    order = np.argsort(table["offset"], kind="stable")
    records, keys, codes = table[order], keys[order], codes[order]
    z, x, y = key_tiles(keys)
    suffixes = pa.array(index.suffixes, pa.string()).take(pa.array(codes))
    texts = [pa.array(values).cast(pa.string()) for values in (z, x, y)]
    names = pc.binary_join_element_wise(*texts, "/")
    key = pc.binary_join_element_wise(names, suffixes, "")
    if root is not None:
        key = pc.binary_join_element_wise(pa.scalar("/".join(map(str, root))), key, "/")
    zip64 = (records["size"] >= zip_wire.U32) | (records["csize"] >= zip_wire.U32)
    offsets = records["offset"].astype(np.int64) + zip_wire.LOCAL_SIZE + records["name_size"]
    columns = [
        key,
        pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(records), np.int8)), pa.array([href])
        ).cast(pa.string()),
        pa.array(offsets + np.where(zip64, 20, 0)),
        pa.array(records["csize"].astype(np.int64)),
        pa.array(records["method"].astype(np.int32)),
        pa.array(records["crc"]),
        pa.array(z.astype(np.int32)),
        pa.array(x),
        pa.array(y),
        suffixes,
    ]
    return pa.table(columns, schema=SCHEMA)
