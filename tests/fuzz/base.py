"""What every target has: bytes in, nothing but errors of comal out, little time and memory."""

from __future__ import annotations

import atexit
import os
import resource
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from comal.errors import ComalError
from tests.attacks.reading import Readings

SECONDS = 1.0
"""Of the processor, for one input of at most some hundred kilobytes."""
MEMORY = 256 << 20
"""Bytes by which one input may make the process larger than it has ever been."""


@dataclass(frozen=True)
class Target:
    """A parser and what to begin with."""

    run: Callable[[bytes], None]
    """Reads the bytes; lets errors of comal through and asserts what else must hold."""
    seeds: Callable[[], Iterable[bytes]]
    """Sound inputs, made by the writers of comal or of the tests."""


def attempt(target: Target, data: bytes, *, seconds: float = SECONDS) -> bool:
    """Run a target once; whether it took the bytes.

    Raises
    ------
    AssertionError
        The target's own, or too much time or memory. Any exception that is not comal's comes out
        as it is.
    """
    began, before = _used()
    taken, said = True, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a lie that was survived is told by a warning
        try:
            target.run(data)
        except ComalError as error:
            taken, said = False, str(error)
    # Names out of a file must not steer a terminal.
    assert all(line.isprintable() for line in said.split("\n")), ascii(said)
    ended, after = _used()
    took, grown = ended - began, after - before
    assert took < seconds, f"{took:.1f} s for {len(data)} bytes"
    assert grown < MEMORY, f"{grown >> 20} MiB for {len(data)} bytes"
    return taken


def let_through(found: Readings) -> None:
    """The error of what could not be opened; what could not be read then has been collected."""
    if not found.opened:
        raise found.errors[0]


def _used() -> tuple[float, int]:
    """Seconds of the processor, and the most bytes that the process has held."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024


@cache
def folder() -> Path:
    """A folder of this process, in memory where the system has such a place."""
    # libFuzzer leaves without what is registered here; its script cleans up behind it.
    if given := os.environ.get("COMAL_FUZZ_FOLDER"):
        return Path(given)
    memory = Path("/dev/shm")
    made = tempfile.mkdtemp(prefix="comal-fuzz-", dir=memory if memory.is_dir() else None)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return Path(made)


def as_file(data: bytes, name: str) -> Path:
    """The bytes as a file, for readers that are tested as they are deployed."""
    path = folder() / name
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return path
