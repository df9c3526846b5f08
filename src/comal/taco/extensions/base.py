"""Base classes of extensions: a declared schema and computed columns (TACO 2.0, 7.1.2).

The result of an extension is converted to exactly the columns that it declared.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import get_annotations
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from comal.errors import ComalError, InvalidInputError, shown, translated
from comal.taco.columns import as_table, described, normal_type

FAULTS: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (pa.ArrowException, TypeError, ValueError, OverflowError), InvalidInputError
)
"""What Arrow and NumPy raise for values of a wrong type."""


def as_arrow(result: Any, schema: pa.Schema, *, rows: int, name: str) -> pa.Table:
    """The result of an extension in exactly the columns, order and types of `schema`.

    It may be an Arrow table or batch, a dict of columns, or a frame with the Arrow C stream
    protocol. Numbers are cast if nothing is lost; text is never parsed.
    """
    table = None
    with translated(FAULTS, f"{name} did not return a table"):
        table = as_table(_of_columns(result, schema) if isinstance(result, Mapping) else result)
    if table is None:
        raise InvalidInputError(
            f"{name} did not return a table",
            found=type(result).__name__,
            expected="pyarrow.Table, polars.DataFrame or a dict of columns",
        )
    wrong = sorted(set(table.column_names) ^ set(schema.names))
    if wrong or len(table.column_names) != len(schema.names):
        raise InvalidInputError(
            f"{name} returned other columns than it declared",
            where=", ".join(map(shown, wrong)) or None,
            found=", ".join(map(shown, table.column_names)),
            expected=", ".join(map(shown, schema.names)),
        )
    if table.num_rows != rows:
        raise InvalidInputError(
            f"{name} returned the wrong number of rows", found=table.num_rows, expected=rows
        )
    columns = [_cast(table.column(wanted.name), wanted, name) for wanted in schema]
    return pa.table(columns, schema=schema)


def _of_columns(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    """Columns in the types of their values, or in the declared type if inference fails."""
    declared = {wanted.name: wanted.type for wanted in schema}
    arrays = dict(columns)
    for key, values in columns.items():
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            try:
                arrays[key] = pa.array(values)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                arrays[key] = pa.array(values, declared.get(key))
    return pa.table(arrays)


def _cast(values: pa.ChunkedArray, wanted: pa.Field, name: str) -> pa.ChunkedArray:
    """A column cast to the declared type; raises if the kind differs or values are lost."""
    reason = ""
    if _fits(values.type, normal_type(wanted.type)):
        try:
            return values.cast(wanted.type)
        except pa.ArrowException as error:
            reason = f" ({str(error)[:80]})"
    raise InvalidInputError(
        f"{name} returned a column of another type",
        where=f"column {shown(wanted.name)}",
        found=f"{values.type}{reason}",
        expected=str(wanted.type),
        column=wanted.name,
    )


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether one plain type may be cast to the other, if that loses nothing."""
    types = pa.types
    if types.is_null(found) or found.equals(wanted):
        return True
    both = (found, wanted)
    if all(map(types.is_list, both)):
        return _fits(found.value_type, wanted.value_type)
    if all(map(types.is_struct, both)):
        ours, theirs = ({part.name: part.type for part in kind} for kind in both)
        return ours.keys() == theirs.keys() and all(_fits(ours[k], theirs[k]) for k in ours)
    return any(
        all(any(test(kind) for test in family) for kind in both)
        for family in (
            (types.is_integer, types.is_floating),
            (types.is_timestamp, types.is_date),
            (types.is_binary, types.is_fixed_size_binary),
        )
    )


@dataclass(frozen=True, slots=True)
class RowSample:
    """One row of a table, with the attributes of a sample."""

    id: str
    path: Any
    type: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def declared(*columns: tuple[str, pa.DataType, str]) -> pa.Schema:
    """A schema from the name, type and description of each column.

    Descriptions are written to ``taco:field_schema``.
    """
    return pa.schema([described(*one) for one in columns])


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list type with the child name that comal writes."""
    return pa.list_(pa.field("element", kind))


class _Extension(ABC):
    """Base of the three kinds of extensions."""

    schema_only: bool = False
    """Return typed nulls and compute nothing."""

    def __init__(self, **values: Any) -> None:
        """Accept the annotated attributes of the class, unless it has its own ``__init__``."""
        own_init = type(self).__init__ is not _Extension.__init__
        taken = _parameters(_Extension if own_init else type(self))(**values)
        for parameter in fields(taken):
            setattr(self, parameter.name, getattr(taken, parameter.name))

    @abstractmethod
    def get_schema(self) -> pa.Schema | Mapping[str, Any]:
        """The columns: an Arrow schema, or a dict of Arrow or polars types."""

    @abstractmethod
    def _compute(self, given: Any) -> Any:
        """One row per sample: an Arrow table, a polars frame or a dict of columns."""

    def __call__(self, given: Any) -> pa.Table:
        """The checked rows for the argument; typed nulls if `schema_only`."""
        rows = self._rows(given)
        return self._nulls(rows) if self.schema_only else self._checked(self._compute(given), rows)

    def _rows(self, given: Any) -> int:
        del given
        return 1

    def _checked(self, result: Any, rows: int) -> pa.Table:
        return as_arrow(result, arrow_schema(self), rows=rows, name=type(self).__name__)

    def _nulls(self, rows: int) -> pa.Table:
        schema = arrow_schema(self)
        return pa.table([pa.nulls(rows, kind) for kind in schema.types], schema=schema)


def _parameters(kind: type) -> Any:
    """The annotated attributes of a class and its bases, as a dataclass of keywords.

    The class itself is not changed, as a later decorator may be ``dataclass``.
    """
    found: dict[str, Any] = {}
    members: dict[str, Any] = {"__module__": kind.__module__, "__annotations__": found}
    for base in reversed(kind.__mro__):
        if issubclass(base, _Extension):
            annotated = get_annotations(base)
            found |= annotated
            members |= {name: vars(base)[name] for name in annotated if name in vars(base)}
    return dataclass(kw_only=True)(type(kind.__name__, (), members))


class SampleExtension(_Extension):
    """Adds metadata to one sample; `_compute` gets the sample and returns one row.

    A subclass may also define ``compute_table(table) -> pa.Table``, which gets the columns ``id``,
    ``type``, ``path`` and the metadata so far of many samples and returns its own columns, each
    row equal to the result of `_compute`. Levels given as tables then need no row objects.
    """


class TortillaExtension(_Extension):
    """Adds columns to all samples of a tortilla; `_compute` gets the tortilla.

    It returns one row per sample. A subclass may also define
    ``compute_table(table) -> pa.Table``, as for `SampleExtension`.
    """

    def _rows(self, given: Any) -> int:
        return len(given)


class TacoExtension(_Extension):
    """Adds fields to the collection; `_compute` gets the `Taco` and returns one row."""


@dataclass
class _Declared(_Extension):
    """An extension whose columns are fixed in the class."""

    _columns: ClassVar[pa.Schema]

    schema_only: bool = field(default=False, kw_only=True)

    def get_schema(self) -> pa.Schema:
        """The columns of this extension."""
        return self._columns


class _Stated(_Declared):
    """Values that the author states."""

    @abstractmethod
    def _values(self) -> Sequence[Any]:
        """One value per column."""

    def _compute(self, given: Any) -> pa.Table:
        del given
        with translated(FAULTS, f"a value of {type(self).__name__} has the wrong type"):
            return pa.table([[value] for value in self._values()], schema=self.get_schema())


class StatedFields(_Stated, TacoExtension):
    """Fields of a dataset that the author states."""


class SameForAll(_Declared, SampleExtension):
    """The same values for every sample: `_compute` ignores the sample, and runs once per table."""

    def compute_table(self, table: pa.Table) -> pa.Table:
        """The same for every row."""
        return self._compute(None).take(pa.array(np.zeros(table.num_rows, np.int64)))


class StatedColumns(_Stated, SameForAll):
    """Columns of samples that the author states."""


class ComputedColumns(_Declared, TortillaExtension):
    """Columns computed from those of a tortilla."""

    @abstractmethod
    def compute_table(self, table: pa.Table) -> pa.Table:
        """The columns for all rows of a table."""

    def _compute(self, given: Any) -> pa.Table:
        return self.compute_table(given.to_arrow())


def columns_for(extension: SampleExtension | TortillaExtension, table: pa.Table) -> pa.Table:
    """The columns that `extension` adds to the samples of `table`, checked.

    The vectorised ``compute_table`` is used if there is one. A sample extension without it is
    called row by row; a tortilla extension gets the table in place of a tortilla.
    """
    if extension.schema_only:
        return extension._nulls(table.num_rows)  # noqa: SLF001 - same module
    vectorised = getattr(extension, "compute_table", None)
    if vectorised is not None:
        return extension._checked(vectorised(table), table.num_rows)  # noqa: SLF001 - same module
    if isinstance(extension, TortillaExtension):
        return extension(_TableTortilla(table))
    rows = [extension(sample) for sample in samples_of(table)]
    return pa.concat_tables(rows) if rows else extension._nulls(0)  # noqa: SLF001 - same module


def samples_of(table: pa.Table) -> Iterator[RowSample]:
    """The rows of `table` as samples."""
    own = ("id", "path", "type")
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            metadata = {key: value for key, value in row.items() if key not in own}
            yield RowSample(row["id"], row.get("path"), row.get("type", "FILE"), metadata)


def table_of(sample: Any) -> pa.Table:
    """One sample as a one-row table for ``compute_table``.

    A path becomes text, bytes stay bytes, a tortilla becomes null.
    """
    path = sample.path
    if not isinstance(path, bytes | None):
        path = str(path) if sample.type == "FILE" else None
    own: dict[str, Any] = {"id": sample.id, "type": sample.type, "path": path}
    return pa.table({key: [value] for key, value in {**sample.metadata, **own}.items()})


@dataclass(frozen=True, slots=True)
class _TableTortilla:
    table: pa.Table

    def to_arrow(self) -> pa.Table:
        return self.table

    def __len__(self) -> int:
        return int(self.table.num_rows)


def arrow_schema(extension: _Extension) -> pa.Schema:
    """The result of ``get_schema`` as an Arrow schema with descriptions."""
    name = type(extension).__name__
    declared = extension.get_schema()
    if not isinstance(declared, pa.Schema):
        if not isinstance(declared, Mapping):
            raise InvalidInputError(
                "get_schema() returned no schema",
                where=name,
                found=type(declared).__name__,
                expected="pyarrow.Schema or a dict of column names and types",
            )
        declared = pa.schema([(key, _arrow_type(kind, name)) for key, kind in declared.items()])
    texts: Mapping[str, str] = getattr(extension, "get_field_descriptions", dict)()
    return pa.schema(
        [
            described(one.name, one.type, texts[one.name]) if one.name in texts else one
            for one in declared
        ]
    )


def _arrow_type(kind: Any, extension: str) -> pa.DataType:
    """The Arrow type of a declared type; polars is imported only for a polars type."""
    if isinstance(kind, pa.DataType):
        return kind
    home = kind if isinstance(kind, type) else type(kind)
    if home.__module__.partition(".")[0] == "polars":
        import polars as pl  # noqa: PLC0415 - who has a type of polars has polars

        what, found = "the polars type has no Arrow type", repr(kind)[:60]
        with translated(
            {**FAULTS, pl.exceptions.PolarsError: InvalidInputError}, what, found=found
        ):
            if kind != pl.Object:
                return normal_type(pl.Series([], dtype=kind).to_arrow().type)
        raise InvalidInputError(what, found=found)
    raise InvalidInputError(
        "unknown type in a schema",
        where=extension,
        found=repr(kind)[:60],
        expected="a pyarrow or polars data type",
    )


def require(extension: Any, *names: str) -> None:
    """Refuse an extension that lacks a parameter, unless it is `schema_only`."""
    missing = [name for name in names if getattr(extension, name) is None]
    if missing and not extension.schema_only:
        raise InvalidInputError(
            f"{type(extension).__name__} needs {', '.join(missing)}",
            hint="pass them, or schema_only=True for the columns without values",
        )
