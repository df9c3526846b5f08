"""`check`: every problem of a tileset or of a single archive.

An archive is checked by itself (the rules of ZIP, names, comment, bytes of tiles), then against its
path and the document of its tileset.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from comal import strictjson, ziparchive
from comal.check import OF_CONTENT, Check, Report, rules
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
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import Workers
from comal.plan import ByteRange, Head, Whole, run
from comal.progress import Progress
from comal.storage import Source, StorageConfig, as_source, open_again
from comal.storage.replacing import state_of
from comal.storage.source import LocalSource
from comal.storage.targetlock import CHANGE
from comal.tapalcatl import spec
from comal.tapalcatl.addressing import archive_bounds, column_ranges, tile_range
from comal.tapalcatl.layout import DIRECTORY_LIMIT, MetatileLayout, TreeLayout
from comal.tapalcatl.reading.opening import open as open_tileset
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import ArchiveMetadata, Headers, TapalcatlWarning, Tile, TileSetMetadata
from comal.tapalcatl.tilechecking import fault_of
from comal.tapalcatl.wire import TileNames, order_of, parse_names, split_suffix, variant_prefix
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.check import ZIP_RULES
from comal.ziparchive.directory import label
from comal.ziparchive.local import runs

_ERRORS = {
    **ZIP_RULES,
    # The comment of an archive
    "comment-json": "the comment is not a JSON object that describes an archive",
    "comment-version": "the comment is of an unknown version of Tapalcatl",
    "comment-ascii": "the comment is not one line of printable ASCII",
    "comment-end-record": "the comment holds the signature of an end record",
    # The metadata of an archive against its tiles
    "archive-root": "the root in the comment is not the place of the archive",
    "archive-zooms": "tiles lie outside the zooms of the comment",
    "archive-bounds": "the bounds of the comment are narrower than the root tiles, or miss tiles",
    "archive-formats": "tiles have a format that the comment does not know",
    # The tileset's document
    "document": "the document cannot be read",
    "document-version": "the document is of an unknown version of Tapalcatl",
    "document-source": "no archive is where the document or the configuration points",
    "document-formats": "the document has no formats, or tiles have one that it does not know",
    "document-zooms": "tiles lie outside the zooms of the document",
    "document-bounds": "tiles lie outside the bounds of the document",
    "tile-place": "a tile is in an archive in which no reader looks for it",
    "change-unfinished": "a change of several archives is committed, but not in place yet",
    "archive-stray": "an archive is where no reader looks for one",
    # The tiles
    "tile-image": "an image cannot be decoded",
    "tile-encoding": "the bytes are not encoded as the headers say",
    "tile-vector": "a vector tile is not a Mapbox vector tile",
    "tile-json": "a tile is not the JSON that it should be",
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the tileset",
}

_WARNINGS = {
    "zip-shared-header": "several entries share one local header",
    "zip-gap": "bytes stand between the directory and its end record",
    "zip-local-note": "fields that no reader needs differ in the two headers of an entry",
    "comment-missing": "the archive has no comment",
    "comment-cut": "the comment lacks a field that existing readers need",
    "formats-shape": "headers of a format are not a list of objects with one key each",
    "entry-name": "an entry is not a tile",
    "entry-comment": "the comment of an entry is not a list of headers",
    "entry-header": "a tile sets a header that no tile may set",
    "archive-scales": "tiles have a scale that the document does not know",
    "archive-document": "the comment of an archive and the document disagree",
    "change-begun": "a change was begun and abandoned; nothing of it is in place",
    "archive-missing": "an archive inside zooms and bounds is missing",
    "archive-directory": "a directory does not fit into the first request of 64 KiB",
    "dead-space": "bytes no longer belong to a tile",
    "newer-version": "a document or comment may say more than this version of comal understands",
    "document-field": "the document lacks a field that existing readers need",
    "document-tilejson": "a key of TileJSON has a value that TileJSON 3.0 does not allow",
    "tile-type": "the bytes of a tile are another kind than its headers say",
    "tile-empty": "a tile has no bytes",
    "tile-not-decoded": "an image is of a format that only its checksum can check",
}

CODES: Final = rules(_ERRORS, _WARNINGS)
"""Code to severity (``error`` or ``warning``) and meaning."""

MILDER: Final[Mapping[str, str]] = {"zip-local-mismatch": "zip-local-note"}
"""Replacements of codes that the ZIP checks report as warnings."""


_OLD_SHAPE: Final = "is not a list of objects with one key, which existing readers expect"
_DEAD = frozenset({"zip-hole", "zip-undeclared-entry"})
"""Bytes between entries: here they are of earlier versions, reported as one sum."""
_SLACK: Final = 1e-6
"""Degrees by which bounds may be narrower than tiles."""
_TASK: Final = 16
"""Archives that a task checks."""
_WANTED = ("minzoom", "maxzoom", "bounds", "formats", "root")


@dataclass(frozen=True, slots=True)
class _Expected:
    """What is known about archives before they are read."""

    formats: Callable[[ArchiveMetadata | None, str], Headers]
    """Headers of an extension, from the document or the comment."""
    commented: bool = True
    """Whether archives should have a comment, as all but those of Tapalcatl 1 do."""
    prefix: bytes = b""
    variants: tuple[str, ...] = ()
    """Variants that the document declares; their tiles are below their prefixes."""


@dataclass(frozen=True, slots=True)
class _Archive:
    """An archive that could be opened, and its findings."""

    findings: Check
    """The check, scoped to this archive."""
    directory: Directory
    names: TileNames
    variants: Sequence[TileNames]
    metadata: ArchiveMetadata | None

    @property
    def all_names(self) -> list[TileNames]:
        """Names of tiles without variant, then those of each variant."""
        return [self.names, *self.variants]

    def entries(self, code: str, rows: Any, message: str) -> None:
        """Report a problem of each of some entries, by row."""
        directory = self.directory
        self.findings.add_rows(code, rows, lambda row: (label(directory.names, row), message))

    def tiles(self, code: str, wrong: Any, message: str) -> None:
        """Report a problem of each tile where the mask `wrong` is true."""
        directory, names = self.directory, self.names

        def tell(row: int) -> tuple[str, str]:
            return shown(directory.names[int(names.rows[row])].as_py()), f"is {message}"

        self.findings.add_rows(code, np.flatnonzero(wrong), tell)

    def by_suffix(self, is_wrong: Callable[[float, str], bool]) -> Any:
        """A mask of the tiles whose scale and extension satisfy `is_wrong`."""
        table: Any = np.array(
            [*(is_wrong(*split_suffix(one)) for one in self.names.suffixes), False]
        )
        return table[self.names.suffix]


def _check_archive(
    source: Source, place: str, expected: _Expected, findings: Check
) -> _Archive | None:
    """Check one archive without the others; None if it cannot be opened as one."""
    told = findings.at(place)
    with told.guard("zip-directory", ""):
        plan = directory_plan("", limits=told.limits, where=place, lenient=True)
        return _checked(source, run(plan, source.fetch), expected, told)
    return None


def _checked(source: Source, directory: Directory, expected: _Expected, told: Check) -> _Archive:
    told.take(ziparchive.problems(directory))
    offsets, local = run(ziparchive.local_plan(directory), source.fetch)
    told.take(problem for problem in local if problem.code not in _DEAD)
    dead = ziparchive.dead_bytes(directory, offsets)
    if dead:
        message = f"{dead} of {directory.total} bytes no longer belong to a tile"
        told.add("dead-space", "", message)
    size = directory.total - directory.start
    if size > DIRECTORY_LIMIT:
        message = f"directory, end record and comment take {size} bytes"
        told.add("archive-directory", "", message)
    names, *others = (
        parse_names(directory.raw_names, prefix)
        for prefix in (expected.prefix, *map(variant_prefix, expected.variants))
    )
    metadata = _check_comment(directory, told, commented=expected.commented)
    archive = _Archive(told, directory, names, others, metadata)
    _check_names(archive, expected.prefix)
    _check_entry_comments(directory, told)
    if told.one_of:
        _check_contents(source, archive, offsets, expected)
    return archive


def _check_names(archive: _Archive, prefix: bytes) -> None:
    odd = np.ones(len(archive.directory), bool)
    for names in archive.all_names:
        odd[names.rows] = False
    if prefix:  # other entries are tiles of other variants, or of none
        below = pc.starts_with(archive.directory.raw_names, pattern=prefix)
        odd &= below.to_numpy(zero_copy_only=False)
    archive.entries("entry-name", np.flatnonzero(odd), "is not a tile, and is ignored")


def _check_comment(directory: Directory, told: Check, *, commented: bool) -> ArchiveMetadata | None:
    comment = directory.comment
    if not comment.strip():
        if commented:
            told.add("comment-missing", "", "tells nothing about its tiles")
        return None
    metadata, problems = spec.read_comment(comment, f"{told.place}, comment", told.limits)
    told.take(problems)
    if zip_wire.END_SIGNATURE.to_bytes(4, "little") in comment:
        message = "holds an end record that other readers may take for the real one"
        told.add("comment-end-record", "comment", message)
    odd = next((byte for byte in comment if not 0x20 <= byte < 0x7F), None)
    if odd is not None:
        message = "is not ASCII" if odd >= 0x80 else "holds a line break or control character"
        told.add("comment-ascii", "comment", f"{message}: byte 0x{odd:02x}")
    if metadata is not None:
        known = spec.archive_document(metadata)
        missing = [key for key in _WANTED if not known.get(key) and known.get(key) != 0]
        if missing:
            told.add("comment-cut", "comment", f"lacks {', '.join(missing)}")
        document = strictjson.loads(comment, told.place, told.limits)
        _check_form(told, "comment", document, metadata.version)
    return metadata


def _check_form(told: Check, place: str, document: Mapping[str, Any], version: str) -> None:
    """Report what existing readers fail at, and versions newer than comal knows."""
    for ext, headers in (document.get("formats") or {}).items():
        if spec.is_old_shape(headers):
            told.add("formats-shape", f"{place}, formats", f"{shown(ext)}: {_OLD_SHAPE}")
    if spec.is_newer(version):
        told.add("newer-version", place, f"is of version {shown(version)}")


def _check_entry_comments(directory: Directory, told: Check) -> None:
    if directory.comments is None:
        return
    for row, comment in enumerate(directory.comments.to_pylist()):
        if not comment:
            continue
        headers = spec.parse_entry_comment(comment)
        place = label(directory.names, row)
        if headers is None:
            told.add("entry-comment", place, "is not a JSON list of headers, and is ignored")
            continue
        if comment[:1] == b"{" or spec.is_old_shape(json.loads(comment)):
            told.add("entry-comment", place, _OLD_SHAPE)
        for name, _ in sorted(set(headers) - set(spec.safe_headers(headers))):
            told.add("entry-header", place, f"{shown(name)} is not passed on")


def _check_contents(source: Source, archive: _Archive, offsets: Any, expected: _Expected) -> None:
    """Read tiles in large runs, verify sizes and checksums, and decode their content."""
    directory, limits = archive.directory, archive.findings.limits
    readable = (offsets >= 0) & ((directory.flags & zip_wire.FLAG_ENCRYPTED) == 0)
    readable &= (directory.method == zip_wire.STORE) | (directory.method == zip_wire.DEFLATE)
    readable &= directory.csize <= directory.start - offsets
    large = readable & (np.maximum(directory.csize, directory.size) > limits.tile_bytes)
    archive.entries("limit-exceeded", np.flatnonzero(large), "is larger than the limit tile_bytes")
    headers: list[Headers] = []
    suffixes = np.full(len(directory), -1, np.int32)
    for names in archive.all_names:
        suffixes[names.rows] = names.suffix + len(headers)
        headers += [_headers(archive.metadata, one, expected) for one in names.suffixes]
    rows = np.flatnonzero(readable & ~large)[:: archive.findings.one_of]
    order = rows[np.argsort(offsets[rows], kind="stable")]
    for found in runs(offsets, offsets + directory.csize, order):
        (piece,) = source.fetch([ByteRange(found.start, found.stop - found.start)])
        data = memoryview(piece.data)
        for row in found.rows.tolist():
            start = int(offsets[row]) - found.start
            payload = bytes(data[start : start + int(directory.csize[row])])
            code = int(suffixes[row])
            described = headers[code] if code >= 0 else None
            _check_content(payload, directory, row, described, archive.findings)


def _headers(metadata: ArchiveMetadata | None, suffix: str, expected: _Expected) -> Headers:
    _, ext = split_suffix(suffix)
    own = () if metadata is None else metadata.headers
    return own + expected.formats(metadata, ext)


def _check_content(
    payload: bytes, directory: Directory, row: int, headers: Headers | None, told: Check
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
        told.add(code, place, f"{error.what}: {error.found}, expected {error.expected}")
        return
    except LimitExceededError as error:
        told.add("limit-exceeded", place, error.what)
        return
    if headers is None:
        return
    if directory.comments is not None:
        comment = directory.comments[row].as_py()
        headers = headers + (spec.parse_entry_comment(comment) or ())
    folded = {name.lower(): value for name, value in headers}
    content_type = folded.get("content-type", spec.OCTETS)
    encoding = folded.get("content-encoding")
    fault = fault_of(data, content_type, encoding, place, told.limits)
    if fault is not None:
        told.add(fault[0], place, fault[1])


_NEEDED = ("minzoom", "maxzoom", "bounds", "formats", "materializedZooms")


def check(
    href: str | os.PathLike[str] | Source,
    *,
    level: str = "full",
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
    executor: Workers = None,
    **options: Any,
) -> Report:
    """List every problem of a tileset or of a single archive.

    Parameters
    ----------
    href
        As for `comal.tapalcatl.open`.
    level
        ``structure``: documents, directories and local headers; ``sample``: also the bytes of one
        in twenty tiles; ``full``: of every tile.
    limits
        Caps on the memory that a tileset may take.
    config
        Settings of remote storage.
    progress
        Called with the progress of the check.
    executor
        Checks the archives: an executor, or a number of processes; one by one if None.
    **options
        Options for opening the tileset, such as the settings of Tapalcatl 1.

    Returns
    -------
    Report
        All problems, also of a tileset that cannot be opened, as long as it is of this format.

    Raises
    ------
    NotThisFormatError
        `href` is something else.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        Nothing exists at `href`, or it cannot be read.
    InvalidInputError
        An unknown level.
    """
    findings = Check(CODES, level, limits, progress, milder=MILDER)
    source = as_source(href, config=config)
    container = "tree"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TapalcatlWarning)  # the report has them
            tileset = open_tileset(source, limits=limits, **options)
    except ObjectNotFoundError:
        raise
    except (UnsupportedVersionError, *OF_CONTENT) as error:
        container = _container_of(source)
        code, of_archive, place = "document", "zip-directory", ""
        if isinstance(error, UnsupportedVersionError):
            code, of_archive = "document-version", "comment-version"
        elif isinstance(error, NotThisFormatError):
            if container != "archive":
                raise
            of_archive, place = "zip-end", shown(source.href.rpartition("/")[2], 120)[1:-1]
        findings.take_error(error, of_archive if container == "archive" else code, place)
        return findings.report(source.href, container)
    variant = options.get("variant")
    if tileset.files.alone:
        container = "archive"
        _check_single(tileset, _expected(tileset, variant), findings)
    else:
        _check_tree(tileset, variant, findings, executor)
    return findings.report(tileset.href, container)


def _container_of(source: Source) -> str:
    try:
        (head,) = source.fetch([Head(2)])
    except (NotThisFormatError, ObjectNotFoundError):
        return "tree"
    return "archive" if head.data == b"PK" else "tree"


# -- one archive ----------------------------------------------------------------------------------


def _check_single(tileset: TileSet, expected: _Expected, findings: Check) -> None:
    place = shown(tileset.href.rpartition("/")[2], 120)[1:-1]
    archive = _check_archive(open_again(tileset.source), place, expected, findings)
    if archive is not None and archive.metadata is not None:
        _check_own(archive, archive.metadata, None)


def _expected(tileset: TileSet, variant: str | None) -> _Expected:
    def headers(own: ArchiveMetadata | None, ext: str) -> Headers:
        known = tileset.metadata.formats.get(ext)
        if known is None and own is not None:
            known = own.formats.get(ext)
        return known or spec.content_headers(ext)

    variants = spec.variants_of(tileset.metadata.extra)
    return _Expected(headers, tileset.version != 1, variant_prefix(variant), variants)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_center(value: Any) -> bool:
    """Longitude, latitude and zoom."""
    if not (isinstance(value, list) and len(value) == 3 and {int, float} >= set(map(type, value))):
        return False
    longitude, latitude, zoom = value
    return bool(abs(longitude) <= 180 and abs(latitude) <= 90 and 0 <= zoom <= spec.MAX_ZOOM)


def _is_zoom(value: Any) -> bool:
    return type(value) is int and 0 <= value <= spec.MAX_ZOOM


def _is_layer(value: Any) -> bool:
    """One of ``vector_layers``: an id, and a string for each field."""
    if not (isinstance(value, dict) and isinstance(value.get("id"), str)):
        return False
    fields, zooms = value.get("fields", {}), [value.get(key, 0) for key in ("minzoom", "maxzoom")]
    described = isinstance(fields, dict) and all(map(_is_text, fields.values()))
    return described and _is_text(value.get("description", "")) and all(map(_is_zoom, zooms))


_TILEJSON: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "attribution": (_is_text, "a string"),
    "center": (_is_center, "longitude, latitude and zoom"),
    "data": (_are_texts, "a list of strings"),
    "fillzoom": (_is_zoom, "a zoom"),
    "grids": (_are_texts, "a list of strings"),
    "legend": (_is_text, "a string"),
    "scheme": (lambda value: value == "xyz", "xyz, as tiles are numbered here"),
    "template": (_is_text, "a string"),
    "tilejson": (_is_text, "a version"),
    "tiles": (_are_texts, "a list of strings"),
    "vector_layers": (
        lambda value: isinstance(value, list) and all(map(_is_layer, value)),
        "a list of objects with an id, and a string for each of their fields",
    ),
    "version": (_is_text, "a version"),
}
"""Keys of TileJSON 3.0.0, section 3, that are copied: a test of the value, and its text."""


def _check_tilejson(findings: Check, place: str, document: Mapping[str, Any]) -> None:
    for key in sorted(_TILEJSON.keys() & document.keys()):
        is_right, wanted = _TILEJSON[key]
        if not is_right(document[key]):
            message = f"{shown(document[key], 80)} is not {wanted}"
            findings.add("document-tilejson", f"{place}, {key}" if place else key, message)


def _check_own(archive: _Archive, own: ArchiveMetadata, tile: Tile | None) -> None:
    """Check a comment against the content and the path of its archive."""
    findings, names = archive.findings, archive.names
    _check_tilejson(findings, "", own.extra)
    if tile is not None and own.root is not None and own.root != tile:
        findings.add("archive-root", "", f"is called {_text(tile)}, but says {_text(own.root)}")
    _check_said(archive, own, "archive", "comment")
    odd = archive.by_suffix(lambda scale, _: not own.min_scale <= scale <= own.max_scale)
    archive.tiles("archive-scales", odd, "of unknown scale")
    root = tile if tile is not None else own.root
    if tile is None and own.bounds is not None and own.materialized_zooms:
        # One archive may be the complete tileset: bounds of its tiles are enough then.
        outside = _outside(own.bounds, names)
        archive.tiles("archive-bounds", outside, "outside the bounds of the comment")
    elif own.bounds is not None and root is not None:
        whole = archive_bounds(root, own.metatile)
        west, south, east, north = np.subtract(own.bounds, whole)
        if max(west, south, -east, -north) > _SLACK:
            findings.add("archive-bounds", "", f"{own.bounds}, but its root tiles have {whole}")


# -- a tree ---------------------------------------------------------------------------------------


def _check_tree(tileset: TileSet, variant: str | None, findings: Check, executor: Workers) -> None:
    _check_change(tileset.source, findings)
    if tileset.version != 1:
        _check_document(tileset, findings)
    listed, there = _archives(tileset, findings)
    tasks = [listed[start : start + _TASK] for start in range(0, len(listed), _TASK)]
    look = partial(_check_archives, tileset, variant)
    absent: set[Tile] = set().union(*findings.take_from(look, tasks, executor))
    there -= absent
    if absent.issuperset(listed):
        where = tileset.metadata.source or tileset.files.base.href
        findings.add("document-source", shown(where, 120)[1:-1], "leads to no archive")
        return
    _check_missing(tileset, there, findings)


def _check_archives(
    tileset: TileSet, variant: str | None, tiles: Sequence[Tile], findings: Check
) -> set[Tile]:
    """Check some archives; returns those that are not there."""
    expected, absent = _expected(tileset, variant), set()
    for tile in tiles:
        try:
            found = _check_listed(tile, tileset, f"{_text(tile)}.zip", expected, findings)
        except ObjectNotFoundError:
            absent.add(tile)
            continue
        if found is not None:
            _check_placed(found, tile, tileset)
    return absent


def _check_change(source: Source, findings: Check) -> None:
    """Report what a killed writer has left next to the document."""
    if not isinstance(source, LocalSource):
        return
    path = Path(source.location.path)
    journal = (path if path.is_dir() else path.parent) / CHANGE
    code = {"decided": "change-unfinished", "begun": "change-begun"}.get(state_of(journal))
    if code is not None:
        findings.add(code, CHANGE, "'comal tapalcatl recover' finishes or removes it")


def _check_listed(
    tile: Tile, tileset: TileSet, place: str, expected: _Expected, findings: Check
) -> _Archive | None:
    """Check one archive, at the first candidate path (one for each hash) that exists."""
    sources = tileset.files.sources(tile)
    for number, source in enumerate(sources):
        try:
            found = _check_archive(source, place, expected, findings)
        except ObjectNotFoundError:
            if number == len(sources) - 1:
                raise
            continue
        tileset.files.found_at(number)
        return found
    return None


def _archives(tileset: TileSet, findings: Check) -> tuple[list[Tile], set[Tile]]:
    """The archives to check, and the reachable ones; reports archives that no tile leads to."""
    reachable = list(tileset.archive_tiles())
    there = set(reachable)
    try:
        every = list(tileset.files.listed())
    except StorageError:
        return reachable, there
    for tile in every:
        if tile not in there:
            findings.add("archive-stray", f"{_text(tile)}.zip", "no tile leads to this archive")
    return every, there


def _check_document(tileset: TileSet, findings: Check) -> None:
    (piece,) = tileset.source.fetch([Whole(tileset.limits.json_bytes)])
    where = spec.META
    with findings.guard("document", where):
        document = strictjson.loads(piece.data, where, tileset.limits)
        missing = [key for key in _NEEDED if document.get(key) is None]
        if missing:
            code = "document-formats" if "formats" in missing else "document-field"
            findings.add(code, where, f"lacks {', '.join(missing)}")
        _check_tilejson(findings, where, document)
        _check_form(findings, where, document, tileset.metadata.version)


def _check_placed(archive: _Archive, tile: Tile, tileset: TileSet) -> None:
    """Check that the document leads readers to each tile in this archive."""
    if archive.metadata is not None:
        _check_own(archive, archive.metadata, tile)
        _check_agreement(archive, archive.metadata, tile, tileset.metadata)
    names, layout = archive.names, tileset.layout
    if isinstance(layout, MetatileLayout):
        deep = names.z > layout.settings.levels
        archive.tiles("tile-place", deep, "below the levels of a metatile")
        return
    assert isinstance(layout, TreeLayout)
    elsewhere = layout.owners((names.z, names.x, names.y)) != order_of(*tile)
    archive.tiles("tile-place", elsewhere, "looked for in another archive")
    _check_said(archive, tileset.metadata, "document", "document")
    if tileset.metadata.bounds is not None:
        outside = _outside(tileset.metadata.bounds, names)
        archive.tiles("document-bounds", outside, "outside the bounds of the document")


def _check_said(
    archive: _Archive, said: ArchiveMetadata | TileSetMetadata, code: str, what: str
) -> None:
    """Check tiles against the zooms and formats that a comment or the document declares."""
    zooms = archive.names.z
    hidden = zooms < (said.min_zoom or 0)
    if said.max_zoom is not None:
        hidden |= zooms > said.max_zoom
    archive.tiles(f"{code}-zooms", hidden, f"outside the zooms of the {what}")
    if said.formats:
        unknown = archive.by_suffix(lambda _, ext: ext not in said.formats)
        archive.tiles(f"{code}-formats", unknown, f"of a format that the {what} does not know")


def _outside(bounds: spec.Bounds, names: TileNames) -> Any:
    """A mask of the tiles that a box does not overlap."""
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
    archive: _Archive, own: ArchiveMetadata, tile: Tile, document: TileSetMetadata
) -> None:
    most = 1 << tile[0]
    pairs: list[tuple[str, Any, Any]] = [
        ("metatile", min(own.metatile, most), min(document.metatile, most)),
        ("name", own.name, document.name),
    ]
    if own.min_scale < document.min_scale or own.max_scale > document.max_scale:
        scales = (own.min_scale, own.max_scale), (document.min_scale, document.max_scale)
        pairs.append(("scales", *scales))
    shared = own.formats.keys() & document.formats.keys()
    pairs += [(f"format {shown(e)}", own.formats[e], document.formats[e]) for e in sorted(shared)]
    for what, mine, others in pairs:
        # A comment may leave out what is the same for all archives.
        if mine != others and mine is not None:
            message = f"{what}: {shown(mine)}, but the document says {shown(others)}"
            archive.findings.add("archive-document", "", message)


def _check_missing(tileset: TileSet, present: set[Tile], findings: Check) -> None:
    if isinstance(tileset.layout, MetatileLayout):
        return  # the depth of the tree is unknown
    try:
        possible = tileset.layout.possible(tileset.metadata)
        missing = [tile for tile in possible if tile not in present]
    except InvalidInputError:
        return  # too many possible archives to report the missing ones
    message = "is inside zooms and bounds, but missing"
    for tile in missing:
        findings.add("archive-missing", f"{_text(tile)}.zip", message)


def _text(tile: Tile) -> str:
    return "/".join(map(str, tile))
