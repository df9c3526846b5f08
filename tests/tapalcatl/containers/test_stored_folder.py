"""Loose tiles in a store, compared with the same tiles on a disk."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pytest

from comal import convert, tapalcatl
from comal.errors import (
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
)
from comal.limits import DEFAULT_LIMITS
from comal.storage.cloud import memory_store
from comal.storage.location import StorePath
from comal.storage.source import Request, observed
from comal.tapalcatl.containers.base import Square
from comal.tapalcatl.containers.folder import Folder, StoredFolder
from tests.support import command, files_below
from tests.tapalcatl.making import names_and_data, payload, pyramid, write_files

DOCUMENT = {"name": "roads", "attribution": "us", "bounds": [-10, -10, 10, 10], "format": "png"}
ODD = {
    "0/0/0@2x.png": payload(0, 0, 0),
    "1/0/0": payload(1, 0, 0),
    "1/1/1.webp": b"",
    "readme.txt": b"no tile",
    "0/0/readme.md": b"no tile",
    "0/0/00.png": b"no number",
    "0/1/0.png": b"outside of the pyramid",
    "40/0/0.png": b"too deep",
    "metadata.json": json.dumps(DOCUMENT).encode(),
}


def stored(files: dict[str, bytes]) -> tuple[Any, str]:
    """A store with these objects in the folder `tiles`."""
    bucket = uuid.uuid4().hex
    store = memory_store(bucket)
    for name, data in files.items():
        obstore.put(store, f"tiles/{name}", data)
    return store, f"memory://{bucket}/tiles"


@pytest.mark.parametrize("scheme", ["xyz", "tms", "zyx"])
def test_the_tiles_of_a_folder_on_a_disk(tmp_path: Path, scheme: str) -> None:
    # The files of a folder on a disk come in an order of its own.
    files = names_and_data(pyramid(4)) | names_and_data(pyramid(2, kind="mvt"), "mvt") | ODD
    local = Folder(write_files(tmp_path / "tiles", files), scheme)
    there = StoredFolder(StorePath(stored(files)[1]), scheme)
    assert (there.metadata, there.hint, there.zooms()) == (local.metadata, local.hint, (0, 4))
    for number, one in enumerate((local, there)):
        tapalcatl.build(one, tmp_path / f"{number}.zip")
    assert (tmp_path / "0.zip").read_bytes() == (tmp_path / "1.zip").read_bytes()


def test_each_tile_is_read_once() -> None:
    files = names_and_data(pyramid(3))
    _, href = stored(files)
    seen: list[Request] = []
    with observed(seen.append):
        source = StoredFolder(StorePath(href))
        tiles = [source.read(Square(zoom, 0, 0, 1 << zoom)) for zoom in range(4)]
    assert [one for some in tiles for one in some.payloads] == [
        payload(int(z), int(x), int(y))
        for some in tiles
        for z, x, y in zip(*some.keys, strict=True)
    ]
    read = [one.href.removeprefix(f"{href}/") for one in seen if one.kind == "get"]
    documents = ["metadata.json", "tilejson.json", "tiles.json"]
    assert sorted(read) == sorted([*files, *documents])


@pytest.mark.parametrize("slash", ["", "/"])
def test_everything_that_takes_tiles(tmp_path: Path, slash: str) -> None:
    _, href = stored(names_and_data(pyramid(3)))
    for target in ("a.pmtiles", "b.mbtiles", "c.zip", "tree"):
        done = convert.convert(href + slash, tmp_path / target)
        assert (done.kind, done.written["tiles"]) == ("tiles", 85)
    command("tapalcatl", "create", href + slash, tmp_path / "by-command")
    assert files_below(tmp_path / "by-command") == files_below(tmp_path / "tree")


def test_a_tileset_in_a_store_by_the_name_of_its_folder(tmp_path: Path) -> None:
    _, href = stored(names_and_data(pyramid(3)))
    tapalcatl.build(href, f"{href}-set", metatile=2)
    convert.convert(f"{href}-set", tmp_path / "loose")
    assert {
        name: data for name, data in files_below(tmp_path / "loose").items() if "/" in name
    } == names_and_data(pyramid(3))


def test_what_is_no_folder_of_tiles(tmp_path: Path) -> None:
    _, href = stored({"a.txt": b"a"})
    with pytest.raises(NotThisFormatError, match="holds no tiles"):
        tapalcatl.open_tiles(href)
    for name in (f"{href}-not", f"{href}/a/", "memory://nothing-there/tiles"):
        with pytest.raises(ObjectNotFoundError):
            tapalcatl.open_tiles(name)
    with pytest.raises(NotThisFormatError, match="not a container of tiles"):
        tapalcatl.open_tiles(f"{href}/a.txt")
    _, href = stored(names_and_data(pyramid(1)) | {"metadata.json": b"{"})
    with pytest.raises(InvalidMetadataError, match=r"metadata\.json"):
        tapalcatl.open_tiles(href)


def test_tiles_that_change_vanish_or_are_too_large(tmp_path: Path) -> None:
    store, href = stored(names_and_data(pyramid(2)))
    for what in (
        lambda key: obstore.put(store, key, b"longer " * 99),
        lambda key: obstore.delete(store, key),
    ):
        source = StoredFolder(StorePath(href))
        what("tiles/2/3/1.png")
        with pytest.raises(ObjectChangedError, match=r"2/3/1\.png"):
            tapalcatl.build(source, tmp_path / "out")
    obstore.put(store, "tiles/2/3/1.png", b"longer " * 99)
    limits = replace(DEFAULT_LIMITS, tile_bytes=600)
    with pytest.raises(LimitExceededError):
        tapalcatl.build(StoredFolder(StorePath(href), limits=limits), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_another_version_has_another_identity() -> None:
    store, href = stored(names_and_data(pyramid(1)))
    first = StoredFolder(StorePath(href)).identity
    assert StoredFolder(StorePath(href)).identity == first
    obstore.put(store, "tiles/1/0/0.png", b"another one")
    assert StoredFolder(StorePath(href)).identity != first
