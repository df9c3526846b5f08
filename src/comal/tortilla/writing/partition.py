"""Which items go into which file: by size, by number, or by the values of a column."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import InvalidInputError, shown
from comal.limits import parse_size
from comal.tortilla.writing.columns import SHORT
from comal.tortilla.writing.payloads import Ints
from comal.tortilla.writing.prepared import Prepared


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a set is cut into files; nothing given means one file."""

    size: int | None = None
    """Bytes of items in a file; header and footer do not count ("The Data Partition")."""
    rows: int | None = None
    """Items in a file."""
    column: str | None = None
    """A file, or several, for each value of this column."""

    @classmethod
    def of(cls, size: int | str | None, rows: int | None, column: str | None) -> Cut:
        """Checked.

        Raises
        ------
        InvalidInputError
            No size, or no positive number.
        """
        if rows is not None and (isinstance(rows, bool) or rows < 1):
            raise InvalidInputError(
                "no number of items in a part", found=shown(rows), expected="1 or more"
            )
        return cls(None if size is None else parse_size(size), rows, column)

    @property
    def is_none(self) -> bool:
        """Whether all goes into one file."""
        return self.size is None and self.rows is None and self.column is None


@dataclass(slots=True)
class Bin:
    """How full the file is that is being filled."""

    key: str
    number: int
    bytes: int = 0
    rows: int = 0


class Router:
    """Tells the file of each item as they come; keeps files of several values open at once."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._bins: dict[str, Bin] = {}
        self._count = 0

    def route(self, items: Prepared) -> Iterator[tuple[int, Ints]]:
        """Number of the file (from 0, in the order of their first items) and the rows for it.

        Rows of a value keep their order. A new file is begun when an item would make it larger
        than the cut allows; an item that is larger itself has a file of its own.
        """
        sizes = items.sizes() if self._cut.size is not None else np.zeros(len(items), np.int64)
        for key, rows in self._groups(items):
            start = 0
            while start < len(rows):
                bin_ = self._bins.get(key) or self._new(key)
                stop = start + self._room(bin_, sizes[rows[start:]])
                if stop == start:
                    bin_ = self._new(key)
                    continue
                bin_.bytes += int(sizes[rows[start:stop]].sum())
                bin_.rows += stop - start
                yield bin_.number, rows[start:stop]
                start = stop

    def _new(self, key: str) -> Bin:
        self._bins[key] = Bin(key, self._count)
        self._count += 1
        return self._bins[key]

    def _room(self, bin_: Bin, sizes: Ints) -> int:
        """How many of the next items fit; at least one into an empty file."""
        fits = len(sizes)
        if self._cut.rows is not None:
            fits = min(fits, self._cut.rows - bin_.rows)
        if self._cut.size is not None and fits:
            left = self._cut.size - bin_.bytes
            fits = min(fits, int(np.searchsorted(np.cumsum(sizes), left, side="right")))
            fits = max(fits, int(bin_.rows == 0))
        return fits

    def _groups(self, items: Prepared) -> Iterator[tuple[str, Ints]]:
        if self._cut.column is None:
            yield "", np.arange(len(items))
            return
        name = SHORT.get(self._cut.column, self._cut.column)
        if name not in items.table.column_names:
            raise InvalidInputError(
                f"no column {shown(name)} to cut by",
                found=", ".join(map(shown, items.table.column_names[:40])),
            )
        try:
            values = pc.fill_null(pc.cast(items.table[name], pa.string()), "\0")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"column {shown(name)} cannot be cut by", found=str(items.table[name].type)
            ) from error
        encoded = pc.dictionary_encode(values).combine_chunks()
        codes: Any = encoded.indices.to_numpy(zero_copy_only=False)
        for code, value in enumerate(encoded.dictionary.to_pylist()):
            yield value, np.flatnonzero(codes == code)
