"""Which rows of an Arrow table a filter matches, column by column.

Comparisons with null are unknown, as in SQL; rows for which the whole is unknown do not match.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import QueryError, shown
from comal.server.cql2 import tree
from comal.server.cql2.reading import instant

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


def matching(node: tree.Node, table: Any) -> Bools:
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


def _mask(node: tree.Node, table: Any) -> Any:
    match node:
        case tree.All(parts):
            return _folded(pc.and_kleene, parts, table)
        case tree.Any(parts):
            return _folded(pc.or_kleene, parts, table)
        case tree.Not(inner):
            return pc.invert(_mask(inner, table))
        case tree.Truth(operand):
            return _truth(operand, table)
        case tree.IsNull(column):
            values = _column(column, table)
            return pc.is_null(values, nan_is_null=pa.types.is_floating(values.type))
        case _:
            return _predicate(node, table)


def _predicate(node: tree.Node, table: Any) -> Any:
    match node:
        case tree.Comparison(op, left, right):
            return _comparison(op, left, right, table)
        case tree.Between(column, low, high):
            values = _column(column, table)
            return pc.and_kleene(_against(">=", values, low), _against("<=", values, high))
        case tree.Among(column, wanted):
            values = _column(column, table)
            masks = [_against("=", values, value) for value in wanted]
            result = masks[0]
            for mask in masks[1:]:
                result = pc.or_kleene(result, mask)
            return result
        case tree.Like(column, pattern):
            values = _column(column, table)
            if not _is_text(values.type):
                raise QueryError("LIKE is for texts", found=f"column {shown(column.name)}")
            return pc.match_like(values, pattern)
    raise AssertionError(node)


def _folded(join: Any, parts: tuple[tree.Node, ...], table: Any) -> Any:
    result = _mask(parts[0], table)
    for part in parts[1:]:
        result = join(result, _mask(part, table))
    return result


def _truth(operand: tree.Column | bool, table: Any) -> Any:  # noqa: FBT001 - TRUE and FALSE
    if isinstance(operand, bool):
        return pa.array(np.full(table.num_rows, operand))
    values = _column(operand, table)
    if not pa.types.is_boolean(values.type):
        raise QueryError(
            "a column alone must be of booleans", found=f"column {shown(operand.name)}"
        )
    return values


def _column(column: tree.Column, table: Any) -> Any:
    names = table.column_names
    if names.count(column.name) != 1:
        listed = ", ".join(shown(name) for name in names[:40])
        raise QueryError(f"there is no column {shown(column.name)}", expected=listed)
    return table.column(column.name)


def _comparison(op: str, left: tree.Operand, right: tree.Operand, table: Any) -> Any:
    if isinstance(left, tree.Column) and isinstance(right, tree.Column):
        both = [_column(side, table) for side in (left, right)]
        if all(_is_time(values.type) for values in both):
            both = [_moments(values) for values in both]  # with a zone or without
        return _COMPARE[op](*both)
    if isinstance(left, tree.Column) and not isinstance(right, tree.Column):
        return _against(op, _column(left, table), right)
    if isinstance(right, tree.Column) and not isinstance(left, tree.Column):
        return _against(_TURNED[op], _column(right, table), left)
    raise QueryError("a comparison needs a column")


def _against(op: str, values: Any, value: tree.Value) -> Any:
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


def _in_time(op: str, values: Any, value: tree.Value) -> Any:
    if isinstance(value, str):
        value = instant(value)
    if not isinstance(value, tree.Instant):
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
