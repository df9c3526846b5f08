"""One level of a container: its consolidated table, and the arrays that navigation derives from it.

The table gives the parent and the span of each row (6.2, 6.3). Both can be missing or wrong in
files of older writers: they omit ``internal:current_id``, their exports have a wrong
``internal:parent_id``, and in an index over several ZIPs both count within each ZIP. So ids,
parents and spans are derived once, as arrays, on first use; parents become row numbers of the
level above.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError, UnsafeContentError, shown
from comal.geo.boxes import boxes_intersect
from comal.geo.places import COLUMNS
from comal.names import bad_names
from comal.parallel import cached_property
from comal.public import warn
from comal.samples.filters import Box, Filter
from comal.table import ParquetTable
from comal.table.columns import one_array
from comal.taco import spec, wire
from comal.taco.reading.spans import Spans, verified_spans
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    from comal.taco.reading.container import Origin

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CACHED_GROUPS = 4
_CHUNK = 4_096
"""Chunks of a column with fewer rows on average are joined."""
_HELD_BYTES = 320 << 20
"""Maximum size of the columns that a local level keeps between queries."""
_CODE_SHIFT = 32
_MOST_IDS = 1 << _CODE_SHIFT
_DERIVED = {
    spec.CURRENT_ID: pa.int64(),
    spec.PARENT_ID: pa.int64(),
    spec.RELATIVE_PATH: pa.string(),
    spec.GDAL_VSI: pa.string(),
}
"""Columns that are computed if they are not stored."""
_LEADS_OUT = r"(^|/)\.{0,2}(/|$)|[\\:\p{Cc}]"


class Level:
    """A level of a container, read lazily.

    Rows are numbered as in the table, padding included. `above` is the level of the parents; None
    for level 0.
    """

    def __init__(self, container: Origin, table: ParquetTable, above: Level | None) -> None:
        self.container = container
        self.index: int = 0 if above is None else above.index + 1
        self.table = table
        self.num_rows = table.num_rows
        self._above = above
        self._groups: dict[int, Any] = {}
        self._columns: dict[str, Any] = {}
        self.where = f"{container.source.href}: level {self.index}"
        names = table.column_names
        self._check_columns(names)
        ignored = {spec.GDAL_VSI}
        if container.kind == "folder":
            # Exports of old writers keep the spans of their source ZIP.
            ignored |= {spec.OFFSET, spec.SIZE, spec.SOURCE_FILE}
        self.stored = tuple(name for name in names if name not in ignored)
        # Older writers omit the column.
        self.has_ids = spec.CURRENT_ID in self.stored

    @property
    def above(self) -> Level:
        """The level of the parents."""
        assert self._above is not None, "level 0 holds no children"
        return self._above

    def broken(self, what: str, row: int) -> InvalidMetadataError:
        """The error for one row."""
        return InvalidMetadataError(what, where=f"{self.where}, row {row}")

    # -- columns -----------------------------------------------------------------------------------

    def _check_columns(self, stored: Sequence[str]) -> None:
        kind = self.container.kind
        wanted = {spec.ID: spec.is_text, spec.TYPE: spec.is_text}
        if kind != "folder":
            wanted |= {spec.OFFSET: pa.types.is_integer, spec.SIZE: pa.types.is_integer}
        if self.container.is_index:
            wanted[spec.SOURCE_FILE] = spec.is_text
        if spec.RELATIVE_PATH in stored or (kind == "folder" and self.index):
            wanted[spec.RELATIVE_PATH] = spec.is_text
        if spec.PARENT_ID in stored or (self.index and spec.RELATIVE_PATH not in stored):
            wanted[spec.PARENT_ID] = pa.types.is_integer
        if spec.CURRENT_ID in stored:
            wanted[spec.CURRENT_ID] = pa.types.is_integer
        schema = self.table.schema
        for name, test in wanted.items():
            if name not in stored:
                raise InvalidMetadataError(
                    "a mandatory column is missing", where=self.where, expected=f"column {name}"
                )
            found = schema.field(name).type
            if not test(found):
                raise InvalidMetadataError(
                    f"column {name} has the wrong type", where=self.where, found=str(found)
                )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Public columns: those stored, the identity of the row, the computed GDAL path.

        A stored ``internal:gdal_vsi`` is never shown.
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
        stored = self.table.schema
        return pa.schema(
            stored.field(name) if name in self.stored else pa.field(name, _DERIVED[name])
            for name in self.columns
        )

    def column(self, name: str) -> Any:
        """One stored column, all rows."""
        return self.held([name]).column(name)

    # -- row groups --------------------------------------------------------------------------------

    @cached_property
    def group_boxes(self) -> Any:
        """Boxes around the row groups of an index that comal wrote: see `wire.parse_groups`."""
        if not self.container.is_index:
            return None
        return wire.parse_groups(self.table.footer, self.container.limits)

    def groups_meeting(self, rule: Filter) -> list[int]:
        """The row groups that may hold rows that a filter keeps."""
        every = list(range(self.table.num_row_groups))
        known = self.group_boxes
        if not isinstance(rule, Box) or known is None or not {*rule.columns} <= {*COLUMNS}:
            return every
        west, south, east, north = known.T
        meets = boxes_intersect(west, south, east, north, rule.bounds) | np.isnan(west)
        return list(np.flatnonzero(meets).tolist())

    def groups_of(self, names: Iterable[str]) -> list[int]:
        """The row groups that may hold rows of these ZIPs of an index."""
        stored = self.table.footer.metadata.schema.to_arrow_schema().field(spec.SOURCE_FILE)
        wanted = pa.array(sorted(names), stored.type)
        return self.table.groups_of(pc.field(spec.SOURCE_FILE).isin(wanted))

    # -- identity of rows --------------------------------------------------------------------------

    @cached_property
    def source_codes(self) -> dict[str, int]:
        """A number for each ZIP of an index, in the order of level 0."""
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
        """For each row of an index the number of its ZIP; None for other containers."""
        if not self.container.is_index:
            return None
        known = pa.array(list(self.source_codes), pa.string())
        found = pc.index_in(self.column(spec.SOURCE_FILE), value_set=known)
        codes = np.asarray(pc.fill_null(found, -1), np.int64)
        if (codes < 0).any():
            raise self.broken("a row names a ZIP that level 0 does not know", int(np.argmin(codes)))
        return codes

    @cached_property
    def ids(self) -> Int64s | None:
        """``internal:current_id`` of each row, from the row order if it is absent.

        None if ids are the row numbers, as in every sound ZIP and folder.
        """
        if not self.has_ids:
            return None if self.codes is None else count_within(self.codes)
        column = self.column(spec.CURRENT_ID)
        if column.null_count:
            raise self.broken(f"{spec.CURRENT_ID} is null", _first_null(column))
        ids = spec.int64s(column)
        bad = (ids < 0) | (ids >= _MOST_IDS)
        if bad.any():
            raise self.broken(f"{spec.CURRENT_ID} is not a row number", int(np.argmax(bad)))
        return None if np.array_equal(ids, np.arange(len(ids))) else ids

    @cached_property
    def _index(self) -> tuple[Int64s, Int64s] | None:
        """Sorted keys, and the row of each; None if ids are the row numbers.

        In an index the upper half of a key is the number of the ZIP.
        """
        ids, codes = self.ids, self.codes
        if ids is None and codes is None:
            return None
        keys, order = in_order(np.arange(self.num_rows) if ids is None else ids, codes)
        twice = np.flatnonzero(keys[1:] == keys[:-1])
        if len(twice):
            raise self.broken(f"{spec.CURRENT_ID} appears twice", int(order[twice[0] + 1]))
        return keys, order

    def _rows_of(self, ids: Int64s, codes: Any) -> Int64s:
        """The rows with these ids (and ZIP numbers in an index); -1 for no such row."""
        index = self._index
        if index is None:
            return np.where((ids >= 0) & (ids < self.num_rows), ids, -1)
        return rows_of(ids, codes, *index)

    def find(self, ids: Int64s, source_file: str | None) -> Int64s:
        """The rows with these ids (of one ZIP of an index); -1 for no such row."""
        codes = np.int64(self.source_codes.get(source_file or "", -1))
        return self._rows_of(ids, codes if self.container.is_index else None)

    def row(self, current_id: int, source_file: str | None) -> int:
        """The row of one id; raises if there is none."""
        found = int(self.find(np.array([current_id], np.int64), source_file)[0])
        if found < 0:
            raise InvalidMetadataError(
                "no row has this id", where=self.where, found=f"{spec.CURRENT_ID} {current_id}"
            )
        return found

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

    @cached_property
    def folders(self) -> Bools:
        """Which rows are FOLDERs; the others are FILEs."""
        column = self.column(spec.TYPE)
        folders = pc.equal(column, spec.FOLDER)
        known = pc.fill_null(pc.or_(folders, pc.equal(column, spec.FILE)), False)
        if not pc.all(known, min_count=0).as_py():
            row = int(pc.index(known, pa.scalar(value=False)).as_py())
            raise self.broken(f"type is neither {spec.FILE} nor {spec.FOLDER}", row)
        return np.asarray(folders, np.bool_)

    def paths(self) -> Any:
        """The path of each row below DATA/ as an Arrow array, without a trailing slash."""
        if self.index == 0:
            return one_array(self.column(spec.ID))
        if spec.RELATIVE_PATH in self.stored:
            column = one_array(self.column(spec.RELATIVE_PATH))
            if column.null_count:
                raise self.broken(f"{spec.RELATIVE_PATH} is null", _first_null(column))
            return pc.utf8_rtrim(column, "/")
        parents = self.above.paths().take(pa.array(self.parents))
        return pc.binary_join_element_wise(parents, one_array(self.column(spec.ID)), "/")

    # -- parents and children ----------------------------------------------------------------------

    @cached_property
    def parents(self) -> Int64s:
        """For each row the row of its parent in the level above.

        If ids and paths disagree, the path is right: exports of old writers renumbered rows
        wrongly.
        """
        self.check_names()
        found = self._parents_by_id
        if spec.RELATIVE_PATH not in self.stored:
            assert found is not None, "a level without both columns is refused when it is opened"
            return self._no_orphan(found)
        paths, above = self.paths(), self.above.paths()
        if found is not None and not (found < 0).any():
            same = pc.equal(above.take(pa.array(found)), _parent_paths(paths))
            if pc.all(same, min_count=0).as_py():
                return found
        repaired = self._no_orphan(parents_by_path(paths, self.codes, above, self.above.codes))
        if found is not None:
            warn(
                f"{self.where}: {spec.PARENT_ID} contradicts {spec.RELATIVE_PATH}; the paths are"
                " used",
                TacoWarning,
            )
        return repaired

    def _no_orphan(self, parents: Int64s) -> Int64s:
        if (parents < 0).any():
            raise self.broken("a row has no parent in the level above", int(np.argmin(parents)))
        return parents

    @cached_property
    def _parents_by_id(self) -> Int64s | None:
        """Rows of the parents by ``internal:parent_id``; -1 if that is not a FOLDER."""
        if spec.PARENT_ID not in self.stored:
            return None
        above = self.above
        found = above._rows_of(spec.int64s(self.column(spec.PARENT_ID)), self.codes)  # noqa: SLF001 - same class
        if not above.num_rows:
            return found
        return np.where((found >= 0) & above.folders[np.maximum(found, 0)], found, -1)

    @cached_property
    def _parents_repaired(self) -> bool:
        """Whether `parents` differs from the stored column, or that is absent."""
        found = self._parents_by_id
        return found is None or not np.array_equal(found, self.parents)

    @cached_property
    def _in_order(self) -> tuple[Int64s, Int64s | None]:
        """Parents in ascending order, and the row of each; None if rows are in that order."""
        parents = self.parents
        # True for the output of all known writers.
        if not (parents[1:] < parents[:-1]).any():
            return parents, None
        order = np.argsort(parents, kind="stable").astype(np.int64)
        return parents[order], order

    def children(self, parent: int) -> Int64s:
        """Rows of this level whose parent is the row `parent` of the level above, in order."""
        parents, order = self._in_order
        start, stop = np.searchsorted(parents, [parent, parent + 1])
        return np.arange(start, stop, dtype=np.int64) if order is None else order[start:stop]

    # -- rows --------------------------------------------------------------------------------------

    @cached_property
    def spans(self) -> Spans | None:
        """Corrected spans of all rows, or None if the stored ones are right."""
        return verified_spans(self)

    def take(self, rows: Int64s) -> Any:
        """Some rows, in ascending order, as a table with `columns`, without padding."""
        self.check_names()
        if len(rows) == 0:
            return self.schema.empty_table()
        first, last = int(rows[0]), int(rows[-1])
        starts = self._group_starts
        low, high = (np.searchsorted(starts, [first, last], side="right") - 1).tolist()
        tables = [self._group(group) for group in range(low, high + 1)]
        block = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        if last - first + 1 == len(rows):
            part = block.slice(first - int(starts[low]), len(rows))
        else:
            part = block.take(pa.array(rows - starts[low]))
        return unpadded(self._complete(part, rows))

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
        counts = np.asarray(self.table.group_rows, np.int64)
        return np.cumsum(counts) - counts

    def navigation(self, rows: Int64s) -> Any:
        """The protected columns of some rows in the order of `rows`, padding included."""
        self.check_names()
        names = [name for name in self.stored if name in spec.PROTECTED_COLUMNS]
        if not self.keeps_columns:
            return self._complete(self.table.take_rows(rows, names), rows, names)
        held = self.held(names)
        whole = np.array_equal(rows, np.arange(self.num_rows))
        return self._complete(held if whole else held.take(pa.array(rows)), rows, names)

    def whole(self) -> Any:
        """All rows with `columns`, padding included."""
        self.check_names()
        return self._complete(self.held(self.stored), np.arange(self.num_rows, dtype=np.int64))

    def _complete(self, part: Any, rows: Int64s, stored: Sequence[str] | None = None) -> Any:
        """Stored columns of some rows, with corrected and computed columns in place."""
        columns = dict(zip(part.column_names, part.columns, strict=True))
        if not self.has_ids:
            columns[spec.CURRENT_ID] = pa.array(rows if self.ids is None else self.ids[rows])
        if self.index and spec.RELATIVE_PATH not in self.stored:
            columns[spec.RELATIVE_PATH] = self.paths().take(pa.array(rows))
        if self.index and self._parents_repaired:
            own, above = self.parents[rows], self.above.ids
            columns[spec.PARENT_ID] = pa.array(own if above is None else above[own])
        if self.spans is not None:
            columns[spec.OFFSET] = self.spans.column(self.spans.offsets, rows)
            columns[spec.SIZE] = self.spans.column(self.spans.sizes, rows)
        absent = set() if stored is None else {*self.stored} - {*stored}
        names = [name for name in self.columns[:-1] if name not in absent]
        table = pa.table([columns[name] for name in names], names)
        return table.append_column(spec.GDAL_VSI, self._vsi(table))

    # -- tables for queries ------------------------------------------------------------------------

    def relation(self, *, spans: bool) -> Any:
        """A corrected table for queries, or None if the stored columns can be read lazily.

        `spans` means that the query may use spans, so that they must be right.
        """
        self.check_names()
        # The writer of an index with boxes has compared it with its ZIPs.
        told = self.group_boxes is not None and spec.PARENT_ID in self.stored
        wrong = self.index > 0 and (
            spec.RELATIVE_PATH not in self.stored
            or (not told and (self._parents_repaired or (spans and self.spans is not None)))
        )
        # A query cannot derive ids within each ZIP of an index from the row order.
        return self._mended if wrong or (self.container.is_index and not self.has_ids) else None

    @cached_property
    def _mended(self) -> Any:
        return self.whole()

    @cached_property
    def keeps_columns(self) -> bool:
        """Whether queries keep the columns that they read: for local levels of moderate size.

        Remote levels are read again each time, as queries then fetch only the row groups that
        they need.
        """
        # An estimate, with a string counted as two numbers; `held` compares real sizes.
        is_small = 16 * self.num_rows * len(self.stored) <= _HELD_BYTES
        return is_small and self.container.source.location.is_local

    def held(self, names: Sequence[str]) -> Any:
        """Stored columns as a table, kept in memory if `keeps_columns`."""
        if not self.keeps_columns and not self._columns.keys() >= set(names):
            return self.table.read(list(names))
        missing = [name for name in names if name not in self._columns]
        found = dict(self._columns)
        if missing:
            columns = self.table.read(missing).columns
            found |= zip(missing, columns, strict=True)
            if sum(column.nbytes for column in found.values()) <= _HELD_BYTES:
                for place, name in enumerate(missing):
                    if len(columns[place]) < _CHUNK * columns[place].num_chunks:
                        # Many small chunks cost every query more than joining them once.
                        columns[place] = found[name] = one_array(columns[place])
                self._columns |= zip(missing, columns, strict=True)
        return pa.table([found[name] for name in names], names=list(names))

    def keep(self, names: Sequence[str]) -> None:
        """Read and keep those of the columns that are stored, whatever their size, at once."""
        wanted = [name for name in names if name in self.stored and name not in self._columns]
        if wanted:
            # One array, unless its text is too long for that.
            for name, column in zip(wanted, self.table.read(wanted).columns, strict=True):
                self._columns[name] = column
                with suppress(pa.ArrowInvalid):
                    self._columns[name] = pa.chunked_array([one_array(column)])

    # -- paths for GDAL ----------------------------------------------------------------------------

    def vsi_parts(self) -> list[tuple[str, str, Callable[[Any], Any] | None]]:
        """The parts of ``internal:gdal_vsi``, which is never taken from a file (7.2.3).

        Each part is a string, the column whose value follows it, and what spells its values if
        they are not taken as they are. Empty if GDAL cannot open the container, such as one in
        memory.
        """
        container, root = self.container, self.container.vsi()
        if root is None:
            return []
        if container.kind == "folder":
            path = spec.RELATIVE_PATH if self.index else spec.ID
            return [(root.rstrip("/") + "/" + spec.DATA, path, None)]
        parts: list[tuple[str, str, Callable[[Any], Any] | None]] = [
            ("/vsisubfile/", spec.OFFSET, None),
            ("_", spec.SIZE, None),
        ]
        if not container.is_index:
            return [*parts, ("," + root, "", None)]
        is_remote = "://" in container.source.href  # GDAL needs escaped names, such as ``%20``
        spelled = partial(_spelled, container, root) if is_remote else None
        return [*parts, ("," + root, spec.SOURCE_FILE, spelled)]

    def _vsi(self, table: Any) -> Any:
        parts: list[Any] = []
        for text, name, spelled in self.vsi_parts():
            parts.append(text)
            if name:
                column = pc.cast(table.column(name), pa.string())
                parts.append(spelled(column) if spelled else column)
        if not parts:
            return pa.nulls(table.num_rows, pa.string())
        return pc.binary_join_element_wise(*parts, "")

    # -- safety ------------------------------------------------------------------------------------

    def check_names(self) -> None:
        """Refuse ids and paths of a folder that would lead out of it."""
        if self.container.kind == "folder":
            _ = self._names_are_safe

    @cached_property
    def _names_are_safe(self) -> bool:
        check_ids(self.column(spec.ID), self.where)
        if self.index:
            column = self.paths()
            odd = pc.match_substring_regex(column, _LEADS_OUT)
            if pc.any(odd, min_count=0).as_py():
                row = int(pc.index(odd, pa.scalar(value=True)).as_py())
                raise UnsafeContentError(
                    f"{spec.RELATIVE_PATH} would lead out of the dataset",
                    where=f"{self.where}, row {row}",
                    found=shown(column[row].as_py()),
                )
        return True


def _spelled(container: Origin, root: str, names: Any) -> Any:
    """Names of ZIPs as in GDAL paths below `root`."""
    encoded = one_array(names).dictionary_encode()
    known = encoded.dictionary.to_pylist()
    spelled = [str(container.part(name).vsi()).removeprefix(root) for name in known]
    return pa.array(spelled, pa.string()).take(encoded.indices)


def in_order(ids: Int64s, codes: Int64s | None) -> tuple[Int64s, Int64s]:
    """Sorted keys of rows (upper half: number of the ZIP), and the row of each."""
    keys = ids if codes is None else (codes << _CODE_SHIFT) | ids
    order = np.argsort(keys, kind="stable").astype(np.int64)
    return keys[order], order


def rows_of(ids: Int64s, codes: Any, ordered: Int64s, order: Int64s) -> Int64s:
    """The rows with these ids and ZIP numbers, from `in_order`; -1 for no such row."""
    if not len(ordered):
        return np.full(len(ids), -1, np.int64)
    possible = (ids >= 0) & (ids < _MOST_IDS)
    keys = np.where(possible, ids, 0)
    if codes is not None:
        keys |= codes << _CODE_SHIFT
        possible &= codes >= 0
    place = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
    return np.where(possible & (ordered[place] == keys), order[place], -1)


def parents_by_path(
    paths: Any, codes: Int64s | None, above: Any, codes_above: Int64s | None
) -> Int64s:
    """For each of `paths` the row of its parent among the paths `above`; -1 for no such row.

    In an index `codes` and `codes_above` are the numbers of the ZIPs.
    """
    wanted = _parent_paths(paths)
    if codes is not None and codes_above is not None:
        wanted = pc.binary_join_element_wise(pa.array(codes.astype(str)), wanted, "/")
        above = pc.binary_join_element_wise(pa.array(codes_above.astype(str)), above, "/")
    return np.asarray(pc.fill_null(pc.index_in(wanted, value_set=above), -1), np.int64)


def _parent_paths(paths: Any) -> Any:
    return pc.replace_substring_regex(paths, r"/[^/]*$", "")


def count_within(codes: Int64s) -> Int64s:
    """0, 1, 2, ... within each code, in row order."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(starts, len(codes)))
    result = np.empty(len(codes), np.int64)
    result[order] = np.arange(len(codes)) - np.repeat(starts, sizes)
    return result


def _first_null(column: Any) -> int:
    return int(pc.index(pc.is_null(column), pa.scalar(value=True)).as_py())


def unpadded(table: Any) -> Any:
    """The rows of a table without padding (5.5)."""
    padding = pc.fill_null(pc.starts_with(table.column(spec.ID), spec.PAD_PREFIX), False)
    return table.filter(pc.invert(padding)) if pc.any(padding, min_count=0).as_py() else table


def check_ids(column: Any, where: str) -> None:
    """Refuse ids that could be taken for a path, or that are hidden names."""
    for bad in bad_names(column, tier=1):
        raise UnsafeContentError(
            f"an id is not allowed: it {bad.reason}",
            where=f"{where}, row {bad.row}",
            found=shown(bad.name),
        )
