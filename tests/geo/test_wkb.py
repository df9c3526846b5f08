from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidMetadataError
from comal.geo import wkb

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


def test_the_layout_of_a_point() -> None:
    encoded = wkb.point([-76.83457071558132], [-11.754688377382596])[0].as_py()
    assert encoded.hex() == "0101000000c0674a9b693553c0220fd783668227c0"


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


def test_curves_are_refused_by_row() -> None:
    """An arc, which shapely does not read (ISO 13249-3, code 8)."""
    arc = struct.pack("<BII6d", 1, 8, 3, 0, 0, 1, 1, 2, 0)
    column = pa.array([wkb.point([1], [1])[0].as_py(), None, arc], pa.binary())
    with pytest.raises(InvalidMetadataError, match="curves: places, row 2") as caught:
        wkb.to_shapely(column, "places")
    assert "CONVERT_TO_LINEAR" in str(caught.value)


def test_shapely_both_ways() -> None:
    column = odd_points()
    geometries = wkb.to_shapely(column)
    assert geometries[1] is None
    again = wkb.to_shapely(wkb.from_shapely(geometries))
    assert shapely.equals_exact(geometries[[0, 2, 7]], again[[0, 2, 7]]).all()
    assert wkb.from_shapely([None])[0].as_py() is None


@pytest.mark.parametrize("values", [[1], [[1]], [{"x": 1}], [True]])
@pytest.mark.parametrize("read", [wkb.bounds, wkb.points_xy, wkb.to_shapely])
def test_a_column_of_something_else(values: list[Any], read: Any) -> None:
    with pytest.raises(InvalidMetadataError, match="no"):
        read(pa.array(values))
