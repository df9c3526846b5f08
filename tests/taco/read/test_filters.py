"""Boxes and times of TACO alone: of datasets, at descendants, and `istac:*` before `stac:*`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.geo.boxes import validate_bbox
from comal.geo.places import Way
from comal.samples.filters import Box
from comal.taco.reading.dataset import TacoDataset, load
from tests.attacks.build import FLAT, Recipe
from tests.taco.read.scenes import CONTAINERS, as_it_is, point, scenes, write

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

TREE = scenes("s2", "s10", "s1")


@pytest.fixture(params=CONTAINERS, scope="module")
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TacoDataset:
    return CONTAINERS[request.param](tmp_path_factory.mktemp("x"), TREE, as_it_is)


def ids(dataset: TacoDataset) -> list[str]:
    found: list[str] = dataset.data["id"].to_pylist()
    return found


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


def test_columns_are_checked_when_the_filter_is_made(dataset: TacoDataset) -> None:
    with pytest.raises(InvalidInputError, match="level"):
        dataset.filter_bbox(0, 0, 1, 1, level=3)
    bare = dataset.sql("SELECT id FROM data")
    with pytest.raises(InvalidInputError, match="do not say where"):
        bare.filter_bbox(0, 0, 1, 1, level=0)


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


def test_a_crs_that_nobody_knows_is_a_fault_of_the_file() -> None:
    way = Way("geometry", ("istac:geometry", "istac:crs"))
    box = Box(validate_bbox((0.0, 0.0, 1.0, 1.0)), (way,))
    assert box.columns == way.columns
    with pytest.raises(
        InvalidMetadataError, match="the place of a sample is not valid: invalid CRS"
    ):
        box.matches(pa.array([point(0, 0)]), pa.array(["EPSG:999999"]))
