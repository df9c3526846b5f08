"""Run an operation with a fault at one of its calls that change files, and see what is left."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import REPOSITORY, digests, files_below

COUNT, KILL, NO_SPACE, IO_ERROR, INTERRUPT, SHORT = range(6)
KINDS = {"kill": KILL, "ENOSPC": NO_SPACE, "EIO": IO_ERROR, "EINTR": INTERRUPT, "short": SHORT}
_WRITES = ("write", "pwrite", "pwrite64", "writev", "copy_file_range")
_RESTARTED = (*_WRITES, "open", "open64", "openat", "openat64", "fsync", "ftruncate", "ftruncate64")
_STRUCK = {INTERRUPT: _RESTARTED, SHORT: _WRITES}
"""Calls that can be interrupted, and that can be short."""
_FEWER = {IO_ERROR: 2, INTERRUPT: 3, SHORT: 3}
"""Kinds that are tried at fewer calls: one that writers treat as ENOSPC, two that are retried."""
REMOVALS = ("unlink", "unlinkat", "rmdir")
_FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))


@dataclass(frozen=True)
class Outcome:
    """What came of an operation."""

    how: str
    """``done``, ``error`` of ours, ``foreign`` error, or ``killed``."""
    calls: Sequence[str] = ()
    """Names of the calls that change files, from a run without a fault."""
    struck: str = ""
    """The call in which the fault happened; empty when there was none."""
    error: str = ""
    text: str = ""


class Faults:
    """A process that runs operations with faults."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, operation: str, folder: Path, kind: int = COUNT, at: int = 0, then: int = 0
    ) -> Outcome:
        """Run ``module:function`` on a folder; the fault comes at call `at`, counted from 1.

        It is killed `then` calls after that, or all these fail if `then` is negative. What kills
        itself is run as KILL, at no call, and so in a process of its own.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job = {"operation": operation, "folder": str(folder), "kind": kind, "at": at, "then": then}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process that runs operations has ended"
        return Outcome(**json.loads(line))


@contextmanager
def started(build: Path) -> Iterator[Faults]:
    """Build the library in a folder and start the process; skip where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        reason = "faults are put in by a library for Linux, which needs a C compiler"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    library = build / "inject.so"
    source = Path(__file__).with_name("inject.c")
    subprocess.run(
        [compiler, "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"],
        check=True,
        capture_output=True,
    )
    where = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.faults.serving"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(where)},
    )
    try:
        yield Faults(process)
    finally:
        # The end of its input may not come: a process that was forked since has it open, too.
        process.terminate()
        process.communicate(timeout=30)


def chosen(
    calls: Sequence[str], name: str, count: int, kinds: Collection[str] = KINDS
) -> Iterator[tuple[str, int, int]]:
    """Name and number of each of some kinds of faults with a call for it, counted from 1.

    All of few calls; the first and last of many and a sample of the others.
    """
    for kind in kinds:
        number = KINDS[kind]
        hit = [at for at, call in enumerate(calls, 1) if call in _STRUCK.get(number, (call,))]
        most = min(count, _FEWER.get(number, count))
        if not _FULL and len(hit) > most:
            last = min(3, max(most - 2, 1))
            middle = hit[1:-last]
            hit = sorted(
                hit[:1] + hit[-last:] + random.Random(name + kind).sample(middle, most - 1 - last)
            )
        for at in hit:
            yield kind, number, at


def listing(folder: Path) -> dict[str, str]:
    """All files below a folder with the digests of their bytes."""
    return digests(files_below(folder))


_HIDDEN = re.compile(r"\.comal-|\.next$|\.change$")


def visible(files: dict[str, Any]) -> dict[str, Any]:
    """All but what only writers have; ``.tacocat`` is the name of an index."""
    return {name: value for name, value in files.items() if not _HIDDEN.search(name)}


@dataclass(frozen=True)
class Attempt:
    """An operation with a fault, and what it has left."""

    kind: str
    came: Outcome
    left: dict[str, Any]
    what: str
    """The fault and what came of it, for messages."""


class Sweep:
    """An operation on a folder, done once without a fault; `prepare` makes the folder ready."""

    def __init__(
        self,
        faults: Faults,
        operation: str,
        folder: Path,
        prepare: Callable[[], object],
        seen: Callable[[Path], dict[str, Any]] = listing,
    ) -> None:
        self._faults, self._operation, self._folder = faults, operation, folder
        self._prepare, self._seen = prepare, seen
        prepare()
        self.old = seen(folder)
        good = faults.run(operation, folder)
        self._calls, self.new = good.calls, seen(folder)
        assert good.how == "done", good.text
        assert self.new == visible(self.new) != self.old

    def attempts(self, count: int, kinds: Collection[str] = KINDS) -> Iterator[Attempt]:
        """The operation anew for each fault, with so many calls of each kind."""
        name = self._operation.rpartition(":")[2]
        for kind, number, at in chosen(self._calls, name, count, kinds):
            self._prepare()
            came = self._faults.run(self._operation, self._folder, number, at)
            what = f"{kind} at call {at} of {len(self._calls)} ({came.struck}): {came}"
            # Threads may make fewer calls than the first time, and then none is struck.
            assert came.how in ("done", "killed" if number == KILL else "error"), what
            assert came.how != "error" or (came.error == "StorageError" and came.struck), what
            yield Attempt(kind, came, self._seen(self._folder), what)

    def undone(self, first: str, last: str) -> Iterator[Attempt]:
        """The operation without room at a call, and then killed at one that undoes what it did.

        Or all of these fail. There is no room at any call from the first of a name to the last of
        another.
        """
        ends = len(self._calls) - self._calls[::-1].index(last)
        for at in range(self._calls.index(first) + 1, ends + 1):
            for then in (-1, *range(1 if _FULL else 1 + at % 4, 99, 1 if _FULL else 4)):
                self._prepare()
                came = self._faults.run(self._operation, self._folder, NO_SPACE, at, then)
                what = f"ENOSPC at call {at} ({came.struck}), then {then}: {came}"
                yield Attempt("ENOSPC", came, self._seen(self._folder), what)
                if then > 0 and came.how != "killed":
                    break

    def again(self, attempt: Attempt) -> dict[str, Any]:
        """What is there when the operation was run once more, which succeeds."""
        again = self._faults.run(self._operation, self._folder)
        assert again.how == "done", f"{attempt.what}\n{again}"
        return self._seen(self._folder)


def fails_or_is_whole(
    faults: Faults,
    operation: str,
    folder: Path,
    count: int,
    prepare: Callable[[], object],
    resumes: bool = False,
) -> None:
    """What an operation writes appears as a whole or not at all, wherever a fault happens.

    `count` is with how many calls of each kind; `prepare` makes the folder ready for each attempt.
    What an operation that `resumes` has finished is kept for the next attempt.
    """
    sweep = Sweep(faults, operation, folder, prepare)
    for one in sweep.attempts(count):
        came, left, what = one.came, visible(one.left), one.what
        assert left in ((sweep.new,) if came.how == "done" else (sweep.old, sweep.new)), what
        if came.how != "killed" and came.struck not in REMOVALS:
            assert (resumes and came.how == "error") or one.left == left, what
        if one.kind in ("EINTR", "short"):
            assert came.how == "done", what
        if left == sweep.old and one.kind in ("kill", "ENOSPC"):
            after = sweep.again(one)
            assert visible(after) == sweep.new, what
            assert not [name for name in after if name.startswith(".out.comal-build")], what
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]
