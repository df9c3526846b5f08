"""Filters in the text form of CQL2 (OGC 21-065): parsed and applied to the rows of a table.

The subset: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, over columns and literals. It
is evaluated by Arrow while it is parsed; no filter is ever run as SQL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
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
    """A column of the table."""

    name: str
    values: Any
    """Times as microseconds since 1970 UTC."""
    type: Any
    """The type in the table."""

    @property
    def is_time(self) -> bool:
        """Whether it holds instants or days."""
        return bool(pa.types.is_timestamp(self.type) or pa.types.is_date(self.type))

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers."""
        tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
        return any(test(self.type) for test in tests)

    @property
    def is_text(self) -> bool:
        """Whether it holds texts."""
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time, in microseconds since 1970 UTC; a date is a whole day."""

    first: int
    last: int


Operand = Column | float | int | str | bool | Instant


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
    raise QueryError("the filter has too many words", expected=f"at most {_MOST_TOKENS} words")


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


_WHOLE = pa.decimal128(20)
"""Holds every integer of 64 bits, with or without a sign."""
_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def matching(text: str, table: Any) -> npt.NDArray[np.bool_]:
    """Which rows of `table` match a filter.

    Raises
    ------
    QueryError
        The filter cannot be understood, or makes no sense for these columns.
    """
    if len(text) > _LONGEST:
        raise QueryError("the filter is too long", expected=f"at most {_LONGEST} characters")
    try:
        mask = _Filter(list(_tokens(text)), table).whole()
    except pa.ArrowException as error:
        raise QueryError("the filter cannot be applied to these columns") from error
    return np.asarray(pc.fill_null(mask, False), np.bool_)


class _Filter:
    """Parses from the loosest to the tightest operator; each method returns the mask of a part."""

    def __init__(self, tokens: list[Token], table: Any) -> None:
        self._tokens = tokens
        self._table = table
        self._at = 0
        self._depth = 0

    def whole(self) -> Any:
        mask = self._any()
        if self._next.kind != "end":
            raise self._fault()
        return mask

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _fault(self) -> QueryError:
        return _unexpected(self._next.value, self._next.place)

    def _take(self, kind: str, *values: str) -> Token | None:
        token = self._next
        if token.kind != kind or (values and token.value not in values):
            return None
        self._at += 1
        return token

    def _need(self, kind: str, *values: str) -> Token:
        token = self._take(kind, *values)
        if token is None:
            raise self._fault()
        return token

    def _any(self) -> Any:
        return self._joined("OR", self._all, pc.or_kleene)

    def _all(self) -> Any:
        return self._joined("AND", self._not, pc.and_kleene)

    def _joined(self, word: str, inner: Callable[[], Any], join: Callable[[Any, Any], Any]) -> Any:
        mask = inner()
        while self._take("word", word):
            mask = join(mask, inner())
        return mask

    def _not(self) -> Any:
        count = 0
        while self._take("word", "NOT"):
            count += 1
        mask = self._grouped() if self._take("op", "(") else self._predicate()
        return pc.invert(mask) if count % 2 else mask

    def _grouped(self) -> Any:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise QueryError("the filter is nested too deep", expected=f"at most {_DEEPEST} levels")
        mask = self._any()
        self._need("op", ")")
        self._depth -= 1
        return mask

    def _predicate(self) -> Any:
        left = self._operand()
        token = self._take("op", *_COMPARE)
        if token is not None:
            return _compared(token.value, left, self._operand())
        if isinstance(left, Column):
            return self._about(left)
        if isinstance(left, bool):
            return pa.array(np.full(self._table.num_rows, left))
        raise self._fault()

    def _about(self, column: Column) -> Any:
        if self._take("word", "IS"):
            negated = self._take("word", "NOT")
            self._need("word", "NULL")
            is_float = pa.types.is_floating(column.values.type)
            mask = pc.is_null(column.values, nan_is_null=is_float)
        else:
            negated = self._take("word", "NOT")
            if self._take("word", "IN"):
                equal = (_compared("=", column, value) for value in self._list())
                mask = reduce(pc.or_kleene, equal)
            elif self._take("word", "LIKE"):
                mask = _like(column, self._need("text").value)
            elif self._take("word", "BETWEEN"):
                low = _compared(">=", column, self._value())
                self._need("word", "AND")
                mask = pc.and_kleene(low, _compared("<=", column, self._value()))
            elif negated:
                raise self._fault()
            else:
                mask = _alone(column)
        return pc.invert(mask) if negated else mask

    def _list(self) -> Iterator[Operand]:
        self._need("op", "(")
        yield self._value()
        while self._take("op", ","):
            yield self._value()
        self._need("op", ")")

    def _operand(self) -> Operand:
        name = self._take("name")
        return self._column(name.value) if name else self._value()

    def _column(self, name: str) -> Column:
        schema = self._table.schema
        if schema.names.count(name) != 1:
            listed = ", ".join(shown(one) for one in schema.names[:40])
            raise QueryError(f"there is no column {shown(name)}", expected=listed)
        found = Column(name, self._table.column(name), schema.field(name).type)
        if not found.is_time:
            return found
        moments = pc.cast(found.values, pa.timestamp("us"), safe=False).cast(pa.int64())
        return Column(name, moments, found.type)

    def _value(self) -> Operand:
        if token := self._take("number"):
            return _number(token.value)
        if token := self._take("text"):
            return token.value
        if token := self._take("word", "TRUE", "FALSE"):
            return token.value == "TRUE"
        self._need("word", "TIMESTAMP", "DATE")
        self._need("op", "(")
        token = self._need("text")
        self._need("op", ")")
        return _instant(token.value)


def _instant(text: str) -> Instant:
    """Parse an instant or a day; raises QueryError for other texts."""
    try:
        first, last = times.parse_range((text, text))
    except InvalidInputError as error:
        raise QueryError("not a point in time", found=shown(text)) from error
    if first is None or last is None:
        raise QueryError("not a point in time", found=shown(text))
    return Instant(first, last)


def _number(text: str) -> float | int:
    if text.lstrip("+-").isdigit() and len(text) <= 21 and abs(int(text)) < 2**64:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise QueryError("a number is too large", found=shown(text))
    return value


# -- masks -----------------------------------------------------------------------------------------


def _compared(op: str, left: Operand, right: Operand) -> Any:
    """The rows for which a comparison holds; one of the sides is a column."""
    if not isinstance(left, Column):
        if not isinstance(right, Column):
            raise QueryError("a comparison needs a column")
        return _compared(_TURNED[op], right, left)
    if isinstance(right, Column):
        if left.is_time != right.is_time:
            text = "a time is compared with something that is not a time"
            raise QueryError(text, found=str(right.type))
        sides = [left.values, right.values]
        if left.is_number and right.is_number and _floating(left, right):
            sides = [_doubles(one) for one in sides]
        elif pa.uint64() in (left.type, right.type):  # Arrow knows no integers above those
            sides = [one.cast(_WHOLE) if pa.types.is_integer(one.type) else one for one in sides]
        return _known(_COMPARE[op](*sides), left, right)
    first, last = _fitting(right, left)
    if first != last and op in {"=", "<>"}:
        within = pc.and_kleene(_compared(">=", left, right), _compared("<=", left, right))
        return within if op == "=" else pc.invert(within)
    value = last if op in {">", "<="} else first
    if isinstance(value, float):
        return _known(_COMPARE[op](_doubles(left.values), pa.scalar(value)), left)
    kind = None if isinstance(value, Decimal) else left.values.type
    return _known(_COMPARE[op](left.values, pa.scalar(value, kind)), left)


def _floating(*columns: Column) -> list[Column]:
    return [one for one in columns if pa.types.is_floating(one.type)]


def _doubles(values: Any) -> Any:
    """Numbers as float64. Arrow would refuse those of a column that float64 has not exactly."""
    return values.cast(pa.float64(), safe=False)


def _known(mask: Any, *columns: Column) -> Any:
    """A mask that is null for NaN, which means a missing value in many tables."""
    for one in _floating(*columns):
        mask = pc.if_else(pc.is_nan(one.values), None, mask)
    return mask


def _like(column: Column, pattern: str) -> Any:
    """In a pattern % is any text, _ is one character, and a backslash escapes both."""
    if not column.is_text:
        raise QueryError("LIKE needs a column of text", found=f"column {shown(column.name)}")
    return pc.match_like(column.values, pattern)


def _alone(column: Column) -> Any:
    if not pa.types.is_boolean(column.type):
        text = "a column that stands alone must be boolean"
        raise QueryError(text, found=f"column {shown(column.name)}")
    return column.values


def _fitting(value: Any, column: Column) -> tuple[Any, Any]:
    """First and last value that a literal means for a column; for times, texts are times."""
    if column.is_time:
        moment = _instant(value) if isinstance(value, str) else value
        if not isinstance(moment, Instant):
            raise QueryError(
                "a time is compared with something that is not a time", found=shown(value)
            )
        return moment.first, moment.last
    kind = column.type
    if isinstance(value, bool):
        fits = pa.types.is_boolean(kind)
    elif isinstance(value, int | float):
        fits = column.is_number
    else:
        fits = isinstance(value, str) and column.is_text
    if not fits:
        raise QueryError("a column is compared with a value of another type", found=str(kind))
    return _ends(value, kind) if column.is_number else (value, value)


def _ends(value: float, kind: Any) -> tuple[Any, Any]:
    """First and last value that a number means for a column of a type of numbers."""
    if pa.types.is_floating(kind):
        return float(value), float(value)
    if pa.types.is_decimal(kind):
        number = Decimal(value) if isinstance(value, int) else value
        return number, number
    # Of a fraction the first is above the last, so that nothing equals it.
    first, last = math.ceil(value), math.floor(value)
    limits = np.iinfo(kind.to_pandas_dtype())
    if limits.min <= last and first <= limits.max:
        return first, last
    beyond = math.copysign(math.inf, value)
    return beyond, beyond
