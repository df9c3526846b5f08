"""What stands over sources: files with the libraries that read them, the cache and the counter."""

from __future__ import annotations

import asyncio
import io
import pickle
import random
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.io import MemoryFile

from comal import storage
from comal.errors import InvalidInputError, ObjectChangedError, ObjectNotFoundError, StorageError
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage import BlockCache, CachedSource, CountingSource, ObjectInfo
from comal.storage.opening import open_source
from comal.storage.source import LocalSource
from comal.storage.wrappers import RangeFile
from tests.servers.http import HttpServer
from tests.storage.places import noise

DATA = noise(100_000)


@pytest.mark.parametrize("read_ahead", [0, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("offset", "size"), [(0, None), (0, 100_000), (777, 5000), (500, None), (3, 0)]
)
def test_as_a_plain_file(tmp_path: Path, read_ahead: int, offset: int, size: int | None) -> None:
    (tmp_path / "a").write_bytes(DATA)
    plain = io.BytesIO(DATA[offset:] if size is None else DATA[offset : offset + size])
    source = storage.open_source(tmp_path)
    file = RangeFile(source, "a", offset, size, read_ahead=read_ahead)
    dice = random.Random(1)
    for _ in range(300):
        step = dice.randrange(4)
        count = dice.choice([0, 1, 30, 999, 1001, 20_000])
        if step == 0:
            assert file.read(count) == plain.read(count)
        elif step == 1:
            ours, theirs = bytearray(count), bytearray(count)
            assert file.readinto(ours) == plain.readinto(theirs)
            assert ours == theirs
        elif step == 2:
            at = dice.randrange(120_000)
            assert file.seek(at) == plain.seek(at)
        else:
            at = dice.randrange(0, 50)
            end = plain.seek(0, io.SEEK_END)
            assert file.seek(-min(at, end), io.SEEK_END) == plain.seek(-min(at, end), io.SEEK_END)
        assert file.tell() == plain.tell()
    file.seek(1, io.SEEK_SET)
    plain.seek(1)
    file.seek(1, io.SEEK_CUR)
    plain.seek(1, io.SEEK_CUR)
    assert file.read() == plain.read()
    assert file.readall() == b""


def test_properties(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    file = storage.open_source(tmp_path).file("a")
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert file.size == 100_000
    assert file.name.endswith("/a")
    file.close()
    for call in (file.read, file.tell, file.readable, file.seekable, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_seeks_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    file = storage.open_source(tmp_path).file("a")
    for offset, whence in ((-1, 0), (-100_001, 2), (0, 9)):
        with pytest.raises(InvalidInputError):
            file.seek(offset, whence)
    for offset, size in ((-1, 5), (5, -1)):
        with pytest.raises(InvalidInputError):
            storage.open_source(tmp_path).file("a", offset, size)


def test_small_reads_share_a_request(http_server: HttpServer) -> None:
    counting = storage.CountingSource(storage.open_source(http_server.put("a", DATA)))
    file = counting.file("", 100, 50_000)
    for _ in range(100):
        file.read(50)
    assert counting.requests == 1
    file.read(40_000)
    assert counting.requests == 2
    assert len(http_server.requests) == 2


def test_pyarrow_reads_it(http_server: HttpServer) -> None:
    table = pa.table({"a": np.arange(50_000), "b": [str(i) for i in range(50_000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10_000)
    padded = DATA[:999] + sink.getvalue() + DATA[:7]
    source = storage.open_source(http_server.put("p", padded))
    file: Any = source.file("", 999, len(sink.getvalue()))
    assert pq.read_table(pa.PythonFile(file)).equals(table)
    parquet = pq.ParquetFile(source.file("", 999, len(sink.getvalue())), pre_buffer=True)
    assert parquet.read_row_group(3, ["b"]).equals(table.select(["b"]).slice(30_000, 10_000))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_rasterio_reads_it(http_server: HttpServer) -> None:
    pixels = np.arange(2 * 64 * 64, dtype="uint16").reshape(2, 64, 64)
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", width=64, height=64, count=2, dtype="uint16") as raster:
            raster.write(pixels)
        data = memory.read()
    source = storage.open_source(http_server.put("p", DATA[:999] + data))
    with rasterio.open(source.file("", 999, len(data))) as raster:
        assert (raster.read() == pixels).all()


# -- cache -----------------------------------------------------------------------------------------

SMALL = noise(10_050)
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
        path.write_bytes(SMALL)
    plain = open_source(path)
    cache = BlockCache(budget, block_size=block)
    cached = CachedSource(open_source(path), cache)
    for wanted in rounds:
        assert cached.fetch(wanted) == plain.fetch(wanted)
        kept = [data for data, _ in cache._kept._values.values()]
        assert cache.size == sum(map(len, kept)) <= budget


def test_what_was_read_costs_nothing(http_server: HttpServer) -> None:
    counting = CountingSource(storage.open_source(http_server.put("a", SMALL)))
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
    path.write_bytes(SMALL)
    first = CachedSource(open_source(path), cache)
    first.fetch([Whole(20_000)])
    path.unlink()
    path.write_bytes(SMALL[::-1])
    second = CachedSource(open_source(path), cache)
    assert second.fetch([Head(1)])[0].data == SMALL[-1:]
    assert second.fetch([ByteRange(2000, 50)])[0].data == SMALL[::-1][2000:2050]


def test_objects_without_a_version_are_kept_apart(http_server: HttpServer) -> None:
    http_server.behave("no-validators")
    cache = BlockCache(1 << 20, block_size=1000)
    for data in (SMALL, SMALL[::-1]):
        source = CachedSource(open_source(http_server.put("a", data)), cache)
        source.fetch([Head(3000)])
        for _ in range(2):
            assert source.fetch([ByteRange(2000, 5000)])[0].data == data[2000:7000]
    assert len(http_server.requests) == 4
    assert pickle.loads(pickle.dumps(source)).fetch([Tail(9)])[0].data == SMALL[::-1][-9:]


def test_a_change_empties_the_cache(tmp_path: Path) -> None:
    cache = BlockCache(1 << 20, block_size=1000)
    path = tmp_path / "a"
    path.write_bytes(SMALL)
    source = CachedSource(open_source(path), cache)
    source.fetch([Head(3000)])
    assert cache.size == 3000
    path.write_bytes(SMALL[:5000])
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
    (tmp_path / "a").write_bytes(SMALL)
    inner = Slow(storage.parse_href(tmp_path / "a"), storage.DEFAULT_CONFIG)
    inner.stat()
    source = CachedSource(inner, BlockCache(1 << 20, block_size=1000))
    gate = threading.Barrier(8)

    def read(_: int) -> bytes:
        gate.wait(10)
        return source.fetch([ByteRange(500, 10)])[0].data

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(read, range(8))) == {SMALL[500:510]}
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
    assert source.fetch([ByteRange(5000, 10)])[0].data == SMALL[5000:5010]


def test_a_copy_starts_empty() -> None:
    cache = BlockCache(500, block_size=100)
    cache.blocks(INFO, [0], lambda _: [b"x" * 100])
    copy = pickle.loads(pickle.dumps(cache))
    assert (copy.budget, copy.block_size, copy.size) == (500, 100, 0)


@pytest.mark.parametrize(("budget", "block"), [(-1, 10), (10, 0)])
def test_nonsense(budget: int, block: int) -> None:
    with pytest.raises(InvalidInputError):
        BlockCache(budget, block_size=block)


# -- counter ---------------------------------------------------------------------------------------

MUCH = bytes(range(256)) * 4000


def test_after_coalescing(http_server: HttpServer) -> None:
    counting = CountingSource(storage.open_source(http_server.put("a", MUCH)))
    counting.fetch([ByteRange(index * 1000, 100) for index in range(500)])
    assert (counting.wanted, counting.requests, counting.round_trips) == (500, 1, 1)
    assert counting.bytes == 499_100
    counting.fetch([ByteRange(0, 10), ByteRange(900_000, 10)])
    assert (counting.wanted, counting.requests, counting.round_trips) == (502, 3, 2)
    assert len(http_server.requests) == 3
    counting.reset()
    assert (counting.wanted, counting.requests, counting.round_trips) == (0, 0, 0)


def test_every_way_in_counts(http_server: HttpServer) -> None:
    http_server.put("base/a", MUCH)
    counting = CountingSource(storage.open_source(http_server.url_for("base")))
    counting.stat("a")
    counting.stat("a")
    counting.child("a").fetch([Head(1)])
    counting.child("x").sibling("a").fetch([Head(1)])
    counting.file("a").read(10)
    asyncio.run(counting.fetch_async([Tail(3, "a")]))
    assert counting.requests == counting.round_trips == 5
    assert [request.kind for request in counting.log] == ["stat", "get", "get", "get", "get"]
    assert counting.log[-1].href == counting.child("a").href


def test_only_what_goes_through_counts(http_server: HttpServer) -> None:
    plain = storage.open_source(http_server.put("a", MUCH))
    first, second = CountingSource(plain), CountingSource(plain)
    first.fetch([Head(1)])
    plain.fetch([Head(1)])
    assert (first.requests, second.requests) == (1, 0)
    outer = CountingSource(CachedSource(first, BlockCache(1 << 20)))
    outer.fetch([Head(1)])
    outer.fetch([Head(2)])
    assert (outer.wanted, outer.requests, outer.round_trips) == (2, 1, 1)
    assert first.requests == 2


def test_failures_count(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(MUCH)
    counting = CountingSource(storage.open_source(tmp_path))
    with pytest.raises(ObjectNotFoundError):
        counting.fetch([Head(1, "a"), Head(1, "gone")])
    assert counting.wanted == 2
    assert counting.requests == 1
    assert counting.names() == ["a"]


def test_a_copy_counts_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(MUCH)
    counting = CountingSource(storage.open_source(tmp_path / "a"))
    counting.fetch([Head(1)])
    copy = pickle.loads(pickle.dumps(counting))
    copy.fetch([Head(1), Tail(1)])
    assert (counting.requests, copy.requests) == (1, 3)
