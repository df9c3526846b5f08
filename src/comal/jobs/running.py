"""Running, watching and ending a plan."""

from __future__ import annotations

import datetime as dt
import hashlib
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    counted,
    shown,
    shown_path,
    system_errors,
    translated,
    without_secrets,
)
from comal.jobs.kinds import MAKE, MERGE
from comal.jobs.plans import DAMAGED, DONE, STATE, Part, Plan
from comal.parallel import Workers, results
from comal.progress import Progress, silent
from comal.storage.targetlock import is_free

_MADE, _KEPT, _ELSEWHERE = "made", "kept", "elsewhere"


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run of a plan, or of a share of it, did."""

    made: int
    """Parts that it made."""
    kept: int
    """Parts that were there, with the right checksum."""
    elsewhere: int
    """Parts that somebody else is making."""
    failed: dict[str, str]
    """Why parts could not be made, by name."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class PartStatus:
    """What has become of a part."""

    name: str
    state: str
    """``done``, ``running``, ``failed``, or ``waiting``."""
    reason: str | None = None
    """Why it failed, or who runs it since when."""


def run(
    plan: str | os.PathLike[str],
    shard: tuple[int, int] | None = None,
    *,
    executor: Workers = None,
    progress: Progress | None = None,
) -> Ran:
    """Make the parts of a plan that are not there yet; the rest is compared with its checksum.

    It may be repeated after a failure, and run by several at a time: a part gets its name when it
    is whole, and of two who make the same part one has to give way.

    Parameters
    ----------
    plan
        The folder of the plan.
    shard
        ``(I, N)``: only the parts n with n mod N = I, from 0.
    executor
        Makes parts side by side: any `concurrent.futures.Executor`, or a number of processes. Its
        workers must reach the plan, its sources and its target by the same paths. If None, parts
        are made one after the other, each with threads.
    progress
        Called with the number of parts that are done.

    Raises
    ------
    ObjectNotFoundError, InvalidMetadataError, UnsupportedVersionError
        There is no plan that this version can run.
    InvalidInputError
        A shard that does not exist.
    """
    job, tell = Plan.read(plan), progress or silent
    first, step = shard or (0, 1)
    if not 0 <= first < step:
        raise InvalidInputError("no such shard", found=f"{first}/{step}", expected="0/N to N-1/N")
    numbers = range(first, len(job.parts), step)
    make = partial(make_part, os.fspath(job.folder), None if executor is None else 1)
    # In this thread, so that Ctrl-C ends a part at once.
    found = map(make, numbers) if executor is None else results(executor, make, numbers)
    told: dict[str, str] = {}
    for done, (number, outcome) in enumerate(zip(numbers, found, strict=True)):
        told[job.parts[number].name] = outcome
        tell(done + 1, len(numbers), "making parts")
    said = list(told.values())
    failed = {name: one for name, one in told.items() if one not in (_MADE, _KEPT, _ELSEWHERE)}
    return Ran(said.count(_MADE), said.count(_KEPT), said.count(_ELSEWHERE), failed)


def make_part(plan: str, threads: int | None, number: int) -> str:
    """Make one part unless it is there: ``made``, ``kept``, ``elsewhere``, or why it failed."""
    job = Plan.read(plan)
    part = job.parts[number]
    try:
        return _make(job, part, threads)
    except ComalError as error:
        text = without_secrets(str(error))
        job.tell(part, STATE, {"state": "failed", **_here(), "reason": text})
        return text


def _make(job: Plan, part: Part, threads: int | None, tries: int = 2) -> str:
    path, known = job.path(part), job.told(part, DONE)
    if known is not None and _is_same(path, known):
        return _KEPT
    if not is_free(path):  # so that the state names who makes it
        return _ELSEWHERE
    job.tell(part, STATE, {"state": "running", **_here()})
    there = os.path.lexists(path)
    try:
        # What is there without a record, or with other bytes, is what a killed runner left.
        counts = MAKE[job.kind](job, part, overwrite=there, threads=threads)
    except ConflictError:
        if not is_free(path):
            return _ELSEWHERE
        if tries == 1:
            raise
        return _make(job, part, threads, tries - 1)  # who was at it has just gone
    except KeyboardInterrupt:
        job.tell(part, STATE, {"state": "waiting", **_here()})
        raise
    found = {"size": path.stat().st_size, "sha256": _sha256(path), **counts}
    job.tell(part, DONE, found, replace=known is not None)
    job.tell(part, STATE, {"state": "done", **_here()})
    return _MADE


def _is_same(path: Path, known: dict[str, Any]) -> bool:
    with suppress(FileNotFoundError):
        return bool(path.stat().st_size == known["size"] and _sha256(path) == known["sha256"])
    return False


def _sha256(path: Path) -> str:
    with system_errors("cannot read", path, writing=False), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _here() -> dict[str, Any]:
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": now}


def status(plan: str | os.PathLike[str]) -> list[PartStatus]:
    """What has become of each part of a plan.

    A part is ``done`` if its file has the size of its record; `run` compares checksums, too. A part
    whose runner is gone, as far as this machine can tell, is ``waiting`` again.
    """
    job = Plan.read(plan)
    return [_status(job, part) for part in job.parts]


def _status(job: Plan, part: Part) -> PartStatus:
    known, state, path = job.told(part, DONE), job.told(part, STATE), job.path(part)
    if known is not None and path.is_file() and path.stat().st_size == known["size"]:
        return PartStatus(part.name, "done")
    if state is None or state["state"] in {"waiting", "done"}:
        return PartStatus(part.name, "waiting")
    if state["state"] == "failed":
        return PartStatus(part.name, "failed", str(state.get("reason")))
    runner = f"process {state['pid']} of {state['host']} since {state['since']}"
    if state["host"] == socket.gethostname() and not Path(f"/proc/{state['pid']}").exists():
        return PartStatus(part.name, "waiting", f"{runner} is gone")
    return PartStatus(part.name, "running", runner)


def merge(plan: str | os.PathLike[str]) -> dict[str, Any]:
    """Make one of all parts: an index beside them, and sums of their counts and statistics.

    Parameters
    ----------
    plan
        The folder of the plan.

    Returns
    -------
    ``output`` (paths of the index), ``parts``, ``items``, ``size`` in bytes; for RaQuet the
    statistics of each band.

    Raises
    ------
    InvalidInputError
        Parts are missing.
    ConflictError
        Something else has the name of the index; that of an earlier merge is replaced.
    """
    job = Plan.read(plan)
    lacking = [one for one in (_status(job, part) for part in job.parts) if one.state != "done"]
    if lacking:
        raise InvalidInputError(
            f"{counted(len(lacking), 'part')} of the plan lacking",
            where=shown_path(job.folder),
            found=", ".join(f"{shown(one.name)} is {one.state}" for one in lacking[:5]),
            hint=f"run 'comal run {shown_path(job.folder)}' first",
        )
    records: Sequence[dict[str, Any]] = [job.told(part, DONE) or {} for part in job.parts]
    with translated(DAMAGED, "a record is damaged", where=shown_path(job.folder)):
        return {
            "parts": len(records),
            "items": sum(record["items"] for record in records),
            "size": sum(record["size"] for record in records),
            **MERGE[job.kind](job, records),
        }
