"""An archive while it is changed: new bytes behind its end, old ones untouched.

New entries and a whole new directory are made durable before the end record that leads to them is
written. A crash leaves the old end record the last valid one: `recover` cuts back to it. Readers
that hold the old directory stay right, as nothing that it leads to moves.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from comal.errors import NotThisFormatError, shown
from comal.plan import ByteRange, Piece, Tail, Wanted, run
from comal.storage.targetlock import locked, write_errors
from comal.tapalcatl.wire import TileNames, parse_names
from comal.ziparchive import Details, StoredDirectory, ZipWriter, stored_directory_plan
from comal.ziparchive import wire as zip_wire


@dataclass(frozen=True)
class NewEntries:
    """Entries to be added, as `ZipWriter.add_many` takes them."""

    names: Any
    payloads: list[bytes]
    details: Details

    def named(self) -> list[bytes]:
        """The names as bytes."""
        names = self.names if isinstance(self.names, list) else self.names.to_pylist()
        return [name.encode() for name in names]


class ArchiveEdit:
    """An archive that is open for changes, of which each is whole before the next begins."""

    def __init__(self, path: Path, file: BinaryIO, *, durable: bool = True) -> None:
        self.path = path
        self._durable = durable
        self._file = file
        self._stored: StoredDirectory | None = None
        self._whole = os.fstat(file.fileno()).st_size
        """Bytes up to which the archive is whole, whatever was written behind in vain."""

    @property
    def stored(self) -> StoredDirectory:
        """The directory as it is now."""
        if self._stored is None:
            with write_errors("cannot read", self.path):
                self._stored = run(stored_directory_plan(), self._fetch)
        return self._stored

    @property
    def comment(self) -> bytes:
        """The comment of the archive."""
        return self.stored.end.comment

    @property
    def tiles(self) -> TileNames:
        """The entries that are tiles."""
        return parse_names(self.stored.directory.raw_names)

    def commit(
        self,
        dropped: npt.NDArray[np.bool_],
        entries: NewEntries | None = None,
        comment: bytes | None = None,
    ) -> None:
        """Append entries and a directory without the rows of `dropped`, then switch to it."""
        stored = self.stored
        end = self._file.seek(0, os.SEEK_END)
        writer = ZipWriter(self._file, base_offset=end)
        if entries is not None:
            writer.add_many(entries.names, entries.payloads, entries.details)
        with write_errors("cannot write", self.path):
            writer.close(
                stored.end.comment if comment is None else comment,
                kept=stored.kept(~dropped),
                kept_count=len(dropped) - int(np.count_nonzero(dropped)),
                before_end=self._before_end,
            )
            self._whole = writer.position
            self._sync()

    def undo(self) -> None:
        """Cut off what was written in vain."""
        if self._whole >= 0:
            with suppress(OSError):
                os.ftruncate(self._file.fileno(), self._whole)

    def commit_comment(self, comment: bytes) -> bool:
        """Write another comment; whether that took no new directory.

        A comment that is not longer takes the place of the old one, filled up with spaces, which
        JSON allows. A longer one would have to grow over the end of the file while its length is
        still the old one: for that a new directory is appended.
        """
        old, total = self.comment, self.stored.end.total
        room = len(old) if total == self._end() else -1
        if len(comment) > room:
            self.commit(np.zeros(len(self.stored), np.bool_), comment=comment)
            return False
        if comment.rstrip() != old.rstrip():
            with write_errors("cannot write", self.path):
                self._switch()
                _write_all(self._file.fileno(), comment.ljust(room), total - room)
                os.fsync(self._file.fileno())
                self._whole = total
        return True

    def _sync(self) -> None:
        if self._durable:
            os.fsync(self._file.fileno())

    def _before_end(self) -> None:
        self._sync()
        self._switch()

    def _switch(self) -> None:
        """What is written next may count, whatever fails afterwards: nothing is cut off then."""
        self._whole = -1
        self._stored = None

    def _fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        descriptor = self._file.fileno()
        total = os.fstat(descriptor).st_size
        pieces = []
        for want in wanted:
            if isinstance(want, ByteRange):
                offset, size = want.offset, want.size
            else:
                assert isinstance(want, Tail)
                offset, size = max(0, total - want.size), min(want.size, total)
            pieces.append(Piece(_read_all(descriptor, size, offset), offset, total))
        return pieces

    def _end(self) -> int:
        """Where the end record with its comment ends; the file may go on behind it."""
        after = self.stored.end.position
        data = os.pread(self._file.fileno(), zip_wire.END64_SIZE + zip_wire.LOCATOR64_SIZE, after)
        if data.startswith(zip_wire.END64_SIGNATURE.to_bytes(4, "little")):
            after += zip_wire.END64_SIZE + zip_wire.LOCATOR64_SIZE
        return after + zip_wire.END_SIZE + len(self.comment)


def _write_all(descriptor: int, data: bytes, at: int) -> None:
    """Write where a system call may take less than it is given."""
    while data:
        count = os.pwrite(descriptor, data, at)
        data, at = data[count:], at + count


def _read_all(descriptor: int, size: int, at: int) -> bytes:
    """Read where a system call may give less than it is asked for."""
    data = os.pread(descriptor, size, at)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), at + len(data))
        if not more:
            raise OSError(errno.EIO, "the file ended while it was read")
        data += more
    return data


@contextmanager
def editing(path: Path, *, durable: bool = True) -> Iterator[ArchiveEdit]:
    """An archive to be changed, locked; what was written in vain is cut off again.

    Unless it is `durable`, the system decides when bytes reach the disk.

    Raises
    ------
    ConflictError
        Somebody else is writing it.
    NotThisFormatError
        No archive, or one that a crash has left without a valid end: `recover` mends that.
    """
    with locked(path):
        with write_errors("cannot open for writing", path):
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            file = os.fdopen(os.open(path, flags), "r+b", buffering=0)
        try:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise NotThisFormatError("not a regular file", where=shown(path.name))
            edit = ArchiveEdit(path, file, durable=durable)
            try:
                yield edit
            except BaseException:  # also on Ctrl-C: nothing half done may stay
                edit.undo()
                raise
        finally:
            with suppress(OSError):
                file.close()
