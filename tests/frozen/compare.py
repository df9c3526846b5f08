"""Facts as files of sorted lines, and how they differ from what the jobs give now."""

from __future__ import annotations

import fnmatch
import os
import tomllib
import warnings
from pathlib import Path
from unittest import mock

from tests.frozen.archives import checks, costs, reads
from tests.frozen.contents import contents
from tests.frozen.jobs import commands, faces, responses, written

JOBS = {
    "faces": faces,
    "bytes": written,
    "contents": contents,
    "commands": commands,
    "http": responses,
    "checks": checks,
    "reads": reads,
    "costs": costs,
}
OF_WHAT_IS_MADE = ("bytes", "contents", "reads", "costs")
"""Jobs that read what writers make, which is made once for all of them."""
HERE = Path(__file__).parent
FACTS = HERE / "facts"


def found(name: str, folder: Path) -> dict[str, str]:
    """What a job gives now; all may work in one folder."""
    place = folder / ("made" if name in OF_WHAT_IS_MADE else name)
    place.mkdir(exist_ok=True)
    # Exports name the day on which they are made.
    day = mock.patch.dict(os.environ, {"SOURCE_DATE_EPOCH": "1750000000"})
    with day, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is wrong with an archive is a fact of its check
        facts: dict[str, str] = {}
        for key, value in JOBS[name](place):
            assert key not in facts, f"two facts of one key: {key}"
            facts[key] = value.replace("\n", "\\n")
    return facts


def recorded(name: str) -> dict[str, str]:
    """What was written down."""
    lines = (FACTS / f"{name}.txt").read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines)


def record(name: str, now: dict[str, str]) -> None:
    """Write down what a job gives now."""
    FACTS.mkdir(exist_ok=True)
    lines = [f"{key}\t{value}\n" for key, value in sorted(now.items())]
    (FACTS / f"{name}.txt").write_text("".join(lines))


def allowed(name: str) -> dict[str, str]:
    """Patterns of keys that may differ, with the reason."""
    table = tomllib.loads((HERE / "allowed.toml").read_text())
    reasons: dict[str, str] = table.get(name, {})
    return reasons


def differences(name: str, now: dict[str, str]) -> tuple[list[str], list[str]]:
    """Lines for facts that differ without a reason, and patterns of reasons that nothing needs."""
    then, reasons, used, lines = recorded(name), allowed(name), set(), []
    for key in sorted(then.keys() | now.keys()):
        if then.get(key) == now.get(key):
            continue
        fitting = [pattern for pattern in reasons if fnmatch.fnmatchcase(key, pattern)]
        used.update(fitting)
        if not fitting:
            lines += [f"{key}", f"  was {then.get(key)}", f"  is  {now.get(key)}"]
    return lines, sorted(reasons.keys() - used)
