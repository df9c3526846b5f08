"""The rows and the schema of a view."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from comal import query
from comal.taco import spec
from comal.taco.reading.container import Container
from comal.taco.reading.home import Home
from comal.taco.reading.level import unpadded
from comal.taco.reading.spans import checked_spans
from comal.taco.reading.stages import Scan, Sql, View, containers
from comal.taco.reading.stages import stages as stages_of
from comal.taco.reading.viewsql import Compiler, about


def materialise(view: View, *, padding: bool = False, max_rows: int | None = None) -> Any:
    """The rows of a view as an Arrow table.

    Raises
    ------
    QueryError
        A query of the view cannot run.
    LimitExceededError
        More than `max_rows` rows, or an isolated query that took more than it may.
    """
    return _run(_rows, view, padding, max_rows)


def flattened(view: View, level: int) -> Any:
    """The FILE rows of `level` below a view, with the columns of all levels above."""
    return _run(_flat, view, level)


def schema_of(view: View) -> Any:
    """The Arrow schema of a view."""
    return _run(_no_rows, view).schema


def _run(function: Any, view: View, *args: Any) -> Any:
    asked = [stage.isolated for stage in stages_of(view) if isinstance(stage, Sql)]
    if not any(asked):
        return function(view, *args)
    budget = next((one for one in asked if isinstance(one, query.Budget)), None)
    remote = any("://" in container.source.href for container in containers(view))
    return query.run_isolated(function, view, *args, budget=budget, remote=remote)


def _rows(view: View, padding: bool, max_rows: int | None) -> Any:  # noqa: FBT001 - by `_run` alone
    if isinstance(view, Scan) and max_rows is None:
        rows = view.container.levels[0].whole()
        return rows if padding else unpadded(rows)
    compiler = Compiler(Home(view), padding=padding)
    return compiler.run(compiler.view(view), about(view), max_rows)


def _flat(view: View, level: int) -> Any:
    compiler = Compiler(Home(view))
    return compiler.run(compiler.flat(view, level), about(view))


def _no_rows(view: View) -> Any:
    return Compiler(Home(view)).schema(view).empty_table()


def check_spans(table: Any, container: Container) -> None:
    """Refuse rows whose spans lie outside of the one ZIP that holds them."""
    names = table.column_names
    if spec.OFFSET not in names or spec.SIZE not in names or not table.num_rows:
        return
    offsets, sizes = table.column(spec.OFFSET), table.column(spec.SIZE)
    if pa.types.is_int64(offsets.type) and pa.types.is_int64(sizes.type):
        total = container.source.stat().size
        checked_spans(offsets, sizes, total, f"{container.source.href}: data")
