"""Commands, and tilesets behind the commands of all formats."""

from __future__ import annotations

import gzip
import json
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import comal
from comal.errors import InvalidInputError, NotInContainerError
from comal.formats import adapter_of, open_any, sniff
from comal.formats import tapalcatl as tapalcatl_format
from comal.progress import silent
from comal.tapalcatl import TileSet
from tests.servers.http import HttpServer
from tests.support import command, needs_shared
from tests.tapalcatl.answers import FOLDER
from tests.tapalcatl.making import write_files
from tests.tapalcatl.odd import Entry, archive, tiles
from tests.tapalcatl.reading.test_remote import tree

PNG, MVT, FIRST = FOLDER / "t2/landcover-png", FOLDER / "t2/mvt-js", FOLDER / "t1/m4_nohash"


def answer(*arguments: Any, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(command(*arguments, "--json", code=code).stdout)
    return found


@needs_shared
def test_get_of_a_tile(tmp_path: Path) -> None:
    command("get", MVT, "0/0/0.mvt", "-o", tmp_path / "a")
    assert gzip.decompress((tmp_path / "a").read_bytes())[:1] == b"\x1a"
    assert len(command("get", PNG, "5/10/23@2x.png").stdout_bytes) == 129
    one = ("get", FIRST, "4/9/13.mvt", "--open", "layer=all", "--open", "metatile=4")
    assert len(command(*one).stdout_bytes) == 54
    for absent in ("0/0/0.webp", "x", "5/10/99"):
        command("get", MVT, absent, code=3)


@needs_shared
def test_check() -> None:
    assert answer("check", FIRST, "--open", "layer=all")["total"] == 0
    assert "zip-crc" in command("check", FOLDER / "edge/bad-crc.zip", code=1).stdout
    assert answer("check", FOLDER / "edge/bad-crc.zip", "--level", "structure")["ok"]


@needs_shared
def test_generic_commands(tmp_path: Path) -> None:
    told = answer("info", MVT)
    assert (told["format"], told["count"], told["archives"]) == ("tapalcatl", 85, 5)
    assert answer("info", FOLDER / "edge/dead-zone.zip")["dead_space"] == 618
    lines = command("ls", PNG, "--json").stdout.splitlines()
    assert len(lines) == 1365
    leaf = json.loads(lines[-1])
    assert len(command("get", PNG, leaf["key"]).stdout_bytes) == 129
    mended = tmp_path / "mended"
    command("check", FOLDER / "edge/dead-zone.zip", "--repair", mended)
    assert answer("check", mended)["ok"]
    opening: Any = {"version": 1, "metatile": 4, "layer": "all"}
    with pytest.raises(InvalidInputError, match="would not have all tiles"):
        tapalcatl_format.repair(str(FIRST), "x", overwrite=False, progress=silent, **opening)
    assert isinstance(comal.open(PNG), TileSet)


@needs_shared
def test_info_with_options() -> None:
    told = answer("info", FIRST, "--open", "metatile=4", "--open", "layer=all")
    assert (told["version"], told["archives"], told["count"]) == ("1", 21, 1323)
    assert list(told["formats"]) == ["json", "topojson", "mvt"]
    assert told["recognised"] == "--open"
    assert "dead_space" in command("info", MVT).stdout
    for wrong in ("metatile=x", "nothing=1", "metatile"):
        assert "--open" in command("info", FIRST, "--open", wrong, code=2).stderr


@needs_shared
def test_leaves_of_tapalcatl_1_are_found_by_their_keys() -> None:
    with closing(tapalcatl_format.archive(str(FIRST), metatile=4, layer="all", version=1)) as made:
        rows = [row for table in made.leaves() for row in table.to_pylist()]
        assert len(rows) == len({row["key"] for row in rows}) == 1323
        for row in rows[::7]:
            with zipfile.ZipFile(row["href"]) as archive:
                wanted = archive.read("/".join(row["key"].split("/")[3:]))
            assert b"".join(made.blocks(row["key"])) == wanted
        for wrong in ("0/0/0/9/9/9.mvt", "x/0/0/0/0/0.mvt", "0/0/0/0/0", "3/9/9/0/0/0.mvt"):
            with pytest.raises(NotInContainerError):
                list(made.blocks(wrong))


def test_info_of_a_tree_with_a_broken_archive(tmp_path: Path) -> None:
    write_files(tmp_path, tree())
    whole = answer("info", tmp_path)
    (tmp_path / "2/0/2.zip").write_bytes(b"no archive")
    told = answer("info", tmp_path)
    assert (told["archives"], told["broken_archives"]) == (whole["archives"] - 1, 1)
    assert told["count"] == whole["count"] - 20
    assert "broken_archives" not in whole


def test_dead_space_of_an_archive_that_holds_other_files(tmp_path: Path) -> None:
    entries = [*tiles(), Entry(b"README.md", b"x" * 500), Entry(b"../../a", b"y" * 500)]
    (tmp_path / "a.zip").write_bytes(archive(entries))
    assert answer("info", tmp_path / "a.zip")["dead_space"] == 0
    (tmp_path / "a.zip").write_bytes(archive(entries, gap=bytes(77)))
    assert answer("info", tmp_path / "a.zip")["dead_space"] == 77


def test_what_is_recognised(tmp_path: Path, http_server: HttpServer) -> None:
    places = {
        "a.zip": archive(tiles()),
        "b.zip": archive([Entry(b"0/0/0", b"x")], b""),
        "c.zip": archive(tiles(), stub=b"#!/bin/sh\n"),
        "d.json": b'\n{"formats": {"png": "image/png"}, "source": "{z}/{x}/{y}.zip"}',
        "t/meta.json": b'{"tapalcatl": "2.0.0", "source": "{z}/{x}/{y}.zip", "formats": {}}',
    }
    write_files(tmp_path, places)
    for name in places:
        assert sniff(tmp_path / name).format.name == "tapalcatl"
    assert sniff(tmp_path / "t").format.name == "tapalcatl"
    http_server.put("t/meta.json", places["t/meta.json"])
    assert sniff(http_server.url_for("t")).format.name == "tapalcatl"
    assert isinstance(open_any(tmp_path / "c.zip"), TileSet)
    described = adapter_of(sniff(http_server.url_for("t")).format).archive(http_server.url_for("t"))
    assert described.describe()["count"] is None
