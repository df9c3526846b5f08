"""GDAL paths of spans."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import rasterio

from comal import storage
from comal.errors import InvalidInputError, InvalidMetadataError
from comal.storage import gdal
from tests.support import SHARED, needs_shared


def test_a_column() -> None:
    found = gdal.subfile(
        "/a/b,c.zip", pa.array([0, 1 << 40, None]), pa.array([1, 2, 3], pa.int32())
    )
    assert found.to_pylist() == [
        "/vsisubfile/0_1,/a/b,c.zip",
        "/vsisubfile/1099511627776_2,/a/b,c.zip",
        None,
    ]
    assert found.type == pa.string()
    assert gdal.subfile("/a", pa.array([], pa.int64()), pa.array([], pa.int64())).to_pylist() == []
    chunked = gdal.subfile("/a", pa.chunked_array([[1], [2]]), pa.chunked_array([[3, 4]]))
    assert chunked.to_pylist() == ["/vsisubfile/1_3,/a", "/vsisubfile/2_4,/a"]


def test_one_as_a_column() -> None:
    for path in ("/a", "/vsicurl/http://h/a?x=1,2", "/vsisubfile/100_50,/vsis3/b/k"):
        one = gdal.subfile_one(path, 7, 9)
        assert gdal.subfile(path, pa.array([7]), pa.array([9])).to_pylist() == [one]


def test_spans_are_not_nested() -> None:
    assert gdal.subfile_one("/vsisubfile/100_50,/a", 10, 40) == "/vsisubfile/110_40,/a"
    with pytest.raises(InvalidMetadataError):
        gdal.subfile_one("/vsisubfile/100_50,/a", 10, 41)
    with pytest.raises(InvalidMetadataError):
        gdal.subfile("/vsisubfile/100_50,/a", pa.array([0, 10]), pa.array([5, 41]))


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (5, -1)])
def test_negative_spans(offset: int, size: int) -> None:
    with pytest.raises(InvalidMetadataError):
        gdal.subfile_one("/a", offset, size)
    with pytest.raises(InvalidMetadataError):
        gdal.subfile("/a", pa.array([offset]), pa.array([size]))


def test_relative_paths() -> None:
    with pytest.raises(InvalidInputError):
        gdal.subfile_one("a/b", 0, 1)
    with pytest.raises(InvalidInputError):
        gdal.subfile("a/b", pa.array([0]), pa.array([1]))


@needs_shared
def test_gdal_opens_a_span(tmp_path: Path) -> None:
    original = min((SHARED / "data").glob("*.tif"), key=lambda path: path.stat().st_size)
    data = original.read_bytes()
    path = tmp_path / "a, b_c 100%.bin"
    path.write_bytes(b"x" * 777 + data + b"y" * 55)
    source = storage.open_source(path)
    span = gdal.subfile_one(source.vsi(), 777, len(data))
    with rasterio.open(original) as expected, rasterio.open(span) as raster:
        assert raster.profile == expected.profile
        assert (raster.read() == expected.read()).all()
