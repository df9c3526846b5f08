from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import quadbin as package  # type: ignore[import-untyped] # without stubs
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Transformer

from comal import grid
from comal.errors import InvalidInputError
from comal.grid import deinterleave, interleave, quadbin
from comal.grid.quadbin import z_order
from tests.support import SHARED

VECTORS = SHARED / "fixtures" / "raquet" / "quadbin_vectors.json"


@st.composite
def tile(draw: Any) -> tuple[int, int, int]:
    z = draw(st.integers(0, 26))
    last = (1 << z) - 1
    edge = st.sampled_from([0, last])
    position = st.one_of(edge, st.integers(0, last))
    return z, draw(position), draw(position)


lists = st.lists(tile(), min_size=1, max_size=30)


@given(lists)
@settings(max_examples=60)
def test_ids_are_those_of_the_package(found: list[tuple[int, int, int]]) -> None:
    z, x, y = np.array(found).T
    cells = grid.cells(z, x, y)
    assert cells.dtype == np.int64
    assert cells.tolist() == [package.tile_to_cell((x, y, z)) for z, x, y in found]
    assert [tuple(row) for row in np.stack(grid.tiles(cells), axis=1).tolist()] == found
    assert grid.zooms(cells.astype(np.uint64)).tolist() == z.tolist()
    assert grid.is_valid(cells).all()


@given(tile(), st.data())
@settings(max_examples=100)
def test_family_is_that_of_the_package(found: tuple[int, int, int], data: Any) -> None:
    z, x, y = found
    cell = package.tile_to_cell((x, y, z))
    above = data.draw(st.integers(0, z))
    assert grid.parents(cell, above) == package.cell_to_parent(cell, above)
    assert grid.descendants(cell, z) == (cell, cell)
    if z < 26:
        below = data.draw(st.integers(z + 1, min(26, z + 3)))
        mine = grid.children(cell, below)
        assert mine.tolist() == sorted(package.cell_to_children(cell, below))
        assert grid.descendants(cell, below) == (mine[0], mine[-1])
    if z:
        family = grid.siblings(cell)
        assert cell in family
        assert family.tolist() == grid.children(grid.parents(cell, z - 1)).tolist()


@given(tile())
@settings(max_examples=100)
def test_boxes_and_centres_are_those_of_the_package(found: tuple[int, int, int]) -> None:
    z, x, y = found
    cell = grid.cells(z, x, y)
    assert all(isinstance(number, int) for number in (cell, *grid.tiles(cell)))
    np.testing.assert_allclose(grid.bounds(cell), package.cell_to_bounding_box(cell), atol=1e-9)
    np.testing.assert_allclose(grid.centres(cell), package.cell_to_point(cell), atol=1e-9)
    assert grid.from_lonlat(*grid.centres(cell), z) == cell


@given(
    st.lists(
        st.tuples(
            st.floats(-180, 180, exclude_max=True), st.floats(-85.05, 85.05), st.integers(0, 26)
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=100)
def test_points_are_in_the_cells_of_the_package(points: list[tuple[float, float, int]]) -> None:
    lon, lat, z = (np.array(part) for part in zip(*points, strict=True))
    mine = grid.from_lonlat(lon, lat, z)
    theirs = np.array([package.point_to_cell(*one) for one in points])
    # A point within rounding of a line between two cells may be in either.
    x, y = grid.lonlat_to_xy(lon, lat, z)
    clear = (np.abs(x - np.round(x)) > 1e-7) & (np.abs(y - np.round(y)) > 1e-7)
    assert (mine == theirs)[clear].all()
    west, south, east, north = grid.bounds(mine)
    assert ((west <= lon + 1e-9) & (lon <= east + 1e-9)).all()
    assert ((south <= lat + 1e-9) & (lat <= north + 1e-9)).all()


def test_edges_of_the_world() -> None:
    for z in (0, 1, 5, 26):
        last = (1 << z) - 1
        assert grid.tiles(grid.from_lonlat(180, 0, z))[1] == last
        assert grid.tiles(grid.from_lonlat(-180, 0, z))[1] == 0
        assert grid.tiles(grid.from_lonlat(0, 90, z))[2] == 0
        assert grid.tiles(grid.from_lonlat(0, -90, z))[2] == last
        assert grid.tiles(grid.from_lonlat(0, grid.LATITUDE_LIMIT, z))[2] == 0
        assert grid.tiles(grid.from_lonlat(0, -grid.LATITUDE_LIMIT, z))[2] == last
    assert grid.from_lonlat(190, 10, 8) == grid.from_lonlat(-170, 10, 8)
    assert grid.from_lonlat(-190.5, 10, 8) == grid.from_lonlat(169.5, 10, 8)
    assert grid.bounds(0x480FFFFFFFFFFFFF) == pytest.approx(
        (-180, -grid.LATITUDE_LIMIT, 180, grid.LATITUDE_LIMIT)
    )


def test_ids_that_are_no_cells() -> None:
    good = grid.cells(13, 5000, 3000)
    wrong = [0, -1, 1, good & ~1, good ^ (1 << 20), good | (1 << 57), good ^ (1 << 62)]
    wrong += [good ^ (1 << 59), (good & ~(31 << 52)) | (27 << 52)]
    assert not grid.is_valid(np.array(wrong)).any()
    assert grid.is_valid(good) is True
    # The package takes ids whose trailing bits are cleared.
    assert package.is_valid_cell(good & ~1)
    assert grid.is_valid([good, 1 << 64, 1 << 63]).tolist() == [True, False, False]
    assert not grid.is_valid(np.array([good, 1 << 63], np.uint64))[1]
    for cell in wrong:
        with pytest.raises(InvalidInputError):
            grid.tiles(cell)
    with pytest.raises(InvalidInputError, match="not a QUADBIN cell"):
        grid.parents(np.array([good, 17]), 3)


CELL, ROOT, DEEPEST = (quadbin.cells(z, 0, 0) for z in (4, 0, 26))
REFUSED: list[tuple[str, Callable[[], object]]] = [
    ("no such tile", lambda: grid.cells(3, 8, 0)),
    ("no such tile", lambda: grid.cells(3, -1, 0)),
    ("no such tile", lambda: grid.cells(3, 0, 8)),
    ("no such tile", lambda: grid.cells(0, 0, 1)),
    ("zoom", lambda: grid.cells(27, 0, 0)),
    ("zoom", lambda: grid.cells(-1, 0, 0)),
    ("zoom", lambda: grid.from_lonlat(0, 0, 27)),
    ("64-bit integer", lambda: grid.cells(3, 1.5, 0)),
    ("64-bit integer", lambda: grid.is_valid([1.0])),
    ("too large", lambda: grid.tiles(np.array([1 << 63], np.uint64))),
    ("not a point", lambda: grid.from_lonlat(float("nan"), 0, 3)),
    ("not a point", lambda: grid.from_lonlat(0, float("nan"), 3)),
    ("not a point", lambda: grid.from_lonlat(float("inf"), 0, 3)),
    ("not a point", lambda: grid.from_lonlat(0, 90.5, 3)),
    ("not finer", lambda: grid.parents(CELL, 5)),
    ("finer", lambda: grid.children(CELL, 4)),
    ("not coarser", lambda: grid.descendants(CELL, 3)),
    ("siblings", lambda: grid.siblings(ROOT)),
    ("too many", lambda: grid.children(CELL, 26)),
    ("finer", lambda: grid.children(DEEPEST)),
    ("same number", lambda: grid.children([ROOT, CELL], 5)),
    ("negative", lambda: grid.k_ring(DEEPEST, -1)),
    ("too large", lambda: grid.k_ring(DEEPEST, 10_000)),
]


@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_what_is_refused(message: str, call: Callable[[], object]) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_shapes_are_kept() -> None:
    cells = grid.cells(5, np.arange(6).reshape(2, 3), 7)
    assert cells.shape == (2, 3)
    assert grid.children(cells, 7).shape == (2, 3, 16)
    assert grid.siblings(cells).shape == (2, 3, 4)
    assert grid.children(np.array([grid.cells(1, 0, 0), grid.cells(2, 0, 0)])).shape == (2, 4)
    empty = np.empty(0, np.int64)
    assert grid.cells(empty, empty, empty).shape == (0,)
    assert grid.children(empty).shape == (0, 0)


@given(tile(), st.integers(0, 3))
@settings(max_examples=80)
def test_rings(found: tuple[int, int, int], k: int) -> None:
    z, x, y = found
    side = 1 << z
    ring = grid.k_ring(grid.cells(z, x, y), k)
    expected = {
        package.tile_to_cell(((x + dx) % side, y + dy, z))
        for dx in range(-k, k + 1)
        for dy in range(-k, k + 1)
        if 0 <= y + dy < side
    }
    assert ring.tolist() == sorted(expected)
    if k < x < side - k - 1 and k < y < side - k - 1:
        assert ring.tolist() == sorted(package.k_ring(grid.cells(z, x, y), k))


def test_neighbours() -> None:
    cell = grid.cells(3, 7, 0)
    assert grid.neighbours(cell, 1, 0) == grid.cells(3, 0, 0)
    assert grid.neighbours(cell, 0, -1) == 0
    assert grid.neighbours(cell, [-1, 0], [0, 1]).tolist() == [
        package.cell_sibling(cell, "left"),
        package.cell_sibling(cell, "down"),
    ]


@pytest.mark.skipif(not VECTORS.is_file(), reason="the vectors are not beside the checkout")
def test_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())
    for one in vectors["tiles"]:
        cell = grid.cells(one["z"], one["x"], one["y"])
        assert cell == one["cell"]
        assert hex(cell) == one["hex"]
        if one["parent"] is not None:
            assert grid.parents(cell, one["z"] - 1) == one["parent"]
        assert grid.bounds(cell) == pytest.approx(one["bbox"], abs=1e-9)
    for point in vectors["points"]:
        if point["lon"] == 180:
            continue  # the package puts it into the westernmost column
        for z, cell in point["cells"].items():
            assert grid.from_lonlat(point["lon"], point["lat"], int(z)) == cell
    order = vectors["children_order_of_z1_x1_y1_at_z2"]
    found = np.stack(grid.tiles(grid.children(grid.cells(1, 1, 1))), axis=1).tolist()
    assert [(x, y, z) for z, x, y in found] == [tuple(xyz) for xyz in order]


def test_every_name_is_there() -> None:
    assert inspect.unwrap(grid.cells) is quadbin.cells
    assert all(getattr(grid, name) is not None for name in dir(grid))
    with pytest.raises(AttributeError):
        _ = grid.nothing


def test_limits_hold_to_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = quadbin.cells(5, 8, 9)
    monkeypatch.setattr("comal.grid.quadbin._MOST", 81)
    assert len(quadbin.k_ring(cell, 4)) == 81
    assert quadbin.children([cell] * 20).size == 80
    monkeypatch.setattr("comal.grid.quadbin._MOST", 79)
    with pytest.raises(InvalidInputError, match="too large") as caught:
        quadbin.k_ring(cell, 4)
    assert caught.value.found == 4
    with pytest.raises(InvalidInputError, match="too many") as caught:
        quadbin.children([cell] * 20)
    assert caught.value.found == 80


def test_arrays_that_are_none() -> None:
    """Nothing of numpy's own leaves these functions."""
    cell = grid.cells(3, 0, 0)
    pair = np.array([cell, cell])
    for call in (
        lambda: grid.cells([1, 1], [0, 1, 2], 0),
        lambda: grid.from_lonlat([1, 2, 3], [1, 2], 3),
        lambda: grid.parents(pair, [1, 1, 1]),
        lambda: grid.children(pair, [4, 4, 4]),  # type: ignore[arg-type]
        lambda: grid.descendants(pair, [4, 4, 4]),
        lambda: grid.neighbours(pair, [1, 1, 1], 0),
        lambda: grid.interleave([1, 2], [1, 2, 3]),
    ):
        with pytest.raises(InvalidInputError, match="shapes do not fit"):
            call()
    for call in (
        lambda: grid.tiles([[1], [2, 3]]),
        lambda: grid.k_ring("x", 1),  # type: ignore[arg-type]
        lambda: grid.k_ring(cell, 1.5),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInputError, match="not a 64-bit integer"):
            call()
    wrong: list[Any] = ["a", None, [1, "b"], 1j]
    for lon in wrong:
        with pytest.raises(InvalidInputError, match="a longitude is not a number"):
            grid.from_lonlat(lon, 0, 3)
        with pytest.raises(InvalidInputError, match="a longitude is not a number"):
            grid.lonlat_to_xy(lon, 0, 3)
    with pytest.raises(InvalidInputError, match="one cell and one distance"):
        grid.k_ring([cell], 1)  # type: ignore[arg-type]


# -- Morton codes ----------------------------------------------------------------------------------

words = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=8)


def slow(x: int, y: int) -> int:
    return sum(((x >> i & 1) << (2 * i)) | ((y >> i & 1) << (2 * i + 1)) for i in range(31))


@given(words, st.integers(0, 2**31 - 1))
@settings(max_examples=60)
def test_bits_alternate(xs: list[int], y: int) -> None:
    codes = interleave(xs, y)
    assert codes.tolist() == [slow(x, y) for x in xs]
    across, down = deinterleave(codes)
    assert across.tolist() == xs
    assert set(down.tolist()) == {y}


@pytest.mark.parametrize("pair", [(-1, 0), (0, -1), (1 << 31, 0), (0, 1 << 40), (1.5, 0)])
def test_numbers_that_no_code_holds(pair: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError):
        interleave(*pair)


def test_keys_along_a_z_order_curve() -> None:
    lon, lat = [0, -0.38, 151.21, -76.834], [0, 39.47, -33.87, -11.755]
    expected = [1099511627775, 2745913652041, 2008963142099, 977856315723]
    assert z_order(lon, lat).tolist() == expected


# -- Web Mercator ----------------------------------------------------------------------------------


def test_positions_are_those_of_proj() -> None:
    random = np.random.default_rng(1)
    lon, lat = random.uniform(-180, 180, 500), random.uniform(-85, 85, 500)
    east, north = Transformer.from_crs(4326, 3857, always_xy=True).transform(lon, lat)
    x, y = grid.lonlat_to_xy(lon, lat, 10)
    size = grid.CIRCUMFERENCE / 1024
    np.testing.assert_allclose(x * size - grid.HALF, east, atol=1e-6)
    np.testing.assert_allclose(grid.HALF - y * size, north, atol=1e-6)
    back = grid.xy_to_lonlat(x, y, 10)
    np.testing.assert_allclose(back, (lon, lat), atol=1e-9)


def test_boxes_of_tiles() -> None:
    assert grid.tile_box_3857(0, 0, 0) == (-grid.HALF, -grid.HALF, grid.HALF, grid.HALF)
    assert grid.tile_box_3857(1, 1, 0) == (0, 0, grid.HALF, grid.HALF)
    west, south, east, north = grid.tile_box_3857(3, np.array([0, 7]), 7)
    assert west.tolist() == pytest.approx([-grid.HALF, grid.HALF * 0.75])
    assert np.all(south == pytest.approx(-grid.HALF))
    assert np.all(east > west)
    assert np.all(north > south)


def test_pixels() -> None:
    assert grid.pixel_size(0) == pytest.approx(156543.03392804097)
    assert grid.pixel_size([10, 11], 512).tolist() == pytest.approx(
        [grid.CIRCUMFERENCE / 1024 / 512, grid.CIRCUMFERENCE / 2048 / 512]
    )


def test_edges() -> None:
    assert grid.lonlat_to_xy(180, 90, 4) == pytest.approx((16, 0), abs=1e-9)
    assert grid.lonlat_to_xy(-180, -90, 4) == pytest.approx((0, 16), abs=1e-9)
    assert grid.lonlat_to_xy(270, 0, 4) == pytest.approx((4, 8))
    x, y = grid.lonlat_to_xy([np.nan, 3.0], [1.0, np.nan], 4)
    assert np.isnan(x).tolist() == [True, False]
    assert np.isnan(y).tolist() == [False, True]
