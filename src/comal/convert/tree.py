"""A Tortilla and all that is nested in it: a table per depth, and from these a regular tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, shown
from comal.taco import spec as taco_spec
from comal.taco.model.levels import check_depth
from comal.tortilla import spec
from comal.tortilla.archive import Level, levels_below
from comal.tortilla.frame import TortillaFrame

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_RULE = "the same children below every item at the top (TACO 2.0, 5.5, PIT-1)"
_HINTS = (
    "pad=True (--pad) fills what is missing with empty samples; "
    "children='position' (--children position) names children by their position"
)


def levels_of(frame: TortillaFrame) -> list[Level]:
    """All items of a frame; the nested files of one depth are opened together.

    Raises
    ------
    InvalidInputError
        The frame mixes levels, or its columns have the types that happen to be stored.
    LimitExceededError
        Deeper than TACO 2.0 can be, or more rows than the limits allow.
    InvalidMetadataError
        A nested file is broken, or has columns that do not go together with others.
    """
    home = frame.home
    if spec.PATH in frame.columns:
        raise InvalidInputError(
            "a flattened frame cannot be migrated", hint="pass the frame that it was made from"
        )
    if not home.typed:
        raise InvalidInputError("the frame was opened with typed=False", hint="open it again")
    table = frame.to_arrow().drop_columns([spec.SUBFILE])
    names = frozenset(name for part in home.parts for name in part.aliased)
    levels = [Level.of(table, None, names)]
    check_depth(1 + bool(levels[0].folders.any()))
    for level in levels_below(levels[0], 0, home):
        levels.append(level)
        check_depth(len(levels) + bool(level.folders.any()))
    return levels


# -- the regular tree -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shaped:
    """One level of the regular tree."""

    rows: Rows
    """Row of the source, -1 for padding."""
    parent: Rows
    ids: Any
    folders: Mask
    reordered: bool = False
    """Whether children stand in another order than in the source."""

    @property
    def padding(self) -> int:
        """How many rows are padding."""
        return int(np.count_nonzero(self.rows < 0))


def regular(depths: Sequence[Level], ids: Sequence[Any], *, pad: bool) -> list[Shaped]:
    """The levels of a regular tree.

    Parameters
    ----------
    depths
        The source.
    ids
        Legal ids of each depth, unique among siblings.
    pad
        Fill missing FILE samples with padding.

    Raises
    ------
    InvalidInputError
        The source has no items, mixes files and nested files at the top, or is irregular in a way
        that is not to be, or cannot be, padded.
    """
    top = depths[0]
    if len(top) == 0:
        raise InvalidInputError("the source holds no item", expected="at least one")
    if top.folders.any() and not top.folders.all():
        file, folder = int(np.argmin(top.folders)), int(np.argmax(top.folders))
        raise InvalidInputError(
            "the top level mixes items and nested files",
            found=f"{shown(ids[0][file].as_py())} is a FILE, "
            f"{shown(ids[0][folder].as_py())} a FOLDER",
            expected="one type for all samples of level 0 (TACO 2.0, 5.5, PIT-1)",
            hint="migrate them apart: frame.filter(...) selects rows",
        )
    levels = [Shaped(np.arange(len(top)), np.arange(len(top)), ids[0], top.folders)]
    place = np.arange(len(top))
    for number in range(1, len(depths)):
        grid = _Grid.of(depths[number], ids[number], place, levels, number)
        levels.append(grid.level(pad=pad))
        place = grid.target
    return levels


@dataclass(frozen=True, slots=True)
class _Grid:
    """A level as roots times positions; `target` is the cell of each row of the source."""

    roots: int
    number: int
    target: Rows
    key_ids: Any
    """Id of each position."""
    key_parent: Rows
    """Position of its parent in the level above."""
    key_folder: Mask
    above: Shaped
    root_ids: Any

    @classmethod
    def of(
        cls, depth: Level, ids: Any, place: Rows, levels: Sequence[Shaped], number: int
    ) -> _Grid:
        above, roots = levels[-1], len(levels[0].rows)
        wide = len(above.rows) // roots
        parent = place[depth.parents]
        encoded = pc.dictionary_encode(ids)
        codes = np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int64)
        keys = (parent % wide) * max(len(encoded.dictionary), 1) + codes
        _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        # Positions stand in the order of their parents, then as they first appear.
        owner = (parent % wide)[first]
        order = np.lexsort((first, owner))
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        first = first[order]
        column = rank[inverse]
        target = (parent // wide) * len(order) + column
        grid = cls(
            roots,
            number,
            target,
            ids.take(pa.array(first)),
            owner[order],
            depth.folders[first],
            above,
            levels[0].ids,
        )
        grid._check_types(depth, column)
        grid._check_empty()
        return grid

    @property
    def width(self) -> int:
        return len(self.key_parent)

    def level(self, *, pad: bool) -> Shaped:
        missing = self.roots * self.width - len(self.target)
        if missing:
            self._check_missing(missing, pad=pad)
        cells = self.roots * self.width
        rows = np.full(cells, -1, np.int64)
        rows[self.target] = np.arange(len(self.target))
        wide = len(self.above.rows) // self.roots
        parent = np.repeat(np.arange(self.roots) * wide, self.width)
        parent = parent + np.tile(self.key_parent, self.roots)
        ids = self.key_ids.take(pa.array(np.tile(np.arange(self.width), self.roots)))
        folders = np.tile(self.key_folder, self.roots)
        moved = bool((np.diff(self.target) < 0).any())
        return Shaped(rows, parent, _with_padding(ids, rows, parent), folders, moved)

    def _check_types(self, depth: Level, column: Rows) -> None:
        wrong = np.flatnonzero(depth.folders != self.key_folder[column])
        for row in wrong[:1].tolist():
            raise InvalidInputError(
                f"an item is a file in one place and a nested file in another, at level "
                f"{self.number}",
                where=self._name(int(self.target[row]) // self.width, int(column[row])),
                expected=_RULE,
            )

    def _check_empty(self) -> None:
        wide = len(self.above.rows) // self.roots
        folders = np.flatnonzero(self.above.folders[:wide])
        childless = np.setdiff1d(folders, self.key_parent)
        for position in childless[:1].tolist():
            raise InvalidInputError(
                "nested files hold no items",
                where=shown(self.above.ids[position].as_py()),
                expected="a FOLDER sample has at least one child (TACO 2.0, 5.3)",
            )

    def _check_missing(self, missing: int, *, pad: bool) -> None:
        counts = np.bincount(self.target % self.width, minlength=self.width)
        short = np.flatnonzero(counts < self.roots)
        folder = short[self.key_folder[short]]
        key = int(folder[0] if len(folder) else short[0])
        having = np.unique(self.target[self.target % self.width == key] // self.width)
        lacking = int(np.setdiff1d(np.arange(min(len(having) + 1, self.roots)), having)[0])
        per_root = np.bincount(self.target // self.width, minlength=self.roots)
        found = (
            f"{self._name(lacking, key)} is not there and {self._name(int(having[0]), key)} is; "
            f"{per_root.min()} to {per_root.max()} items at level {self.number} below one item at "
            f"the top, {self.width} different ones"
        )
        what, hint = "", _HINTS
        if len(folder):
            what = "; a missing nested file cannot be padded, for padding is a FILE"
            hint = "select the rows that are alike: frame.filter(...)"
        elif not pad:
            what = ""
        elif missing > len(self.target):
            what = f"; {missing} empty samples for {len(self.target)} items would be needed"
            hint = "children='position' (--children position) names children by their position"
        else:
            return
        raise InvalidInputError(
            f"items differ in structure at level {self.number}{what}",
            found=found,
            expected=_RULE,
            hint=hint,
            level=self.number,
        )

    def _name(self, root: int, key: int) -> str:
        parts = [self.root_ids[root].as_py()]
        if self.number > 1:
            parts.append("..")
        return shown("/".join([*parts, self.key_ids[key].as_py()]), 120)


def _with_padding(ids: Any, rows: Rows, parent: Rows) -> Any:
    empty = np.flatnonzero(rows < 0)
    if len(empty) == 0:
        return ids
    owner = parent[empty]
    order = np.argsort(owner, kind="stable")
    ordered = owner[order]
    number = np.empty(len(empty), np.int64)
    number[order] = np.arange(len(empty)) - np.searchsorted(ordered, ordered, side="left")
    known = [f"{taco_spec.PAD_PREFIX}{n}" for n in range(int(number.max()) + 1)]
    mask = pa.array(rows < 0)
    return pc.replace_with_mask(ids, mask, pa.array(known, pa.string()).take(pa.array(number)))
