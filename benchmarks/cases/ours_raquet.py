"""The RaQuet cases, with comal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from peer_raquet import PLACES, POINTS, READS, WINDOW, _checksum, _places, cells_of

from comal import raquet
from comal.grid import quadbin
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
        found = [file.raw_blob(z, x, y, band) for z, x, y in wanted]
    return {"seconds": (time.perf_counter() - started) / count, "check": _checksum(found)}


def tiles_pyarrow(directory: str, name: str) -> dict[str, Any]:
    return _tiles(directory, name, READS // 10)


def tiles_sqlite(directory: str, name: str) -> dict[str, Any]:
    return _tiles(directory, name, READS)


def points_cog(directory: str, name: str) -> dict[str, Any]:
    """Each point by a file opened for it."""
    longitudes, latitudes = _places(*PLACES[name])
    started = time.perf_counter()
    for longitude, latitude in zip(longitudes, latitudes, strict=True):
        with raquet.open(Path(directory) / f"{name}.parquet") as file:
            file.point(longitude, latitude, bands=[file.metadata.bands[0].name])
    return {"seconds": (time.perf_counter() - started) / POINTS}


def _points_reference(directory: str, name: str) -> dict[str, Any]:
    """The same on the file of the reference converter."""
    longitudes, latitudes = _places(*PLACES[name])
    started = time.perf_counter()
    for longitude, latitude in zip(longitudes[:20], latitudes[:20], strict=True):
        with raquet.open(Path(directory) / f"{name}_reference.parquet") as file:
            file.point(longitude, latitude, bands=["band_1"])
    return {"seconds": (time.perf_counter() - started) / 20}


points_duckdb = points_pyarrow = _points_reference


def window_cog(directory: str, name: str) -> dict[str, Any]:
    times = []
    for _ in range(20):
        started = time.perf_counter()
        with raquet.open(Path(directory) / f"{name}.parquet") as file:
            side = file.metadata.width // 3, file.metadata.height // 3
            band = file.metadata.bands[0].name
            data = file.window(*side, WINDOW, WINDOW, bands=[band]).data
        times.append(time.perf_counter() - started)
    assert data.shape[-2:] == (WINDOW, WINDOW)
    return {"seconds": float(np.median(times))}


if __name__ == "__main__":
    main_of_case(dict(globals()))
