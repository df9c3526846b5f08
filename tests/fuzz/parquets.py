"""Parquet: footers, page indexes, page headers and values, with pyarrow as the oracle."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidMetadataError
from comal.limits import Limits
from comal.plan import ByteRange, run
from comal.table import Footer, ParquetTable, footer_plan
from comal.table.footer import read_layout
from comal.table.pageindex import page_index_plan
from comal.table.pages import OneValueReader, expansion, one_value, read_page_header
from comal.table.thrift import I64, LIST, STRUCT, CompactReader
from tests.fakes import MemorySource
from tests.fuzz.base import Target
from tests.table.tables import parquet, sample_table

_LIMITS = Limits(table_rows=100_000, leaf_bytes=16 << 20)
"""Honest sizes of small files, so that what takes more is a fault of ours."""


def _file(data: bytes) -> None:
    source = MemorySource.of(data)
    footer = run(footer_plan(ByteRange(0, len(data)), limits=_LIMITS), source.fetch)
    _index(footer, source)
    table = ParquetTable(source, footer, limits=_LIMITS)
    ours = {}
    for name in table.column_names[:20]:
        try:
            ours[name] = table.read([name])[name]
        except ComalError:
            continue
    _compare(data, table, ours)


def _index(footer: Footer, source: MemorySource) -> None:
    leaves = range(footer.layout.start.shape[1])
    for key in (None, *leaves):
        try:
            index = run(page_index_plan(footer, leaves, key), source.fetch)
        except ComalError:
            continue
        for pages in index.pages.values():
            assert (np.diff(pages.first_row) > 0).all()


def _compare(data: bytes, table: ParquetTable, ours: dict[str, Any]) -> None:
    if not ours:
        return
    try:
        theirs = pq.read_table(
            pa.BufferReader(data), page_checksum_verification=True, use_threads=False
        )
        theirs.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, NotImplementedError, KeyError, TypeError):
        return
    for name, column in ours.items():
        if theirs.schema.names.count(name) == 1 and theirs[name].type == column.type:
            assert column.equals(theirs[name]) or _has_nan(column)


def _has_nan(column: Any) -> bool:
    return b"nan" in str(column.to_pylist()).encode()


def _thrift(data: bytes) -> None:
    """What all Thrift structs have in common, then the two kinds that are read by themselves."""
    reads: tuple[Callable[[], object], ...] = (
        lambda: CompactReader(data).skip(STRUCT),
        lambda: CompactReader(data).struct({1: I64, 2: {3: I64}, 4: LIST}),
        lambda: CompactReader(data).header(),
        lambda: _fields(CompactReader(data)),
    )
    for read in reads:
        try:
            read()
        except (IndexError, InvalidMetadataError):  # as its docstring says
            continue
    for parse in (
        lambda: read_layout(data, len(data), "footer"),
        lambda: read_page_header(data, "page"),
        lambda: expansion(data, "chunk"),
    ):
        try:
            parse()
        except ComalError:
            continue


def _fields(reader: CompactReader) -> None:
    for _, kind in reader.fields():
        reader.skip(kind)


def _page(data: bytes) -> None:
    """A page of one value: the fast reader gives what the slow one gives, twice."""
    for required in (False, True):
        reader = OneValueReader(required=required)
        for page in (_PAGES[required], data, data):
            for verify in (True, False):
                assert _value(reader, page, verify) == _slow(page, required, verify)


def _value(reader: OneValueReader, page: bytes, verify: bool) -> bytes | type | None:
    try:
        return reader.value(page, "page", verify=verify)
    except ComalError as error:
        return type(error)


def _slow(page: bytes, required: bool, verify: bool) -> bytes | type | None:
    try:
        return one_value(page, "page", required=required, verify=verify)
    except ComalError as error:
        return type(error)


def _files() -> Iterator[bytes]:
    small = sample_table(12)
    yield parquet(small, compression="none", level=None, page_index=True, row_group_size=5)
    yield parquet(small, compression="snappy", level=None, page_index=True)
    yield parquet(small, dictionary=False, page_index=True, data_page_size=64)
    yield parquet(small.select(["id", "geometry"]), compression="none", level=None, dictionary=True)
    tiles = pa.table({"block": pa.array([3, 1, 2], pa.uint64()), "band": [b"a" * 40, None, b"c"]})
    for required in (False, True):
        yield _one_page_a_row(tiles, required)
    yield parquet(small.slice(0, 0))


def _one_page_a_row(table: Any, required: bool) -> bytes:
    """As rasters are written: no codec, no dictionary, and a page for each row."""
    if required:
        table = table.filter(table["band"].is_valid())
        fields = [field.with_nullable(False) for field in table.schema]
        table = table.cast(pa.schema(fields))
    file = io.BytesIO()
    pq.write_table(
        table,
        file,
        compression="none",
        use_dictionary=False,
        write_page_index=True,
        write_page_checksum=True,
        max_rows_per_page=1,
        write_statistics=["block"],
    )
    return file.getvalue()


def _first_page(required: bool) -> bytes:
    column = pa.array([b"v" * 10_000])
    field = pa.field("band", pa.binary(), nullable=not required)
    file = io.BytesIO()
    pq.write_table(
        pa.table({"band": column}, pa.schema([field])),
        file,
        compression="none",
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
    )
    data = file.getvalue()
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(0).column(0)
    return data[chunk.data_page_offset : chunk.data_page_offset + chunk.total_compressed_size]


_PAGES = {required: _first_page(required) for required in (False, True)}


def _footers() -> Iterator[bytes]:
    for data in _files():
        size = int.from_bytes(data[-8:-4], "little")
        yield data[-8 - size : -8]
    yield from _PAGES.values()


TARGETS = {
    "parquet": Target(_file, _files),
    "thrift": Target(_thrift, _footers),
    "page": Target(_page, lambda: [*_PAGES.values(), _PAGES[False][:-1]]),
}
