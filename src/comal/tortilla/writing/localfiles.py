"""Payloads that are local files, read close to the speed of the system calls that it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.limits import MIB
from comal.storage.manyfiles import Part, file_sizes, opened, read_ahead, read_exactly
from comal.table.columns import numbers_column, valid_of
from comal.tortilla.writing.appender import Appender
from comal.tortilla.writing.payloads import HEAD, Copied, Heads, Ints, all_zero, head_rows

_BUFFER = 2 * MIB


@dataclass(frozen=True, slots=True)
class Files:
    """Local files by an Arrow array of absolute paths; null is empty."""

    paths: Any

    def __len__(self) -> int:
        return len(self.paths)

    def sizes(self) -> Ints:
        """Sizes of the files now."""
        return file_sizes(self.paths.to_pylist())

    def take(self, rows: Ints) -> Files:
        """The payloads of `rows`."""
        return Files(self.paths.take(numbers_column(rows)))

    def heads(self, rows: Ints) -> Heads:
        """The first bytes of `rows`."""
        paths = self.paths.take(numbers_column(rows)).to_pylist()
        return head_rows([b"" if path is None else file_head(path) for path in paths])

    def copy(self, start: int, stop: int, out: Appender) -> Copied:
        """Append the files, many small ones by one write."""
        paths = self.paths.slice(start, stop - start)
        held = [path for path in paths.to_pylist() if path is not None]
        rows = np.flatnonzero(valid_of(paths))
        sizes = np.zeros(len(paths), np.int64)
        heads = np.zeros((len(paths), HEAD), np.uint8)
        empty = np.zeros(len(paths), bool)
        for piece in read_ahead(held, np.zeros_like(rows), _looked):
            if isinstance(piece, Part):
                row = rows[piece.row]
                if not piece.start:
                    sizes[row], empty[row] = piece.size, True
                    heads[row] = head_rows([piece.view])
                empty[row] &= all_zero(piece.view)
                out.write(piece.view)
            else:
                mine = rows[piece.first : piece.first + len(piece.starts)]
                sizes[mine] = piece.sizes
                heads[mine], empty[mine] = piece.made
                out.write(piece.array)
        return Copied(sizes, heads, empty)

    def rasters(self, rows: Ints) -> list[Any]:
        """Their paths."""
        found: list[Any] = self.paths.take(numbers_column(rows)).to_pylist()
        return found

    def local_paths(self) -> Iterator[str]:
        """All of them."""
        yield from (path for path in self.paths.to_pylist() if path is not None)

    def place(self, row: int) -> str:
        """Its path."""
        return str(self.paths[row].as_py())


def _looked(view: memoryview, starts: list[int], sizes: list[int]) -> tuple[Heads, Any]:
    """The first bytes of the files in a buffer, and whether all of a file's bytes are zero."""
    places = list(zip(starts, sizes, strict=True))
    heads = head_rows([view[start : start + min(size, HEAD)] for start, size in places])
    empty = [all_zero(view[start : start + size]) for start, size in places]
    return heads, np.array(empty, bool)


def file_size(path: str) -> int:
    """Size of a regular file."""
    return int(file_sizes([path])[0])


def file_head(path: str) -> bytes:
    """The first bytes of a regular file."""
    with opened(path) as (descriptor, _):
        return os.pread(descriptor, HEAD, 0)


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
        with opened(path) as (descriptor, size):
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
