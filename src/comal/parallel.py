"""Concurrent work: results in order, jobs in threads, waiting beside an event loop.

Objects that a process shares (connections, threads) must not be used by a forked child:
`PerProcess` prevents it. `ByteCache` is a cache for several threads within a budget.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import closing, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from functools import cached_property as _cached_property  # noqa: TID251 - its replacement
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from comal.errors import ComalError, InvalidInputError, shown

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

Workers = Executor | int | None
"""Who does the work: any executor, so many spawned processes, or threads of this one if None."""

_REMOTE = 8
"""Assumed workers of an executor that does not tell their number, such as one of a cluster."""
UNSENT = (pickle.PicklingError, AttributeError, TypeError)
"""What pickling raises."""
_STEP = 0.05
"""Seconds after which a pause checks whether anybody still waits."""
_REQUESTS, _AWAKE = 16, 0.2
"""Requests to a store at once; seconds after which who waits for them hears of an interrupt."""
_WAITING = 64
"""Threads that wait for blocking calls beside an event loop."""


if TYPE_CHECKING:
    cached_property = _cached_property
else:

    class cached_property(_cached_property):  # noqa: N801 - as in `functools`
        """That of `functools`, without the lock of Python 3.11.

        All objects share that lock: they wait for one another, and a fork may leave it held.
        """

        def __init__(self, func: Callable[[Any], Any]) -> None:
            super().__init__(func)
            self.lock = nullcontext()


class PerProcess(Generic[K, V]):
    """A table of shared objects that is empty again in a forked child.

    If it is `inherited`, a child keeps the objects of its parent.
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
        """The object for `key`, made at its first use in this process."""
        if self._pid != os.getpid():
            # The parent's objects are kept but never used: freeing them here could close files
            # that the parent still reads. Its lock may be held by a thread that is not here.
            self._inherited.append(self._values)
            self._start()
            if self._goes_on:
                self._values.update(self._inherited[-1])
        with self._lock:
            if key not in self._values:
                self._values[key] = make()
            return self._values[key]


class ByteCache(Generic[K, V]):
    """Values by key within a budget of bytes; evicts the least recently used first.

    With `keep_newest` the newest value is kept even when it alone is over the budget.
    """

    def __init__(self, budget: int, *, keep_newest: bool = False) -> None:
        self.budget = budget
        self._keep_newest = keep_newest
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    def get(self, key: K) -> V | None:
        """The value of `key`, or None."""
        if self._pid != os.getpid():
            # The parent's lock may be held by one of its threads, which do not exist here.
            self._start()
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of `size` bytes."""
        if self._pid != os.getpid():
            self._start()
        if size > self.budget and not self._keep_newest:
            return
        with self._lock:
            old = self._values.pop(key, None)
            self._values[key] = (value, size)
            self._size += size - (old[1] if old else 0)
            least = 1 if self._keep_newest else 0
            while self._size > self.budget and len(self._values) > least:
                _, (_, gone) = self._values.popitem(last=False)
                self._size -= gone

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Drop the values of some keys."""
        with self._lock:
            for key in [key for key in self._values if unwanted(key)]:
                self._size -= self._values.pop(key)[1]

    def clear(self) -> None:
        """Drop all values."""
        self._start()

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(ByteCache, self.budget, keep_newest=self._keep_newest), ()


_pools: PerProcess[tuple[str, int], ThreadPoolExecutor] = PerProcess()
_stops: ContextVar[tuple[threading.Event, ...]] = ContextVar("stops", default=())


def shared_threads(name: str, count: int) -> ThreadPoolExecutor:
    """The threads of this process for one kind of waiting, at most `count` of them."""
    return _pools.get((name, count), lambda: ThreadPoolExecutor(count, f"comal-{name}"))


def width(executor: Executor) -> int:
    """How many tasks an executor runs at once, as far as it is known."""
    workers, client = (getattr(executor, name, None) for name in ("_max_workers", "_client"))
    if client is not None:  # of Dask
        workers = sum(client.nthreads().values())
    return workers if isinstance(workers, int) and workers > 0 else _REMOTE


@contextmanager
def workers_of(workers: Workers, threads: int | None = None) -> Iterator[Executor]:
    """The executor behind an argument ``executor=``; what is started here ends with the block.

    `threads` is the number of threads if `workers` is None; by default one for each core.

    Raises
    ------
    InvalidInputError
        `workers` is neither an executor nor a number of processes.
    """
    own: Executor
    if callable(getattr(workers, "submit", None)):  # not all are of the class
        yield cast("Executor", workers)
        return
    if workers is None:
        own = ThreadPoolExecutor(threads or os.cpu_count(), "comal-work")
    elif type(workers) is int and workers > 0:
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - few need processes
        from multiprocessing import get_context  # noqa: PLC0415

        # Spawned: a fork would inherit the threads and locks of this process.
        own = ProcessPoolExecutor(workers, get_context("spawn"))
    else:
        raise InvalidInputError(
            "nobody can do the work",
            found=f"executor={shown(workers)}",
            expected="an Executor of concurrent.futures (of Dask: client.get_executor()), a number"
            " of processes, or None",
        )
    try:
        yield own
    finally:
        own.shutdown(cancel_futures=True)


def results(
    workers: Workers,
    function: Callable[[T], R],
    items: Iterable[T],
    *,
    threads: int | None = None,
    ahead: int | None = None,
) -> Generator[R]:
    """The results of a function for each item, in the order of the items.

    Close it where what is done with a result may fail: tasks run until then, and a generator that
    is left to the garbage collector may end in any thread, even one that is about to start.

    Parameters
    ----------
    workers, threads
        As for `workers_of`; with no threads who takes the results does the work. In other
        processes, function, items and results are pickled.
    ahead
        Tasks that may be in flight; by default two for each worker. After an error no task begins,
        and running ones are awaited.

    Raises
    ------
    InvalidInputError
        A task cannot be pickled.
    ComalError
        A worker of the executor ended abruptly, or a cluster gave a task up.
    """
    if workers is None and threads == 0:
        yield from map(function, items)
        return
    with workers_of(workers, threads) as executor:
        waiting, pending = iter(items), deque[Future[R]]()
        # Dask gives an equal task the result of an earlier one, which may be gone from disk.
        how: dict[str, Any] = {"pure": False} if hasattr(executor, "_client") else {}

        def submit(count: int) -> None:
            for item in islice(waiting, count):
                try:
                    pending.append(executor.submit(function, item, **how))
                except (RuntimeError, TypeError) as error:
                    if isinstance(error.__cause__, ComalError):  # Dask could not pickle a task
                        raise error.__cause__ from None
                    if isinstance(error, BrokenExecutor | TypeError):
                        raise
                    hint = "pass one that takes tasks, and is not shut down yet"
                    raise InvalidInputError(str(error), where="executor", hint=hint) from error

        try:
            submit(ahead or 2 * width(executor))
            while pending:
                found = pending.popleft().result()
                submit(1)
                yield found
        except Exception as error:
            if (lost := _of_executor(error)) is None:
                raise
            raise lost from error
        finally:
            # A cluster does not tell which tasks run, so that cancelling would not await them.
            exact = type(executor).__module__.startswith("concurrent.")
            wait([future for future in pending if not (exact and future.cancel())])


def _of_executor(error: Exception) -> ComalError | None:
    """The error for one of an executor; None for one of a task."""
    if isinstance(error, UNSENT) and re.search("pickle|serialize", str(error)):
        return InvalidInputError(
            "a task cannot be sent to the workers",
            found=str(error),
            hint="functions are those of a module, or workers are threads",
        )
    is_lost = isinstance(error, BrokenExecutor | CancelledError)
    if not is_lost and not type(error).__module__.startswith("distributed."):
        return None
    return ComalError(
        "a worker of the executor ended before its work was done",
        expected="workers that live until their results are taken",
        hint="spawn processes instead of forking them, and check whether the system killed"
        " one for lack of memory",
    )


def completed(
    function: Callable[[T], R], items: Iterable[T], threads: int = _REQUESTS
) -> Generator[R]:
    """The results of a function for each item in threads, as they come; a few are in flight.

    After an error, Ctrl-C or `close` no call begins, and running ones stop pausing and are awaited.
    """
    left, running, stop = iter(items), set[Future[R]](), threading.Event()
    with ThreadPoolExecutor(threads, "comal-jobs") as pool:
        try:
            while True:
                for item in islice(left, 2 * threads - len(running)):
                    call = partial(function, item)
                    running.add(pool.submit(copy_context().run, _stoppable, stop, call))
                if not running:
                    return
                # Not for long: an interrupt right before would not end the waiting.
                done, running = wait(running, _AWAKE, FIRST_COMPLETED)
                for one in done:
                    yield one.result()
        except BaseException:  # also on Ctrl-C: nobody waits for the others any more
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise


def run_all(function: Callable[[T], object], items: Iterable[T], threads: int = _REQUESTS) -> None:
    """Call a function for each item, as `completed`."""
    with closing(completed(function, items, threads)) as done:
        for _ in done:
            pass


def side_by_side(
    jobs: Sequence[Callable[[], R]],
    threads: int | ThreadPoolExecutor = _REQUESTS,
    *,
    remote: bool = True,
) -> list[R]:
    """The results of all jobs, or the error of the first that fails; then the others stop pausing.

    `threads` is an existing pool, or the number of threads to start; none if nothing is `remote`.
    """
    if len(jobs) < 2 or not remote:
        return [job() for job in jobs]
    if isinstance(threads, int):
        with ThreadPoolExecutor(min(threads, len(jobs)), "comal-jobs") as own:
            return side_by_side(jobs, own)
    stop = threading.Event()
    futures: list[Future[R]] = []
    try:
        # Each gets a copy of the context, so that observers see requests in other threads.
        futures += [threads.submit(copy_context().run, _stoppable, stop, job) for job in jobs]
        # In the order of the jobs, so that the error does not depend on timing.
        return [future.result() for future in futures]
    except BaseException:  # also on Ctrl-C: nobody waits for the others any more
        stop.set()
        for future in futures:
            future.cancel()
        raise


async def in_thread(function: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
    """Call a blocking function without blocking the event loop; cancelling ends its requests.

    It uses other threads than requests do, so that waiting calls cannot starve requests.
    """
    import asyncio  # noqa: PLC0415 - 2 MB, already loaded by callers

    stop = threading.Event()
    call: Callable[[], R] = partial(function, *args, **named)
    try:
        waiting = shared_threads("waiting", _WAITING)
        return await asyncio.wrap_future(waiting.submit(copy_context().run, _stoppable, stop, call))
    finally:
        # If the caller was cancelled, nobody waits for the result any more.
        stop.set()


def _stoppable(stop: threading.Event, job: Callable[[], Any]) -> Any:
    _stops.set((*_stops.get(), stop))
    return job()


def stopped() -> bool:
    """Whether nobody waits any more for the work of this context."""
    return any(stop.is_set() for stop in _stops.get())


def pause(seconds: float) -> None:
    """Sleep; ends early if nobody waits any more."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0 and not stopped():
        time.sleep(min(left, _STEP))
