"""Comparing columns of two tables that should say the same."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from comal.taco import spec
from comal.taco.checking.rows import flat


def same_type(first: Any, second: Any) -> bool:
    """Whether two types are one to a reader: offset sizes and child names do not count."""
    return spec.type_name(first) == spec.type_name(second)


def differing(first: Any, second: Any) -> list[int]:
    """Rows in which two columns of one length differ; NaN is equal to NaN."""
    first, second = flat(first), flat(second)
    if first.type != second.type:
        try:
            second = second.cast(first.type)
        except pa.ArrowException:
            return list(range(len(first)))
    if first.equals(second):
        return []
    try:
        pairs = list(zip(first.to_pylist(), second.to_pylist(), strict=True))
    except OverflowError:  # instants that Python's calendar does not hold
        pairs = list(zip(first, second, strict=True))
    return [row for row, (one, other) in enumerate(pairs) if not _same(one, other)]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other or (one != one and other != other))  # noqa: PLR0124 - NaN
