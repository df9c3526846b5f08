"""Run a case on both sides, in turn and each in a process of its own, and print the ratios.

A case is a function in `cases/ours_*.py` and one of the same name in `cases/peer_*.py`. Either
prints one JSON line, ``{"seconds": ..., "check": ...}``: the time of the measured section alone
and something that both sides must agree on. Peak memory is the operating system's figure for the
finished process.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
INTEROP = HERE.parent / ".interop"


@dataclass(frozen=True)
class Measurement:
    seconds: float
    peak_mb: float
    check: object


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
        return Measurement(answer["seconds"], usage.ru_maxrss / 1024, answer.get("check"))


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
    print(_line(row), flush=True)
    return row


def _median(measurements: Sequence[Measurement]) -> Measurement:
    return Measurement(
        statistics.median(m.seconds for m in measurements),
        statistics.median(m.peak_mb for m in measurements),
        measurements[0].check,
    )


HEADINGS = (
    "| case | comal s (min-max) | peer s | ratio | comal MB | peer MB | target |\n"
    "|---|---|---|---|---|---|---|"
)


def _line(row: Row) -> str:
    low, high = row.spread
    seconds = ratio = memory = "-"
    if row.peer is not None:
        seconds, memory = f"{row.peer.seconds:.4g}", f"{row.peer.peak_mb:.0f}"
        ratio = f"{row.ratio:.1f}"
    return (
        f"| {row.case} | {row.ours.seconds:.4g} ({low:.4g}-{high:.4g}) | {seconds} | {ratio} "
        f"| {row.ours.peak_mb:.0f} | {memory} | {row.target} |"
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
