"""What grows with the number of parts, rows or workers, measured by simulation.

    python benchmarks/scale.py parts                    a minute
    python benchmarks/scale.py parts --size 10000       10 000 parts and 100 million rows
    python benchmarks/scale.py workers --size 100       one worker against two; 100 files
    python benchmarks/scale.py sync --size 10000        10 000 small files to S3; 30 ms a request
    python benchmarks/scale.py upload --size 2000       one file of 2 000 MB to S3

Indexes are real, the bytes that they lead to are not there. Requests go to a server on this machine
that waits 30 ms before each answer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import HERE, Cases, Measurement, Row, Side, compare, run

PARTS = Side("comal", sys.executable, HERE / "cases" / "scale_parts.py")
ROWS = 10_000
"""Rows of a part of a TACOCAT."""


def parts(work: Path, size: int, repeats: int) -> Iterator[Row]:
    """Sets of 1/100, 1/10 and all of `size` parts, to tell what grows."""
    for count in sorted({max(4, size // 100), max(4, size // 10), size}):
        arguments = [str(work), str(count), str(ROWS)]
        yield compare("taco_build", PARTS, None, arguments, repeats=1, target="bounded memory")
        for case, target in [
            ("taco_open", "a fixed number of round trips"),
            ("taco_three", "3 parts of the columns"),
            ("taco_box", "3 parts of the columns"),
            ("taco_append", "no part opened"),
        ]:
            yield compare(case, PARTS, None, arguments, repeats=repeats, target=target)
        for kind in ("tortilla", "raquet"):
            few = [str(work), str(min(count, 10_000))]
            yield compare(f"{kind}_build", PARTS, None, few, repeats=1)
            yield compare(f"{kind}_open", PARTS, None, few, repeats=repeats, target="linear")
    for case, power in (
        ("raquet_tiles", "1024"),
        ("raquet_tiles", "2048"),
        ("tapalcatl_tiles", "6"),
    ):
        yield compare(case, PARTS, None, [str(work), power], repeats=1, target="flat")


@dataclass(frozen=True)
class Crew(Side):
    """So many workers."""

    count: int = 1

    def measure(self, case: str, arguments: Sequence[str]) -> Measurement:
        return super().measure(case, [*arguments, str(self.count)])


def workers(work: Path, size: int, repeats: int) -> Iterator[Row]:
    """Two workers (first column) against one (the peer): the ratio is the speed-up, 2 at best."""
    script = HERE / "cases" / "scale_workers.py"
    two, one = (Crew(f"{n} workers", sys.executable, script, n) for n in (2, 1))
    jobs = ("nothing_shared", "raquet_write", "raquet_draw", "tapalcatl_build")
    for job in (*jobs, "taco_pack", "taco_plan"):
        for kind in ("processes", "dask"):
            case = f"{job}_{kind}"
            yield compare(case, two, one, [str(work), str(size)], repeats=repeats, target="2")


@dataclass(frozen=True)
class Uploader(Side):
    """Who publishes."""

    def measure(self, case: str, arguments: Sequence[str]) -> Measurement:
        return super().measure(case, [*arguments, self.name])


COMAL, OBSTORE, BOTO3 = (
    Uploader(name, sys.executable, HERE / "cases" / "scale_sync.py")
    for name in ("comal", "obstore", "boto3")
)


def sync(work: Path, size: int, repeats: int) -> Iterator[Row]:
    """`comal.sync` of `size` small files against a loop of puts."""
    arguments = [str(work), str(size)]
    yield compare("sync_small", COMAL, OBSTORE, arguments, repeats=repeats, target="5")
    yield compare("sync_again", COMAL, None, arguments, repeats=repeats, target="by its listing")


def upload(work: Path, size: int, repeats: int) -> Iterator[Row]:
    """`comal.sync` of one file of `size` MB, compared by its checksum, against plain uploads."""
    for peer in (OBSTORE, BOTO3):
        yield compare("upload", COMAL, peer, [str(work), str(size)], repeats=repeats, target="0.9")


GROUPS: Cases = {"parts": parts, "workers": workers, "sync": sync, "upload": upload}


if __name__ == "__main__":
    run(GROUPS, size=500, unit="parts", repeats=1)
