"""Archives after changes: their dead space, the archive without it, and what a kill has left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import ComalError, InvalidMetadataError, NotThisFormatError, shown
from comal.plan import run
from comal.progress import Progress, silent
from comal.storage import Source, open_source
from comal.storage.replacing import changing_file, settle
from comal.storage.targetlock import locked, write_errors
from comal.storage.targets import local_path
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.reading.tile import other_tile
from comal.tapalcatl.spec import META
from comal.tapalcatl.wire import TileNames, order_of, parse_names
from comal.tapalcatl.writing.targets import (
    Target,
    compacting,
    journal_of,
    pieces_of,
    refuse_unfinished,
    target_at,
)
from comal.ziparchive import Details, Directory, ZipWriter, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headermaking import block_bounds
from comal.ziparchive.local import read_payloads

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


Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of archives by what they are for."""

    archives: int = 0
    entries: int = 0
    size: int = 0
    """Of the files."""
    live: int = 0
    """Of entries that directories lead to, local headers included."""
    directory: int = 0
    """Of directories, end records and comments."""

    @property
    def dead(self) -> int:
        """Bytes that nothing leads to."""
        return max(0, self.size - self.live - self.directory)

    def plus(self, other: Space) -> Space:
        """Both together."""
        return Space(*map(add, astuple(self), astuple(other)))

    def to_dict(self) -> dict[str, int]:
        """The report as plain data."""
        return {**asdict(self), "dead": self.dead}


def space(
    target: Location,
    *,
    generation1: Generation1 | None = None,
    progress: Progress | None = None,
) -> Space:
    """How much of an archive or a tileset is dead: left behind by updates.

    Local headers of every archive are read.

    Parameters
    ----------
    target
        A local archive, or a tileset by its folder or document.
    generation1
        Keys of a tileset of Tapalcatl 1, as for `put`.
    progress
        Told the archives done.
    """
    paths = target_at(target, generation1).existing()
    telling = progress or silent
    found = Space()
    for number, path in enumerate(paths):
        with open_source(path) as source:
            directory = run(directory_plan(same_names=False), source.fetch)
            found = found.plus(_space(directory, source))
        telling(number + 1, len(paths), "looking at archives")
    return found


def compact(
    target: Location,
    *,
    force: bool = False,
    generation1: Generation1 | None = None,
    progress: Progress | None = None,
) -> int:
    """Free what updates have left, and sort entries by zoom and Morton code.

    Archives are written anew beside their place, payloads as they are stored, and replaced one
    after the other: the tiles are the same in between, and room for the largest one is enough.
    What has no dead bytes and is in order is left alone.

    Parameters
    ----------
    target
        A local archive, or a tileset by its folder or document.
    force
        Write all archives anew.
    generation1
        Keys of a tileset of Tapalcatl 1, as for `put`.
    progress
        Told the archives done.

    Returns
    -------
    int
        Bytes that were freed.

    Raises
    ------
    ConflictError
        Somebody else is writing the tileset or one of the archives.
    """
    telling = progress or silent
    freed = 0
    with compacting(target, generation1) as place:
        paths = place.existing()
        for number, path in enumerate(paths):
            freed += _compact(path, place, force=force)
            telling(number + 1, len(paths), "compacting archives")
    return freed


def _space(directory: Directory, source: Source) -> Space:
    offsets, _ = run(local_plan(directory), source.fetch)
    lengths = (
        np.where(offsets >= 0, offsets, directory.payload_offsets)
        - directory.header_offset
        + directory.csize
    )
    # Names on one local header share its bytes.
    _, first = np.unique(directory.header_offset, return_index=True)
    described = (directory.flags[first] & zip_wire.FLAG_DESCRIPTOR) > 0
    live = int(lengths[first].sum()) + 16 * int(described.sum())
    end = directory.total - directory.start
    return Space(1, len(directory), directory.total, live, end)


def _compact(path: Path, place: Target, *, force: bool) -> int:
    with changing_file(path) as change, open_source(path) as source:
        if place.single is not None:
            refuse_unfinished(path)
        directory = run(directory_plan(same_names=False), source.fetch)
        order = order_of_entries(directory)
        offsets = directory.header_offset[order]
        tidy = len(order) == len(directory) and bool((offsets[1:] > offsets[:-1]).all())
        if tidy and not force and not _space(directory, source).dead:
            return 0
        if not len(order) and place.single is None:
            path.unlink()
            with suppress(OSError):  # there are others in the folder
                path.parent.rmdir()
            return directory.total
        with change.write(path) as file:
            writer = ZipWriter(file)
            for first, stop in block_bounds(directory.csize[order]):
                names, payloads, details = _copied(directory, order[first:stop], source)
                writer.add_many(names, payloads, details)
            writer.close(directory.comment)
            return directory.total - writer.position


def order_of_entries(directory: Directory) -> npt.NDArray[np.int64]:
    """Rows of a directory by zoom, Morton code and suffix; entries that are no tiles come last.

    Of several with one name the last is kept.
    """
    names = parse_names(directory.raw_names)
    codes = order_of(names.z, names.x, names.y)
    tiles = names.rows[np.lexsort((_ranks(names), codes))]
    others = np.setdiff1d(np.arange(len(directory)), names.rows)
    order = np.concatenate([tiles, others])
    if directory.unique:
        return order
    last = np.zeros(len(directory), np.bool_)
    last[np.unique(directory.find_many(directory.names))] = True
    kept: npt.NDArray[np.int64] = order[last[order]]
    return kept


def _ranks(names: TileNames) -> npt.NDArray[np.int64]:
    """Suffixes as their places among sorted ones, so that the order does not depend on history."""
    by_name = sorted(names.suffixes)
    table = np.array([by_name.index(suffix) for suffix in names.suffixes], np.int64)
    ranks: npt.NDArray[np.int64] = table[names.suffix] if len(table) else np.zeros(0, np.int64)
    return ranks


def _copied(directory: Directory, rows: Any, source: Source) -> tuple[Any, list[bytes], Details]:
    """Entries exactly as they are stored."""
    payloads = _payloads(directory, rows, source)
    take = pa.array(rows)
    extras = None if directory.extras is None else directory.extras.take(take)
    comments = None if directory.comments is None else directory.comments.take(take)
    details = Details(
        methods=directory.method[rows],
        sizes=directory.size[rows],
        crcs=directory.crc[rows],
        extras=_without_zip64(extras),
        comments=comments,
        stamps=np.column_stack([directory.time[rows], directory.date[rows]]),
    )
    return directory.raw_names.take(take), payloads, details


def _refuse_other(directory: Directory, row: int, data: bytes, at: int, where: str) -> None:
    """Refuse bytes that readers refuse: written anew they would pass for those of the tile."""
    name = directory.raw_names[row].as_py()
    tile = b"/".join(name.split(b"/")[-3:])
    local = other_tile(data, at, tile)
    shared = int((directory.header_offset == directory.header_offset[row]).sum()) > 1
    if local is not None and not shared:
        raise InvalidMetadataError(
            "local header is that of another tile",
            where=where,
            found=shown(local.decode(errors="replace")),
            expected=name.decode(errors="replace"),
            hint="put or delete the tile first",
        )


def _payloads(directory: Directory, rows: Any, source: Source) -> list[bytes]:
    encrypted = directory.flags[rows] & zip_wire.FLAG_ENCRYPTED
    if encrypted.any():
        raise InvalidMetadataError("entry is encrypted", where=shown(source.href, 200))
    where = shown(source.href, 200)
    starts, sizes = directory.header_offset[rows], directory.csize[rows]
    names = directory.raw_names.take(pa.array(rows)).to_pylist()

    def check(row: int, data: bytes, at: int) -> None:
        if not data.startswith(names[row], at + zip_wire.LOCAL_SIZE):
            _refuse_other(directory, int(rows[row]), data, at, where)

    spans = (starts, directory.payload_offsets[rows] + sizes)
    return read_payloads(source.fetch, spans, sizes, check, where)


def _without_zip64(extras: Any) -> Any:
    """Extra fields without the one that is made anew where it is needed."""
    if extras is None:
        return None
    mark = zip_wire.ZIP64_ID.to_bytes(2, "little")
    values = extras.to_pylist()
    if not any(mark in value for value in values):
        return extras
    return pa.array([_fields_without(value, zip_wire.ZIP64_ID) for value in values], pa.binary())


def _fields_without(extra: bytes, unwanted: int) -> bytes:
    kept, at = b"", 0
    while at + 4 <= len(extra):
        kind = int.from_bytes(extra[at : at + 2], "little")
        size = int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind != unwanted:
            kept += extra[at : at + 4 + size]
        at += 4 + size
    return kept
