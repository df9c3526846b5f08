"""The Tortilla cases, with comal."""

from __future__ import annotations

import hashlib
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import tortilla
from comal.tortilla import Sample, create
from harness import main_of_case

LATENCY = 0.04


def payload(row: int, size: int) -> bytes:
    return np.random.default_rng(row).bytes(size)


def _fresh(path: Path) -> Path:
    path.unlink(missing_ok=True)
    return path


def _import_what_reading_takes() -> None:
    """comal loads these when they are first called; creating does without them."""
    for name in ("pyarrow.compute", "comal.tortilla.opening", "comal.samples.frame"):
        import_module(name)


def prepare(directory: str, count: str, size: str) -> dict[str, Any]:
    """Files for `create_files`, on both sides."""
    folder = Path(directory) / "files"
    folder.mkdir()
    for row in range(int(count)):
        (folder / f"s{row:06}.bin").write_bytes(payload(row, int(size)))
    return {"seconds": 0, "check": None}


def prepare_nested(directory: str, count: str) -> dict[str, Any]:
    """A file of nested samples of two pictures of 60 KB each."""
    samples = [
        Sample(
            f"roi{row:04}",
            path=[Sample(name, "GTiff", b"II*\0" + payload(row, 60_000)) for name in ("a", "b")],
        )
        for row in range(int(count))
    ]
    create(samples, Path(directory) / "served.tortilla")
    return {"seconds": 0, "check": None}


def prepare_rows(directory: str, count: str) -> dict[str, Any]:
    """A file of so many rows of a few bytes each, as any writer of published files makes it."""
    rows = np.arange(int(count))
    table = pa.table(
        {
            "id": pa.array([f"s{row:07}" for row in rows]),
            "path": pa.array([b"12345678"], pa.binary()).take(pa.array(np.zeros_like(rows))),
            "file_format": pa.array(["BYTES"]).take(pa.array(np.zeros_like(rows))),
            "cloud": rows % 100 / 2,
        }
    )
    create(table, Path(directory) / "rows.tortilla", row_group_size=1 << 20)
    return {"seconds": 0, "check": None}


def prepare_places(directory: str, count: str) -> dict[str, Any]:
    """So many scenes of 5 km in all zones of UTM, with their outlines."""
    random, rows = np.random.default_rng(0), int(count)
    zones = random.integers(0, 60, rows)
    west, north = random.uniform(2e5, 8e5, rows), random.uniform(1e5, 8e6, rows)
    affine = np.tile([0.0, 10.0, 0.0, 0.0, 0.0, -10.0], (rows, 1))
    affine[:, 0], affine[:, 3] = west, north
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32))
    numbers = [pa.array((affine * 1.0).ravel()), pa.array(np.full(2 * rows, 512))]
    same = pa.array(np.zeros(rows, np.int64))
    table = pa.table(
        {
            "id": pa.array([f"s{row:07}" for row in range(rows)]),
            "path": pa.array([b"12345678"], pa.binary()).take(same),
            "file_format": pa.array(["BYTES"]).take(same),
            "stac:crs": pa.array([f"EPSG:{32601 + zone}" for zone in range(60)]).take(
                pa.array(zones)
            ),
            "stac:geotransform": pa.ListArray.from_arrays(pc.multiply(offsets, 6), numbers[0]),
            "stac:raster_shape": pa.ListArray.from_arrays(pc.multiply(offsets, 2), numbers[1]),
        }
    )
    create(table, Path(directory) / "places.tortilla", row_group_size=1 << 20)
    return {"seconds": 0, "check": None}


def filter_bbox(directory: str) -> dict[str, Any]:
    """The scenes whose outlines meet a box, of a file that is open."""
    frame = tortilla.open(Path(directory) / "places.tortilla")
    start = time.perf_counter()
    found = frame.filter_bbox(5, 40, 10, 45)
    return {"seconds": time.perf_counter() - start, "check": len(found)}


def create_files(directory: str) -> dict[str, Any]:
    paths = sorted((Path(directory) / "files").iterdir())
    output = _fresh(Path(directory) / "ours.tortilla")
    start = time.perf_counter()
    samples = [Sample(path.name, "BYTES", path, "train") for path in paths]
    create(samples, output)
    seconds = time.perf_counter() - start
    frame = tortilla.open(output)
    return {"seconds": seconds, "check": digest(frame.read_bytes([0, len(paths) - 1]))}


def create_table(directory: str) -> dict[str, Any]:
    """The same by a table of paths, without an object per sample."""
    paths = sorted((Path(directory) / "files").iterdir())
    output = _fresh(Path(directory) / "ours_table.tortilla")
    start = time.perf_counter()
    columns = {
        "id": [path.name for path in paths],
        "file_format": ["BYTES"] * len(paths),
        "path": [str(path) for path in paths],
        "tortilla:data_split": ["train"] * len(paths),
    }
    table = pa.table(columns)
    create(table, output)
    return {"seconds": time.perf_counter() - start, "check": len(paths)}


def load_rows(directory: str) -> dict[str, Any]:
    path = Path(directory) / "rows.tortilla"
    _import_what_reading_takes()
    start = time.perf_counter()
    frame = tortilla.open(path)
    subfiles = frame["internal:subfile"]
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": [len(frame), subfiles[-1].as_py()]}


def read_all(directory: str) -> dict[str, Any]:
    """All items, a hundred at a time, as a training loop takes them."""
    frame = tortilla.open(Path(directory) / "ours.tortilla")
    _import_what_reading_takes()
    total = 0
    start = time.perf_counter()
    for first in range(0, len(frame), 100):
        data = frame.read_bytes(range(first, min(first + 100, len(frame))))
        total += sum(map(len, data))
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "check": [total, digest(frame.read_bytes([0, -1]))]}


def nested_write(directory: str, count: str) -> dict[str, Any]:
    """Seconds for a nested sample of three items of 1 KB."""
    rows = int(count)
    data = [payload(row, 1_000) for row in range(3)]
    output = _fresh(Path(directory) / "ours_nested.tortilla")
    start = time.perf_counter()
    samples = [
        Sample(f"roi{row:06}", path=[Sample(f"x{n}", "BYTES", data[n]) for n in range(3)])
        for row in range(rows)
    ]
    create(samples, output)
    return {"seconds": (time.perf_counter() - start) / rows, "check": None}


def remote_nested(directory: str) -> dict[str, Any]:
    from http.server import ThreadingHTTPServer

    import ours_remote

    ours_remote.LATENCY = LATENCY
    # Five connections may wait by default: the sixth would be sent again after a second.
    ThreadingHTTPServer.request_queue_size = 128
    with ours_remote.served(Path(directory)) as (url, log):
        frame = tortilla.open(f"{url}/served.tortilla")
        log.clear()
        start = time.perf_counter()
        leaves = frame.flatten()
        data = leaves.read_bytes()
        seconds = time.perf_counter() - start
        note = {"leaves": len(data), "requests": len(log), "digest": digest(data)}
    return {"seconds": seconds, "check": note}


def digest(data: list[bytes]) -> str:
    return hashlib.sha256(b"".join(data)).hexdigest()


if __name__ == "__main__":
    main_of_case(
        {
            "prepare": prepare,
            "prepare_nested": prepare_nested,
            "prepare_rows": prepare_rows,
            "prepare_places": prepare_places,
            "filter_bbox": filter_bbox,
            "create_files": create_files,
            "create_table": create_table,
            "load_rows": load_rows,
            "read_all": read_all,
            "nested_write": nested_write,
            "remote_nested": remote_nested,
        }
    )
