"""Who is who in a level, and whose child: ids and parents of all rows, as arrays.

``internal:current_id`` and ``internal:parent_id`` refer to rows of one ZIP (6.2). Older writers
leave the first out, exports of theirs wrote the second wrong, and in an index over several ZIPs
both count within each ZIP. Here all become plain row numbers of the level's table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidMetadataError
from comal.public import warn
from comal.taco import spec
from comal.taco.spec import TacoWarning

if TYPE_CHECKING:
    from comal.taco.reading.level import Level

Int64s = npt.NDArray[np.int64]

_CODE_SHIFT = 32
_MOST_IDS = 1 << _CODE_SHIFT


def broken(level: Level, what: str, row: int) -> InvalidMetadataError:
    """The error for one row of a level."""
    return InvalidMetadataError(what, where=f"{level.where}, row {row}")


def codes_of(level: Level) -> Int64s | None:
    """For each row the number of its ZIP in an index; None for other containers."""
    if not level.container.is_index:
        return None
    known = pa.array(list(level.source_codes), pa.string())
    found = pc.index_in(level.column(spec.SOURCE_FILE), value_set=known)
    codes = np.asarray(pc.fill_null(found, -1), np.int64)
    if (codes < 0).any():
        raise broken(level, "a row names a ZIP that level 0 does not know", int(np.argmin(codes)))
    return codes


def ids_of(level: Level) -> Int64s | None:
    """``internal:current_id`` of each row, made from the row order where it is absent.

    None when ids are the row numbers, as they are in every sound ZIP and folder.
    """
    if level.has_ids:
        column = level.column(spec.CURRENT_ID)
        if column.null_count:
            raise broken(level, f"{spec.CURRENT_ID} is null", first_null(column))
        ids = spec.int64s(column)
        bad = (ids < 0) | (ids >= _MOST_IDS)
        if bad.any():
            raise broken(level, f"{spec.CURRENT_ID} is no row number", int(np.argmax(bad)))
        return None if np.array_equal(ids, np.arange(len(ids))) else ids
    return None if level.codes is None else _count_within(level.codes)


def _count_within(codes: Int64s) -> Int64s:
    """0, 1, 2, ... within each code, in row order."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(starts, len(codes)))
    result = np.empty(len(codes), np.int64)
    result[order] = np.arange(len(codes)) - np.repeat(starts, sizes)
    return result


class RowIndex:
    """Finds rows of a level by id, and in an index by ZIP and id."""

    def __init__(self, level: Level) -> None:
        self._count = level.num_rows
        self._ordered: Int64s | None = None
        ids, codes = level.ids, level.codes
        if ids is None and codes is None:
            return
        keys = np.arange(self._count, dtype=np.int64) if ids is None else ids
        if codes is not None:
            keys = (codes << _CODE_SHIFT) | keys
        self._order = np.argsort(keys, kind="stable").astype(np.int64)
        self._ordered = keys[self._order]
        twice = np.flatnonzero(self._ordered[1:] == self._ordered[:-1])
        if len(twice):
            raise broken(level, f"{spec.CURRENT_ID} stands twice", int(self._order[twice[0] + 1]))

    def find(self, ids: Int64s, codes: Int64s | None) -> Int64s:
        """The rows with these ids (of these ZIPs); -1 where there is none."""
        if self._ordered is None:
            return np.where((ids >= 0) & (ids < self._count), ids, -1)
        if not len(self._ordered):
            return np.full(len(ids), -1, np.int64)
        possible = (ids >= 0) & (ids < _MOST_IDS)
        keys = np.where(possible, ids, 0)
        if codes is not None:
            keys |= codes << _CODE_SHIFT
            possible &= codes >= 0
        place = np.minimum(np.searchsorted(self._ordered, keys), len(self._ordered) - 1)
        return np.where(possible & (self._ordered[place] == keys), self._order[place], -1)


def folders_of(level: Level) -> npt.NDArray[np.bool_]:
    """Which rows are FOLDERs; the others are FILEs."""
    column = level.column(spec.TYPE)
    known = pc.is_in(column, value_set=pa.array([spec.FILE, spec.FOLDER]))
    if not pc.all(known, min_count=0).as_py():
        row = int(pc.index(known, pa.scalar(value=False)).as_py())
        raise broken(level, f"type is neither {spec.FILE} nor {spec.FOLDER}", row)
    return np.asarray(pc.equal(column, spec.FOLDER), np.bool_)


def parents_by_id(level: Level) -> Int64s | None:
    """Rows of the parents as ``internal:parent_id`` says; -1 where that is no FOLDER."""
    if spec.PARENT_ID not in level.stored:
        return None
    ids = spec.int64s(level.column(spec.PARENT_ID))
    found = level.above.index_of_rows.find(ids, level.codes)
    if not level.above.num_rows:
        return found
    return np.where((found >= 0) & level.above.folders[np.maximum(found, 0)], found, -1)


def parents_of(level: Level) -> Int64s:
    """For each row the row of its parent in the level above.

    Where ids and paths disagree the path is right: exports of old writers renumbered their rows
    wrongly.

    Raises
    ------
    InvalidMetadataError
        A row has no parent.
    """
    found = parents_by_id(level)
    if spec.RELATIVE_PATH not in level.stored:
        assert found is not None, "a level without both columns is refused when it is opened"
        if (found < 0).any():
            raise broken(level, "a row has no parent in the level above", int(np.argmin(found)))
        return found
    wanted = pc.replace_substring_regex(level.paths(), r"/[^/]*$", "")
    above = level.above.paths()
    if found is not None and not (found < 0).any():
        same = pc.equal(above.take(pa.array(found)), wanted)
        if pc.all(same, min_count=0).as_py():
            return found
    repaired = _parents_by_path(level, wanted, above)
    if found is not None:
        warn(
            f"{level.where}: {spec.PARENT_ID} contradicts {spec.RELATIVE_PATH}; the paths are used",
            TacoWarning,
        )
    return repaired


def _parents_by_path(level: Level, wanted: Any, above: Any) -> Int64s:
    codes, codes_above = level.codes, level.above.codes
    if codes is not None and codes_above is not None:
        wanted = pc.binary_join_element_wise(pa.array(codes.astype(str)), wanted, "/")
        above = pc.binary_join_element_wise(pa.array(codes_above.astype(str)), above, "/")
    rows = np.asarray(pc.fill_null(pc.index_in(wanted, value_set=above), -1), np.int64)
    if (rows < 0).any():
        raise broken(level, "a row has no parent in the level above", int(np.argmin(rows)))
    return rows


class ChildIndex:
    """Finds the children of a row."""

    def __init__(self, parents: Int64s) -> None:
        self._order: Int64s | None = None
        self._parents = parents
        # Rows stand in the order of their parents in everything that the writers made.
        if (parents[1:] < parents[:-1]).any():
            self._order = np.argsort(parents, kind="stable").astype(np.int64)
            self._parents = parents[self._order]

    def children(self, parent: int) -> Int64s:
        """Rows whose parent is `parent`, in their order."""
        start, stop = np.searchsorted(self._parents, [parent, parent + 1])
        if self._order is None:
            return np.arange(start, stop, dtype=np.int64)
        return self._order[start:stop]


# -- columns ---------------------------------------------------------------------------------------


def first_null(column: Any) -> int:
    """The row of the first null."""
    row: int = pc.index(pc.is_null(column), pa.scalar(value=True)).as_py()
    return row
