"""Frames: positions, ids, paths, columns, and other libraries."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from comal.errors import InvalidInputError, NotInContainerError
from comal.taco.reading.dataset import TacoDataset, load
from comal.taco.reading.frame import TacoDataFrame
from tests.attacks.build import FLAT, Recipe, replaced
from tests.taco.read.scenes import expected, scenes, write

TREE = scenes("s2", "s10", "s1")


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> TacoDataset:
    return load(write(tmp_path_factory.mktemp("n"), Recipe(tree=TREE)))


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> TacoDataFrame:
    return load(write(tmp_path_factory.mktemp("f"), Recipe(tree=FLAT))).data


def test_ids_are_found_again_and_again(tmp_path: Path) -> None:
    ids = [f"s{n}" for n in range(300)] + ["é", "ü", "zzz", "A"]
    frame = load(write(tmp_path, Recipe(tree={name: name.encode() for name in ids}))).data
    for name in [*ids[:20], *ids[-5:]]:
        assert frame.read_bytes(name) == name.encode()
    for name in ("s300", "", "a", "\U0010ffff"):
        with pytest.raises(NotInContainerError):
            frame.read(name)


def test_an_id_that_stands_twice_is_reached_by_position_only(tmp_path: Path) -> None:
    def twice(level: int, table: Any) -> Any:
        return replaced(table, "label", ["x"] * len(table))

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=twice)))
    frame = dataset.sql("SELECT * FROM data UNION ALL SELECT * FROM data").data
    for _ in range(6):
        with pytest.raises(InvalidInputError, match="2 rows"):
            frame.read("img_0.bin")
    assert frame.read_bytes(0) == FLAT["img_0.bin"]


def test_paths(nested: TacoDataset) -> None:
    frame = nested.data
    assert frame["s10/imagery/after.bin"] == frame.read("s10").read("imagery").read("after.bin")
    assert frame.read("s10/imagery")["id"].to_pylist() == ["before.bin", "after.bin"]
    assert nested.read("s1/label.txt") == frame["s1/label.txt"]
    assert frame.leaf("s1/label.txt").path == "s1/label.txt"
    for path in ("s10/nothing", "s10/label.txt/x", "nothing/imagery", "s10//label.txt"):
        with pytest.raises(NotInContainerError):
            frame.read(path)
    with pytest.raises(InvalidInputError, match="FOLDER"):
        frame.read_bytes("s10/imagery")


def test_columns_rows_and_slices(flat: TacoDataFrame) -> None:
    assert flat.shape == (4, len(flat.columns))
    assert flat["id"].to_pylist() == list(FLAT)
    assert flat[1:3]["id"].to_pylist() == list(FLAT)[1:3]
    assert flat[::-1]["id"].to_pylist() == list(FLAT)[::-1]
    assert flat[::-1].read_bytes(0) == FLAT["img_3.bin"]
    assert flat.head(2).shape[0] == flat.tail(2).shape[0] == 2
    assert flat.tail(9)["id"].to_pylist() == list(FLAT)
    assert flat[5:2].shape[0] == 0
    assert flat[-1] == flat.read(3)
    mask = np.array([True, False, True, False])
    assert flat.filter(mask)["id"].to_pylist() == ["img_0.bin", "img_2.bin"]
    with pytest.raises(TypeError):
        iter(flat)


def test_protected_columns_stay(flat: TacoDataFrame) -> None:
    chosen = flat.select(["value"])
    assert chosen.columns[0] == "value"
    assert {"id", "type", "internal:offset"} <= set(chosen.columns)
    assert chosen.read_bytes("img_2.bin") == FLAT["img_2.bin"]
    assert flat[["label", "value"]].columns[:2] == ["label", "value"]
    dropped = flat.drop(["value"])
    assert "value" not in dropped.columns
    assert dropped.read_bytes(0) == FLAT["img_0.bin"]
    for columns in (["id"], ["internal:size", "value"]):
        with pytest.raises(InvalidInputError, match="protected"):
            flat.drop(columns)
    with pytest.raises(InvalidInputError, match="no column"):
        flat.select(["nothing"])
    for wrong in ("value", 5, None, [5]):
        for method in (flat.select, flat.drop):
            with pytest.raises(InvalidInputError, match="list of names"):
                method(wrong)  # type: ignore[arg-type] # what a caller may try


def test_other_libraries(flat: TacoDataFrame) -> None:
    table = flat.to_arrow()
    assert isinstance(table, pa.Table)
    frame = flat.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["id"].tolist() == list(FLAT)
    polars = flat.to_polars()
    assert isinstance(polars, pl.DataFrame)
    assert polars["id"].to_list() == list(FLAT)
    assert pa.table(flat).equals(table)
    assert pl.DataFrame(flat)["value"].to_list() == table["value"].to_pylist()


def test_a_missing_library_names_its_extra(
    flat: TacoDataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(ImportError, match=r"comal\[polars\]"):
        flat.to_polars()


def test_walk_is_depth_first(nested: TacoDataset) -> None:
    assert [path for path, _ in nested.data.walk()] == list(expected(TREE))
    some = nested.sql("SELECT * FROM data WHERE id = 's1'").data
    assert [path for path, _ in some.walk()] == [p for p in expected(TREE) if p.startswith("s1/")]


def test_html_is_escaped(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script>"

    def hook(level: int, table: Any) -> Any:
        names = [bad if name == "value" else name for name in table.column_names]
        return replaced(table, "label", [bad] * len(table)).rename_columns(names)

    def collection(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "title": bad, "description": bad, "tasks": [bad]}

    dataset = load(write(tmp_path, Recipe(tree=FLAT, table=hook, collection=collection)))
    for text in (dataset._repr_html_(), dataset.data._repr_html_()):
        assert "<script>" not in text
        assert "&lt;script&gt;" in text
    assert "4 rows" in repr(dataset.data)
    assert "level 0: 4 rows" in repr(dataset)


def test_nothing_a_caller_gets_is_shared(nested: TacoDataset) -> None:
    nested.collection["id"] = "changed"
    nested.collection["providers"].append("x")
    nested.extent["spatial"] = None
    nested.tasks.append("x")
    assert nested.id == "attack"
    assert nested.providers == [{"name": "nobody", "roles": ["producer"]}]
    assert nested.tasks == ["other"]


def test_what_a_dataset_says_about_itself(nested: TacoDataset) -> None:
    assert (nested.version, nested.dataset_version) == ("1.0.0", "1.0.0")
    assert nested.taco_version == "2.0.0"
    assert nested.licenses == ["CC-BY-4.0"]
    assert nested.pit_schema.depth == 2
    assert set(nested.field_schema) == {"level0", "level1", "level2"}
    assert nested.keywords == []
    assert nested.curators == []


def test_frames_can_be_pickled(nested: TacoDataset) -> None:
    copy = pickle.loads(pickle.dumps(nested.data))
    assert copy.read_bytes("s10/label.txt") == expected(TREE)["s10/label.txt"]
