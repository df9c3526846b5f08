from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidMetadataError, QueryError
from comal.geo import wkb
from comal.query import columns

numbers = st.floats(-1e9, 1e9)


@given(st.lists(st.tuples(numbers, numbers), max_size=30))
@settings(max_examples=60, deadline=None)
def test_points_are_those_of_shapely(places: list[tuple[float, float]]) -> None:
    x, y = np.array(places, np.float64).reshape(-1, 2).T
    column = wkb.point(x, y)
    assert column.to_pylist() == [shapely.to_wkb(shapely.Point(*p), byte_order=1) for p in places]
    found = wkb.points_xy(column)
    assert np.array_equal(found[0], x)
    assert np.array_equal(found[1], y)
    assert np.array_equal(np.stack(wkb.bounds(column)), np.stack([x, y, x, y]))


def odd_points() -> pa.Array:
    point = shapely.Point(3, 4)
    return pa.array(
        [
            wkb.point([1], [2])[0].as_py(),
            None,
            struct.pack(">BIdd", 0, 1, 5, 6),  # big-endian
            shapely.to_wkb(shapely.set_srid(point, 4326), include_srid=True),
            shapely.to_wkb(shapely.Point(7, 8, 9)),
            shapely.to_wkb(shapely.Point(10, 11, 12), flavor="iso"),
            shapely.to_wkb(shapely.from_wkt("POINT EMPTY")),
            shapely.to_wkb(shapely.box(0, 0, 2, 1)),
        ],
        pa.binary(),
    )


@pytest.mark.parametrize(
    "as_column",
    [
        lambda a: a,
        lambda a: a.cast(pa.large_binary()),
        lambda a: pa.chunked_array([a.slice(0, 3), a.slice(3)]),
        lambda a: pa.concat_arrays([a, a]).slice(len(a)),
        lambda a: a.cast(pa.binary_view()),
    ],
)
def test_every_kind_of_point(as_column: Any) -> None:
    column = as_column(odd_points())
    assert [one is None for one in wkb.to_shapely(column)] == column.is_null().to_pylist()
    x, y = wkb.points_xy(column)
    nan = np.nan
    np.testing.assert_array_equal(x, [1, nan, 5, 3, 7, 10, nan, nan])
    np.testing.assert_array_equal(y, [2, nan, 6, 4, 8, 11, nan, nan])
    west, south, east, north = wkb.bounds(column)
    np.testing.assert_array_equal(west, [1, nan, 5, 3, 7, 10, nan, 0])
    np.testing.assert_array_equal(east, [1, nan, 5, 3, 7, 10, nan, 2])
    np.testing.assert_array_equal(north, [2, nan, 6, 4, 8, 11, nan, 1])
    np.testing.assert_array_equal(south, [2, nan, 6, 4, 8, 11, nan, 0])


def test_null_points() -> None:
    column = wkb.point([1, np.nan, 3], [1, 2, np.nan])
    assert column.null_count == 2
    column.validate(full=True)
    assert np.isnan(wkb.points_xy(column)[0]).tolist() == [False, True, True]
    assert len(wkb.points_xy(pa.array([], pa.binary()))[0]) == 0
    assert np.isnan(wkb.points_xy(pa.nulls(2, pa.binary()))[0]).all()


def test_broken_rows_are_named() -> None:
    column = pa.array([wkb.point([1], [1])[0].as_py(), b"\x01\x02", None], pa.binary())
    with pytest.raises(InvalidMetadataError, match="stac:centroid, row 1"):
        wkb.points_xy(column, "stac:centroid")
    with pytest.raises(InvalidMetadataError, match="row 1"):
        wkb.bounds(column)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_curves_are_refused_by_row(depth: int) -> None:
    """An arc (ISO 13249-3, code 8), which shapely reads only within a collection."""
    arc = struct.pack("<BII6d", 1, 8, 3, 0, 0, 1, 1, 2, 0)
    for _ in range(depth):
        arc = struct.pack("<BII", 1, 7, 1) + arc
    column = pa.array([wkb.point([1], [1])[0].as_py(), None, arc], pa.binary())
    for read in (wkb.to_shapely, wkb.bounds):
        with pytest.raises(InvalidMetadataError, match="curves: places, row 2") as caught:
            read(column, "places")
        assert "CONVERT_TO_LINEAR" in str(caught.value)
    with pytest.raises(QueryError, match="not a geometry"):
        columns.shapes(pa.array([arc]))


@pytest.mark.parametrize("values", [[1], [[1]], [{"x": 1}], [True]])
@pytest.mark.parametrize("read", [wkb.bounds, wkb.points_xy, wkb.to_shapely])
def test_a_column_of_something_else(values: list[Any], read: Any) -> None:
    with pytest.raises(InvalidMetadataError, match="no"):
        read(pa.array(values))


# -- text ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.none() | st.tuples(numbers, numbers), max_size=20))
def test_points_as_text_are_those_of_shapely(places: list[tuple[float, float] | None]) -> None:
    texts = [None if place is None else f"POINT ({place[0]!r} {place[1]!r})" for place in places]
    for column in (pa.array(texts, pa.string()), pa.chunked_array([texts], pa.string())):
        x, y = wkb.text_points_xy(column)
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
    x, y = wkb.text_points_xy(pa.array(texts))
    assert np.isnan(x).all()
    assert np.isnan(y).all()


def test_spellings_of_points() -> None:
    x, y = wkb.text_points_xy(pa.array([" point(-.5 2.)", "POINT  ( +1e1  -0 ) "]))
    assert (x.tolist(), y.tolist()) == ([-0.5, 10.0], [2.0, 0.0])
