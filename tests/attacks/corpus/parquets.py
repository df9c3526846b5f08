"""Level tables that are no tables, or not such ones."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa

from comal.errors import InvalidMetadataError, LimitExceededError
from tests.attacks.build import FLAT, Recipe
from tests.attacks.corpus.base import appended, attack, dropped, set_column, tables_spoiled

attack(
    "more rows than there are",
    Recipe(tree=FLAT, level_bytes=lambda depth, data: _rows_lie(data)),
    error=(LimitExceededError, InvalidMetadataError),
)


def _rows_lie(data: bytes) -> bytes:
    """A footer that tells of more rows than there are (thrift: field 3 of the file metadata)."""
    marker = data.rfind(b"\x16\x08")
    return data[:marker] + b"\x16\x7f" + data[marker + 2 :]


attack(
    "too many columns",
    Recipe(tree=FLAT, table=lambda depth, table: _widened(table, 2_100)),
    "limit-exceeded",
    error=LimitExceededError,
)


def _widened(table: Any, count: int) -> Any:
    for n in range(count):
        table = table.append_column(f"c{n}", pa.array([n] * table.num_rows))
    return table


def _nested_lists(depth: int, table: Any) -> Any:
    kind = pa.int64()
    for _ in range(12):
        kind = pa.list_(kind)
    return table.append_column("deep", pa.nulls(table.num_rows, kind))


attack(
    "lists in lists",
    Recipe(tree=FLAT, table=_nested_lists),
    "limit-exceeded",
    error=LimitExceededError,
)
for name, spoil in (
    ("cut", lambda data: data[:-20]),
    ("zeroed", lambda data: data[:-300] + bytes(292) + data[-8:]),
    ("length beyond the file", lambda data: data[:-8] + struct.pack("<I", 2**31) + b"PAR1"),
    ("length of nothing", lambda data: data[:-8] + struct.pack("<I", 0) + b"PAR1"),
    ("encrypted", lambda data: data[:-4] + b"PARE"),
    ("empty", lambda data: b"PAR1PAR1"),
):
    attack(
        f"footer {name}",
        Recipe(tree=FLAT, level_bytes=tables_spoiled(spoil)),
        "taco-table",
        error=(InvalidMetadataError, LimitExceededError),
    )
for column in ("id", "type", "internal:offset", "internal:size"):
    attack(
        f"no column {column}",
        Recipe(tree=FLAT, table=dropped(column)),
        "taco-column-missing",
        error=InvalidMetadataError,
    )
attack(
    "ids are numbers",
    Recipe(tree=FLAT, table=set_column(0, "id", [1, 2, 3, 4], pa.int64())),
    "taco-column-type",
    error=InvalidMetadataError,
)
attack(
    "an id is null",
    Recipe(tree=FLAT, table=set_column(0, "id", lambda v: [None, *v[1:]])),
    "taco-column-null",
    reads="either",
)
attack(
    "type is neither",
    Recipe(tree=FLAT, table=set_column(0, "type", lambda v: ["LINK", *v[1:]])),
    "taco-type",
    reads="either",
)
attack(
    "type is null",
    Recipe(tree=FLAT, table=set_column(0, "type", lambda v: [None, *v[1:]])),
    "taco-column-null",
    reads="either",
)
for name, column in (
    ("control character", "a\x07b"),
    ("200 bytes", "c" * 200),
    ("newline", "a\nb"),
):
    attack(
        f"column name with {name}",
        Recipe(tree=FLAT, table=appended(column, 1)),
        error=(InvalidMetadataError, LimitExceededError),
    )
attack(
    "column name that stands twice",
    Recipe(tree=FLAT, table=lambda depth, table: table.append_column("value", pa.array([1] * 4))),
    error=InvalidMetadataError,
)
attack(
    "column names of SQL",
    Recipe(
        tree=FLAT,
        table=lambda depth, table: table.append_column(
            '"; DROP TABLE data; --', pa.array([1] * 4)
        ).append_column("select", pa.array([2] * 4)),
    ),
    reads="right",
)
