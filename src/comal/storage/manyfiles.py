"""Many local files, read close to the speed of the system calls that it takes.

Two threads measure, open and read files into large buffers, each payload behind the room that its
reader wants in front of it; the caller gets full buffers in order and writes one while the next
are being read.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

import numpy as np
import numpy.typing as npt

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)

J = TypeVar("J")
T = TypeVar("T")
Ints = npt.NDArray[np.int64]

_BUFFER = 4 << 20
_BUFFERS = 4
_ROWS = 8_192
_THREADS = 2
_ALONE = 2_048
"""Fewer files than this are measured by the calling thread."""
LARGE = _BUFFER - (1 << 17)
"""Files over this size are read in parts; what is in front of a payload fits into the rest."""
# O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on regular files.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SOURCE: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
    ValueError: InvalidInputError,  # NUL in a path
}


@dataclass(frozen=True, slots=True)
class Block(Generic[T]):
    """Files ``first .. stop`` in one buffer, valid until the next block is asked for."""

    first: int
    stop: int
    array: npt.NDArray[np.uint8]
    """Room and payload of each file in turn, shape (bytes,). What is in the rooms is undefined."""
    starts: Ints
    """Where in `array` each payload begins."""
    made: T
    """What the `work` on the payloads gave."""


Work = Callable[[memoryview, list[int], list[int]], T]
"""From a buffer, and starts and sizes of the payloads in it, to anything; runs in a thread."""


def file_sizes(paths: Sequence[str | None]) -> Ints:
    """Sizes of regular files in bytes now, int64, shape (n,); 0 where there is no path.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        A file is missing or cannot be looked at.
    InvalidInputError
        A path names something that is no regular file, or nothing that could exist.
    """
    if len(paths) < _ALONE:
        return np.array(_measured(paths), np.int64)
    # The system calls let go of the interpreter's lock.
    step = -(-len(paths) // _THREADS)
    parts = [paths[start : start + step] for start in range(0, len(paths), step)]
    with ThreadPoolExecutor(_THREADS, "comal-measure") as pool:
        return np.concatenate([np.array(part, np.int64) for part in pool.map(_measured, parts)])


def _measured(paths: Sequence[str | None]) -> list[int]:
    sizes = []
    for path in paths:
        if path is None:
            sizes.append(0)
            continue
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path per row costs more than the call
        except (OSError, ValueError) as error:
            refuse_source(error, "source cannot be opened", path)
        # 0o100000 is S_IFREG: anything else might block or never end.
        if status.st_mode & 0o170000 != 0o100000:
            raise _irregular(status, path)
        sizes.append(status.st_size)
    return sizes


class FileReader:
    """Threads and buffers that read files ahead; a context manager."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, "comal-read-ahead")
        # Memory that is never used costs nothing.
        self._free = [np.empty(_BUFFER, np.uint8) for _ in range(_BUFFERS)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def small(
        self, paths: Sequence[str], sizes: Ints, gaps: Ints, work: Work[T]
    ) -> Iterator[Block[T]]:
        """Read files of at most `LARGE` bytes, many into each buffer, in order.

        Parameters
        ----------
        paths
            Regular files; links are followed.
        sizes
            What each was found to hold, shape (n,). A file that holds something else is an error.
        gaps
            Bytes to be left free in front of each payload, shape (n,).
        work
            Looks at the payloads of a buffer while they are fresh.

        Raises
        ------
        ObjectNotFoundError, AccessDeniedError, StorageError
            A file is missing or cannot be read.
        InvalidInputError
            No regular file, or not as long as it was.
        """
        ends = np.cumsum(sizes + gaps)

        def fill(run: tuple[int, int], array: npt.NDArray[np.uint8]) -> Block[T]:
            first, stop = run
            before = int(ends[first - 1]) if first else 0
            starts = ends[first:stop] - sizes[first:stop] - before
            places, lengths = starts.tolist(), sizes[first:stop].tolist()
            _read_all(paths[first:stop], lengths, places, array.data)
            made = work(array.data, places, lengths)
            return Block(first, stop, array[: int(ends[stop - 1]) - before], starts, made)

        return self._ahead(_runs(ends), fill)

    def large(self, path: str, size: int) -> Iterator[memoryview]:
        """Read one file of `size` bytes in parts, each valid until the next is asked for."""
        descriptor = _opened(path)
        try:
            _check(os.fstat(descriptor), size, path)

            def fill(at: int, array: npt.NDArray[np.uint8]) -> memoryview:
                view = array.data[: size - at]
                _read_rest(descriptor, view, at, 0, path, size)
                return view

            yield from self._ahead(range(0, size, _BUFFER), fill)
            if os.pread(descriptor, 1, size):
                raise changed_size(path, f"more than {size} bytes", size)
        finally:
            os.close(descriptor)

    def _ahead(
        self, jobs: Iterable[J], fill: Callable[[J, npt.NDArray[np.uint8]], T]
    ) -> Iterator[T]:
        """What `fill` makes of each job and a buffer, in order, some of them ahead of time."""
        pending: deque[tuple[Future[T], npt.NDArray[np.uint8]]] = deque()
        try:
            for job in jobs:
                if not self._free:
                    future, array = pending.popleft()
                    yield future.result()
                    self._free.append(array)
                array = self._free.pop()
                pending.append((self._pool.submit(fill, job, array), array))
            while pending:
                future, array = pending.popleft()
                yield future.result()
                self._free.append(array)
        finally:
            # After a failure no thread may go on with a file that is being closed.
            for future, _ in pending:
                future.cancel()
            wait([future for future, _ in pending])


def _runs(ends: Ints) -> Iterator[tuple[int, int]]:
    """Rows that fit into one buffer together, with a byte to spare that shows growth."""
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        stop = int(np.searchsorted(ends, before + _BUFFER - 1, side="right"))
        stop = min(stop, first + _ROWS)
        yield first, stop
        first = stop


def _read_all(
    paths: Sequence[str], sizes: Sequence[int], starts: Sequence[int], view: memoryview
) -> None:
    for path, size, start in zip(paths, sizes, starts, strict=True):
        descriptor = _opened(path)
        try:
            # One byte more than expected is asked for: it shows a file that has grown. What is
            # behind a payload is filled later.
            try:
                count = os.readv(descriptor, (view[start : start + size + 1],))
            except OSError:
                count = -1
            if count != size or not size:
                _check(os.fstat(descriptor), size, path)
                part = view[start : start + size + 1]
                _read_rest(descriptor, part, 0, max(count, 0), path, size)
        finally:
            os.close(descriptor)


def _read_rest(descriptor: int, view: memoryview, at: int, done: int, path: str, size: int) -> None:
    """Fill `view` with what lies from `at` on in a file that is to end at `size`."""
    end = min(len(view), size - at)
    while done < len(view):
        try:
            count = os.preadv(descriptor, (view[done:],), at + done)
        except OSError as error:
            refuse_source(error, "source cannot be read", path)
        done += count
        if not count or done > end:
            break
    if done != end:
        found = f"{at + done} bytes" if done < end else f"more than {size} bytes"
        raise changed_size(path, found, size)


def _opened(path: str) -> int:
    try:
        return os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        refuse_source(error, "source cannot be opened", path)


def refuse_source(error: OSError | ValueError, what: str, path: str) -> NoReturn:
    """Raise the error of ours for a local source that cannot be used."""
    found = getattr(error, "strerror", None) or str(error)
    with translated(_SOURCE, what, where=shown(path, 200), found=found):
        raise error from None
    raise AssertionError  # pragma: no cover - the table names both kinds


def _check(status: os.stat_result, size: int, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _irregular(status, path)
    if status.st_size != size:
        raise changed_size(path, f"{status.st_size} bytes", size)


def _irregular(status: os.stat_result, path: str) -> InvalidInputError:
    kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
    return InvalidInputError("source is no regular file", where=shown(path, 200), found=kind)


def changed_size(path: str, found: str, expected: int) -> InvalidInputError:
    """The error for a source that is no longer as long as it was when it was measured."""
    return InvalidInputError(
        "source changed its size while it was copied",
        where=shown(path, 200),
        found=found,
        expected=f"{expected} bytes",
        hint="leave the sources alone while they are packed",
    )
