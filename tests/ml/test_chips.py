"""Chips of rasters and tiles of maps, against rasterio and against arrays put together by hand."""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from hypothesis import given, settings
from hypothesis import strategies as st
from rasterio.windows import Window

from comal import ml, raquet, storage, tapalcatl
from comal.errors import InvalidInputError, InvalidMetadataError, NotThisFormatError
from comal.ml import rasterchips
from tests.ml.made import flat
from tests.raquet.build import BLOCK, Plan, noise, write
from tests.raquet.test_windows import HALF, SIDE, THERE, TILES, WORLD, Z, lonlat
from tests.raquet.writing.sources import noise as values
from tests.raquet.writing.sources import on_grid
from tests.server.making import tiff
from tests.tapalcatl.making import pyramid

if TYPE_CHECKING:
    from tests.servers.http import HttpServer

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")

COLUMN, ROW, WIDTH, HEIGHT = 16_380, 10_300, 150, 90


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> raquet.RaquetFile:
    return raquet.open(write(tmp_path_factory.mktemp("chips") / "a.parquet", TILES))


def corner(sample: Any) -> tuple[int, int]:
    _, column, row = map(int, sample["id"].split("/"))
    return column, row


@pytest.fixture(scope="module", params=[None, 7])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A raster, with a RaQuet of it beside."""
    folder = tmp_path_factory.mktemp("source")
    pixels = values((2, HEIGHT, WIDTH), "uint8")
    path = on_grid(folder / "a.tif", pixels, column=COLUMN, row=ROW, nodata=request.param)
    raquet.write(path, folder / "a.parquet", block_size=32)
    return path


@pytest.mark.parametrize("more", [{}, {"stride": 20}, {"count": 40, "seed": 3}])
def test_chips_are_windows_of_the_source(source: Path, more: Any) -> None:
    data = ml.chips(source.with_suffix(".parquet"), 32, bands=[1, 2], **more)
    covered = np.zeros((HEIGHT, WIDTH), np.bool_)
    with rasterio.open(source) as image:
        for sample in data.fetch(range(len(data))):
            column, row = corner(sample)
            part = Window(column - COLUMN, row - ROW, 32, 32)
            right = image.read(window=part, boundless=True)
            inside = image.read_masks(window=part, boundless=True) > 0
            assert np.array_equal(sample["valid"], inside)
            assert np.array_equal(sample["image"][inside], right[inside])
            assert sample["transform"] == pytest.approx(
                tuple(image.window_transform(part))[:6], abs=1e-6
            )
            assert rasterio.crs.CRS.from_string(sample["crs"]) == image.crs
            bounds = rasterio.warp.transform_bounds(
                image.crs, "EPSG:4326", *image.window_bounds(part)
            )
            assert sample["bbox"] == pytest.approx(bounds)
            y, x = max(row - ROW, 0), max(column - COLUMN, 0)
            covered[y : row - ROW + 32, x : column - COLUMN + 32] = True
    if "count" not in more:
        assert covered.all()
    else:
        assert len(data) == 40
        columns, rows = zip(*map(corner, data.fetch(range(40))), strict=True)
        assert min(columns) >= COLUMN
        assert max(columns) <= COLUMN + WIDTH - 32
        assert min(rows) >= ROW
        assert max(rows) <= ROW + HEIGHT - 32


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_grid_has_all_chips_with_a_tile(world: raquet.RaquetFile, data: st.DataObject) -> None:
    """In a box, across the antimeridian too, or in all bounds: found by trying each place."""
    size, stride = data.draw(st.integers(1, 50)), data.draw(st.integers(1, 40))
    boxed = data.draw(st.booleans())
    left, top, right, bottom = 0, 2 * BLOCK, SIDE, 7 * BLOCK
    bbox = None
    if boxed:
        left, width = data.draw(st.integers(0, SIDE - 1)), data.draw(st.integers(1, SIDE - 1))
        top = data.draw(st.integers(0, SIDE - 1))
        bottom = data.draw(st.integers(top + 1, SIDE))
        right = left + width
        bbox = (*lonlat(left, bottom), *lonlat(right if right <= SIDE else right - SIDE, top))
    rows, columns = np.meshgrid(
        np.arange(0, SIDE - size + 1, stride), np.arange(0, 2 * SIDE, stride), indexing="ij"
    )
    if boxed:
        fits = (left <= columns) & (columns + size <= right)
        fits &= (top <= rows) & (rows + size <= bottom)
    else:
        fits = (columns < right) & (top < rows + size) & (rows < bottom)
    rows, columns = rows[fits], columns[fits]
    there = np.zeros((SIDE + 1, 3 * SIDE), np.int64)
    inside = np.s_[top + 1 : bottom + 1, left + 1 : right + 1]
    there[inside] = np.tile(THERE, 2)[top:bottom, left:right]
    before = there.cumsum(0).cumsum(1)
    ends = np.minimum(rows + size, SIDE), columns + size
    count = before[ends] - before[rows, ends[1]] - before[ends[0], columns] + before[rows, columns]
    fits = count > 0
    right_ones = list(zip((columns[fits] % SIDE).tolist(), rows[fits].tolist(), strict=True))
    if not right_ones:
        with pytest.raises(InvalidInputError, match="no chip with a tile fits"):
            ml.chips(world, size, stride=stride, bbox=bbox)
        return
    chips = ml.chips(world, size, stride=stride, bbox=bbox)
    assert len(chips) == len(right_ones)
    some = data.draw(st.lists(st.integers(0, len(chips) - 1), min_size=1, max_size=5))
    for number, sample in zip(some, chips.fetch(some), strict=True):
        column, row = corner(sample)
        assert (column, row) == right_ones[number]
        across = np.arange(column, column + size) % SIDE
        assert np.array_equal(sample["image"][0], WORLD[row : row + size][:, across])
        assert np.array_equal(sample["valid"][0], THERE[row : row + size][:, across])


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_random_chips_have_their_centre_in_a_tile(
    world: raquet.RaquetFile, data: st.DataObject
) -> None:
    size, seed = data.draw(st.integers(1, 40)), data.draw(st.integers(-5, 2**64))
    left, top = data.draw(st.integers(0, SIDE - 1)), data.draw(st.integers(0, SIDE - 1))
    right = data.draw(st.integers(1, SIDE).filter(lambda one: one != left))
    bottom = data.draw(st.integers(top + 1, SIDE))
    right += SIDE if right <= left else 0
    bbox = (*lonlat(left, bottom), *lonlat(right if right <= SIDE else right - SIDE, top))
    centres = np.zeros((SIDE, 2 * SIDE), np.bool_)
    twice, half = np.concatenate([THERE, THERE], axis=1), size // 2
    place = np.s_[
        top + half : max(0, bottom - size + half + 1), left + half : max(0, right - size + half + 1)
    ]
    centres[place] = twice[place]
    if not centres.any():
        with pytest.raises(InvalidInputError, match="no chip with a tile fits"):
            ml.chips(world, size, count=9, seed=seed, bbox=bbox)
        return
    chips = ml.chips(world, size, count=9, seed=seed, bbox=bbox)
    found = list(map(corner, chips.fetch(range(9))))
    for column, row in found:
        assert centres[row + half, (column + half) % SIDE :: SIDE].any()
    again = ml.chips(world, size, count=1_000, seed=seed, bbox=bbox)
    assert list(map(corner, again.fetch(range(9)))) == found


def test_every_pixel_is_as_likely_as_any_other(world: raquet.RaquetFile) -> None:
    chips = ml.chips(world, 1, count=200_000, seed=1)
    columns, rows = chips.places.rows.T
    assert THERE[rows, columns].all()
    counts = np.bincount(rows // BLOCK * 8 + columns // BLOCK, minlength=64)
    expected = np.zeros(64)
    for z, x, y in TILES:
        if z == Z:
            expected[y * 8 + x] = 200_000 / (len(TILES) - 1)
    assert (np.abs(counts - expected) <= 6 * np.sqrt(expected)).all()
    assert len(np.unique(rows % BLOCK * BLOCK + columns % BLOCK)) == BLOCK**2


def test_places_are_shared_with_workers(
    world: raquet.RaquetFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ml.chips(world, 8, count=10**6, seed=1)
    assert len(data) == 10**6
    copy = pickle.loads(pickle.dumps(data))
    assert copy[10**6 - 1]["id"] == data[-1]["id"]
    assert len(pickle.dumps(data)) < 32_768
    assert len(ml.chips(world, 1, stride=1)) == THERE.sum()
    with pytest.raises(InvalidInputError, match="count of chips"):
        ml.chips(world, 8, count=10**12)
    monkeypatch.setattr(rasterchips, "_MOST", 1000)
    with pytest.raises(InvalidInputError, match="too many chips"):
        ml.chips(world, 1, stride=1)


@pytest.mark.parametrize("kind", ["loader", "sampler"])
def test_the_state_of_a_run_tells_its_places(world: raquet.RaquetFile, kind: str) -> None:
    def run(seed: int) -> Any:
        return getattr(ml.chips(world, 8, count=30, seed=seed).take(range(20)), kind)(4)

    first = run(1)
    taken = iter(first)
    next(taken)
    again = run(1)
    again.load_state_dict(first.state_dict())
    assert len(list(again)) == 4
    with pytest.raises(InvalidInputError, match="another loader: ids"):
        run(2).load_state_dict(first.state_dict())


def test_chips_are_read_like_other_samples(world: raquet.RaquetFile) -> None:
    data = ml.chips(world, BLOCK, transform=lambda one: {**one, "mean": one["image"].mean()})
    assert len(data) == len(TILES) - 1
    some = data.take([4, 2, 3]).take([2, 0])
    assert [one["id"] for one in some.head()] == [data[3]["id"], data[4]["id"]]
    seen: dict[str, Any] = {}
    for batch in data.loader(5, shuffle=True, workers=2):
        assert batch["image"].shape[1:] == batch["valid"].shape[1:] == (1, BLOCK, BLOCK)
        seen.update(zip(batch["id"], batch["image"].copy(), strict=True))
    assert len(seen) == len(data)
    for name, image in seen.items():
        z, column, row = map(int, name.split("/"))
        assert np.array_equal(image, TILES[z, column // BLOCK, row // BLOCK])


def test_bands_times_zooms_and_physical_values(tmp_path: Path) -> None:
    bands = [("a", "uint8", 0), ("b", "int16", None)]
    tiles = {(2, 1, 1, day): [noise(day, "uint8"), noise(day + 9, "int16")] for day in (0, 3)}
    change = {
        "bands": [
            {"name": "a", "type": "uint8", "nodata": 0},
            {"name": "b", "type": "int16", "scale": 2},
        ]
    }
    path = write(tmp_path / "a.parquet", tiles, Plan(bands=bands, times=True, change=change))
    sample = ml.chips(path, BLOCK, time=1, bands="b", scaled=True)[0]
    assert np.array_equal(sample["image"], tiles[2, 1, 1, 3][1][None] * 2.0)
    both = ml.chips([path], BLOCK, time=0, zoom=2)[0]
    assert both["image"].dtype == np.int16
    assert np.array_equal(both["image"][0], tiles[2, 1, 1, 0][0])
    with pytest.raises(InvalidInputError, match="no such band"):
        ml.chips(path, BLOCK, bands="c")
    with pytest.raises(InvalidInputError, match="no such zoom"):
        ml.chips(path, BLOCK, zoom=7)


def test_a_batch_is_one_round_of_requests(tmp_path: Path, http_server: HttpServer) -> None:
    path = write(tmp_path / "a.parquet", TILES)
    source = storage.CountingSource(storage.open_source(http_server.put("a", path.read_bytes())))
    with raquet.open(source) as file:
        data = ml.chips(file, 24, count=30, seed=2)
        trips = source.round_trips
        right = [one["image"] for one in ml.chips(path, 24, count=30, seed=2).fetch(range(30))]
        found = data.fetch(range(30))
        assert source.round_trips == trips + 1
    assert all(np.array_equal(one["image"], mine) for one, mine in zip(found, right, strict=True))


def test_damaged_tiles_are_skipped_or_raised(tmp_path: Path) -> None:
    tiles: Any = {(2, x, 1): [noise(x)] for x in range(4)}
    path = write(tmp_path / "a.parquet", {**tiles, (2, 2, 1): [b"broken"]})
    with pytest.raises(InvalidMetadataError, match="not compressed"):
        ml.chips(path, BLOCK).fetch(range(4))
    told: list[Any] = []
    lenient = ml.chips(path, BLOCK, on_error=told.append)
    assert [corner(one)[0] // BLOCK for one in lenient.fetch([3, 2, 0])] == [3, 0]
    assert len(told) == 1


def test_what_cannot_be_chips(tmp_path: Path, world: raquet.RaquetFile) -> None:
    wrong: list[dict[str, Any]] = [{"size": 0}, {"stride": 0}, {"count": 0}, {"size": SIDE + 1}]
    for arguments in wrong:
        with pytest.raises(InvalidInputError):
            ml.chips(world, **arguments)
    with pytest.raises(InvalidInputError, match="not both"):
        ml.chips(world, 8, stride=4, count=4)
    with pytest.raises(NotThisFormatError, match=r"ml\.dataset"):
        ml.chips(flat(tmp_path, 2))
    sources: list[Any] = [world, world.href]
    for source in sources:
        with pytest.raises(NotThisFormatError, match=r"ml\.chips"):
            ml.dataset(source)


def test_tiles_of_a_map(tmp_path: Path) -> None:
    images = {
        (z, x, y): np.full((3, 4, 8), 40 * z + 8 * x + y, np.uint8)
        for z in (1, 2)
        for x in range(1 << z)
        for y in range(1 << z)
        if x + y
    }
    tiles = [(*key, tiff(image)) for key, image in images.items()]
    tapalcatl.build(tiles, tmp_path / "map", ext="tif")
    data = ml.chips(tmp_path / "map")
    assert isinstance(data, ml.TileDataset)
    assert len(data) == len(images) == 18
    for sample in data.fetch(range(18)):
        key = z, x, y = sample["z"], sample["x"], sample["y"]
        assert sample["id"] == f"{z}/{x}/{y}"
        assert np.array_equal(sample["image"], images[key])
        side = 2 * HALF / 2**z
        transform = (side / 8, 0, x * side - HALF, 0, -side / 4, HALF - y * side)
        assert sample["transform"] == pytest.approx(transform)
        west, south = (
            x / 2**z * 360 - 180,
            math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * (y + 1) / 2**z)))),
        )
        assert sample["bbox"][:2] == pytest.approx((west, south))
        assert sample["bbox"][2] == west + 360 / 2**z
    fine = ml.chips(tapalcatl.open(tmp_path / "map"), zoom=2, bands=[2], bbox=(100, -10, -100, 10))
    assert [one["id"] for one in fine.head(9)] == ["2/0/1", "2/0/2", "2/3/1", "2/3/2"]
    assert fine[0]["image"].shape == (1, 4, 8)
    boxes = {one["id"]: one["bbox"] for one in data.fetch(range(18))}
    for west, south, east, north in ((100, -10, -100, 10), (1, 1, 2, 2), (-91, 3, -89, 70)):
        parts = [(west, east)] if west < east else [(west, 180), (-180, east)]
        right = {
            name
            for name, (left, bottom, far, top) in boxes.items()
            if bottom < north and top > south and any(left < e and far > w for w, e in parts)
        }
        some = ml.chips(tmp_path / "map", bbox=(west, south, east, north))
        assert {one["id"] for one in some.fetch(range(len(some)))} == right
    copy = pickle.loads(pickle.dumps(fine.take([2])))
    assert copy[0]["id"] == "2/3/1"
    whole = ml.chips(tmp_path / "map", zoom=1).stats()["image"]
    assert whole.mean == pytest.approx(np.mean([images[key] for key in images if key[0] == 1]))
    (batch,) = data.take([0, 1]).loader(2, workers=1)
    assert batch["image"].shape == (2, 3, 4, 8)
    with pytest.raises(InvalidInputError, match="no tile to take"):
        ml.chips(tmp_path / "map", zoom=5)
    with pytest.raises(InvalidInputError, match="samples as they are"):
        ml.chips(tmp_path / "map", stride=5)


def test_tiles_that_are_no_images_are_bytes(tmp_path: Path) -> None:
    tiles = pyramid(2, kind="pbf")
    tapalcatl.build([(*key, data) for key, data in tiles.items()], tmp_path / "map", ext="mvt")
    for sample in ml.chips(tmp_path / "map", zoom=2).head(16):
        assert sample["image"] == tiles[sample["z"], sample["x"], sample["y"]]
        assert sample["transform"] is None


def test_tiles_that_are_arrays(tmp_path: Path) -> None:
    with io.BytesIO() as file:
        np.save(file, values((2, 8, 8), "int16"))
        sound = file.getvalue()
    broken = sound.replace(b"}", b"(", 1)  # NumPy reads the header as Python does
    tapalcatl.build([(1, 0, 0, sound), (1, 1, 0, broken)], tmp_path / "map", ext="npy")
    data = ml.chips(tmp_path / "map")
    assert np.array_equal(data[0]["image"], values((2, 8, 8), "int16"))
    with pytest.raises(InvalidMetadataError, match="not a sound NPY file"):
        data[1]
