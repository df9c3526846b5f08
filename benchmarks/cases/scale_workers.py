"""Long jobs by one worker or two: processes that comal starts, or workers of Dask on this machine.

Each job runs five times, and the fastest counts: before, a worker still imports what it needs.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import sqlite3
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.transform import from_origin

from comal import jobs, raquet, taco, tapalcatl
from comal.convert import draw
from comal.parallel import results
from harness import main_of_case

TASKS = 200


@contextmanager
def _workers(kind: str, count: int) -> Iterator[Executor]:
    if kind == "processes":
        with ProcessPoolExecutor(count, get_context("spawn")) as pool:
            yield pool
        return
    from distributed import Client, LocalCluster

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"threads_per_worker": 1, "dashboard_address": None}
        with LocalCluster(n_workers=count, **options) as cluster, Client(cluster) as client:
            yield client.get_executor()


def _raster(path: Path, side: int, seed: int = 0) -> None:
    pixels = np.random.default_rng(seed).integers(0, 3000, (side, side), "uint16")
    smooth = (np.add.accumulate(pixels, axis=1) >> 6).astype("uint16")
    place = {"crs": "EPSG:32632", "transform": from_origin(600_000, 5_500_000, 10, 10)}
    form = {"driver": "GTiff", "width": side, "height": side, "count": 1, "dtype": "uint16"}
    with rasterio.open(path, "w", **form, **place) as file:
        file.write(smooth, 1)


def raquet_write(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    source = work / "a.tif"
    if not source.exists():
        _raster(source, 256 * math.isqrt(size))
    return lambda out, who: raquet.write(
        source, out / "a.parquet", resampling="bilinear", executor=who
    )


def raquet_draw(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    source = work / "drawn.parquet"
    if not source.exists():
        raster = work / "drawn.tif"
        _raster(raster, 256 * math.isqrt(size))
        raquet.write(raster, source)
    return lambda out, who: draw(source, out / "tiles", executor=who)


def tapalcatl_build(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    source = work / "a.mbtiles"
    if not source.exists():
        zoom = max(1, round(math.log(40 * size, 4)))
        sides = range(1 << zoom)
        with sqlite3.connect(source) as base:
            base.execute("CREATE TABLE metadata (name text, value text)")
            base.execute("CREATE TABLE tiles (zoom_level, tile_column, tile_row, tile_data)")
            rows = ((zoom, x, y, os.urandom(900)) for x in sides for y in sides)
            base.executemany("INSERT INTO tiles VALUES (?, ?, ?, ?)", rows)
            base.execute("CREATE UNIQUE INDEX i ON tiles (zoom_level, tile_column, tile_row)")
    return lambda out, who: tapalcatl.build(source, out / "tiles", ext="pbf", executor=who)


def _scenes(work: Path, size: int) -> Path:
    folder = work / "scenes"
    if not folder.exists():
        folder.mkdir()
        for number in range(size):
            _raster(folder / f"{number:06}.tif", 128, number)
    return folder


def taco_pack(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    folder = _scenes(work, size)
    return lambda out, who: taco.pack_folder(folder, out / "a.tacozip", executor=who)


def taco_plan(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    folder = _scenes(work, size)

    def run(out: Path, who: Executor) -> None:
        plan = out / "plan"
        jobs.plan_taco(folder, out / "a.tacozip", plan, split_size=128 * 128 * 2 * size // 16)
        jobs.run(plan, executor=who)
        jobs.merge(plan)
        shutil.rmtree(plan)

    return run


def _deflated(seed: int) -> int:
    return len(zlib.compress(np.random.default_rng(seed).integers(0, 50, 1 << 20, "u1"), 6))


def nothing_shared(work: Path, size: int) -> Callable[[Path, Executor], Any]:
    """What two processes of this machine can do at best."""
    return lambda out, who: (out / "sizes").write_text(str(list(who.map(_deflated, range(48)))))


CASES = (raquet_write, raquet_draw, tapalcatl_build, taco_pack, taco_plan, nothing_shared)
JOBS = {job.__name__: job for job in CASES}


def _nothing(number: int) -> int:
    return number


def _digest(folder: Path) -> str:
    found = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        found.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _case(name: str, kind: str) -> Callable[..., dict[str, Any]]:
    def case(work: str, size: str, count: str) -> dict[str, Any]:
        run = JOBS[name](Path(work), int(size))
        with _workers(kind, int(count)) as executor:
            times = []
            for _ in range(5):
                out = Path(work) / "out"
                shutil.rmtree(out, ignore_errors=True)
                out.mkdir()
                start = time.perf_counter()
                run(out, executor)
                times.append(time.perf_counter() - start)
            start = time.perf_counter()
            assert list(results(executor, _nothing, range(TASKS))) == list(range(TASKS))
            empty = (time.perf_counter() - start) / TASKS
        note = {"workers": int(count), "ms of an empty task": round(1000 * empty, 2)}
        return {"seconds": min(times), "check": _digest(out), "note": note}

    return case


if __name__ == "__main__":
    main_of_case(
        {f"{name}_{kind}": _case(name, kind) for name in JOBS for kind in ("processes", "dask")}
    )
