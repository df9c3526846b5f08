"""The TACO cases, with comal."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset

from comal import query, taco
from harness import main_of_case

for _name in taco.__all__:  # imports are not what is measured, on either side
    getattr(taco, _name)
_ = query.Session  # this one imports DuckDB, as importing the peer does

FIELDS = {
    "id": "bench",
    "dataset_version": "1.0.0",
    "description": "Made-up samples.",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "bench", "role": "producer"}],
    "tasks": ["classification"],
}


def _fresh(path: Path) -> Path:
    """The path, with nothing there: removing an old archive is not what is measured."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    return path


def payload(row: int) -> bytes:
    return row.to_bytes(8, "little") * 8


def table(start: int, stop: int) -> Any:
    rows = np.arange(start, stop)
    return pa.table(
        {
            "id": pa.array([f"sample_{row:07d}" for row in rows]),
            "path": pa.array([payload(int(row)) for row in rows], pa.binary()),
            "cloud_cover": (rows % 100).astype(np.float64),
            "label": (rows % 10).astype(np.int64),
            "split": pa.array(["train", "test"]).take(pa.array(rows % 2)),
        }
    )


def create_samples(directory: str, count: str) -> dict[str, Any]:
    n = int(count)
    output = _fresh(Path(directory) / "ours_samples.tacozip")
    payloads = [payload(row) for row in range(n)]
    start = time.perf_counter()
    samples = [
        taco.Sample(
            id=f"sample_{row:07d}",
            path=payloads[row],
            cloud_cover=float(row % 100),
            label=row % 10,
            split="test" if row % 2 else "train",
        )
        for row in range(n)
    ]
    dataset = taco.Taco(tortilla=taco.Tortilla(samples=samples), **FIELDS)
    taco.create(dataset, output)
    return {"seconds": time.perf_counter() - start, "check": n}


def create_table(directory: str, count: str) -> dict[str, Any]:
    n = int(count)
    output = _fresh(Path(directory) / "ours_table.tacozip")
    source = table(0, n)
    start = time.perf_counter()
    dataset = taco.Taco(tortilla=taco.Tortilla.from_table(source), **FIELDS)
    taco.create(dataset, output)
    return {"seconds": time.perf_counter() - start, "check": n}


def create_batches(directory: str, count: str) -> dict[str, Any]:
    n = int(count)
    output = _fresh(Path(directory) / "ours_batches.tacozip")

    def batches() -> Iterator[Any]:
        for first in range(0, n, 50_000):
            yield from table(first, min(first + 50_000, n)).to_batches()

    start = time.perf_counter()
    tortilla = taco.Tortilla.from_batches(batches, schema=table(0, 1).schema)
    taco.create(taco.Taco(tortilla=tortilla, **FIELDS), output)
    return {"seconds": time.perf_counter() - start, "check": n}


def create_folder(directory: str, count: str) -> dict[str, Any]:
    n = int(count)
    output = _fresh(Path(directory) / "ours_folder")
    start = time.perf_counter()
    dataset = taco.Taco(tortilla=taco.Tortilla.from_table(table(0, n)), **FIELDS)
    taco.create(dataset, output)
    return {"seconds": time.perf_counter() - start, "check": n}


def create_files(directory: str, folder: str) -> dict[str, Any]:
    """Copy the files of `folder` into one ZIP."""
    output = _fresh(Path(directory) / "ours_files.tacozip")
    paths = sorted(Path(folder).iterdir())
    source = pa.table({"id": [path.name for path in paths], "path": [str(p) for p in paths]})
    start = time.perf_counter()
    taco.create(taco.Taco(taco.Tortilla.from_table(source), **FIELDS), output)
    return {"seconds": time.perf_counter() - start, "check": len(paths)}


def create_files_unsynced(directory: str, folder: str) -> dict[str, Any]:
    """As `create_files`, without waiting for the disk, as ``cp`` does not wait either."""
    os.fsync = lambda _: None  # type: ignore[assignment]
    return create_files(directory, folder)


def load(directory: str, path: str) -> dict[str, Any]:
    start = time.perf_counter()
    dataset = taco.load(path)
    return {"seconds": time.perf_counter() - start, "check": dataset.pit_schema.root_n}


def data(directory: str, path: str) -> dict[str, Any]:
    dataset = taco.load(path)
    start = time.perf_counter()
    frame = dataset.data
    return {"seconds": time.perf_counter() - start, "check": len(frame)}


_FILTER = "SELECT * FROM data WHERE cloud_cover < 10 AND split = 'train'"


def sql(directory: str, path: str) -> dict[str, Any]:
    """The first query of a dataset that is open already."""
    dataset = taco.load(path)
    start = time.perf_counter()
    frame = dataset.sql(_FILTER).data
    return {"seconds": time.perf_counter() - start, "check": len(frame)}


def load_and_sql(directory: str, path: str) -> dict[str, Any]:
    """From nothing to the rows of the first query: one side reads when it loads, one when asked."""
    start = time.perf_counter()
    frame = taco.load(path).sql(_FILTER).data
    return {"seconds": time.perf_counter() - start, "check": len(frame)}


def sql_again(directory: str, path: str) -> dict[str, Any]:
    """The second query of the same dataset."""
    dataset = taco.load(path)
    len(dataset.sql(_FILTER).data)
    start = time.perf_counter()
    frame = dataset.sql(_FILTER).data
    return {"seconds": time.perf_counter() - start, "check": len(frame)}


def read_one(directory: str, path: str) -> dict[str, Any]:
    """Seconds of one ``read(i)``, the mean of 10 000 at random places."""
    frame = taco.load(path).data
    rows = np.random.default_rng(0).integers(0, len(frame), 10_000).tolist()
    frame.read(0)
    start = time.perf_counter()
    paths = [frame.read(row) for row in rows]
    seconds = (time.perf_counter() - start) / len(rows)
    return {"seconds": seconds, "check": hashlib.sha256("".join(paths).encode()).hexdigest()}


def export_subset(directory: str, path: str) -> dict[str, Any]:
    """A tenth of the samples into a new ZIP."""
    output = _fresh(Path(directory) / "ours_export.tacozip")
    dataset = taco.load(path).sql("SELECT * FROM data WHERE label = 3")
    start = time.perf_counter()
    taco.export(dataset, output, quiet=True)
    return {"seconds": time.perf_counter() - start, "check": len(taco.load(output).data)}


def folder2zip(directory: str, folder: str) -> dict[str, Any]:
    output = _fresh(Path(directory) / "ours_folder2zip.tacozip")
    start = time.perf_counter()
    taco.folder2zip(folder, output, quiet=True)
    return {"seconds": time.perf_counter() - start, "check": len(taco.load(output).data)}


if __name__ == "__main__":
    main_of_case(globals())
