"""From text to tree: a small parser by recursive descent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from comal.errors import InvalidInputError, QueryError, shown
from comal.geo import times
from comal.server.cql2 import tree

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


def parse(text: str) -> tree.Node:
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

    def whole(self) -> tree.Node:
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

    def _any(self) -> tree.Node:
        parts = self._joined("OR", self._all)
        return parts[0] if len(parts) == 1 else tree.Any(tuple(parts))

    def _all(self) -> tree.Node:
        parts = self._joined("AND", self._not)
        return parts[0] if len(parts) == 1 else tree.All(tuple(parts))

    def _joined(self, word: str, inner: Callable[[], tree.Node]) -> list[tree.Node]:
        parts = [inner()]
        while self._take("word", word):
            parts.append(inner())
        return parts

    def _not(self) -> tree.Node:
        count = 0
        while self._take("word", "NOT"):
            count += 1
        node = self._grouped() if self._take("op", "(") else self._predicate()
        return tree.Not(node) if count % 2 else node

    def _grouped(self) -> tree.Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise QueryError("the filter is nested too deep", expected=f"at most {_DEEPEST}")
        node = self._any()
        self._need("op", ")")
        self._depth -= 1
        return node

    def _predicate(self) -> tree.Node:
        left = self._operand()
        if self._next.kind == "op" and self._next.value in _COMPARISONS:
            op = self._need("op").value
            return tree.Comparison(op, left, self._operand())
        if isinstance(left, tree.Column):
            return self._about(left)
        if isinstance(left, bool):
            return tree.Truth(left)
        raise self._fault()

    def _about(self, column: tree.Column) -> tree.Node:
        if self._take("word", "IS"):
            negated = self._take("word", "NOT") is not None
            self._need("word", "NULL")
            return _negated(tree.IsNull(column), negated)
        negated = self._take("word", "NOT") is not None
        if self._take("word", "IN"):
            return _negated(tree.Among(column, self._list()), negated)
        if self._take("word", "LIKE"):
            return _negated(tree.Like(column, self._need("text").value), negated)
        if self._take("word", "BETWEEN"):
            low = self._value()
            self._need("word", "AND")
            return _negated(tree.Between(column, low, self._value()), negated)
        if negated:
            raise self._fault()
        return tree.Truth(column)

    def _list(self) -> tuple[tree.Value, ...]:
        self._need("op", "(")
        values = [self._value()]
        while self._take("op", ","):
            values.append(self._value())
        self._need("op", ")")
        return tuple(values)

    def _operand(self) -> tree.Operand:
        name = self._take("name")
        return tree.Column(name.value) if name else self._value()

    def _value(self) -> tree.Value:
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

    def _instant(self) -> tree.Instant:
        self._need("word")
        self._need("op", "(")
        token = self._need("text")
        self._need("op", ")")
        return instant(token.value)


def instant(text: str) -> tree.Instant:
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
    return tree.Instant(first, last, text)


def _negated(node: tree.Node, negated: bool) -> tree.Node:  # noqa: FBT001 - as it was read
    return tree.Not(node) if negated else node


def _number(token: Token) -> float | int:
    text = token.value
    if text.lstrip("+-").isdigit() and len(text) <= 19:
        return int(text)
    value = float(text)
    if not math.isfinite(value):
        raise QueryError("a number is too large", found=shown(text))
    return value
