"""The RaQuet cases, with comal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from peer_raquet import END, POINTS, READS, _checksum, cells_of, places, window_of

from comal import raquet
from comal.grid import lonlat_to_xy, quadbin
from harness import main_of_case

for _name in raquet.__all__:  # imports are not what is measured, on either side
    getattr(raquet, _name)


def prepare(directory: str, name: str) -> dict[str, Any]:
    source = Path(directory) / f"{name}.tif"
    raquet.write(source, source.with_suffix(".parquet"), resampling="bilinear", overwrite=True)
    return {"seconds": 0.0}


def _tiles(directory: str, name: str, count: int) -> dict[str, Any]:
    path = Path(directory) / f"{name}.parquet"
    zooms, xs, ys = quadbin.tiles(cells_of(path)[:count])
    wanted = list(zip(zooms.tolist(), xs.tolist(), ys.tolist(), strict=True))
    started = time.perf_counter()
    with raquet.open(path) as file:
        band = file.metadata.bands[0].name
        found = [(file.raw_blob(z, x, y, band, verify=False) or b"")[-END:] for z, x, y in wanted]
    return {"seconds": (time.perf_counter() - started) / count, "check": _checksum(found)}


def tiles_pyarrow(directory: str, name: str) -> dict[str, Any]:
    return _tiles(directory, name, READS // 10)


def tiles_sqlite(directory: str, name: str) -> dict[str, Any]:
    return _tiles(directory, name, READS)


def together_sqlite(directory: str, name: str) -> dict[str, Any]:
    """In one call that hands out one blob after the other."""
    path = Path(directory) / f"{name}.parquet"
    wanted = np.stack(quadbin.tiles(cells_of(path)), axis=1).tolist()
    started = time.perf_counter()
    with raquet.open(path) as file:
        band = file.metadata.bands[0].name
        found = [blob[-END:] for blob in file.iter_raw_blobs(wanted, band, verify=False)]
    return {"seconds": (time.perf_counter() - started) / READS, "check": _checksum(found)}


def _points(directory: str, name: str, file_name: str, count: int = POINTS) -> dict[str, Any]:
    """Each point by a file opened for it."""
    longitudes, latitudes = places(directory, name)
    path = Path(directory) / file_name
    started = time.perf_counter()
    for longitude, latitude in zip(longitudes[:count], latitudes[:count], strict=True):
        with raquet.open(path) as file:
            file.point(longitude, latitude, bands=[1])
    return {"seconds": (time.perf_counter() - started) / count}


def points_cog(directory: str, name: str) -> dict[str, Any]:
    return _points(directory, name, f"{name}.parquet")


points_duckdb = points_pyarrow = points_cog


def points_reference(directory: str, name: str) -> dict[str, Any]:
    """On the file of the reference converter."""
    return _points(directory, name, f"{name}_reference.parquet", 20)


points_reference_duckdb = points_reference_pyarrow = points_reference


def points_sql_duckdb(directory: str, name: str) -> dict[str, Any]:
    """By SQL on the file of the reference converter, each in a connection opened for it."""
    longitudes, latitudes = places(directory, name)
    path, count = Path(directory) / f"{name}_reference.parquet", 20
    started = time.perf_counter()
    for longitude, latitude in zip(longitudes[:count], latitudes[:count], strict=True):
        query = (
            "SELECT ST_RasterValue(block, band_1, ST_Point($x, $y), metadata)"
            " FROM read_raquet_at('raster', $x, $y)"
        )
        raquet.sql(path, query, x=float(longitude), y=float(latitude))
    return {"seconds": (time.perf_counter() - started) / count}


def _window(directory: str, file_name: str) -> dict[str, Any]:
    times = []
    for _ in range(20):
        started = time.perf_counter()
        with raquet.open(Path(directory) / file_name) as file:
            metadata = file.metadata
            west, _, _, north = metadata.bounds
            x, y = lonlat_to_xy(west, north, metadata.max_zoom)
            column, row, side = window_of(metadata.width, metadata.height)
            left = round(x) * metadata.block_width + column
            top = round(y) * metadata.block_height + row
            data = file.window(metadata.max_zoom, left, top, side, side, bands=[1]).data
        times.append(time.perf_counter() - started)
    assert data.shape == (1, side, side)
    return {"seconds": float(np.median(times))}


def window_cog(directory: str, name: str) -> dict[str, Any]:
    return _window(directory, f"{name}.parquet")


window_duckdb = window_pyarrow = window_cog


def window_reference(directory: str, name: str) -> dict[str, Any]:
    """On the file of the reference converter."""
    return _window(directory, f"{name}_reference.parquet")


window_reference_duckdb = window_reference_pyarrow = window_reference


if __name__ == "__main__":
    main_of_case(dict(globals()))
