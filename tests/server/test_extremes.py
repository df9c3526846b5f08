"""What a call costs does not depend on the numbers in it: boxes, zooms, sizes, offsets."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
import shapely

from comal import raquet, raster, server, taco
from comal.errors import ComalError, LimitExceededError
from comal.grid import quadbin
from comal.limits import Limits
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.windows import Grid
from comal.server import rasters as rasterstats
from comal.server import runtime as gate
from comal.server.metrics import sample
from tests.server.asking import ask, scope_of
from tests.server.making import COLLECTION, tiff

MIB = 1 << 20
BLOCK = 256
TILE = np.arange(BLOCK * BLOCK, dtype="<i2").reshape(BLOCK, BLOCK)
MIDDLE = 1 << 25

BOXES = {
    "far": (100, 60, 170, 80),
    "world": (-180, -90, 180, 90),
    "over the dateline": (170, -80, -170, 80),
    "all but a slit": (1, -80, 0.5, 80),
    "a point": (0, 0, 0, 0),
}


def raster_file(path: Path, zoom: int, places: list[tuple[int, int]], box: list[float]) -> Path:
    """One zoom alone, the same tile in some places."""
    document = {
        "version": "0.1.0",
        "compression": "gzip",
        "block_resolution": zoom,
        "minresolution": zoom,
        "maxresolution": zoom,
        "nodata": None,
        "bounds": box,
        "center": [0, 0, zoom],
        "width": BLOCK * len(places),
        "height": BLOCK,
        "block_width": BLOCK,
        "block_height": BLOCK,
        "num_blocks": len(places),
        "num_pixels": BLOCK * BLOCK * len(places),
        "pixel_resolution": zoom + 8,
        "bands": [{"type": "int16", "name": "a", "colorinterp": "gray"}],
    }
    cells = sorted(int(quadbin.cells(zoom, x, y)) for x, y in places)
    blob = gzip.compress(TILE.tobytes(), mtime=0)
    columns = {
        "block": pa.array([0, *cells], pa.uint64()),
        "metadata": pa.array([json.dumps(document), *[None] * len(cells)], pa.string()),
        "a": pa.array([None, *[blob] * len(cells)], pa.binary()),
    }
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture(scope="module")
def rasters(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("rasters")
    deep = [(MIDDLE, MIDDLE - 1), (MIDDLE + 1, MIDDLE - 1)]
    wide = [(256 + x, 255 - y) for x in range(10) for y in range(10)]
    return {
        "deep": raster_file(folder / "deep.parquet", 26, deep, [0, 0, 1e-5, 5e-6]),
        "split": raster_file(
            folder / "split.parquet", 9, [(0, 200), (511, 200)], [-180, 35, 180, 37]
        ),
        "wide": raster_file(folder / "wide.parquet", 9, wide, [0, 0, 7.03125, 7.01]),
    }


@dataclass(frozen=True)
class Outcome:
    """What came of a call."""

    result: Any
    peak: int


def measured(call: Callable[[], Any]) -> Outcome:
    tracemalloc.start()
    try:
        result = call()
    except ComalError as error:
        result = error
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return Outcome(result, peak)


def size_of(result: Any) -> int:
    """Bytes of pixels."""
    parts = result if isinstance(result, list) else [getattr(result, "data", result)]
    return sum(getattr(part, "nbytes", 0) for part in parts)


def zones(file: RaquetFile, box: Any, method: Any) -> Any:
    stats = ("count", "median", "variety")
    return raquet.zonal(file.href, [shapely.box(*box)], stats=stats, method=method)


def window(file: RaquetFile, size: tuple[int, int]) -> Any:
    return file.window(file.zooms[-1], 0, 0, *size)


CALLS: dict[str, Callable[[RaquetFile], Any]] = {
    **{
        f"read {name} at {zoom}": partial(RaquetFile.read, bbox=box, zoom=zoom)
        for (name, box), zoom in itertools.product(BOXES.items(), (0, 26, 10**6))
    },
    **{
        f"read {name} by the nanometre": partial(RaquetFile.read, bbox=box, resolution=1e-9)
        for name, box in BOXES.items()
    },
    **{
        f"zones {name}, {method}": partial(zones, box=box, method=method)
        for (name, box), method in itertools.product(BOXES.items(), ("centre", "fractional"))
    },
    "no zones": lambda file: raquet.zonal(file.href, [], stats=("count", "p90")),
    "statistics at zoom 26": lambda file: raquet.statistics(file.href, zoom=26),
    "statistics at zoom 10**6": lambda file: raquet.statistics(file.href, zoom=10**6),
    **{
        f"window of {size}": partial(window, size=size)
        for size in ((1, 10**6), (10**6, 1), (10**6, 10**6), (2**34, 1), (2**34, 2**34))
    },
    "points": lambda file: file.points(np.linspace(-180, 180, 10**5), np.zeros(10**5)),
    "a tile too often": lambda file: file.tiles(
        np.broadcast_to(np.array([file.zooms[-1], 0, 0]), (10**5, 3))
    ),
}


@pytest.mark.parametrize("name", ["deep", "split"])
def test_calls_take_what_they_give(rasters: dict[str, Path], name: str) -> None:
    file = raquet.open(rasters[name])
    for text, call in CALLS.items():
        if name == "split" and text.startswith(("read far", "read over", "read all but", "read w")):
            continue  # some of these give a gigabyte, as they should
        found = measured(partial(call, file))
        assert found.peak < 24 * MIB + 4 * size_of(found.result), text
        if isinstance(found.result, pa.Table) and "statistics" in text:
            assert found.result["count"].to_pylist() == [2 * TILE.size]
            assert found.result["mean"].to_pylist() == [pytest.approx(TILE.mean())]


@pytest.mark.parametrize("box", list(BOXES.values())[:-1], ids=list(BOXES)[:-1])
@pytest.mark.parametrize("name", ["deep", "split"])
def test_zones_that_meet_nothing_have_no_values(
    rasters: dict[str, Path], name: str, box: tuple[float, ...]
) -> None:
    stats = ("count", "median", "majority", "mean")
    found = raquet.zonal(rasters[name], [shapely.box(*box)], stats=stats).to_pylist()[0]
    if not found["a_count"]:
        assert [found[f"a_{stat}"] for stat in stats] == [0, None, None, None]
    else:
        assert found["a_count"] == 2 * TILE.size


QUERIES = ("", "&bins=512", "&expression=b1/2", "&nodata=5", "&bidx=1&bidx=1")


@pytest.mark.parametrize("name", ["deep", "split"])
def test_statistics_of_any_box(rasters: dict[str, Path], name: str) -> None:
    app = server.app({name: str(rasters[name])}, log="none")
    ask(app, f"/{name}")
    x, y = (MIDDLE, MIDDLE + 1), (MIDDLE - 1,)
    zoom = 26
    if name == "split":
        x, y, zoom = (0, 511), (200,), 9
    for (text, box), query in itertools.product(BOXES.items(), QUERIES):
        path = f"statistics?bbox={','.join(map(str, box))}{query}"
        found = measured(partial(ask, app, f"/{name}/{path}"))
        assert found.peak < 24 * MIB, (text, query)
        document = found.result.json()
        assert found.result.status == 200, document
        assert (document["zoom"], document["exact"]) == (zoom, True)
        (counts, *_) = document["statistics"].values()
        # Which pixels a box has: those of the window that the reader gives for it.
        first, top, width, height = Grid(zoom, BLOCK, BLOCK).span(box)
        world = BLOCK << zoom
        columns = np.concatenate([np.arange(BLOCK) + BLOCK * one for one in x])
        rows = np.concatenate([np.arange(BLOCK) + BLOCK * one for one in y])
        inside = (columns - first) % world < width
        picked = np.tile(TILE, (1, 2))[np.ix_((rows >= top) & (rows < top + height), inside)]
        values = picked[picked != 5] if "nodata" in query else picked.ravel()
        values = values / 2 if "expression" in query else values
        assert counts["count"] == len(values), (text, query)
        assert counts["masked_pixels"] == width * height - len(values)
        if len(values):
            assert (counts["min"], counts["max"]) == (values.min(), values.max())
            assert counts["mean"] == pytest.approx(values.mean())
            assert counts["median"] == np.median(values)


def test_too_much_at_the_coarsest_zoom_is_422(rasters: dict[str, Path]) -> None:
    app = server.app({"wide": str(rasters["wide"])}, log="none")
    for path in ("/wide/statistics", "/wide/statistics?bbox=-180,-85,180,85"):
        found = measured(partial(ask, app, path))
        assert found.peak < 24 * MIB
        problem = found.result.json()
        assert (found.result.status, problem["code"]) == (422, "limit-exceeded")
        assert "100 tiles at zoom 9" in problem["detail"]
        mend = problem["detail"].partition("such as ")[2]
        counts = ask(app, f"/wide/statistics?{mend}").json()["statistics"]["a"]
        assert (counts["count"], counts["masked_pixels"]) == (64 * TILE.size, 0)
    # What is shown when nothing is said comes from some of the tiles, which are all the same here.
    (shown,) = ask(app, "/wide").json()["defaults"]["rescale"]
    assert shown == pytest.approx(np.percentile(TILE, (2, 98)), abs=2)


DECLARED: dict[str, tuple[int, dict[str, Any]]] = {
    "strips": (10**6, {"blockysize": 1000}),
    "tiles": (10**6, {"tiled": True, "blockxsize": 4096, "blockysize": 4096}),
    "pixels together": (20_000, {"count": 40, "interleave": "pixel", "blockysize": 100}),
}


@pytest.mark.parametrize("name", DECLARED)
def test_pictures_of_a_few_bytes_that_declare_any_size(tmp_path: Path, name: str) -> None:
    size, more = DECLARED[name]
    path = tmp_path / "huge.tif"
    profile = {"driver": "GTiff", "width": size, "height": size, "count": 1, "dtype": "uint8"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rasterio.open(path, "w", **profile | more, SPARSE_OK=True).close()
    picture = measured(partial(raster.preview, path))
    assert isinstance(picture.result, LimitExceededError)
    assert picture.peak < 24 * MIB
    samples = [taco.Sample(id="huge.tif", path=path), taco.Sample(id="no.tif", path=b"none")]
    archive = tmp_path / "a.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), archive)
    app = server.app({"a": str(archive)}, log="none")
    found = measured(partial(ask, app, "/a/preview/huge.tif?size=1024"))
    assert found.peak < 24 * MIB
    assert (found.result.status, found.result.json()["code"]) == (422, "limit-exceeded")
    assert ask(app, "/a/preview/no.tif").json()["code"] == "not-a-raster"


def test_pictures_are_bounded_by_what_they_show() -> None:
    pixels = np.arange(256 * 256, dtype=np.uint8).reshape(1, 256, 256)
    limits = Limits(raster_bytes=256 * 256 * 8)
    asked = [raster.preview(tiff(pixels), size=size, limits=limits) for size in (64, 10**6 // 8192)]
    assert all(asked)
    with pytest.raises(LimitExceededError, match="the picture"):
        raster.preview(tiff(pixels), size=10**6, limits=limits)
    assert raster.preview(tiff(pixels), size=10**6) == raster.preview(tiff(pixels), size=256)


ADDRESSES = (
    *(
        "26/0/0.png",
        "26/67108863/67108863.npy",
        "9/511/200@9x.png",
        "9/0/200@2x.webp",
        "27/0/0.png",
    ),
    *("point/180,90", "point/-180,-90?zoom=26", "point/1e9,0", "statistics?bins=1000000"),
    *(
        "statistics?bbox=nan,0,1,1",
        "statistics?bbox=-1e300,-90,1e300,90",
        "statistics?time=1000000",
    ),
)


def test_addresses_of_extreme_numbers(rasters: dict[str, Path]) -> None:
    app = server.app({name: str(path) for name, path in rasters.items()}, log="none")
    for name, path in itertools.product(("deep", "split"), ADDRESSES):
        ask(app, f"/{name}")
        found = measured(partial(ask, app, f"/{name}/{path}"))
        assert found.peak < 24 * MIB, (name, path)
        assert found.result.status in {200, 400, 404}, (name, path, found.result.body)


def test_pages_of_extreme_numbers(archives: dict[str, Path]) -> None:
    app = server.app({"a": str(archives["scenes"])}, log="none")
    numbers = ("limit=1000000000", "offset=100000000", "limit=1&offset=99999999")
    paths = ("items", "table", "tree", "columns/cloud_cover", "items/scene%201")
    for path, query in itertools.product(paths, (*numbers, "bbox=-1e300,-90,1e300,90", "bins=512")):
        found = measured(partial(ask, app, f"/a/{path}?{query}"))
        assert found.peak < 24 * MIB, (path, query)
        assert found.result.status in {200, 400}, (path, query)


def test_work_that_nobody_waits_for_ends(
    rasters: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "_WATCHED", 0.01)
    monkeypatch.setattr(rasterstats, "_BATCH_BYTES", 1)
    read = RaquetFile.tiles
    batches: list[Any] = []

    def slowly(self: RaquetFile, tiles: Any, *words: Any, **more: Any) -> Any:
        batches.append(tiles)
        return read(self, tiles, *words, **more)

    app = server.app({"wide": str(rasters["wide"])}, log="none")
    ask(app, "/wide")

    async def main() -> int:
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def first(self: RaquetFile, tiles: Any, *words: Any, **more: Any) -> Any:
            found = slowly(self, tiles, *words, **more)
            loop.call_soon_threadsafe(started.set)
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.02), loop).result(5)
            return found

        monkeypatch.setattr(RaquetFile, "tiles", first)

        async def receive() -> dict[str, Any]:
            await started.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            pytest.fail(f"nobody is there to hear {message}")

        await app(scope_of("/wide/statistics?bbox=0,0,5.6,5.6"), receive, send)
        before = len(batches)
        await asyncio.sleep(0.2)
        assert len(batches) <= before + 1, "the thread goes on"
        return before

    assert asyncio.run(main()) < 40
    name = sample("comal_requests_total", source="wide", route="statistics", status=499)
    assert app.metrics.counts.samples[name] == 1
    assert (app.gate.active, app.gate.waiting) == (0, 0)
