"""Ids, parents, paths and the regular structure of the tree (TACO 2.0, 5.5 and 5.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.check import Findings
from comal.errors import InvalidMetadataError, counted, shown
from comal.taco import spec
from comal.taco.checking.rows import Int64s, Rows, bools, integers

_LARGE = 1 << 40


def link(levels: Sequence[Rows], findings: Findings, *, complete: bool = True) -> None:
    """Find the parent and the path of every row, and check all that is said about them.

    `complete` tells that no deeper level is missing, which would have children.
    """
    for rows in levels:
        _check_current(rows, findings)
        if rows.depth == 0:
            rows.paths = rows.ids
            _check_roots(rows, findings)
        else:
            _find_parents(rows, levels[rows.depth - 1], findings)
        _check_ids(rows, findings)
        _check_padding(rows, findings)
    for rows in levels:
        below = levels[rows.depth + 1] if rows.depth + 1 < len(levels) else None
        if below is not None or complete:
            _check_children(rows, below, findings)


def within_source(rows: Rows) -> Int64s:
    """Row numbers, counted within each ZIP of an index."""
    if rows.source is None:
        return np.arange(len(rows))
    order = np.argsort(rows.source, kind="stable")
    ordered = rows.source[order]
    starts = np.searchsorted(ordered, ordered, side="left")
    result = np.empty(len(rows), np.int64)
    result[order] = np.arange(len(rows)) - starts
    return result


def _check_current(rows: Rows, findings: Findings) -> None:
    if rows.current is None:
        return
    expected = within_source(rows)
    found = rows.current
    findings.add_rows(
        "taco-current-id",
        np.flatnonzero(found != expected),
        lambda row: (rows.place(row), f"current_id is {found[row]}, the row is {expected[row]}"),
    )


def _check_roots(rows: Rows, findings: Findings) -> None:
    if rows.parent is None:
        return
    found, expected = rows.parent, within_source(rows)
    findings.add_rows(
        "taco-parent-root",
        np.flatnonzero(found != expected),
        lambda row: (rows.place(row), f"parent_id is {found[row]}, the row is {expected[row]}"),
    )


def _keys(source: Int64s | None, number: Int64s) -> Int64s:
    return number if source is None else source * _LARGE + np.clip(number, -1, _LARGE - 1)


def _parents_by_id(rows: Rows, above: Rows) -> Int64s | None:
    """Rows of the level above by ``internal:parent_id``, which counts within its own ZIP."""
    if rows.parent is None:
        return None
    if above.source is None or rows.source is None:
        inside = (rows.parent >= 0) & (rows.parent < len(above))
        return np.where(inside, rows.parent, -1)
    keys = _keys(above.source, within_source(above))
    order = np.argsort(keys, kind="stable")
    wanted = _keys(rows.source, rows.parent)
    at = np.minimum(np.searchsorted(keys[order], wanted), max(0, len(keys) - 1))
    if not len(keys):
        return np.full(len(rows), -1, np.int64)
    return np.where(keys[order][at] == wanted, order[at], -1)


def _parents_by_path(rows: Rows, above: Rows) -> Int64s | None:
    """Rows of the level above by ``internal:relative_path``."""
    if rows.stored_paths is None:
        return None
    wanted = pc.replace_substring_regex(rows.stored_paths, r"/[^/]*$", "")
    known = above.paths
    if rows.source is not None and above.source is not None:
        own = pa.array(rows.source.astype(str)), pa.array(above.source.astype(str))
        wanted = pc.binary_join_element_wise(own[0], wanted, "/")
        known = pc.binary_join_element_wise(own[1], known, "/")
    return integers(pc.fill_null(pc.index_in(wanted, value_set=known), -1))


def _find_parents(rows: Rows, above: Rows, findings: Findings) -> None:
    by_id, by_path = _parents_by_id(rows, above), _parents_by_path(rows, above)
    none = np.full(len(rows), -1, np.int64)
    told = none if by_id is None else by_id
    if rows.parent is not None and by_id is not None:
        numbers = rows.parent
        inside = np.where(by_id < 0, 0, by_id)
        dangling = by_id < 0
        files = ~dangling & ~above.folders[inside] if len(above) else ~dangling
        findings.add_rows(
            "taco-parent",
            np.flatnonzero(dangling),
            lambda row: (rows.place(row), f"parent_id is {numbers[row]}, which is no row"),
        )
        findings.add_rows(
            "taco-parent",
            np.flatnonzero(files),
            lambda row: (rows.place(row), f"parent_id is {numbers[row]}, which is a FILE"),
        )
        told = np.where(files, -1, by_id)
    # Old exports renumbered parents wrongly; where the two disagree the path is right.
    rows.above = told if by_path is None else np.where(by_path >= 0, by_path, told)
    rows.paths = _joined(rows, above)
    if rows.stored_paths is not None:
        stored = rows.stored_paths
        differ = ~bools(pc.equal(stored, rows.paths))
        if by_id is not None and by_path is not None:
            differ |= (by_path != by_id) & (by_id >= 0)
        findings.add_rows(
            "taco-path",
            np.flatnonzero(differ),
            lambda row: (rows.place(row), f"relative_path is {shown(stored[row].as_py())}"),
        )
    ordered = rows.above[rows.above >= 0]
    falls = np.flatnonzero(ordered[1:] < ordered[:-1])
    if len(falls):
        findings.add(
            "taco-row-order",
            f"level {rows.depth}",
            f"{counted(len(falls), 'row')} before rows of an earlier parent",
        )


def _joined(rows: Rows, above: Rows) -> Any:
    assert rows.above is not None
    if not len(above):
        return rows.ids
    prefix = above.paths.take(pa.array(np.where(rows.above < 0, 0, rows.above)))
    prefix = pc.if_else(pa.array(rows.above >= 0), prefix, "?")
    return pc.binary_join_element_wise(prefix, rows.ids, "/")


def _check_ids(rows: Rows, findings: Findings) -> None:
    bad = list(names.bad_names(rows.ids, tier=2))
    reasons = {name.row: f"id {shown(name.name)} {name.reason}" for name in bad}
    for tier, code in ((1, "taco-id"), (2, "taco-id-risky")):
        found = [name.row for name in bad if name.tier == tier]
        findings.add_rows(code, found, lambda row: (rows.place(row), reasons[row]))
    siblings = rows.source if rows.depth == 0 else rows.above
    siblings = None if siblings is None else siblings + 1
    same = names.twins(rows.ids, siblings, fold=False)
    again = {second: first for first, second in same}
    findings.add_rows(
        "taco-id-twice",
        sorted(again),
        lambda row: (rows.place(row), f"row {again[row]} has the same id"),
    )
    alike = {b: a for a, b in names.twins(rows.ids, siblings) if b not in again}
    findings.add_rows(
        "taco-id-alike",
        sorted(alike),
        lambda row: (rows.place(row), f"row {alike[row]} has that name where case is ignored"),
    )


def _check_padding(rows: Rows, findings: Findings) -> None:
    padding = rows.padding
    wrong = padding & rows.folders
    if rows.size is not None:
        wrong |= padding & (rows.size != 0)
    findings.add_rows(
        "taco-padding",
        np.flatnonzero(wrong),
        lambda row: (rows.place(row), "must be a FILE of no bytes"),
    )


def child_counts(rows: Rows, below: Rows | None) -> Int64s:
    """How many children each row has."""
    if below is None or below.above is None:
        return np.zeros(len(rows), np.int64)
    return np.bincount(below.above[below.above >= 0], minlength=len(rows)).astype(np.int64)


def _check_children(rows: Rows, below: Rows | None, findings: Findings) -> None:
    counts = child_counts(rows, below)
    findings.add_rows(
        "taco-folder-empty",
        np.flatnonzero(rows.folders & (counts == 0)),
        lambda row: (rows.place(row), "no row names it as its parent"),
    )


# -- PIT (5.5) ------------------------------------------------------------------------------------


def positions(levels: Sequence[Rows]) -> list[Int64s]:
    """For each row a number that rows at the same position below their roots share.

    Numbers ascend with the position: that of the parent first, then the place among siblings.
    """
    codes = [np.zeros(len(levels[0]), np.int64)] if levels else []
    for rows in levels[1:]:
        assert rows.above is not None
        order = np.argsort(rows.above, kind="stable")
        parents = rows.above[order]
        rank = np.empty(len(rows), np.int64)
        rank[order] = np.arange(len(rows)) - np.searchsorted(parents, parents, side="left")
        above = codes[-1]
        parent = above[np.where(rows.above < 0, 0, rows.above)] if len(above) else rank
        width = int(rank.max(initial=0)) + 1
        # Rows without a parent have no position; they were reported with that.
        code = np.where(rows.above < 0, -1, parent * width + rank)
        known, dense = np.unique(code, return_inverse=True)
        codes.append(dense - int(len(known) > 0 and known[0] == -1))
    return codes


def check_pit(levels: Sequence[Rows], findings: Findings) -> list[Int64s]:
    """Compare every row with the first one at its position (PIT-1); the positions come back."""
    codes = positions(levels)
    for depth, rows in enumerate(levels):
        below = levels[depth + 1] if depth + 1 < len(levels) else None
        counts = child_counts(rows, below)
        _compare(rows, codes[depth], counts, findings)
    return codes


def _compare(rows: Rows, code: Int64s, counts: Int64s, findings: Findings) -> None:
    valid = code >= 0
    if not valid.any():
        return
    reference = first_rows(code, valid)[np.where(valid, code, 0)]
    padding = rows.padding
    real = first_rows(code, valid & ~padding)[np.where(valid, code, 0)]
    real = np.where(real < 0, reference, real)
    kinds = valid & (rows.folders != rows.folders[reference])
    findings.add_rows(
        "taco-pit-1",
        np.flatnonzero(kinds),
        lambda row: (rows.place(row), f"type differs from {rows.place(int(reference[row]))}"),
    )
    if rows.depth:  # ids of level 0 are what tells samples apart
        same = bools(pc.equal(rows.ids, rows.ids.take(pa.array(real))))
        findings.add_rows(
            "taco-pit-1",
            np.flatnonzero(valid & ~kinds & ~same & ~padding),
            lambda row: (rows.place(row), f"id differs from {rows.place(int(real[row]))}"),
        )
    differ = valid & ~kinds & rows.folders & (counts != counts[reference])
    findings.add_rows(
        "taco-pit-1",
        np.flatnonzero(differ),
        lambda row: (
            rows.place(row),
            f"{counts[row]} children, not {counts[reference[row]]} as "
            + rows.place(int(reference[row])),
        ),
    )


def first_rows(code: Int64s, mask: Any) -> Int64s:
    """For each position the first row of it that `mask` allows, -1 where there is none."""
    result = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    rows = np.flatnonzero(mask)[::-1]
    result[code[rows]] = rows
    return result


# -- taco:pit_schema against the tables -----------------------------------------------------------


def check_pit_schema(
    document: dict[str, Any], levels: Sequence[Rows], codes: Sequence[Int64s], findings: Findings
) -> None:
    """Compare what the collection says about the tree with the tree."""
    try:
        stated = spec.PITSchema.from_dict(document.get(spec.PIT_SCHEMA))
    except InvalidMetadataError as error:
        findings.take_error(error, "taco-pit-schema", f"{spec.COLLECTION}: {spec.PIT_SCHEMA}")
        return
    place = f"{spec.COLLECTION}: {spec.PIT_SCHEMA}"
    if stated.levels != len(levels):
        message = f"tells of {counted(stated.levels, 'level')}, there are {len(levels)}"
        findings.add("taco-pit-schema", place, message)
    if not levels:
        return
    root = spec.FOLDER if len(levels[0]) and levels[0].folders[0] else spec.FILE
    if stated.root_type != root:
        message = f"says {stated.root_type}, the first sample is a {root}"
        findings.add("taco-pit-schema", f"{place}.root.type", message)
    if stated.root_n != len(levels[0]):
        message = f"says {stated.root_n}, level 0 has {counted(len(levels[0]), 'row')}"
        findings.add("taco-pit-count", f"{place}.root.n", message)
    for depth in range(1, min(stated.levels, len(levels))):
        _check_patterns(
            stated.hierarchy[depth], levels, codes, depth, f"{place}.hierarchy.{depth}", findings
        )


def _check_patterns(
    stated: Sequence[spec.PITPattern],
    levels: Sequence[Rows],
    codes: Sequence[Int64s],
    depth: int,
    place: str,
    findings: Findings,
) -> None:
    found = patterns(levels, codes, depth)
    if len(stated) != len(found):
        message = f"{len(stated)} patterns, the tables have {len(found)}"
        findings.add("taco-pit-schema", place, message)
        return
    for position, (one, other) in enumerate(zip(stated, found, strict=True)):
        where = f"{place}[{position}]"
        if one.type != other.type:
            findings.add("taco-pit-schema", where, f"types {one.type}, found {other.type}")
        elif one.id != other.id:
            message = f"ids {shown(', '.join(one.id))}, found {shown(', '.join(other.id))}"
            findings.add("taco-pit-schema", where, message)
        if one.n != other.n:
            findings.add("taco-pit-count", f"{where}.n", f"says {one.n}, there are {other.n}")


def patterns(levels: Sequence[Rows], codes: Sequence[Int64s], depth: int) -> list[spec.PITPattern]:
    """The pattern below each FOLDER position of the level above, by the first rows of each."""
    rows, above = levels[depth], levels[depth - 1]
    code = codes[depth]
    firsts = first_rows(code, code >= 0)
    real = first_rows(code, (code >= 0) & ~rows.padding)
    firsts = np.where(real >= 0, real, firsts)
    assert rows.above is not None
    parents = codes[depth - 1][rows.above[firsts]] if len(above) else firsts
    totals = np.bincount(code[code >= 0], minlength=len(firsts))
    result = []
    for parent in np.unique(parents).tolist():
        mine = np.flatnonzero(parents == parent)
        some = firsts[mine]
        result.append(
            spec.PITPattern(
                int(totals[mine].sum()),
                tuple(spec.FOLDER if rows.folders[row] else spec.FILE for row in some),
                tuple(rows.ids[int(row)].as_py() for row in some),
            )
        )
    return result
