"""Tables as datasets: engines get the columns and rows they ask for, within the limits."""

from __future__ import annotations

import itertools
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
from comal.table.scan import Scan

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


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from(TABLE.column_names), unique=True, min_size=1),
    st.sampled_from(range(len(CONDITIONS))),
)
def test_a_scan_gives_what_arrow_gives(names: list[str], number: int) -> None:
    condition = CONDITIONS[number]
    table, _ = opened(GROUPS)
    expected = ds.InMemoryDataset(TABLE).to_table(columns=names, filter=condition)
    found = Scan(table).to_table(columns=names, filter=condition)
    assert found.equals(expected)
    kept = Scan(table, whole=TABLE.select)
    assert kept.to_table(columns=names, filter=condition).equals(expected)
    assert Scan(table).count_rows(filter=condition) == len(expected)


def test_only_the_columns_of_query_and_filter_are_asked_for() -> None:
    table, source = opened(GROUPS)
    asked: list[Sequence[str]] = []

    def whole(names: Sequence[str]) -> Any:
        asked.append(sorted(names))
        return TABLE.select(names)

    with duckdb.connect() as connection:
        connection.register("data", Scan(table, whole=whole))
        query = "SELECT id FROM data WHERE number = 7 AND float > 0"
        assert connection.sql(query).fetchall() == [("s7",)]
        assert connection.sql("SELECT count(*) FROM data").fetchall() == [(1000,)]
    assert asked[0] == ["float", "id", "number"]
    assert len(asked[1]) <= 1
    assert source.requests == 0


def test_a_scan_in_many_reads_keeps_the_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "_RUN_CELLS", 300)
    table, source = opened(GROUPS)
    assert Scan(table).to_table().equals(TABLE)
    assert source.round_trips == 10
    source.log.clear()
    reader = Scan(table).scanner(columns=["id"]).to_reader()
    assert source.requests == 0
    assert reader.read_next_batch().column(0)[0].as_py() == "s0"
    assert source.round_trips <= 1
    copy = pickle.loads(pickle.dumps(Scan(table)))
    assert copy.to_table(columns=["id"]).equals(TABLE.select(["id"]))


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.integers(0, 999), max_size=4),
    st.lists(st.integers(0, 999), max_size=4),
    st.integers(1, 400),
    st.sampled_from(range(len(CONDITIONS))),
)
def test_columns_in_chunks_of_their_own(
    one: list[int], two: list[int], most: int, number: int
) -> None:
    """Batches are cut at every chunk of every column, and matches are told for all at once."""

    def cut(column: Any, places: list[int]) -> Any:
        ends = [0, *sorted(places), len(column)]
        parts = [column.slice(a, b - a) for a, b in itertools.pairwise(ends)]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], column.type)

    chunked = pa.table(
        [cut(column, two if n % 2 else one) for n, column in enumerate(TABLE.columns)],
        schema=TABLE.schema,
    )
    table, _ = opened(GROUPS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "_BATCH", most)
        scanned = Scan(table, whole=chunked.select).scanner(filter=CONDITIONS[number])
        batches = list(scanned.to_reader())
        with duckdb.connect() as connection:
            connection.register("data", Scan(table, whole=chunked.select))
            some = connection.sql("SELECT id FROM data WHERE number % 3 = 1").fetchall()
    assert some == [(f"s{row}",) for row in range(1, 1000, 3)]
    expected = ds.InMemoryDataset(TABLE).to_table(filter=CONDITIONS[number])
    assert pa.Table.from_batches(batches, TABLE.schema).equals(expected)
    assert max((batch.num_rows for batch in batches), default=0) <= most


def test_rows_that_the_filter_drops_do_not_count_as_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scan, "_RUN_CELLS", 2000)
    texts = pa.array([f"{n:0100d}" for n in range(10_000)])
    data = parquet(pa.table({"text": texts, "n": np.arange(10_000)}), row_group_size=500)
    table, _ = opened(data, limits=Limits(leaf_bytes=400_000))
    failures: list[ComalError] = []
    few = Scan(table, failures).to_table(filter=pc.bit_wise_and(ds.field("n"), 1023) == 5)
    assert few.column("n").to_pylist() == list(range(5, 10_000, 1024))
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        Scan(table, failures).to_table()
    assert len(failures) == 1
    assert isinstance(failures[0], LimitExceededError)
    monkeypatch.setattr(scan, "_PASSED", 1)
    with pytest.raises(LimitExceededError, match="reads more"):
        Scan(table).to_table(filter=pc.bit_wise_and(ds.field("n"), 1023) == 5)


def test_a_scan_without_rows_of_its_own_cannot_be_made() -> None:
    class Half(scan.Batches):
        pass

    with pytest.raises(TypeError, match="abstract"):
        Half(TABLE.schema, [])  # type: ignore[abstract]
