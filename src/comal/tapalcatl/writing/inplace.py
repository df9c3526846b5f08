"""An archive while it is changed: new bytes behind its end, in a copy that then takes its place.

Old bytes stay where they are, so that a remote reader with the old directory is right, too, as long
as it reads them under a name that leads to the new version by now.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.plan import ByteRange, Piece, Tail, Wanted, run
from comal.storage.replacing import Change, NextVersion
from comal.storage.targetlock import write_errors
from comal.tapalcatl.wire import TileNames, parse_names
from comal.ziparchive import Details, StoredDirectory, ZipWriter, stored_directory_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headermaking import write_all


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
    """An archive that is open for changes, one or several behind each other."""

    def __init__(self, path: Path, version: NextVersion) -> None:
        self.path = path
        self._version = version
        self._stored: StoredDirectory | None = None

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

    def tiles(self, prefix: bytes = b"") -> TileNames:
        """The entries that are tiles, or those of a variant."""
        return parse_names(self.stored.directory.raw_names, prefix)

    def commit(
        self,
        dropped: npt.NDArray[np.bool_],
        entries: NewEntries | None = None,
        comment: bytes | None = None,
    ) -> None:
        """Append entries and a directory without the rows of `dropped`."""
        stored = self.stored
        file = self._version.file()
        writer = ZipWriter(file, base_offset=file.tell())
        if entries is not None:
            writer.add_many(entries.names, entries.payloads, entries.details)
        writer.close(
            stored.end.comment if comment is None else comment,
            kept=stored.kept(~dropped),
            kept_count=len(dropped) - int(np.count_nonzero(dropped)),
        )
        self._stored = None

    def commit_comment(self, comment: bytes) -> None:
        """Give the archive another comment."""
        end, file = self.stored.end, self._version.file()
        with write_errors("cannot write", self.path):
            os.ftruncate(file.fileno(), end.stop)
            file.seek(end.stop)
            records = zip_wire.end_records(
                count=end.count, size=end.size, offset=end.start, comment=comment
            )
            write_all(file, records)
        self._stored = None

    def _fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        descriptor = self._version.fileno()
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
def editing(path: Path, change: Change) -> Iterator[ArchiveEdit]:
    """An archive to be changed as a part of `change`.

    Raises
    ------
    ConflictError
        Somebody else is writing it.
    NotThisFormatError
        No archive, or one that an older version has left without a valid end: `recover` mends it.
    """
    with change.edit(path) as version:
        yield ArchiveEdit(path, version)
