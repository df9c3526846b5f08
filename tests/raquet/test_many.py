"""The blobs of many tiles in one call: what `raw_blob` gives for each, with fewer reads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from comal import raquet, storage
from comal.errors import InvalidMetadataError, ObjectChangedError
from comal.grid import quadbin
from comal.storage.source import HeldFile
from tests.raquet.build import Plan, framed, noise, stored, write

if TYPE_CHECKING:
    from tests.servers.http import HttpServer

SIDE = 12
SQUARE = [(6, x, y) for x in range(SIDE) for y in range(SIDE)]


def pixels(x: int, y: int) -> Any:
    return noise(x * SIDE + y, "uint8", (256, 256))


def blob(x: int, y: int) -> bytes:
    return framed(stored(pixels(x, y)))


def large(path: Path, side: int = SIDE, **named: Any) -> Path:
    """Tiles whose pages are read in two: headers and values."""
    tiles = {(6, x, y): [pixels(x, y)] for x in range(side) for y in range(side)}
    return write(path, tiles, Plan(block=(256, 256), **named))


def counting(monkeypatch: pytest.MonkeyPatch, name: str) -> list[int]:
    """How often a method of open files is called."""
    calls: list[int] = []
    whole = getattr(HeldFile, name)

    def counted(*given: Any) -> Any:
        calls.append(1)
        return whole(*given)

    monkeypatch.setattr(HeldFile, name, counted)
    return calls


def test_several_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from comal.raquet.reading import store

    path = large(tmp_path / "a.parquet")
    monkeypatch.setattr(store, "_LOCATED", 70)
    with raquet.open(path) as file:
        asked = np.random.default_rng(2).permutation(SQUARE)
        expected = [blob(x, y) for _, x, y in asked.tolist()]
        looks = counting(monkeypatch, "check_unchanged")
        assert list(file.iter_raw_blobs(asked)) == expected
        assert 9 <= len(looks) <= 12


def test_a_damaged_page(tmp_path: Path) -> None:
    path = large(tmp_path / "a.parquet", checksum=True)
    tiles = SQUARE[:20]
    with raquet.open(path) as file:
        blobs = file.raw_blobs(tiles)
        content = bytearray(path.read_bytes())
        content[content.index(blobs[7] or b"?") + 9_000] ^= 1
        path.write_bytes(bytes(content))
    with raquet.open(path) as file:
        found = file.iter_raw_blobs(tiles)
        with pytest.raises(InvalidMetadataError, match="does not match its checksum") as error:
            list(found)
        assert str(quadbin.cells(*tiles[7])) in str(error.value)
        for read in (file.raw_blob, file.tile):
            with pytest.raises(InvalidMetadataError):
                read(*tiles[7])
        loose = file.raw_blobs(tiles, verify=False)
        assert file.raw_blob(*tiles[7], verify=False) == loose[7]
        assert [a == b for a, b in zip(loose, blobs, strict=True)] == [n != 7 for n in range(20)]


def test_a_file_that_is_written_to(tmp_path: Path) -> None:
    path = large(tmp_path / "a.parquet")
    tiles = SQUARE
    with raquet.open(path) as file:
        found = file.iter_raw_blobs(tiles)
        assert next(found) is not None
        with path.open("ab") as stream:
            stream.write(b"x")
        with pytest.raises(ObjectChangedError):
            list(found)
        with pytest.raises(ObjectChangedError):
            file.raw_blobs(tiles)
        with pytest.raises(ObjectChangedError):
            file.tiles(tiles)
    with raquet.open(large(tmp_path / "b.parquet")) as file:
        found = file.iter_raw_blobs(tiles)
        first = next(found)
        os.replace(large(tmp_path / "c.parquet", side=2), tmp_path / "b.parquet")  # noqa: PTH105
        # Who holds a file reads the version that was opened, whatever has its name now.
        assert [first, *found] == [blob(x, y) for _, x, y in tiles]


def test_one_request_from_a_server(tmp_path: Path, http_server: HttpServer) -> None:
    url = http_server.put("a.parquet", large(tmp_path / "a.parquet", 4).read_bytes())
    source = storage.CountingSource(storage.open_source(url))
    file = raquet.open(source)
    tiles = [(6, x, y) for x in range(4) for y in range(4)] * 2
    expected = [blob(x, y) for _, x, y in tiles]
    for ask in (file.raw_blobs, file.iter_raw_blobs):
        source.reset()
        assert list(ask(tiles)) == expected
        assert source.round_trips == 1
    source.reset()
    file.tiles(tiles)
    assert (source.requests, source.round_trips) == (1, 1)


def test_no_more_than_some_are_held(tmp_path: Path) -> None:
    import tracemalloc

    path = large(tmp_path / "a.parquet")
    with raquet.open(path) as file:
        tiles = np.array(SQUARE * 4)
        file.raw_blobs(tiles[:5])
        tracemalloc.start()
        total = sum(len(blob or b"") for blob in file.iter_raw_blobs(tiles))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert total > 10_000_000
    assert peak < total / 10


def test_the_header_of_a_page_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for plan in (Plan(block=(256, 256)), Plan(block=(256, 256), page_version="2.0"), Plan()):
        tiles: dict[Any, Any] = {(6, x, 0): [noise(x, "uint8", plan.block)] for x in range(20)}
        tiles[6, 20, 0] = [None]
        asked = list(tiles)
        path = write(tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet", tiles, plan)
        expected = [None if one is None else framed(stored(one)) for (one,) in tiles.values()]
        with raquet.open(path) as file, monkeypatch.context() as patch:
            assert [file.raw_blob(*tile, verify=False) for tile in asked] == expected
            reads: list[int] = []
            for name in ("read", "read_unchanged"):
                whole = getattr(HeldFile, name)

                def counted(
                    held: HeldFile, offset: int, size: int, whole: Any = whole, to: Any = reads
                ) -> bytes:
                    to.append(size)
                    return bytes(whole(held, offset, size))

                patch.setattr(HeldFile, name, counted)
            assert [file.raw_blob(*tile, verify=False) for tile in asked] == expected
            assert list(file.iter_raw_blobs(asked, verify=False)) == expected
            # A page without a value has nothing to remember.
            assert [size for size in reads if size > 100] == [
                len(blob) for blob in expected if blob
            ] * 2
            assert len(reads) <= 2 * len(asked)
            reads.clear()
            assert file.raw_blobs(asked) == expected
            assert sum(reads) > sum(len(blob) for blob in expected if blob)


def test_a_damaged_header_is_seen_without_checksums_too(tmp_path: Path) -> None:
    path = large(tmp_path / "a.parquet", 4)
    with raquet.open(path) as file:
        index = file.store.parts[0].pages[file.store.columns[0]]
        row = int(np.argmax(file.store.ids == quadbin.cells(6, 2, 2)))
        content = bytearray(path.read_bytes())
        content[int(index.offset[row]) + 1] ^= 1
    path.write_bytes(bytes(content))
    with raquet.open(path) as file:
        for _ in range(2):
            with pytest.raises(InvalidMetadataError):
                file.raw_blob(6, 2, 2, verify=False)
            with pytest.raises(InvalidMetadataError):
                file.raw_blobs([(6, 2, 2)], verify=False)
        assert file.raw_blob(6, 2, 1, verify=False) == blob(2, 1)
