"""Id paths as the levels of a tree: columns and row numbers, no object per sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, shown
from comal.names import all_distinct
from comal.table.columns import numbers_column, numbers_of, rows_equal, valid_of

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """The n samples of one depth."""

    ids: Any
    """Arrow strings: the last part of each id path."""
    paths: Any
    """Arrow strings: the file; null for a folder."""
    parents: Ints
    """Row of the parent in the level above, shape (n,); zeros at level 0."""
    rows: Ints
    """Row of the columns that they came from, shape (n,); -1 for a folder that ids imply."""


def levels_of(
    ids: Any,
    paths: Any,
    where: str = "manifest",
    *,
    check_depth: Callable[[int], None] = lambda _: None,
) -> list[Level]:
    """Samples with id paths as one `Level` per depth, level 0 first.

    Samples of a level stand in the order in which they, or what lies in them, first appear.

    Parameters
    ----------
    ids
        Arrow strings such as ``scene_1/before.tif``; slashes at either end do not count. Folders
        above a sample need no row of their own.
    paths
        Arrow strings: the file of each; null for a folder.
    where
        What messages call the columns.
    check_depth
        Told how many levels there will be, before they are made; may refuse them.

    Raises
    ------
    InvalidInputError
        A row without an id, an id that stands twice, a sample in what is no folder.
    """
    parts = _parts(ids, where)
    starts = numbers_of(parts.offsets).astype(np.int64)
    deep = np.diff(starts)
    check_depth(int(deep.max(initial=0)))
    has_file = valid_of(paths)
    levels: list[Level] = []
    # The rows that reach this deep, and where the sample above each of them is in its level.
    rows = np.arange(len(ids), dtype=np.int64)
    above = np.zeros(len(ids), np.int64)
    twice: list[int] = []
    inside: list[int] = []
    for depth in range(int(deep.max(initial=0))):
        names = parts.values.take(numbers_column(starts[rows] + depth))
        codes, firsts = _first_seen(above, names)
        own = deep[rows] == depth + 1
        twice += rows[own][_repeated(codes[own])][:1].tolist()
        origin = np.full(len(firsts), -1, np.int64)
        # Backwards, so that of rows that stand twice the first one counts.
        origin[codes[own][::-1]] = rows[own][::-1]
        files = np.zeros(len(firsts), bool)
        files[origin >= 0] = has_file[origin[origin >= 0]]
        inside += rows[~own & files[codes]][:1].tolist()
        levels.append(Level(taken(names, firsts), taken(paths, origin), above[firsts], origin))
        rows, above = rows[~own], codes[~own]
    _refuse(ids, twice, inside, where)
    return levels


def _parts(ids: Any, where: str) -> Any:
    """The parts of each id path, an Arrow array of lists."""
    trimmed = pc.ascii_trim(ids, "/")
    filled = valid_of(trimmed) & ~rows_equal(trimmed, "")
    for row in np.flatnonzero(~filled)[:1].tolist():
        raise InvalidInputError("manifest has a row without an id", where=f"{where}, row {row}")
    return pc.split_pattern(trimmed, "/")


def _first_seen(above: Ints, names: Any) -> tuple[Ints, Ints]:
    """Numbers for pairs of parent and name, in the order in which they appear.

    Returns
    -------
    codes, firsts
        The number of each row, shape (rows,), and the first row of each number, shape (numbers,).
    """
    if all_distinct(names):
        return np.arange(len(names)), np.arange(len(names))
    encoded = names.dictionary_encode()
    # Sorting takes a quarter of the memory of Arrow's table of so many numbers.
    pairs = above * len(encoded.dictionary) + numbers_of(encoded.indices)
    _, firsts, codes = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.argsort(firsts)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[codes], firsts[order]


def _repeated(codes: Ints) -> Ints:
    """Places whose code stands at an earlier place too."""
    seen = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    seen[codes[::-1]] = np.arange(len(codes))[::-1]
    return np.flatnonzero(seen[codes] != np.arange(len(codes)))


def _refuse(ids: Any, twice: list[int], inside: list[int], where: str) -> None:
    """Refuse rows whose id stands twice, then those that lie in a file."""
    for row in sorted(twice)[:1]:
        raise InvalidInputError(
            f"id {shown(ids[row].as_py())} stands twice", where=f"{where}, row {row}"
        )
    for row in sorted(inside)[:1]:
        name = ids[row].as_py().strip("/")
        raise InvalidInputError("sample lies in what is no folder", where=shown(name, 120))


def taken(column: Any, rows: Ints) -> Any:
    """The values of `rows`; null where a row is negative."""
    if len(rows) == len(column) and (rows == np.arange(len(rows))).all():
        return column
    return column.take(numbers_column(rows, valid=rows >= 0))


def fields_at(fields: Any, rows: Ints) -> dict[str, Any]:
    """The fields of a level, by the rows of a table that its samples come from.

    Parameters
    ----------
    fields
        Arrow table.
    rows
        Rows of it, shape (n,); -1 for a sample without a row.

    Returns
    -------
    dict of str to Arrow array
        Columns of n values. A level has those that are not null in all of its rows, and those that
        are null in all rows of the table; none when no sample has a row.
    """
    if not (rows >= 0).any():
        return {}
    found: dict[str, Any] = {}
    for name, column in zip(fields.column_names, fields.columns, strict=True):
        own = taken(column, rows)
        if own.null_count < len(own) or column.null_count == len(column):
            found[name] = own
    return found
