"""Tiles for tests, and writers of foreign formats that share no code with ours."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import sqlite3
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Any

from comal import tapalcatl

Key = tuple[int, int, int]

PNG = b"\x89PNG\r\n\x1a\n"


def payload(z: int, x: int, y: int, kind: str = "png") -> bytes:
    """Bytes that differ from tile to tile and look like a tile of their kind."""
    seed = hashlib.sha256(f"{z}/{x}/{y}".encode()).digest()
    body = seed * (1 + seed[0] % 5)
    if kind == "mvt":
        return gzip.compress(b"\x1a" + body, mtime=0)
    if kind == "pbf":
        return b"\x1a" + body
    if kind == "json":
        return b'{"tile": "' + seed.hex().encode() * 20 + b'"}'
    return PNG + body


def picture(value: int, noise: int = 0) -> bytes:
    """A grey PNG of one pixel, which all readers decode, with so many bytes that they skip."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        crc = zlib.crc32(kind + data).to_bytes(4, "big")
        return len(data).to_bytes(4, "big") + kind + data + crc

    head = (1).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    skipped = chunk(b"coMl", random.Random(value).randbytes(noise)) if noise else b""
    pixel = chunk(b"IDAT", zlib.compress(bytes([0, value])))
    return PNG + chunk(b"IHDR", head) + skipped + pixel + chunk(b"IEND", b"")


def pyramid(last: int, first: int = 0, kind: str = "png") -> dict[Key, bytes]:
    """All tiles of some zooms."""
    return {
        (z, x, y): payload(z, x, y, kind)
        for z in range(first, last + 1)
        for x in range(1 << z)
        for y in range(1 << z)
    }


def sparse(count: int, last: int, seed: int = 1, kind: str = "png") -> dict[Key, bytes]:
    """Some tiles anywhere."""
    numbers = random.Random(seed)
    keys: set[Key] = set()
    while len(keys) < count:
        z = numbers.randint(0, last)
        keys.add((z, numbers.randrange(1 << z), numbers.randrange(1 << z)))
    return {key: payload(*key, kind) for key in sorted(keys)}


def listed(tiles: Mapping[Key, bytes]) -> list[tuple[int, int, int, bytes]]:
    """Tiles as `build` takes them."""
    return [(*key, data) for key, data in tiles.items()]


def names_and_data(tiles: Mapping[Key, bytes], ext: str = "png") -> dict[str, bytes]:
    """Tiles by the names of their entries."""
    return {f"{z}/{x}/{y}.{ext}": data for (z, x, y), data in tiles.items()}


def data_of(tileset: tapalcatl.TileSet, z: int, x: int, y: int, **options: Any) -> bytes | None:
    """The bytes of a tile, None where there is none."""
    tile = tileset.tile(z, x, y, **options)
    return None if tile is None else tile.data


def write_mbtiles(
    path: Path,
    tiles: Mapping[Key, bytes],
    about: Iterable[tuple[str, str]] = (),
    *,
    parts: bool = False,
) -> Path:
    """MBTiles with rows from the south; with `parts` as a view over map and images."""
    with closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE metadata (name text, value text)")
        base.executemany("INSERT INTO metadata VALUES (?, ?)", about)
        rows = [(z, x, (1 << z) - 1 - y, data) for (z, x, y), data in tiles.items()]
        if parts:
            base.execute(
                "CREATE TABLE map (zoom_level int, tile_column int, tile_row int, tile_id text)"
            )
            base.execute("CREATE TABLE images (tile_id text unique, tile_data blob)")
            for z, x, row, data in rows:
                name = hashlib.sha256(data).hexdigest()
                base.execute("INSERT INTO map VALUES (?, ?, ?, ?)", (z, x, row, name))
                base.execute("INSERT OR IGNORE INTO images VALUES (?, ?)", (name, data))
        else:
            base.execute(
                "CREATE TABLE tiles (zoom_level int, tile_column int, tile_row int, tile_data blob)"
            )
            base.executemany("INSERT INTO tiles VALUES (?, ?, ?, ?)", rows)
        base.commit()
    return path


def read_mbtiles(path: Path) -> dict[Key, bytes]:
    """All tiles of MBTiles."""
    with closing(sqlite3.connect(path)) as base:
        rows = base.execute("SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles")
        return {(z, x, (1 << z) - 1 - row): data for z, x, row, data in rows}


def read_pmtiles(path: Path) -> dict[Key, bytes]:
    """All tiles of PMTiles, by the library of that format."""
    reader: Any = import_module("pmtiles.reader")
    return dict(reader.all_tiles(reader.MemorySource(path.read_bytes())))


def write_pmtiles(path: Path, tiles: Mapping[Key, bytes], tile_type: int = 2) -> Path:
    """PMTiles by the library of that format, in the order of the mapping."""
    tile: Any = import_module("pmtiles.tile")
    library: Any = import_module("pmtiles.writer")
    with path.open("wb") as file:
        writer = library.Writer(file)
        for key, data in tiles.items():
            writer.write_tile(tile.zxy_to_tileid(*key), data)
        header = {
            "tile_type": tile.TileType(tile_type),
            "tile_compression": tile.Compression.GZIP if tile_type == 1 else tile.Compression.NONE,
        }
        writer.finalize(header, {"name": "by the library", "vector_layers": [{"id": "a"}]})
    return path


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Files by their paths below a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def said(tileset: Path) -> dict[str, Any]:
    """What the document of a tree or the comment of a single archive says."""
    if tileset.suffix != ".zip":
        return dict(json.loads((tileset / "meta.json").read_bytes()))
    with zipfile.ZipFile(tileset) as archive:
        assert archive.comment.isascii()
        return dict(json.loads(archive.comment))


def content(path: Path) -> dict[str, bytes]:
    """All entries of an archive, by CPython's zipfile."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        assert len(set(names)) == len(names)
        return {name: archive.read(name) for name in names}


def unzipped(tree: Path) -> dict[str, bytes]:
    """All entries of all archives below a folder."""
    found: dict[str, bytes] = {}
    for path in sorted(tree.rglob("*.zip")):
        more = content(path)
        assert not found.keys() & more.keys()
        found |= more
    return found
