"""Tiles out of tilesets: byte-identical in every format, and back."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import InvalidInputError
from comal.tapalcatl import NewTile
from comal.tapalcatl.containers import pmtiles as pmtiles_file
from tests.servers.http import HttpServer
from tests.support import SHARED
from tests.tapalcatl.making import (
    listed,
    payload,
    pyramid,
    read_mbtiles,
    read_pmtiles,
    said,
    sparse,
    unzipped,
    write_mbtiles,
)

DATA = SHARED / "data"
REAL = ("stamen_toner_z0-3_ccby.pmtiles", "usgs_mt_whitney_z8-15_webp512.pmtiles")
ABOUT: dict[str, Any] = {
    "name": "Łódź",
    "description": "d",
    "metadata": {
        "vector_layers": [{"id": "a", "fields": {}}],
        "center": [1.5, 2.5, 3],
        "attribution": "x",
    },
}


@pytest.mark.parametrize("kind", ["mvt", "pbf", "png", "json"])
def test_every_way_and_back(tmp_path: Path, kind: str) -> None:
    tiles = {**sparse(120, 10, kind=kind), **pyramid(2, kind=kind)}
    tapalcatl.build(listed(tiles), tmp_path / "set", **ABOUT)
    tapalcatl.to_mbtiles(tmp_path / "set", tmp_path / "a.mbtiles")
    tapalcatl.to_pmtiles(tmp_path / "a.mbtiles", tmp_path / "a.pmtiles")
    tapalcatl.to_directory(tmp_path / "a.pmtiles", tmp_path / "folder")
    tapalcatl.build(tmp_path / "folder", tmp_path / "again")
    assert read_mbtiles(tmp_path / "a.mbtiles") == tiles
    assert read_pmtiles(tmp_path / "a.pmtiles") == tiles
    found = unzipped(tmp_path / "again")
    assert {
        tuple(map(int, name.split(".")[0].split("/"))): data for name, data in found.items()
    } == tiles
    first, last = said(tmp_path / "set"), said(tmp_path / "again")
    # PMTiles keeps seven digits of degrees.
    assert first.pop("bounds") == pytest.approx(last.pop("bounds"), abs=1e-6)
    assert first == last


def test_what_mbtiles_says(tmp_path: Path) -> None:
    about = {**ABOUT, "metadata": {**ABOUT["metadata"], "format": "png"}}  # of other tiles
    tapalcatl.build(listed(pyramid(2, kind="mvt")), tmp_path / "set", **about)
    tapalcatl.to_mbtiles(tmp_path / "set", tmp_path / "a.mbtiles")
    tapalcatl.to_directory(tmp_path / "set", tmp_path / "folder")
    assert json.loads((tmp_path / "folder" / "metadata.json").read_text())["format"] == "pbf"
    with closing(sqlite3.connect(tmp_path / "a.mbtiles")) as base:
        rows = dict(base.execute("SELECT name, value FROM metadata"))
        plan = base.execute(
            "EXPLAIN QUERY PLAN SELECT tile_data FROM tiles"
            " WHERE zoom_level=1 AND tile_column=1 AND tile_row=1"
        ).fetchall()
    assert rows["format"] == "pbf"
    assert (rows["minzoom"], rows["maxzoom"], rows["center"]) == ("0", "2", "1.5,2.5,3")
    assert json.loads(rows["json"]) == {"vector_layers": [{"id": "a", "fields": {}}]}
    assert "INDEX" in plan[0][3]


def test_what_pmtiles_says(tmp_path: Path) -> None:
    tiles = {**pyramid(3, kind="mvt")}
    for key in [(3, 4, 4), (3, 5, 4), (3, 7, 7)]:
        tiles[key] = tiles[3, 0, 0]
    tapalcatl.build(listed(tiles), tmp_path / "set", **ABOUT)
    tapalcatl.to_pmtiles(tmp_path / "set", tmp_path / "a.pmtiles")
    reader: Any = import_module("pmtiles.reader")
    data = (tmp_path / "a.pmtiles").read_bytes()
    opened = reader.Reader(reader.MemorySource(data))
    header = opened.header()
    assert (header["tile_type"].name, header["tile_compression"].name) == ("MVT", "GZIP")
    assert (header["min_zoom"], header["max_zoom"], header["clustered"]) == (0, 3, True)
    assert header["addressed_tiles_count"] == len(tiles)
    assert header["tile_contents_count"] == len(set(tiles.values()))
    assert (header["center_zoom"], header["center_lon_e7"]) == (3, 15_000_000)
    assert opened.metadata()["name"] == "Łódź"
    assert all(opened.get(*key) == tile for key, tile in tiles.items())
    lengths = sum(
        header[name] for name in ("metadata_length", "tile_data_length", "leaf_directory_length")
    )
    assert len(data) == 16_384 + lengths


def test_leaf_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pmtiles_file, "_LEAF", 64)
    tiles = pyramid(6)
    tapalcatl.to_pmtiles(listed(tiles), tmp_path / "a.pmtiles")
    assert read_pmtiles(tmp_path / "a.pmtiles") == tiles
    tapalcatl.to_pmtiles(tmp_path / "a.pmtiles", tmp_path / "b.pmtiles")
    header = pmtiles_header(tmp_path / "a.pmtiles")
    assert header["leaf_directory_length"] > 0
    assert read_pmtiles(tmp_path / "b.pmtiles") == tiles


@pytest.mark.parametrize("scheme", ["xyz", "tms", "zyx"])
def test_folders_in_every_scheme(tmp_path: Path, scheme: str) -> None:
    tiles = {(3, 1, 6): payload(3, 1, 6), (1, 0, 1): payload(1, 0, 1)}
    tapalcatl.to_directory(listed(tiles), tmp_path / "out", scheme=scheme)
    place = {"xyz": "3/1/6.png", "tms": "3/1/1.png", "zyx": "3/6/1.png"}[scheme]
    assert (tmp_path / "out" / place).read_bytes() == tiles[3, 1, 6]
    source = tapalcatl.open_tiles(tmp_path / "out", scheme=scheme)
    tapalcatl.to_mbtiles(source, tmp_path / "a.mbtiles")
    assert read_mbtiles(tmp_path / "a.mbtiles") == tiles


def test_several_kinds_of_tiles(tmp_path: Path) -> None:
    tiles = [
        NewTile(1, 0, 0, payload(1, 0, 0), "png"),
        NewTile(1, 0, 0, payload(1, 0, 0, "mvt"), "mvt"),
        NewTile(1, 0, 0, payload(1, 0, 1), "png", 2),
        NewTile(1, 1, 1, payload(1, 1, 1), "png"),
    ]
    tapalcatl.build(tiles, tmp_path / "set")
    for write, name in ((tapalcatl.to_mbtiles, "a.mbtiles"), (tapalcatl.to_pmtiles, "a.pmtiles")):
        with pytest.raises(InvalidInputError, match="several kinds"):
            write(tmp_path / "set", tmp_path / name)
        assert not (tmp_path / name).exists()
        write(tmp_path / "set", tmp_path / name, ext="png", scale=1)
    assert read_mbtiles(tmp_path / "a.mbtiles") == read_pmtiles(tmp_path / "a.pmtiles")
    assert len(read_mbtiles(tmp_path / "a.mbtiles")) == 2
    made = tapalcatl.to_directory(tmp_path / "set", tmp_path / "folder")
    assert made.tiles == 4
    assert (tmp_path / "folder" / "1" / "0" / "0@2x.png").read_bytes() == payload(1, 0, 1)
    with pytest.raises(InvalidInputError, match="no tile of that kind"):
        tapalcatl.to_mbtiles(tmp_path / "set", tmp_path / "b.mbtiles", ext="webp")


@pytest.mark.parametrize("compression", ["auto", "store", "deflate"])
@pytest.mark.parametrize("zipped", [True, False])
def test_pmtiles_says_how_tiles_are_compressed(
    tmp_path: Path, compression: str, zipped: bool
) -> None:
    """Whatever their archives do on top of it; a browser refuses tiles of unknown compression."""
    raw = b"\x1a\x05hello" * 50
    tile = gzip.compress(raw) if zipped else raw
    made = [(z, 0, 0, tile) for z in range(3)]
    tapalcatl.build(made, tmp_path / "set", ext="mvt", compression=compression)
    tapalcatl.to_pmtiles(tmp_path / "set", tmp_path / "a.pmtiles")
    header = pmtiles_header(tmp_path / "a.pmtiles")
    assert header["tile_compression"].name == ("GZIP" if zipped else "NONE")
    assert read_pmtiles(tmp_path / "a.pmtiles")[0, 0, 0] == tile


def test_zooms_of_the_chosen_kind(tmp_path: Path) -> None:
    tiles = [
        NewTile(1, 0, 0, payload(1, 0, 0), "png"),
        NewTile(4, 0, 0, payload(4, 0, 0, "mvt"), "mvt"),
        NewTile(5, 0, 0, payload(5, 0, 0), "png", 1.5),
    ]
    tapalcatl.build(tiles, tmp_path / "set")
    for write, name in (
        *((tapalcatl.to_mbtiles, "a.mbtiles"), (tapalcatl.to_pmtiles, "a.pmtiles")),
        (tapalcatl.to_directory, "folder"),
    ):
        found = write(tmp_path / "set", tmp_path / name, ext="png", scale=1)
        assert (found.min_zoom, found.max_zoom) == (1, 1)
    with closing(sqlite3.connect(tmp_path / "a.mbtiles")) as base:
        rows = dict(base.execute("SELECT name, value FROM metadata"))
    document = json.loads((tmp_path / "folder" / "metadata.json").read_text())
    for each in (rows, document):
        assert (int(each["minzoom"]), int(each["maxzoom"])) == (1, 1)
    header = pmtiles_header(tmp_path / "a.pmtiles")
    assert (header["min_zoom"], header["max_zoom"]) == (1, 1)


def test_folders_of_any_scale(tmp_path: Path) -> None:
    tiles = [NewTile(2, 0, 0, payload(2, 0, 0), "png", scale) for scale in (1, 2, 1.5, 0.5)]
    tapalcatl.build(tiles, tmp_path / "set")
    tapalcatl.to_directory(tmp_path / "set", tmp_path / "folder")
    tapalcatl.to_directory(tmp_path / "set", tmp_path / "folder", overwrite=True)
    (tmp_path / "folder" / "2" / "0" / "0@0x.png").write_bytes(b"no scale")
    assert tapalcatl.build(tmp_path / "folder", tmp_path / "again").tiles == len(tiles)
    assert unzipped(tmp_path / "again") == unzipped(tmp_path / "set")


@pytest.mark.parametrize(
    "center", [["a", "b"], [1, 2, "x"], [1e300, 0, 1], [1, 2, 1e300], [1], "x", {"a": 1}, [181, 0]]
)
def test_what_is_no_centre_is_left_out(tmp_path: Path, center: Any) -> None:
    tapalcatl.build(listed(pyramid(1)), tmp_path / "set", metadata={"center": center})
    tapalcatl.to_mbtiles(tmp_path / "set", tmp_path / "a.mbtiles")
    tapalcatl.to_pmtiles(tmp_path / "set", tmp_path / "a.pmtiles")
    tapalcatl.build(tmp_path / "a.mbtiles", tmp_path / "again")
    assert "center" not in said(tmp_path / "again")
    header = pmtiles_header(tmp_path / "a.pmtiles")
    assert (header["center_lon_e7"], header["center_zoom"]) == (0, 0)


@pytest.mark.parametrize(
    ("bounds", "degrees"),
    [
        ((-400, -80, 400, 80), (-180, 180)),
        ((175, -80, 185, 80), (175, 185)),
        ((535, -80, 545, 80), (175, 185)),
    ],
)
def test_bounds_beyond_the_world_as_pmtiles(
    tmp_path: Path, bounds: Any, degrees: tuple[int, int]
) -> None:
    ends = {(3, 7, 3): payload(3, 7, 3), (3, 0, 3): payload(3, 0, 3)}
    tapalcatl.build(listed(ends), tmp_path / "set", bounds=bounds)
    tapalcatl.to_pmtiles(tmp_path / "set", tmp_path / "a.pmtiles")
    header = pmtiles_header(tmp_path / "a.pmtiles")
    assert (header["min_lon_e7"] / 1e7, header["max_lon_e7"] / 1e7) == degrees


def pmtiles_header(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = import_module("pmtiles.tile").deserialize_header(
        path.read_bytes()[:127]
    )
    return found


@pytest.mark.skipif(not DATA.is_dir(), reason="real tiles are not beside the checkout")
@pytest.mark.parametrize("name", REAL)
def test_the_main_job_on_real_tiles(tmp_path: Path, http_server: HttpServer, name: str) -> None:
    tiles = read_pmtiles(DATA / name)
    tapalcatl.build(DATA / name, tmp_path / "set")
    url = http_server.serve_folder(tmp_path / "set", "set")
    with tapalcatl.open(f"{url}/meta.json") as tileset:
        found = tileset.tiles(list(tiles))
    assert [tile and tile.data for tile in found] == list(tiles.values())
    tapalcatl.to_pmtiles(tmp_path / "set", tmp_path / name)
    assert read_pmtiles(tmp_path / name) == tiles
    write_mbtiles(tmp_path / "a.mbtiles", tiles)
    tapalcatl.build(tmp_path / "a.mbtiles", tmp_path / "again")
    assert unzipped(tmp_path / "again") == unzipped(tmp_path / "set")
    assert tapalcatl.check(tmp_path / "set").ok
