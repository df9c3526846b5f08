"""Main jobs load no pandas where it is installed: it takes a second of each process, and 40 MB.

pyarrow loads it to look at arguments of Python and numpy (`comal.table.columns`). Jobs of TACO
and checks have such arguments, and are not here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from comal import raquet, tapalcatl, tortilla
from tests.raquet.writing.sources import noise, on_grid
from tests.tapalcatl.making import listed, pyramid

pytest.importorskip("pandas")
JOBS = {
    "build": "tapalcatl.build('t.mbtiles', o)",
    "build one": "tapalcatl.build('t.pmtiles', o + '.zip')",
    "build of a folder": "tapalcatl.build('tree', o, exact_times=True, times='source')",
    "build of a few": r"tapalcatl.build([(0, 0, 0, b'\x89PNG\r\n\x1a\n')], o)",
    "build a variant": "tapalcatl.build('t.mbtiles', o, variant='dark', metatile=8)",
    "build 1": "tapalcatl.build('t.mbtiles', o, version=1)",
    "a tile": "tapalcatl.open('tiles').tile(3, 1, 1)",
    "to_mbtiles": "tapalcatl.to_mbtiles('tiles', o + '.mbtiles')",
    "to_pmtiles": "tapalcatl.to_pmtiles('tiles', o + '.pmtiles')",
    "to_directory": "tapalcatl.to_directory('tiles', o)",
    "remetatile": "tapalcatl.remetatile('tiles', o, metatile=1)",
    "extract": "tapalcatl.extract('tiles', o, max_zoom=3)",
    "tiles of several": "tapalcatl.merge(['tiles', 't.mbtiles'], o)",
    "put": r"tapalcatl.put('put', [(3, 1, 1, b'\x89PNG\r\n\x1a\n5')])",
    "compact": "tapalcatl.compact('compact', force=True)",
    "draw": "from comal.convert import draw; draw('dem.parquet', o)",
    "draw one": "from comal.convert import draw; draw('dem.parquet', o + '.pmtiles')",
    "write": "raquet.write('dem.tif', o + '.parquet')",
    "read": "raquet.open('dem.parquet').read()",
    "point": "raquet.open('dem.parquet').point(-0.1, 55)",
    "partition": "raquet.partition('dem.parquet', o, zoom=3)",
    "merge": "raquet.merge('dem.parquet', o + '.parquet')",
    "to_cog": "raquet.to_cog('dem.parquet', o + '.tif')",
    "tortilla": "tortilla.create([tortilla.Sample('a', 'BYTES', b'x')], o + '.tortilla')",
    "read a tortilla": "tortilla.open('a.tortilla').read_bytes([0])",
}
_SCRIPT = """
import json, sys
from comal import raquet, tapalcatl, tortilla
for name, job in json.load(sys.stdin).items():
    o = f"{sys.argv[1]}/{name}"
    exec(job)
    if 'pandas' in sys.modules:
        sys.exit(f"{name} loads pandas")
"""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    s = tmp_path_factory.mktemp("sources")
    tiles = listed(pyramid(5))
    for name in ("tiles", "put", "compact"):
        tapalcatl.build(tiles, s / name)
    tapalcatl.to_mbtiles(s / "tiles", s / "t.mbtiles")
    tapalcatl.to_pmtiles(s / "tiles", s / "t.pmtiles")
    tapalcatl.to_directory(s / "tiles", s / "tree")
    on_grid(s / "dem.tif", noise((1, 300, 300), "int16"), nodata=0)
    raquet.write(s / "dem.tif", s / "dem.parquet")
    tortilla.create([tortilla.Sample("a", "BYTES", b"x")], s / "a.tortilla")
    return s


def test_main_jobs_load_no_pandas(sources: Path, tmp_path: Path) -> None:
    """In one process, which says which job was the first that did."""
    called = [sys.executable, "-c", _SCRIPT, str(tmp_path)]
    done = subprocess.run(
        called, cwd=sources, input=json.dumps(JOBS), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.iterdir())) > len(JOBS) // 2
