"""Sets of many parts: a TACOCAT, partitions of a Tortilla, a raster in many RaQuet files."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset
from ours_remote import served

from comal import raquet, taco, tapalcatl, tortilla
from comal.query import engine
from comal.storage import CountingSource, open_source
from comal.taco.writing import tacocat
from comal.taco.writing.containers import settings
from harness import main_of_case

engine()
Answer = dict[str, Any]


def _folder(directory: str, kind: str, count: str) -> Path:
    return Path(directory) / f"{kind}_{count}"


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = call()
    return time.perf_counter() - start, found


# -- TACOCAT ---------------------------------------------------------------------------------------

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("cloud", pa.float32()),
        ("internal:current_id", pa.int64()),
        ("internal:offset", pa.int64()),
        ("internal:parent_id", pa.int64()),
        ("internal:relative_path", pa.string()),
        ("internal:size", pa.int64()),
        ("internal:source_file", pa.string()),
        ("split", pa.string()),
        ("stac:centroid", pa.binary()),
        ("stac:time_start", pa.timestamp("us")),
    ]
)
_DAY = 86_400_000_000


def part_name(part: int) -> str:
    return f"part_{part:06d}.tacozip"


def west_of(part: int) -> tuple[float, float]:
    """The corner of the cell of 0.9 x 1.8 degrees with the samples of a part."""
    return -180 + 0.9 * (part % 400), -88 + 1.8 * (part // 400 % 97)


def rows_of(part: int, count: int) -> Any:
    """The rows of a part as an index has them, with spans that lead nowhere."""
    random = np.random.default_rng(part)
    rows = np.arange(count)
    west, south = west_of(part)
    points = np.empty(count, np.dtype([("order", "u1"), ("kind", "<u4"), ("xy", "<f8", 2)]))
    points["order"], points["kind"] = 1, 1
    points["xy"] = (west, south) + random.random((count, 2)) * (0.8, 1.6)
    place = pa.Array.from_buffers(
        pa.binary(21), count, [None, pa.py_buffer(points.tobytes())]
    ).cast(pa.binary())
    ids = pa.array([f"{part:06d}_{row:06d}" for row in range(count)])
    numbers = pa.array(rows)
    columns = [
        ids,
        pa.repeat("FILE", count),
        pa.array(random.random(count).astype(np.float32)),
        numbers,
        pa.array(200 + rows * 50_000),
        numbers,
        ids,
        pa.array(random.integers(40_000, 50_000, count)),
        pa.repeat(part_name(part), count),
        pa.array(["train", "test"]).take(pa.array(rows % 2)),
        place,
        pa.array(part * _DAY + rows * 1_000_000, pa.timestamp("us")),
    ]
    return pa.table(columns, schema=SCHEMA)


def taco_build(directory: str, count: str, rows: str) -> Answer:
    """Write the index itself, as `create_tacocat` does with the rows of open archives."""
    parts, each = int(count), int(rows)
    folder = _folder(directory, "taco", count)
    index = folder / ".tacocat"
    index.mkdir(parents=True)
    how = settings({"compression_level": 3}, "zip")
    together = max(1, how.row_group_size // each)

    def groups() -> Iterator[Any]:
        for first in range(0, parts, together):
            some = range(first, min(first + together, parts))
            yield pa.concat_tables([rows_of(part, each) for part in some])

    start = time.perf_counter()
    with (index / "level0.parquet").open("w+b") as file:
        tacocat._write_groups(file, SCHEMA, groups(), how)  # noqa: SLF001 - rows without archives
    seconds = time.perf_counter() - start
    names = [part_name(part) for part in range(parts)]
    document = {
        "id": "scale",
        "taco_version": "2.0.0",
        "taco:pit_schema": {"root": {"n": parts * each, "type": "FILE"}, "hierarchy": {}},
        "taco:sources": {
            "count": parts,
            "ids": ["scale"] * parts,
            "files": names,
            "extents": [
                {"file": name, "id": "scale", "spatial": [*west_of(n), *west_of(n)]}
                for n, name in enumerate(names)
            ],
        },
    }
    (index / "COLLECTION.json").write_text(json.dumps(document))
    sizes = {path.name: path.stat().st_size for path in index.iterdir()}
    return {"seconds": seconds, "check": parts * each, "note": {**sizes, "rows": parts * each}}


def _remote(directory: str, count: str, call: Callable[[Any], Any]) -> Answer:
    """Seconds, requests and bytes of a call on the open index."""
    with served(_folder(directory, "taco", count)) as (url, log):
        source = CountingSource(open_source(f"{url}/.tacocat"))
        seconds, data = _timed(lambda: taco.load(source))
        found = data.pit_schema.root_n
        if call is not len:
            source.reset()
            log.clear()
            seconds, found = _timed(lambda: call(data))
        spans = [span.split("-") for line in log for span in line.split(",")]
        note = {
            "requests": len(log),
            "round trips": source.round_trips,
            "MB": round(sum(int(last) - int(first) + 1 for first, last in spans) / 1e6, 3),
            "memory MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        return {"seconds": seconds, "check": found, "note": note}


def taco_open(directory: str, count: str, _: str) -> Answer:
    return _remote(directory, count, len)


def _three(count: str) -> list[int]:
    parts = int(count)
    return [0, parts // 2, parts - 1]


def taco_three(directory: str, count: str, _: str) -> Answer:
    """Two columns and the spans of half of the samples of three parts."""
    names = ", ".join(f"'{part_name(part)}'" for part in _three(count))
    query = (
        "SELECT * FROM data WHERE split = 'train' AND cloud < 0.1"
        f' AND "internal:source_file" IN ({names})'
    )
    return _remote(directory, count, lambda data: len(data.sql(query).data))


def taco_box(directory: str, count: str, _: str) -> Answer:
    """The samples in a box in the cells of three parts that lie side by side."""
    west, south = west_of(int(count) // 2)
    box = (west + 0.1, south + 0.1, west + 2 * 0.9 + 0.1, south + 0.5)
    return _remote(directory, count, lambda data: len(data.filter_bbox(*box).data))


FIELDS = {
    "dataset_version": "1",
    "description": "-",
    "licenses": ["CC0-1.0"],
    "providers": [{"name": "-", "roles": ["producer"]}],
    "tasks": ["other"],
}


def taco_append(directory: str, count: str, _: str) -> Answer:
    """Add one small archive to a copy of the index."""
    work = _folder(directory, "append", count)
    shutil.copytree(_folder(directory, "taco", count) / ".tacocat", work / ".tacocat")
    point = struct.pack("<BIdd", 1, 1, 3.0, 4.0)
    values = {"cloud": np.float32(0.5), "split": "train", "stac:time_start": 0}
    one = taco.Tortilla.from_table(
        pa.table(
            {
                "id": ["a"],
                "path": pa.array([b"x"], pa.binary()),
                "cloud": pa.array([values["cloud"]], pa.float32()),
                "split": ["train"],
                "stac:centroid": pa.array([point], pa.binary()),
                "stac:time_start": pa.array([0], pa.timestamp("us")),
            }
        )
    )
    taco.create(taco.Taco(one, id="new", **FIELDS), work / "new.tacozip")
    seconds, _paths = _timed(
        lambda: taco.create_tacocat([work / "new.tacozip"], work, "folder", append=True)
    )
    rows = taco.load(work).pit_schema.root_n
    shutil.rmtree(work)
    return {"seconds": seconds, "check": rows}


# -- partitions of a Tortilla ----------------------------------------------------------------------


def tortilla_build(directory: str, count: str) -> Answer:
    """Parts of two samples each; the first is written, the others are named like it."""
    folder = _folder(directory, "tortilla", count)
    folder.mkdir(parents=True)
    one = folder / "one.tortilla"
    start = time.perf_counter()
    samples = [tortilla.Sample(id=f"s{n}", path=b"x" * 100) for n in range(2)]
    tortilla.create(samples, one)
    head = bytearray(one.read_bytes())
    one.unlink()
    head[PARTS_AT : PARTS_AT + 8] = struct.pack("<Q", int(count))
    for number in range(1, int(count) + 1):
        (folder / f"set.{number:04d}.part.tortilla").write_bytes(head)
    return {"seconds": time.perf_counter() - start, "check": int(count)}


PARTS_AT = 18
"""Where the header of a Tortilla has the number of parts."""


def tortilla_open(directory: str, count: str) -> Answer:
    folder = _folder(directory, "tortilla", count)
    seconds, frame = _timed(lambda: tortilla.open(str(folder / "*.tortilla")))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"seconds": seconds, "check": len(frame), "note": {"memory MB": memory}}


# -- a raster in many files ------------------------------------------------------------------------


def _raster(path: Path, side: int) -> None:
    import rasterio
    from rasterio.transform import from_origin

    profile = {"width": side, "height": side, "count": 1, "dtype": "uint8", "crs": "EPSG:3857"}
    where = from_origin(0, 0, 100, 100)
    with rasterio.open(path, "w", driver="GTiff", transform=where, tiled=side > 64, **profile) as f:
        f.write(np.random.default_rng(0).integers(1, 255, (1, side, side), np.uint8))


def raquet_build(directory: str, count: str) -> Answer:
    """One small file under many names, as a set that has each tile many times."""
    folder = _folder(directory, "raquet", count)
    folder.mkdir(parents=True)
    start = time.perf_counter()
    _raster(folder / "one.tif", 64)
    raquet.write(folder / "one.tif", folder / "one.parquet")
    for number in range(1, int(count)):
        (folder / f"part_{number:06d}.parquet").symlink_to("one.parquet")
    return {"seconds": time.perf_counter() - start, "check": int(count)}


def raquet_open(directory: str, count: str) -> Answer:
    folder = _folder(directory, "raquet", count)
    seconds, file = _timed(lambda: raquet.open(folder))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"seconds": seconds, "check": len(file.store.parts), "note": {"memory MB": memory}}


# -- many tiles ------------------------------------------------------------------------------------


def raquet_tiles(directory: str, side: str) -> Answer:
    """Open a file of tiles of 16 pixels: what its index takes."""
    folder = _folder(directory, "tiles", side)
    folder.mkdir()
    _raster(folder / "one.tif", int(side))
    raquet.write(folder / "one.tif", folder / "one.parquet", block_size=16)
    source = CountingSource(open_source(folder / "one.parquet"))
    seconds, file = _timed(lambda: raquet.open(source))
    tiles = len(file.store.ids)
    note = {"requests": source.requests, "bytes a tile": round(source.bytes / tiles, 1)}
    return {"seconds": seconds, "check": tiles, "note": note}


def tapalcatl_tiles(directory: str, zoom: str) -> Answer:
    """The first tile of all tiles to a zoom, and another in the same archive."""
    folder, top = _folder(directory, "map", zoom), int(zoom)
    blob = np.random.default_rng(0).bytes(2000)
    every = ((z, x, y) for z in range(top + 1) for x in range(1 << z) for y in range(1 << z))
    made = tapalcatl.build(((*tile, blob) for tile in every), folder, ext="png")
    with served(folder) as (url, log):
        tiles = tapalcatl.open(f"{url}/meta.json")
        opened = len(log)
        seconds, _tile = _timed(lambda: tiles.tile(top, 1, 1))
        first = len(log) - opened
        tiles.tile(top, 2, 2)
        note = {"archives": made.archives, "to open": opened, "first tile": first}
        note["next tile"] = len(log) - opened - first
    return {"seconds": seconds, "check": made.tiles, "note": note}


if __name__ == "__main__":
    main_of_case(globals())
