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


def test_no_pandas_and_no_engine(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"payload")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, check=True
    )
    for name in ("pandas", "duckdb", "rasterio", "shapely", "obstore", "urllib3", "rich", "polars"):
        assert f"'{name}'" not in done.stdout
