"""Metadata columns: from Python values to Arrow, and from several tables to one (PIT-2).

PIT-2 requires one schema for all samples of a level (TACO 2.0, 5.5). Nothing is cast silently: a
strict schema refuses values of two types and names both samples; a lenient one fills missing
fields with null and widens integers to floating point, but refuses any other difference.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown, translated
from comal.samples.tables import arrow_table, refuse_lost
from comal.table.columns import array_of, plain_type
from comal.taco import spec

Who = Callable[[int], str]
"""Returns the id of the sample in a row, for messages."""

_ARROW_FAULTS: Mapping[type[BaseException], type[InvalidInputError]] = {
    pa.ArrowException: InvalidInputError,
    UnicodeError: InvalidInputError,
    OverflowError: InvalidInputError,
    TypeError: InvalidInputError,
    ValueError: InvalidInputError,
}

_FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("int", (int, np.integer)),
    ("float", (float, np.floating)),
    ("string", (str,)),
    ("binary", (bytes, bytearray, memoryview)),
    ("timestamp", (dt.datetime, np.datetime64)),
    ("date", (dt.date,)),
    ("time", (dt.time,)),
    ("duration", (dt.timedelta, np.timedelta64)),
    ("list", (list, tuple, np.ndarray, pa.Array)),
    ("struct", (dict,)),
    ("decimal", (decimal.Decimal,)),
)
_KNOWN = frozenset(family for family, _ in _FAMILIES)


@lru_cache(maxsize=10_000)
def check_key(key: str) -> None:
    """Refuse `key` as the name of a metadata field (TACO 2.0, 7.1.2)."""
    fault = spec.key_fault(key)
    if fault is not None:
        raise InvalidInputError(
            f"metadata field {shown(key)} {fault}",
            expected="a name such as 'cloud_cover' or 'stac:crs'",
            field=key,
        )


def column(
    name: str,
    values: Sequence[Any],
    who: Who,
    *,
    declared: Any = None,
    strict: bool = True,
) -> Any:
    """Python values of one field as an Arrow array; None is null.

    `declared` is the Arrow type fixed by an extension or a table; None infers it.
    `strict` refuses integers among floating-point numbers instead of widening them.
    """
    what = f"field {shown(name)} cannot become a column"
    if declared is not None:
        with translated(_ARROW_FAULTS, what, expected=f"values of type {declared}", field=name):
            return _kept(name, pa.array(values, type=declared))
    families = _families(values)
    unknown = families.difference(_KNOWN)
    if unknown:
        raise InvalidInputError(f"{what}: no Arrow type for {min(unknown)}", field=name)
    if len(families) > 1 and (strict or families != {"int", "float"}):
        raise _mixed(name, values, who)
    with translated(_ARROW_FAULTS, what, field=name):
        has_lists = any(_family(kind) == "list" for kind in set(map(type, values)))
        wide = pa.float64() if families == {"int", "float"} and not has_lists else None
        return _kept(name, array_of(values, wide))


def _kept(name: str, array: Any) -> Any:
    refuse_lost([pa.field(name, array.type)], "samples")
    return normal(array)


def check_values(name: str, values: Sequence[Any], who: Who) -> None:
    """Refuse values of two types, without building a column."""
    if len(_families(values)) > 1:
        raise _mixed(name, values, who)


def _families(values: Iterable[Any]) -> set[str]:
    """The kinds of scalars in `values` or, if these are lists, in the lists."""
    kinds = set(map(type, values))
    kinds.discard(type(None))
    families = {_family(kind) for kind in kinds}
    if families == {"list"}:
        # A list of numbers in one sample and a list of strings in the next differ in type too.
        lists = [value for value in values if value is not None]
        inner = _families(chain.from_iterable(lists))
        if inner == {"int", "float"}:
            # Within one list, integers among floats always count as floats.
            found = [_families(value) for value in lists]
            inner = set().union(*({"float"} if "float" in one else one for one in found))
        return inner
    return families


def _family(kind: type) -> str:
    for family, kinds in _FAMILIES:
        if issubclass(kind, kinds):
            return family
    return kind.__name__


def _mixed(name: str, values: Sequence[Any], who: Who) -> InvalidInputError:
    known: tuple[int, set[str]] | None = None
    for row, value in enumerate(values):
        families = _families([value])
        if not families:
            continue
        known = known or (row, families)
        if len(families) > 1 or families != known[1]:
            return type_conflict(
                name,
                (who(known[0]), _inferred(values[known[0]])),
                (who(row), _inferred(value)),
            )
    return InvalidInputError(f"field {shown(name)} holds values of two types", field=name)


def _inferred(value: object) -> str:
    try:
        return spec.type_name(pa.infer_type([value]))
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        return type(value).__name__


def type_conflict(name: str, first: tuple[str, str], second: tuple[str, str]) -> InvalidInputError:
    """The error for a field that has two types; each side is (sample, type)."""
    return InvalidInputError(
        f"field {shown(name)} has two types",
        found=f"{first[1]} in sample {shown(first[0])}, {second[1]} in sample {shown(second[0])}",
        expected="one type for all samples of a level (TACO 2.0, 5.5, PIT-2)",
        hint="give the values one type; strict_schema=False widens int to float, nothing else",
        field=name,
    )


def missing_field(name: str, present: str, absent: str) -> InvalidInputError:
    """The error for a field that one sample has and another lacks."""
    return InvalidInputError(
        f"field {shown(name)} is not in every sample",
        found=f"in sample {shown(present)}, not in sample {shown(absent)}",
        expected="the same fields in all samples of a level (TACO 2.0, 5.5, PIT-2)",
        hint="add the field, or use strict_schema=False to fill it with null",
        field=name,
    )


def normal(array: Any) -> Any:
    """The column in types that every reader knows.

    Large and view types become plain ones, dictionaries and extension types their values; times
    become UTC microseconds without a zone if that loses nothing.
    """
    wanted = normal_type(array.type)
    if wanted.equals(array.type):
        return array
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid:
        if pa.types.is_timestamp(array.type):  # finer than a microsecond: kept as it is
            return array.cast(pa.timestamp(array.type.unit))
        raise


def normal_type(kind: Any) -> Any:
    """The type that `normal` gives a column of type `kind`."""
    plain = plain_type(kind, lasting=True)
    if pa.types.is_list(plain):
        return pa.list_(pa.field("element", normal_type(plain.value_type)))
    return pa.timestamp("us") if pa.types.is_timestamp(plain) else plain


def as_table(data: Any) -> Any:
    """An Arrow table, record batch or other library's frame as a normal table; None for others."""
    table = arrow_table(data)
    if table is None:
        return None
    if not isinstance(data, pa.Table | pa.RecordBatch):  # pandas, which adds its index
        table = table.select([name for name in table.column_names if name != "__index_level_0__"])
    refuse_lost(table.schema, "table")
    return normal_table(table)


def normal_table(table: Any, where: str = "table") -> Any:
    """`table` with `normal` columns; of its metadata only field descriptions are kept."""
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        what = f"column {shown(name)} cannot be stored"
        hint = "round the times to microseconds" if "timestamp[ns" in str(column.type) else None
        with translated(_ARROW_FAULTS, what, where=where, hint=hint):
            columns.append(normal(column))
    fields = [
        pa.field(old.name, new.type, metadata=_only_description(old.metadata))
        for old, new in zip(table.schema, columns, strict=True)
    ]
    return pa.table(columns, schema=pa.schema(fields))


def described(name: str, kind: Any, text: str | None) -> Any:
    """An Arrow field that carries its description."""
    return pa.field(name, kind, metadata={spec.DESCRIPTION: text.encode()} if text else None)


def _only_description(metadata: Mapping[bytes, bytes] | None) -> dict[bytes, bytes] | None:
    text = (metadata or {}).get(spec.DESCRIPTION)
    return None if text is None else {spec.DESCRIPTION: text}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one level that came from one source."""

    table: Any
    who: Who
    """Id path of the sample in a row of `table`."""
    real: np.ndarray[Any, Any] | None = None
    """Mask of the rows that are not padding; None if there is no padding."""


def unify(chunks: Sequence[Chunk], *, strict: bool) -> Any:
    """One table of all `chunks`, whose schemas must agree (PIT-2).

    Columns are in order of first appearance. A column without values has the null type, which
    agrees with every other.
    """
    chunks = [chunk for chunk in chunks if chunk.table.num_rows]
    if len(chunks) == 1:
        return chunks[0].table
    target: dict[str, tuple[Any, Who]] = {}
    for chunk in chunks:
        for found in chunk.table.schema:
            target[found.name] = agreed(target.get(found.name), (found, chunk.who), strict=strict)
    if strict:
        _check_columns(chunks, target)
    schema = pa.schema([found for found, _ in target.values()])
    return pa.concat_tables([_conform(chunk.table, schema) for chunk in chunks])


def agreed(known: tuple[Any, Who] | None, new: tuple[Any, Who], *, strict: bool) -> tuple[Any, Who]:
    """The field that two agree on (the new one if `known` is None), each with its `Who`."""
    if known is None:
        return new
    old, found = known[0].type, new[0].type
    if old.equals(found) or pa.types.is_null(found):
        return known
    if pa.types.is_null(old):
        return new
    if pa.types.is_timestamp(old) and pa.types.is_timestamp(found):
        return known if old.unit == "ns" else new  # `normal` chose the unit by the values
    wide = _wider(old, found)
    if wide is None or strict:
        raise type_conflict(
            known[0].name,
            (known[1](0), spec.type_name(old)),
            (new[1](0), spec.type_name(found)),
        )
    return known[0].with_type(wide), known[1]


def _wider(first: Any, second: Any) -> Any:
    """The type that holds the numbers of both columns, or None."""
    types = pa.types
    numbers = [first, second]
    if all(types.is_integer(kind) for kind in numbers):
        return pa.int64() if pa.uint64() not in numbers else None
    if all(types.is_integer(kind) or types.is_floating(kind) for kind in numbers):
        return pa.float64()
    return None


def _check_columns(chunks: Sequence[Chunk], target: Mapping[str, tuple[Any, Who]]) -> None:
    for chunk in chunks:
        names = set(chunk.table.column_names)
        absent = [name for name in target if name not in names]
        if absent and (chunk.real is None or chunk.real.any()):
            row = 0 if chunk.real is None else int(np.flatnonzero(chunk.real)[0])
            raise missing_field(absent[0], target[absent[0]][1](0), chunk.who(row))


def _conform(table: Any, schema: Any) -> Any:
    columns, names = [], set(table.column_names)
    for wanted in schema:
        if wanted.name in names:
            found = table.column(wanted.name)
            if not found.type.equals(wanted.type):
                what = f"values of field {shown(wanted.name)} do not fit the type of all samples"
                with translated(_ARROW_FAULTS, what, expected=f"values of type {wanted.type}"):
                    found = found.cast(wanted.type)
            columns.append(found)
        else:
            columns.append(pa.chunked_array([pa.nulls(table.num_rows, wanted.type)]))
    return pa.table(columns, schema=schema)


def root_paths(ids: Any, types: Any) -> Any:
    """Paths of level 0 samples below DATA/: their ids, with a slash at the end for a FOLDER."""
    slashes = pc.if_else(pc.equal(types, spec.FOLDER), "/", "")
    return pc.binary_join_element_wise(ids.cast(pa.string()), slashes, "")
