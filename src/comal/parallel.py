"""Things that one process shares and a forked child must not touch: connections and threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class PerProcess(Generic[K, V]):
    """A table of shared things that starts empty again in a forked child.

    Parameters
    ----------
    inherited
        Whether a child goes on with what its parent has made instead.
    """

    def __init__(self, *, inherited: bool = False) -> None:
        self._goes_on = inherited
        self._inherited: list[dict[K, V]] = []
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[K, V] = {}
        self._pid = os.getpid()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The thing called `key`, made at its first use in this process."""
        if self._pid != os.getpid():
            # The parent's things are kept and never used: letting go of them here could close
            # what the parent still reads from. Its lock may be held by a thread that is not here.
            self._inherited.append(self._values)
            self._start()
            if self._goes_on:
                self._values.update(self._inherited[-1])
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]


_executors: PerProcess[int, ThreadPoolExecutor] = PerProcess()


def executor(concurrency: int) -> ThreadPoolExecutor:
    """The threads that wait for requests, at most `concurrency` of them in this process."""
    return _executors.get(
        concurrency,
        lambda: ThreadPoolExecutor(concurrency, thread_name_prefix="comal-storage"),
    )
