"""Frames and datasets in other processes: used already, or the first thing that is done there.

The latter loads no library that it does not need.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
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


_SCRIPT = """
import sys
from comal import tortilla

folder, zipped = sys.argv[1:]

def listed():
    print(sorted({name.partition(".")[0] for name in sys.modules} | set(sys.modules)))

samples = [tortilla.Sample(f"S{n}", "BYTES", folder + "/payload", "train") for n in range(300)]
frame = tortilla.open(tortilla.create(samples, folder + "/a.tortilla"))
assert frame.read_bytes([0, -1]) == [b"payload", b"payload"]
listed()
samples = [tortilla.Sample(f"s{n}", None, bytes([n + 1]), "train", score=n / 2) for n in range(9)]
samples.append(tortilla.Sample("file", "BYTES", folder + "/payload"))
frame = tortilla.open(tortilla.create(samples, folder + "/b.tortilla"))
assert frame.read_bytes([0, -1]) == [b"\\1", b"payload"]
assert frame.read("s3") == b"\\4"
listed()
from comal import taco
dataset = taco.load(zipped)
assert dataset.columns and repr(dataset)
listed()
"""

_LATE = ("pandas", "duckdb", "rasterio", "shapely", "obstore", "urllib3", "rich", "polars")
_ARROW = ("pyarrow.compute", "pyarrow._compute", "pyarrow.dataset", "asyncio", "pandas")
"""Of the memory that ten thousand files took, each of them was a tenth."""


def test_nothing_is_loaded_that_is_not_needed(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"payload")
    zipped = DOORS[0].write(tmp_path, {"a": b"a"})
    command = [sys.executable, "-c", _SCRIPT, str(tmp_path), str(zipped)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    of_paths, of_bytes, of_taco = done.stdout.splitlines()
    assert done.stderr == ""
    assert not [name for name in _ARROW if f"'{name}'" in of_paths]
    assert not [name for name in _LATE if f"'{name}'" in of_bytes]
    assert not [name for name in ("duckdb", "shapely", "rasterio") if f"'{name}'" in of_taco]
