"""Items by box and by time: against shapely, rasterio's transformations and Python's datetimes."""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from rasterio.crs import CRS
from rasterio.warp import transform

from comal import tortilla
from comal.errors import InvalidInputError, InvalidMetadataError
from comal.tortilla import spec
from comal.tortilla.frame import TortillaFrame
from tests.tortilla import build
from tests.tortilla.build import Item

_EDGE = 60
_SURE = 1e-3
"""Degrees by which an outline must miss or meet a box for the oracle to be sure."""

Raster = tuple[str, list[float], list[int]]


def _opened(folder: Path, rows: list[dict[str, Any]]) -> TortillaFrame:
    path = folder / "placed.tortilla"
    items = [Item(f"i{n}", b"x", more=more) for n, more in enumerate(rows)]
    path.write_bytes(build.built(items))
    return tortilla.open(path)


def _placed(raster: Raster) -> dict[str, Any]:
    crs, affine, shape = raster
    return {"stac:crs": crs, "stac:geotransform": affine, "stac:raster_shape": shape}


def _ids(frame: TortillaFrame) -> list[str]:
    found: list[str] = frame[spec.ID].to_pylist()
    return found


def _outline(raster: Raster) -> Any:
    """The outline in degrees, with longitudes that go on behind 180."""
    crs, affine, (rows, columns) = raster
    t = np.arange(_EDGE) / _EDGE
    one, zero = np.ones(_EDGE), np.zeros(_EDGE)
    u = np.concatenate([t, one, 1 - t, zero]) * columns
    v = np.concatenate([zero, t, one, 1 - t]) * rows
    x = affine[0] + u * affine[1] + v * affine[2]
    y = affine[3] + u * affine[4] + v * affine[5]
    lon, lat = transform(CRS.from_user_input(crs), CRS.from_epsg(4326), x, y)
    return shapely.Polygon(np.column_stack([np.unwrap(lon, period=360), lat]))


def _windows(box: tuple[float, float, float, float]) -> Any:
    west, south, east, north = box
    east = east if west <= east else east + 360
    turns = (-720, -360, 0, 360, 720)
    return shapely.union_all([shapely.box(west + t, south, east + t, north) for t in turns])


def _rasters() -> list[Raster]:
    """Scenes of 100 km and chips of 1 km, rotated and straight, many at the antimeridian."""
    random = np.random.default_rng(7)
    found: list[Raster] = []
    for zone, size, turn in itertools.product((1, 2, 31, 60), (1_000, 100_000), (0.0, 0.4)):
        for _ in range(6):
            step = size / 100
            x, y = random.uniform(180_000, 820_000), random.uniform(1e6, 7e6)
            cos, sin = np.cos(turn) * step, np.sin(turn) * step
            found.append((f"EPSG:{32600 + zone}", [x, cos, sin, y, sin, -cos], [100, 100]))
    for west in (-180.0, -175.5, -3.0, 170.0, 175.0, 350.0):
        affine = [west, 0.1, 0.0, 12.0, 0.0, -0.1]
        found += [("EPSG:4326", affine, [40, 90]), ("OGC:CRS84", affine, [10, 10])]
    return found


def _boxes() -> list[tuple[float, float, float, float]]:
    random = np.random.default_rng(8)
    found = [(-180.0, -90.0, 180.0, 90.0), (170.0, -90.0, -170.0, 90.0), (179.9, 0.0, -179.9, 70.0)]
    for _ in range(60):
        west = random.choice([random.uniform(-180, -170), random.uniform(165, 180), 2.0])
        south = random.uniform(5, 60)
        width, height = random.choice([0.05, 0.5, 5.0], 2)
        east = west + width
        found.append((west, south, east - 360 if east > 180 else east, south + height))
    return found


def test_outlines_meet_boxes(tmp_path: Path) -> None:
    rasters = _rasters()
    frame = _opened(tmp_path, [_placed(raster) for raster in rasters])
    outlines = np.array([_outline(raster) for raster in rasters])
    sure = met = 0
    for box in _boxes():
        found = {int(name[1:]) for name in _ids(frame.filter_bbox(*box))}
        window = _windows(box)
        certainly = shapely.intersects(shapely.buffer(outlines, -_SURE), window)
        perhaps = shapely.intersects(shapely.buffer(outlines, _SURE), window)
        assert set(np.flatnonzero(certainly).tolist()) <= found, box
        assert found <= set(np.flatnonzero(perhaps).tolist()), box
        sure += int((certainly == perhaps).sum())
        met += int(certainly.sum())
    assert sure > 0.98 * len(rasters) * len(_boxes())
    assert met > 150


def test_a_corner_of_the_box_alone_is_not_met(tmp_path: Path) -> None:
    """A raster turned by 45 degrees leaves the corners of its box free."""
    step = 0.01 / np.sqrt(2)
    raster: Raster = ("EPSG:4326", [0.0, step, step, 0.0, step, -step], [100, 100])
    frame = _opened(tmp_path, [_placed(raster)])
    assert len(frame.filter_bbox(0.6, 0.0, 0.8, 0.1)) == 1
    assert len(frame.filter_bbox(0.01, 0.65, 0.05, 0.7)) == 0
    assert len(frame.filter_bbox(-1, -1, 2, 2)) == 1


def test_over_a_pole(tmp_path: Path) -> None:
    raster: Raster = ("EPSG:3031", [-1e6, 1e4, 0.0, 1e6, 0.0, -1e4], [200, 200])
    frame = _opened(tmp_path, [_placed(raster)])
    for box in ((0, -90, 1, -89), (120, -86, 130, -85), (170, -89, -170, -88)):
        assert len(frame.filter_bbox(*box)) == 1
    assert len(frame.filter_bbox(-180, -70, 180, 90)) == 0


def test_centres_where_there_is_no_outline(tmp_path: Path) -> None:
    scene: Raster = ("EPSG:4326", [10.0, 0.1, 0.0, 50.0, 0.0, -0.1], [10, 10])
    frame = _opened(
        tmp_path,
        [
            {**_placed(scene), "stac:centroid": "POINT (-100 0)"},
            {"stac:centroid": "POINT (179.5 1e0)"},
            {"stac:centroid": "point(-179.5 1)"},
            {"stac:centroid": "POINT EMPTY"},
            {},
        ],
    )
    assert _ids(frame.filter_bbox(-180, -90, 180, 90)) == ["i0", "i1", "i2"]
    assert _ids(frame.filter_bbox(179, 0, -179, 2)) == ["i1", "i2"]
    assert _ids(frame.filter_bbox(179.5, 1, 179.5, 1)) == ["i1"]
    assert _ids(frame.filter_bbox(10.9, 49.5, 30, 60)) == ["i0"]
    assert _ids(frame.filter_bbox(-101, -1, -99, 1)) == []
    assert _ids(frame.filter_bbox(-101, -1, -99, 1, geometry_col="stac:centroid")) == ["i0"]
    assert _ids(frame.filter_bbox(-180, -90, 180, 90)[1:].filter_bbox(179, 0, 180, 2)) == ["i1"]


def test_columns_of_shapes(tmp_path: Path) -> None:
    shapes = [shapely.box(0, 0, 10, 10), shapely.Point(20, 20), None]
    rows = [{"area": None if shape is None else shape.wkb} for shape in shapes]
    frame = _opened(tmp_path, rows)
    assert _ids(frame.filter_bbox(9, 9, 20, 20, geometry_col="area")) == ["i0", "i1"]
    assert _ids(frame.filter_bbox(11, 9, 19, 20, geometry_col="area")) == []


def test_without_places(tmp_path: Path) -> None:
    """Besides what `samples/test_frames.py` asks of every frame."""
    frame = _opened(tmp_path, [{"n": 1, "flag": True}])
    with pytest.raises(InvalidInputError, match="nothing of where") as caught:
        frame.filter_bbox(0, 0, 1, 1)
    assert "stac=True" in str(caught.value.hint)
    assert "stac:centroid" in str(caught.value.expected)
    with pytest.raises(InvalidInputError, match="no time"):
        frame.filter_datetime("2020-01-01", time_col="flag")
    for box in ((0, 1, 1, 0), (float("nan"), 0, 1, 1), (0, -91, 1, 1)):
        with pytest.raises(InvalidInputError):
            frame.filter_bbox(*box)


def test_broken_places(tmp_path: Path) -> None:
    affine = [0.0, 1.0, 0.0, 0.0, 0.0, -1.0]
    unknown = _opened(tmp_path, [_placed(("EPSG:0", affine, [1, 1]))])
    with pytest.raises(InvalidMetadataError, match="place of a sample"):
        unknown.filter_bbox(0, 0, 1, 1)
    short = _opened(tmp_path, [_placed(("EPSG:4326", affine[:5], [1, 1]))])
    with pytest.raises(InvalidMetadataError, match="place of a sample"):
        short.filter_bbox(0, 0, 1, 1)
    with pytest.warns(tortilla.TortillaWarning):
        texts = _opened(tmp_path, [{**_placed(("EPSG:4326", affine, [1, 1])), "stac:crs": 4326}])
    with pytest.raises(InvalidMetadataError, match="wrong types"):
        texts.filter_bbox(0, 0, 1, 1)


TIMES = [
    dt.datetime(2022, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2023, 1, 1, tzinfo=dt.UTC),
    dt.datetime(2023, 6, 1, 12, 30, tzinfo=dt.UTC),
    dt.datetime(2023, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    None,
]
RANGES = {
    "2023-01-01/2023-12-31": [1, 2, 3],
    "2023-01-01/..": [1, 2, 3, 4],
    "../2023-01-01": [0, 1],
    "2023-06-01": [2],
    "2023-06-01T12:30:00Z": [2],
    "2023-06-01T14:30:00+02:00": [2],
    "2023-06-01T12:30:00.5/2023-06-02": [],
    "2023-06-01T12:00:00/2023-06-01T13:00:00": [2],
    "1890-01-01/1900-01-01": [],
}


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.timestamp("us", "UTC")])
@pytest.mark.parametrize(("text", "expected"), RANGES.items())
def test_times(tmp_path: Path, kind: Any, text: str, expected: list[int]) -> None:
    numbers = [None if one is None else one.timestamp() for one in TIMES]
    whole = [None if one is None else int(one) for one in numbers]
    values = TIMES if pa.types.is_timestamp(kind) else whole if kind == pa.int64() else numbers
    frame = _opened(tmp_path, [{"stac:time_start": one, "other": one} for one in values])
    names = [f"i{row}" for row in expected]
    assert _ids(frame.filter_datetime(text)) == names
    assert _ids(frame.filter_datetime(text, time_col="other")) == names


def test_times_far_away(tmp_path: Path) -> None:
    """Seconds that are no microseconds of 64 bits are as far away as they say."""
    frame = _opened(tmp_path, [{"stac:time_start": one} for one in (2**62, -(2**62), 0)])
    assert _ids(frame.filter_datetime("1970-01-01/..")) == ["i0", "i2"]
    assert _ids(frame.filter_datetime("../1970-01-01")) == ["i1", "i2"]
    assert _ids(frame.filter_datetime((dt.date(1970, 1, 1), None))[::-1]) == ["i2", "i0"]


def test_filters_follow_each_other_and_lead_to_bytes(tmp_path: Path) -> None:
    day = dt.datetime(2023, 5, 4, tzinfo=dt.UTC)
    samples = [
        tortilla.Sample(
            f"s{n}",
            "BYTES",
            path=bytes([n + 1]),
            stac_data={
                "crs": "EPSG:32631",
                "geotransform": (500_000 + 200_000 * n, 10, 0, 5e6, 0, -10),
                "raster_shape": (100, 100),
                "time_start": day + dt.timedelta(days=n % 2),
            },
        )
        for n in range(3)
    ]
    nested = tortilla.Sample("roi", path=samples)
    made = tortilla.create(
        [nested, tortilla.Sample("plain", "BYTES", b"p")], tmp_path / "x.tortilla"
    )
    frame = tortilla.open(made)
    assert _ids(frame.filter_bbox(0, 40, 10, 50)) == ["roi"]  # by the first item in it
    flat = frame.flatten()
    east = flat.filter_bbox(5, 40, 10, 50).filter_datetime("2023-05-05")
    assert east[spec.PATH].to_pylist() == ["roi/s1"]
    assert east.read_bytes() == [b"\x02"]
    part = tortilla.compile(flat.filter_datetime("../2023-05-04"), tmp_path / "part.tortilla")
    assert _ids(tortilla.open(part)) == ["s0", "s2"]
