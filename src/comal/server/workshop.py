"""What sources need of the server that holds them: threads, kept results, one flight, settings."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import ParamSpec, TypeVar

from comal.server.bytecache import ByteCache
from comal.server.gate import Flights
from comal.server.settings import Settings
from comal.storage import StorageConfig

_OPENING = 16
"""Threads that open sources."""

_given_up: contextvars.ContextVar[threading.Event | None] = contextvars.ContextVar(
    "given_up", default=None
)
P = ParamSpec("P")
T = TypeVar("T")


def check_wanted() -> None:
    """Leave work in a thread that nobody waits for any more; long work asks now and then.

    Raises
    ------
    TimeoutError
        Whoever asked for it has gone away, or waited for too long.
    """
    given_up = _given_up.get()
    if given_up is not None and given_up.is_set():
        raise TimeoutError("nobody waits for this any more")


class Workshop:
    """Shared by all sources of one application in one worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.storage = StorageConfig(memory_map=settings.memory_map, untrusted=True)
        if settings.linked_origins is not None:
            self.storage = replace(self.storage, linked_origins=settings.linked_origins)
        self.cache = ByteCache(settings.limits.cache_bytes)
        self.flights = Flights()
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
        kept: bytes | None = self.cache.get(key)
        if kept is not None:
            return kept

        async def made() -> bytes:
            data = await work()
            self.cache.put(key, data, len(data))
            return data

        return await self.flights.run(key, made)

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
