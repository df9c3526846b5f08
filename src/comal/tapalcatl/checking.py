"""`check`: every problem of a tileset or of a single archive.

An archive is checked by itself (the rules of ZIP, names, comment, bytes of tiles), then against its
place and the document of its tileset.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from comal import strictjson, ziparchive
from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
    shown,
)
from comal.findings import OF_CONTENT, Findings, Report, check_level
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, Whole, run
from comal.progress import Progress, silent
from comal.storage import Source, StorageConfig, as_source, open_again
from comal.storage.local import LocalSource
from comal.storage.replacing import state_of
from comal.storage.targetlock import CHANGE
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import archive_bounds, column_ranges, tile_range
from comal.tapalcatl.planning import DIRECTORY_LIMIT
from comal.tapalcatl.reading.entries import candidates
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.reading.places import InMetatiles, InTree, OneArchive
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import ArchiveMetadata, Headers, TapalcatlWarning, Tile, TileSetMetadata
from comal.tapalcatl.tilechecking import fault_of
from comal.tapalcatl.wire import TileNames, parse_names, split_suffix, variant_prefix
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headers import label
from comal.ziparchive.local import runs

_ERRORS = {
    # The archive as a ZIP
    "zip-end": "there is no end record, or it cannot be used",
    "zip-directory": "the central directory cannot be read",
    "zip-count": "the end record and the directory disagree about the number of entries",
    "zip-two-ends": "several end records hold",
    "zip-trailing-bytes": "bytes follow the archive",
    "zip-zip64-locator": "the ZIP64 locator points nowhere",
    "zip-zip64-mismatch": "the plain and the ZIP64 end record disagree",
    "zip-zip64-field": "a ZIP64 field of an entry cannot be used",
    "zip-prefix": "bytes stand before the archive and are not counted in it",
    "zip-span": "an entry reaches outside of the archive",
    "zip-overlap": "an entry reaches into another one",
    "zip-duplicate-name": "an entry name stands twice; the last one counts",
    "zip-name": "an entry name is no safe path",
    "zip-name-encoding": "an entry name is not the UTF-8 that it claims",
    "zip-local-header": "an entry has no local header",
    "zip-local-mismatch": "a local header is not what the directory says",
    "zip-method": "an entry has a compression method that is not supported",
    "zip-size": "a stored entry has two sizes",
    "zip-encrypted": "an entry is encrypted",
    "zip-symlink": "an entry is a symbolic link",
    "zip-content": "a compressed entry does not inflate to what it should",
    "zip-crc": "the bytes of an entry do not match its checksum",
    # The comment of an archive
    "comment-json": "the comment is no JSON object that describes an archive",
    "comment-version": "the comment is of a version of Tapalcatl that is not known",
    "comment-ascii": "the comment is not one line of printable ASCII",
    "comment-end-record": "the comment holds the signature of an end record",
    # What an archive says of itself
    "archive-root": "the root of the comment is not where the archive is",
    "archive-zooms": "tiles lie outside of the zooms of the comment",
    "archive-bounds": "the bounds of the comment are narrower than the root tiles, or miss tiles",
    "archive-formats": "tiles have a format that the comment does not know",
    # The tileset's document
    "document": "the document cannot be read",
    "document-version": "the document is of a version of Tapalcatl that is not known",
    "document-source": "no archive is where the document or the configuration leads to",
    "document-formats": "the document has no formats, or tiles have one that it does not know",
    "document-zooms": "tiles lie outside of the zooms of the document",
    "document-bounds": "tiles lie outside of the bounds of the document",
    "tile-place": "a tile is in an archive that nobody looks for it in",
    "change-unfinished": "a change of several archives is decided and not in its place yet",
    "archive-stray": "an archive is where no tile leads to",
    # The tiles
    "tile-image": "an image cannot be decoded",
    "tile-encoding": "the bytes are not encoded as the headers say",
    "tile-vector": "a vector tile is no Mapbox vector tile",
    "tile-json": "a tile is not the JSON that it should be",
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the tileset",
}

_WARNINGS = {
    "zip-shared-header": "several entries share one local header",
    "zip-gap": "bytes stand between the directory and its end record",
    "zip-local-note": "fields that no reader needs differ in the two headers of an entry",
    "comment-missing": "the archive has no comment",
    "comment-cut": "the comment lacks a field that existing readers want",
    "formats-shape": "headers of a format are no list of objects with one key each",
    "entry-name": "an entry is no tile",
    "entry-comment": "the comment of an entry is no list of headers",
    "entry-header": "a tile sets a header that no tile may set",
    "archive-scales": "tiles have a scale that the document does not know",
    "archive-document": "the comment of an archive and the document disagree",
    "change-begun": "a change was begun and left; nothing of it is in its place",
    "archive-missing": "an archive inside zooms and bounds is not there",
    "archive-directory": "a directory does not fit into the first request of 64 KiB",
    "dead-space": "bytes belong to no tile any more",
    "newer-version": "a document or comment may say more than this version of comal understands",
    "document-field": "the document lacks a field that existing readers want",
    "tile-type": "the bytes of a tile are another kind than its headers say",
    "tile-empty": "a tile has no bytes",
    "tile-not-decoded": "an image is of a format that is compared by its checksum alone",
}

CODES: Final[Mapping[str, tuple[str, str]]] = {
    **{code: ("error", text) for code, text in _ERRORS.items()},
    **{code: ("warning", text) for code, text in _WARNINGS.items()},
}
"""Code to severity (``error`` or ``warning``) and meaning."""

MILDER: Final[Mapping[str, str]] = {"zip-local-mismatch": "zip-local-note"}
"""What stands for a code that the ZIP room has found to be a warning."""


OLD_SHAPE: Final = "is no list of objects with one key, which existing readers want"
_ONE_OF = 20
_DEAD = frozenset({"zip-hole", "zip-undeclared-entry"})
"""What lies between entries: for this format bytes of earlier versions, told in one sum."""
_WANTED = ("minzoom", "maxzoom", "bounds", "formats", "root")


@dataclass(frozen=True, slots=True)
class CheckedArchive:
    """What other checks need of an archive that could be opened."""

    place: str
    directory: Directory
    names: TileNames
    metadata: ArchiveMetadata | None
    dead: int
    """Bytes that belong to nothing."""


@dataclass(frozen=True, slots=True)
class Rules:
    """How archives are checked."""

    level: str
    limits: Limits
    formats: Callable[[ArchiveMetadata | None, str], Headers]
    """Headers of an extension, from the document or the comment."""
    commented: bool = True
    """Whether archives should have a comment: those of Tapalcatl 1 have none."""
    prefix: bytes = b""
    variants: tuple[str, ...] = ()
    """Those that the document names, whose tiles have names of their own."""


def check_archive(
    source: Source, place: str, rules: Rules, findings: Findings
) -> CheckedArchive | None:
    """Everything about one archive that can be told without the others.

    Parameters
    ----------
    source
        The archive.
    place
        What messages call it.

    Returns
    -------
    CheckedArchive or None
        None when it is no archive that could be read.
    """
    with findings.guard("zip-directory", place):
        plan = directory_plan("", limits=rules.limits, where=place, lenient=True)
        directory = run(plan, source.fetch)
        return _checked(source, place, directory, rules, findings)
    return None


def _checked(
    source: Source, place: str, directory: Directory, rules: Rules, findings: Findings
) -> CheckedArchive:
    told = _Told(findings, place)
    told.take(ziparchive.problems(directory))
    offsets, local = run(ziparchive.local_plan(directory), source.fetch)
    told.take(problem for problem in local if problem.code not in _DEAD)
    dead = ziparchive.dead_bytes(directory, offsets)
    if dead:
        told.add("dead-space", f"{dead} of {directory.total} bytes belong to no tile any more")
    size = directory.total - directory.start
    if size > DIRECTORY_LIMIT:
        told.add("archive-directory", f"directory, end record and comment take {size} bytes")
    names = parse_names(directory.raw_names, rules.prefix)
    metadata = _check_comment(directory, told, rules)
    others = [parse_names(directory.raw_names, variant_prefix(one)) for one in rules.variants]
    _check_names(directory, [names, *others], rules, told)
    _check_entry_comments(directory, told)
    if rules.level != "structure":
        _check_contents(source, directory, [names, *others], offsets, metadata, rules, told)
    return CheckedArchive(place, directory, names, metadata, dead)


class _Told:
    """Findings about one archive: its name stands before each place."""

    def __init__(self, findings: Findings, place: str) -> None:
        self.findings, self.place = findings, place

    def add(self, code: str, message: str, more: str = "") -> None:
        self.findings.add(code, f"{self.place}, {more}" if more else self.place, message)

    def rows(self, code: str, rows: Any, directory: Directory, message: str) -> None:
        self.findings.add_rows(
            code, rows, lambda row: (f"{self.place}, {label(directory.names, row)}", message)
        )

    def take(self, problems: Any) -> None:
        for problem in problems:
            known = problem.place.startswith(self.place)
            place = problem.place if known else f"{self.place}, {problem.place}"
            self.findings.take([replace(problem, place=place)])


def _check_names(
    directory: Directory, all_names: Sequence[TileNames], rules: Rules, told: _Told
) -> None:
    odd = np.ones(len(directory), bool)
    for names in all_names:
        odd[names.rows] = False
    if rules.prefix:  # what is not below it are tiles of other variants, or of none
        below = pc.starts_with(directory.raw_names, pattern=rules.prefix)
        odd &= below.to_numpy(zero_copy_only=False)
    told.rows("entry-name", np.flatnonzero(odd), directory, "is no tile, and is ignored")


def _check_comment(directory: Directory, told: _Told, rules: Rules) -> ArchiveMetadata | None:
    comment = directory.comment
    if not comment.strip():
        if rules.commented:
            told.add("comment-missing", "tells nothing about its tiles")
        return None
    metadata, problems = spec.read_comment(comment, f"{told.place}, comment", rules.limits)
    told.take(problems)
    if zip_wire.END_SIGNATURE.to_bytes(4, "little") in comment:
        told.add(
            "comment-end-record", "holds an end record that others take for the end", "comment"
        )
    odd = next((byte for byte in comment if not 0x20 <= byte < 0x7F), None)
    if odd is not None:
        message = "is not ASCII" if odd >= 0x80 else "holds a line break or control character"
        told.add("comment-ascii", f"{message}: byte 0x{odd:02x}", "comment")
    if metadata is not None:
        known = spec.archive_document(metadata)
        missing = [key for key in _WANTED if not known.get(key) and known.get(key) != 0]
        if missing:
            told.add("comment-cut", f"lacks {', '.join(missing)}", "comment")
        document = strictjson.loads(comment, told.place, rules.limits)
        for ext in old_shapes(document):
            told.add("formats-shape", f"{shown(ext)}: {OLD_SHAPE}", "comment, formats")
        if spec.is_newer(metadata.version):
            told.add("newer-version", f"is of version {shown(metadata.version)}", "comment")
    return metadata


def old_shapes(document: Mapping[str, Any]) -> list[str]:
    """Formats of a document whose headers have a shape that existing readers fail at."""
    formats = document.get("formats") or {}
    return [ext for ext, headers in formats.items() if spec.is_old_shape(headers)]


def _check_entry_comments(directory: Directory, told: _Told) -> None:
    if directory.comments is None:
        return
    for row, comment in enumerate(directory.comments.to_pylist()):
        if not comment:
            continue
        headers = spec.parse_entry_comment(comment)
        place = label(directory.names, row)
        if headers is None:
            told.add("entry-comment", "is no JSON list of headers, and is ignored", place)
            continue
        if comment[:1] == b"{" or spec.is_old_shape(json.loads(comment)):
            told.add("entry-comment", OLD_SHAPE, place)
        for name, _ in sorted(set(headers) - set(spec.safe_headers(headers))):
            told.add("entry-header", f"{shown(name)} is not passed on", place)


def _check_contents(
    source: Source,
    directory: Directory,
    all_names: Sequence[TileNames],
    offsets: Any,
    metadata: ArchiveMetadata | None,
    rules: Rules,
    told: _Told,
) -> None:
    """Read tiles in large runs; compare sizes and checksums, and decode what is inside."""
    readable = (offsets >= 0) & ((directory.flags & zip_wire.FLAG_ENCRYPTED) == 0)
    readable &= (directory.method == zip_wire.STORE) | (directory.method == zip_wire.DEFLATE)
    readable &= directory.csize <= directory.start - offsets
    large = readable & (np.maximum(directory.csize, directory.size) > rules.limits.tile_bytes)
    told.rows("limit-exceeded", np.flatnonzero(large), directory, "is larger than tile_bytes")
    headers: list[Headers] = []
    suffixes = np.full(len(directory), -1, np.int32)
    for names in all_names:
        suffixes[names.rows] = names.suffix + len(headers)
        headers += [_headers(metadata, suffix, rules) for suffix in names.suffixes]
    rows = np.flatnonzero(readable & ~large)
    if rules.level == "sample":
        rows = rows[::_ONE_OF]
    order = rows[np.argsort(offsets[rows], kind="stable")]
    for found in runs(offsets, offsets + directory.csize, order):
        (piece,) = source.fetch([ByteRange(found.start, found.stop - found.start)])
        data = memoryview(piece.data)
        for row in found.rows.tolist():
            start = int(offsets[row]) - found.start
            payload = bytes(data[start : start + int(directory.csize[row])])
            code = int(suffixes[row])
            described = headers[code] if code >= 0 else None
            _check_content(payload, directory, row, described, rules, told)


def _headers(metadata: ArchiveMetadata | None, suffix: str, rules: Rules) -> Headers:
    _, ext = split_suffix(suffix)
    own = () if metadata is None else metadata.headers
    return own + rules.formats(metadata, ext)


def _check_content(
    payload: bytes,
    directory: Directory,
    row: int,
    headers: Headers | None,
    rules: Rules,
    told: _Told,
) -> None:
    place = label(directory.names, row)
    try:
        data = ziparchive.extracted(
            payload,
            method=int(directory.method[row]),
            size=int(directory.size[row]),
            crc=int(directory.crc[row]),
            where=place,
        )
    except InvalidMetadataError as error:
        code = "zip-crc" if error.what == "checksum mismatch" else "zip-content"
        told.add(code, f"{error.what}: {error.found}, expected {error.expected}", place)
        return
    except LimitExceededError as error:
        told.add("limit-exceeded", error.what, place)
        return
    if headers is None:
        return
    if directory.comments is not None:
        comment = directory.comments[row].as_py()
        headers = headers + (spec.parse_entry_comment(comment) or ())
    folded = {name.lower(): value for name, value in headers}
    content_type = folded.get("content-type", spec.OCTETS)
    encoding = folded.get("content-encoding")
    fault = fault_of(data, content_type, encoding, place, rules.limits)
    if fault is not None:
        told.add(fault[0], fault[1], place)


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
