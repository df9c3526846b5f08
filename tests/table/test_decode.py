"""Tables in parts, side by side, and columns that are stored twice: the values stay the same."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.table.tables import opened

from comal.errors import InvalidMetadataError, LimitExceededError
from comal.limits import Limits
from comal.table import decode

ROWS = 120_000


def _file(table: Any, **arguments: Any) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, write_page_checksum=True, **arguments)
    return file.getvalue()


def _large() -> Any:
    rows = np.arange(ROWS)
    texts = pa.array([f"sample_{row:07d}" for row in range(ROWS)])
    kinds = pa.array(["FILE", None, "F\u00d6LDER", ""]).take(pa.array(rows % 4))
    return pa.table(
        {
            "id": texts,
            "path": texts,
            "kind": kinds,
            "blob": kinds.cast(pa.binary()),
            "number": rows,
            "again": rows,
            "nullable": pa.array(rows, mask=rows % 7 == 0),
            "list": pa.array([[row, None] for row in range(100)]).take(pa.array(rows % 100)),
        }
    )


LARGE = _large()
ENCODINGS = {"id": "DELTA_BYTE_ARRAY", "path": "DELTA_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}


@pytest.mark.parametrize("group", [1_000, 50_000, 70_000, ROWS])
@pytest.mark.parametrize("leaf_bytes", [60_000_000, Limits().leaf_bytes])
def test_a_large_table_is_the_same_in_parts(group: int, leaf_bytes: int) -> None:
    looked_up = ["kind", "blob", "nullable", "list.list.element"]
    data = _file(
        LARGE,
        row_group_size=group,
        use_dictionary=looked_up,
        column_encoding=ENCODINGS,
        compression="zstd",
    )
    table, _ = opened(data, limits=Limits(leaf_bytes=leaf_bytes))
    found = table.read()
    assert found.equals(pq.read_table(io.BytesIO(data)).cast(found.schema))
    assert found.equals(LARGE.cast(found.schema))
    names = ["path", "kind", "id"]
    assert table.read(names).equals(LARGE.select(names))
    if group == 1_000:
        groups = list(range(119, -1, -1))
        expected = pa.concat_tables([LARGE.slice(1_000 * n, 1_000) for n in groups])
        assert table.read(names, groups).equals(expected.select(names))


@pytest.mark.parametrize("rows", [100, ROWS])
def test_stored_bytes_that_stand_twice_are_decoded_once(rows: int) -> None:
    data = _file(LARGE.slice(0, rows), use_dictionary=False, row_group_size=40_000)
    table, _ = opened(data)
    for names in (["path", "number", "id", "again"], ["again", "id", "nullable", "number", "path"]):
        found = table.read(names)
        assert found.equals(LARGE.slice(0, rows).select(names))
        for one, two in (("id", "path"), ("number", "again")):
            for a, b in zip(found[one].chunks, found[two].chunks, strict=True):
                places = [[buffer and buffer.address for buffer in c.buffers()] for c in (a, b)]
                assert places[0] == places[1]
        batches = pa.Table.from_batches(list(table.iter_batches(names, rows=333)))
        assert batches.equals(found)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                pa.array([0, 1, 2**40]),
                pa.array([0, 1, 2**40], pa.uint64()),
                pa.array([0, 1, 2**40], pa.timestamp("us")),
                pa.array([0.0, 5e-324, 2**40 * 5e-324]),
                pa.array([b"\0", b"\1", b"ab"]),
                pa.array(["\0", "\1", "ab"]),
                pa.array(["\0", "\1", "ac"]),
                pa.array(["\0", "\1", None]),
            ]
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(st.sampled_from(["none", "snappy", "zstd"]), min_size=6, max_size=6),
    st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_columns_alike_in_bytes_alone_stay_apart(
    columns: list[Any], codecs: list[str], nullable: list[bool]
) -> None:
    """The same bytes are other values in another type, and other bytes under another codec."""
    names = [f"c{n}" for n in range(len(columns))]
    fields = [
        pa.field(name, column.type, nullable=null or column.null_count > 0)
        for name, column, null in zip(names, columns, nullable, strict=False)
    ]
    table = pa.table(columns, schema=pa.schema(fields))
    compression = dict(zip(names, codecs, strict=False))
    data = _file(table, use_dictionary=False, compression=compression, store_schema=False)
    found = opened(data)[0].read()
    assert found.equals(pq.read_table(io.BytesIO(data)).cast(found.schema))


def _text(values: list[bytes]) -> Any:
    """A column of texts that nobody has checked."""
    binary = pa.array(values)
    return pa.StringArray.from_buffers(len(values), *binary.buffers()[1:])


@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_BYTE_ARRAY"])
def test_text_that_is_no_text_is_found_in_every_part(encoding: str) -> None:
    column = _text([b"fine"] * (ROWS - 1) + [b"\xff\xfe"])
    arguments: dict[str, Any] = {"use_dictionary": True}
    if encoding != "dictionary":
        arguments = {"use_dictionary": False, "column_encoding": {"a": encoding}}
    table, _ = opened(_file(pa.table({"a": column}), row_group_size=30_000, **arguments))
    assert table.read(row_groups=[0, 1, 2]).num_rows == 90_000
    with pytest.raises(InvalidMetadataError, match="UTF"):
        table.read()


def test_a_wrong_byte_in_the_last_part_is_found() -> None:
    arguments = {"use_dictionary": False, "compression": "none", "row_group_size": 30_000}
    data = bytearray(_file(LARGE.select(["number"]), **arguments))
    last = pq.read_metadata(io.BytesIO(bytes(data))).row_group(3).column(0)
    data[last.data_page_offset + last.total_compressed_size - 5] ^= 1
    table, _ = opened(bytes(data))
    with pytest.raises(InvalidMetadataError):
        table.read()


def test_a_dictionary_that_explodes_in_a_large_table() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), ["x" * 100_000])
    data = _file(pa.table({"a": column}), row_group_size=30_000, store_schema=False)
    assert len(data) < 1_000_000
    table, _ = opened(data)
    before = pa.total_allocated_bytes()
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        table.read()
    assert pa.total_allocated_bytes() - before < 10_000_000


def test_one_look_at_the_bytes_finds_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many columns begin alike, each is compared with one other."""
    monkeypatch.setattr(decode, "_HEAD", 0)
    columns = {f"c{n}": pa.array([0] * 1000 + [n % 5]) for n in range(40)}
    data = _file(pa.table(columns), use_dictionary=False, compression="none")
    table, _ = opened(data)
    assert table.read().equals(pa.table(columns))
