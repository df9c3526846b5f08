"""The Tapalcatl cases, with zipfile, sqlite3, pmtiles, and by hand."""

from __future__ import annotations

import os
import sqlite3
import struct
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any

from tiles import READS, archive_of, chosen, write_mbtiles

from harness import main_of_case


def prepare(directory: str, count: str) -> dict[str, Any]:
    write_mbtiles(Path(directory) / "tiles.mbtiles", int(count))
    return {"seconds": 0.0}


def _checksum(parts: list[bytes]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def reads_zipfile(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    root = Path(directory) / "tiles"
    opened: dict[tuple[int, int, int], zipfile.ZipFile] = {}
    started = time.perf_counter()
    found = []
    for tile in wanted:
        address = archive_of(*tile)
        if address not in opened:
            opened[address] = zipfile.ZipFile(root / "{}/{}/{}.zip".format(*address))
        found.append(opened[address].read("{}/{}/{}.mvt".format(*tile)))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": _checksum(found)}


def reads_sqlite(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    query = "SELECT tile_data FROM tiles WHERE zoom_level=? AND tile_column=? AND tile_row=?"
    started = time.perf_counter()
    base = sqlite3.connect(f"file:{directory}/tiles.mbtiles?mode=ro", uri=True)
    found = [base.execute(query, (z, x, (1 << z) - 1 - y)).fetchone()[0] for z, x, y in wanted]
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": _checksum(found)}


def _directory(file: int) -> dict[str, tuple[int, int]]:
    """Name to offset and size of the stored bytes, as a short loop over the directory gives it."""
    size = os.fstat(file).st_size
    tail = os.pread(file, 65_536, max(0, size - 65_536))
    end = tail.rindex(b"PK\x05\x06")
    length, start = struct.unpack_from("<II", tail, end + 12)
    data = os.pread(file, length, start)
    found, at = {}, 0
    while at < len(data):
        stored, _, name, extra, comment = struct.unpack_from("<IIHHH", data, at + 20)
        offset = struct.unpack_from("<I", data, at + 42)[0]
        text = data[at + 46 : at + 46 + name].decode()
        found[text] = (offset + 30 + name, stored)
        at += 46 + name + extra + comment
    return found


def reads_by_hand(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    root = Path(directory) / "tiles"
    opened: dict[tuple[int, int, int], tuple[int, dict[str, tuple[int, int]]]] = {}
    started = time.perf_counter()
    found = []
    for tile in wanted:
        address = archive_of(*tile)
        if address not in opened:
            file = os.open(root / "{}/{}/{}.zip".format(*address), os.O_RDONLY)
            opened[address] = (file, _directory(file))
        file, entries = opened[address]
        offset, size = entries["{}/{}/{}.mvt".format(*tile)]
        found.append(os.pread(file, size, offset))
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": _checksum(found)}


def open_large(directory: str, count: str) -> dict[str, Any]:
    started = time.perf_counter()
    with zipfile.ZipFile(Path(directory) / "large.zip") as archive:
        data = archive.read("3/5/2.mvt")
    return {"seconds": time.perf_counter() - started, "check": zlib.crc32(data)}


def build(directory: str, count: str) -> dict[str, Any]:
    """The loop that one would write: an archive after another, each by a query of its own."""
    root = Path(directory) / "peer_tiles"
    base = sqlite3.connect(f"file:{directory}/tiles.mbtiles?mode=ro", uri=True)
    started = time.perf_counter()
    groups: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for z, x, row in base.execute("SELECT zoom_level, tile_column, tile_row FROM tiles"):
        tile = (z, x, (1 << z) - 1 - row)
        groups.setdefault(archive_of(*tile), []).append(tile)
    query = "SELECT tile_data FROM tiles WHERE zoom_level=? AND tile_column=? AND tile_row=?"
    for address, tiles in groups.items():
        path = root / "{}/{}/{}.zip".format(*address)
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for z, x, y in sorted(tiles):
                data = base.execute(query, (z, x, (1 << z) - 1 - y)).fetchone()[0]
                archive.writestr(f"{z}/{x}/{y}.mvt", data)
    return {"seconds": time.perf_counter() - started, "check": len(groups)}


def update(directory: str, archive: str) -> dict[str, Any]:
    """One tile replaced in the only way that leaves no dead entry: writing all of them anew."""
    path = Path(archive)
    fresh = Path(directory) / "rewritten.zip"
    started = time.perf_counter()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(fresh, "w") as new:
        for number, entry in enumerate(old.infolist()):
            new.writestr(entry, b"new" * 4_000 if number == 0 else old.read(entry))
    return {"seconds": time.perf_counter() - started}


def cold_pmtiles(directory: str, z: str, x: str, y: str) -> dict[str, Any]:
    """The package's reader with its bytes counted; each call would be a request."""
    from pmtiles.reader import Reader

    log: list[int] = []
    file = os.open(Path(directory) / "tiles.pmtiles", os.O_RDONLY)

    def get_bytes(offset: int, length: int) -> bytes:
        log.append(length)
        return os.pread(file, length, offset)

    started = time.perf_counter()
    data = Reader(get_bytes).get(int(z), int(x), int(y))
    seconds = time.perf_counter() - started
    note = {"requests": len(log), "bytes": sum(log), "tile": len(data)}
    return {"seconds": seconds, "check": zlib.crc32(data), "note": note}


def cold_whole(directory: str, z: str, x: str, y: str) -> dict[str, Any]:
    """The whole archive, as servers of the earlier implementations fetch it."""
    path = Path(directory) / "tiles" / "{}/{}/{}.zip".format(*archive_of(int(z), int(x), int(y)))
    started = time.perf_counter()
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        tile = archive.read(f"{z}/{x}/{y}.mvt")
    seconds = time.perf_counter() - started
    note = {"requests": 1, "bytes": len(data), "tile": len(tile)}
    return {"seconds": seconds, "check": zlib.crc32(tile), "note": note}


if __name__ == "__main__":
    assert READS
    main_of_case(dict(globals()))
