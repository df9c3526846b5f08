"""The Position-Invariant Tree: is it one, and what does it look like (TACO 2.0, 5.5).

PIT-1 asks that all level 0 samples have the same structure. In columns this means that every
level, cut into as many equal pieces as there are level 0 samples, repeats itself: same ids, same
types, same place of the parent. That is checked for all levels and all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.samples.payloads import Ints
from comal.taco import spec
from comal.taco.model.levels import Level, Levels, children, is_padding, path_of


def check_pit(levels: Levels) -> None:
    """Refuse a dataset whose level 0 samples differ in structure (PIT-1).

    A padding sample stands for any FILE at its position: it takes the place of one that is
    missing (TACO 2.0, 5.5).

    Raises
    ------
    InvalidInputError
        With the paths of the two samples that differ.
    """
    root = levels[0]
    folders = root.folders
    if folders.any() and not folders.all():
        first, second = _first_difference(folders)
        raise _differ(levels, 0, first, second, "type", _type(root, first), _type(root, second))
    for depth in range(1, len(levels)):
        _check_counts(levels, depth)
        _check_repeats(levels, depth)


def _first_difference(values: np.ndarray[Any, Any]) -> tuple[int, int]:
    return 0, int(np.flatnonzero(values != values[0])[0])


def _check_counts(levels: Levels, depth: int) -> None:
    """The parents at one position must have equally many children."""
    above = levels[depth - 1]
    counts = children(above, levels[depth])
    width = above.rows // levels[0].rows
    grid = counts.reshape(levels[0].rows, width)
    wrong = np.argwhere(grid != grid[0])
    for root, position in wrong[:1].tolist():
        first, second = position, root * width + position
        raise _differ(
            levels,
            depth - 1,
            first,
            second,
            "number of children",
            str(counts[first]),
            str(counts[second]),
            hint="pad_to=N fills each tortilla with empty samples up to a multiple of N",
        )


def _check_repeats(levels: Levels, depth: int) -> None:
    """Ids and types must repeat from root to root; parents do, once the counts are equal."""
    level, roots = levels[depth], levels[0].rows
    codes = _codes(level.ids).reshape(roots, -1)
    padding = is_padding(level.ids).reshape(roots, -1)
    folders = level.folders.reshape(roots, -1)
    width = codes.shape[1]
    reference = _reference_rows(padding)
    expected = codes[reference, np.arange(width)]
    wrong = ((codes != expected) & ~padding) | (folders != folders[0])
    for root, position in np.argwhere(wrong)[:1].tolist():
        first = int(reference[position]) * width + position
        second = root * width + position
        if folders[root, position] != folders[0, position]:
            first = position
            what, values = "type", (_type(level, first), _type(level, second))
        else:
            what, values = "id", (_id(level, first), _id(level, second))
        raise _differ(levels, depth, first, second, what, *values)


def _codes(ids: Any) -> Ints:
    encoded = pc.dictionary_encode(ids).indices
    return np.asarray(encoded.to_numpy(zero_copy_only=False), np.int64)


def _reference_rows(padding: np.ndarray[Any, np.dtype[np.bool_]]) -> Ints:
    """For each position the first root that has a real sample there; 0 where none has."""
    return np.asarray(np.argmax(~padding, axis=0), np.int64)


def _type(level: Level, row: int) -> str:
    return str(level.table.column(spec.TYPE)[row].as_py())


def _id(level: Level, row: int) -> str:
    return str(shown(level.table.column(spec.ID)[row].as_py()))


def _differ(
    levels: Levels,
    depth: int,
    first: int,
    second: int,
    what: str,
    old: str,
    new: str,
    hint: str | None = None,
) -> InvalidInputError:
    return InvalidInputError(
        f"samples differ in structure: {what} at level {depth}",
        found=f"{old} at {shown(path_of(levels, depth, first))}, "
        f"{new} at {shown(path_of(levels, depth, second))}",
        expected="the same at the same position below every level 0 sample (TACO 2.0, 5.5, PIT-1)",
        hint=hint,
        level=depth,
    )


def pit_schema(levels: Levels) -> spec.PITSchema:
    """``taco:pit_schema`` of a dataset that `check_pit` accepts."""
    root = levels[0]
    roots = root.rows
    hierarchy: dict[int, tuple[spec.PITPattern, ...]] = {}
    shape = [roots]
    for depth in range(1, len(levels)):
        above, level = levels[depth - 1], levels[depth]
        counts = children(above, level)
        shape.append(int(counts.max()))
        # The first root's part of the level above has every FOLDER position once.
        width = level.rows // roots
        padding = is_padding(level.ids).reshape(roots, width)
        reference = _reference_rows(padding)
        hierarchy[depth] = _patterns(level, roots, reference, counts[: above.rows // roots])
    return spec.PITSchema(roots, _type(root, 0), hierarchy, tuple(shape))


def _patterns(
    level: Level, roots: int, reference: Ints, counts: Ints
) -> tuple[spec.PITPattern, ...]:
    width = len(reference)
    rows = reference * width + np.arange(width)
    some = level.table.select([spec.ID, spec.TYPE]).take(rows)
    ids: Sequence[str] = some.column(0).to_pylist()
    types: Sequence[str] = some.column(1).to_pylist()
    patterns, start = [], 0
    for count in counts[counts > 0].tolist():
        stop = start + count
        patterns.append(
            spec.PITPattern(roots * count, tuple(types[start:stop]), tuple(ids[start:stop]))
        )
        start = stop
    return tuple(patterns)
