"""A dataset as columns: one table, one parent array and one payload column per level.

All writers of containers start from `Levels`, whether the rows came from `Sample` objects, tables
or another container. Rows of a level are sorted by parent; siblings keep their order.

PIT-1 requires the same structure below all level 0 samples. In columns this means that every
level, cut into as many equal pieces as there are level 0 samples, repeats itself: same ids, same
types, same position of the parent. That is checked for all levels and all rows at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.errors import InvalidInputError, LimitExceededError, shown
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
        """Number of samples, padding included."""
        return len(self.parent)

    @property
    def ids(self) -> Any:
        """The ids, as one Arrow array."""
        return flat(self.table.column(spec.ID))

    @property
    def folders(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which rows are FOLDER samples."""
        mask = pc.equal(self.table.column(spec.TYPE), spec.FOLDER)
        return np.asarray(mask.to_numpy(zero_copy_only=False), bool)


Levels = tuple[Level, ...]
"""Level 0 and the levels below it."""


def flat(column: Any) -> Any:
    """A chunked column as one array, which can hold 2 GiB of text."""
    if getattr(column, "num_chunks", 0) == 1:
        return column.chunk(0)
    try:
        return one_array(column)
    except pa.ArrowInvalid as error:  # chunks of one column cannot fail otherwise
        raise LimitExceededError(
            "a column of one level is too long",
            found=f"{column.nbytes:,} bytes",
            expected="less than 2 GiB",
            hint="write several archives and join them with an index (create_tacocat)",
        ) from error


def relative_paths(levels: Levels) -> list[Any]:
    """Path of each row below DATA/, per level; that of a FOLDER ends in a slash."""
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


def with_padding(ids: Any, parents: Ints, empty: Any) -> Any:
    """The ids, with those of `empty` rows replaced by padding ids, numbered within each parent.

    `parents` must ascend.
    """
    if not empty.any():
        return ids
    own = parents[empty]
    numbers = pa.array(np.arange(len(own)) - np.searchsorted(own, own, side="left"))
    padding = pc.binary_join_element_wise(spec.PAD_PREFIX, numbers.cast(pa.string()), "")
    return pc.replace_with_mask(flat(ids), pa.array(empty), padding)


def check_levels(levels: Levels) -> None:
    """Refuse levels that no container can hold.

    Raises for more than six levels (TACO 2.0, 6.3), an invalid or repeated id, a FOLDER without
    children or a FILE with children.
    """
    check_depth(len(levels))
    for depth, level in enumerate(levels):
        if level.rows == 0:
            raise InvalidInputError(f"level {depth} has no samples", hint="add at least one")
        check_ids(level.ids, level.parent if depth else None, depth=depth)
        check_children(levels, depth)


def check_depth(count: int) -> None:
    """Refuse more levels than TACO_HEADER has slots for."""
    if count > spec.MAX_LEVELS:
        raise LimitExceededError(
            "the dataset is nested too deeply",
            found=f"{count} levels",
            expected=f"at most {spec.MAX_LEVELS} (TACO 2.0, 6.3: six levels and the collection)",
        )


def check_ids(ids: Any, parents: Ints | None = None, *, depth: int = 0) -> None:
    """Refuse ids that break a rule, or that appear twice among siblings."""
    check_names(ids, depth=depth)
    check_twins(ids, parents, depth=depth)


def check_names(ids: Any, *, depth: int = 0) -> None:
    """Refuse ids that break a rule, regardless of other ids."""
    for bad in names.bad_names(ids, tier=2):
        raise bad_id(bad.name, bad.reason, f"level {depth}, row {bad.row}")


def check_twins(ids: Any, parents: Ints | None = None, *, depth: int = 0) -> None:
    """Refuse ids that appear twice among siblings."""
    twins = names.twins(ids, parents)
    # The first look, which ignores case, finds equal names too and is usually enough.
    for first, second in names.twins(ids, parents, fold=False)[:1] if twins else ():
        raise InvalidInputError(
            f"id {shown(ids[first].as_py())} appears twice among siblings",
            where=f"level {depth}, rows {first} and {second}",
            id=ids[first].as_py(),
        )
    for first, second in twins[:1]:
        raise InvalidInputError(
            f"ids {shown(ids[first].as_py())} and {shown(ids[second].as_py())} are the same "
            "name where case is ignored",
            where=f"level {depth}, rows {first} and {second}",
        )


def bad_id(name: str, reason: str, where: str | None = None) -> InvalidInputError:
    """The error for an id that breaks a rule."""
    return InvalidInputError(
        f"id {shown(name)} {reason}",
        where=where,
        expected="a name that every file system can hold (TACO 2.0, 5.6)",
        id=name,
    )


def check_children(levels: Levels, depth: int) -> None:
    """Refuse a FOLDER of one level without children, and a FILE with children."""
    below = levels[depth + 1] if depth + 1 < len(levels) else None
    folders = levels[depth].folders
    counts = child_counts(len(folders), None if below is None else below.parent)
    for row in np.flatnonzero(folders & (counts == 0))[:1].tolist():
        raise InvalidInputError(
            "a FOLDER sample has no children", where=shown(path_of(levels, depth, row))
        )
    for row in np.flatnonzero(~folders & (counts > 0))[:1].tolist():
        raise InvalidInputError(
            "a FILE sample has children", where=shown(path_of(levels, depth, row))
        )


def child_counts(rows: int, parents: Ints | None) -> Ints:
    """Number of children of each of `rows` rows; `parents` are those of the level below, if any."""
    if parents is None:
        return np.zeros(rows, np.int64)
    return np.bincount(parents[parents >= 0], minlength=rows).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Leaves:
    """All FILE samples of a dataset, depth-first in sample order."""

    level: np.ndarray[Any, np.dtype[np.int8]]
    row: Ints
    payloads: Payloads
    paths: Any
    """Arrow strings: path below DATA/."""


def leaves(levels: Levels, paths: Sequence[Any]) -> Leaves:
    """The FILE rows of all levels in the order of a depth-first walk."""
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


def select(levels: Levels, *kept: Ints) -> Levels:
    """The rows `kept` of each depth, ascending, whose parents are kept; all of the depths below."""
    found: list[Level] = []
    numbers = np.zeros(0, np.int64)
    for depth, level in enumerate(levels):
        rows = np.asarray(kept[depth], np.int64) if depth < len(kept) else np.arange(level.rows)
        if depth:
            rows = rows[numbers[level.parent[rows]] >= 0]
        parent = numbers[level.parent[rows]] if depth else np.arange(len(rows))
        found.append(Level(level.table.take(pa.array(rows)), parent, level.payloads.take(rows)))
        numbers = np.full(level.rows, -1, np.int64)
        numbers[rows] = np.arange(len(rows))
    return tuple(found)


# -- the Position-Invariant Tree (5.5) -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one level that differ from the first row at their position (PIT-1)."""

    depth: int
    what: str
    """``type``, ``id`` or ``number of children``."""
    rows: Ints
    first: Ints
    """For every row of the level the row that it is compared with."""


class Tree:
    """The rules of PIT for rows of all levels, of which some may have no parent.

    A position is the position of the parent and the rank among siblings, so corresponding rows
    below different roots share one. A padding sample stands for any FILE at its position: it
    replaces a missing one (TACO 2.0, 5.5).

    Arguments per level: ids (Arrow strings), the mask of FOLDERs, and the row of each parent in
    the level above (-1 if there is none; ignored for level 0).
    """

    def __init__(self, ids: Sequence[Any], folders: Sequence[Any], parents: Sequence[Any]) -> None:
        self._ids, self._folders = ids, folders
        self.counts = [
            child_counts(len(own), below) for own, below in zip_longest(folders, parents[1:])
        ]
        """Number of children of each row, per level."""
        self._positions = [np.zeros(len(found), np.int64) for found in folders[:1]]
        for own in parents[1:]:
            self._positions.append(_positions(own, self._positions[-1]))
        self._parents = parents

    def differences(self) -> Iterator[Difference]:
        """All irregularities, from the roots downwards."""
        for depth, folders in enumerate(self._folders):
            position, counts = self._positions[depth], self.counts[depth]
            valid = position >= 0
            if not valid.any():
                continue
            place = np.where(valid, position, 0)
            first = _first_rows(position, valid)[place]
            kinds = valid & (folders != folders[first])
            yield Difference(depth, "type", np.flatnonzero(kinds), first)
            if depth:  # ids of level 0 differ, as they identify the samples
                ids = self._ids[depth]
                codes = pc.dictionary_encode(ids).indices.to_numpy(zero_copy_only=False)
                real = self._references(depth)[place]
                wrong = valid & ~kinds & (codes != codes[real]) & ~is_padding(ids)
                yield Difference(depth, "id", np.flatnonzero(wrong), real)
            wrong = valid & ~kinds & folders & (counts != counts[first])
            yield Difference(depth, "number of children", np.flatnonzero(wrong), first)

    def patterns(self, depth: int) -> tuple[spec.PITPattern, ...]:
        """The pattern below each FOLDER position of the level above, from its first rows."""
        position, parents = self._positions[depth], self._parents[depth]
        rows = self._references(depth)
        if not len(rows):
            return ()
        totals = np.bincount(position[position >= 0], minlength=len(rows))
        ids: list[str] = self._ids[depth].take(pa.array(rows)).to_pylist()
        types = [spec.FOLDER if folder else spec.FILE for folder in self._folders[depth][rows]]
        _, starts = np.unique(self._positions[depth - 1][parents[rows]], return_index=True)
        return tuple(
            spec.PITPattern(
                int(totals[start:stop].sum()), tuple(types[start:stop]), tuple(ids[start:stop])
            )
            for start, stop in pairwise([*starts.tolist(), len(rows)])
        )

    def _references(self, depth: int) -> Ints:
        """For each position its first row that is not padding, or its first row if all are."""
        position = self._positions[depth]
        first = _first_rows(position, position >= 0)
        real = _first_rows(position, (position >= 0) & ~is_padding(self._ids[depth]))
        return np.where(real < 0, first, real)


def _positions(parents: Ints, above: Ints) -> Ints:
    """Ascending numbers of positions; -1 for a row without a parent."""
    order = np.argsort(parents, kind="stable")
    ordered = parents[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-2))
    sizes = np.diff(starts, append=len(order))
    rank = np.empty(len(parents), np.int64)
    rank[order] = np.arange(len(order)) - np.repeat(starts, sizes)
    width = int(rank.max(initial=0)) + 1
    found = parents >= 0
    places = above[parents[found]] * width + rank[found]
    positions = np.full(len(parents), -1, np.int64)
    most = int(places.max(initial=-1)) + 1
    if most <= 2 * len(parents):  # true for every regular tree, and avoids a sort
        used = np.zeros(most, np.bool_)
        used[places] = True
        positions[found] = (np.cumsum(used) - 1)[places]
    else:
        positions[found] = np.unique(places, return_inverse=True)[1]
    return positions


def _first_rows(position: Ints, mask: Any) -> Ints:
    """For each position its first row within `mask`, or -1."""
    result = np.full(int(position.max(initial=-1)) + 1, -1, np.int64)
    rows = np.flatnonzero(mask)[::-1]
    result[position[rows]] = rows
    return result


def check_pit(levels: Levels) -> Tree:
    """Refuse a dataset whose level 0 samples differ in structure (PIT-1), naming two of them."""
    tree = Tree(*zip(*((one.ids, one.folders, one.parent) for one in levels), strict=True))
    for found in tree.differences():
        for row in found.rows[:1].tolist():
            raise _differ(levels, tree, found, int(found.first[row]), row)
    return tree


def _differ(
    levels: Levels, tree: Tree, found: Difference, first: int, second: int
) -> InvalidInputError:
    depth = found.depth
    sides = []
    for row in (first, second):
        if found.what == "number of children":
            value = str(tree.counts[depth][row])
        else:
            value = levels[depth].table.column(found.what)[row].as_py()
            value = value if found.what == "type" else shown(value)
        sides.append(f"{value} at {shown(path_of(levels, depth, row))}")
    hint = "pad_to=N fills each tortilla with empty samples up to a multiple of N"
    return InvalidInputError(
        f"samples differ in structure: {found.what} at level {depth}",
        found=", ".join(sides),
        expected="the same at the same position below every level 0 sample (TACO 2.0, 5.5, PIT-1)",
        hint=hint if found.what == "number of children" else None,
        level=depth,
    )


def pit_schema(levels: Levels) -> spec.PITSchema:
    """``taco:pit_schema`` of a dataset; raises as `check_pit`."""
    tree, roots = check_pit(levels), levels[0].rows
    hierarchy = {depth: tree.patterns(depth) for depth in range(1, len(levels))}
    shape = (roots, *(int(counts.max()) for counts in tree.counts[:-1]))
    return spec.PITSchema(roots, levels[0].table.column(spec.TYPE)[0].as_py(), hierarchy, shape)
