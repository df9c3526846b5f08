"""The lines of Python that load what is shown."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from comal.geo import times
from comal.server import cql2
from comal.server.cql2 import Node, instant
from comal.server.items import Selection, kind_of
from comal.tortilla import spec as tortilla_spec

# What the tables of the server call otherwise than the file (`Holdings.table_of`).
_RENAMED = {
    'pc.field("id")': f'pc.field("{tortilla_spec.ID}")',
    'pc.field("type")': f'pc.if_else(pc.field("{tortilla_spec.FILE_FORMAT}") '
    f'== "{tortilla_spec.TORTILLA}", "FOLDER", "FILE")',
}


def lines(form: str, title: str, schema: Any, selection: Selection | None = None) -> str:
    """How to load an archive, whose rows have this schema, with these filters."""
    is_taco = form == "taco"
    room, opened, rows = ("taco", "load", "data") if is_taco else ("tortilla", "open", "rows")
    found = [f"from comal import {room}", "", f"{rows} = {room}.{opened}({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None and is_taco:
            condition = as_sql(selection.filter, _moments(schema))
            query = f"SELECT * FROM data WHERE {condition}"  # noqa: S608 - shown, never run here
            found.append(f"data = data.sql({query!r})")
        elif selection.filter is not None:
            found.insert(0, "import pyarrow.compute as pc")
            found.append(f"rows = rows.filter({_filter_text(selection.filter, schema)})")
        if selection.datetime is not None:
            found.append(f"{rows} = {rows}.filter_datetime({json.dumps(selection.datetime)})")
        if selection.bbox is not None:
            edges = ", ".join(map(repr, selection.bbox))
            found.append(f"{rows} = {rows}.filter_bbox({edges})")
    return "\n".join([*found, "rows = data.data"] if is_taco else found)


def _filter_text(condition: Node, schema: Any) -> str:
    text = as_arrow(condition, _moments(schema))
    for shown, stored in _RENAMED.items():
        text = text.replace(shown, stored)
    return text


def _moments(schema: Any) -> dict[str, tuple[str, int]]:
    """For each column of times an expression for its numbers, and their unit in microseconds."""
    found = {}
    for field in schema:
        if kind_of(field.name, field.type) == "time":
            text, unit = f"pc.field({json.dumps(field.name)})", 1_000_000
            # The two of Tortilla are whole seconds in the file, as its specification has them.
            names = {tortilla_spec.TIME_START, tortilla_spec.TIME_END}
            if field.name not in names or field.type != pa.timestamp("s"):
                text, unit = f'{text}.cast("timestamp[us]", safe=False).cast("int64")', 1
            found[field.name] = text, unit
    return found


Moments = Mapping[str, tuple[str, int]]
"""Columns of times: an expression that gives whole numbers, and how many microseconds one is."""

_WORDS = {"=": "==", "<>": "!="}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_sql(node: cql2.Node, moments: Collection[str] = ()) -> str:
    """The condition for a WHERE of DuckDB; `moments` are the columns of times."""
    return _as_sql(_pinned(node, moments))


def _pinned(node: cql2.Node, moments: Collection[str]) -> cql2.Node:  # noqa: PLR0911 - as above
    """The same filter without days: a time is compared with the first or last instant of one."""
    match node:
        case cql2.And(parts):
            return cql2.And(tuple(_pinned(part, moments) for part in parts))
        case cql2.Or(parts):
            return cql2.Or(tuple(_pinned(part, moments) for part in parts))
        case cql2.Not(inner):
            return cql2.Not(_pinned(inner, moments))
        case cql2.Comparison(op, left, cql2.Column(_) as column) if not isinstance(
            left, cql2.Column
        ):
            return _pinned(cql2.Comparison(_TURNED.get(op, op), column, left), moments)
        case cql2.Comparison(op, cql2.Column(name) as column, value):
            moment = _moment(name, value, moments)
            return node if moment is None else _compared(op, column, moment)
        case cql2.Between(cql2.Column(name) as column, low, high):
            ends = _moment(name, low, moments), _moment(name, high, moments)
            if ends[0] is None or ends[1] is None:
                return node
            return cql2.Between(column, _at(ends[0].first), _at(ends[1].last))
        case cql2.Among(cql2.Column(name) as column, values):
            found = [_moment(name, value, moments) for value in values]
            several = [_compared("=", column, one) for one in found if one is not None]
            return cql2.Or(tuple(several)) if several else node
    return node


def _moment(name: str, value: cql2.Operand, moments: Collection[str]) -> cql2.Instant | None:
    """The time that a column is compared with; texts stand for times beside a column of times."""
    if isinstance(value, str) and name in moments:
        return instant(value)
    return value if isinstance(value, cql2.Instant) else None


def _compared(op: str, column: cql2.Column, moment: cql2.Instant) -> cql2.Node:
    if op in {"=", "<>"} and moment.first != moment.last:
        within = cql2.Between(column, _at(moment.first), _at(moment.last))
        return within if op == "=" else cql2.Not(within)
    return cql2.Comparison(op, column, _at(moment.last if op in {">", "<="} else moment.first))


def _at(microseconds: int) -> cql2.Instant:
    return cql2.Instant(microseconds, microseconds, times.isoformat(microseconds))


def _as_sql(node: cql2.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
    match node:
        case cql2.And(parts):
            return "(" + " AND ".join(map(_as_sql, parts)) + ")"
        case cql2.Or(parts):
            return "(" + " OR ".join(map(_as_sql, parts)) + ")"
        case cql2.Not(inner):
            return f"NOT {_as_sql(inner)}"
        case cql2.Truth(operand):
            return _sql(operand)
        case cql2.IsNull(column):
            return f"{_sql(column)} IS NULL"
        case cql2.Comparison(op, left, right):
            return f"{_sql(left)} {op} {_sql(right)}"
        case cql2.Between(column, low, high):
            return f"{_sql(column)} BETWEEN {_sql(low)} AND {_sql(high)}"
        case cql2.Among(column, values):
            return f"{_sql(column)} IN ({', '.join(map(_sql, values))})"
        case cql2.Like(column, pattern):
            return f"{_sql(column)} LIKE {_sql(pattern)} ESCAPE '\\'"
    raise AssertionError(node)


def _sql(value: cql2.Operand) -> str:
    if isinstance(value, cql2.Column):
        return '"' + value.name.replace('"', '""') + '"'
    if isinstance(value, cql2.Instant):
        return f"TIMESTAMP '{times.isoformat(value.first)}'"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(value)


def as_arrow(node: cql2.Node, moments: Moments) -> str:
    """The expression of `pyarrow.compute`, called ``pc``; `moments` are the columns of times."""
    return _as_arrow(_pinned(node, moments), moments)


def _as_arrow(node: cql2.Node, moments: Moments) -> str:  # noqa: PLR0911 - as above
    match node:
        case cql2.And(parts):
            return "(" + " & ".join(_as_arrow(part, moments) for part in parts) + ")"
        case cql2.Or(parts):
            return "(" + " | ".join(_as_arrow(part, moments) for part in parts) + ")"
        case cql2.Not(inner):
            return f"~{_as_arrow(inner, moments)}"
        case cql2.Truth(operand):
            return _arrow(operand)
        case cql2.IsNull(column):
            return f"{_arrow(column)}.is_null()"
        case cql2.Comparison(op, left, right):
            one, other = _arrow_pair(left, right, moments)
            return f"({one} {_WORDS.get(op, op)} {other})"
        case cql2.Between(column, low, high):
            return _as_arrow(
                cql2.And((cql2.Comparison(">=", column, low), cql2.Comparison("<=", column, high))),
                moments,
            )
        case cql2.Among(column, values):
            return f"{_arrow(column)}.isin([{', '.join(map(_arrow, values))}])"
        case cql2.Like(column, pattern):
            return f"pc.match_like({_arrow(column)}, {json.dumps(pattern)})"
    raise AssertionError(node)


def _arrow_pair(left: cql2.Operand, right: cql2.Operand, moments: Moments) -> tuple[str, str]:
    """Both sides of a comparison, times as numbers of the same unit."""
    units = [
        moments[side.name][1]
        for side in (left, right)
        if isinstance(side, cql2.Column) and side.name in moments
    ]
    points = [side.first for side in (left, right) if isinstance(side, cql2.Instant)]
    if len(units) + len(points) < 2:
        return _arrow(left), _arrow(right)
    # Whole seconds are compared as such where that is exact, for those who read it.
    unit = 1 if len(set(units)) > 1 or any(point % units[0] for point in points) else units[0]
    return _in_units(left, unit, moments), _in_units(right, unit, moments)


def _in_units(side: cql2.Operand, unit: int, moments: Moments) -> str:
    if isinstance(side, cql2.Instant):
        return str(side.first // unit)
    assert isinstance(side, cql2.Column), "a time is an instant or a column"
    text, own = moments[side.name]
    return text if own == unit else f"({text} * {own // unit})"


def _arrow(value: cql2.Operand) -> str:
    if isinstance(value, cql2.Column):
        return f"pc.field({json.dumps(value.name)})"
    return json.dumps(value) if isinstance(value, str) else repr(value)
