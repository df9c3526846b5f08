"""Levels of files and folders as the tables that a dataset is made of, padded where wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, shown
from comal.samples.intake import Ints, Level, fields_at, taken
from comal.table.columns import Mask, numbers_column, numbers_of, texts_column, valid_of
from comal.taco import spec


def level_tables(levels: Sequence[Level], fields: Any = None, *, pad: bool = False) -> list[Any]:
    """One table per level: id, type, path, parent (``internal:parent_id``) and fields.

    Parameters
    ----------
    levels
        Files and folders.
    fields
        An Arrow table with the fields of the samples, by `Level.rows`.
    pad
        Whether to put an empty sample where a folder lacks a file that others have. Siblings then
        stand in the order of their names.

    Raises
    ------
    InvalidInputError
        A folder where others have a file.
    """
    padding = [np.zeros(len(level.rows), bool) for level in levels]
    if pad:
        levels, padding = _padded(levels)
    return [
        _table(level, depth, fields, empty)
        for depth, (level, empty) in enumerate(zip(levels, padding, strict=True))
    ]


def _table(level: Level, depth: int, fields: Any, padding: Mask) -> Any:
    is_file = valid_of(level.paths) | padding
    types = pa.DictionaryArray.from_arrays(
        numbers_column(is_file.astype(np.int8)), texts_column([spec.FOLDER, spec.FILE])
    )
    columns: dict[str, Any] = {
        spec.ID: level.ids,
        spec.TYPE: pc.cast(types, pa.string()),
        spec.PATH: level.paths,
    }
    if fields is not None:
        columns |= fields_at(fields, level.rows)
    if depth:
        columns[spec.PARENT_ID] = numbers_column(level.parents)
    return pa.table(columns)


def _padded(levels: Sequence[Level]) -> tuple[list[Level], list[Mask]]:
    """Levels in which folders at one place have the same children, and what is padding in them.

    A place is the path below the sample of level 0 (PIT-1).
    """
    complete = [levels[0]]
    padding = [np.zeros(len(levels[0].rows), bool)]
    places = np.zeros(len(levels[0].rows), np.int64)
    moved = np.arange(len(places))
    for unpadded in levels[1:]:
        level = replace(unpadded, parents=moved[unpadded.parents])
        folders = np.flatnonzero(~valid_of(complete[-1].paths) & ~padding[-1])
        slots = _slots(level, folders, places)
        _refuse_missing_folders(complete, level, slots)
        rows, parents, places = slots
        empty = rows < 0
        complete.append(
            Level(
                _with_padding(taken(level.ids, rows), parents, empty),
                taken(level.paths, rows),
                parents,
                np.where(empty, -1, level.rows[rows]),
            )
        )
        padding.append(empty)
        moved = np.empty(len(level.rows), np.int64)
        moved[rows[~empty]] = np.flatnonzero(~empty)
    return complete, padding


class _Slots(NamedTuple):
    """The n children that folders should have, in the order of the folders, and of names."""

    rows: Ints
    """Row of the child in its level, shape (n,); -1 where it is missing."""
    parents: Ints
    """Row of its parent, shape (n,)."""
    places: Ints
    """Number of its place, shape (n,)."""


def _slots(level: Level, folders: Ints, places: Ints) -> _Slots:
    """What should be in the `folders` above, whose places are among `places` of all rows above."""
    names = level.ids.dictionary_encode()
    ranks = np.empty(len(names.dictionary), np.int64)
    ranks[numbers_of(pc.array_sort_indices(names.dictionary)).astype(np.int64)] = np.arange(
        len(ranks)
    )
    # A child's place: that of its parent, then its name; ascending in that order.
    own = places[level.parents] * len(ranks) + ranks[numbers_of(names.indices)]
    wanted, codes = np.unique(own, return_inverse=True)
    first = np.searchsorted(wanted, places[folders] * len(ranks), side="left")
    last = np.searchsorted(wanted, (places[folders] + 1) * len(ranks), side="left")
    counts = last - first
    parents = np.repeat(folders, counts)
    within = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
    place = np.repeat(first, counts) + within
    there = level.parents * len(wanted) + codes
    order = np.argsort(there)
    sought = parents * len(wanted) + place
    at = np.minimum(np.searchsorted(there[order], sought), len(there) - 1)
    rows = np.where(there[order][at] == sought, order[at], -1)
    return _Slots(rows, parents, place)


def _refuse_missing_folders(above: Sequence[Level], level: Level, slots: _Slots) -> None:
    rows, parents, places = slots
    is_folder = np.zeros(int(places.max(initial=-1)) + 1, bool)
    # Places of the rows that are there and hold no file.
    held = rows >= 0
    is_folder[places[held][~valid_of(level.paths)[rows[held]]]] = True
    for slot in np.flatnonzero(~held & is_folder[places])[:1].tolist():
        example = rows[held & (places == places[slot])][0]
        parts = [level.ids[int(example)].as_py()]
        row = int(parents[slot])
        for upper in reversed(above):
            parts.append(upper.ids[row].as_py())
            row = int(upper.parents[row])
        raise InvalidInputError(
            "folder is missing, and only files can be padded",
            where=shown("/".join(reversed(parts)), 120),
        )


def _with_padding(ids: Any, parents: Ints, empty: Mask) -> Any:
    """The ids, with those of padding where a child is missing: numbered within its folder."""
    if not empty.any():
        return ids
    holes = np.flatnonzero(empty)
    starts = np.searchsorted(parents[holes], parents[holes], side="left")
    numbers = pc.cast(numbers_column(np.arange(len(holes)) - starts), pa.string())
    prefix, nothing = texts_column([spec.PAD_PREFIX, ""])
    names = pc.binary_join_element_wise(prefix, numbers, nothing)
    where = np.full(len(ids), -1, np.int64)
    where[holes] = np.arange(len(holes))
    return pc.coalesce(ids, taken(names, where))
