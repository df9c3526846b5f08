"""Many tiles in one call: what `tile` gives for each."""

from __future__ import annotations

import asyncio
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import tapalcatl
from comal.errors import InvalidInputError
from comal.storage import CountingSource, open_source
from comal.storage.source import HeldFile
from comal.tapalcatl import TileSet
from comal.tapalcatl.reading import index
from tests.servers.http import HttpServer
from tests.tapalcatl.making import listed, payload, pyramid
from tests.tapalcatl.odd import Entry, archive
from tests.tapalcatl.reading.test_first import written as first_generation

Key = tuple[int, int, int]
TILES = pyramid(5)
ASKED: list[Key] = [
    *reversed(TILES), (6, 0, 0), (3, 8, 0), (3, 0, -1), (-1, 0, 0), (40, 0, 0), (0, 0, 0), *TILES,
]  # fmt: skip


@pytest.fixture(autouse=True)
def _arrays_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Archives of these tests are small, and would mostly be read by name."""
    monkeypatch.setattr(index, "_BY_NAME_IN_FEW", 3)


def tree(folder: Path, **named: Any) -> Path:
    tapalcatl.build(listed(TILES), folder, metatile=2, materialized_zooms=(0, 2, 4), **named)
    return folder


def large(path: Path, count: int = 64, **named: Any) -> Path:
    """One archive of zoom 5."""
    path.write_bytes(archive([entry(number, **named) for number in range(count)], META5))
    return path


def entry(number: int, **named: Any) -> Entry:
    x, y = divmod(number, 32)
    return Entry(f"5/{x}/{y}.png".encode(), payload(5, x, y), **named)


META5 = (
    b'{"tapalcatl":"2.0.0","minzoom":0,"maxzoom":5,"formats":{"png":"image/png"},'
    b'"metatile":1,"root":"0/0/0"}'
)
PLACES: list[Key] = [(5, *divmod(number, 32)) for number in range(64)]


def data_of(tiles: Any) -> list[bytes | None]:
    return [None if tile is None else tile.data for tile in tiles]


def same(tileset: TileSet, asked: list[Key], expected: list[bytes | None], **named: Any) -> None:
    """Every way to ask gives these bytes, and all that `tile` says."""
    alone = [tileset.tile(*place, **named) for place in asked]
    assert data_of(alone) == expected
    rows = np.array(asked)
    assert tileset.tiles(asked, **named) == alone
    assert tileset.tiles(rows, **named) == alone
    assert list(tileset.iter_tiles(iter(asked), **named)) == alone
    assert list(tileset.iter_tiles(rows, verify=False, **named)) == alone
    assert asyncio.run(tileset.tiles_async(rows, **named)) == alone


def test_a_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tree(tmp_path / "t")
    expected = [TILES.get(place) for place in ASKED]
    same(tapalcatl.open(folder), ASKED, expected)
    fresh = tapalcatl.open(folder)
    assert data_of(fresh.iter_tiles(ASKED)) == expected
    assert fresh.tiles([]) == list(fresh.iter_tiles([])) == []
    rows = fresh.keys()
    assert data_of(fresh.tiles(rows)) == [TILES[z, x, y] for z, x, y in rows.tolist()]


@pytest.mark.parametrize("deflate", [False, True])
@pytest.mark.parametrize("comment", [b"", b'{"headers":{"X-One":"1"}}'])
def test_one_archive(tmp_path: Path, deflate: bool, comment: bytes) -> None:
    path = large(tmp_path / "a.zip", deflate=deflate, comment=comment)
    asked = [*PLACES, (5, 31, 31), *PLACES[::3], (0, 0, 0)]
    expected = [payload(*place) if place in PLACES else None for place in asked]
    same(tapalcatl.open(path), asked, expected)


def test_scales_and_formats(tmp_path: Path) -> None:
    both = [
        Entry(f"5/{x}/{y}{suffix}".encode(), payload(5, x, y) + suffix.encode())
        for x in range(2)
        for y in range(20)
        for suffix in (".png", "@2x.png", ".mvt")
        if (suffix != ".png" or y % 3) and (suffix != ".mvt" or y % 2)
    ]
    meta = META5.replace(b'"png":"image/png"', b'"png":"image/png","mvt":"x/y"')
    (tmp_path / "a.zip").write_bytes(archive(both, meta))
    tileset = tapalcatl.open(tmp_path / "a.zip")
    asked: list[Key] = [(5, x, y) for x in range(2) for y in range(20)]
    names = {one.name.decode(): one.data for one in both}

    def of(*suffixes: str) -> list[bytes | None]:
        every = [[names.get(f"{z}/{x}/{y}{one}") for one in suffixes] for z, x, y in asked]
        return [next((one for one in tile if one is not None), None) for tile in every]

    same(tileset, asked, of(".png", ".mvt"))
    same(tileset, asked, of(".mvt"), ext="mvt")
    same(tileset, asked, of("@2x.png"), ext="png", scale=2)
    same(tileset, asked, of("@3x.png"), ext="png", scale=3)


@pytest.mark.parametrize("size", [None, 256, 512])
def test_the_first_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    monkeypatch.setattr(index, "_BY_NAME_IN_FEW", 0)
    folder = first_generation(tmp_path, t0_0_0=("png",), t1_0_0=("png", "mvt"), t1_1_1=("mvt",))
    tileset = tapalcatl.open(folder, metatile=2)
    asked: list[Key] = [(z, x, y) for z in range(4) for x in range(1 << z) for y in range(1 << z)]
    tileset.tiles(asked, size=size)  # from now on the formats are known
    alone = [tileset.tile(*place, size=size) for place in asked]
    assert sum(one is not None for one in alone) >= 3
    same(tileset, asked, data_of(alone), size=size)


@pytest.mark.parametrize(
    "tiles", [[(1, 2)], [(1, 2, 3, 4)], [1, 2, 3], [("1", "2", "3")], 5, [(1, 2, 3), 4]]
)
def test_what_is_no_list_of_tiles(tmp_path: Path, tiles: Any) -> None:
    tileset = tapalcatl.open(large(tmp_path / "a.zip"))
    for many in (tileset.tiles, tileset.iter_tiles):
        with pytest.raises(InvalidInputError, match=r"list of tiles|64-bit"):
            many(tiles)
    with pytest.raises(InvalidInputError, match="size"):
        tileset.tiles(PLACES, size=256)


def test_an_archive_that_changes(tmp_path: Path) -> None:
    path = large(tmp_path / "a.zip")
    old = [payload(*place) for place in PLACES]
    tileset = tapalcatl.open(path, recheck=0)
    found = tileset.iter_tiles(PLACES)
    first = next(found)
    tapalcatl.put(path, [(5, 0, 0, b"new"), (5, 0, 1, b"new")])
    # Each tile is of the archive that is there when it is read.
    assert data_of([first, *found]) == [old[0], b"new", *old[2:]]
    assert data_of(tileset.tiles(PLACES)) == [b"new", b"new", *old[2:]]
    found = tileset.iter_tiles(PLACES)
    next(found)
    part = tmp_path / "part"
    part.write_bytes(archive([Entry(f"5/0/{y}.png".encode(), b"other") for y in range(20)], META5))
    os.replace(part, path)  # noqa: PTH105
    assert data_of(found) == [b"other"] * 19 + [None] * 44
    assert data_of(tileset.tiles(PLACES)) == [b"other"] * 20 + [None] * 44


def test_each_tile_is_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tileset = tapalcatl.open(tree(tmp_path / "t"))
    tileset.tiles(ASKED)
    reads: list[int] = []
    whole = HeldFile.read

    def counted(file: HeldFile, offset: int, size: int) -> bytes:
        reads.append(size)
        return whole(file, offset, size)

    monkeypatch.setattr(HeldFile, "read", counted)
    assert data_of(tileset.iter_tiles(TILES, verify=False)) == list(TILES.values())
    assert len(reads) == len(TILES)
    assert sum(reads) < 2 * sum(map(len, TILES.values()))


def test_no_more_than_some_are_held(tmp_path: Path) -> None:
    entries = [Entry(f"5/{n >> 5}/{n & 31}.png".encode(), bytes(20_000)) for n in range(64)]
    (tmp_path / "a.zip").write_bytes(archive(entries, META5))
    tileset = tapalcatl.open(tmp_path / "a.zip")
    tileset.tiles(PLACES)
    asked = np.array(PLACES * 20)
    tracemalloc.start()
    total = sum(len(tile.data) for tile in tileset.iter_tiles(asked) if tile)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == 64 * 20 * 20_000
    assert peak < total / 10


def test_from_a_server(
    tmp_path: Path, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from comal.tapalcatl.reading import tileset as module

    folder = tree(tmp_path / "t")
    for path in folder.rglob("*.*"):
        http_server.put(f"t/{path.relative_to(folder)}", path.read_bytes())
    remote = tapalcatl.open(http_server.url_for("t/meta.json"))
    monkeypatch.setattr(module, "_TOGETHER", 100)
    expected = [TILES.get(place) for place in ASKED]
    assert data_of(remote.iter_tiles(ASKED)) == expected
    counting = tapalcatl.open(CountingSource(open_source(folder / "meta.json")))
    assert data_of(counting.iter_tiles(np.array(ASKED))) == expected
