"""Filters in the text form of CQL2 (OGC 21-065): parsed into a tree, whose rows Arrow finds.

The subset: comparisons, AND, OR, NOT, IN, BETWEEN, LIKE, IS NULL, over columns and literals. No
filter is ever run as SQL; `as_sql` writes it for people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
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
    """The values of a column; alone, of booleans."""

    name: str


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time, in microseconds since 1970 UTC; a date is a whole day."""

    first: int
    last: int


Operand = Column | float | int | str | bool | Instant


@dataclass(frozen=True, slots=True)
class Call:
    """An operation as CQL2 has it in JSON.

    ``and``, ``or`` and ``not`` of other nodes; a comparison of two operands; ``in`` and
    ``between``, ``like`` and ``isNull`` of a column and its literals. In a pattern % is any text, _
    one character, and a backslash takes away both.
    """

    op: str
    args: tuple[Any, ...]


Node = Call | Column | bool


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


def parse(text: str) -> Node:
    """The tree of a filter; a QueryError says where it cannot be understood."""
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

    # -- from the loosest to the tightest ----------------------------------------------------------

    def _any(self) -> Node:
        return self._joined("or", self._all)

    def _all(self) -> Node:
        return self._joined("and", self._not)

    def _joined(self, op: str, inner: Callable[[], Node]) -> Node:
        parts = [inner()]
        while self._take("word", op.upper()):
            parts.append(inner())
        return parts[0] if len(parts) == 1 else Call(op, tuple(parts))

    def _not(self) -> Node:
        count = 0
        while self._take("word", "NOT"):
            count += 1
        node = self._grouped() if self._take("op", "(") else self._predicate()
        return Call("not", (node,)) if count % 2 else node

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
        token = self._take("op", *_COMPARE)
        if token is not None:
            return Call(token.value, (left, self._operand()))
        if isinstance(left, Column):
            return self._about(left)
        if isinstance(left, bool):
            return left
        raise self._fault()

    def _about(self, column: Column) -> Node:
        if self._take("word", "IS"):
            negated = self._take("word", "NOT")
            self._need("word", "NULL")
            node: Node = Call("isNull", (column,))
        else:
            negated = self._take("word", "NOT")
            if self._take("word", "IN"):
                node = Call("in", (column, *self._list()))
            elif self._take("word", "LIKE"):
                node = Call("like", (column, self._need("text").value))
            elif self._take("word", "BETWEEN"):
                low = self._value()
                self._need("word", "AND")
                node = Call("between", (column, low, self._value()))
            elif negated:
                raise self._fault()
            else:
                node = column
        return Call("not", (node,)) if negated else node

    def _list(self) -> Iterator[Operand]:
        self._need("op", "(")
        yield self._value()
        while self._take("op", ","):
            yield self._value()
        self._need("op", ")")

    def _operand(self) -> Operand:
        name = self._take("name")
        return Column(name.value) if name else self._value()

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
        return instant(token.value)


def instant(text: str) -> Instant:
    """The instant, or the day, that a text names; a QueryError where it names none."""
    try:
        first, last = times.parse_range((text, text))
    except InvalidInputError as error:
        raise QueryError("not a point in time", found=shown(text)) from error
    if first is None or last is None:
        raise QueryError("not a point in time", found=shown(text))
    return Instant(first, last)


def _number(text: str) -> float | int:
    if text.lstrip("+-").isdigit() and len(text) <= 20 and abs(int(text)) < 2**63:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise QueryError("a number is too large", found=shown(text))
    return value


# -- over the columns of a table -------------------------------------------------------------------

_COMPARE = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bound(node: Node, schema: Any) -> Node:
    """The same filter over columns of these types.

    Columns stand on the left, and times are compared with single instants.
    """
    match node:
        case Call("and" | "or" | "not", parts):
            return Call(node.op, tuple(bound(part, schema) for part in parts))
        case Call("isNull", (column,)):
            _type_of(column, schema)
        case Call("like", (column, _)):
            if not _is_text(_type_of(column, schema)):
                raise QueryError("LIKE is for texts", found=f"column {shown(column.name)}")
        case Call("between" | "in", (column, *values)):
            return _several(node.op, column, values, schema)
        case Call(op, (left, right)):
            return _comparison(op, left, right, schema)
        case Column(name):
            if not pa.types.is_boolean(_type_of(node, schema)):
                text = "a column alone must be of booleans"
                raise QueryError(text, found=f"column {shown(name)}")
    return node


def _type_of(column: Column, schema: Any) -> Any:
    if schema.names.count(column.name) != 1:
        listed = ", ".join(shown(name) for name in schema.names[:40])
        raise QueryError(f"there is no column {shown(column.name)}", expected=listed)
    return schema.field(column.name).type


def _comparison(op: str, left: Operand, right: Operand, schema: Any) -> Node:
    if not isinstance(left, Column):
        if not isinstance(right, Column):
            raise QueryError("a comparison needs a column")
        return _comparison(_TURNED[op], right, left, schema)
    kind = _type_of(left, schema)
    if isinstance(right, Column):
        other = _type_of(right, schema)
        if _is_time(kind) != _is_time(other):
            raise QueryError("a time is compared with another kind of value", found=str(other))
        return Call(op, (left, right))
    value = _fitting(right, kind)
    if not isinstance(value, Instant):
        return Call(op, (left, value))
    if op in {"=", "<>"} and value.first != value.last:
        within = Call("between", (left, *_ends(value, value)))
        return within if op == "=" else Call("not", (within,))
    first, last = _ends(value, value)
    return Call(op, (left, last if op in {">", "<="} else first))


def _several(op: str, column: Column, values: list[Operand], schema: Any) -> Node:
    kind = _type_of(column, schema)
    fitting = [_fitting(value, kind) for value in values]
    if not _is_time(kind):
        return Call(op, (column, *fitting))
    if op == "between":
        return Call(op, (column, *_ends(*fitting)))
    return Call("or", tuple(_comparison("=", column, value, schema) for value in fitting))


def _ends(low: Any, high: Any) -> tuple[Instant, Instant]:
    return Instant(low.first, low.first), Instant(high.last, high.last)


def _fitting(value: Any, kind: Any) -> Any:
    """A literal beside a column of this type; beside times texts stand for times."""
    if _is_time(kind):
        if isinstance(value, str):
            value = instant(value)
        if not isinstance(value, Instant):
            raise QueryError("a time is compared with another kind of value", found=shown(value))
        return value
    if isinstance(value, bool):
        fits = pa.types.is_boolean(kind)
    elif isinstance(value, int | float):
        fits = _is_number(kind)
    else:
        fits = isinstance(value, str) and _is_text(kind)
    if not fits:
        raise QueryError("a column is compared with another kind of value", found=str(kind))
    return value


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_number(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# -- the rows that match ---------------------------------------------------------------------------


def matching(node: Node, table: Any) -> npt.NDArray[np.bool_]:
    """Which rows of `table` match; a QueryError where the filter makes no sense for it."""
    try:
        mask = _mask(bound(node, table.schema), table)
    except pa.ArrowException as error:
        raise QueryError("the filter cannot be applied to these columns") from error
    return np.asarray(pc.fill_null(mask, False), np.bool_)


def _mask(node: Node, table: Any) -> Any:
    match node:
        case bool():
            return pa.array(np.full(table.num_rows, node))
        case Column(name):
            return table.column(name)
        case Call("and", parts):
            return reduce(pc.and_kleene, (_mask(part, table) for part in parts))
        case Call("or", parts):
            return reduce(pc.or_kleene, (_mask(part, table) for part in parts))
        case Call("not", (inner,)):
            return pc.invert(_mask(inner, table))
        case Call(op, (column, *others)):
            values = _values(column, table)
            found = _holds(op, values, [_values(other, table) for other in others])
            # NaN stands for a missing value in many tables: no comparison holds for it.
            is_compared = op != "isNull" and pa.types.is_floating(values.type)
            return pc.and_kleene(found, pc.invert(pc.is_nan(values))) if is_compared else found


def _holds(op: str, values: Any, others: list[Any]) -> Any:
    match op:
        case "isNull":
            return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
        case "like":
            return pc.match_like(values, others[0].as_py())
        case "in":
            return reduce(pc.or_kleene, (pc.equal(values, other) for other in others))
        case "between":
            low, high = others
            return pc.and_kleene(pc.greater_equal(values, low), pc.less_equal(values, high))
    return _COMPARE[op](values, others[0])


def _values(operand: Operand, table: Any) -> Any:
    """A column or a literal for Arrow; times as microseconds since 1970."""
    if isinstance(operand, Column):
        values = table.column(operand.name)
        if not _is_time(values.type):
            return values
        return pc.cast(values, pa.timestamp("us"), safe=False).cast(pa.int64())
    return pa.scalar(operand.first if isinstance(operand, Instant) else operand)


# -- for people ------------------------------------------------------------------------------------


def as_sql(
    node: Node,
    schema: Any,
    columns: Mapping[str, str] | None = None,
    seconds: Collection[str] = (),
) -> str:
    """The condition for a WHERE of DuckDB.

    `columns` has what is called otherwise there, `seconds` the times that are numbers of seconds.
    """
    return _Sql(columns or {}, seconds).condition(bound(node, schema))


@dataclass(frozen=True, slots=True)
class _Sql:
    columns: Mapping[str, str]
    seconds: Collection[str]

    def condition(self, node: Node) -> str:
        match node:
            case Call("and" | "or" as op, parts):
                return "(" + f" {op.upper()} ".join(map(self.condition, parts)) + ")"
            case Call("not", (inner,)):
                return f"NOT {self.condition(inner)}"
            case Call(op, (column, *others)):
                left = self.operand(column, others[0] if others else None)
                return _written(op, left, [self.operand(other, column) for other in others])
        assert not isinstance(node, Call), "every operation has operands"
        return self.operand(node)

    def operand(self, value: Operand, beside: Operand | None = None) -> str:
        """The text of a side of a comparison with `beside`."""
        if isinstance(value, Column):
            name = self.columns.get(value.name) or '"' + value.name.replace('"', '""') + '"'
            is_counted = value.name in self.seconds and isinstance(beside, Column)
            return f"make_timestamp({name} * 1000000)" if is_counted else name
        if isinstance(value, Instant):
            if isinstance(beside, Column) and beside.name in self.seconds:
                whole, rest = divmod(value.first, 1_000_000)
                return f"{value.first / 1_000_000!r}::DOUBLE" if rest else str(whole)
            return f"TIMESTAMP '{times.isoformat(value.first)}'"
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)


def _written(op: str, left: str, others: list[str]) -> str:
    match op:
        case "isNull":
            return f"{left} IS NULL"
        case "in":
            return f"{left} IN ({', '.join(others)})"
        case "between":
            return f"{left} BETWEEN {others[0]} AND {others[1]}"
        case "like":
            return f"{left} LIKE {others[0]} ESCAPE '\\'"
    return f"{left} {op} {others[0]}"
