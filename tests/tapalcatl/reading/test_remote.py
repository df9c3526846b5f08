"""Requests are counted: meta.json once, a cold tile two, the next tile of the archive one."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import (
    AccessDeniedError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
)
from comal.storage import BlockCache, StorageConfig
from comal.tapalcatl.addressing import HASHES, tile_hash
from tests.servers.http import HttpServer
from tests.tapalcatl.making import data_of
from tests.tapalcatl.odd import Entry, archive, tiles

META = (
    '{"tapalcatl":"2.0.0","minzoom":0,"maxzoom":3,"bounds":[-180,-85.0511287798066,180,'
    '85.0511287798066],"formats":{"png":"image/png"},"materializedZooms":[0,2],"metatile":2,'
    '"source":"%s"}'
)
FAST = StorageConfig(tries=1, backoff_first=0.01)


def entry(z: int, x: int, y: int) -> Entry:
    return Entry(f"{z}/{x}/{y}.png".encode(), f"{z} {x} {y}".encode() * 30, deflate=z % 2 == 1)


def tree(source: str = "{z}/{x}/{y}.zip") -> dict[str, bytes]:
    """Names and bytes of a whole tileset of zooms 0 to 3; archive 2/2/2 is not there."""
    files = {"meta.json": (META % source).encode()}
    files["0/0/0.zip"] = archive([entry(z, x, y) for z in (0, 1) for x, y in square(z, 1 << z)])
    for ax, ay in ((0, 0), (0, 2), (2, 0)):
        entries = [
            entry(z, x, y)
            for z in (2, 3)
            for x, y in square(z, 2 << (z - 2), ax << (z - 2), ay << (z - 2))
        ]
        files[f"2/{ax}/{ay}.zip"] = archive(entries)
    return files


def square(z: int, side: int, x: int = 0, y: int = 0) -> list[tuple[int, int]]:
    return [(column, row) for column in range(x, x + side) for row in range(y, y + side)]


def serve(server: HttpServer, source: str = "{z}/{x}/{y}.zip", prefix: str = "t") -> str:
    for name, data in tree(source).items():
        server.put(f"{prefix}/{name}", data)
    return server.url_for(f"{prefix}/meta.json")


def names(server: HttpServer) -> list[str]:
    return [seen.path.lstrip("/") for seen in server.requests]


def test_requests_of_tiles(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    assert names(http_server) == ["t/meta.json"]
    http_server.reset()
    assert data_of(tileset, 3, 5, 2) == entry(3, 5, 2).data
    assert names(http_server) == ["t/2/2/0.zip"] * 2
    http_server.reset()
    for x, y in ((4, 0), (7, 3), (5, 2)):
        assert data_of(tileset, 3, x, y) == entry(3, x, y).data
    assert len(http_server.requests) == 3
    http_server.reset()
    assert tileset.tile(3, 5, 2, ext="webp") is None
    assert tileset.tile(3, 5, 2, scale=2) is None
    assert tileset.tile(4, 0, 0) is None
    assert tileset.tile(3, 8, 0) is None
    assert tileset.tile(3, -1, 0) is None
    assert tileset.tile(-1, 0, 0) is None
    assert http_server.requests == []


def test_a_large_directory_costs_one_more(http_server: HttpServer) -> None:
    entries = [entry(8, x, y) for x, y in square(8, 40)]
    http_server.put("big.zip", archive(entries))
    tileset = tapalcatl.archive(http_server.url_for("big.zip"))
    assert len(http_server.requests) == 2
    assert data_of(tileset, 8, 39, 39) == entries[-1].data
    assert len(http_server.requests) == 3


def test_absent_archives_are_remembered(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    http_server.reset()
    assert tileset.tile(3, 7, 7) is None
    assert tileset.tile(2, 2, 2) is None
    assert len(http_server.requests) == 1


def test_a_failing_store_is_no_absence(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server), config=FAST)
    for code, error in ((503, StorageError), (403, AccessDeniedError)):
        http_server.behave("status", code=code)
        with pytest.raises(error):
            tileset.tile(3, 5, 2)
        http_server.well()
    assert tileset.tile(3, 5, 2) is not None
    http_server.behave("status", code=500)
    with pytest.raises(StorageError):
        tileset.tile(3, 5, 2)


def test_a_replaced_archive_is_opened_again(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    assert tileset.tile(2, 0, 0) is not None
    http_server.put("t/2/0/0.zip", archive([Entry(b"2/0/0.png", b"newer" * 99)]))
    http_server.reset()
    assert data_of(tileset, 2, 0, 0) == b"newer" * 99
    assert len(http_server.requests) == 3


def test_an_archive_that_vanishes_is_no_absence(http_server: HttpServer, tmp_path: Path) -> None:
    path, data = tmp_path / "a.zip", archive(tiles())
    path.write_bytes(data)
    http_server.put("a.zip", data)
    opened = [tapalcatl.archive(one, recheck=0) for one in (path, http_server.url_for("a.zip"))]
    path.unlink()
    http_server.remove("a.zip")
    for tileset in opened * 2:
        with pytest.raises(ObjectNotFoundError, match=r"a\.zip"):
            tileset.tile(0, 0, 0)


def test_an_archive_replaced_while_it_is_opened(http_server: HttpServer) -> None:
    entries = [entry(8, x, y) for x, y in square(8, 40)]
    http_server.put("big.zip", archive(entries))
    other = archive([Entry(e.name, b"other") for e in entries])
    http_server.behave(
        "call", function=lambda: http_server.put("big.zip", other), path="big.zip", skip=1, times=1
    )
    tileset = tapalcatl.archive(http_server.url_for("big.zip"))
    assert data_of(tileset, 8, 3, 3) == b"other"


def test_a_tile_that_was_added_is_seen_after_a_while(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server), recheck=0)
    patient = tapalcatl.open(http_server.url_for("t/meta.json"))
    http_server.put("t/2/0/0.zip", archive([entry(2, 0, 0)]))
    assert tileset.tile(2, 1, 1) is None
    assert patient.tile(2, 1, 1) is None
    http_server.put("t/2/0/0.zip", archive([entry(2, 0, 0), entry(2, 1, 1)]))
    http_server.reset()
    assert patient.tile(2, 1, 1) is None
    assert http_server.requests == []
    assert tileset.tile(2, 1, 1) is not None


def test_a_damaged_tile_is_not_asked_for_twice(http_server: HttpServer) -> None:
    http_server.put("a.zip", archive(tiles(crc=1)))
    tileset = tapalcatl.archive(http_server.url_for("a.zip"))
    http_server.reset()
    with pytest.raises(InvalidMetadataError, match="checksum"):
        tileset.tile(0, 0, 0)
    assert len(http_server.requests) == 1


def test_one_flight_for_many_threads(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    http_server.reset()
    http_server.latency = 0.05
    found: list[Any] = []
    places = [(3, x, y) for x, y in square(3, 4)]
    threads = [
        threading.Thread(target=lambda p=place: found.append(tileset.tile(*p))) for place in places
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tile.data for tile in found) == sorted(entry(*place).data for place in places)
    assert len(http_server.requests) == 1 + len(places)


def test_a_flight_that_is_given_up_is_flown_by_another(http_server: HttpServer) -> None:
    async def read() -> None:
        tileset = tapalcatl.open(serve(http_server))
        http_server.latency = 0.2
        first = asyncio.create_task(tileset.tile_async(3, 0, 0))
        await asyncio.sleep(0.05)
        second = asyncio.create_task(tileset.tile_async(3, 1, 1))
        await asyncio.sleep(0.05)
        first.cancel()
        tile = await second
        assert tile is not None
        assert tile.data == entry(3, 1, 1).data
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(read())


def test_a_failed_flight_fails_for_all_and_is_tried_again(http_server: HttpServer) -> None:
    async def read() -> None:
        tileset = tapalcatl.open(serve(http_server), config=FAST)
        http_server.latency = 0.05
        http_server.behave("status", code=500, times=1)
        found = await asyncio.gather(
            *(tileset.tile_async(3, x, y) for x, y in square(3, 2)), return_exceptions=True
        )
        assert all(isinstance(one, StorageError) for one in found)
        assert await tileset.tile_async(3, 0, 0) is not None

    asyncio.run(read())


def test_a_blocking_read_beside_a_coroutine_of_its_thread(http_server: HttpServer) -> None:
    async def read() -> None:
        tileset = tapalcatl.open(serve(http_server))
        http_server.latency = 0.05
        task = asyncio.create_task(tileset.tile_async(3, 0, 0))
        await asyncio.sleep(0)
        tile = tileset.tile(3, 1, 1)
        assert tile is not None
        assert await task is not None

    asyncio.run(read())


def test_many_tiles_at_once(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    http_server.reset()
    places = [(z, x, y) for z in range(4) for x, y in square(z, 1 << z)] + [(9, 0, 0)]
    found = tileset.tiles(places)
    assert len(found) == len(places)
    for place, tile in zip(places, found, strict=True):
        z, x, y = place
        there = z < 2 or (z < 4 and not (x >> (z - 2) >= 2 and y >> (z - 2) >= 2))
        assert (tile is not None) == there
        assert tile is None or tile.data == entry(*place).data
    # Four directories, one of them absent, and the tiles of each of the three in one request.
    assert len(http_server.requests) == 5 + 4
    assert asyncio.run(tileset.tiles_async(places)) == found
    assert tileset.tiles([]) == []


def test_archives_that_cannot_be_listed_are_looked_for(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server))
    assert list(tileset.archive_tiles()) == [(0, 0, 0), (2, 0, 0), (2, 0, 2), (2, 2, 0)]
    assert len(tileset.keys()) == 5 + 3 * 20


def test_a_folder_or_an_archive_without_a_name(http_server: HttpServer) -> None:
    serve(http_server)
    assert tapalcatl.open(http_server.url_for("t")).tile(0, 0, 0) is not None
    http_server.put("tiles", archive(tiles()))
    assert tapalcatl.open(http_server.url_for("tiles")).tile(0, 0, 0) is not None
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.open(http_server.url_for("nothing"))
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.open(http_server.url_for("nothing.zip"))
    http_server.put("text", b"hello" * 10)
    with pytest.raises(NotThisFormatError):
        tapalcatl.open(http_server.url_for("text"))


@pytest.mark.parametrize("kind", HASHES)
def test_hashes_are_found_out(http_server: HttpServer, kind: str) -> None:
    files = tree("{h}/{z}/{x}/{y}.zip")
    http_server.put("h/meta.json", files.pop("meta.json"))
    for name, data in files.items():
        z, x, y = map(int, name.removesuffix(".zip").split("/"))
        http_server.put(f"h/{tile_hash((z, x, y), kind)}/{name}", data)
    tileset = tapalcatl.open(http_server.url_for("h/meta.json"))
    assert tileset.tile(0, 0, 0) is not None
    http_server.reset()
    assert tileset.tile(2, 2, 0) is not None
    assert len(http_server.requests) == 2
    assert tileset.tile(2, 2, 2) is None
    assert len(http_server.requests) == 3
    fixed = tapalcatl.open(http_server.url_for("h/meta.json"), hash="name")
    assert (fixed.tile(0, 0, 0) is not None) == (kind == "name")


def test_sources_elsewhere(http_server: HttpServer, tmp_path: Path) -> None:
    serve(http_server, prefix="far")
    template = http_server.url_for("far") + "/{z}/{x}/{y}.zip"
    (tmp_path / "meta.json").write_text(META % template)
    assert tapalcatl.open(tmp_path).tile(3, 0, 0) is not None
    http_server.put("meta/meta.json", (META % template).encode())
    assert tapalcatl.open(http_server.url_for("meta/meta.json")).tile(3, 0, 0) is not None
    http_server.put("up/meta.json", (META % "../far/{z}/{x}/{y}.zip").encode())
    mended = tapalcatl.open(http_server.url_for("up/meta.json"), source=template)
    assert mended.tile(3, 0, 0) is not None


def test_the_block_cache_serves_tiles_again(http_server: HttpServer) -> None:
    tileset = tapalcatl.open(serve(http_server), cache=BlockCache(1 << 20))
    assert tileset.tile(3, 0, 0) is not None
    http_server.reset()
    assert tileset.tile(3, 1, 1) is not None
    assert http_server.requests == []


def test_a_document_that_changes(http_server: HttpServer) -> None:
    with tapalcatl.open(serve(http_server)) as tileset:
        assert not tileset.refresh()
        assert tileset.tile(3, 0, 0) is not None
        http_server.put(
            "t/meta.json", (META % "{z}/{x}/{y}.zip").replace('"maxzoom":3', '"maxzoom":2').encode()
        )
        assert tileset.refresh()
        assert tileset.tile(3, 0, 0) is None
        assert tileset.tile(2, 0, 0) is not None
        assert not tileset.refresh()


def test_an_object_store(s3_server: Any) -> None:
    for name, data in tree().items():
        s3_server.put(f"tapalcatl/{name}", data)
    tileset = tapalcatl.open(s3_server.url_for("tapalcatl/meta.json"), config=s3_server.config)
    assert data_of(tileset, 3, 5, 2) == entry(3, 5, 2).data
    assert tileset.tile(3, 7, 7) is None
    assert list(tileset.archive_tiles()) == [(0, 0, 0), (2, 0, 0), (2, 0, 2), (2, 2, 0)]
    first = tapalcatl.open(
        s3_server.url_for("tapalcatl"), metatile=1, min_zoom=0, config=s3_server.config
    )
    assert first.tile(0, 0, 0, ext="png") is not None

    async def read() -> None:
        tile = await tileset.tile_async(3, 5, 3)
        assert tile is not None

    asyncio.run(read())
