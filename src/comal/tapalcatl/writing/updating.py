"""Puts tiles into existing archives, deletes them, and compacts the bytes left behind."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from operator import add
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.plan import run
from comal.progress import Progress, silent
from comal.public import Summary, takes, warn
from comal.storage import Source, open_source
from comal.storage.config import StorageConfig
from comal.storage.location import local_path, stored
from comal.storage.replacing import changing_file, settle
from comal.table.columns import blobs_column, flags_of, numbers_column
from comal.tapalcatl.addressing import Generation1
from comal.tapalcatl.containers.base import Tiles, TileSource, concatenated
from comal.tapalcatl.containers.export import IterableSource, opened
from comal.tapalcatl.containers.survey import extents_of, grown, scaled, survey
from comal.tapalcatl.layout import MetatileLayout, TreeLayout, trimmed_comment
from comal.tapalcatl.reading.tile import check_local_name
from comal.tapalcatl.spec import (
    MAX_ZOOM,
    ArchiveMetadata,
    TapalcatlWarning,
    Tile,
    read_comment,
    with_variant,
)
from comal.tapalcatl.wire import (
    Int64s,
    Keys,
    TileNames,
    order_of,
    parse_names,
    split_suffix,
    tile_keys,
    variant_prefix,
)
from comal.tapalcatl.writing.building import archives_at
from comal.tapalcatl.writing.editing import (
    Target,
    compacting,
    journal_of,
    locked_target,
    refuse_unfinished,
    target_at,
    write_document,
)
from comal.tapalcatl.writing.entries import (
    EntryOptions,
    EntryRules,
    NewEntries,
    new_entries,
    rules_of,
)
from comal.ziparchive import Details, Directory, ZipWriter, directory_plan, local_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headermaking import block_bounds
from comal.ziparchive.local import read_payloads

Location = str | os.PathLike[str]
_FEW: Final = 256
"""Iterables of up to this many tiles are put without a survey."""


@dataclass(frozen=True, slots=True)
class Changed(Summary):
    """Result of a change."""

    archives: int = 0
    """Archives that were changed or created."""
    created: int = 0
    """Archives among them that did not exist before."""
    added: int = 0
    """Tiles that did not exist before."""
    replaced: int = 0
    deleted: int = 0
    absent: int = 0
    """Tiles to delete that did not exist."""

    def plus(self, other: Changed) -> Changed:
        """The sum of both."""
        return Changed(*map(add, astuple(self), astuple(other)))


@takes(EntryOptions)
def put(
    target: Location,
    tiles: Any,
    options: EntryOptions | None = None,
    *,
    generation1: Generation1 | None = None,
    durable: bool = True,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    **changes: Any,
) -> Changed:
    """Add tiles to an archive or a tileset, or replace them.

    New entries and a complete new directory are appended to a copy of each affected archive, which
    then replaces it: readers see the old archive or the new one. Replaced tiles stay in it as dead
    bytes until `compact` frees them. Missing archives are created. All new files are prepared
    before the first one is renamed, the document last: its zooms and bounds grow with the tiles.
    If the file system cannot share blocks, this temporarily takes disk space for a copy of each
    affected archive.

    In a store, copies on this machine are changed, and put in the places of the archives, the
    document last, each if its object is still the same. Readers see each archive old or new. After
    an error some archives may be new, until the change is made again.

    Parameters
    ----------
    target
        An archive, or a tileset by its folder or document.
    tiles
        Anything that `build` takes.
    options
        How tiles become entries. Without `ext`, a tile whose bytes do not determine its extension
        gets that of the tileset, if it has only one.
    generation1
        The layout of a Tapalcatl 1 tileset, which cannot be detected: metatile and tile size,
        layout of keys, prefix and layer as its writer used them. `target` is then the folder that
        keys are relative to, or an archive by its key.
    durable
        Whether to flush new bytes to the disk before they replace old ones. Without it a kill
        loses nothing, but a power cut may.
    progress
        Called with the number of archives done.
    config
        Settings and credentials, where `target` is in a store.
    **changes
        Fields of `EntryOptions`, such as ``ext="png"``.

    Raises
    ------
    InvalidInputError
        A tile that does not belong to the archive by the root and the materialized zooms in its
        comment, that is above the first materialized zoom, or, for Tapalcatl 1, that is outside of
        the zooms of its settings.
    ConflictError
        Another process is writing the tileset or one of its archives, or has changed an object
        meanwhile.
    """
    wanted = replace(options or EntryOptions(), **changes)
    with ExitStack() as scope:
        source = opened(tiles, scope)
        place = scope.enter_context(locked_target(target, generation1, config, durable=durable))
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
    config: StorageConfig | None = None,
) -> Changed:
    """Delete tiles of an archive or a tileset: appends a new directory without them.

    Archives are replaced as by `put`. Bytes of the tiles stay in them until `compact` frees them.
    Zooms and bounds of the document do not change.

    Parameters
    ----------
    target
        As for `put`.
    tiles
        Zooms, columns and rows.
    ext, scale
        Only entries of this extension and scale; by default all entries of a tile.
    variant
        Entries of this variant; by default those without variant.
    generation1, durable, config
        As for `put`.
    progress
        Called with the number of archives done.

    Raises
    ------
    InvalidInputError
        A zoom, column or row that no tile can have.
    ConflictError
        Another process is writing the tileset or one of its archives.
    """
    wanted = _checked(tiles)
    prefix = variant_prefix(variant)
    telling = progress or silent
    done = Changed()
    with locked_target(target, generation1, config, durable=durable) as place:
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
            done = done.plus(_delete(place, place.path(archive), keys, ext, scale, prefix))
            telling(number + 1, len(distinct), "deleting tiles")
    return done


def _checked(tiles: Iterable[Tile]) -> Keys:
    found = [(int(z), int(x), int(y)) for z, x, y in tiles]
    for z, x, y in found:
        if not (0 <= z <= MAX_ZOOM and 0 <= x < 1 << z and 0 <= y < 1 << z):
            raise InvalidInputError("there can be no such tile", found=f"{z}/{x}/{y}")
    columns = np.array(found, np.int64).reshape(-1, 3).T
    return columns[0], columns[1], columns[2]


def _delete(
    place: Target, path: Path, keys: Int64s, ext: str | None, scale: float | None, prefix: bytes
) -> Changed:
    assert place.change is not None
    if not place.change.has(path):
        return Changed(absent=len(keys))
    with place.editing(path) as edit:
        names = edit.tiles(prefix)
        hit = np.isin(names.keys, keys)
        for code, suffix in enumerate(names.suffixes):
            own_scale, own_ext = split_suffix(suffix)
            if ext not in {None, own_ext} or scale not in {None, own_scale}:
                hit &= names.suffix != code
        absent = len(keys) - len(np.unique(names.keys[hit]))
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
        extents = partial(extents_of, tiles.keys)
    else:
        plan = survey(source, place.arrangement)
        squares = map(plan.squares_of, range(plan.groups))
        blocks = (concatenated(list(source.gather(some))) for some in squares)
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
        for archive, part, owners in _by_archive(tiles, place):
            inside = place.arrangement.inside(part.keys, owners)
            entries = new_entries(part, inside, rules, formats)
            formats.update(entries.formats)
            suffixes.update(entries.suffixes)
            done = done.plus(_put(place, archive, part.keys, entries, rules.variant))
            progress(done.archives, None, "putting tiles")
    source.verify()
    if place.meta is not None and suffixes:
        metadata = scaled(replace(whole, formats=formats), suffixes)
        if metadata != own:
            write_document(place, metadata)
    return done


def _by_archive(tiles: Tiles, place: Target) -> Iterator[tuple[Tile, Tiles, Int64s]]:
    """Each archive with its tiles, and the archive's `order_of` value for each tile."""
    owners = order_of(*place.arrangement.archives(tiles.keys))
    distinct = np.unique(owners)
    for archive, owner in zip(archives_at(distinct), distinct.tolist(), strict=True):
        rows = np.flatnonzero(owners == owner)
        yield archive, tiles if len(distinct) == 1 else tiles.take(rows), owners[rows]


def _put(
    place: Target, archive: Tile, keys: Keys, entries: NewEntries, variant: str | None
) -> Changed:
    path = place.path(archive)
    count = len(entries.payloads)
    assert place.change is not None
    if not place.change.has(path):
        layout = place.arrangement
        if isinstance(layout, TreeLayout):
            layout = replace(layout, metadata=scaled(place.metadata, entries.suffixes))
        text, _ = layout.comment(archive, entries.formats)
        with place.change.write(path) as file:
            writer = ZipWriter(file)
            writer.add_many(entries.names, entries.payloads, entries.details)
            writer.close(text)
        return Changed(archives=1, created=1, added=count)
    if place.single is not None:
        _check_belongs(place, archive, keys)
    with place.editing(path) as edit:
        stored = edit.stored
        dropped = stored.named(entries.names)
        replaced = pc.count_distinct(stored.directory.raw_names.filter(dropped)).as_py()
        old = edit.comment
        said = place.said if old == place.comment else read_comment(old, path.name)[0]
        comment = None if said is None else _comment(said, keys, entries, variant)
        edit.commit(flags_of(dropped), entries, comment)
    return Changed(archives=1, added=count - replaced, replaced=replaced)


def _check_zooms(settings: Generation1, zooms: Iterable[int]) -> None:
    """Refuse tiles at zooms that readers with these settings never request."""
    for zoom in zooms:
        if not settings.min_zoom <= zoom <= settings.max_zoom:
            raise InvalidInputError(
                "the tile lies outside the zooms of the tileset",
                found=f"zoom {zoom}",
                expected=f"{settings.min_zoom} to {settings.max_zoom}",
            )


def _check_belongs(place: Target, archive: Tile, keys: Keys) -> None:
    """Refuse tiles that a reader would look up in another archive."""
    assert place.single is not None
    root, first = place.root, tuple(int(column[0]) for column in keys)
    if root is not None and root != archive:
        raise InvalidInputError(
            "the tile belongs to another archive",
            where=place.single.name,
            found=f"{_text(first)}, which belongs to {_text(archive)}",
            expected=f"tiles of the archive {_text(root)}",
            hint="put it into the tileset, named by its folder or document",
        )


def _text(tile: tuple[int, ...]) -> str:
    return "/".join(map(str, tile))


def _comment(
    said: ArchiveMetadata, keys: Keys, entries: NewEntries, variant: str | None
) -> bytes | None:
    """The comment extended for new tiles; None if it does not change."""
    exts = [split_suffix(suffix)[1] for suffix in entries.suffixes]
    fresh = {ext: entries.formats[ext] for ext in exts if ext not in said.formats}
    new = replace(
        scaled(said, entries.suffixes),
        formats={**said.formats, **fresh},
        extra=with_variant(said.extra, variant),
    )
    new = grown(new, extents_of(keys))
    if new == said:
        return None
    comment, cut = trimmed_comment(new)
    if cut:
        text = f"no room in the comment of the archive, left out: {', '.join(cut)}"
        warn(TapalcatlWarning(text))
    return comment


@dataclass(frozen=True, slots=True)
class Recovered(Summary):
    """Result of a recovery."""

    finished: int = 0
    """Files of a change that were renamed to their final names."""
    undone: int = 0
    """Hidden files of an undecided change that were removed."""


def recover(path: str | os.PathLike[str]) -> Recovered:
    """Finish or undo a change of a tileset that a killed writer left behind.

    A change is finished if it was decided, which happens once all files are prepared. A single
    archive is replaced atomically and never needs recovery.

    Parameters
    ----------
    path
        A tileset by its local folder or document.

    Raises
    ------
    InvalidInputError
        It is neither of these.
    ConflictError
        Another process is writing the tileset, or has changed an archive since.
    """
    place = local_path(path, "a tileset changed in place").resolve()
    journal = journal_of(place)
    if journal is None:
        raise InvalidInputError(
            "not a tileset", where=shown(str(place), 200), expected="its folder or document"
        )
    return Recovered(*settle(journal))


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes of archives by purpose."""

    archives: int = 0
    entries: int = 0
    size: int = 0
    """Bytes of the files."""
    live: int = 0
    """Bytes of entries in directories, including local headers."""
    directory: int = 0
    """Bytes of directories, end records and comments."""

    @property
    def dead(self) -> int:
        """Bytes that no entry refers to."""
        return max(0, self.size - self.live - self.directory)

    def plus(self, other: Space) -> Space:
        """The sum of both."""
        return Space(*map(add, astuple(self), astuple(other)))

    def to_dict(self) -> dict[str, int]:
        """The report as plain data."""
        return {**asdict(self), "dead": self.dead}


def space(
    target: Location,
    *,
    generation1: Generation1 | None = None,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Space:
    """Count the dead bytes that updates left in an archive or a tileset.

    Reads the local headers of every archive.

    Parameters
    ----------
    target, generation1, config
        As for `put`.
    progress
        Called with the number of archives done.
    """
    paths = target_at(target, generation1, config).existing()
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
    config: StorageConfig | None = None,
) -> int:
    """Free dead bytes left by updates, and sort entries by zoom and Morton code.

    Archives are rewritten under hidden names, with payloads as stored, and replaced one after the
    other: their tiles do not change, so disk space for the largest one is enough. Archives without
    dead bytes whose entries are in order are skipped. Archives of a tileset without entries are
    removed, but not in a store, and not the only one that is left.

    Parameters
    ----------
    target, generation1, config
        As for `put`.
    force
        Rewrite all archives.
    progress
        Called with the number of archives done.

    Returns
    -------
    int
        Number of bytes freed.

    Raises
    ------
    ConflictError
        Another process is writing the tileset or one of its archives.
    """
    telling = progress or silent
    freed = 0
    with compacting(target, generation1, config) as place:
        paths = place.existing()
        removed = 0
        for number, path in enumerate(paths):
            last = removed == len(paths) - 1
            freed += _compact(path, place, force=force, last=last)
            removed += not (stored(path) or path.exists())
            telling(number + 1, len(paths), "compacting archives")
    return freed


def _space(directory: Directory, source: Source) -> Space:
    offsets, _ = run(local_plan(directory), source.fetch)
    lengths = (
        np.where(offsets >= 0, offsets, directory.payload_offsets)
        - directory.header_offset
        + directory.csize
    )
    # Several names may share the bytes of one local header.
    _, first = np.unique(directory.header_offset, return_index=True)
    described = (directory.flags[first] & zip_wire.FLAG_DESCRIPTOR) > 0
    live = int(lengths[first].sum()) + 16 * int(described.sum())
    end = directory.total - directory.start
    return Space(1, len(directory), directory.total, live, end)


def _compact(path: Path, place: Target, *, force: bool, last: bool) -> int:
    with changing_file(path) as change, open_source(path) as source:
        if place.single is not None:
            refuse_unfinished(path)
        directory = run(directory_plan(same_names=False), source.fetch)
        order = order_of_entries(directory)
        offsets = directory.header_offset[order]
        tidy = len(order) == len(directory) and bool((offsets[1:] > offsets[:-1]).all())
        if tidy and not force and not _space(directory, source).dead:
            return 0
        if not (len(order) or place.single or stored(path) or last):
            path.unlink()
            with suppress(OSError):  # the folder holds other archives
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
    """Rows of a directory by zoom, Morton code and suffix; entries that are not tiles come last.

    Of several entries with one name the last is kept.
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
    """Ranks of suffixes in sorted order, so that the order does not depend on history."""
    by_name = sorted(names.suffixes)
    table = np.array([by_name.index(suffix) for suffix in names.suffixes], np.int64)
    ranks: npt.NDArray[np.int64] = table[names.suffix] if len(table) else np.zeros(0, np.int64)
    return ranks


def _copied(directory: Directory, rows: Any, source: Source) -> tuple[Any, list[bytes], Details]:
    """Entries exactly as stored."""
    payloads = _payloads(directory, rows, source)
    take = numbers_column(rows)
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


def _payloads(directory: Directory, rows: Any, source: Source) -> list[bytes]:
    encrypted = directory.flags[rows] & zip_wire.FLAG_ENCRYPTED
    if encrypted.any():
        raise InvalidMetadataError("the entry is encrypted", where=shown(source.href, 200))
    where = shown(source.href, 200)
    starts, sizes = directory.header_offset[rows], directory.csize[rows]
    names = directory.raw_names.take(numbers_column(rows)).to_pylist()

    def check(row: int, data: bytes, at: int) -> None:
        # Readers refuse these bytes; a rewrite would make them pass for the tile's.
        tile = b"/".join(names[row].split(b"/")[-3:])
        headers = partial(getattr, directory, "header_offset")
        check_local_name(data, at, tile, int(starts[row]), headers, where)

    spans = (starts, directory.payload_offsets[rows] + sizes)
    return read_payloads(source.fetch, spans, sizes, check, where)


def _without_zip64(extras: Any) -> Any:
    """Extra fields without ZIP64's, which the writer adds again if needed."""
    if extras is None:
        return None
    mark = zip_wire.ZIP64_ID.to_bytes(2, "little")
    values = extras.to_pylist()
    if not any(mark in value for value in values):
        return extras
    return blobs_column([_fields_without(value, zip_wire.ZIP64_ID) for value in values])


def _fields_without(extra: bytes, unwanted: int) -> bytes:
    kept, at = b"", 0
    while at + 4 <= len(extra):
        kind = int.from_bytes(extra[at : at + 2], "little")
        size = int.from_bytes(extra[at + 2 : at + 4], "little")
        if kind != unwanted:
            kept += extra[at : at + 4 + size]
        at += 4 + size
    return kept
