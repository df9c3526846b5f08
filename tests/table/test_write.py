"""Writing tables."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.table.tables import opened, parquet, sample_table

from comal.errors import InvalidInputError, StorageError
from comal.table import ParquetSettings, Writer, write_table

TABLE = sample_table()


def metadata(data: bytes) -> Any:
    return pq.read_metadata(io.BytesIO(data))


def test_the_same_table_gives_the_same_bytes() -> None:
    chunked = pa.concat_tables([TABLE.slice(0, 13), TABLE.slice(13)])
    assert parquet(TABLE) == parquet(sample_table())
    assert opened(parquet(chunked))[0].read().equals(TABLE)


def test_defaults() -> None:
    column = metadata(parquet(TABLE)).row_group(0).column(1)
    assert column.compression == "ZSTD"
    assert column.is_stats_set
    assert not column.has_column_index
    assert metadata(parquet(TABLE)).metadata.keys() == {b"ARROW:schema"}


@pytest.mark.parametrize("batches", [[1000], [1] * 300, [50, 100, 101, 7], [250, 0, 250]])
def test_row_groups_are_full_but_the_last(batches: list[int]) -> None:
    file = io.BytesIO()
    writer = Writer(file, TABLE.schema, ParquetSettings(row_group_size=100))
    start = 0
    for rows in batches:
        for batch in TABLE.slice(start, rows).to_batches():
            writer.write(batch)
        start += rows
    writer.close()
    found = metadata(file.getvalue())
    groups = [found.row_group(index).num_rows for index in range(found.num_row_groups)]
    full, rest = divmod(start, 100)
    assert groups == [100] * full + [rest] * (rest > 0)
    assert opened(file.getvalue())[0].read().equals(TABLE.slice(0, start))


def test_dictionaries_where_values_repeat() -> None:
    rows = 2_000
    columns: dict[str, Any] = {
        "few": [f"class {n % 5}" for n in range(rows)],
        "null": pa.array([None] * rows, pa.string()),
        "number": [n % 3 for n in range(rows)],
        "late": ["same"] * 1_000 + [f"other {n}" for n in range(1_000)],
        "many": [f"text {n}" for n in range(rows)],
        "float": [n / 7 for n in range(rows)],
        "list": [["a", "b"]] * rows,
        "struct": [{"x": 1}] * rows,
    }
    found = metadata(parquet(pa.table(columns), dictionary=None, row_group_size=1_000)).row_group(0)
    described = [found.column(n) for n in range(found.num_columns)]
    with_one = {c.path_in_schema for c in described if c.has_dictionary_page}
    assert with_one == {"few", "null", "number", "late"}
    tiny = metadata(parquet(pa.table({"a": ["x"] * 7}), dictionary=None)).row_group(0)
    assert not tiny.column(0).has_dictionary_page
    empty = parquet(pa.table({"a": pa.array([], pa.string())}), dictionary=None)
    assert opened(empty)[0].read().num_rows == 0


def test_pages_are_cut_where_it_is_asked_for() -> None:
    table = pa.table({"a": [f"{n * 2654435761 % (1 << 32):064x}" for n in range(5_000)]})

    def pages(**settings: Any) -> int:
        column = metadata(parquet(table, dictionary=False, **settings)).row_group(0).column(0)
        magic = bytes.fromhex("28b52ffd")  # each page is a Zstandard frame
        data = parquet(table, dictionary=False, **settings)[column.data_page_offset :]
        return data[: column.total_compressed_size].count(magic)

    assert pages() <= 2
    assert 320_000 / 131_072 < pages(chunk_bytes=(16_384, 131_072)) < 320_000 / 16_384
    assert pages(chunk_bytes=(16_384, 131_072), content_defined_chunking=False) == 1


@pytest.mark.parametrize("pair", [(), (1,), (0, 10), (10, 10), (1, 2, 3), ("a", "b"), (1, 1 << 40)])
def test_bounds_of_pages_that_are_none(pair: Any) -> None:
    with pytest.raises(InvalidInputError, match="cuts by content"):
        ParquetSettings.from_kwargs(chunk_bytes=pair)


def test_columns_may_come_in_another_order_or_width() -> None:
    file = io.BytesIO()
    writer = Writer(file, pa.schema([("a", pa.int64()), ("b", pa.string())]))
    writer.write(pa.table({"b": pa.array(["x"], pa.large_string()), "a": pa.array([1], pa.int8())}))
    writer.close()
    assert opened(file.getvalue())[0].read().to_pydict() == {"a": [1], "b": ["x"]}


@pytest.mark.parametrize(
    "table", [pa.table({"a": [1]}), pa.table({"a": ["x"], "b": ["y"]}), pa.table({"c": [1]})]
)
def test_columns_that_do_not_fit(table: Any) -> None:
    writer = Writer(io.BytesIO(), pa.schema([("a", pa.int64()), ("b", pa.string())]))
    with pytest.raises(InvalidInputError, match="cannot be written"):
        writer.write(table)


def test_a_type_that_parquet_lacks() -> None:
    with pytest.raises(InvalidInputError, match="cannot be written"):
        write_table(pa.table({"a": pa.array([None], pa.month_day_nano_interval())}), io.BytesIO())


def test_content_defined_chunking_keeps_most_bytes() -> None:
    rows = 60_000
    ids = [f"{row * 2654435761 % 2**32:x}" for row in range(rows)]
    before = parquet(pa.table({"id": ids}), compression="none", dictionary=False)
    ids.insert(100, "new")
    after = parquet(pa.table({"id": ids}), compression="none", dictionary=False)
    tail = before[len(before) // 2 : len(before) // 2 + 100_000]
    assert tail in after


@pytest.mark.parametrize("codec", ["zstd", "gzip", "brotli", "snappy", "lz4", "none", "SNAPPY"])
def test_codecs(codec: str) -> None:
    settings = ParquetSettings.from_kwargs(compression=codec)
    file = io.BytesIO()
    write_table(TABLE, file, settings)
    assert opened(file.getvalue())[0].read().equals(TABLE)


def test_a_level_is_dropped_where_the_codec_has_none() -> None:
    for codec in ("snappy", "lz4", "none"):
        settings = ParquetSettings(compression=codec, level=13)
        assert settings.writer_arguments(TABLE.schema)["compression_level"] is None
        write_table(TABLE, io.BytesIO(), settings)
    assert ParquetSettings(level=3).writer_arguments(TABLE.schema)["compression_level"] == 3


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ParquetSettings()),
        ({"compression_level": 19}, ParquetSettings(level=19)),
        ({"level": 19}, ParquetSettings(level=19)),
        ({"compression": "gzip"}, ParquetSettings(compression="gzip", level=None)),
        ({"compression": None}, ParquetSettings(compression="none", level=None)),
        ({"row_group_size": 5}, ParquetSettings(row_group_size=5)),
        ({"page_index": True}, ParquetSettings(page_index=True)),
    ],
)
def test_from_kwargs(given: dict[str, Any], expected: ParquetSettings) -> None:
    assert ParquetSettings.from_kwargs(**given) == expected


@pytest.mark.parametrize(
    "given",
    [
        {"compresion": "zstd"},
        {"compression": "zip"},
        {"compression": 5},
        {"compression_level": 23},
        {"compression_level": "high"},
        {"compression_level": 3, "level": 3},
        {"compression": "gzip", "compression_level": 10},
        {"row_group_size": 0},
        {"row_group_size": None},
        {"row_group_size": True},
        {"row_group_size": 2**27},
        {"statistics": 1},
        {"data_page_size": 0},
    ],
)
def test_from_kwargs_refuses(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError) as caught:
        ParquetSettings.from_kwargs(**given)
    assert caught.value.found is not None or "both" in caught.value.what


def test_encodings_of_single_columns() -> None:
    settings = ParquetSettings(
        encodings=(("id", "DELTA_BYTE_ARRAY"), ("number", "DELTA_BINARY_PACKED"), ("no", "PLAIN"))
    )
    table = TABLE.append_column(
        "map", pa.array([[("k", 1)]] * 1000, pa.map_(pa.string(), pa.int8()))
    )
    file = io.BytesIO()
    write_table(table, file, settings)
    group = metadata(file.getvalue()).row_group(0)
    used = {
        group.column(i).path_in_schema: group.column(i).encodings for i in range(group.num_columns)
    }
    assert "DELTA_BYTE_ARRAY" in used.pop("id")
    assert "DELTA_BINARY_PACKED" in used.pop("number")
    assert all("RLE_DICTIONARY" in encodings for encodings in used.values())
    assert opened(file.getvalue())[0].read().equals(table)


def test_types_are_written_plain() -> None:
    table = pa.table(
        {
            "s": pa.array(["a"], pa.large_string()),
            "d": pa.array(["a"]).dictionary_encode(),
            "l": pa.array([[1]], pa.large_list(pa.int64())),
        }
    )
    schema = pq.read_schema(io.BytesIO(parquet(table)))
    assert schema.types == [pa.string(), pa.string(), pa.list_(pa.field("element", pa.int64()))]


class Full(io.BytesIO):
    def write(self, data: object, /) -> int:
        raise OSError(28, "No space left on device")


def test_a_full_disk() -> None:
    with pytest.raises(StorageError, match="cannot be written") as caught:
        write_table(TABLE, Full())
    assert "No space" in str(caught.value)
