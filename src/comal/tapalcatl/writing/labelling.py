"""Metadata of an archive or a tileset changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    UnsupportedVersionError,
    shown,
)
from comal.progress import Progress, silent
from comal.tapalcatl.addressing import archive_bounds
from comal.tapalcatl.containers.survey import dealt, extents_of, grown, union
from comal.tapalcatl.containers.tilesets import TileSetSource
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.spec import (
    MAX_COMMENT,
    ArchiveMetadata,
    TileSetMetadata,
    archive_comment,
    archive_document,
    ascii_line,
    parse_archive,
    parse_tileset,
    read_comment,
    tileset_document,
)
from comal.tapalcatl.wire import TileNames
from comal.tapalcatl.writing.targets import (
    Target,
    editing_of,
    locked_target,
    target_at,
    write_document,
)

Location = str | os.PathLike[str]
Said = TypeVar("Said", TileSetMetadata, ArchiveMetadata)
LAYOUT: Final = ("tapalcatl", "metatile", "materializedZooms", "source", "root")
"""What archives are like; changing it would hide tiles."""
_REACH: Final = frozenset({"bounds", "minzoom", "maxzoom"})
"""Keys outside of which readers answer that there is no tile."""
_EVERYWHERE: Final = frozenset({"name", "description", "formats", "minscale", "maxscale"})
"""Keys that archives repeat."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """What a change of metadata came to."""

    document: dict[str, Any]
    """The metadata as they are now."""
    archives: int = 0
    """Archives whose comment was changed."""

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)


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
) -> Labelled:
    """Change metadata of an archive or a tileset.

    Archives whose comment changes are replaced as by `put`, and the document at the end.

    Parameters
    ----------
    target
        A local archive, or a tileset by its folder or document.
    changes
        Keys of the document and their new values; None removes a key. Zooms
        and bounds are widened where they would hide tiles.
    archives
        Whether comments of a tileset's archives follow, which repeat some of it.
    progress
        Told the archives done.

    Raises
    ------
    InvalidInputError
        A key that says how archives are laid out, or a value that its key cannot have; of a
        single archive more than its comment holds.
    InvalidMetadataError
        What is there already is broken.
    """
    for key in changes:
        if key in LAYOUT:
            raise InvalidInputError(
                "the layout of archives cannot be edited",
                found=shown(key),
                hint="write another tileset with remetatile()",
            )
    with locked_target(target) as place:
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
    metadata = _changed(parse_tileset, document, place.meta.name)
    if _REACH & changes.keys():
        metadata = _covering(place.meta, metadata)
    shared = {key: value for key, value in changes.items() if key in _EVERYWHERE}
    tiles = place.archives() if archives and shared else []
    done = 0
    for number, tile in enumerate(tiles):
        # What the document says of an archive, should its comment be torn or of somebody else.
        own, _ = place.arrangement.comment(tile, place.metadata.formats)
        done += _edit_archive(place, place.path(tile), shared, own).archives
        progress(number + 1, len(tiles), "editing archives")
    write_document(place, metadata)
    return Labelled(tileset_document(metadata), done)


def _covering(meta: Path, metadata: TileSetMetadata) -> TileSetMetadata:
    """The metadata with zooms and bounds that hide no tile."""
    with open_tileset(meta) as tileset:
        found = dealt(TileSetSource(tileset).keys(), target_at(meta).arrangement)
    return grown(metadata, found.extents)


def _holding(said: ArchiveMetadata, before: ArchiveMetadata, tiles: TileNames) -> ArchiveMetadata:
    """What an archive is to say of itself, with zooms and bounds that hide none of its tiles.

    What it does not say hides nothing. One of several archives has the box of its root tiles, and
    keeps it; one that stands alone has that of its tiles.
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
    """Change a comment; `instead` is what counts where there is none that can be read."""
    with editing_of(place, path) as edit:
        old = edit.comment
        if instead and read_comment(old, path.name)[0] is None:
            old = instead
        own = parse_archive(old, path.name) if old.strip() else ArchiveMetadata()
        before = archive_document(own)
        document = _merged(before, changes)
        metadata = _changed(parse_archive, document, path.name)
        if _REACH & changes.keys():
            metadata = _holding(metadata, own, edit.tiles())
            document = archive_document(metadata)
        if document == before and old.strip() and old is edit.comment:
            return Labelled(archive_document(metadata))
        comment, cut = archive_comment(metadata)
        if cut and not instead:
            raise InvalidInputError(
                "metadata do not fit into the comment of an archive",
                where=shown(path.name),
                found=f"no room for {', '.join(map(shown, cut))}",
                expected=f"at most {MAX_COMMENT} bytes",
                hint="remove or shorten some of them",
            )
        edit.commit_comment(comment)
    return Labelled(archive_document(metadata), 1)


def _changed(parse: Callable[[bytes, str], Said], document: Mapping[str, Any], where: str) -> Said:
    """A document with what the caller wants said, whose values are arguments and no content."""
    try:
        return parse(ascii_line(document), where)
    except (InvalidMetadataError, UnsupportedVersionError) as error:
        raise InvalidInputError(
            error.what,
            where=error.where,
            found=error.found,
            expected=error.expected,
            hint=error.hint,
        ) from error


def _merged(document: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**document, **changes}.items() if value is not None}
