"""Local files: what is opened, what is refused, what happens when they change."""

from __future__ import annotations

import gc
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import storage
from comal.errors import (
    AccessDeniedError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    ShortReadError,
    StorageError,
    UnsafeContentError,
)
from comal.plan import ByteRange, Head, Tail, Whole
from comal.storage import CountingSource, StorageConfig
from comal.storage.source import HeldFile, held
from tests.support import in_child, open_below, public_folder, without_privileges


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "socket"))
        source = storage.open_source(tmp_path)
        for name in ("fifo", "folder", "socket"):
            with pytest.raises(NotThisFormatError):
                source.fetch([Head(1, name)])
    for name in ("fifo", "socket"):
        with pytest.raises(NotThisFormatError):
            source.stat(name)
    for href in ("/dev/zero", str(tmp_path)):
        with pytest.raises(NotThisFormatError):
            storage.open_source(href).fetch([Head(1)])


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    source = storage.open_source(tmp_path / "a")
    with pytest.raises(ObjectNotFoundError):
        source.fetch([Head(1, "b")])
    with pytest.raises(ObjectNotFoundError):
        source.names()


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="too long"):
        storage.open_source(tmp_path).fetch([Head(1, "x" * 300)])


def test_a_file_that_may_not_be_read() -> None:
    with public_folder() as folder:
        (folder / "a").write_bytes(b"1")
        storage.open_source(folder / "a").fetch([Head(1)])
        (folder / "a").chmod(0)
        with without_privileges(), pytest.raises(AccessDeniedError):
            storage.open_source(folder / "a").fetch([Head(1)])


def test_links_must_stay_in_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "secret").write_bytes(b"secret")
    base = tmp_path / "base"
    (base / "real").mkdir(parents=True)
    (base / "real" / "a").write_bytes(b"inside")
    (base / "link").symlink_to("real")
    (base / "away").symlink_to(tmp_path / "out")
    (base / "twin").symlink_to(tmp_path / "base2")
    (tmp_path / "base2").write_bytes(b"a name that begins alike")
    source = storage.open_source(base)
    assert source.fetch([Whole(9, "link/a")])[0].data == b"inside"
    for call in (
        lambda: source.fetch([Head(1, "away/secret")]),
        lambda: source.fetch([Head(1, "twin")]),
        lambda: source.stat("away/secret"),
        lambda: source.names("away"),
        lambda: source.child("away").fetch([Head(1, "secret")]),
        lambda: source.child("away/secret").fetch([Head(1)]),
        lambda: source.child("real").child("../away/secret"),
    ):
        with pytest.raises(UnsafeContentError):
            call()
    trusting = storage.open_source(base, config=StorageConfig(follow_symlinks=True))
    assert trusting.fetch([Whole(9, "away/secret")])[0].data == b"secret"


def test_the_opened_path_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a").write_bytes(b"1")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").symlink_to("real/a")
    assert storage.open_source(tmp_path / "link").fetch([Head(1, "a")])[0].data == b"1"
    assert storage.open_source(tmp_path / "link").names() == ["a"]
    assert storage.open_source(tmp_path / "file").fetch([Head(1)])[0].data == b"1"


def test_changed_during_the_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"12345")
    source = storage.open_source(path)
    pread = os.pread

    def meanwhile(descriptor: int, size: int, offset: int) -> bytes:
        data = pread(descriptor, size, offset)
        with path.open("r+b") as file:
            file.write(b"x")
        os.utime(path, ns=(1, 1))
        return data

    monkeypatch.setattr(os, "pread", meanwhile)
    with pytest.raises(ObjectChangedError):
        source.fetch([ByteRange(3, 2)])


def test_short_preads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at))
    source = storage.open_source(tmp_path / "a")
    assert source.fetch([ByteRange(1, 8)])[0].data == b"12345678"
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, min(size, 3), at) * (at < 4))
    with pytest.raises(ShortReadError):
        source.fetch([ByteRange(1, 8)])


def test_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")

    def broken(*args: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(StorageError, match="Input/output") as caught:
        storage.open_source(tmp_path / "a").fetch([Head(1)])
    assert type(caught.value) is StorageError


def test_no_descriptor_stays(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    source = storage.open_source(tmp_path)
    source.fetch([Head(1, "a")] * 5)
    for name in ("gone", "a/b"):
        with pytest.raises(ObjectNotFoundError):
            source.fetch([Head(1, name)])
    with pytest.raises(ShortReadError):
        source.fetch([ByteRange(5, 50, "a")])
    assert open_below(tmp_path) == 0


def test_a_sparse_file_beyond_four_gigabytes(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        file.seek(5 << 30)
        file.write(b"end")
    source = storage.open_source(tmp_path / "a")
    (piece,) = source.fetch([ByteRange(5 << 30, 3)])
    assert (piece.data, piece.total) == (b"end", (5 << 30) + 3)
    assert source.fetch([Tail(3)])[0].data == b"end"


def test_a_folder_that_is_replaced_while_it_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x").touch()
    source, real = storage.open_source(tmp_path / "a"), os.scandir
    assert source.names() == ["x"]

    def replaced(what: int) -> Any:
        (tmp_path / "a").rename(tmp_path / "gone")
        (tmp_path / "a").mkdir()
        return real(what)

    monkeypatch.setattr(os, "scandir", replaced)
    with pytest.raises(ObjectChangedError, match="replaced"):
        source.names()


def test_a_folder_that_is_replaced_while_a_file_of_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x").write_bytes(name.encode())
    source, real = storage.open_source(tmp_path / "a"), os.open

    def replaced(path: Any, *more: Any) -> int:
        descriptor = real(path, *more)
        (tmp_path / "a").rename(tmp_path / "gone")
        (tmp_path / "b").rename(tmp_path / "a")
        return descriptor

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", replaced)
        with pytest.raises(ObjectChangedError, match="replaced"):
            source.fetch([Head(1, "x")])
    assert storage.open_source(tmp_path / "a").fetch([Head(1, "x")])[0].data == b"b"


# -- files that stay open --------------------------------------------------------------------------

CONTENT = np.random.default_rng(5).bytes(200_000)


def opened(path: Path) -> HeldFile:
    file = held(storage.open_source(path))
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


@pytest.mark.parametrize("how", ["grown", "written over", "replaced"])
def test_a_held_file_that_changes(path: Path, how: str) -> None:
    """What was opened is read; one that lost its name alone is unchanged."""
    file, other = opened(path), path.with_name("b.bin")
    if how == "grown":
        path.write_bytes(CONTENT + b"more")
    elif how == "written over":
        path.write_bytes(CONTENT)
        os.utime(path, ns=(1, 1))
    else:
        other.write_bytes(b"other")
        other.replace(path)
    assert file.read(1_000, 500) == CONTENT[1_000:1_500]
    assert not file.current()
    with nullcontext() if how == "replaced" else pytest.raises(ObjectChangedError):
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
    assert held(CountingSource(storage.open_source(path))) is None
