"""What the existing writers have made: every answer that is known."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from comal import tapalcatl
from comal.errors import InvalidMetadataError
from comal.tapalcatl import TileSet
from tests.support import needs_shared
from tests.tapalcatl.answers import EXPECTED, FOLDER, queries

pytestmark = needs_shared


def same(tileset: TileSet, query: dict[str, Any]) -> None:
    first = "tile_size" in query
    more = {"size": query["tile_size"]} if first else {"scale": query["scale"]}
    place = query["z"], query["x"], query["y"]
    tile = tileset.tile(*place, ext=query["format"], **more)
    stored = tileset.stored_tile(*place, ext=query["format"], **more)
    if "absent" in query:
        assert tile is None
        assert stored is None
        z, x, y = map(int, query["archive"].removesuffix(".zip").split("/")[-3:])
        there = tileset.archives.get((z, x, y)) is not None
        assert there == (query["absent"] == "entry")
        return
    assert tile is not None
    assert stored is not None
    assert len(tile.data) == query["size"]
    assert hashlib.sha256(tile.data).hexdigest() == query["sha256"]
    assert stored.data() == tile.data
    assert stored.where.endswith(f"{query['archive']}, {query['entry']}")
    if not first:
        assert tile.crc == int(query["crc32"], 16)
        assert tile.etag == f'"{query["crc32"]}"'
        assert dict(tile.headers) == query["headers"]
        assert stored.method == query["method"]
        assert tile.last_modified is not None
        assert tile.modified is not None


QUERIES = {
    f"{name} {query}": (name, query)
    for name in ("t2/landcover-png", "t2/mvt-js", "t1/m4_nohash")
    for query in queries(name)
}


@pytest.mark.parametrize("question", QUERIES)
def test_answers_of_the_existing_writers(question: str) -> None:
    """PNG of Render, vector tiles of the JavaScript writer, metatiles of tilequeue."""
    name, query = QUERIES[question]
    if name.startswith("t2"):
        tileset = tapalcatl.open(FOLDER / name)
    else:
        deepest = query["max_detail_zoom"]
        tileset = tapalcatl.open(FOLDER / name, metatile=4, layer="all", max_detail_zoom=deepest)
    assert tileset.version == int(name[1])
    same(tileset, query)


@pytest.mark.parametrize("name", sorted(EXPECTED.get("edge", {})))
def test_odd_archives(name: str) -> None:
    expected = EXPECTED["edge"][name]
    tileset = tapalcatl.open(FOLDER / f"edge/{name}.zip")
    assert tileset.metadata.name == expected.get("name")
    for entry, digest in expected["tiles"].items():
        z, x, y = map(int, entry.removesuffix(".png").split("/"))
        if digest is None:
            with pytest.raises(InvalidMetadataError, match="checksum"):
                tileset.tile(z, x, y)
            assert tileset.tile(z, x, y, verify=False) is not None
            continue
        tile = tileset.tile(z, x, y)
        assert tile is not None
        assert hashlib.sha256(tile.data).hexdigest() == digest
        assert dict(tile.headers) == expected.get("headers", {"Content-Type": "image/png"})


@pytest.mark.parametrize("name", ["t2/landcover-png", "t2/mvt-js"])
def test_trees_are_listed_whole(name: str) -> None:
    tileset = tapalcatl.open(FOLDER / name)
    counted = {key: value["entries"] for key, value in EXPECTED[name]["archives"].items()}
    keys = ["/".join(map(str, tile)) + ".zip" for tile in tileset.archive_tiles()]
    assert sorted(keys) == sorted(counted)
    assert [table.num_rows for table in tileset.entries()] == [counted[key] for key in keys]
    assert len(tileset.keys()) == sum(counted.values())


def test_entries_say_where_the_bytes_are() -> None:
    tileset = tapalcatl.open(FOLDER / "t2/mvt-js")
    for table in tileset.entries():
        for row in table.to_pylist():
            data = Path(row["href"]).read_bytes()[row["offset"] : row["offset"] + row["size"]]
            stored = tileset.stored_tile(row["z"], row["x"], row["y"])
            assert stored is not None
            assert (data, row["method"], row["crc"]) == (stored.payload, stored.method, stored.crc)
            assert row["key"] == f"{row['z']}/{row['x']}/{row['y']}.mvt"


def test_gzip_is_taken_off_on_request() -> None:
    tile = tapalcatl.open(FOLDER / "t2/mvt-js").tile(0, 0, 0)
    assert tile is not None
    assert tile.content_encoding == "gzip"
    assert tile.content()[:1] == b"\x1a"
    assert tile.content_type == "application/vnd.mapbox-vector-tile"
    assert tile.header("x-fixture") == "root"


def test_a_single_archive_tells_what_it_is() -> None:
    archive = tapalcatl.archive(FOLDER / "t2/landcover-png/4/0/4.zip")
    metadata = archive.metadata
    assert (metadata.min_zoom, metadata.max_zoom, metadata.metatile) == (4, 5, 4)
    assert metadata.bounds == pytest.approx((-180, 0, -90, 66.51326044311186))
    assert archive.tile(5, 0, 8) is not None
    assert archive.tile(5, 10, 23) is None
    assert len(archive.keys()) == 80
    first = tapalcatl.open(FOLDER / "t1/m4_nohash/all/2/2/3.zip")
    assert first.version == 1
    assert first.tile(2, 1, 1, ext="mvt") is not None
    configured = tapalcatl.open(FOLDER / "t1/m4_nohash/all/2/2/3.zip", version=1)
    tile = configured.tile(2, 1, 1, ext="mvt")
    assert tile is not None
    assert tile.content_type == "application/x-protobuf"


def test_a_tileset_is_tilejson() -> None:
    tileset = tapalcatl.open(FOLDER / "t2/mvt-js")
    document = tileset.tilejson("https://example.org/{z}/{x}/{y}.mvt", attribution="me")
    assert document["tilejson"] == "3.0.0"
    assert document["tiles"] == ["https://example.org/{z}/{x}/{y}.mvt"]
    assert document["vector_layers"][0]["id"] == "fix"
    assert (document["minzoom"], document["maxzoom"]) == (0, 3)
    assert document["attribution"] == "me"
    assert json.loads(json.dumps(document)) == document
