"""What an extension returned, brought into exactly the columns that it declared."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import pyarrow as pa

from comal.errors import InvalidInputError, shown, translated


def is_polars(kind: type) -> bool:
    """Whether a class is one of polars, told without importing it."""
    return kind.__module__.partition(".")[0] == "polars"


def polars_types() -> Any:
    """The one module that imports polars: only whoever has it can hand us its objects."""
    return import_module("comal.taco.extensions.polars_types")


def as_arrow(
    result: Any, schema: pa.Schema, *, rows: int | None = None, name: str = "extension"
) -> pa.Table:
    """What an extension computed, in exactly the columns, order and types of `schema`.

    Parameters
    ----------
    result
        Arrow table or batch, dict of columns, or a frame that speaks the Arrow C stream protocol
        (polars, pandas).
    schema
        The declared columns.
    rows
        The number of rows that there must be; any when None.
    name
        The extension, for messages.

    Raises
    ------
    InvalidInputError
        Columns are missing or too many, the number of rows is wrong, or a value does not fit its
        declared type. Numbers are cast when nothing is lost; text is never parsed.
    """
    table = _to_table(result, schema, name)
    wrong = sorted(set(table.column_names) ^ set(schema.names))
    if wrong or len(table.column_names) != len(schema.names):
        raise InvalidInputError(
            f"{name} returned other columns than it declared",
            where=", ".join(map(shown, wrong)) or None,
            found=", ".join(map(shown, table.column_names)),
            expected=", ".join(map(shown, schema.names)),
        )
    if rows is not None and table.num_rows != rows:
        raise InvalidInputError(
            f"{name} returned the wrong number of rows", found=table.num_rows, expected=rows
        )
    columns = [_cast(table.column(wanted.name), wanted, name) for wanted in schema]
    return pa.table(columns, schema=schema)


def _to_table(result: Any, schema: pa.Schema, name: str) -> pa.Table:
    if isinstance(result, pa.Table):
        return result
    faults = {
        pa.ArrowException: InvalidInputError,
        TypeError: InvalidInputError,
        ValueError: InvalidInputError,
        OverflowError: InvalidInputError,
    }
    with translated(faults, f"{name} returned what is no table"):
        if isinstance(result, Mapping):
            return _from_columns(result, schema)
        if is_polars(type(result)):
            return polars_types().arrow_table(result)
        if hasattr(result, "__arrow_c_stream__"):
            return pa.table(result)
        if isinstance(result, pa.RecordBatch):
            return pa.Table.from_batches([result])
    raise InvalidInputError(
        f"{name} returned what is no table",
        found=type(result).__name__,
        expected="pyarrow.Table, polars.DataFrame or a dict of columns",
    )


def _from_columns(columns: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
    declared = {wanted.name: wanted.type for wanted in schema}
    arrays = {}
    for key, values in columns.items():
        inferred = values if isinstance(values, pa.Array | pa.ChunkedArray) else None
        if inferred is None:
            try:
                inferred = pa.array(values)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                inferred = pa.array(values, declared.get(key))
        arrays[key] = inferred
    return pa.table(arrays)


def _cast(values: pa.ChunkedArray, wanted: pa.Field, name: str) -> pa.ChunkedArray:
    if values.type.equals(wanted.type):
        return values
    if not _fits(values.type, wanted.type):
        raise _misfit(values.type, wanted, name)
    try:
        return values.cast(wanted.type)
    except pa.ArrowException as error:
        raise _misfit(values.type, wanted, name, str(error)[:80]) from error


def _misfit(
    found: pa.DataType, wanted: pa.Field, name: str, reason: str | None = None
) -> InvalidInputError:
    return InvalidInputError(
        f"{name} returned a column of another type",
        where=f"column {shown(wanted.name)}",
        found=f"{found} ({reason})" if reason else str(found),
        expected=str(wanted.type),
        column=wanted.name,
    )


def _fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type may stand for the other, if the cast loses nothing."""
    types = pa.types
    if types.is_null(found):
        return True
    if _is_list(found) and _is_list(wanted):
        return _fits(found.value_type, wanted.value_type)
    if types.is_struct(found) and types.is_struct(wanted):
        ours = {part.name: part.type for part in found}
        theirs = {part.name: part.type for part in wanted}
        return ours.keys() == theirs.keys() and all(_fits(ours[k], theirs[k]) for k in ours)
    if types.is_dictionary(found):
        return _fits(found.value_type, wanted)
    return any(test(found) and test(wanted) for test in (_number, _text, _bytes, _moment))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
    )


def _number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _text(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _bytes(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_binary_view(kind)
        or types.is_fixed_size_binary(kind)
    )


def _moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))
