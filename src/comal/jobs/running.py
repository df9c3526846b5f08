"""Running, watching and ending a plan."""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectChangedError,
    ObjectNotFoundError,
    counted,
    shown,
    shown_path,
    system_errors,
    translated,
    without_secrets,
)
from comal.jobs.kinds import MAKE, MERGE, form_of
from comal.jobs.plans import (
    DAMAGED,
    DONE,
    NUMBERED,
    STATE,
    TREES,
    Location,
    Part,
    Plan,
    names_in,
)
from comal.limits import MIB
from comal.parallel import Workers, results
from comal.plan import Head
from comal.progress import Progress, silent
from comal.public import Summary
from comal.storage import ObjectInfo, StorageConfig, open_source, targets
from comal.storage.location import stored
from comal.storage.targetlock import flush_file_system, is_free

_MADE, _KEPT, _EMPTY, _ELSEWHERE = _OUTCOMES = "made", "kept", "empty", "elsewhere"
_BLOCK, _THREADS = 8 * MIB, 16
_PERIOD = 30.0
"""Seconds after which who makes a part tells so again."""
_FOREIGN: dict[type[BaseException], type[ComalError]] = {Exception: InvalidMetadataError}
"""What a plan that somebody edited may lead to: it fails its part, and stops no other."""
_SILENT = dt.timedelta(minutes=5)
"""After this time without a word, nobody is believed to make a part."""


@dataclass(frozen=True, slots=True)
class Ran(Summary):
    """What a run of a plan, or of a share of it, did."""

    made: int
    """Parts that it made."""
    kept: int
    """Parts that were there, with the right checksum."""
    empty: int
    """Parts whose sources have no data, so that there is no file of them."""
    elsewhere: int
    """Parts that somebody else is making."""
    failed: dict[str, str]
    """Why parts could not be made, by name."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """What has become of a part."""

    name: str
    state: str
    """``done``, ``empty``, ``running``, ``failed``, or ``waiting``."""
    reason: str | None = None
    """Why it is empty or failed, or who runs it since when."""


def run(
    plan: Location,
    shard: tuple[int, int] | None = None,
    *,
    executor: Workers = None,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Ran:
    """Make the parts of a plan that are not there yet; the rest is compared with its checksum.

    It may be repeated after a failure, and run by several at a time: a part gets its name when it
    is whole, and of two who make the same part one has to give way. A bucket has no locks, so both
    make it there; the second finds it, compares, and keeps it.

    Parameters
    ----------
    plan
        The folder of the plan, a path or URL.
    shard
        ``(I, N)``: only the parts n with n mod N = I, from 0.
    executor
        Makes parts side by side: any `concurrent.futures.Executor`, or a number of processes. Its
        workers must reach the plan, its sources and its target by the same paths. If None, parts
        are made one after the other, each with threads.
    progress
        Called with the number of parts that are done.
    config
        Settings and credentials for plan, sources and output in stores; a plan has none.

    Raises
    ------
    ObjectNotFoundError, InvalidMetadataError, UnsupportedVersionError
        There is no plan that this version can run.
    InvalidInputError
        A shard that does not exist.
    """
    job, tell = Plan.read(plan, config), progress or silent
    first, step = shard or (0, 1)
    if not 0 <= first < step:
        raise InvalidInputError("no such shard", found=f"{first}/{step}", expected="0/N to N-1/N")
    parts = job.parts[first::step]
    # A task is sent none of the others, which may be many.
    total = {"parts": len(job.parts)} if job.kind in NUMBERED else {}
    job = replace(job, options={**job.options, **total}, parts=())
    # In this thread, so that Ctrl-C ends a part at once.
    found: Iterator[str] = map(partial(_outcome, job, None), parts)
    told: dict[str, str] = {}
    with ExitStack() as scope:
        if executor is not None:
            found = scope.enter_context(closing(results(executor, partial(make_part, job), parts)))
        for done, (part, outcome) in enumerate(zip(parts, found, strict=True), 1):
            told[part.name] = outcome
            tell(done, len(parts), "making parts")
    failed = {name: one for name, one in told.items() if one not in _OUTCOMES}
    made, kept, empty, elsewhere = map(list(told.values()).count, _OUTCOMES)
    return Ran(made, kept, empty, elsewhere, failed)


def make_part(job: Plan, part: Part) -> str:
    """Make one part unless it is there: one of the outcomes, or why it failed."""
    return _outcome(job, 1, part)


def _outcome(job: Plan, threads: int | None, part: Part) -> str:
    try:
        return _make(job, part, threads)
    except ComalError as error:
        if isinstance(error, ObjectChangedError):
            error.hint = (
                "plan it again, for another folder, or put back what was planned; "
                "of a file on a disk its time counts, too"
            )
        text = without_secrets(str(error))
        with suppress(ComalError):  # it fails already
            job.tell(part, {"state": "failed", **_here(), "reason": text})
        return text


def _make(job: Plan, part: Part, threads: int | None, tries: int = 2) -> str:
    path, known = job.output / part.name, _record(job, part)
    with translated(DAMAGED, "the record is damaged", where=part.name):
        if known is not None and all(_is_same(job.output, file) for file in known["files"]):
            return _EMPTY if known.get("empty") else _KEPT
    if not is_free(path):  # so that the state names who makes it
        return _ELSEWHERE
    try:
        with _seen(job, part):
            found, outcome = _publish(job, part, threads)
    except ConflictError:
        if not is_free(path):
            return _ELSEWHERE
        if tries == 1:
            raise
        return _make(job, part, threads, tries - 1)  # who was at it has just gone
    except KeyboardInterrupt:
        job.tell(part, {"state": "waiting", **_here()})
        raise
    job.record(part, found, replace=known is not None)
    job.tell(part, {"state": "done", **_here()})
    return outcome


@contextmanager
def _seen(job: Plan, part: Part) -> Iterator[None]:
    """Tell that a part is being made, and again every `_PERIOD`: so others see an end."""
    state, ended = {"state": "running", **_here()}, Event()
    job.tell(part, state)

    def renew() -> None:
        while not ended.wait(_PERIOD):
            with suppress(ComalError):  # it may succeed the next time
                job.tell(part, {**state, "seen": _now()})

    thread = Thread(target=renew, daemon=True, name="comal-seen")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()  # nothing is told after the end


def _record(job: Plan, part: Part) -> dict[str, Any] | None:
    with suppress(ObjectNotFoundError):
        return job.told([part], DONE)[0]
    return None


def _publish(job: Plan, part: Part, threads: int | None) -> tuple[dict[str, Any], str]:
    """Make the files of a part and give them their names; returns its record, and what was done."""
    path, form = job.output / part.name, form_of(job.kind)
    # What is there without a record, or with other bytes, is what a killed runner left.
    with targets.new_set(path, True, part.source) as made:
        own = made.add(path.name, form)
        try:
            with translated(_FOREIGN, "the part cannot be made as planned", where=part.name):
                counts = MAKE[job.kind](job, part, own, threads)
        except InvalidInputError as error:
            if not error.fields.get("empty"):
                raise
            return {"size": 0, "files": [], "items": 0, "empty": error.what}, _EMPTY
        home, names = made.folder, [part.name]
        if own.is_dir():
            names = sorted(f.relative_to(own).as_posix() for f in own.rglob("*") if f.is_file())
            home = own
            with system_errors("cannot write", path):
                flush_file_system(own)
        give = partial(_give, home, job.output, form)
        given = list(results(None, give, names, threads=_THREADS))
    files = [facts for facts, _ in given]
    outcome = _MADE if any(is_new for _, is_new in given) else _KEPT
    return {"size": sum(one["size"] for one in files), "files": files, **counts}, outcome


def _give(home: Path, output: Path, form: targets.Kind, name: str) -> tuple[dict[str, Any], bool]:
    """Give a file its name, unless an equal one has it; returns its facts, and whether it did."""
    own, path = home / name, output / name
    facts = {"name": name, "size": own.stat().st_size, "sha256": _sha256(own)}
    same = _is_same(output, facts)
    is_new = not same
    if is_new:
        try:
            targets.give(own, path, form, overwrite=same is not None)
        except ConflictError:  # in a store, where another runner may have been at it, too
            if not _is_same(output, facts):
                raise
            is_new = False
    if stored(path) is not None and (info := _info(path)) is not None:
        facts["etag"] = info.etag
    return facts, is_new


def _is_same(output: Path, known: dict[str, Any]) -> bool | None:
    """Whether a file is as its record says, None without it; of an equal ETag it is not read."""
    path = output / known["name"]
    info = _info(path)
    if info is None:
        return None
    if info.size != known["size"]:
        return False
    same_tag = info.etag is not None and info.etag == known.get("etag")
    return same_tag or bool(_sha256(path) == known["sha256"])


def _info(path: Path) -> ObjectInfo | None:
    with suppress(ObjectNotFoundError), open_source(path) as source:
        return source.stat()
    return None


def _sha256(path: Path) -> str:
    with open_source(path) as source, io.BufferedReader(source.file(), _BLOCK) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _here() -> dict[str, Any]:
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": _now()}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


def status(plan: Location, *, config: StorageConfig | None = None) -> list[PartStatus]:
    """What has become of each part of a plan.

    A part is ``done`` if it has a record and its file is there, by their names; `run` compares
    checksums, too. It is ``empty`` if its record says that there is nothing to make a file of. A
    part whose runner is gone, as far as this machine can tell, or has given no sign for five
    minutes, is ``waiting`` again.
    """
    return _statuses(Plan.read(plan, config))


def _statuses(job: Plan) -> list[PartStatus]:
    recorded, begun = (
        {name.removesuffix(".json") for name in names_in(job.folder / what)}
        for what in (DONE, STATE)
    )
    there = recorded if job.kind in TREES else names_in(job.output)
    found = {part.name: PartStatus(part.name, "done") for part in job.parts}
    lacking = [part for part in job.parts if part.name not in recorded & there]
    found |= {part.name: PartStatus(part.name, "waiting") for part in lacking}
    tried = [part for part in lacking if part.name in begun]
    with translated(DAMAGED, "a state is damaged", where=shown_path(job.folder / STATE)):
        for part, state in zip(tried, job.told(tried, STATE), strict=True):
            found[part.name] = _status(part, state)
    told = [part for part in lacking if part.name in recorded]
    for part, record in zip(told, job.told(told, DONE), strict=True):
        if record.get("empty"):
            found[part.name] = PartStatus(part.name, "empty", str(record["empty"]))
    return list(found.values())


def _status(part: Part, state: dict[str, Any]) -> PartStatus:
    if state["state"] in {"waiting", "done"}:
        return PartStatus(part.name, "waiting")
    if state["state"] == "failed":
        return PartStatus(part.name, "failed", str(state.get("reason")))
    runner = f"process {state['pid']} of {state['host']} since {state['since']}"
    if state["host"] == socket.gethostname() and not Path(f"/proc/{state['pid']}").exists():
        return PartStatus(part.name, "waiting", f"{runner} is gone")
    seen = dt.datetime.fromisoformat(state.get("seen", state["since"]))
    if dt.datetime.now(dt.UTC) - seen > _SILENT:
        runner = f"process {state['pid']} of {state['host']}"
        return PartStatus(part.name, "waiting", f"no sign of {runner} since {seen.isoformat()}")
    return PartStatus(part.name, "running", runner)


def merge(
    plan: Location, *, skip_missing: bool = False, config: StorageConfig | None = None
) -> dict[str, Any]:
    """Make one of all parts: an index beside them, and sums of their counts and statistics.

    Empty parts are left out. Parts of a Tortilla need no index: they are compared with the plan.

    Parameters
    ----------
    plan
        The folder of the plan, a path or URL.
    skip_missing
        Leave out parts that are not there, too, such as those that failed. When they are, merge
        again. Not for a Tortilla, each of whose parts says how many there are.
    config
        As for `run`.

    Returns
    -------
    ``output`` (paths of the index, or of all parts of a Tortilla), ``parts``, ``items``, ``size``
    in bytes, ``left_out`` (names of parts that are not in it); for RaQuet the statistics of each
    band.

    Raises
    ------
    InvalidInputError
        Parts are missing, or there is none to make an index of.
    ConflictError
        Something else has the name of the index. That of an earlier merge is replaced; that of a
        TACO in a store only if it has fewer archives, and no others.
    """
    job = Plan.read(plan, config)
    if skip_missing and job.kind in NUMBERED:
        raise InvalidInputError(
            "no part of a Tortilla can be left out",
            where=shown_path(job.folder),
            found="skip_missing=True",
            expected=f"all of {counted(len(job.parts), 'part')}, as the header of each says",
            hint="run the plan until all are done, or plan it again without the files that fail",
        )
    states = {one.name: one.state for one in _statuses(job)}
    done = [part for part in job.parts if states[part.name] == "done"]
    records = job.told(done, DONE)
    if job.kind not in TREES:
        with open_source(job.output) as source:
            found = source.fetch([Head(0, f"./{part.name}") for part in done])
        for part, record, piece in zip(done, records, found, strict=True):
            if piece.total != record["size"]:
                states[part.name] = "changed"
    lacking = [name for name, state in states.items() if state not in {"done", "empty"}]
    if lacking and not skip_missing:
        raise InvalidInputError(
            f"{counted(len(lacking), 'part')} of the plan lacking",
            where=shown_path(job.folder),
            found=", ".join(f"{shown(name)} is {states[name]}" for name in lacking[:5]),
            hint=f"run 'comal run {shown_path(job.folder)}' first"
            + ("" if job.kind in NUMBERED else ", or pass skip_missing=True"),
        )
    whole = [one for one in zip(done, records, strict=True) if states[one[0].name] == "done"]
    if not whole:
        raise InvalidInputError("no part to make an index of", where=shown_path(job.folder))
    with translated(DAMAGED, "a record is damaged", where=shown_path(job.folder)):
        return {
            "parts": len(whole),
            "items": sum(record["items"] for _, record in whole),
            "size": sum(record["size"] for _, record in whole),
            "left_out": [name for name, state in states.items() if state != "done"],
            **MERGE[job.kind](job, whole),
        }
