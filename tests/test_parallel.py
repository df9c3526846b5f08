"""Work side by side: order, bounds, errors, contexts, and waiting beside an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import (
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import nullcontext
from contextvars import ContextVar
from multiprocessing import get_context
from typing import Any

import pytest

from comal.errors import ComalError, InvalidInputError
from comal.parallel import (
    cached_property,
    in_thread,
    pause,
    results,
    shared_threads,
    side_by_side,
    stopped,
    width,
)
from tests.support import REPOSITORY

COLOUR: ContextVar[str] = ContextVar("colour", default="none")


def half(number: int) -> float:
    """Half of a number; of 13 there is none."""
    if number == 13:
        raise ZeroDivisionError
    return number / 2


@pytest.mark.parametrize(
    "make",
    [
        lambda: nullcontext(None),
        lambda: ThreadPoolExecutor(3),
        lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    ],
    ids=["own", "threads", "processes"],
)
def test_results_come_in_order(make: Callable[[], Any]) -> None:
    """Threads made for a call, and executors of the caller."""
    with make() as executor:
        for ahead in (1, 4, 100):
            assert list(results(executor, half, range(10), ahead=ahead)) == [
                number / 2 for number in range(10)
            ]
            assert list(results(executor, half, [], ahead=ahead)) == []
            found = results(executor, half, range(10, 20), ahead=ahead)
            assert [next(found) for _ in range(3)] == [5.0, 5.5, 6.0]
            with pytest.raises(ZeroDivisionError):
                next(found)


def test_processes_made_for_a_call() -> None:
    found = results(2, half, range(20))
    assert [next(found) for _ in range(13)] == [number / 2 for number in range(13)]
    with pytest.raises(ZeroDivisionError):
        next(found)


def test_a_lost_worker_is_told() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes,
        pytest.raises(ComalError, match="ended before its work was done") as caught,
    ):
        list(results(processes, os._exit, [3]))
    assert "spawn" in str(caught.value.hint)


def test_few_are_in_flight_and_none_begins_after_an_error() -> None:
    begun: list[int] = []

    def items() -> Iterator[int]:
        for number in range(100):
            begun.append(number)
            yield number

    found = results(None, half, items(), threads=2)
    assert next(found) == 0.0
    assert len(begun) <= 5
    with pytest.raises(ZeroDivisionError):
        list(found)
    assert len(begun) <= 13 + 4
    unfinished = results(None, half, items(), threads=2)
    next(unfinished)
    unfinished.close()
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


@pytest.mark.parametrize("nobody", [0, -1, True, 1.5, "threads", object()])
def test_what_cannot_work_is_refused(nobody: Any) -> None:
    with pytest.raises(InvalidInputError, match="nobody can do the work") as caught:
        list(results(nobody, half, [1]))
    assert "get_executor" in str(caught.value.expected)
    with ThreadPoolExecutor(1) as ended:
        pass
    with pytest.raises(InvalidInputError, match=r"executor[\s\S]*not shut down"):
        list(results(ended, half, [1]))


def test_what_cannot_be_pickled_is_told(processes: Executor) -> None:
    class Dask(Executor):
        def submit(self, function: Any, item: Any) -> Any:  # type: ignore[override]
            raise TypeError("Could not serialize object of type function")

    cases: Any = (
        (processes, lambda item: item, 1),
        (processes, half, threading.Lock()),
        (Dask(), half, 1),
    )
    for executor, function, item in cases:
        with pytest.raises(InvalidInputError, match=r"cannot be sent[\s\S]*functions are those"):
            list(results(executor, function, [item]))
    assert list(results(processes, half, [4])) == [2]


class _Cluster(Executor):
    """As an executor of Dask: futures never say that they run, and a cluster gives up tasks."""

    def __init__(self, error: type[Exception] | None) -> None:
        self._client = self
        self.error = error
        self.most = self.ended = 0
        self.threads = ThreadPoolExecutor(2)

    def nthreads(self) -> dict[str, int]:
        return {"one": 1, "two": 2}

    def submit(self, function: Any, item: int, *, pure: bool) -> Future[Any]:  # type: ignore[override]
        assert not pure
        self.most = max(self.most, item + 1 - self.ended)
        future: Future[Any] = Future()

        def work() -> None:
            self.ended += 1
            if self.error and item == 3:
                future.set_exception(self.error("worker was killed"))
            else:
                future.set_result(function(item))

        self.threads.submit(work)
        return future


class KilledWorker(Exception):  # noqa: N818 - its name in distributed
    """As that of Dask, by its module."""


KilledWorker.__module__ = "distributed.scheduler"


def test_a_cluster_has_its_width_and_gives_up_with_an_error_of_comal() -> None:
    cluster = _Cluster(None)
    assert width(cluster) == 3
    assert list(results(cluster, half, range(12))) == [number / 2 for number in range(12)]
    assert cluster.most <= 6
    for error in (KilledWorker, CancelledError):
        lost = _Cluster(error)
        with pytest.raises(ComalError, match="ended before its work was done"):
            list(results(lost, half, range(12)))
        begun = lost.ended
        lost.threads.shutdown()
        assert lost.ended == begun, "what was in flight was awaited"
    cluster.threads.shutdown()


# -- imports ---------------------------------------------------------------------------------------

IMPORTS = """
import importlib, random, sys, threading

sys.setswitchinterval(1e-6)
names = sys.argv[1:]
random.Random(1).shuffle(names)
start = threading.Barrier(16)


def load(first):
    start.wait()
    for name in names[first::16]:
        try:
            importlib.import_module(name)
        except Exception as error:  # of libraries that are not there, or race themselves
            print(name, error)


threads = [threading.Thread(target=load, args=(first,)) for first in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


ROOMS = sorted({path.parent.name for path in (REPOSITORY / "src/comal").glob("*/__init__.py")})


@pytest.mark.parametrize("room", [".", *(ROOMS if "COMAL_FULL_SWEEP" in os.environ else ())])
def test_many_threads_may_import_at_once(room: str) -> None:
    """That none of all modules is in a circle is read in their source, by tests/docs/test_house."""
    source = REPOSITORY / "src"
    names = {
        ".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__")
        for path in (source / "comal" / room).rglob("*.py")
        # Neither a program's own, nor what its package alone imports: see MEET of tests/docs.
        if "cli" not in path.parts and path.name not in ("__main__.py", "sniff.py")
    }
    command = [sys.executable, "-c", IMPORTS, *sorted(names)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "ModuleLock('comal" not in told
    assert "partially initialized module 'comal" not in told


def test_a_cached_property_waits_for_no_other_object() -> None:
    """Nor for one whose thread does not exist any more, as in a forked child."""

    class Lazy:
        def __init__(self, work: Callable[[], object]) -> None:
            self.work = work

        @cached_property
        def value(self) -> object:
            return self.work()

    gate, begun = threading.Event(), threading.Event()

    def wait() -> bool:
        begun.set()
        return gate.wait(60)

    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(getattr, Lazy(wait), "value")
        begun.wait()
        try:
            assert pool.submit(getattr, Lazy(lambda: 1), "value").result(10) == 1
        finally:
            gate.set()
        assert slow.result() is True
