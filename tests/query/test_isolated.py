from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.errors import (
    InvalidInputError,
    LimitExceededError,
    NotInContainerError,
    QueryError,
)
from comal.limits import MIB
from comal.query import Budget, run_isolated, select_isolated

TABLE = pa.table({"a": [1, 2, 3], "b": ["x", "y", None]})
SMALL = Budget(memory=700 * MIB, wall=5.0)


def test_errors_come_back_as_what_they_are() -> None:
    with pytest.raises(QueryError, match="bogus"):
        select_isolated("SELECT bogus FROM t", tables={"t": TABLE})
    with pytest.raises(LimitExceededError, match="too many rows"):
        select_isolated("SELECT * FROM t", tables={"t": TABLE}, max_rows=1)
    with pytest.raises(NotInContainerError, match="nowhere"):
        run_isolated(_missing, "nowhere")


@pytest.mark.parametrize(
    "query", ["SELECT list_sum(range(3000000000))", "SELECT repeat('a', 3000000000)"]
)
def test_folding_of_constants_cannot_take_the_memory(query: str) -> None:
    with pytest.raises(LimitExceededError):
        select_isolated(query, budget=SMALL)


def test_a_query_that_does_not_end_is_killed() -> None:
    query = "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT max(n) FROM t"
    with pytest.raises(LimitExceededError, match="too long"):
        select_isolated(query, budget=Budget(wall=1.0))


def test_the_process_can_write_no_file(tmp_path: Path) -> None:
    target = tmp_path / "stolen.txt"
    with pytest.raises((QueryError, LimitExceededError)):
        run_isolated(_write, str(target))
    assert not target.exists() or target.stat().st_size == 0


def test_a_process_that_dies_is_an_error_of_ours() -> None:
    with pytest.raises(QueryError, match="without an answer"):
        run_isolated(os._exit, 3)


def _missing(name: str) -> Any:
    raise NotInContainerError("no such thing", where=name)


def _write(path: str) -> Any:
    Path(path).write_text("x")
    return TABLE


@pytest.mark.parametrize("name", ["memory", "cpu", "wall"])
@pytest.mark.parametrize("value", [-1, 0, None, "8", True, float("nan"), float("inf"), 1 << 70])
def test_a_budget_is_limits(name: str, value: Any) -> None:
    """To the system -1 is no limit at all."""
    with pytest.raises(InvalidInputError, match=f"{name} is not a positive number"):
        Budget(**{name: value})
