"""Processes of their own without new interpreters: forked from one that has only imported.

Nothing is in them that this process has made: no connection, no thread, no cache.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any

_PATIENCE = 120
_IMPORTED = (
    *("pytest", "distributed", "duckdb", "obstore", "pyarrow.dataset", "pyarrow.parquet"),
    *("rasterio", "shapely", "urllib3", "comal.convert", "comal.jobs.running"),
    *("comal.raquet.writing.job", "comal.taco.writing.containers", "comal.taco.reading.dataset"),
    *("comal.tapalcatl.writing.building", "comal.tortilla", "comal.taco.extensions.rasters"),
)


def forks() -> ForkServerContext:
    """What starts such processes."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_IMPORTED))  # what is absent is left out
    forkserver.ensure_running()
    return context


def pool(count: int) -> ProcessPoolExecutor:
    """Some of them, with the environment of this process."""
    return ProcessPoolExecutor(count, forks(), initializer=_begin, initargs=(dict(os.environ),))


@dataclass(frozen=True)
class Forked:
    """A running process, and the end of its line that is here."""

    process: BaseProcess
    line: Connection

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid

    def hear(self) -> Any:
        """What it says next."""
        assert self.line.poll(_PATIENCE), "the process says nothing"
        return self.line.recv()


@contextmanager
def forked(work: Callable[..., object], *args: object) -> Iterator[Forked]:
    """A process that runs ``work(line, *args)`` with the environment of this one.

    It is killed at the end of the block, if it still runs.
    """
    here, there = forks().Pipe()
    process = forks().Process(target=_run, args=(dict(os.environ), work, there, *args))
    process.start()
    there.close()
    try:
        yield Forked(process, here)
    finally:
        process.kill()
        process.join()
        here.close()


def _run(environment: dict[str, str], work: Callable[..., object], *args: object) -> None:
    _begin(environment)
    work(*args)


def _begin(environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    # Also where a shell lets what runs in the background ignore Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)
