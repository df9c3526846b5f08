"""Spans of rows against the file and against its entries (TACO 2.0, 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.check import Findings
from comal.errors import shown
from comal.taco import spec, wire
from comal.taco.checking.rows import Int64s, Rows
from comal.ziparchive import Directory


@dataclass(frozen=True, slots=True)
class EntrySpans:
    """The spans that rows really have: those of their entries, -1 where there is none."""

    offset: Int64s
    size: Int64s
    entry: Int64s


def entry_names(rows: Rows) -> Any:
    """The entry of each row: the file, or the local metadata of a FOLDER."""
    paths = pc.binary_join_element_wise(spec.DATA, rows.paths, "")
    if not rows.folders.any():
        return paths
    metas = pc.binary_join_element_wise(paths, spec.META, "/")
    return pc.if_else(pa.array(rows.folders), metas, paths)


def check_bounds(rows: Rows, total: int, findings: Findings) -> None:
    """A span must lie in the file; one pass of arithmetic that cannot wrap."""
    if rows.offset is None or rows.size is None:
        return
    offset, size = rows.offset, rows.size
    outside = (offset < 0) | (size < 0) | (offset > total) | (size > total - offset)
    findings.add_rows(
        "taco-span-bounds",
        np.flatnonzero(outside),
        lambda row: (rows.place(row), f"bytes {offset[row]}+{size[row]} of {total}"),
    )


def check_overlap(levels: Sequence[Rows], findings: Findings) -> None:
    """Without a directory nothing else tells that spans are right: they may not overlap."""
    known = [rows for rows in levels if rows.offset is not None and rows.size is not None]
    if not known:
        return
    offset = np.concatenate([rows.offset for rows in known if rows.offset is not None])
    size = np.concatenate([rows.size for rows in known if rows.size is not None])
    depth = np.concatenate([np.full(len(rows), n) for n, rows in enumerate(known)])
    number = np.concatenate([np.arange(len(rows)) for rows in known])
    used = np.flatnonzero((offset >= 0) & (size > 0))
    order = used[np.argsort(offset[used], kind="stable")]
    ends = np.maximum.accumulate(offset[order] + np.minimum(size[order], 2**62))
    wrong = order[1:][offset[order][1:] < ends[:-1]]
    findings.add_rows(
        "taco-span-overlap",
        wrong,
        lambda n: (
            known[int(depth[n])].place(int(number[n])),
            f"bytes {offset[n]}+{size[n]} are also those of another sample",
        ),
    )


def true_spans(rows: Rows, directory: Directory, payload: Int64s) -> EntrySpans:
    """The spans of the entries that the rows name; `payload` is where each entry's bytes begin."""
    entry = directory.find_many(entry_names(rows))
    for row in np.flatnonzero((entry < 0) & rows.folders).tolist():
        # 6.2 once calls the local metadata by this name.
        entry[row] = directory.find(f"{spec.DATA}{rows.paths[row].as_py()}/{spec.META_OLD}")
    if not len(directory):
        none = np.full(len(rows), -1, np.int64)
        return EntrySpans(none, none, none)
    offset = np.where(entry >= 0, payload[entry], -1)
    size = np.where(entry >= 0, directory.csize[entry], -1)
    return EntrySpans(offset, size, entry)


def check_entries(
    levels: Sequence[Rows],
    directory: Directory,
    payload: Int64s,
    findings: Findings,
    *,
    complete: bool = True,
) -> list[EntrySpans]:
    """Compare every row with its entry, and name the entries that belong to no row.

    `complete` tells that no level is missing, whose entries would seem to belong to none.
    """
    used = np.zeros(len(directory), np.bool_)
    found = []
    for rows in levels:
        spans = true_spans(rows, directory, payload)
        found.append(spans)
        used[spans.entry[spans.entry >= 0]] = True
        _check_present(rows, spans, findings)
        _compare(rows, spans, findings)
    metadata = [spec.level_path(depth) for depth in range(spec.MAX_LEVELS)]
    for name in (*metadata, spec.COLLECTION, wire.HEADER_NAME, "TACO_GHOST"):
        row = directory.find(name)
        if row >= 0:
            used[row] = True
    findings.add_rows(
        "taco-entry-undeclared",
        np.flatnonzero(~used) if complete else [],
        lambda row: (
            f"entry {row} ({shown(directory.names[row].as_py())})",
            "no row of a level table names it",
        ),
    )
    return found


def _check_present(rows: Rows, spans: EntrySpans, findings: Findings) -> None:
    # A padding sample has no bytes, so that an entry for it says nothing.
    absent = (spans.entry < 0) & ~rows.padding
    findings.add_rows(
        "taco-entry-missing",
        np.flatnonzero(absent & ~rows.folders),
        lambda row: (rows.place(row), "there is no such entry in the archive"),
    )
    findings.add_rows(
        "taco-meta-missing",
        np.flatnonzero(absent & rows.folders),
        lambda row: (rows.place(row), f"there is no {spec.META} entry for it"),
    )


def _compare(rows: Rows, spans: EntrySpans, findings: Findings) -> None:
    if rows.offset is None or rows.size is None:
        return
    offset, size = rows.offset, rows.size
    empty = rows.padding & (size == 0)
    differ = ((offset != spans.offset) & ~empty) | (size != spans.size)
    findings.add_rows(
        "taco-offset-mismatch",
        np.flatnonzero(differ & (spans.entry >= 0)),
        lambda row: (rows.place(row), mismatch(rows, spans, row)),
    )


def mismatch(rows: Rows, spans: EntrySpans, row: int) -> str:
    """What a row says of its span, and where its entry is."""
    assert rows.offset is not None
    assert rows.size is not None
    stated = f"{rows.offset[row]}+{rows.size[row]}"
    return f"says bytes {stated}, its entry is at {spans.offset[row]}+{spans.size[row]}"
