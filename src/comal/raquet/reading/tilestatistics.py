"""The statistics that a file has of its tiles (0.5.0)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.raquet.reading.store import TileStore
from comal.table import ParquetTable


def tile_statistics(store: TileStore) -> npt.NDArray[np.float64] | None:
    """Of every row and band what `Metadata.tile_statistics` names; None where a file has none.

    Returns
    -------
    Array of shape (rows, bands, kinds), NaN where nothing is told.

    Raises
    ------
    InvalidMetadataError, LimitExceededError
        As for `comal.table.ParquetTable.read`.
    """
    metadata = store.metadata
    if not metadata.tile_statistics:
        return None
    names = list(metadata.statistics_columns)
    tables = [
        ParquetTable(source, part.footer, limits=store.limits).read(names)
        for source, part in zip(store.sources, store.parts, strict=True)
    ]
    table = pa.concat_tables(tables)
    columns: list[Any] = [
        table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in names
    ]
    stacked = np.stack(columns, axis=1)
    return stacked.reshape(len(stacked), len(metadata.bands), len(metadata.tile_statistics))
