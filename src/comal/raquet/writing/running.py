"""Running the subtrees of a job: in threads, or on any executor, a few at a time and in order."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

from comal.parallel import results, width
from comal.progress import Progress
from comal.raquet.writing.accumulating import Totals
from comal.raquet.writing.job import Job, Pyramid, Subtree, Tiles, Worker, roots, run_subtree
from comal.raquet.writing.layout import Spool

_AHEAD = 2

Place = tuple[int, int, int]
Made = Iterator[Subtree]


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
        with _working(job, executor) as working:
            for step in range(len(job.steps)):
                pyramid = Pyramid(job, above)
                tasks = [(step, x, y) for x, y in places]
                for (x, y), made in zip(places, working(tasks), strict=True):
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


@contextmanager
def _working(job: Job, executor: Executor | None) -> Iterator[Callable[[Sequence[Place]], Made]]:
    """What makes the subtrees of places (step, x, y): on an executor, or in threads of our own."""
    if executor is not None:
        run = partial(run_subtree, job)
        yield lambda places: results(executor, run, places, width(executor) + _AHEAD)
        return
    count = os.cpu_count() or 1
    own = _Threads(job)
    with ThreadPoolExecutor(count, thread_name_prefix="comal-raquet") as pool:
        try:
            yield lambda places: results(pool, own.run, places, count + _AHEAD)
        finally:
            pool.shutdown(cancel_futures=True)
            own.close()


class _Threads:
    """A worker for each thread of a pool; all are closed together."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._local = threading.local()
        self._workers: list[Worker] = []

    def run(self, place: Place) -> Subtree:
        """Run a task in the worker of this thread."""
        worker: Any = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = Worker(self._job)
            self._workers.append(worker)
        made: Subtree = worker.subtree(*place)
        return made

    def close(self) -> None:
        """Close all files; no thread runs any more."""
        for worker in self._workers:
            worker.close()
