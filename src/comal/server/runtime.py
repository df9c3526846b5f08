"""Shared by all sources of a worker: threads, cache, deduplication of work, queueing."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, ParamSpec, TypeVar

from comal.parallel import ByteCache
from comal.server.responses import RETRY_AFTER, Refusal
from comal.server.settings import Settings
from comal.storage import StorageConfig

_OPENING = 16
"""Threads that open sources."""

_OVERHEAD = 400
"""Approximate size of a key and an entry without its bytes."""

_given_up: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "given_up", default=None
)
P = ParamSpec("P")
T = TypeVar("T")


def check_wanted() -> None:
    """Raise in a thread whose result nobody waits for; long work calls it now and then."""
    given_up = _given_up.get()
    if given_up is not None and given_up.is_set():
        raise TimeoutError("nobody waits for this any more")


class Runtime:
    """Shared by all sources of one application in one worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.storage = StorageConfig(untrusted=True)
        if settings.linked_origins is not None:
            self.storage = replace(self.storage, linked_origins=settings.linked_origins)
        self.cache: ByteCache[Hashable, bytes] = ByteCache(settings.limits.cache_bytes)
        """Answers by request."""
        self.hits = self.misses = 0
        self.single_flight = SingleFlight()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._pid = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread of the server."""
        count = self.settings.limits.threads or 2 * (os.cpu_count() or 1) + 4
        return await self._run("", count, function, *args, **kwargs)

    async def run_apart(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, in the threads that open and check sources.

        A host that does not answer blocks a thread for a minute, which must not delay reads of open
        sources.
        """
        return await self._run("-opening", _OPENING, function, *args, **kwargs)

    async def _run(
        self, name: str, count: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        context, given_up = contextvars.copy_context(), threading.Event()
        context.run(_given_up.set, given_up)
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads(name, count), lambda: context.run(function, *args, **kwargs)
            )
        except asyncio.CancelledError:
            given_up.set()
            raise

    async def once(self, key: Hashable, work: Callable[[], Awaitable[bytes]]) -> bytes:
        """The cached bytes of `key`, else those of `work`, which runs once for all that wait."""
        kept = self.cache.get(key)
        if kept is not None:
            self.hits += 1
            return kept
        self.misses += 1

        async def made() -> bytes:
            data = await work()
            size = len(data) + _OVERHEAD
            if size <= self.cache.budget // 8:  # a single one must not evict most others
                self.cache.put(key, data, size)
            return data

        return await self.single_flight.run(key, made)

    def close(self) -> None:
        """Stop the threads; running work is finished."""
        if self._pid == os.getpid():
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
        self._pools = {}

    def _threads(self, name: str, count: int) -> ThreadPoolExecutor:
        # A forked worker has none of its parent's threads.
        if self._pid != os.getpid():
            self._pools, self._pid = {}, os.getpid()
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = ThreadPoolExecutor(count, "comal-server" + name)
        return pool


_WATCHED = 0.5
"""Seconds after which the server watches whether the client has disconnected."""


class ConcurrencyLimit:
    """Lets `limit` requests in; `queue` more wait in order; raises for others."""

    def __init__(self, limit: int, queue: int, patience: float = 60.0) -> None:
        self.queue = queue
        self.patience = patience
        self.active = 0
        self.waiting = 0
        self._turns = asyncio.Semaphore(limit)

    async def __aenter__(self) -> None:
        """Enter, after earlier requests."""
        if self._turns.locked():
            await self._wait()
        else:
            await self._turns.acquire()  # at once
        self.active += 1

    async def _wait(self) -> None:
        if self.waiting >= self.queue:
            raise _overloaded()
        self.waiting += 1
        try:
            async with asyncio.timeout(self.patience):
                await self._turns.acquire()
        except TimeoutError as error:
            raise _overloaded() from error
        finally:
            self.waiting -= 1

    async def __aexit__(self, *_: object) -> None:
        """Leave, and let the next one in."""
        self.active -= 1
        self._turns.release()


def _overloaded() -> Refusal:
    return Refusal(503, "overloaded", "too many requests at once", (RETRY_AFTER,))


class SingleFlight:
    """Runs equal work once while it is in progress."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Future[Any]] = {}
        self._waiting: dict[asyncio.Future[Any], int] = {}

    async def run(
        self, key: Hashable, work: Callable[[], Awaitable[T]], *, keep: bool = False
    ) -> T:
        """The result of `work`, or of the same work that is already running.

        The work is cancelled when all clients that wait for it are gone, unless `keep` is set.
        """
        loop = asyncio.get_running_loop()
        task = self._tasks.get(key)
        if task is None or task.get_loop() is not loop:
            task = asyncio.ensure_future(_coroutine(work))
            self._tasks[key] = task
            task.add_done_callback(lambda done: self._landed(key, done))
        self._waiting[task] = self._waiting.get(task, 0) + 1
        try:
            result: T = await asyncio.shield(task)
        finally:
            self._waiting[task] -= 1
            if not self._waiting[task]:
                del self._waiting[task]
                if not task.done() and not keep:
                    self._tasks.pop(key, None)  # the next caller starts it again
                    task.cancel()
            # An error refers to this frame, and the task to the error: with the task in the frame,
            # the objects of the work would wait for the garbage collector.
            del task
        return result

    def _landed(self, key: Hashable, task: asyncio.Future[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # callers that still wait get it; none is fine, too


class Client:
    """The client of a request. When it disconnects, its work is cancelled."""

    __slots__ = ("_gone", "_task", "_timer", "left")

    def __init__(self, gone: Callable[[], Awaitable[object]]) -> None:
        self.left = False
        """Whether it disconnected while it was watched."""
        self._gone = gone
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self, end: asyncio.Timeout) -> None:
        """Let the timeout around the work expire when the client disconnects.

        Most requests are answered before the watch begins.
        """
        loop = asyncio.get_running_loop()

        def begin() -> None:
            self._task = loop.create_task(self._watch(end))

        self._timer = loop.call_later(_WATCHED, begin)

    async def _watch(self, end: asyncio.Timeout) -> None:
        await self._gone()
        self.left = True
        end.reschedule(0)

    def rest(self) -> None:
        """Stop watching: the work is done."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def _coroutine(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
