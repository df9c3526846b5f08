"""TORTILLA: a set of samples with one metadata schema (TACO 2.0, 5.3 and 7.1.1).

A level is built in bulk from all its samples, across tortillas, so that many small tortillas cost
little more than one large one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, counted, shown
from comal.limits import DEFAULT_LIMITS
from comal.public import guarded_class
from comal.samples.payloads import Bytes, Files, Ints, Payloads, concat, payloads_of
from comal.samples.tables import (
    Names,
    no_column,
    no_table,
    parents_in,
    payloads_in,
    refuse_twins,
)
from comal.taco import spec
from comal.taco.columns import (
    Chunk,
    Who,
    agreed,
    as_table,
    check_key,
    check_values,
    column,
    missing_field,
    unify,
)
from comal.taco.extensions.base import ComputedColumns, SampleExtension, columns_for
from comal.taco.model.levels import (
    Level,
    Levels,
    check_depth,
    check_levels,
    check_twins,
    flat,
    is_padding,
    path_of,
    relative_paths,
)
from comal.taco.model.sample import Sample


@guarded_class
class Tortilla:
    """A set of samples.

    Parameters
    ----------
    samples
        At least one `Sample`.
    pad_to
        Append empty samples ``__TACOPAD__0``, ``__TACOPAD__1``, ... until the number of samples is
        a multiple of this.
    strict_schema
        Whether all samples, and all samples below them at one level, must have the same fields of
        the same types (PIT-2). Otherwise missing fields become null and integers are widened to
        floating point.

    Raises
    ------
    InvalidInputError
        No samples, two equal ids (ignoring case), or fields that do not agree.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        pad_to: int | None = None,
        strict_schema: bool = True,  # noqa: FBT001, FBT002 - the signature of the specification
    ) -> None:
        self.strict_schema = strict_schema
        self._levels: Levels | None = None
        self._stream: Batches | None = None
        if not isinstance(samples, Iterable):
            raise InvalidInputError(
                "the samples of a tortilla are not a sequence",
                found=type(samples).__name__,
                expected="a sequence of Sample",
                hint="from_table takes a table",
            )
        self._samples: list[Sample] | None = list(samples)
        if not self._samples:
            raise InvalidInputError("the tortilla has no samples", expected="at least one")
        for sample in self._samples:
            if not isinstance(sample, Sample):
                raise InvalidInputError(
                    "the tortilla holds something that is not a Sample", found=type(sample).__name__
                )
        check_siblings(self._samples)
        if strict_schema:
            check_fields(self._samples)
        self._samples += [Sample(name, b"") for name in _padding(len(self._samples), pad_to)]

    # -- alternative constructors -----------------------------------------------------------

    @classmethod
    def _empty(cls, *, strict_schema: bool) -> Self:
        self = cls.__new__(cls)
        self.strict_schema = strict_schema
        self._samples = self._levels = self._stream = None
        return self

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        id: str = spec.ID,  # noqa: A002 - names of the specification's columns
        path: str = spec.PATH,
        type: str | None = None,  # noqa: A002 - as above
        base: str | None = None,
        pad_to: int | None = None,
    ) -> Self:
        """FILE samples from a table: one row each, and no object per sample.

        Parameters
        ----------
        table
            Arrow table or record batch, polars or pandas frame.
        id, path, type
            Names of the columns. Paths are text (local files) or binary (the payloads
            themselves). Without `type` all are FILE. Every other column is a metadata field.
        base
            Folder for relative paths; None is the working folder.
        pad_to
            As for the class.

        Raises
        ------
        InvalidInputError
            An invalid id, or a column that is missing or cannot be stored.
        """
        return cls.from_tables([table], id=id, path=path, type=type, base=base, pad_to=pad_to)

    @classmethod
    def from_tables(
        cls,
        tables: Sequence[Any],
        *,
        parent: str = "parent",
        id: str = spec.ID,  # noqa: A002 - as in from_table
        path: str = spec.PATH,
        type: str | None = None,  # noqa: A002 - as in from_table
        base: str | None = None,
        pad_to: int | None = None,
        strict_schema: bool = True,
    ) -> Self:
        """Nested samples from one table per level, level 0 first.

        Rows without a path are FOLDER samples. From level 1 on the column `parent` names the
        FOLDER that a row belongs to: by its row number in the table above, or by its id path
        (``scene_000/imagery``). Rows may come in any order; siblings keep theirs. The other
        parameters are those of `from_table`.
        """
        names = Names(id, path, parent, type, base_folder(base))
        levels = levels_from_tables(tables, names)
        padding = _padding(levels[0].rows, pad_to)
        if padding:
            first = levels[0]
            empty = pa.table({spec.ID: padding, spec.TYPE: [spec.FILE] * len(padding)})
            table = pa.concat_tables([first.table, empty], promote_options="default")
            payloads = concat([first.payloads, Bytes([b""] * len(padding))])
            levels = (Level(table, np.arange(table.num_rows), payloads), *levels[1:])
        return cls.of_levels(levels, strict_schema=strict_schema)

    @classmethod
    def of_levels(cls, levels: Levels, *, strict_schema: bool = True) -> Self:
        """The samples of levels, as `levels` returns them."""
        self = cls._empty(strict_schema=strict_schema)
        self._levels = levels
        return self

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        schema: Any,
        id: str = spec.ID,  # noqa: A002 - as in from_table
        path: str = spec.PATH,
        base: str | None = None,
    ) -> Self:
        """FILE samples from batches, written as they arrive.

        `create` writes them to a ZIP, a FOLDER or, with `split_size` and `group_by`, several ZIPs;
        at most a hundred groups, as each has an archive open until the last batch.

        Parameters
        ----------
        batches
            Iterator of record batches or tables, or a function that returns one; the tortilla can
            be written more than once only with a function.
        schema
            Arrow schema of the batches, with the columns `id` and `path`.
        id, path, base
            As in `from_table`.
        """
        self = cls._empty(strict_schema=True)
        self._stream = stream_of(batches, schema, Names(id, path, "", base=base_folder(base)))
        return self

    # -- content ------------------------------------------------------------------------------

    @property
    def own_samples(self) -> list[Sample] | None:
        """The samples if they were given as objects, else None."""
        return self._samples

    @property
    def stream(self) -> Batches | None:
        """The batches if the samples come in batches, else None."""
        return self._stream

    @property
    def samples(self) -> list[Sample]:
        """The samples, padding included; raises unless they were given as `Sample` objects."""
        if self._samples is None:
            raise InvalidInputError(
                "the tortilla was made from tables and has no Sample objects",
                hint="to_arrow() returns its rows",
            )
        return self._samples

    def __len__(self) -> int:
        if self._samples is not None:
            return len(self._samples)
        return self.levels()[0].rows

    def __repr__(self) -> str:
        if self._stream is not None:
            return "Tortilla(in batches)"
        return f"Tortilla({counted(len(self), 'sample')})"

    def levels(self) -> Levels:
        """The samples and all their descendants as columns (built once, then cached).

        Raises
        ------
        InvalidInputError
            The fields within a level do not agree.
        LimitExceededError
            More than six levels.
        """
        if self._stream is not None:
            raise InvalidInputError("the samples come in batches, so their number is not known yet")
        if self._levels is None:
            self._levels = build(self)
        return self._levels

    def to_arrow(self) -> Any:
        """The samples as an Arrow table, one row each: id, type and the metadata fields."""
        if self._samples is not None and self._levels is None:
            return sample_table(self._samples, strict=self.strict_schema)
        return self.levels()[0].table

    def export_metadata(self, deep: int = 0) -> Any:
        """The metadata of the samples `deep` levels below as an Arrow table.

        From 1 on, it has the columns ``internal:current_id`` and ``internal:parent_id`` too.
        """
        levels = self.levels()
        if not 0 <= deep < len(levels):
            raise InvalidInputError("no such level", found=deep, expected=f"0 to {len(levels) - 1}")
        level = levels[deep]
        if deep == 0:
            return level.table
        table = level.table.append_column(spec.CURRENT_ID, pa.array(np.arange(level.rows)))
        return table.append_column(spec.PARENT_ID, pa.array(level.parent))

    # -- more fields ------------------------------------------------------------------------------

    def extend_with(self, extension: Any) -> Self:
        """Add fields that are computed over all samples.

        Parameters
        ----------
        extension
            A `TortillaExtension`, a table with one row per sample, or a `SampleExtension`, which
            is then applied to every sample, vectorised if possible.

        Returns
        -------
        Tortilla
            This tortilla.

        Raises
        ------
        InvalidInputError
            A field exists already, or the number of rows differs.
        """
        table = self._extension_table(extension)
        known = self.to_arrow().column_names
        if table.num_rows != len(self):
            raise InvalidInputError(
                "the extension does not have one row per sample",
                found=counted(table.num_rows, "row"),
                expected=counted(len(self), "row"),
            )
        for name in table.column_names:
            check_key(name)
            if name in known:
                raise InvalidInputError(f"field {shown(name)} exists already")
        if self._samples is None:
            for field, column in zip(table.schema, table.columns, strict=True):
                self._with_root(self.levels()[0].table.append_column(field, column))
            return self
        for field, column in zip(table.schema, table.columns, strict=True):
            for sample, value in zip(self._samples, column.to_pylist(), strict=True):
                sample.put(field.name, value, field)
        self._levels = None
        return self

    def _with_root(self, table: Any) -> None:
        """Replace the table of level 0."""
        first, *rest = self.levels()
        self._levels = (replace(first, table=table), *rest)

    def _extension_table(self, extension: Any) -> Any:
        table = as_table(extension)
        if isinstance(extension, SampleExtension | ComputedColumns):
            table = columns_for(extension, self._rows_with_paths())
        elif table is None and callable(extension):
            table = as_table(extension(self))
        if table is None:
            raise InvalidInputError(
                "a tortilla cannot be extended with a value of this type",
                found=type(extension).__name__,
                expected="a TortillaExtension or a table with a row per sample",
            )
        return table

    def _rows_with_paths(self) -> Any:
        """The table of `to_arrow` with a column for the data: paths, bytes or null."""
        table = self.to_arrow()
        payloads = self.levels()[0].payloads
        if isinstance(payloads, Files):
            return table.append_column(spec.PATH, payloads.paths)
        if isinstance(payloads, Bytes):
            data = payloads.data
            return table.append_column(
                spec.PATH, pa.array(data, pa.binary()) if isinstance(data, list) else data
            )
        return table.append_column(spec.PATH, pa.nulls(len(self), pa.string()))

    def pop(self, field: str) -> Any:
        """Remove a field from all samples and return its column."""
        column = self.to_arrow()
        if field not in column.column_names or field in spec.CORE_COLUMNS:
            raise InvalidInputError(f"no field {shown(field)}")
        if self._samples is not None:
            for sample in self._samples:
                if field in sample.metadata:
                    sample.pop(field)
            self._levels = None
        else:
            self._with_root(column.drop_columns([field]))
        return column.column(field)


def _padding(count: int, pad_to: Any) -> list[str]:
    """Ids of the empty samples that bring `count` to a multiple of `pad_to`."""
    if pad_to is None:
        return []
    if not isinstance(pad_to, int | np.integer) or isinstance(pad_to, bool) or pad_to < 1:
        raise InvalidInputError("pad_to is not a positive number", found=shown(pad_to))
    missing = -count % int(pad_to)
    DEFAULT_LIMITS.check("table_rows", missing, "pad_to")
    return [f"{spec.PAD_PREFIX}{number}" for number in range(missing)]


def base_folder(base: str | os.PathLike[str] | None) -> str:
    """The folder for relative paths: `base`, or the current working folder."""
    return str(Path(base or ".").absolute())


# -- samples as columns ----------------------------------------------------------------------------


def check_siblings(samples: Sequence[Sample]) -> None:
    """Refuse ids that are equal, or that differ only in case."""
    ids = [sample.id for sample in samples]
    # Lower case folds ASCII; other ids go through the rules of names.
    if len({name.lower() for name in ids}) == len(ids) and all(map(str.isascii, ids)):
        return
    check_twins(pa.array(ids, pa.string()))


def check_fields(samples: Sequence[Sample]) -> None:
    """Refuse samples whose fields or types differ (PIT-2); padding, which has none, is ignored."""
    real = [sample for sample in samples if not sample.id.startswith(spec.PAD_PREFIX)]
    if not real:
        return
    first = real[0]
    for sample in real:
        if sample.metadata.keys() != first.metadata.keys():
            for one, other in ((first, sample), (sample, first)):
                for key in one.metadata:
                    if key not in other.metadata:
                        raise missing_field(key, one.id, other.id)
    for key in first.metadata:
        if first.declared(key) is None:
            check_values(key, [sample.metadata[key] for sample in real], lambda n: real[n].id)


def sample_table(samples: Sequence[Sample], *, strict: bool) -> Any:
    """Samples as a table; missing fields of padding or, unless `strict`, of any sample are null."""
    real = next((one for one in samples if not one.id.startswith(spec.PAD_PREFIX)), samples[0])
    keys = dict.fromkeys(chain.from_iterable(s.metadata for s in ([real] if strict else samples)))
    columns = [
        pa.array([sample.id for sample in samples], pa.string()),
        pa.array([sample.type for sample in samples], pa.string()),
    ]
    fields = [pa.field(name, pa.string()) for name in spec.CORE_COLUMNS]
    for key in keys:
        values = [sample.metadata.get(key) for sample in samples]
        declared = _declared(samples, key, strict=strict)
        kind = None if declared is None else declared.type
        columns.append(column(key, values, lambda n: samples[n].id, declared=kind, strict=strict))
        fields.append(
            pa.field(key, columns[-1].type, metadata=declared.metadata if declared else None)
        )
    return pa.table(columns, schema=pa.schema(fields))


def _declared(samples: Sequence[Sample], key: str, *, strict: bool) -> Any:
    """The Arrow field that extensions declared for `key`, or None; declarations must agree."""
    known: tuple[Any, Who] | None = None
    for sample in samples:
        found = sample.declared(key)
        if found is not None and not (known and found is known[0]):
            known = agreed(known, (found, partial(_id_of, sample)), strict=strict)
    return None if known is None or pa.types.is_null(known[0].type) else known[0]


def _id_of(sample: Sample, _row: int) -> str:
    return sample.id


@dataclass(frozen=True, slots=True)
class _Part:
    """Children of some rows of the level above, in the order of their parents."""

    level: Level
    samples: Sequence[Sample] = ()
    """The rows as objects."""
    deeper: Levels = ()
    """Levels below, for rows that are columns already."""


def build(root: Tortilla) -> Levels:
    """All levels of a tortilla, from the top; each is built in bulk across tortillas."""
    levels: list[Level] = []
    parts = _below([(root, 0)], strict=root.strict_schema)
    while parts:
        level, starts = _joined(parts, levels, strict=root.strict_schema)
        levels.append(level)
        parts = []
        for part, rows in starts:
            pairs = zip(part.samples, rows.tolist(), strict=False)
            folders = [(one.path, row) for one, row in pairs if one.type == spec.FOLDER]
            holders = cast("list[tuple[Tortilla, int]]", folders)
            parts += _below(holders, strict=root.strict_schema)
            if part.deeper:
                first, *rest = part.deeper
                parts.append(_Part(replace(first, parent=rows[first.parent]), deeper=tuple(rest)))
        check_depth(len(levels))
    return tuple(levels)


def _below(holders: Sequence[tuple[Tortilla, int]], *, strict: bool) -> list[_Part]:
    """The first level of some tortillas, each given with its parent row.

    Their fields may differ if the root, or one of them, is lenient.
    """
    parts = []
    plain = [(one, row) for one, row in holders if one.own_samples is not None]
    in_columns = [(one, row) for one, row in holders if one.own_samples is None]
    if plain:
        samples = [sample for one, _ in plain for sample in one.samples]
        strict = strict and all(one.strict_schema for one, _ in plain)
        if strict and len(plain) > 1:
            check_fields(samples)
        # FOLDER rows are null: their bytes are built during writing.
        paths = [
            sample.path if isinstance(sample.path, str | bytes) else None for sample in samples
        ]
        parent = np.repeat([row for _, row in plain], [len(one.samples) for one, _ in plain])
        table = sample_table(samples, strict=strict)
        payloads = payloads_of(paths)
        if any(sample.id.startswith(spec.PAD_PREFIX) for sample in samples):
            _check_padding(table.column(spec.ID), payloads)
        parts.append(_Part(Level(table, parent, payloads), samples))
    for one, row in in_columns:
        first, *rest = one.levels()
        parent = np.full(first.rows, row)
        parts.append(_Part(replace(first, parent=parent), deeper=tuple(rest)))
    return parts


def _joined(
    parts: Sequence[_Part], above: Sequence[Level], *, strict: bool
) -> tuple[Level, list[tuple[_Part, Ints]]]:
    """One level of all parts, and the rows of each part in it."""
    level = parts[0].level
    rows = [np.arange(len(level.parent))]
    if len(parts) > 1:
        every = [part.level for part in parts]
        chunks = [Chunk(one.table, _who(one, above), ~is_padding(one.ids)) for one in every]
        parent = np.concatenate([one.parent for one in every])
        order = np.argsort(parent, kind="stable")
        level = Level(
            unify(chunks, strict=strict).take(pa.array(order)),
            parent[order],
            concat([one.payloads for one in every]).take(order),
        )
        rows = np.split(np.argsort(order), np.cumsum([one.rows for one in every])[:-1])
    if not above:  # level 0 is one part, and its rows are their own parents
        level = replace(level, parent=rows[0])
    return level, list(zip(parts, rows, strict=True))


def _who(level: Level, above: Sequence[Level]) -> Who:
    def who(row: int) -> str:
        name = str(level.table.column(spec.ID)[row].as_py())
        parent = int(level.parent[row])
        return f"{path_of(above, len(above) - 1, parent)}/{name}" if above else name

    return who


# -- tables as columns -----------------------------------------------------------------------------


def read_table(data: Any, what: str = "table") -> Any:
    """Any table as an Arrow table in plain types."""
    table = as_table(data)
    if table is None:
        raise no_table(data, what)
    refuse_twins(table, what)
    return table


def split_table(table: Any, names: Names, *, bottom: bool = True) -> tuple[Any, Payloads]:
    """A table as the metadata table of a level and its payloads.

    `bottom` means that no level follows, so that every row must be a FILE.
    """
    if names.id not in table.column_names:
        raise no_column(table, names.id, "table", hint="name the column with id=")
    ids = flat(table.column(names.id))
    if not pa.types.is_string(ids.type):
        raise InvalidInputError(
            f"column {shown(names.id)} is not text", found=str(ids.type), expected="string"
        )
    payloads = payloads_in(table, names, "table")
    present = np.zeros(table.num_rows, bool)
    if names.path in table.column_names:
        present = np.asarray(pc.is_valid(table.column(names.path)).to_numpy(), bool)
    types = _types(table, names, present, bottom=bottom)
    _check_padding(ids, payloads)
    own = {names.id, names.path, names.type, names.seen}
    fields = [name for name in table.column_names if name not in own]
    columns, schema = [ids, types], [pa.field(n, pa.string()) for n in spec.CORE_COLUMNS]
    for name in fields:
        check_key(name)
        columns.append(table.column(name))
        schema.append(table.schema.field(name))
    return pa.table(columns, schema=pa.schema(schema)), payloads


def _check_padding(ids: Any, payloads: Payloads) -> None:
    """Refuse bytes in padding samples, which readers hide (5.5)."""
    rows = np.flatnonzero(is_padding(ids))
    for row in rows[payloads.take(rows).sizes() > 0][:1].tolist() if len(rows) else ():
        raise InvalidInputError(
            f"a sample with bytes has the id of padding, {shown(ids[row].as_py())}",
            where=payloads.place(row),
            hint="give it another id: readers hide padding, which has no bytes",
        )


def _types(
    table: Any, names: Names, present: np.ndarray[Any, np.dtype[np.bool_]], *, bottom: bool
) -> Any:
    if names.type is not None and names.type in table.column_names:
        types = flat(table.column(names.type))
        known = pc.is_in(types, value_set=pa.array([spec.FILE, spec.FOLDER]))
        for row in np.flatnonzero(~known.to_numpy(zero_copy_only=False))[:1].tolist():
            raise InvalidInputError(
                "unknown sample type",
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
            "a FILE sample has no payload"
            if files[row]
            else "a sample has neither a payload nor children",
            where=f"row {row}, id {shown(table.column(names.id)[row].as_py())}",
            expected=f"a path or bytes in column {shown(names.path)}",
        )
    return types.combine_chunks() if isinstance(types, pa.ChunkedArray) else types


def levels_from_tables(tables: Sequence[Any], names: Names) -> Levels:
    """Levels from tables of levels 0, 1, ... whose rows name their parents.

    The parent is a row number of the table above, or the id path of the parent (``scene/imagery``).
    Rows are sorted by parent; siblings keep their order.
    """
    if not tables:
        raise InvalidInputError("no table is given", expected="one table per level")
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
        # The level above was sorted; the caller's numbers refer to the original order.
        moved = np.empty(len(order), np.int64)
        moved[order] = np.arange(len(order))
        parents = moved[parents]
    return parents


@dataclass(slots=True)
class Batches:
    """A level 0 of FILE samples in batches, never entirely in memory."""

    source: Iterable[Any] | Callable[[], Iterable[Any]]
    names: Names
    schema: Any
    """Arrow schema of the metadata table: id, type and the fields."""
    _used: bool = False

    def __iter__(self) -> Iterator[tuple[Any, Payloads]]:
        """Metadata table and payloads of each batch."""
        if callable(self.source):
            batches = _iterable(self.source())
        elif self._used and iter(self.source) is self.source:
            raise InvalidInputError(
                "the batches have been read already",
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


def stream_of(
    source: Iterable[Any] | Callable[[], Iterable[Any]], schema: Any, names: Names
) -> Batches:
    """A stream of batches whose schema is known in advance."""
    if not isinstance(schema, pa.Schema):
        raise InvalidInputError("the schema of the batches is missing", expected="a pyarrow.Schema")
    if names.path not in schema.names:
        raise InvalidInputError(
            f"the schema of the batches has no column {shown(names.path)}",
            found=", ".join(shown(name) for name in schema.names),
            hint="name the column with path=",
        )
    if not callable(source):
        _iterable(source)
    empty, _ = split_table(read_table(pa.Table.from_batches([], schema)), names)
    return Batches(source, names, empty.schema)


def _iterable(source: Any) -> Iterable[Any]:
    if isinstance(source, Iterable) and not isinstance(source, str | bytes):
        return source
    raise InvalidInputError(
        "not an iterable of batches",
        found=type(source).__name__,
        expected="an iterable of tables or record batches, or a function that returns one",
    )


_NANOSECONDS = pa.timestamp("ns")  # what `normal` keeps only of times finer than a microsecond


def _conforming(table: Any, schema: Any, number: int) -> Any:
    wanted, found = (dict(zip(one.names, one.types, strict=True)) for one in (schema, table.schema))
    for name in [*wanted, *found]:
        if wanted.get(name) != found.get(name):
            raise InvalidInputError(
                f"batch {number} has another schema",
                where=f"column {shown(name)}",
                found=str(found.get(name, "no such column")),
                expected=str(wanted.get(name, "no such column")),
                hint="round the times to microseconds" if found.get(name) == _NANOSECONDS else None,
            )
    return table.select(schema.names).cast(schema)
