"""One level of a container: its consolidated table, and what navigation derives from it.

The table says of each row who its parent is and where its bytes lie (6.2, 6.3). Both can be
missing or wrong in files of older writers, so they are derived once, as arrays, when something
first needs them: ids and parents by `lineage`, spans by `spans`. Rows and queries then show the
right values.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, UnsafeContentError, shown
from comal.names import bad_names
from comal.table import ParquetTable
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.reading import lineage
from comal.taco.reading.lineage import ChildIndex, Int64s, RowIndex, broken
from comal.taco.reading.spans import Spans, verified_spans

if TYPE_CHECKING:
    from comal.taco.reading.origin import Origin

_CACHED_GROUPS = 4
_CHUNK = 4_096
"""Rows of a chunk on average under which the chunks of a column are joined."""
_HELD_BYTES = 320 << 20
"""What a local level keeps of its columns between queries."""


class Level:
    """A level of a container; nothing is read before it is needed.

    Rows are numbered by their place in the table, padding included.

    Parameters
    ----------
    container
        Where the container lies.
    table
        The consolidated table.
    above
        The level of the parents; None for level 0.
    """

    def __init__(self, container: Origin, table: ParquetTable, above: Level | None) -> None:
        self.container = container
        self.index: int = 0 if above is None else above.index + 1
        self.table = table
        self._above = above
        self._groups: dict[int, Any] = {}
        self._columns: dict[str, Any] = {}
        limits, cells = container.limits, table.num_rows * len(table.column_names)
        limits.check("table_rows", table.num_rows, self.where)
        limits.check("table_cells", cells, self.where)
        self._check_columns(table.column_names)
        ignored = {spec.GDAL_VSI}
        if container.kind == "folder":
            # Exports of old writers keep spans of the ZIP they came from.
            ignored |= {spec.OFFSET, spec.SIZE, spec.SOURCE_FILE}
        self.stored = tuple(name for name in table.column_names if name not in ignored)

    @property
    def where(self) -> str:
        """The level as messages call it."""
        return f"{self.container.source.href}: level {self.index}"

    @property
    def num_rows(self) -> int:
        """Rows, padding included."""
        return self.table.num_rows

    @property
    def above(self) -> Level:
        """The level of the parents."""
        assert self._above is not None, "level 0 holds no children"
        return self._above

    # -- columns -----------------------------------------------------------------------------------

    def _check_columns(self, stored: Sequence[str]) -> None:
        kind = self.container.kind
        wanted = {spec.ID: spec.is_text, spec.TYPE: spec.is_text}
        if kind != "folder":
            wanted |= {spec.OFFSET: pa.types.is_integer, spec.SIZE: pa.types.is_integer}
        elif self.index:
            wanted[spec.RELATIVE_PATH] = spec.is_text
        if self.container.is_index:
            wanted[spec.SOURCE_FILE] = spec.is_text
        if self.index and spec.RELATIVE_PATH not in stored:
            wanted[spec.PARENT_ID] = pa.types.is_integer
        optional = {
            spec.CURRENT_ID: pa.types.is_integer,
            spec.PARENT_ID: pa.types.is_integer,
            spec.RELATIVE_PATH: spec.is_text,
        }
        wanted |= {name: test for name, test in optional.items() if name in stored}
        for name, test in wanted.items():
            if name not in stored:
                raise InvalidMetadataError(
                    "a level lacks a column", where=self.where, expected=f"column {name}"
                )
            found = self.table.schema.field(name).type
            if not test(found):
                raise InvalidMetadataError(
                    f"column {name} has a wrong type", where=self.where, found=str(found)
                )

    @property
    def has_ids(self) -> bool:
        """Whether ``internal:current_id`` is stored; older writers leave it out."""
        return spec.CURRENT_ID in self.stored

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns as they are shown: those stored, the row's identity, the computed GDAL path.

        A path that a file claims for itself (``internal:gdal_vsi``) is never shown.
        """
        names = list(self.stored)
        if not self.has_ids:
            at = [place for place, name in enumerate(names) if name.startswith(spec.INTERNAL)]
            names.insert(at[0] if at else len(names), spec.CURRENT_ID)
        if self.index and spec.PARENT_ID not in names:
            names.insert(names.index(spec.CURRENT_ID) + 1, spec.PARENT_ID)
        if self.index and spec.RELATIVE_PATH not in names:
            names.append(spec.RELATIVE_PATH)
        return (*names, spec.GDAL_VSI)

    @cached_property
    def schema(self) -> Any:
        """The Arrow schema of `columns`."""
        added = {
            spec.CURRENT_ID: pa.int64(),
            spec.PARENT_ID: pa.int64(),
            spec.RELATIVE_PATH: pa.string(),
            spec.GDAL_VSI: pa.string(),
        }
        stored = self.table.schema
        return pa.schema(
            stored.field(name) if name in self.stored else pa.field(name, added[name])
            for name in self.columns
        )

    def column(self, name: str) -> Any:
        """One stored column, whole."""
        return self.table.read([name]).column(name)

    # -- derived -----------------------------------------------------------------------------------

    @cached_property
    def source_codes(self) -> dict[str, int]:
        """A number for each ZIP of an index, in the order in which level 0 names them."""
        if self._above is not None:
            return self._above.source_codes
        if not self.container.is_index:
            return {}
        names = self.column(spec.SOURCE_FILE).unique().to_pylist()
        if None in names:
            raise InvalidMetadataError(
                "a row does not say which ZIP holds it",
                where=self.where,
                expected=f"a name in {spec.SOURCE_FILE}",
            )
        return {name: code for code, name in enumerate(names)}

    @cached_property
    def codes(self) -> Int64s | None:
        """The number of each row's ZIP in an index; see `lineage.codes_of`."""
        return lineage.codes_of(self)

    @cached_property
    def ids(self) -> Int64s | None:
        """Ids of the rows, None when they are the row numbers; see `lineage.ids_of`."""
        return lineage.ids_of(self)

    @cached_property
    def index_of_rows(self) -> RowIndex:
        """Finds rows by id."""
        return RowIndex(self)

    @cached_property
    def folders(self) -> npt.NDArray[np.bool_]:
        """Which rows are FOLDERs."""
        return lineage.folders_of(self)

    @cached_property
    def parents(self) -> Int64s:
        """For each row the row of its parent in the level above."""
        self.check_names()
        return lineage.parents_of(self)

    @cached_property
    def parents_repaired(self) -> bool:
        """Whether `parents` says something else than the stored column, or that is absent."""
        found = lineage.parents_by_id(self)
        return found is None or not np.array_equal(found, self.parents)

    @cached_property
    def _children(self) -> ChildIndex:
        return ChildIndex(self.parents)

    def children(self, parent: int) -> Int64s:
        """Rows of this level whose parent is the row `parent` of the level above, in order."""
        return self._children.children(parent)

    @cached_property
    def spans(self) -> Spans | None:
        """Spans where they differ from those stored, or None when the stored ones are right."""
        return verified_spans(self)

    def row(self, current_id: int, source_file: str | None) -> int:
        """The row of one id.

        Raises
        ------
        InvalidMetadataError
            There is none.
        """
        codes = None
        if self.container.is_index:
            codes = np.array([self.source_codes.get(source_file or "", -1)], np.int64)
        found = int(self.index_of_rows.find(np.array([current_id], np.int64), codes)[0])
        if found < 0:
            raise InvalidMetadataError(
                "no row has this id", where=self.where, found=f"{spec.CURRENT_ID} {current_id}"
            )
        return found

    def paths(self) -> Any:
        """The path of each row below DATA/ as an Arrow array, without a slash at the end."""
        if self.index == 0:
            return one_array(self.column(spec.ID))
        if spec.RELATIVE_PATH in self.stored:
            column = one_array(self.column(spec.RELATIVE_PATH))
            if column.null_count:
                raise broken(self, f"{spec.RELATIVE_PATH} is null", lineage.first_null(column))
            return pc.utf8_rtrim(column, "/")
        parents = self.above.paths().take(pa.array(self.parents))
        return pc.binary_join_element_wise(parents, one_array(self.column(spec.ID)), "/")

    # -- rows --------------------------------------------------------------------------------------

    def take(self, rows: Int64s) -> Any:
        """Some rows, in ascending order, as a table with the columns of `columns`; no padding."""
        self.check_names()
        if len(rows) == 0:
            return self.schema.empty_table()
        first, last = int(rows[0]), int(rows[-1])
        block, start = self._block(first, last)
        if last - first + 1 == len(rows):
            part = block.slice(first - start, len(rows))
        else:
            part = block.take(pa.array(rows - start))
        return unpadded(self._complete(part, rows))

    def _block(self, first: int, last: int) -> tuple[Any, int]:
        """The row groups that hold rows `first` to `last`, and the first row of them."""
        low, high = np.searchsorted(self._group_starts, [first, last], side="right") - 1
        tables = [self._group(group) for group in range(int(low), int(high) + 1)]
        block = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        return block, int(self._group_starts[low])

    def _group(self, group: int) -> Any:
        table = self._groups.get(group)
        if table is None:
            table = self.table.read(list(self.stored), row_groups=[group])
            while len(self._groups) >= _CACHED_GROUPS:
                self._groups.pop(next(iter(self._groups)), None)
            self._groups[group] = table
        return table

    @cached_property
    def _group_starts(self) -> Int64s:
        metadata = self.table.footer.metadata
        sizes = [metadata.row_group(n).num_rows for n in range(metadata.num_row_groups)]
        return np.cumsum([0, *sizes[:-1]], dtype=np.int64)

    def navigation(self, rows: Int64s) -> Any:
        """The protected columns of some rows in the order of `rows`, padding included."""
        self.check_names()
        names = [name for name in self.stored if name in spec.PROTECTED_COLUMNS]
        if self.keeps_columns:
            held = self.held(names)
            whole = np.array_equal(rows, np.arange(self.num_rows))
            return self._complete(held if whole else held.take(pa.array(rows)), rows, names)
        starts = np.append(self._group_starts, self.num_rows)
        groups, which = np.unique(
            np.searchsorted(self._group_starts, rows, side="right") - 1, return_inverse=True
        )
        before = np.cumsum(np.diff(starts)[groups]) - np.diff(starts)[groups]
        part = self.table.read(names, row_groups=groups.tolist())
        places = before[which] + rows - starts[groups][which]
        return self._complete(part.take(pa.array(places)), rows, names)

    def find_paths(self, paths: Any, source_file: str | None) -> Int64s:
        """The rows with these paths below DATA/ (of one ZIP of an index); -1 for no such row."""
        known = self.paths()
        if self.codes is None:
            mine = None
        else:
            mine = np.flatnonzero(self.codes == self.source_codes.get(source_file or "", -1))
            known = known.take(pa.array(mine))
        found = pc.index_in(paths.cast(known.type), value_set=known)
        rows = np.asarray(pc.fill_null(found, -1), np.int64)
        return rows if mine is None or not len(mine) else np.where(rows < 0, -1, mine[rows])

    def _complete(self, part: Any, rows: Int64s, stored: Sequence[str] | None = None) -> Any:
        """Stored columns of some rows with right and computed ones in their place."""
        columns = {name: part.column(name) for name in part.column_names}
        if not self.has_ids:
            columns[spec.CURRENT_ID] = pa.array(rows if self.ids is None else self.ids[rows])
        if self.index and spec.RELATIVE_PATH not in self.stored:
            columns[spec.RELATIVE_PATH] = self.paths().take(pa.array(rows))
        if self.index and self.parents_repaired:
            own, above = self.parents[rows], self.above.ids
            columns[spec.PARENT_ID] = pa.array(own if above is None else above[own])
        if self.spans is not None:
            columns[spec.OFFSET] = self.spans.column(self.spans.offsets, rows)
            columns[spec.SIZE] = self.spans.column(self.spans.sizes, rows)
        absent = set() if stored is None else {*self.stored} - {*stored}
        names = [name for name in self.columns[:-1] if name not in absent]
        table = pa.table([columns[name] for name in names], names)
        return table.append_column(spec.GDAL_VSI, vsi_column(self, table))

    def relation(self, *, spans: bool) -> Any:
        """What a query reads: a mended table, or None when the stored columns can be read lazily.

        Parameters
        ----------
        spans
            Whether the query may look at spans, so that they must be right.
        """
        self.check_names()
        wrong = self.index > 0 and (
            spec.RELATIVE_PATH not in self.stored
            or self.parents_repaired
            or (spans and self.spans is not None)
        )
        # Ids within each ZIP of an index cannot be told by a query from the row order.
        return self._mended if wrong or (self.container.is_index and not self.has_ids) else None

    @cached_property
    def keeps_columns(self) -> bool:
        """Whether queries keep the columns that they read: of local levels of moderate size.

        Levels behind a network are read again each time, for there a query fetches no more than
        the row groups that it needs.
        """
        remote = not self.container.source.location.is_local
        # A text counts as two numbers here; `held` looks again.
        return not remote and 16 * self.num_rows * len(self.stored) <= _HELD_BYTES

    def held(self, names: Sequence[str]) -> Any:
        """Stored columns as a table, in memory from then on where `keeps_columns`."""
        if not self.keeps_columns:
            return self.table.read(list(names))
        missing = [name for name in names if name not in self._columns]
        found = dict(self._columns)
        if missing:
            columns = self.table.read(missing).columns
            found |= zip(missing, columns, strict=True)
            if sum(column.nbytes for column in found.values()) <= _HELD_BYTES:
                for place, name in enumerate(missing):
                    if len(columns[place]) < _CHUNK * columns[place].num_chunks:
                        # Many small chunks cost every query more than joining them costs once.
                        columns[place] = found[name] = one_array(columns[place])
                self._columns |= zip(missing, columns, strict=True)
        return pa.table([found[name] for name in names], names=list(names))

    @property
    def in_memory(self) -> Any:
        """All stored columns, once queries have brought every one of them; None before."""
        complete = self.keeps_columns and self.has_ids and self._columns.keys() >= set(self.stored)
        return self.held(self.stored) if complete else None

    def whole(self) -> Any:
        """All rows with the columns of `columns`, padding included."""
        self.check_names()
        return self._complete(self.held(self.stored), np.arange(self.num_rows, dtype=np.int64))

    @cached_property
    def _mended(self) -> Any:
        return self.whole()

    # -- safety ------------------------------------------------------------------------------------

    def check_names(self) -> None:
        """Refuse ids and paths of a folder that would lead out of it, before they become paths."""
        if self.container.kind == "folder":
            _ = self._names_are_safe

    @cached_property
    def _names_are_safe(self) -> bool:
        check_ids(self.column(spec.ID), self.where)
        if self.index:
            column = self.paths()
            odd = pc.match_substring_regex(column, r"(^|/)\.{0,2}(/|$)|[\\:\p{Cc}]")
            if pc.any(odd, min_count=0).as_py():
                row = int(pc.index(odd, pa.scalar(value=True)).as_py())
                raise UnsafeContentError(
                    f"{spec.RELATIVE_PATH} would lead out of the dataset",
                    where=f"{self.where}, row {row}",
                    found=shown(column[row].as_py()),
                )
        return True


def unpadded(table: Any) -> Any:
    """The rows of a table that are no padding (5.5)."""
    padding = pc.fill_null(pc.starts_with(table.column(spec.ID), spec.PAD_PREFIX), False)
    return table.filter(pc.invert(padding)) if pc.any(padding, min_count=0).as_py() else table


def check_ids(column: Any, where: str) -> None:
    """Refuse ids that could be taken for a path, or that hide."""
    for bad in bad_names(column, tier=1):
        raise UnsafeContentError(
            f"an id that {bad.reason}", where=f"{where}, row {bad.row}", found=shown(bad.name)
        )


def vsi_column(level: Level, table: Any) -> Any:
    """``internal:gdal_vsi`` of rows of a level: computed, never taken from the file (7.2.3)."""
    container = level.container
    if container.kind == "folder":
        root = container.source.vsi().rstrip("/") + "/" + spec.DATA
        name = spec.RELATIVE_PATH if level.index else spec.ID
        return pc.binary_join_element_wise(root, table.column(name), "")
    numbers = [pc.cast(table.column(name), pa.string()) for name in (spec.OFFSET, spec.SIZE)]
    parts = ["/vsisubfile/", numbers[0], "_", numbers[1], "," + vsi_base(container)]
    if container.is_index:
        names = table.column(spec.SOURCE_FILE)
        for name, spelled in odd_parts(level).items():
            names = pc.if_else(pc.equal(names, name), spelled, names)
        parts.append(names)
    return pc.binary_join_element_wise(*parts, "")


def vsi_base(container: Origin) -> str:
    """The GDAL path of the ZIP, or of the folder of an index's ZIPs with a slash at its end."""
    if not container.is_index:
        return container.source.vsi()
    if container.base is not None:
        return container.base.vsi().rstrip("/") + "/"
    return container.source.sibling("x").vsi()[:-1]


def odd_parts(level: Level) -> dict[str, str]:
    """The ZIPs of a remote index whose names GDAL knows by another spelling, such as ``%20``."""
    container = level.container
    if "://" not in container.source.href:
        return {}
    base = vsi_base(container)
    spelled = {name: container.part(name).vsi() for name in level.source_codes}
    return {name: path.removeprefix(base) for name, path in spelled.items() if path != base + name}
