"""TACOCAT, an index over several ZIPs, against these ZIPs (TACO 2.0, 6.5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from comal import names
from comal.check import OF_CONTENT, Findings
from comal.errors import (
    AccessDeniedError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedVersionError,
    counted,
    shown,
)
from comal.limits import Limits
from comal.progress import Progress
from comal.storage import Source
from comal.table import ParquetTable
from comal.taco import spec
from comal.taco.checking import document
from comal.taco.checking.archive import EntrySpans, check_bounds, mismatch, true_spans
from comal.taco.checking.codes import new_check
from comal.taco.checking.subject import Subject, open_folder, open_zip
from comal.taco.checking.tree import Rows, differing, flat, same_type
from comal.taco.reading.container import Container, open_container
from comal.taco.reading.loading import Collected
from comal.taco.writing import tacocat as merge

_ROWS = 65_536


def check_sources(
    subject: Subject,
    levels: Sequence[Rows],
    sources: Sequence[str],
    findings: Findings,
    progress: Progress,
) -> list[str]:
    """Compare the index with each ZIP that it names; the names of those that are there."""
    _check_listed(subject.collection or {}, sources, findings)
    present = []
    for number, name in enumerate(sources):
        progress(number, len(sources), "ZIPs of the index")
        place = f"{spec.SOURCE_FILE} {shown(name)}"
        reason = names.illegal(name)
        if reason is not None:
            findings.add("taco-source", place, f"is no file name: it {reason}")
            continue
        part = _open(subject.part(name), subject.limits, place, findings)
        if part is not None:
            present.append(name)
            with findings.guard("taco-source-broken", place):
                _compare_part(subject, part, levels, number, place, findings)
    return present


def _open(source: Source, limits: Limits, place: str, findings: Findings) -> Subject | None:
    inner = new_check()
    try:
        part = open_zip(source, limits, inner)
    except ObjectNotFoundError:
        findings.add("taco-source-missing", place, "there is no such ZIP")
    except (NotThisFormatError, UnsupportedVersionError) as error:
        findings.take_error(error, "taco-source-broken", place)
    except (AccessDeniedError, StorageError) as error:
        findings.add("taco-source-unchecked", place, error.what)
    else:
        if inner.total:
            message = "has problems of its own; check it for itself"
            findings.add("taco-source-broken", place, message)
        return part
    return None


def _compare_part(
    subject: Subject,
    part: Subject,
    levels: Sequence[Rows],
    number: int,
    place: str,
    findings: Findings,
) -> None:
    if len(part.tables) != len(subject.tables):
        message = f"levels: {len(subject.tables)} in the index, {len(part.tables)} in the ZIP"
        findings.add("taco-source-rows", place, message)
    for rows, own in zip(levels, part.tables, strict=False):
        table = subject.tables[rows.depth]
        assert rows.source is not None
        assert table is not None
        mine = np.flatnonzero(rows.source == number).astype(np.int64)
        where = f"{place}, level {rows.depth}"
        if own is None:
            findings.add("taco-source-broken", where, "cannot be read")
            continue
        if own.num_rows != len(mine):
            message = f"{counted(len(mine), 'row')} in the index, {own.num_rows} in the ZIP"
            findings.add("taco-source-rows", where, message)
            continue
        _compare_tables(table, mine, own, where, findings)
        if part.directory is not None:
            _compare_spans(rows, mine, part, findings)


def _compare_spans(rows: Rows, mine: Any, part: Subject, findings: Findings) -> None:
    """The index may have copied spans that are wrong in the ZIP as well."""
    assert part.directory is not None
    if rows.offset is None or rows.size is None:
        return
    some = Rows(rows.depth, rows.ids.take(mine), rows.folders[mine])
    some.paths = rows.paths.take(mine)
    some.offset, some.size = rows.offset[mine], rows.size[mine]
    check_bounds(some, part.total, findings)
    spans: EntrySpans = true_spans(some, part.directory, part.directory.payload_offsets)
    wrong = (some.offset != spans.offset) | (some.size != spans.size)
    wrong &= (spans.entry >= 0) & ~(some.padding & (some.size == 0))
    findings.add_rows(
        "taco-offset-mismatch",
        np.flatnonzero(wrong),
        lambda row: (rows.place(int(mine[row])), mismatch(some, spans, row)),
    )


def _compare_tables(
    table: ParquetTable, rows: Any, own: ParquetTable, where: str, findings: Findings
) -> None:
    """All columns that both have, row by row, a block at a time."""
    both = [name for name in own.column_names if name in table.column_names]
    both = [name for name in both if name not in {spec.SOURCE_FILE, spec.GDAL_VSI}]
    for name in own.column_names:
        if name not in table.column_names and name != spec.GDAL_VSI:
            findings.add("taco-source-rows", where, f"the index lacks the column {shown(name)}")
    for name in list(both):
        here, there = table.schema.field(name).type, own.schema.field(name).type
        if not same_type(here, there):
            both.remove(name)
            message = f"column {shown(name)} is {spec.type_name(here)}, in the ZIP "
            findings.add("taco-source-rows", where, message + spec.type_name(there))
    for start in range(0, len(rows), _ROWS):
        stop = min(start + _ROWS, len(rows))
        left = table.take_rows(rows[start:stop], both)
        right = own.read_rows(start, stop, both)
        for name in both:
            _compare_column(left, right, name, start, where, findings)


def _compare_column(
    left: Any, right: Any, name: str, start: int, where: str, findings: Findings
) -> None:
    def tell(row: int) -> tuple[str, str]:
        here, there = (shown(table.column(name)[row].as_py()) for table in (left, right))
        return f"{where}, row {start + row}", f"{shown(name)} is {here}, in the ZIP {there}"

    rows = differing(right.column(name), left.column(name))
    findings.add_rows("taco-source-rows", rows, tell)


def _check_listed(document: Mapping[str, Any], sources: Sequence[str], findings: Findings) -> None:
    """The provenance of the collection against the ZIPs that rows name (6.5, 6.6)."""
    place = f"{spec.COLLECTION}: "
    own = document.get("_tacocat")
    if isinstance(own, Mapping):
        _compare_listed(own.get("dataset_sources"), sources, f"{place}_tacocat", findings)
        if own.get("num_datasets") not in (None, len(sources)):
            message = f"counts {shown(own['num_datasets'])} ZIPs, the rows name {len(sources)}"
            findings.add("taco-source-stale", f"{place}_tacocat.num_datasets", message)
    listed = document.get(spec.SOURCES)
    if isinstance(listed, Mapping):
        _compare_listed(listed.get("files"), sources, f"{place}{spec.SOURCES}", findings)
        if listed.get("count") not in (None, len(sources)):
            message = f"counts {shown(listed['count'])} ZIPs, the rows name {len(sources)}"
            findings.add("taco-source-stale", f"{place}{spec.SOURCES}.count", message)


def _compare_listed(listed: Any, sources: Sequence[str], place: str, findings: Findings) -> None:
    if not isinstance(listed, list):
        return
    texts = [name for name in listed if isinstance(name, str)]
    if sorted(texts) != sorted(sources):
        message = f"lists {shown(sorted(texts), 120)}, the rows name {shown(sorted(sources), 120)}"
        findings.add("taco-source-unlisted", place, message)


def check_forms(source: Source, limits: Limits, findings: Findings) -> None:
    """Compare ``.tacocat`` and ``__TACOCAT__`` in one folder: users of either must see the same."""
    quiet = new_check()
    folder = open_folder(source.child(spec.TACOCAT_FOLDER), "tacocat-folder", None, limits, quiet)
    try:
        single = open_zip(source.child(spec.TACOCAT), limits, quiet)
    except (NotThisFormatError, UnsupportedVersionError) as error:
        findings.take_error(error, "taco-index-forms", spec.TACOCAT)
        return
    if len(folder.tables) != len(single.tables):
        message = f"levels: {len(folder.tables)} in one, {len(single.tables)} in the other"
        findings.add("taco-index-forms", source.href, message)
    for depth, (one, other) in enumerate(zip(folder.tables, single.tables, strict=False)):
        if one is not None and other is not None:
            with findings.guard("taco-index-forms", f"level {depth}"):
                _compare_form(one, other, depth, findings)


def _compare_form(one: ParquetTable, other: ParquetTable, depth: int, findings: Findings) -> None:
    place = f"level {depth}"
    if one.num_rows != other.num_rows:
        message = f"{counted(one.num_rows, 'row')} in .tacocat, {other.num_rows} in __TACOCAT__"
        findings.add("taco-index-forms", place, message)
        return
    wanted = (spec.ID, spec.TYPE, spec.OFFSET, spec.SIZE, spec.SOURCE_FILE, spec.RELATIVE_PATH)
    both = [n for n in wanted if n in one.column_names and n in other.column_names]
    left, right = one.read(both), other.read(both)
    # Rows may stand in another order; a row is known by where its bytes are.
    keys = [(name, "ascending") for name in (spec.SOURCE_FILE, spec.OFFSET) if name in both]
    if len(keys) == 2:
        left, right = left.sort_by(keys), right.sort_by(keys)
    for name in both:
        rows = differing(left.column(name), right.column(name))
        if rows:
            found = flat(right.column(name))[rows[0]].as_py()
            message = f"{name} differs in {counted(len(rows), 'row')}, the first {shown(found)}"
            findings.add("taco-index-forms", place, message)


# -- TACOLLECTION ----------------------------------------------------------------------------------


def check_collected(listed: Collected, findings: Findings) -> list[str]:
    """Compare the document with its datasets; the names of those that can be opened."""
    document.check_document(listed.document, findings)
    members = []
    for name in listed.files:
        member = _open_dataset(listed, name, findings)
        if member is not None:
            members.append(member)
    if len(members) == len(listed.files):
        with findings.guard("taco-collection", spec.TACOLLECTION):
            _compare(listed.document, members, findings)
    return [member.name for member in members]


def _open_dataset(listed: Collected, name: str, findings: Findings) -> Container | None:
    place = f"{spec.SOURCES} {shown(name)}"
    try:
        return open_container(listed.part(name))
    except ObjectNotFoundError:
        findings.add("taco-source-missing", place, "there is no such dataset")
    except OF_CONTENT as error:
        findings.take_error(error, "taco-source-broken", place)
    except (AccessDeniedError, StorageError) as error:
        findings.add("taco-source-unchecked", place, error.what)
    return None


def _compare(stated: dict[str, Any], members: list[Container], findings: Findings) -> None:
    """All partitions have the same tree and fields; counts, extents and sources are theirs."""
    try:
        merge.check_members(members, validate=True)
    except InvalidInputError as error:
        findings.add("taco-source-differs", str(error.found), error.what)
        return
    merged = merge.merged_collection(members, validate=False)
    tree, summed = (spec.PITSchema.from_dict(one.get(spec.PIT_SCHEMA)) for one in (stated, merged))
    for level in range(summed.levels):
        said = tree.rows(level)
        if said != summed.rows(level):
            message = f"says {said} rows of level {level}, the datasets have {summed.rows(level)}"
            findings.add("taco-pit-count", f"{spec.TACOLLECTION}: {spec.PIT_SCHEMA}", message)
    extent = merged["extent"] or {}
    document.compare_extent(stated, extent.get("spatial"), extent.get("temporal"), findings)
    for key, right in merged[spec.SOURCES].items():
        if stated[spec.SOURCES].get(key) != right:
            message = f"says {shown(stated[spec.SOURCES].get(key))}, the datasets {shown(right)}"
            place = f"{spec.TACOLLECTION}: {spec.SOURCES}.{key}"
            findings.add("taco-source-stale", place, message)
