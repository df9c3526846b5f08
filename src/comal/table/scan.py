"""A Parquet table as a `pyarrow.dataset.Dataset` whose scans are checked like every other read.

Arrow's own scan of a file would decode whatever its bytes promise, and would read ahead in threads
that call back into Python after the query is over. Here an engine's scan becomes consecutive reads
of a `ParquetTable`, each of which is done when it returns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from comal.errors import ComalError, LimitExceededError, translated
from comal.parallel import cached_property
from comal.table.columns import one_array
from comal.table.footer import BROKEN
from comal.table.read import ParquetTable

_RUN_BYTES = 32 << 20
_RUN_CELLS = 4_000_000
"""Stored bytes, and rows times columns, of one read of a scan."""
_BATCH = 1 << 16
"""Largest number of rows of a batch: an engine takes one in while the next is being filtered."""
_PASSED = 8
"""Bytes that a scan may decode and filter out, as a multiple of `leaf_bytes`."""


class Scan(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """A table as a `pyarrow.dataset.Dataset`; engines ask it for its `scanner`.

    A scan fetches the columns that it names, of the row groups that its filter does not rule out,
    with the checks and limits of `ParquetTable.read`.

    Parameters
    ----------
    table
        The table to scan.
    failures
        Receives the error that ended a scan, of which an engine would only pass on the text.
    whole
        Returns columns of all row groups, such as from memory, instead of reading them.
    """

    def __init__(
        self,
        table: ParquetTable,
        failures: list[ComalError] | None = None,
        whole: Callable[[Sequence[str]], Any] | None = None,
    ) -> None:
        super().__init__(table.schema.empty_table())
        self._table = table
        self._failures = [] if failures is None else failures
        self._whole = whole

    def __reduce__(self) -> Any:
        return Scan, (self._table,)

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that engines use
        **_: Any,
    ) -> Scanned:
        """A scan of `columns` of the rows that `filter` (an Arrow expression) keeps."""
        names = self._table.schema.names if columns is None else list(columns)
        return Scanned(self._table, self._failures, self._whole, names, filter)


class Batches(ABC):
    """The methods of `pyarrow.dataset.Scanner` that engines use: rows are read on demand.

    `failures` receives the error that ended the scan.
    """

    def __init__(self, schema: Any, failures: list[ComalError]) -> None:
        self.projected_schema = schema
        self._failures = failures

    def to_reader(self) -> Any:
        """A `pyarrow.RecordBatchReader`, which reads on demand."""
        return pa.RecordBatchReader.from_batches(self.projected_schema, self._batches())

    def to_table(self) -> Any:
        """All rows."""
        return pa.Table.from_batches(list(self._batches()), self.projected_schema)

    def count_rows(self) -> int:
        """How many rows the filter keeps."""
        return sum(batch.num_rows for batch in self._batches())

    def _batches(self) -> Iterator[Any]:
        try:
            yield from self._checked()
        except ComalError as error:
            self._failures.append(error)
            raise

    @abstractmethod
    def _checked(self) -> Iterator[Any]:
        """The rows, batch by batch."""


def columns_of(condition: Any, schema: Any, without: Sequence[str] = ()) -> list[str]:
    """The columns that a filter names, except those of `without`."""
    if condition is None:
        return []
    others = [name for name in schema.names if name not in without]
    return [name for name in others if not _binds_without(condition, schema, name)]


def _binds_without(condition: Any, schema: Any, name: str) -> bool:
    # An expression does not list the columns that it names, but does not bind without them.
    rest = schema.remove(schema.get_field_index(name)).empty_table()
    try:
        ds.InMemoryDataset(rest).scanner(filter=condition, columns=[])
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return False
    return True


class Scanned(Batches):
    """One scan of a table."""

    def __init__(
        self,
        table: ParquetTable,
        failures: list[ComalError],
        whole: Callable[[Sequence[str]], Any] | None,
        names: Sequence[str],
        condition: Any,
    ) -> None:
        super().__init__(pa.schema([table.schema.field(name) for name in names]), failures)
        self._table = table
        self._whole = whole
        self._names = list(names)
        self._condition = condition

    def _checked(self) -> Iterator[Any]:
        limits = self._table.limits
        where = self._table.where
        decoded = kept = 0
        others = [name for name in self._filtered_by if name not in self._names]
        for rows in self._reads([*self._names, *others]):
            decoded += rows.nbytes
            if decoded > _PASSED * limits.leaf_bytes:
                raise LimitExceededError(
                    "the query reads more than it may", where=where, limit="leaf_bytes"
                )
            for batch in self._matching(rows):
                # A slice counts with its own bytes, even if it shares buffers with others.
                kept += batch.nbytes
                limits.check("leaf_bytes", kept, where)
                yield batch

    def _reads(self, names: Sequence[str]) -> Iterator[Any]:
        if self._whole is not None:
            yield self._whole(names)
            return
        groups = self._table.groups_of(self._condition)
        runs = self._table.runs(names, groups, stored=_RUN_BYTES, cells=_RUN_CELLS)
        for run in runs:
            yield self._table.read(names, run)

    def _matching(self, rows: Any) -> Iterator[Any]:
        batches = rows.select(self._names).to_batches(max_chunksize=_BATCH)
        if self._condition is None:
            yield from batches or [pa.record_batch(self.projected_schema.empty_table())]
            return
        with translated(BROKEN, "the rows cannot be filtered", where=self._table.where):
            # Arrow's scanner would filter column by column, which takes three times as long; it
            # only computes which rows match.
            memory = ds.InMemoryDataset(rows.select(self._filtered_by or self._names[:1]))
            mask = memory.scanner(columns={"matches": self._condition}).to_table().column(0)
            matches = one_array(mask)
        start = 0
        for batch in batches:
            with translated(BROKEN, "the rows cannot be filtered", where=self._table.where):
                found = batch.take(pc.indices_nonzero(matches.slice(start, batch.num_rows)))
            start += batch.num_rows
            if found.num_rows:
                yield found

    @cached_property
    def _filtered_by(self) -> list[str]:
        return columns_of(self._condition, self._table.schema)
