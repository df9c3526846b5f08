"""Sources of tiles: all give the same pyramid, and refuse what is broken."""

from __future__ import annotations

import gzip
import os
import pickle
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import tapalcatl
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    UnsupportedVersionError,
)
from comal.limits import Limits
from comal.storage import open_source
from comal.tapalcatl.containers.base import Square, TileSource
from comal.tapalcatl.containers.content import KINDS, kinds_of
from comal.tapalcatl.containers.export import IterableSource
from comal.tapalcatl.containers.folder import Folder
from comal.tapalcatl.containers.mbtiles import MBTiles
from comal.tapalcatl.containers.pmtiles import PMTiles
from comal.tapalcatl.containers.pmtileswire import parse_directory, tile_ids, tiles_of
from comal.tapalcatl.containers.tilesets import TileSetSource
from tests.servers.http import HttpServer
from tests.support import open_below
from tests.tapalcatl.making import (
    Key,
    listed,
    pyramid,
    read_mbtiles,
    sparse,
    write_files,
    write_mbtiles,
    write_pmtiles,
)

LIBRARY: Any = import_module("pmtiles.tile")
TILES = {**sparse(150, 9), **pyramid(2)}


def everything(source: TileSource) -> dict[Key, bytes]:
    """All tiles, by squares of every size that their keys fall into."""
    found: dict[Key, bytes] = {}
    squares = set()
    listed_keys = []
    for z, x, y in source.keys():  # noqa: SIM118 - no mapping
        for key in zip(z.tolist(), x.tolist(), y.tolist(), strict=True):
            side = min(16, 1 << key[0])
            squares.add(Square(key[0], key[1] & -side, key[2] & -side, side))
            listed_keys.append(key)
    for square in squares:
        tiles = source.read(square)
        assert (np.diff(tiles.codes) >= 0).all()
        for row in range(len(tiles)):
            key = (int(tiles.z[row]), int(tiles.x[row]), int(tiles.y[row]))
            assert key not in found
            found[key] = tiles.payloads[row]
    assert set(listed_keys) == set(found)
    zooms = source.zooms()
    assert zooms == (min(key[0] for key in found), max(key[0] for key in found))
    return found


def folder(path: Path, tiles: dict[Key, bytes], scheme: str = "xyz") -> Path:
    form = {"xyz": "{z}/{x}/{y}.png", "tms": "{z}/{x}/{south}.png", "zyx": "{z}/{y}/{x}.png"}
    files = {
        form[scheme].format(z=z, x=x, y=y, south=(1 << z) - 1 - y): data
        for (z, x, y), data in tiles.items()
    }
    return write_files(path, files)


def by_ids(tiles: dict[Key, bytes]) -> dict[Key, bytes]:
    return dict(sorted(tiles.items(), key=lambda item: LIBRARY.zxy_to_tileid(*item[0])))


def odd_folder(path: Path, scheme: str) -> Path:
    """Tiles in a scheme, beside what is none."""
    folder(path, TILES, scheme)
    write_files(
        path,
        {
            "notes.txt": b"no tile",
            "3/07/1.png": b"leading zero",
            "2/9/1.png": b"outside",
            "metadata.json": b'{"name": "n", "bounds": "1,2,3,4", "format": "png"}',
        },
    )
    return path


def built(path: Path, **options: Any) -> Path:
    tapalcatl.build(listed(TILES), path, **options)
    return path


ABOUT = [("format", "png"), ("name", "n"), ("bounds", "1,2,3,4")]
SOURCES: dict[str, tuple[type[TileSource], Callable[[Path], Path], dict[str, Any]]] = {
    "a ?#%.bin": (MBTiles, lambda path: write_mbtiles(path, TILES, ABOUT), {}),
    "parts.mbtiles": (MBTiles, lambda path: write_mbtiles(path, TILES, ABOUT, parts=True), {}),
    "by ids.bin": (PMTiles, lambda path: write_pmtiles(path, by_ids(TILES)), {}),
    "by chance.pmtiles": (PMTiles, lambda path: write_pmtiles(path, TILES), {}),
    "xyz": (Folder, lambda path: odd_folder(path, "xyz"), {}),
    "tms": (Folder, lambda path: odd_folder(path, "tms"), {"scheme": "tms"}),
    "zyx": (Folder, lambda path: odd_folder(path, "zyx"), {"scheme": "zyx"}),
    "small": (TileSetSource, lambda path: built(path, materialized_zooms=[0, 3, 6]), {}),
    "wide": (TileSetSource, lambda path: built(path, metatile=8, materialized_zooms=[0]), {}),
    "one.zip": (TileSetSource, built, {}),
}


@pytest.mark.parametrize("name", SOURCES)
def test_sources(tmp_path: Path, name: str) -> None:
    kind, make, options = SOURCES[name]
    path = make(tmp_path / name)
    with closing(tapalcatl.open_tiles(path, **options)) as source:
        assert type(source) is kind
        assert everything(source) == TILES
        with closing(pickle.loads(pickle.dumps(source))) as copy:
            assert everything(copy) == TILES
        if kind is not TileSetSource:
            assert source.hint == "png"
        if kind in {MBTiles, Folder}:
            assert (source.metadata.name, source.metadata.bounds) == ("n", (1, 2, 3, 4))
    if kind is TileSetSource and path.is_dir():
        assert everything(tapalcatl.open_tiles(path / "meta.json")) == TILES


def test_pmtiles(tmp_path: Path, http_server: HttpServer) -> None:
    tiles = by_ids(TILES)
    # Two tiles of the same bytes are one run, or one entry more.
    tiles[2, 3, 3] = tiles[2, 2, 3]
    path = write_pmtiles(tmp_path / "a.pmtiles", tiles)
    source = PMTiles(open_source(http_server.put("a.pmtiles", path.read_bytes())))
    assert source.metadata.name == "by the library"
    assert source.metadata.extra["vector_layers"] == [{"id": "a"}]
    assert everything(source) == tiles
    assert tapalcatl.build(http_server.url_for("a.pmtiles"), tmp_path / "out").tiles == len(tiles)


def test_times_of_files(tmp_path: Path) -> None:
    path = folder(tmp_path / "tiles", {(0, 0, 0): b"x"})
    os.utime(path / "0" / "0" / "0.png", (1_541_013_027, 1_541_013_027))
    tapalcatl.build(path, tmp_path / "out", times="source")
    with tapalcatl.open(tmp_path / "out") as tileset:
        tile = tileset.tile(0, 0, 0)
    assert tile is not None
    assert tile.modified == 1_541_013_027


def test_iterables() -> None:
    """They are read once; of several for one name the last counts."""
    with closing(IterableSource(iter([(0, 0, 0, b"first"), *listed(TILES)]))) as source:
        assert everything(source) == TILES
        with pytest.raises(InvalidInputError, match="other processes"):
            pickle.dumps(source)


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"nothing")
    (tmp_path / "empty").mkdir()
    for name, kind, match in (
        ("other", NotThisFormatError, "not a container of tiles"),
        ("absent", ObjectNotFoundError, "no such file"),
        ("empty", NotThisFormatError, "holds no tiles"),
    ):
        with pytest.raises(kind, match=match):
            tapalcatl.open_tiles(tmp_path / name)


def broken_mbtiles(path: Path, values: tuple[Any, ...]) -> Path:
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)")
        base.execute("INSERT INTO tiles VALUES (?, ?, ?, ?)", values)
        base.commit()
    return path


@pytest.mark.parametrize(
    "values",
    [
        (0, 0, 0, None),
        (0, 0, 0, "text"),
        (1, 2, 0, b"x"),
        (99, 0, 0, b"x"),
        ("a", 0, 0, b"x"),
        (1, -1, 0, b"x"),
    ],
)
def test_broken_mbtiles(tmp_path: Path, values: tuple[Any, ...]) -> None:
    path = broken_mbtiles(tmp_path / "a.mbtiles", values)
    with pytest.raises(InvalidMetadataError):
        tapalcatl.build(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_odd_databases(tmp_path: Path) -> None:
    path = tmp_path / "a.mbtiles"
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE other (a)")
    with pytest.raises(NotThisFormatError, match="holds no tiles"):
        MBTiles(path)
    path.write_bytes(b"SQLite format 3\0" + bytes(2_000))
    with pytest.raises(NotThisFormatError, match="not an MBTiles"):
        MBTiles(path)
    large = broken_mbtiles(tmp_path / "b.mbtiles", (0, 0, 0, bytes(100_000)))
    with (
        closing(MBTiles(large, Limits(tile_bytes=50_000))) as source,
        pytest.raises(LimitExceededError),
    ):
        source.read(Square(0, 0, 0, 1))


def test_a_database_that_changes(tmp_path: Path) -> None:
    path = write_mbtiles(tmp_path / "a.mbtiles", TILES)
    with closing(MBTiles(path)) as source:
        os.utime(path, (1, 1))
        with pytest.raises(ObjectChangedError):
            tapalcatl.build(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


KILLED = """
import os, sqlite3, sys
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute("PRAGMA cache_size = 5")
base.execute("BEGIN")
base.execute("UPDATE tiles SET tile_data = x'00' || tile_data")
os.kill(os.getpid(), 9)
"""


def test_a_database_whose_writer_was_killed(tmp_path: Path) -> None:
    """What was not committed is in the file, and only its journal tells what was there before."""
    tiles = {(6, x, y): bytes([x, y]) * 500 for x in range(64) for y in range(64)}
    path = write_mbtiles(tmp_path / "a.mbtiles", tiles)
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert path.with_name("a.mbtiles-journal").stat().st_size > 0
    with pytest.raises(InvalidMetadataError, match="a writer is at work or was killed"):
        tapalcatl.build(path, tmp_path / "out")
    with closing(sqlite3.connect(path)) as base:  # as the mend says
        base.execute("SELECT count(*) FROM tiles").fetchone()
    tapalcatl.to_mbtiles(path, tmp_path / "b.mbtiles")
    assert read_mbtiles(tmp_path / "b.mbtiles") == tiles


def test_a_commit_to_the_log_meanwhile(tmp_path: Path) -> None:
    path = write_mbtiles(tmp_path / "a.mbtiles", TILES)
    with closing(sqlite3.connect(path, isolation_level=None)) as base:
        base.execute("PRAGMA journal_mode = WAL")
        base.execute("INSERT INTO metadata VALUES ('a', 'b')")
        with closing(MBTiles(path)) as source:
            source.verify()
            base.execute("UPDATE tiles SET tile_data = x'00'")
            with pytest.raises(ObjectChangedError):
                source.verify()


def test_a_database_that_is_cut_short(tmp_path: Path) -> None:
    tiles = {(8, x, y): bytes([x, y]) * 2_000 for x in range(16) for y in range(16)}
    path = write_mbtiles(tmp_path / "a.mbtiles", tiles)
    with closing(MBTiles(path)) as source:
        assert len(source.read(Square(8, 0, 0, 1))) == 1
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)
        # Mapped, it would end the process.
        with pytest.raises((InvalidMetadataError, ObjectChangedError)):
            tapalcatl.build(source, tmp_path / "out")
    with pytest.raises((InvalidMetadataError, NotThisFormatError)):
        tapalcatl.build(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_connections_are_used_again(tmp_path: Path) -> None:
    path = write_mbtiles(tmp_path / "a.mbtiles", TILES)
    with closing(MBTiles(path)) as source:
        for _ in range(5):
            with ThreadPoolExecutor(1) as pool:
                assert len(pool.submit(source.read, Square(0, 0, 0, 1)).result()) == 1
        # Blocks may be asked for while tiles are read.
        for _ in source.keys():  # noqa: SIM118 - no mapping
            source.read(Square(0, 0, 0, 1))
            assert open_below(tmp_path) <= 2
    assert open_below(tmp_path) == 0


HEADS = [
    b"\x89PNG\r\n\x1a\n\0\0\0\r", b"\x89PNG----", b"\xff\xd8\xff\xe0", b"RIFF....WEBPVP8 ",
    b"RIFF....WAVE", b"\0\0\0\x1cftypavif", b"\0\0\0\x1cftypheic", b"GIF89a", b"\x1f\x8b\x08",
    b"\x28\xb5\x2f\xfd", b"{}", b"[1]", b"II*\0", b"MM\0*", b"\x1a\x05", b"", b"RIF",
]  # fmt: skip


def test_kinds_by_first_bytes() -> None:
    assert [KINDS[code].name for code in kinds_of(HEADS).tolist()] == [
        "png", "unknown", "jpeg", "webp", "unknown", "avif", "unknown", "gif", "gzip", "zstd",
        "json", "json", "tiff", "tiff", "pbf", "unknown", "unknown",
    ]  # fmt: skip


def test_files_that_vanish(tmp_path: Path) -> None:
    path = folder(tmp_path / "tiles", TILES)
    source = Folder(path)
    (path / "0" / "0" / "0.png").unlink()
    with pytest.raises(ObjectChangedError):
        tapalcatl.build(source, tmp_path / "out")


def test_broken_pmtiles(tmp_path: Path) -> None:
    good = write_pmtiles(tmp_path / "a.pmtiles", TILES).read_bytes()
    path = tmp_path / "b.pmtiles"
    for at, value, kind in (
        (0, b"X", NotThisFormatError),
        (7, b"\x02", UnsupportedVersionError),
        (97, b"\x04", UnsupportedVersionError),
        (97, b"\x09", InvalidMetadataError),
        (8, struct.pack("<Q", 2**62), InvalidMetadataError),
        (16, struct.pack("<Q", 5), InvalidMetadataError),
        (32, struct.pack("<Q", 2**40), InvalidMetadataError),
    ):
        path.write_bytes(good[:at] + value + good[at + len(value) :])
        with pytest.raises(kind):
            PMTiles(path)
    path.write_bytes(good[:-50])
    with closing(PMTiles(path)) as source, pytest.raises(ComalError):
        everything(source)
    bomb = gzip.compress(bytes(100 << 20))
    header = good[:8] + struct.pack("<QQ", 127, len(bomb)) + good[24:127]
    path.write_bytes(header + bomb)
    with pytest.raises(LimitExceededError):
        PMTiles(path)


ENTRIES = st.lists(
    st.tuples(
        st.integers(1, 2**40), st.integers(0, 2**20), st.integers(1, 2**30), st.integers(0, 2**40)
    ),
    max_size=30,
)


@given(ENTRIES, st.booleans())
@settings(max_examples=60, deadline=None)
def test_directories_are_those_of_the_library(
    rows: list[tuple[int, int, int, int]], joined: bool
) -> None:
    entries = []
    tile, offset = 0, 0
    for step, run, length, place in rows:
        tile += step
        entries.append(LIBRARY.Entry(tile, offset if joined else place, length, run))
        tile += run
        offset += length
    data = gzip.decompress(LIBRARY.serialize_directory(entries))
    found = parse_directory(data, "here")
    assert found.ids.tolist() == [entry.tile_id for entry in entries]
    assert found.runs.tolist() == [entry.run_length for entry in entries]
    assert found.lengths.tolist() == [entry.length for entry in entries]
    assert found.offsets.tolist() == [entry.offset for entry in entries]


@given(st.binary(max_size=60))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_directory_or_refused(data: bytes) -> None:
    try:
        found = parse_directory(data, "here")
    except InvalidMetadataError:
        return
    assert len(found.ids) == data[0]


@given(
    st.lists(
        st.integers(0, 30).flatmap(
            lambda z: st.tuples(
                st.just(z), st.integers(0, (1 << z) - 1), st.integers(0, (1 << z) - 1)
            )
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=60, deadline=None)
def test_ids_are_those_of_the_library(tiles: list[Key]) -> None:
    columns = np.array(tiles, np.int64).T
    ids = tile_ids(*columns)
    assert ids.tolist() == [LIBRARY.zxy_to_tileid(*tile) for tile in tiles]
    assert [tuple(key) for key in np.array(tiles_of(ids)).T.tolist()] == tiles
