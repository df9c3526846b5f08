"""Windows and points, against arrays put together by hand and against rasterio."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal import raquet
from comal.errors import InvalidInputError
from tests.raquet.build import BLOCK, noise, write
from tests.support import SHARED, needs_shared

HALF = math.pi * 6378137
Z = 3
SIDE = BLOCK << Z
NODATA = 0

TILES = {(Z, x, y): [noise(x * 8 + y)] for x in range(8) for y in range(2, 7) if (x + y) % 5}
TILES[1, 0, 0] = [noise(1)]
WORLD = np.zeros((SIDE, SIDE), np.uint8)
THERE = np.zeros((SIDE, SIDE), np.bool_)
for (_z, _x, _y), (_pixels,) in TILES.items():
    if _z == Z:
        _place = np.s_[_y * BLOCK : (_y + 1) * BLOCK, _x * BLOCK : (_x + 1) * BLOCK]
        WORLD[_place], THERE[_place] = _pixels, True


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> raquet.RaquetFile:
    return raquet.open(write(tmp_path_factory.mktemp("windows") / "a.parquet", TILES))


def lonlat(column: float, row: float, side: int = SIDE) -> tuple[float, float]:
    return column / side * 360 - 180, math.degrees(
        math.atan(math.sinh(math.pi * (1 - 2 * row / side)))
    )


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_windows_in_pixels(file: raquet.RaquetFile, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, SIDE)), data.draw(st.integers(1, SIDE))
    row = data.draw(st.integers(0, SIDE - height))
    column = data.draw(st.integers(-SIDE, SIDE))
    found = file.window(Z, column, row, width, height, masked=True)
    across = np.arange(column, column + width) % SIDE
    np.testing.assert_array_equal(found.data.data[0], WORLD[row : row + height][:, across])
    np.testing.assert_array_equal(~found.data.mask[0], THERE[row : row + height][:, across])
    size = 2 * HALF / SIDE
    assert found.transform == pytest.approx(
        (size, 0, column * size - HALF, 0, -size, HALF - row * size)
    )
    assert found.bounds == pytest.approx(
        (
            column * size - HALF,
            HALF - (row + height) * size,
            (column + width) * size - HALF,
            HALF - row * size,
        ),
        abs=1e-6,
    )


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_many_windows_are_each_window(file: raquet.RaquetFile, data: st.DataObject) -> None:
    width, height = data.draw(st.integers(1, SIDE)), data.draw(st.integers(1, SIDE))
    corner = st.tuples(st.integers(-SIDE, SIDE), st.integers(0, SIDE - height))
    corners = data.draw(st.lists(corner, max_size=5))
    scaled = data.draw(st.booleans())
    found = file.windows(Z, corners, width, height, masked=True, scaled=scaled)
    for one, (column, row) in zip(found, corners, strict=True):
        alone = file.window(Z, column, row, width, height, masked=True, scaled=scaled)
        np.testing.assert_array_equal(one.data.data, alone.data.data)
        np.testing.assert_array_equal(one.data.mask, alone.data.mask)
        assert (one.transform, one.zoom, one.column, one.row) == (
            *(alone.transform, alone.zoom),
            *(column, row),
        )


def test_windows_that_cannot_be(file: raquet.RaquetFile) -> None:
    assert file.windows(Z, [], 2, 2) == []
    for corners in ([(0, 0), (0, SIDE)], [1, 2, 3], [(0.5, 0)], None):
        with pytest.raises(InvalidInputError):
            file.windows(Z, corners, 2, 2)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_boxes_hold_the_pixels_that_they_touch(
    file: raquet.RaquetFile, data: st.DataObject
) -> None:
    """Those over the antimeridian too, which end west of where they begin."""
    left = data.draw(st.integers(0, SIDE - 1))
    right = data.draw(st.integers(1, SIDE).filter(lambda end: end != left))
    top, bottom = sorted(
        data.draw(st.lists(st.integers(0, SIDE), min_size=2, max_size=2, unique=True))
    )
    inset = data.draw(st.sampled_from([0, 0.4, 1e-4, -1e-4]))
    west, north = lonlat(max(0, left + inset), max(0, top + inset))
    east, south = lonlat(min(SIDE, right - inset), min(SIDE, bottom - inset))
    found = file.read((west, south, east, north))
    assert (found.column, found.row) == (left, top)
    across = np.arange(left, right if right > left else right + SIDE) % SIDE
    np.testing.assert_array_equal(found.data[0], WORLD[top:bottom, across])


@pytest.mark.parametrize(
    ("box", "window"),
    [
        ((-180, -90, 180, 90), (0, 0, SIDE, SIDE)),
        ((-180, 89, 180, 90), (0, 0, SIDE, 1)),
        ((-180, -90, -179, -89), (0, SIDE - 1, 1, 1)),
        ((180, 0, 180, 0), (SIDE - 1, SIDE // 2, 1, 1)),
        ((0, 0, 0, 0), (SIDE // 2, SIDE // 2, 1, 1)),
        ((0.2, -90, 0.1, 90), (SIDE // 2, 0, SIDE, SIDE)),
    ],
)
def test_boxes_at_the_edge_of_the_world(
    file: raquet.RaquetFile, box: Any, window: tuple[int, int, int, int]
) -> None:
    found = file.read(box)
    assert (found.column, found.row, found.data.shape[2], found.data.shape[1]) == window


def test_everything(file: raquet.RaquetFile) -> None:
    found = file.read()
    # The tiles of the finest zoom are rows 2 to 6.
    np.testing.assert_array_equal(found.data[0], WORLD[2 * BLOCK : 7 * BLOCK])
    assert found.zoom == Z
    assert found.crs == "EPSG:3857"


def test_zooms_are_moved_into_the_range_of_the_file(file: raquet.RaquetFile) -> None:
    box = (-170, 10, -100, 60)
    assert file.read(box, zoom=0).zoom == 1
    assert file.read(box, zoom=2).zoom == 2
    assert file.read(box, zoom=26).zoom == 3
    # There is no tile at zoom 2: a pyramid may be sparse, and finer tiles are none of its own.
    assert file.read(box, zoom=2, masked=True).data.mask.all()
    np.testing.assert_array_equal(file.read((-180, 0, 0, 86), zoom=0).data[0], TILES[1, 0, 0][0])


def test_resolutions(file: raquet.RaquetFile) -> None:
    finest = 2 * HALF / SIDE
    box = (-170, 10, -100, 60)
    expected = [(finest, 3), (finest * 1.5, 3), (finest * 2, 2), (finest / 9, 3), (finest * 99, 1)]
    for resolution, zoom in expected:
        assert file.read(box, resolution=resolution).zoom == zoom


WINDOWS = [
    (Z, 0, -1, 4, 4),
    (Z, 0, SIDE - 3, 4, 4),
    (Z, 0, 0, 0, 4),
    (Z, 0, 0, SIDE + 1, 4),
    (Z, 2 * SIDE, 0, 1, 1),
    (0, 0, 0, 1, 1),
    (4, 0, 0, 1, 1),
]
BOXES: list[Any] = [(0, 0, 1), (0, 1, 1, 0), (0, math.nan, 1, 1), "everywhere"]
FINE: list[dict[str, Any]] = [{"resolution": one} for one in (0, -1, math.nan, math.inf, "fine")]
FINE += [{"zoom": "finest"}, {"resolution": 1, "zoom": 1}]
POINTS: list[Any] = [([math.nan], [0]), ([0], [math.inf]), ([0], [91]), ([0, 1], [0])]
POINTS += [(["a"], [0]), (None, [0]), ([0], [None])]


@pytest.mark.parametrize(
    ("ask", "given", "named"),
    [
        *(("window", window, {}) for window in WINDOWS),
        *(("read", (box,), {}) for box in BOXES),
        *(("read", ((-170, 10, -100, 60),), named) for named in FINE),
        *(("points", places, {}) for places in POINTS),
    ],
)
def test_what_is_no_place(file: raquet.RaquetFile, ask: str, given: Any, named: Any) -> None:
    with pytest.raises(InvalidInputError):
        getattr(file, ask)(*given, **named)


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_points(file: raquet.RaquetFile, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 200))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    columns, rows = rng.integers(0, SIDE, count), rng.integers(0, SIDE, count)
    places = [lonlat(c + 0.5, r + 0.5) for c, r in zip(columns, rows, strict=True)]
    lons, lats = [p[0] for p in places], [p[1] for p in places]
    found = file.points(lons, lats, masked=True)
    assert found.shape == (1, count)
    np.testing.assert_array_equal(found.data[0], WORLD[rows, columns])
    np.testing.assert_array_equal(found.mask[0], ~THERE[rows, columns])


def test_a_point(file: raquet.RaquetFile) -> None:
    for column, row in ((0, 40), (17, 90), (SIDE - 1, 50)):
        lon, lat = lonlat(column + 0.3, row + 0.7)
        assert file.point(lon, lat).tolist() == [WORLD[row, column]]
        assert file.point(lon + 360, lat).tolist() == [WORLD[row, column]]
        assert asyncio.run(file.point_async(lon, lat)).tolist() == [WORLD[row, column]]
    # 180 degrees are the east edge of the last column.
    _, lat = lonlat(0, 50.5)
    assert file.point(180.0, lat).tolist() == [WORLD[50, -1]]
    assert file.point(0, 90, masked=True).mask.all()


def test_points_at_other_zooms(file: raquet.RaquetFile) -> None:
    lon, lat = lonlat(5, 40)
    assert file.point(lon, lat, zoom=1).tolist() == [TILES[1, 0, 0][0][10, 1]]
    # A point at a zoom without tile has no value.
    for zoom in (0, 2, 26):
        assert file.point(lon, lat, zoom=zoom, masked=True).mask.all()


def test_async_twins(file: raquet.RaquetFile) -> None:
    async def all_at_once() -> Any:
        return await asyncio.gather(
            file.read_async(),
            file.window_async(Z, 3, 40, 50, 30),
            file.points_async([0, 10], [5, 5]),
            file.raw_tile_async(Z, 0, 3),
        )

    read, window, points, raw = asyncio.run(all_at_once())
    np.testing.assert_array_equal(read.data, file.read().data)
    np.testing.assert_array_equal(window.data, file.window(Z, 3, 40, 50, 30).data)
    np.testing.assert_array_equal(points, file.points([0, 10], [5, 5]))
    assert raw == file.raw_tile(Z, 0, 3)


# -- sources of the reference files ---------------------------------------------------------------

FIXTURES = SHARED / "fixtures" / "raquet"


def exact() -> list[str]:
    path = FIXTURES / "expected.json"
    files = json.loads(path.read_text())["files"] if path.exists() else {}
    return [
        name
        for name, facts in files.items()
        if str(facts.get("source", "")).endswith("_3857.tif")
        and (facts.get("source_at_max_zoom") or {}).get("differing_values") == 0
    ]


@needs_shared
def test_there_are_sources() -> None:
    assert len(exact()) > 20


@needs_shared
@pytest.mark.parametrize("name", exact())
def test_the_window_of_the_source_is_the_source(name: str) -> None:
    """Read at the finest zoom, a file holds the pixels that it was made of."""
    import rasterio

    facts = json.loads((FIXTURES / "expected.json").read_text())["files"][name]
    with rasterio.open(FIXTURES / facts["source"]) as source:
        pixels = source.read()
        west, south, east, north = source.bounds
    opened = raquet.open(FIXTURES / name)
    degrees = 180 / HALF
    limits = [
        west * degrees,
        math.degrees(math.atan(math.sinh(south / 6378137))),
        east * degrees,
        math.degrees(math.atan(math.sinh(north / 6378137))),
    ]
    found = opened.read(limits)
    assert found.data.shape == pixels.shape
    np.testing.assert_array_equal(found.data, pixels)
    # The same by points.
    rng = np.random.default_rng(1)
    rows, columns = rng.integers(0, pixels.shape[1], 500), rng.integers(0, pixels.shape[2], 500)
    x = (west + (columns + 0.5) * (east - west) / pixels.shape[2]) * degrees
    y = north - (rows + 0.5) * (north - south) / pixels.shape[1]
    values = opened.points(x, np.degrees(np.arctan(np.sinh(y / 6378137))))
    np.testing.assert_array_equal(values, pixels[:, rows, columns])
