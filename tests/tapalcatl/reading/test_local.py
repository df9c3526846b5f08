"""Local trees: archives that change under a reader, budgets, forks and many threads."""

from __future__ import annotations

import asyncio
import gc
import io
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import tapalcatl
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
)
from comal.tapalcatl import Tile, TileSet, TileSetMetadata
from comal.tapalcatl.reading import archives
from tests.servers.http import HttpServer
from tests.support import in_child, open_below
from tests.tapalcatl.making import Key, data_of, write_files
from tests.tapalcatl.odd import Entry, appended, archive
from tests.tapalcatl.reading.test_remote import entry, serve, square, tree


def written(folder: Path) -> Path:
    return write_files(folder, tree())


def replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


async def one_by_one(tileset: TileSet, places: list[Key]) -> list[Tile | None]:
    return [await tileset.tile_async(*place) for place in places]


DOORS: dict[str, Callable[[TileSet, list[Key]], list[Tile | None]]] = {
    "tile": lambda tileset, places: [tileset.tile(*place) for place in places],
    "tile_async": lambda tileset, places: asyncio.run(one_by_one(tileset, places)),
    "tiles": lambda tileset, places: tileset.tiles(places),
    "iter_tiles": lambda tileset, places: list(tileset.iter_tiles(places)),
    "tiles_async": lambda tileset, places: asyncio.run(tileset.tiles_async(places)),
}
ASKED: list[Key] = [(0, 0, 0), (2, 0, 0), (2, 1, 1), (3, 3, 3), (3, 7, 7), (9, 0, 0)]
OLD = [*(entry(*place).data for place in ASKED[:4]), None, None]
OTHER = archive([Entry(b"2/0/0.png", b"other bytes " * 80), entry(2, 1, 1)])
OF_OTHER = [OLD[0], b"other bytes " * 80, OLD[2], None, None, None]
KEPT = [entry(z, x, y) for z in (2, 3) for x, y in square(z, 2 << (z - 2))]
UPDATED = appended(tree()["2/0/0.zip"], [Entry(b"3/3/3.png", b"new")], KEPT[:-1])
CHANGES: dict[str, tuple[str, bytes | None, list[bytes | None]]] = {
    "replaced": ("2/0/0.zip", OTHER, OF_OTHER),
    "replaced by fewer": (
        "2/0/0.zip",
        archive([Entry(b"2/0/0.png", b"new")]),
        [OLD[0], b"new", None, None, None, None],
    ),
    "written over": ("2/0/0.zip", OTHER, OF_OTHER),
    "updated": ("2/0/0.zip", UPDATED, [*OLD[:3], b"new", None, None]),
    "removed": ("2/0/0.zip", None, [OLD[0], *[None] * 5]),
    "added": ("2/2/2.zip", archive([entry(3, 7, 7)]), [*OLD[:4], entry(3, 7, 7).data, None]),
}
"""The archive, what is there afterwards, and the tiles that are found in it."""


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("remote", [False, True], ids=["local", "remote"])
def test_an_archive_that_changes(
    tmp_path: Path, http_server: HttpServer, remote: bool, door: str, change: str
) -> None:
    """Who looks again sees it; others read on, for as long as what they know is still true."""
    place = serve(http_server) if remote else written(tmp_path)
    eager, patient = (tapalcatl.open(place, recheck=seconds) for seconds in (0, 1000))

    def found(tileset: TileSet) -> list[bytes | None]:
        return [None if tile is None else tile.data for tile in DOORS[door](tileset, ASKED)]

    assert found(eager) == found(patient) == OLD
    name, data, new = CHANGES[change]
    if data is None and remote:
        http_server.remove(f"t/{name}")
    elif data is None:
        (tmp_path / name).unlink()
    elif remote:
        http_server.put(f"t/{name}", data)
    elif change in ("written over", "updated"):
        (tmp_path / name).write_bytes(data)
    else:
        replace(tmp_path / name, data)
    assert found(eager) == new
    # A file that is open stays what it was; of a server each range is asked anew.
    stays = change == "added" or (not remote and change != "written over")
    assert found(patient) == (OLD if stays else new)


def test_an_archive_that_is_cut(tmp_path: Path) -> None:
    patient = tapalcatl.open(written(tmp_path), recheck=1000)
    assert data_of(patient, 3, 0, 0) is not None
    path = tmp_path / "2/0/0.zip"
    os.truncate(path, 10)
    with pytest.raises((InvalidMetadataError, ValueError)):
        patient.tile(3, 3, 3)


def test_directories_have_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tileset = tapalcatl.open(written(tmp_path), budget=1)
    for place in ((0, 0, 0), (2, 0, 0), (2, 2, 0), (2, 0, 2), (2, 0, 0)):
        assert data_of(tileset, *place) == entry(*place).data
    assert tileset.archives.weight < 10_000
    monkeypatch.setattr(archives, "HELD_FILES", 2)
    few = tapalcatl.open(tmp_path)
    before = open_below(tmp_path)
    for place in ((0, 0, 0), (2, 0, 0), (2, 2, 0), (2, 0, 2)):
        assert data_of(few, *place) == entry(*place).data
    assert open_below(tmp_path) <= before + 2
    few.close()
    gc.collect()
    assert open_below(tmp_path) <= before


def test_files_close_without_a_word(tmp_path: Path) -> None:
    written(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tileset = tapalcatl.open(tmp_path)
        assert data_of(tileset, 0, 0, 0) is not None
        del tileset
        gc.collect()
    assert open_below(tmp_path) == 0


def test_other_processes(tmp_path: Path, processes: Executor) -> None:
    tileset = tapalcatl.open(written(tmp_path))
    assert data_of(tileset, 2, 0, 0) is not None

    def reads() -> None:
        for place in ((2, 0, 0), (2, 2, 0)):
            assert data_of(tileset, *place) == entry(*place).data

    in_child(reads)
    for place in ((2, 0, 0), (2, 2, 0)):
        assert processes.submit(data_of, tileset, *place).result(60) == entry(*place).data


def test_threads_and_replacements(tmp_path: Path) -> None:
    tileset = tapalcatl.open(written(tmp_path), recheck=0)
    path = tmp_path / "2/0/0.zip"
    versions = [archive([Entry(b"2/0/0.png", bytes([n]) * 500)]) for n in range(8)]
    allowed = {bytes([n]) * 500 for n in range(8)} | {entry(2, 0, 0).data}
    wrong: list[object] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            found = data_of(tileset, 2, 0, 0)
            if found not in allowed:
                wrong.append(found)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for data in versions * 5:
        replace(path, data)
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert data_of(tileset, 2, 0, 0) == bytes([7]) * 500


def test_trees_without_a_document(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "meta.json").unlink()
    with pytest.raises(NotThisFormatError, match="version=1"):
        tapalcatl.open(tmp_path)
    metadata = TileSetMetadata(
        formats={"png": ()}, materialized_zooms=(0, 2), metatile=2, source="{z}/{x}/{y}.zip"
    )
    tileset = tapalcatl.open(tmp_path, metadata=metadata)
    assert data_of(tileset, 3, 0, 0) == entry(3, 0, 0).data
    assert not tileset.refresh()
    assert len(tileset.keys()) == 65


def test_bounds_hide_what_lies_outside(tmp_path: Path) -> None:
    written(tmp_path)
    text = (tmp_path / "meta.json").read_text()
    narrow = text.replace("[-180,", "[10,").replace("-85.0511287798066", "10", 1)
    (tmp_path / "meta.json").write_text(narrow)
    tileset = tapalcatl.open(tmp_path)
    assert data_of(tileset, 0, 0, 0) is not None
    assert data_of(tileset, 2, 2, 1) is not None
    assert data_of(tileset, 2, 0, 0) is None
    assert data_of(tileset, 2, 2, 2) is None


@pytest.mark.parametrize(
    "options", [{"version": 3}, {"version": 2, "metatile": 4}, {"hash": "other"}, {"metatiles": 4}]
)
def test_wrong_arguments(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        tapalcatl.open(written(tmp_path), **options)
    with pytest.raises(InvalidInputError):
        tapalcatl.open(tmp_path).tile(0, 0, 0, size=512)


@pytest.mark.parametrize("opening", [tapalcatl.open, tapalcatl.archive, tapalcatl.check])
@pytest.mark.parametrize("wrong", [b"tiles", io.BytesIO(b"PK"), None, 5, ["tiles"]])
def test_what_names_no_tileset(opening: Any, wrong: Any) -> None:
    with pytest.raises(InvalidInputError, match="a path, a URL or a source") as caught:
        opening(wrong)
    assert caught.value.found == type(wrong).__name__


@pytest.mark.parametrize("wrong", [(0.5, 0, 0), (1, "0", 0), (None, 0, 0), (1, 0, 0.5)])
def test_numbers_that_name_no_tile(tmp_path: Path, wrong: Any) -> None:
    written(tmp_path)
    (tmp_path / "one.zip").write_bytes(next(tmp_path.rglob("*.zip")).read_bytes())
    metatiles = tapalcatl.open(tmp_path, version=1, metatile=2)
    for tileset in (tapalcatl.open(tmp_path), tapalcatl.open(tmp_path / "one.zip"), metatiles):
        for ask in (tileset.tile, tileset.stored_tile, tileset.entry):
            with pytest.raises(InvalidInputError, match="not integers"):
                ask(*wrong)
        with pytest.raises(InvalidInputError, match="not integers"):
            asyncio.run(tileset.tile_async(*wrong))


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64])
def test_numbers_of_numpy_mean_the_same(tmp_path: Path, kind: Any) -> None:
    place, config = (8, 120, 100), tapalcatl.Generation1(metatile=kind(2))
    roots = np.array([0, 3], kind)
    tapalcatl.build([(*place, b"a")], tmp_path / "2", metatile=kind(2), materialized_zooms=roots)
    tapalcatl.build([(*place, b"a")], tmp_path / "1", version=1, generation1=config)
    first = tapalcatl.open(tmp_path / "1", metatile=2, formats={"": ()})
    for tileset in (tapalcatl.open(tmp_path / "2"), first):
        with tileset:
            tile = tileset.tile(*map(kind, place))
            assert tile is not None
            assert tile == tileset.tile(*place)
            assert tileset.stored_tile(*map(kind, place)) == tileset.stored_tile(*place)
    assert tapalcatl.choose_layout(kind(0), kind(1)) == tapalcatl.choose_layout(0, 1)
