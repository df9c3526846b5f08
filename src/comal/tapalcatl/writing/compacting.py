"""Archives after changes: their dead space, the archive without it, and what a kill has left."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.plan import run
from comal.progress import Progress, silent
from comal.storage import Source, open_source
from comal.storage.replacing import changing_file, settle
from comal.storage.targets import local_path
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.reading.tile import other_tile
from comal.tapalcatl.wire import TileNames, order_of, parse_names
from comal.tapalcatl.writing.targets import (
    Target,
    compacting,
    journal_of,
    refuse_unfinished,
    target_at,
)
from comal.ziparchive import Details, Directory, ZipWriter, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headermaking import block_bounds
from comal.ziparchive.local import read_payloads


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a recovery came to."""

    finished: int = 0
    """Files of a change that were put into their places."""
    undone: int = 0
    """Hidden files of a change that was not decided, which are gone now."""

    def to_dict(self) -> dict[str, int]:
        """The summary as plain data."""
        return asdict(self)


def recover(path: str | os.PathLike[str]) -> Recovered:
    """Finish or undo what a writer that was killed has left of a change of a tileset.

    A change is finished if it was decided, which it is once all is made ready. An archive by itself
    is replaced as a whole, and leaves nothing to be recovered.

    Parameters
    ----------
    path
        A tileset by its local folder or document.

    Raises
    ------
    InvalidInputError
        It is neither.
    ConflictError
        Somebody else is writing the tileset, or has changed an archive since.
    """
    place = local_path(path).resolve()
    journal = journal_of(place)
    if journal is None:
        raise InvalidInputError(
            "no tileset", where=shown(str(place), 200), expected="its folder or document"
        )
    return Recovered(*settle(journal))


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
