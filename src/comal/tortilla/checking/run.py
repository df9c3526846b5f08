"""Every code that a check can report, with its severity. Codes are stable; the list only grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from comal import strictjson
from comal.check import OF_CONTENT, Check, Findings, Report, rules
from comal.errors import (
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    counted,
    shown,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head, run
from comal.progress import Progress
from comal.storage import Source, StorageConfig
from comal.tortilla import spec
from comal.tortilla.checking.footer import Subject, Usable, check_footer
from comal.tortilla.checking.values import Payload, check_payloads, check_values
from comal.tortilla.reading.items import stored_table, with_format
from comal.tortilla.reading.loading import (
    Location,
    Member,
    last_name,
    open_one,
    part_name,
    set_problems,
    sources_of,
)
from comal.tortilla.wire import DEFAULT_TAIL, TACO_MAGIC, Opened, children_plan

_ERRORS = {
    "tortilla-header": "the header cannot be used",
    "tortilla-footer": "the footer cannot be read",
    "tortilla-collection": "the collection of a TACO v1 cannot be read",
    # Columns of the core: "The Footer"
    "tortilla-column-missing": "a mandatory column is missing",
    "tortilla-column-type": "a column has a type that it cannot have",
    "tortilla-column-null": "a mandatory column holds nulls",
    "tortilla-id-null": "an item has no id",
    "tortilla-id-twice": "an id stands twice",
    "tortilla-split": "a split that is none of train, validation and test",
    # Spans
    "tortilla-span-bounds": "an item lies outside of the data",
    "tortilla-span-overlap": "two items share bytes without being the same",
    # STAC
    "tortilla-crs": "a CRS that nobody knows",
    "tortilla-geotransform": "a geotransform that is none",
    "tortilla-raster-shape": "a shape that is none",
    "tortilla-time-order": "an item ends before it starts",
    # Payloads
    "tortilla-magic": "the bytes of an item are not of its format",
    "tortilla-item": "the bytes of an item cannot be read",
    # Nesting
    "tortilla-nested": "a nested file cannot be read",
    "tortilla-depth": "files are nested too deep",
    # Sets of parts: "The Data Partition"
    "tortilla-part-missing": "a part of the set is missing",
    "tortilla-part-twice": "a file is named twice",
    "tortilla-part-count": "the number of parts is not what the header says",
    # What a check could not go on with
    "limit-exceeded": "the content is larger than the limits allow",
    "unsafe-content": "a name would lead out of the data",
}

_WARNINGS = {
    "tortilla-name": "the name of the file does not fit what it is",
    "tortilla-id": "an id that cannot be a file name, or that other formats forbid",
    "tortilla-id-alike": "two ids are one name where case is ignored",
    "tortilla-format": "a format that neither GDAL nor the specification knows",
    "tortilla-stored-path": "a stored path of the writer's machine",
    "tortilla-time-year": "a time that looks like a year instead of seconds",
    "tortilla-time-unit": "a time that looks like another unit than seconds",
    "tortilla-centroid": "a centroid that is no point, outside of its raster or not in its middle",
    "tortilla-rai-range": "a value of RAI that cannot be",
    "tortilla-zero": "an item whose bytes are all zero",
    "tortilla-collection-field": "a field of the collection is missing",
    "tortilla-part-absent": "another part of the set is not beside this one",
    "tortilla-part-schema": "the parts of a set differ in their columns",
}

CODES: Final = rules(_ERRORS, _WARNINGS)
"""Code to severity (``error`` or ``warning``) and meaning."""


_AT_ONCE = 256
"""Nested files that are opened together."""


def check(
    href: Location | Sequence[Location],
    *,
    level: str = "full",
    limits: Limits = DEFAULT_LIMITS,
    config: StorageConfig | None = None,
    progress: Progress | None = None,
) -> Report:
    """List every problem of a Tortilla or a TACO v1 of any generation.

    Parameters
    ----------
    href
        Path or URL of a file. A pattern or a list is taken as whole sets: that parts are there
        once and together is checked as well. Of a single part it is only told, as a warning,
        which others are not beside it.
    level
        ``structure``: headers, footers and collections, nested ones too; ``sample``: also one of
        each twenty payloads; ``full``: every byte.
    limits
        Caps on what a file may make us hold.
    config
        How to speak to remote storage.
    progress
        Told how far the check is.

    Returns
    -------
    Report
        All problems. A file that cannot be opened has a report as long as its first bytes tell
        that it is of this format.

    Raises
    ------
    NotThisFormatError
        Something else is there.
    ObjectNotFoundError, AccessDeniedError, StorageError, ObjectChangedError
        Nothing is there, or it cannot be read.
    InvalidInputError
        An unknown level.
    """
    limit_codes = {"tortilla_depth": "tortilla-depth"}
    findings = Check(CODES, level, limits, progress, of_limits=limit_codes)
    sources = sources_of(href, config)
    files = [_File(source, _label(source, sources)) for source in sources]
    for file in files:
        _check_file(file, findings)
    if len(files) > 1:
        _check_sets(files, findings)
    else:
        _check_siblings(files[0], findings)
    return findings.reported(sources[0].href, files[0].container)


@dataclass(slots=True)
class _File:
    """One file while it is checked."""

    source: Source
    label: str
    """What stands before places; empty for a single file."""
    opened: Opened | None = None
    table: Any = None
    container: str | None = None
    seen: set[tuple[int, int]] = field(default_factory=set)
    """Spans of nested files that have been gone through: items may share bytes."""
    items: int = 0
    """Payloads met so far."""

    def place(self, more: str) -> str:
        """How messages call a place in the file."""
        return f"{self.label}: {more}" if self.label else more


def _label(source: Source, sources: Sequence[Source]) -> str:
    return last_name(source.href) if len(sources) > 1 else ""


def _check_file(file: _File, findings: Check) -> None:
    source, limits, progress = file.source, findings.limits, findings.progress
    try:
        file.opened = open_one(source, DEFAULT_TAIL, limits)
    except NotThisFormatError:
        raise
    except OF_CONTENT as error:
        (head,) = source.fetch([Head(2)])
        file.container = "taco-v1" if head.data == TACO_MAGIC else "tortilla"
        findings.take_error(error, "tortilla-header", file.place("header"))
        return
    file.container = "taco-v1" if file.opened.header.is_taco else "tortilla"
    _check_name(file, file.opened, findings)
    _check_collection(file, file.opened, findings)
    progress(0, None, "footers")
    file.table, usable = _check_one(file, file.opened, file.label, findings)
    below = _nested(file, usable)
    depth = 0
    while below:
        depth += 1
        if depth > limits.tortilla_depth:
            findings.add(
                "tortilla-depth",
                below[0][1],
                f"nested deeper than {limits.tortilla_depth} files; not gone through",
            )
            break
        found: list[tuple[ByteRange, str]] = []
        for start in range(0, len(below), _AT_ONCE):
            found += _check_below(file, below[start : start + _AT_ONCE], findings)
            progress(start, len(below), f"nested files, depth {depth}")
        below = found


def _check_below(
    file: _File, below: Sequence[tuple[ByteRange, str]], findings: Check
) -> list[tuple[ByteRange, str]]:
    """Check nested files; what is nested in them comes back."""
    spans = [span for span, _ in below]
    places = [place for _, place in below]
    try:
        opened = run(children_plan(spans, places, limits=findings.limits), file.source.fetch)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-nested", places[0])
        return []
    found: list[tuple[ByteRange, str]] = []
    for one, place in zip(opened, places, strict=True):
        if isinstance(one, ComalError):
            findings.take_error(one, "tortilla-nested", place)
            continue
        _, usable = _check_one(file, one, place, findings)
        found += _nested(file, usable, place)
    return found


def _check_one(
    file: _File, opened: Opened, place: str, findings: Check
) -> tuple[Any, Usable | None]:
    """Check the footer of a file, or of a nested one, and the payloads that it names."""
    where = place or "footer"
    try:
        stored = stored_table(opened, place or file.source.href, findings.limits)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-footer", where)
        return None, None
    usable = check_footer(stored, opened, place, findings)
    check_values(Subject(with_format(stored, opened.header), opened, place), findings)
    if findings.one_of:
        _check_payloads(file, usable, place, findings)
    return stored, usable


def _check_payloads(file: _File, usable: Usable, place: str, findings: Check) -> None:
    payloads: list[Payload] = []
    before = f"{place}, " if place else ""
    done: set[tuple[int, int]] = set()
    columns = (usable.rows.tolist(), usable.offsets.tolist(), usable.lengths.tolist())
    for row, offset, length, kind in zip(*columns, usable.formats, strict=True):
        if kind == spec.TORTILLA or (offset, length) in done:
            continue
        done.add((offset, length))
        file.items += 1
        if (file.items - 1) % findings.one_of == 0:
            payloads.append(Payload(offset, length, kind, f"{before}row {row}"))
    check_payloads(file.source, payloads, findings)


def _nested(file: _File, usable: Usable | None, place: str = "") -> list[tuple[ByteRange, str]]:
    """Nested files that have not been gone through yet."""
    if usable is None:
        return []
    before = f"{place or file.label}: " if place or file.label else ""
    found: list[tuple[ByteRange, str]] = []
    columns = (usable.rows.tolist(), usable.offsets.tolist(), usable.lengths.tolist())
    for row, offset, length, kind in zip(*columns, usable.formats, strict=True):
        if kind == spec.TORTILLA and (offset, length) not in file.seen:
            file.seen.add((offset, length))
            found.append((ByteRange(offset, length), f"{before}row {row}"))
    return found


def _check_name(file: _File, opened: Opened, findings: Findings) -> None:
    name, header = last_name(file.source.href), opened.header
    extension = "taco" if header.is_taco else "tortilla"
    expected = f".part.{extension}" if header.parts > 1 else f".{extension}"
    is_part = part_name(file.source.href) is not None
    if not name.endswith(f".{extension}") or is_part != (header.parts > 1):
        findings.add(
            "tortilla-name",
            file.place("name"),
            f"{shown(name)} for a {file.container} of {counted(header.parts, 'part')}, "
            f"expected {expected}",
        )


def _check_collection(file: _File, opened: Opened, findings: Check) -> None:
    if opened.collection is None:
        return
    place = file.place("collection")
    try:
        document = strictjson.loads(opened.collection, place, findings.limits)
    except OF_CONTENT as error:
        findings.take_error(error, "tortilla-collection", place)
        return
    for name in spec.COLLECTION_REQUIRED:
        if document.get(name) is None:
            findings.add("tortilla-collection-field", place, f"{name} is missing")


# -- sets of parts ---------------------------------------------------------------------------------


def _check_sets(files: Sequence[_File], findings: Findings) -> None:
    sound = [file for file in files if file.opened is not None]
    members = [
        Member(file.source.href, file.opened.header.parts, file.source.location.variant)
        for file in sound
        if file.opened
    ]
    findings.take(set_problems(members))
    groups: dict[Any, list[_File]] = {}
    for file, member in zip(sound, members, strict=True):
        if member.parts > 1 and file.table is not None:
            groups.setdefault(member.group, []).append(file)
    for group in groups.values():
        _check_schemas(group, findings)
        _check_unique(group, findings)


def _check_schemas(group: Sequence[_File], findings: Findings) -> None:
    first = group[0].table.schema
    for file in group[1:]:
        schema = file.table.schema
        differing = [
            name
            for name in dict.fromkeys([*first.names, *schema.names])
            if name not in first.names
            or name not in schema.names
            or first.field(name).type != schema.field(name).type
        ]
        if differing:
            listed = ", ".join(shown(name) for name in differing[:10])
            findings.add(
                "tortilla-part-schema",
                file.place("footer"),
                f"columns that {group[0].label} has not, or has otherwise: {listed}",
            )


def _check_unique(group: Sequence[_File], findings: Findings) -> None:
    ids: dict[str, str] = {}
    for file in group:
        if spec.ID not in file.table.column_names:
            continue
        here = set(map(str, file.table[spec.ID].drop_null().to_pylist()))
        twice = sorted(here & ids.keys())
        for name in twice:
            findings.add("tortilla-id-twice", file.label, f"{shown(name)} is also in {ids[name]}")
        ids.update(dict.fromkeys(here, file.label))


def _check_siblings(file: _File, findings: Findings) -> None:
    name = part_name(file.source.href)
    if file.opened is None or name is None or file.opened.header.parts <= 1:
        if file.opened is not None and file.opened.header.parts == 0:
            findings.take(set_problems([Member(file.source.href, 0)]))
        return
    count = file.opened.header.parts
    try:
        folder = file.source.sibling(".")
        present = {
            found.number
            for found in map(part_name, folder.names())
            if found is not None and found.stem == name.stem
        }
    except (StorageError, ObjectNotFoundError, InvalidInputError):
        return  # a storage that cannot list says nothing of what is beside the part
    first = 0 if 0 in present else 1
    findings.add_rows(
        "tortilla-part-absent",
        [
            number
            for number in range(first, min(count, len(present) + 1_000) + first)
            if number not in present
        ],
        lambda number: (name.numbered(number), f"not beside {shown(last_name(file.source.href))}"),
    )
