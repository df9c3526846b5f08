"""Many local files into an archive, close to the speed of the system calls that it takes.

Other threads read files into large buffers, each behind room for its header, and compute their
checksums; this one makes the headers of a full buffer at once and writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from isal.isal_zlib import crc32

from comal.errors import InvalidInputError, shown, translated
from comal.storage import manyfiles
from comal.ziparchive import wire
from comal.ziparchive.blocks import (
    DISK,
    entry_records,
    flags_of,
    paddings,
    value_bytes,
    write_all,
)
from comal.ziparchive.entries import Entries

_Block = manyfiles.Block[npt.NDArray[np.uint32]]


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
        """Offset in the archive behind everything that was written."""
        self._file = file
        self._entries = entries
        self._shift = shift
        self._alignment = alignment
        self._dos_date, self._dos_time = dos_date, dos_time

    def copy(
        self, names: Any, paths: Sequence[str], sizes: npt.NDArray[np.int64] | None
    ) -> tuple[wire.Int64s, wire.Int64s]:
        """Copy all `paths` under `names` (a binary array); offsets and sizes of the payloads."""
        sizes = manyfiles.file_sizes(paths) if sizes is None else sizes
        offsets = np.empty(len(paths), np.int64)
        with manyfiles.FileReader() as reader:
            for first, stop in _stretches(sizes):
                rows = slice(first, stop)
                if stop - first == 1 and sizes[first] > manyfiles.LARGE:
                    name = names[first].as_py()
                    offsets[first] = self._copy_large(reader, name, paths[first], int(sizes[first]))
                else:
                    offsets[rows] = self._copy_small(reader, names[rows], paths[rows], sizes[rows])
        return offsets, sizes

    def _copy_small(
        self, reader: manyfiles.FileReader, names: Any, paths: Sequence[str], sizes: wire.Int64s
    ) -> wire.Int64s:
        name_sizes = pc.binary_length(names).to_numpy().astype(np.int64)
        pads = paddings(self.position, name_sizes, sizes, self._alignment)
        gaps = wire.LOCAL_SIZE + name_sizes + pads
        offsets = self.position + np.cumsum(gaps + sizes) - sizes
        for block in reader.small(paths, sizes, gaps, _checksums):
            rows = slice(block.first, block.stop)
            self._write_block(block, names[rows], name_sizes[rows], sizes[rows], pads[rows])
        return offsets

    def _write_block(
        self,
        block: _Block,
        names: Any,
        name_sizes: wire.Int64s,
        sizes: wire.Int64s,
        pads: wire.Int64s,
    ) -> None:
        flags = flags_of(names)
        headers = wire.local_headers(
            name_sizes=name_sizes,
            extra_sizes=pads,
            crcs=block.made,
            sizes=sizes,
            flags=flags,
            count=len(sizes),
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        starts = block.starts - pads - name_sizes - wire.LOCAL_SIZE
        name_bytes = value_bytes(names)
        _scatter(block.array, starts, headers.view(np.uint8).reshape(-1, wire.LOCAL_SIZE))
        _scatter_names(block.array, starts + wire.LOCAL_SIZE, name_sizes, name_bytes)
        for row in np.flatnonzero(pads).tolist():
            end, size = int(block.starts[row]), int(pads[row])
            block.array[end - size : end] = np.frombuffer(wire.padding_field(size), np.uint8)
        write_all(self._file, block.array.data)
        self._entries.extend(
            entry_records(self.position + starts, sizes, block.made, flags, name_sizes), name_bytes
        )
        self.position += len(block.array)

    def _copy_large(self, reader: manyfiles.FileReader, name: bytes, path: str, size: int) -> int:
        """A file that fills a buffer alone: copied in parts, its checksum patched in behind."""
        if not self._file.seekable():
            raise InvalidInputError("large files need a target that can seek", where=shown(path))
        start = self.position
        zip64 = 20 if wire.needs_zip64(size, size) else 0
        header = wire.local_header(
            name,
            crc=0,
            csize=size,
            size=size,
            extra=wire.alignment_extra(start + zip64, len(name), self._alignment),
            dos_time=self._dos_time,
            dos_date=self._dos_date,
        )
        write_all(self._file, header)
        self.position += len(header)
        crc = 0
        for part in reader.large(path, size):
            crc = crc32(part, crc)
            write_all(self._file, part)
            self.position += len(part)
        self._entries.append(name, offset=start, csize=size, size=size, crc=crc, method=wire.STORE)
        self._patch(start + 14, crc.to_bytes(4, "little"))
        return self.position - size

    def _patch(self, offset: int, data: bytes) -> None:
        with translated(DISK, "target cannot be written"):
            self._file.seek(offset + self._shift)
            write_all(self._file, data)
            self._file.seek(self.position + self._shift)


def _stretches(sizes: wire.Int64s) -> Iterator[tuple[int, int]]:
    """Rows of large files one by one, and of all that lie between them together."""
    first = 0
    for row in np.flatnonzero(sizes > manyfiles.LARGE).tolist():
        if first < row:
            yield first, row
        yield row, row + 1
        first = row + 1
    if first < len(sizes):
        yield first, len(sizes)


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
