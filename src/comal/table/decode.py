"""Decoding of column chunks that are here already, in memory that is known beforehand.

A few bytes can promise gigabytes: through a codec, a dictionary, or shared prefixes. The headers
of the pages bound the first; dictionaries are decoded as such, so that their size is known before
they are spread out; columns with shared prefixes are decoded a few rows at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import InvalidMetadataError, translated
from comal.limits import Limits
from comal.plan import Piece
from comal.table.footer import BROKEN, Footer, where_of
from comal.table.pages import Expansion, expansion
from comal.table.schema import plain_table, spread_bytes
from comal.table.spanfile import Ranges, SpanFile

BATCH = 65_536
_SHARE = 4
"""What columns of unknown size may take while they are decoded, as a part of `leaf_bytes`."""

_CHUNK = 4096
"""Rows of a batch on average under which batches are joined to one: that costs a copy."""


_PARALLEL = 100_000
"""Rows from which on columns are decoded side by side."""
_THREADS = 2

Columns = list[tuple[str, Any]]


@dataclass(slots=True)
class _Ways:
    """How each column is decoded."""

    whole: list[str] = field(default_factory=list)
    """At once: its pages bound its size."""
    dictionaries: list[str] = field(default_factory=list)
    """At once, as a dictionary that is measured before it is spread out."""
    slow: list[str] = field(default_factory=list)
    """A few rows at a time."""
    widest: int = 1
    """Bytes that a row of the slow columns can take."""


class Decoder:
    """Columns of some row groups.

    Parameters
    ----------
    source
        For what is not in `pieces`; a sound file needs nothing more.
    names, groups
        Columns and row groups.
    pieces
        Their column chunks, those of each row group together, in the order of `names`.

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
        self._where = where_of(footer.span)
        self._schema = pa.schema([footer.schema.field(name) for name in names])
        self._rows = int(footer.layout.rows[np.array(self._groups, np.int64)].sum())
        self._ways = self._find_ways()
        self._lock = threading.Lock()
        self._taken = 0

    def table(self) -> Any:
        """All rows as one table, in plain types, checked whole."""
        columns = self._columns()
        with translated(BROKEN, "Parquet file is broken", where=self._where):
            if not self._names:
                return pa.table({}).select([])
            table = pa.table([columns[name] for name in self._names], names=self._names)
            table = self._plain(table)
            self._limits.check("leaf_bytes", table.nbytes, self._where)
        return table

    @property
    def _is_large(self) -> bool:
        """Whether threads pay; each takes memory of its own, whatever it decodes."""
        return self._rows >= _PARALLEL

    def _columns(self) -> dict[str, Any]:
        ways = self._ways
        fast = [*ways.whole, *ways.dictionaries]
        jobs = [partial(self._by_batches, name) for name in ways.slow]
        if fast or not self._names:
            jobs.insert(0, partial(self._at_once, fast))
        if len(jobs) == 1 or not self._is_large:
            return dict(pair for job in jobs for pair in job())
        with ThreadPoolExecutor(_THREADS, "comal-decode") as pool:
            futures = [pool.submit(job) for job in jobs]
            try:
                return dict(pair for future in futures for pair in future.result())
            finally:
                pool.shutdown(cancel_futures=True)

    def batches(self, rows: int) -> Iterator[Any]:
        """Record batches of at most `rows` rows, each in plain types and checked."""
        ways = self._ways
        rows = self._few(rows)
        for batch in self._read_batches(self._names, rows, ways.dictionaries):
            self._limits.check("leaf_bytes", spread_bytes(batch), self._where)
            with translated(BROKEN, "Parquet file is broken", where=self._where):
                plain = self._plain(batch)
            yield plain

    # -- ways --------------------------------------------------------------------------------------

    def _find_ways(self) -> _Ways:
        layout = self._footer.layout
        ways = _Ways()
        total = 0
        spare = self._limits.leaf_bytes // _SHARE
        leaves = [leaf for name in self._names for leaf in layout.leaves[name]]
        places = {leaf: place for place, leaf in enumerate(leaves)}
        for name in self._names:
            bound, largest, prefixes, dictionary = 0, 0, False, False
            for leaf in layout.leaves[name]:
                width = int(layout.width[leaf])
                for found in self._expansions(places[leaf], len(leaves)):
                    total += found.values * width if width else found.total
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
                ways.whole.append(name)
            elif dictionary and not prefixes and self._is_flat_text(name):
                ways.dictionaries.append(name)
            else:
                ways.slow.append(name)
                ways.widest += largest
        self._limits.check("leaf_bytes", total, self._where)
        return ways

    def _expansions(self, place: int, leaves: int) -> Iterator[Expansion]:
        """Of the chunks of one leaf column in all row groups."""
        for piece in self._pieces[place::leaves]:
            yield expansion(piece.data, self._where)

    def _is_flat_text(self, name: str) -> bool:
        # Arrow takes a dot in a name for a path.
        kind = self._footer.schema.field(name).type
        return bool(pa.types.is_string(kind) or pa.types.is_binary(kind)) and "." not in name

    def _few(self, rows: int) -> int:
        """Rows of a batch whose slow columns stay within their share."""
        return max(1, min(rows, self._limits.leaf_bytes // _SHARE // self._ways.widest))

    # -- decoding ----------------------------------------------------------------------------------

    def _reader(self, dictionaries: Sequence[str]) -> Any:
        file = SpanFile(self._source, self._footer.span, [self._footer.tail, *self._pieces])
        return pq.ParquetFile(
            pa.PythonFile(file, mode="r"),
            metadata=self._footer.metadata,
            read_dictionary=list(dictionaries),
            pre_buffer=False,
            page_checksum_verification=True,
            arrow_extensions_enabled=False,
        )

    def _at_once(self, names: Sequence[str]) -> Columns:
        with translated(BROKEN, "Parquet file is broken", where=self._where):
            reader = self._reader(self._ways.dictionaries)
            table = reader.read_row_groups(
                self._groups, columns=list(names), use_threads=self._is_large
            ).select(list(names))
            self._check_rows(table.num_rows)
        size = table.nbytes + sum(spread_bytes(batch) for batch in table.to_batches())
        self._take(size)
        return list(zip(names, table.columns, strict=True))

    def _by_batches(self, name: str) -> Columns:
        chunks = []
        for batch in self._read_batches([name], self._few(BATCH), ()):
            self._take(batch.nbytes)
            chunks.append(batch.column(0))
        with translated(BROKEN, "Parquet file is broken", where=self._where):
            column = pa.chunked_array(chunks, None if chunks else self._schema.field(name).type)
            if len(column) < _CHUNK * len(chunks):
                # A table's columns may stay in several chunks, where one array cannot hold them.
                column = pa.table({name: column}).combine_chunks().column(0)
        return [(name, column)]

    def _take(self, size: int) -> None:
        """Take note of decoded bytes, of all columns together."""
        with self._lock:
            self._taken += size
            self._limits.check("leaf_bytes", self._taken, self._where)

    def _read_batches(
        self, names: Sequence[str], rows: int, dictionaries: Sequence[str]
    ) -> Iterator[Any]:
        found = 0
        with translated(BROKEN, "Parquet file is broken", where=self._where):
            reader = self._reader(dictionaries)
            batches = reader.iter_batches(
                rows, row_groups=self._groups, columns=list(names), use_threads=self._is_large
            )
        while True:
            with translated(BROKEN, "Parquet file is broken", where=self._where):
                batch = next(batches, None)
                if batch is None:
                    break
                batch = batch.select(list(names))
            found += batch.num_rows
            yield batch
        self._check_rows(found)

    def _check_rows(self, found: int) -> None:
        if found != self._rows:
            raise InvalidMetadataError(
                "Parquet file holds another number of rows than its footer says",
                where=self._where,
                found=f"{found - self._rows:+d} rows",
            )

    def _plain(self, rows: Any) -> Any:
        """A table or batch in the plain types of the schema, every value checked."""
        plain = plain_table(rows)
        if not plain.schema.equals(self._schema):
            plain = plain.cast(self._schema)
        plain.validate(full=True)
        return plain
