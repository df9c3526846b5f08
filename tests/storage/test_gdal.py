"""GDAL paths of spans."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
import rasterio

from comal import storage
from comal.errors import ComalError, InvalidInputError, InvalidMetadataError
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


@pytest.mark.parametrize(
    ("path", "offset", "size", "error"),
    [
        ("/a", -1, 5, InvalidMetadataError),
        ("/a", 5, -1, InvalidMetadataError),
        ("/vsisubfile/100_50,/a", 10, 41, InvalidMetadataError),
        ("a/b", 0, 1, InvalidInputError),
    ],
)
def test_spans_that_cannot_be(path: str, offset: int, size: int, error: type[ComalError]) -> None:
    with pytest.raises(error):
        gdal.subfile_one(path, offset, size)
    with pytest.raises(error):
        gdal.subfile(path, pa.array([0, offset]), pa.array([5, size]))


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
