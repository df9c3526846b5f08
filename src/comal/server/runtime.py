"""What all sources of a worker share: threads, kept results, one flight for equal work, turns."""

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
"""About what a key and an entry take beside their bytes."""

_given_up: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "given_up", default=None
)
P = ParamSpec("P")
T = TypeVar("T")


def check_wanted() -> None:
    """Leave work in a thread that nobody waits for any more; long work asks now and then."""
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
        """Answers by what was asked."""
        self.hits = self.misses = 0
        self.single_flight = SingleFlight()
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._pid = 0

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread of the server."""
        count = self.settings.limits.threads or 2 * (os.cpu_count() or 1) + 4
        return await self._run("", count, function, *args, **kwargs)

    async def run_apart(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, in threads for what opens and looks at sources.

        A host that does not answer holds a thread for a minute, and shall keep nobody from reading
        what is open.
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
        """Bytes that were kept under this key, or that `work` makes, once for all who wait."""
        kept = self.cache.get(key)
        if kept is not None:
            self.hits += 1
            return kept
        self.misses += 1

        async def made() -> bytes:
            data = await work()
            size = len(data) + _OVERHEAD
            if size <= self.cache.budget // 8:  # no single one throws out most of them
                self.cache.put(key, data, size)
            return data

        return await self.single_flight.run(key, made)

    def close(self) -> None:
        """Let go of the threads; work that has begun is finished."""
        if self._pid == os.getpid():
            for pool in self._pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
        self._pools = {}

    def _threads(self, name: str, count: int) -> ThreadPoolExecutor:
        # A forked worker has none of the threads that its parent had.
        if self._pid != os.getpid():
            self._pools, self._pid = {}, os.getpid()
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = ThreadPoolExecutor(count, "comal-server" + name)
        return pool


_WATCHED = 0.5
"""Seconds after which it is watched whether who waits for an answer is there still."""


class ConcurrencyLimit:
    """Lets `limit` requests in; `queue` more wait in order, the rest is refused."""

    def __init__(self, limit: int, queue: int, patience: float = 60.0) -> None:
        self.queue = queue
        self.patience = patience
        self.active = 0
        self.waiting = 0
        self._turns = asyncio.Semaphore(limit)

    async def __aenter__(self) -> None:
        """Come in, after those who came before."""
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
    """Equal work that is asked for meanwhile is done once."""

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Future[Any]] = {}
        self._waiting: dict[asyncio.Future[Any], int] = {}

    async def run(
        self, key: Hashable, work: Callable[[], Awaitable[T]], *, keep: bool = False
    ) -> T:
        """What `work` returns, or what the same work that is under way already returns.

        The work is cancelled when all who wait for it have gone away, unless it is to `keep`.
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
                    self._tasks.pop(key, None)  # who comes now begins anew
                    task.cancel()
            # An error knows this frame: with the task in it, which has the error, all that the work
            # held would wait for the collector of cycles.
            del task
        return result

    def _landed(self, key: Hashable, task: asyncio.Future[Any]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            task.exception()  # whoever still waits gets it; nobody is no fault


class Client:
    """Whoever waits for an answer. When it goes away, its work is cancelled."""

    __slots__ = ("_gone", "_task", "_timer", "left")

    def __init__(self, gone: Callable[[], Awaitable[object]]) -> None:
        self.left = False
        """Whether it has gone away while it was watched."""
        self._gone = gone
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def watch(self, end: asyncio.Timeout) -> None:
        """Let the timeout around the work expire when it goes away.

        Most are answered before anybody looks.
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
        """The work is done."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


async def _coroutine(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
