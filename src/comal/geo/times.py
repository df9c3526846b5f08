"""Instants and ranges of time as integer microseconds since 1970-01-01 UTC.

TACO stores times as ``timestamp[us]`` without a zone, which are instants of UTC. A naive value is
interpreted as UTC, never as local time.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, translated
from comal.lazy import pc

Instant = int | str | dt.datetime | dt.date | np.datetime64
"""Types accepted as a point in time; an integer is microseconds since 1970-01-01 UTC."""

OPEN = ".."
"""The open end of a range, as in STAC and RFC 3339 intervals."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_PER_SECOND = 1_000_000
_PERIODS = ("Y", "M", "W", "D")
_EXPECTED = "microseconds since 1970 as int, a datetime, a date or ISO 8601 text"


def parse_instant(value: Instant, where: str = "time") -> int:
    """A point in time as microseconds since 1970-01-01 UTC.

    Parameters
    ----------
    value
        Microseconds as an integer, datetime (naive is UTC), date (its first instant), numpy
        datetime64 or ISO 8601 text.
    where
        The field that holds the value, for error messages.

    Raises
    ------
    InvalidInputError
        The value is not a point in time, or does not fit in 64 bits.
    """
    return _bounds(value, where)[0]


def parse_range(value: Any, where: str = "datetime range") -> tuple[int | None, int | None]:
    """A range of time as its first and last microsecond, both included.

    Parameters
    ----------
    value
        ``"2023-01-01/2023-12-31"``, one instant (text, datetime, date, datetime64, integer) or a
        pair of them. ``".."``, an empty text or None leaves an end open. A date alone means the
        whole day, at either end; a naive time is UTC.
    where
        What the range belongs to, for error messages.

    Returns
    -------
    (start, end) in microseconds since 1970-01-01 UTC; None is an open end.

    Raises
    ------
    InvalidInputError
        Not a range, or one that ends before it starts.
    """
    first, last = _ends(value, where)
    start = None if _is_open(first) else _bounds(first, where)[0]
    end = None if _is_open(last) else _bounds(last, where)[1]
    if start is not None and end is not None and start > end:
        raise InvalidInputError(
            "the time range ends before it starts",
            where=where,
            found=f"{first} to {last}",
            expected="start <= end",
        )
    return start, end


def timestamps(values: Any, where: str = "time") -> Any:
    """Many instants as one Arrow array ``timestamp[us]`` without zone, in UTC.

    Integers, datetime64 and Arrow arrays are converted at once. Text and Python objects are
    parsed value by value; None and NaT are null.
    """
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return _arrow_timestamps(values, where)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iuM":
        kind = "datetime64[us]" if values.dtype.kind == "M" else np.int64
        return pa.array(values.astype(kind)).cast(pa.timestamp("us"))
    parsed = [None if value is None else parse_instant(value, where) for value in values]
    return pa.array(parsed, pa.timestamp("us"))


def _arrow_timestamps(values: Any, where: str) -> Any:
    kind = values.type
    with translated({pa.ArrowException: InvalidInputError}, f"{where} cannot be read as times"):
        if pa.types.is_timestamp(kind):
            # A zone only says how to print: the stored number is UTC either way.
            values = values.cast(pa.timestamp(kind.unit))
            whole = values.cast(pa.timestamp("us"), safe=False)
            # A cast of times before 1970 rounds up.
            after = pc.greater(whole.cast(values.type, safe=False), values)
            return pc.if_else(after, pc.subtract(whole, _MICROSECOND), whole)
        if pa.types.is_integer(kind):
            return values.cast(pa.int64()).cast(pa.timestamp("us"))
        if pa.types.is_date(kind):
            return values.cast(pa.timestamp("us"))
        if pa.types.is_null(kind):
            return pa.nulls(len(values), pa.timestamp("us"))
    return timestamps(values.to_pylist(), where)


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""The first and the last instant of the years 1 to 9999, in microseconds since 1970 UTC."""


def isoformat(microseconds: int) -> str:
    """An instant as ISO 8601 text in UTC: ``2023-01-01T00:30:00Z``, fractions only when needed."""
    text = (_EPOCH + microseconds * _MICROSECOND).isoformat()
    return text.replace("+00:00", "Z")


def values_of(column: Any) -> list[Any]:
    """The values of an Arrow column, as by ``to_pylist``, whatever times they are or hold.

    Python has no nanoseconds: where pandas is not there, such a time is a text. Beyond the years 1
    to 9999 it is a number.
    """
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = [_value_of(one) for one in column]
    return found


def _value_of(one: Any) -> Any:
    kind = one.type
    if not one.is_valid or not pa.types.is_nested(kind):
        try:
            return one.as_py()
        except OverflowError:
            return one.value
        except ValueError:
            return one.cast(pa.string()).as_py().replace(" ", "T")
    if pa.types.is_struct(kind):
        return {name: _value_of(value) for name, value in one.items()}
    inner = values_of(one.values)
    return [tuple(pair.values()) for pair in inner] if pa.types.is_map(kind) else inner


def _ends(value: Any, where: str) -> tuple[Any, Any]:
    """First and last value of a range."""
    if isinstance(value, str) and "/" in value:
        value = [part.strip() for part in value.split("/")]
    elif isinstance(value, list | tuple | np.ndarray):
        value = list(value)
    else:
        if _is_open(value):
            raise InvalidInputError(
                "not a time range", where=where, found=repr(value), expected="start/end"
            )
        return value, value
    if len(value) != 2:
        raise InvalidInputError(
            "not a time range", where=where, found=f"{len(value)} values", expected="start and end"
        )
    return value[0], value[1]


def _is_open(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value.strip() in {"", OPEN})


def _bounds(value: Any, where: str) -> tuple[int, int]:
    """First and last microsecond of an instant, of a day or of a longer calendar period."""
    if isinstance(value, str):
        value = _from_text(value, where)
    if isinstance(value, np.datetime64):
        return _datetime64_bounds(value, where)
    if isinstance(value, dt.datetime):
        aware = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value
        instant = (aware - _EPOCH) // _MICROSECOND
        return instant, instant
    if isinstance(value, dt.date):
        return _datetime64_bounds(np.datetime64(value, "D"), where)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        instant = int(value)
        if not -(2**63) < instant < 2**63:  # the lowest 64-bit number is NaT
            raise _unusable(value, where)
        return instant, instant
    raise _unusable(value, where)


def _datetime64_bounds(value: np.datetime64, where: str) -> tuple[int, int]:
    if np.isnat(value):
        raise _unusable(value, where)
    start = int(value.astype("datetime64[us]").astype(np.int64))
    if np.datetime_data(value.dtype)[0] not in _PERIODS:
        return start, start
    following = (value + 1).astype("datetime64[us]").astype(np.int64)
    return start, int(following) - 1


def _from_text(text: str, where: str) -> dt.datetime | dt.date:
    text = text.strip()
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        pass  # not a date alone
    try:
        return dt.datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise _unusable(text, where) from error


def _unusable(value: object, where: str) -> InvalidInputError:
    return InvalidInputError(
        "not a point in time", where=where, found=repr(value)[:60], expected=_EXPECTED
    )


def middles(starts: Sequence[int] | npt.NDArray[np.int64], ends: Any) -> npt.NDArray[np.int64]:
    """floor((start + end) / 2) of microseconds, without 64-bit overflow."""
    first, last = np.asarray(starts, np.int64), np.asarray(ends, np.int64)
    result: npt.NDArray[np.int64] = (first & last) + ((first ^ last) >> 1)
    return result


def within(
    values: Any, start: int | None, end: int | None, where: str, *, seconds: bool = False
) -> npt.NDArray[np.bool_]:
    """Which times of an Arrow column are in a range, both ends included; None is an open end.

    `start` and `end` are microseconds since 1970 UTC, as from `parse_range`. With `seconds`,
    numbers in the column are seconds since 1970. `where` is the column, for error messages.
    """
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if seconds and is_number:
        # Compare in seconds, as times in microseconds may not fit in 64 bits.
        start = None if start is None else -(-start // _PER_SECOND)
        end = None if end is None else end // _PER_SECOND
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_finite(column), pc.floor(column), None)
    else:
        column = timestamps(column, where).cast(pa.int64())
    result = np.asarray(pc.is_valid(column), np.bool_)
    moments = np.asarray(pc.fill_null(column, 0))
    if start is not None:
        result = result & (moments >= start)
    if end is not None:
        result = result & (moments <= end)
    return result
