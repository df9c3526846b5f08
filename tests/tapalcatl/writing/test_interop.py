"""Others read what is written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.io import MemoryFile

from comal import tapalcatl
from tests.tapalcatl.making import listed, pyramid, unzipped


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tileset with everything: both methods, headers, exact times, an update."""
    tapalcatl.build(
        listed({**pyramid(4), **pyramid(2, kind="json")}),
        tmp_path / "out",
        times=1_541_013_027,
        entry_headers={(0, 0, 0): (("X-A", "b"),)},
        description="Łódź",
    )
    tapalcatl.put(tmp_path / "out", [(2, 1, 1, b"\x89PNG\r\n\x1a\nnew")])
    tapalcatl.delete(tmp_path / "out", [(2, 0, 1)])
    return tmp_path / "out"


@pytest.mark.parametrize("program", [["unzip", "-t"], ["bsdtar", "-tvf"]])
def test_programs(tree: Path, program: list[str]) -> None:
    if shutil.which(program[0]) is None:
        pytest.skip(f"{program[0]} is not installed")
    tapalcatl.build(listed(pyramid(2)), tree / "one.zip")
    for path in tree.rglob("*.zip"):
        done = subprocess.run([*program, str(path)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        if program[0] == "unzip":
            assert "No errors detected" in done.stdout


def test_archives_extract_over_one_another(tree: Path, tmp_path: Path) -> None:
    if shutil.which("bsdtar") is None:
        pytest.skip("bsdtar is not installed")
    out = tmp_path / "all"
    out.mkdir()
    for path in tree.rglob("*.zip"):
        subprocess.run(["bsdtar", "-xf", str(path), "-C", str(out)], check=True)
    found = {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*.*")}
    assert found == unzipped(tree)


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_gdal_reads_tiles_through_vsizip(tmp_path: Path) -> None:
    values = np.arange(64 * 64, dtype=np.uint8).reshape(1, 64, 64)
    pictures = []
    for z, x, y in ((0, 0, 0), (1, 1, 0)):
        with MemoryFile() as memory:
            with memory.open(driver="PNG", width=64, height=64, count=1, dtype="uint8") as target:
                target.write(values + z)
            pictures.append((z, x, y, memory.read()))
    tapalcatl.build(pictures, tmp_path / "out", compression="deflate")
    path = next((tmp_path / "out").rglob("*.zip"))
    for z, x, y, _ in pictures:
        with rasterio.open(f"/vsizip/{path}/{z}/{x}/{y}.png") as raster:
            assert (raster.read() == values + z).all()
    assert tapalcatl.check(tmp_path / "out").ok
