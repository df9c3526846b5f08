"""Many local files into an archive, close to the speed of the system calls that it takes.

This thread opens and reads files into a large buffer, each behind room for its header, and makes
the headers of a full buffer at once; another thread writes it meanwhile.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.ziparchive import wire
from comal.ziparchive.blocks import DISK, entry_records, flags_of, value_bytes, write_all
from comal.ziparchive.entries import Entries

_BUFFER = 8 << 20
_BUFFERS = 3
_ROWS = 16_384
# O_NONBLOCK: opening a pipe must not wait for a writer. It has no effect on regular files.
_OPEN = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_SOURCE: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectNotFoundError,
    NotADirectoryError: ObjectNotFoundError,
    PermissionError: AccessDeniedError,
    OSError: StorageError,
    ValueError: InvalidInputError,  # NUL in a path
}


class _Buffer:
    """A block being filled: room for headers, payloads in place, and what the headers will say."""

    def __init__(self) -> None:
        self.array = np.empty(_BUFFER, np.uint8)
        self.view = self.array.data
        self.written: Future[None] | None = None
        self.reset(0)

    def reset(self, first: int) -> None:
        """Start anew with row `first`."""
        self.first = first
        self.used = 0
        self.starts: list[int] = []
        self.pads: list[int] = []
        self.sizes: list[int] = []
        self.crcs: list[int] = []


class PathCopier:
    """Copies files behind the `position` of an archive; see `ZipWriter.add_paths`."""

    def __init__(
        self,
        file: BinaryIO,
        entries: Entries,
        position: int,
        shift: int,
        alignment: int,
        *,
        dos_date: int,
        dos_time: int,
    ) -> None:
        self.position = position
        """Offset in the archive behind everything that was handed to the writing thread."""
        self._file = file
        self._entries = entries
        self._shift = shift
        self._alignment = alignment
        self._dos_date, self._dos_time = dos_date, dos_time

    def copy(
        self, names: Any, paths: Sequence[str], sizes: npt.NDArray[np.int64] | None
    ) -> tuple[wire.Int64s, wire.Int64s]:
        """Copy all `paths` under `names` (a binary array); offsets and sizes of the payloads."""
        self._names = names
        self._name_sizes = pc.binary_length(names).to_numpy().astype(np.int64)
        self._offsets = np.empty(len(paths), np.int64)
        self._sizes = np.empty(len(paths), np.int64)
        self._free = [_Buffer() for _ in range(min(_BUFFERS, len(paths)))]
        name_sizes = self._name_sizes.tolist()
        expected = None if sizes is None else sizes.tolist()
        with self._writing():
            for row, path in enumerate(paths):
                self._copy_one(row, path, name_sizes[row], expected[row] if expected else None)
            if paths:
                self._flush(len(paths))
        return self._offsets, self._sizes

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with ThreadPoolExecutor(1, "comal-zip-write") as self._executor:
            yield
            for buffer in self._free:
                if buffer.written is not None:
                    buffer.written.result()

    def _copy_one(self, row: int, path: str, name_size: int, expected: int | None) -> None:
        descriptor = _open(path)
        try:
            status = os.fstat(descriptor)
            size = status.st_size
            if not stat.S_ISREG(status.st_mode) or (expected is not None and size != expected):
                raise _unusable(path, status, expected)
            buffer = self._free[0]
            start = buffer.used
            payload, pad = self._payload_start(start, name_size)
            # One byte more than expected is asked for: it tells whether the file has grown.
            if payload + size >= _BUFFER or len(buffer.starts) == _ROWS:
                self._flush(row)
                if wire.LOCAL_SIZE + name_size + self._alignment + 4 + size >= _BUFFER:
                    self._copy_large(row, path, descriptor, size)
                    return
                buffer, start = self._free[0], 0
                payload, pad = self._payload_start(start, name_size)
            view = buffer.view[payload : payload + size]
            read_exactly(descriptor, buffer.view[payload : payload + size + 1], size, path)
        finally:
            os.close(descriptor)
        if pad:
            buffer.view[payload - pad : payload] = wire.padding_field(pad)
        buffer.used = payload + size
        buffer.starts.append(start)
        buffer.pads.append(pad)
        buffer.sizes.append(size)
        buffer.crcs.append(crc32(view))

    def _payload_start(self, start: int, name_size: int) -> tuple[int, int]:
        payload = start + wire.LOCAL_SIZE + name_size
        pad = wire.alignment_size(self.position + payload, self._alignment)
        return payload + pad, pad

    def _flush(self, next_row: int) -> None:
        """Finish the current buffer, hand it to the writing thread and wait for a free one."""
        buffer = self._free[0]
        if buffer.starts:
            self._finish(buffer)
            data = buffer.view[: buffer.used]
            buffer.written = self._executor.submit(write_all, self._file, data)
            self.position += buffer.used
            self._free.append(self._free.pop(0))
            buffer = self._free[0]
            if buffer.written is not None:
                buffer.written.result()
        buffer.reset(next_row)

    def _finish(self, buffer: _Buffer) -> None:
        rows = slice(buffer.first, buffer.first + len(buffer.starts))
        names = self._names[rows]
        name_sizes = self._name_sizes[rows]
        starts = np.array(buffer.starts, np.int64)
        sizes = np.array(buffer.sizes, np.int64)
        pads = np.array(buffer.pads, np.int64)
        crcs = np.array(buffer.crcs, np.uint32)
        flags = flags_of(names)
        headers = wire.local_headers(
            name_sizes=name_sizes,
            extra_sizes=pads,
            crcs=crcs,
            sizes=sizes,
            flags=flags,
            count=len(starts),
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        name_bytes = value_bytes(names)
        _scatter(buffer.array, starts, headers.view(np.uint8).reshape(-1, wire.LOCAL_SIZE))
        _scatter_names(buffer.array, starts + wire.LOCAL_SIZE, name_sizes, name_bytes)
        self._entries.extend(
            entry_records(self.position + starts, sizes, crcs, flags, name_sizes), name_bytes
        )
        self._offsets[rows] = self.position + starts + wire.LOCAL_SIZE + name_sizes + pads
        self._sizes[rows] = sizes

    def _copy_large(self, row: int, path: str, descriptor: int, size: int) -> None:
        """A file that fills a buffer alone: copied in parts, its checksum patched in behind."""
        if not self._file.seekable():
            raise InvalidInputError("large files need a target that can seek", where=shown(path))
        name = self._names[row].as_py()
        start = self.position
        zip64 = 20 if wire.needs_zip64(size, size) else 0
        extra = wire.alignment_extra(start + zip64, len(name), self._alignment)
        header = wire.local_header(
            name,
            crc=0,
            csize=size,
            size=size,
            extra=extra,
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        self._executor.submit(write_all, self._file, header).result()
        self.position += len(header)
        crc = self._copy_parts(descriptor, size, path)
        self._offsets[row], self._sizes[row] = self.position - size, size
        self._entries.append(name, offset=start, csize=size, size=size, crc=crc, method=wire.STORE)
        self._executor.submit(self._patch, start + 14, crc.to_bytes(4, "little")).result()
        self._free[0].reset(row + 1)

    def _copy_parts(self, descriptor: int, size: int, path: str) -> int:
        crc = 0
        left = size
        while left:
            buffer = self._free[0]
            part = min(left, _BUFFER)
            read_exactly(descriptor, buffer.view[:part], part, path)
            crc = crc32(buffer.view[:part], crc)
            buffer.written = self._executor.submit(write_all, self._file, buffer.view[:part])
            self._free.append(self._free.pop(0))
            following = self._free[0].written
            if following is not None:
                following.result()
            left -= part
            self.position += part
        read_exactly(descriptor, memoryview(bytearray(1)), 0, path)
        return crc

    def _patch(self, offset: int, data: bytes) -> None:
        with translated(DISK, "target cannot be written"):
            self._file.seek(offset + self._shift)
            write_all(self._file, data)
            self._file.seek(self.position + self._shift)


def read_exactly(descriptor: int, view: memoryview, size: int, path: str) -> None:
    """Read `size` bytes into `view`; where `view` is longer, the file must end there."""
    done = 0
    while done < len(view):
        left = len(view) - done
        try:
            count = os.readv(descriptor, [view[done:] if done else view])
        except OSError as error:
            raise StorageError("source cannot be read", where=shown(path, 200)) from error
        done += count
        # A regular file gives less than was asked for at its end only: no second read finds more.
        if not count or done > size or (done == size and count < left):
            break
    if done != size:
        raise InvalidInputError(
            "source changed its size while it was copied",
            where=shown(path, 200),
            found=f"{done} bytes" if done < size else f"more than {size} bytes",
            expected=f"{size} bytes",
            hint="leave the sources alone while they are packed",
        )


def _open(path: str) -> int:
    try:
        return os.open(path, _OPEN)
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
        with translated(_SOURCE, "source cannot be opened", where=shown(path, 200), found=found):
            raise error from None
        raise  # pragma: no cover - the table names both kinds


def _unusable(path: str, status: os.stat_result, expected: int | None) -> InvalidInputError:
    if not stat.S_ISREG(status.st_mode):
        kind = "directory" if stat.S_ISDIR(status.st_mode) else "pipe, socket or device"
        return InvalidInputError("source is no regular file", where=shown(path, 200), found=kind)
    return InvalidInputError(
        "source is not as long as it was said to be",
        where=shown(path, 200),
        found=f"{status.st_size} bytes",
        expected=f"{expected} bytes",
    )


def _scatter(
    target: npt.NDArray[np.uint8], starts: wire.Int64s, records: npt.NDArray[np.uint8]
) -> None:
    target[starts[:, None] + np.arange(records.shape[1])] = records


def _scatter_names(
    target: npt.NDArray[np.uint8], starts: wire.Int64s, sizes: wire.Int64s, names: memoryview
) -> None:
    begins = np.cumsum(sizes) - sizes
    target[np.repeat(starts - begins, sizes) + np.arange(len(names))] = np.frombuffer(
        names, np.uint8
    )
