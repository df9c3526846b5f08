"""Frames and datasets that were used already, in other processes: one of each kind for all."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from comal import taco
from tests.attacks.build import Recipe, leaves_of
from tests.samples.doors import DOORS
from tests.taco.read.scenes import located, scenes, write

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

TREE = scenes(*(f"s{n}" for n in range(6)))
SOME = ["s0", "s2"]


def use(frame: Any) -> dict[str, bytes]:
    return {path: frame.read_bytes(path) for path, _ in frame.walk()}


def query(dataset: Any) -> dict[str, bytes]:
    return use(dataset.filter_bbox(-1, -1, 2.5, 1).sql("SELECT * FROM data WHERE id <> 's1'").data)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_the_same(method: str, tmp_path: Path) -> None:
    frames = [door.open(tmp_path, TREE) for door in DOORS]
    whole = dict(leaves_of(TREE))
    dataset = taco.load(write(tmp_path, Recipe(tree=TREE, table=located), "located.tacozip"))
    some = {path: data for path, data in whole.items() if path[:2] in SOME}
    assert [use(frame) for frame in frames] == [whole] * len(frames)
    assert query(dataset) == some
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert list(pool.map(use, frames)) == [whole] * len(frames)
        assert list(pool.map(query, [dataset] * 2)) == [some] * 2
