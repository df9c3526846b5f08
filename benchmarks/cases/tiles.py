"""The tile set that both sides of the Tapalcatl cases read: random bytes under real addresses."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import numpy as np

MATERIALIZED = (0, 4, 8)
METATILE = 2
READS = 10_000
_NOISE = np.random.default_rng(7).bytes(1 << 20)


def addresses(count: int) -> Iterator[tuple[int, int, int]]:
    """The first `count` tiles, zoom by zoom."""
    number = 0
    for z in range(27):
        for x in range(1 << z):
            for y in range(1 << z):
                if number == count:
                    return
                yield z, x, y
                number += 1


def payload(z: int, x: int, y: int) -> bytes:
    """5 to 20 KB that begin as a gzip member does, so that nobody compresses them again."""
    seed = (x * 73_856_093) ^ (y * 19_349_663) ^ (z * 83_492_791)
    size = 5_000 + seed % 15_000
    start = seed % (len(_NOISE) - size)
    return b"\x1f\x8b\x08\x00" + _NOISE[start : start + size]


def chosen(count: int) -> list[tuple[int, int, int]]:
    """The tiles that are read, in the order in which they are."""
    everything = list(addresses(count))
    rows = np.random.default_rng(11).integers(0, count, READS)
    return [everything[row] for row in rows]


def archive_of(z: int, x: int, y: int) -> tuple[int, int, int]:
    """Which archive holds a tile, in the layout of the cases."""
    zoom = max(zoom for zoom in MATERIALIZED if zoom <= z)
    x, y = x >> (z - zoom), y >> (z - zoom)
    return zoom, x - x % METATILE, y - y % METATILE


def write_mbtiles(path: Path, count: int) -> None:
    """The tiles as MBTiles 1.3 writes them: y counted from the south."""
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA journal_mode=OFF")
        base.execute("CREATE TABLE metadata (name text, value text)")
        base.execute(
            "CREATE TABLE tiles (zoom_level int, tile_column int, tile_row int, tile_data blob)"
        )
        about = {
            "name": "bench",
            "format": "pbf",
            "minzoom": "0",
            "maxzoom": str(max(z for z, _, _ in addresses(count))),
            "bounds": "-180,-85.0511287798066,180,85.0511287798066",
            "json": '{"vector_layers": []}',
        }
        base.executemany("INSERT INTO metadata VALUES (?, ?)", about.items())
        base.executemany(
            "INSERT INTO tiles VALUES (?, ?, ?, ?)",
            ((z, x, (1 << z) - 1 - y, payload(z, x, y)) for z, x, y in addresses(count)),
        )
        base.execute("CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)")
