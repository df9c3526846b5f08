from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.geo.shapes import cut, geometry_boxes, geometry_centroids
from tests.support import wkb_of

NAN = float("nan")


def column(*texts: str | None) -> pa.Array:
    return wkb_of([None if text is None else shapely.from_wkt(text) for text in texts])


@pytest.mark.parametrize(
    ("text", "box", "centre"),
    [
        ("POINT (1 2)", (1, 2, 1, 2), (1, 2)),
        ("POLYGON ((-1 0, 1 0, 1 10, -1 10, -1 0))", (-1, 0, 1, 10), (0, 5)),
        ("POLYGON ((170 0, -170 0, -170 10, 170 10, 170 0))", (170, 0, -170, 10), (180, 5)),
        ("POLYGON ((170 0, 190 0, 190 10, 170 10, 170 0))", (170, 0, -170, 10), (180, 5)),
        ("POLYGON ((180 0, -170 0, -170 10, 180 10, 180 0))", (-180, 0, -170, 10), (-175, 5)),
        (
            "MULTIPOLYGON (((170 0, 180 0, 180 9, 170 0)), ((-180 0, -170 0, -180 9, -180 0)))",
            (170, 0, -170, 9),
            (180, 3),
        ),
        (
            "POLYGON ((-180 -90, 180 -90, 180 90, -180 90, -180 -90))",
            (-180, -90, 180, 90),
            (0, 0),
        ),
        ("LINESTRING (179 0, -179 2)", (179, 0, -179, 2), (180, 1)),
        ("MULTIPOINT (-5 0, 4 1)", (-5, 0, 4, 1), (-0.5, 0.5)),
        ("GEOMETRYCOLLECTION (POINT (1 2), MULTIPOINT (3 4, 5 6))", (1, 2, 5, 6), (3, 4)),
        ("POLYGON EMPTY", (NAN,) * 4, (NAN, NAN)),
        (None, (NAN,) * 4, (NAN, NAN)),
    ],
)
def test_lonlat(text: str | None, box: tuple[float, ...], centre: tuple[float, float]) -> None:
    found = np.array(geometry_boxes(column(text)))[:, 0]
    np.testing.assert_allclose(found, box)
    lon, lat = geometry_centroids(column(text))
    if centre[0] == 180:
        assert abs(lon[0]) == pytest.approx(180)
    else:
        np.testing.assert_allclose(lon, [centre[0]], atol=1e-12)
    np.testing.assert_allclose(lat, [centre[1]])


def test_a_ring_around_a_pole_holds_it() -> None:
    cap = "POLYGON ((0 80, 90 80, 180 80, -90 80, 0 80))"
    antarctica = "POLYGON ((-180 -70, 0 -71, 180 -70, 180 -90, -180 -90, -180 -70))"
    found = np.array(geometry_boxes(column(cap, antarctica))).T
    assert found.tolist() == [[-180, 80, 180, 90], [-180, -90, 180, -70]]


def test_without_the_check_coordinates_stand_as_they_are() -> None:
    wide = column("POLYGON ((170 0, -170 0, -170 10, 170 10, 170 0))")
    assert geometry_centroids(wide, check_antimeridian=False)[0].tolist() == [0]


def test_projected_geometries() -> None:
    text = shapely.box(700000, 1600000, 1100000, 2000000).wkt
    crs = pa.array(["EPSG:32660", "EPSG:4326", None])
    found = np.array(geometry_boxes(column(text, "POINT (1 2)", "POINT (1 2)"), crs)).T
    np.testing.assert_allclose(found[0], [178.8555, 14.40703, -177.3396, 18.07945], atol=1e-4)
    assert found[1].tolist() == [1, 2, 1, 2]
    assert np.isnan(found[2]).all()
    lon, _ = geometry_centroids(column(text), "EPSG:32660")
    assert -180 <= lon[0] < -179 or lon[0] > 178


def test_centroid_is_taken_in_the_crs() -> None:
    """As existing writers do: the centroid of the projected polygon, then transformed."""
    text = shapely.box(300000, 8699840, 300160, 8700000).wkt
    lon, lat = geometry_centroids(column(text), "EPSG:32718")
    assert lon[0] == pytest.approx(-76.83457071558132, abs=1e-12)
    assert lat[0] == pytest.approx(-11.754688377382596, abs=1e-12)


rings = st.tuples(
    st.integers(-179, 179), st.integers(-80, 70), st.integers(1, 90), st.integers(1, 10)
)


@given(st.lists(rings, min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_rectangles_anywhere_on_the_circle(found: list[tuple[int, int, int, int]]) -> None:
    """A rectangle keeps its width, whether its longitudes are written over 180 or wrapped."""

    def rectangle(wrapped: bool, part: Any) -> Any:
        west, south, width, height = part
        east = west + width
        if wrapped and east > 180:
            east -= 360
        return shapely.Polygon(
            [(west, south), (east, south), (east, south + height), (west, south + height)]
        )

    plain = geometry_boxes(wkb_of([rectangle(False, part) for part in found]))
    wrapped = geometry_boxes(wkb_of([rectangle(True, part) for part in found]))
    expected = [[w, s, w + dx if w + dx <= 180 else w + dx - 360, s + dy] for w, s, dx, dy in found]
    np.testing.assert_allclose(np.array(plain).T, expected)
    np.testing.assert_allclose(np.array(wrapped).T, expected)


@pytest.mark.parametrize("far", [1e7, 1e300, np.inf])
def test_what_reaches_around_countless_worlds_is_not_cut(far: float) -> None:
    shapes = np.array([shapely.Polygon([(0, 0), (far, 0), (1, 1)]), shapely.box(170, 0, 190, 1)])
    found = cut(shapes)
    assert found[0] is shapes[0]
    assert found[1].equals(
        shapely.union(shapely.box(170, 0, 180, 1), shapely.box(-180, 0, -170, 1))
    )


def test_a_place_that_is_no_number_spoils_no_other() -> None:
    nowhere = shapely.set_coordinates(
        shapely.from_wkt("GEOMETRYCOLLECTION (POINT (1 2), POLYGON ((0 0, 1 0, 1 1, 0 0)))"),
        np.array([[1, 2], [0, 0], [np.nan, 0], [1, np.inf], [0, 0]]),
    )
    rows = wkb_of([nowhere, shapely.box(2, 2, 4, 4)])
    lon, lat = geometry_centroids(rows)
    np.testing.assert_array_equal([lon, lat], [[NAN, 3], [NAN, 3]])
    np.testing.assert_array_equal(np.array(geometry_boxes(rows))[:, 1], [2, 2, 4, 4])
