"""One archive: the rules of ZIP, its names, its comment, and the bytes of its tiles."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow.compute as pc

from comal import strictjson, ziparchive
from comal.errors import InvalidMetadataError, LimitExceededError, shown
from comal.findings import Findings
from comal.limits import Limits
from comal.plan import ByteRange, run
from comal.storage import Source
from comal.tapalcatl import spec
from comal.tapalcatl.checking.contents import fault_of
from comal.tapalcatl.planning import DIRECTORY_LIMIT
from comal.tapalcatl.spec import ArchiveMetadata, Headers
from comal.tapalcatl.wire import TileNames, parse_names, split_suffix, variant_prefix
from comal.ziparchive import Directory, directory_plan
from comal.ziparchive import wire as zip_wire
from comal.ziparchive.headers import label
from comal.ziparchive.local import runs

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
