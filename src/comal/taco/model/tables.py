"""Tables as levels: the columnar way in, for data sets of a million samples.

A table names ids, payloads (paths of local files, or the bytes themselves) and metadata; nothing
is ever turned into an object per row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, counted, shown
from comal.samples.payloads import Bytes, Files, Ints, Nothing, Payloads
from comal.taco import spec
from comal.taco.model.columns import check_key
from comal.taco.model.levels import Level, Levels, check_levels, flat, is_padding, relative_paths
from comal.taco.model.sample import as_table


@dataclass(frozen=True, slots=True)
class Names:
    """Which columns of a table hold what."""

    id: str = spec.ID
    path: str = spec.PATH
    type: str | None = None
    parent: str = "parent"
    base: str = ""
    """Folder against which relative paths are meant."""


def read_table(data: Any, what: str = "table") -> Any:
    """Any table as an Arrow table in plain types."""
    table = as_table(data)
    if table is None:
        raise InvalidInputError(
            f"{what} is no table",
            found=type(data).__name__,
            expected="an Arrow table or record batch, or a polars or pandas frame",
        )
    names: list[str] = table.column_names
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise InvalidInputError(f"{what} has columns of one name", found=shown(twice[0]))
    return table


def split_table(table: Any, names: Names, *, bottom: bool = True) -> tuple[Any, Payloads]:
    """A table as the metadata table of a level and its payloads.

    `bottom` tells that no level follows, so that every row must be a FILE.
    """
    if names.id not in table.column_names:
        raise InvalidInputError(
            f"table has no column {shown(names.id)} for the ids",
            found=", ".join(table.column_names),
            hint="name it by id=",
        )
    ids = flat(table.column(names.id))
    if not pa.types.is_string(ids.type):
        raise InvalidInputError(
            f"column {shown(names.id)} holds no text", found=str(ids.type), expected="string"
        )
    payloads, present = _payloads(table, names)
    types = _types(table, names, present, bottom=bottom)
    fields = [name for name in table.column_names if name not in {names.id, names.path, names.type}]
    columns, schema = [ids, types], [pa.field(n, pa.string()) for n in spec.CORE_COLUMNS]
    for name in fields:
        check_key(name)
        columns.append(table.column(name))
        schema.append(table.schema.field(name))
    return pa.table(columns, schema=pa.schema(schema)), payloads


def _payloads(table: Any, names: Names) -> tuple[Payloads, np.ndarray[Any, np.dtype[np.bool_]]]:
    if names.path not in table.column_names:
        return Nothing(table.num_rows), np.zeros(table.num_rows, bool)
    column = table.column(names.path)
    present = np.asarray(pc.is_valid(column).to_numpy(), bool)
    if pa.types.is_binary(column.type):
        return Bytes.of(column, f"column {names.path!r}"), present
    if not pa.types.is_string(column.type):
        raise InvalidInputError(
            f"column {shown(names.path)} holds neither paths nor bytes",
            found=str(column.type),
            expected="string or binary",
        )
    return Files(_absolute(flat(column), names.base)), present


def _absolute(paths: Any, base: str) -> Any:
    root = str(Path(base).absolute()).rstrip("/") + "/"
    relative = pc.invert(pc.starts_with(paths, "/"))
    return pc.if_else(relative, pc.binary_join_element_wise(root, paths, ""), paths)


def _types(
    table: Any, names: Names, present: np.ndarray[Any, np.dtype[np.bool_]], *, bottom: bool
) -> Any:
    if names.type is not None and names.type in table.column_names:
        types = flat(table.column(names.type))
        known = pc.is_in(types, value_set=pa.array([spec.FILE, spec.FOLDER]))
        for row in np.flatnonzero(~known.to_numpy(zero_copy_only=False))[:1].tolist():
            raise InvalidInputError(
                "unknown type of sample",
                where=f"column {shown(names.type)}, row {row}",
                found=shown(types[row].as_py()),
                expected="FILE or FOLDER",
            )
    else:
        types = pc.if_else(pa.array(present), spec.FILE, spec.FOLDER)
    files = np.asarray(pc.equal(types, spec.FILE).to_numpy(zero_copy_only=False), bool)
    present = present | is_padding(flat(table.column(names.id)))
    wrong = (files & ~present) | (~files if bottom else np.zeros(len(files), bool))
    for row in np.flatnonzero(wrong)[:1].tolist():
        raise InvalidInputError(
            "FILE sample without a payload"
            if files[row]
            else "sample has neither payload nor children",
            where=f"row {row}, id {shown(table.column(names.id)[row].as_py())}",
            expected=f"a path or bytes in column {shown(names.path)}",
        )
    return types.combine_chunks() if isinstance(types, pa.ChunkedArray) else types


def levels_from_tables(tables: Sequence[Any], names: Names) -> Levels:
    """Tables of levels 0, 1, ... whose rows name their parents, as levels.

    The parent is a row number of the table above, or the id path of the parent (``scene/imagery``).
    Ints are put into the order of their parents; siblings keep their order.
    """
    if not tables:
        raise InvalidInputError("no table at all", expected="one table per level")
    levels: list[Level] = []
    order: Ints | None = None
    for depth, data in enumerate(tables):
        table = read_table(data, f"table of level {depth}")
        parent = np.arange(table.num_rows)
        if depth:
            parent = _parents(table, names, tuple(levels), order, depth)
            order = np.argsort(parent, kind="stable")
            if not (parent[1:] >= parent[:-1]).all():
                table, parent = table.take(pa.array(order)), parent[order]
            else:
                order = None
            table = table.drop_columns([names.parent])
        metadata, payloads = split_table(table, names, bottom=depth == len(tables) - 1)
        levels.append(Level(metadata, parent, payloads))
    check_levels(tuple(levels))
    return tuple(levels)


def _parents(table: Any, names: Names, above: Levels, order: Ints | None, depth: int) -> Ints:
    if names.parent not in table.column_names:
        raise InvalidInputError(
            f"table of level {depth} has no column {shown(names.parent)}",
            hint="name it by parent=",
        )
    column = flat(table.column(names.parent))
    count = above[-1].rows
    if pa.types.is_string(column.type):
        paths = pc.utf8_rtrim(relative_paths(above)[-1], "/")
        found = pc.index_in(pc.utf8_rtrim(column, "/"), value_set=paths)
        rows = found.fill_null(-1)
    elif pa.types.is_integer(column.type):
        rows = column.fill_null(-1)
    else:
        raise InvalidInputError(
            f"column {shown(names.parent)} names no parents",
            found=str(column.type),
            expected="row numbers or id paths",
        )
    parents = np.asarray(rows.to_numpy(zero_copy_only=False), np.int64)
    for row in np.flatnonzero((parents < 0) | (parents >= count))[:1].tolist():
        raise InvalidInputError(
            "sample names a parent that is not there",
            where=f"level {depth}, row {row}",
            found=shown(column[row].as_py()),
            expected=f"one of {counted(count, 'row')} of level {depth - 1}",
        )
    if order is not None and not pa.types.is_string(column.type):
        # The level above was sorted; the caller means the rows as he gave them.
        moved = np.empty(count, np.int64)
        moved[order] = np.arange(count)
        parents = moved[parents]
    return parents


@dataclass(slots=True)
class Batches:
    """A level 0 of FILE samples that comes in batches and is never held as a whole."""

    source: Iterable[Any] | Callable[[], Iterable[Any]]
    names: Names
    schema: Any
    """Arrow schema of the metadata table: id, type and the fields."""
    _used: bool = False

    def __iter__(self) -> Iterator[tuple[Any, Payloads]]:
        """Metadata table and payloads of one batch after the other.

        Raises
        ------
        InvalidInputError
            A batch with another schema, or a second walk over an iterator that can only be
            walked once.
        """
        if callable(self.source):
            batches = _iterable(self.source())
        elif self._used and iter(self.source) is self.source:
            raise InvalidInputError(
                "batches have been read already",
                hint="give a function that returns a new iterator to write them twice",
            )
        else:
            self._used = True
            batches = self.source
        for number, data in enumerate(batches):
            table = read_table(data, f"batch {number}")
            if table.num_rows:
                metadata, payloads = split_table(table, self.names)
                yield _conforming(metadata, self.schema, number), payloads


def batches(
    source: Iterable[Any] | Callable[[], Iterable[Any]], schema: Any, names: Names
) -> Batches:
    """A stream of batches whose schema is known before the first one is read."""
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError("schema of the batches is missing", expected="a pyarrow.Schema")
    if names.path not in schema.names:
        raise InvalidInputError(
            f"schema of the batches has no column {shown(names.path)}",
            found=", ".join(shown(name) for name in schema.names),
            hint="name it by path=",
        )
    if not callable(source):
        _iterable(source)
    empty, _ = split_table(read_table(schema.empty_table()), names)
    return Batches(source, names, empty.schema)


def _iterable(source: Any) -> Iterable[Any]:
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return source
    raise InvalidInputError(
        "there are no batches in this",
        found=type(source).__name__,
        expected="an iterable of tables or record batches, or a function that returns one",
    )


def _conforming(table: Any, schema: Any, number: int) -> Any:
    if table.schema.equals(schema):
        return table
    for wanted in schema:
        if wanted.name not in table.column_names or not table.schema.field(wanted.name).type.equals(
            wanted.type
        ):
            raise InvalidInputError(
                f"batch {number} has another schema",
                where=f"column {shown(wanted.name)}",
                found=str(table.schema.field(wanted.name).type)
                if wanted.name in table.column_names
                else "no such column",
                expected=str(wanted.type),
            )
    extra = [name for name in table.column_names if name not in schema.names]
    if extra:
        raise InvalidInputError(
            f"batch {number} has another schema", where=f"column {shown(extra[0])}", found="extra"
        )
    return table.select(schema.names).cast(schema)


def base_folder(base: str | os.PathLike[str] | None) -> str:
    """The folder for relative paths: what was given, or the working folder now."""
    return str(Path(base or ".").absolute())
