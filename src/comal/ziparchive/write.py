"""Writing a ZIP file front to back; the offset of each payload is known once it is written.

The profile is that of the existing TACO writers (stored, no data descriptors, no extra fields
except ZIP64) with fixed times, so that the same input gives the same bytes. Many local files are
read by another thread into large buffers, each file behind room for its header; this thread makes
the headers of a full buffer at once and writes it.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, BinaryIO, NamedTuple, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal.isal_zlib import crc32

from comal.errors import ComalError, InvalidInputError, StorageError, reason_of, shown
from comal.storage import manyfiles
from comal.ziparchive import wire
from comal.ziparchive.headermaking import (
    CHUNK,
    FEW,
    NO_DETAILS,
    Details,
    Entries,
    as_binary,
    block_bounds,
    checked_names,
    end_records,
    entry_records,
    flags_of,
    flat,
    heads_of,
    interleaved,
    joined,
    joined_bytes,
    local_headers,
    payload_sizes,
    value_bytes,
)

P = ParamSpec("P")
T = TypeVar("T")
_Block = manyfiles.Block[npt.NDArray[np.uint32]]


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


_LARGEST = 1 << 30
_JOINED = 2_048
"""Average bytes of a piece up to which joining pieces costs less than writing each."""


def _writing(write: Callable[P, T]) -> Callable[P, T]:
    """Translate system errors into ours; our own files raise these already."""

    @wraps(write)
    def written(*args: P.args, **named: P.kwargs) -> T:
        try:
            return write(*args, **named)
        except ComalError:
            raise
        except OSError as error:
            found = reason_of(error)
            raise StorageError("the target cannot be written", found=found) from error

    return written


class Span(NamedTuple):
    """Where a payload is: `size` stored bytes from `offset` on."""

    offset: int
    size: int


class Reserved(NamedTuple):
    """An entry whose payload is written last; see `ZipWriter.reserve`."""

    row: int
    offset: int
    size: int
    name: str


class ZipWriter:
    """Append entries to a binary file and close it with a central directory.

    Parameters
    ----------
    file
        Open for writing, positioned where the archive (or the part to be appended) begins. It
        must be seekable for `add_stream`, `fill` and large files of `add_paths`. Not closed here.
    base_offset
        Offset in the archive of the first written byte: 0 for a new archive, the old size when
        appending to one.
    dos_date, dos_time
        Modification time of every entry; 1980-01-01 00:00 unless given.

    Notes
    -----
    Memory per entry is about 40 bytes and the name. One writer belongs to one thread.
    """

    def __init__(
        self,
        file: BinaryIO,
        *,
        base_offset: int = 0,
        dos_date: int = wire.DOS_DATE_1980,
        dos_time: int = wire.DOS_TIME_MIDNIGHT,
    ) -> None:
        self._file = file
        self._position = base_offset
        self._entries = Entries(dos_time, dos_date)
        self._open_reservations: set[int] = set()
        self._dos = dos_time, dos_date
        self._closed = False

    @property
    def position(self) -> int:
        """Offset in the archive where the next local header goes."""
        return self._position

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, name: str, data: bytes | bytearray | memoryview) -> Span:
        """Add one stored entry from memory; returns the span of its payload."""
        size = memoryview(data).nbytes
        encoded, crc = encoded_name(name), crc32(data)
        header = self._entries.append(
            encoded, offset=self._position, csize=size, size=size, crc=crc
        )
        return self._write_entry(header, data)

    def add_many(self, names: Any, payloads: Any, details: Details = NO_DETAILS) -> wire.Int64s:
        """Add an entry for each row of two Arrow columns.

        Parameters
        ----------
        names
            Arrow string array (or chunked array), without nulls, or a list of str.
        payloads
            Arrow binary array of the same length, or a list of bytes.
        details
            Extra fields, comments and times of the entries; methods, sizes and checksums of
            already compressed payloads. Without it, all payloads are stored as they are.

        Returns
        -------
        numpy.ndarray
            Offset of each payload, int64, shape (n,).
        """
        listed = isinstance(payloads, list)
        if not (listed and isinstance(names, list) and len(names) <= FEW):
            names = flat(names, "names")
        payloads = payloads if listed else flat(payloads, "payloads")
        if len(names) != len(payloads):
            raise InvalidInputError(
                "the names and payloads differ in length", found=len(payloads), expected=len(names)
            )
        details.check(len(names))
        sizes = payload_sizes(payloads)
        if listed and len(names) <= FEW:
            values = names if isinstance(names, list) else names.to_pylist()
            encoded = [encoded_name(one) if isinstance(one, str) else one for one in values]
            return self._add_few(encoded, payloads, details)
        names = checked_names(names)
        if not details.plain and sizes.max(initial=0) > _LARGEST:
            raise InvalidInputError(
                "the payload is too large for a block", expected=f"at most {_LARGEST} bytes"
            )
        offsets = np.empty(len(names), np.int64)
        for start, stop in block_bounds(sizes):
            if stop - start == 1 and sizes[start] > CHUNK and details.plain:
                name = names[start].as_py().decode()
                payload = payloads[start] if listed else payloads[start].as_buffer()
                offsets[start] = self.add(name, payload).offset
                continue
            offsets[start:stop] = self._add_block(
                names.slice(start, stop - start), payloads[start:stop], details.slice(start, stop)
            )
        return offsets

    def add_stream(self, name: str, source: BinaryIO, size: int, *, where: str) -> Span:
        """Add a stored entry from a binary stream that must hold exactly `size` bytes.

        Parameters
        ----------
        name
            Path in the archive.
        source
            Read to its end; not closed.
        size
            Expected size in bytes.
        where
            The name of the source in errors.

        Raises
        ------
        InvalidInputError
            The source is shorter or longer; the archive is then unusable.
        """
        encoded = encoded_name(name)
        self._need_seekable("add_stream")
        if size <= CHUNK:  # in memory, so that its checksum is written at once
            return self.add(name, b"".join(exact_chunks(source, size, where)))
        row = self._begin(encoded, size)
        start = self._position
        crc = 0
        for chunk in exact_chunks(source, size, where):
            crc = crc32(chunk, crc)
            self._write(chunk)
        self._set_crc(row, crc)
        return Span(start, size)

    def add_paths(
        self,
        names: Any,
        paths: Sequence[str],
        sizes: npt.NDArray[np.int64] | None = None,
        *,
        regular: bool = False,
    ) -> tuple[wire.Int64s, wire.Int64s]:
        """Add many local files as stored entries.

        Files are read ahead into large buffers while the previous one is written.

        Parameters
        ----------
        names
            Arrow string array or a sequence of str.
        paths
            As many paths of regular files; links are followed.
        sizes
            Expected size of each file, if known.
        regular
            All are known to be regular files from a listing, so that this is not checked again.

        Returns
        -------
        (numpy.ndarray, numpy.ndarray)
            Offset and size of each payload, int64, shape (n,).

        Raises
        ------
        ObjectNotFoundError, AccessDeniedError
            A file is missing or cannot be read.
        InvalidInputError
            A directory, pipe or device; a file whose size differs from `sizes`, or changed while it
            was read.
        """
        listed = isinstance(names, pa.Array | pa.ChunkedArray)
        encoded = checked_names(flat(names if listed else list(names), "names"))
        if len(encoded) != len(paths):
            raise InvalidInputError(
                "the names and paths differ in length", found=len(paths), expected=len(encoded)
            )
        if sizes is not None and len(sizes) != len(paths):
            raise InvalidInputError(
                "the sizes and paths differ in length", found=len(sizes), expected=len(paths)
            )
        name_sizes = payload_sizes(encoded)
        offsets, found = np.empty(len(paths), np.int64), np.empty(len(paths), np.int64)
        gaps = wire.LOCAL_SIZE + name_sizes
        row = crc = 0
        for piece in manyfiles.read_ahead(paths, gaps, _checksums, sizes, regular=regular):
            if not isinstance(piece, manyfiles.Part):
                rows = slice(piece.first, piece.first + len(piece.starts))
                offsets[rows], found[rows] = self._position + piece.starts, piece.sizes
                self._add_files(piece, encoded[rows], name_sizes[rows])
                continue
            # A part of a file larger than a buffer; its checksum is written after its last part.
            if piece.start == 0:
                if not self._file.seekable():
                    raise InvalidInputError(
                        "large files need a target that can seek",
                        where=shown(paths[piece.row], 200),
                    )
                row = self._begin(encoded[piece.row].as_py(), piece.size)
                offsets[piece.row], found[piece.row], crc = self._position, piece.size, 0
            crc = crc32(piece.view, crc)
            self._write(piece.view)
            if piece.start + len(piece.view) == piece.size:
                self._set_crc(row, crc)
        return offsets, found

    def reserve(self, name: str, size: int) -> Reserved:
        """Add a stored entry of `size` zero bytes whose payload is written later, by `fill`.

        Readers of TACO expect the payload of the first entry right after its name (TACO 2.0: byte
        41).
        """
        self._need_seekable("reserve")
        row = self._begin(encoded_name(name), size)
        self._open_reservations.add(row)
        reserved = Reserved(row, self._position, size, name)
        for chunk in zeros(size):
            self._write(chunk)
        return reserved

    def fill(self, reserved: Reserved, payload: bytes) -> None:
        """Write the payload of a reserved entry in its place and set its checksum."""
        if len(payload) != reserved.size:
            raise InvalidInputError(
                "the payload does not fit its reserved entry",
                where=shown(reserved.name),
                found=f"{len(payload)} bytes",
                expected=f"{reserved.size} bytes",
            )
        self._patch(reserved.offset, payload)
        self._set_crc(reserved.row, crc32(payload))
        self._open_reservations.discard(reserved.row)

    @_writing
    def close(self, comment: bytes = b"", *, kept: bytes = b"", kept_count: int = 0) -> None:
        """Write the central directory and the end records; the file stays open.

        Parameters
        ----------
        comment
            Comment of the archive.
        kept, kept_count
            Central headers of entries that were in the archive before, copied before those of the
            new ones, and their number. No new entry may have the name of one.

        Raises
        ------
        InvalidInputError
            Two entries have one name, a reserved entry was never filled, or the comment is longer
            than 65 535 bytes.
        """
        if self._closed:
            raise InvalidInputError("the archive is already closed")
        if len(comment) > wire.MAX_COMMENT:
            raise InvalidInputError(
                "the archive comment is too long",
                found=len(comment),
                expected="at most 65535 bytes",
            )
        if self._open_reservations:
            raise InvalidInputError(
                "reserved entries were never filled", found=len(self._open_reservations)
            )
        self._entries.refuse_duplicates()
        start = self._position
        if kept:
            self._write(kept)
        for block in self._entries.central_directory():
            self._write(block)
        self._write(
            end_records(
                count=kept_count + len(self._entries),
                size=self._position - start,
                offset=start,
                comment=comment,
            )
        )
        self._file.flush()
        self._closed = True

    def _begin(self, encoded: bytes, size: int) -> int:
        """Write a local header whose checksum is set later; returns its row."""
        row, here = len(self._entries), self._position
        self._write(self._entries.append(encoded, offset=here, csize=size, size=size, crc=0))
        return row

    def _set_crc(self, row: int, crc: int) -> None:
        self._patch(self._entries.set_crc(row, crc), crc.to_bytes(4, "little"))

    def _write_entry(self, header: bytes, payload: Any) -> Span:
        size = memoryview(payload).nbytes
        if size <= CHUNK:
            self._write(b"".join((header, payload)))
        else:
            self._write(header)
            self._write(payload)
        return Span(self._position - size, size)

    def _add_few(self, names: list[bytes], payloads: list[bytes], details: Details) -> wire.Int64s:
        extras = details.extras.to_pylist() if details.extras is not None else None
        comments = details.comments.to_pylist() if details.comments is not None else None
        offsets = np.empty(len(names), np.int64)
        for row, (name, payload) in enumerate(zip(names, payloads, strict=True)):
            header = self._entries.append(
                name,
                offset=self._position,
                csize=len(payload),
                size=len(payload) if details.sizes is None else int(details.sizes[row]),
                crc=crc32(payload) if details.crcs is None else int(details.crcs[row]),
                method=wire.STORE if details.methods is None else int(details.methods[row]),
                extra=extras[row] if extras else b"",
                comment=comments[row] if comments else b"",
                stamp=None if details.stamps is None else details.stamps[row],
            )
            offsets[row] = self._write_entry(header, payload).offset
        return offsets

    def _add_block(self, names: Any, payloads: Any, details: Details) -> wire.Int64s:
        heads = heads_of(names, payloads, details, *self._dos)
        records, columns = heads.records, heads.columns
        records["offset"] += self._position
        self._entries.extend(records, names, details)
        if isinstance(payloads, list):
            size = int(records["csize"].sum())
            self._write_pieces(interleaved(joined(columns), payloads), size)
        else:
            self._write(joined_bytes([*columns, as_binary(payloads)]))
        offsets: wire.Int64s = records["offset"] + heads.sizes
        return offsets

    def _add_files(self, block: _Block, names: Any, name_sizes: wire.Int64s) -> None:
        """Write a buffer of files, with headers in the room that was left for them."""
        starts = block.starts - name_sizes - wire.LOCAL_SIZE
        records = entry_records(starts, block.sizes, block.made, flags_of(names), name_sizes)
        headers = local_headers(records, 0, *self._dos)
        _scatter(block.array, starts, headers.view(np.uint8).reshape(-1, wire.LOCAL_SIZE))
        _scatter_names(block.array, starts + wire.LOCAL_SIZE, name_sizes, value_bytes(names))
        records["offset"] += self._position
        self._entries.extend(records, names)
        self._write(block.array)

    def _need_seekable(self, verb: str) -> None:
        if not self._file.seekable():
            raise InvalidInputError(f"{verb} needs a target that can seek")

    def _write(self, data: Any) -> None:
        write_all(self._file, data)
        self._position += memoryview(data).nbytes

    @_writing
    def _write_pieces(self, pieces: list[Any], size: int) -> None:
        """Write a block of `size` bytes of payloads, without joining pieces if they are large."""
        # A subclass may do more than write.
        if type(self._file) is io.FileIO and size >= _JOINED * len(pieces):
            self._position += write_pieces(self._file.fileno(), pieces)
        else:
            self._write(b"".join(pieces))

    @_writing
    def _patch(self, offset: int, data: bytes) -> None:
        here = self._file.tell()
        self._file.seek(here - self._position + offset)
        write_all(self._file, data)
        self._file.seek(here)


# -- names, sources and ways to a file ------------------------------------------------------------


_VECTOR = 1_024
"""Largest number of pieces in one system call."""


def encoded_name(name: str) -> bytes:
    """The bytes of an entry name; refused when not representable."""
    try:
        return name.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(
            "an entry name is not valid Unicode", found=shown(name), hint="rename the sample"
        ) from error


def exact_chunks(source: BinaryIO, size: int, where: str) -> Iterator[bytes]:
    """The bytes of a stream, which must hold exactly `size` of them."""
    left = size
    while True:
        try:
            chunk = source.read(min(left, CHUNK) if left else 1)
        except ComalError:
            raise
        except OSError as error:
            found = reason_of(error)
            raise StorageError("the source cannot be read", where=where, found=found) from error
        if not chunk and not left:
            return
        if not chunk or len(chunk) > left:
            raise InvalidInputError(
                "the source is not as long as stated",
                where=where,
                found=f"{size - left} bytes" if not chunk else f"more than {size} bytes",
                expected=f"{size} bytes",
                hint="do not change the source while it is packed",
            )
        left -= len(chunk)
        yield chunk


def zeros(size: int) -> Iterator[bytes]:
    """`size` zero bytes in chunks."""
    block = bytes(min(size, CHUNK))
    for start in range(0, size, CHUNK):
        yield block[: size - start]


@_writing
def write_all(file: BinaryIO, data: Any) -> None:
    """Write all of `data`, even to a file that accepts only part of it at a time."""
    left = memoryview(data).cast("B")
    while left:
        left = left[file.write(left) :]


def write_pieces(descriptor: int, pieces: list[Any]) -> int:
    """Write consecutive pieces without joining them; returns their total size."""
    size = at = 0
    while at < len(pieces):
        block = pieces[at : at + _VECTOR]
        wanted = sum(map(len, block))
        done = os.writev(descriptor, block)
        size += wanted
        at += len(block)
        if done < wanted:  # a system call may write less than requested
            left = memoryview(b"".join(block))[done:]
            while left:
                left = left[os.write(descriptor, left) :]
    return size
