"""What a change is made to: a single archive, or a tileset with its document."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from comal.errors import InvalidInputError, ObjectNotFoundError, shown
from comal.plan import run
from comal.storage import open_source
from comal.storage.location import FILE, parse_href
from comal.storage.targetlock import locked
from comal.storage.targets import local_path, new_file
from comal.tapalcatl.addressing import Layout, Template
from comal.tapalcatl.reading.loading import open as open_tileset
from comal.tapalcatl.reading.locating import InTree
from comal.tapalcatl.reading.places import Tree
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import (
    META,
    ArchiveMetadata,
    Tile,
    TileSetMetadata,
    read_comment,
    tileset_json,
)
from comal.tapalcatl.writing.arranging import Second
from comal.ziparchive.directory import TAIL
from comal.ziparchive.end import find_end

Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Target:
    """Archives that may be changed, and how tiles are dealt out to them."""

    arrangement: Second
    meta: Path | None
    """The document; None for a single archive."""
    single: Path | None
    """The archive; None for a tileset."""
    tree: Path
    comment: bytes = b""
    """That of a single archive when it was looked at."""
    said: ArchiveMetadata | None = None
    """What it says."""

    def path(self, archive: Tile) -> Path:
        """Where an archive stands."""
        return self.single or self.tree / self.arrangement.path(archive)

    def existing(self) -> list[Path]:
        """All archives that are there."""
        if self.single is not None:
            return [self.single]
        assert self.meta is not None
        with open_tileset(self.meta) as tileset:
            found = list(tileset.archive_tiles())
        return [self.path(archive) for archive in found]


def target_at(path: Location) -> Target:
    """A tileset by its folder or document, or one archive.

    Raises
    ------
    ObjectNotFoundError
        Nothing is there.
    InvalidInputError
        It is not local, its archives are not below its document, or it is of Tapalcatl 1.
    """
    place = local_path(path).resolve()
    if place.is_dir():
        place /= META
    if not place.is_file():
        raise ObjectNotFoundError("no tileset and no archive", where=shown(str(place), 200))
    if place.suffix == ".json":
        return _tileset(place)
    with open_source(place) as source:
        # The end record alone tells; the directory is read when the archive is locked.
        end, _ = run(find_end("", TAIL, [], shown(place.name)), source.fetch)
    own, _ = read_comment(end.comment, shown(place.name))
    if own is None:
        _refuse_first(place)
    said = own or ArchiveMetadata()
    root = said.root or (0, 0, 0)
    whole = TileSetMetadata(
        formats=said.formats,
        min_zoom=said.min_zoom,
        max_zoom=said.max_zoom,
        bounds=said.bounds,
        metatile=said.metatile,
        materialized_zooms=(root[0],),
        name=said.name,
        description=said.description,
        min_scale=said.min_scale,
        max_scale=said.max_scale,
        extra=said.extra,
    )
    arrangement = Second(Layout((root[0],), said.metatile), Template("{z}/{x}/{y}.zip"), whole)
    return Target(arrangement, None, place, place.parent, end.comment, own)


def _refuse_first(place: Path) -> None:
    """Refuse an archive of Tapalcatl 1: its names are relative, and new ones would be absolute."""
    with open_tileset(place) as archive:
        if archive.version == 1:
            raise InvalidInputError(
                "archives of Tapalcatl 1 are not changed in place",
                where=shown(str(place), 200),
                hint="merge the tileset with the new tiles into a new one",
            )


def _tileset(meta: Path) -> Target:
    with open_tileset(meta) as tileset:
        places, locator = tileset.places, tileset.locator
        if not isinstance(places, Tree) or not isinstance(locator, InTree):
            raise InvalidInputError("no tileset of Tapalcatl 2", where=shown(str(meta), 200))
        base = parse_href(places.base.href)
        if base.scheme != FILE:
            raise InvalidInputError(
                "archives of the tileset are not on this machine",
                where=shown(str(meta), 200),
                found=base.label,
            )
        kind = _hash_of(tileset, places)
        template = replace(places.template, hash=kind)
        return Target(
            Second(locator.layout, template, tileset.metadata), meta, None, Path(base.path)
        )


def _hash_of(tileset: TileSet, places: Tree) -> str:
    """The definition of the hash that the archives follow, which opening one of them tells."""
    if places.template.hashed:
        first = next(iter(tileset.archive_tiles()), None)
        if first is not None:
            tileset.archives.get(first)
    return places.kinds[0]


@contextmanager
def changing(target: Target) -> Iterator[None]:
    """Hold the lock of a tileset; that of an archive is held while it is open."""
    if target.meta is None:
        yield
        return
    with locked(target.meta.with_name(f"{META}.tileset")):
        yield


def write_document(meta: Path, metadata: TileSetMetadata) -> None:
    """Put another document in the place of a tileset's, as a whole."""
    with new_file(meta, overwrite=True) as file:
        file.write(tileset_json(metadata))
