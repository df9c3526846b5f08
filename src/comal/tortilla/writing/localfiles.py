"""Payloads that are local files, read close to the speed of the system calls that it takes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.limits import MIB
from comal.tortilla.writing.appender import Appender
from comal.tortilla.writing.payloads import HEAD, Copied, Heads, Ints, all_zero, head_rows

# O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on regular files.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_BUFFER = 2 * MIB
_FAULTS: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
    ValueError: InvalidInputError,  # NUL in a path
}


@dataclass(frozen=True, slots=True)
class Files:
    """Local files by an Arrow array of absolute paths; null is empty."""

    paths: Any

    def __len__(self) -> int:
        return len(self.paths)

    def sizes(self) -> Ints:
        """Sizes of the files now."""
        sizes = np.zeros(len(self), np.int64)
        for row, path in enumerate(self.paths.to_pylist()):
            if path is not None:
                sizes[row] = file_size(path)
        return sizes

    def take(self, rows: Ints) -> Files:
        """The payloads of `rows`."""
        return Files(self.paths.take(pa.array(rows)))

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        paths = self.paths.take(pa.array(rows)).to_pylist()
        return head_rows([b"" if path is None else file_head(path) for path in paths])

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append the files, many small ones by one write."""
        copier = FileCopier(out)
        for path in self.paths[start:stop].to_pylist():
            copier.add(path)
        return copier.finish()

    def rasters(self, rows: Ints) -> list[Any]:
        """Their paths."""
        found: list[Any] = self.paths.take(pa.array(rows)).to_pylist()
        return found

    def local_paths(self) -> Iterator[str]:
        """All of them."""
        yield from (path for path in self.paths.to_pylist() if path is not None)

    def place(self, row: int) -> str:
        """Its path."""
        return str(self.paths[row].as_py())


def file_size(path: str) -> int:
    """Size of a regular file."""
    with translated(_FAULTS, "source cannot be read", where=shown(path, 200)):
        status = os.stat(path)  # noqa: PTH116 - a Path per row costs more than the call
    _check_regular(status, path)
    return status.st_size


def file_head(path: str) -> bytes:
    """The first bytes of a regular file."""
    with _opened(path) as (descriptor, _):
        return os.pread(descriptor, HEAD, 0)


@contextmanager
def _opened(path: str) -> Iterator[tuple[int, int]]:
    """A descriptor of a regular file, and its size."""
    with translated(_FAULTS, "source cannot be opened", where=shown(path, 200)):
        descriptor = os.open(path, _OPEN)
    try:
        status = os.fstat(descriptor)
        _check_regular(status, path)
        yield descriptor, status.st_size
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result, path: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, socket or device"
        raise InvalidInputError("source is no regular file", where=shown(path, 200), found=kind)


class FileCopier:
    """Gathers small files in a buffer that is written when it is full."""

    def __init__(self, out: Appender) -> None:
        self._out = out
        self._view = memoryview(bytearray(_BUFFER))
        self._used = 0
        self._sizes: list[int] = []
        self._heads: list[bytes] = []
        self._empty: list[bool] = []

    def add(self, path: str | None) -> None:
        """Append one file; None is an empty one."""
        if path is None:
            self._note(0, b"", empty=False)
            return
        with _opened(path) as (descriptor, size):
            # One byte more than the file is said to have is asked for: it shows growth.
            if self._used + size >= _BUFFER:
                self.flush()
            if size >= _BUFFER:
                self._add_large(descriptor, size, path)
                return
            view = self._view[self._used : self._used + size + 1]
            read_exactly(descriptor, view, size, path)
        self._used += size
        self._note(size, bytes(view[: min(size, HEAD)]), empty=all_zero(view[:size]))

    def _add_large(self, descriptor: int, size: int, path: str) -> None:
        head, empty, left = b"", True, size
        while left:
            part = self._view[: min(left, _BUFFER)]
            read_exactly(descriptor, part, len(part), path)
            head = head or bytes(part[:HEAD])
            empty = empty and all_zero(part)
            self._out.write(part)
            left -= len(part)
        read_exactly(descriptor, self._view[:1], 0, path)
        self._note(size, head, empty=empty)

    def add_bytes(self, data: Any) -> None:
        """Append a buffer."""
        view = memoryview(data).cast("B")
        if self._used + len(view) > _BUFFER:
            self.flush()
        if len(view) > _BUFFER // 8:
            self.flush()
            self._out.write(view)
        else:
            self._view[self._used : self._used + len(view)] = view
            self._used += len(view)
        self._note(len(view), bytes(view[:HEAD]), empty=all_zero(view))

    def note_streamed(self, size: int, head: bytes, *, empty: bool) -> None:
        """Take note of a payload that was written behind the buffer's back, after `flush`."""
        self._note(size, head, empty=empty)

    def _note(self, size: int, head: bytes, *, empty: bool) -> None:
        self._sizes.append(size)
        self._heads.append(head)
        self._empty.append(empty)

    def flush(self) -> None:
        """Write what is gathered."""
        self._out.write(self._view[: self._used])
        self._used = 0

    def finish(self) -> Copied:
        """Write what is left and tell what was seen."""
        self.flush()
        return Copied(
            np.array(self._sizes, np.int64), head_rows(self._heads), np.array(self._empty, bool)
        )


def read_exactly(descriptor: int, view: memoryview, size: int, path: str) -> None:
    """Read `size` bytes into `view`; where `view` is longer, the file must end there."""
    done = 0
    while done < len(view):
        with translated(_FAULTS, "source cannot be read", where=shown(path, 200)):
            count = os.readv(descriptor, [view[done:] if done else view])
        done += count
        if not count or done > size:
            break
    if done != size:
        raise changed(path, f"{done} bytes" if done < size else f"more than {size} bytes", size)


def changed(where: str, found: str, expected: int) -> InvalidInputError:
    """The error for a source that is no longer as long as it was."""
    return InvalidInputError(
        "source changed its size while it was copied",
        where=shown(where, 200),
        found=found,
        expected=f"{expected} bytes",
        hint="leave the sources alone while they are packed",
    )
