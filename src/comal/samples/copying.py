"""Copy payloads to the end of a file, and record sizes and first bytes on the way."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, StorageError, translated
from comal.limits import MIB
from comal.samples.payloads import (
    HEAD,
    Files,
    Heads,
    Ints,
    Payloads,
    bounds_of,
    bytes_of,
    head_rows,
    heads_in,
)
from comal.storage.manyfiles import Part, changed_size, read_ahead

BLOCK_BYTES = 16 * MIB
BLOCK_ROWS = 65_536
"""Limits of the payloads held in memory at once."""
STREAM_BYTES = 8 * MIB
"""Payloads from this size on are copied as streams."""
_DISK: dict[type[BaseException], type[ComalError]] = {OSError: StorageError}


def blocks(
    sizes: Ints, *, budget: int = BLOCK_BYTES, rows: int = BLOCK_ROWS
) -> Iterator[tuple[int, int]]:
    """Cut rows into runs of at most `budget` bytes and `rows` rows; a run has at least one."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = int(ends[start - 1]) if start else 0
        stop = int(np.searchsorted(ends, before + budget, side="right"))
        stop = max(start + 1, min(stop, start + rows))
        yield start, stop
        start = stop


class Appender:
    """Appends to a seekable binary file from `position` on."""

    def __init__(self, file: BinaryIO, position: int = 0) -> None:
        self.file = file
        self.position = position
        with translated(_DISK, "the target cannot be written"):
            file.seek(position)

    def write(self, data: Any) -> None:
        """Write all of `data`, even if the file accepts less per call."""
        left = memoryview(data).cast("B") if len(data) else memoryview(b"")
        self.position += len(left)
        with translated(_DISK, "the target cannot be written"):
            while left:
                left = left[self.file.write(left) :]

    def patch(self, offset: int, data: bytes) -> None:
        """Overwrite bytes at `offset` and return to the end."""
        with translated(_DISK, "the target cannot be written"):
            self.file.seek(offset)
            self.file.write(data)
            self.file.seek(self.position)


class Nowhere(io.BytesIO):
    """A target that discards what is written, for copies that only inspect."""

    def write(self, data: Any) -> int:
        """Discard `data`."""
        return len(data)


@dataclass(frozen=True, slots=True)
class Copied:
    """Facts about payloads, recorded while they were copied."""

    sizes: Ints
    heads: Heads
    empty: npt.NDArray[np.bool_]
    """Whether a payload has bytes and all of them are zero."""


def copy_payloads(payloads: Payloads, start: int, stop: int, out: Appender) -> Copied:
    """Append the payloads of rows ``start .. stop``; none may have changed its size."""
    rows = np.arange(start, stop)
    if isinstance(payloads, Files):
        return _append_files(payloads.paths.slice(start, stop - start).to_pylist(), out)
    sizes = payloads.take(rows).sizes()
    copied = Copied(sizes, np.zeros((len(rows), HEAD), np.uint8), np.zeros(len(rows), bool))
    for first, last in blocks(sizes):
        if last - first == 1 and sizes[first] >= STREAM_BYTES:
            _append_stream(payloads, start + first, first, copied, out)
        else:
            array = payloads.block(rows[first:last], sizes[first:last])
            _append_array(array, slice(first, last), copied, out)
    return copied


def _all_zero(data: Any) -> bool:
    """Whether a buffer holds bytes and all are zero."""
    view = memoryview(data)
    return bool(view and view[0] == 0 and not np.frombuffer(view, np.uint8).any())


def _append_array(array: Any, rows: slice, copied: Copied, out: Appender) -> None:
    bounds, data = bounds_of(array), bytes_of(array)
    out.write(data[int(bounds[0]) : int(bounds[-1])])
    heads = heads_in(array, bounds[:-1], bounds[1:])
    copied.heads[rows] = heads
    for row in np.flatnonzero((np.diff(bounds) > 0) & ~heads.any(axis=1)).tolist():
        copied.empty[rows.start + row] = _all_zero(data[int(bounds[row]) : int(bounds[row + 1])])


def _append_stream(payloads: Payloads, row: int, at: int, copied: Copied, out: Appender) -> None:
    begin, planned, empty = out.position, int(copied.sizes[at]), True
    head = b""
    with payloads.open(row) as stream:
        while chunk := stream.read(STREAM_BYTES):
            head = (head + chunk[:HEAD])[:HEAD]
            empty = empty and _all_zero(chunk)
            out.write(chunk)
    if out.position - begin != planned:
        raise changed_size(payloads.place(row), f"{out.position - begin} bytes", planned)
    copied.empty[at] = empty and planned > 0
    copied.heads[at] = head_rows([head])


def _append_files(paths: Sequence[str | None], out: Appender) -> Copied:
    """Append files, many small ones with one write; None is an empty file."""
    rows = np.array([n for n, path in enumerate(paths) if path is not None], np.int64)
    held = [path for path in paths if path is not None]
    sizes = np.zeros(len(paths), np.int64)
    heads = np.zeros((len(paths), HEAD), np.uint8)
    empty = np.zeros(len(paths), bool)
    for piece in read_ahead(held, np.zeros_like(rows), _looked):
        if isinstance(piece, Part):
            row = rows[piece.row]
            if not piece.start:
                sizes[row], empty[row] = piece.size, True
                heads[row] = head_rows([piece.view])
            empty[row] &= _all_zero(piece.view)
            out.write(piece.view)
        else:
            mine = rows[piece.first : piece.first + len(piece.starts)]
            sizes[mine] = piece.sizes
            heads[mine], empty[mine] = piece.made
            out.write(piece.array)
    return Copied(sizes, heads, empty)


def _looked(view: memoryview, starts: list[int], sizes: list[int]) -> tuple[Heads, Any]:
    """The first bytes of each file in a buffer, and whether all its bytes are zero."""
    places = list(zip(starts, sizes, strict=True))
    heads = head_rows([view[start : start + min(size, HEAD)] for start, size in places])
    empty = [_all_zero(view[start : start + size]) for start, size in places]
    return heads, np.array(empty, bool)
