"""Compare redundant tables: local metadata (TACO 2.0, 6.2), indexes (6.5), collections.

Each FOLDER has a small Parquet file that repeats the rows of its children in the level table;
some hundreds are read and compared at a time. An index over ZIPs repeats their rows, a collection
over datasets their counts and extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from comal import names
from comal.check import OF_CONTENT, Check
from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    counted,
    shown,
)
from comal.geo.times import values_of
from comal.limits import MIB
from comal.plan import ByteRange, Piece, Whole, run
from comal.storage import Source
from comal.table import ParquetTable, footer_plan
from comal.table.columns import one_array
from comal.taco import spec
from comal.taco.checking import document
from comal.taco.checking.archive import EntrySpans, check_bounds, compare_spans, true_spans
from comal.taco.checking.codes import new_check
from comal.taco.checking.subject import Subject, open_zip
from comal.taco.checking.tree import Int64s, Rows, differing, same_type
from comal.taco.reading.container import Collected, open_container
from comal.taco.writing.tacocat import Member, check_members, merged_collection

_FOLDERS = 256
_ROWS = 65_536
_BYTES = 64 * MIB


def _type_fault(name: str, here: Any, there: Any, where: str) -> str | None:
    """How the types of a column differ in two tables, or None; units of times may differ."""
    one, other = here.schema.field(name).type, there.schema.field(name).type
    times = pa.types.is_timestamp(one) and pa.types.is_timestamp(other) and one.tz == other.tz
    if times or same_type(one, other):
        return None
    return f"column {shown(name)} is {spec.type_name(one)}, but {spec.type_name(other)} in {where}"


def _unlike(names: Iterable[str], here: Any, there: Any, where: str) -> Iterator[tuple[int, str]]:
    """Rows in which columns of two tables differ, with the difference."""
    for name in names:
        for row in differing(there.column(name), here.column(name)):
            pair = (values_of(table.column(name)[row : row + 1]) for table in (here, there))
            one, other = (shown(value) for (value,) in pair)
            yield row, f"{shown(name)} is {one}, but {other} in {where}"


# -- local metadata --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Group:
    """FOLDERs whose children are compared together."""

    folders: Int64s
    starts: Int64s
    """Position of the first child of each FOLDER in `children`."""
    stops: Int64s
    children: Int64s
    """Rows of the level below, sorted by parent."""


def check_meta(
    subject: Subject, levels: Sequence[Rows], spans: Sequence[EntrySpans] | None, findings: Check
) -> None:
    """Compare the local metadata of every FOLDER with the level below it."""
    for above, below in pairwise(levels):
        done, total = 0, int(above.folders.sum())
        own = None if spans is None else spans[above.depth]
        truth = None if spans is None else spans[below.depth]
        for group in _groups(above, below, own) if total else ():
            _check_group(subject, above, below, own, truth, group, findings)
            done += len(group.folders)
            findings.progress(done, total, "local metadata")


def _groups(above: Rows, below: Rows, spans: EntrySpans | None) -> Iterator[_Group]:
    assert below.above is not None
    order = np.argsort(below.above, kind="stable").astype(np.int64)
    parents = below.above[order]
    folders = np.flatnonzero(above.folders)
    if spans is not None:
        folders = folders[spans.offset[folders] >= 0]  # the others have been reported
    sizes = np.zeros(len(folders), np.int64) if spans is None else spans.size[folders]
    ends = np.cumsum(sizes)
    starts = np.searchsorted(parents, folders, side="left")
    stops = np.searchsorted(parents, folders, side="right")
    first = 0
    while first < len(folders):
        within = np.searchsorted(ends, ends[first] - sizes[first] + _BYTES, side="right")
        rows = np.searchsorted(stops[first:], starts[first] + _ROWS, side="right")
        last = max(first + 1, min(first + _FOLDERS, int(within), first + int(rows)))
        some = slice(first, last)
        low, high = int(starts[some].min()), int(stops[some].max())
        yield _Group(folders[some], starts[some] - low, stops[some] - low, order[low:high])
        first = last


def _check_group(
    subject: Subject,
    above: Rows,
    below: Rows,
    own: EntrySpans | None,
    truth: EntrySpans | None,
    group: _Group,
    findings: Check,
) -> None:
    table = subject.tables[below.depth]
    assert table is not None
    try:
        expected = table.take_rows(group.children)
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-table", f"level {below.depth}")
        return
    pieces = _fetch(subject, above, own, group.folders, findings)
    for n, piece in enumerate(pieces):
        if piece is None:
            continue
        start, stop = int(group.starts[n]), int(group.stops[n])
        place = f"{above.place(int(group.folders[n]))}: {spec.META}"
        with findings.guard("taco-meta", place):
            local = read_local(subject, piece, place, findings)
            part = expected.slice(start, stop - start)
            if _same_rows(local, part, below.depth, place, findings):
                _compare_spans(local, group.children[start:stop], below, truth, place, findings)
                _compare_fields(local, part, place, findings)


def _fetch(
    subject: Subject, above: Rows, own: EntrySpans | None, folders: Int64s, findings: Check
) -> list[Piece | None]:
    if own is None:
        return [fetch_file(subject, above, row, findings) for row in folders.tolist()]
    wanted = []
    for row in folders.tolist():
        findings.limits.check("table_bytes", int(own.size[row]), above.place(row))
        wanted.append(ByteRange(int(own.offset[row]), int(own.size[row])))
    try:
        return list(subject.source.fetch(wanted))
    except ShortReadError:
        return [None] * len(wanted)  # entries beyond the file have been reported


def fetch_file(subject: Subject, above: Rows, row: int, findings: Check) -> Piece | None:
    """The local metadata of one row of a folder; None if it is missing, which is reported."""
    folder = f"{spec.DATA}{above.paths[row].as_py()}"
    for name in (spec.META, spec.META_OLD):
        with findings.guard("taco-meta", f"{above.place(row)}: {spec.META}"):
            whole = Whole(findings.limits.table_bytes, f"{folder}/{name}")
            try:
                (piece,) = subject.source.fetch([whole])
            except ObjectNotFoundError:
                continue
            return piece
        return None
    findings.add("taco-meta-missing", above.place(row), f"the folder has no {spec.META}")
    return None


def read_local(subject: Subject, piece: Piece, where: str, findings: Check) -> Any:
    """The rows of fetched local metadata."""
    return table_of(subject, piece, where, findings).read()


def table_of(subject: Subject, piece: Piece, where: str, findings: Check) -> ParquetTable:
    """A table over bytes that have been fetched."""
    span = ByteRange(piece.offset, len(piece.data), where)
    footer = run(footer_plan(span, [piece], findings.limits), subject.source.fetch)
    return ParquetTable(subject.source, footer, known=[piece], limits=findings.limits)


def _same_rows(local: Any, expected: Any, depth: int, place: str, findings: Check) -> bool:
    """Whether local metadata has the same children as the level."""
    fault = next(_row_faults(local, expected, depth), None)
    if fault is not None:
        findings.add("taco-meta-rows", place, fault)
        return False
    for name in (spec.CURRENT_ID, spec.PARENT_ID):
        # Readers ignore them here; exports keep those of their source dataset.
        both = name in local.column_names and name in expected.column_names
        if both and differing(expected.column(name), local.column(name)):
            findings.add("taco-meta-ids", place, f"{name} differs from the level")
    return True


def _row_faults(local: Any, expected: Any, depth: int) -> Iterator[str]:
    for name in spec.CORE_COLUMNS:
        if name not in local.column_names:
            yield f"has no column {name}"
        elif _type_fault(name, local, expected, "the level"):
            yield f"column {name} is not text"
    if local.num_rows != expected.num_rows:
        rows = counted(local.num_rows, "row")
        yield f"has {rows}, but the folder has {expected.num_rows} in level {depth}"
    for row, fault in _unlike(spec.CORE_COLUMNS, local, expected, "the level"):
        yield f"row {row}: {fault}"


def _compare_spans(
    local: Any,
    rows: Int64s,
    below: Rows,
    truth: EntrySpans | None,
    place: str,
    findings: Check,
) -> None:
    if spec.GDAL_VSI in local.column_names:
        findings.add(
            "taco-stored-path",
            place,
            f"column {spec.GDAL_VSI} holds paths of the machine that wrote the file",
        )
    if truth is None:
        return
    for name, right in ((spec.OFFSET, truth.offset), (spec.SIZE, truth.size)):
        if name not in local.column_names:
            findings.add("taco-meta-span", place, f"has no column {name}")
            return
        found = one_array(local.column(name)).to_pylist()
        for n, row in enumerate(rows.tolist()):
            # The offset of an empty sample has no meaning.
            told = truth.entry[row] >= 0 and (name == spec.SIZE or truth.size[row])
            if told and found[n] != right[row]:
                message = f"{name} of {below.place(row)} is {found[n]}, not {right[row]}"
                findings.add("taco-meta-span", place, message)


def _compare_fields(local: Any, expected: Any, place: str, findings: Check) -> None:
    for name in local.column_names:
        if name in spec.PROTECTED_COLUMNS:
            continue
        if name not in expected.column_names:
            findings.add("taco-pit-2", place, f"has a column {shown(name)} that its level lacks")
        elif fault := _type_fault(name, local, expected, "the level"):
            findings.add("taco-pit-2", place, fault)
        else:
            for row, unlike in _unlike([name], local, expected, "the level"):
                findings.add("taco-meta-value", place, f"row {row}: {unlike}")
    for name in expected.column_names:
        if name in local.column_names or name in spec.PROTECTED_COLUMNS:
            continue
        if expected.column(name).null_count == expected.num_rows:
            findings.add("taco-meta-columns", place, f"has no column {shown(name)}")
        else:
            findings.add("taco-meta-value", place, f"lacks {shown(name)}, which the level has")


# -- TACOCAT ---------------------------------------------------------------------------------------


def check_sources(
    subject: Subject, levels: Sequence[Rows], sources: Sequence[str], findings: Check
) -> list[str]:
    """Compare an index with each ZIP that it names; returns the names of those that exist."""
    _check_listed(subject.collection or {}, sources, findings)
    present = []
    for number, name in enumerate(sources):
        findings.progress(number, len(sources), "ZIPs of the index")
        place = f"{spec.SOURCE_FILE} {shown(name)}"
        reason = names.illegal(name)
        if reason is not None:
            findings.add("taco-source", place, f"is not a file name: it {reason}")
            continue
        part = _open(subject.part(name), place, findings)
        if part is not None:
            present.append(name)
            with findings.guard("taco-source-broken", place):
                _compare_part(subject, part, levels, number, place, findings)
    return present


def _open(source: Source, place: str, findings: Check) -> Subject | None:
    inner = new_check(limits=findings.limits)
    try:
        part = open_zip(source, None, inner)
    except ComalError as error:
        _take_unopened(error, "ZIP", place, findings)
        return None
    if inner.total:
        findings.add("taco-source-broken", place, "has problems of its own; check that file")
    return part


def _take_unopened(error: ComalError, what: str, place: str, findings: Check) -> None:
    """Report why a ZIP of an index, or a dataset of a collection, cannot be opened."""
    if isinstance(error, ObjectNotFoundError):
        findings.add("taco-source-missing", place, f"there is no such {what}")
    elif isinstance(error, OF_CONTENT):
        findings.take_error(error, "taco-source-broken", place)
    elif isinstance(error, AccessDeniedError | StorageError):
        findings.add("taco-source-unchecked", place, error.what)
    else:
        raise error


def _compare_part(
    subject: Subject,
    part: Subject,
    levels: Sequence[Rows],
    number: int,
    place: str,
    findings: Check,
) -> None:
    if len(part.tables) != len(subject.tables):
        message = (
            f"{counted(len(subject.tables), 'level')} in the index, {len(part.tables)} in the ZIP"
        )
        findings.add("taco-source-rows", place, message)
    for rows, own in zip(levels, part.tables, strict=False):
        table = subject.tables[rows.depth]
        assert rows.source is not None
        assert table is not None
        mine = np.flatnonzero(rows.source == number).astype(np.int64)
        where = f"{place}, level {rows.depth}"
        if own is None:
            findings.add("taco-source-broken", where, "the level table cannot be read")
        elif own.num_rows != len(mine):
            message = f"{counted(len(mine), 'row')} in the index, {own.num_rows} in the ZIP"
            findings.add("taco-source-rows", where, message)
        else:
            _compare_tables(table, mine, own, where, findings)
            _compare_copied_spans(rows, mine, part, findings)


def _compare_copied_spans(rows: Rows, mine: Int64s, part: Subject, findings: Check) -> None:
    """Compare spans with the ZIP's directory, as the index may copy wrong ones from its tables."""
    if part.directory is None or rows.offset is None or rows.size is None:
        return
    some = Rows(rows.depth, rows.ids.take(mine), rows.folders[mine], numbers=mine)
    some.paths = rows.paths.take(mine)
    some.offset, some.size = rows.offset[mine], rows.size[mine]
    check_bounds(some, part.total, findings)
    compare_spans(some, true_spans(some, part.directory, part.directory.payload_offsets), findings)


def _compare_tables(
    table: ParquetTable, rows: Int64s, own: ParquetTable, where: str, findings: Check
) -> None:
    """Compare all common columns row by row, a block at a time."""
    both = []
    for name in own.column_names:
        if name in {spec.SOURCE_FILE, spec.GDAL_VSI}:
            continue
        if name not in table.column_names:
            findings.add("taco-source-rows", where, f"the index lacks the column {shown(name)}")
        elif fault := _type_fault(name, table, own, "the ZIP"):
            findings.add("taco-source-rows", where, fault)
        else:
            both.append(name)
    for start in range(0, len(rows), _ROWS):
        stop = min(start + _ROWS, len(rows))
        left = table.take_rows(rows[start:stop], both)
        right = own.read_rows(start, stop, both)
        for row, unlike in _unlike(both, left, right, "the ZIP"):
            findings.add("taco-source-rows", f"{where}, row {start + row}", unlike)


def _check_listed(document: Mapping[str, Any], sources: Sequence[str], findings: Check) -> None:
    """Compare the provenance in the collection with the ZIPs that rows name (6.5, 6.6)."""
    for key, files, count in (
        ("_tacocat", "dataset_sources", "num_datasets"),
        (spec.SOURCES, "files", "count"),
    ):
        own, place = document.get(key), f"{spec.COLLECTION}: {key}"
        if own is None:
            continue
        if not isinstance(own, Mapping):
            findings.add("taco-source-stale", place, f"is {shown(own)}, not an object")
            continue
        listed = own.get(files, [])
        texts = [n for n in listed if isinstance(n, str)] if isinstance(listed, list) else None
        if texts is None or len(texts) < len(listed):
            message = f"is {shown(listed)}, not a list of names"
            findings.add("taco-source-stale", f"{place}.{files}", message)
        elif files in own and sorted(texts) != sorted(sources):
            message = f"lists {shown(sorted(texts), 120)}, "
            message += f"but the rows name {shown(sorted(sources), 120)}"
            findings.add("taco-source-unlisted", place, message)
        if own.get(count) not in (None, len(sources)):
            message = f"counts {shown(own[count])} ZIPs, but the rows name {len(sources)}"
            findings.add("taco-source-stale", f"{place}.{count}", message)


# -- TACOLLECTION ----------------------------------------------------------------------------------


def check_collected(listed: Collected, findings: Check) -> list[str]:
    """Compare the document with its datasets; returns the names of those that can be opened."""
    document.check_document(listed.document, findings)
    members = []
    for name in listed.files:
        try:
            members.append(Member.of(open_container(listed.part(name))))
        except ComalError as error:
            _take_unopened(error, "dataset", f"{spec.SOURCES} {shown(name)}", findings)
    if len(members) == len(listed.files):
        with findings.guard("taco-collection", spec.TACOLLECTION):
            _compare_collected(listed.document, members, findings)
    return [member.name for member in members]


def _compare_collected(stated: dict[str, Any], members: Sequence[Member], findings: Check) -> None:
    """Compare trees and fields of all datasets; then counts, extents and sources with theirs."""
    try:
        check_members(members, validate=True)
    except InvalidInputError as error:
        findings.add("taco-source-differs", str(error.found), error.what)
        return
    merged = merged_collection(members)
    tree, summed = (spec.PITSchema.from_dict(one.get(spec.PIT_SCHEMA)) for one in (stated, merged))
    for level in range(summed.levels):
        said = tree.rows(level)
        if said != summed.rows(level):
            rows = summed.rows(level)
            message = f"says {said} rows in level {level}, but the datasets have {rows}"
            findings.add("taco-pit-count", f"{spec.TACOLLECTION}: {spec.PIT_SCHEMA}", message)
    extent = merged["extent"] or {}
    document.compare_extent(stated, extent.get("spatial"), extent.get("temporal"), findings)
    for key, right in merged[spec.SOURCES].items():
        if stated[spec.SOURCES].get(key) != right:
            message = f"says {shown(stated[spec.SOURCES].get(key))}, but it is {shown(right)}"
            place = f"{spec.TACOLLECTION}: {spec.SOURCES}.{key}"
            findings.add("taco-source-stale", place, message)
