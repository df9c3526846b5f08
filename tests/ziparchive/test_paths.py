"""Packing local files."""

from __future__ import annotations

import io
import os
import socket
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tests.support import public_folder, without_privileges

from comal.errors import (
    AccessDeniedError,
    ComalError,
    InvalidInputError,
    ObjectNotFoundError,
    StorageError,
)
from comal.ziparchive import ZipWriter

MIB = 1 << 20


def make(folder: Path, sizes: list[int]) -> list[str]:
    rng = np.random.default_rng(1)
    made = []
    for row, size in enumerate(sizes):
        path = folder / f"f{row}"
        path.write_bytes(rng.bytes(size))
        made.append(str(path))
    return made


@pytest.mark.parametrize(
    "sizes",
    [
        [],
        [0],
        [0, 1, 0, 100],
        [MIB] * 20,
        [8 * MIB - 31, 8 * MIB, 8 * MIB + 1, 3],
        [5, 17 * MIB, 7, 9 * MIB, 1],
        [17] * 10_000,
    ],
    ids=["none", "empty", "tiny", "1 MiB", "buffer edge", "large", "many"],
)
def test_files_are_written_as_their_bytes_are(tmp_path: Path, sizes: list[int]) -> None:
    if len(sizes) > 1000:
        sources = make(tmp_path, sizes[:100]) * (len(sizes) // 100)
    else:
        sources = make(tmp_path, sizes)
    if sources:  # links are followed
        (tmp_path / "link").symlink_to(sources[0])
        sources[0] = str(tmp_path / "link")
    contents = [Path(source).read_bytes() for source in sources]
    names = [f"DATA/é{row}" if row % 3 else f"DATA/{row}" for row in range(len(sizes))]
    one, many = io.BytesIO(), tmp_path / "out.zip"
    writer = ZipWriter(one)
    places = [writer.add(name, data).offset for name, data in zip(names, contents, strict=True)]
    writer.add("after", b"a")
    writer.close()
    with many.open("wb") as file:
        writer = ZipWriter(file)
        offsets, found = writer.add_paths(names, sources, np.array(sizes, np.int64))
        writer.add("after", b"a")
        writer.close()
    assert many.read_bytes() == one.getvalue()
    assert (offsets.tolist(), found.tolist()) == (places, sizes)
    with zipfile.ZipFile(many) as other:
        assert other.testzip() is None
        assert other.namelist() == [*names, "after"]


def pack(path: Path | str, size: int | None = None) -> None:
    sizes = None if size is None else np.array([size], np.int64)
    ZipWriter(io.BytesIO()).add_paths(["a"], [str(path)], sizes)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("missing", ObjectNotFoundError, "cannot be opened"),
        ("below a file", ObjectNotFoundError, "cannot be opened"),
        ("folder", InvalidInputError, "not a regular file"),
        ("pipe", InvalidInputError, "not a regular file"),
        ("socket", StorageError, "cannot be opened"),
        ("device", InvalidInputError, "not a regular file"),
        ("NUL", InvalidInputError, "cannot be opened"),
        ("loop", StorageError, "cannot be opened"),
    ],
)
def test_sources_that_are_no_files(
    tmp_path: Path, kind: str, error: type[ComalError], message: str
) -> None:
    path: Path | str = tmp_path / "source"
    if kind == "below a file":
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "x"
    elif kind == "folder":
        path = tmp_path
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(path))
    elif kind == "device":
        path = "/dev/zero"
    elif kind == "NUL":
        path = "a\0b"
    elif kind == "loop":
        Path(path).symlink_to(path)
    with pytest.raises(error, match=message) as caught:
        pack(path)
    assert type(caught.value) is error
    assert caught.value.where is not None


def test_a_source_that_must_not_be_read() -> None:
    with public_folder() as folder:
        (source,) = make(folder, [5])
        pack(source)
        Path(source).chmod(0)
        with without_privileges(), pytest.raises(AccessDeniedError, match="cannot be opened"):
            pack(source)


@pytest.mark.parametrize("stated", [0, 4, 6, 9 * MIB])
def test_a_source_of_another_size_than_stated(tmp_path: Path, stated: int) -> None:
    (source,) = make(tmp_path, [5])
    with pytest.raises(InvalidInputError, match="changed its size") as caught:
        pack(source, stated)
    assert caught.value.found == "5 bytes"


@pytest.mark.parametrize("size", [100, 20 * MIB])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_source_that_changes_while_it_is_read(
    tmp_path: Path, size: int, change: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source,) = make(tmp_path, [size])
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        os.truncate(source, size + change)
        return status

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(InvalidInputError, match="changed its size"):
        pack(source)


class Full(io.BytesIO):
    def write(self, data: object, /) -> int:
        if self.tell() > 10 * MIB:
            raise OSError(28, "No space left on device")
        return super().write(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("sizes", [[MIB] * 20, [20 * MIB]])
def test_a_full_disk(tmp_path: Path, sizes: list[int]) -> None:
    sources = make(tmp_path, sizes)
    names = [str(row) for row in range(len(sizes))]
    before = set(threading.enumerate())
    with pytest.raises(StorageError, match="target cannot be written") as caught:
        ZipWriter(Full()).add_paths(names, sources)
    assert "No space left" in str(caught.value)
    assert set(threading.enumerate()) <= before


def test_arguments_of_different_length(tmp_path: Path) -> None:
    writer = ZipWriter(io.BytesIO())
    with pytest.raises(InvalidInputError, match="names and paths"):
        writer.add_paths(["a"], [])
    with pytest.raises(InvalidInputError, match="sizes and paths"):
        writer.add_paths(["a"], ["b"], np.zeros(2, np.int64))
