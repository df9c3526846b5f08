"""Writing and opening a file of samples loads no library that it does not need: one process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.samples.doors import DOORS

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
