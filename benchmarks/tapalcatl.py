"""Tapalcatl against zipfile, SQLite's MBTiles, PMTiles, and a reader written by hand.

    python benchmarks/tapalcatl.py                 every case
    python benchmarks/tapalcatl.py reads build     the cases whose names begin so
    python benchmarks/tapalcatl.py --size 20000    a quick look

Tiles are random bytes of 5 to 20 KB: 100 000 of them are 1.25 GB, several times over.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harness import HERE, Row, Side, compare, run

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_tapalcatl.py")
PEER = Side("peer", sys.executable, HERE / "cases" / "peer_tapalcatl.py")


def _prepare(work: Path, size: int) -> list[str]:
    arguments = [str(work), str(size)]
    PEER.measure("prepare", arguments)
    OURS.measure("prepare", arguments)
    return arguments


def reads(work: Path, size: int, repeats: int) -> Iterator[Row]:
    arguments = _prepare(work, size)
    for case, target in [
        ("reads_zipfile", "4 x"),
        ("reads_sqlite", "4 x"),
        ("reads_by_hand", "not slower"),
        ("open_large", "20 x"),
    ]:
        yield compare(case, OURS, PEER, arguments, repeats=repeats + 2, target=target)
    archive = max((work / "tiles").rglob("*.zip"), key=lambda path: path.stat().st_size)
    yield compare(
        "update", OURS, PEER, [str(work), str(archive)], repeats=repeats + 2, target="20 x"
    )
    for case in ("cold_whole",):
        yield compare(
            case, OURS, PEER, [str(work), "7", "70", "40"], repeats=1, target="2 requests + meta"
        )


def build(work: Path, size: int, repeats: int) -> Iterator[Row]:
    arguments = [str(work), str(size)]
    PEER.measure("prepare", arguments)
    yield compare("build", OURS, PEER, arguments, repeats=repeats, target="3 x")


def cold(work: Path, size: int, repeats: int) -> Iterator[Row]:
    from pmtiles.convert import mbtiles_to_pmtiles

    arguments = _prepare(work, min(size, 20_000))
    mbtiles_to_pmtiles(str(work / "tiles.mbtiles"), str(work / "tiles.pmtiles"), 7)
    yield compare(
        "cold_pmtiles", OURS, PEER, [arguments[0], "6", "40", "20"], repeats=1, target="reported"
    )


if __name__ == "__main__":
    run({"reads": reads, "build": build, "cold": cold}, size=100_000, unit="tiles of 5 to 20 KB")
