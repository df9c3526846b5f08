"""Laws of merging ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.storage.coalesce import coalesce, scatter

DATA = bytes(range(256)) * 8
RANGES = st.lists(st.tuples(st.integers(0, 1900), st.integers(0, 148)), min_size=0, max_size=40)


def arrays(ranges: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(ranges, np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


@settings(max_examples=300, deadline=None)
@given(RANGES, st.integers(0, 60), st.integers(1, 300))
def test_every_range_gets_its_bytes(ranges: list[tuple[int, int]], gap: int, largest: int) -> None:
    offsets, sizes = arrays(ranges)
    merged = coalesce(offsets, sizes, gap, largest)
    spans = list(zip(merged.starts.tolist(), merged.sizes.tolist(), strict=True))
    assert all(0 < size <= largest for _, size in spans)
    bodies = [DATA[start : start + size] for start, size in spans]
    found = scatter(merged, bodies, offsets, sizes)
    assert found == [DATA[offset : offset + size] for offset, size in ranges]


@settings(max_examples=300, deadline=None)
@given(RANGES, st.integers(0, 60))
def test_requests_are_as_few_as_the_gap_allows(ranges: list[tuple[int, int]], gap: int) -> None:
    offsets, sizes = arrays(ranges)
    merged = coalesce(offsets, sizes, gap, 1 << 40)
    wanted = np.zeros(2100, bool)
    for offset, size in ranges:
        wanted[offset : offset + size] = True
    at = np.flatnonzero(wanted)
    breaks = np.flatnonzero(np.diff(at) > gap + 1)
    starts = at[np.concatenate(([0], breaks + 1))] if len(at) else at
    stops = at[np.concatenate((breaks, [len(at) - 1]))] + 1 if len(at) else at
    assert merged.starts.tolist() == starts.tolist()
    assert (merged.starts + merged.sizes).tolist() == stops.tolist()


@pytest.mark.parametrize(
    ("ranges", "gap", "largest", "spans"),
    [
        ([], 10, 100, []),
        ([(5, 0)], 10, 100, []),
        ([(0, 10), (10, 10)], 0, 100, [(0, 20)]),
        ([(0, 10), (11, 10)], 0, 100, [(0, 10), (11, 10)]),
        ([(0, 10), (11, 10)], 1, 100, [(0, 21)]),
        ([(0, 10), (11, 10)], 1, 20, [(0, 10), (11, 10)]),
        ([(50, 10), (0, 10)], 0, 100, [(0, 10), (50, 10)]),
        ([(0, 100), (10, 10)], 0, 100, [(0, 100)]),
        ([(0, 250)], 0, 100, [(0, 100), (100, 100), (200, 50)]),
        ([(0, 30), (30, 30), (60, 30), (90, 30)], 0, 60, [(0, 60), (60, 60)]),
    ],
)
def test_examples(
    ranges: list[tuple[int, int]], gap: int, largest: int, spans: list[tuple[int, int]]
) -> None:
    merged = coalesce(*arrays(ranges), gap, largest)
    assert list(zip(merged.starts.tolist(), merged.sizes.tolist(), strict=True)) == spans


def test_a_million_neighbours() -> None:
    offsets = np.arange(1_000_000, dtype=np.int64) * 100
    sizes = np.full(1_000_000, 90, np.int64)
    merged = coalesce(offsets, sizes, 64, 8 << 20)
    assert len(merged.starts) == 12
    assert (offsets >= merged.starts[merged.owner]).all()
    assert (offsets + sizes <= (merged.starts + merged.sizes)[merged.owner]).all()
