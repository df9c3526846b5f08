"""Many local files read ahead."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal.errors import InvalidInputError, ObjectNotFoundError, StorageError
from comal.storage.manyfiles import Block, Part, file_sizes, read_ahead, read_exactly
from tests.support import open_below

MIB = 1 << 20


def make(folder: Path, sizes: list[int]) -> list[str]:
    rng = np.random.default_rng(3)
    paths = []
    for row, size in enumerate(sizes):
        path = folder / f"{row}"
        path.write_bytes(rng.bytes(size))
        paths.append(str(path))
    return paths


def firsts(view: memoryview, starts: list[int], sizes: list[int]) -> list[bytes]:
    return [bytes(view[start : start + min(size, 2)]) for start, size in zip(starts, sizes)]  # noqa: B905


def contents(pieces: Iterator[Any], gaps: list[int]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for piece in pieces:
        if isinstance(piece, Part):
            assert piece.start == len(found.get(piece.row, b""))
            found[piece.row] = found.get(piece.row, b"") + bytes(piece.view)
            continue
        assert isinstance(piece, Block)
        end = 0
        for n, (start, size) in enumerate(zip(piece.starts, piece.sizes, strict=True)):
            row = piece.first + n
            assert start == end + gaps[row]
            end = start + size
            found[row] = piece.array[start:end].tobytes()
            assert piece.made[n] == found[row][:2]
        assert end == len(piece.array)
    return found


@pytest.mark.parametrize(
    "sizes",
    [[], [0], [0, 5, 0], [3 * MIB] * 5, [1, 4 * MIB, 4 * MIB - 1, 4 * MIB + 1, 20 * MIB, 0, 7]],
    ids=["none", "empty", "tiny", "middle", "large"],
)
@pytest.mark.parametrize("gap", [0, 57])
def test_all_bytes_come_in_order(tmp_path: Path, sizes: list[int], gap: int) -> None:
    paths = make(tmp_path, sizes)
    gaps = [gap + row % 3 for row in range(len(sizes))]
    rooms = np.array(gaps, np.int64)
    for pieces in (
        read_ahead(paths, rooms, firsts),
        read_ahead(paths, rooms, firsts, np.array(sizes, np.int64)),
        read_ahead(paths, rooms, firsts, regular=True),
    ):
        found = contents(pieces, gaps)
        assert found == {row: Path(path).read_bytes() for row, path in enumerate(paths)}
        assert list(found) == sorted(found)


def test_who_stops_early_leaves_no_thread_and_no_descriptor(tmp_path: Path) -> None:
    paths = make(tmp_path, [30 * MIB, *[MIB] * 20])
    # Threads of earlier tests may end meanwhile.
    threads = set(threading.enumerate())
    for wanted in (1, 3, 12):
        pieces = read_ahead(paths, np.zeros(len(paths), np.int64), firsts)
        for _ in range(wanted):
            next(pieces)
        pieces.close()  # type: ignore[attr-defined]
        assert set(threading.enumerate()) <= threads
        assert open_below(tmp_path) == 0


def test_a_file_that_fails_comes_after_those_before_it(tmp_path: Path) -> None:
    paths = [*make(tmp_path, [MIB] * 8), str(tmp_path / "gone")]
    pieces = read_ahead(paths, np.zeros(len(paths), np.int64), firsts)
    assert isinstance(next(pieces), Block)
    with pytest.raises(ObjectNotFoundError, match="gone"):
        list(pieces)


@pytest.mark.parametrize("size", [100, 20 * MIB])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_file_that_changes_while_it_is_read(
    tmp_path: Path, size: int, change: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = make(tmp_path, [size])
    real = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        os.truncate(path, size + change)
        return status

    monkeypatch.setattr(os, "fstat", fstat)
    with pytest.raises(InvalidInputError, match="changed its size"):
        list(read_ahead([path], np.zeros(1, np.int64), firsts))


def test_sizes_of_files(tmp_path: Path) -> None:
    paths = make(tmp_path, [0, 5, 70_000])
    assert file_sizes([paths[1], None, paths[2], paths[0]]).tolist() == [5, 0, 70_000, 0]
    with pytest.raises(ObjectNotFoundError):
        file_sizes([str(tmp_path / "gone")])
    for bad in (str(tmp_path), "a\0b", "/dev/zero"):
        with pytest.raises(InvalidInputError):
            file_sizes([bad])


def test_read_exactly_goes_on_after_short_reads() -> None:
    reader, writer = os.pipe()
    thread = threading.Thread(target=lambda: [os.write(writer, b"ab") for _ in range(50)])
    thread.start()
    target = bytearray(100)
    read_exactly(reader, memoryview(target), 100, "pipe")
    thread.join()
    os.close(reader)
    os.close(writer)
    assert target == b"ab" * 50
    with pytest.raises(StorageError, match="cannot be read"):
        read_exactly(reader, memoryview(target), 100, "pipe")


def test_what_was_listed_as_a_file_and_is_none_any_more(tmp_path: Path) -> None:
    (path,) = make(tmp_path, [7])
    Path(path).unlink()
    os.mkfifo(path)
    for regular in (False, True):
        with pytest.raises((InvalidInputError, StorageError)):
            list(read_ahead([path], np.zeros(1, np.int64), firsts, regular=regular))
