"""Values at points: thousands at once, each tile decoded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.grid import mercator, quadbin
from comal.grid.arguments import reals
from comal.limits import MIB
from comal.plan import Plan
from comal.raquet.reading.coverage import Coverage, with_padding
from comal.raquet.reading.lookup import ABSENT
from comal.raquet.reading.pixels import common_type, fill_value
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.windows import Grid, columns_of
from comal.raquet.spec import Band

Pixels = npt.NDArray[Any]
_BATCH_BYTES = 32 * MIB


def points_plan(
    store: TileStore,
    grid: Grid,
    lons: Any,
    lats: Any,
    bands: Sequence[Band],
    rows_of: Any,
    covers: Sequence[Coverage | None] = (),
) -> Plan[tuple[Pixels, npt.NDArray[np.bool_]]]:
    """The pixels that hold points, shape (bands, points), and which are in no tile.

    With `covers`, one for each band, those that are padding count as in no tile.
    """
    cells, columns, rows = pixels_of(grid, lons, lats)
    data = np.empty((len(bands), len(cells)), common_type(bands))
    for index, band in enumerate(bands):
        data[index] = fill_value(band)
    missing = np.ones(data.shape, np.bool_)
    different, of_cell = np.unique(cells, return_inverse=True)
    found_rows = rows_of(different)
    order = np.argsort(of_cell, kind="stable")
    ends = np.cumsum(np.bincount(of_cell, minlength=len(different)))
    there = np.flatnonzero(found_rows != ABSENT).tolist()
    names, picks = columns_of(store, bands)
    count = max(1, _BATCH_BYTES // max(1, _tile_bytes(store)))
    for start in range(0, len(there), count):
        batch = there[start : start + count]
        keys = [(int(found_rows[at]), name) for at in batch for name in names]
        found = yield from store.pixels_plan(keys)
        for at in batch:
            points = order[(ends[at - 1] if at else 0) : ends[at]]
            for index, (name, plane) in enumerate(picks):
                pixels = found[int(found_rows[at]), name]
                if pixels is not None:
                    values = pixels if plane is None else pixels[plane]
                    data[index, points] = values[rows[points], columns[points]]
                    missing[index, points] = False
            if any(covers):
                place = quadbin.tiles(int(different[at]))
                z, x, y = (int(one) for one in place)
                shape = grid.block_height, grid.block_width

                def covered(
                    cover: Coverage, points: Any = points, at: Any = (z, x, y, shape)
                ) -> Any:
                    inside = cover.tile(*at)
                    return None if inside is None else inside[rows[points], columns[points]]

                missing[:, points] = with_padding(missing[:, points], covers, covered)
    return data, missing


def pixels_of(grid: Grid, lons: Any, lats: Any) -> tuple[Any, Any, Any]:
    """The cell of each point, and the column and row of its pixel within the tile.

    Points nearer to a pole than the projection reaches belong to its last row.
    """
    longitude = reals(lons, "longitude").ravel()
    latitude = reals(lats, "latitude").ravel()
    if longitude.shape != latitude.shape:
        raise InvalidInputError(
            "as many latitudes as longitudes", found=f"{len(longitude)} and {len(latitude)}"
        )
    if not (np.isfinite(longitude).all() and (np.abs(latitude) <= 90).all()):
        raise InvalidInputError("no point on the earth", expected="finite degrees, latitude <= 90")
    x, y = mercator.lonlat_to_xy(longitude, latitude, grid.zoom)
    last = (1 << grid.zoom) - 1
    across = np.minimum(np.floor(x).astype(np.int64), last)
    down = np.minimum(np.floor(y).astype(np.int64), last)
    columns = np.floor((x - across) * grid.block_width).astype(np.int64)
    rows = np.floor((y - down) * grid.block_height).astype(np.int64)
    return (
        quadbin.cells(grid.zoom, across, down),
        np.clip(columns, 0, grid.block_width - 1),
        np.clip(rows, 0, grid.block_height - 1),
    )


def _tile_bytes(store: TileStore) -> int:
    metadata = store.metadata
    pixels = metadata.block_width * metadata.block_height
    return pixels * sum(np.dtype(band.dtype).itemsize for band in metadata.bands)
