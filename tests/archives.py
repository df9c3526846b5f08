"""One archive of each kind, which several tests of the whole public API start from."""

from __future__ import annotations

import functools
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from comal import taco, tortilla
from comal.demo import scenes
from tests.server.making import raquet_file, taco_file, tiff, tileset


@dataclass(frozen=True)
class Files:
    """One archive of each kind, and a folder to write to."""

    dem: str
    tif: str
    scenes: str
    tacodir: str
    tortilla: str
    tiles: str
    folder: str
    """With files that are no archives."""
    out: Path

    def new(self, name: str) -> str:
        return str(self.out / name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    heights = np.arange(128 * 128, dtype=np.int16).reshape(128, 128)
    raquet_file(folder / "dem.parquet", {"height": heights})
    (folder / "dem.tif").write_bytes(tiff(heights[None, :32, :32]))
    taco_file(folder / "scenes.tacozip", 2)
    taco.zip2folder(folder / "scenes.tacozip", folder / "scenes", quiet=True)
    tileset(folder / "tiles")
    files = folder / "files"
    files.mkdir()
    for name in ("a.tif", "b.tif"):
        shutil.copy(folder / "dem.tif", files / name)
    tortilla.pack_folder(files, folder / "a.tortilla")
    return folder


def stamps(place: Path) -> dict[str, tuple[int, int]]:
    """Size and time of a file, or of each file below a folder: a change shows in them."""
    files = place.rglob("*") if place.is_dir() else (place,)
    found = {path: path.lstat() for path in files if os.path.lexists(path)}
    return {
        str(path.relative_to(place)): (one.st_size, one.st_mtime_ns)
        for path, one in found.items()
        if not path.is_dir()
    }


_AS_MADE = functools.cache(stamps)
"""Those of what nobody changes."""


def fresh(made: Path, folder: Path) -> Files:
    """The archives, those that may be changed in place as they were made."""
    for name in ("tiles", "a.tortilla"):
        source, target = made / name, folder / name
        if _AS_MADE(source) == stamps(target):
            continue
        if source.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
        else:
            shutil.copy2(source, target)
    return Files(
        dem=str(made / "dem.parquet"),
        tif=str(made / "dem.tif"),
        scenes=str(made / "scenes.tacozip"),
        tacodir=str(made / "scenes"),
        tortilla=str(folder / "a.tortilla"),
        tiles=str(folder / "tiles"),
        folder=str(made / "files"),
        out=folder,
    )


@pytest.fixture
def files(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Fresh archives, in the folder that is the current one meanwhile."""
    monkeypatch.chdir(tmp_path)
    return fresh(made, tmp_path)


def small_demo() -> Any:
    """The demo meanwhile makes one of its scenes, of few pixels."""
    cusco = tuple(place for place in scenes.PLACES if place.name == "cusco")
    return mock.patch.multiple(scenes, PLACES=cusco, SIZE=64)


def samples(files: Files) -> taco.Taco:
    tree = taco.Tortilla([taco.Sample(id="a", path=files.tif)])
    return taco.Taco(tree, **WHAT_A_TORTILLA_LACKS)


WHAT_A_TORTILLA_LACKS: dict[str, Any] = {
    "id": "a",
    "dataset_version": "1",
    "description": "a",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "a"}],
    "tasks": ["other"],
}
