"""Files that stay open, read by descriptor."""

from __future__ import annotations

import gc
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from comal.errors import ObjectChangedError, ShortReadError, StorageError
from comal.plan import ByteRange, Tail
from comal.storage import CountingSource, open_source
from comal.storage.source import HeldFile, held
from tests.support import in_child, open_below

CONTENT = np.random.default_rng(5).bytes(200_000)


def opened(path: Path) -> HeldFile:
    file = held(open_source(path))
    assert file is not None
    return file


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "a.bin"
    path.write_bytes(CONTENT)
    return path


def test_every_read(path: Path) -> None:
    file = opened(path)
    rng = np.random.default_rng(1)
    spans = [(0, 0), (0, len(CONTENT)), (len(CONTENT) - 1, 1), (len(CONTENT), 0), (4095, 2)]
    for at in rng.integers(0, len(CONTENT), 200).tolist():
        spans.append((at, int(rng.integers(0, len(CONTENT) - at + 1))))
    for offset, size in spans:
        found = file.read(offset, size)
        assert type(found) is bytes
        assert found == CONTENT[offset : offset + size]
    pieces = file.fetch([Tail(10), ByteRange(5, 7)])
    assert [piece.data for piece in pieces] == [CONTENT[-10:], CONTENT[5:12]]


def test_reads_that_cannot_be(path: Path) -> None:
    file = opened(path)
    for offset, size in ((len(CONTENT) - 1, 2), (len(CONTENT), 1), (10**12, 5)):
        with pytest.raises(ShortReadError):
            file.read(offset, size)
    for offset in (-1, -100):
        with pytest.raises(StorageError):
            file.read(offset, 10)


def test_a_file_that_grows(path: Path) -> None:
    file = opened(path)
    with path.open("ab") as stream:
        stream.write(b"more" * 5_000)
    assert file.read(100, 50) == CONTENT[100:150]
    assert file.read(len(CONTENT) - 2, 6) == CONTENT[-2:] + b"more"
    with pytest.raises(ObjectChangedError):
        file.check_unchanged()
    assert not file.current()
    assert opened(path).read(len(CONTENT), 4) == b"more"


def test_a_file_that_is_replaced(path: Path) -> None:
    file = opened(path)
    other = path.with_name("b.bin")
    other.write_bytes(b"other")
    other.replace(path)
    assert file.read(1_000, 500) == CONTENT[1_000:1_500]
    file.check_unchanged()
    assert not file.current()


def test_a_file_that_is_written_over(path: Path) -> None:
    file = opened(path)
    with path.open("r+b") as stream:
        stream.write(b"new")
    os.utime(path, ns=(1, 1))
    assert file.read(0, 3) == b"new"
    with pytest.raises(ObjectChangedError):
        file.check_unchanged()


def test_threads_and_forks(path: Path) -> None:
    file = opened(path)
    spans = [(at, 900) for at in range(0, 190_000, 1_000)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda span: file.read(*span), spans * 5))
    assert found == [CONTENT[at : at + size] for at, size in spans] * 5

    def reads() -> None:
        assert file.read(500, 100) == CONTENT[500:600]

    in_child(reads)
    reads()


def test_descriptors_are_counted_and_closed(path: Path) -> None:
    file = opened(path)
    assert open_below(path) == 1
    del file
    gc.collect()
    assert open_below(path) == 0


def test_only_plain_files_are_held(path: Path) -> None:
    assert held(CountingSource(open_source(path))) is None
