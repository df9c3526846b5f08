"""Local trees: archives that change under a reader, budgets, forks and many threads."""

from __future__ import annotations

import asyncio
import gc
import io
import multiprocessing
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
)
from comal.tapalcatl import TileSet, TileSetMetadata
from comal.tapalcatl.reading import archives
from tests.support import open_below
from tests.tapalcatl.making import data_of
from tests.tapalcatl.odd import Entry, appended, archive
from tests.tapalcatl.reading.test_remote import entry, square, tree


def written(folder: Path, source: str = "{z}/{x}/{y}.zip") -> Path:
    for name, data in tree(source).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def replace(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    part.write_bytes(data)
    part.replace(path)


def test_an_archive_that_is_replaced(tmp_path: Path) -> None:
    tileset = tapalcatl.open(written(tmp_path), recheck=0)
    patient = tapalcatl.open(tmp_path, recheck=1000)
    assert data_of(tileset, 2, 0, 0) == data_of(patient, 2, 0, 0) == entry(2, 0, 0).data
    replace(tmp_path / "2/0/0.zip", archive([Entry(b"2/0/0.png", b"new")]))
    assert data_of(tileset, 2, 0, 0) == b"new"
    assert data_of(patient, 2, 0, 0) == entry(2, 0, 0).data
    assert data_of(tileset, 2, 1, 1) is None
    (tmp_path / "2/0/0.zip").unlink()
    assert data_of(tileset, 2, 0, 0) is None
    assert data_of(patient, 2, 0, 0) == entry(2, 0, 0).data


def test_an_archive_that_is_written_over_in_place(tmp_path: Path) -> None:
    patient = tapalcatl.open(written(tmp_path), recheck=1000)
    assert data_of(patient, 2, 0, 0) is not None
    new = archive([Entry(b"2/0/0.png", b"other bytes " * 80), entry(2, 1, 1)])
    (tmp_path / "2/0/0.zip").write_bytes(new)
    assert data_of(patient, 2, 0, 0) == b"other bytes " * 80


def test_readers_of_the_old_directory_stay_right(tmp_path: Path) -> None:
    patient = tapalcatl.open(written(tmp_path), recheck=1000)
    path = tmp_path / "2/0/0.zip"
    old = path.read_bytes()
    assert data_of(patient, 2, 0, 0) == entry(2, 0, 0).data
    kept = [entry(z, x, y) for z in (2, 3) for x, y in square(z, 2 << (z - 2))]
    with path.open("ab") as file:
        file.write(appended(old, [Entry(b"2/0/0.png", b"new")], kept[1:])[len(old) :])
    assert data_of(patient, 2, 0, 0) == entry(2, 0, 0).data
    assert data_of(tapalcatl.open(tmp_path), 2, 0, 0) == b"new"


def test_an_archive_that_comes_later(tmp_path: Path) -> None:
    tileset = tapalcatl.open(written(tmp_path), recheck=0)
    assert data_of(tileset, 3, 7, 7) is None
    (tmp_path / "2/2/2.zip").write_bytes(archive([entry(3, 7, 7)]))
    assert data_of(tileset, 3, 7, 7) == entry(3, 7, 7).data


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


def _in_child(tileset: TileSet, queue: multiprocessing.Queue[bytes | None]) -> None:
    queue.put(data_of(tileset, 2, 0, 0))
    queue.put(data_of(tileset, 2, 2, 0))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(tmp_path: Path, method: str) -> None:
    tileset = tapalcatl.open(written(tmp_path))
    assert data_of(tileset, 2, 0, 0) is not None
    context: Any = multiprocessing.get_context(method)
    queue: multiprocessing.Queue[bytes | None] = context.Queue()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads, of which pytest may have some.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_in_child, args=(tileset, queue))
        process.start()
    assert queue.get(timeout=60) == entry(2, 0, 0).data
    assert queue.get(timeout=60) == entry(2, 2, 0).data
    process.join()
    assert process.exitcode == 0


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


def test_tiles_async(tmp_path: Path) -> None:
    tileset = tapalcatl.open(written(tmp_path), recheck=0)

    async def read() -> None:
        assert (await tileset.tile_async(3, 0, 0)) == tileset.tile(3, 0, 0)
        assert await tileset.tile_async(3, 7, 7) is None
        assert await tileset.tile_async(9, 0, 0) is None
        replace(tmp_path / "2/0/0.zip", archive([Entry(b"2/0/0.png", b"new")]))
        tile = await tileset.tile_async(2, 0, 0)
        assert tile is not None
        assert tile.data == b"new"
        assert await tileset.tile_async(2, 1, 1) is None

    asyncio.run(read())


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
            with pytest.raises(InvalidInputError, match="no integers"):
                ask(*wrong)
        with pytest.raises(InvalidInputError, match="no integers"):
            asyncio.run(tileset.tile_async(*wrong))
