from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from comal.errors import InvalidInputError, LimitExceededError, QueryError
from comal.query import Function, Session


def fail(*columns: Any) -> Any:
    raise InvalidInputError("not today")


@pytest.fixture
def held() -> Iterator[Session]:
    session = Session(
        tables={"numbers": pa.table({"n": [1, 2, 3]})},
        functions={
            "total": Function(lambda *columns: reduce(pc.add, columns), None, "BIGINT"),
            "fail": Function(fail, None, "BIGINT"),
            "twice": "CREATE MACRO twice(a) AS total(a, a), (a, b) AS total(a, a, b, b)",
            "four_times": "CREATE MACRO four_times (a) AS twice(Twice(a))",
        },
        statements=["CREATE VIEW odd AS SELECT n FROM numbers WHERE n % 2 = 1"],
        failures=[],
        hint="the tables are numbers and odd",
    )
    yield session
    session.close()


def test_views_macros_and_functions_of_any_number_of_arguments(held: Session) -> None:
    assert held.select("SELECT sum(n) s FROM odd").to_pylist() == [{"s": 4}]
    found = held.select("SELECT twice(n) a, twice(n, $k) b, total(n) c FROM odd", {"k": 5})
    assert found.to_pylist() == [{"a": 2, "b": 12, "c": 1}, {"a": 6, "b": 16, "c": 3}]
    with pytest.raises(LimitExceededError):
        held.select("FROM numbers", max_rows=2)


@pytest.mark.parametrize(
    "query",
    [
        'SELECT "FOUR_times"(n) AS a FROM odd',
        "SELECT a FROM query('SELECT four_times(n) a FROM odd')",
        "SELECT a FROM query('SELECT four' || '_times(n) a FROM odd')",
    ],
)
def test_macros_are_made_when_they_are_named(held: Session, query: str) -> None:
    for _ in range(2):
        assert held.select(query)["a"].to_pylist() == [4, 12]
    assert held.select("SELECT total(n) AS a FROM odd")["a"].to_pylist() == [1, 3]


def test_a_list_of_functions_is_whole(held: Session) -> None:
    listed = "SELECT function_name AS f FROM duckdb_functions() WHERE f IN ('four_times', 'fail')"
    assert sorted(set(held.select(listed)["f"].to_pylist())) == ["fail", "four_times"]
    with pytest.raises(QueryError, match="no_function"):
        held.select("SELECT no_function(1)")


def test_errors_are_ours(held: Session) -> None:
    with pytest.raises(InvalidInputError, match="not today"):
        held.select("SELECT fail(n) FROM numbers")
    assert held.select("SELECT 1 AS a").to_pylist() == [{"a": 1}]
    with pytest.raises(QueryError) as caught:
        held.select("SELECT * FROM even")
    assert caught.value.hint == "the tables are numbers and odd"
