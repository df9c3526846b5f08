"""Open a container as far as possible, and report what cannot be read as problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from comal import strictjson
from comal.check import Check
from comal.errors import (
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    counted,
)
from comal.plan import ByteRange, Head, Wanted, Whole, run
from comal.storage import Source
from comal.table import ParquetTable, footer_plan
from comal.taco import spec, wire
from comal.taco.reading.container import INDEX_KINDS, at_door, beside
from comal.taco.reading.spans import entry_spans, payloads_plan
from comal.ziparchive import Directory, directory_plan


@dataclass(slots=True)
class Subject:
    """The parts of a container that could be opened."""

    source: Source
    kind: wire.Container
    total: int = 0
    """Bytes of the object; 0 for a folder."""
    directory: Directory | None = None
    header: wire.Header | None = None
    collection: dict[str, Any] | None = None
    tables: list[ParquetTable | None] = field(default_factory=list)
    """Per level; None where the table cannot be opened."""
    base: Source | None = None
    """Folder with the ZIPs of an index; None means beside it."""

    @property
    def where(self) -> str:
        """The container, for messages."""
        return self.source.href

    @property
    def is_index(self) -> bool:
        """Whether rows name the ZIP that holds them (6.5)."""
        return self.kind in INDEX_KINDS

    def part(self, name: str) -> Source:
        """A ZIP of the index."""
        return beside(self.source, self.base, name)


def open_subject(source: Source, base: Source | None, findings: Check) -> Subject:
    """Open the container at `source` as `load` does, but as far as possible."""
    return at_door(
        source, base, partial(open_zip, findings=findings), partial(_open_folder, findings=findings)
    )


def open_zip(source: Source, base: Source | None, findings: Check) -> Subject:
    """Open a ZIP or a ``__TACOCAT__`` file."""
    (head,) = source.fetch([Head(wire.HEADER_END)])
    if head.data.startswith(wire.TACOCAT_MAGIC):
        return _open_tacocat(source, base, head.data, head.total, findings)
    subject = Subject(source, "zip", head.total, base=base)
    try:
        subject.header = wire.parse_header(head.data, head.total, source.href)
        findings.take(subject.header.problems)
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-header", source.href)
    subject.directory = _open_directory(source, findings)
    levels, collection = _metadata_spans(subject, findings)
    subject.tables = _open_tables(subject, levels, findings)
    if collection is None:
        findings.add("taco-collection", spec.COLLECTION, "there is no such entry")
    else:
        _read_collection(subject, collection, spec.COLLECTION, findings)
    return subject


def _read_collection(subject: Subject, wanted: Wanted, place: str, findings: Check) -> None:
    with findings.guard("taco-collection", place):
        (piece,) = subject.source.fetch([wanted])
        subject.collection = strictjson.loads(piece.data, spec.COLLECTION, findings.limits)


def _open_directory(source: Source, findings: Check) -> Directory | None:
    try:
        directory = run(directory_plan(limits=findings.limits), source.fetch)
    except NotThisFormatError as error:
        findings.take_error(error, "zip-end", source.href)
    except (InvalidMetadataError, LimitExceededError) as error:
        findings.take_error(error, "zip-directory", source.href)
    else:
        return directory
    return None


def _metadata_spans(
    subject: Subject, findings: Check
) -> tuple[list[ByteRange | None], ByteRange | None]:
    """Spans of the level tables and the collection; the directory wins over TACO_HEADER."""
    header, directory = subject.header, subject.directory
    stated: list[ByteRange | None] = [] if header is None else list(header.levels)
    if directory is None:
        return stated, None if header is None else header.collection
    names = [*spec.LEVEL_PATHS, spec.COLLECTION]
    rows = directory.find_many(pa.array(names, pa.string()))
    starts = run(payloads_plan(directory, rows, *entry_spans(directory)), subject.source.fetch)
    entries = {
        name: ByteRange(start, int(directory.csize[row]))
        for name, row, start in zip(names, rows.tolist(), starts.tolist(), strict=True)
        if row >= 0
    }
    collection = entries.pop(spec.COLLECTION, None)
    count = max((int(name[14]) for name in entries), default=-1) + 1
    levels = [entries.get(name) for name in spec.LEVEL_PATHS[:count]]
    _check_header_entry(directory, subject.where, findings)
    if header is None:
        return levels, collection
    _compare_slots(header, levels, collection, findings)
    levels += [None] * (len(stated) - len(levels))
    stated += [None] * (len(levels) - len(stated))
    both = [own or other for own, other in zip(levels, stated, strict=True)]
    return both, collection or header.collection


def _check_header_entry(directory: Directory, where: str, findings: Check) -> None:
    row = directory.find(wire.HEADER_NAME)
    if row < 0:
        row = directory.find("TACO_GHOST")
    if row < 0:
        findings.add("taco-header-entry", where, "TACO_HEADER is not in the directory")
    elif directory.header_offset[row] != 0 or directory.csize[row] != wire.HEADER_PAYLOAD:
        findings.add(
            "taco-header-entry",
            f"entry {row} (TACO_HEADER)",
            f"must have {wire.HEADER_PAYLOAD} bytes and be the first entry",
        )


def _compare_slots(
    header: wire.Header,
    levels: Sequence[ByteRange | None],
    collection: ByteRange | None,
    findings: Check,
) -> None:
    if len(levels) != len(header.levels):
        message = f"names {counted(len(header.levels), 'level')}, but there are {len(levels)}"
        findings.add("taco-header-slot", "TACO_HEADER", message)
    names = [*spec.LEVEL_PATHS[: len(header.levels)], spec.COLLECTION]
    slots = [*header.levels, header.collection]
    found = [*levels[: len(names) - 1], *[None] * (len(names) - 1 - len(levels)), collection]
    for position, (name, slot, entry) in enumerate(zip(names, slots, found, strict=True)):
        if entry is None:
            fault = f"there is no entry {name}"
        elif slot == entry:
            continue
        else:
            stated, true = f"{slot.offset}+{slot.size}", f"{entry.offset}+{entry.size}"
            fault = f"says bytes {stated}, but the entry {name} is at {true}"
        findings.add("taco-header-slot", f"slot {position}", fault)


def _open_tacocat(
    source: Source, base: Source | None, head: bytes, total: int, findings: Check
) -> Subject:
    subject = Subject(source, "tacocat", total, base=base)
    try:
        subject.header = wire.parse_tacocat_header(head, total, source.href)
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-header", source.href)
        return subject
    spans = [*subject.header.levels, subject.header.collection]
    # 6.5: the sections follow the header without gaps.
    end = wire.TACOCAT_HEADER.size
    for position, span in enumerate(sorted(spans, key=lambda span: span.offset)):
        if span.offset < end:
            findings.add(
                "taco-span-overlap",
                f"section {position}",
                f"begins at byte {span.offset}, inside the previous section, which ends at {end}",
            )
        elif span.offset > end:
            findings.add("zip-hole", f"bytes {end}+{span.offset - end}", "belong to no section")
        end = max(end, span.end)
    if end < total:
        findings.add(
            "zip-trailing-bytes",
            f"byte {end}",
            f"{counted(total - end, 'byte')} after the archive",
        )
    subject.tables = _open_tables(subject, list(subject.header.levels), findings)
    _read_collection(subject, subject.header.collection, source.href, findings)
    return subject


def _open_folder(
    source: Source, kind: wire.Container, base: Source | None, findings: Check
) -> Subject:
    """Open a FOLDER, or the folder form of TACOCAT."""
    subject = Subject(source, kind, base=base)
    whole = Whole(findings.limits.json_bytes, spec.COLLECTION)
    _read_collection(subject, whole, spec.COLLECTION, findings)
    prefix = "" if kind == "tacocat-folder" else "METADATA/"
    count = _folder_levels(subject, prefix, findings)
    spans: list[ByteRange | None] = []
    for depth in range(count):
        href = f"{prefix}level{depth}.parquet"
        try:
            spans.append(ByteRange(0, source.stat(href).size, href))
        except ObjectNotFoundError:
            findings.add("taco-level-missing", href, f"there is no table of level {depth}")
            spans.append(None)
    subject.tables = _open_tables(subject, spans, findings)
    return subject


def _folder_levels(subject: Subject, prefix: str, findings: Check) -> int:
    """Number of levels of a folder, from its files if they can be listed, else as stated."""
    stated = 0
    document = subject.collection or {}
    try:
        stated = spec.PITSchema.from_dict(document.get(spec.PIT_SCHEMA)).levels
    except InvalidMetadataError:
        stated = 0  # reported with the collection
    try:
        found = set(subject.source.names(prefix.rstrip("/")))
    except ObjectNotFoundError:
        findings.add("taco-level-missing", prefix.rstrip("/"), "there is no such folder")
        return 0
    except StorageError:
        return max(stated, 1)
    present = [n for n in range(spec.MAX_LEVELS) if f"level{n}.parquet" in found]
    return max(stated, max(present, default=0) + 1)


def _open_tables(
    subject: Subject, spans: Sequence[ByteRange | None], findings: Check
) -> list[ParquetTable | None]:
    tables: list[ParquetTable | None] = [None] * len(spans)
    for depth, span in enumerate(spans):
        if span is None:
            if subject.kind == "zip":
                findings.add("taco-level-missing", f"level {depth}", "the level has no table")
            continue
        with findings.guard("taco-table", f"level {depth}"):
            limits = findings.limits
            limits.check("table_bytes", span.size, f"{subject.where} {span.href}")
            footer = run(footer_plan(span, (), limits), subject.source.fetch)
            tables[depth] = ParquetTable(subject.source, footer, limits=limits)
    return tables
