"""The three limits of plain ZIP: member size, offsets, number of entries."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.ziparchive.archives import Entry, add, opened

from comal.plan import ByteRange, Piece, Wanted, run
from comal.storage import open_source
from comal.ziparchive import Details, ZipWriter, directory_plan, local_plan, parse_local, wire
from comal.ziparchive.headermaking import Entries, central_headers
from comal.ziparchive.local import differences

SIZE = (4 << 30) + 123
needs_unzip = pytest.mark.skipif(shutil.which("unzip") is None, reason="unzip is not installed")


class Holes(io.FileIO):
    """A file that seeks over large blocks of zero bytes instead of writing them."""

    def write(self, data: object, /) -> int:
        view = memoryview(data)  # type: ignore[arg-type]
        if view.nbytes > 1 << 20:
            assert not any(view[:64])
            self.seek(view.nbytes, os.SEEK_CUR)
            return view.nbytes
        return super().write(view)


class Zeros(io.RawIOBase):
    """Zero bytes up to a size."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.left = size
        self.block = bytes(4 << 20)

    def read(self, size: int | None = -1, /) -> bytes:
        count = min(self.left, len(self.block), size or 0)
        self.left -= count
        return self.block[:count]


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One entry over 4 GiB and two behind it, in a file with a hole."""
    path = tmp_path_factory.mktemp("zip64") / "far.zip"
    with Holes(path, "w+") as file:
        writer = ZipWriter(file)
        source = Zeros(SIZE)
        large = writer.add_stream("large", source, SIZE, where="zeros")  # type: ignore[arg-type]
        # The local header carries both sizes in 20 bytes of ZIP64 (TACO 2.0 archives: version 45).
        assert large == (30 + 5 + 20, SIZE)
        assert writer.add("far", b"behind 4 GiB").offset == 55 + SIZE + 33
        add(writer, Entry("deflated", b"x" * 1000, deflate=True))
        writer.close()
    return path


def test_a_large_member_and_far_ones(sparse: Path) -> None:
    with sparse.open("rb") as file:
        head = file.read(55)
        with zipfile.ZipFile(file) as other:
            large, far, deflated = other.infolist()
            assert other.read("far") == b"behind 4 GiB"
            assert other.read("deflated") == b"x" * 1000
            with other.open("large") as member:
                assert not any(member.read(100))
        file.seek(other.start_dir)
        central = file.read()
    assert struct.unpack_from("<HH", head, 4) == (45, 0)
    assert struct.unpack_from("<II", head, 18) == (0xFFFFFFFF, 0xFFFFFFFF)
    assert struct.unpack_from("<HHQQ", head, 35) == (1, 16, SIZE, SIZE)
    assert central[46 + 5 : 46 + 5 + 4] == b"\x01\x00\x10\x00"
    start = central.index(b"far") + 3
    assert struct.unpack_from("<HHQ", central, start) == (1, 8, far.header_offset)
    assert [large.file_size, far.file_size, deflated.file_size] == [SIZE, 12, 1000]
    assert [large.extract_version, far.extract_version] == [45, 45]


@needs_unzip
def test_unzip_reads_it(sparse: Path) -> None:
    listed = subprocess.run(["unzip", "-l", sparse], capture_output=True, check=True, text=True)
    assert f"{SIZE}" in listed.stdout
    tested = subprocess.run(
        ["unzip", "-tqq", sparse, "far", "deflated"], capture_output=True, check=False
    )
    assert (tested.returncode, tested.stdout) == (0, b"")


def test_we_read_it(sparse: Path) -> None:
    with open_source(sparse) as source:
        directory = run(directory_plan(), source.fetch)
        offsets, found = run(local_plan(directory), source.fetch)
        (piece,) = source.fetch([ByteRange(int(directory.header_offset[1]), 100)])
    assert directory.names.to_pylist() == ["large", "far", "deflated"]
    assert directory.size.tolist() == [SIZE, 12, 1000]
    assert directory.header_offset[1] == 55 + SIZE
    assert (directory.problems, found) == ((), [])
    assert offsets.tolist() == directory.payload_offsets.tolist()
    header = parse_local(piece.data, "archive")
    assert not differences(header, directory, 1)
    assert piece.data[header.length : header.length + 12] == b"behind 4 GiB"


@pytest.mark.parametrize("base", [0xFFFFFFFE - 32, 0xFFFFFFFE - 31, 0xFFFFFFFF, 1 << 40])
def test_offsets_at_the_limit(base: int) -> None:
    file = io.BytesIO()
    writer = ZipWriter(file, base_offset=base)
    writer.add("a", b"1")
    said = Details(comments=pa.array([b"", b"note"]))
    writer.add_many(pa.array(["b", "c"]), pa.array([b"2", b"3"]), said)
    writer.close()
    data = file.getvalue()
    end = data.rindex(b"PK\5\6")
    wide = data[end - 20 : end - 16] == b"PK\6\7"
    directory_offset = base + data.index(b"PK\1\2")
    assert wide == (directory_offset >= 0xFFFFFFFF)
    # A prefix that takes no room: all offsets count from the base.
    offsets = [base, base + 32, base + 64]
    piece = Piece(data, base, base + len(data))
    directory = run(directory_plan(known=[piece]), never)
    assert directory.header_offset.tolist() == offsets
    assert directory.start == directory_offset
    assert directory.comments.to_pylist() == [b"", b"", b"note"]
    assert directory.problems == ()


def never(wanted: Sequence[Wanted]) -> list[Piece]:
    raise AssertionError(f"nothing should be fetched: {wanted}")


@pytest.mark.parametrize("count", [65_535, 65_536])
def test_number_of_entries(count: int) -> None:
    names = pa.array(np.char.mod("%d", np.arange(count)))
    payloads = pa.array([b"7"]).take(pa.array(np.zeros(count, np.int64)))
    file = io.BytesIO()
    writer = ZipWriter(file)
    offsets = writer.add_many(names, payloads)
    writer.close()
    data = file.getvalue()
    end = data.rindex(b"PK\5\6")
    assert (data[end - 20 : end - 16] == b"PK\6\7") == (count > 65_535)
    directory = opened(data)
    assert len(directory) == count
    assert directory.problems == ()
    assert (directory.payload_offsets == offsets).all()
    assert directory.find(str(count - 1)) == count - 1
    with zipfile.ZipFile(file) as other:
        assert len(other.infolist()) == count
        assert other.read(str(count - 1)) == b"7"


def test_headers_of_large_sizes() -> None:
    entries = Entries(0, 33)
    plain = entries.append(b"a", offset=0, crc=1, csize=0xFFFFFFFE, size=0xFFFFFFFE)
    assert len(plain) == 31
    for csize, size in ((0xFFFFFFFF, 0xFFFFFFFF), (5, 1 << 33)):
        header = entries.append(b"a", offset=0, crc=1, csize=csize, size=size, method=wire.DEFLATE)
        assert struct.unpack_from("<II", header, 18) == (0xFFFFFFFF, 0xFFFFFFFF)
        assert struct.unpack_from("<HHQQ", header, 31) == (1, 16, size, csize)
        parsed = parse_local(header, "here")
        assert (parsed.csize, parsed.size, parsed.length) == (csize, size, 51)


def test_central_fields_hold_only_what_is_needed() -> None:
    entries = np.zeros(4, wire.ENTRY)
    entries["size"] = entries["csize"] = [1, 1 << 32, 1, 1 << 32]
    entries["offset"] = [1, 1, 1 << 33, 1 << 33]
    headers, fields = central_headers(entries, 0, 33)
    assert headers["extra_size"].tolist() == [0, 20, 12, 28]
    assert {row: len(field) for row, field in fields.items()} == {1: 20, 2: 12, 3: 28}
    assert headers["version"].tolist() == [10, 45, 45, 45]
