"""Waiting for several storages at once: each has a round trip of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TypeVar

from comal.errors import ComalError

T = TypeVar("T")

_THREADS = 16


def together(jobs: Sequence[Callable[[], T]], *, remote: bool) -> list[T | ComalError]:
    """What each job returns, or its error; side by side where they wait for a network."""
    if len(jobs) < 2 or not remote:
        return [_result(job) for job in jobs]
    with ThreadPoolExecutor(min(_THREADS, len(jobs))) as pool:
        # A copy of the context each, so that observers hear of requests in other threads.
        futures = [pool.submit(copy_context().run, _result, job) for job in jobs]
        return [future.result() for future in futures]


def _result(job: Callable[[], T]) -> T | ComalError:
    try:
        return job()
    except ComalError as error:
        return error


async def together_async(jobs: Sequence[Callable[[], Awaitable[T]]]) -> list[T | ComalError]:
    """As `together`, without threads."""
    import asyncio  # noqa: PLC0415 - 2 MB, which are loaded already where this is called

    slots = asyncio.Semaphore(_THREADS)

    async def one(job: Callable[[], Awaitable[T]]) -> T | ComalError:
        async with slots:
            try:
                return await job()
            except ComalError as error:
                return error

    return list(await asyncio.gather(*(one(job) for job in jobs)))


def settled(results: Sequence[T | ComalError]) -> list[T]:
    """The results, or the first error among them."""
    found: list[T] = []
    for result in results:
        if isinstance(result, ComalError):
            raise result
        found.append(result)
    return found
