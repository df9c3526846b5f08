"""Tables and batches of users as levels: no object is made for a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.samples.payloads import Ints, Payloads
from comal.samples.tables import Names, no_column, no_table, parents_in, payloads_in
from comal.taco import spec
from comal.taco.model.columns import as_table, check_key
from comal.taco.model.levels import Level, Levels, check_levels, flat, is_padding, relative_paths


def read_table(data: Any, what: str = "table") -> Any:
    """Any table as an Arrow table in plain types."""
    table = as_table(data)
    if table is None:
        raise no_table(data, what)
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
        raise no_column(table, names.id, "table", hint="name it by id=")
    ids = flat(table.column(names.id))
    if not pa.types.is_string(ids.type):
        raise InvalidInputError(
            f"column {shown(names.id)} holds no text", found=str(ids.type), expected="string"
        )
    payloads = payloads_in(table, names, "table")
    present = np.zeros(table.num_rows, bool)
    if names.path in table.column_names:
        present = np.asarray(pc.is_valid(table.column(names.path)).to_numpy(), bool)
    types = _types(table, names, present, bottom=bottom)
    fields = [name for name in table.column_names if name not in {names.id, names.path, names.type}]
    columns, schema = [ids, types], [pa.field(n, pa.string()) for n in spec.CORE_COLUMNS]
    for name in fields:
        check_key(name)
        columns.append(table.column(name))
        schema.append(table.schema.field(name))
    return pa.table(columns, schema=pa.schema(schema)), payloads


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
    paths = pc.utf8_rtrim(relative_paths(above)[-1], "/")
    parents = parents_in(table, names, flat(paths), f"table of level {depth}")
    if order is not None and pa.types.is_integer(table.schema.field(names.parent).type):
        # The level above was sorted; the caller means the rows as he gave them.
        moved = np.empty(len(order), np.int64)
        moved[order] = np.arange(len(order))
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
        """Metadata table and payloads of one batch after the other."""
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
    wanted, found = (dict(zip(one.names, one.types, strict=True)) for one in (schema, table.schema))
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise InvalidInputError(
                f"batch {number} has another schema",
                where=f"column {shown(name)}",
                found=str(found.get(name, "no such column")),
                expected=str(wanted.get(name, "no such column")),
            )
    return table.select(schema.names).cast(schema)
