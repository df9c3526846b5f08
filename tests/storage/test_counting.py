"""The counter: what was wanted, what reached the storage, how often one had to wait."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from comal import storage
from comal.errors import ObjectNotFoundError
from comal.plan import ByteRange, Head, Tail
from comal.storage import BlockCache, CachedSource, CountingSource
from tests.servers.http import HttpServer

DATA = bytes(range(256)) * 4000


def test_after_coalescing(http_server: HttpServer) -> None:
    counting = CountingSource(storage.open_source(http_server.put("a", DATA)))
    counting.fetch([ByteRange(index * 1000, 100) for index in range(500)])
    assert (counting.wanted, counting.requests, counting.round_trips) == (500, 1, 1)
    assert counting.bytes == 499_100
    counting.fetch([ByteRange(0, 10), ByteRange(900_000, 10)])
    assert (counting.wanted, counting.requests, counting.round_trips) == (502, 3, 2)
    assert len(http_server.requests) == 3
    counting.reset()
    assert (counting.wanted, counting.requests, counting.round_trips) == (0, 0, 0)


def test_every_way_in_counts(http_server: HttpServer) -> None:
    http_server.put("base/a", DATA)
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
    plain = storage.open_source(http_server.put("a", DATA))
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
    (tmp_path / "a").write_bytes(DATA)
    counting = CountingSource(storage.open_source(tmp_path))
    with pytest.raises(ObjectNotFoundError):
        counting.fetch([Head(1, "a"), Head(1, "gone")])
    assert counting.wanted == 2
    assert counting.requests == 1
    assert counting.names() == ["a"]


def test_a_copy_counts_by_itself(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    counting = CountingSource(storage.open_source(tmp_path / "a"))
    counting.fetch([Head(1)])
    copy = pickle.loads(pickle.dumps(counting))
    copy.fetch([Head(1), Tail(1)])
    assert (counting.requests, copy.requests) == (1, 3)
