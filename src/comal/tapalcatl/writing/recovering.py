"""After a crash: back to the last end record that holds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from comal.errors import ComalError, InvalidInputError, NotThisFormatError, shown
from comal.plan import ByteRange, Piece, Tail, Wanted, run
from comal.storage.targetlock import locked, write_errors
from comal.storage.targets import local_path
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire

_MARK: Final = zip_wire.END_SIGNATURE.to_bytes(4, "little")
_LOCAL: Final = zip_wire.LOCAL_SIGNATURE.to_bytes(4, "little")
_CHUNK: Final = 4 << 20


def recover(path: str | os.PathLike[str]) -> int:
    """Cut what a crash has left behind the last valid end of an archive.

    An update appends entries, a directory and an end record. Killed on the way, it leaves bytes
    that no end record leads to. The archive is as it was before once they are gone.

    Parameters
    ----------
    path
        A local archive.

    Returns
    -------
    int
        Bytes that were cut off; 0 for an archive that is whole.

    Raises
    ------
    NotThisFormatError
        There is no valid end record at all.
    ConflictError
        Somebody else is writing the archive.
    """
    place = local_path(path).resolve()
    if place.is_dir():
        raise InvalidInputError("a folder is no archive", where=shown(str(place), 200))
    with locked(place):
        with write_errors("cannot open", place):
            descriptor = os.open(place, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            size = os.fstat(descriptor).st_size
            stop = valid_end(descriptor, size, shown(str(place), 200))
            if stop < size:
                with write_errors("cannot write", place):
                    os.ftruncate(descriptor, stop)
                    os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return size - stop


def valid_end(descriptor: int, size: int, where: str) -> int:
    """Where the last archive that holds ends in an open file of `size` bytes.

    Raises
    ------
    NotThisFormatError
        Nowhere.
    """
    for stop in _ends(descriptor, size):
        if _holds(descriptor, stop):
            return stop
    raise NotThisFormatError(
        "no valid end of an archive", where=where, expected="a ZIP archive that was appended to"
    )


def _ends(descriptor: int, size: int) -> Iterator[int]:
    """Where end records with their comments may end, the last first."""
    stop = size
    while stop > 0:
        start = max(0, stop - _CHUNK)
        # A record may begin before the boundary of two chunks.
        data = os.pread(descriptor, stop - start + len(_MARK) - 1, start)
        at = data.rfind(_MARK)
        while at >= 0:
            record = os.pread(descriptor, zip_wire.END_SIZE, start + at)
            if len(record) == zip_wire.END_SIZE:
                end = start + at + zip_wire.END_SIZE + int.from_bytes(record[20:22], "little")
                if end <= size:
                    yield end
            at = data.rfind(_MARK, 0, at + 3)
        stop = start


def _holds(descriptor: int, stop: int) -> bool:
    """Whether the first `stop` bytes are an archive whose parts are all where they should be."""

    def fetch(wanted: Sequence[Wanted]) -> list[Piece]:
        return [_piece(descriptor, want, stop) for want in wanted]

    try:
        directory = run(directory_plan(), fetch)
    except ComalError:
        return False
    return not directory.problems and _heads(descriptor, directory)


def _heads(descriptor: int, directory: Directory) -> bool:
    """Whether a local header stands in front of each entry."""
    if len(directory) == 0:
        # Nothing else tells an empty archive from the end of one that lies in an entry.
        return directory.start == directory.end_offset
    starts = directory.header_offset.tolist()
    return all(os.pread(descriptor, len(_LOCAL), start) == _LOCAL for start in starts)


def _piece(descriptor: int, want: Wanted, total: int) -> Piece:
    if isinstance(want, ByteRange):
        offset, size = want.offset, want.size
    else:
        assert isinstance(want, Tail)
        size = min(want.size, total)
        offset = total - size
    size = max(0, min(size, total - offset))
    return Piece(os.pread(descriptor, size, offset), offset, total)


def is_recoverable(path: Path) -> bool:
    """Whether there is a valid end record that is not the end of the file."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        return valid_end(descriptor, size, str(path)) < size
    except NotThisFormatError:
        return False
    finally:
        os.close(descriptor)
