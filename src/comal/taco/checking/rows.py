"""The columns of a level table that say what and where a sample is, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.check import Findings
from comal.errors import shown
from comal.taco import spec
from comal.taco.checking.subject import Subject

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
    """For a row of an index the number of its ZIP."""
    above: Int64s | None = None
    """Row of the parent in the level above, -1 where there is none; found by `tree.link`."""
    paths: Any = None
    """Path below DATA/ by the chain of parents, Arrow strings; found by `tree.link`."""

    def __len__(self) -> int:
        return len(self.folders)

    def place(self, row: int) -> str:
        """How a message calls a row."""
        name = self.ids if self.paths is None else self.paths
        return f"level {self.depth}, row {row} ({shown(name[row].as_py())})"

    @property
    def padding(self) -> Bools:
        """Rows that stand for missing samples (5.5)."""
        return bools(pc.starts_with(self.ids, spec.PAD_PREFIX))


_TEXT = "string"
_INTEGER = "int64"


def load(subject: Subject, depth: int, sources: list[str], findings: Findings) -> Rows | None:
    """The navigation columns of a level, or None where they cannot be read.

    `sources` collects the ZIP names of an index; rows carry positions in it.
    """
    table = subject.tables[depth]
    if table is None:
        return None
    columns = _columns(subject, depth, table, findings)
    if columns is None:
        return None
    with findings.guard("taco-table", f"level {depth}"):
        return _read(table.read(columns), depth, sources, findings)
    return None


def _columns(subject: Subject, depth: int, table: Any, findings: Findings) -> list[str] | None:
    """The columns to read; those that are missing or mistyped are reported."""
    required = {spec.ID: _TEXT, spec.TYPE: _TEXT}
    optional = {
        spec.CURRENT_ID: _INTEGER,
        spec.PARENT_ID: _INTEGER,
        spec.RELATIVE_PATH: _TEXT,
    }
    if subject.kind != "folder":
        required |= {spec.OFFSET: _INTEGER, spec.SIZE: _INTEGER}
    if subject.is_index:
        required |= {spec.SOURCE_FILE: _TEXT}
    if depth:
        # 6.2: the field that links each sample to its parent.
        required[spec.PARENT_ID] = optional.pop(spec.PARENT_ID)
    found = []
    for name, kind in {**required, **optional}.items():
        place = f"level {depth}, column {name}"
        if name not in table.column_names:
            if name in required:
                findings.add("taco-column-missing", place, "is missing")
        elif spec.type_name(table.schema.field(name).type) != kind:
            stored = spec.type_name(table.schema.field(name).type)
            findings.add("taco-column-type", place, f"is {stored}, must be {kind}")
        else:
            found.append(name)
    if spec.GDAL_VSI in table.column_names:
        findings.add(
            "taco-stored-path",
            f"level {depth}, column {spec.GDAL_VSI}",
            "paths of the machine that wrote the file are stored; they are ignored",
        )
    return found if spec.ID in found and spec.TYPE in found else None


def _read(table: Any, depth: int, sources: list[str], findings: Findings) -> Rows:
    def column(name: str) -> Any:
        return flat(table.column(name))

    ids = pc.fill_null(column(spec.ID), "")
    kinds = pc.fill_null(column(spec.TYPE), "")
    rows = Rows(depth, ids, bools(pc.equal(kinds, spec.FOLDER)))
    for name in table.column_names:
        _check_nulls(rows, name, column(name), findings)
    unknown = ~bools(pc.is_in(kinds, value_set=pa.array([spec.FILE, spec.FOLDER])))
    findings.add_rows(
        "taco-type",
        np.flatnonzero(unknown),
        lambda row: (rows.place(row), f"type is {shown(kinds[row].as_py())}"),
    )
    names = set(table.column_names)
    for name, field in (
        (spec.CURRENT_ID, "current"),
        (spec.PARENT_ID, "parent"),
        (spec.OFFSET, "offset"),
        (spec.SIZE, "size"),
    ):
        if name in names:
            setattr(rows, field, integers(pc.fill_null(column(name), -1)))
    if spec.RELATIVE_PATH in names:
        rows.stored_paths = pc.utf8_rtrim(pc.fill_null(column(spec.RELATIVE_PATH), ""), "/")
    if spec.SOURCE_FILE in names:
        rows.source = _source_codes(column(spec.SOURCE_FILE), sources)
    return rows


def _check_nulls(rows: Rows, name: str, column: Any, findings: Findings) -> None:
    nulls = np.flatnonzero(bools(pc.is_null(column)))
    findings.add_rows("taco-column-null", nulls, lambda row: (rows.place(row), f"{name} is null"))


def _source_codes(column: Any, sources: list[str]) -> Int64s:
    encoded = pc.dictionary_encode(pc.fill_null(column, ""))
    numbers = []
    for name in encoded.dictionary.to_pylist():
        if name not in sources:
            sources.append(name)
        numbers.append(sources.index(name))
    indices = integers(encoded.indices)
    return np.array(numbers, np.int64)[indices] if numbers else indices


def flat(column: Any) -> Any:
    """A chunked column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 0:
        return pa.array([], column.type)
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def bools(mask: Any) -> Bools:
    """An Arrow boolean array without nulls as numpy."""
    return np.asarray(mask.to_numpy(zero_copy_only=False), np.bool_)


def integers(column: Any) -> Int64s:
    """An Arrow integer array without nulls as numpy."""
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


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
    """Whether two types are one to a reader: offset sizes and child names do not count."""
    return spec.type_name(first) == spec.type_name(second)


def differing(first: Any, second: Any) -> list[int]:
    """Rows in which two columns of one length differ; NaN is equal to NaN."""
    first, second = flat(first), flat(second)
    if first.type != second.type:
        try:
            second = second.cast(first.type)
        except pa.ArrowException:
            return list(range(len(first)))
    if first.equals(second):
        return []
    try:
        pairs = list(zip(first.to_pylist(), second.to_pylist(), strict=True))
    except OverflowError:  # instants that Python's calendar does not hold
        pairs = list(zip(first, second, strict=True))
    return [row for row, (one, other) in enumerate(pairs) if not _same(one, other)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
