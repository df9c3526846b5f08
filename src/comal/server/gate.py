"""How many requests are worked on at a time, how many wait, and one flight for equal work."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Any, TypeVar

from comal.server.problems import RETRY_AFTER, Refusal

T = TypeVar("T")

_WATCHED = 0.5
"""Seconds between two looks at who waits for an answer."""


class Gate:
    """Lets `limit` requests in; `queue` more wait in order, the rest is refused.

    Parameters
    ----------
    limit
        Requests that are inside at a time.
    queue
        Requests that may wait.
    patience
        Seconds that one may wait.
    """

    def __init__(self, limit: int, queue: int, patience: float = 60.0) -> None:
        self.limit = limit
        self.queue = queue
        self.patience = patience
        self.active = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    async def __aenter__(self) -> None:
        """Come in, after those who came before.

        Raises
        ------
        Refusal
            503 when the queue is full, or does not move.
        """
        if self.active < self.limit:
            self.active += 1
            return
        if len(self._waiting) >= self.queue:
            raise _overloaded()
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout(self.patience):
                await place
        except (asyncio.CancelledError, TimeoutError) as error:
            if place.done() and not place.cancelled():
                self._leave()  # the turn had been given already
            else:
                with suppress(ValueError):  # whoever left meanwhile may have passed it over
                    self._waiting.remove(place)
            if isinstance(error, TimeoutError):
                raise _overloaded() from error
            raise

    async def __aexit__(self, *_: object) -> None:
        """Leave, and let the next one in."""
        self._leave()

    def _leave(self) -> None:
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)  # the turn goes over; `active` stays
                return
        self.active -= 1


def _overloaded() -> Refusal:
    return Refusal(503, "overloaded", "too many requests at once", (RETRY_AFTER,))


class Flights:
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
    """Whoever waits for an answer. When it goes away, its work is cancelled.

    Parameters
    ----------
    gone
        Returns when it has gone.
    """

    __slots__ = ("_gone", "_task", "_waits", "end", "left")

    def __init__(self, gone: Callable[[], Awaitable[object]]) -> None:
        self.left = False
        """Whether it has gone away while it was watched."""
        self.end: asyncio.Timeout | None = None
        """The timeout around its work."""
        self._gone = gone
        self._waits = 0
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Called now and then: from the second time on it is watched."""
        self._waits += 1
        if self._waits == 2:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        await self._gone()
        if self.end is not None:
            self.left = True
            self.end.reschedule(0)

    def rest(self) -> None:
        """The work is done."""
        self.end = None
        if self._task is not None:
            self._task.cancel()


class Clients:
    """Those whose answers are worked on. Most are answered before anybody looks."""

    def __init__(self) -> None:
        self._there: set[Client] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, client: Client, end: asyncio.Timeout) -> None:
        """Let the timeout expire when the client goes away."""
        client.end = end
        self._there.add(client)
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(_WATCHED, self._look)

    def remove(self, client: Client) -> None:
        """Its answer is made."""
        self._there.discard(client)
        client.rest()

    def _look(self) -> None:
        for client in self._there:
            client.look()
        if self._loop is not None and self._there:
            self._loop.call_later(_WATCHED, self._look)
        else:
            self._loop = None


async def _coroutine(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
