"""``comal convert`` of a Tortilla."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.convert.migrated import FIELDS, assert_sound, collection, leaves
from tests.support import command
from tests.tortilla.build import Item, built, nested

OPTIONS = [
    *("--id", "moved", "--dataset-version", "2", "--description", "d", "--license", "MIT"),
    *("--provider", "p", "--task", "other"),
]
IRREGULAR = nested(("r0", [Item("a", b"1"), Item("b", b"2")]), ("r1", [Item("a", b"3")]))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "old.tortilla"
    path.write_bytes(built([Item("a/b", b"1"), Item("c", b"22")]))
    return path


def test_options_make_the_collection(source: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.tacozip"
    text = command("convert", source, output, *OPTIONS).output
    assert "id: 'a/b' -> 'a_b'" in text
    assert "2 leaves of 3 bytes" in text
    assert f"{output}: written" in text
    assert leaves(output) == {"a_b": b"1", "c": b"22"}
    assert collection(output)["providers"] == [{"name": "p"}]
    assert_sound(output)


def test_a_file_makes_the_collection(source: Path, tmp_path: Path) -> None:
    (tmp_path / "about.json").write_text(json.dumps({**FIELDS, "mine": 1}))
    output = tmp_path / "new"
    command("convert", source, output, "--collection", tmp_path / "about.json", "--title", "T")
    found = json.loads((output / "COLLECTION.json").read_text())
    assert (found["id"], found["title"], found["mine"]) == ("moved", "T", 1)


def test_missing_fields(source: Path, tmp_path: Path) -> None:
    result = command("convert", source, tmp_path / "new.tacozip", "--id", "x", code=2)
    assert "--license" in result.output
    assert not (tmp_path / "new.tacozip").exists()


def test_a_dry_run_as_json(source: Path, tmp_path: Path) -> None:
    result = command("convert", source, "--dry-run", "--json", code=1)
    report = json.loads(result.stdout)
    assert (report["from"], report["ok"], report["dry_run"]) == ("tortilla", False, True)
    assert "--provider" in [one["option"] for one in report["missing"]]
    assert report["ids"] == [{"level": 0, "old": "a/b", "new": "a_b"}]
    done = command("convert", source, "--dry-run", *OPTIONS)
    assert done.output.endswith("nothing written\n")
    assert [path.name for path in tmp_path.iterdir()] == ["old.tortilla"]


def test_several_become_one(source: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.tortilla"
    other.write_bytes(built([Item("d", b"333")]))
    output = tmp_path / "new.tacozip"
    command("convert", source, other, output, *OPTIONS)
    assert leaves(output) == {"a_b": b"1", "c": b"22", "d": b"333"}
    assert_sound(output)
    by_pattern = tmp_path / "pattern.tacozip"
    command("convert", tmp_path / "o*.tortilla", by_pattern, *OPTIONS)
    assert by_pattern.read_bytes() == output.read_bytes()
    report = command("convert", source, other, output, "--dry-run", "--json", *OPTIONS)
    assert json.loads(report.stdout)["leaves"] == 3


def test_collections_that_differ_are_told_of(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.taco" for name in "ab"]
    for path in paths:
        path.write_bytes(built([Item(path.stem, b"1")], collection={**FIELDS, "id": path.stem}))
    text = command("convert", *paths, tmp_path / "new.tacozip", *OPTIONS[2:]).output
    assert "2 different ones in 2 files; that of the first file is taken" in text
    assert collection(tmp_path / "new.tacozip")["id"] == "a"


def test_irregular_children(tmp_path: Path) -> None:
    source = tmp_path / "old.tortilla"
    source.write_bytes(IRREGULAR)
    output = tmp_path / "new.tacozip"
    for dry in ((), ("--dry-run",)):
        assert "--pad" in command("convert", source, output, *dry, *OPTIONS, code=2).output
    command("convert", source, output, "--pad", "--children", "position", *OPTIONS)
    assert leaves(output) == {"r0/0000": b"1", "r0/0001": b"2", "r1/0000": b"3"}


def test_a_file_of_ids(source: Path, tmp_path: Path) -> None:
    names = tmp_path / "ids.json"
    names.write_text('{"a/b": "first"}')
    command("convert", source, tmp_path / "new.tacozip", "--ids", names, "--quiet", *OPTIONS)
    assert list(leaves(tmp_path / "new.tacozip")) == ["first", "c"]
    names.write_text('{"a/b": 1}')
    command("convert", source, tmp_path / "n.tacozip", "--ids", names, *OPTIONS, code=2)
    command("convert", source, tmp_path / "n.tacozip", "--ids", tmp_path / "no", *OPTIONS, code=3)
    command("convert", source, code=2)
