"""Ids of a Tortilla, where anything goes, as ids of TACO 2.0, which every file system can hold.

The same old id becomes the same new one wherever it stands at its level, so that what was regular
stays regular; different old ids stay different.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal import names
from comal.errors import InvalidInputError, shown
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
