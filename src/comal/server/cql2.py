"""Filters in the text form of CQL2 (OGC 21-065): parsed into a tree, never into SQL.

The subset: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, over columns and literals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, QueryError, shown
from comal.geo import times


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
class And:
    """Parts joined by AND."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Parts joined by OR."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Truth:
    """A column of booleans, or TRUE and FALSE."""

    operand: Column | bool


Node = Comparison | Among | Between | Like | IsNull | Not | And | Or | Truth


_MOST_TOKENS = 2_000
_DEEPEST = 40
_LONGEST = 8_192

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.]))
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_][\w:.]*)
    | (?P<op><>|<=|>=|=|<|>|\(|\)|,)
    )""",
    re.VERBOSE | re.ASCII,
)
_COMPARISONS = frozenset({"=", "<>", "<", ">", "<=", ">="})
_WORDS = frozenset(
    {
        *("AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE"),
        *("TIMESTAMP", "DATE"),
    }
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word of a filter."""

    kind: str
    """``number``, ``text``, ``name``, ``word`` (of the language), ``op`` or ``end``."""
    value: str
    place: int


def parse(text: str) -> Node:
    """The tree of a filter.

    Raises
    ------
    QueryError
        It cannot be understood; the message says where.
    """
    if len(text) > _LONGEST:
        raise QueryError("the filter is too long", expected=f"at most {_LONGEST} characters")
    return _Parser(list(_tokens(text))).whole()


def _tokens(text: str) -> Iterator[Token]:
    place = 0
    end = len(text.rstrip())
    for _ in range(_MOST_TOKENS):
        if place >= end:
            yield Token("end", "", end)
            return
        match = _TOKEN.match(text, place)
        if match is None:
            raise _unexpected(text[place:].strip()[:20], place)
        place = match.end()
        yield _token(match)
    raise QueryError("the filter has too many words", expected=f"at most {_MOST_TOKENS}")


def _token(match: re.Match[str]) -> Token:
    kind = str(match.lastgroup)
    value, start = match[kind], match.start(kind)
    if kind == "text":
        return Token("text", value[1:-1].replace("''", "'"), start)
    if kind == "quoted":
        return Token("name", value[1:-1].replace('""', '"'), start)
    if kind == "word":
        upper = value.upper()
        return Token("word", upper, start) if upper in _WORDS else Token("name", value, start)
    return Token(kind, value, start)


def _unexpected(found: str, place: int) -> QueryError:
    return QueryError(
        "the filter cannot be understood",
        where=f"character {place + 1}",
        found=f"{shown(found) if found else 'its end'} at character {place + 1}",
        expected="CQL2 text such as: cloud_cover < 10 AND split IN ('train', 'test')",
    )


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._any()
        if self._next.kind != "end":
            raise self._fault()
        return node

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _fault(self) -> QueryError:
        return _unexpected(self._next.value, self._next.place)

    def _take(self, kind: str, value: str | None = None) -> Token | None:
        token = self._next
        if token.kind != kind or (value is not None and token.value != value):
            return None
        self._at += 1
        return token

    def _need(self, kind: str, value: str | None = None) -> Token:
        token = self._take(kind, value)
        if token is None:
            raise self._fault()
        return token

    # -- from the loosest to the tightest ----------------------------------------------------------

    def _any(self) -> Node:
        parts = self._joined("OR", self._all)
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _all(self) -> Node:
        parts = self._joined("AND", self._not)
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _joined(self, word: str, inner: Callable[[], Node]) -> list[Node]:
        parts = [inner()]
        while self._take("word", word):
            parts.append(inner())
        return parts

    def _not(self) -> Node:
        count = 0
        while self._take("word", "NOT"):
            count += 1
        node = self._grouped() if self._take("op", "(") else self._predicate()
        return Not(node) if count % 2 else node

    def _grouped(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise QueryError("the filter is nested too deep", expected=f"at most {_DEEPEST}")
        node = self._any()
        self._need("op", ")")
        self._depth -= 1
        return node

    def _predicate(self) -> Node:
        left = self._operand()
        if self._next.kind == "op" and self._next.value in _COMPARISONS:
            op = self._need("op").value
            return Comparison(op, left, self._operand())
        if isinstance(left, Column):
            return self._about(left)
        if isinstance(left, bool):
            return Truth(left)
        raise self._fault()

    def _about(self, column: Column) -> Node:
        if self._take("word", "IS"):
            negated = self._take("word", "NOT") is not None
            self._need("word", "NULL")
            return _negated(IsNull(column), negated)
        negated = self._take("word", "NOT") is not None
        if self._take("word", "IN"):
            return _negated(Among(column, self._list()), negated)
        if self._take("word", "LIKE"):
            return _negated(Like(column, self._need("text").value), negated)
        if self._take("word", "BETWEEN"):
            low = self._value()
            self._need("word", "AND")
            return _negated(Between(column, low, self._value()), negated)
        if negated:
            raise self._fault()
        return Truth(column)

    def _list(self) -> tuple[Value, ...]:
        self._need("op", "(")
        values = [self._value()]
        while self._take("op", ","):
            values.append(self._value())
        self._need("op", ")")
        return tuple(values)

    def _operand(self) -> Operand:
        name = self._take("name")
        return Column(name.value) if name else self._value()

    def _value(self) -> Value:
        token = self._next
        if token.kind == "number":
            self._at += 1
            return _number(token)
        if token.kind == "text":
            self._at += 1
            return token.value
        if token.kind == "word" and token.value in {"TRUE", "FALSE"}:
            self._at += 1
            return token.value == "TRUE"
        if token.kind == "word" and token.value in {"TIMESTAMP", "DATE"}:
            return self._instant()
        raise self._fault()

    def _instant(self) -> Instant:
        self._need("word")
        self._need("op", "(")
        token = self._need("text")
        self._need("op", ")")
        return instant(token.value)


def instant(text: str) -> Instant:
    """The instant, or the day, that a text names.

    Raises
    ------
    QueryError
        It names none.
    """
    try:
        first, last = times.parse_range((text, text))
    except InvalidInputError as error:
        raise QueryError("not a point in time", found=shown(text)) from error
    if first is None or last is None:
        raise QueryError("not a point in time", found=shown(text))
    return Instant(first, last, text)


def _negated(node: Node, negated: bool) -> Node:  # noqa: FBT001 - as it was read
    return Not(node) if negated else node


def _number(token: Token) -> float | int:
    text = token.value
    if text.lstrip("+-").isdigit() and len(text) <= 19:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise QueryError("a number is too large", found=shown(text))
    return value


Bools = npt.NDArray[np.bool_]

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def matching(node: Node, table: Any) -> Bools:
    """Which rows of `table` match.

    Raises
    ------
    QueryError
        A column that is not there, or a comparison that makes no sense.
    """
    try:
        mask = _mask(node, table)
    except pa.ArrowException as error:
        raise QueryError("the filter cannot be applied to these columns") from error
    return np.asarray(pc.fill_null(mask, False), np.bool_)


def _mask(node: Node, table: Any) -> Any:
    match node:
        case And(parts):
            return reduce(pc.and_kleene, (_mask(part, table) for part in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (_mask(part, table) for part in parts))
        case Not(inner):
            return pc.invert(_mask(inner, table))
        case Truth(operand):
            return _truth(operand, table)
        case IsNull(column):
            values = _column(column, table)
            return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
        case _:
            return _predicate(node, table)


def _predicate(node: Node, table: Any) -> Any:
    match node:
        case Comparison(op, left, right):
            return _comparison(op, left, right, table)
        case Between(column, low, high):
            values = _column(column, table)
            return pc.and_kleene(_against(">=", values, low), _against("<=", values, high))
        case Among(column, wanted):
            values = _column(column, table)
            return reduce(pc.or_kleene, (_against("=", values, value) for value in wanted))
        case Like(column, pattern):
            values = _column(column, table)
            if not _is_text(values.type):
                raise QueryError("LIKE is for texts", found=f"column {shown(column.name)}")
            return pc.match_like(values, pattern)
    raise AssertionError(node)


def _truth(operand: Column | bool, table: Any) -> Any:  # noqa: FBT001 - TRUE and FALSE
    if isinstance(operand, bool):
        return pa.array(np.full(table.num_rows, operand))
    values = _column(operand, table)
    if not pa.types.is_boolean(values.type):
        raise QueryError(
            "a column alone must be of booleans", found=f"column {shown(operand.name)}"
        )
    return values


def _column(column: Column, table: Any) -> Any:
    names = table.column_names
    if names.count(column.name) != 1:
        listed = ", ".join(shown(name) for name in names[:40])
        raise QueryError(f"there is no column {shown(column.name)}", expected=listed)
    return table.column(column.name)


def _comparison(op: str, left: Operand, right: Operand, table: Any) -> Any:
    if isinstance(left, Column) and isinstance(right, Column):
        both = [_column(side, table) for side in (left, right)]
        if all(_is_time(values.type) for values in both):
            both = [_moments(values) for values in both]  # with a zone or without
        return _COMPARE[op](*both)
    if isinstance(left, Column) and not isinstance(right, Column):
        return _against(op, _column(left, table), right)
    if isinstance(right, Column) and not isinstance(left, Column):
        return _against(_TURNED[op], _column(right, table), left)
    raise QueryError("a comparison needs a column")


def _against(op: str, values: Any, value: Value) -> Any:
    """A column compared with a literal, which must be of its kind."""
    kind = values.type
    if _is_time(kind):
        return _in_time(op, values, value)
    if isinstance(value, bool):
        fits = pa.types.is_boolean(kind)
    elif isinstance(value, int | float):
        fits = _is_number(kind)
    else:
        fits = isinstance(value, str) and _is_text(kind)
    if not fits:
        raise QueryError("a column is compared with another kind of value", found=str(kind))
    scalar = pa.scalar(float(value)) if isinstance(value, float) else pa.scalar(value)
    result = _COMPARE[op](values, scalar)
    if pa.types.is_floating(kind):
        # NaN stands for a missing value in many tables: no comparison holds for it.
        result = pc.and_kleene(result, pc.invert(pc.is_nan(values)))
    return result


def _in_time(op: str, values: Any, value: Value) -> Any:
    if isinstance(value, str):
        value = instant(value)
    if not isinstance(value, Instant):
        raise QueryError("a time is compared with another kind of value", found=shown(value))
    moments = _moments(values)
    first, last = pa.scalar(value.first), pa.scalar(value.last)
    if op in {"=", "<>"}:
        within = pc.and_kleene(pc.greater_equal(moments, first), pc.less_equal(moments, last))
        return within if op == "=" else pc.invert(within)
    return _COMPARE[op](moments, last if op in {">", "<="} else first)


def _moments(values: Any) -> Any:
    """Times as microseconds since 1970."""
    return pc.cast(values, pa.timestamp("us"), safe=False).cast(pa.int64())


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_number(kind: Any) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
