"""Local metadata against the level tables (TACO 2.0, 6.2).

Each FOLDER has a small Parquet file with the rows of its children, which the level table has as
well. They are read some hundred at a time, next to the rows that they are compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.check import Findings
from comal.errors import InvalidMetadataError, ObjectNotFoundError, ShortReadError, shown
from comal.limits import MIB
from comal.plan import ByteRange, Piece, Whole, run
from comal.progress import Progress
from comal.table import ParquetTable, footer_plan
from comal.taco import spec
from comal.taco.checking.archive import EntrySpans
from comal.taco.checking.subject import Subject
from comal.taco.checking.tree import Int64s, Rows, differing, flat, same_type

_FOLDERS = 256
_ROWS = 65_536
_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True)
class _Group:
    """Folders whose children are compared together."""

    folders: Int64s
    starts: Int64s
    """First child of each in `children`."""
    stops: Int64s
    children: Int64s
    """Rows of the level below, in the order of their parents."""


def check_meta(
    subject: Subject,
    levels: Sequence[Rows],
    spans: Sequence[EntrySpans] | None,
    findings: Findings,
    progress: Progress,
) -> None:
    """Compare the local metadata of every FOLDER with the level below it."""
    for depth in range(len(levels)):
        above = levels[depth]
        below = levels[depth + 1] if depth + 1 < len(levels) else None
        if below is None or not above.folders.any():
            continue
        done, total = 0, int(above.folders.sum())
        for group in _groups(above, below, None if spans is None else spans[depth]):
            _check_group(subject, above, below, spans, group, findings)
            done += len(group.folders)
            progress(done, total, "local metadata")


def _groups(above: Rows, below: Rows, spans: EntrySpans | None) -> Iterator[_Group]:
    assert below.above is not None
    order = np.argsort(below.above, kind="stable").astype(np.int64)
    parents = below.above[order]
    folders = np.flatnonzero(above.folders)
    if spans is not None:
        folders = folders[spans.offset[folders] >= 0]  # the others have been reported
    starts = np.searchsorted(parents, folders, side="left")
    stops = np.searchsorted(parents, folders, side="right")
    first = 0
    while first < len(folders):
        last = first + 1
        size = 0 if spans is None else int(spans.size[folders[first]])
        while last < min(len(folders), first + _FOLDERS):
            size += 0 if spans is None else int(spans.size[folders[last]])
            if size > _BYTES or stops[last] - starts[first] > _ROWS:
                break
            last += 1
        some = slice(first, last)
        low, high = int(starts[some].min()), int(stops[some].max())
        yield _Group(folders[some], starts[some] - low, stops[some] - low, order[low:high])
        first = last


def _check_group(
    subject: Subject,
    above: Rows,
    below: Rows,
    spans: Sequence[EntrySpans] | None,
    group: _Group,
    findings: Findings,
) -> None:
    table = subject.tables[below.depth]
    assert table is not None
    try:
        expected = table.take_rows(group.children)
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-table", f"level {below.depth}")
        return
    truth = None if spans is None else spans[below.depth]
    pieces = _fetch(subject, above, spans, group, findings)
    for n, piece in enumerate(pieces):
        if piece is None:
            continue
        start, stop = int(group.starts[n]), int(group.stops[n])
        place = f"{above.place(int(group.folders[n]))}: {spec.META}"
        with findings.guard("taco-meta", place):
            local = read_local(subject, piece, place)
            rows = group.children[start:stop]
            part = expected.slice(start, stop - start)
            _compare(local, part, rows, below, truth, place, findings)


def _fetch(
    subject: Subject,
    above: Rows,
    spans: Sequence[EntrySpans] | None,
    group: _Group,
    findings: Findings,
) -> list[Piece | None]:
    if spans is not None:
        own = spans[above.depth]
        wanted = []
        for row in group.folders.tolist():
            subject.limits.check("table_bytes", int(own.size[row]), above.place(row))
            wanted.append(ByteRange(int(own.offset[row]), int(own.size[row])))
        try:
            return list(subject.source.fetch(wanted))
        except ShortReadError:
            return [None] * len(wanted)  # entries beyond the file have been reported
    return [fetch_file(subject, above, row, findings) for row in group.folders.tolist()]


def fetch_file(subject: Subject, above: Rows, row: int, findings: Findings) -> Piece | None:
    """The local metadata of one row of a folder; None where it was reported instead."""
    folder = f"{spec.DATA}{above.paths[row].as_py()}"
    place = f"{above.place(row)}: {spec.META}"
    for name in (spec.META, spec.META_OLD):
        with findings.guard("taco-meta", place):
            try:
                (piece,) = subject.source.fetch(
                    [Whole(subject.limits.table_bytes, f"{folder}/{name}")]
                )
            except ObjectNotFoundError:
                continue
            return piece
        return None
    findings.add("taco-meta-missing", above.place(row), f"there is no {spec.META} in its folder")
    return None


def read_local(subject: Subject, piece: Piece, where: str) -> Any:
    """The rows of local metadata that has been fetched."""
    span = ByteRange(piece.offset, len(piece.data), where)
    footer = run(footer_plan(span, [piece], subject.limits), subject.source.fetch)
    return ParquetTable(subject.source, footer, known=[piece], limits=subject.limits).read()


def _compare(
    local: Any,
    expected: Any,
    rows: Int64s,
    below: Rows,
    truth: EntrySpans | None,
    place: str,
    findings: Findings,
) -> None:
    names = local.column_names
    for name in spec.CORE_COLUMNS:
        if name not in names:
            findings.add("taco-meta-rows", place, f"has no column {name}")
            return
        if not same_type(local.schema.field(name).type, expected.schema.field(name).type):
            findings.add("taco-meta-rows", place, f"column {name} is no text")
            return
    if local.num_rows != expected.num_rows:
        message = f"rows: {local.num_rows} here, {expected.num_rows} in level {below.depth}"
        findings.add("taco-meta-rows", place, message)
        return
    for name in spec.CORE_COLUMNS:
        for row in differing(expected.column(name), local.column(name))[:1]:
            one, other = expected.column(name)[row].as_py(), local.column(name)[row].as_py()
            message = f"row {row}: {name} is {shown(other)}, in the level {shown(one)}"
            findings.add("taco-meta-rows", place, message)
            return
    for name in (spec.CURRENT_ID, spec.PARENT_ID):
        # Readers ignore them here; exports carry those of the dataset that they were cut from.
        both = name in names and name in expected.column_names
        if both and differing(expected.column(name), local.column(name)):
            findings.add("taco-meta-ids", place, f"{name} differs from the level")
    _compare_spans(local, rows, below, truth, place, findings)
    _compare_fields(local, expected, place, findings)


def _compare_spans(
    local: Any,
    rows: Int64s,
    below: Rows,
    truth: EntrySpans | None,
    place: str,
    findings: Findings,
) -> None:
    if spec.GDAL_VSI in local.column_names:
        findings.add(
            "taco-stored-path", place, f"column {spec.GDAL_VSI} holds paths of another machine"
        )
    if truth is None:
        return
    for name, right in ((spec.OFFSET, truth.offset), (spec.SIZE, truth.size)):
        if name not in local.column_names:
            findings.add("taco-meta-span", place, f"has no column {name}")
            return
        found = flat(local.column(name)).to_pylist()
        # Where there are no bytes, the offset says nothing.
        wrong = [
            n
            for n, row in enumerate(rows.tolist())
            if truth.entry[row] >= 0
            and found[n] != right[row]
            and (name == spec.SIZE or truth.size[row])
        ]
        for n in wrong:
            message = f"{name} of {below.place(int(rows[n]))} is {found[n]}, not {right[rows[n]]}"
            findings.add("taco-meta-span", place, message)


def _compare_fields(local: Any, expected: Any, place: str, findings: Findings) -> None:
    for name in local.column_names:
        if name in spec.PROTECTED_COLUMNS:
            continue
        if name not in expected.column_names:
            findings.add("taco-pit-2", place, f"has a column {shown(name)} that its level lacks")
            continue
        here, there = local.schema.field(name).type, expected.schema.field(name).type
        if not same_type(here, there):
            message = f"column {shown(name)} is {spec.type_name(here)}, in the level "
            findings.add("taco-pit-2", place, message + spec.type_name(there))
            continue
        for row in differing(expected.column(name), local.column(name)):
            message = f"row {row}: {shown(name)} is {shown(local.column(name)[row].as_py())}, "
            message += f"in the level {shown(expected.column(name)[row].as_py())}"
            findings.add("taco-meta-value", place, message)
    absent = [
        name
        for name in expected.column_names
        if name not in local.column_names and name not in spec.PROTECTED_COLUMNS
    ]
    for name in absent:
        if expected.column(name).null_count == expected.num_rows:
            findings.add("taco-meta-columns", place, f"has no column {shown(name)}")
        else:
            findings.add("taco-meta-value", place, f"lacks {shown(name)}, which the level has")
