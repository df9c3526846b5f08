"""granian's supervisor, which takes notice when a worker has ended before it speaks of killing it.

Imported only where granian runs.
"""

from __future__ import annotations

import time
from typing import Any

from granian import Granian

_NOTICED = 1.0
"""Seconds within which a thread that waited for a process surely gets its turn."""


class Supervisor(Granian):  # type: ignore[valid-type,misc] # one of two classes, as Python is
    """Starts workers and stops them. Its parameters are those of `granian.Granian`.

    Two threads of granian wait for each worker. The one that the system tells of the end sets the
    state of the process, the other sees a process of which nothing is known; on a busy machine it
    takes that for one that refuses to stop.
    """

    def _spawn_worker(self, *args: Any, **kwargs: Any) -> Any:
        worker = super()._spawn_worker(*args, **kwargs)
        join = worker.join

        def joined(timeout: float | None = None) -> None:
            join(timeout)
            wait_until_ended(worker, _NOTICED)

        worker.join = joined
        return worker


def wait_until_ended(worker: Any, seconds: float) -> None:
    """Wait until a process that was waited for counts as ended, or so long."""
    until = time.monotonic() + seconds
    while worker.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
