"""Several datasets as one."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import shapely

from comal.errors import InvalidInputError
from comal.taco.reading.dataset import TacoDataset, concat, load
from comal.taco.spec import TacoWarning
from tests.attacks.build import FLAT, Index, Recipe, Tree
from tests.support import SHARED, needs_shared
from tests.taco.read.scenes import expected, located, read_all, scenes, write, write_folder

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

ONE, TWO = scenes("s2", "s10"), scenes("s1", "s3", "a")


def make(place: Path, tree: Tree, name: str, hook: Any = located) -> TacoDataset:
    return load(write(place, Recipe(tree=tree, table=hook), name))


@pytest.fixture
def parts(tmp_path: Path) -> list[TacoDataset]:
    folder = load(write_folder(tmp_path, Recipe(tree=TWO, table=located), "two"))
    return [make(tmp_path, ONE, "one.tacozip"), folder]


@pytest.mark.parametrize(
    ("make_wrong", "words"),
    [
        (lambda one: [one, "text"], "item 1.*\\n.*str 'text'"),
        (lambda one: [None], "item 0.*\\n.*NoneType"),
        (lambda one: "ab", "one str"),
        (lambda one: one, "one TacoDataset"),
        (lambda one: 3, "one int"),
    ],
)
def test_what_is_no_dataset_is_refused_in_words(
    make_wrong: Any, words: str, parts: list[TacoDataset]
) -> None:
    with pytest.raises(InvalidInputError, match=words):
        concat(make_wrong(parts[0]))


def test_any_iterable_of_datasets_will_do(parts: list[TacoDataset]) -> None:
    """That rows of one never answer for another is asked in `test_sql.py`."""
    both = concat(iter(parts))  # type: ignore[arg-type]
    assert both.data["id"].to_pylist() == [*ONE, *TWO]
    assert both.data["internal:source_file"].to_pylist() == ["one.tacozip"] * 2 + ["two"] * 3
    assert (both.pit_schema.root_n, both.pit_schema.rows(2)) == (5, 10)


def extra(level: int, table: Any) -> Any:
    return located(level, table).append_column("extra", pa.array(range(len(table))))


def test_extents_are_united(tmp_path: Path) -> None:
    extents = [
        {"spatial": [170, 0, 179, 5], "temporal": ["2024-01-01T00:00:00Z"] * 2},
        {"spatial": [-179, 1, -170, 2], "temporal": ["2023-01-01T00:00:00Z"] * 2},
        {"spatial": None, "temporal": ["soon"] * 2},
    ]
    parts = []
    for number, extent in enumerate(extents):
        said = Recipe(tree=ONE, collection=partial(dict, extent=extent))
        parts.append(load(write(tmp_path, said, f"{number}")))
    assert concat(parts).extent == {
        "spatial": [170, 0, -170, 5],
        "temporal": ["2023-01-01T00:00:00Z", "2024-01-01T00:00:00Z"],
    }


def test_inputs_are_never_changed(parts: list[TacoDataset]) -> None:
    before = [(p.pit_schema, p.collection, p.columns) for p in parts]
    concat(parts).sql("SELECT * FROM data WHERE id = 'a'")
    assert [(p.pit_schema, p.collection, p.columns) for p in parts] == before
    assert parts[0].data["id"].to_pylist() == list(ONE)


def test_views_of_one_file_go_together(tmp_path: Path) -> None:
    dataset = make(tmp_path, {**ONE, **TWO}, "x.tacozip")
    first = dataset.sql("SELECT * FROM data WHERE id = $x", {"x": "a"})
    second = dataset.filter_datetime("2023-01-02").sql(
        "SELECT * FROM data WHERE id <> $x", {"x": "a"}
    )
    both = concat([first, second, first])
    assert both.data["id"].to_pylist() == ["a", "s10", "a"]
    assert len(both.sql("SELECT * FROM level1").data) == 4
    assert both.data[:2].read_bytes("s10/label.txt") == expected(ONE)["s10/label.txt"]
    assert both.flatten()["l0:id"].to_pylist() == ["a", "a", "s10", "s10", "a", "a"]


def test_equal_names_are_told_apart_by_place(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = make(tmp_path / "a", scenes("s1"), "x.tacozip")
    two = make(tmp_path / "b", scenes("s1", names=("p.bin", "q.bin")), "x.tacozip")
    both = concat([one, two])
    assert len(set(both.data["internal:source_file"].to_pylist())) == 2
    assert [len(both.data.read(n)) for n in range(2)] == [2, 2]
    assert both.data.read(1).read("imagery")["id"].to_pylist() == ["p.bin", "q.bin"]
    assert both.data.read(0).read("imagery")["id"].to_pylist() == ["before.bin", "after.bin"]


def test_equal_paths_in_an_index_are_told_apart_by_archive(tmp_path: Path) -> None:
    trees: dict[str, Tree] = {
        "x": {"s1": {"a": b"x1"}},
        "y": {"s0": {"a": b"y0"}, "s1": {"a": b"y1"}},
    }
    parts = {name: Recipe(tree=tree) for name, tree in trees.items()}
    index = load(Index(parts).write(tmp_path, ("single",)))
    named = index.sql('SELECT id, "internal:source_file" FROM data').data
    assert [named.read(n).read_bytes("a") for n in range(3)] == [b"x1", b"y0", b"y1"]


def test_column_modes(tmp_path: Path) -> None:
    one = make(tmp_path, ONE, "one.tacozip", extra)
    two = make(tmp_path, TWO, "two.tacozip")
    with pytest.warns(TacoWarning, match="'extra'"):
        small = concat([one, two])
    assert "extra" not in small.columns
    assert small.columns == small.data.columns
    with pytest.warns(TacoWarning, match="filled"):
        filled = concat([one, two], "fill_missing")
    assert filled.data["extra"].to_pylist() == [0, 1, None, None, None]
    assert filled.sql("SELECT * FROM level1").data["extra"].to_pylist()[:4] == [0, 1, 2, 3]
    assert filled.data.schema.equals(filled.schema)
    with pytest.raises(InvalidInputError, match="differ") as caught:
        concat([one, two], "strict")
    assert "extra" in str(caught.value)
    same = concat([two, make(tmp_path, ONE, "three.tacozip")], "strict")
    assert len(same.data) == 5
    with pytest.raises(InvalidInputError, match="mode"):
        concat([one, two], "other")  # type: ignore[arg-type] # what a caller may try


def test_a_box_at_a_deeper_level_is_asked_of_all_datasets(tmp_path: Path) -> None:
    """Each may tell the places of its samples in another column, in any order."""
    tree: Tree = {"a": {"x": b"1"}}
    point = pa.array([shapely.Point(1, 2).wkb])

    def placed(column: str) -> TacoDataset:
        def table(level: int, rows: Any) -> Any:
            return rows.append_column(column, point) if level else rows

        return load(write(tmp_path, Recipe(tree=tree, table=table), f"{column[:4]}.tacozip"))

    one, other = placed("stac:centroid"), placed("istac:centroid")
    for parts in ([one, other], [other, one]):
        both = concat(parts, "fill_missing")
        assert both.filter_bbox(0, 0, 2, 2, level=1).data["id"].to_pylist() == ["a", "a"]
        assert len(both.filter_bbox(5, 5, 6, 6, level=1).data) == 0
        with pytest.raises(InvalidInputError, match="do not say where"):
            concat(parts).filter_bbox(0, 0, 2, 2, level=1)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (pa.array([1]), pa.array([0.5]), pa.float64()),
        (pa.array([1], pa.int8()), pa.array([2**40]), pa.int64()),
        (pa.array([7], pa.timestamp("us")), pa.array([1], pa.timestamp("ns")), pa.timestamp("ns")),
    ],
    ids=["float", "wide", "fine"],
)
def test_the_schema_has_the_common_types(
    tmp_path: Path, first: Any, second: Any, kind: Any
) -> None:
    parts = [
        make(tmp_path, {name: b"x"}, f"{name}.tacozip", lambda _, t, v=v: t.append_column("v", v))
        for name, v in (("a", first), ("b", second))
    ]
    for both in (concat(parts), concat(parts[::-1])):
        assert both.schema.field("v").type == both.data.schema.field("v").type == kind
        assert both.schema.equals(both.data.schema)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError):
        concat([])
    flat = make(tmp_path, FLAT, "flat.tacozip")
    nested = make(tmp_path, ONE, "one.tacozip")
    with pytest.raises(InvalidInputError, match="FOLDER"):
        concat([flat, nested])

    def text(level: int, table: Any) -> Any:
        table = located(level, table)
        at = table.schema.get_field_index("value")
        return table.set_column(at, "value", pa.array(["x"] * len(table)))

    other = make(tmp_path, TWO, "two.tacozip", text)
    with pytest.raises(InvalidInputError, match="value") as caught:
        concat([nested, other])
    assert caught.value.hint
    cast = other.sql("SELECT * REPLACE (length(value) AS value) FROM data")
    assert concat([nested, cast]).data["value"].to_pylist()[-1] == 1
    with pytest.raises(InvalidInputError, match="SELECT"):
        concat([nested.sql("SELECT id, type FROM data"), nested])
    assert concat([nested]) is nested


def test_concatenations_nest_and_pickle(parts: list[TacoDataset], tmp_path: Path) -> None:
    three = make(tmp_path, scenes("z"), "three.tacozip")
    whole = concat([concat(parts).sql("SELECT * FROM data WHERE id <> 's2'"), three])
    copy = pickle.loads(pickle.dumps(whole))
    assert copy.data["id"].to_pylist() == ["s10", *TWO, "z"]
    assert read_all(copy.data) == {
        p: d for p, d in expected({**ONE, **TWO, **scenes("z")}).items() if not p.startswith("s2/")
    }


@needs_shared
def test_indexes_and_archives_mix() -> None:
    root = SHARED / "fixtures" / "taco"
    both = load([root / "cat", root / "cat" / "part0.tacozip", root / "tacocat_binary/__TACOCAT__"])
    names = both.data["internal:source_file"].to_pylist()
    assert len(names) == 14
    assert len(set(names)) == 7
    assert len(both.flatten()) == 28
    frame = both.data
    for row in range(len(frame)):
        scene = frame["id"][row].as_py()
        part = load(root / "cat" / f"part{int(scene[-1]) // 2}.tacozip").data
        assert frame.read(row).read_bytes("label.json") == part.read_bytes(f"{scene}/label.json")
