"""TACO against the reference packages (tacotoolbox 0.26.9, tacoreader, tacobridge) and ``cp``.

    python benchmarks/taco.py                 every case
    python benchmarks/taco.py create load     the cases whose names begin so
    python benchmarks/taco.py --rows 20000    a quick look

Each row is one case, measured on both sides in the same run. The environments of the peers are
made by ``scripts/interop-envs``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import HEADINGS, HERE, INTEROP, Row, Side, compare, machine

OURS = Side("comal", sys.executable, HERE / "cases" / "ours_taco.py")
REMOTE = Side("comal", sys.executable, HERE / "cases" / "ours_remote.py")


def peer(environment: str) -> Side | None:
    """The reference packages of one environment, or None where it has not been made."""
    python = INTEROP / environment / "bin" / "python"
    script = HERE / "cases" / "peer_taco.py"
    return Side(environment, str(python), script) if python.exists() else None


TOOLBOX = "reader-2.4.21"
READER = "reader-2.4.21"
BRIDGE = "reader-2.4.13"


def create(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    options = {"repeats": repeats, "peer_repeats": 1}
    names = [
        ("create_samples", "15 x, < 300 MB"),
        ("create_table", "50 x, < 300 MB"),
    ]
    for case, target in names:
        yield compare(case, OURS, peer(TOOLBOX), [str(work), str(rows)], target=target, **options)


def million(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    arguments = [str(work), str(rows * 10)]
    for case in ("create_table", "create_batches"):
        yield compare(case, OURS, None, arguments, repeats=repeats, target="bounded memory")


def copy(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    folder = work / "files"
    folder.mkdir()
    block = os.urandom(1 << 20)
    for number in range(max(8, rows // 100)):
        (folder / f"file_{number:05d}.bin").write_bytes(number.to_bytes(8, "little") + block[8:])
    cp = Side("cp", sys.executable, HERE / "cases" / "peer_taco.py")
    for case in ("create_files", "create_files_unsynced"):
        yield compare(
            case,
            OURS,
            cp,
            [str(work), str(folder)],
            repeats=repeats + 4,
            target="ratio > 0.83 (1.2 x cp)",
        )


def read(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    OURS.measure("create_batches", [str(work), str(rows * 10)])
    path = str(work / "ours_batches.tacozip")
    for case, target in [
        ("load", "20 x"),
        ("data", "not slower"),
        ("sql", "not slower"),
        ("load_and_sql", "not slower"),
        ("sql_again", "not slower"),
        ("read_one", "< 0.1 ms"),
    ]:
        yield compare(case, OURS, peer(READER), [str(work), path], repeats=repeats, target=target)


def export(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    OURS.measure("create_table", [str(work), str(rows)])
    path = work / "ours_table.tacozip"
    arguments = [str(work), str(path)]
    yield compare("export_subset", OURS, peer(BRIDGE), arguments, repeats=repeats, target="10 x")


def folder2zip(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    OURS.measure("create_folder", [str(work), str(rows)])
    arguments = [str(work), str(work / "ours_folder")]
    yield compare(
        "folder2zip", OURS, peer(BRIDGE), arguments, repeats=repeats, peer_repeats=1, target="10 x"
    )


def remote(work: Path, rows: int, repeats: int) -> Iterator[Row]:
    OURS.measure("create_table", [str(work), str(max(1000, rows // 100))])
    path = str(work / "ours_table.tacozip")
    for case, target in [
        ("open", "<= 2 requests, 1 round trip"),
        ("one_sample", "1 request"),
        ("neighbours", "500 samples coalesced"),
    ]:
        yield compare(case, REMOTE, None, [str(work), path], repeats=repeats, target=target)
    OURS.measure("create_table", [str(work), str(rows)])
    for case, target in [
        ("scattered", "1 000 ranges, many in a request"),
        ("scattered_single", "the same, a range a request"),
    ]:
        yield compare(case, REMOTE, None, [str(work), path], repeats=repeats, target=target)


CASES: dict[str, Callable[[Path, int, int], Iterator[Row]]] = {
    "create": create,
    "million": million,
    "copy": copy,
    "read": read,
    "export": export,
    "folder2zip": folder2zip,
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
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    chosen = [name for name in CASES if not options.cases or name.startswith(tuple(options.cases))]
    print(f"{machine()}; {options.rows} samples of 64 bytes\n\n{HEADINGS}", flush=True)
    answers = []
    for name in chosen:
        with work_directory() as work:
            answers.extend(CASES[name](work, options.rows, options.repeats))
    notes = {row.case: row.ours.check for row in answers if isinstance(row.ours.check, dict)}
    for case, note in notes.items():
        print(f"\n{case}: {note}")
    missing = {name for name in (TOOLBOX, READER, BRIDGE) if peer(name) is None}
    if missing:
        print(f"\nwithout a peer, for these are not made: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    main()
