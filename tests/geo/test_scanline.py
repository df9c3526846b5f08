from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from rasterio.features import rasterize
from rasterio.transform import from_bounds

from comal.errors import InvalidInputError
from comal.geo.scanline import Edges, area_spans

H, W = 24, 32

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


def places(size: int, beside: float) -> Any:
    # Never on a border or a middle, where writers may differ.
    return st.integers(-8 * 7, (size + 8) * 7).map(lambda n: n / 7 + beside)


# Edges must miss corners and middles too: were both moved alike, those of slope 1 would not.
POINTS = st.tuples(places(W, 0.013), places(H, 0.0291414))


@st.composite
def areas(draw: Any) -> Any:
    corners = draw(st.lists(POINTS, min_size=3, max_size=9, unique=True))
    shape = shapely.make_valid(shapely.Polygon(corners)).buffer(0)
    assume(not shape.is_empty)
    found = shape.difference(shape.centroid.buffer(1.7, 3))
    assume(found.area > 0.5)
    return found


def grid_of(shapes: Any, method: Any) -> Any:
    # The rows of the grid run to the south: row r lies at y = -r.
    turned = shapely.transform(np.asarray(shapes, object), lambda points: points * [1, -1])
    borders = np.arange(H + 1.0)
    return area_spans(Edges.of(turned), borders, borders[:-1] + 0.5, W, method)


def gdal(shape: Any, *, all_touched: bool) -> Any:
    return rasterize(
        [(shape, 1)],
        out_shape=(H, W),
        transform=from_bounds(0, H, W, 0, W, H),
        all_touched=all_touched,
    )


@given(areas())
@settings(max_examples=40, deadline=None)
def test_centres_are_those_of_gdal(area: Any) -> None:
    found = grid_of([area], "centre").mask(H, W)
    assert (found == gdal(area, all_touched=False)).all()


@given(areas())
@settings(max_examples=40, deadline=None)
def test_touched_and_shares_are_exact(area: Any) -> None:
    column, row = np.meshgrid(np.arange(W), np.arange(H))
    pixels = shapely.box(column, row, column + 1, row + 1)
    shares = shapely.area(shapely.intersection(area, pixels))
    touched = grid_of([area], "all_touched").mask(H, W)
    assert (touched == (shares > 0)).all()
    np.testing.assert_allclose(grid_of([area], "fractional").mask(H, W), shares, atol=1e-9)
    # GDAL misses pixels that an edge clips by a corner only.
    assert (touched >= gdal(area, all_touched=True)).all()


def test_areas_do_not_mix() -> None:
    shapes = [
        shapely.box(1.2, 1.2, 5.4, 6.6),
        shapely.Polygon(),
        shapely.MultiPolygon([shapely.box(2.1, 2.1, 9.9, 3.9), shapely.box(20.2, 2, 40, 90)]),
        None,
    ]
    for method in ("centre", "all_touched", "fractional"):
        found = grid_of(shapes, method)
        assert set(found.zone.tolist()) == {0, 2}
        for zone in (0, 2):
            alone = grid_of([shapes[zone]], method)
            mine = np.flatnonzero(found.zone == zone)
            assert (found.row[mine] == alone.row).all()
            assert (found.start[mine] == alone.start).all()
            assert (found.stop[mine] == alone.stop).all()
            assert found.weight[mine] == pytest.approx(alone.weight)
    assert grid_of([shapes[0]], "fractional").mask(H, W).sum() == pytest.approx(4.2 * 5.4)


def test_a_grid_within_an_area() -> None:
    for method in ("centre", "all_touched", "fractional"):
        found = grid_of([shapely.box(-50, -50, 90, 90)], method)
        assert (found.mask(H, W) == 1).all()
        assert len(grid_of([shapely.box(50, 50, 90, 90)], method)) == 0
        assert len(grid_of([shapely.box(-9, 3, -5, 9)], method)) == 0


def test_rows_of_any_height() -> None:
    borders = np.array([-60.0, -50, -20, 0])
    spans = area_spans(
        Edges.of([shapely.box(0.5, 10, 2, 55)]), borders, np.array([-56.0, -30, -10]), 3
    )
    assert spans.mask(3, 3).tolist() == [[0, 0, 0], [1, 1, 0], [0, 0, 0]]
    shares = area_spans(
        Edges.of([shapely.box(0.5, 10, 2, 55)]),
        borders,
        np.array([-56.0, -30, -10]),
        3,
        "fractional",
    )
    assert shares.mask(3, 3) == pytest.approx(
        np.array([[0.25, 0.5, 0], [0.5, 1, 0], [0.25, 0.5, 0]])
    )


def test_what_is_no_area() -> None:
    with pytest.raises(InvalidInputError, match="not an area"):
        Edges.of([shapely.box(0, 0, 1, 1), shapely.Point(1, 1)])
    with pytest.raises(InvalidInputError, match="valid"):
        Edges.of([shapely.Polygon([(0, 0), (1, 1), (1, 0), (0, 1)])])
    with pytest.raises(InvalidInputError, match="method"):
        grid_of([shapely.box(0, 0, 1, 1)], "center")
