from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError
from comal.geo import footprints
from comal.geo.boxes import arc_width, boxes_intersect
from comal.geo.crs import projection

UTM18S = ([300000.0, 10, 0, 8700000, 0, -10], [3, 16, 16])


def boxes(crs: str, affine: list[float], shape: list[int]) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = np.array(footprints.footprints(crs, [affine], [shape])).T[0]
    return found


def test_rotation_counts() -> None:
    lon, lat = footprints.centroids("EPSG:4326", [[10, 0, 1, 50, 1, 0]], [[4, 2]])
    assert (lon[0], lat[0]) == (12, 51)  # columns go north, rows go east
    assert boxes("EPSG:4326", [10, 0, 1, 50, 1, 0], [4, 2]).tolist() == [10, 50, 14, 52]


def test_rows_of_different_crs() -> None:
    crs = pa.chunked_array([["EPSG:4326", None], ["EPSG:32718", "EPSG:4326"]])
    affine = pa.array([[0, 1, 0, 0, 0, -1], UTM18S[0], UTM18S[0], None], pa.list_(pa.float64()))
    shape = pa.array([[2, 2], [16, 16], [3, 16, 16], [2, 2]], pa.list_(pa.int64()))
    lon, lat = footprints.centroids(crs, affine, shape)
    assert lon[:1].tolist() == [1]
    assert np.isnan(lon).tolist() == [False, True, False, True]
    assert (lon[2], lat[2]) == pytest.approx((-76.83457071558132, -11.754688377382596), abs=1e-12)
    west, south, east, north = footprints.footprints(crs, affine, shape)
    assert (west[0], south[0], east[0], north[0]) == (0, -2, 2, 0)
    assert np.isnan(north).tolist() == [False, True, False, True]
    sliced = footprints.centroids(crs.slice(2, 1), affine.slice(2, 1), shape.slice(2, 1))
    assert sliced[0][0] == lon[2]


@pytest.mark.parametrize(
    ("crs", "affine", "shape", "expected"),
    [
        ("EPSG:4326", [-180, 1, 0, 90, 0, -1], [180, 360], [-180, -90, 180, 90]),
        ("EPSG:4326", [0, 1, 0, 90, 0, -1], [180, 360], [-180, -90, 180, 90]),
        ("EPSG:4326", [170, 1, 0, 10, 0, -1], [20, 20], [170, -10, -170, 10]),
        ("EPSG:4326", [-1, 1, 0, 10, 0, -1], [2, 2], [-1, 8, 1, 10]),
        ("OGC:CRS84", [-1, 1, 0, 10, 0, -1], [2, 2], [-1, 8, 1, 10]),
        ("EPSG:4258", [-1, 1, 0, 10, 0, -1], [2, 2], [-1, 8, 1, 10]),
        (
            "EPSG:3857",
            [
                -20037508.342789244,
                400750.16685578488,
                0,
                20037508.342789244,
                0,
                -400750.16685578488,
            ],
            [100, 100],
            [-180, -85.0511287798066, 180, 85.0511287798066],
        ),
        (
            "EPSG:32660",
            [700000, 1000, 0, 2000000, 0, -1000],
            [400, 400],
            [178.855501, 14.407032, -177.339594, 18.079450],
        ),
        # Polar stereographic: the pole inside, at a corner, and on the other half of the earth.
        ("EPSG:3413", [-2e6, 1000, 0, 2e6, 0, -1000], [4000, 4000], [-180, 64.31174, 180, 90]),
        ("EPSG:3413", [0, 1000, 0, 0, 0, -1000], [1000, 1000], [-45, 76.998816, 45, 90]),
        ("EPSG:3031", [-2e6, 1000, 0, 2e6, 0, -1000], [4000, 4000], [-180, -90, 180, -64.386164]),
    ],
)
def test_boxes(crs: str, affine: list[float], shape: list[int], expected: list[float]) -> None:
    np.testing.assert_allclose(boxes(crs, affine, shape), expected, atol=1e-5)


def test_edges_bulge() -> None:
    """The northern edge of a wide UTM raster bulges behind its corners; the box must hold it."""
    affine, shape = [200000.0, 1000, 0, 7000000, 0, -1000], [100, 600]
    to_lonlat = pyproj.Transformer.from_crs("EPSG:32633", "EPSG:4326", always_xy=True).transform
    x = np.linspace(200000, 800000, 10001)
    _, lat = to_lonlat(x, np.full_like(x, 7000000.0))
    _, _, _, north = boxes("EPSG:32633", affine, shape)
    assert north == pytest.approx(lat.max(), abs=1e-5)
    assert north > max(lat[0], lat[-1]) + 0.01


def test_a_raster_that_leaves_the_earth_has_the_box_of_its_visible_part() -> None:
    disc = "+proj=geos +h=35785831 +lon_0=0 +sweep=y"
    west, south, east, north = boxes(disc, [-5.5e6, 3000, 0, 5.5e6, 0, -3000], [3667, 3667])
    assert west < -60
    assert east > 60
    assert south < -60
    assert north > 60
    assert west < east


@given(
    lon=st.floats(-180, 180),
    lat=st.floats(-79, 83),
    side=st.sampled_from([100.0, 5000.0, 80000.0]),
    angle=st.floats(0, 90),
)
@settings(max_examples=60, deadline=None)
def test_the_box_holds_every_place_of_the_raster(
    lon: float, lat: float, side: float, angle: float
) -> None:
    zone = min(60, int((lon + 180) // 6) + 1)
    crs = f"EPSG:{32600 + zone if lat >= 0 else 32700 + zone}"
    x, y = projection(crs).from_lonlat([lon], [lat])
    cosine, sine = np.cos(np.radians(angle)) * side / 8, np.sin(np.radians(angle)) * side / 8
    affine = [float(x[0]), cosine, sine, float(y[0]), sine, -cosine]
    box = footprints.footprints(crs, [affine], [[8, 8]])
    u, v = (part.ravel() for part in np.meshgrid(np.linspace(0, 1, 9), np.linspace(0, 1, 9)))
    px, py = footprints.places(np.array([affine]), np.array([[8.0, 8.0]]), u, v)
    plon, plat = projection(crs).to_lonlat(px[0], py[0])
    slack = 2e-5  # chords of the densified edge
    grown = (box[0][0] - slack, box[1][0] - slack, box[2][0] + slack, box[3][0] + slack)
    assert boxes_intersect(plon, plat, plon, plat, grown).all()
    assert arc_width(box[0], box[2])[0] < 60


@pytest.mark.parametrize(
    ("affine", "shape"),
    [([[1, 2, 3]], [[1, 2]]), ([UTM18S[0]], [[1]])],
)
def test_wrong_lengths(affine: Any, shape: Any) -> None:
    with pytest.raises(InvalidInputError, match="wrong length"):
        footprints.centroids("EPSG:4326", affine, shape)
    with pytest.raises(InvalidInputError, match="row 0"):
        footprints.centroids("EPSG:4326", pa.array(affine, pa.list_(pa.float64())), pa.array(shape))


def test_columns_must_have_one_length() -> None:
    with pytest.raises(InvalidInputError, match="length"):
        footprints.centroids(pa.array(["EPSG:4326"] * 2), [UTM18S[0]], [UTM18S[1]])
