"""Laws of merging ranges."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.storage.coalesce import bundled, coalesce, neighbours, scatter

MIB = 1 << 20
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


def _may_be_together(part: list[tuple[int, int]], most: int) -> bool:
    header = "".join(f"{start}-{start + size}," for start, size in part)
    apart = all(a + n <= b for (a, n), (b, _) in itertools.pairwise(part))
    total = sum(size for _, size in part)
    return apart and total <= most and len(header) <= 4096 and len(part) <= 128


@settings(max_examples=200, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from([0, 1, 10**6, 10**17]), st.sampled_from([1, 99, MIB // 3])),
        max_size=400,
    ),
    lanes=st.sampled_from([1, 3, 64]),
    largest=st.sampled_from([MIB // 2, MIB, 8 * MIB]),
)
def test_ranges_that_share_a_request(
    steps: list[tuple[int, int]], lanes: int, largest: int
) -> None:
    spans, at = [], 0
    for gap, size in steps:
        spans.append((at + gap, size))
        at += gap + size
    _check_bundles(spans, lanes, largest)


def _check_bundles(spans: list[tuple[int, int]], lanes: int, largest: int) -> list[int]:
    """In order, allowed, and no list could have taken the next range; how long the lists are."""
    found = bundled(spans, lanes, largest)
    assert [index for part in found for index in part] == list(range(len(spans)))
    most = min(largest, max(MIB, sum(size for _, size in spans) // lanes))
    for part in found:
        assert len(part) == 1 or _may_be_together([spans[index] for index in part], most)
    for part, after in itertools.pairwise(found):
        assert not _may_be_together([spans[index] for index in [*part, after[0]]], most)
    return [len(part) for part in found]


def test_bounds_of_a_shared_request() -> None:
    far = 10**15
    assert _check_bundles([(far + 10 * n, 5) for n in range(300)], 1, MIB) == [120, 120, 60]
    assert _check_bundles([(10 * n, 5) for n in range(300)], 1, MIB) == [128, 128, 44]
    assert _check_bundles([(n * MIB, MIB // 2) for n in range(8)], 2, 8 * MIB) == [4, 4]
    assert _check_bundles([(n * MIB, MIB // 2) for n in range(8)], 8, 8 * MIB) == [2, 2, 2, 2]
    assert _check_bundles([(n * MIB, MIB // 2) for n in range(8)], 1, 3 * MIB) == [6, 2]
    assert _check_bundles([(0, 10), (5, 10), (15, 10)], 1, MIB) == [1, 2]
    assert _check_bundles([], 1, MIB) == []


@settings(max_examples=300, deadline=None)
@given(RANGES.filter(len), st.integers(0, 60), st.integers(1, 300))
def test_neighbours_are_read_as_they_stand(
    ranges: list[tuple[int, int]], gap: int, longest: int
) -> None:
    offsets, sizes = arrays(ranges)
    found = neighbours(offsets, sizes, gap, longest)
    assert [row for first, stop in found for row in range(first, stop)] == list(range(len(ranges)))
    for first, stop in found:
        spans = ranges[first:stop]
        for (offset, size), (following, _) in itertools.pairwise(spans):
            assert 0 <= following - offset - size <= gap
        if len(spans) > 1:
            assert max(size for _, size in spans) <= longest // 2
            assert sum(spans[-1]) - spans[0][0] <= 2 * longest


def test_neighbours_are_read_together() -> None:
    offsets, sizes = np.arange(100) * 20, np.full(100, 16)
    assert neighbours(offsets, sizes, 4, 1 << 20) == [(0, 100)]
    assert neighbours(offsets, sizes, 3, 1 << 20) == [(row, row + 1) for row in range(100)]
    assert len(neighbours(offsets, sizes, 4, 200)) == 10


def test_neighbours_that_touch_are_read_together() -> None:
    offsets, sizes = np.arange(10) * 16, np.full(10, 16)
    assert neighbours(offsets, sizes, 0, 1000) == [(0, 10)]
    assert neighbours(offsets, sizes + 1, 0, 1000) == [(n, n + 1) for n in range(10)]
