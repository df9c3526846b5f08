"""What an extension is: a declared schema and the columns that it computes (TACO 2.0, 7.1.2).

Three kinds differ in what they see and in how many rows they return: a sample (one row), a
tortilla (one row per sample) and a whole dataset (one row). The base classes are plain abstract
classes; annotated attributes of a subclass are its parameters, by keyword. It may also be a
dataclass or, named after ``BaseModel`` in the list of bases, a pydantic model.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from inspect import get_annotations
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from comal.errors import InvalidInputError, MissingExtraError
from comal.taco.extensions.results import as_arrow, is_polars, polars_types

_DESCRIPTION = b"description"


@runtime_checkable
class SampleLike(Protocol):
    """What an extension sees of a sample."""

    @property
    def id(self) -> str:
        """Its id."""
        ...

    @property
    def path(self) -> Any:
        """Its data: a path, bytes or a tortilla."""
        ...

    @property
    def type(self) -> str:
        """``FILE`` or ``FOLDER``."""
        ...

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Its metadata fields so far."""
        ...


class TortillaLike(Protocol):
    """What an extension sees of a tortilla."""

    def to_arrow(self) -> pa.Table:
        """Its samples as a table: ``id``, ``type`` and the metadata fields so far."""
        ...

    def __len__(self) -> int:
        """How many samples."""
        ...


@dataclass(frozen=True, slots=True)
class RowSample:
    """One row of a table, in the form of a sample."""

    id: str
    path: Any
    type: str
    metadata: Mapping[str, Any] = field(default_factory=dict)


def column(name: str, kind: pa.DataType, description: str | None = None) -> pa.Field:
    """A column of a schema; its description ends in ``taco:field_schema``."""
    return pa.field(name, kind, metadata={_DESCRIPTION: description} if description else None)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list type with the child name that comal writes."""
    return pa.list_(pa.field("element", kind))


class _Extension(ABC):
    """What the three kinds share."""

    schema_only: bool = False
    """Return typed nulls and compute nothing."""

    def __init__(self, **values: Any) -> None:
        """Take the annotated attributes of the class, unless it has an ``__init__`` of its own."""
        own_init = type(self).__init__ is not _Extension.__init__
        taken = _parameters(_Extension if own_init else type(self))(**values)
        for parameter in fields(taken):
            setattr(self, parameter.name, getattr(taken, parameter.name))

    @abstractmethod
    def get_schema(self) -> pa.Schema | Mapping[str, Any]:
        """The columns: an Arrow schema, or a dict of Arrow or polars types."""

    def _checked(self, result: Any, rows: int) -> pa.Table:
        return as_arrow(result, arrow_schema(self), rows=rows, name=type(self).__name__)


def _parameters(kind: type) -> Any:
    """The annotated attributes of a class and its bases, as a dataclass of keywords.

    The class itself is left alone: a decorator that comes later may be ``dataclass``.
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
    """Adds metadata to one sample.

    A subclass may also define ``compute_table(table) -> pa.Table``, which gets the columns ``id``,
    ``type``, ``path`` and the metadata so far of many samples and returns its own columns, row by
    row the same as `_compute` would: levels that come as tables are then never taken apart.
    """

    @abstractmethod
    def _compute(self, sample: Any) -> Any:
        """One row: an Arrow table, a polars frame or a dict of columns (lists of one value)."""

    def __call__(self, sample: SampleLike) -> pa.Table:
        """One checked row; typed nulls when `schema_only`."""
        if self.schema_only:
            return nulls(arrow_schema(self), 1)
        return self._checked(self._compute(sample), 1)


class SameForAll(SampleExtension):
    """Says the same of every sample: `_compute` looks at none, and is called once for a table."""

    def compute_table(self, table: pa.Table) -> pa.Table:
        """The same for every row."""
        return self._compute(None).take(pa.array(np.zeros(table.num_rows, np.int64)))


class TortillaExtension(_Extension):
    """Adds columns to all samples of a tortilla.

    A subclass may also define ``compute_table(table) -> pa.Table``, as for `SampleExtension`.
    """

    @abstractmethod
    def _compute(self, tortilla: Any) -> Any:
        """As many rows as samples: an Arrow table, a polars frame or a dict of columns."""

    def __call__(self, tortilla: TortillaLike) -> pa.Table:
        """One checked row per sample; typed nulls when `schema_only`."""
        if self.schema_only:
            return nulls(arrow_schema(self), len(tortilla))
        return self._checked(self._compute(tortilla), len(tortilla))


class TacoExtension(_Extension):
    """Adds fields to the collection."""

    @abstractmethod
    def _compute(self, taco: Any) -> Any:
        """One row: an Arrow table, a polars frame or a dict of columns (lists of one value)."""

    def __call__(self, taco: Any) -> pa.Table:
        """One checked row; typed nulls when `schema_only`."""
        if self.schema_only:
            return nulls(arrow_schema(self), 1)
        return self._checked(self._compute(taco), 1)


def columns_for(extension: SampleExtension | TortillaExtension, table: pa.Table) -> pa.Table:
    """The columns that `extension` adds to the samples of `table`, checked.

    The vectorised ``compute_table`` is used where the extension has one. A sample extension
    without it is called row by row, a tortilla extension gets the table as its tortilla.
    """
    if extension.schema_only:
        return nulls(arrow_schema(extension), table.num_rows)
    vectorised = getattr(extension, "compute_table", None)
    if vectorised is not None:
        return extension._checked(vectorised(table), table.num_rows)  # noqa: SLF001 - same module
    if isinstance(extension, TortillaExtension):
        return extension(_TableTortilla(table))
    rows = [extension(sample) for sample in samples_of(table)]
    return pa.concat_tables(rows) if rows else nulls(arrow_schema(extension), 0)


def samples_of(table: pa.Table) -> Iterator[RowSample]:
    """The rows of `table`, one by one, as samples."""
    own = ("id", "path", "type")
    for batch in table.to_batches(max_chunksize=4096):
        for row in batch.to_pylist():
            metadata = {key: value for key, value in row.items() if key not in own}
            yield RowSample(row["id"], row.get("path"), row.get("type", "FILE"), metadata)


def table_of(sample: SampleLike) -> pa.Table:
    """One sample as a table of one row, as ``compute_table`` takes it.

    The path becomes text, or stays bytes; a tortilla becomes null.
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


def nulls(schema: pa.Schema, rows: int) -> pa.Table:
    """A table of typed nulls."""
    return pa.table([pa.nulls(rows, kind) for kind in schema.types], schema=schema)


def arrow_schema(extension: _Extension) -> pa.Schema:
    """What ``get_schema`` returned, as an Arrow schema with descriptions.

    Raises
    ------
    InvalidInputError
        It is neither a schema nor a dict, or a type is neither Arrow nor polars.
    """
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
    describe = getattr(extension, "get_field_descriptions", dict)
    descriptions: Mapping[str, str] = describe()
    for position, found in enumerate(declared):
        if found.name in descriptions:
            described = found.with_metadata({_DESCRIPTION: descriptions[found.name]})
            declared = declared.set(position, described)
    return declared


def _arrow_type(kind: Any, extension: str) -> pa.DataType:
    if isinstance(kind, pa.DataType):
        return kind
    if is_polars(kind if isinstance(kind, type) else type(kind)):
        found: pa.DataType = polars_types().arrow_type(kind)
        return found
    raise InvalidInputError(
        "unknown type in a schema",
        where=extension,
        found=repr(kind)[:60],
        expected="a pyarrow or polars data type",
    )


# -- records ---------------------------------------------------------------------------------------


T = TypeVar("T")


def record_of(kind: type[T], value: Any) -> T:
    """A record of dataclass `kind` from one, a mapping, or an object with ``model_dump``.

    Raises
    ------
    InvalidInputError
        Unknown or missing keys; the message names them.
    """
    if isinstance(value, kind):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        value = dump()
    if not isinstance(value, Mapping):
        raise InvalidInputError(
            f"not a {kind.__name__}", found=type(value).__name__, expected="a record or a dict"
        )
    fields = {one.name: one for one in dataclasses.fields(kind)}  # type: ignore[arg-type]
    unknown = sorted(set(value) - set(fields))
    missing = [
        name
        for name, one in fields.items()
        if one.default is dataclasses.MISSING and value.get(name) is None
    ]
    if unknown or missing:
        raise InvalidInputError(
            f"invalid {kind.__name__}",
            found=", ".join(map(str, unknown)) or None,
            expected=", ".join(missing or fields),
        )
    return kind(**value)


def records_of(kind: type[T], values: Iterable[Any]) -> list[T]:
    """A list of records; see `record_of`."""
    if isinstance(values, Mapping | str | bytes):
        raise InvalidInputError(f"not a list of {kind.__name__}", found=type(values).__name__)
    return [record_of(kind, value) for value in values]


def dumped(values: Iterable[Any]) -> list[dict[str, Any]]:
    """The records as dicts."""
    return [dataclasses.asdict(value) for value in values]


# -- types of polars -------------------------------------------------------------------------------


try:
    import polars as pl
except ImportError as error:  # pragma: no cover - a polars type comes from an installed polars
    raise MissingExtraError.of("polars", "polars", "an extension schema of polars types") from error


def arrow_type(kind: Any) -> pa.DataType:
    """The Arrow type for a polars type, in the plain forms that comal writes."""
    if kind == pl.Object:
        raise InvalidInputError("polars type that has no Arrow type", found=repr(kind)[:60])
    try:
        return _plain(pl.Series([], dtype=kind).to_arrow().type)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise InvalidInputError(
            "polars type that has no Arrow type", found=repr(kind)[:60]
        ) from error


def arrow_table(frame: Any) -> pa.Table:
    """A polars frame as an Arrow table, without the view types that Arrow cannot cast."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(pa.field("element", _plain(kind.value_type)))
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([pa.field(part.name, _plain(part.type)) for part in kind])
    return kind
