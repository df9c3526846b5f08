"""Reading tables over ranges: right values, few bytes."""

from __future__ import annotations

import io
import itertools
import pickle
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.tables import FRONT, opened, parquet, sample_table, source_of

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


SMALL = sample_table(10)
NAMES = pa.table({"a": [1], "a.b": [2], "ab": [3], "a:b": [4]})


def _in_groups(table: Any, ends: list[int]) -> bytes:
    file = io.BytesIO()
    with pq.ParquetWriter(file, table.schema) as writer:
        for start, stop in itertools.pairwise([0, *ends]):
            writer.write_table(table[start:stop])
    return file.getvalue()


FILES: list[tuple[Any, bytes]] = [
    (TABLE, GROUPS),
    (SMALL, _in_groups(SMALL, [0, 7, 7, 10, 10])),
    (TABLE[:0], parquet(TABLE[:0])),
    (TABLE[:1], parquet(TABLE[:1])),
    (NAMES, parquet(NAMES)),
]
SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        pa.field("list", pa.list_(pa.field("element", pa.float64()))),
        ("bytes", pa.binary()),
    ]
)
ROWS = st.lists(
    st.tuples(
        st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.lists(st.floats(allow_nan=False), max_size=4),
        st.none() | st.binary(max_size=9),
    ),
    max_size=60,
)


def _file_of(rows: list[tuple[Any, ...]], group: int) -> tuple[Any, bytes]:
    columns = [pa.array([row[n] for row in rows], kind) for n, kind in enumerate(SCHEMA.types)]
    table = pa.table(columns, schema=SCHEMA)
    return table, parquet(table, row_group_size=group)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FILES) | st.builds(_file_of, ROWS, st.sampled_from([1, 7, 100])), st.data())
def test_what_is_read_is_a_part_of_the_table(file: tuple[Any, bytes], data: st.DataObject) -> None:
    """By columns, row groups, rows and batches; each read costs one round trip of what it needs."""
    whole, content = file
    assert pq.read_table(io.BytesIO(content)).equals(whole)
    table, source = opened(content)
    assert (table.column_names, table.num_rows) == (whole.column_names, len(whole))
    assert table.schema.equals(whole.schema)
    assert table.read().equals(whole)
    names = data.draw(st.lists(st.sampled_from(whole.column_names), min_size=1, unique=True))
    expected = whole.select(names)
    layout = table.footer.layout
    leaves = [leaf for name in names for leaf in layout.leaves[name]]
    ends = [0, *np.cumsum(layout.rows).tolist()]
    spans = list(itertools.pairwise(ends))

    def costs(needed: list[bool]) -> bool:
        groups = np.flatnonzero(needed)
        found = source.requests, source.round_trips, source.bytes_read
        source.log.clear()
        size = int(layout.size[np.ix_(groups, np.array(leaves))].sum())
        return found == (len(groups) * len(leaves), int(len(groups) > 0), size)

    source.log.clear()
    groups = [n for n in range(len(spans)) if data.draw(st.booleans())]
    parts = [expected[slice(*spans[n])] for n in groups]
    assert table.read(names, groups).equals(pa.concat_tables([expected[:0], *parts]))
    assert costs([n in groups and stop > start for n, (start, stop) in enumerate(spans)])
    places = st.integers(0, len(whole)) | st.sampled_from(ends)
    first, last = sorted((data.draw(places), data.draw(places)))
    assert table.read_rows(first, last, names).equals(expected[first:last])
    assert costs([max(start, first) < min(stop, last) for start, stop in spans])
    rows = data.draw(st.lists(st.integers(0, len(whole) - 1)) if len(whole) else st.just([]))
    taken = pa.array(rows, pa.int64())
    assert table.take_rows(np.array(rows), names).equals(expected.take(taken))
    assert costs([any(start <= row < stop for row in rows) for start, stop in spans])
    most = data.draw(st.sampled_from([1, 7, 100, 65_536]))
    batches = list(table.iter_batches(names, most))
    assert max((batch.num_rows for batch in batches), default=0) <= most
    assert pa.Table.from_batches(batches, expected.schema).equals(expected)
    assert Scan(table).to_table(columns=names).equals(expected)


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


def test_footer_from_known_pieces() -> None:
    source, span = source_of(GROUPS)
    data = source.objects[""]
    for start in (0, span.end - 20_000):
        run(footer_plan(span, [Piece(data[start:], start, len(data))]), source.fetch)
    assert source.requests == 0
    run(footer_plan(span, [Piece(data[span.end - 8 :], span.end - 8, len(data))]), source.fetch)
    assert source.requests == 1
    assert source.bytes_read < 20_000


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


def test_a_read_without_columns() -> None:
    for data in (parquet(pa.table({})), GROUPS):
        table, _ = opened(data)
        assert table.read([]).num_columns == 0


def wide() -> tuple[ParquetTable, Any]:
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
