"""Tapalcatl 1 of which nobody has told the formats: archives show them."""

from __future__ import annotations

import asyncio
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.tapalcatl import TileSet
from tests.servers.http import HttpServer
from tests.tapalcatl.making import payload
from tests.tapalcatl.odd import Entry, archive


def metatile(*exts: str) -> bytes:
    """A metatile of four 256 px tiles and one of 512, in some formats and without a comment."""
    names = ["0/0/0", "1/0/0", "1/1/0", "1/0/1", "1/1/1"]
    entries = []
    for name in names:
        z, x, y = map(int, name.split("/"))
        entries += [Entry(f"{name}.{ext}".encode(), payload(z, x, y, ext)) for ext in exts]
    return archive(entries, b"")


def written(folder: Path, **archives: tuple[str, ...]) -> Path:
    """Archives called ``z_x_y``."""
    for name, exts in archives.items():
        path = folder / f"{name[1:].replace('_', '/')}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(metatile(*exts))
    return folder


def found(tileset: TileSet, *place: int) -> str | None:
    tile, stored = tileset.tile(*place), tileset.stored_tile(*place)
    later = asyncio.run(tileset.tile_async(*place))
    assert tile == later
    assert (tile is None) == (stored is None)
    return None if tile is None else tile.ext


def test_pictures_are_found(tmp_path: Path) -> None:
    tileset = tapalcatl.open(written(tmp_path, t0_0_0=("png",)), metatile=2)
    assert found(tileset, 1, 1, 0) == "png"
    assert tileset.formats == ("png",)
    tile = tileset.tile(1, 1, 0)
    assert tile is not None
    assert tile.content_type == "image/png"
    assert tile.data == payload(1, 1, 0)
    assert tileset.tile(1, 1, 0, ext="mvt") is None


def test_formats_of_tilezen_keep_their_order_and_types(tmp_path: Path) -> None:
    folder = written(tmp_path, t0_0_0=("webp", "mvt", "json"))
    tileset = tapalcatl.open(folder, metatile=2)
    assert found(tileset, 1, 1, 0) == "json"
    assert tileset.formats == ("json", "mvt", "webp")
    tile = tileset.tile(1, 1, 0, ext="mvt")
    assert tile is not None
    assert tile.content_type == "application/x-protobuf"


def test_archives_may_differ(tmp_path: Path) -> None:
    folder = written(tmp_path, t0_0_0=("mvt",), t1_0_0=("png",), t1_1_0=("mvt",))
    tileset = tapalcatl.open(folder, metatile=2)
    assert found(tileset, 1, 1, 0) == "mvt"
    assert tileset.tile(2, 0, 0, ext="png") is not None
    assert found(tileset, 2, 0, 0) == "png"
    assert found(tileset, 2, 3, 1) == "mvt"
    assert found(tileset, 2, 3, 3) is None
    assert tileset.formats == ("mvt", "png")
    assert found(pickle.loads(pickle.dumps(tileset)), 2, 0, 0) == "png"


def test_what_is_told_is_kept(tmp_path: Path) -> None:
    folder = written(tmp_path, t0_0_0=("png", "json"))
    tileset = tapalcatl.open(folder, metatile=2, formats={"json": ()})
    assert found(tileset, 1, 1, 0) == "json"
    assert tileset.formats == tileset.learn_formats() == ("json",)
    only = tapalcatl.open(folder, metatile=2, formats={"mvt": ()})
    assert found(only, 1, 1, 0) is None


def test_they_are_learned_on_request(tmp_path: Path, http_server: HttpServer) -> None:
    folder = written(tmp_path, t1_1_1=("webp",))
    assert tapalcatl.open(folder, metatile=2).learn_formats() == ("webp",)
    http_server.serve_folder(folder, "t")
    there = tapalcatl.open(http_server.url_for("t"), metatile=2)
    assert there.formats == there.learn_formats() == ("json", "topojson", "mvt", "mvtb")
    assert len(http_server.requests) == 1
    written(folder, t0_0_0=("webp",))
    there = tapalcatl.open(http_server.url_for("t"), metatile=2)
    assert there.learn_formats() == ("webp",)
    http_server.reset()
    assert there.learn_formats() == ("webp",)
    assert http_server.requests == []


@pytest.mark.parametrize("told", [False, True])
def test_the_second_generation_of_it(tmp_path: Path, *, told: bool) -> None:
    folder = written(tmp_path / "one", t0_0_0=("png",))
    formats: dict[str, Any] = {"formats": {"png": ()}} if told else {}
    tapalcatl.build(tapalcatl.open(folder, metatile=2, **formats), tmp_path / "two")
    document = json.loads((tmp_path / "two/meta.json").read_text())
    assert document["tapalcatl"] == "2.0.0"
    assert document["formats"] == {"png": "image/png"}
