"""The files of one data set, opened for queries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from comal.errors import ComalError, InvalidInputError, translated
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import run
from comal.raquet import spec
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import TileFile
from comal.raquet.spec import Metadata
from comal.storage import StorageConfig
from comal.table import ParquetTable
from comal.table.footer import BROKEN
from comal.table.scan import Batches, columns_of

Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Files:
    """One data set of one file or several parts."""

    store: TileStore
    owned: bool = True
    """Whether closing this closes the sources."""

    @property
    def parts(self) -> tuple[TileFile, ...]:
        """What is known of each file."""
        return self.store.parts

    @property
    def metadata(self) -> Metadata:
        """What the files say of themselves."""
        return self.store.metadata

    def close(self) -> None:
        """Let go of what was opened for the queries."""
        if self.owned:
            self.store.close()


def opened(
    href: Any, config: StorageConfig | None = None, limits: Limits = DEFAULT_LIMITS
) -> Files:
    """Open a file, the parts of a data set, or take a `RaquetFile` as it is.

    Raises
    ------
    InvalidInputError
        No path, URL or list of these.
    ComalError
        As for `comal.raquet.open`.
    """
    if isinstance(href, RaquetFile):
        # An opened file shares what it has read, and its cache.
        return Files(href.store, owned=False)
    if not isinstance(href, str | os.PathLike | Sequence) or not href:
        raise InvalidInputError("no RaQuet file", found=type(href).__name__, expected="a path")
    return Files(open_raquet(href, config=config, limits=limits).store)


Ints = npt.NDArray[np.int64]

_BYTES = 16 * MIB
"""Stored bytes that are read at a time."""
_ROW = "comal row"
_MOST_ROWS = 2048
"""Rows of a batch; as many as DuckDB hands to a function."""
_FEW = 4
"""Of so many tiles in row groups at most one is wanted where they are read one by one."""


@dataclass(frozen=True)
class _Set:
    """Files with the same columns. Their rows are counted through all of them."""

    files: Files
    numbers: tuple[int, ...]
    """Of the files in their data set, ascending."""

    @property
    def schema(self) -> Any:
        """Of each file."""
        return self.files.parts[self.numbers[0]].footer.schema

    @cached_property
    def starts(self) -> Ints:
        """Number of the first row of each file."""
        sizes = np.array([len(self.files.parts[number].ids) for number in self.numbers])
        found: Ints = np.cumsum(sizes) - sizes
        return found

    @cached_property
    def before(self) -> Ints:
        """For each file what makes the number of a row here that of the data set."""
        found: Ints = self.files.store.starts[list(self.numbers)] - self.starts
        return found

    @cached_property
    def known(self) -> dict[str, Any]:
        """Columns that are in memory."""
        parts = [self.files.parts[number] for number in self.numbers]
        every: dict[str, list[Any]] = {
            spec.BLOCK: [part.ids for part in parts],
            spec.TIME_CF: [part.time for part in parts],
            spec.TIME_TS: [part.stamps for part in parts],
        }
        return {
            name: pa.array(np.concatenate(values)).cast(self.schema.field(name).type, safe=False)
            for name, values in every.items()
            if all(one is not None for one in values)
        }


def tile_scans(files: Files, failures: list[ComalError]) -> list[TileScan]:
    """The rows of a data set as few datasets: one for all files that have the same columns."""
    sets: dict[tuple[Any, ...], list[int]] = {}
    for number, part in enumerate(files.parts):
        columns = tuple((field.name, field.type) for field in part.footer.schema)
        sets.setdefault(columns, []).append(number)
    return [TileScan(_Set(files, tuple(numbers)), failures) for numbers in sets.values()]


class TileScan(ds.InMemoryDataset):  # type: ignore[misc] # pyarrow is untyped
    """The rows of some files. Engines ask the class for its `scanner`, with columns and a filter.

    Parameters
    ----------
    of
        The files.
    failures
        Takes the error that ended a scan, of which an engine would pass on the text alone.
    """

    def __init__(self, of: _Set, failures: list[ComalError]) -> None:
        super().__init__(of.schema.empty_table())
        self._of, self._failures = of, failures

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - the name that engines use
        **_: Any,
    ) -> TilesScanned:
        """What reads `columns` of the rows that `filter` (an Arrow expression) keeps."""
        names = self._of.schema.names if columns is None else list(columns)
        return TilesScanned(self._of, self._failures, names, filter)


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
    """One scan of some files."""

    def __init__(
        self, of: _Set, failures: list[ComalError], names: Sequence[str], condition: Any
    ) -> None:
        super().__init__(pa.schema([of.schema.field(name) for name in names]), failures)
        self._of, self._store = of, of.files.store
        self._names = list(names)
        self._condition = condition

    def _checked(self) -> Iterator[Any]:
        rows = self._rows()
        if rows is None:
            for number in self._of.numbers:
                yield from self._filtered(number)
            return
        for by_tile, stretch in groupby(self._of_files(rows), key=self._is_by_tile):
            if by_tile:
                # Tiles of several files are fetched together.
                yield from self._by_tile(np.concatenate([some for _, some in stretch]))
            else:
                for at, some in stretch:
                    yield from self._by_groups(self._of.numbers[at], some - self._of.starts[at])

    # -- which rows --------------------------------------------------------------------------------

    def _rows(self) -> Ints | None:
        """Numbers of the rows that the filter keeps; None when it names other columns."""
        known = self._of.known
        rows = np.arange(len(known[spec.BLOCK]))
        if self._condition is None:
            return rows
        table = ds.InMemoryDataset(pa.table({**known, _ROW: pa.array(rows)}))
        try:
            found = table.scanner(columns=[_ROW], filter=self._condition).to_table()
        except (pa.ArrowInvalid, pa.ArrowKeyError):
            return None
        chosen: Ints = found.column(0).to_numpy()
        return chosen

    def _of_files(self, rows: Ints) -> Iterator[tuple[int, Ints]]:
        """The rows of each file that has some, behind its place among the files."""
        places = self._places(rows)
        found, first = np.unique(places, return_index=True)
        if len(rows):
            yield from zip(found.tolist(), np.split(rows, first[1:]), strict=True)

    def _places(self, rows: Ints) -> Ints:
        return np.searchsorted(self._of.starts, rows, side="right") - 1

    # -- their values ------------------------------------------------------------------------------

    def _is_by_tile(self, some: tuple[int, Ints]) -> bool:
        """Whether tiles are read one by one: they have pages of their own, or few are wanted."""
        at, rows = some
        part = self._of.files.parts[self._of.numbers[at]]
        read = [name for name in self._names if name not in self._of.known]
        if all(name in part.pages for name in read):
            return True
        groups = np.unique(_groups_of(part, rows - self._of.starts[at]))
        few = len(rows) * _FEW <= int(part.footer.layout.rows[groups].sum())
        return few and all(name in self._store.columns for name in read)

    def _sizes(self, names: Sequence[str], rows: Ints) -> Any:
        """Stored bytes of tiles; about as many where several share a page."""
        sizes = []
        for at, some in self._of_files(rows):
            part, local = self._of.files.parts[self._of.numbers[at]], some - self._of.starts[at]
            of_file = np.zeros(len(local))
            for name in names:
                pages = part.pages.get(name)
                if pages is not None:
                    of_file += pages.size[local]
                    continue
                layout, groups = part.footer.layout, _groups_of(part, local)
                of_file += layout.size[groups, layout.leaves[name][0]] / layout.rows[groups]
            sizes.append(of_file)
        return np.concatenate(sizes)

    def _by_tile(self, rows: Ints) -> Iterator[Any]:
        known = self._of.known
        read = [name for name in self._names if name not in known]
        for some in _runs(rows, self._sizes(read, rows)):
            at = pa.array(some)
            in_store = (some + self._of.before[self._places(some)]).tolist()
            keys = [(row, name) for name in read for row in in_store]
            found = run(self._store.blobs_plan(keys), self._store.fetch)
            columns = [
                known[name].take(at)
                if name in known
                else pa.array([found[row, name] for row in in_store], pa.binary())
                for name in self._names
            ]
            yield pa.record_batch(
                [
                    column.cast(field.type)
                    for column, field in zip(columns, self.projected_schema, strict=True)
                ],
                schema=self.projected_schema,
            )

    def _by_groups(self, number: int, rows: Ints) -> Iterator[Any]:
        """Rows of one file, counted within it."""
        part, table = self._of.files.parts[number], self._table(number)
        ends = part.row_ends
        groups = _groups_of(part, rows)
        for chosen in table.runs(self._names, np.unique(groups).tolist(), stored=_BYTES):
            found = table.read(self._names, chosen)
            counts = part.footer.layout.rows[chosen]
            mine = rows[np.isin(groups, chosen)]
            # A run of groups may leave some out: rows are counted within what was read.
            place = np.searchsorted(ends[chosen], mine, side="right")
            first = ends[chosen] - counts
            at = mine - first[place] + (np.cumsum(counts) - counts)[place]
            yield from found.take(pa.array(at)).to_batches(max_chunksize=_MOST_ROWS)

    def _filtered(self, number: int) -> Iterator[Any]:
        """The rows of a filter on columns that have to be read first."""
        table = self._table(number)
        names = [*self._names, *columns_of(self._condition, self._of.schema, self._names)]
        for chosen in table.runs(names, stored=_BYTES):
            memory = ds.InMemoryDataset(table.read(names, chosen))
            where = self._of.files.parts[number].where
            with translated(BROKEN, "rows cannot be filtered", where=where):
                found = memory.scanner(columns=self._names, filter=self._condition).to_table()
            yield from found.to_batches(max_chunksize=_MOST_ROWS)

    def _table(self, number: int) -> ParquetTable:
        footer = self._of.files.parts[number].footer
        return ParquetTable(self._store.sources[number], footer, limits=self._store.limits)


def _groups_of(part: TileFile, rows: Ints) -> Ints:
    """The row groups of rows of a file."""
    return np.searchsorted(part.row_ends, rows, side="right")


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
