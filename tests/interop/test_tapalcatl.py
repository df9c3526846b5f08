"""Archives that are built, updated in place and compacted, in the hands of other programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from comal import tapalcatl
from comal.raster.pictures import encode_picture

pytestmark = pytest.mark.interop

Key = tuple[int, int, int]
STATES = ("built", "updated", "twice", "relabelled", "compacted")


def picture(z: int, x: int, y: int, more: int = 0) -> Any:
    """Pixels that tell where they belong."""
    rows = np.add.outer(np.arange(16) * 3, np.arange(16))
    return np.stack([rows + z * 20 + more, rows + x * 9, rows + y * 5]).astype(np.uint8)


def pictures(last: int) -> dict[Key, Any]:
    return {
        (z, x, y): picture(z, x, y)
        for z in range(last + 1)
        for x in range(1 << z)
        for y in range(1 << z)
    }


def encoded(tiles: dict[Key, Any]) -> list[tuple[int, int, int, bytes]]:
    return [(*key, encode_picture(pixels, "png")) for key, pixels in tiles.items()]


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[Key, Any]]]:
    """A tileset as it goes through all changes, with what must be in it."""
    root = tmp_path_factory.mktemp("trees")
    tree, now = root / "built", pictures(3)
    tapalcatl.build(
        encoded(now),
        tree,
        metatile=1,
        materialized_zooms=[0, 2],
        name="Łódź",
        description="a description that is long enough to be cut",
        entry_headers={(0, 0, 0): (("X-A", "b"),)},
        times=1_541_013_027,
        exact_times=True,
        compression="deflate",
    )
    found = {"built": (tree, dict(now))}
    for state in STATES[1:]:
        shutil.copytree(tree, root / state)
        tree = root / state
        if state == "updated":
            new = {key: picture(*key, 50) for key in ((0, 0, 0), (3, 1, 1), (3, 7, 0), (4, 9, 3))}
            tapalcatl.put(tree, encoded(new))
            now |= new
            gone = [(2, 1, 2), (3, 0, 0)]
            tapalcatl.delete(tree, gone)
            for key in gone:
                del now[key]
        elif state == "twice":
            for more in (1, 2, 3):
                new = {(3, 1, 1): picture(3, 1, 1, more)}
                tapalcatl.put(tree, encoded(new), compression="store")
                now |= new
        elif state == "relabelled":
            tapalcatl.edit_metadata(tree, {"name": "short", "attribution": "somebody"})
            tapalcatl.edit_metadata(tree, {"description": "a much longer one " * 20})
        else:
            assert tapalcatl.compact(tree) > 0
        found[state] = (tree, dict(now))
    return found


def archives(tree: Path) -> list[Path]:
    found = sorted(tree.rglob("*.zip"))
    assert len(found) > 10
    return found


def program(name: str) -> str:
    """The path of a program; without it the test skips, in continuous integration it fails."""
    found = shutil.which(name)
    if found is None:
        reason = f"{name} is not installed"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest.mark.parametrize("state", STATES)
def test_zipfile(trees: dict[str, Any], state: str) -> None:
    tree, expected = trees[state]
    names = []
    for path in archives(tree):
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            for info in archive.infolist():
                names.append(info.filename)
                assert info.date_time == (2018, 10, 31, 19, 10, 26) or state != "built"
    assert len(names) == len(set(names))
    assert set(names) == {"{}/{}/{}.png".format(*key) for key in expected}


@pytest.mark.parametrize("state", STATES)
def test_unzip(trees: dict[str, Any], state: str) -> None:
    unzip = program("unzip")
    for path in archives(trees[state][0]):
        done = subprocess.run([unzip, "-t", path], capture_output=True, text=True, check=False)
        if "zipfile is empty" in done.stdout + done.stderr:
            continue
        assert done.returncode == 0, done.stdout + done.stderr
        assert "No errors detected" in done.stdout
        assert "warning" not in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize("state", STATES)
def test_bsdtar_unpacks_all_archives_into_one_folder(
    trees: dict[str, Any], state: str, tmp_path: Path
) -> None:
    bsdtar = program("bsdtar")
    tree, expected = trees[state]
    for path in archives(tree):
        subprocess.run([bsdtar, "-xf", path, "-C", tmp_path], check=True, capture_output=True)
    with tapalcatl.open(tree) as tileset:
        for key in expected:
            tile = tileset.tile(*key)
            assert tile is not None
            assert (tmp_path / "{}/{}/{}.png".format(*key)).read_bytes() == tile.data
    # bsdtar looks at local headers as well, so that what was deleted may come back.
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) >= len(expected)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("state", STATES)
def test_gdal(trees: dict[str, Any], state: str) -> None:
    tree, expected = trees[state]
    places: dict[str, Path] = {}
    for path in archives(tree):
        with zipfile.ZipFile(path) as archive:
            places |= dict.fromkeys(archive.namelist(), path)
    for key in [*list(expected)[::5], (3, 1, 1), (0, 0, 0)]:
        name = "{}/{}/{}.png".format(*key)
        with rasterio.open(f"/vsizip/{places[name]}/{name}") as raster:
            assert np.array_equal(raster.read(), expected[key]), name
