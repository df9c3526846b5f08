"""Locks, inspects and replaces tilesets and archives to change, and edits their metadata."""

from __future__ import annotations

import errno
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from comal.errors import (
    ConflictError,
    InvalidInputError,
    ObjectNotFoundError,
    shown,
    shown_path,
    system_errors,
)
from comal.plan import ByteRange, Piece, Tail, Wanted, run
from comal.progress import Progress, silent
from comal.public import Summary
from comal.storage import open_source
from comal.storage.config import StorageConfig
from comal.storage.location import StorePath, parse_href, stored
from comal.storage.replacing import Change, NextVersion, changing_file, changing_files, state_of
from comal.storage.targetlock import CHANGE
from comal.storage.targets import target_path
from comal.tapalcatl.addressing import Generation1, archive_bounds, union
from comal.tapalcatl.containers.survey import extents_of, grown, survey
from comal.tapalcatl.containers.tilesets import TileSetSource
from comal.tapalcatl.layout import Layout, MetatileLayout, Template, TreeLayout
from comal.tapalcatl.reading.archives import ArchiveFiles
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.spec import (
    MAX_COMMENT,
    META,
    ArchiveMetadata,
    Tile,
    TileSetMetadata,
    archive_comment,
    archive_document,
    checked,
    parse_archive,
    parse_tileset,
    read_comment,
    shared,
    tileset_document,
    tileset_json,
    variants_of,
)
from comal.tapalcatl.wire import Int64s, Keys, TileNames, order_of, parse_names, variant_prefix
from comal.tapalcatl.writing.entries import NewEntries
from comal.ziparchive import StoredDirectory, ZipWriter, stored_directory_plan
from comal.ziparchive.directory import TAIL
from comal.ziparchive.end import find_end
from comal.ziparchive.headermaking import end_records
from comal.ziparchive.write import write_all


class ArchiveEdit:
    """An archive that is open for one or several successive changes."""

    def __init__(self, path: Path, version: NextVersion) -> None:
        self.path = path
        self._version = version
        self._stored: StoredDirectory | None = None

    @property
    def stored(self) -> StoredDirectory:
        """The current directory."""
        if self._stored is None:
            with system_errors("cannot read", self.path):
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
        """Replace the comment of the archive."""
        end, file = self.stored.end, self._version.file()
        with system_errors("cannot write", self.path):
            os.ftruncate(file.fileno(), end.stop)
            file.seek(end.stop)
            records = end_records(count=end.count, size=end.size, offset=end.start, comment=comment)
            write_all(file, records)
        self._stored = None

    def _fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        descriptor = self._version.fileno()
        total = os.fstat(descriptor).st_size
        pieces = []
        for want in wanted:
            assert isinstance(want, ByteRange | Tail)
            offset = want.offset if isinstance(want, ByteRange) else max(0, total - want.size)
            size = max(0, min(want.size, total - offset))
            pieces.append(Piece(_read_all(descriptor, size, offset), offset, total))
        return pieces


def _read_all(descriptor: int, size: int, at: int) -> bytes:
    """Read exactly `size` bytes, as one system call may return fewer."""
    data = os.pread(descriptor, size, at)
    while len(data) < size:
        more = os.pread(descriptor, size - len(data), at + len(data))
        if not more:
            raise OSError(errno.EIO, "the file ended while it was read")
        data += more
    return data


@dataclass(frozen=True)
class Target:
    """Archives to change, and how tiles are assigned to them."""

    arrangement: TreeLayout | MetatileLayout
    tree: Path
    meta: Path | None = None
    """The document; None for a single archive, and for Tapalcatl 1."""
    single: Path | None = None
    """The archive; None for a tileset."""
    root: Tile | None = None
    """The root tile of a single archive, if known."""
    comment: bytes = b""
    """Comment of a single archive when it was read."""
    said: ArchiveMetadata | None = None
    """Metadata in that comment."""
    change: Change | None = None
    """The change in progress; None if the target is only read."""
    edit: ArchiveEdit | None = None
    """A single archive that is open for changes."""

    @property
    def metadata(self) -> TileSetMetadata:
        """Metadata of the tileset; empty for Tapalcatl 1."""
        if isinstance(self.arrangement, TreeLayout):
            return self.arrangement.metadata
        return TileSetMetadata()

    def path(self, archive: Tile) -> Path:
        """The path of an archive."""
        return self.single or self.tree / self.arrangement.path(archive)

    @contextmanager
    def editing(self, path: Path) -> Iterator[ArchiveEdit]:
        """One of the archives, open for changes."""
        assert self.change is not None
        if self.edit is not None:
            yield self.edit
            return
        with self.change.edit(path) as version:
            yield ArchiveEdit(path, version)

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` values of the archives that may hold some tiles, -1 if there is none."""
        if self.single is None:
            return self.arrangement.owners(keys)
        own = order_of(*(np.array([number]) for number in self.root or (0, 0, 0)))
        if isinstance(self.arrangement, TreeLayout):
            # Names are absolute: tiles of other archives in this one are found, too.
            return np.repeat(own, len(keys[0]))
        found = self.arrangement.owners(keys)
        return np.where(found == own, found, -1)

    def archives(self) -> list[Tile]:
        """The existing archives of a tileset."""
        if isinstance(self.arrangement, MetatileLayout):
            return list(ArchiveFiles(open_source(self.tree), [self.arrangement]).listed())
        assert self.meta is not None
        with open_tileset(self.meta) as tileset:
            return list(tileset.archive_tiles())

    def existing(self) -> list[Path]:
        """Paths of all existing archives."""
        return [self.single] if self.single else [self.path(one) for one in self.archives()]


def target_at(
    path: Location, generation1: Generation1 | None = None, config: StorageConfig | None = None
) -> Target:
    """A tileset on this machine or in a store by its folder or document, or one archive.

    A tileset of Tapalcatl 1 is the folder that keys are relative to; its layout cannot be
    detected.
    """
    place = _place(path, generation1, config)
    if _is_folder(place):
        return _first_tree(place, generation1)
    if place.suffix == ".json":
        return _tileset(place)
    with open_source(place) as source:
        # The end record is enough; the directory is read when the archive is locked.
        end, _ = run(find_end("", TAIL, [], shown(place.name)), source.fetch)
    return _single(place, end.comment, generation1)


@contextmanager
def locked_target(
    path: Location,
    generation1: Generation1 | None = None,
    config: StorageConfig | None = None,
    *,
    durable: bool = True,
) -> Iterator[Target]:
    """As `target_at`, for changes: locked before it is read, and replaced at the end.

    A change that a killed writer left behind is finished or undone first.
    """
    place = _place(path, generation1, config)
    if journal := journal_of(place):
        with changing_files(journal, recovery(journal.parent), durable=durable) as change:
            change.has(place)  # in a store, its version before it is read
            yield replace(target_at(place, generation1), change=change)
        return
    with changing_file(place, durable=durable) as change:
        refuse_unfinished(place)
        with change.edit(place) as version:
            edit = ArchiveEdit(place, version)
            target = _single(place, edit.comment, generation1)
            yield replace(target, change=change, edit=edit)


@contextmanager
def compacting(
    path: Location, generation1: Generation1 | None = None, config: StorageConfig | None = None
) -> Iterator[Target]:
    """As `locked_target`, but the holder of the tileset replaces archives one by one."""
    place = _place(path, generation1, config)
    journal = journal_of(place)
    with ExitStack() as scope:
        if journal is not None:
            scope.enter_context(changing_files(journal, recovery(journal.parent)))
        yield target_at(place, generation1)


def journal_of(place: Path) -> Path | None:
    """The journal of a tileset by its folder or document; None for a single archive."""
    folder = place if _is_folder(place) else place.parent if place.suffix == ".json" else None
    return None if folder is None else folder / CHANGE


def recovery(folder: Path) -> str:
    """The command that finishes or undoes an interrupted change."""
    return f"comal tapalcatl recover {shlex.quote(str(folder))}"


def refuse_unfinished(archive: Path) -> None:
    """Raise `ConflictError` if a change of the archive's tileset is running or unfinished."""
    if stored(archive):
        return
    for folder in archive.parents:
        state = state_of(folder / CHANGE)
        if state:
            running = state == "running"
            raise ConflictError(
                "another writer is changing the tileset of the archive"
                if running
                else "a change of the archive's tileset was not finished",
                where=shown_path(folder),
                hint="wait until it has finished" if running else f"run '{recovery(folder)}'",
            )


def _place(path: Location, generation1: Generation1 | None, config: StorageConfig | None) -> Path:
    place = target_path(path, config)
    place = place if stored(place) else place.resolve()
    if _is_folder(place):
        if generation1 is not None:
            return place
        place /= META
    if not stored(place) and not place.is_file():
        raise ObjectNotFoundError(
            "neither a tileset nor an archive",
            where=shown(str(place), 200),
            hint="for a folder of Tapalcatl 1, pass how it is laid out",
        )
    return place


def _is_folder(place: Path) -> bool:
    """Whether it is a folder; in a store, by its name."""
    return place.suffix not in (".zip", ".json") if stored(place) else place.is_dir()


def _single(place: Path, comment: bytes, generation1: Generation1 | None) -> Target:
    own, _ = read_comment(comment, shown(place.name))
    if generation1 is not None:
        return _first_archive(place, generation1)
    if own is None:
        _refuse_first(place)
    said = own or ArchiveMetadata()
    root = said.root or (0, 0, 0)
    # If the comment lists the zooms at which archives begin, the next one ends this archive.
    zooms = said.materialized_zooms if root[0] in said.materialized_zooms else (root[0],)
    whole = TileSetMetadata(**{**shared(said), "materialized_zooms": zooms})
    arrangement = TreeLayout(Layout(zooms, said.metatile), Template("{z}/{x}/{y}.zip"), whole)
    return Target(arrangement, place.parent, None, place, said.root, comment, own)


def _refuse_first(place: Path) -> None:
    """Refuse an archive of Tapalcatl 1: its names are relative, new ones would be absolute."""
    with open_tileset(place) as archive:
        if archive.version == 1:
            raise InvalidInputError(
                "nothing tells how this archive of Tapalcatl 1 is laid out",
                where=shown(str(place), 200),
                hint="for its tiles pass generation1=Generation1(...), or --open version=1 and what"
                " belongs to it; it has no metadata",
            )


def _first_tree(place: Path, generation1: Generation1 | None) -> Target:
    assert generation1 is not None
    meta = place / META
    with suppress(ObjectNotFoundError):
        open_source(meta).stat()
        raise InvalidInputError(
            "the folder holds a tileset of Tapalcatl 2",
            where=shown(str(meta), 200),
            hint="leave out the settings of Tapalcatl 1",
        )
    return Target(MetatileLayout(generation1), place)


def _first_archive(place: Path, generation1: Generation1) -> Target:
    """An archive of Tapalcatl 1, whose metatile is only known from its path."""
    key = PurePosixPath(parse_href(place).path)
    z, x, y = (*key.parts[-3:-1], key.stem)
    is_tile = all(n.isascii() and n.isdecimal() and len(n) <= 10 for n in (z, x, y))
    root = (int(z), int(x), int(y)) if is_tile else None
    if root is None or not str(key).endswith(generation1.key(root)):
        raise InvalidInputError(
            "the name of the archive does not tell which metatile it is",
            where=shown(str(place), 200),
            expected=generation1.pattern,
            hint="name the folder that keys are relative to, or check the layout",
        )
    return Target(MetatileLayout(generation1), place.parent, single=place, root=root)


def _tileset(meta: Path) -> Target:
    own = stored(meta)
    with open_tileset(meta) as tileset:
        if not isinstance(tileset.layout, TreeLayout):
            raise InvalidInputError("not a tileset of Tapalcatl 2", where=shown(str(meta), 200))
        base = parse_href(tileset.files.base.href)
        if base.origin != parse_href(meta).origin or not (own or base.is_local):
            raise InvalidInputError(
                "archives of the tileset are not where its document is",
                where=shown(str(meta), 200),
                found=base.label,
            )
        first = next(tileset.archive_tiles(), None) if tileset.layout.template.hashed else None
        if first is not None:
            # Opening one of the archives determines their definition of the hash.
            tileset.archives.get(first)
        arrangement = tileset.files.layouts[0]
        assert isinstance(arrangement, TreeLayout)
        tree = cast("Path", StorePath(base, own.config)) if own else Path(base.path)
        return Target(arrangement, tree, meta)


def write_document(place: Target, metadata: TileSetMetadata) -> None:
    """Replace a tileset's document as a part of its change."""
    assert place.meta is not None
    assert place.change is not None
    with place.change.write(place.meta) as file:
        write_all(file, tileset_json(metadata))


Location = str | os.PathLike[str]
LAYOUT: Final = ("tapalcatl", "metatile", "materializedZooms", "source", "root")
"""Keys of the layout; changing them would hide tiles."""
_REACH: Final = frozenset({"bounds", "minzoom", "maxzoom"})
"""Keys that limit where readers look for tiles."""
_EVERYWHERE: Final = frozenset({"name", "description", "formats", "minscale", "maxscale"})
"""Keys that the comments of archives repeat."""


@dataclass(frozen=True, slots=True)
class Labelled(Summary):
    """Result of a change of metadata."""

    document: dict[str, Any]
    """The new metadata."""
    archives: int = 0
    """Archives whose comment was changed."""


def metadata_at(target: Location) -> dict[str, Any]:
    """The metadata of a tileset, or of an archive, as plain data."""
    place = target_at(target)
    if place.meta is not None:
        return tileset_document(place.metadata)
    return archive_document(place.said or ArchiveMetadata())


def edit_metadata(
    target: Location,
    changes: Mapping[str, Any],
    *,
    archives: bool = True,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Labelled:
    """Change metadata of an archive or a tileset.

    Archives whose comment changes are replaced as by `put`, the document last.

    Parameters
    ----------
    target
        An archive, or a tileset by its folder or document, as for `put`.
    changes
        Keys of the document and their new values; None removes a key. Zooms and bounds are
        widened so that they hide no tiles.
    archives
        Whether to update the comments of a tileset's archives, which repeat some keys.
    progress
        Called with the number of archives done.
    config
        As for `put`.

    Raises
    ------
    InvalidInputError
        A key of the layout, an invalid value or, for a single archive, more than its comment
        can hold.
    InvalidMetadataError
        The existing metadata are broken.
    """
    for key in changes:
        if key in LAYOUT:
            raise InvalidInputError(
                "the layout of archives cannot be edited",
                found=shown(key),
                hint="write another tileset with remetatile()",
            )
    with locked_target(target, config=config) as place:
        if place.single is not None:
            return _edit_archive(place, place.single, changes)
        return _edit_tileset(place, changes, archives, progress or silent)


def _edit_tileset(
    place: Target,
    changes: Mapping[str, Any],
    archives: bool,  # noqa: FBT001 - passed on
    progress: Progress,
) -> Labelled:
    assert place.meta is not None
    document = _merged(tileset_document(place.metadata), changes)
    metadata = checked(parse_tileset, document, place.meta.name)
    if _REACH & changes.keys():
        with open_tileset(place.meta) as tileset:
            for one in (tileset, *map(tileset.variant, tileset.variants)):
                metadata = grown(metadata, survey(TileSetSource(one), place.arrangement).extents)
    shared = {key: value for key, value in changes.items() if key in _EVERYWHERE}
    tiles = place.archives() if archives and shared else []
    done = 0
    for number, tile in enumerate(tiles):
        # The comment by the document, in case the archive's own is broken or foreign.
        own, _ = place.arrangement.comment(tile, place.metadata.formats)
        done += _edit_archive(place, place.path(tile), shared, own).archives
        progress(number + 1, len(tiles), "editing archives")
    write_document(place, metadata)
    return Labelled(tileset_document(metadata), done)


def _holding(said: ArchiveMetadata, before: ArchiveMetadata, tiles: TileNames) -> ArchiveMetadata:
    """New metadata of an archive, with zooms and bounds widened to include all of its tiles.

    Absent fields stay absent. One of several archives keeps the box of its root tiles; a single
    archive has the box of its tiles.
    """
    if not len(tiles):
        return said
    found = grown(said, extents_of((tiles.z, tiles.x, tiles.y)))
    bounds = found.bounds
    if bounds is not None and before.bounds is not None and before.root is not None:
        whole = archive_bounds(before.root, before.metatile)
        if union(before.bounds, whole) == before.bounds:
            bounds = union(bounds, whole)
    return replace(
        said,
        min_zoom=None if said.min_zoom is None else found.min_zoom,
        max_zoom=None if said.max_zoom is None else found.max_zoom,
        bounds=bounds,
    )


def _edit_archive(
    place: Target, path: Path, changes: Mapping[str, Any], instead: bytes = b""
) -> Labelled:
    """Change a comment; `instead` replaces a missing or unreadable one."""
    with place.editing(path) as edit:
        old = edit.comment
        if instead and read_comment(old, path.name)[0] is None:
            old = instead
        own = parse_archive(old, path.name) if old.strip() else ArchiveMetadata()
        before = archive_document(own)
        document = _merged(before, changes)
        metadata = checked(parse_archive, document, path.name)
        if _REACH & changes.keys():
            for variant in (None, *variants_of(own.extra)):
                metadata = _holding(metadata, own, edit.tiles(variant_prefix(variant)))
            document = archive_document(metadata)
        if document == before and old.strip() and old is edit.comment:
            return Labelled(archive_document(metadata))
        comment, cut = archive_comment(metadata)
        if cut and not instead:
            raise InvalidInputError(
                "the metadata do not fit into the comment of an archive",
                where=shown(path.name),
                found=f"no room for {', '.join(map(shown, cut))}",
                expected=f"at most {MAX_COMMENT} bytes",
                hint="remove or shorten some of them",
            )
        edit.commit_comment(comment)
    return Labelled(archive_document(metadata), 1)


def _merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**document, **changes}.items() if value is not None}
