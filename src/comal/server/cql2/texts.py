"""A filter as Python code that people copy: SQL for DuckDB, or an expression for Arrow.

These texts are shown and never run here. Names and values are quoted all the same, so that what
is copied does what was shown.
"""

from __future__ import annotations

import json

from comal.geo import times
from comal.server.cql2 import tree

_WORDS = {"=": "==", "<>": "!="}


def as_sql(node: tree.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
    """The condition for a WHERE of DuckDB."""
    match node:
        case tree.All(parts):
            return "(" + " AND ".join(map(as_sql, parts)) + ")"
        case tree.Any(parts):
            return "(" + " OR ".join(map(as_sql, parts)) + ")"
        case tree.Not(inner):
            return f"NOT {as_sql(inner)}"
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


def as_arrow(node: tree.Node) -> str:  # noqa: PLR0911 - one line for each kind of node
    """The expression of `pyarrow.compute`, called ``pc``."""
    match node:
        case tree.All(parts):
            return "(" + " & ".join(map(as_arrow, parts)) + ")"
        case tree.Any(parts):
            return "(" + " | ".join(map(as_arrow, parts)) + ")"
        case tree.Not(inner):
            return f"~{as_arrow(inner)}"
        case tree.Truth(operand):
            return _arrow(operand)
        case tree.IsNull(column):
            return f"{_arrow(column)}.is_null()"
        case tree.Comparison(op, left, right):
            return f"({_arrow(left)} {_WORDS.get(op, op)} {_arrow(right)})"
        case tree.Between(column, low, high):
            name = _arrow(column)
            return f"(({name} >= {_arrow(low)}) & ({name} <= {_arrow(high)}))"
        case tree.Among(column, values):
            return f"{_arrow(column)}.isin([{', '.join(map(_arrow, values))}])"
        case tree.Like(column, pattern):
            return f"pc.match_like({_arrow(column)}, {json.dumps(pattern)})"
    raise AssertionError(node)


def _arrow(value: tree.Operand) -> str:
    if isinstance(value, tree.Column):
        return f"pc.field({json.dumps(value.name)})"
    if isinstance(value, tree.Instant):
        return str(value.first // 1_000_000)
    return json.dumps(value) if isinstance(value, str) else repr(value)
