"""The lines of Python that load what is shown."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from comal.geo import times
from comal.server import cql2
from comal.server.cql2 import instant
from comal.server.items import Selection, kind_of
from comal.tortilla import spec as tortilla_spec

_RENAMED = {
    "id": f'"{tortilla_spec.ID}"',
    "type": f"""if("{tortilla_spec.FILE_FORMAT}" = '{tortilla_spec.TORTILLA}', 'FOLDER', 'FILE')""",
}
"""What the tables of the server call otherwise than the file (`Holdings.table_of`)."""


def lines(form: str, title: str, schema: Any, selection: Selection | None = None) -> str:
    """How to load an archive, whose rows have this schema, with these filters."""
    is_taco = form == "taco"
    room, opened, rows = ("taco", "load", "data") if is_taco else ("tortilla", "open", "rows")
    found = [f"from comal import {room}", "", f"{rows} = {room}.{opened}({json.dumps(title)})"]
    if selection is not None:
        if selection.filter is not None and is_taco:
            condition = as_sql(selection.filter, _times(schema))
            query = f"SELECT * FROM data WHERE {condition}"  # noqa: S608 - shown, never run here
            found.append(f"data = data.sql({query!r})")
        elif selection.filter is not None:
            condition = as_sql(selection.filter, _times(schema), _RENAMED, _seconds(schema))
            found.append(f"rows = rows.where({condition!r})")
        if selection.datetime is not None:
            found.append(f"{rows} = {rows}.filter_datetime({json.dumps(selection.datetime)})")
        if selection.bbox is not None:
            edges = ", ".join(map(repr, selection.bbox))
            found.append(f"{rows} = {rows}.filter_bbox({edges})")
    return "\n".join([*found, "rows = data.data"] if is_taco else found)


def _times(schema: Any) -> set[str]:
    """The columns of times."""
    return {field.name for field in schema if kind_of(field.name, field.type) == "time"}


def _seconds(schema: Any) -> set[str]:
    """Those that are whole seconds in the file, as the specification of Tortilla has them."""
    names = {tortilla_spec.TIME_START, tortilla_spec.TIME_END} & {*schema.names}
    return {name for name in names if schema.field(name).type == pa.timestamp("s")}


_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def as_sql(
    node: cql2.Node,
    moments: Collection[str] = (),
    columns: Mapping[str, str] | None = None,
    seconds: Collection[str] = (),
) -> str:
    """The condition for a WHERE of DuckDB.

    Parameters
    ----------
    moments
        The columns of times.
    columns
        What columns are in SQL that are called otherwise there.
    seconds
        Columns of times that are numbers of seconds since 1970.
    """
    return _Sql(columns or {}, seconds).condition(_pinned(node, moments))


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


@dataclass(frozen=True, slots=True)
class _Sql:
    """Writes filters over the columns of a file."""

    columns: Mapping[str, str]
    seconds: Collection[str]

    def condition(self, node: cql2.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
        """The text of a filter."""
        match node:
            case cql2.And(parts):
                return "(" + " AND ".join(map(self.condition, parts)) + ")"
            case cql2.Or(parts):
                return "(" + " OR ".join(map(self.condition, parts)) + ")"
            case cql2.Not(inner):
                return f"NOT {self.condition(inner)}"
            case cql2.Truth(operand):
                return self.operand(operand)
            case cql2.IsNull(column):
                return f"{self.operand(column)} IS NULL"
            case cql2.Comparison(op, left, right):
                return f"{self.operand(left, right)} {op} {self.operand(right, left)}"
            case cql2.Between(column, low, high):
                ends = self.operand(low, column), self.operand(high, column)
                return f"{self.operand(column)} BETWEEN {ends[0]} AND {ends[1]}"
            case cql2.Among(column, values):
                listed = ", ".join(self.operand(value, column) for value in values)
                return f"{self.operand(column)} IN ({listed})"
            case cql2.Like(column, pattern):
                return f"{self.operand(column)} LIKE {self.operand(pattern)} ESCAPE '\\'"
        raise AssertionError(node)

    def operand(self, value: cql2.Operand, beside: cql2.Operand | None = None) -> str:
        """The text of a side of a comparison with `beside`."""
        if isinstance(value, cql2.Column):
            name = self.columns.get(value.name) or '"' + value.name.replace('"', '""') + '"'
            is_counted = value.name in self.seconds and isinstance(beside, cql2.Column)
            return f"make_timestamp({name} * 1000000)" if is_counted else name
        if isinstance(value, cql2.Instant):
            if isinstance(beside, cql2.Column) and beside.name in self.seconds:
                whole, rest = divmod(value.first, 1_000_000)
                return f"{value.first / 1_000_000!r}::DOUBLE" if rest else str(whole)
            return f"TIMESTAMP '{times.isoformat(value.first)}'"
        if isinstance(value, bool):
            return str(value).upper()
        if isinstance(value, str):
            return "'" + value.replace("'", "''") + "'"
        return repr(value)
