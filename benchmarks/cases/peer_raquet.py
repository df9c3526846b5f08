"""The RaQuet cases, with pyarrow, DuckDB, SQLite and rasterio on a COG of the same raster."""

from __future__ import annotations

import gzip
import sqlite3
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from harness import main_of_case

POINTS = 200
READS = 2_000
WINDOW = 1_280


def prepare(directory: str, name: str, size: str) -> dict[str, Any]:
    import rasters

    rasters.RASTERS[name](Path(directory) / f"{name}.tif", int(size))
    return {"seconds": 0.0}


def cells_of(path: Path) -> Any:
    """Ids of the tiles of the finest zoom, in the order in which they are read."""
    import pyarrow.parquet as pq

    ids = pq.read_table(path, columns=["block"])["block"].to_numpy().astype(np.int64)
    zooms = (ids >> 52) & 31
    finest = ids[zooms == zooms.max()]
    return np.random.default_rng(3).choice(finest, READS)


def _keys_of(cells: Any) -> list[tuple[int, int, int]]:
    """Zoom, column and row, as MBTiles has them."""
    import quadbin

    tiles = (quadbin.cell_to_tile(int(cell)) for cell in cells)
    return [(z, x, y) for x, y, z in tiles]


END = 16
"""Bytes of each tile that are kept and compared: to keep all would measure the memory."""


def _checksum(parts: list[bytes]) -> int:
    value = 0
    for part in parts:
        value = zlib.crc32(part, value)
    return value


def tiles_pyarrow(directory: str, name: str) -> dict[str, Any]:
    """A tile by its row group, which is the least that pyarrow reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = Path(directory) / f"{name}.parquet"
    wanted = cells_of(path)[: READS // 10]
    band = pq.read_schema(path).names[2]
    started = time.perf_counter()
    file = pq.ParquetFile(path)
    column = file.schema_arrow.names.index("block")
    groups = [file.metadata.row_group(n).column(column) for n in range(file.num_row_groups)]
    lows = np.array([group.statistics.min for group in groups], np.int64)
    found = []
    for cell in wanted:
        group = int(np.searchsorted(lows, cell, "right")) - 1
        table = file.read_row_group(group, ["block", band])
        row = table["block"].to_numpy().astype(np.int64).searchsorted(cell)
        found.append(table[band][int(row)].as_py()[-END:])
    seconds = (time.perf_counter() - started) / len(wanted)
    assert isinstance(found, list)
    assert pa.__version__
    return {"seconds": seconds, "check": _checksum(found)}


def prepare_sqlite(directory: str, name: str) -> dict[str, Any]:
    """The same blobs of one band as MBTiles would hold them."""
    import pyarrow.parquet as pq

    path = Path(directory) / f"{name}.parquet"
    band = pq.read_schema(path).names[2]
    with sqlite3.connect(Path(directory) / f"{name}.mbtiles") as base:
        base.execute("CREATE TABLE tiles (z int, x int, y int, tile_data blob)")
        for batch in pq.ParquetFile(path).iter_batches(64, columns=["block", band]):
            ids = [cell for cell in batch.column(0).to_pylist() if cell]
            blobs = batch.column(1).to_pylist()[-len(ids) :] if ids else []
            rows = zip(_keys_of(ids), blobs, strict=True)
            base.executemany(
                "INSERT INTO tiles VALUES (?, ?, ?, ?)", ((*key, blob) for key, blob in rows)
            )
        base.execute("CREATE UNIQUE INDEX tile_index ON tiles (z, x, y)")
    return {"seconds": 0.0}


QUERY = "SELECT tile_data FROM tiles WHERE z=? AND x=? AND y=?"


def tiles_sqlite(directory: str, name: str, *, together: bool = False) -> dict[str, Any]:
    wanted = _keys_of(cells_of(Path(directory) / f"{name}.parquet"))
    started = time.perf_counter()
    base = sqlite3.connect(f"file:{directory}/{name}.mbtiles?mode=ro", uri=True)
    if together:
        base.execute("BEGIN")
    found = [base.execute(QUERY, key).fetchone()[0][-END:] for key in wanted]
    return {"seconds": (time.perf_counter() - started) / READS, "check": _checksum(found)}


# All in one transaction, which takes the lock once: the fastest of SQLite's ways.
together_sqlite = partial(tiles_sqlite, together=True)


def places(directory: str, name: str) -> Any:
    """Places well inside the raster, the same on both sides."""
    import rasterio
    from rasterio.warp import transform_bounds

    with rasterio.open(Path(directory) / f"{name}.tif") as raster:
        west, south, east, north = transform_bounds(raster.crs, "EPSG:4326", *raster.bounds)
    random = np.random.default_rng(9)
    longitudes = west + (east - west) * (0.2 + 0.6 * random.random(POINTS))
    return longitudes, south + (north - south) * (0.2 + 0.6 * random.random(POINTS))


def window_of(width: int, height: int) -> tuple[int, int, int]:
    """First column and row of the window that is read, and how many of both."""
    return width // 3, height // 3, min(WINDOW, width // 2, height // 2)


def points_cog(directory: str, name: str) -> dict[str, Any]:
    """Each point by a dataset opened for it, as a service without state does."""
    import rasterio
    from rasterio.warp import transform

    longitudes, latitudes = places(directory, name)
    started = time.perf_counter()
    for longitude, latitude in zip(longitudes, latitudes, strict=True):
        with rasterio.open(Path(directory) / f"{name}_cog.tif") as raster:
            x, y = transform("EPSG:4326", raster.crs, [longitude], [latitude])
            next(raster.sample([(x[0], y[0])], indexes=1))
    return {"seconds": (time.perf_counter() - started) / POINTS}


def window_cog(directory: str, name: str) -> dict[str, Any]:
    import rasterio
    from rasterio.windows import Window

    times = []
    for _ in range(20):
        started = time.perf_counter()
        with rasterio.open(Path(directory) / f"{name}_cog.tif") as raster:
            column, row, side = window_of(raster.width, raster.height)
            data = raster.read(1, window=Window(column, row, side, side))
        times.append(time.perf_counter() - started)
    assert data.shape == (side, side)
    return {"seconds": float(np.median(times))}


def _id_of(longitude: float, latitude: float, path: Path) -> int:
    import quadbin

    zoom = int((cells_of(path)[0] >> 52) & 31)
    return int(quadbin.point_to_cell(longitude, latitude, zoom))


def points_duckdb(directory: str, name: str) -> dict[str, Any]:
    """A point by SQL on the file of the reference converter."""
    import duckdb

    path = Path(directory) / f"{name}_reference.parquet"
    longitudes, latitudes = places(directory, name)
    cells = [_id_of(*place, path) for place in zip(longitudes[:20], latitudes[:20], strict=True)]
    started = time.perf_counter()
    for cell in cells:
        with duckdb.connect() as base:
            query = f"SELECT band_1 FROM read_parquet('{path}') WHERE block = {cell}"
            gzip.decompress(base.sql(query).fetchall()[0][0])
    return {"seconds": (time.perf_counter() - started) / len(cells)}


def points_pyarrow(directory: str, name: str) -> dict[str, Any]:
    """A point by pyarrow on the file of the reference converter."""
    import pyarrow.parquet as pq

    path = Path(directory) / f"{name}_reference.parquet"
    longitudes, latitudes = places(directory, name)
    cells = [_id_of(*place, path) for place in zip(longitudes[:20], latitudes[:20], strict=True)]
    started = time.perf_counter()
    for cell in cells:
        table = pq.read_table(path, columns=["band_1"], filters=[("block", "=", cell)])
        gzip.decompress(table["band_1"][0].as_py())
    return {"seconds": (time.perf_counter() - started) / len(cells)}


def _window_reference(directory: str, name: str) -> tuple[Path, list[int], Any]:
    """The tiles of the window in the file of the reference converter, and the type of pixels."""
    import json

    import pyarrow.parquet as pq
    import quadbin

    path = Path(directory) / f"{name}_reference.parquet"
    table = pq.read_table(path, columns=["metadata"], filters=[("block", "=", 0)])
    document = json.loads(table["metadata"][0].as_py())
    tiling = document["tiling"]
    column, row, side = window_of(document["width"], document["height"])
    _, xs, ys = np.array(_keys_of(cells_of(path))).T
    size = tiling["block_width"]
    wanted = [
        quadbin.tile_to_cell((int(xs.min()) + x, int(ys.min()) + y, tiling["max_zoom"]))
        for y in range(row // size, -(-(row + side) // size))
        for x in range(column // size, -(-(column + side) // size))
    ]
    return path, wanted, np.dtype(document["bands"][0]["type"])


def window_duckdb(directory: str, name: str) -> dict[str, Any]:
    """The tiles of the window by SQL, decoded."""
    import duckdb

    path, cells, dtype = _window_reference(directory, name)
    times = []
    for _ in range(10):
        started = time.perf_counter()
        with duckdb.connect() as base:
            rows = base.sql(
                f"SELECT band_1 FROM read_parquet('{path}') WHERE block BETWEEN {min(cells)}"
                f" AND {max(cells)} AND block IN {tuple(cells)}"
            ).fetchall()
        found = [np.frombuffer(gzip.decompress(row[0]), dtype) for row in rows]
        times.append(time.perf_counter() - started)
    assert len(found) == len(cells)
    return {"seconds": float(np.median(times))}


def window_pyarrow(directory: str, name: str) -> dict[str, Any]:
    """The tiles of the window by a filter, decoded."""
    import pyarrow.parquet as pq

    path, cells, dtype = _window_reference(directory, name)
    times = []
    for _ in range(10):
        started = time.perf_counter()
        table = pq.read_table(path, columns=["band_1"], filters=[("block", "in", cells)])
        found = [np.frombuffer(gzip.decompress(blob.as_py()), dtype) for blob in table["band_1"]]
        times.append(time.perf_counter() - started)
    assert len(found) == len(cells)
    return {"seconds": float(np.median(times))}


# Cases in which comal reads the same file, and in which it answers in SQL too.
points_reference_duckdb = points_sql_duckdb = points_duckdb
points_reference_pyarrow = points_pyarrow
window_reference_duckdb, window_reference_pyarrow = window_duckdb, window_pyarrow


if __name__ == "__main__":
    main_of_case(dict(globals()))
