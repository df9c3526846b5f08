"""Work side by side: order, bounds, errors, contexts, and waiting beside an event loop."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Any

import pytest

from comal.errors import ComalError
from comal.parallel import (
    in_thread,
    pause,
    results,
    shared_threads,
    side_by_side,
    stopped,
    width,
)

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


@pytest.fixture(params=["own", "threads", "processes"])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor | int]:
    """Threads made for a call, and executors of the caller."""
    if request.param == "own":
        yield 3
    elif request.param == "threads":
        with ThreadPoolExecutor(3) as threads:
            yield threads
    else:
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as processes:
            yield processes


def half(number: int) -> float:
    """Half of a number; of 13 there is none."""
    if number == 13:
        raise ZeroDivisionError
    return number / 2


@pytest.mark.parametrize("ahead", [1, 4, 100])
def test_results_come_in_order(executor: Any, ahead: int) -> None:
    assert list(results(executor, half, range(10), ahead)) == [number / 2 for number in range(10)]
    assert list(results(executor, half, [], ahead)) == []
    found = results(executor, half, range(10, 20), ahead)
    assert [next(found) for _ in range(3)] == [5.0, 5.5, 6.0]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_a_lost_worker_is_told() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes,
        pytest.raises(ComalError, match="ended before its work was done") as caught,
    ):
        list(results(processes, os._exit, [3], 1))
    assert "spawn" in str(caught.value.hint)


def test_few_are_in_flight_and_none_begins_after_an_error() -> None:
    begun: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    found = results(2, half, items(), 4)
    assert next(found) == 0.0
    assert len(begun) <= 5
    with pytest.raises(ZeroDivisionError):
        list(found)
    assert len(begun) <= 13 + 4
    unfinished = results(2, half, items(), 4)
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert not [one for one in threading.enumerate() if one.name.startswith("comal-work")]


@pytest.mark.parametrize("threads", [2, shared_threads("test", 3)])
def test_jobs_side_by_side(threads: Any) -> None:
    COLOUR.set("blue")
    met = threading.Barrier(2)

    def job() -> str:
        met.wait(30)  # only two at once get over it
        return COLOUR.get()

    assert side_by_side([job, job], threads) == ["blue", "blue"]
    assert side_by_side([COLOUR.get], threads) == ["blue"]
    assert side_by_side([], threads) == []


def test_the_first_error_ends_the_pauses_of_the_others() -> None:
    ended: list[bool] = []

    def patient() -> None:
        pause(1e6)
        ended.append(stopped())

    def failed() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        side_by_side([failed, patient, patient], 3)
    assert set(ended) <= {True}
    assert not stopped()


def test_waiting_beside_a_loop() -> None:
    ended = threading.Event()

    def patient() -> None:
        side_by_side([lambda: pause(1e6), lambda: pause(1e6)], 2)
        if stopped():
            ended.set()

    async def main() -> None:
        COLOUR.set("red")
        assert await in_thread(COLOUR.get) == "red"
        assert await in_thread(half, number=3) == 1.5
        with pytest.raises(ZeroDivisionError):
            await in_thread(half, 13)
        waiting = asyncio.ensure_future(in_thread(patient))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert ended.wait(30)
    assert not stopped()


def test_how_wide_an_executor_is() -> None:
    with ThreadPoolExecutor(7) as threads:
        assert width(threads) == 7
    assert width(object()) > 1  # type: ignore[arg-type]
