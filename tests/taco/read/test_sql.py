"""Queries and filters over views: lazy, chained, and unable to do anything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError, InvalidMetadataError, LimitExceededError, QueryError
from comal.geo.boxes import validate_bbox
from comal.geo.places import Way
from comal.limits import Limits
from comal.query import Budget
from comal.samples.filters import Box
from comal.storage import CountingSource, open_source
from comal.taco.reading.dataset import TacoDataset, load
from comal.taco.reading.sql import quoted
from tests.attacks.build import FLAT, Recipe
from tests.taco.read.scenes import (
    CONTAINERS,
    as_it_is,
    expected,
    located,
    point,
    read_all,
    scenes,
    write,
)

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

TREE = scenes("s2", "s10", "s1")


# An index of the other form is asked as part of "concat of an index".
@pytest.fixture(params=[kind for kind in CONTAINERS if kind != ".tacocat"], scope="module")
def dataset(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> TacoDataset:
    return CONTAINERS[request.param](tmp_path_factory.mktemp("x"), TREE, as_it_is)


def ids(dataset: TacoDataset) -> list[str]:
    found: list[str] = dataset.data["id"].to_pylist()
    return found


def test_queries_chain_in_any_letter_case(dataset: TacoDataset) -> None:
    one = dataset.sql("select * from data where id <> 's2'")
    two = one.sql("SELECT * FROM Data WHERE id <> 's10';")
    three = two.sql("with x as (select * from DATA) select * from x -- all of it")
    assert (ids(one), ids(two), ids(three)) == (["s10", "s1"], ["s1"], ["s1"])
    assert ids(dataset) == ["s2", "s10", "s1"]
    assert read_all(three.data) == {p: d for p, d in expected(TREE).items() if p.startswith("s1/")}


def test_parameters_of_chained_queries_do_not_meet(dataset: TacoDataset) -> None:
    chained = dataset.sql("SELECT * FROM data WHERE id <> $x", {"x": "s2"}).sql(
        "SELECT *, $x AS given, ? AS '$x' FROM data WHERE id <> $x".replace(
            "? AS '$x'", "'$x' AS q"
        ),
        {"x": "s10"},
    )
    assert chained.data.to_arrow().select(["id", "given", "q"]).to_pylist() == [
        {"id": "s1", "given": "s10", "q": "$x"}
    ]
    assert ids(dataset.sql("SELECT * FROM data WHERE id IN (?, ?)", ["s1", "s2"])) == ["s2", "s1"]
    with pytest.raises(QueryError, match="no value") as caught:
        _ = dataset.sql("SELECT $missing AS x FROM data").data
    assert "params=" in str(caught.value.hint)
    assert str(caught.value.expected).startswith("$")


def test_levels_and_flat_views(dataset: TacoDataset) -> None:
    assert list(read_all(dataset.data).items()) == list(expected(TREE).items())
    counts = [len(dataset.sql(f"SELECT * FROM level{n}").data) for n in range(3)]
    assert counts == [3, 6, 6]
    assert [len(dataset.sql(f"FROM l{n}").data) for n in range(3)] == counts
    flat = dataset.sql('SELECT "l0:id", "l1:id", "l2:id" FROM L2').data.to_arrow().to_pylist()
    paths = ["/".join(row.values()) for row in flat]
    assert paths == [path for path in expected(TREE) if path.count("/") == 2]
    with pytest.raises(QueryError, match="level3"):
        _ = dataset.sql("SELECT * FROM level3").data


def test_levels_are_those_below_the_current_view(dataset: TacoDataset) -> None:
    some = dataset.sql("SELECT * FROM data WHERE id = 's10'")
    assert len(some.sql("SELECT * FROM level2").data) == 2
    assert some.sql('SELECT "l0:id" AS a FROM l2').data["a"].to_pylist() == ["s10"] * 2
    boxed = dataset.filter_bbox(0.5, -1, 1.5, 1)
    assert boxed.sql("SELECT * FROM level1").data["internal:relative_path"].to_pylist() == [
        "s10/imagery/",
        "s10/label.txt",
    ]
    lost = dataset.sql("SELECT id, type FROM data")
    with pytest.raises(QueryError, match="lost the columns"):
        _ = lost.sql("SELECT * FROM level1").data


def test_rows_of_deeper_levels_can_be_read(dataset: TacoDataset) -> None:
    folders = dataset.sql("SELECT * FROM level1 WHERE type = 'FOLDER'").data
    assert [len(folders.read(n)) for n in range(3)] == [2, 2, 2]
    assert folders.read(1).read_bytes("after.bin") == expected(TREE)["s10/imagery/after.bin"]
    files = dataset.sql('SELECT * FROM level2 ORDER BY id, "internal:relative_path"').data
    wanted = sorted(p for p in expected(TREE) if p.endswith(("before.bin", "after.bin")))
    wanted.sort(key=lambda p: (p.rpartition("/")[2], p))
    assert files.read_bytes() == [expected(TREE)[path] for path in wanted]


def test_aggregates_and_columns_of_their_own(dataset: TacoDataset) -> None:
    table = dataset.sql("SELECT count(*) AS n, max(value) AS m FROM data").data.to_arrow()
    assert table["n"].to_pylist() == [3]
    names = ["id", *(["internal:source_file"] if dataset.home.is_labelled else [])]
    frame = dataset.sql(f"SELECT {', '.join(map(quoted, names))}, value * 2 AS x FROM data").data
    assert frame.columns == [*names, "x"]
    assert read_all(frame) == expected(TREE)  # the ids say which samples they are
    with pytest.raises(InvalidInputError, match="no column id"):
        dataset.sql("SELECT value * 2 AS x FROM data").data.read(0)


def test_order_and_limits_of_a_query_are_kept(dataset: TacoDataset) -> None:
    ordered = dataset.sql("SELECT * FROM data ORDER BY id DESC")
    assert ids(ordered) == ["s2", "s10", "s1"]
    assert ids(ordered.sql("SELECT * FROM data LIMIT 2")) == ["s2", "s10"]
    assert ids(dataset.sort("id")) == ["s1", "s10", "s2"]
    assert ids(dataset.sort("l0:id", descending=True).limit(1)) == ["s2"]
    assert ids(dataset.sort("type")) == ids(dataset) == ["s2", "s10", "s1"]
    flat = dataset.sort("id").flatten()
    assert flat["l0:id"].to_pylist() == ["s1", "s1", "s10", "s10", "s2", "s2"]
    assert flat["l2:id"].to_pylist() == ["before.bin", "after.bin"] * 3
    with pytest.raises(InvalidInputError):
        dataset.sort("nothing")
    with pytest.raises(InvalidInputError):
        dataset.limit(-1)


def test_flatten_follows_the_view(dataset: TacoDataset) -> None:
    some = dataset.sql("SELECT * FROM data WHERE id <> 's10'")
    assert some.flatten(1)["l1:id"].to_pylist() == ["label.txt", "label.txt"]
    assert some.flatten().read_bytes() == [
        data for path, data in expected(TREE).items() if path[:3] != "s10" and path.count("/") == 2
    ]
    assert len(some.flatten(0)) == 0
    with pytest.raises(InvalidInputError, match="level"):
        some.flatten(3)


def test_errors_show_the_query_of_the_caller(dataset: TacoDataset) -> None:
    with pytest.raises(QueryError) as caught:
        _ = dataset.sql("SELECT bogus FROM data").data
    assert "SELECT bogus FROM data" in str(caught.value)
    assert "comal_" not in str(caught.value)


def test_odd_names_are_quoted(tmp_path: Path) -> None:
    odd = 'we"ird; DROP TABLE x --'

    def renamed(level: int, table: Any) -> Any:
        return located(level, table).rename_columns(
            [odd if name == "value" else name for name in [*table.column_names, *_GEO]]
        )

    folder = tmp_path / 'it\'s a "folder", 100%'
    folder.mkdir()
    path = write(folder, Recipe(tree=TREE, table=renamed), "x 'y' \"z\".tacozip")
    dataset = load(path)
    assert odd in dataset.columns
    frame = dataset.filter_datetime("2023-01-01").sort(odd).data
    assert frame.columns == dataset.columns
    assert frame.read("s2/label.txt").endswith(f",{path}")
    assert dataset.flatten().columns[2] == f"l2:{odd}"


def test_columns_that_sql_takes_for_one(tmp_path: Path) -> None:
    def doubled(level: int, table: Any) -> Any:
        return located(level, table).append_column("VALUE", pa.array(range(len(table))))

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=doubled)))
    table = dataset.data.to_arrow()
    assert table["VALUE"].to_pylist() == list(range(len(FLAT)))
    assert table["value"].to_pylist() != table["VALUE"].to_pylist()
    for view in (dataset.sql("SELECT * FROM data"), dataset.sort("value"), dataset.limit(1)):
        with pytest.raises(QueryError, match="'value' and 'VALUE'"):
            _ = view.data

    def loud(level: int, table: Any) -> Any:
        names = [name.upper() if name == "value" else name for name in table.column_names]
        return table.rename_columns(names)

    parts = [Recipe(tree=FLAT), Recipe(tree=FLAT, table=loud)]
    with pytest.raises(InvalidInputError, match="ignores case"):
        load(
            [write(tmp_path, one, f"{n}.tacozip") for n, one in enumerate(parts)],
            column_mode="fill_missing",
        )


@pytest.mark.parametrize("name", ["comal_row", "rowid", "q", "data", "t0", "l0:id"])
def test_no_column_is_taken_for_one_of_the_engine(tmp_path: Path, name: str) -> None:
    def counted(level: int, table: Any) -> Any:
        return located(level, table).append_column(name, pa.array(range(len(table), 0, -1)))

    dataset = load(write(tmp_path, Recipe(tree=TREE, table=counted)))
    ids = dataset.data["id"].to_pylist()
    every = dataset.sql("SELECT * FROM level1").data[name].to_pylist()
    assert every == list(range(len(every), 0, -1))
    for view in (dataset, dataset.sort("id"), dataset.sql("SELECT * FROM data")):
        rows = view.data
        values = dict(zip(rows["id"].to_pylist(), rows[name].to_pylist(), strict=True))
        assert values == dict(zip(ids, range(len(ids), 0, -1), strict=True))
        assert view.sort(name).data["id"].to_pylist() == ids[::-1]
        assert view.sql("SELECT * FROM level1").data[name].to_pylist() == every
        assert sorted(view.flatten(1)[f"l1:{name}"].to_pylist()) == every[1::2][::-1]


_GEO = ("stac:centroid", "stac:time_start")


def test_nothing_is_read_before_it_is_needed(tmp_path: Path) -> None:
    many = {f"img_{n:05d}": b"x" for n in range(30_000)}

    def wide(level: int, table: Any) -> Any:
        noise = pa.array([f"{n:064x}" for n in range(len(table))])
        return table.append_column("noise", noise)

    source = CountingSource(open_source(write(tmp_path, Recipe(tree=many, table=wide))))
    dataset = load(source, tail=4096)
    opened = source.bytes
    view = dataset.sql("SELECT id FROM data WHERE value < 0").limit(5).sort("id")
    assert source.bytes == opened
    assert len(view.data) == 0
    assert source.bytes - opened < 400_000
    assert (tmp_path / "x.tacozip").stat().st_size > 3_000_000


def test_columns_of_a_local_level_are_read_once(tmp_path: Path) -> None:
    many = {f"img_{n:05d}": b"x" for n in range(30_000)}
    source = CountingSource(open_source(write(tmp_path, Recipe(tree=many))))
    dataset = load(source, tail=4096)
    query = "SELECT id FROM data WHERE value >= $n"
    count = len(dataset.sql(query, {"n": 0}).data)
    seen = source.bytes
    assert len(dataset.sql(query, {"n": 0}).data) == count > 0
    assert source.bytes == seen
    first = dataset.data
    seen = source.bytes
    assert dataset.data.to_arrow().equals(first.to_arrow())
    assert source.bytes == seen


def test_rows_as_read_are_those_of_a_query(dataset: TacoDataset) -> None:
    read = dataset.data.to_arrow()
    queried = dataset.sql("SELECT * FROM data").data.to_arrow()
    assert read.column_names == dataset.columns
    assert read.to_pydict() == queried.to_pydict()
    assert dataset.data_raw.to_arrow().to_pydict() == read.to_pydict()


def test_a_view_stays_within_the_limits(tmp_path: Path) -> None:
    path = write(tmp_path, Recipe(tree=TREE, table=located))
    small = load(path, limits=Limits(leaf_bytes=200))
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        _ = small.data
    with pytest.raises(LimitExceededError, match="leaf bytes"):
        _ = small.sql("SELECT * FROM data").data


def test_isolated_queries(tmp_path: Path) -> None:
    """Their limits are asked in `tests/query` and `cli/test_sql`, what they refuse in `attacks`."""
    dataset = load(write(tmp_path, Recipe(tree=TREE, table=located)))
    some = dataset.sql("SELECT * FROM data WHERE id = $x", {"x": "s1"}, isolated=Budget(wall=120.0))
    assert some.columns == dataset.columns
    assert some.data.read_bytes("s1/label.txt") == b"s1-label"


def test_a_broken_page_is_no_fault_of_the_query(tmp_path: Path) -> None:
    def break_page(level: int, data: bytes) -> bytes:
        return data[:40] + bytes([data[40] ^ 0xFF]) + data[41:] if level == 0 else data

    dataset = load(write(tmp_path, Recipe(tree=FLAT, level_bytes=break_page)))
    with pytest.raises(InvalidMetadataError):
        _ = dataset.data


# -- boxes and times, also of descendants ----------------------------------------------------------


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


@pytest.mark.parametrize("kind", ["s", "ms", "us", "ns", "us, tz=UTC"])
def test_times_of_any_unit_in_ranges_of_any_size(tmp_path: Path, kind: str) -> None:
    """A dataset and its rows choose the same; a nanosecond is of the microsecond around it."""
    unit, *zone = kind.split(", tz=")
    last = 1_577_923_199_999_999_999 // 10 ** {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    stamps = pa.array([-1, 0, last, None], pa.timestamp(unit, *zone))
    path = tmp_path / "x.tacozip"
    tree = {f"s{n}": b"x" for n in range(4)}
    recipe = Recipe(tree=tree, table=lambda _, table: table.append_column("when", stamps))
    path.write_bytes(recipe.build())
    dataset = load(path)
    ranges: list[tuple[Any, list[str]]] = [
        ("2020-01-01/9999-12-31", ["s2"]),
        ("0001-01-01/1969-12-31", ["s0"]),
        ((0, 2**63 - 1), ["s1", "s2"]),
        ((1 - 2**63, -1), ["s0"]),
        ("2020-01-01", ["s2"]),
    ]
    for when, wanted in ranges:
        assert ids(dataset.filter_datetime(when, "when")) == wanted, when
        assert dataset.data.filter_datetime(when, "when")["id"].to_pylist() == wanted, when


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
