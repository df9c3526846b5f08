"""Padding of the source taken out, so that what is left is still a regular tree (5.5).

A position that no root needs any more goes away. At one that only some roots need, the others get
an empty placeholder, ``__TACOPAD__N``, as the specification has it for missing observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.samples.payloads import Bytes, Mixed, Payloads
from comal.taco import spec
from comal.taco.model.levels import Level, Levels, is_padding
from comal.taco.model.pit import check_pit

Bools = npt.NDArray[np.bool_]


def fitted(levels: Levels) -> Levels:
    """The levels without padding that nothing needs, regular again where they were.

    Raises
    ------
    InvalidInputError
        What is left differs from root to root and cannot be padded.
    """
    keep = _kept(levels)
    if not all(mask.all() for mask in keep):
        levels = _padded(levels, keep) if _is_regular(levels) else _without(levels, keep)
    check_pit(levels)
    return levels


def _kept(levels: Levels) -> list[Bools]:
    keep: list[Bools] = [np.ones(levels[0].rows, np.bool_)]
    for level in levels[1:]:
        keep.append(~is_padding(level.ids) & keep[-1][level.parent])
    for depth in reversed(range(1, len(levels) - 1)):
        # A FOLDER of which nothing is shown is not shown either.
        shown = np.zeros(levels[depth].rows, np.bool_)
        shown[levels[depth + 1].parent[keep[depth + 1]]] = True
        keep[depth] &= shown | ~levels[depth].folders
    return keep


def _is_regular(levels: Levels) -> bool:
    try:
        check_pit(levels)
    except InvalidInputError:
        return False
    return True


def _without(levels: Levels, keep: Sequence[Bools]) -> Levels:
    result: list[Level] = []
    places = np.arange(levels[0].rows)
    for depth, level in enumerate(levels):
        rows = np.flatnonzero(keep[depth])
        if len(rows) == 0:
            break
        parent = places[level.parent[rows]] if depth else np.arange(len(rows))
        result.append(Level(level.table.take(pa.array(rows)), parent, level.payloads.take(rows)))
        places = np.full(level.rows, -1, np.int64)
        places[rows] = np.arange(len(rows))
    return tuple(result)


def _padded(levels: Levels, keep: Sequence[Bools]) -> Levels:
    """Positions that some root needs, with placeholders where a root has nothing to show."""
    roots = levels[0].rows
    needed: list[Bools] = [
        np.any(mask.reshape(roots, -1), axis=0, keepdims=True)[0] for mask in keep
    ]
    for depth in range(1, len(levels)):
        _refill(levels, needed, depth)
    chosen = [np.tile(positions, roots) for positions in needed]
    padding = [~mask[every] for mask, every in zip(keep, chosen, strict=True)]
    bare = _without(levels, chosen)
    return tuple(
        _with_placeholders(level, padding[depth]) if depth and padding[depth].any() else level
        for depth, level in enumerate(bare)
    )


def _refill(levels: Levels, needed: list[Bools], depth: int) -> None:
    """Give a FOLDER that is needed its placeholders back when it had nothing else."""
    above, below = levels[depth - 1], levels[depth]
    width = len(needed[depth])
    parent = below.parent[:width]  # of the first root; the others repeat it
    counts = np.bincount(parent[needed[depth]], minlength=len(needed[depth - 1]))
    empty = needed[depth - 1] & above.folders[: len(needed[depth - 1])] & (counts == 0)
    needed[depth] |= empty[parent]


def _with_placeholders(level: Level, padding: Bools) -> Level:
    """The level with empty placeholders in the rows `padding`, numbered within each parent."""
    rows = np.flatnonzero(padding)
    parents = level.parent[rows]
    starts = np.searchsorted(parents, parents, side="left")
    names = pc.binary_join_element_wise(
        spec.PAD_PREFIX, pa.array(np.arange(len(rows)) - starts).cast(pa.string()), ""
    )
    mask = pa.array(padding)
    columns: list[Any] = []
    for field in level.table.schema:
        column = level.table.column(field.name)
        if field.name == spec.ID:
            column = pc.replace_with_mask(column.combine_chunks(), mask, names)
        elif field.name != spec.TYPE:
            column = pc.if_else(mask, pa.scalar(None, field.type), column)
        columns.append(column)
    table = pa.table(columns, schema=level.table.schema)
    return Level(table, level.parent, _emptied(level.payloads, padding))


def _emptied(payloads: Payloads, padding: Bools) -> Payloads:
    part = padding.astype(np.int8)
    row = np.where(padding, 0, np.arange(len(padding)))
    return Mixed([payloads, Bytes(pa.array([b""], pa.binary()))], part, row)
