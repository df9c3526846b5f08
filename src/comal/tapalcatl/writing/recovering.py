"""After a crash: what was left of a change, and archives that an older version has torn."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

from comal.errors import ComalError, NotThisFormatError, shown
from comal.plan import run
from comal.storage.replacing import settle
from comal.storage.targetlock import locked, write_errors
from comal.storage.targets import local_path
from comal.tapalcatl.spec import META
from comal.tapalcatl.writing.targets import (
    compacting,
    journal_of,
    pieces_of,
    refuse_unfinished,
)
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire

_MARK: Final = zip_wire.END_SIGNATURE.to_bytes(4, "little")
_LOCAL: Final = zip_wire.LOCAL_SIGNATURE.to_bytes(4, "little")
_CHUNK: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery came to."""

    finished: int = 0
    """Files of a change that were put into their places."""
    undone: int = 0
    """Hidden files of a change that was not decided, which are gone now."""
    cut: int = 0
    """Bytes behind the last valid ends of archives, which are gone now."""

    def to_dict(self) -> dict[str, int]:
        """The summary as plain data."""
        return asdict(self)


def recover(path: str | os.PathLike[str]) -> Recovered:
    """Finish or undo what a writer that was killed has left of a change.

    A change of a tileset is finished if it was decided, which it is once all is made ready. An
    archive that a version of comal before this one was appending to is cut back to its last valid
    end.

    Parameters
    ----------
    path
        A local archive, or a tileset by its folder or document.

    Raises
    ------
    NotThisFormatError
        An archive without any valid end record.
    ConflictError
        Somebody else is writing the archive or the tileset, or has changed an archive since.
    """
    place = local_path(path).resolve()
    journal = journal_of(place)
    if journal is None:
        with locked(place):
            refuse_unfinished(place)
            return Recovered(cut=_cut(place))
    finished, undone = settle(journal)
    cut = 0
    document = place if place.suffix == ".json" else place / META
    if document.is_file():
        with compacting(document) as target:
            for archive in target.existing():
                with locked(archive):
                    cut += _cut(archive)
    return Recovered(finished, undone, cut)


def _cut(path: Path) -> int:
    """Cut off what is behind the last valid end of an archive; how many bytes that were."""
    with write_errors("cannot open", path):
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        size = os.fstat(descriptor).st_size
        stop = valid_end(descriptor, size, shown(str(path), 200))
        if stop < size:
            with write_errors("cannot write", path):
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
    fetch = partial(pieces_of, descriptor, stop)
    try:
        directory = run(directory_plan(same_names=False), fetch)
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
