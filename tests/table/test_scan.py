"""Tables as datasets: engines get the columns and rows they ask for, within the limits."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.tables import opened, parquet, sample_table

from comal.errors import ComalError, LimitExceededError
from comal.limits import Limits
from comal.table import scan

TABLE = sample_table()
GROUPS = parquet(TABLE, row_group_size=100)

CONDITIONS = [
    None,
    ds.field("number") > 500,
    (ds.field("float") < 100) & ds.field("geometry").is_valid(),
    ds.field("id").isin(["s1", "s999", "nothing"]),
    ds.field("number") < 0,
    ds.field(("point", "x")) == 3,
]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(TABLE.column_names), unique=True, min_size=1),
    st.sampled_from(range(len(CONDITIONS))),
)
def test_a_scan_gives_what_arrow_gives(names: list[str], number: int) -> None:
    condition = CONDITIONS[number]
    table, _ = opened(GROUPS)
    expected = ds.InMemoryDataset(TABLE).to_table(columns=names, filter=condition)
    found = table.dataset().to_table(columns=names, filter=condition)
    assert found.equals(expected)
    kept = table.dataset(whole=TABLE.select)
    assert kept.to_table(columns=names, filter=condition).equals(expected)
    assert table.dataset().count_rows(filter=condition) == len(expected)


def test_only_the_columns_of_query_and_filter_are_asked_for() -> None:
    table, source = opened(GROUPS)
    asked: list[Sequence[str]] = []

    def whole(names: Sequence[str]) -> Any:
        asked.append(sorted(names))
        return TABLE.select(names)

    with duckdb.connect() as connection:
        connection.register("data", table.dataset(whole=whole))
        query = "SELECT id FROM data WHERE number = 7 AND float > 0"
        assert connection.sql(query).fetchall() == [("s7",)]
        assert connection.sql("SELECT count(*) FROM data").fetchall() == [(1000,)]
    assert asked[0] == ["float", "id", "number"]
    assert len(asked[1]) <= 1
    assert source.requests == 0


def test_a_scan_in_many_reads_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_RUN_CELLS", 300)
    table, source = opened(GROUPS)
    assert table.dataset().to_table().equals(TABLE)
    assert source.round_trips == 10
    source.log.clear()
    reader = table.dataset().scanner(columns=["id"]).to_reader()
    assert source.requests == 0
    assert reader.read_next_batch().column(0)[0].as_py() == "s0"
    assert source.round_trips <= 1
    copy = pickle.loads(pickle.dumps(table.dataset()))
    assert copy.to_table(columns=["id"]).equals(TABLE.select(["id"]))


def test_rows_that_the_filter_drops_do_not_count_as_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_RUN_CELLS", 2000)
    texts = pa.array([f"{n:0100d}" for n in range(10_000)])
    data = parquet(pa.table({"text": texts, "n": np.arange(10_000)}), row_group_size=500)
    table, _ = opened(data, limits=Limits(leaf_bytes=400_000))
    failures: list[ComalError] = []
    few = table.dataset(failures).to_table(filter=pc.bit_wise_and(ds.field("n"), 1023) == 5)
    assert few.column("n").to_pylist() == list(range(5, 10_000, 1024))
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        table.dataset(failures).to_table()
    assert len(failures) == 1
    assert isinstance(failures[0], LimitExceededError)
    monkeypatch.setattr(scan, "_PASSED", 1)
    with pytest.raises(LimitExceededError, match="reads more"):
        table.dataset().to_table(filter=pc.bit_wise_and(ds.field("n"), 1023) == 5)
