"""Centroids of the samples of a table, for extensions that group or place them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.geo import wkb

if TYPE_CHECKING:
    import pyarrow as pa

Floats = npt.NDArray[np.float64]

COLUMNS = ("stac:centroid", "istac:centroid")


def centre_columns(table: pa.Table, who: str) -> tuple[Floats, Floats]:
    """Longitude and latitude of each row, from the first of `COLUMNS` that has them.

    Raises
    ------
    InvalidInputError
        The table has none of the columns, or no row has a centroid.
    """
    lon, lat = np.full(table.num_rows, np.nan), np.full(table.num_rows, np.nan)
    present = [name for name in COLUMNS if name in table.column_names]
    for name in present:
        x, y = wkb.points_xy(table.column(name), name)
        lon, lat = np.where(np.isnan(lon), x, lon), np.where(np.isnan(lat), y, lat)
    if not present or (table.num_rows and np.isnan(lon).all()):
        raise InvalidInputError(
            f"{who} needs centroids",
            found="no centroid in any row" if present else _listed(table),
            expected=" or ".join(COLUMNS),
            hint="extend the samples with STAC or ISTAC first",
        )
    return lon, lat


def _listed(table: pa.Table) -> str:
    return ", ".join(shown(name) for name in table.column_names[:20])
