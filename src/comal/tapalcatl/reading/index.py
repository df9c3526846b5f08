"""The directory of an archive as readers cache it.

In a regular directory the first tiles are found by name in its raw bytes, so reading one tile of an
archive does not wait until all others are sorted. After some tiles it becomes columns of 36 bytes
per entry, sorted by suffix and tile and searched by bisection. A record spans the bytes up to the
next local header in the file, so that one read returns local header and payload, however long the
header's extra field is.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import Problem
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import cached_property
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
"""Bytes at the end of a file: room for some sixty entries and a comment."""
SLACK: Final = 1_024
"""Most bytes beyond name and payload that are read for an extra field if a gap follows."""
BAD: Final = 0x8000
ENCRYPTED: Final = 0x4000
"""Flags in the method of a record."""
_MOST = 0xFFFFFFFF
_BY_NAME: Final = 4
_BY_NAME_IN_FEW: Final = 64
_FEW: Final = 1_024
"""Lookups by name before columns are made, which costs as much as some lookups; in an archive
of few entries that is half a millisecond."""
Fields = tuple[int, int, int, int, int, int, int, int]
"""A `Record` as a plain tuple, for the hot path."""


def _dtype(wide: str) -> np.dtype[np.void]:
    places = [(name, wide) for name in ("offset", "span", "csize", "size")]
    return np.dtype(
        [*places, ("crc", "<u4"), ("modified", "<u4"), ("method", "<u2"), ("name_size", "<u2")]
    )


_SMALL, _LARGE = _dtype("<u4"), _dtype("<u8")
_LATEST: Final = (1 << 32) - 1
"""The last time that a record can hold, in 2106; dates of ZIP go on to the end of 2107."""


class Record(NamedTuple):
    """Where one tile is, and its fields in the directory."""

    offset: int
    """Offset of the local header."""
    span: int
    """Bytes from the local header to the next one, capped at `SLACK` beyond the payload."""
    csize: int
    size: int
    crc: int
    modified: int
    """Seconds since 1970 UTC, 0 if unknown."""
    method: int
    """Compression method with the flags `BAD` and `ENCRYPTED`."""
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
        """Size of the archive in bytes."""
        self.end = end.start
        """Offset of the directory, where the entries end."""
        self.comment = end.comment
        """The comment of the archive as raw bytes."""
        # The key may be written with escapes.
        self.may_have_headers = b'"headers"' in end.comment or b"\\" in end.comment
        """Whether the comment may hold headers for all tiles, as only the oldest ones do."""
        self._where, self._prefix, self._limits = where, prefix, limits
        self._columns: Columns | None = None
        self._regular: RegularDirectory | None = None
        if isinstance(directory, RegularDirectory):
            self._regular = directory
            # Columns are smaller, except for entry comments, whose size is not known yet.
            few = end.count <= _FEW
            weight = len(directory.data) + (40 if few else 12) * end.count + 3_000
            self._left = _BY_NAME_IN_FEW if few else _BY_NAME
        else:
            self._columns = _columns(directory, prefix)
            weight = self._columns.weight
        self.weight = weight + len(end.comment)
        """Approximate bytes in memory."""

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
        # If no tile before it is missing, its index is the distance of the keys; else it is
        # lower.
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
        """As `lookup`, without columns; LookupError if columns are needed."""
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
        # The same rule as in `_spans`.
        span = min(following - offset, csize + zip_wire.LOCAL_SIZE + name_size + SLACK)
        span = max(span, zip_wire.LOCAL_SIZE)
        method = min(method, ENCRYPTED - 1)
        fields = offset, span, csize, size, crc, min(modified, _LATEST), method, name_size
        return fields, comment or None

    @property
    def columns(self) -> Columns:
        """All tiles as columns, made on first access."""
        directory = self._regular  # read first: it is cleared once columns exist
        columns = self._columns
        if columns is None:
            # Two threads may do this at once; both get the same result.
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
        """Offsets of the local headers of all tiles."""
        return self.columns.table["offset"]

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Problems of directory and comment."""
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
        """The metadata in the comment of the archive, or None if it cannot be parsed."""
        return self._read_comment[0]

    @property
    def comment_problems(self) -> Sequence[Problem]:
        """Problems of the comment of the archive."""
        return self._read_comment[1]

    @cached_property
    def _read_comment(self) -> tuple[ArchiveMetadata | None, list[Problem]]:
        return read_comment(self.comment, f"{self._where}, comment", self._limits)


def index_plan(
    where: str, tail: int = TAIL, limits: Limits = DEFAULT_LIMITS, prefix: bytes = b""
) -> Plan[ArchiveIndex]:
    """Fetch the directory of an archive: the last `tail` bytes, more only if it is longer."""
    data, end = yield from directory_bytes_plan("", tail, limits, where=where)
    directory = regular(data, end) or parse_directory(data, end, where, lenient=True)
    return ArchiveIndex(directory, end, where, prefix, limits)


def near_index(
    fetch: Fetch, where: object, limits: Limits = DEFAULT_LIMITS, prefix: bytes = b""
) -> ArchiveIndex | None:
    """As `index_plan`, for local files: reads a short tail first, as another read is cheap.

    None if the tail is too short to be sure, or the directory is not regular.
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
    """The suffix of all tiles if each name ends with a digit and the same extension; else None."""
    first = directory.first_name
    parsed = parse_name(first.removeprefix(prefix).decode("latin-1"))
    if parsed is None or not first.startswith(prefix) or not parsed[1].startswith("."):
        return None
    # The digit before the extension belongs to the row: "@2x" ends with a letter.
    return parsed[1] if directory.all_end_with(parsed[1].encode()) else None


@dataclass(frozen=True, slots=True)
class Columns:
    """All tiles of an archive, sorted by suffix and tile."""

    keys: Mapping[str, tuple[Sequence[int], int]]
    """Sorted `tile_keys` of each suffix, and the number of the first one's record."""
    records: memoryview
    """All records, packed."""
    unpack: Any
    """``unpack_from`` of a record."""
    record_size: int
    """Bytes of a record."""
    comments: Mapping[int, bytes]
    """Comments of entries by record number."""
    problems: tuple[Problem, ...]
    """Problems of the directory."""
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
        """Approximate bytes in memory."""
        comments = sum(map(len, self.comments.values())) + 200 * len(self.comments)
        return len(self.records) + 8 * len(self) + comments + 2_000 + 300 * len(self.keys)

    @property
    def all_keys(self) -> tuple[Int64s, npt.NDArray[np.int32]]:
        """`tile_keys` and suffix codes of all records, by record number."""
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
    """The order by suffix and tile (None if already sorted), and tile counts of each suffix.

    Of several entries with one name the last is kept, as in existing readers.
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
        # Values that do not fit exceed every limit; reading such a tile raises.
        chosen = values[rows]
        records[name] = chosen if int(chosen.max(initial=0)) <= most else np.minimum(chosen, most)
    records["crc"] = directory.crc[rows]
    records["modified"] = np.minimum(modified_times(directory)[rows], _LATEST)
    records["method"] = method[rows]
    records["name_size"] = directory.name_size[rows]
    return records


def _spans(directory: Directory) -> Any:
    """Bytes from each local header to the next one, at most `SLACK` beyond the payload."""
    starts = directory.header_offset
    least = np.minimum(directory.csize, directory.total) + zip_wire.LOCAL_SIZE + directory.name_size
    if (starts[1:] > starts[:-1]).all():
        following = np.append(starts[1:], directory.start)
    else:
        distinct = np.unique(np.append(starts, directory.start))
        at = np.searchsorted(distinct, starts, side="right")
        following = distinct[np.minimum(at, len(distinct) - 1)]
    # At least a local header, so that readers of one need not check the length.
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
"""``offset`` and ``size`` are those of the stored bytes if the local header has no extra field
except ZIP64's; `TileSet.stored_tile` reads the header to be exact."""


def entry_table(index: ArchiveIndex, href: str, root: Tile | None) -> Any:
    """The tiles of an archive as a table of `SCHEMA`; `root` is the prefix of relative names."""
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
