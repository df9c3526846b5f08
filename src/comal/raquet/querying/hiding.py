"""Alpha tiles for functions of SQL: which pixels have a value is told by another column.

A function sees the columns that it is given. Where a band is passed without its alpha band, that is
looked up among the data sets of the connection, by the document and the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.plan import run
from comal.query.columns import is_bytes
from comal.raquet.querying.files import Files
from comal.raquet.querying.tilevalues import ALL_HIDDEN, BandOf

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Tiles:
    """Rows of the tiles of a data set by their block."""

    files: Files

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.files.store.ids, kind="stable")

    @cached_property
    def _ids(self) -> Ints:
        return self.files.store.ids[self._order]

    def blobs(self, cells: Sequence[int], columns: Sequence[str]) -> list[set[bytes]]:
        """The different blobs of each block in a column; of a time series there may be several."""
        store = self.files.store
        begin, end = (np.searchsorted(self._ids, cells, side) for side in ("left", "right"))
        rows = [self._order[one:other].tolist() for one, other in zip(begin, end, strict=True)]
        keys = {(row, name) for some, name in zip(rows, columns, strict=True) for row in some}
        found = run(store.blobs_plan(sorted(keys)), store.fetch) if keys else {}
        return [
            {found[row, name] or ALL_HIDDEN for row in some}
            for some, name in zip(rows, columns, strict=True)
        ]


@dataclass(frozen=True)
class Hiding:
    """The alpha bands of the data sets of a connection."""

    data_sets: Mapping[str, Sequence[_Tiles]] = field(default_factory=dict)
    """By the document in their rows, which several may have."""

    @classmethod
    def of(cls, data_sets: Iterable[tuple[str, Files]]) -> Hiding:
        """Of data sets, each with the document in its rows."""
        found: dict[str, list[_Tiles]] = {}
        for text, files in data_sets:
            found.setdefault(text, []).append(_Tiles(files))
        return cls(found)

    def blobs(
        self,
        given: Any,
        likes: Sequence[BandOf],
        cells: Ints | None = None,
        needed: npt.NDArray[np.bool_] | None = None,
    ) -> list[bytes | None]:
        """The blob of the alpha band for each row of a query.

        Parameters
        ----------
        given
            The argument ``alpha``: a column of blobs, or of nulls without type where it was not
            given.
        likes
            The band of each row.
        cells
            The block of each row; None where the function is not told it.
        needed
            For which rows; None for all.

        Returns
        -------
        None where there is no need for it, or no telling; `ALL_HIDDEN` for a NULL tile.

        Raises
        ------
        InvalidInputError
            `given` is something else.
        """
        if is_bytes(given):
            return [ALL_HIDDEN if blob is None else blob for blob in given.to_pylist()]
        if given.null_count < len(given):
            raise InvalidInputError("alpha is no blob", found=str(given.type))
        found: list[bytes | None] = [None] * len(likes)
        if cells is None:
            return found
        wanted: dict[str, list[int]] = {}
        for row, of in enumerate(likes):
            known = of.text in self.data_sets and of.hidden_by is not None
            if known and (needed is None or needed[row]):
                wanted.setdefault(of.text, []).append(row)
        for text, rows in wanted.items():
            names = [likes[row].hidden_by or "" for row in rows]
            every = [tiles.blobs(cells[rows].tolist(), names) for tiles in self.data_sets[text]]
            for row, *blobs in zip(rows, *every, strict=True):
                different = set().union(*blobs)
                # Where there are several, only the query can say which of them it is.
                if len(different) < 2:
                    found[row] = different.pop() if different else ALL_HIDDEN
        return found
