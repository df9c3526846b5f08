"""Many local files, read at nearly the speed of the system calls needed.

A thread opens and reads files into large buffers, each payload behind the gap that the caller wants
before it, while the caller writes the previous buffer. One thread only: small files cost short
system calls, and threads that make these wait for each other.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, InvalidInputError, of_system, shown

T = TypeVar("T")
Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BUFFER = 2 << 20
_BUFFERS = 3
_SMALL = 64 << 10
"""Bytes that are read of a regular file before its size is determined."""
_ROWS = 16_384
# O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on regular files.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@dataclass(frozen=True, slots=True)
class Block(Generic[T]):
    """Files ``first .. first + n`` in one buffer, valid until the next piece is requested."""

    first: int
    array: Bytes
    """Gap and payload of each file in turn, shape (bytes,). The bytes in gaps are undefined."""
    starts: Ints
    """Where in `array` each payload begins, shape (n,)."""
    sizes: Ints
    """Length of each payload, shape (n,)."""
    made: T
    """What `work` made of the payloads."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a file that does not fit in a buffer, valid like a `Block`."""

    row: int
    size: int
    """Size of the whole file."""
    start: int
    """Offset of these bytes in the file; the next parts continue it."""
    view: memoryview


Work = Callable[[memoryview, list[int], list[int]], T]
"""Takes a buffer, and starts and sizes of its payloads; the result is `Block.made`."""


def read_ahead(
    paths: Sequence[str],
    gaps: Ints,
    work: Work[T],
    expected: Ints | None = None,
    *,
    regular: bool = False,
) -> Iterator[Block[T] | Part]:
    """Read regular files in order, ahead of the caller; links are followed.

    Parameters
    ----------
    gaps
        Bytes to leave free before each payload, shape (n,); at most 128 KiB.
    work
        Looks at the payloads of a buffer while they are fresh; runs in the thread.
    expected
        Size of each file, if known before; another size raises `InvalidInputError`.
    regular
        All are known to be regular files from a listing of their folder, so only their sizes
        are read.
    """
    sizes = None if expected is None else expected.tolist()
    reader = _Reader(paths, gaps.tolist(), work, sizes, regular=regular)
    with ThreadPoolExecutor(1, "comal-read-ahead") as pool:
        done = pool.submit(reader.run)
        try:
            while (piece := reader.full.get()) is not None:
                yield piece[0]
                reader.free.put(piece[1])
            done.result()
        finally:
            reader.free.put(None)


class _Reader(Generic[T]):
    """The thread's side of `read_ahead`."""

    def __init__(
        self,
        paths: Sequence[str],
        gaps: list[int],
        work: Work[T],
        expected: list[int] | None,
        *,
        regular: bool,
    ) -> None:
        self.full: SimpleQueue[tuple[Block[T] | Part, Bytes] | None] = SimpleQueue()
        self.free: SimpleQueue[Bytes | None] = SimpleQueue()
        """None: the caller has stopped."""
        self._paths, self._gaps, self._work, self._expected = paths, gaps, work, expected
        self._regular = regular
        for _ in range(_BUFFERS):  # memory that is never used costs nothing
            self.free.put(np.empty(_BUFFER, np.uint8))

    def run(self) -> None:
        """Read everything, as buffers become free."""
        row = 0
        try:
            while row < len(self._paths) and (array := self._buffer()) is not None:
                found = self._fill(row, array)
                if isinstance(found, int):
                    self._read_parts(row, found, array)
                    row += 1
                else:
                    self.full.put((found, array))
                    row += len(found.starts)
        finally:
            self.full.put(None)

    def _fill(self, first: int, array: Bytes) -> Block[T] | int:
        """Read as many files from `first` on as fit; the size of the first if it does not fit."""
        view = array.data
        starts: list[int] = []
        sizes: list[int] = []
        used = 0
        whole = self._regular and self._expected is None
        # Beside system calls, this loop is the cost of small files.
        for row in range(first, min(first + _ROWS, len(self._paths))):
            path = self._paths[row]
            start = used + self._gaps[row]
            descriptor = _open(path)
            try:
                if whole and start < _BUFFER:
                    # A file that ends within `room` needs no size.
                    room = view[start : start + _SMALL]
                    size = read_to_end(descriptor, room, path)
                    if size < len(room):
                        used = start + size
                        starts.append(start)
                        sizes.append(size)
                        continue
                size = self._size(descriptor, path)
                if self._expected is not None and size != self._expected[row]:
                    raise changed_size(path, f"{size} bytes", self._expected[row])
                used = start + size
                if used >= _BUFFER:
                    break
                # One byte more than its size is requested, to detect a file that has grown.
                read_exactly(descriptor, view[start : used + 1], size, path)
            finally:
                os.close(descriptor)
            starts.append(start)
            sizes.append(size)
        if not starts:
            return size
        made = self._work(view, starts, sizes)
        end = starts[-1] + sizes[-1]
        return Block(first, array[:end], np.array(starts), np.array(sizes), made)

    def _read_parts(self, row: int, size: int, array: Bytes) -> None:
        path = self._paths[row]
        with opened(path) as (descriptor, found):
            if found != size:
                raise changed_size(path, f"{found} bytes", size)
            following: Bytes | None = array
            for start in range(0, size, _BUFFER):
                if start:
                    following = self._buffer()
                if following is None:
                    return
                view = following.data[: size - start]
                read_exactly(descriptor, view, len(view), path)
                self.full.put((Part(row, size, start, view), following))
            read_exactly(descriptor, memoryview(bytearray(1)), 0, path)

    def _size(self, descriptor: int, path: str) -> int:
        if self._regular:
            try:
                size = os.lseek(descriptor, 0, os.SEEK_END)
                os.lseek(descriptor, 0, os.SEEK_SET)
            except OSError as error:
                raise _unusable(error, "the source cannot be read", path) from error
            return size
        return _regular_size(os.fstat(descriptor), path)

    def _buffer(self) -> Bytes | None:
        array = self.free.get()
        if array is None:
            self.free.put(None)  # for further calls
        return array


def read_to_end(descriptor: int, view: memoryview, path: str) -> int:
    """Read a regular file into `view`; returns the number of bytes."""
    try:
        # By offset, which fails on a pipe. A regular file returns less than requested only at
        # its end.
        return os.preadv(descriptor, (view,), 0)
    except OSError as error:
        raise _unusable(error, "the source cannot be read", path) from error


def read_exactly(descriptor: int, view: memoryview, size: int, path: str) -> None:
    """Read `size` bytes into `view`; if `view` is longer, the file must end there."""
    done = 0
    while done < len(view):
        left = len(view) - done
        try:
            count = os.readv(descriptor, (view[done:] if done else view,))
        except OSError as error:
            raise _unusable(error, "the source cannot be read", path) from error
        done += count
        # A regular file returns less than requested only at its end: no second read finds more.
        if not count or done > size or (done == size and count < left):
            break
    if done != size:
        found = f"{done} bytes" if done < size else f"more than {size} bytes"
        raise changed_size(path, found, size)


def file_sizes(paths: Sequence[str | None]) -> Ints:
    """Current sizes of regular files in bytes, int64, shape (n,); 0 where there is no path."""
    sizes = np.zeros(len(paths), np.int64)
    for row, path in enumerate(paths):
        if path is None:
            continue
        try:
            status = os.stat(path)  # noqa: PTH116 - a Path per row costs more than the call
        except (OSError, ValueError) as error:
            raise _unusable(error, "the source cannot be opened", path) from error
        sizes[row] = _regular_size(status, path)
    return sizes


def _open(path: str) -> int:
    try:
        return os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        raise _unusable(error, "the source cannot be opened", path) from error


@contextmanager
def opened(path: str) -> Iterator[tuple[int, int]]:
    """A descriptor of a regular file, and its size."""
    descriptor = _open(path)
    try:
        yield descriptor, _regular_size(os.fstat(descriptor), path)
    finally:
        os.close(descriptor)


def _unusable(error: OSError | ValueError, what: str, path: str) -> ComalError:
    """Our error for a local source that cannot be used."""
    where = shown(path, 200)
    if isinstance(error, OSError):
        return of_system(error, what, where)
    return InvalidInputError(what, where=where, found=str(error))  # NUL in a path


def _regular_size(status: os.stat_result, path: str) -> int:
    """The size of a regular file; anything else might block or never end."""
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
        raise InvalidInputError(
            "the source is not a regular file", where=shown(path, 200), found=kind
        )
    return status.st_size


def changed_size(path: str, found: str, expected: int) -> InvalidInputError:
    """The error for a source whose size has changed since it was determined."""
    return InvalidInputError(
        "the source changed its size while it was copied",
        where=shown(path, 200),
        found=found,
        expected=f"{expected} bytes",
        hint="do not change the sources while they are packed",
    )
