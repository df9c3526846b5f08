"""Files of older writers: without ids, with wide types, padded, with wrong parents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from comal.taco.reading.dataset import load
from comal.taco.spec import TacoWarning
from tests.attacks.build import FLAT, Recipe, Tree, replaced
from tests.taco.read.scenes import (
    CONTAINERS,
    expected,
    large,
    read_all,
    scenes,
    without,
    write,
    write_folder,
)

TREE = scenes("s2", "s10", "s1")
PAD = "__TACOPAD__0"
CURRENT, PARENT, PATH = "internal:current_id", "internal:parent_id", "internal:relative_path"


def both(tmp_path: Path, recipe: Recipe) -> list[Path]:
    return [write(tmp_path, recipe), write_folder(tmp_path, recipe)]


def top_bare(level: int, table: Any) -> Any:
    """As the reference writers: level 0 has neither path nor, here, parent."""
    return without(PATH, PARENT)(level, table) if level == 0 else table


def slashless(level: int, table: Any) -> Any:
    paths = [path.rstrip("/") for path in table[PATH].to_pylist()]
    return replaced(table, PATH, paths)


def renumbered(level: int, table: Any) -> Any:
    """Ids that are no row numbers."""
    table = replaced(table, CURRENT, [n * 7 * (level + 1) + 3 for n in table[CURRENT].to_pylist()])
    if level:
        table = replaced(table, PARENT, [n * 7 * level + 3 for n in table[PARENT].to_pylist()])
    return table


HOOKS = {
    "other ids": renumbered,
    "no ids": without(CURRENT),
    "wide types": large,
    "generation A": lambda n, t: large(n, without(CURRENT)(n, t)),
    "bare top": top_bare,
    "no slash": slashless,
    "no parents": without(PARENT),
    "stored elsewhere": lambda n, t: t.select(sorted(t.column_names)),
}


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        *(("zip", hook) for hook in HOOKS),
        *(("folder", hook) for hook in ("no ids", "bare top", "no slash", "no parents")),
        *(("concat of an index", hook) for hook in ("other ids", "generation A", "bare top")),
    ],
)
def test_every_leaf_is_right(kind: str, hook: str, tmp_path: Path) -> None:
    dataset = CONTAINERS[kind](tmp_path, TREE, HOOKS[hook])
    assert read_all(dataset.data) == expected(TREE)
    frame = dataset.flatten()
    paths = zip(*(frame[f"l{n}:id"].to_pylist() for n in range(3)), strict=True)
    assert frame.read_bytes() == [expected(TREE)["/".join(p)] for p in paths]
    assert len(frame) == 6
    deep = dataset.filter_bbox(1.5, 19, 4.5, 21, level=2)
    assert deep.data["id"].to_pylist() == ["s10", "s1"]
    assert deep.sql("SELECT * FROM level2").data.shape[0] == 4
    assert not any(pa.types.is_large_string(f.type) for f in dataset.data.schema)


def test_a_zip_without_paths_has_them_from_its_parents(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, Recipe(tree=TREE, table=without(PATH))))
    assert read_all(dataset.data) == expected(TREE)
    frame = dataset.sql("SELECT * FROM level2").data
    assert frame[PATH].to_pylist() == [p for p in expected(TREE) if p.count("/") == 2]
    assert frame.read_bytes() == [expected(TREE)[p] for p in frame[PATH].to_pylist()]


def test_missing_ids_come_from_the_order_of_the_rows(tmp_path: Path) -> None:
    many = {f"img_{n:05d}": b"x" for n in range(1000)}
    recipe = Recipe(tree=many, table=without(CURRENT))
    dataset = load(write(tmp_path, recipe))
    assert dataset.data[CURRENT].to_pylist() == list(range(1000))
    some = dataset.sql("SELECT * FROM data WHERE id >= 'img_00990'")
    assert some.data[CURRENT].to_pylist() == list(range(990, 1000))


def test_wrong_parents_of_old_exports_are_mended_by_the_paths(tmp_path: Path) -> None:
    def wrong(level: int, table: Any) -> Any:
        return replaced(table, PARENT, [1, 1, 3, 3, 5, 5]) if level == 2 else table

    for path in both(tmp_path, Recipe(tree=TREE, table=wrong)):
        dataset = load(path)
        with pytest.warns(TacoWarning, match="paths"):
            assert read_all(dataset.data) == expected(TREE)
        assert dataset.sql("SELECT * FROM level2").data[PARENT].to_pylist() == [0, 0, 2, 2, 4, 4]
        assert len(dataset.flatten()) == 6


def test_padding_is_hidden_everywhere_but_in_raw_data(tmp_path: Path) -> None:
    def padded(a: bytes, label: bytes) -> Tree:
        return {"imagery": {"a": a, PAD: b""}, "label": label, PAD: b""}

    tree = {"one": padded(b"a", b"l"), "two": padded(b"a", b"l"), PAD: padded(b"", b"")}
    visible = {
        f"{s}/{p}": d for s in ("one", "two") for p, d in (("imagery/a", b"a"), ("label", b"l"))
    }
    for path in both(tmp_path, Recipe(tree=tree)):
        dataset = load(path)
        assert read_all(dataset.data) == visible
        assert len(dataset.data) == 2
        assert len(dataset.data_raw) == 3
        assert len(dataset.sql("SELECT * FROM data").data) == 2
        assert len(dataset.flatten()) == 2
        assert len(dataset.flatten(1)) == 2
        assert dataset.pit_schema.root_n == 3


def test_almost_padding_is_not_hidden(tmp_path: Path) -> None:
    tree = {**FLAT, "xxTACOPADxx0": b"not padding", "_TACOPAD_": b"neither"}
    frame = load(write(tmp_path, Recipe(tree=tree))).data
    assert frame["id"].to_pylist() == list(tree)


def test_a_folder_that_keeps_spans_of_its_zip_is_read_by_path(tmp_path: Path) -> None:
    def hook(level: int, table: Any) -> Any:
        zeros = pa.array([0] * len(table), pa.int64())
        return table.append_column("internal:offset", zeros).append_column("internal:size", zeros)

    dataset = load(write_folder(tmp_path, Recipe(tree=TREE, table=hook)))
    assert read_all(dataset.data) == expected(TREE)
    assert "internal:offset" not in dataset.columns
