"""Where tilesets are written and changed: hidden until they are whole, several archives at once."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, ConflictError, InvalidInputError, ObjectNotFoundError, shown
from comal.plan import ByteRange, Piece, Tail, Wanted, run
from comal.storage import href_text, open_source
from comal.storage.kinds import Kind, check_target
from comal.storage.location import parse_href, shown_path
from comal.storage.replacing import Change, NextVersion, changing_file, changing_files, state_of
from comal.storage.targetlock import (
    BUILD,
    CHANGE,
    discard,
    flush_file_system,
    hidden,
    locked,
    write_errors,
)
from comal.storage.targets import local_path, new_file, publish_folder, target_of
from comal.tapalcatl.addressing import Layout, Template
from comal.tapalcatl.containers.survey import Dealt
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.kinds import ARCHIVE
from comal.tapalcatl.layout import MetatileLayout, TreeLayout
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.reading.places import Tilezen, Tree
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import (
    META,
    ArchiveMetadata,
    Tile,
    TileSetMetadata,
    read_comment,
    shared,
    tileset_json,
)
from comal.tapalcatl.wire import Int64s, Keys, TileNames, order_of, parse_names
from comal.ziparchive import Details, StoredDirectory, ZipWriter, stored_directory_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.directory import TAIL
from comal.ziparchive.end import find_end
from comal.ziparchive.headermaking import write_all

_BUILD = "build.json"
_TREE = "tree"
Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where a tree is being built."""

    tree: Path
    target: Path
    going_on: bool
    """Whether there may be finished archives of the same build."""
    name: str = ""
    """Of the only archive in `tree`, where the target is one."""


@contextmanager
def workplace(
    path: str | os.PathLike[str],
    fingerprint: bytes,
    kind: Kind,
    sources: Any,
    *,
    overwrite: bool,
    durable: bool = True,
) -> Iterator[Workplace]:
    """Build a tree; it is published when the block ends without an error.

    Parameters
    ----------
    path
        The target, a folder that must not exist unless `overwrite`.
    fingerprint
        What this build is; finished archives of another one are not kept. Empty: nothing is kept
        after an error, either.
    kind, sources
        As for `comal.storage.targets.new_folder`.
    overwrite
        Whether an existing folder of this kind is replaced at the end.
    durable
        Whether all bytes are on the disk before the tree appears.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    """
    target = target_of(path)
    with locked(target, keep=(BUILD,)):
        owns = check_target(target, kind, folder=True, overwrite=overwrite, sources=sources)
        folder = hidden(target, BUILD)
        going_on = _prepare(folder, fingerprint, target)
        try:
            yield Workplace(folder / _TREE, target, going_on)
            with write_errors("cannot write", target):
                if durable:
                    flush_file_system(folder)
                # From here on the old tree may stand in there, which no build goes on with.
                (folder / _BUILD).unlink(missing_ok=True)
                publish_folder(folder / _TREE, target, owns, overwrite=overwrite)
        except BaseException as error:  # also on Ctrl-C
            kept = (folder / _BUILD).is_file() and _holds_files(folder / _TREE)
            if kept and _is_kept(error):
                _tell(error, folder, target)
            else:
                _remove(folder)
            raise
        _remove(folder)


def _is_kept(error: BaseException) -> bool:
    """Whether to try again is likely: not when the disk is full or somebody quit."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
            return False
        cause = cause.__cause__
    return isinstance(error, Exception)


def _tell(error: BaseException, folder: Path, target: Path) -> None:
    if isinstance(error, ComalError):
        kept = (
            f"run it again to go on with what is kept in {folder.name}, or remove that by "
            f"'comal clean {shown_path(target)}'"
        )
        error.hint = f"{error.hint}; {kept}" if error.hint else kept


def _prepare(folder: Path, fingerprint: bytes, target: Path) -> bool:
    with write_errors("cannot create", target):
        note = folder / _BUILD
        if fingerprint and note.is_file() and note.read_bytes() == fingerprint:
            for part in folder.rglob(".*.part"):
                part.unlink()
            (folder / _TREE).mkdir(exist_ok=True)
            return True
        _remove(folder)
        (folder / _TREE).mkdir(parents=True)
        if fingerprint:
            note.write_bytes(fingerprint)
    return False


def _holds_files(tree: Path) -> bool:
    with suppress(OSError):
        return any(path.is_file() for path in tree.rglob("*.zip"))
    return False


def _remove(folder: Path) -> None:
    with suppress(OSError):
        discard(folder)


def is_archive(out: Location) -> bool:
    """Whether a target is one archive by its name; with a slash at its end it is a folder."""
    return href_text(out).lower().endswith(".zip")


def check_one(plan: Dealt, out: Location) -> None:
    """Refuse a layout that takes more than one archive.

    Raises
    ------
    InvalidInputError
        It takes several.
    """
    if len(plan.archives) > 1:
        raise InvalidInputError(
            "the layout takes several archives, and the target is a single one",
            where=os.fspath(out),
            found=f"{len(plan.archives)} archives",
            hint="leave out metatile and materialized zooms, or write to a folder",
        )


@contextmanager
def place_of_one(out: Location, *, overwrite: bool, source: Any) -> Iterator[Workplace]:
    """Where a single archive is written: a file beside its target, published when it is whole.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    InvalidInputError
        It is a folder.
    """
    with new_file(out, overwrite, ARCHIVE, source) as file:
        # The archive is written by its path, and made durable by that.
        file.close()
        yield Workplace(Path(file.path.parent), file.target, going_on=False, name=file.path.name)


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
        return pieces_of(descriptor, os.fstat(descriptor).st_size, wanted)


def pieces_of(descriptor: int, total: int, wanted: Iterable[Wanted]) -> list[Piece]:
    """Ranges of the first `total` bytes of an open file."""
    pieces = []
    for want in wanted:
        if isinstance(want, ByteRange):
            offset, size = want.offset, want.size
        else:
            assert isinstance(want, Tail)
            offset, size = max(0, total - want.size), want.size
        size = max(0, min(size, total - offset))
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


@dataclass(frozen=True)
class Target:
    """Archives that may be changed, and how tiles are dealt out to them."""

    arrangement: TreeLayout | MetatileLayout
    tree: Path
    meta: Path | None = None
    """The document; None for a single archive, and for Tapalcatl 1."""
    single: Path | None = None
    """The archive; None for a tileset."""
    root: Tile | None = None
    """The only archive that a single one can be, where that is known."""
    comment: bytes = b""
    """That of a single archive when it was looked at."""
    said: ArchiveMetadata | None = None
    """What it says."""
    change: Change | None = None
    """What is being changed; None where it is only looked at."""
    edit: ArchiveEdit | None = None
    """A single archive that is open for changes."""

    @property
    def metadata(self) -> TileSetMetadata:
        """What the tileset says; nothing for Tapalcatl 1."""
        if isinstance(self.arrangement, TreeLayout):
            return self.arrangement.metadata
        return TileSetMetadata()

    def path(self, archive: Tile) -> Path:
        """Where an archive stands."""
        return self.single or self.tree / self.arrangement.path(archive)

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the archives in which some tiles may be, -1 where there is none."""
        if self.single is None:
            return self.arrangement.owners(keys)
        own = order_of(*(np.array([number]) for number in self.root or (0, 0, 0)))
        if isinstance(self.arrangement, TreeLayout):
            # Names are absolute: whatever else stands in there is found, too.
            return np.repeat(own, len(keys[0]))
        found = self.arrangement.owners(keys)
        return np.where(found == own, found, -1)

    def archives(self) -> list[Tile]:
        """The archives of a tileset that are there."""
        if isinstance(self.arrangement, MetatileLayout):
            return list(Tilezen(open_source(self.tree), self.arrangement.settings).listed())
        assert self.meta is not None
        with open_tileset(self.meta) as tileset:
            return list(tileset.archive_tiles())

    def existing(self) -> list[Path]:
        """All archives that are there."""
        return [self.single] if self.single else [self.path(one) for one in self.archives()]


def target_at(path: Location, generation1: Generation1 | None = None) -> Target:
    """A tileset by its folder or document, or one archive.

    Parameters
    ----------
    path
        Where it is; for Tapalcatl 1 the folder that keys are relative to, or an archive.
    generation1
        How a tileset of Tapalcatl 1 is laid out, which nothing in it tells.

    Raises
    ------
    ObjectNotFoundError
        Nothing is there.
    InvalidInputError
        It is not local, its archives are not below its document, or it is of Tapalcatl 1 and
        nobody says how that is laid out.
    """
    place = _place(path, generation1)
    if place.is_dir():
        return _first_tree(place, generation1)
    if place.suffix == ".json":
        return _tileset(place)
    with open_source(place) as source:
        # The end record alone tells; the directory is read when the archive is locked.
        end, _ = run(find_end("", TAIL, [], shown(place.name)), source.fetch)
    return _single(place, end.comment, generation1)


@contextmanager
def locked_target(
    path: Location, generation1: Generation1 | None = None, *, durable: bool = True
) -> Iterator[Target]:
    """As `target_at`, to be changed: locked before it is looked at, and replaced at the end.

    What a killed writer has left of a change is finished or undone first.

    Raises
    ------
    ConflictError
        Somebody else is writing the tileset or the archive.
    """
    place = _place(path, generation1)
    if journal := journal_of(place):
        with changing_files(journal, recovery(journal.parent), durable=durable) as change:
            yield replace(target_at(place, generation1), change=change)
        return
    with changing_file(place, durable=durable) as change:
        refuse_unfinished(place)
        with editing(place, change) as edit:
            target = _single(place, edit.comment, generation1)
            yield replace(target, change=change, edit=edit)


@contextmanager
def compacting(path: Location, generation1: Generation1 | None = None) -> Iterator[Target]:
    """As `locked_target`; archives are replaced one by one, by whoever holds the tileset."""
    place = _place(path, generation1)
    journal = journal_of(place)
    with ExitStack() as scope:
        if journal is not None:
            scope.enter_context(changing_files(journal, recovery(journal.parent)))
        yield target_at(place, generation1)


def journal_of(place: Path) -> Path | None:
    """The journal of a tileset by its folder or document; None for a single archive."""
    folder = place if place.is_dir() else place.parent if place.suffix == ".json" else None
    return None if folder is None else folder / CHANGE


def recovery(folder: Path) -> str:
    """The command that finishes or undoes what was left of a change."""
    return f"comal tapalcatl recover {shlex.quote(str(folder))}"


def refuse_unfinished(archive: Path) -> None:
    """Refuse to write an archive of a tileset that somebody else is changing, or did not finish.

    Raises
    ------
    ConflictError
        There is such a change.
    """
    for folder in archive.parents:
        state = state_of(folder / CHANGE)
        if state:
            running = state == "running"
            raise ConflictError(
                "somebody else is changing the tileset of the archive"
                if running
                else "a change of the archive's tileset was not finished",
                where=shown_path(folder),
                hint="wait until they are done" if running else f"run '{recovery(folder)}'",
            )


def _place(path: Location, generation1: Generation1 | None) -> Path:
    place = local_path(path).resolve()
    if place.is_dir():
        if generation1 is not None:
            return place
        place /= META
    if not place.is_file():
        raise ObjectNotFoundError(
            "no tileset and no archive",
            where=shown(str(place), 200),
            hint="a folder of Tapalcatl 1 is one when it is said how it is laid out",
        )
    return place


def _single(place: Path, comment: bytes, generation1: Generation1 | None) -> Target:
    own, _ = read_comment(comment, shown(place.name))
    if generation1 is not None:
        return _first_archive(place, generation1)
    if own is None:
        _refuse_first(place)
    said = own or ArchiveMetadata()
    root = said.root or (0, 0, 0)
    # Where the comment names the zooms at which archives begin, the next one ends this archive.
    zooms = said.materialized_zooms if root[0] in said.materialized_zooms else (root[0],)
    whole = TileSetMetadata(**{**shared(said), "materialized_zooms": zooms})
    arrangement = TreeLayout(Layout(zooms, said.metatile), Template("{z}/{x}/{y}.zip"), whole)
    return Target(arrangement, place.parent, None, place, said.root, comment, own)


def _refuse_first(place: Path) -> None:
    """Refuse an archive of Tapalcatl 1: its names are relative, and new ones would be absolute."""
    with open_tileset(place) as archive:
        if archive.version == 1:
            raise InvalidInputError(
                "nothing tells how this archive of Tapalcatl 1 is laid out",
                where=shown(str(place), 200),
                hint="for its tiles pass generation1=Generation1(...), or --open version=1 and what"
                " belongs to it; metadata it has none",
            )


def _first_tree(place: Path, generation1: Generation1 | None) -> Target:
    assert generation1 is not None
    if (place / META).is_file():
        raise InvalidInputError(
            "a tileset of Tapalcatl 2",
            where=shown(str(place / META), 200),
            hint="leave out the settings of Tapalcatl 1",
        )
    return Target(MetatileLayout(generation1), place)


def _first_archive(place: Path, generation1: Generation1) -> Target:
    """An archive of Tapalcatl 1, which is a metatile by its place alone."""
    z, x, y = (*place.parts[-3:-1], place.stem)
    root = (int(z), int(x), int(y)) if all(map(_is_number, (z, x, y))) else None
    if root is None or not place.as_posix().endswith(generation1.key(root)):
        raise InvalidInputError(
            "the name of the archive does not tell which metatile it is",
            where=shown(str(place), 200),
            expected=generation1.pattern,
            hint="name the folder that keys are relative to, or check the layout",
        )
    return Target(MetatileLayout(generation1), place.parent, single=place, root=root)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10


def _tileset(meta: Path) -> Target:
    with open_tileset(meta) as tileset:
        places, locator = tileset.places, tileset.locator
        if not isinstance(places, Tree) or not isinstance(locator, TreeLayout):
            raise InvalidInputError("no tileset of Tapalcatl 2", where=shown(str(meta), 200))
        base = parse_href(places.base.href)
        if not base.is_local:
            raise InvalidInputError(
                "archives of the tileset are not on this machine",
                where=shown(str(meta), 200),
                found=base.label,
            )
        template = replace(places.template, hash=_hash_of(tileset, places))
        return Target(replace(locator, template=template), Path(base.path), meta)


def _hash_of(tileset: TileSet, places: Tree) -> str:
    """The definition of the hash that the archives follow, which opening one of them tells."""
    if places.template.hashed:
        first = next(iter(tileset.archive_tiles()), None)
        if first is not None:
            tileset.archives.get(first)
    return places.kinds[0]


def write_document(place: Target, metadata: TileSetMetadata) -> None:
    """Put another document in the place of a tileset's, as a part of its change."""
    assert place.meta is not None
    assert place.change is not None
    with place.change.write(place.meta) as file:
        write_all(file, tileset_json(metadata))


def editing_of(place: Target, path: Path) -> AbstractContextManager[ArchiveEdit]:
    """An archive of what is held, open for changes."""
    assert place.change is not None
    return editing(path, place.change) if place.edit is None else nullcontext(place.edit)
