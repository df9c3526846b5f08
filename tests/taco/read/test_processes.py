"""Threads, forks and other processes; and how much is told."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from comal.taco.reading.dataset import load
from tests.attacks.build import Recipe
from tests.taco.read.scenes import expected, located, read_all, scenes, write

# Samples and their children have places and times here; what is said of it has its own test.
pytestmark = pytest.mark.filterwarnings("ignore:level 0 is filtered")

TREE = scenes(*(f"s{n}" for n in range(6)))


def use(dataset: Any) -> tuple[list[str], dict[str, bytes]]:
    some = dataset.filter_bbox(-1, -1, 2.5, 1).sql("SELECT * FROM data WHERE id <> 's1'")
    return some.data["id"].to_pylist(), read_all(some.data)


WANTED = ["s0", "s2"]
LEAVES = {p: d for p, d in expected(TREE).items() if p[:2] in WANTED}


def test_threads_share_a_dataset(tmp_path: Path) -> None:
    dataset = load(write(tmp_path, Recipe(tree=TREE, table=located)))
    found: list[Any] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        found.append(use(dataset))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(WANTED, LEAVES)] * 8


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_share_a_dataset(method: str, tmp_path: Path) -> None:
    dataset = load(write(tmp_path, Recipe(tree=TREE, table=located)))
    assert use(dataset) == (WANTED, LEAVES)
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        assert list(pool.map(use, [dataset] * 2)) == [(WANTED, LEAVES)] * 2
