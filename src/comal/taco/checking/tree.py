"""Ids, parents, paths and the regular structure of the tree (TACO 2.0, 5.5 and 5.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.check import Check
from comal.errors import InvalidMetadataError, counted, shown
from comal.table.columns import flags_of, one_array
from comal.taco import spec
from comal.taco.checking.subject import Subject
from comal.taco.model.levels import Difference, Tree, child_counts, is_padding
from comal.taco.reading.level import count_within, in_order, parents_by_path, rows_of

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Rows:
    """One level; arrays of n, None where the column is absent or unusable."""

    depth: int
    ids: Any
    """Arrow strings."""
    folders: Bools
    current: Int64s | None = None
    parent: Int64s | None = None
    offset: Int64s | None = None
    size: Int64s | None = None
    stored_paths: Any = None
    """``internal:relative_path`` without a final slash, Arrow strings."""
    source: Int64s | None = None
    """In an index, the number of each row's ZIP."""
    above: Int64s | None = None
    """Row of the parent in the level above, -1 if there is none; set by `tree.link`."""
    paths: Any = None
    """Path below DATA/ by the chain of parents, Arrow strings; set by `tree.link`."""
    numbers: Int64s | None = None
    """Row numbers in the level, if these are only some of its rows."""

    def __len__(self) -> int:
        return len(self.folders)

    def place(self, row: int) -> str:
        """The place of a row, for messages."""
        name = self.ids if self.paths is None else self.paths
        number = row if self.numbers is None else self.numbers[row]
        return f"level {self.depth}, row {number} ({shown(name[row].as_py())})"

    def report(
        self, findings: Check, code: str, wrong: Bools, message: str | Callable[[int], str]
    ) -> None:
        """Add one problem per wrong row; `message` may be a function of the row."""

        def tell(row: int) -> tuple[str, str]:
            return self.place(row), message if isinstance(message, str) else message(row)

        findings.add_rows(code, np.flatnonzero(wrong), tell)

    @property
    def padding(self) -> Bools:
        """Mask of padding rows (5.5)."""
        return is_padding(self.ids)


_KINDS = {
    spec.ID: "string",
    spec.TYPE: "string",
    spec.CURRENT_ID: "int64",
    spec.PARENT_ID: "int64",
    spec.RELATIVE_PATH: "string",
    spec.OFFSET: "int64",
    spec.SIZE: "int64",
    spec.SOURCE_FILE: "string",
}


def load(subject: Subject, depth: int, sources: list[str], findings: Check) -> Rows | None:
    """The navigation columns of a level, or None if they cannot be read.

    `sources` collects the ZIP names of an index; rows hold positions in it.
    """
    table = subject.tables[depth]
    columns = None if table is None else _columns(subject, depth, table, findings)
    if table is None or columns is None:
        return None
    with findings.guard("taco-table", f"level {depth}"):
        return _read(table.read(columns), depth, sources, findings)
    return None


def _columns(subject: Subject, depth: int, table: Any, findings: Check) -> list[str] | None:
    """The columns to read; missing ones and wrong types are reported."""
    wanted = [spec.ID, spec.TYPE, spec.CURRENT_ID, spec.PARENT_ID, spec.RELATIVE_PATH]
    # 6.2: parent_id links each sample to its parent.
    required = {spec.ID, spec.TYPE, *([spec.PARENT_ID] if depth else ())}
    if subject.kind != "folder":
        wanted += [spec.OFFSET, spec.SIZE]
    if subject.is_index:
        wanted.append(spec.SOURCE_FILE)
    required.update(wanted[5:])
    found = []
    for name in wanted:
        place = f"level {depth}, column {name}"
        if name not in table.column_names:
            if name in required:
                findings.add("taco-column-missing", place, "the column is missing")
            continue
        stored = spec.type_name(table.schema.field(name).type)
        if stored == _KINDS[name]:
            found.append(name)
        else:
            findings.add("taco-column-type", place, f"found {stored}, expected {_KINDS[name]}")
    if spec.GDAL_VSI in table.column_names:
        findings.add(
            "taco-stored-path",
            f"level {depth}, column {spec.GDAL_VSI}",
            "holds paths of the machine that wrote the file; they are ignored",
        )
    return found if spec.ID in found and spec.TYPE in found else None


def _read(table: Any, depth: int, sources: list[str], findings: Check) -> Rows:
    columns = {name: one_array(table.column(name)) for name in table.column_names}
    kinds = pc.fill_null(columns[spec.TYPE], "")
    rows = Rows(depth, pc.fill_null(columns[spec.ID], ""), flags_of(pc.equal(kinds, spec.FOLDER)))
    for name, column in columns.items():
        rows.report(findings, "taco-column-null", flags_of(pc.is_null(column)), f"{name} is null")
    unknown = ~flags_of(pc.is_in(kinds, value_set=pa.array([spec.FILE, spec.FOLDER])))
    rows.report(
        findings,
        "taco-type",
        unknown,
        lambda row: f"type is {shown(kinds[row].as_py())}, expected {spec.FILE} or {spec.FOLDER}",
    )
    rows.current, rows.parent, rows.offset, rows.size = (
        spec.int64s(columns[name]) if name in columns else None
        for name in (spec.CURRENT_ID, spec.PARENT_ID, spec.OFFSET, spec.SIZE)
    )
    if spec.RELATIVE_PATH in columns:
        rows.stored_paths = pc.utf8_rtrim(pc.fill_null(columns[spec.RELATIVE_PATH], ""), "/")
    if spec.SOURCE_FILE in columns:
        rows.source = _source_codes(columns[spec.SOURCE_FILE], sources)
    return rows


def _source_codes(column: Any, sources: list[str]) -> Int64s:
    encoded = pc.dictionary_encode(pc.fill_null(column, ""))
    numbers = []
    for name in encoded.dictionary.to_pylist():
        if name not in sources:
            sources.append(name)
        numbers.append(sources.index(name))
    indices = spec.int64s(encoded.indices)
    return np.array(numbers, np.int64)[indices] if numbers else indices


def first_of(levels: Sequence[Rows | None]) -> list[Rows]:
    """The levels up to the first that could not be read."""
    known: list[Rows] = []
    for rows in levels:
        if rows is None:
            break
        known.append(rows)
    return known


# -- values ----------------------------------------------------------------------------------------


def same_type(first: Any, second: Any) -> bool:
    """Whether readers see the same type: offset sizes and names of list items do not count."""
    return spec.type_name(first) == spec.type_name(second)


def differing(first: Any, second: Any) -> list[int]:
    """Rows in which two columns of the same length differ; NaN equals NaN."""
    first, second = one_array(first), one_array(second)
    if first.type != second.type:
        try:
            second = second.cast(first.type)
        except pa.ArrowException:
            return list(range(len(first)))
    if first.equals(second):
        return []
    try:
        pairs = list(zip(first.to_pylist(), second.to_pylist(), strict=True))
    except OverflowError:  # instants outside the range of Python's datetime
        pairs = list(zip(first, second, strict=True))
    return [row for row, (one, other) in enumerate(pairs) if not _same(one, other)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN


def link(levels: Sequence[Rows], findings: Check, *, complete: bool = True) -> None:
    """Find the parent and the path of every row, and check ids, parents, paths and padding.

    `complete` means that no deeper level, which could hold children, is missing.
    """
    for rows in levels:
        _check_numbers(rows, findings)
        if rows.depth == 0:
            rows.paths = rows.ids
        else:
            _find_parents(rows, levels[rows.depth - 1], findings)
        _check_ids(rows, findings)
        wrong = rows.padding & (
            rows.folders if rows.size is None else rows.folders | (rows.size != 0)
        )
        rows.report(
            findings, "taco-padding", wrong, "a padding sample must be a FILE without bytes"
        )
    for rows, below in zip_longest(levels, levels[1:]):
        if below is not None or complete:
            counts = child_counts(len(rows), None if below is None else below.above)
            empty = rows.folders & (counts == 0)
            rows.report(
                findings,
                "taco-folder-empty",
                empty,
                "no row of the level below names this FOLDER as its parent",
            )


def _check_numbers(rows: Rows, findings: Check) -> None:
    """Check that current_id, and at level 0 parent_id, are row numbers (6.2)."""
    current, parent = rows.current, rows.parent
    # In an index they count within each ZIP.
    right = np.arange(len(rows)) if rows.source is None else count_within(rows.source)
    if current is not None:
        rows.report(
            findings,
            "taco-current-id",
            current != right,
            lambda row: f"current_id is {current[row]}, but the row is {right[row]}",
        )
    if parent is not None and rows.depth == 0:
        rows.report(
            findings,
            "taco-parent-root",
            parent != right,
            lambda row: f"parent_id is {parent[row]}, but the row is {right[row]}",
        )


def _parents_by_id(rows: Rows, above: Rows) -> Int64s | None:
    """Rows of the parents by ``internal:parent_id``, which counts within each ZIP of an index."""
    if rows.parent is None:
        return None
    if above.source is None or rows.source is None:
        inside = (rows.parent >= 0) & (rows.parent < len(above))
        return np.where(inside, rows.parent, -1)
    index = in_order(count_within(above.source), above.source)
    return rows_of(rows.parent, rows.source, *index)


def _find_parents(rows: Rows, above: Rows, findings: Check) -> None:
    by_id, by_path = _parents_by_id(rows, above), None
    if rows.stored_paths is not None:
        by_path = parents_by_path(rows.stored_paths, rows.source, above.paths, above.source)
    told = np.full(len(rows), -1, np.int64) if by_id is None else by_id
    if by_id is not None and rows.parent is not None:
        numbers = rows.parent
        is_file = (by_id >= 0) & ~np.append(above.folders, False)[by_id]
        rows.report(
            findings,
            "taco-parent",
            (by_id < 0) | is_file,
            lambda row: (
                f"parent_id {numbers[row]} is {'a FILE' if is_file[row] else 'not a row'}"
                f" of level {above.depth}"
            ),
        )
        told = np.where(is_file, -1, by_id)
    # Old exports renumbered parents wrongly: if the two disagree, the path is right.
    rows.above = told if by_path is None else np.where(by_path >= 0, by_path, told)
    rows.paths = _joined(rows, above)
    if rows.stored_paths is not None:
        stored = rows.stored_paths
        differ = ~flags_of(pc.equal(stored, rows.paths))
        if by_id is not None and by_path is not None:
            differ |= (by_path != by_id) & (by_id >= 0)
        rows.report(
            findings,
            "taco-path",
            differ,
            lambda row: f"relative_path {shown(stored[row].as_py())} disagrees with the parents",
        )
    ordered = rows.above[rows.above >= 0]
    falls = int(np.count_nonzero(ordered[1:] < ordered[:-1]))
    if falls:
        message = f"{counted(falls, 'row')} not in the order of the parents"
        findings.add("taco-row-order", f"level {rows.depth}", message)


def _joined(rows: Rows, above: Rows) -> Any:
    assert rows.above is not None
    if not len(above):
        return rows.ids
    prefix = above.paths.take(pa.array(np.where(rows.above < 0, 0, rows.above)))
    prefix = pc.if_else(pa.array(rows.above >= 0), prefix, "?")
    return pc.binary_join_element_wise(prefix, rows.ids, "/")


def _check_ids(rows: Rows, findings: Check) -> None:
    for bad in names.bad_names(rows.ids, tier=2):
        code = "taco-id" if bad.tier == 1 else "taco-id-risky"
        findings.add(code, rows.place(bad.row), f"id {shown(bad.name)} {bad.reason}")
    siblings = rows.source if rows.depth == 0 else rows.above
    siblings = None if siblings is None else siblings + 1
    again = {second: first for first, second in names.twins(rows.ids, siblings, fold=False)}
    for second, first in sorted(again.items()):
        findings.add("taco-id-twice", rows.place(second), f"row {first} has the same id")
    for first, second in names.twins(rows.ids, siblings):
        if second not in again:
            message = f"row {first} has the same id where case is ignored"
            findings.add("taco-id-alike", rows.place(second), message)


# -- PIT (5.5) ------------------------------------------------------------------------------------


def check_pit(levels: Sequence[Rows], findings: Check) -> Tree:
    """Compare every row with the first one at its position (PIT-1); returns the tree."""
    tree = Tree(
        [rows.ids for rows in levels],
        [rows.folders for rows in levels],
        [rows.above for rows in levels],
    )
    for found in tree.differences():
        rows, counts = levels[found.depth], tree.counts[found.depth]
        findings.add_rows("taco-pit-1", found.rows, partial(_irregular, rows, found, counts))
    return tree


def _irregular(rows: Rows, found: Difference, counts: Int64s, row: int) -> tuple[str, str]:
    first = int(found.first[row])
    if found.what == "number of children":
        message = f"has {counts[row]} children, but {rows.place(first)} has {counts[first]}"
    else:
        message = f"{found.what} differs from {rows.place(first)}"
    return rows.place(row), message


# -- taco:pit_schema against the tables -----------------------------------------------------------


def check_pit_schema(
    document: dict[str, Any], levels: Sequence[Rows], tree: Tree, findings: Check
) -> None:
    """Compare ``taco:pit_schema`` of the collection with the tree."""
    try:
        stated = spec.PITSchema.from_dict(document.get(spec.PIT_SCHEMA))
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-pit-schema", f"{spec.COLLECTION}: {spec.PIT_SCHEMA}")
        return
    place = f"{spec.COLLECTION}: {spec.PIT_SCHEMA}"
    if stated.levels != len(levels):
        message = f"describes {counted(stated.levels, 'level')}, but there are {len(levels)}"
        findings.add("taco-pit-schema", place, message)
    if not levels:
        return
    root = spec.FOLDER if len(levels[0]) and levels[0].folders[0] else spec.FILE
    if stated.root_type != root:
        message = f"says {stated.root_type}, but the first sample is a {root}"
        findings.add("taco-pit-schema", f"{place}.root.type", message)
    if stated.root_n != len(levels[0]):
        message = f"says {stated.root_n}, but level 0 has {counted(len(levels[0]), 'row')}"
        findings.add("taco-pit-count", f"{place}.root.n", message)
    for depth in range(1, min(stated.levels, len(levels))):
        where = f"{place}.hierarchy.{depth}"
        _check_patterns(stated.hierarchy[depth], tree.patterns(depth), where, findings)


def _check_patterns(
    stated: Sequence[spec.PITPattern],
    found: Sequence[spec.PITPattern],
    place: str,
    findings: Check,
) -> None:
    if len(stated) != len(found):
        message = f"has {counted(len(stated), 'pattern')}, but the tables have {len(found)}"
        findings.add("taco-pit-schema", place, message)
        return
    for position, (one, other) in enumerate(zip(stated, found, strict=True)):
        where = f"{place}[{position}]"
        if one.type != other.type:
            findings.add(
                "taco-pit-schema", where, f"says types {one.type}, but they are {other.type}"
            )
        elif one.id != other.id:
            message = (
                f"says ids {shown(', '.join(one.id))}, but they are {shown(', '.join(other.id))}"
            )
            findings.add("taco-pit-schema", where, message)
        if one.n != other.n:
            findings.add("taco-pit-count", f"{where}.n", f"says {one.n}, but there are {other.n}")
