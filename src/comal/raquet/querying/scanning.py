"""Tiles as a dataset for DuckDB: only the pages of the tiles that a query asks for are read.

Ids and times are in memory once a file is open. A filter on them is answered there, and what it
leaves is fetched page by page where the file allows it, else by the row groups that hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from comal.errors import ComalError, translated
from comal.limits import MIB
from comal.plan import run
from comal.raquet import spec
from comal.raquet.querying.files import Files
from comal.table import ParquetTable
from comal.table.footer import BROKEN
from comal.table.scan import Batches, columns_of

Ints = npt.NDArray[np.int64]

_BYTES = 16 * MIB
"""Stored bytes that are read at a time."""
_ROW = "comal row"
_MOST_ROWS = 2048
"""Rows of a batch; as many as DuckDB hands to a function."""
_FEW = 4
"""Of so many tiles in row groups at most one is wanted where they are read one by one."""


class TileScan(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """The rows of one file. Engines ask the class for its `scanner`, with columns and a filter.

    Parameters
    ----------
    files
        The data set.
    number
        Which of its files.
    failures
        Takes the error that ended a scan, of which an engine would pass on the text alone.
    """

    def __init__(self, files: Files, number: int, failures: list[ComalError]) -> None:
        footer = files.parts[number].footer
        super().__init__(footer.schema.empty_table())
        self._files, self._number, self._failures = files, number, failures

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that engines use
        **_: Any,
    ) -> TilesScanned:
        """What reads `columns` of the rows that `filter` (an Arrow expression) keeps."""
        schema = self._files.parts[self._number].footer.schema
        names = schema.names if columns is None else list(columns)
        return TilesScanned(self._files, self._number, self._failures, names, filter)


class Deferred(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """A table that is made when it is first scanned; most queries never ask for it.

    Parameters
    ----------
    schema
        Of the table.
    make
        Makes it.
    """

    def __init__(self, schema: Any, make: Callable[[], Any]) -> None:
        super().__init__(schema.empty_table())
        self._make = make
        self._made: Any = None

    def scanner(self, **wanted: Any) -> Any:
        """A `pyarrow.dataset.Scanner` over the whole table."""
        if self._made is None:
            self._made = ds.InMemoryDataset(self._make())
        return self._made.scanner(**wanted)


class TilesScanned(Batches):
    """One scan of one file."""

    def __init__(
        self,
        files: Files,
        number: int,
        failures: list[ComalError],
        names: Sequence[str],
        condition: Any,
    ) -> None:
        part = files.parts[number]
        super().__init__(pa.schema([part.footer.schema.field(name) for name in names]), failures)
        self._part, self._store = part, files.store
        self._before = int(files.store.starts[number])
        self._names = list(names)
        self._condition = condition

    def _checked(self) -> Iterator[Any]:
        rows = self._rows()
        if rows is None:
            yield from self._filtered()
        elif self._is_by_tile(rows):
            yield from self._by_tile(rows)
        else:
            yield from self._by_groups(rows)

    # -- which rows --------------------------------------------------------------------------------

    def _known(self) -> dict[str, Any]:
        """Columns that are in memory."""
        part, schema = self._part, self._part.footer.schema
        known: dict[str, Any] = {spec.BLOCK: part.ids}
        if part.time is not None:
            known[spec.TIME_CF] = part.time
        if part.stamps is not None:
            known[spec.TIME_TS] = part.stamps
        return {
            name: pa.array(values).cast(schema.field(name).type, safe=False)
            for name, values in known.items()
        }

    def _rows(self) -> Ints | None:
        """Numbers of the rows that the filter keeps; None when it names other columns."""
        part = self._part
        if self._condition is None:
            return np.arange(len(part.ids))
        rows = pa.array(np.arange(len(part.ids)))
        table = ds.InMemoryDataset(pa.table({**self._known(), _ROW: rows}))
        try:
            found = table.scanner(columns=[_ROW], filter=self._condition).to_table()
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None
        chosen: Ints = found.column(0).to_numpy()
        return chosen

    # -- their values ------------------------------------------------------------------------------

    def _is_by_tile(self, rows: Ints) -> bool:
        """Whether tiles are read one by one: they have pages of their own, or few are wanted."""
        read = [name for name in self._names if name not in self._known()]
        if all(name in self._part.pages for name in read):
            return True
        groups = np.unique(self._groups_of(rows))
        few = len(rows) * _FEW <= int(self._part.footer.layout.rows[groups].sum())
        return few and all(name in self._store.columns for name in read)

    def _groups_of(self, rows: Ints) -> Ints:
        return np.searchsorted(self._part.row_ends, rows, side="right")

    def _sizes(self, name: str, rows: Ints) -> Any:
        """Stored bytes of tiles; about as many where several share a page."""
        pages = self._part.pages.get(name)
        if pages is not None:
            return pages.size[rows]
        layout, groups = self._part.footer.layout, self._groups_of(rows)
        return layout.size[groups, layout.leaves[name][0]] / layout.rows[groups]

    def _by_tile(self, rows: Ints) -> Iterator[Any]:
        known = self._known()
        read = [name for name in self._names if name not in known]
        sizes = sum((self._sizes(name, rows) for name in read), np.zeros(len(rows)))
        for some in _runs(rows, sizes):
            at = pa.array(some)
            keys = [(int(row) + self._before, name) for name in read for row in some]
            found = run(self._store.blobs_plan(keys), self._store.fetch)
            columns = [
                known[name].take(at)
                if name in known
                else pa.array([found[int(row) + self._before, name] for row in some], pa.binary())
                for name in self._names
            ]
            yield pa.record_batch(
                [
                    column.cast(field.type)
                    for column, field in zip(columns, self.projected_schema, strict=True)
                ],
                schema=self.projected_schema,
            )

    def _by_groups(self, rows: Ints) -> Iterator[Any]:
        table = self._table()
        ends = self._part.row_ends
        groups = self._groups_of(rows)
        for chosen in table.runs(self._names, np.unique(groups).tolist(), stored=_BYTES):
            found = table.read(self._names, chosen)
            counts = self._part.footer.layout.rows[chosen]
            mine = rows[np.isin(groups, chosen)]
            # A run of groups may leave some out: rows are counted within what was read.
            place = np.searchsorted(ends[chosen], mine, side="right")
            first = ends[chosen] - counts
            at = mine - first[place] + (np.cumsum(counts) - counts)[place]
            yield from found.take(pa.array(at)).to_batches(max_chunksize=_MOST_ROWS)

    def _filtered(self) -> Iterator[Any]:
        """The rows of a filter on columns that have to be read first."""
        table = self._table()
        schema = self._part.footer.schema
        names = [*self._names, *columns_of(self._condition, schema, self._names)]
        for chosen in table.runs(names, stored=_BYTES):
            memory = ds.InMemoryDataset(table.read(names, chosen))
            with translated(BROKEN, "rows cannot be filtered", where=self._part.where):
                found = memory.scanner(columns=self._names, filter=self._condition).to_table()
            yield from found.to_batches(max_chunksize=_MOST_ROWS)

    def _table(self) -> ParquetTable:
        number = self._store.parts.index(self._part)
        source = self._store.sources[number]
        return ParquetTable(source, self._part.footer, limits=self._store.limits)


def _runs(rows: Ints, sizes: Any) -> Iterator[Ints]:
    """The rows, as many at a time as `_BYTES` and `_MOST_ROWS` allow."""
    start = 0
    total = np.cumsum(sizes)
    while start < len(rows):
        before = float(total[start - 1]) if start else 0.0
        stop = int(np.searchsorted(total, before + _BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _MOST_ROWS)
        yield rows[start:stop]
        start = stop
