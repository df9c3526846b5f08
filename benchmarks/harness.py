"""Run a case on both sides, in turn and each in a process of its own, and print the ratios.

A case is a function in `cases/ours_*.py` and one of the same name in `cases/peer_*.py`. Either
prints one JSON line, ``{"seconds": ..., "check": ...}``: the time of the measured section alone
and something that both sides must agree on. Peak memory is the operating system's figure for the
finished process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTEROP = HERE.parent / ".interop"


@dataclass(frozen=True)
class Measurement:
    seconds: float
    peak_mb: float
    check: object
    note: object = None
    """What else the case counted, such as requests; printed below the table."""


@dataclass(frozen=True)
class Side:
    """One contestant: what it is called, its interpreter and its script."""

    name: str
    python: str
    script: Path

    def measure(self, case: str, arguments: Sequence[str]) -> Measurement:
        command = [self.python, str(self.script), case, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(HERE), "HOME": arguments[0]}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment)
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{self.name} failed at {case} (exit {process.returncode})")
        answer = json.loads(output.splitlines()[-1])
        return Measurement(
            answer["seconds"], usage.ru_maxrss / 1024, answer.get("check"), answer.get("note")
        )


@dataclass(frozen=True)
class Row:
    case: str
    ours: Measurement
    peer: Measurement | None
    target: str
    spread: tuple[float, float]

    @property
    def ratio(self) -> float | None:
        return self.peer.seconds / self.ours.seconds if self.peer else None

    def line(self) -> str:
        """The row as one of a table."""
        low, high = self.spread
        seconds = ratio = memory = "-"
        if self.peer is not None:
            seconds, memory = f"{self.peer.seconds:.4g}", f"{self.peer.peak_mb:.0f}"
            ratio = f"{self.ratio:.1f}"
        return (
            f"| {self.case} | {self.ours.seconds:.4g} ({low:.4g}-{high:.4g}) | {seconds} | {ratio} "
            f"| {self.ours.peak_mb:.0f} | {memory} | {self.target} |"
        )


def compare(
    case: str,
    ours: Side,
    peer: Side | None,
    arguments: Sequence[str],
    *,
    repeats: int,
    peer_repeats: int | None = None,
    target: str = "",
) -> Row:
    """Measure both sides in turn; medians, and a stop when their answers differ."""
    mine, theirs = [], []
    for turn in range(repeats):
        mine.append(ours.measure(case, arguments))
        if peer is not None and turn < (peer_repeats or repeats):
            theirs.append(peer.measure(case, arguments))
    if theirs and mine[0].check != theirs[0].check:
        raise SystemExit(f"{case}: the sides disagree: {mine[0].check} and {theirs[0].check}")
    row = Row(
        case,
        _median(mine),
        _median(theirs) if theirs else None,
        target,
        (min(m.seconds for m in mine), max(m.seconds for m in mine)),
    )
    print(row.line(), flush=True)
    return row


def _median(measurements: Sequence[Measurement]) -> Measurement:
    return Measurement(
        statistics.median(m.seconds for m in measurements),
        statistics.median(m.peak_mb for m in measurements),
        measurements[0].check,
        measurements[0].note,
    )


HEADINGS = (
    "| case | comal s (min-max) | peer s | ratio | comal MB | peer MB | target |\n"
    "|---|---|---|---|---|---|---|"
)


def machine() -> str:
    """What the figures were taken on."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(": ")[2]
            break
    return f"{os.cpu_count()} cores, {model}, Python {platform.python_version()}, Linux"


def main_of_case(functions: dict[str, object]) -> None:
    """Entry point of a case script: ``script CASE DIRECTORY [ARGUMENT ...]``."""
    case, *arguments = sys.argv[1:]
    function = functions[case]
    assert callable(function)
    print(json.dumps(function(*arguments)))


Cases = Mapping[str, Callable[[Path, int, int], Iterator[Row]]]
"""Groups of rows by name: each is called with a work folder, the size and the repeats."""


@contextmanager
def work_directory() -> Iterator[Path]:
    """A folder that is there for one group of rows."""
    path = Path(tempfile.mkdtemp(prefix="comal-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def run(cases: Cases, *, size: int, unit: str, repeats: int = 3) -> None:
    """The command line of a benchmark: choose groups, print the table and what the rows say."""
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(cases)}; all if none is given")
    parser.add_argument("--size", type=int, default=size, help=f"{unit}; {size} by default")
    parser.add_argument("--repeats", type=int, default=repeats)
    options = parser.parse_args()
    chosen = [name for name in cases if not options.cases or name.startswith(tuple(options.cases))]
    print(f"{machine()}; {options.size} {unit}\n\n{HEADINGS}", flush=True)
    answers: list[Row] = []
    for name in chosen:
        with work_directory() as work:
            answers.extend(cases[name](work, options.size, options.repeats))
    for row in answers:
        for side, found in (("comal", row.ours), ("peer", row.peer)):
            if found is not None and found.note:
                print(f"\n{row.case}, {side}: {found.note}")
