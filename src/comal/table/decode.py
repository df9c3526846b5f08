"""Decoding of fetched column chunks, in memory whose size is known beforehand.

A few bytes can promise gigabytes: through a codec, a dictionary, or shared prefixes. Page headers
bound the first; dictionaries are decoded as such, so that their size is known before they are
expanded; columns with shared prefixes are decoded a few rows at a time.
"""

from __future__ import annotations

import io
import os
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import InvalidMetadataError, translated
from comal.limits import MIB, Limits
from comal.parallel import side_by_side
from comal.plan import ByteRange, Piece, Wanted
from comal.table.columns import SMALL_POOL, plain_table, spread_bytes
from comal.table.footer import BROKEN, Footer
from comal.table.pages import expansion

BATCH = 65_536
_SHARE = 4
"""Share of `leaf_bytes` that columns of unknown size may take while they are decoded."""

_CHUNK = BATCH // 2
"""Average rows of a batch below which batches are joined to one, at the cost of a copy."""

_PARALLEL = 100_000
"""Rows from which a table is decoded in parts, in parallel."""
_PART = 1 << 17
"""Rows of a part, unless row groups are larger."""
_THREADS = 2

_POOLED = 4 * MIB
"""Stored bytes from which Arrow's own pool, which frees memory late, is four times as fast as the
system's, where every page is new."""

_HEAD = 64
"""First bytes of a chunk, with its first page header, that are compared with other chunks."""


class Ranges(Protocol):
    """The part of a source that a table needs."""

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each range."""
        ...


class SpanFile(io.RawIOBase):
    """Read-only file over a span of an object.

    Bytes inside `pieces` are served from there, others by one request for each read.
    """

    def __init__(self, source: Ranges, span: ByteRange, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._source = source
        self._span = span
        self._pieces = sorted(pieces, key=lambda piece: piece.offset)
        self._offsets = [piece.offset for piece in self._pieces]
        self._position = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether it can seek: always."""
        return True

    def tell(self) -> int:
        """Position in the span."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position in the span."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._span.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end of the span."""
        return bytes(self._next(-1 if size is None else size))

    def read_buffer(self, size: int) -> Any:
        """As `read`, but an Arrow buffer without a copy: Arrow prefers it to `read`."""
        return pa.py_buffer(self._next(size))

    def _next(self, size: int) -> memoryview:
        left = max(0, self._span.size - self._position)
        wanted = left if size < 0 else min(size, left)
        data = self._view(self._span.offset + self._position, wanted)
        self._position += len(data)
        return data

    def _view(self, offset: int, size: int) -> memoryview:
        index = bisect_right(self._offsets, offset) - 1
        piece = self._pieces[index]
        start = offset - piece.offset
        if size and (index < 0 or start + size > len(piece.data)):
            (piece,) = self._source.fetch([ByteRange(offset, size, self._span.href)])
            start = offset - piece.offset
        return memoryview(piece.data)[start : start + size]


@dataclass(slots=True)
class _Ways:
    """How each column is decoded."""

    whole: list[str] = field(default_factory=list)
    """At once: its pages bound its size."""
    dictionaries: list[str] = field(default_factory=list)
    """At once, as a dictionary that is measured before it is expanded."""
    lookups: list[str] = field(default_factory=list)
    """As a dictionary although pages bound their size: for many rows this takes half the time."""
    slow: list[str] = field(default_factory=list)
    """A few rows at a time."""
    widest: int = 1
    """Largest size of a row of the slow columns in bytes."""


class Decoder:
    """Columns of some row groups, from `pieces`: the column chunks of each group together.

    A valid file needs no further requests.

    Raises
    ------
    LimitExceededError
        Pages that hold more than the limit `leaf_bytes`.
    InvalidMetadataError
        Broken page headers.
    """

    def __init__(
        self,
        source: Ranges,
        footer: Footer,
        names: Sequence[str],
        groups: Sequence[int],
        pieces: Sequence[Piece],
        limits: Limits,
    ) -> None:
        self._source = source
        self._footer = footer
        self._names = list(names)
        self._groups = list(groups)
        self._pieces = pieces
        self._limits = limits
        self._where = footer.where
        self._all = range(len(self._groups))
        self._is_large = self._rows_of(self._all) >= _PARALLEL
        """Whether threads pay off; each takes memory of its own, whatever it decodes."""
        self._twins = self._find_twins()
        self._distinct = [name for name in self._names if name not in self._twins]
        self._ways = self._find_ways()
        self._lock = threading.Lock()
        self._taken = 0

    def table(self) -> Any:
        """All rows as one table, in plain types, fully validated."""
        tables = self._decoded()
        width = len(self._ways.slow) + 1
        with translated(BROKEN, "the Parquet file is broken", where=self._where):
            if not self._names:
                return pa.table({}).select([])
            parts = [
                _beside(tables[at : at + width]).select(self._distinct) if width > 1 else tables[at]
                for at in range(0, len(tables), width)
            ]
            table = self._with_twins(pa.concat_tables(parts) if len(parts) > 1 else parts[0])
            self._limits.check("leaf_bytes", table.nbytes, self._where)
        return table

    def batches(self, rows: int) -> Iterator[Any]:
        """Record batches of at most `rows` rows, each in plain types and checked."""
        rows = self._few(rows)
        dictionaries = self._ways.dictionaries
        for batch in self._read_batches(self._distinct, self._all, rows, dictionaries):
            self._limits.check("leaf_bytes", spread_bytes(batch), self._where)
            with translated(BROKEN, "the Parquet file is broken", where=self._where):
                plain = self._with_twins(self._plain(batch))
            yield plain

    # -- twins -------------------------------------------------------------------------------------

    def _find_twins(self) -> dict[str, str]:
        """Columns with the same stored bytes as an earlier one, which is decoded once.

        At level 0 of a TACO the path is the id, and the parent is the row.
        """
        layout, groups = self._footer.layout, self._groups
        count = len(self._leaves(self._names))
        heads = [(len(piece.data), piece.data[:_HEAD]) for piece in self._pieces[:count]]
        if len(set(heads)) == len(heads):
            return {}
        alike: dict[tuple[Any, ...], tuple[str, list[bytes]]] = {}
        twins: dict[str, str] = {}
        place = 0
        for name in self._names:
            leaf, leaves = layout.leaves[name][0], len(layout.leaves[name])
            stored = [piece.data for piece in self._pieces[place::count]]
            place += leaves
            if leaves > 1 or not layout.flat[leaf]:
                continue
            kind = self._footer.schema.field(name)
            key = (
                (kind.type, kind.nullable, int(layout.width[leaf])),
                tuple(layout.codec[groups, leaf].tolist()),
                tuple(layout.values[groups, leaf].tolist()),
                tuple((len(data), data[:_HEAD]) for data in stored),
            )
            # Each is compared with at most one other column, however many begin alike.
            first, data = alike.setdefault(key, (name, stored))
            if first != name and data == stored:
                twins[name] = first
        return twins

    def _with_twins(self, rows: Any) -> Any:
        """A table or batch of `_distinct` with all columns in order."""
        if not self._twins:
            return rows
        places = {name: place for place, name in enumerate(self._distinct)}
        chosen = rows.select([places[self._twins.get(name, name)] for name in self._names])
        return chosen.rename_columns(self._names)

    # -- ways --------------------------------------------------------------------------------------

    def _find_ways(self) -> _Ways:
        layout = self._footer.layout
        ways = _Ways()
        total = 0
        spare = self._limits.leaf_bytes // _SHARE
        leaves = self._leaves(self._names)
        places = {leaf: place for place, leaf in enumerate(leaves)}
        for name in self._distinct:
            bound, largest, prefixes, dictionary, lookups = 0, 0, False, False, True
            for leaf in layout.leaves[name]:
                width = int(layout.width[leaf])
                for piece in self._pieces[places[leaf] :: len(leaves)]:
                    found = expansion(piece.data, self._where)
                    total += found.values * width if width else found.total
                    lookups &= found.lookups
                    if width or not (found.dictionary or found.prefixes):
                        continue
                    # Shared prefixes may repeat a whole page, and a dictionary its longest entry.
                    longest = found.largest if found.prefixes else found.dictionary
                    bound += longest * found.values
                    largest = max(largest, longest)
                    prefixes |= found.prefixes
                    dictionary |= found.dictionary > 0
            if bound <= spare:
                spare -= bound
                quick = lookups and self._is_large and self._is_flat_text(name)
                (ways.lookups if quick else ways.whole).append(name)
            elif dictionary and not prefixes and self._is_flat_text(name):
                ways.dictionaries.append(name)
            else:
                ways.slow.append(name)
                ways.widest += largest
        self._limits.check("leaf_bytes", total, self._where)
        return ways

    def _is_flat_text(self, name: str) -> bool:
        # Arrow takes a name with a dot for a path.
        kind = self._footer.schema.field(name).type
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) and "." not in name

    def _few(self, rows: int) -> int:
        """Rows of a batch whose slow columns stay within their share, over all threads."""
        threads = _THREADS if self._is_large else 1
        return max(1, min(rows, self._limits.leaf_bytes // _SHARE // self._ways.widest // threads))

    # -- decoding ----------------------------------------------------------------------------------

    def _reader(self, part: range, dictionaries: Sequence[str]) -> Any:
        count = len(self._leaves(self._names))
        pieces = self._pieces[part.start * count : part.stop * count]
        tail, span = self._footer.tail, self._footer.span
        if tail.offset <= span.offset:  # a small file, which Arrow reads without calling Python
            data = memoryview(tail.data)[span.offset - tail.offset :]
            file: Any = pa.BufferReader(data[: span.size])
        else:
            file = pa.PythonFile(SpanFile(self._source, span, [tail, *pieces]), mode="r")
        stored = sum(len(piece.data) for piece in pieces)
        pool = None if self._is_large or stored >= _POOLED else SMALL_POOL
        # Not by `ParquetFile`, which accepts no pool, and makes objects of all columns first.
        reader = pq.ParquetReader(pool)
        reader.open(
            file,
            metadata=self._footer.metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )
        return reader

    def _leaves(self, names: Sequence[str]) -> list[int]:
        return [leaf for name in names for leaf in self._footer.layout.leaves[name]]

    def _decoded(self) -> list[Any]:
        """For each part a table of each slow column, and one of all others."""
        parts = list(self._parts())
        slow = self._ways.slow
        fast = [name for name in self._distinct if name not in slow]
        jobs: list[Callable[[], Any]] = []
        for part in parts:
            jobs += [partial(self._by_batches, name, part) for name in slow]
            jobs.append(partial(self._at_once, fast, part, alone=len(parts) == 1))
        return self._run(jobs)

    def _parts(self) -> Iterator[range]:
        """Ranges of `_groups` that are decoded together: several for a large table, else one."""
        start = rows = 0
        for place, group in enumerate(self._groups):
            rows += int(self._footer.layout.rows[group])
            if self._is_large and rows >= _PART:
                yield range(start, place + 1)
                start, rows = place + 1, 0
        if start < len(self._groups) or not self._groups:
            yield range(start, len(self._groups))

    def _run(self, jobs: Sequence[Callable[[], Any]]) -> list[Any]:
        if len(jobs) == 1 or not self._is_large:
            return [job() for job in jobs]
        return side_by_side(jobs, _THREADS)

    def _at_once(self, names: Sequence[str], part: range, *, alone: bool) -> Any:
        """Columns of known size of some row groups; if `alone`, they are decoded in parallel."""
        ways = self._ways
        with translated(BROKEN, "the Parquet file is broken", where=self._where):
            reader = self._reader(part, [*ways.dictionaries, *ways.lookups])
            table = reader.read_row_groups(
                self._numbers_of(part), self._leaves(names), use_threads=alone and self._is_large
            ).select(list(names))
            self._check_rows(table.num_rows, part)
            size = table.nbytes
            if ways.dictionaries:
                encoded = table.select(ways.dictionaries)
                size += sum(spread_bytes(batch) for batch in encoded.to_batches())
            self._take(size)
            return self._plain(table)

    def _by_batches(self, name: str, part: range) -> Any:
        """One column of some row groups, a few rows at a time."""
        batches = []
        for batch in self._read_batches([name], part, self._few(BATCH), ()):
            self._take(batch.nbytes)
            batches.append(batch)
        with translated(BROKEN, "the Parquet file is broken", where=self._where):
            table = pa.Table.from_batches(batches, None if batches else self._schema_of([name]))
            if table.num_rows < _CHUNK * len(batches):
                # A column stays in several chunks if one array cannot hold it.
                table = table.combine_chunks()
            return self._plain(table)

    def _take(self, size: int) -> None:
        """Count decoded bytes, of all columns together."""
        with self._lock:
            self._taken += size
            self._limits.check("leaf_bytes", self._taken, self._where)

    def _read_batches(
        self, names: Sequence[str], part: range, rows: int, dictionaries: Sequence[str]
    ) -> Iterator[Any]:
        found = 0
        with translated(BROKEN, "the Parquet file is broken", where=self._where):
            reader = self._reader(part, dictionaries)
            groups, leaves = self._numbers_of(part), self._leaves(names)
            batches = reader.iter_batches(rows, groups, leaves, use_threads=False)
        while True:
            with translated(BROKEN, "the Parquet file is broken", where=self._where):
                batch = next(batches, None)
                if batch is None:
                    break
                batch = batch.select(list(names))
            found += batch.num_rows
            yield batch
        self._check_rows(found, part)

    def _groups_of(self, part: range) -> list[int]:
        return self._groups[part.start : part.stop]

    def _numbers_of(self, part: range) -> list[int]:
        """The numbers of row groups in the file."""
        return list(self._footer.numbers[self._groups_of(part)].tolist())

    def _rows_of(self, part: range) -> int:
        groups = np.array(self._groups_of(part), np.int64)
        return int(self._footer.layout.rows[groups].sum())

    def _check_rows(self, found: int, part: range) -> None:
        expected = self._rows_of(part)
        if found != expected:
            raise InvalidMetadataError(
                "the Parquet file does not hold as many rows as its footer says",
                where=self._where,
                found=f"{found - expected:+d} rows",
            )

    def _schema_of(self, names: Sequence[str]) -> Any:
        return pa.schema([self._footer.schema.field(name) for name in names])

    def _plain(self, rows: Any) -> Any:
        """A table or batch in the plain types of the schema, with every value checked."""
        # For dictionaries this is less work than after expanding them.
        rows.validate(full=True)
        schema = self._schema_of(rows.schema.names)
        if rows.schema.equals(schema, check_metadata=True):
            return rows
        plain = plain_table(rows)
        if not plain.schema.equals(schema):
            plain = plain.cast(schema)
        plain.validate()
        return plain


def _beside(tables: Sequence[Any]) -> Any:
    """Tables of the same rows joined to one."""
    columns = {name: table.column(name) for table in tables for name in table.column_names}
    return pa.table(list(columns.values()), names=list(columns))
