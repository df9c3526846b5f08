"""Running the subtrees of a job: in threads, or on any executor, a few at a time and in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from typing import Any

from comal.progress import Progress
from comal.raquet.writing.accumulating import Totals
from comal.raquet.writing.job import Job, Pyramid, Subtree, Tiles, Worker, roots, run_subtree
from comal.raquet.writing.layout import Spool

_AHEAD = 2
_REMOTE = 8

Submit = Callable[[int, int, int], "Future[Subtree]"]


def run_job(job: Job, spool: Spool, executor: Executor | None, progress: Progress) -> Totals:
    """Run all subtrees; tiles go to `spool`.

    The order of tiles and of additions is that of the ids, whoever does the work, so that the
    same job gives the same bytes with any executor and any number of workers.

    Raises
    ------
    ComalError
        Of the first subtree that fails; those that have not begun are not run.
    """
    totals = Totals.of(tuple(band.dtype for band in job.steps[0].bands))
    places = list(roots(job))
    total, done = len(places) * len(job.steps), 0
    above = Worker(job)
    try:
        with _submitting(job, executor) as (submit, ahead):
            for step in range(len(job.steps)):
                pyramid = Pyramid(job, above)
                for (x, y), made in _in_order(submit, step, places, ahead):
                    totals.add(made.totals)
                    if job.root_zoom > job.min_zoom:
                        pyramid.add(x, y, made.root, made.tiles)
                    spool.add(made.tiles, step)
                    done += 1
                    progress(done, total, "making tiles")
                last = Tiles()
                pyramid.finish(last)
                spool.add(last, step)
    finally:
        above.close()
    return totals


def _in_order(
    submit: Submit, step: int, places: list[tuple[int, int]], ahead: int
) -> Iterator[tuple[tuple[int, int], Subtree]]:
    """Results in the order of `places`, with few tasks in flight: each holds its tiles."""
    waiting = iter(places)
    pending: deque[tuple[tuple[int, int], Future[Subtree]]] = deque()
    try:
        for place in islice(waiting, ahead):
            pending.append((place, submit(step, *place)))
        while pending:
            place, future = pending.popleft()
            made = future.result()
            for following in islice(waiting, 1):
                pending.append((following, submit(step, *following)))
            yield place, made
    finally:
        for _, future in pending:
            future.cancel()


@contextmanager
def _submitting(job: Job, executor: Executor | None) -> Iterator[tuple[Submit, int]]:
    """How to run a task, and how many may be under way."""
    if executor is not None:
        workers = getattr(executor, "_max_workers", None)
        given = executor
        ahead = workers + _AHEAD if isinstance(workers, int) else _REMOTE
        yield lambda step, x, y: given.submit(run_subtree, job, step, x, y), ahead
        return
    count = os.cpu_count() or 1
    own = _Threads(job)
    with ThreadPoolExecutor(count, thread_name_prefix="comal-raquet") as pool:
        try:
            yield lambda step, x, y: pool.submit(own.run, step, x, y), count + _AHEAD
        finally:
            pool.shutdown(cancel_futures=True)
            own.close()


class _Threads:
    """A worker for each thread of a pool; all are closed together."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._local = threading.local()
        self._workers: list[Worker] = []

    def run(self, step: int, x: int, y: int) -> Subtree:
        """Run a task in the worker of this thread."""
        worker: Any = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = Worker(self._job)
            self._workers.append(worker)
        made: Subtree = worker.subtree(step, x, y)
        return made

    def close(self) -> None:
        """Close all files; no thread runs any more."""
        for worker in self._workers:
            worker.close()
