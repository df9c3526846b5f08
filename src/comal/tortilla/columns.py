"""Columns of a footer before offsets are known: names, types and values, for whole tables.

The specification fixes names and types of its own columns; any other column is kept as it is.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from comal import names as name_rules
from comal.errors import InvalidInputError, shown, translated
from comal.geo import times
from comal.lazy import pc
from comal.limits import DEFAULT_LIMITS
from comal.public import warn
from comal.samples.payloads import Ints
from comal.samples.tables import is_text, refuse_lost
from comal.table import plain_table
from comal.table.columns import (
    Mask,
    combining,
    flags_of,
    one_array,
    rows_equal,
    texts_column,
    valid_of,
    values_column,
)
from comal.tortilla import spec
from comal.tortilla.spec import TortillaWarning

SHORT = {"id": spec.ID, "file_format": spec.FILE_FORMAT, "data_split": spec.DATA_SPLIT}
"""Short names for columns of the core in tables."""
_MADE = (spec.OFFSET, spec.LENGTH)
_LENGTHS = {spec.GEOTRANSFORM: 6, spec.RASTER_SHAPE: 2}
_FAULTS = (pa.ArrowException, TypeError, ValueError, OverflowError)
Ids = Callable[[int], str]


def check_extra(name: object, where: str) -> str:
    """Check the name of an additional column; aliases become the specified name."""
    if not isinstance(name, str) or not name:
        raise InvalidInputError("the name of a column is empty or not text", where=where)
    size = len(name.encode("utf-8", "surrogatepass"))
    reason = None
    if name in spec.CORE or name.startswith("tortilla:"):
        reason = "is a core column"
    elif name.startswith(spec.INTERNAL) or spec.INDEX_COLUMN.fullmatch(name):
        reason = "is a column that only readers add"
    elif size > DEFAULT_LIMITS.column_name_bytes:
        reason = f"is longer than {DEFAULT_LIMITS.column_name_bytes} bytes"
    elif any(ord(character) < 32 or 127 <= ord(character) < 160 for character in name):
        reason = "holds control characters"
    if reason is not None:
        raise InvalidInputError(f"column {shown(name)} {reason}", where=where)
    return spec.ALIASES.get(name, name)


def column(name: str, values: Sequence[Any], who: Ids) -> Any:
    """A column from values of single samples, None if missing; `who` names a sample in errors."""
    if name in (spec.TIME_START, spec.TIME_END):
        return seconds(values, name)
    wanted = spec.TYPES.get(name)
    try:
        if wanted is None or pa.types.is_list(wanted) or pa.types.is_integer(wanted):
            # A cast checks; giving the type to the constructor would truncate 1.5 to 1.
            found = values_column(values)
            return found if wanted is None else pc.cast(found, wanted)
        if set(map(type, values)) <= {str, type(None)} and pa.types.is_string(wanted):
            return texts_column(values)
        return pa.array(values, wanted)
    except _FAULTS as error:
        row = _first_bad(values, wanted)
        raise InvalidInputError(
            f"a value of column {shown(name)} has the wrong type",
            where=f"sample {shown(who(row))}",
            found=shown(repr(values[row]), 80),
            expected=str(wanted or "the type of the samples before it"),
        ) from error


def _first_bad(values: Sequence[Any], wanted: Any) -> int:
    kinds: set[type] = set()
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            pc.cast(pa.array([value]), wanted) if wanted is not None else pa.array([value])
        except _FAULTS:
            return row
        kind = float if isinstance(value, int | float) and not isinstance(value, bool) else None
        kinds.add(kind or type(value))
        if wanted is None and len(kinds) > 1:
            return row
    return 0


def normal(table: Any, where: str) -> Any:
    """A table of a user as metadata: core names, specified types, without columns of readers.

    Drops offset and length, the index column of pandas, and ``internal:*`` columns.
    """
    names: list[str] = []
    columns: list[Any] = []
    for position, name in enumerate(table.column_names):
        if name.startswith(spec.INTERNAL) or spec.INDEX_COLUMN.fullmatch(name) or name in _MADE:
            continue
        final = SHORT.get(name, name)
        if final not in spec.CORE:
            final = check_extra(name, where)
        if final in names:
            raise InvalidInputError(f"column {shown(final)} appears twice", where=where)
        names.append(final)
        columns.append(_typed(final, table.column(position), where))
    table = pa.table(columns, names=names)
    refuse_lost(table.schema, where)
    return plain_table(table, lasting=True)


def _typed(name: str, found: Any, where: str) -> Any:
    wanted = spec.TYPES.get(name)
    if wanted is None or found.type.equals(wanted):
        return found
    if name in (spec.TIME_START, spec.TIME_END):
        return seconds(found, name)
    if pa.types.is_dictionary(found.type):
        found = pc.cast(found, found.type.value_type)
    try:
        if pa.types.is_string(wanted) != is_text(found.type) and not pa.types.is_null(found.type):
            raise TypeError(f"{found.type} is not {wanted}")
        return pc.cast(found, wanted)
    except _FAULTS as error:
        raise InvalidInputError(
            f"column {shown(name)} has the wrong type",
            where=where,
            found=str(found.type),
            expected=str(wanted),
        ) from error


def check_values(table: Any, where: str) -> None:
    """Raise for splits, shapes, geotransforms and times that the specification does not allow."""
    present = set(table.column_names)
    if spec.DATA_SPLIT in present:
        wrong = valid_of(table[spec.DATA_SPLIT])
        for split in spec.SPLITS:
            wrong &= ~rows_equal(table[spec.DATA_SPLIT], split)
        _refuse(table, spec.DATA_SPLIT, wrong, ", ".join(spec.SPLITS), where)
    for name, length in _LENGTHS.items():
        if name in present:
            wrong = flags_of(pc.not_equal(pc.list_value_length(table[name]), length))
            _refuse(table, name, wrong, f"{length} numbers", where)
    check_times(table, where)


def _refuse(table: Any, name: str, wrong: Mask, expected: str, where: str) -> None:
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return
    row = int(rows[0])
    label = table[spec.ID][row].as_py() if spec.ID in table.column_names else row
    raise InvalidInputError(
        f"{name} is not valid",
        where=f"{where}, sample {shown(label)}",
        found=shown(table[name][row].as_py(), 80),
        expected=expected,
    )


def check_ids(
    ids: Any, where: str, parents: Any = None, *, tier: int = 2, keeps: bool = False
) -> None:
    """Raise for ids that are not legal, or that appear twice among siblings.

    `parents` is a number that siblings share, None when all are siblings. Tier 2 is for new rows,
    1 for rows of existing files, whose ids need not be portable; 0 only checks for duplicates.
    `keeps` means that the caller has an ``allow_ids`` that was not given, for the hint: it would
    lower the tier by one.
    """
    flat = one_array(ids)
    if flat.null_count:
        raise InvalidInputError("an id is missing", where=where, found=f"{flat.null_count} nulls")
    for bad in name_rules.bad_names(flat, tier=tier) if tier else ():
        raise InvalidInputError(
            f"id {shown(bad.name)} {bad.reason}",
            where=f"{where}, row {bad.row}",
            hint="change the id"
            + (", or pass allow_ids=True to keep it" if keeps and bad.tier == tier else ""),
        )
    for first, second in name_rules.twins(flat, parents, fold=tier == 2)[:1]:
        one, other = flat[first].as_py(), flat[second].as_py()
        alike = f"ids {shown(one)} and {shown(other)} are the same name where case is ignored"
        raise InvalidInputError(
            f"id {shown(one)} appears twice" if one == other else alike,
            where=f"{where}, rows {first} and {second}",
        )


def unified(schemas: Iterable[Any], where: str) -> Any:
    """One schema for tables that will be concatenated, in the order of a footer."""
    with combining(InvalidInputError, where):
        schema = pa.unify_schemas(list(schemas), promote_options="permissive")
    names = ordered(schema.names)
    return pa.schema([schema.field(name) for name in names])


def fitted(table: Any, schema: Any) -> Any:
    """A table with exactly the columns of a schema; missing columns are null."""
    if table.schema.equals(schema):
        return table
    names = set(table.column_names)
    columns = [
        pc.cast(table[field.name], field.type)
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def ordered(names: Sequence[str]) -> list[str]:
    """Column names in the order of a footer: core, STAC, RAI, then others in their order."""
    known: Mapping[str, Any] = spec.TYPES
    return [
        *(name for name in known if name in names),
        *(name for name in names if name not in known),
    ]


def with_column(table: Any, name: str, values: Any) -> Any:
    """The table with one column added or replaced."""
    place = table.schema.get_field_index(name)
    if place < 0:
        return table.append_column(name, values)
    return table.set_column(place, name, values)


def with_some(table: Any, name: str, rows: Ints, values: Any, kind: Any) -> Any:
    """The table with `values` of a column in `rows`; other rows keep their value, or are null."""
    count = table.num_rows
    places = np.full(count, -1, np.int64)
    places[rows] = np.arange(len(rows))
    column = pc.cast(one_array(values), kind).take(pa.array(places, mask=places < 0))
    if name in table.column_names:
        # By `take`, because not every version of Arrow can choose between lists.
        both = pa.concat_arrays([pc.cast(one_array(table[name]), kind), column])
        own = np.arange(count)
        column = both.take(pa.array(np.where(places < 0, own, own + count)))
    return with_column(table, name, column)


# -- seconds ---------------------------------------------------------------------------------------


_SECOND = 1_000_000


def seconds(values: Any, name: str) -> Any:
    """Times as an Arrow int64 array of seconds.

    **Numbers are seconds**; datetimes and dates (naive ones are UTC), datetime64 and ISO 8601 texts
    are converted; None, NaN and NaT are null.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype.kind in "iufM":
        values = pa.array(values, from_pandas=True)
    if isinstance(values, pa.Array):
        kind = values.type
        if pa.types.is_integer(kind) or pa.types.is_null(kind):
            return values.cast(pa.int64())
        if pa.types.is_floating(kind):
            whole = pc.if_else(pc.is_finite(values), pc.floor(values), pa.scalar(None, kind))
            return whole.cast(pa.int64())
        if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            return _floored(times.timestamps(values, name))
        values = values.to_pylist()
    return _from_objects(values, name)


def _floored(stamps: Any) -> Any:
    micro = stamps.cast(pa.int64())
    whole = np.floor_divide(micro.fill_null(0).to_numpy(), _SECOND)
    return pa.array(whole, mask=micro.is_null().to_numpy(zero_copy_only=False))


def _from_objects(values: Sequence[Any], name: str) -> Any:
    found: list[int | None] = []
    naive = False
    for value in values:
        if value is None or (isinstance(value, float | np.floating) and not math.isfinite(value)):
            found.append(None)
        elif isinstance(value, bool):
            raise InvalidInputError("not a point in time", where=name, found=shown(value))
        elif isinstance(value, int | float | np.integer | np.floating):
            found.append(math.floor(value))
        elif isinstance(value, np.datetime64 | dt.datetime) and str(value) == "NaT":
            found.append(None)
        else:
            naive = naive or (isinstance(value, dt.datetime) and value.tzinfo is None)
            found.append(times.parse_instant(value, name) // _SECOND)
    if naive:
        warn(f"{name}: times without a time zone are taken as UTC", TortillaWarning)
    with translated(dict.fromkeys(_FAULTS, InvalidInputError), "not a point in time", where=name):
        return pa.array(found, pa.int64())


def check_times(table: Any, where: str) -> None:
    """Refuse a start after its end; warn of years and other units instead of seconds."""
    present = [name for name in (spec.TIME_START, spec.TIME_END) if name in table.column_names]
    for name in present:
        values = pc.cast(table[name], pa.float64(), safe=False).to_numpy()
        for odd, what in spec.odd_times(values):
            if odd.any():
                row = int(odd.argmax())
                warn(
                    f"{where}, row {row}: {name} is {table[name][row]}, which looks like {what}; "
                    "seconds since 1970 are expected",
                    TortillaWarning,
                )
    if len(present) < 2:
        return
    row = pc.index(pc.greater(table[spec.TIME_START], table[spec.TIME_END]), True).as_py()
    if row >= 0:
        raise InvalidInputError(
            "time_start is after time_end",
            where=f"{where}, row {row}",
            found=f"{table[spec.TIME_START][row]} > {table[spec.TIME_END][row]}",
        )
