"""The file over a range, against a plain file and with the libraries that read it."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rasterio
from rasterio.io import MemoryFile

from comal import storage
from comal.errors import InvalidInputError
from comal.storage.wrappers import RangeFile
from tests.servers.http import HttpServer
from tests.storage.places import noise

DATA = noise(100_000)


@pytest.mark.parametrize("read_ahead", [0, 1000, 1 << 20])
@pytest.mark.parametrize(
    ("offset", "size"), [(0, None), (0, 100_000), (777, 5000), (500, None), (3, 0)]
)
def test_as_a_plain_file(tmp_path: Path, read_ahead: int, offset: int, size: int | None) -> None:
    (tmp_path / "a").write_bytes(DATA)
    plain = io.BytesIO(DATA[offset:] if size is None else DATA[offset : offset + size])
    source = storage.open_source(tmp_path)
    file = RangeFile(source, "a", offset, size, read_ahead=read_ahead)
    dice = random.Random(1)
    for _ in range(300):
        step = dice.randrange(4)
        count = dice.choice([0, 1, 30, 999, 1001, 20_000])
        if step == 0:
            assert file.read(count) == plain.read(count)
        elif step == 1:
            ours, theirs = bytearray(count), bytearray(count)
            assert file.readinto(ours) == plain.readinto(theirs)
            assert ours == theirs
        elif step == 2:
            at = dice.randrange(120_000)
            assert file.seek(at) == plain.seek(at)
        else:
            at = dice.randrange(0, 50)
            end = plain.seek(0, io.SEEK_END)
            assert file.seek(-min(at, end), io.SEEK_END) == plain.seek(-min(at, end), io.SEEK_END)
        assert file.tell() == plain.tell()
    file.seek(1, io.SEEK_SET)
    plain.seek(1)
    file.seek(1, io.SEEK_CUR)
    plain.seek(1, io.SEEK_CUR)
    assert file.read() == plain.read()
    assert file.readall() == b""


def test_properties(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    file = storage.open_source(tmp_path).file("a")
    assert file.readable()
    assert file.seekable()
    assert not file.writable()
    assert file.size == 100_000
    assert file.name.endswith("/a")
    file.close()
    for call in (file.read, file.tell, file.readable, file.seekable, lambda: file.seek(0)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_seeks_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(DATA)
    file = storage.open_source(tmp_path).file("a")
    for offset, whence in ((-1, 0), (-100_001, 2), (0, 9)):
        with pytest.raises(InvalidInputError):
            file.seek(offset, whence)
    for offset, size in ((-1, 5), (5, -1)):
        with pytest.raises(InvalidInputError):
            storage.open_source(tmp_path).file("a", offset, size)


def test_small_reads_share_a_request(http_server: HttpServer) -> None:
    counting = storage.CountingSource(storage.open_source(http_server.put("a", DATA)))
    file = counting.file("", 100, 50_000)
    for _ in range(100):
        file.read(50)
    assert counting.requests == 1
    file.read(40_000)
    assert counting.requests == 2
    assert len(http_server.requests) == 2


def test_pyarrow_reads_it(http_server: HttpServer) -> None:
    table = pa.table({"a": np.arange(50_000), "b": [str(i) for i in range(50_000)]})
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=10_000)
    padded = DATA[:999] + sink.getvalue() + DATA[:7]
    source = storage.open_source(http_server.put("p", padded))
    file: Any = source.file("", 999, len(sink.getvalue()))
    assert pq.read_table(pa.PythonFile(file)).equals(table)
    parquet = pq.ParquetFile(source.file("", 999, len(sink.getvalue())), pre_buffer=True)
    assert parquet.read_row_group(3, ["b"]).equals(table.select(["b"]).slice(30_000, 10_000))


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
def test_rasterio_reads_it(http_server: HttpServer) -> None:
    pixels = np.arange(2 * 64 * 64, dtype="uint16").reshape(2, 64, 64)
    with MemoryFile() as memory:
        with memory.open(driver="GTiff", width=64, height=64, count=2, dtype="uint16") as raster:
            raster.write(pixels)
        data = memory.read()
    source = storage.open_source(http_server.put("p", DATA[:999] + data))
    with rasterio.open(source.file("", 999, len(data))) as raster:
        assert (raster.read() == pixels).all()
