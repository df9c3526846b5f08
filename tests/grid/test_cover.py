from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from comal import grid
from comal.errors import InvalidInputError, LimitExceededError
from comal.grid import cover
from tests.support import SHARED

VECTORS = SHARED / "fixtures" / "raquet" / "quadbin_vectors.json"


def all_cells(z: int) -> Any:
    side = np.arange(1 << z)
    x, y = np.meshgrid(side, side)
    return np.sort(grid.cells(z, x.ravel(), y.ravel()))


def boxes_of(cells: Any) -> Any:
    return shapely.box(*grid.bounds(cells))


degrees = st.floats(-170, 170).map(lambda n: round(n, 3))


@given(degrees, degrees, degrees, degrees, st.integers(0, 6))
@settings(max_examples=80)
def test_boxes_hold_what_they_overlap(a: float, b: float, c: float, d: float, z: int) -> None:
    west, east = a, c
    south, north = sorted((b / 2, d / 2))
    found = grid.bbox_cells((west, south, east, north), z)
    exact = grid.bbox_ranges((west, south, east, north), z)
    assert grid.range_cells(exact).tolist() == found.tolist()
    every = all_cells(z)
    w, s, e, n = grid.bounds(every)
    arc = (w < east) & (e > west) if west < east else (e > west) | (w < east)
    if west != east and south != north:
        inside = arc & (s < north - 1e-9) & (n > south + 1e-9)
        assert set(every[inside]) <= set(found)
        wide = arc & (s < north + 1e-6) & (n > south - 1e-6)
        assert set(found) <= set(every[wide])


def test_box_of_a_tile_is_that_tile() -> None:
    for z, x, y in ((0, 0, 0), (5, 17, 9), (12, 700, 1500), (19, 300_000, 200_000), (26, 9, 7)):
        cell = grid.cells(z, x, y)
        assert grid.bbox_cells(grid.bounds(cell), z).tolist() == [cell]
        assert grid.bbox_ranges(grid.bounds(cell), z).tolist() == [[cell, cell]]
        assert grid.geometry_cells(boxes_of(cell), z).tolist() == [cell]
        assert grid.geometry_cells(boxes_of(cell), z, "contains").tolist() == [cell]
        assert grid.geometry_cells(boxes_of(cell), z, "center").tolist() == [cell]


def test_points_and_lines_as_boxes() -> None:
    assert grid.bbox_cells((10, 20, 10, 20), 9).tolist() == [grid.from_lonlat(10, 20, 9)]
    assert grid.bbox_cells((180, 0, 180, 0), 3).tolist() == [grid.from_lonlat(180, 0, 3)]
    assert len(grid.bbox_cells((-180, 10, 180, 10), 3)) == 8


def test_over_the_antimeridian() -> None:
    windows = grid.bbox_windows((170, -10, -170, 10), 5)
    assert windows.tolist() == [[31, 15, 31, 16], [0, 15, 0, 16]]
    assert grid.bbox_windows((10, -10, 9, 10), 1).tolist() == [[0, 0, 1, 1]]
    assert grid.bbox_windows((170, -10, -170, 10), 0).tolist() == [[0, 0, 0, 0]]
    found = grid.bbox_cells((170, -10, -170, 10), 5)
    assert found.tolist() == sorted(grid.cells(5, [31, 31, 0, 0], [15, 16, 15, 16]).tolist())
    unrolled = grid.geometry_cells(shapely.box(170, -10, 190, 10), 5)
    assert unrolled.tolist() == found.tolist()
    assert grid.geometry_cells(shapely.box(-190, -10, -170, 10), 5).tolist() == found.tolist()


def test_near_the_poles() -> None:
    assert grid.bbox_windows((0, 86, 10, 89), 4).shape == (0, 4)
    assert grid.bbox_ranges((0, 86, 10, 89), 4).shape == (0, 2)
    assert grid.bbox_cells((0, -90, 10, -86), 4).shape == (0,)
    assert grid.bbox_cells((-180, -90, 180, 90), 3).tolist() == all_cells(3).tolist()
    assert grid.bbox_ranges((-180, -90, 180, 90), 26).shape == (1, 2)


@pytest.mark.parametrize(
    "bbox",
    [(0, 1, 2), (0, 5, 1, 4), (0, 0, 181, 1), (0, -91, 1, 1), (0, 0, float("nan"), 1)],
)
def test_boxes_that_cannot_be(bbox: Any) -> None:
    with pytest.raises(InvalidInputError):
        grid.bbox_windows(bbox, 3)


def test_boxes_of_too_many_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LimitExceededError):
        grid.bbox_cells((-180, -80, 180, 80), 20)
    monkeypatch.setattr("comal.grid.cover._EDGE", 1 << 10)
    with pytest.raises(LimitExceededError, match="along an edge"):
        grid.bbox_ranges((-179.3, -80.2, 178.9, 81.7), 26)


@pytest.mark.parametrize("ranges", ["x", [1, 2, 3], [[1.5, 2]], [[1, 2, 3]]])
def test_ranges_that_are_none(ranges: Any) -> None:
    with pytest.raises(InvalidInputError):
        grid.merge_ranges(ranges)
    with pytest.raises(InvalidInputError):
        grid.range_cells(ranges)
    with pytest.raises(InvalidInputError):
        grid.in_ranges(5, ranges)


@st.composite
def polygons(draw: Any) -> Any:
    corners = draw(
        st.lists(
            st.tuples(st.integers(-175, 175), st.integers(-80, 80)),
            min_size=3,
            max_size=8,
            unique=True,
        )
    )
    shape = shapely.Polygon(corners).buffer(0)
    assume(shape.area > 1)
    return shape.difference(shape.centroid.buffer(2)).buffer(0)


@given(polygons(), st.integers(0, 5))
@settings(max_examples=60)
def test_areas_against_every_cell(area: Any, z: int) -> None:
    every = all_cells(z)
    boxes = boxes_of(every)
    overlap = shapely.area(shapely.intersection(area, boxes)) / shapely.area(boxes)
    touched = grid.geometry_cells(area, z)
    assert set(every[overlap > 1e-6]) <= set(touched)
    assert set(touched) <= set(every[overlap > 0])
    within = grid.geometry_cells(area, z, "contains")
    assert set(within) <= set(every[overlap > 1 - 1e-6])
    assert set(every[shapely.contains_properly(area, boxes)]) <= set(within)
    middle = grid.geometry_cells(area, z, "center")
    near = shapely.dwithin(shapely.boundary(area), shapely.points(*grid.centres(every)), 1e-9)
    inside = shapely.intersects_xy(area, *grid.centres(every))
    assert set(every[inside & ~near]) <= set(middle) <= set(every[inside | near])
    assert np.all(np.diff(touched) > 0)


def test_points_lines_and_collections() -> None:
    point = shapely.Point(11, 48)
    assert grid.geometry_cells(point, 12).tolist() == [grid.from_lonlat(11, 48, 12)]
    assert grid.geometry_cells(point, 12, "center").tolist() == []
    line = shapely.LineString([(-10, 1), (10, 1)])
    found = grid.geometry_cells(line, 6)
    assert found.tolist() == sorted(grid.cells(6, [30, 31, 32, 33], 31).tolist())
    both = shapely.GeometryCollection([point, line, shapely.box(0, 0, 0.1, 0.1)])
    assert set(found) <= set(grid.geometry_cells(both, 6))
    assert grid.geometry_cells(shapely.Point(), 3).tolist() == []


def test_geometries_that_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInputError, match="not a geometry"):
        grid.geometry_cells("POINT (1 1)", 3)
    bow = shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])
    with pytest.raises(InvalidInputError, match="invalid geometry"):
        grid.geometry_cells(bow, 3)
    for far in (1081, 1e7, 1e300):
        for area in (shapely.Polygon([(0, 0), (far, 0), (1, 1)]), shapely.Point(-far, 1)):
            with pytest.raises(InvalidInputError, match="longitudes"):
                grid.geometry_cells(area, 3)
    with pytest.raises(InvalidInputError, match="mode"):
        grid.geometry_cells(shapely.box(0, 0, 1, 1), 3, "centre")  # type: ignore[arg-type]
    monkeypatch.setattr(cover, "_EDGE", 1 << 12)
    with pytest.raises(LimitExceededError):
        grid.geometry_cells(shapely.box(-170, -70, 170, 70), 20)


def test_ranges_merge() -> None:
    a, b, c, d = grid.cells(4, [0, 1, 0, 1], [0, 0, 1, 1]).tolist()
    far = grid.cells(4, 9, 9)
    assert grid.merge_ranges([[b, b], [a, a]]).tolist() == [[a, b]]
    assert grid.merge_ranges([[a, c], [b, b]]).tolist() == [[a, c]]
    assert grid.merge_ranges([[a, a], [d, d]]).tolist() == [[a, a], [d, d]]
    assert grid.merge_ranges(np.empty((0, 2))).shape == (0, 2)
    assert grid.in_ranges([a, b, far], [[a, a], [far, far]]).tolist() == [True, False, True]
    assert grid.in_ranges([a], np.empty((0, 2))).tolist() == [False]
    assert grid.range_cells(np.empty((0, 2))).tolist() == []
    coarse = grid.cells(2, 1, 1)
    assert grid.range_cells([[coarse, coarse], [a, d]]).tolist() == [coarse, a, b, c, d]


@pytest.mark.skipif(not VECTORS.is_file(), reason="the vectors are not beside the checkout")
def test_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())
    shape = shapely.from_geojson(json.dumps(vectors["polygon"]))
    for z, expected in vectors["polygon_cells_touching"].items():
        assert grid.geometry_cells(shape, int(z)).tolist() == sorted(expected)
