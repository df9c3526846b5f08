"""Parquet from strangers: right values or an error of ours."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes import MemorySource
from tests.table.tables import opened, parquet, sample_table, source_of, varint, zigzag

from comal.errors import ComalError, InvalidMetadataError, LimitExceededError, ShortReadError
from comal.limits import Limits
from comal.plan import ByteRange, run
from comal.table import ParquetTable, footer_plan
from comal.table.pages import expansion
from comal.table.scan import Scan

TABLE = sample_table(50)
DATA = parquet(TABLE, row_group_size=20)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a Parquet file"),
        (b"PAR1PAR1", "not a Parquet file"),
        (b"x" * 100, "not a Parquet file"),
        (DATA[:-4] + b"PARE", "encrypted"),
        (DATA[:-8] + struct.pack("<I", len(DATA)) + b"PAR1", "longer than the file"),
        (DATA[:-8] + b"\xff\xff\xff\xffPAR1", "longer than the file"),
        (DATA[:-8] + bytes(4) + b"PAR1", "footer"),
        (DATA[:-8] + b"\5\0\0\0PAR1", "footer"),
        (DATA[:-300] + bytes(292) + DATA[-8:], "footer"),
    ],
)
def test_footers_that_are_refused(data: bytes, message: str) -> None:
    source, span = source_of(data)
    with pytest.raises(InvalidMetadataError, match=message) as caught:
        run(footer_plan(span), source.fetch)
    assert f"bytes {span.offset}+{span.size}" in str(caught.value.where)


def test_no_number_of_a_footer_is_too_large_for_a_column() -> None:
    data = parquet(sample_table(2))
    size = int.from_bytes(data[-8:-4], "little")
    footer = data[-8 - size : -8]
    # FileMetaData: 1 version, 2 schema; of its first column: 1 type, 3 repetition (parquet.thrift).
    place = footer.index(b"\x15\x0c\x25\x02")
    for number in (2**70 - 1, 2**64 - 1, 2**32 - 2):
        lying = footer[: place + 3] + varint(number) + footer[place + 4 :]
        found = attempt(data[: -8 - size] + lying + len(lying).to_bytes(4, "little") + b"PAR1")
        assert isinstance(found, InvalidMetadataError)


def test_a_footer_over_the_limit() -> None:
    source, span = source_of(DATA)
    with pytest.raises(LimitExceededError):
        run(footer_plan(span, limits=Limits(table_bytes=100)), source.fetch)
    with pytest.raises(LimitExceededError):
        run(footer_plan(span, limits=Limits(table_columns=7)), source.fetch)


def test_names_that_are_refused() -> None:
    for table in (pa.table({"a\n": [1]}), pa.Table.from_arrays([pa.array([1])] * 2, ["a", "a"])):
        file = io.BytesIO()
        pq.write_table(table, file)
        source, span = source_of(file.getvalue())
        with pytest.raises(InvalidMetadataError, match="column name"):
            run(footer_plan(span), source.fetch)


def test_a_span_in_the_wrong_place() -> None:
    source, span = source_of(DATA)
    for shift in (-1, 1, 100):
        with pytest.raises(ComalError):
            run(footer_plan(ByteRange(span.offset + shift, span.size)), source.fetch)


def test_a_flipped_bit_is_found_by_every_way_of_reading() -> None:
    layout = opened(DATA)[0].footer.layout
    broken = bytearray(DATA)
    broken[layout.start[0, 1] + layout.size[0, 1] - 3] ^= 1
    table, _ = opened(bytes(broken))
    for read in (
        lambda: table.read(["number"]),
        lambda: table.read_rows(0, 5),
        lambda: table.take_rows([3]),
        lambda: list(table.iter_batches()),
        lambda: Scan(table).to_table(),
    ):
        with pytest.raises(InvalidMetadataError, match="broken"):
            read()
    assert table.read(["id"]).num_rows == 50


mutations = st.lists(
    st.tuples(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=4)),
    min_size=1,
    max_size=5,
)
PAGES = len(DATA) - pq.read_metadata(io.BytesIO(DATA)).serialized_size - 8


@settings(max_examples=150, deadline=None)
@given(mutations)
def test_mutants_are_read_or_refused(changes: list[tuple[int, bytes]]) -> None:
    """pyarrow's view of a column chunk aborts on some footers; it is never asked."""
    broken = bytearray(DATA)
    for offset, new in changes:
        broken[offset : offset + len(new)] = new[: len(DATA) - offset]
    outcome = attempt(bytes(broken))
    assert isinstance(outcome, ComalError | pa.Table)
    if len(changes) == 1 and changes[0][0] < PAGES - 4:
        # With page checksums no page can be changed unseen.
        assert isinstance(outcome, ComalError) or outcome.equals(TABLE)


def attempt(data: bytes) -> Any:
    source, span = source_of(data)
    try:
        footer = run(footer_plan(span), source.fetch)
        return ParquetTable(source, footer, limits=Limits(leaf_bytes=50_000_000)).read()
    except ComalError as error:
        return error


LONG = "x" * 100_000


def many() -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(20_000, np.int32)), [LONG])


BOMBS: dict[str, tuple[Callable[[], Any], dict[str, Any]]] = {
    "dictionary": (many, {}),
    "dictionary in a list": (lambda: pa.ListArray.from_arrays(range(20_001), many()), {}),
    "shared prefixes": (
        lambda: pa.array([LONG] * 500),
        {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}},
    ),
    "zeros": (
        lambda: pa.array([bytes(40_000_000)]),
        {"use_dictionary": False, "compression": "zstd"},
    ),
    "wide numbers": (
        lambda: pa.array([bytes(4096)] * 10_000, pa.binary(4096)),
        {"compression": "zstd"},
    ),
}


_POOLS: list[Any] = []
"""Buffers point to their pool and do not keep it: one that is gone crashes whoever frees them."""


class _Counted:
    """Counts what Arrow allocates inside of the block."""

    def __init__(self) -> None:
        self._usual = pa.default_memory_pool()
        self.pool = pa.proxy_memory_pool(self._usual)
        _POOLS.append(self.pool)

    def __enter__(self) -> None:
        pa.set_memory_pool(self.pool)

    def __exit__(self, *_: object) -> None:
        pa.set_memory_pool(self._usual)


@pytest.mark.parametrize("case", BOMBS)
def test_a_table_that_grows_when_decoded(case: str) -> None:
    """A few bytes become many; decoding stops before they do."""
    made, arguments = BOMBS[case]
    file = io.BytesIO()
    pq.write_table(pa.table({"a": made()}), file, **{"store_schema": False, **arguments})
    data = file.getvalue()
    assert len(data) < 500_000
    bomb, _ = opened(data, limits=Limits(leaf_bytes=20_000_000))
    for read in (
        bomb.read,
        lambda: Scan(bomb).to_table(),
        lambda: Scan(bomb).to_table(columns=["a"], filter=ds.field("a").is_valid()),
        lambda: list(Scan(bomb).scanner().to_reader()),
    ):
        counted = _Counted()
        with pytest.raises(LimitExceededError, match="leaf bytes"), counted:
            read()
        assert counted.pool.max_memory() < 60_000_000


def test_a_footer_that_says_too_few_values() -> None:
    """A row of a list may hold any number of values, whatever the footer says of them."""
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(200_000, np.int32)), ["x" * 1000])
    column = pa.ListArray.from_arrays([0, 200_000], values)
    file = io.BytesIO()
    pq.write_table(pa.table({"a": column}), file, store_schema=False)
    data = file.getvalue()
    said = zigzag(200_000)
    footer = len(data) - int.from_bytes(data[-8:-4], "little") - 8
    few = data[:footer] + data[footer:].replace(said, zigzag(1 << 15))
    assert few != data
    bomb, _ = opened(few, limits=Limits(leaf_bytes=40_000_000))
    assert bomb.footer.layout.values.max() == 1 << 15
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        bomb.read()


def test_page_headers_that_contradict_themselves() -> None:
    """Whatever a reader takes of them, the bound holds."""
    v1 = bytes([0x2C, 0x15, 200, 1, 0x15, 16, 0])  # field 5: 100 values, RLE_DICTIONARY
    v2 = bytes([0x3C, 0x15, 2, 0x35, 0, 0])  # field 8: 1 value, PLAIN
    page = bytes([0x15, 0, 0x15, 20, 0x15, 4]) + v1 + v2 + b"\0" + b"ab"
    lookup = bytes([0x15, 4, 0x15, 40, 0x15, 2]) + b"\x5c" + v2[1:] + b"\0" + b"c"
    found = expansion(lookup + page, "here")
    assert (found.values, found.dictionary, found.prefixes) == (102, 20, False)
    assert (found.total, found.largest) == (30, 20)
    with pytest.raises(InvalidMetadataError, match="negative"):
        expansion(bytes([0x15, 0, 0x15, 1, 0x15, 4, 0]) + b"ab", "here")


def test_rows_over_the_limit_are_not_decoded() -> None:
    table = pa.table({"a": pa.nulls(30_000_000, pa.int8())})
    bomb, source = opened(parquet(table, row_group_size=1 << 25))
    with pytest.raises(LimitExceededError, match="rows"):
        bomb.read()
    assert source.requests == 0


class Failing(MemorySource):
    def fetch(self, wanted: Any) -> Any:
        """As a source whose connection breaks."""
        raise ShortReadError("connection broke", where="here")


@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.read(),
        lambda table: next(table.iter_batches()),
        lambda table: Scan(table).to_table(),
    ],
)
def test_errors_of_the_source_stay_what_they_are(read: Any) -> None:
    table, source = opened(DATA)
    failing = ParquetTable(Failing(source.objects), table.footer)
    with pytest.raises(ShortReadError, match="connection broke"):
        read(failing)


def test_chunks_outside_of_the_file() -> None:
    # The same footer behind fewer bytes: its chunks now reach into it.
    source, span = source_of(DATA[1000:])
    with pytest.raises(InvalidMetadataError, match="outside the Parquet file"):
        run(footer_plan(span), source.fetch)
