from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from comal.errors import (
    InvalidInputError,
    LimitExceededError,
    QueryError,
)
from comal.limits import Limits
from comal.query import Function, Session, engine
from tests.support import in_child

TABLE = pa.table({"a": [1, 2, 3, 4, 5], "b": list("abcde")})


def test_select_returns_arrow_with_parameters_and_functions() -> None:
    even = Function(lambda column: pc.equal(pc.bit_wise_and(column, 1), 0), ("BIGINT",))
    both = Function(lambda x, y: pc.and_(pc.is_valid(x), pc.is_valid(y)), ("BIGINT", "BIGINT"))
    found = engine().select(
        "SELECT b FROM t WHERE a > $least AND even(a) AND known(a, nullif(a, 2))",
        {"least": 1},
        tables={"t": TABLE},
        functions={"even": even, "known": both},
    )
    assert found.to_pydict() == {"b": ["d"]}
    with pytest.raises(QueryError):
        engine().select("SELECT * FROM t")
    with pytest.raises(QueryError):
        engine().select("SELECT even(2)")


def test_limits_are_checked() -> None:
    small = Session(limits=Limits(query_bytes=10))
    with pytest.raises(LimitExceededError, match="query bytes"):
        small.select("SELECT 1 + 1")
    small.close()
    assert len(engine().select("SELECT * FROM t", tables={"t": TABLE}, max_rows=5)) == 5
    with pytest.raises(LimitExceededError):
        engine().select("SELECT * FROM t", tables={"t": TABLE}, max_rows=4)


def test_memory_limit_is_an_error_of_ours() -> None:
    small = Session(threads=1, memory_limit=20_000_000)
    with pytest.raises(LimitExceededError):
        small.select("SELECT list(x) FROM (SELECT x FROM range(10000000) r(x) ORDER BY x DESC)")
    assert small.select("SELECT 1 AS one")["one"][0].as_py() == 1
    small.close()


def test_parse_cuts_the_final_semicolon_and_nothing_else() -> None:
    found = engine().parse("SELECT 'é;' -- ;\n, \"a;b\" ; -- x;")
    assert found.text == "SELECT 'é;' -- ;\n, \"a;b\" "
    assert engine().parse("SELECT 1").text == "SELECT 1"


def test_tables_are_those_that_the_query_does_not_define() -> None:
    found = engine().parse("WITH x AS (SELECT * FROM Data) SELECT * FROM x, l1 WHERE a > $a")
    assert {name.lower() for name in found.tables} == {"data", "l1"}


def test_parameters_are_renamed_outside_of_texts_and_comments() -> None:
    query = "SELECT '$x', \"$y\", $$ $z $$ /* $w */ FROM t WHERE a > $x AND a < $Up -- $v"
    found = engine().parse(query, "p_")
    assert found.parameters == {"p_x": "x", "p_Up": "Up"}
    assert found.text == query.replace("> $x", "> $p_x").replace("< $Up", "< $p_Up")
    found = engine().parse("SELECT ? + ?, '?'", "q_")
    assert found.text == "SELECT $q_1 + $q_2, '?'"
    assert found.parameters == {"q_1": "1", "q_2": "2"}
    assert engine().parse("SELECT $1, 'é', $1", "r_").text == "SELECT $r_1, 'é', $r_1"


def test_datasets_are_scanned_in_order_and_lazily() -> None:
    data = ds.dataset(pa.table({"n": np.arange(300_000)}))
    found = engine().select("SELECT n FROM d WHERE n % 3 = 0", tables={"d": data})
    assert np.array_equal(np.asarray(found["n"]), np.arange(0, 300_000, 3))


def test_each_thread_has_its_own_engine() -> None:
    found: list[tuple[int, int]] = []

    def work() -> None:
        table = engine().select("SELECT sum(a) AS s FROM t", tables={"t": TABLE})
        found.append((id(engine()), int(table["s"][0].as_py())))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [total for _, total in found] == [15] * 4
    with pytest.raises(TypeError, match="pickled"):
        engine().__reduce__()


def test_a_forked_child_gets_a_new_engine() -> None:
    engine().select("SELECT 1")

    def work() -> None:
        assert engine().select("SELECT 42 AS x")["x"][0].as_py() == 42

    in_child(work)


def test_nothing_is_printed_at_exit() -> None:
    script = (
        "import pyarrow as pa, threading\n"
        "from comal.query import engine, Function\n"
        "f = Function(lambda a: a, ('BIGINT',), 'BIGINT')\n"
        "def work(): engine().select('SELECT f(a) FROM t', tables={'t': pa.table({'a': [1]})},"
        " functions={'f': f})\n"
        "work()\n"
        "t = threading.Thread(target=work); t.start(); t.join()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_table_gets_no_hint_at_tables_of_our_own() -> None:
    with pytest.raises(QueryError, match="does not exist") as caught:
        engine().select("SELECT * FROM sqlite_temp")
    assert caught.value.hint is not None
    assert "sqlite_temp_master" not in caught.value.hint
    assert "data" in caught.value.hint


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
@pytest.mark.parametrize("name", ["threads", "memory_limit"])
def test_settings_that_cannot_be(name: str, value: Any) -> None:
    with pytest.raises(InvalidInputError, match=name):
        Session(**{name: value})


# -- functions, macros and views of a session ----------------------------------------------------


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
