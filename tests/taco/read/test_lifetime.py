"""What a dataset holds goes with it, at once and not when Python looks for cycles."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import taco
from comal.taco.reading.dataset import load
from tests.attacks.build import Recipe
from tests.taco.read.scenes import CONTAINERS, as_it_is, read_all, scenes, write
from tests.taco.write.small import dataset

TREE = scenes("a", "b", "c")


@pytest.fixture(autouse=True, scope="module")
def no_cycles_are_looked_for() -> Iterator[None]:
    """Once for all tests: what others have left in the process takes seconds to go through."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


USES: dict[str, Callable[[Any], object]] = {
    "nothing": lambda opened: None,
    "rows": lambda opened: opened.data,
    "bytes": lambda opened: read_all(opened.data),
    "query": lambda opened: opened.sql("SELECT * FROM data WHERE id <> 'b'").data,
    "levels": lambda opened: opened.sql('SELECT * FROM l2 WHERE "l0:id" = $x', {"x": "a"}).data,
    "filter": lambda opened: opened.filter_bbox(-1, 9, 1, 11, level=1).data,
    "flat": lambda opened: opened.flatten(2),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("kind", ["folder", "concat of an index"])
def test_nothing_stays_of_a_dataset(kind: str, use: str, tmp_path: Path) -> None:
    opened = CONTAINERS[kind](tmp_path, TREE, as_it_is)
    held = [*opened.home.containers, *opened.home.containers[-1].levels]
    alive = [weakref.ref(one) for one in held]
    del held
    USES[use](opened)
    assert all(one() is not None for one in alive)
    del opened
    assert [one() for one in alive] == [None] * len(alive)


def test_a_level_outlives_its_container(tmp_path: Path) -> None:
    level = load(write(tmp_path, Recipe(tree=TREE))).home.containers[0].levels[2]
    assert level.index == 2
    assert level.above.index == 1
    assert len(level.take(level.children(0))) == 2


def test_many_large_datasets_one_after_another(tmp_path: Path) -> None:
    rows = np.arange(60_000)
    names = [f"sample_{row:06d}" for row in rows]
    table = pa.table(
        {
            "id": names,
            "path": pa.array([b"x"] * len(rows), pa.binary()),
            "part": pa.array(["a", "b", "c"]).take(pa.array(rows % 3)),
            "number": rows,
        }
    )
    (path,) = taco.create(dataset(taco.Tortilla.from_table(table)), tmp_path / "many.tacozip")
    query = "SELECT * FROM data WHERE part = 'b' AND number % 20000 < 10"
    wanted = rows[(rows % 3 == 1) & (rows % 20_000 < 10)]
    before = pa.total_allocated_bytes()
    for _ in range(3):
        loaded = load(path)
        found = loaded.sql(query).data
        assert found["id"].to_pylist() == [names[row] for row in wanted]
        assert found["internal:relative_path"].to_pylist() == found["id"].to_pylist()
        assert found["internal:current_id"].to_pylist() == wanted.tolist()
        assert found.read_bytes(0) == b"x"
        again = loaded.sql(query).data
        assert again.to_arrow().equals(found.to_arrow())
        del loaded, found, again
        assert pa.total_allocated_bytes() - before < 1_000_000
