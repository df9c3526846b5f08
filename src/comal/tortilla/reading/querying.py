"""SQL over the rows of a frame, which is the table ``data``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from comal import arrowcompute as pc
from comal.errors import QueryError
from comal.query import Budget, engine, select_isolated
from comal.table.columns import numbers_column
from comal.tortilla import spec

_NUMBER = "comal_row"


def selected(
    table: Any, query: str, params: Mapping[str, Any] | None, *, isolated: bool | Budget
) -> Any:
    """What one SELECT makes of a frame's table.

    Raises
    ------
    QueryError
        It cannot run, or makes up a path for GDAL.
    """
    tables = {"data": table}
    if isolated:
        budget = isolated if isinstance(isolated, Budget) else None
        found = select_isolated(query, params, tables=tables, budget=budget)
    else:
        found = engine().select(query, params, tables=tables)
    if spec.SUBFILE in found.column_names:
        column = found[spec.SUBFILE]
        if not set(column.to_pylist()) <= {None, *table[spec.SUBFILE].to_pylist()}:
            raise QueryError(
                f"the query changed {spec.SUBFILE}, which leads to the bytes of items",
                hint="call what you compute something else",
            )
    return found


def matching(
    table: Any, condition: str, params: Mapping[str, Any] | None, *, isolated: bool | Budget
) -> Any:
    """For each row of a frame's table whether a condition in SQL holds; null is no."""
    numbered = table.append_column(_NUMBER, numbers_column(np.arange(table.num_rows)))
    # The condition is the caller's own SQL; the engine takes one SELECT and nothing else. Only
    # numbers of rows come back, so that a query can choose rows but change nothing in them.
    query = f"SELECT {_NUMBER} FROM data WHERE ({condition}\n)"  # noqa: S608
    rows = selected(numbered, query, params, isolated=isolated)[_NUMBER]
    return pc.is_in(numbered[_NUMBER], value_set=rows.combine_chunks())
