"""What a filter is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Column:
    """The values of a column."""

    name: str


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time, in microseconds since 1970 UTC; a date is a whole day."""

    first: int
    last: int
    text: str


Value = float | int | str | bool | Instant
Operand = Column | Value


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left op right`` with one of = <> < > <= >=."""

    op: str
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Among:
    """``column IN (...)``."""

    column: Column
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Between:
    """``column BETWEEN low AND high``, both ends included."""

    column: Column
    low: Value
    high: Value


@dataclass(frozen=True, slots=True)
class Like:
    """``column LIKE 'pattern'``: % is any text, _ one character, a backslash takes away both."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    """``column IS NULL``."""

    column: Column


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite; of what is unknown, unknown."""

    inner: Node


@dataclass(frozen=True, slots=True)
class All:
    """Parts joined by AND."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Parts joined by OR."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """A column of booleans, or TRUE and FALSE."""

    operand: Column | bool


Node = Comparison | Among | Between | Like | IsNull | Not | All | Any | Truth
