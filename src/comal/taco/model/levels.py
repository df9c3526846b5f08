"""A dataset as columns: one table, one parent array and one payload column per level.

Everything that writes a container starts from `Levels`, whether the rows came as `Sample`
objects, as tables, or out of another container. Ints of a level stand in the order of their
parents and, among siblings, in the order of the children.

PIT-1 asks that all level 0 samples have the same structure. In columns this means that every
level, cut into as many equal pieces as there are level 0 samples, repeats itself: same ids, same
types, same place of the parent. That is checked for all levels and all rows at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.errors import InvalidInputError, LimitExceededError, shown
from comal.public import warn
from comal.samples.payloads import Ints, Payloads, concat
from comal.samples.tables import depth_first
from comal.table.columns import one_array
from comal.taco import spec


@dataclass(frozen=True, slots=True)
class Level:
    """The samples of one depth of the tree."""

    table: Any
    """Columns `id`, `type` and the metadata fields; no ``internal:`` column, no path."""
    parent: Ints
    """Row of the parent in the level above; at level 0 the row itself (TACO 2.0, 6.2)."""
    payloads: Payloads

    @property
    def rows(self) -> int:
        """How many samples, padding included."""
        return len(self.parent)

    @property
    def ids(self) -> Any:
        """The ids, as one Arrow array."""
        return flat(self.table.column(spec.ID))

    @property
    def folders(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are FOLDER samples."""
        mask = pc.equal(flat(self.table.column(spec.TYPE)), spec.FOLDER)
        return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


Levels = tuple[Level, ...]
"""Level 0 and the levels below it."""


def flat(column: Any) -> Any:
    """A chunked column as one array.

    Raises
    ------
    LimitExceededError
        It holds more text than one array can, which are 2 GiB.
    """
    try:
        return one_array(column)
    except pa.ArrowInvalid as error:  # nothing else can be wrong with chunks of one column
        raise LimitExceededError(
            "a column of one level is too long",
            found=f"{column.nbytes:,} bytes",
            expected="less than 2 GiB",
            hint="write several archives and join them with an index (create_tacocat)",
        ) from error


def relative_paths(levels: Levels) -> list[Any]:
    """Path of each row below DATA/, per level; a FOLDER ends in a slash."""
    paths: list[Any] = []
    for depth, level in enumerate(levels):
        path = level.ids
        if depth:
            above = paths[-1].take(pa.array(level.parent))
            path = pc.binary_join_element_wise(above, path, "")
        folders = level.folders
        if folders.all():
            path = pc.binary_join_element_wise(path, "/", "")
        elif folders.any():
            path = pc.if_else(pa.array(folders), pc.binary_join_element_wise(path, "/", ""), path)
        paths.append(path)
    return paths


def path_of(levels: Sequence[Level], depth: int, row: int) -> str:
    """The id path of one row, for messages."""
    parts = []
    for level in reversed(levels[: depth + 1]):
        parts.append(str(level.table.column(spec.ID)[row].as_py()))
        row = int(level.parent[row])
    return "/".join(reversed(parts))


def is_padding(ids: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which ids are those of padding samples (TACO 2.0, 5.5)."""
    mask = pc.fill_null(pc.starts_with(ids, spec.PAD_PREFIX), False)
    return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


def padding_ids(parents: Ints) -> Any:
    """Ids of placeholders, numbered within each of their parents, which ascend."""
    numbers = np.arange(len(parents)) - np.searchsorted(parents, parents, side="left")
    return pc.binary_join_element_wise(spec.PAD_PREFIX, pa.array(numbers).cast(pa.string()), "")


def check_levels(levels: Levels, *, foreign: bool = False) -> None:
    """Refuse levels that no container can hold.

    Parameters
    ----------
    levels
        The dataset.
    foreign
        The rows come from another container: names that only some systems cannot hold are a
        warning then.

    Raises
    ------
    LimitExceededError
        More than six levels (TACO 2.0, 6.3).
    InvalidInputError
        A bad or repeated id, a FOLDER without children, a FILE with children.
    """
    check_depth(len(levels))
    for depth, level in enumerate(levels):
        if level.rows == 0:
            raise InvalidInputError(f"level {depth} has no sample", hint="add at least one")
        check_ids(level.ids, level.parent if depth else None, foreign=foreign, depth=depth)
        below = levels[depth + 1] if depth + 1 < len(levels) else None
        _check_children(levels, depth, level, below)


def check_depth(count: int) -> None:
    """Refuse more levels than TACO_HEADER has slots for."""
    if count > spec.MAX_LEVELS:
        raise LimitExceededError(
            "dataset is nested too deeply",
            found=f"{count} levels",
            expected=f"at most {spec.MAX_LEVELS} (TACO 2.0, 6.3: six levels and the collection)",
        )


def check_ids(
    ids: Any, parents: Ints | None = None, *, foreign: bool = False, depth: int = 0
) -> None:
    """Refuse ids that break a rule, or that stand twice among siblings."""
    check_names(ids, foreign=foreign, depth=depth)
    check_twins(ids, parents, foreign=foreign, depth=depth)


def check_names(ids: Any, *, foreign: bool = False, depth: int = 0) -> None:
    """Refuse ids that break a rule by themselves."""
    for bad in names.bad_names(ids, tier=2):
        error = bad_id(bad.name, bad.reason, f"level {depth}, row {bad.row}")
        if bad.tier == 1 or not foreign:
            raise error
        warn(str(error))


def check_twins(
    ids: Any, parents: Ints | None = None, *, foreign: bool = False, depth: int = 0
) -> None:
    """Refuse ids that stand twice among siblings."""
    twins = names.twins(ids, parents)
    # Equal names are equal where case is ignored as well, so that most often one look is enough.
    for first, second in names.twins(ids, parents, fold=False)[:1] if twins else ():
        raise InvalidInputError(
            f"id {shown(ids[first].as_py())} stands twice among siblings",
            where=f"level {depth}, rows {first} and {second}",
            id=ids[first].as_py(),
        )
    for first, second in twins[:1]:
        error = InvalidInputError(
            f"ids {shown(ids[first].as_py())} and {shown(ids[second].as_py())} are one name "
            "where case is ignored",
            where=f"level {depth}, rows {first} and {second}",
        )
        if not foreign:
            raise error
        warn(str(error))


def bad_id(name: str, reason: str, where: str | None = None) -> InvalidInputError:
    """The error for an id that breaks a rule."""
    return InvalidInputError(
        f"id {shown(name)} {reason}",
        where=where,
        expected="a name that every file system can hold (TACO 2.0, 5.6)",
        id=name,
    )


def _check_children(levels: Levels, depth: int, level: Level, below: Level | None) -> None:
    counts = children(level, below)
    folders = level.folders
    for row in np.flatnonzero(folders & (counts == 0))[:1].tolist():
        raise InvalidInputError(
            "FOLDER sample has no children", where=shown(path_of(levels, depth, row))
        )
    for row in np.flatnonzero(~folders & (counts > 0))[:1].tolist():
        raise InvalidInputError(
            "FILE sample has children", where=shown(path_of(levels, depth, row))
        )


def children(level: Level, below: Level | None) -> Ints:
    """How many children each row of `level` has."""
    if below is None:
        return np.zeros(level.rows, np.int64)
    return np.bincount(below.parent, minlength=level.rows).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Leaves:
    """All FILE samples of a dataset, depth-first in sample order."""

    level: np.ndarray[Any, np.dtype[np.int8]]
    row: Ints
    payloads: Payloads
    paths: Any
    """Arrow strings: path below DATA/."""

    def __len__(self) -> int:
        return len(self.row)


def leaves(levels: Levels, paths: Sequence[Any]) -> Leaves:
    """The FILE rows of all levels in the order in which a walk of the tree meets them."""
    if len(levels) == 1:
        (root,) = levels
        return Leaves(np.zeros(root.rows, np.int8), np.arange(root.rows), root.payloads, paths[0])
    masks = [~level.folders for level in levels]
    files = list(map(np.flatnonzero, masks))
    starts = depth_first(masks, [level.parent for level in levels])
    order = np.argsort(
        np.concatenate([start[rows] for start, rows in zip(starts, files, strict=True)]),
        kind="stable",
    )
    depth = np.repeat(np.arange(len(levels), dtype=np.int8), [len(rows) for rows in files])
    payloads = concat(
        [level.payloads.take(rows) for level, rows in zip(levels, files, strict=True)]
    )
    names_of_all = pa.concat_arrays(
        [flat(path).take(pa.array(rows)) for path, rows in zip(paths, files, strict=True)]
    )
    return Leaves(
        depth[order],
        np.concatenate(files)[order],
        payloads.take(order),
        names_of_all.take(pa.array(order)),
    )


def select(levels: Levels, roots: Ints) -> Levels:
    """The dataset of the level 0 rows `roots` (ascending) and all that is below them."""
    chosen = np.asarray(roots, np.int64)
    kept: list[Level] = []
    for depth, level in enumerate(levels):
        if depth == 0:
            rows, parent = chosen, np.arange(len(chosen))
        else:
            renumbered = np.full(levels[depth - 1].rows, -1, np.int64)
            renumbered[chosen] = np.arange(len(chosen))
            rows = np.flatnonzero(renumbered[level.parent] >= 0)
            parent = renumbered[level.parent[rows]]
        kept.append(Level(level.table.take(pa.array(rows)), parent, level.payloads.take(rows)))
        chosen = rows
    return tuple(kept)


# -- the Position-Invariant Tree (5.5) -------------------------------------------------------------


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
        other = int(np.flatnonzero(folders != folders[0])[0])
        raise _differ(levels, 0, 0, other, "type", _type(root, 0), _type(root, other))
    for depth in range(1, len(levels)):
        _check_counts(levels, depth)
        _check_repeats(levels, depth)


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
