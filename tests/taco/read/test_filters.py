"""Boxes and times: at the samples, at their descendants, one after another."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.geo.boxes import validate_bbox
from comal.geo.places import Way
from comal.samples.filters import Box, Period
from comal.taco.reading.dataset import TacoDataset, load
from tests.attacks.build import FLAT, Recipe
from tests.taco.read.scenes import DAY, HOUR, START, expected, located, point, scenes, write

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

TREE = scenes("s2", "s10", "s1")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> TacoDataset:
    return load(write(tmp_path_factory.mktemp("x"), Recipe(tree=TREE, table=located)))


def ids(dataset: TacoDataset) -> list[str]:
    found: list[str] = dataset.data["id"].to_pylist()
    return found


def geometries(*values: bytes | None, **columns: Any) -> Any:
    """A table hook with these geometries at level 0."""

    def add(level: int, table: Any) -> Any:
        table = table.append_column("stac:centroid", pa.array(values, pa.binary()))
        for name, column in columns.items():
            table = table.append_column(name.replace("__", ":"), pa.array(column))
        return table

    return add


def test_boxes_take_edges_and_cross_the_antimeridian(tmp_path: Path) -> None:
    points = [point(179.5, 0), point(-179.5, 0), point(0, 0), None]
    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=geometries(*points))))
    names = list(FLAT)
    assert ids(dataset.filter_bbox(170, -10, -170, 10)) == names[:2]
    assert ids(dataset.filter_bbox(-179.5, 0, 0, 0)) == names[1:3]
    assert ids(dataset.filter_bbox(-180, -90, 180, 90)) == names[:3]
    assert ids(dataset.filter_bbox(1, -10, -1, 10)) == names[:2]
    for box in ((0, 1, 1, 0), (float("nan"), 0, 1, 1), (0, -91, 1, 1)):
        with pytest.raises(InvalidInputError):
            dataset.filter_bbox(*box)


def test_footprints_are_compared_exactly(tmp_path: Path) -> None:
    triangle = shapely.to_wkb(shapely.Polygon([(0, 0), (10, 0), (0, 10)]))
    line = shapely.to_wkb(shapely.LineString([(0, 0), (10, 10)]))
    crossing = shapely.to_wkb(shapely.box(175, -5, 185, 5))
    hook = geometries(triangle, line, crossing, None)
    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=hook)))
    names = list(FLAT)
    assert ids(dataset.filter_bbox(8, 8, 9, 9)) == [names[1]]
    assert ids(dataset.filter_bbox(1, 2, 1.5, 2.5)) == [names[0]]
    assert ids(dataset.filter_bbox(-179, 0, -176, 1)) == [names[2]]
    assert ids(dataset.filter_bbox(-174, 0, -170, 1)) == []


def test_istac_geometry_is_reprojected_first(tmp_path: Path) -> None:
    utm = shapely.to_wkb(shapely.box(300_000, 8_690_000, 310_000, 8_700_000))
    degrees = shapely.to_wkb(shapely.box(2, 2, 3, 3))
    fiji = shapely.to_wkb(shapely.box(822_000, 8_000_000, 845_000, 8_020_000))

    def hook(level: int, table: Any) -> Any:
        geometry = pa.array([utm, degrees, fiji, None], pa.binary())
        crs = pa.array(["EPSG:32718", None, "EPSG:32760", "EPSG:4326"])
        table = table.append_column("stac:centroid", pa.array([point(50, 50)] * 4, pa.binary()))
        return table.append_column("istac:geometry", geometry).append_column("istac:crs", crs)

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=hook)))
    names = list(FLAT)
    assert ids(dataset.filter_bbox(-77, -12, -76, -11)) == [names[0]]
    assert ids(dataset.filter_bbox(2.5, 2.5, 2.5, 2.5)) == [names[1]]
    assert ids(dataset.filter_bbox(179.9, -20, -179.9, -16)) == [names[2]]
    assert ids(dataset.filter_bbox(49, 49, 51, 51, geometry_col="stac:centroid")) == names
    assert ids(dataset.filter_bbox(300_000 - 300_000, 0, 1, 1)) == []


def test_a_broken_geometry_names_its_column(tmp_path: Path) -> None:
    hook = geometries(point(0, 0), b"\x01\x02", None, point(1, 1))
    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=hook)))
    with pytest.raises(InvalidMetadataError, match="stac:centroid"):
        _ = dataset.filter_bbox(-1, -1, 2, 2).data


def test_columns_are_checked_when_the_filter_is_made(dataset: TacoDataset) -> None:
    with pytest.raises(InvalidInputError, match="no time"):
        dataset.filter_datetime("2023-01-01", time_col="value")
    with pytest.raises(InvalidInputError, match="level"):
        dataset.filter_bbox(0, 0, 1, 1, level=3)
    bare = dataset.sql("SELECT id FROM data")
    with pytest.raises(InvalidInputError, match="nothing of where"):
        bare.filter_bbox(0, 0, 1, 1, level=0)


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("2023-01-01", ["s2"]),
        ("2023-01-02/..", ["s10", "s1"]),
        ("../2023-01-02", ["s2", "s10"]),
        ("2023-01-01T10:00:01Z/2023-01-02T09:59:59Z", []),
        ((dt.datetime(2023, 1, 2), dt.datetime(2023, 1, 3)), ["s10"]),
        (np.datetime64("2023-01-02"), ["s10"]),
        ((START, START + DAY + 10 * HOUR), ["s2", "s10"]),
    ],
)
def test_ranges_of_time(dataset: TacoDataset, when: Any, wanted: list[str]) -> None:
    assert ids(dataset.filter_datetime(when)) == wanted


@pytest.mark.parametrize(
    "column",
    [
        pa.array([START, None, START + DAY, START], pa.int64()).cast(pa.timestamp("us", "UTC")),
        pa.array([START // 1000, None, (START + DAY) // 1000, START // 1000], pa.timestamp("ms")),
        pa.array([START * 1000, None, (START + DAY) * 1000, START * 1000], pa.timestamp("ns")),
        pa.array([START, None, START + DAY, START], pa.int64()),
        pa.array(["2023-01-01", None, "2023-01-02T00:00:00Z", "2023-01-01T00:00:00"]),
        pa.array([dt.date(2023, 1, 1), None, dt.date(2023, 1, 2), dt.date(2023, 1, 1)]),
    ],
    ids=lambda column: str(column.type),
)
def test_times_of_any_type(column: Any, tmp_path: Path) -> None:
    def hook(level: int, table: Any) -> Any:
        return table.append_column("when", column)

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=hook)))
    names = list(FLAT)
    found = dataset.filter_datetime("2023-01-01", time_col="when")
    assert ids(found) == [names[0], names[3]]
    assert ids(dataset.filter_datetime("2023-01-02/..", time_col="when")) == [names[2]]


def test_filters_compose_in_any_order_with_queries(dataset: TacoDataset) -> None:
    box, when, query = (-1, -1, 1.5, 1), "2023-01-02/..", "select * from data where id <> 's1'"
    one = dataset.filter_bbox(*box).filter_datetime(when).sql(query)
    two = dataset.sql(query).filter_datetime(when).filter_bbox(*box)
    three = dataset.filter_datetime(when).sql(query).sort("id").filter_bbox(*box)
    assert ids(one) == ids(two) == ids(three) == ["s10"]


def test_deep_filters_give_each_sample_once_with_all_children(dataset: TacoDataset) -> None:
    # Level 2 has points at longitude 0..5, two for each scene, and one day for each row.
    deep = dataset.filter_bbox(1.5, 19, 4.5, 21, level=2)
    assert ids(deep) == ["s10", "s1"]
    assert len(deep.data.read("s1").read("imagery")) == 2
    both = deep.filter_datetime("2023-01-03/2023-01-04", level=2)
    assert ids(both) == ["s10"]
    assert ids(dataset.filter_datetime("2023-01-03/2023-01-04", level=2)) == ["s10"]
    assert ids(dataset.filter_bbox(0, 9, 1, 11, level=1)) == ["s2"]
    assert ids(deep.sql("SELECT * FROM data WHERE id = 's1'")) == ["s1"]
    assert deep.flatten()["l0:id"].to_pylist() == ["s10", "s10", "s1", "s1"]


def test_a_deep_filter_needs_the_identity_of_rows(dataset: TacoDataset) -> None:
    with pytest.raises(InvalidInputError, match="lost the columns"):
        _ = dataset.sql("SELECT id, type FROM data").filter_bbox(0, 0, 1, 1, level=2).data


@settings(max_examples=40, deadline=None)
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


def test_a_crs_that_nobody_knows_is_a_fault_of_the_file() -> None:
    way = Way("geometry", ("istac:geometry", "istac:crs"))
    box = Box(validate_bbox((0.0, 0.0, 1.0, 1.0)), (way,))
    assert box.columns == way.columns
    with pytest.raises(InvalidMetadataError, match="the place of a sample is broken: invalid CRS"):
        box.matches(pa.array([point(0, 0)]), pa.array(["EPSG:999999"]))
    assert expected(TREE)
