"""Lists of small records (publications, classes, bands) as one row of a collection."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from comal.errors import InvalidInputError

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
