"""Points as text, against shapely."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.geo.wkb import text_points_xy

NUMBERS = st.floats(-1e6, 1e6, allow_nan=False)


@settings(deadline=None)
@given(st.lists(st.none() | st.tuples(NUMBERS, NUMBERS), max_size=20))
def test_points(places: list[tuple[float, float] | None]) -> None:
    texts = [None if place is None else f"POINT ({place[0]!r} {place[1]!r})" for place in places]
    for column in (pa.array(texts, pa.string()), pa.chunked_array([texts], pa.string())):
        x, y = text_points_xy(column)
        shapes = shapely.from_wkt(texts)
        np.testing.assert_array_equal(x, shapely.get_x(shapes))
        np.testing.assert_array_equal(y, shapely.get_y(shapes))


def test_texts_that_are_no_points() -> None:
    texts = [
        "",
        "POINT EMPTY",
        "POINT (1)",
        "POINT (1 2 3)",
        "POINT (1e 2)",
        "LINESTRING (0 0, 1 1)",
    ]
    x, y = text_points_xy(pa.array(texts))
    assert np.isnan(x).all()
    assert np.isnan(y).all()


def test_spellings() -> None:
    x, y = text_points_xy(pa.array([" point(-.5 2.)", "POINT  ( +1e1  -0 ) "]))
    assert (x.tolist(), y.tolist()) == ([-0.5, 10.0], [2.0, 0.0])
