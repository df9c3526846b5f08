"""Rows that are found by position or by name, the same way in every frame."""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Iterable
from functools import cached_property
from typing import Any, SupportsIndex, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, NotInContainerError, shown
from comal.frames.rows import IdIndex, Rows
from comal.public import guarded_class
from comal.table.columns import blobs_column, rows_where

_SCANS = 4
"""Look-ups by name that scan the column before an index of it is built."""


@guarded_class
class NamedRows(Rows):
    """An Arrow table with a column of names."""

    _lookups = 0

    @property
    @abstractmethod
    def _names(self) -> Any:
        """What each row is called, an Arrow column of texts."""

    @cached_property
    def _count(self) -> int:
        return len(self)

    @cached_property
    def _ids(self) -> IdIndex:
        return IdIndex(self._names)

    def _row(self, key: SupportsIndex | str) -> int:
        """The row at a position, which may be counted from the end, or with a name."""
        if isinstance(key, str):
            return self._row_of_id(key)
        # Whether any object is a position costs several times what reading a row does.
        if type(key) is not int and not is_position(key):
            raise InvalidInputError(
                "a row is named by position or id",
                found=type(key).__name__,
                hint="filter(mask) selects rows by a mask",
            )
        row = operator.index(key)
        count = self._count
        if not -count <= row < count:
            raise NotInContainerError(
                "no such row",
                found=row,
                expected=f"{-count} to {count - 1}" if count else "no rows",
            )
        return row % count

    def _row_of_id(self, name: str) -> int:
        rows = self._rows_of(name)
        if len(rows) == 1:
            return int(rows[0])
        if len(rows) > 1:
            raise InvalidInputError(
                f"{len(rows)} rows have the id {shown(name)}",
                found="rows " + ", ".join(str(row) for row in rows[:5]),
                hint="read them by position",
            )
        some = ", ".join(shown(value) for value in self._names.slice(0, 5).to_pylist())
        raise NotInContainerError(f"no row has the id {shown(name)}", expected=f"{some}, ...")

    def _rows_of(self, name: str) -> npt.NDArray[np.int64]:
        """All rows with a name, ascending."""
        if self._lookups >= _SCANS:
            return self._ids.find(name)
        self._lookups += 1
        # No column holds a lone surrogate, but `name` may.
        wanted = blobs_column([name.encode("utf-8", "surrogatepass")], pa.string())[0]
        return rows_where(pc.equal(self._names, wanted))


def is_position(key: object) -> TypeGuard[SupportsIndex]:
    """Whether `key` is one whole number, of Python or NumPy; arrays have `__index__` too."""
    return (
        isinstance(key, SupportsIndex)
        and not isinstance(key, bool | np.bool_)
        and not isinstance(key, Iterable)
    )
