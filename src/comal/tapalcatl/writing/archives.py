"""Archives written whole, a group of neighbours at a time; a task is a handful of groups.

Whoever goes on with a build that was broken off compares the checksums of every archive that is
there, so that a half one is written again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from comal.errors import ComalError
from comal.plan import run
from comal.storage import open_source
from comal.storage.targetlock import write_errors
from comal.tapalcatl.containers.base import Square, Tiles, TileSource, concatenated
from comal.tapalcatl.layout import ArchiveLayout
from comal.tapalcatl.spec import Headers, Tile
from comal.tapalcatl.wire import Int64s, order_of, tiles_in
from comal.tapalcatl.writing.entries import Prepared, names_of, prepared
from comal.tapalcatl.writing.options import EntryRules
from comal.ziparchive import ZipWriter, check_plan, directory_plan, packed_archives
from comal.ziparchive.headermaking import write_pieces

HELD = 64 << 20
"""Bytes of tiles that are held for a group; larger ones are written archive by archive."""
_BLOCK: Final = 8 << 20


class GroupTask(NamedTuple):
    """Neighbouring archives to be written."""

    squares: Sequence[Square]
    archives: Sequence[int]
    """`order_of` all of them, ascending."""
    kept: frozenset[int] = frozenset()
    """`order_of` archives that are there already."""


@dataclass(frozen=True, slots=True)
class Written:
    """What became of some archives."""

    archives: int = 0
    entries: int = 0
    size: int = 0
    """Bytes of their files."""
    formats: Mapping[str, Headers] | None = None
    suffixes: frozenset[str] = frozenset()
    cut: tuple[str, ...] = ()
    """Metadata that had no room in comments."""

    def plus(self, other: Written) -> Written:
        """Both together."""
        return Written(
            self.archives + other.archives,
            self.entries + other.entries,
            self.size + other.size,
            {**(other.formats or {}), **(self.formats or {})},
            self.suffixes | other.suffixes,
            self.cut or other.cut,
        )


@dataclass(frozen=True)
class ArchiveWriter:
    """What writes the archives of a build; it goes to the workers."""

    source: TileSource
    arrangement: ArchiveLayout
    rules: EntryRules
    formats: Mapping[str, Headers]
    tree: str

    def write(self, tasks: Sequence[GroupTask] | Written) -> Written:
        """Write some groups; of what is there already, what became of it comes back."""
        if isinstance(tasks, Written):
            return tasks
        done = Written()
        folders: set[str] = set()
        for task in tasks:
            done = done.plus(self._group(task, folders))
        return done

    def _group(self, task: GroupTask, folders: set[str]) -> Written:
        parts: list[Tiles] = []
        held = 0
        for tiles in self.source.gather(task.squares):
            parts.append(tiles)
            held += sum(map(len, tiles.payloads))
            if held > HELD:
                break
        if held > HELD:
            del parts, tiles
            return self._streamed(task)
        tiles = concatenated(parts)
        owners = order_of(*self.arrangement.archives((tiles.z, tiles.x, tiles.y)))
        if (owners != owners[0]).any():
            order = np.argsort(owners, kind="stable")
            tiles, owners = tiles.take(order), owners[order]
        bounds = [0, *(np.flatnonzero(np.diff(owners)) + 1).tolist(), len(owners)]
        entries = prepared(tiles, self.rules, self.formats)
        return self._packed(entries, owners, bounds, task.kept, folders)

    def _packed(
        self,
        entries: Prepared,
        owners: Int64s,
        bounds: list[int],
        kept: frozenset[int],
        folders: set[str],
    ) -> Written:
        archives = archives_at(owners[bounds[:-1]])
        names = self._names(entries.tiles, owners)
        arrangement = self.arrangement.of_suffixes(entries.tiles.suffixes)
        described = arrangement.comments(archives, entries.formats)
        comments = [comment for comment, _ in described]
        size = done = count = 0
        pieces = packed_archives(names, entries.payloads, bounds, comments, entries.details)
        for archive, data, (first, last) in zip(archives, pieces, pairwise(bounds), strict=True):
            if kept and int(owners[first]) in kept:
                continue
            path = f"{self.tree}/{self.arrangement.path(archive)}"
            size += _write_file(path, data, folders)
            done += 1
            count += last - first
        cut = next((cut for _, cut in described if cut), ())
        suffixes = frozenset(entries.tiles.suffixes)
        return Written(done, count, size, entries.formats, suffixes, cut)

    def _names(self, tiles: Tiles, owners: Int64s) -> Any:
        inside = self.arrangement.inside((tiles.z, tiles.x, tiles.y), owners)
        return names_of(tiles, inside, self.rules.variant)

    def _streamed(self, task: GroupTask) -> Written:
        """Large archives one by one; of each only a block is in memory."""
        done = Written()
        for owner in task.archives:
            if owner not in task.kept:
                done = done.plus(self._one(owner, task.squares))
        return done

    def _one(self, owner: int, squares: Sequence[Square]) -> Written:
        (archive,) = archives_at(np.array([owner]))
        settled = dict(self.formats)
        suffixes: set[str] = set()
        path = Path(self.tree, self.arrangement.path(archive))
        with new_archive(path) as file:
            writer = ZipWriter(file)
            own = [square for square in squares if archive in self.arrangement.around(*square)]
            for tiles in self._gathered(owner, own):
                entries = prepared(tiles, self.rules, settled)
                settled.update(entries.formats)
                suffixes.update(entries.tiles.suffixes)
                names = self._names(entries.tiles, np.full(len(tiles), owner))
                writer.add_many(names, entries.payloads, entries.details)
            comment, cut = self.arrangement.of_suffixes(suffixes).comment(archive, settled)
            writer.close(comment)
            return Written(1, len(writer), writer.position, settled, frozenset(suffixes), cut)

    def _gathered(self, owner: int, squares: Sequence[Square]) -> Iterator[Tiles]:
        parts: list[Tiles] = []
        held = 0
        for tiles in self.source.gather(squares):
            owners = order_of(*self.arrangement.archives((tiles.z, tiles.x, tiles.y)))
            mine = tiles
            if (owners != owner).any():
                mine = tiles.take(np.flatnonzero(owners == owner))
            if len(mine):
                parts.append(mine)
            held += sum(map(len, mine.payloads))
            if held >= _BLOCK:
                yield concatenated(parts)
                parts, held = [], 0
        if parts:
            yield concatenated(parts)


def archives_at(owners: Int64s) -> list[Tile]:
    """Archives by `order_of`."""
    return list(zip(*(column.tolist() for column in tiles_in(owners)), strict=True))


def _write_file(path: str, pieces: list[Any], folders: set[str]) -> int:
    """Write a small archive.

    It has its name before it is complete: whoever goes on with a build looks at every byte first
    (`is_whole`), and the tree is not seen before it is finished.
    """
    try:
        folder = path[: path.rindex("/")]
        if folder not in folders:
            Path(folder).mkdir(parents=True, exist_ok=True)
            folders.add(folder)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            return write_pieces(descriptor, pieces)
        finally:
            os.close(descriptor)
    except OSError:
        with write_errors("cannot write", path):
            raise


@contextmanager
def new_archive(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name when it is complete; within a folder that is nobody else's."""
    part = path.with_name(f".{path.name}.part")
    with write_errors("cannot write", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        with write_errors("cannot write", path):
            with os.fdopen(descriptor, "r+b", buffering=0) as file:
                yield file
            part.replace(path)
    except BaseException:  # also on Ctrl-C: no half archive may stay
        with suppress(OSError):
            part.unlink()
        raise


def is_whole(path: Path, entries: int) -> bool:
    """Whether a file is an archive of so many entries, all of which have their checksums."""
    if not path.is_file():
        return False
    try:
        with open_source(path) as source:
            directory = run(directory_plan(), source.fetch)
            if len(directory) != entries or directory.problems:
                return False
            return not run(check_plan(directory, content=True), source.fetch)
    except ComalError:
        # Whatever is wrong with it, it is written again.
        return False
