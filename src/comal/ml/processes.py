"""Batches that other processes read and decode, in memory that they share with this one.

Threads are enough where decoding leaves the lock of the interpreter. A decoder that holds it is no
faster in two threads than in one. Each process runs a loader of its own over every n-th batch, and
sends the file descriptors of the memory that it decoded into: pixels pass no pipe, and no name is
left when a process is killed.
"""

from __future__ import annotations

import os
import pickle
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from multiprocessing import get_context
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any, NamedTuple

import numpy as np

from comal.errors import ComalError, InvalidInputError, translated
from comal.ml.buffers import SharedBuffers, address, received
from comal.parallel import UNSENT

Loaded = tuple[Any, int]
"""A batch, and how many of its samples failed."""
_UNSENDABLE: Any = dict.fromkeys(UNSENT, InvalidInputError)
_MEND = "decode, transform and on_error are functions of a module, or workers are threads"
_GAIN = 1.6
"""How much faster two threads must decode than one."""
_WORTH = 0.0005
"""Seconds to decode a sample, from which on processes can pay."""


class _Sent(NamedTuple):
    """An array whose memory is sent as a file descriptor."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


class Processes:
    """Processes that wait for epochs, and give their batches in order.

    Each calls ``load(buffers, (number, count), epoch)``, which gives every `count`-th batch from
    `number` on and how many of its samples failed. What it raises there is raised here, with its
    traceback as a note.
    """

    def __init__(self, load: Callable[..., Iterator[Loaded]], count: int) -> None:
        context = get_context("spawn")
        self._links: list[Any] = []
        self._workers: list[Any] = []
        try:
            for number in range(count):
                mine, theirs = context.Pipe()
                self._links.append(mine)
                arguments = theirs, load, (number, count), os.getpid()
                worker = context.Process(target=_serve, args=arguments, daemon=True)
                with translated(_UNSENDABLE, "processes cannot be given the work", hint=_MEND):
                    worker.start()
                self._workers.append(worker)
                theirs.close()
        except BaseException:  # also on Ctrl-C: no process is left
            self.close()
            raise

    def batches(self, epoch: Any) -> Iterator[Loaded]:
        """All batches of an epoch, after which the processes wait for another one.

        Raises
        ------
        ComalError
            A process ended.
        """
        for number in range(len(self._links)):
            self._ask(number, epoch)
            self._ask(number, None)  # it may be one batch ahead
        turns = cycle(range(len(self._links)))
        # No name here refers to a batch, so that its memory is free when the caller's names are.
        yield from iter(lambda: self._next(next(turns)), None)
        ended = next(turns) - 1
        for number in range(len(self._links)):
            if number != ended % len(self._links):
                self._answer(number)

    def _next(self, number: int) -> Loaded | None:
        self._ask(number, None)
        found = self._answer(number)
        if found is None:
            return None
        batch, failed = found
        if isinstance(batch, dict):
            batch = {name: self._received(number, one) for name, one in batch.items()}
        return batch, failed

    def _ask(self, number: int, what: Any) -> None:
        try:
            self._links[number].send(what)
        except OSError as error:
            raise self._ended(number) from error

    def _answer(self, number: int) -> Any:
        try:
            found = self._links[number].recv()
        except (EOFError, OSError) as error:
            raise self._ended(number) from error
        if found is not None and isinstance(found[0], Exception):
            found[0].add_note(found[1])
            raise found[0]
        return found

    def _received(self, number: int, value: Any) -> Any:
        if not isinstance(value, _Sent):
            return value
        try:
            handle = recv_handle(self._links[number])
        except (EOFError, OSError, RuntimeError) as error:
            raise self._ended(number) from error
        return received(handle, value.shape, value.dtype)

    def _ended(self, number: int) -> ComalError:
        self._workers[number].join(1)
        return ComalError(
            "a process that decodes ended before its work was done",
            found=f"exit code {self._workers[number].exitcode}",
            expected="processes that live until the epoch is over",
            hint="check whether the system killed it for lack of memory, and start the work of a"
            " script below: if __name__ == '__main__'",
        )

    def close(self) -> None:
        """End the processes."""
        for link in self._links:
            link.close()
        for worker in self._workers:
            worker.terminate()
        for worker in self._workers:
            worker.join()


def _serve(link: Any, load: Any, place: tuple[int, int], parent: int) -> None:
    """Send the batches of epochs, each when it is asked for, and None after the last."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that asks ends this one
    buffers = SharedBuffers()
    while True:
        try:
            epoch = link.recv()
            if epoch is None:
                continue  # asked for one batch more than the last epoch had
            for batch, failed in load(buffers, place, epoch):
                described, handles = _described(batch, buffers)
                link.recv()
                link.send((described, failed))
                for handle in handles:
                    send_handle(link, handle, parent)
            link.recv()
            link.send(None)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # nobody asks any more
        except Exception as error:  # noqa: BLE001 - a decoder of the caller may raise anything
            link.send((_sendable(error), traceback.format_exc()))
            return


def _described(batch: Any, buffers: SharedBuffers) -> tuple[Any, list[int]]:
    """A batch with its arrays described, and the descriptors of the files that hold them."""
    if not isinstance(batch, dict):
        return batch, []
    handles, described = [], dict(batch)
    for name, value in batch.items():
        whole = isinstance(value, np.ndarray) and value.flags.c_contiguous
        handle = buffers.lent(address(value)) if whole else None
        if handle is not None:
            described[name] = _Sent(value.shape, value.dtype)
            handles.append(handle)
    return described, handles


def _sendable(error: Exception) -> Exception:
    """The error, or another one with its text if it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    except Exception:  # noqa: BLE001 - pickling calls code of the caller
        return ComalError("a process failed", found=f"{type(error).__name__}: {error}")
    return error


# -- whether they pay ------------------------------------------------------------------------------


def pays(decode: Callable[[int], object], count: int) -> bool:
    """Whether two threads decode samples hardly faster than one, and slowly enough to matter."""
    decode(0)  # loads what is loaded once
    alone = _seconds(lambda: list(map(decode, range(count))))
    with ThreadPoolExecutor(2) as pool:
        both = _seconds(lambda: list(pool.map(decode, [*range(count), *range(count)])))
    return alone / count > _WORTH and 2 * alone < _GAIN * both


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
