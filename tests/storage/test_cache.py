"""The block cache: right bytes, few requests, a budget, one fetch for all who wait."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import storage
from comal.errors import InvalidInputError, ObjectChangedError, StorageError
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage import BlockCache, CachedSource, CountingSource, ObjectInfo
from comal.storage.opening import open_source
from comal.storage.source import LocalSource
from tests.servers.http import HttpServer
from tests.storage.places import noise

DATA = noise(10_050)
INFO = ObjectInfo("x", 10_050)

WANTS = st.one_of(
    st.tuples(st.integers(0, 10_050), st.integers(0, 3000)).map(
        lambda span: ByteRange(span[0], min(span[1], 10_050 - span[0]))
    ),
    st.integers(0, 12_000).map(Head),
    st.integers(0, 12_000).map(Tail),
    st.just(Whole(20_000)),
)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(WANTS, max_size=4), max_size=8),
    st.integers(0, 12_000),
    st.sampled_from([64, 100, 1000, 20_000]),
)
def test_the_same_bytes_as_without(
    tmp_path_factory: pytest.TempPathFactory,
    rounds: list[list[Wanted]],
    budget: int,
    block: int,
) -> None:
    path = tmp_path_factory.getbasetemp() / "cached.bin"
    if not path.exists():
        path.write_bytes(DATA)
    plain = open_source(path)
    cache = BlockCache(budget, block_size=block)
    cached = CachedSource(open_source(path), cache)
    for wanted in rounds:
        assert cached.fetch(wanted) == plain.fetch(wanted)
        kept = [data for data, _ in cache._kept._values.values()]
        assert cache.size == sum(map(len, kept)) <= budget


def test_what_was_read_costs_nothing(http_server: HttpServer) -> None:
    counting = CountingSource(storage.open_source(http_server.put("a", DATA)))
    source = CachedSource(counting, BlockCache(1 << 20, block_size=1000))
    source.fetch([Tail(100)])
    source.fetch([Tail(50)])
    assert counting.requests == 1
    source.fetch([ByteRange(3500, 10)])
    assert counting.log[-1].offset == 3000
    assert counting.log[-1].size == 1000
    source.fetch([ByteRange(3001, 900), ByteRange(3999, 1)])
    assert counting.requests == 2
    source.fetch([Whole(20_000)])
    source.fetch([Whole(20_000), Head(1), Tail(10_000)])
    assert source.stat().size == 10_050
    assert counting.requests == len(http_server.requests) == 3
    assert counting.round_trips == 3


def test_the_least_recently_used_goes_first() -> None:
    cache = BlockCache(300, block_size=100)
    loads: list[list[int]] = []

    def load(numbers: list[int]) -> list[bytes]:
        loads.append(numbers)
        return [b"x" * 100 for _ in numbers]

    for numbers in ([0, 1, 2], [0], [3], [0, 2], [1]):
        cache.blocks(INFO, numbers, load)
    assert loads == [[0, 1, 2], [3], [1]]
    cache.clear()
    assert cache.size == 0


def test_versions_are_kept_apart(tmp_path: Path) -> None:
    cache = BlockCache(1 << 20, block_size=1000)
    path = tmp_path / "a"
    path.write_bytes(DATA)
    first = CachedSource(open_source(path), cache)
    first.fetch([Whole(20_000)])
    path.unlink()
    path.write_bytes(DATA[::-1])
    second = CachedSource(open_source(path), cache)
    assert second.fetch([Head(1)])[0].data == DATA[-1:]
    assert second.fetch([ByteRange(2000, 50)])[0].data == DATA[::-1][2000:2050]


def test_a_change_empties_the_cache(tmp_path: Path) -> None:
    cache = BlockCache(1 << 20, block_size=1000)
    path = tmp_path / "a"
    path.write_bytes(DATA)
    source = CachedSource(open_source(path), cache)
    source.fetch([Head(3000)])
    assert cache.size == 3000
    path.write_bytes(DATA[:5000])
    with pytest.raises(ObjectChangedError):
        source.fetch([Head(5000)])
    assert cache.size == 0


class Slow(LocalSource):
    """A source that lets all readers arrive before it answers."""

    fetches = 0
    fails = False

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        type(self).fetches += 1
        time.sleep(0.1)
        if self.fails:
            raise StorageError("broken")
        return super().fetch(wanted)


def test_one_fetch_for_all_who_wait(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    inner = Slow(storage.parse_href(tmp_path / "a"), storage.DEFAULT_CONFIG)
    inner.stat()
    source = CachedSource(inner, BlockCache(1 << 20, block_size=1000))
    gate = threading.Barrier(8)

    def read(_: int) -> bytes:
        gate.wait(10)
        return source.fetch([ByteRange(500, 10)])[0].data

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {DATA[500:510]}
    assert Slow.fetches == 1
    Slow.fails = True

    def fail(_: int) -> bool:
        gate.wait(10)
        with pytest.raises(StorageError):
            source.fetch([ByteRange(5000, 10)])
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(fail, range(8)))
    Slow.fails = False
    assert source.fetch([ByteRange(5000, 10)])[0].data == DATA[5000:5010]


def test_a_copy_starts_empty() -> None:
    cache = BlockCache(500, block_size=100)
    cache.blocks(INFO, [0], lambda _: [b"x" * 100])
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.budget, copy.block_size, copy.size) == (500, 100, 0)


@pytest.mark.parametrize(("budget", "block"), [(-1, 10), (10, 0)])
def test_nonsense(budget: int, block: int) -> None:
    with pytest.raises(InvalidInputError):
        BlockCache(budget, block_size=block)
