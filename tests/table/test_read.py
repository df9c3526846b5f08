"""Reading tables over ranges: right values, few bytes."""

from __future__ import annotations

import io
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import MemorySource
from tests.table.tables import BACK, FRONT, opened, parquet, sample_table, source_of

from comal.errors import InvalidInputError, LimitExceededError
from comal.limits import Limits
from comal.plan import ByteRange, Piece, run
from comal.table import ParquetTable, footer_plan
from comal.table.scan import Scan

TABLE = sample_table()
GROUPS = parquet(TABLE, row_group_size=100)
NOISE = np.random.default_rng(0).integers(0, 256, (1000, 400), np.uint8)
BLOBS = TABLE.append_column("blob", pa.array([row.tobytes() for row in NOISE]))
WIDE = parquet(BLOBS, row_group_size=100)
"""Longer than the tail that comes with the footer."""


def test_footer_in_one_request() -> None:
    source, span = source_of(GROUPS)
    footer = run(footer_plan(span), source.fetch)
    assert source.log == [[ByteRange(span.end - min(65_536, span.size), min(65_536, span.size))]]
    assert footer.schema.equals(TABLE.schema)
    assert footer.metadata.num_rows == 1000


def test_footer_over_64_kib_in_two() -> None:
    wide = pa.table({f"column {row} {'x' * 80}": [row] for row in range(900)})
    data = parquet(wide)
    source, span = source_of(data)
    footer = run(footer_plan(span), source.fetch)
    assert source.round_trips == 2
    assert len(footer.tail.data) > 65_536
    assert ParquetTable(source, footer).read().equals(wide)


def test_row_groups_without_rows() -> None:
    table = sample_table(10)
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema) as writer:
        for part in (table[:0], table[:7], table[:0], table[7:], table[:0]):
            writer.write_table(part)
    found, _ = opened(file.getvalue())
    assert found.num_row_groups == 5
    assert found.read().equals(table)
    assert found.read(["id"], [1, 2]).equals(table.select(["id"])[:7])
    assert found.read(["id"], [0, 4]).num_rows == 0
    assert found.read_rows(6, 8).equals(table[6:8])
    assert found.take_rows([9, 0]).equals(table.take([9, 0]))
    assert pa.Table.from_batches(found.iter_batches(rows=3)).equals(table)
    assert Scan(found).scanner(filter=ds.field("number") > 7).to_table().num_rows == 2
    nothing = parquet(table[:0])
    assert opened(nothing)[0].read().equals(table[:0])


def test_footer_from_known_pieces() -> None:
    source, span = source_of(GROUPS)
    data = source.objects[""]
    for start in (0, span.end - 20_000):
        run(footer_plan(span, [Piece(data[start:], start, len(data))]), source.fetch)
    assert source.requests == 0
    run(footer_plan(span, [Piece(data[span.end - 8 :], span.end - 8, len(data))]), source.fetch)
    assert source.requests == 1
    assert source.bytes_read < 20_000


def test_values() -> None:
    table, source = opened(GROUPS)
    assert (table.num_rows, table.num_row_groups) == (1000, 10)
    assert table.column_names == TABLE.column_names
    assert table.schema.equals(TABLE.schema)
    assert table.read().equals(TABLE)
    assert source.round_trips == 1


def test_one_column_costs_its_own_bytes() -> None:
    table, source = opened(GROUPS)
    assert table.read(["number"]).equals(TABLE.select(["number"]))
    assert source.round_trips == 1
    metadata = pq.read_metadata(io.BytesIO(GROUPS))
    sizes = [metadata.row_group(group).column(1).total_compressed_size for group in range(10)]
    assert source.bytes_read == sum(sizes)
    assert source.requests == 10


def test_order_of_columns_is_the_callers() -> None:
    table, _ = opened(GROUPS)
    names = ["shape", "id", "point", "float"]
    assert table.read(names).equals(TABLE.select(names))
    assert table.read([]).num_columns == 0


def test_a_name_that_is_the_start_of_another() -> None:
    data = pa.table({"a": [1], "a.b": [2], "ab": [3], "a:b": [4]})
    table, _ = opened(parquet(data))
    for name in data.column_names:
        assert table.read([name]).equals(data.select([name]))


def test_row_groups() -> None:
    table, source = opened(GROUPS)
    read = table.read(["id"], [3, 7])
    expected = pa.concat_tables([TABLE.slice(300, 100), TABLE.slice(700, 100)]).select(["id"])
    assert read.equals(expected)
    assert source.requests == 2
    assert table.read(["id"], []).num_rows == 0


@pytest.mark.parametrize(
    ("start", "stop", "groups"),
    [(0, 0, 0), (0, 1, 1), (99, 100, 1), (99, 101, 2), (100, 200, 1), (250, 999, 8), (0, 1000, 10)],
)
def test_read_rows(start: int, stop: int, groups: int) -> None:
    table, source = opened(GROUPS)
    assert table.read_rows(start, stop, ["id"]).equals(
        TABLE.slice(start, stop - start).select(["id"])
    )
    assert source.requests == groups


@pytest.mark.parametrize("rows", [[], [5], [999, 0, 0, 431, 432], list(range(1000))[::-1]])
def test_take_rows(rows: list[int]) -> None:
    table, source = opened(GROUPS)
    taken = table.take_rows(np.array(rows), ["id", "float"])
    assert taken.equals(TABLE.select(["id", "float"]).take(pa.array(rows, pa.int64())))
    assert source.round_trips == (1 if rows else 0)


@pytest.mark.parametrize("rows", [7, 100, 65_536])
def test_iter_batches(rows: int) -> None:
    table, _ = opened(GROUPS)
    batches = list(table.iter_batches(["number", "id"], rows))
    assert max(batch.num_rows for batch in batches) <= rows
    assert pa.Table.from_batches(batches).equals(TABLE.select(["number", "id"]))


def test_iter_batches_fetches_as_it_goes() -> None:
    rng = np.random.default_rng(0)
    blobs = pa.table({"b": pa.array([rng.bytes(1 << 20) for _ in range(40)])})
    table, source = opened(parquet(blobs, row_group_size=4, compression="none"))
    seen = 0
    for batch in table.iter_batches(rows=4):
        seen += batch.num_rows
        assert source.bytes_read <= (seen + 8) * (1 << 20) + 100_000
    assert seen == 40
    assert source.round_trips == 10


def test_known_pieces_are_not_fetched() -> None:
    source, span = source_of(GROUPS)
    whole = Piece(source.objects[""], 0, len(source.objects[""]))
    footer = run(footer_plan(span, [whole]), source.fetch)
    table = ParquetTable(source, footer, known=[whole])
    assert table.read().equals(TABLE)
    assert Scan(table).to_table().equals(TABLE)
    assert source.requests == 0


@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables(rows: int) -> None:
    small = TABLE.slice(0, rows)
    table, _ = opened(parquet(small))
    assert table.read().equals(small)
    assert sum(batch.num_rows for batch in table.iter_batches()) == rows
    assert Scan(table).to_table().equals(small)


def test_a_table_without_columns() -> None:
    table, _ = opened(parquet(pa.table({})))
    assert table.read().num_columns == 0


def wide() -> tuple[ParquetTable, MemorySource]:
    source, span = source_of(WIDE)
    footer = run(footer_plan(span), source.fetch)
    source.log.clear()
    return ParquetTable(source, footer), source


def test_dataset_pushes_down_to_ranges() -> None:
    table, source = wide()
    data = Scan(table)
    assert source.requests == 0
    read = data.to_table(columns=["id"], filter=ds.field("number") == 555)
    assert read.to_pydict() == {"id": ["s555"]}
    # One of ten row groups, and two of its columns.
    assert source.round_trips == 1
    layout = table.footer.layout
    assert source.bytes_read == layout.size[5, :2].sum()


def test_duckdb_over_the_dataset() -> None:
    table, source = wide()
    data = Scan(table)
    with duckdb.connect() as connection:
        connection.register("data", data)
        query = "SELECT id, point.x AS x FROM data WHERE number BETWEEN 250 AND 252"
        read = connection.sql(query).to_arrow_table()
    assert read.to_pydict() == {"id": ["s250", "s251", "s252"], "x": [250, 251, 252]}
    assert source.bytes_read < len(WIDE) / 20


def test_the_tail_that_came_with_the_footer_is_used() -> None:
    table, source = wide()
    assert table.read(["id"], [9]).equals(TABLE.slice(900).select(["id"]))
    assert source.requests == 0


def test_threads_and_pickles() -> None:
    table, _ = opened(GROUPS)
    copy = pickle.loads(pickle.dumps(table))
    with ThreadPoolExecutor(8) as executor:
        for result in executor.map(lambda group: copy.read(None, [group]), range(10)):
            assert result.num_rows == 100
        tables = list(executor.map(lambda _: Scan(copy).to_table(), range(8)))
    assert all(other.equals(TABLE) for other in tables)


@pytest.mark.parametrize(
    "action",
    [
        lambda table: table.read(["nothing"]),
        lambda table: table.read(["id", "id"]),
        lambda table: table.read(None, [10]),
        lambda table: table.read(None, [-1]),
        lambda table: table.read_rows(5, 1001),
        lambda table: table.read_rows(-1, 5),
        lambda table: table.read_rows(5, 4),
        lambda table: table.take_rows([1000]),
        lambda table: table.take_rows([-1]),
        lambda table: list(table.iter_batches(["nothing"])),
    ],
)
def test_what_is_not_there(action: Any) -> None:
    table, source = opened(GROUPS)
    with pytest.raises(InvalidInputError) as caught:
        action(table)
    assert caught.value.where == f"table (bytes {len(FRONT)}+{len(GROUPS)})"
    assert source.requests == 0


@pytest.mark.parametrize(
    "limits",
    [
        Limits(table_rows=999),
        Limits(table_cells=6999),
        Limits(table_bytes=1000),
        Limits(leaf_bytes=10_000),
    ],
)
def test_limits_of_a_read(limits: Limits) -> None:
    table, _ = opened(GROUPS, limits=limits)
    with pytest.raises(LimitExceededError, match="over the limit"):
        table.read()
    assert table.read(["number"], [0]).num_rows == 100


@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.lists(st.floats(allow_nan=False), max_size=4),
            st.none() | st.binary(max_size=9),
        ),
        max_size=60,
    ),
    st.sampled_from([1, 7, 100]),
)
def test_round_trip(rows: list[tuple[Any, ...]], group: int) -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("number", pa.int64()),
            pa.field("list", pa.list_(pa.field("element", pa.float64()))),
            ("bytes", pa.binary()),
        ]
    )
    arrays = [
        pa.array([row[index] for row in rows], kind) for index, kind in enumerate(schema.types)
    ]
    original = pa.table(arrays, schema=schema)
    table, _ = opened(parquet(original, row_group_size=group))
    assert table.read().equals(original)
    data = parquet(original, row_group_size=group)
    assert pq.read_table(io.BytesIO(data)).equals(original)
    assert BACK not in data
    assert isinstance(table.source, MemorySource)
