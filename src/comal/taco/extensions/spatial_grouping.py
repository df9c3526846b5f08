"""SpatialGrouping: groups of neighbouring samples."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, ObjectNotFoundError, shown
from comal.geo.samples import z_order
from comal.taco.extensions.base import TortillaExtension, column
from comal.taco.extensions.centres import centre_columns

Integers = npt.NDArray[np.int64]

SIZES = ("internal:size", "size")
"""Columns that are taken for the size of a sample in bytes."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


@dataclass
class SpatialGrouping(TortillaExtension):
    """A group of neighbours for each sample: ``sg0000``, ``sg0001``, ...

    Samples are put in the order of a Z-order curve through their centroids and cut into groups at
    `target_count` samples or `target_size` bytes, whichever comes first. A sample larger than
    `target_size` is a group of its own.

    Parameters
    ----------
    target_count
        Samples in a group, at most.
    target_size
        Bytes in a group, at most: a number, or text such as ``"512MB"`` (of 1024 * 1024).

    Raises
    ------
    InvalidInputError
        On creation: neither limit, or one that is not positive. On use: no centroids; sizes are
        not known.
    """

    target_count: int | None = None
    target_size: int | str | None = None
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if self.target_count is None and self.target_size is None:
            raise InvalidInputError(
                "SpatialGrouping needs a limit", expected="target_count, target_size or both"
            )
        if self.target_count is not None and self.target_count < 1:
            raise InvalidInputError(
                "invalid target_count", found=self.target_count, expected="at least 1"
            )
        self._bytes = None if self.target_size is None else parse_size(self.target_size)

    def get_schema(self) -> pa.Schema:
        """The column ``spatialgroup:code``."""
        text = "Group of neighbouring samples along a Z-order curve"
        return pa.schema([column("spatialgroup:code", pa.string(), text)])

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Groups of the rows; null where there is no centroid."""
        return self._grouped(table, None)

    def _compute(self, tortilla: Any) -> pa.Table:
        sizes = getattr(tortilla, "sizes", None)
        known = sizes() if callable(sizes) and self._bytes is not None else None
        return self._grouped(tortilla.to_arrow(), known)

    def _grouped(self, table: pa.Table, sizes: Any) -> pa.Table:
        lon, lat = centre_columns(table, "SpatialGrouping")
        rows = np.flatnonzero(np.isfinite(lon) & np.isfinite(lat))
        rows = rows[np.argsort(z_order(lon[rows], lat[rows]), kind="stable")]
        ends = np.arange(1, len(rows) + 1)
        if self._bytes is not None:
            known = _sizes(table) if sizes is None else np.asarray(sizes, np.int64)
            ends = np.cumsum(known[rows])
        numbers = np.zeros(table.num_rows, np.int64)
        numbers[rows] = self._cut(len(rows), ends)
        digits = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 4, "0")
        codes = pc.binary_join_element_wise("sg", digits, "")
        placed = np.zeros(table.num_rows, bool)
        placed[rows] = True
        codes = pc.if_else(pa.array(placed), codes, pa.scalar(None, pa.string()))
        return pa.table({"spatialgroup:code": codes})

    def _cut(self, count: int, ends: Integers) -> Integers:
        """Number of the group of each of `count` samples, whose sizes sum up to `ends`."""
        groups = np.zeros(count, np.int64)
        longest = self.target_count or count
        start = number = 0
        while start < count:
            stop = start + longest
            if self._bytes is not None:
                before = int(ends[start - 1]) if start else 0
                fitting = int(np.searchsorted(ends, before + self._bytes, side="right"))
                stop = min(stop, max(fitting, start + 1))
            groups[start:stop] = number
            start, number = stop, number + 1
        return groups


def parse_size(size: int | str) -> int:
    """Bytes of ``"512MB"``, ``"4.5 GB"`` or a number; units are powers of 1024.

    Raises
    ------
    InvalidInputError
        No size, or none above 0.
    """
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    count = int(float(found[1]) * _UNITS[found[2].upper()]) if found else size
    if isinstance(count, str | bool) or count < 1:
        raise InvalidInputError(
            "invalid size", found=shown(size), expected="bytes, or text such as '512MB'"
        )
    return int(count)


def _sizes(table: pa.Table) -> Integers:
    for name in SIZES:
        if name in table.column_names:
            sizes: Integers = table.column(name).fill_null(0).to_numpy().astype(np.int64)
            return sizes
    if "path" in table.column_names:
        return np.fromiter(map(_size_of, table.column("path").to_pylist()), np.int64)
    raise InvalidInputError(
        "SpatialGrouping by size needs the sizes of the samples",
        expected=f"a column {' or '.join(SIZES)} or 'path'",
        hint="or use target_count",
    )


def _size_of(path: str | bytes | None) -> int:
    if path is None:
        return 0
    if isinstance(path, bytes):
        return len(path)
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a million paths
    except OSError as error:
        raise ObjectNotFoundError("sample cannot be found", where=shown(path, 200)) from error
