"""Samples, tables and batches as levels: what every way of writing starts from.

A level is made in bulk from all its samples, whichever tortilla they stand in, so that many small
tortillas cost little more than one large one. Tables need no object per sample.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import names as name_rules
from comal.errors import InvalidInputError, shown
from comal.samples.payloads import Ints, Payloads, concat, payloads_of
from comal.samples.tables import Names, no_column, no_table, parents_in, payloads_in
from comal.taco import spec
from comal.taco.model.columns import Chunk, check_key, check_values, column, missing_field, unify
from comal.taco.model.levels import (
    Level,
    Levels,
    check_depth,
    check_levels,
    flat,
    is_padding,
    path_of,
    relative_paths,
)
from comal.taco.model.sample import Sample, as_table

if TYPE_CHECKING:
    from comal.taco.model.tortilla import Tortilla


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


def check_siblings(samples: Sequence[Sample]) -> None:
    """Refuse ids that stand twice, or that are one name where case is ignored."""
    ids = [sample.id for sample in samples]
    # Lower case is folding enough for ASCII; the rest is left to the rules of names.
    if len({name.lower() for name in ids}) == len(ids) and all(map(str.isascii, ids)):
        return
    column = pa.array(ids, pa.string())
    for fold, text in ((False, "stand twice"), (True, "are one name where case is ignored")):
        for first, second in name_rules.twins(column, fold=fold)[:1]:
            raise InvalidInputError(
                f"ids {shown(ids[first])} and {shown(ids[second])} {text} in a tortilla",
                where=f"samples {first} and {second}",
            )


def check_fields(samples: Sequence[Sample], *, strict: bool) -> None:
    """Refuse samples whose fields, or the types of these, differ (PIT-2); padding has none."""
    real = [sample for sample in samples if not _is_padding(sample)]
    if not strict or not real:
        return
    first = real[0].metadata.keys()
    for sample in real:
        if sample.metadata.keys() != first:
            _raise_missing(real[0], sample)
    for key in first:
        if real[0].declared(key) is None:
            check_values(key, [sample.metadata[key] for sample in real], lambda n: real[n].id)


def _raise_missing(first: Sample, second: Sample) -> None:
    for one, other in ((first, second), (second, first)):
        for key in one.metadata:
            if key not in other.metadata:
                raise missing_field(key, one.id, other.id)


def _is_padding(sample: Sample) -> bool:
    return sample.id.startswith(spec.PAD_PREFIX)


# -- from samples to columns -------------------------------------------------------------------


def sample_table(samples: Sequence[Sample], *, strict: bool, added: Any = None) -> Any:
    """Samples as a table; padding has null in every field."""
    keys = dict.fromkeys(chain.from_iterable(s.metadata for s in _schema_givers(samples, strict)))
    columns = [
        pa.array([sample.id for sample in samples], pa.string()),
        pa.array([sample.type for sample in samples], pa.string()),
    ]
    fields = [pa.field(name, pa.string()) for name in spec.CORE_COLUMNS]
    for key in keys:
        declared = _declared(samples, key, strict=strict)
        columns.append(
            column(
                key,
                [sample.metadata.get(key) for sample in samples],
                lambda row: samples[row].id,
                declared=None if declared is None else declared.type,
                strict=strict,
            )
        )
        fields.append(
            pa.field(key, columns[-1].type, metadata=declared.metadata if declared else None)
        )
    table = pa.table(columns, schema=pa.schema(fields))
    return table if added is None else beside(table, added)


def _schema_givers(samples: Sequence[Sample], strict: bool) -> Sequence[Sample]:  # noqa: FBT001
    """The samples that have to be asked for their fields: in a strict tortilla one will do."""
    if not strict:
        return samples
    real = next((sample for sample in samples if not _is_padding(sample)), samples[0])
    return [real]


def _declared(samples: Sequence[Sample], key: str, *, strict: bool) -> Any:
    """The Arrow field that extensions gave `key`; all that give one must agree."""
    known: tuple[Any, Sample] | None = None
    for sample in samples:
        found = sample.declared(key)
        if found is None or (known and found is known[0]):
            continue
        if known is None or (pa.types.is_null(known[0].type) and not pa.types.is_null(found.type)):
            known = (found, sample)
        elif not found.type.equals(known[0].type) and not pa.types.is_null(found.type):
            chunks = [
                Chunk(pa.table([pa.nulls(1, kind.type)], [key]), lambda _, s=owner: s.id)  # type: ignore[misc]
                for kind, owner in (known, (found, sample))
            ]
            known = (unify(chunks, strict=strict).schema.field(key), known[1])
    return None if known is None or pa.types.is_null(known[0].type) else known[0]


def _sample_payloads(samples: Sequence[Sample]) -> Payloads:
    # FOLDER rows are null: their bytes are made while writing.
    paths = [sample.path for sample in samples]
    payloads: Payloads = payloads_of([p if isinstance(p, str | bytes) else None for p in paths])
    return payloads


def beside(table: Any, more: Any) -> Any:
    """The table with the columns of `more` behind its own."""
    for position, field in enumerate(more.schema):
        table = table.append_column(field, more.column(position))
    return table


_Below = tuple[Any, int, int]
"""What a parent has below it: a tortilla and its row, or levels, a depth and a first row."""


def build(root: Tortilla) -> Levels:
    """All levels of a tortilla, breadth first; neighbours that are samples are taken in bulk."""
    levels: list[Level] = []
    layer: list[_Below] = [(root, 0, -1)]
    while layer:
        check_depth(len(levels) + 1)
        chunks, parents, payloads, below = _layer(layer, levels)
        table = unify(chunks, strict=root.strict_schema)
        parent = np.concatenate(parents)
        if not levels:
            parent = np.arange(len(parent))
        levels.append(Level(table, parent, concat(payloads)))
        layer = below
    return tuple(levels)


def _layer(
    layer: Sequence[_Below], above: Sequence[Level]
) -> tuple[list[Chunk], list[Any], list[Payloads], list[_Below]]:
    chunks: list[Chunk] = []
    parents: list[Any] = []
    payloads: list[Payloads] = []
    below: list[_Below] = []
    start = 0
    for group in _groups(layer):
        owner, base, depth = group[0]
        if depth >= 0 or owner.own_samples is None:
            # Levels that are columns already: this one now, the deeper ones in the next layers.
            levels = owner if depth >= 0 else owner.levels()
            level = levels[max(depth, 0)]
            table, held = level.table, level.payloads
            parent = level.parent + base if depth > 0 else np.full(level.rows, base)
            if len(levels) > max(depth, 0) + 1:
                below.append((levels, start, max(depth, 0) + 1))
        else:
            table, held, parent, samples = _bulk(group)
            below += [
                (s.path, start + n, -1) for n, s in enumerate(samples) if s.type == spec.FOLDER
            ]
        real = None if not above else ~is_padding(flat(table.column(spec.ID)))
        chunks.append(Chunk(table, _who(table, parent, above), real))
        parents.append(parent)
        payloads.append(held)
        start += len(parent)
    return chunks, parents, payloads, below


def _groups(layer: Sequence[_Below]) -> Iterable[Sequence[_Below]]:
    """Cut a layer into runs of sample tortillas of one strictness, and single other ones."""
    run: list[_Below] = []
    for item in layer:
        owner, _, depth = item
        plain = depth < 0 and owner.own_samples is not None and owner.added_fields is None
        if run and (not plain or owner.strict_schema != run[0][0].strict_schema):
            yield run
            run = []
        if plain:
            run.append(item)
        else:
            yield [item]
    if run:
        yield run


def _bulk(group: Sequence[_Below]) -> tuple[Any, Payloads, Any, list[Sample]]:
    samples = list(chain.from_iterable(owner.own_samples for owner, _, _ in group))
    counts = [len(owner.own_samples) for owner, _, _ in group]
    parent = np.repeat([base for _, base, _ in group], counts)
    strict = group[0][0].strict_schema
    if strict and len(group) > 1:
        check_fields(samples, strict=True)
    table = sample_table(samples, strict=strict, added=group[0][0].added_fields)
    return table, _sample_payloads(samples), parent, samples


def _who(table: Any, parent: Any, above: Sequence[Level]) -> Callable[[int], str]:
    def who(row: int) -> str:
        name = str(table.column(spec.ID)[row].as_py())
        return f"{path_of(above, len(above) - 1, int(parent[row]))}/{name}" if above else name

    return who
