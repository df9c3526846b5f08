"""`check`: the order in which a tileset is gone through."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from comal import strictjson
from comal.errors import (
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
    shown,
)
from comal.findings import OF_CONTENT, Findings, Report, check_level
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Head, Whole
from comal.progress import Progress, silent
from comal.storage import Source, StorageConfig, as_source, open_again
from comal.storage.local import LocalSource
from comal.storage.replacing import state_of
from comal.storage.targetlock import CHANGE
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import archive_bounds, column_ranges, tile_range
from comal.tapalcatl.checking.archive import (
    OLD_SHAPE,
    CheckedArchive,
    Rules,
    check_archive,
    old_shapes,
)
from comal.tapalcatl.checking.codes import CODES, MILDER
from comal.tapalcatl.reading.entries import candidates
from comal.tapalcatl.reading.loading import open as open_tileset
from comal.tapalcatl.reading.locating import InMetatiles, InTree
from comal.tapalcatl.reading.places import OneArchive
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import ArchiveMetadata, Headers, Tile, TileSetMetadata
from comal.tapalcatl.warning import TapalcatlWarning
from comal.tapalcatl.wire import TileNames, split_suffix, variant_prefix

_NEEDED = ("minzoom", "maxzoom", "bounds", "formats", "materializedZooms")


def check(
    href: str | os.PathLike[str] | Source,
    *,
    level: str = "full",
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Report:
    """List every problem of a tileset or of a single archive.

    Parameters
    ----------
    href
        As `comal.tapalcatl.open` takes it.
    level
        ``structure``: documents, directories and local headers; ``sample``: also the bytes of one
        of each twenty tiles; ``full``: of every tile.
    limits
        Caps on what a tileset may make us hold.
    config
        How to speak to remote storage.
    progress
        Told how far the check is.
    **options
        How the tileset is opened, such as the settings of Tapalcatl 1.

    Returns
    -------
    Report
        All problems; also of what cannot be opened as long as it is of this format.

    Raises
    ------
    NotThisFormatError
        Something else is there.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        Nothing is there, or it cannot be read.
    InvalidInputError
        An unknown level.
    """
    check_level(level)
    source = as_source(href, config=config)
    findings = Findings(CODES, milder=MILDER)
    container = "tree"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TapalcatlWarning)  # the report tells
            tileset = open_tileset(source, limits=limits, **options)
    except ObjectNotFoundError:
        raise
    except UnsupportedVersionError as error:
        container = _container_of(source)
        code = "comment-version" if container == "archive" else "document-version"
        findings.take_error(error, code, "")
        return findings.report(source.href, container, level)
    except NotThisFormatError as error:
        container = _container_of(source)
        if container != "archive":
            raise
        findings.take_error(error, "zip-end", shown(source.href.rpartition("/")[2], 120)[1:-1])
        return findings.report(source.href, container, level)
    except OF_CONTENT as error:
        container = _container_of(source)
        findings.take_error(error, "zip-directory" if container == "archive" else "document", "")
        return findings.report(source.href, container, level)
    rules = _rules(tileset, level, limits, options.get("variant"))
    if isinstance(tileset.places, OneArchive):
        container = "archive"
        _check_single(tileset, rules, findings)
    else:
        _check_tree(tileset, rules, findings, progress or silent)
    return findings.report(tileset.href, container, level)


def _container_of(source: Source) -> str:
    try:
        (head,) = source.fetch([Head(2)])
    except (NotThisFormatError, ObjectNotFoundError):
        return "tree"
    return "archive" if head.data == b"PK" else "tree"


# -- one archive ----------------------------------------------------------------------------------


def _check_single(tileset: TileSet, rules: Rules, findings: Findings) -> None:
    place = tileset.href.rpartition("/")[2]
    found = check_archive(open_again(tileset.source), shown(place, 120)[1:-1], rules, findings)
    if found is not None and found.metadata is not None:
        _check_own(found, found.metadata, None, findings)


def _rules(tileset: TileSet, level: str, limits: Limits, variant: str | None) -> Rules:
    def headers(own: ArchiveMetadata | None, ext: str) -> Headers:
        known = tileset.metadata.formats.get(ext)
        if known is None and own is not None:
            known = own.formats.get(ext)
        return known or spec.content_headers(ext)

    prefix = variant_prefix(variant)
    variants = spec.variants_of(tileset.metadata.extra)
    return Rules(level, limits, headers, tileset.version != 1, prefix, variants)


def _check_own(
    found: CheckedArchive, own: ArchiveMetadata, tile: Tile | None, findings: Findings
) -> None:
    """What a comment says against what the archive holds and where it is."""
    place, names = found.place, found.names
    if tile is not None and own.root is not None and own.root != tile:
        findings.add("archive-root", place, f"is called {_text(tile)}, says {_text(own.root)}")
    low = 0 if own.min_zoom is None else own.min_zoom
    high = spec.MAX_ZOOM if own.max_zoom is None else own.max_zoom
    _rows(findings, "archive-zooms", (names.z < low) | (names.z > high), found, "outside the zooms")
    if own.formats:
        known = [split_suffix(suffix)[1] in own.formats for suffix in names.suffixes]
        _rows(findings, "archive-formats", ~_by_suffix(known, names), found, "of unknown format")
    scales = [
        own.min_scale <= split_suffix(suffix)[0] <= own.max_scale for suffix in names.suffixes
    ]
    _rows(findings, "archive-scales", ~_by_suffix(scales, names), found, "of unknown scale")
    root = tile if tile is not None else own.root
    if tile is None and own.bounds is not None and own.materialized_zooms:
        # One archive may be the whole tileset: the bounds of its tiles are enough then.
        outside = _outside(own.bounds, names)
        _rows(findings, "archive-bounds", outside, found, "outside the bounds of the comment")
    elif own.bounds is not None and root is not None:
        whole = archive_bounds(root, own.metatile)
        if _narrower(own.bounds, whole):
            findings.add("archive-bounds", place, f"{own.bounds}, its root tiles have {whole}")


def _by_suffix(values: Sequence[bool], names: TileNames) -> Any:
    table: Any = np.array([*values, True])
    return table[names.suffix]


def _rows(findings: Findings, code: str, wrong: Any, found: CheckedArchive, message: str) -> None:
    rows = np.flatnonzero(wrong)
    if not len(rows):
        return
    directory, names = found.directory, found.names

    def tell(row: int) -> tuple[str, str]:
        name = shown(directory.names[int(names.rows[row])].as_py())
        return f"{found.place}, {name}", f"is {message}"

    findings.add_rows(code, rows, tell)


def _narrower(bounds: spec.Bounds, whole: spec.Bounds) -> bool:
    slack = 1e-6
    west, south, east, north = bounds
    return (
        west > whole[0] + slack
        or south > whole[1] + slack
        or east < whole[2] - slack
        or north < whole[3] - slack
    )


# -- a tree ---------------------------------------------------------------------------------------


def _check_tree(tileset: TileSet, rules: Rules, findings: Findings, progress: Progress) -> None:
    _check_change(tileset.source, findings)
    if tileset.version != 1:
        _check_document(tileset, findings)
    listed, there = _archives(tileset, findings)
    total, there_are = len(listed), False
    for number, tile in enumerate(listed):
        progress(number, total, "archives")
        place = f"{_text(tile)}.zip"
        try:
            found = _check_listed(tile, tileset, place, rules, findings)
        except ObjectNotFoundError:
            there.discard(tile)
            continue
        there_are = True
        if found is not None:
            _check_placed(found, tile, tileset, findings)
    progress(total, total, "archives")
    if not there_are:
        where = tileset.metadata.source or tileset.places.root.href
        findings.add("document-source", shown(where, 120)[1:-1], "leads to no archive at all")
        return
    _check_missing(tileset, there, findings)


def _check_change(source: Source, findings: Findings) -> None:
    """What a writer that was killed has left beside the document."""
    if not isinstance(source, LocalSource):
        return
    path = Path(source.location.path)
    journal = (path if path.is_dir() else path.parent) / CHANGE
    code = {"decided": "change-unfinished", "begun": "change-begun"}.get(state_of(journal))
    if code is not None:
        findings.add(code, CHANGE, "'comal tapalcatl recover' finishes or removes it")


def _check_listed(
    tile: Tile, tileset: TileSet, place: str, rules: Rules, findings: Findings
) -> CheckedArchive | None:
    """One archive, at the first of its possible places (of each hash) that has one."""
    sources = tileset.places.candidates(tile)
    for number, source in enumerate(sources):
        try:
            found = check_archive(source, place, rules, findings)
        except ObjectNotFoundError:
            if number == len(sources) - 1:
                raise
            continue
        tileset.places.chosen(number)
        return found
    return None


def _archives(tileset: TileSet, findings: Findings) -> tuple[list[Tile], set[Tile]]:
    """The archives to look at; those that lie where no tile leads to are reported."""
    places = tileset.places
    assert not isinstance(places, OneArchive)
    reachable = list(tileset.archive_tiles())
    there = set(reachable)
    try:
        every = list(places.listed())
    except StorageError:
        return reachable, there
    for tile in every:
        if tile not in there:
            findings.add("archive-stray", f"{_text(tile)}.zip", "no tile leads to this archive")
    return every, there


def _check_document(tileset: TileSet, findings: Findings) -> None:
    (piece,) = tileset.source.fetch([Whole(tileset.limits.json_bytes)])
    where = spec.META
    with findings.guard("document", where):
        document = strictjson.loads(piece.data, where, tileset.limits)
        missing = [key for key in _NEEDED if document.get(key) is None]
        if missing:
            code = "document-formats" if "formats" in missing else "document-field"
            findings.add(code, where, f"lacks {', '.join(missing)}")
        for ext in old_shapes(document):
            findings.add("formats-shape", f"{where}, formats", f"{shown(ext)}: {OLD_SHAPE}")
    if spec.is_newer(tileset.metadata.version):
        findings.add("newer-version", where, f"is of version {shown(tileset.metadata.version)}")


def _check_placed(found: CheckedArchive, tile: Tile, tileset: TileSet, findings: Findings) -> None:
    """Each tile through the document: is it looked for in this archive, and found at all."""
    if found.metadata is not None:
        _check_own(found, found.metadata, tile, findings)
        _check_agreement(found, found.metadata, tile, tileset.metadata, findings)
    names, locator = found.names, tileset.locator
    if isinstance(locator, InMetatiles):
        deep = names.z > locator.config.levels
        _rows(findings, "tile-place", deep, found, "below the levels of a metatile")
        return
    assert isinstance(locator, InTree)
    roots = locator.layout.archives(names.z, names.x, names.y)
    elsewhere = np.zeros(len(names), bool)
    for root, own in zip(roots, tile, strict=True):
        elsewhere |= root != own
    _rows(findings, "tile-place", elsewhere, found, "looked for in another archive")
    metadata = tileset.metadata
    low = 0 if metadata.min_zoom is None else metadata.min_zoom
    high = spec.MAX_ZOOM if metadata.max_zoom is None else metadata.max_zoom
    hidden = (names.z < low) | (names.z > high)
    _rows(findings, "document-zooms", hidden, found, "outside the zooms of the document")
    if metadata.bounds is not None:
        outside = _outside(metadata.bounds, names)
        _rows(findings, "document-bounds", outside, found, "outside the bounds of the document")
    if metadata.formats:
        known = [split_suffix(suffix)[1] in metadata.formats for suffix in names.suffixes]
        unknown = ~_by_suffix(known, names)
        _rows(findings, "document-formats", unknown, found, "of a format without headers")


def _outside(bounds: spec.Bounds, names: TileNames) -> Any:
    """Which tiles a box does not touch."""
    outside = np.zeros(len(names), bool)
    for zoom in np.unique(names.z).tolist():
        rows = tile_range(bounds, zoom)[1]
        beside = (names.y < rows.start) | (names.y >= rows.stop)
        across = np.zeros(len(names), bool)
        for columns in column_ranges(bounds, zoom):
            across |= (names.x >= columns.start) & (names.x < columns.stop)
        outside |= (beside | ~across) & (names.z == zoom)
    return outside


def _check_agreement(
    found: CheckedArchive,
    own: ArchiveMetadata,
    tile: Tile,
    document: TileSetMetadata,
    findings: Findings,
) -> None:
    side = min(own.metatile, 1 << tile[0]), min(document.metatile, 1 << tile[0])
    pairs: list[tuple[str, Any, Any]] = [
        ("metatile", *side),
        ("name", own.name, document.name),
    ]
    if own.min_scale < document.min_scale or own.max_scale > document.max_scale:
        scales = (own.min_scale, own.max_scale), (document.min_scale, document.max_scale)
        pairs.append(("scales", *scales))
    shared = own.formats.keys() & document.formats.keys()
    pairs += [(f"format {shown(e)}", own.formats[e], document.formats[e]) for e in sorted(shared)]
    for what, mine, others in pairs:
        # A comment may leave out what is the same for all.
        if mine != others and mine is not None:
            message = f"{what}: {shown(mine)}, the document says {shown(others)}"
            findings.add("archive-document", found.place, message)


def _check_missing(tileset: TileSet, there: Iterable[Tile], findings: Findings) -> None:
    present = set(there)
    if isinstance(tileset.locator, InMetatiles):
        return  # how deep the tree goes is not told
    try:
        missing = [
            tile for tile in candidates(tileset.locator, tileset.metadata) if tile not in present
        ]
    except InvalidInputError:
        return  # so many could be there that only the existing ones mean something
    findings.add_rows(
        "archive-missing",
        range(len(missing)),
        lambda row: (f"{_text(missing[row])}.zip", "is inside zooms and bounds, and not there"),
    )


def _text(tile: Tile) -> str:
    return "/".join(map(str, tile))
