"""Writing and opening a Tortilla loads no library that it does not need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import sys
from comal import tortilla
folder = sys.argv[1]
samples = [tortilla.Sample(f"s{n}", None, bytes([n]), "train", score=n / 2) for n in range(9)]
samples.append(tortilla.Sample("file", "BYTES", folder + "/payload"))
made = tortilla.create(samples, folder + "/a.tortilla")
frame = tortilla.open(made)
assert frame.read_bytes([0, -1]) == [b"\\0", b"payload"]
assert frame.read("s3") == b"\\3"
print(sorted({name.partition(".")[0] for name in sys.modules}))
"""

_PATHS = """
import sys
from comal import tortilla
folder = sys.argv[1]
samples = [tortilla.Sample(f"S{n}", "BYTES", folder + "/payload", "train") for n in range(300)]
frame = tortilla.open(tortilla.create(samples, folder + "/a.tortilla"))
assert frame.read_bytes([0, -1]) == [b"payload", b"payload"]
print(sorted(sys.modules))
"""


def _loaded(script: str, folder: Path) -> str:
    (folder / "payload").write_bytes(b"payload")
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_no_pandas_and_no_engine(tmp_path: Path) -> None:
    loaded = _loaded(_SCRIPT, tmp_path)
    for name in ("pandas", "duckdb", "rasterio", "shapely", "obstore", "urllib3", "rich", "polars"):
        assert f"'{name}'" not in loaded


def test_no_functions_of_arrow_and_no_event_loop(tmp_path: Path) -> None:
    """Of the memory that ten thousand files took, each of them was a tenth."""
    loaded = _loaded(_PATHS, tmp_path)
    for name in ("pyarrow.compute", "pyarrow._compute", "pyarrow.dataset", "asyncio", "pandas"):
        assert f"'{name}'" not in loaded
