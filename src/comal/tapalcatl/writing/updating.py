"""Tiles put into archives that are there, and taken out of them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from comal.errors import InvalidInputError
from comal.progress import Progress, silent
from comal.public import takes, warn
from comal.tapalcatl.containers.base import Tiles, TileSource, concatenated
from comal.tapalcatl.containers.export import opened
from comal.tapalcatl.containers.iterable import IterableSource
from comal.tapalcatl.containers.survey import Dealt, dealt, extents_of, grown, scaled
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.layout import MetatileLayout, trimmed_comment
from comal.tapalcatl.spec import (
    MAX_ZOOM,
    ArchiveMetadata,
    TapalcatlWarning,
    Tile,
    read_comment,
    with_variant,
)
from comal.tapalcatl.wire import Int64s, Keys, order_of, split_suffix, tile_keys, variant_prefix
from comal.tapalcatl.writing.archives import archives_at
from comal.tapalcatl.writing.entries import Prepared, few_names, names_of, prepared
from comal.tapalcatl.writing.options import EntryOptions, EntryRules, rules_of
from comal.tapalcatl.writing.targets import (
    NewEntries,
    Target,
    editing_of,
    locked_target,
    write_document,
)
from comal.ziparchive import ZipWriter
from comal.ziparchive.entries import FEW

Location = str | os.PathLike[str]
_FEW: Final = 256
"""Tiles of an iterable that are put without looking over them first."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What a change came to."""

    archives: int = 0
    """Archives that were changed or made."""
    created: int = 0
    """Those of them that were not there before."""
    added: int = 0
    """Tiles that were not there before."""
    replaced: int = 0
    deleted: int = 0
    absent: int = 0
    """Tiles that should be deleted and were not there."""

    def plus(self, other: Changed) -> Changed:
        """Both together."""
        return Changed(*map(add, astuple(self), astuple(other)))

    def to_dict(self) -> dict[str, int]:
        """The summary as plain data."""
        return asdict(self)


@takes(EntryOptions)
def put(
    target: Location,
    tiles: Any,
    options: EntryOptions | None = None,
    *,
    generation1: Generation1 | None = None,
    durable: bool = True,
    progress: Progress | None = None,
    **changes: Any,
) -> Changed:
    """Add tiles to an archive or a tileset, or replace them.

    New entries and a whole new directory are appended to a copy of each archive concerned, which
    then takes its place: a reader sees the old archive or the new one. Old bytes stay in it, until
    `compact` frees those that nothing leads to. Archives that are missing are made. All that
    changes is made ready before any of it takes its place, the document last: its zooms and bounds
    grow with the tiles. That takes room for a copy of each archive concerned, if only for as long
    as it lasts, where the file system cannot share blocks.

    Parameters
    ----------
    target
        A local archive, or a tileset by its folder or document.
    tiles
        Anything that `build` takes.
    options
        How tiles become entries. Without `ext` a tile whose bytes do not tell gets the tileset's
        only one.
    generation1
        How a tileset of Tapalcatl 1 is laid out, which nothing in it tells: metatile and tile size,
        layout of keys, prefix and layer as whoever wrote it had them. `target` is then the folder
        that keys are relative to, or an archive by its key.
    durable
        Whether new bytes are on the disk before they take the place of old ones. Without it a kill
        loses nothing, but a power cut may.
    progress
        Told the archives done.
    **changes
        Fields of `EntryOptions`, such as ``ext="png"``.

    Raises
    ------
    InvalidInputError
        A tile that does not belong to the archive, by its root and the materialized zooms that its
        comment names, lies above the first materialized zoom, or, of Tapalcatl 1, outside of the
        zooms of its settings.
    ConflictError
        Somebody else is writing the tileset or one of the archives.
    """
    wanted = replace(options or EntryOptions(), **changes)
    with ExitStack() as scope:
        source = opened(tiles, scope)
        place = scope.enter_context(locked_target(target, generation1, durable=durable))
        own = place.metadata.formats
        rules = rules_of(source, wanted)
        if rules.hint is None and len(own) == 1:
            rules = replace(rules, hint=next(iter(own)))
        return _put_all(place, source, rules, progress or silent)


def delete(
    target: Location,
    tiles: Iterable[Tile],
    *,
    ext: str | None = None,
    scale: float | None = None,
    variant: str | None = None,
    generation1: Generation1 | None = None,
    durable: bool = True,
    progress: Progress | None = None,
) -> Changed:
    """Take tiles out of an archive or a tileset: a new directory without them is appended.

    Archives are replaced as by `put`. Bytes of the tiles stay in them until `compact` frees them.
    Zooms and bounds of the document stay as they are.

    Parameters
    ----------
    target
        A local archive, or a tileset by its folder or document.
    tiles
        Zooms, columns and rows.
    ext, scale
        Only entries of this extension, of this scale; all of a tile unless given.
    variant
        Entries of this variant; those that are in none unless given.
    generation1, durable
        As for `put`.
    progress
        Told the archives done.

    Raises
    ------
    InvalidInputError
        Numbers that no tile can have.
    ConflictError
        Somebody else is writing the tileset or one of the archives.
    """
    wanted = _checked(tiles)
    prefix = variant_prefix(variant)
    telling = progress or silent
    done = Changed()
    with locked_target(target, generation1, durable=durable) as place:
        owners = place.owners(wanted)
        distinct = np.unique(owners).tolist()
        for number, owner in enumerate(distinct):
            rows = owners == owner
            z, x, y = (column[rows] for column in wanted)
            if owner < 0:
                done = done.plus(Changed(absent=len(np.unique(tile_keys(z, x, y)))))
                continue
            keys = np.unique(tile_keys(*place.arrangement.inside((z, x, y), owners[rows])))
            (archive,) = archives_at(np.array([owner]))
            done = done.plus(_delete(place, place.path(archive), _Which(keys, ext, scale, prefix)))
            telling(number + 1, len(distinct), "deleting tiles")
    return done


class _Which(NamedTuple):
    """Entries to be deleted."""

    keys: Int64s
    ext: str | None
    scale: float | None
    prefix: bytes


def _checked(tiles: Iterable[Tile]) -> Keys:
    found = [(int(z), int(x), int(y)) for z, x, y in tiles]
    for z, x, y in found:
        if not (0 <= z <= MAX_ZOOM and 0 <= x < 1 << z and 0 <= y < 1 << z):
            raise InvalidInputError("no such tile can be", found=f"{z}/{x}/{y}")
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _delete(place: Target, path: Path, which: _Which) -> Changed:
    if not path.is_file():
        return Changed(absent=len(which.keys))
    with editing_of(place, path) as edit:
        names = edit.tiles(which.prefix)
        hit = np.isin(names.keys, which.keys)
        for code, suffix in enumerate(names.suffixes):
            scale, ext = split_suffix(suffix)
            if which.ext not in {None, ext} or which.scale not in {None, scale}:
                hit &= names.suffix != code
        absent = len(which.keys) - len(np.unique(names.keys[hit]))
        if not hit.any():
            return Changed(absent=absent)
        dropped = np.zeros(len(edit.stored), np.bool_)
        dropped[names.rows[hit]] = True
        edit.commit(dropped)
    return Changed(archives=1, deleted=int(hit.sum()), absent=absent)


def _put_all(place: Target, source: TileSource, rules: EntryRules, progress: Progress) -> Changed:
    own = place.metadata
    if isinstance(source, IterableSource) and len(source) <= _FEW:
        tiles = source.read_all()
        blocks = iter([tiles])
        extents = partial(extents_of, (tiles.z, tiles.x, tiles.y))
    else:
        plan = dealt(source.keys(), place.arrangement)
        blocks = _blocks(source, plan, place)
        extents = partial(dict, plan.extents)
    whole = own
    if isinstance(place.arrangement, MetatileLayout):
        _check_zooms(place.arrangement.settings, extents())
    elif place.meta is not None:
        whole = grown(own, extents())
        whole = replace(whole, extra=with_variant(whole.extra, rules.variant))
        place = replace(place, arrangement=replace(place.arrangement, metadata=whole))
    formats = dict(own.formats)
    suffixes: set[str] = set()
    done = Changed()
    for tiles in blocks:
        for archive, part in _by_archive(tiles, place):
            entries = prepared(part, rules, formats)
            formats.update(entries.formats)
            suffixes.update(entries.tiles.suffixes)
            done = done.plus(_put(place, archive, entries, rules.variant))
            progress(done.archives, None, "putting tiles")
    source.verify()
    if place.meta is not None and suffixes:
        metadata = scaled(replace(whole, formats=formats), suffixes)
        if metadata != own:
            write_document(place, metadata)
    return done


def _blocks(source: TileSource, plan: Dealt, place: Target) -> Iterator[Tiles]:
    for group in range(plan.groups):
        squares = plan.squares_of(group, place.arrangement)
        yield concatenated(list(source.gather(squares)))


def _by_archive(tiles: Tiles, place: Target) -> Iterator[tuple[Tile, Tiles]]:
    rows: dict[Tile, list[int]] = {}
    keys = zip(tiles.z.tolist(), tiles.x.tolist(), tiles.y.tolist(), strict=True)
    for row, tile in enumerate(keys):
        rows.setdefault(place.arrangement.archive(tile), []).append(row)
    for archive, own in rows.items():
        yield archive, tiles if len(rows) == 1 else tiles.take(np.array(own, np.int64))


def _put(place: Target, archive: Tile, entries: Prepared, variant: str | None) -> Changed:
    tiles = entries.tiles
    owners = np.repeat(order_of(*archive), len(tiles))
    inside = place.arrangement.inside((tiles.z, tiles.x, tiles.y), owners)
    names = (few_names if len(tiles) <= FEW else names_of)(tiles, inside, variant)
    fresh = NewEntries(names, entries.payloads, entries.details)
    path = place.path(archive)
    count = len(entries.tiles)
    assert place.change is not None
    if not place.change.has(path):
        comment, _ = place.arrangement.comment(archive, entries.formats)
        with place.change.write(path) as file:
            writer = ZipWriter(file)
            writer.add_many(fresh.names, fresh.payloads, fresh.details)
            writer.close(comment)
        return Changed(archives=1, created=1, added=count)
    if place.single is not None:
        _check_belongs(place, archive, entries.tiles)
    with editing_of(place, path) as edit:
        stored = edit.stored
        dropped = stored.rows_named(fresh.named())
        replaced = len({stored.name(row) for row in np.flatnonzero(dropped).tolist()})
        old = edit.comment
        said = place.said if old == place.comment else read_comment(old, path.name)[0]
        edit.commit(dropped, fresh, None if said is None else _comment(said, entries, variant))
    return Changed(archives=1, added=count - replaced, replaced=replaced)


def _check_zooms(settings: Generation1, zooms: Iterable[int]) -> None:
    """Refuse tiles that readers with these settings never ask for."""
    for zoom in zooms:
        if not settings.min_zoom <= zoom <= settings.max_zoom:
            raise InvalidInputError(
                "tile outside of the zooms of the tileset",
                found=f"zoom {zoom}",
                expected=f"{settings.min_zoom} to {settings.max_zoom}",
            )


def _check_belongs(place: Target, archive: Tile, tiles: Tiles) -> None:
    """Refuse tiles that a reader would look for in another archive."""
    assert place.single is not None
    root = place.root
    if root is not None and root != archive:
        raise InvalidInputError(
            "tile belongs to another archive",
            where=place.single.name,
            found=f"{tiles.z[0]}/{tiles.x[0]}/{tiles.y[0]}, which belongs to {_text(archive)}",
            expected=f"tiles of the archive {_text(root)}",
            hint="put it into the tileset, by its folder or document",
        )


def _text(tile: Tile) -> str:
    return "/".join(map(str, tile))


def _comment(said: ArchiveMetadata, entries: Prepared, variant: str | None) -> bytes | None:
    """The comment with what new tiles add to it; None when they add nothing."""
    tiles = entries.tiles
    exts = [split_suffix(suffix)[1] for suffix in tiles.suffixes]
    fresh = {ext: entries.formats[ext] for ext in exts if ext not in said.formats}
    new = replace(
        scaled(said, tiles.suffixes),
        formats={**said.formats, **fresh},
        extra=with_variant(said.extra, variant),
    )
    new = grown(new, extents_of((tiles.z, tiles.x, tiles.y)))
    if new == said:
        return None
    comment, cut = trimmed_comment(new)
    if cut:
        text = f"no room in the comment of the archive, left out: {', '.join(cut)}"
        warn(TapalcatlWarning(text))
    return comment
