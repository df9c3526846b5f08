"""Tapalcatl against zipfile, SQLite's MBTiles, PMTiles, and a reader written by hand.

    python benchmarks/tapalcatl.py                 every case
    python benchmarks/tapalcatl.py reads build     the cases whose names begin so
    python benchmarks/tapalcatl.py --size 20000    a quick look

Tiles are random bytes of 5 to 20 KB: 100 000 of them are 1.25 GB, several times over. They are
made once for all cases, below TMPDIR.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from harness import HERE, Row, Side, compare, run

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_tapalcatl.py")
PEER = Side("peer", sys.executable, HERE / "cases" / "peer_tapalcatl.py")


@cache
def _folder(size: int) -> tempfile.TemporaryDirectory[str]:
    """Where the tiles of all cases are; gone when the program ends."""
    folder = tempfile.TemporaryDirectory(prefix="comal-bench-tiles-")
    PEER.measure("prepare", [folder.name, str(size)])
    OURS.measure("prepare", [folder.name, str(size)])
    return folder


def reads(_: Path, size: int, repeats: int) -> Iterator[Row]:
    work = _folder(size).name
    for case, target in [
        ("reads_zipfile", "4 x"),
        ("reads_sqlite", "4 x"),
        ("together_sqlite", "2 x"),
        ("reads_by_hand", "not slower"),
        ("many_zipfile", "reported"),
        ("open_large", "20 x"),
    ]:
        yield compare(
            case, OURS, PEER, [work, str(size)], repeats=repeats + 2, peer_repeats=repeats,
            target=target,
        )  # fmt: skip
    archives = Path(work, "tiles").rglob("*.zip")
    archive = str(max(archives, key=lambda path: path.stat().st_size))
    yield compare("update", OURS, PEER, [work, archive], repeats=repeats, target="20 x")


def build(_: Path, size: int, repeats: int) -> Iterator[Row]:
    arguments = [_folder(size).name, str(size)]
    for case in ("build_processes", "build_threads"):
        yield compare(case, OURS, PEER, arguments, repeats=repeats, target="3 x")


def cold(_: Path, size: int, repeats: int) -> Iterator[Row]:
    from pmtiles.convert import mbtiles_to_pmtiles

    work = Path(_folder(size).name)
    mbtiles_to_pmtiles(str(work / "tiles.mbtiles"), str(work / "tiles.pmtiles"), 7)
    arguments = [str(work), "6", "40", "20"]
    for case, target in [("cold_pmtiles", "reported"), ("cold_whole", "2 requests and meta.json")]:
        yield compare(case, OURS, PEER, arguments, repeats=1, target=target)


if __name__ == "__main__":
    run({"reads": reads, "build": build, "cold": cold}, size=100_000, unit="tiles of 5 to 20 KB")
