"""Values that are found in a column chunk: those that pyarrow decodes, or none at all."""

from __future__ import annotations

import io
import random
from types import EllipsisType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import StorageError
from comal.table.chunkvalues import SNAPPY, UNCOMPRESSED, ChunkValues

MOST = 1 << 24
Value = bytes | EllipsisType | None


def noise(*sizes: int, seed: int = 1) -> list[bytes]:
    """Values that Snappy cannot make smaller."""
    made = random.Random(seed)
    return [made.randbytes(size) for size in sizes]


def stored(values: list[bytes | None], **options: Any) -> bytes:
    """A Parquet file with a column of these values, and one in front of it."""
    nullable = options.pop("nullable", True)
    schema = pa.schema([("n", pa.int64()), pa.field("v", pa.binary(), nullable=nullable)])
    table = pa.table([list(range(len(values))), pa.array(values, pa.binary())], schema=schema)
    target = io.BytesIO()
    pq.write_table(table, target, **{"compression": "snappy", "write_statistics": False, **options})
    return target.getvalue()


class File:
    """A file, and what was read of it."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.read_bytes = 0
        self.metadata = pq.read_metadata(io.BytesIO(data))

    def read(self, offset: int, size: int) -> bytes:
        assert size >= 0
        self.read_bytes += size
        found = self.data[offset : offset + size]
        if len(found) < size:
            raise StorageError("short", where="file")
        return found

    def chunk(self, group: int = 0, *, required: bool = False) -> ChunkValues:
        described = self.metadata.row_group(group).column(1)
        start = described.data_page_offset
        if described.dictionary_page_offset is not None:
            start = min(start, described.dictionary_page_offset)
        codec = {"UNCOMPRESSED": UNCOMPRESSED, "SNAPPY": SNAPPY}.get(described.compression, 2)
        rows = self.metadata.row_group(group).num_rows
        return ChunkValues(start, described.total_compressed_size, codec, rows, required=required)

    def values(self, order: list[int], **named: Any) -> list[Value]:
        chunk = self.chunk(**named)
        return [chunk.value(row, self.read, MOST) for row in order]


@pytest.mark.parametrize("codec", ["none", "snappy"])
@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("page", [1 << 20, 1 << 30])
def test_every_value_in_any_order(codec: str, use_dictionary: bool, nulls: bool, page: int) -> None:
    values: list[bytes | None] = [*noise(180_000, 3, 0, 70_000, 65_536, 1, 65_531), *noise(9) * 5]
    if nulls:
        values[2], values[6], values[8] = None, None, None
    options = {"compression": codec, "use_dictionary": use_dictionary, "data_page_size": page}
    file = File(stored(values, dictionary_pagesize_limit=1 << 30, **options))
    order = list(range(len(values)))
    for _ in range(4):
        assert file.values(order) == [values[row] for row in order]
        random.Random(5).shuffle(order)


def test_columns_without_nulls() -> None:
    values: list[bytes | None] = [*noise(50_000, 100_000, 7)]
    for use_dictionary in (True, False):
        file = File(stored(values, nullable=False, use_dictionary=use_dictionary))
        assert file.values([2, 0, 1], required=True) == [values[2], values[0], values[1]]


def test_many_row_groups_and_indexes_of_any_width() -> None:
    different = noise(*[20] * 600)
    values: list[bytes | None] = [None, *different, *different[::-1], *different[:1] * 99]
    file = File(stored(values, row_group_size=500, compression="none"))
    found = [
        value
        for group in range(file.metadata.num_row_groups)
        for value in file.values(list(range(file.metadata.row_group(group).num_rows)), group=group)
    ]
    assert found == values


def test_little_is_read() -> None:
    values: list[bytes | None] = [*noise(*[100_000] * 100)]
    file = File(stored(values, dictionary_pagesize_limit=1 << 30))
    assert file.values([70]) == [values[70]]
    assert file.read_bytes < 500_000


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "zstd"},
        {"compression": "gzip"},
        {"write_page_checksum": True},
        {"data_page_version": "2.0"},
        {"use_dictionary": False, "column_encoding": {"v": "DELTA_LENGTH_BYTE_ARRAY"}},
    ],
    ids=str,
)
def test_what_is_unusual_is_left_to_others(options: dict[str, Any]) -> None:
    file = File(stored([*noise(1000, 2000)], **options))
    assert file.values([0, 1]) == [..., ...]


def test_what_becomes_much_smaller_is_left_to_others() -> None:
    text = b"".join(b"%08d" % (n * n % 1009) for n in range(40_000))
    values: list[bytes | None] = [text + bytes([n]) for n in range(20)]
    file = File(stored(values))
    found = file.values(list(range(20)))
    assert all(value in {..., values[n]} for n, value in enumerate(found))
    assert found[-1] is ...
    assert file.read_bytes < len(file.data)


def test_a_value_over_the_limit() -> None:
    file = File(stored([*noise(10, 5000)]))
    chunk = file.chunk()
    assert chunk.value(1, file.read, 4999) is ...
    assert file.chunk().value(1, file.read, 5000) is not ...


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=60),
    st.sampled_from(["none", "snappy"]),
    st.booleans(),
    st.integers(1, 50),
)
def test_any_values(
    values: list[bytes | None], codec: str, use_dictionary: bool, rows: int
) -> None:
    options = {"use_dictionary": use_dictionary, "max_rows_per_page": rows}
    file = File(stored(values, compression=codec, **options))
    found = file.values(list(range(len(values))))
    assert all(one in {..., value} for one, value in zip(found, values, strict=True))
    if codec == "none":
        assert found == values


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_damage_never_ends_in_another_exception(codec: str, use_dictionary: bool) -> None:
    values: list[bytes | None] = [*noise(3000, 100), None, *noise(9) * 30]
    data = stored(values, compression=codec, use_dictionary=use_dictionary)
    whole = File(data)
    described = whole.metadata.row_group(0).column(1)
    start, size = described.data_page_offset, described.total_compressed_size
    start = min(start, described.dictionary_page_offset or start)
    made = np.random.default_rng(2)
    heads = [*range(start, start + 60), *range(start + size - 60, start + size)]
    for at in [*heads, *made.integers(start, start + size, 200).tolist()]:
        for bits in (1, 0x80, int(made.integers(1, 256))):
            damaged = bytearray(data)
            damaged[at] ^= bits
            file = File(data)
            file.data = bytes(damaged)
            for value in file.values([len(values) - 1, 0, 2]):
                assert value is None or value is ... or isinstance(value, bytes)


def test_a_chunk_that_promises_too_many_values() -> None:
    file = File(stored([*noise(10, 20)]))
    described = file.metadata.row_group(0).column(1)
    start = described.dictionary_page_offset
    chunk = ChunkValues(start, described.total_compressed_size, SNAPPY, 1, required=False)
    assert chunk.value(0, file.read, MOST) is ...


def test_errors_of_the_storage_are_passed_on() -> None:
    file = File(stored([*noise(1000, 2000)]))
    chunk = file.chunk()

    def fail(offset: int, size: int) -> bytes:
        raise StorageError("the disk fails", where=f"{offset}+{size}")

    with pytest.raises(StorageError):
        chunk.value(0, fail, MOST)
    assert chunk.value(1, file.read, MOST) is not ...
