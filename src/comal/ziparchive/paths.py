"""Many local files into an archive, close to the speed of the system calls that it takes.

Other threads read files into large buffers, each behind room for its header, and compute their
checksums; this one makes the headers of a full buffer at once and writes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import InvalidInputError, shown, translated
from comal.storage import manyfiles
from comal.ziparchive import wire
from comal.ziparchive.entries import Entries
from comal.ziparchive.headermaking import (
    DISK,
    entry_records,
    flags_of,
    value_bytes,
    write_all,
)

_Block = manyfiles.Block[npt.NDArray[np.uint32]]


class PathCopier:
    """Copies files behind the `position` of an archive; see `ZipWriter.add_paths`."""

    def __init__(
        self,
        file: BinaryIO,
        entries: Entries,
        position: int,
        shift: int,
        *,
        dos_date: int,
        dos_time: int,
    ) -> None:
        self.position = position
        """Offset in the archive behind everything that was written."""
        self._file = file
        self._entries = entries
        self._shift = shift
        self._dos_date, self._dos_time = dos_date, dos_time
        self._start = self._crc = 0

    def copy(
        self,
        names: Any,
        paths: Sequence[str],
        sizes: npt.NDArray[np.int64] | None,
        *,
        regular: bool = False,
    ) -> tuple[wire.Int64s, wire.Int64s]:
        """Copy all `paths` under `names` (a binary array); offsets and sizes of the payloads."""
        name_sizes = pc.binary_length(names).to_numpy().astype(np.int64)
        gaps = wire.LOCAL_SIZE + name_sizes
        self._offsets = np.empty(len(paths), np.int64)
        self._sizes = np.empty(len(paths), np.int64)
        for piece in manyfiles.read_ahead(paths, gaps, _checksums, sizes, regular=regular):
            if isinstance(piece, manyfiles.Part):
                self._write_part(piece, names[piece.row].as_py(), paths[piece.row])
            else:
                rows = slice(piece.first, piece.first + len(piece.starts))
                self._write_block(piece, names[rows], name_sizes[rows])
                self._offsets[rows] = self.position - len(piece.array) + piece.starts
                self._sizes[rows] = piece.sizes
        return self._offsets, self._sizes

    def _write_block(self, block: _Block, names: Any, name_sizes: wire.Int64s) -> None:
        sizes = block.sizes
        flags = flags_of(names)
        headers = wire.local_headers(
            name_sizes=name_sizes,
            extra_sizes=0,
            crcs=block.made,
            sizes=sizes,
            flags=flags,
            count=len(sizes),
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        starts = block.starts - name_sizes - wire.LOCAL_SIZE
        name_bytes = value_bytes(names)
        _scatter(block.array, starts, headers.view(np.uint8).reshape(-1, wire.LOCAL_SIZE))
        _scatter_names(block.array, starts + wire.LOCAL_SIZE, name_sizes, name_bytes)
        write_all(self._file, block.array.data)
        self._entries.extend(
            entry_records(self.position + starts, sizes, block.made, flags, name_sizes), name_bytes
        )
        self.position += len(block.array)

    def _write_part(self, part: manyfiles.Part, name: bytes, path: str) -> None:
        """Some of a file that fills a buffer alone; its checksum is patched in at its end."""
        size = part.size
        if part.start == 0:
            if not self._file.seekable():
                raise InvalidInputError(
                    "large files need a target that can seek", where=shown(path, 200)
                )
            self._begin(name, size)
        self._crc = crc32(part.view, self._crc)
        write_all(self._file, part.view)
        self.position += len(part.view)
        if part.start + len(part.view) < size:
            return
        self._offsets[part.row], self._sizes[part.row] = self.position - size, size
        self._entries.append(
            name, offset=self._start, csize=size, size=size, crc=self._crc, method=wire.STORE
        )
        self._patch(self._start + 14, self._crc.to_bytes(4, "little"))

    def _begin(self, name: bytes, size: int) -> None:
        self._start, self._crc = self.position, 0
        header = wire.local_header(
            name,
            crc=0,
            csize=size,
            size=size,
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        write_all(self._file, header)
        self.position += len(header)

    def _patch(self, offset: int, data: bytes) -> None:
        with translated(DISK, "target cannot be written"):
            self._file.seek(offset + self._shift)
            write_all(self._file, data)
            self._file.seek(self.position + self._shift)


def _checksums(view: memoryview, starts: list[int], sizes: list[int]) -> npt.NDArray[np.uint32]:
    found = (crc32(view[start : start + size]) for start, size in zip(starts, sizes, strict=True))
    return np.fromiter(found, np.uint32, len(starts))


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
