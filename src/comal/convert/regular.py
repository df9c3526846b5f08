"""Ids of a Tortilla, where anything goes, as ids of TACO 2.0, which every file system can hold.

The same old id becomes the same new one wherever it stands at its level, so that what was regular
stays regular; different old ids stay different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.convert.tree import Depth
from comal.errors import InvalidInputError, shown
from comal.taco import spec
from comal.taco.copying.foreign import safe_name

Rows = npt.NDArray[np.int64]
Rule = Mapping[str, str] | Callable[[str], str | None]
"""New names that the caller gives: for an old id, None or absent where it is to be kept."""

_ILLEGAL = "/\\:"


def legal_ids(ids: Any, parents: Rows | None, rule: Rule | None = None) -> Any:
    """Ids that follow the rules of TACO 2.0, 5.6, unique among siblings.

    Parameters
    ----------
    ids
        Arrow strings without nulls.
    parents
        A number that siblings share; None when all rows are siblings.
    rule
        Names that the caller wants; two old ids may be given one name on purpose, where they
        stand for the same thing below different parents.

    Returns
    -------
    Arrow strings. Ids that are legal are kept; of several that become one, the legal one keeps the
    name, and the others get ``_2``, ``_3`` in the order of the rows.

    Raises
    ------
    InvalidInputError
        The rule gives a name that is no id.
    """
    encoded = pc.dictionary_encode(ids)
    wanted = encoded.dictionary if rule is None else _given(encoded.dictionary, rule)
    again = pc.dictionary_encode(wanted)
    distinct = _told_apart(again.dictionary, _mended(again.dictionary))
    found = distinct.take(again.indices).take(encoded.indices)
    return _numbered(found, parents)


def _given(originals: Any, rule: Rule) -> Any:
    ask = rule.get if isinstance(rule, Mapping) else rule
    if isinstance(rule, Mapping) and len(rule) < len(originals):
        # A few names among a million: only these are looked at.
        some = pc.is_in(originals, pa.array(list(rule), pa.string())).to_numpy(zero_copy_only=False)
        rows = np.flatnonzero(some).tolist()
    else:
        rows = list(range(len(originals)))
    new: dict[int, Any] = {row: ask(originals[row].as_py()) for row in rows}
    for row, name in new.items():
        reason = None if name is None else _fault(name)
        if reason is not None:
            raise InvalidInputError(
                f"{shown(name)} cannot be the new id",
                where=shown(originals[row].as_py()),
                found=reason,
                expected="a name that every file system can hold (TACO 2.0, 5.6)",
            )
    return _replaced(originals, {row: name for row, name in new.items() if name is not None})


def _fault(name: object) -> str | None:
    if not isinstance(name, str):
        return "is no text"
    if name.startswith("__"):
        return "begins with '__', which is reserved"  # also what looks like padding
    return names.illegal(name) or names.risky(name)


def _mended(originals: Any) -> Any:
    rows = {bad.row for bad in names.bad_names(originals, tier=2)}
    reserved = pc.starts_with(originals, "__").to_numpy(zero_copy_only=False)
    rows |= set(np.flatnonzero(reserved).tolist())
    return _replaced(originals, {row: mended(originals[row].as_py()) for row in sorted(rows)})


def mended(name: str) -> str:
    """A legal id as like `name` as can be."""
    text = "".join("_" if one in _ILLEGAL or not one.isprintable() else one for one in name)
    text = "".join("_" if names.illegal(f"a{one}") else one for one in text)
    if text in {"", ".", ".."}:
        text = "unnamed"
    text = safe_name(text)
    if text.startswith("__"):
        text = "_" + text.lstrip("_")
    return text if _fault(text) is None else safe_name("id" + text)


def _told_apart(originals: Any, ids: Any) -> Any:
    """Different names for different originals; one that was not changed goes first."""
    changed = np.asarray(pc.not_equal(originals, ids).to_numpy(zero_copy_only=False), bool)
    order = np.argsort(changed, kind="stable")
    apart = _numbered(ids.take(pa.array(order)), None)
    return apart.take(pa.array(np.argsort(order)))


def _numbered(ids: Any, parents: Rows | None) -> Any:
    """Numbers for later rows that have the name of a sibling, where case is ignored too."""
    pairs = names.twins(ids, parents)
    if not pairs:
        return ids
    later = sorted({second for _, second in pairs})
    owner = np.zeros(len(ids), np.int64) if parents is None else parents
    involved = np.flatnonzero(np.isin(owner, owner[later]))
    folded = names.folded(ids.take(pa.array(involved))).to_pylist()
    taken = set(zip(owner[involved].tolist(), folded, strict=True))
    counts: dict[tuple[int, str], int] = {}
    new: dict[int, str] = {}
    for row in later:
        name, parent = ids[row].as_py(), int(owner[row])
        key = parent, name
        while True:
            counts[key] = counts.get(key, 1) + 1
            candidate = _with_number(name, counts[key])
            mark = parent, _folded(candidate)
            if mark not in taken:
                break
        taken.add(mark)
        new[row] = candidate
    return _replaced(ids, new)


def _with_number(name: str, number: int) -> str:
    stem, dot, ending = name.partition(".")
    if not stem:
        stem, dot, ending = name, "", ""
    return mended(f"{stem}_{number}{dot}{ending}")


def _folded(name: str) -> str:
    return str(names.folded(pa.array([name], pa.string()))[0].as_py())


def _replaced(column: Any, new: Mapping[int, str]) -> Any:
    if not new:
        return column
    mask = np.zeros(len(column), bool)
    rows = sorted(new)
    mask[rows] = True
    values = pa.array([new[row] for row in rows], pa.string())
    return pc.replace_with_mask(column, pa.array(mask), values)


def positions(parents: Rows) -> Any:
    """Ids that say which child of its parent a row is: ``0000``, ``0001``, ..."""
    first = np.searchsorted(parents, parents, side="left")  # rows are grouped by parent
    place = np.arange(len(parents)) - first
    known = [f"{number:04d}" for number in range(int(place.max(initial=-1)) + 1)]
    return pa.array(known, pa.string()).take(pa.array(place))


Mask = npt.NDArray[np.bool_]

_RULE = "the same children below every item at the top (TACO 2.0, 5.5, PIT-1)"
_HINTS = (
    "pad=True (--pad) fills what is missing with empty samples; "
    "children='position' (--children position) names children by their position"
)


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


def regular(depths: Sequence[Depth], ids: Sequence[Any], *, pad: bool) -> list[Shaped]:
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
    if top.rows == 0:
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
    levels = [Shaped(np.arange(top.rows), np.arange(top.rows), ids[0], top.folders)]
    place = np.arange(top.rows)
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
        cls, depth: Depth, ids: Any, place: Rows, levels: Sequence[Shaped], number: int
    ) -> _Grid:
        above, roots = levels[-1], len(levels[0].rows)
        wide = len(above.rows) // roots
        parent = place[depth.parent]
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

    def _check_types(self, depth: Depth, column: Rows) -> None:
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
    known = [f"{spec.PAD_PREFIX}{n}" for n in range(int(number.max()) + 1)]
    mask = pa.array(rows < 0)
    return pc.replace_with_mask(ids, mask, pa.array(known, pa.string()).take(pa.array(number)))
