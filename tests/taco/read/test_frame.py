"""What a dataset says about itself, and what frames of TACO alone do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from comal.taco.reading.dataset import TacoDataset, load
from tests.attacks.build import FLAT, Recipe, replaced
from tests.taco.read.scenes import scenes, write


@pytest.fixture(scope="module")
def nested(tmp_path_factory: pytest.TempPathFactory) -> TacoDataset:
    return load(write(tmp_path_factory.mktemp("n"), Recipe(tree=scenes("s2", "s10", "s1"))))


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
