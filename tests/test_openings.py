"""Readers of others open archives while comal updates them in a loop: not one opening fails."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from select import select
from typing import IO, Any

import duckdb
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio.errors import NotGeoreferencedWarning

from comal import taco, tapalcatl, tortilla
from comal.errors import ObjectChangedError
from tests.faults.foreign import by_unzip
from tests.faults.updating import KINDS, MARKED, marked
from tests.interop.environments import drive
from tests.support import REPOSITORY, in_child

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
ROUNDS = 1_000 if FULL else 5
"""Openings by each reader, and updates meanwhile, at least."""
NAMES = {"/".join(map(str, key)) + ".png" for key in MARKED}
Reader = Callable[[Path], None]


def zip_by_zipfile(path: Path) -> None:
    """All entries are whole, and those that change together are of one update."""
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert len({archive.read(name) for name in NAMES & set(archive.namelist())}) == 1


def picture_by_gdal(path: str) -> None:
    """One picture. GDAL opens an archive twice, for the directory and for the entry.

    What an update appends to leaves entries where they were; `compact` moves all but the first.
    """

    def read() -> None:
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path) as picture:
            assert picture.read().shape == (1, 1, 1)

    in_child(read)  # GDAL keeps directories of archives: each opening has a process of its own


def footer_of(path: Path) -> tuple[Any, int, int]:
    """A Tortilla's table by struct and pyarrow, and the span of its first item."""
    with path.open("rb") as file:
        _, offset, size = struct.unpack("<2sQQ", file.read(18))
        file.seek(offset)
        table = pq.read_table(io.BytesIO(file.read(size)), use_threads=False)
        start, length = (table[f"tortilla:{name}"][0].as_py() for name in ("offset", "length"))
        file.seek(start)
        assert file.read(length).startswith(b"\x89PNG")
    return table, start, length


def tortilla_by_pyarrow(path: Path) -> None:
    table, *_ = footer_of(path)
    assert (len(table) - 30) % 8 == 0


def tortilla_by_gdal(path: Path) -> None:
    _, start, length = footer_of(path)
    picture_by_gdal(f"/vsisubfile/{start}_{length},{path}")


def tortilla_by_comal(path: Path) -> None:
    assert (len(tortilla.open(path)) - 30) % 8 == 0


def tileset_by_comal(path: Path) -> None:
    with tapalcatl.open(path) as tileset:
        for key in MARKED[:3]:
            assert tileset.tile(*key) is not None


def table_by_duckdb(path: Path) -> None:
    level = path / "METADATA/level0.parquet"
    query = "SELECT count(*), min(v), max(v) FROM read_parquet(?)"
    with duckdb.connect() as connection:
        rows = connection.execute(query, [str(level)]).fetchone()
    assert rows is not None
    assert rows[0] == 3 + rows[1] % 3
    assert rows[1] == rows[2]


def table_by_pyarrow(path: Path) -> None:
    # Not `read_table`, which opens a file twice.
    with pq.ParquetFile(path / "METADATA/level0.parquet") as file:
        table = file.read(use_threads=False)
    assert len(table) == 3 + table["v"][0].as_py() % 3


def folder_by_comal(path: Path) -> None:
    """Document, rows and bytes are of one version, or the reader is told that there is another."""
    try:
        opened = taco.load(path)
        version = int(opened.collection["title"])
        frame = opened.data
        assert len(frame) == 3 + version % 3
        assert frame["v"].to_pylist() == [version] * len(frame)
        assert frame.read_bytes(0) == marked(version)
    except ObjectChangedError:
        pass


READERS: dict[str, tuple[str, list[Reader]]] = {
    "archive": (
        "one/0/0/0.zip",
        [zip_by_zipfile, by_unzip, lambda p: picture_by_gdal(f"/vsizip/{p}/0/0/0.png")],
    ),
    "tileset": (
        "set",
        [
            lambda p: zip_by_zipfile(p / "2/1/1.zip"),
            lambda p: by_unzip(p / "2/0/1.zip"),
            lambda p: picture_by_gdal(f"/vsizip/{p}/2/1/0.zip/2/1/0.png"),
            tileset_by_comal,
        ],
    ),
    "tortilla": ("a.tortilla", [tortilla_by_pyarrow, tortilla_by_gdal, tortilla_by_comal]),
    "folder": (
        "dataset",
        [
            table_by_duckdb,
            table_by_pyarrow,
            lambda p: picture_by_gdal(str(p / "DATA/s0")),
            folder_by_comal,
        ],
    ),
}


@pytest.fixture(scope="module")
def updating() -> Iterator[subprocess.Popen[str]]:
    """A process that updates archives, one kind after the other."""
    where = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        [sys.executable, "-m", "tests.faults.updating"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": where},
    ) as process:
        yield process
        process.kill()


@contextmanager
def updates(process: subprocess.Popen[str], kind: str, folder: Path) -> Iterator[IO[str]]:
    """Update archives meanwhile; what is given can be read when that was done often enough."""
    assert process.stdin is not None
    assert process.stdout is not None
    KINDS[kind][0](folder)
    process.stdin.write(f"{kind} {ROUNDS} {folder}\n")
    try:
        yield process.stdout
    finally:
        told = process.stdout.readline()
        process.stdin.write("\n")
    assert told == f"{ROUNDS}\n"


@pytest.mark.parametrize("kind", READERS)
def test_openings_during_updates(
    tmp_path: Path, kind: str, updating: subprocess.Popen[str]
) -> None:
    name, readers = READERS[kind]
    with updates(updating, kind, tmp_path) as done:
        for number in count(1):
            for reader in readers:
                reader(tmp_path / name)
            if number > ROUNDS and select([done], [], [], 0)[0]:
                break


@pytest.mark.skipif(not FULL, reason="the nightly run starts the reference reader")
def test_openings_by_the_reference_reader(tmp_path: Path, updating: subprocess.Popen[str]) -> None:
    with updates(updating, "tortilla", tmp_path):
        (rows,) = drive(
            "tortilla-0.5.6",
            "tortilla_opens.py",
            tmp_path / "home",
            [(str(tmp_path / "a.tortilla"), ROUNDS)],
            "tacoreader",
        )
    assert len(rows) == ROUNDS
    assert {(count - 30) % 8 for count in rows} == {0}
