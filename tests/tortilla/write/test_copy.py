"""Subsets, joins and splits: the bytes and the order of the rows, or an error and nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from comal import tortilla
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    NotInContainerError,
    ObjectChangedError,
)
from comal.storage import StorageConfig
from comal.tortilla import Created, Sample, create
from tests.servers.http import HttpServer
from tests.tortilla.write.oracle import foreign, listing, read


def made(folder: Path, count: int = 6, name: str = "a") -> Path:
    samples = [Sample(f"{name}{n}", path=f"{name}{n}".encode() * n, n=n) for n in range(count)]
    return create(samples, folder / f"{name}.tortilla").path


def test_rows_in_the_order_that_is_asked_for(tmp_path: Path) -> None:
    source = made(tmp_path)
    for arguments, expected in (
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"ids": ["a4", "a1"]}, [4, 1]),
        ({"rows": [5, 0, -2]}, [5, 0, 4]),
        ({"rows": np.array([True, False] * 3)}, [0, 2, 4]),
        ({"rows": pa.array([False] * 5 + [True])}, [5]),
    ):
        found = read(tortilla.compile(source, tmp_path / "b.tortilla", overwrite=True, **arguments))
        assert found.column("n") == expected
        assert found.items == [f"a{n}".encode() * n for n in expected]
    frame = tortilla.open(source)
    some = frame.filter(pa.array([n > 2 for n in range(6)]))
    assert read(tortilla.compile(some, tmp_path / "c.tortilla")).column("n") == [3, 4, 5]


def test_nested_frames_and_columns(tmp_path: Path) -> None:
    inner = [Sample(f"x{n}", path=bytes([n + 1]) * 5, n=n, m="m") for n in range(4)]
    source = create([Sample("roi", path=inner)], tmp_path / "a.tortilla")
    child = tortilla.open(source).read("roi")
    found = read(tortilla.compile(child.select(["n"])[1:3], tmp_path / "b.tortilla"))
    assert found.tree() == {"x1": b"\2" * 5, "x2": b"\3" * 5}
    assert "m" not in found.table.column_names


def test_what_is_asked_for_and_is_not_there(tmp_path: Path) -> None:
    source = made(tmp_path)
    for arguments, kind in (
        ({"ids": ["a1", "zz"]}, NotInContainerError),
        ({"rows": [6]}, NotInContainerError),
        ({"rows": [True]}, InvalidInputError),
        ({"rows": [1.5]}, InvalidInputError),
        ({"rows": []}, InvalidInputError),
        ({"rows": [1, 1]}, InvalidInputError),
        ({"rows": [1], "ids": ["a1"]}, InvalidInputError),
    ):
        with pytest.raises(kind):
            tortilla.compile(source, tmp_path / "b.tortilla", **arguments)
    assert listing(tmp_path) == ["a.tortilla"]


def test_never_onto_a_part_that_is_read(tmp_path: Path) -> None:
    parts = tortilla.compile(made(tmp_path), tmp_path / "s.tortilla", chunk_rows=2).paths
    with pytest.raises(ConflictError, match="source"):
        tortilla.compile(parts, tmp_path / "s.tortilla", chunk_rows=2, overwrite=True)


def test_from_a_server_until_the_first_bad_read(tmp_path: Path, http_server: HttpServer) -> None:
    source = made(tmp_path, 50)
    url = http_server.put("a.tortilla", source.read_bytes())
    frame = tortilla.open(url, config=StorageConfig(tries=1))
    some = tortilla.compile(frame, tmp_path / "some.tortilla", rows=[40, 2, 3])
    assert read(some).items == [f"a{n}".encode() * n for n in (40, 2, 3)]
    some.path.unlink()
    http_server.behave("status", code=500)
    with pytest.raises(ComalError):
        tortilla.compile(frame, tmp_path / "b.tortilla")
    http_server.well()
    http_server.put("a.tortilla", bytes(len(source.read_bytes())))
    with pytest.raises(ObjectChangedError):
        tortilla.compile(frame, tmp_path / "b.tortilla")
    local = tortilla.open(source)
    source.write_bytes(source.read_bytes()[:300])
    with pytest.raises(ComalError):
        tortilla.compile(local, tmp_path / "b.tortilla")
    assert listing(tmp_path) == ["a.tortilla"]


def test_files_of_others_become_what_the_specification_says(tmp_path: Path) -> None:
    source = foreign(tmp_path, ["a", "b"], kept=[1, 2])
    found = read(tortilla.compile(source, tmp_path / "b.tortilla"))
    kinds = {field.name: str(field.type) for field in found.table.schema}
    assert kinds == {
        "tortilla:id": "string",
        "tortilla:file_format": "string",
        "tortilla:offset": "int64",
        "tortilla:length": "int64",
        "stac:time_start": "int64",
        "rai:elevation": "int64",
        "kept": "int64",
    }
    assert found.tree() == {"a": b"<a>", "b": b"<b>"}


def test_ids_of_others(tmp_path: Path) -> None:
    odd = foreign(tmp_path, ["a?", "A?", "x ", "con"])
    assert read(tortilla.compile(odd, tmp_path / "1.tortilla")).ids == ["a?", "A?", "x ", "con"]
    worse = foreign(tmp_path, ["a/b", "c:d"])
    with pytest.raises(InvalidInputError, match="allow_ids"):
        tortilla.compile(worse, tmp_path / "2.tortilla")
    assert read(tortilla.compile(worse, tmp_path / "2.tortilla", allow_ids=True)).ids == [
        "a/b",
        "c:d",
    ]
    twice = foreign(tmp_path, ["a", "a"])
    with pytest.raises(InvalidInputError, match="appears twice"):
        tortilla.compile(twice, tmp_path / "3.tortilla", allow_ids=True)
    with pytest.raises(InvalidInputError, match="appears twice"):
        tortilla.compile(twice, tmp_path / "3.tortilla", ids=["a"])
    assert read(tortilla.compile(twice, tmp_path / "3.tortilla", rows=[1])).items == [b"<a>"]


def join(sources: Any, output: Path, *, overwrite: bool = False) -> Created:
    """Parts of a set, or several files, as one."""
    return tortilla.compile(tortilla.open(sources, siblings=True), output, overwrite=overwrite)


def test_joining(tmp_path: Path) -> None:
    one, two = made(tmp_path, 3, "a"), made(tmp_path, 2, "b")
    other = create([Sample("c", path=b"c", n=0.5, z="z")], tmp_path / "c.tortilla").path
    found = read(join([two, one, other], tmp_path / "all.tortilla"))
    assert found.ids == ["b0", "b1", "a0", "a1", "a2", "c"]
    assert found.column("n") == [0, 1, 0, 1, 2, 0.5]
    assert found.column("z") == [None] * 5 + ["z"]
    with pytest.raises(InvalidInputError, match="named twice"):
        join([one, one], tmp_path / "x.tortilla")
    copied = tmp_path / "copy.tortilla"
    shutil.copy(one, copied)
    with pytest.raises(InvalidInputError, match="appears twice"):
        join([one, copied], tmp_path / "x.tortilla")
    clash = create([Sample("d", path=b"d", n="text")], tmp_path / "d.tortilla").path
    with pytest.raises(InvalidMetadataError, match="cannot be combined"):
        join([one, clash], tmp_path / "x.tortilla")
    assert "x.tortilla" not in listing(tmp_path)
