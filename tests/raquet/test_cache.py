"""The cache of tiles: its budget, threads, forks and pickles."""

from __future__ import annotations

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import raquet
from comal.parallel import ByteCache
from tests.raquet.build import Plan, noise, write
from tests.support import in_child

TILES = {(4, x, y): [noise(x * 16 + y)] for x in range(6) for y in range(6)}


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 30),
    st.booleans(),
    st.lists(st.tuples(st.booleans(), st.integers(0, 8), st.integers(1, 20)), max_size=60),
)
def test_it_is_a_dictionary_that_forgets(
    budget: int, keep_newest: bool, steps: list[tuple[bool, int, int]]
) -> None:
    cache: ByteCache[int, str] = ByteCache(budget, keep_newest=keep_newest)
    newest: dict[int, str] = {}
    for puts, key, size in steps:
        if puts:
            newest[key] = f"{key} {size}"
            cache.put(key, newest[key], size)
            kept = cache.get(key)
            assert kept == newest[key] if keep_newest or size <= budget else kept != newest[key]
            if kept is None or kept != newest[key]:
                newest.pop(key, None)
                if kept is not None:
                    newest[key] = kept
        else:
            assert cache.get(key) in {newest.get(key), None}
        assert cache.size <= budget or keep_newest


def test_the_least_recently_used_goes_first() -> None:
    cache: ByteCache[str, int] = ByteCache(3)
    for key in "abc":
        cache.put(key, 1, 1)
    cache.get("a")
    cache.put("d", 1, 1)
    assert [cache.get(key) for key in "abcd"] == [1, None, 1, 1]
    cache.clear()
    assert cache.size == 0
    assert cache.get("a") is None


def test_a_copy_starts_empty() -> None:
    cache: ByteCache[str, int] = ByteCache(3, keep_newest=True)
    cache.put("a", 1, 1)
    again = pickle.loads(pickle.dumps(cache))
    assert (again.budget, again.size) == (3, 0)


def test_threads_and_a_fork(tmp_path: Path) -> None:
    for plan in (Plan(), Plan(pages=False, dictionary=True, rows_in_group=5)):
        file = raquet.open(write(tmp_path / "a.parquet", TILES, plan), cache_bytes=1000)

        def check(tile: tuple[int, int, int], file: raquet.RaquetFile = file) -> bool:
            return np.array_equal(file.tile(*tile), TILES[tile])

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(check, list(TILES) * 10))
    file = raquet.open(write(tmp_path / "a.parquet", TILES))
    file.tile(4, 0, 0)

    def reads() -> None:
        assert all(np.array_equal(file.tile(*tile), bands) for tile, bands in TILES.items())

    in_child(reads)
    np.testing.assert_array_equal(file.tile(4, 5, 5), TILES[4, 5, 5])


def test_threads_read_headers_of_several_sizes(tmp_path: Path) -> None:
    """Large pages are read in two, by the size of a header that another thread may have seen."""
    tiles = {key: [noise(seed, shape=(256, 256))] for seed, key in enumerate(TILES)}
    path = write(tmp_path / "a.parquet", tiles, Plan(block=(256, 256), checksum=True))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(6):
            with raquet.open(path, cache_bytes=0) as file, ThreadPoolExecutor(4) as pool:
                found = list(pool.map(lambda tile, file=file: file.tile(*tile), list(tiles) * 2))
                for tile, pixels in zip(list(tiles) * 2, found, strict=True):
                    np.testing.assert_array_equal(pixels, tiles[tile])
    finally:
        sys.setswitchinterval(before)
