"""From a stored footer to the items of a file: checked, with absolute offsets and current types.

A footer is Parquet, or the JSON of the first writers. Its offsets count from the beginning of its
file, which for a nested file is its first byte ("Nested properties").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import strictjson
from comal.errors import InvalidMetadataError, shown
from comal.lazy import pc
from comal.limits import Limits
from comal.plan import ByteRange, Wanted, run
from comal.public import warn
from comal.table import ParquetTable, footer_plan
from comal.table.columns import (
    combining,
    numbers_column,
    numbers_of,
    one_array,
    texts_column,
    valid_of,
)
from comal.tortilla import spec
from comal.tortilla.spec import TortillaWarning
from comal.tortilla.wire import Header, Opened


def is_json(opened: Opened) -> bool:
    """Whether the footer is the JSON of writers before 0.0.5."""
    return opened.header.layout == "v0.0" and opened.footer.data.lstrip()[:1] == b"{"


def stored_table(
    opened: Opened, where: str, limits: Limits, columns: Sequence[str] | None = None
) -> Any:
    """The stored footer in plain Arrow types; of optional columns only `columns`, or all.

    The numbers of rows, cells and columns are checked against the limits before decoding.
    """
    if is_json(opened):
        return _from_json(opened, f"{where}: footer", limits)
    footer = opened.footer
    span = ByteRange(footer.offset, len(footer.data), f"{where}: footer")
    parsed = run(footer_plan(span, [footer], limits), _NoSource().fetch)
    table = ParquetTable(_NoSource(), parsed, known=[footer], limits=limits)
    names = None
    if columns is not None:
        chosen = {*spec.CORE, *columns}
        chosen |= {alias for alias, name in spec.ALIASES.items() if name in chosen}
        names = [name for name in table.column_names if name in chosen]
    return table.read(names)


class _NoSource:
    """A source of nothing: all bytes are already there."""

    def fetch(self, wanted: Sequence[Wanted]) -> NoReturn:
        raise AssertionError(f"the whole footer is known, and yet {wanted} was asked for")


def _from_json(opened: Opened, where: str, limits: Limits) -> Any:
    """``{id: [offset, length], ...}``."""
    document = strictjson.loads(opened.footer.data, where, limits)
    limits.check("table_rows", len(document), where)
    for name, span in document.items():
        if not (isinstance(span, list) and [type(value) for value in span] == [int, int]):
            raise InvalidMetadataError(
                "an item has no offset and length", where=f"{where}, {shown(name)}"
            )
        if not all(0 <= value < 1 << 63 for value in span):
            raise InvalidMetadataError(
                "a span lies outside the file", where=f"{where}, {shown(name)}", found=shown(span)
            )
    spans = list(document.values())
    return pa.table(
        {
            spec.ID: pa.array(list(document), pa.string()),
            spec.OFFSET: pa.array([offset for offset, _ in spans], pa.int64()),
            spec.LENGTH: pa.array([length for _, length in spans], pa.int64()),
        }
    )


def joined(tables: Sequence[Any], where: str) -> Any:
    """Tables concatenated; a column that one lacks, or has without a type, is null there."""
    if all(table.schema.equals(tables[0].schema) for table in tables[1:]):
        return pa.concat_tables(tables)
    hint = "choose the columns to read with columns=[...]"
    with combining(InvalidMetadataError, where, hint=hint):
        return pa.concat_tables(tables, promote_options="permissive")


def items_of(stored: Any, opened: Opened, where: str, *, typed: bool = True) -> Any:
    """The items of a file from its stored footer, checked.

    Core columns come first, offsets count from the beginning of the object. Columns of readers
    (``internal:*``) and the index of pandas are left out. `typed` gives the columns of the
    specification its names and types.
    """
    table = without_foreign(with_format(stored, opened.header))
    check_core(table, where)
    offsets = integers(table[spec.OFFSET], spec.OFFSET, where)
    lengths = integers(table[spec.LENGTH], spec.LENGTH, where)
    _check_spans(offsets, lengths, opened, where)
    core = {
        spec.ID: _text(table[spec.ID]),
        spec.FILE_FORMAT: _text(table[spec.FILE_FORMAT]),
        spec.OFFSET: pa.chunked_array([numbers_column(offsets + opened.base)]),
        spec.LENGTH: pa.chunked_array([numbers_column(lengths)]),
    }
    others = {name: table[name] for name in table.column_names if name not in core}
    if typed:
        others = _typed(others, where)
    return pa.table({**core, **others})


def with_format(stored: Any, header: Header) -> Any:
    """The table with a format for each item; before 0.3 the header has one for all items."""
    if header.driver is None or spec.FILE_FORMAT in stored.column_names:
        return stored
    formats = texts_column([header.driver]).take(numbers_column(np.zeros(stored.num_rows, int)))
    return stored.append_column(spec.FILE_FORMAT, formats)


def without_foreign(table: Any) -> Any:
    """The table without the index of pandas and without paths that other readers stored."""
    foreign = [
        name
        for name in table.column_names
        if name.startswith(spec.INTERNAL) or spec.INDEX_COLUMN.fullmatch(name)
    ]
    return table.drop_columns(foreign) if foreign else table


def check_core(table: Any, where: str) -> None:
    """Raise for a footer without the required columns."""
    for name in spec.REQUIRED:
        if name not in table.column_names:
            raise InvalidMetadataError(
                "a mandatory column is missing",
                where=where,
                found=", ".join(table.column_names[:10]) or "no columns",
                expected=name,
            )
    for name in (spec.ID, spec.FILE_FORMAT):
        kind = table.schema.field(name).type
        empty = pa.types.is_null(kind) and not (table.num_rows and name == spec.FILE_FORMAT)
        if not (pa.types.is_string(kind) or empty):
            raise InvalidMetadataError(
                f"{name} is not text", where=where, found=str(kind), expected="string"
            )
    if table[spec.FILE_FORMAT].null_count:
        raise InvalidMetadataError("an item has no format", where=where, expected="no nulls")


def _check_spans(offsets: Ints, lengths: Ints, opened: Opened, where: str) -> None:
    wrong = outside(offsets, lengths, opened.header, opened.size)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InvalidMetadataError(
            "an item lies outside the data",
            where=f"{where}, row {row}",
            found=f"bytes {offsets[row]}+{lengths[row]}",
            expected=f"a span within {opened.header.size} to {opened.size}, and not in the footer",
            hint="'comal check' lists every such row",
        )
    shared = overlaps(offsets, lengths)
    if shared:
        first, second = shared[0]
        raise InvalidMetadataError(
            "two items overlap",
            where=f"{where}, rows {first} and {second}",
            found=f"bytes {offsets[first]}+{lengths[first]} and "
            f"{offsets[second]}+{lengths[second]}",
            expected="spans that are the same or do not overlap",
        )


def _text(column: Any) -> Any:
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


# -- types of the specification --------------------------------------------------------------------


def _typed(columns: Mapping[str, Any], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for stored, column in columns.items():
        name = spec.ALIASES.get(stored, stored)
        if name in columns and name != stored:
            name = stored  # both spellings exist: neither may hide the other
        found[name] = typed_column(name, column, where) if name in spec.TYPES else column
    return found


def typed_column(name: str, column: Any, where: str) -> Any:
    """The column in its type of the specification, or unchanged, with a warning."""
    wanted = spec.TYPES[name]
    if column.type.equals(wanted):
        return column
    try:
        return _RULES.get(name, _cast)(column, wanted)
    except (pa.ArrowException, ValueError, TypeError) as error:
        # Only Arrow casts run above: their errors are about the content.
        warn(
            f"{where}: {name} is {column.type} and cannot become {wanted} ({error}); "
            "the column is left as it is",
            TortillaWarning,
        )
        return column


def _cast(column: Any, wanted: Any) -> Any:
    if pa.types.is_string(wanted) and not pa.types.is_null(column.type):
        raise TypeError("not text")
    return pc.cast(column, wanted)


def _seconds(column: Any, wanted: Any) -> Any:
    """Seconds since 1970 from numbers or timestamps; NaN becomes null."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = pa.timestamp("s", tz=getattr(kind, "tz", None))
        return pc.cast(pc.cast(pc.floor_temporal(column, unit="second"), unit), wanted)
    if pa.types.is_floating(kind):
        column = pc.floor(column)
    return _whole(column, wanted)


def _rounded(column: Any, wanted: Any) -> Any:
    if pa.types.is_floating(column.type):
        column = pc.round(column)
    return _whole(column, wanted)


def _whole(column: Any, wanted: Any) -> Any:
    if pa.types.is_floating(column.type):
        known = pc.invert(pc.is_nan(column))
        column = pc.if_else(known, column, pa.scalar(None, column.type))
    elif not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise TypeError("not numbers")
    return pc.cast(column, wanted)


_RULES: Mapping[str, Callable[[Any, Any], Any]] = {
    spec.TIME_START: _seconds,
    spec.TIME_END: _seconds,
    spec.ELEVATION: _rounded,
}


# -- spans -----------------------------------------------------------------------------------------


Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_TOO_LARGE = np.iinfo(np.int64).max


def integers(column: Any, name: str, where: str) -> Ints:
    """A column of offsets or lengths as int64; larger values become the largest int64."""
    kind = column.type
    if not pa.types.is_integer(kind) and not (pa.types.is_null(kind) and not len(column)):
        raise InvalidMetadataError(
            f"{name} is not an integer", where=where, found=str(kind), expected="int64"
        )
    if column.null_count:
        row = int(np.argmin(valid_of(column)))
        raise InvalidMetadataError(f"{name} is null", where=f"{where}, row {row}")
    if pa.types.is_uint64(kind):
        # A value that would wrap is outside of any file anyway.
        column = pc.min_element_wise(column, pa.scalar(_TOO_LARGE, pa.uint64()))
    if not pa.types.is_int64(column.type):
        column = pc.cast(column, pa.int64())
    return numbers_of(one_array(column))


def outside(offsets: Ints, lengths: Ints, header: Header, size: int) -> Mask:
    """Which spans are not in the data of a file of `size` bytes.

    Header, footer and collection are not data; an empty item may be anywhere after the header.
    Gaps are legal, and so is data after the footer.
    """
    start = header.size
    # In an order in which no sum can wrap.
    wrong: Mask = (offsets < start) | (lengths < 0) | (offsets > size)
    wrong |= lengths > size - np.minimum(offsets, size)
    filled = ~wrong & (lengths > 0)
    for span in (header.footer, header.collection):
        if span is not None and span.size:
            wrong |= filled & (offsets < span.end) & (offsets + lengths > span.offset)
    return wrong


def overlaps(offsets: Ints, lengths: Ints) -> list[tuple[int, int]]:
    """Pairs of rows whose spans share bytes without being the same span.

    Spans must not be `outside`. Each row is at most once the later one of a pair.
    """
    ends = offsets + lengths
    if len(offsets) < 2 or (offsets[1:] >= ends[:-1]).all():
        return []
    rows = np.flatnonzero(lengths > 0)
    order = rows[np.lexsort((-lengths[rows], offsets[rows]))]
    starts, stops = offsets[order], ends[order]
    reach = np.maximum.accumulate(stops)[:-1]
    same = (starts[1:] == starts[:-1]) & (stops[1:] == stops[:-1])
    # The first of several rows with the same span represents all of them.
    bad = np.flatnonzero((starts[1:] < reach) & ~same) + 1
    places = np.arange(len(order))
    farthest = np.maximum.accumulate(np.where(stops >= np.maximum.accumulate(stops), places, 0))
    pairs = zip(order[farthest[bad - 1]].tolist(), order[bad].tolist(), strict=True)
    return sorted(pairs)
