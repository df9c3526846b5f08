"""Row groups read by what they have in common, against the same read field by field."""

from __future__ import annotations

import io
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import ComalError
from comal.table import layout
from comal.table.layout import Layout, read_layout


def footer_of(groups: int, rows: int = 3) -> tuple[bytes, int]:
    """A footer with many row groups, a few of which have other statistics; and where it is."""
    file = io.BytesIO()
    count = groups * rows
    table = pa.table(
        {
            "id": pa.array(range(count), pa.uint64()),
            "text": [None if row < 2 * rows else "x" * (row % 5) for row in range(count)],
            "blob": [bytes([row % 251]) * (row % 700) for row in range(count)],
        }
    )
    pq.write_table(
        table,
        file,
        row_group_size=rows,
        write_page_index=True,
        use_dictionary=["text"],
        write_statistics=["id"],
        compression={"id": "zstd", "text": "snappy", "blob": "none"},
    )
    data = file.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    return data[-8 - size : -8], len(data) - 8 - size


def both(footer: bytes, size: int) -> list[Any]:
    found: list[Any] = []
    for few in (4, 10**9):
        with mock.patch.object(layout, "_FOR_SHAPES", few):
            try:
                found.append(read_layout(footer, size, "table"))
            except ComalError as error:
                found.append(type(error))
    return found


def same(one: Any, other: Any) -> bool:
    if not isinstance(one, Layout) or not isinstance(other, Layout):
        return one is other
    arrays = [name for name in Layout.__slots__ if name != "leaves"]
    return one.leaves == other.leaves and all(
        np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays
    )


def test_all_row_groups() -> None:
    footer, size = footer_of(300)
    taken: list[bool] = []
    takes = layout._Alike.takes

    def counted(kind: Any, reader: Any, number: int) -> bool:
        taken.append(takes(kind, reader, number))
        return taken[-1]

    with mock.patch.object(layout._Alike, "takes", counted):
        found = both(footer, size)
    assert same(*found)
    assert sum(taken) > 200
    assert len(found[0].rows) == 300


FOOTER, SIZE = footer_of(40)


@given(
    st.lists(
        st.tuples(st.integers(0, len(FOOTER) - 1), st.integers(1, 255)), min_size=1, max_size=3
    )
)
@settings(max_examples=400, deadline=None)
def test_damage_is_seen_alike(changes: list[tuple[int, int]]) -> None:
    broken = bytearray(FOOTER)
    for at, change in changes:
        broken[at] ^= change
    assert same(*both(bytes(broken), SIZE))
