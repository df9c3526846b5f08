"""The Tapalcatl cases, with comal."""

from __future__ import annotations

import shutil
import time
import zlib
from pathlib import Path
from typing import Any

from ours_remote import served
from peer_tapalcatl import _checksum
from tiles import MATERIALIZED, METATILE, chosen

from comal import storage, tapalcatl
from harness import main_of_case

for _name in tapalcatl.__all__:  # imports are not what is measured, on either side
    getattr(tapalcatl, _name)


def _build(directory: str, name: str, **options: Any) -> float:
    output = Path(directory) / name
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    tapalcatl.build(Path(directory) / "tiles.mbtiles", output, **options)
    return time.perf_counter() - started


def prepare(directory: str, count: str) -> dict[str, Any]:
    """The tile set, and one archive that holds all of it."""
    _build(directory, "tiles", metatile=METATILE, materialized_zooms=MATERIALIZED)
    _build(directory, "one", metatile=1, materialized_zooms=(0,))
    (Path(directory) / "one" / "0" / "0" / "0.zip").rename(Path(directory) / "large.zip")
    return {"seconds": 0.0}


def _reads(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    started = time.perf_counter()
    with tapalcatl.open(Path(directory) / "tiles") as tiles:
        found = [tiles.stored_tile(*tile, verify=False).data for tile in wanted]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": _checksum(found)}


reads_zipfile = reads_sqlite = reads_by_hand = _reads


def open_large(directory: str, count: str) -> dict[str, Any]:
    started = time.perf_counter()
    with tapalcatl.open(Path(directory) / "large.zip") as archive:
        data = archive.stored_tile(3, 5, 2, verify=False).data
    return {"seconds": time.perf_counter() - started, "check": zlib.crc32(data)}


def build(directory: str, count: str) -> dict[str, Any]:
    seconds = _build(directory, "ours_tiles", metatile=METATILE, materialized_zooms=MATERIALIZED)
    archives = sum(1 for _ in (Path(directory) / "ours_tiles").rglob("*.zip"))
    return {"seconds": seconds, "check": archives}


def update(directory: str, archive: str) -> dict[str, Any]:
    copy = shutil.copy(archive, Path(directory) / "updated.zip")
    z, x, y = tapalcatl.open(copy).keys()[0]
    started = time.perf_counter()
    tapalcatl.put(copy, [(z, x, y, b"new" * 4_000)])
    return {"seconds": time.perf_counter() - started}


def cold_pmtiles(directory: str, z: str, x: str, y: str) -> dict[str, Any]:
    """A tile of a set that nothing is known of, over a server that waits before each answer."""
    with served(Path(directory)) as (url, _):
        source = storage.CountingSource(storage.open_source(f"{url}/tiles/meta.json"))
        started = time.perf_counter()
        tile = tapalcatl.open(source).stored_tile(int(z), int(x), int(y))
        seconds = time.perf_counter() - started
    note = {"requests": source.requests, "bytes": source.bytes, "tile": len(tile.data)}
    return {"seconds": seconds, "check": zlib.crc32(tile.data), "note": note}


cold_whole = cold_pmtiles


if __name__ == "__main__":
    main_of_case(dict(globals()))
