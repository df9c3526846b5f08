"""The RaQuet cases, with pyarrow, DuckDB, SQLite and rasterio on a COG of the same raster."""

from __future__ import annotations

import gzip
import sqlite3
import time
import zlib
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


def key_of(cell: int) -> tuple[int, int, int]:
    """An id in three columns, as MBTiles has them."""
    return cell >> 52 & 31, cell >> 26 & 0x3FFFFFF, cell & 0x3FFFFFF


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
        found.append(table[band][int(row)].as_py())
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
        base.execute("CREATE TABLE tiles (z int, x int, y int, block int, tile_data blob)")
        for batch in pq.ParquetFile(path).iter_batches(64, columns=["block", band]):
            ids = batch.column(0).to_pylist()
            rows = zip(ids, batch.column(1).to_pylist(), strict=True)
            base.executemany(
                "INSERT INTO tiles VALUES (?, ?, ?, ?, ?)",
                (
                    (cell >> 52 & 31, cell >> 26, cell & 0x3FFFFFF, cell, blob)
                    for cell, blob in rows
                ),
            )
        base.execute("CREATE UNIQUE INDEX tile_index ON tiles (z, x, y)")
    return {"seconds": 0.0}


def tiles_sqlite(directory: str, name: str) -> dict[str, Any]:
    wanted = cells_of(Path(directory) / f"{name}.parquet").tolist()
    query = "SELECT tile_data FROM tiles WHERE z=? AND x=? AND y=?"
    started = time.perf_counter()
    base = sqlite3.connect(f"file:{directory}/{name}.mbtiles?mode=ro", uri=True)
    found = [base.execute(query, key_of(cell)).fetchone()[0] for cell in wanted]
    return {"seconds": (time.perf_counter() - started) / READS, "check": _checksum(found)}


def _places(west: float, south: float, east: float, north: float) -> Any:
    """Places well inside a box, the same on both sides."""
    random = np.random.default_rng(9)
    longitudes = west + (east - west) * (0.2 + 0.6 * random.random(POINTS))
    return longitudes, south + (north - south) * (0.2 + 0.6 * random.random(POINTS))


PLACES = {"rgb": (-77.3, 40.6, -76.0, 41.4), "dem": (6.2, 44.5, 8.5, 46.7)}


def points_cog(directory: str, name: str) -> dict[str, Any]:
    """Each point by a dataset opened for it, as a service without state does."""
    import rasterio
    from rasterio.warp import transform

    longitudes, latitudes = _places(*PLACES[name])
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
            corner = raster.width // 3, raster.height // 3
            data = raster.read(1, window=Window(*corner, WINDOW, WINDOW))
        times.append(time.perf_counter() - started)
    assert data.shape == (WINDOW, WINDOW)
    return {"seconds": float(np.median(times))}


def _id_of(longitude: float, latitude: float, path: Path) -> int:
    import quadbin

    zoom = int((cells_of(path)[0] >> 52) & 31)
    return int(quadbin.point_to_cell(longitude, latitude, zoom))


def points_duckdb(directory: str, name: str) -> dict[str, Any]:
    """A point by SQL on the file of the reference converter."""
    import duckdb

    path = Path(directory) / f"{name}_reference.parquet"
    longitudes, latitudes = _places(*PLACES[name])
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
    longitudes, latitudes = _places(*PLACES[name])
    cells = [_id_of(*place, path) for place in zip(longitudes[:20], latitudes[:20], strict=True)]
    started = time.perf_counter()
    for cell in cells:
        table = pq.read_table(path, columns=["band_1"], filters=[("block", "=", cell)])
        gzip.decompress(table["band_1"][0].as_py())
    return {"seconds": (time.perf_counter() - started) / len(cells)}


if __name__ == "__main__":
    main_of_case(dict(globals()))
