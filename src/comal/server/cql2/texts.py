"""A filter as Python code that people copy: SQL for DuckDB, or an expression for Arrow.

These texts are shown and never run here. Names and values are quoted all the same, so that what
is copied does what was shown.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from comal.geo import times
from comal.server.cql2 import tree
from comal.server.cql2.reading import instant

Moments = Mapping[str, tuple[str, int]]
"""Columns of times: an expression that gives whole numbers, and how many microseconds one is."""

_WORDS = {"=": "==", "<>": "!="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_sql(node: tree.Node, moments: Collection[str] = ()) -> str:
    """The condition for a WHERE of DuckDB; `moments` are the columns of times."""
    return _as_sql(_pinned(node, moments))


def _pinned(node: tree.Node, moments: Collection[str]) -> tree.Node:  # noqa: PLR0911 - as above
    """The same filter without days: a time is compared with the first or last instant of one."""
    match node:
        case tree.All(parts):
            return tree.All(tuple(_pinned(part, moments) for part in parts))
        case tree.Any(parts):
            return tree.Any(tuple(_pinned(part, moments) for part in parts))
        case tree.Not(inner):
            return tree.Not(_pinned(inner, moments))
        case tree.Comparison(op, left, tree.Column(_) as column) if not isinstance(
            left, tree.Column
        ):
            return _pinned(tree.Comparison(_TURNED.get(op, op), column, left), moments)
        case tree.Comparison(op, tree.Column(name) as column, value):
            moment = _moment(name, value, moments)
            return node if moment is None else _compared(op, column, moment)
        case tree.Between(tree.Column(name) as column, low, high):
            ends = _moment(name, low, moments), _moment(name, high, moments)
            if ends[0] is None or ends[1] is None:
                return node
            return tree.Between(column, _at(ends[0].first), _at(ends[1].last))
        case tree.Among(tree.Column(name) as column, values):
            found = [_moment(name, value, moments) for value in values]
            several = [_compared("=", column, one) for one in found if one is not None]
            return tree.Any(tuple(several)) if several else node
    return node


def _moment(name: str, value: tree.Operand, moments: Collection[str]) -> tree.Instant | None:
    """The time that a column is compared with; texts stand for times beside a column of times."""
    if isinstance(value, str) and name in moments:
        return instant(value)
    return value if isinstance(value, tree.Instant) else None


def _compared(op: str, column: tree.Column, moment: tree.Instant) -> tree.Node:
    if op in {"=", "<>"} and moment.first != moment.last:
        within = tree.Between(column, _at(moment.first), _at(moment.last))
        return within if op == "=" else tree.Not(within)
    return tree.Comparison(op, column, _at(moment.last if op in {">", "<="} else moment.first))


def _at(microseconds: int) -> tree.Instant:
    return tree.Instant(microseconds, microseconds, times.isoformat(microseconds))


def _as_sql(node: tree.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
    match node:
        case tree.All(parts):
            return "(" + " AND ".join(map(_as_sql, parts)) + ")"
        case tree.Any(parts):
            return "(" + " OR ".join(map(_as_sql, parts)) + ")"
        case tree.Not(inner):
            return f"NOT {_as_sql(inner)}"
        case tree.Truth(operand):
            return _sql(operand)
        case tree.IsNull(column):
            return f"{_sql(column)} IS NULL"
        case tree.Comparison(op, left, right):
            return f"{_sql(left)} {op} {_sql(right)}"
        case tree.Between(column, low, high):
            return f"{_sql(column)} BETWEEN {_sql(low)} AND {_sql(high)}"
        case tree.Among(column, values):
            return f"{_sql(column)} IN ({', '.join(map(_sql, values))})"
        case tree.Like(column, pattern):
            return f"{_sql(column)} LIKE {_sql(pattern)} ESCAPE '\\'"
    raise AssertionError(node)


def _sql(value: tree.Operand) -> str:
    if isinstance(value, tree.Column):
        return '"' + value.name.replace('"', '""') + '"'
    if isinstance(value, tree.Instant):
        return f"TIMESTAMP '{times.isoformat(value.first)}'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def as_arrow(node: tree.Node, moments: Moments) -> str:
    """The expression of `pyarrow.compute`, called ``pc``; `moments` are the columns of times."""
    return _as_arrow(_pinned(node, moments), moments)


def _as_arrow(node: tree.Node, moments: Moments) -> str:  # noqa: PLR0911 - as above
    match node:
        case tree.All(parts):
            return "(" + " & ".join(_as_arrow(part, moments) for part in parts) + ")"
        case tree.Any(parts):
            return "(" + " | ".join(_as_arrow(part, moments) for part in parts) + ")"
        case tree.Not(inner):
            return f"~{_as_arrow(inner, moments)}"
        case tree.Truth(operand):
            return _arrow(operand)
        case tree.IsNull(column):
            return f"{_arrow(column)}.is_null()"
        case tree.Comparison(op, left, right):
            one, other = _arrow_pair(left, right, moments)
            return f"({one} {_WORDS.get(op, op)} {other})"
        case tree.Between(column, low, high):
            return _as_arrow(
                tree.All((tree.Comparison(">=", column, low), tree.Comparison("<=", column, high))),
                moments,
            )
        case tree.Among(column, values):
            return f"{_arrow(column)}.isin([{', '.join(map(_arrow, values))}])"
        case tree.Like(column, pattern):
            return f"pc.match_like({_arrow(column)}, {json.dumps(pattern)})"
    raise AssertionError(node)


def _arrow_pair(left: tree.Operand, right: tree.Operand, moments: Moments) -> tuple[str, str]:
    """Both sides of a comparison, times as numbers of the same unit."""
    units = [
        moments[side.name][1]
        for side in (left, right)
        if isinstance(side, tree.Column) and side.name in moments
    ]
    points = [side.first for side in (left, right) if isinstance(side, tree.Instant)]
    if len(units) + len(points) < 2:
        return _arrow(left), _arrow(right)
    # Whole seconds are compared as such where that is exact, for those who read it.
    unit = 1 if len(set(units)) > 1 or any(point % units[0] for point in points) else units[0]
    return _in_units(left, unit, moments), _in_units(right, unit, moments)


def _in_units(side: tree.Operand, unit: int, moments: Moments) -> str:
    if isinstance(side, tree.Instant):
        return str(side.first // unit)
    assert isinstance(side, tree.Column), "a time is an instant or a column"
    text, own = moments[side.name]
    return text if own == unit else f"({text} * {own // unit})"


def _arrow(value: tree.Operand) -> str:
    if isinstance(value, tree.Column):
        return f"pc.field({json.dumps(value.name)})"
    return json.dumps(value) if isinstance(value, str) else repr(value)
