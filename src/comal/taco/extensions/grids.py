"""MajorTOM and SpatialGrouping: the cell of a grid, or the group of neighbours, of a sample."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError, ObjectNotFoundError, shown
from comal.grid.morton import z_order
from comal.taco.extensions.base import ComputedColumns, declared
from comal.taco.extensions.places import centre_columns

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RADIUS_KM = 6378.137
"""Equatorial radius of the earth."""


@dataclass
class MajorTOM(ComputedColumns):
    """The MajorTOM cell of each sample, such as ``0100km_0003U_0005R``.

    Anchors stand on parallels `dist_km` apart, counted from the equator, and on each parallel
    `dist_km` apart from Greenwich. A sample belongs to the anchor south-west of its centroid; on
    an anchor it belongs to the one before.

    Parameters
    ----------
    dist_km
        Distance between anchors in kilometres.
    latitude_range, longitude_range
        Anchors outside are left out: a row clips to the nearest that is left, and a column west
        of the first wraps to the last.
    sep
        Between the three parts of a code.

    Raises
    ------
    InvalidInputError
        On creation: a distance that is not positive, an empty range. On use: no centroids.
    """

    dist_km: float = 100
    latitude_range: tuple[float, float] = (-85, 85)
    longitude_range: tuple[float, float] = (-180, 180)
    sep: str = "_"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.dist_km) and self.dist_km > 0):
            raise InvalidInputError("invalid dist_km", found=self.dist_km, expected="above 0")
        for low, high in (self.latitude_range, self.longitude_range):
            if not low < high:
                raise InvalidInputError("empty range", found=(low, high), expected="low < high")

    def get_schema(self) -> pa.Schema:
        """The column ``majortom:code``."""
        text = f"Cell of the MajorTOM grid of {self.dist_km:g} km"
        return declared(("majortom:code", pa.string(), text))

    def compute_table(self, table: pa.Table) -> pa.Table:
        """Codes of the centroids ``stac:centroid`` or ``istac:centroid``; null without one."""
        lon, lat = centre_columns(table, "MajorTOM")
        known = np.isfinite(lon) & np.isfinite(lat)
        rows, columns = self.cells(np.where(known, lon, 0), np.where(known, lat, 0))
        head = pa.scalar(f"{int(self.dist_km):04d}km")
        codes = pc.binary_join_element_wise(
            head, _labels(rows, "U", "D"), _labels(columns, "R", "L"), self.sep
        )
        codes = pc.if_else(pa.array(known), codes, pa.scalar(None, pa.string()))
        return pa.table({"majortom:code": codes})

    def cells(self, lon: npt.ArrayLike, lat: npt.ArrayLike) -> tuple[Integers, Integers]:
        """Row and column numbers of places in degrees; negative to the south and the west."""
        lons, lats = np.asarray(lon, np.float64), np.asarray(lat, np.float64)
        step = 180 / math.ceil(math.pi * RADIUS_KM / self.dist_km)
        lowest, highest = _range(*self.latitude_range, step, 90)
        rows = np.clip(np.ceil(lats / step) - 1, lowest, highest)
        around = 2 * math.pi * RADIUS_KM * np.cos(np.radians(rows * step))
        count = np.maximum(1, np.ceil(around / self.dist_km))
        width = 360 / count
        first, last = _range(*self.longitude_range, width, 180)
        columns = np.ceil(lons / width) - 1
        columns = np.where((columns < first) | (columns > last), last, columns)
        columns = np.where(first > last, 0, columns)
        return rows.astype(np.int64), columns.astype(np.int64)


def _range(low: float, high: float, step: Any, end: float) -> tuple[Any, Any]:
    """First and last anchor within low..high, of the anchors in -end <= anchor < end."""
    first = np.ceil(max(low, -end) / step)
    last = np.minimum(np.floor(high / step), np.ceil(end / step) - 1)
    return first, last


def _labels(numbers: Integers, upper: str, lower: str) -> pa.Array:
    """``0003U`` for 3 and ``0002D`` for -2."""
    digits = pc.utf8_lpad(pa.array(np.abs(numbers)).cast(pa.string()), 4, "0")
    sides = pc.if_else(pa.array(numbers >= 0), upper, lower)
    return pc.binary_join_element_wise(digits, sides, "")


SIZES = ("internal:size", "size")
"""Columns that are taken for the size of a sample in bytes."""

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)I?B?\s*", re.IGNORECASE | re.ASCII)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


@dataclass
class SpatialGrouping(ComputedColumns):
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

    _columns: ClassVar[pa.Schema] = declared(
        ("spatialgroup:code", pa.string(), "Group of neighbouring samples along a Z-order curve")
    )

    target_count: int | None = None
    target_size: int | str | None = None

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
