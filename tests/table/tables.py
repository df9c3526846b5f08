"""Tables for tests, and Parquet files inside larger objects."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import numpy as np
import pyarrow as pa
from tests.fakes import MemorySource

from comal.plan import ByteRange, Piece, run
from comal.table import ParquetSettings, ParquetTable, footer_plan, write_table

FRONT = b"front" * 100
BACK = b"back" * 5_000


def sample_table(rows: int = 1000) -> Any:
    """Columns of the kinds that archives hold, with nulls."""
    numbers = np.arange(rows)
    time = dt.datetime(2024, 1, 1)
    return pa.table(
        {
            "id": pa.array([f"s{row}" for row in range(rows)]),
            "number": numbers,
            "float": pa.array(numbers / 7, mask=numbers % 5 == 0),
            "geometry": pa.array([bytes(21) if row % 3 else None for row in range(rows)]),
            "shape": pa.array(
                [[row, 2, 3] for row in range(rows)],
                pa.list_(pa.field("element", pa.int64())),
            ),
            "stac:time": pa.array([time] * rows, pa.timestamp("us")),
            "point": pa.array(
                [{"x": row, "y": "n"} for row in range(rows)],
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
        }
    )


def parquet(table: Any, **settings: Any) -> bytes:
    """The bytes of a Parquet file."""
    file = io.BytesIO()
    write_table(table, file, ParquetSettings(**settings))
    return file.getvalue()


def source_of(data: bytes) -> tuple[MemorySource, ByteRange]:
    """An object with a Parquet file in its middle, and the file's span."""
    return MemorySource.of(FRONT + data + BACK), ByteRange(len(FRONT), len(data))


def opened(data: bytes, **named: Any) -> tuple[ParquetTable, MemorySource]:
    """A table in the middle of an object, of which only the footer is known."""
    source, span = source_of(data)
    size = int.from_bytes(data[-8:-4], "little") + 8
    known = Piece(data[-size:], span.end - size, len(source.objects[""]))
    footer = run(footer_plan(span, [known]), source.fetch)
    assert source.log == []
    return ParquetTable(source, footer, **named), source


def varint(value: int) -> bytes:
    """An unsigned integer, seven bits a byte, as the Thrift compact protocol writes it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def zigzag(value: int) -> bytes:
    """A signed integer."""
    return varint(value * 2 if value >= 0 else -value * 2 - 1)
