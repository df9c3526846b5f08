"""The Tapalcatl cases, with comal."""

from __future__ import annotations

import shutil
import tempfile
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ours_remote import served
from peer_tapalcatl import NEW, OPENINGS, UPDATES, Seen, repeated
from tiles import MATERIALIZED, METATILE, chosen

from comal import tapalcatl
from harness import main_of_case

for _name in tapalcatl.__all__:  # imports are not what is measured, on either side
    getattr(tapalcatl, _name)


def _warm() -> None:
    """Load what is loaded when first used: drivers of sources and the reader's own parts."""
    with tempfile.TemporaryDirectory() as folder:
        tapalcatl.build([(0, 0, 0, b"tile")], Path(folder) / "tiles")
        with tapalcatl.open(Path(folder) / "tiles") as tiles:
            tiles.tile(0, 0, 0)


_warm()


def _build(directory: str, name: str, **options: Any) -> float:
    output = Path(directory) / name
    shutil.rmtree(output, ignore_errors=True)
    started = time.perf_counter()
    tapalcatl.build(Path(directory) / "tiles.mbtiles", output, **options)
    return time.perf_counter() - started


def prepare(directory: str, count: str) -> dict[str, Any]:
    """The tile set, and one archive that holds all of it."""
    _build(directory, "tiles", metatile=METATILE, materialized_zooms=MATERIALIZED, durable=False)
    _build(directory, "one", metatile=1, materialized_zooms=(0,), durable=False)
    (Path(directory) / "one" / "0" / "0" / "0.zip").rename(Path(directory) / "large.zip")
    return {"seconds": 0.0}


def _reads(directory: str, count: str, name: str) -> dict[str, Any]:
    wanted = chosen(int(count))
    seen = Seen()
    started = time.perf_counter()
    with tapalcatl.open(Path(directory) / name) as tiles:
        opened = time.perf_counter()
        for tile in wanted:
            seen.add(tiles.tile(*tile, verify=False).data)
        done = time.perf_counter()
    return seen.answer(started, opened, done)


def reads_zipfile(directory: str, count: str) -> dict[str, Any]:
    return _reads(directory, count, "large.zip")


def many_zipfile(directory: str, count: str) -> dict[str, Any]:
    return _reads(directory, count, "tiles")


reads_sqlite = reads_by_hand = reads_zipfile


def together_sqlite(directory: str, count: str) -> dict[str, Any]:
    """In one call that hands out one tile after the other."""
    wanted = chosen(int(count))
    seen = Seen()
    started = time.perf_counter()
    with tapalcatl.open(Path(directory) / "large.zip") as tiles:
        opened = time.perf_counter()
        for tile in tiles.iter_tiles(wanted, verify=False):
            seen.add(tile.data)
        done = time.perf_counter()
    return seen.answer(started, opened, done)


def open_large(directory: str, count: str) -> dict[str, Any]:
    def once() -> int:
        with tapalcatl.open(Path(directory) / "large.zip") as archive:
            return zlib.crc32(archive.tile(3, 5, 2, verify=False).data)

    return repeated(once, OPENINGS)


def build_processes(directory: str, count: str) -> dict[str, Any]:
    """With a process for each core, whose start is a part of it."""
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as executor:
        return build_threads(directory, count, executor)


def build_threads(
    directory: str, count: str, executor: ProcessPoolExecutor | None = None
) -> dict[str, Any]:
    """As the other side, without waiting for the disk."""
    seconds = _build(
        directory,
        "ours_tiles",
        metatile=METATILE,
        materialized_zooms=MATERIALIZED,
        durable=False,
        resume=False,
        executor=executor,
    )
    archives = sum(1 for _ in (Path(directory) / "ours_tiles").rglob("*.zip"))
    shutil.rmtree(Path(directory) / "ours_tiles")
    return {"seconds": seconds, "check": archives}


def update(directory: str, archive: str) -> dict[str, Any]:
    copy = shutil.copy(archive, Path(directory) / "updated.zip")
    z, x, y = tapalcatl.open(copy).keys()[0].tolist()
    put = partial(tapalcatl.put, copy, [(z, x, y, NEW)], durable=False)
    put()
    answer = repeated(put, UPDATES)
    with tapalcatl.open(copy) as tiles:
        return {**answer, "check": zlib.crc32(tiles.tile(z, x, y).data)}


def cold_pmtiles(directory: str, z: str, x: str, y: str) -> dict[str, Any]:
    """A tile of a set that nothing is known of, over a server that waits before each answer."""
    with served(Path(directory)) as (url, log):
        started = time.perf_counter()
        tile = tapalcatl.open(f"{url}/tiles/meta.json").tile(int(z), int(x), int(y))
        seconds = time.perf_counter() - started
    spans = [tuple(map(int, span.split("-"))) for span in log]
    sent = sum(last - first + 1 for first, last in spans)
    note = {"requests": len(spans), "bytes": sent, "tile": len(tile.data)}
    return {"seconds": seconds, "check": zlib.crc32(tile.data), "note": note}


cold_whole = cold_pmtiles


if __name__ == "__main__":
    main_of_case(dict(globals()))
