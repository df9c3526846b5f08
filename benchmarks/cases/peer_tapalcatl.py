"""The Tapalcatl cases, with zipfile, sqlite3, pmtiles, and by hand."""

from __future__ import annotations

import os
import shutil
import sqlite3
import statistics
import struct
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiles import READS, archive_of, chosen, write_mbtiles

from harness import main_of_case

OPENINGS = 7
UPDATES = 15
QUERY = "SELECT tile_data FROM tiles WHERE zoom_level=? AND tile_column=? AND tile_row=?"
NEW = b"\x1f\x8b" + b"new" * 4_000


def prepare(directory: str, count: str) -> dict[str, Any]:
    write_mbtiles(Path(directory) / "tiles.mbtiles", int(count))
    return {"seconds": 0.0}


class Seen:
    """Tiles as they come: nothing is kept, which would cost more than reading them."""

    def __init__(self) -> None:
        self.bytes = self.mark = 0

    def add(self, tile: bytes) -> None:
        self.bytes += len(tile)
        self.mark ^= tile[-1]

    def answer(self, started: float, opened: float, done: float) -> dict[str, Any]:
        """Opening and reading together, as a program needs both; the note tells them apart."""
        note = {
            "open ms": round((opened - started) * 1e3, 2),
            "us a tile": round((done - opened) * 1e6 / READS, 2),
        }
        return {"seconds": done - started, "check": [self.bytes, self.mark], "note": note}


def repeated(function: Callable[[], Any], times: int) -> dict[str, Any]:
    """The median of several calls in one process: no import is measured on either side."""
    found, answer = [], None
    for _ in range(times):
        started = time.perf_counter()
        answer = function()
        found.append(time.perf_counter() - started)
    return {"seconds": statistics.median(found), "check": answer}


def reads_zipfile(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    seen = Seen()
    started = time.perf_counter()
    with zipfile.ZipFile(Path(directory) / "large.zip") as archive:
        opened = time.perf_counter()
        for tile in wanted:
            seen.add(archive.read("{}/{}/{}.mvt".format(*tile)))
        done = time.perf_counter()
    return seen.answer(started, opened, done)


def many_zipfile(directory: str, count: str) -> dict[str, Any]:
    """From the archives of a tileset, each kept open once it was."""
    wanted = chosen(int(count))
    seen = Seen()
    root = Path(directory) / "tiles"
    opened: dict[tuple[int, int, int], zipfile.ZipFile] = {}
    started = time.perf_counter()
    for tile in wanted:
        address = archive_of(*tile)
        if address not in opened:
            opened[address] = zipfile.ZipFile(root / "{}/{}/{}.zip".format(*address))
        seen.add(opened[address].read("{}/{}/{}.mvt".format(*tile)))
    return seen.answer(started, started, time.perf_counter())


def reads_sqlite(directory: str, count: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    seen = Seen()
    started = time.perf_counter()
    base = sqlite3.connect(f"file:{directory}/tiles.mbtiles?mode=ro", uri=True)
    opened = time.perf_counter()
    for z, x, y in wanted:
        seen.add(base.execute(QUERY, (z, x, (1 << z) - 1 - y)).fetchone()[0])
    return seen.answer(started, opened, time.perf_counter())


def together_sqlite(directory: str, count: str) -> dict[str, Any]:
    """All in one transaction, which takes the lock once: the fastest of SQLite's ways.

    A join with the list, and the list as JSON, take as long; a larger cache changes nothing.
    """
    wanted = chosen(int(count))
    seen = Seen()
    started = time.perf_counter()
    base = sqlite3.connect(f"file:{directory}/tiles.mbtiles?mode=ro", uri=True)
    opened = time.perf_counter()
    base.execute("BEGIN")
    for z, x, y in wanted:
        seen.add(base.execute(QUERY, (z, x, (1 << z) - 1 - y)).fetchone()[0])
    return seen.answer(started, opened, time.perf_counter())


def _directory(file: int) -> dict[str, tuple[int, int]]:
    """Name to offset and size of the stored bytes, as a short loop over the directory gives it."""
    size = os.fstat(file).st_size
    tail = os.pread(file, 65_536, max(0, size - 65_536))
    end = tail.rindex(b"PK\x05\x06")
    length, start = struct.unpack_from("<II", tail, end + 12)
    if start == 0xFFFFFFFF or struct.unpack_from("<H", tail, end + 10)[0] == 0xFFFF:
        length, start = struct.unpack_from("<QQ", tail, tail.rindex(b"PK\x06\x06") + 40)
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
    seen = Seen()
    started = time.perf_counter()
    file = os.open(Path(directory) / "large.zip", os.O_RDONLY)
    entries = _directory(file)
    opened = time.perf_counter()
    for tile in wanted:
        offset, size = entries["{}/{}/{}.mvt".format(*tile)]
        seen.add(os.pread(file, size, offset))
    return seen.answer(started, opened, time.perf_counter())


def open_large(directory: str, count: str) -> dict[str, Any]:
    def once() -> int:
        with zipfile.ZipFile(Path(directory) / "large.zip") as archive:
            return zlib.crc32(archive.read("3/5/2.mvt"))

    return repeated(once, 3)


def build_threads(directory: str, count: str) -> dict[str, Any]:
    """The loop that one would write: an archive after another, each by a query of its own."""
    root = Path(directory) / "peer_tiles"
    base = sqlite3.connect(f"file:{directory}/tiles.mbtiles?mode=ro", uri=True)
    started = time.perf_counter()
    groups: dict[tuple[int, int, int], list[tuple[int, int, int]]] = {}
    for z, x, row in base.execute("SELECT zoom_level, tile_column, tile_row FROM tiles"):
        tile = (z, x, (1 << z) - 1 - row)
        groups.setdefault(archive_of(*tile), []).append(tile)
    for address, tiles in groups.items():
        path = root / "{}/{}/{}.zip".format(*address)
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            for z, x, y in sorted(tiles):
                data = base.execute(QUERY, (z, x, (1 << z) - 1 - y)).fetchone()[0]
                archive.writestr(f"{z}/{x}/{y}.mvt", data)
    seconds = time.perf_counter() - started
    shutil.rmtree(root)
    return {"seconds": seconds, "check": len(groups)}


build_processes = build_threads


def update(directory: str, archive: str) -> dict[str, Any]:
    """One tile replaced in the only way that leaves no dead entry: writing all of them anew."""
    path = Path(archive)
    fresh = Path(directory) / "rewritten.zip"

    def once() -> int:
        with zipfile.ZipFile(path) as old, zipfile.ZipFile(fresh, "w") as new:
            for number, entry in enumerate(old.infolist()):
                new.writestr(entry, NEW if number == 0 else old.read(entry))
        return zlib.crc32(NEW)

    once()
    return repeated(once, UPDATES)


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
    main_of_case(dict(globals()))
