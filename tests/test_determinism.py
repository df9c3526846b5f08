"""The same input gives the same bytes, whatever the surroundings of the process are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.raquet.writing.sources import noise, on_grid, utm
from tests.raster.rasters import write as write_tiff
from tests.support import REPOSITORY, digests, files_below
from tests.tapalcatl.making import sparse, write_mbtiles

PROGRAM = """
import os, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from comal import raquet, taco, tapalcatl, tortilla
folder, umask, workers = sys.argv[1], int(sys.argv[2], 8), int(sys.argv[3])
os.umask(umask)
with ThreadPoolExecutor(workers) as executor:
    for name, options in (
        ("grid", {"spec_version": "0.1.0"}),
        ("utm", {"spec_version": "0.5.0", "resampling": "bilinear"}),
    ):
        raquet.write(
            os.path.join("..", name + ".tif"), os.path.join(folder, name + ".parquet"),
            block_size=64, executor=executor, **options,
        )
    tapalcatl.build(
        os.path.join("..", "source.mbtiles"), os.path.join(folder, "tiles"), executor=executor
    )
    tapalcatl.put(os.path.join(folder, "tiles"), [(4, 3, 3, b"{}" * 90), (0, 0, 0, b"[1]")])
    tapalcatl.to_pmtiles(os.path.join(folder, "tiles"), os.path.join(folder, "a.pmtiles"))

def samples(room):
    leaves = [[("a", b"x" * n), ("b", b"y")] for n in range(1, 13)]
    below = [[room.Sample(name, path=data) for name, data in pair] for pair in leaves]
    if room is taco:
        below = [taco.Tortilla(pair) for pair in below]
    return [room.Sample(f"s{n}", path=inner, score=n / 2) for n, inner in enumerate(below)]

fields = dict(
    id="a", dataset_version="1", description="a", licenses=["CC0-1.0"],
    providers=[{"name": "a"}], tasks=["other"],
)
for name in ("a.tacozip", "loose"):
    taco.create(taco.Taco(taco.Tortilla(samples(taco)), **fields), os.path.join(folder, name))
tortilla.create(samples(tortilla), os.path.join(folder, "a.tortilla"))
taco.pack_folder(os.path.join("..", "rasters"), os.path.join(folder, "placed.tacozip"), **fields)
"""
_FAST = "AVX2 FMA3 AVX512F AVX512_SKX AVX512_ICL AVX512_SPR X86_V3 X86_V4"
"""Features of processors by which NumPy calculates other last digits; it ignores unknown ones."""
SURROUNDINGS: list[tuple[Mapping[str, str], str, int]] = [
    ({"TZ": "UTC", "LANG": "C", "PYTHONHASHSEED": "0"}, "022", 1),
    (
        {
            "TZ": "Pacific/Kiritimati",
            "LC_ALL": "tr_TR.UTF-8",
            "PYTHONHASHSEED": "random",
            "GDAL_NUM_THREADS": "ALL_CPUS",
            "OMP_NUM_THREADS": "1",
            "HOME": "/nowhere",
            "NPY_DISABLE_CPU_FEATURES": _FAST,
            "OPENBLAS_CORETYPE": "Nehalem",
        },
        "077",
        3,
    ),
    ({"TZ": "America/St_Johns", "LANG": "C.UTF-8", "PYTHONHASHSEED": "1"}, "000", 2),
]
"""Each differs from the others in what it names; the third is for the night."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    on_grid(root / "grid.tif", noise((2, 150, 180), "uint16"), nodata=0)
    utm(root / "utm.tif", noise((1, 150, 150), "float32"))
    (root / "rasters").mkdir()
    for row in range(0, 40, 3):
        write_tiff(
            root / "rasters" / f"{row}.tif",
            noise((1, 8, 12), "uint8"),
            crs="EPSG:32632" if row % 2 else "EPSG:4326",
            affine=(300_000 + 7_777 * row, 7_000, 0, 4_000_000 + 31_111 * row, 0, -7_000)
            if row % 2
            else (-170 + 7.1 * row, 0.37, 0, 70 - 3.3 * row, 0, -0.37),
        )
    write_mbtiles(root / "source.mbtiles", sparse(150, 7, kind="json"), [("name", "Łódź")])
    return root


def test_one_digest_in_all_surroundings(sources: Path) -> None:
    found, tried = [], SURROUNDINGS[: 3 if "COMAL_FULL_SWEEP" in os.environ else 2]
    for number, (variables, umask, workers) in enumerate(tried):
        # Each from a folder of its own, with modification times of its own.
        home = sources / f"cwd {number}"
        home.mkdir()
        for path in sources.glob("*.*"):
            os.utime(path, (number * 10**8, number * 10**8))
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(home), umask, str(workers)],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src"), **variables},
            check=True,
            timeout=120,
        )
        found.append(digests(files_below(home)))
    assert len(found[0]) > 10
    tiles = {"grid.parquet", "utm.parquet", "tiles/meta.json", "placed.tacozip"}
    assert {*tiles, "a.tacozip", "a.tortilla", "loose/DATA/s0/a"} <= set(found[0])
    for one, (variables, *_) in zip(found, tried, strict=True):
        assert one == found[0], variables
