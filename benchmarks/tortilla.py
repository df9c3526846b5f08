"""Tortilla against the reference packages (pytortilla 0.5.1, tacoreader 0.5.6).

    python benchmarks/tortilla.py                  every case
    python benchmarks/tortilla.py create load      the cases whose names begin so
    python benchmarks/tortilla.py --quick          a tenth of the samples

Each row is one case, measured on both sides in the same run. The environment of the peers is made
by ``scripts/interop-envs``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import HEADINGS, HERE, INTEROP, Row, Side, compare, machine

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_tortilla.py")
ENVIRONMENT = "tortilla-0.5.6"


def peer() -> Side | None:
    """The reference packages, or None where their environment has not been made."""
    python = INTEROP / ENVIRONMENT / "bin" / "python"
    script = HERE / "cases" / "peer_tortilla.py"
    return Side(ENVIRONMENT, str(python), script) if python.exists() else None


def create(work: Path, samples: int, repeats: int) -> Iterator[Row]:
    OURS.measure("prepare", [str(work), str(samples), "20000"])
    arguments = [str(work)]
    yield compare(
        "create_files", OURS, peer(), arguments, repeats=repeats, target="3 x, a quarter of MB"
    )
    yield compare("create_table", OURS, None, arguments, repeats=repeats, target="not slower")
    yield compare("read_all", OURS, peer(), arguments, repeats=repeats, target="10 x")


def load(work: Path, samples: int, repeats: int) -> Iterator[Row]:
    OURS.measure("prepare_rows", [str(work), str(samples * 100)])
    yield compare(
        "load_rows", OURS, peer(), [str(work)], repeats=repeats, peer_repeats=1, target="15 x"
    )


def boxes(work: Path, samples: int, repeats: int) -> Iterator[Row]:
    OURS.measure("prepare_places", [str(work), str(samples * 100)])
    yield compare("filter_bbox", OURS, None, [str(work)], repeats=repeats, target="< 2 s")


def nested(work: Path, samples: int, repeats: int) -> Iterator[Row]:
    arguments = [str(work), str(samples)]
    yield compare(
        "nested_write",
        OURS,
        peer(),
        arguments,
        repeats=repeats,
        peer_repeats=1,
        target="< 1 ms a sample",
    )


def remote(work: Path, samples: int, repeats: int) -> Iterator[Row]:
    del samples
    OURS.measure("prepare_nested", [str(work), "40"])
    yield compare("remote_nested", OURS, None, [str(work)], repeats=repeats, target="< 1 s")


CASES: dict[str, Callable[[Path, int, int], Iterator[Row]]] = {
    "create": create,
    "load": load,
    "boxes": boxes,
    "nested": nested,
    "remote": remote,
}


@contextmanager
def work_directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="comal-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}")
    parser.add_argument("--quick", action="store_true", help="a tenth of the samples")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    samples = 1_000 if options.quick else 10_000
    chosen = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    print(f"{machine()}; {samples} samples of 20 KB\n\n{HEADINGS}", flush=True)
    answers = []
    for name in chosen:
        with work_directory() as work:
            answers.extend(CASES[name](work, samples, options.repeats))
    for row in answers:
        if isinstance(row.ours.check, dict):
            print(f"\n{row.case}: {row.ours.check}")
    if peer() is None:
        print(f"\nwithout a peer, for {ENVIRONMENT} has not been made")


if __name__ == "__main__":
    main()
