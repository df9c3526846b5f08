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
from tests.table.tables import zigzag

from comal.errors import ComalError
from comal.table import footer as layouts
from comal.table.footer import Layout, read_layout
from comal.table.thrift import CompactReader, integers, shape_of


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
        # What is slow must not know what was learned before.
        known = REMEMBERED if few < 10**9 else layouts._Remembered()
        with (
            mock.patch.object(layouts, "_FOR_SHAPES", few),
            mock.patch.object(layouts, "_remembered", known),
        ):
            try:
                found.append(read_layout(footer, size, "table"))
            except ComalError as error:
                found.append(type(error))
    return found


REMEMBERED = layouts._Remembered()
"""Of all files of these tests, the broken ones too."""


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
    takes = layouts._Alike.takes

    def counted(kind: Any, reader: Any, number: int) -> bool:
        taken.append(takes(kind, reader, number))
        return taken[-1]

    with mock.patch.object(layouts._Alike, "takes", counted):
        found = both(footer, size)
    assert same(*found)
    assert sum(taken) > 200
    assert len(found[0].rows) == 300


def test_row_groups_without_a_shape_are_looked_at_a_few_times() -> None:
    """A row group of many columns is too large for a shape."""
    table = pa.table({f"c{n}": pa.array(range(60)) for n in range(80)})
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=1)
    data = file.getvalue()
    size = int.from_bytes(data[-8:-4], "little")
    looks = mock.Mock(side_effect=shape_of)
    with mock.patch.object(layouts, "shape_of", looks):
        found = both(data[-8 - size : -8], len(data) - 8 - size)
    assert same(*found)
    assert 0 < looks.call_count <= layouts._MOST_SHAPES


FOOTER, SIZE = footer_of(40)


@given(
    st.lists(
        st.tuples(st.integers(0, len(FOOTER) - 1), st.integers(1, 255)), min_size=1, max_size=3
    )
)
@settings(max_examples=150, deadline=None)
def test_damage_is_seen_alike(changes: list[tuple[int, int]]) -> None:
    broken = bytearray(FOOTER)
    for at, change in changes:
        broken[at] ^= change
    assert same(*both(bytes(broken), SIZE))


def test_what_was_learned_serves_the_next_file() -> None:
    """Files of few row groups learn as much as those of many, in time."""
    footer, size = footer_of(8)
    known = layouts._Remembered()
    taken: list[int] = []
    with mock.patch.object(layouts, "_remembered", known):
        for _ in range(30):
            slowly = mock.Mock(side_effect=layouts._group)
            with mock.patch.object(layouts, "_group", slowly):
                found = read_layout(footer, size, "table")
            taken.append(slowly.call_count)
    assert taken[0] == 8
    assert taken[-1] == 0
    assert same(found, both(footer, size)[1])
    assert len(known.kinds) < 5


def test_no_more_is_remembered_than_was_met_lately() -> None:
    known = layouts._Remembered()
    with (
        mock.patch.object(layouts, "_remembered", known),
        mock.patch.object(layouts, "_MOST_REMEMBERED", 3),
    ):
        for columns in range(1, 12):
            table = pa.table({f"c{n}": pa.array(range(60)) for n in range(columns)})
            file = io.BytesIO()
            pq.write_table(table, file, row_group_size=1)
            data = file.getvalue()
            size = int.from_bytes(data[-8:-4], "little")
            read_layout(data[-8 - size : -8], len(data) - 8 - size, "table")
            assert 1 <= len(known.kinds) <= 3
            assert len(known.kinds[0].chunks) == columns


NUMBERS = st.one_of(
    st.integers(-(2**62), 2**62 - 1), st.integers(-300, 300), st.sampled_from([0, -1, 2**55, 2**56])
)


@given(st.lists(NUMBERS, max_size=40))
def test_integers_of_all_lengths(numbers: list[int]) -> None:
    found = integers([zigzag(number) for number in numbers])
    assert found is not None
    assert found.tolist() == numbers
    for number in numbers:
        assert CompactReader(zigzag(number)).integer() == number


def test_an_integer_that_is_too_long() -> None:
    assert integers([b"\x01", b"\xff" * 9 + b"\x01"]) is None
