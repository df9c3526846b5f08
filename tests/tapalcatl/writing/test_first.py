"""Tapalcatl 1 changed in place: what its settings tell is enough, and nothing less."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import ConflictError, InvalidInputError
from comal.storage.replacing import changing_files
from comal.storage.targetlock import locked
from comal.tapalcatl import Generation1
from tests.support import command
from tests.tapalcatl.making import PNG, content, data_of, listed, payload, pyramid

NEW = PNG + b"another one"
SETTINGS: dict[str, Any] = {"metatile": 2, "layer": "all", "layout": "prefix-hash", "prefix": "abc"}
CONFIG = Generation1(**SETTINGS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tapalcatl.build(listed(pyramid(3)), tmp_path / "out", version=1, generation1=CONFIG)
    return tmp_path / "out"


def at(tree: Path, z: int, x: int, y: int) -> Path:
    (found,) = tree.glob(f"abc/*/all/{z}/{x}/{y}.zip")
    return found


def test_a_tile_is_put_where_servers_look_for_it(tree: Path) -> None:
    # Metatile 2: 256 pixels of 3/5/2 are level 1 of metatile 2/2/1 (format note 1.3).
    changed = tapalcatl.put(tree, [(3, 5, 2, NEW)], generation1=CONFIG)
    assert (changed.archives, changed.replaced, changed.added) == (1, 1, 0)
    was = {"1/0/0.png": (3, 4, 2), "1/1/0.png": (3, 5, 2), "1/0/1.png": (3, 4, 3)}
    was["1/1/1.png"] = (3, 5, 3)
    expected = {name: payload(*key) for name, key in was.items()}
    assert content(at(tree, 2, 2, 1)) == {**expected, "1/1/0.png": NEW}
    with tapalcatl.open(tree, **SETTINGS) as tileset:
        assert data_of(tileset, 3, 5, 2) == NEW


def test_an_archive_that_is_missing_is_made(tree: Path) -> None:
    changed = tapalcatl.put(tree, [(5, 9, 7, NEW), (5, 30, 30, NEW)], generation1=CONFIG)
    assert (changed.created, changed.added) == (2, 2)
    assert content(at(tree, 4, 4, 3)) == {"1/1/1.png": NEW}
    # md5("/all/4/4/3.zip")[:5], as the layout says.
    assert CONFIG.key((4, 4, 3)) in at(tree, 4, 4, 3).as_posix()


def test_one_archive_by_its_key(tree: Path) -> None:
    archive = at(tree, 2, 2, 1)
    before = archive.read_bytes()
    tapalcatl.put(archive, [(3, 5, 2, NEW)], generation1=CONFIG)
    assert archive.read_bytes().startswith(before)
    with zipfile.ZipFile(archive) as opened:
        assert opened.comment == b""
    assert content(archive)["1/1/0.png"] == NEW
    with pytest.raises(InvalidInputError, match="belongs to another archive"):
        tapalcatl.put(archive, [(3, 0, 0, NEW)], generation1=CONFIG)
    gone = tapalcatl.delete(archive, [(3, 5, 2), (3, 0, 0)], generation1=CONFIG)
    assert (gone.deleted, gone.absent) == (1, 1)
    assert "1/1/0.png" not in content(archive)
    moved = archive.rename(archive.with_name("other.zip"))
    with pytest.raises(InvalidInputError, match="does not tell which metatile"):
        tapalcatl.put(moved, [(3, 5, 2, NEW)], generation1=CONFIG)


def test_delete_and_compact(tree: Path) -> None:
    tapalcatl.put(tree, [(3, 5, 2, NEW)], generation1=CONFIG)
    done = tapalcatl.delete(tree, [(3, 5, 2), (3, 0, 0), (9, 1, 1)], generation1=CONFIG)
    assert (done.archives, done.deleted, done.absent) == (2, 2, 1)
    assert sorted(content(at(tree, 2, 2, 1))) == ["1/0/0.png", "1/0/1.png", "1/1/1.png"]
    dead = tapalcatl.space(tree, generation1=CONFIG).dead
    assert dead > 0
    assert tapalcatl.compact(tree, generation1=CONFIG) == dead
    assert tapalcatl.space(tree, generation1=CONFIG).dead == 0
    assert sorted(content(at(tree, 2, 2, 1))) == ["1/0/0.png", "1/0/1.png", "1/1/1.png"]


def test_tiles_that_no_reader_would_ask_for_are_refused(tree: Path) -> None:
    config = Generation1(**SETTINGS, max_zoom=3)
    with pytest.raises(InvalidInputError, match="outside of the zooms"):
        tapalcatl.put(tree, [(4, 0, 0, NEW)], generation1=config)
    assert not list(tree.glob("abc/*/all/3/*/*.zip"))


def test_one_writer_at_a_time(tree: Path) -> None:
    with changing_files(tree / ".meta.json.change", ""), pytest.raises(ConflictError):
        tapalcatl.put(tree, [(3, 5, 2, NEW)], generation1=CONFIG)
    with locked(at(tree, 2, 2, 1)), pytest.raises(ConflictError):
        tapalcatl.put(tree, [(3, 5, 2, NEW)], generation1=CONFIG)


def test_settings_for_a_tileset_that_needs_none(tmp_path: Path) -> None:
    tapalcatl.build(listed(pyramid(1)), tmp_path / "t2")
    with pytest.raises(InvalidInputError, match="a tileset of Tapalcatl 2"):
        tapalcatl.put(tmp_path / "t2", [(1, 0, 0, NEW)], generation1=CONFIG)


@pytest.mark.parametrize("size", [256, 512, 1024])
@pytest.mark.parametrize("deepest", [None, 1, 2])
def test_keys_are_the_tiles_that_are_found(tmp_path: Path, size: int, deepest: int | None) -> None:
    # Beyond the deepest zoom of archives tiles come out of deeper levels (format note 1.3).
    settings: dict[str, Any] = {
        "metatile": 4,
        "tile_size": size,
        "max_detail_zoom": deepest,
        "max_zoom": 3,
    }
    config = Generation1(**settings)
    tiles = pyramid(3)
    tapalcatl.build(listed(tiles), tmp_path / "out", version=1, generation1=config)
    with tapalcatl.open(tmp_path / "out", **settings) as tileset:
        assert [tuple(key) for key in tileset.keys().tolist()] == sorted(tiles)
        assert all(tileset.tile(*key) is not None for key in tiles)


def test_commands_that_read_it(tree: Path, tmp_path: Path) -> None:
    told = [f"--open={name}={value}" for name, value in SETTINGS.items()]
    for verb, name in (("create", "t2"), ("export", "loose")):
        made = command("tapalcatl", verb, tree, tmp_path / name, *told, "--json")
        assert json.loads(made.stdout)["tiles"] == len(pyramid(3))
    assert (tmp_path / "loose/3/5/2.png").read_bytes() == payload(3, 5, 2)
