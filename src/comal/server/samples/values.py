"""Values of Arrow columns as JSON shows them, and kinds of columns in a few words."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from comal.geo import times
from comal.geo.places import CENTROIDS, GEOMETRY

_GEOMETRY = frozenset({GEOMETRY, *CENTROIDS, "geometry", "geom"})
_TEXT_GEOMETRY = frozenset({"stac:centroid"})


def kind_of(name: str, kind: Any) -> str:
    """``number``, ``text``, ``boolean``, ``time``, ``geometry``, ``list`` or ``other``."""
    types = pa.types
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "geometry" if name in _GEOMETRY or name.endswith(":geometry") else "other"
    if types.is_string(kind) or types.is_large_string(kind):
        return "geometry" if name in _TEXT_GEOMETRY else "text"
    tests = (
        ("boolean", types.is_boolean),
        ("number", types.is_integer),
        ("number", types.is_floating),
        ("number", types.is_decimal),
        ("time", types.is_timestamp),
        ("time", types.is_date),
        ("list", types.is_nested),
    )
    return next((word for word, test in tests if test(kind)), "other")


def column_of(field: Any) -> dict[str, str]:
    """A column as the documents of the server name it."""
    return {
        "name": field.name,
        "type": str(field.type),
        "kind": kind_of(field.name, field.type),
    }


def shown_values(column: Any) -> list[Any]:
    """The values of a column as JSON: times as texts in UTC, bytes and NaN as null."""
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        moments = pc.cast(column, pa.timestamp("us"), safe=False).cast(pa.int64())
        return [shown_time(moment) for moment in moments.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return [None] * len(column)
    return [plain(value) for value in column.to_pylist()]


def shown_time(microseconds: int | None) -> str | None:
    """An instant as text; None for null and for years that no calendar shows."""
    if microseconds is None:
        return None
    try:
        return times.isoformat(microseconds)
    except OverflowError:
        return None


def plain(value: Any) -> Any:
    """A Python value as JSON can say it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return plain(float(value))
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, bytes) else str(value)
