"""Files of samples in other places: how many requests they take, and what may go wrong there.

Scattered samples take few requests where a server answers many ranges at once.
"""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pytest

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from comal.storage import CountingSource, StorageConfig, open_source
from comal.storage.cloud import memory_store
from tests.attacks.build import leaves_of
from tests.samples.doors import Door, each_format
from tests.servers.http import HttpServer
from tests.taco.read.scenes import scenes

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server

pytestmark = each_format

MANY = {f"i{n:04}": bytes([n % 256]) * 1000 for n in range(600)}
TREE = scenes("a", "b", "c")
LEAVES = dict(leaves_of(TREE))


def test_opening_takes_two_requests_in_one_round_trip(door: Door, http_server: HttpServer) -> None:
    url = http_server.put("x", door.made(TREE, {}))
    source = CountingSource(open_source(url))
    frame = door.opened(source)
    assert (source.round_trips, source.requests) == (1, 2)
    assert frame.columns
    assert len(frame) == 3
    assert all("If-Match" not in seen.headers for seen in http_server.requests)
    frame.read("b").read_bytes("label.txt")
    assert "If-Match" in http_server.requests[-1].headers
    for tail in (22, 64, 2_000):
        source.reset()
        assert door.opened(source, tail=tail).read_bytes("a/label.txt") == LEAVES["a/label.txt"]
        assert source.round_trips <= 5


def test_neighbours_come_together(door: Door, http_server: HttpServer) -> None:
    url = http_server.put("x", door.made(MANY, {}))
    frame = door.opened(url)
    assert len(http_server.requests) == 2
    http_server.reset()
    assert frame.read(5) == f"/vsisubfile/{frame.leaf(5).offset}_1000,/vsicurl/{url}"
    assert http_server.requests == []
    assert frame.read_bytes(list(range(500))) == list(MANY.values())[:500]
    assert len(http_server.requests) == 1
    http_server.reset()
    assert frame.read_bytes([0, 400]) == [MANY["i0000"], MANY["i0400"]]
    assert len(http_server.requests) == 2
    http_server.reset()
    assert frame.read_bytes(3) == MANY["i0003"]
    assert len(http_server.requests) == 1


def _scattered(door: Door, server: HttpServer, **how: Any) -> tuple[Any, CountingSource]:
    """A frame of which nothing is merged, before any of it is read."""
    url = server.put("x", door.made(MANY, {}))
    source = CountingSource(open_source(url, config=StorageConfig(coalesce_gap=0, **how)))
    frame = door.opened(source)
    source.reset()
    return frame, source


SCATTERED = range(0, 300, 2)
RIGHT = list(MANY.values())[:300:2]


@pytest.mark.parametrize("twin", [False, True])
def test_a_server_that_answers_many_ranges(door: Door, http_server: HttpServer, twin: bool) -> None:
    http_server.behave("multipart")
    frame, source = _scattered(door, http_server)
    if twin:
        assert asyncio.run(frame.read_bytes_async(SCATTERED)) == RIGHT
    else:
        assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 2


def test_a_server_that_does_not(door: Door, http_server: HttpServer) -> None:
    frame, source = _scattered(door, http_server, multi_range=False)
    assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 150
    for expected in (151, 150):  # it is asked once, and remembered
        frame, source = _scattered(door, http_server)
        assert frame.read_bytes(SCATTERED) == RIGHT
        assert source.requests == expected
    source.reset()
    assert frame.read_bytes(SCATTERED) == RIGHT
    assert source.requests == 150


def test_pickles_reopen_nothing(door: Door, tmp_path: Path) -> None:
    source = CountingSource(open_source(door.write(tmp_path, TREE)))
    frame = door.opened(source)[1:]
    before = source.requests
    copy = pickle.loads(pickle.dumps(frame))
    assert source.requests == before
    assert copy.read_bytes("c/label.txt") == LEAVES["c/label.txt"]


def test_faults_of_the_server_are_ours(door: Door, http_server: HttpServer) -> None:
    data = door.made(TREE, {})
    with pytest.raises(ObjectNotFoundError):
        door.opened(http_server.url_for(f"nothing.{door.name}"))
    url = http_server.put(f"x.{door.name}", data[: len(data) // 2])
    with pytest.raises(InvalidMetadataError):
        door.opened(url)


def test_a_file_that_is_replaced_is_never_mixed(door: Door, http_server: HttpServer) -> None:
    """It is opened anew while it is opened; what is open already is one version for good."""
    old, new = (
        {f"{name}{n}": b"x" * size for n in range(80)} for name, size in (("a", 900), ("b", 901))
    )
    url = http_server.put("x", door.made(old, {}))
    made = door.made(new, {})
    http_server.behave("call", skip=2, times=1, function=lambda: http_server.put("x", made))
    frame = door.opened(url, tail=100)
    assert door.ids(frame) == list(new)
    assert frame.read_bytes(69) == b"x" * 901

    turns = iter(range(1000))

    def replace() -> None:
        http_server.put("x", made, etag=f'"{next(turns)}"')

    http_server.behave("call", function=replace)
    with pytest.raises(ObjectChangedError):
        door.opened(url, tail=100)
    with pytest.raises(ObjectChangedError):
        frame.read_bytes(3)


def test_object_stores(door: Door, s3_server: S3Server) -> None:
    with pytest.raises(ObjectNotFoundError):
        door.opened(s3_server.url_for(f"no/such.{door.name}"), config=s3_server.config)
    data = door.made(TREE, {})
    href = s3_server.put(f"replaced/x.{door.name}", data)
    config = StorageConfig(s3=s3_server.config.s3, tries=1)
    frame = door.opened(href, config=config, tail=1000)
    assert frame.read("b/label.txt").endswith(f",/vsis3/{href.removeprefix('s3://')}")
    assert frame.read_bytes("b/label.txt") == LEAVES["b/label.txt"]
    s3_server.put(f"replaced/x.{door.name}", data + b"more")
    with pytest.raises(ObjectChangedError):
        frame.read_bytes("c/label.txt")


def test_objects_in_memory_are_read_without_gdal(door: Door) -> None:
    """GDAL has no path to them; everything else works."""
    obstore.put(memory_store("samples"), f"x.{door.name}", door.made(TREE, {}))
    frame = door.opened(f"memory://samples/x.{door.name}")
    for rows in (frame, frame.read("b")):
        assert rows[rows.VSI].null_count == len(rows)
    assert frame.read_bytes("b/label.txt") == LEAVES["b/label.txt"]
    assert frame.read("b").read_bytes("label.txt") == LEAVES["b/label.txt"]
    with pytest.raises(InvalidInputError, match="memory"):
        frame.read("b/label.txt")
