"""MajorTOM: the cell of a grid of about equal distances that a sample lies in."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.taco.extensions.base import TortillaExtension, column
from comal.taco.extensions.centres import centre_columns

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RADIUS_KM = 6378.137
"""Equatorial radius of the earth."""


@dataclass
class MajorTOM(TortillaExtension):
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
    schema_only: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.dist_km) and self.dist_km > 0):
            raise InvalidInputError("invalid dist_km", found=self.dist_km, expected="above 0")
        for low, high in (self.latitude_range, self.longitude_range):
            if not low < high:
                raise InvalidInputError("empty range", found=(low, high), expected="low < high")

    def get_schema(self) -> pa.Schema:
        """The column ``majortom:code``."""
        text = f"Cell of the MajorTOM grid of {self.dist_km:g} km"
        return pa.schema([column("majortom:code", pa.string(), text)])

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

    def _compute(self, tortilla: Any) -> pa.Table:
        return self.compute_table(tortilla.to_arrow())

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
