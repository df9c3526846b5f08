"""STAC and ISTAC."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.geo import wkb
from comal.taco.extensions import ISTAC, STAC
from comal.taco.extensions.base import RowSample, columns_for, list_of
from tests.raster.rasters import write

SAMPLE = RowSample("a", None, "FILE")
START, END = 1_672_531_200_000_000, 1_672_534_800_000_001
GRID: dict[str, Any] = {
    "crs": "EPSG:32718",
    "tensor_shape": (3, 16, 16),
    "geotransform": (300000, 10, 0, 8700000, 0, -10),
}
CENTRE = bytes.fromhex("0101000000c0674a9b693553c0220fd783668227c0")


def test_stac_vector() -> None:
    found = STAC(**GRID, time_start=START, time_end=END)(SAMPLE)
    assert found.column_names == [
        "stac:crs",
        "stac:tensor_shape",
        "stac:geotransform",
        "stac:time_start",
        "stac:centroid",
        "stac:time_end",
        "stac:time_middle",
    ]
    time, text = pa.timestamp("us"), pa.string()
    shape, affine = list_of(pa.int64()), list_of(pa.float64())
    assert found.schema.types == [text, shape, affine, time, pa.binary(), time, time]
    row = found.to_pylist()[0]
    assert row["stac:centroid"] == CENTRE
    assert row["stac:tensor_shape"] == [3, 16, 16]
    assert found["stac:time_middle"].cast(pa.int64()).to_pylist() == [(START + END) // 2]
    assert all(field.metadata[b"description"] for field in found.schema)


@pytest.mark.parametrize(
    "start", [START, "2023-01-01T00:00:00Z", dt.datetime(2023, 1, 1), np.datetime64("2023-01-01")]
)
def test_stac_takes_every_kind_of_time(start: Any) -> None:
    found = STAC(**GRID, time_start=start)(SAMPLE)
    assert found["stac:time_start"].cast(pa.int64()).to_pylist() == [START]
    assert found["stac:time_end"].to_pylist() == found["stac:time_middle"].to_pylist() == [None]


def test_given_values_are_kept() -> None:
    centre = wkb.point([1], [2])[0].as_py()
    found = STAC(**GRID, time_start=START, time_end=END, time_middle=START + 5, centroid=centre)
    row = found(SAMPLE)
    assert row["stac:centroid"].to_pylist() == [centre]
    assert row["stac:time_middle"].cast(pa.int64()).to_pylist() == [START + 5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"crs": "EPSG:999999"}, "EPSG:999999"),
        ({"tensor_shape": (16,)}, "tensor_shape"),
        ({"tensor_shape": (3, 0, 16)}, "the raster is empty"),
        ({"tensor_shape": (-3, 16, 16)}, "the raster is empty"),
        ({"tensor_shape": "399"}, "tensor_shape"),
        ({"tensor_shape": (3, 1.5, 16)}, "tensor_shape"),
        ({"crs": 4326}, "the CRS is not text"),
        ({"geotransform": (1, 2, 3)}, "geotransform"),
        ({"geotransform": (300000, 10, 0, 8700000, 0, 0)}, "no area"),
        ({"geotransform": (300000, np.nan, 0, 8700000, 0, -10)}, "no area"),
        ({"geotransform": (1e12, 10, 0, 8700000, 0, -10)}, "not on the earth"),
        ({"time_start": END, "time_end": START}, "after time_end"),
        ({"time_start": "soon"}, "time_start"),
        ({"time_start": None}, "time_start"),
        ({"crs": None}, "crs"),
        ({"centroid": wkb.point([181], [0])[0].as_py()}, "not on the earth"),
        ({"centroid": wkb.point([0], [91])[0].as_py()}, "not on the earth"),
    ],
)
def test_stac_refuses(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        STAC(**{**GRID, "time_start": START, **change})


def test_messages_name_the_sample() -> None:
    with pytest.raises(InvalidInputError, match="chip_7"):
        STAC(**GRID, time_start=END, time_end=START, sample_id="chip_7")


def test_schema_only_needs_nothing() -> None:
    for extension in (STAC(schema_only=True), ISTAC(schema_only=True)):
        assert set(extension(SAMPLE).to_pylist()[0].values()) == {None}
        table = pa.table({"id": ["a", "b"]})
        assert columns_for(extension, table).num_rows == 2


def test_the_same_place_for_a_table() -> None:
    table = pa.table({"id": ["a", "b", "c"]})
    found = columns_for(STAC(**GRID, time_start=START), table)
    assert found["stac:centroid"].to_pylist() == [CENTRE] * 3


def test_from_raster(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", np.zeros((3, 16, 16), np.uint8))
    found = STAC.from_raster(path, time_start="2023-01-01")
    assert found(SAMPLE).to_pylist() == STAC(**GRID, time_start=START)(SAMPLE).to_pylist()
    bare = write(tmp_path / "b.png", np.zeros((4, 4), np.uint8), driver="PNG", affine=None)
    with pytest.raises(InvalidInputError, match=r"b\.png"):
        STAC.from_raster(bare, time_start=START)
    with pytest.raises(ObjectNotFoundError, match=r"c\.tif"):
        STAC.from_raster(tmp_path / "c.tif", time_start=START)


BOX = shapely.box(300000, 8699840, 300160, 8700000)


def test_istac_vector() -> None:
    found = ISTAC("EPSG:32718", BOX.wkb, START, END)(SAMPLE)
    assert found.column_names == [
        "istac:crs",
        "istac:geometry",
        "istac:time_start",
        "istac:time_end",
        "istac:time_middle",
        "istac:centroid",
    ]
    assert found["istac:geometry"].to_pylist() == [BOX.wkb]
    x, y = wkb.points_xy(found["istac:centroid"])
    expected = wkb.points_xy(pa.array([CENTRE]))
    np.testing.assert_allclose((x[0], y[0]), (expected[0][0], expected[1][0]), atol=1e-12)
    assert ISTAC("EPSG:32718", BOX, START)(SAMPLE)["istac:geometry"].to_pylist() == [BOX.wkb]


CROSSING = "POLYGON ((170 0, -170 0, -170 10, 170 10, 170 0))"
GREENWICH = "POLYGON ((-1 50, 2 50, 2 52, -1 52, -1 50))"


@pytest.mark.parametrize(
    ("text", "check", "lon", "lat"),
    [(CROSSING, True, 180, 5), (CROSSING, False, 0, 5), (GREENWICH, True, 0.5, 51)],
)
def test_antimeridian_and_greenwich(text: str, check: bool, lon: float, lat: float) -> None:
    area = shapely.from_wkt(text)
    found = ISTAC("EPSG:4326", area, START, check_antimeridian=check)(SAMPLE)
    x, y = wkb.points_xy(found["istac:centroid"])
    assert abs(x[0]) == pytest.approx(lon)
    assert y[0] == pytest.approx(lat)


@pytest.mark.parametrize(
    ("geometry", "crs", "words"),
    [
        (b"\x01\x02", "EPSG:4326", "geometry"),
        (shapely.from_wkt("POLYGON EMPTY"), "EPSG:4326", "not on the earth"),
        (shapely.Point(0, 100), "EPSG:4326", "not on the earth"),
        (shapely.Point(0, 1), "EPSG:0", "EPSG:0"),
        (None, "EPSG:4326", "geometry"),
        (shapely.Point(0, 1), 4326, "the CRS is not text"),
    ],
)
def test_istac_refuses(geometry: Any, crs: Any, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ISTAC(crs, geometry, START)
