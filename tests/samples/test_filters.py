"""Samples by box and by time; outlines of rasters are compared in `test_space.py`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.samples.filters import Period, good_lists
from tests.samples.doors import Door, each_format


def _opened(door: Door, folder: Path, rows: list[dict[str, Any]]) -> Any:
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: pa.array([row.get(name) for row in rows]) for name in names}
    return door.open(folder, {f"i{n}": b"x" for n in range(len(rows))}, columns)


def _placed(crs: str, affine: list[float], shape: list[int]) -> dict[str, Any]:
    return {"stac:crs": crs, "stac:geotransform": affine, "stac:raster_shape": shape}


@each_format
def test_centres_where_there_is_no_outline(door: Door, tmp_path: Path) -> None:
    scene = _placed("EPSG:4326", [10.0, 0.1, 0.0, 50.0, 0.0, -0.1], [10, 10])
    columns = {name: pa.array([value, *[None] * 4]) for name, value in scene.items()}
    places = door.points([(-100, 0), (179.5, 1), (-179.5, 1), None, None])
    tree = {f"i{n}": b"x" for n in range(5)}
    frame = door.open(tmp_path, tree, {"stac:centroid": places, **columns})
    ids = door.ids
    assert ids(frame.filter_bbox(-180, -90, 180, 90)) == ["i0", "i1", "i2"]
    assert ids(frame.filter_bbox(179, 0, -179, 2)) == ["i1", "i2"]
    assert ids(frame.filter_bbox(179.5, 1, 179.5, 1)) == ["i1"]
    assert ids(frame.filter_bbox(1, -10, -1, 10)) == ["i1", "i2"]
    assert ids(frame.filter_bbox(10.9, 49.5, 30, 60)) == ["i0"]
    assert ids(frame.filter_bbox(-101, -1, -99, 1)) == []
    assert ids(frame.filter_bbox(-101, -1, -99, 1, geometry_col="stac:centroid")) == ["i0"]
    assert ids(frame.filter_bbox(-180, -90, 180, 90)[1:].filter_bbox(179, 0, 180, 2)) == ["i1"]
    for box in ((0, 1, 1, 0), (float("nan"), 0, 1, 1), (0, -91, 1, 1)):
        with pytest.raises(InvalidInputError):
            frame.filter_bbox(*box)


@each_format
def test_columns_of_shapes_are_compared_exactly(door: Door, tmp_path: Path) -> None:
    shapes = [
        shapely.Polygon([(0, 0), (10, 0), (0, 10)]),
        shapely.LineString([(0, 0), (10, 10)]),
        shapely.box(175, -5, 185, 5),
        shapely.Point(20, 20),
        None,
    ]
    frame = _opened(door, tmp_path, [{"area": shape and shape.wkb} for shape in shapes])
    for box, wanted in {
        (8, 8, 9, 9): ["i1"],
        (1, 2, 1.5, 2.5): ["i0"],
        (-179, 0, -176, 1): ["i2"],
        (-174, 0, -170, 1): [],
        (9, 9, 20, 20): ["i1", "i3"],
        (11, 9, 19, 20): [],
    }.items():
        assert door.ids(frame.filter_bbox(*box, geometry_col="area")) == wanted
    broken = _opened(door, tmp_path, [{"area": shapely.Point(0, 0).wkb}, {"area": b"\1\2"}])
    with pytest.raises(InvalidMetadataError, match="area"):
        broken.filter_bbox(-1, -1, 2, 2, geometry_col="area")


@each_format
def test_broken_places(door: Door, tmp_path: Path) -> None:
    affine = [0.0, 1.0, 0.0, 0.0, 0.0, -1.0]
    for crs, numbers in (("EPSG:0", affine), ("EPSG:4326", affine[:5])):
        frame = _opened(door, tmp_path, [_placed(crs, numbers, [1, 1])])
        with pytest.raises(InvalidMetadataError, match="place of a sample"):
            frame.filter_bbox(0, 0, 1, 1)


@each_format
def test_hints_name_what_a_writer_could_have_told(door: Door, tmp_path: Path) -> None:
    frame = _opened(door, tmp_path, [{"n": 1, "flag": True}])
    with pytest.raises(InvalidInputError, match="do not say where") as caught:
        frame.filter_bbox(0, 0, 1, 1)
    assert door.name != "tortilla" or "stac=True" in str(caught.value.hint)
    assert "stac:centroid" in str(caught.value.expected)
    with pytest.raises(InvalidInputError, match="not a time"):
        frame.filter_datetime("2020-01-01", time_col="flag")


START = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)
TIMES = [
    dt.datetime(2022, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    START,
    dt.datetime(2023, 6, 1, 12, 30, tzinfo=dt.UTC),
    dt.datetime(2023, 12, 31, 23, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    None,
]
RANGES: list[tuple[Any, list[int]]] = [
    ("2023-01-01/2023-12-31", [1, 2, 3]),
    ("2023-01-01/..", [1, 2, 3, 4]),
    ("../2023-01-01", [0, 1]),
    ("2023-06-01", [2]),
    ("2023-06-01T12:30:00Z", [2]),
    ("2023-06-01T14:30:00+02:00", [2]),
    ("2023-06-01T12:30:00.5/2023-06-02", []),
    ("2023-06-01T12:00:00/2023-06-01T13:00:00", [2]),
    ("1890-01-01/1900-01-01", []),
    ((dt.datetime(2023, 1, 1), dt.datetime(2023, 6, 2)), [1, 2]),
    (np.datetime64("2023-06-01"), [2]),
    ((1_672_531_200_000_000, 1_685_622_600_000_000), [1, 2]),
]


def _columns_of_times(door: Door) -> dict[str, Any]:
    """The same times in columns of every type, all in whole seconds."""
    seconds = [None if time is None else int(time.timestamp()) for time in TIMES]
    stamps = pa.array(TIMES, pa.timestamp("us", "UTC"))
    found = {f"{unit}": stamps.cast(pa.timestamp(unit, "UTC")) for unit in ("s", "ms", "us", "ns")}
    found |= {"naive": stamps.cast(pa.timestamp("us")), "stac:time_start": door.times(seconds)}
    found["texts"] = pa.array([time and time.isoformat() for time in TIMES])
    if door.name == "tortilla":  # numbers are seconds there
        return {**found, "whole": pa.array(seconds), "floats": pa.array(seconds, pa.float64())}
    return {**found, "whole": pa.array([one and one * 1_000_000 for one in seconds])}


@each_format
def test_times(door: Door, tmp_path: Path) -> None:
    columns = _columns_of_times(door)
    frame = door.open(tmp_path, {f"i{n}": b"x" for n in range(len(TIMES))}, columns)
    for when, expected in RANGES:
        names = [f"i{row}" for row in expected]
        assert door.ids(frame.filter_datetime(when)) == names
        for column in columns:
            assert door.ids(frame.filter_datetime(when, time_col=column)) == names, column


@each_format
def test_days_and_times_far_away(door: Door, tmp_path: Path) -> None:
    """Seconds that are no microseconds of 64 bits are as far away as they say."""
    days = pa.array([dt.date(2023, 1, 1), None, dt.date(2023, 1, 2)])
    far = {"day": days, "far": pa.array([2**62, -(2**62), 0])}
    frame = door.open(tmp_path, {f"i{n}": b"x" for n in range(3)}, far)
    assert door.ids(frame.filter_datetime("2023-01-01", time_col="day")) == ["i0"]
    assert door.ids(frame.filter_datetime("2023-01-02/..", time_col="day")) == ["i2"]
    assert door.ids(frame.filter_datetime("1970-01-01/..", time_col="far")) == ["i0", "i2"]
    assert door.ids(frame.filter_datetime("../1970-01-01", time_col="far")) == ["i1", "i2"]
    since = (dt.date(1970, 1, 1), None)
    assert door.ids(frame.filter_datetime(since, time_col="far")[::-1]) == ["i2", "i0"]


@given(
    st.lists(st.one_of(st.none(), st.integers(-(10**15), 10**15)), max_size=30),
    st.one_of(st.none(), st.integers(-(10**15), 10**15)),
    st.one_of(st.none(), st.integers(-(10**15), 10**15)),
)
def test_periods_hold_both_ends(
    values: list[int | None], start: int | None, end: int | None
) -> None:
    found = Period(start, end, "t").matches(pa.array(values, pa.timestamp("us")))
    wanted = [
        v is not None and (start is None or v >= start) and (end is None or v <= end)
        for v in values
    ]
    assert found.tolist() == wanted


@each_format
def test_filters_and_queries_in_any_order_lead_to_bytes(door: Door, tmp_path: Path) -> None:
    tree = {f"s{n}": {"x": b"%d" % n} for n in range(3)}
    columns = {
        "stac:centroid": door.points([(0, 0), (1, 0), (2, 0)]),
        "stac:time_start": door.times([int(START.timestamp()) + 86_400 * n for n in range(3)]),
    }
    frame = door.open(tmp_path, tree, columns)
    query = f"\"{door.id}\" <> 's2'"
    for found in (
        frame.filter_bbox(-1, -1, 1.5, 1).filter_datetime("2023-01-02/..").where(query),
        frame.where(query).filter_datetime("2023-01-02/..").filter_bbox(-1, -1, 1.5, 1),
    ):
        assert door.ids(found) == ["s1"]
        assert found.read_bytes("s1/x") == b"1"


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float32(), pa.float64()], ids=str)
def test_lists_of_any_numbers_are_judged(kind: Any) -> None:
    lists = pa.array([[1, 2], [1, None], None, [], [0, 1], [3, 4, 5]], pa.list_(kind))
    assert good_lists(lists, 2, 2).tolist() == [True, False, True, False, True, False]
    positive = good_lists(lists, 2, 2, positive=True)
    assert positive.tolist() == [True, False, True, False, False, False]
