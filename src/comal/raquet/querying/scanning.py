"""The rows of a data set as datasets of Arrow, which DuckDB scans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from comal.errors import ComalError, translated
from comal.limits import MIB
from comal.plan import run
from comal.raquet import spec
from comal.raquet.reading.store import TileStore
from comal.table import ParquetTable
from comal.table.footer import BROKEN
from comal.table.scan import Batches, columns_of

Ints = npt.NDArray[np.int64]

_BYTES = 16 * MIB
"""Stored bytes that are read at a time."""
_PLACE = "comal place"
_MOST_ROWS = 2048
"""Rows of a batch; as many as DuckDB hands to a function."""


def tile_scans(store: TileStore, failures: list[ComalError]) -> list[TileScan]:
    """The rows of a data set as few datasets: one for all files that have the same columns."""
    sets: dict[tuple[Any, ...], list[int]] = {}
    for number, part in enumerate(store.parts):
        columns = tuple((field.name, field.type) for field in part.footer.schema)
        sets.setdefault(columns, []).append(number)
    return [TileScan(store, numbers, failures) for numbers in sets.values()]


class TileScan(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """The rows of the files `numbers` of a store, which have the same columns.

    Engines ask for a `scanner`. `failures` takes the error that ended a scan, of which an engine
    would pass on the text alone.
    """

    def __init__(
        self, store: TileStore, numbers: Sequence[int], failures: list[ComalError]
    ) -> None:
        self.parts = [store.parts[number] for number in numbers]
        super().__init__(self.parts[0].footer.schema.empty_table())
        self.store, self._failures = store, failures
        sizes = np.array([len(part.ids) for part in self.parts])
        self.starts = np.cumsum(sizes) - sizes
        """The first place of each file, where its rows and those of the others are counted."""
        self.before = store.starts[list(numbers)] - self.starts
        """For each file what makes a place the number of a row in the store."""
        self.tables = [
            ParquetTable(store.sources[number], part.footer, limits=store.limits)
            for number, part in zip(numbers, self.parts, strict=True)
        ]

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that engines use
        **_: Any,
    ) -> _TilesScanned:
        """What reads `columns` of the rows that `filter` (an Arrow expression) keeps."""
        names = self.schema.names if columns is None else list(columns)
        return _TilesScanned(self, self._failures, names, filter)

    @cached_property
    def known(self) -> dict[str, Any]:
        """Columns that are in memory."""
        every: dict[str, list[Any]] = {
            spec.BLOCK: [part.ids for part in self.parts],
            spec.TIME_CF: [part.time for part in self.parts],
            spec.TIME_TS: [part.stamps for part in self.parts],
        }
        return {
            name: pa.array(np.concatenate(values)).cast(self.schema.field(name).type, safe=False)
            for name, values in every.items()
            if all(one is not None for one in values)
        }


class Deferred(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """A table of a schema that is made when it is first scanned; most queries never ask for it."""

    def __init__(self, schema: Any, make: Callable[[], Any]) -> None:
        super().__init__(schema.empty_table())
        self._make = make
        self._made: Any = None

    def scanner(self, **wanted: Any) -> Any:
        """A `pyarrow.dataset.Scanner` over the whole table."""
        if self._made is None:
            self._made = ds.InMemoryDataset(self._make())
        return self._made.scanner(**wanted)


class _TilesScanned(Batches):
    """One scan of some files."""

    def __init__(
        self, of: TileScan, failures: list[ComalError], names: Sequence[str], condition: Any
    ) -> None:
        super().__init__(pa.schema([of.schema.field(name) for name in names]), failures)
        self._of = of
        self._names = list(names)
        self._read = [name for name in names if name not in of.known]
        self._condition = condition

    def _checked(self) -> Iterator[Any]:
        places = self._places()
        if places is None:
            for number in range(len(self._of.parts)):
                yield from self._by_groups(number)
            return
        for by_page, stretch in groupby(self._of_files(places), key=self._is_by_page):
            if by_page:
                # Tiles of several files are fetched together.
                yield from self._by_page(np.concatenate([some for _, some in stretch]))
                continue
            for number, some in stretch:
                rows = some - self._of.starts[number]
                groups = np.searchsorted(self._of.parts[number].row_ends, rows, side="right")
                yield from self._by_groups(number, np.unique(groups).tolist())

    def _places(self) -> Ints | None:
        """Places of the rows that the filter keeps; None when it names columns to be read."""
        known = self._of.known
        places = np.arange(len(known[spec.BLOCK]))
        if self._condition is None:
            return places
        table = ds.InMemoryDataset(pa.table({**known, _PLACE: pa.array(places)}))
        try:
            found = table.scanner(columns=[_PLACE], filter=self._condition).to_table()
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None
        chosen: Ints = found.column(0).to_numpy()
        return chosen

    def _of_files(self, places: Ints) -> Iterator[tuple[int, Ints]]:
        """The places of each file that has some, behind its number among the files."""
        found, first = np.unique(self._numbers(places), return_index=True)
        if len(places):
            yield from zip(found.tolist(), np.split(places, first[1:]), strict=True)

    def _numbers(self, places: Ints) -> Ints:
        return np.searchsorted(self._of.starts, places, side="right") - 1

    def _is_by_page(self, some: tuple[int, Ints]) -> bool:
        """Whether the tiles of a file have pages of their own."""
        return all(name in self._of.parts[some[0]].pages for name in self._read)

    def _by_page(self, places: Ints) -> Iterator[Any]:
        known, store = self._of.known, self._of.store
        sizes = np.concatenate(
            [
                np.zeros(len(some))
                + sum(self._of.parts[number].pages[name].size[some - start] for name in self._read)
                for number, some in self._of_files(places)
                for start in [self._of.starts[number]]
            ]
        )
        for some in _runs(places, sizes):
            rows = (some + self._of.before[self._numbers(some)]).tolist()
            keys = [(row, name) for name in self._read for row in rows]
            found = run(store.blobs_plan(keys), store.fetch)
            columns = [
                known[name].take(pa.array(some))
                if name in known
                else pa.array([found[row, name] for row in rows], pa.binary())
                for name in self._names
            ]
            fields = zip(columns, self.projected_schema, strict=True)
            cast = [column.cast(field.type) for column, field in fields]
            yield pa.record_batch(cast, schema=self.projected_schema)

    def _by_groups(self, number: int, groups: Sequence[int] | None = None) -> Iterator[Any]:
        """What the filter keeps of row groups of a file, of all of them by default."""
        table, where = self._of.tables[number], self._of.parts[number].where
        others = columns_of(self._condition, self._of.schema, self._names)
        for chosen in table.runs([*self._names, *others], groups, stored=_BYTES):
            memory = ds.InMemoryDataset(table.read([*self._names, *others], chosen))
            with translated(BROKEN, "rows cannot be filtered", where=where):
                found = memory.scanner(columns=self._names, filter=self._condition).to_table()
            yield from found.to_batches(max_chunksize=_MOST_ROWS)


def _runs(places: Ints, sizes: Any) -> Iterator[Ints]:
    """The places, as many at a time as `_BYTES` and `_MOST_ROWS` allow."""
    start = 0
    total = np.cumsum(sizes)
    while start < len(places):
        before = float(total[start - 1]) if start else 0.0
        stop = int(np.searchsorted(total, before + _BYTES, side="right"))
        stop = min(max(stop, start + 1), start + _MOST_ROWS)
        yield places[start:stop]
        start = stop
