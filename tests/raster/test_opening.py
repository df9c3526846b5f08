from __future__ import annotations

import os
import struct
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import raster
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectNotFoundError,
    ShortReadError,
)
from comal.limits import Limits
from tests.raster.rasters import write

PIXELS = np.arange(3 * 20 * 30, dtype=np.uint8).reshape(3, 20, 30)


@pytest.mark.parametrize(
    ("driver", "options"),
    [
        ("GTiff", {}),
        ("GTiff", {"BIGTIFF": "YES"}),
        ("GTiff", {"ENDIANNESS": "BIG"}),
        ("PNG", {}),
        ("JPEG", {}),
        ("WEBP", {"LOSSLESS": "YES"}),
        ("JP2OpenJPEG", {"REVERSIBLE": "YES", "QUALITY": "100"}),
    ],
)
def test_every_allowed_format(tmp_path: Path, driver: str, options: dict[str, Any]) -> None:
    path = write(tmp_path / "image.bin", PIXELS, driver=driver, affine=None, **options)
    data = path.read_bytes()
    assert raster.sniff_driver(data[:16]) == driver
    archive = tmp_path / "archive"
    archive.write_bytes(b"x" * 7 + data + b"y")
    for source in (path, str(path), data, raster.Span(str(archive), 7, len(data))):
        with raster.open_raster(source) as dataset:
            assert dataset.driver == driver
            assert dataset.shape == (20, 30)
            if driver != "JPEG":
                assert np.array_equal(dataset.read(), PIXELS)


VRT = b"""<VRTDataset rasterXSize="1" rasterYSize="1"><VRTRasterBand dataType="Byte" band="1">
<SimpleSource><SourceFilename>/etc/hostname</SourceFilename></SimpleSource>
</VRTRasterBand></VRTDataset>"""
WMS = (
    b"<GDAL_WMS><Service name='TMS'><ServerUrl>http://127.0.0.1:9/</ServerUrl></Service></GDAL_WMS>"
)


@pytest.mark.parametrize(
    "content", [VRT, WMS, b"", b"II", b"%PDF-1.4", b"CDF\x01", b"RIFF1234AVI "]
)
def test_a_name_says_nothing(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "image.tif"
    path.write_bytes(content)
    for source in (path, content):
        with pytest.raises(NotThisFormatError), raster.open_raster(source):
            pass


@pytest.mark.parametrize(
    "name",
    [
        "/vsicurl/http://127.0.0.1:9/x.tif",
        "/vsizip//etc/x.zip/x.tif",
        "GTIFF_DIR:1:/etc/hostname",
        "DERIVED_SUBDATASET:LOGAMPLITUDE:x.tif",
        VRT.decode(),
        "absent.tif",
    ],
)
def test_only_files_that_exist(name: str) -> None:
    with pytest.raises((ObjectNotFoundError, OSError)) as caught, raster.open_raster(name):
        pass
    assert isinstance(caught.value, ComalError)


@pytest.mark.parametrize("name", ["vrt:///etc/hostname", "http://127.0.0.1:9/x.tif"])
def test_only_files_of_this_machine(name: str) -> None:
    with pytest.raises(InvalidInputError), raster.open_raster(name):
        pass


def test_nul_and_spans_beyond_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError), raster.open_raster("a\0b"):
        pass
    path = write(tmp_path / "a.tif", PIXELS)
    with pytest.raises(ShortReadError), raster.open_raster(raster.Span(str(path), 5, 10**6)):
        pass
    with pytest.raises(InvalidInputError), raster.open_raster(raster.Span(str(path), -1, 5)):
        pass


def test_sidecar_files_are_ignored(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", PIXELS)
    (tmp_path / "a.tif.aux.xml").write_text("<PAMDataset><SRS>EPSG:4326</SRS></PAMDataset>")
    (tmp_path / "a.tfw").write_text("1\n0\n0\n-1\n0\n0\n")
    assert raster.header(path).crs == "EPSG:32718"
    with raster.open_raster(path) as dataset:
        assert dataset.files == [str(path)]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tfw", "a.tif", "a.tif.aux.xml"]


def test_limits(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tif", PIXELS, blockysize=20)
    with pytest.raises(LimitExceededError, match="one block"):
        raster.header(path, Limits(raster_bytes=599))
    with pytest.raises(LimitExceededError, match="leaf"):
        raster.header(path.read_bytes(), Limits(leaf_bytes=100))
    with pytest.raises(LimitExceededError, match="leaf"):
        raster.header(raster.Span(str(path), 0, 2000), Limits(leaf_bytes=100))


def huge_tiff() -> bytes:
    """A valid TIFF of 400 000 x 400 000 pixels in one strip, without any."""
    entries = [
        (256, 4, 400_000),
        (257, 4, 400_000),
        (258, 3, 8),
        (259, 3, 1),
        (262, 3, 1),
        (273, 4, 8),
        (277, 3, 1),
        (278, 4, 400_000),
        (279, 4, 4_000_000_000),
    ]
    body = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + body + b"\0\0\0\0"


def test_a_tiff_that_promises_160_gigapixels() -> None:
    with pytest.raises((LimitExceededError, InvalidMetadataError)):
        raster.band_stats(huge_tiff())
    with pytest.raises((LimitExceededError, InvalidMetadataError)):
        raster.preview(huge_tiff())


def is_read(content: bytes) -> bool:
    """Whether header and pixels are read; if they are not, the error is one of ours."""
    try:
        raster.header(content)
        raster.band_stats(content)
    except ComalError as error:
        assert "in memory" in str(error)  # noqa: PT017 - most of the files still open
        return False
    return True


def test_damaged_files_raise_only_our_errors(tmp_path: Path) -> None:
    data = write(tmp_path / "a.tif", PIXELS, compress="deflate").read_bytes()
    small = write(tmp_path / "b.tif", PIXELS[:1, :2, :2]).read_bytes()
    for at in range(0, len(data), 11):
        is_read(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        is_read(data[:at])
    read = [
        is_read(small[:at] + bytes([(0, 0xD0)[at % 2]]) + small[at + 1 :])
        for at in range(len(small))
    ]
    assert sum(read) > len(small) / 2


def test_threads_and_warnings(tmp_path: Path) -> None:
    """Rasters without place open silently in threads, and the filters stay as they were."""
    paths = [write(tmp_path / f"{n}.png", PIXELS, driver="PNG", affine=None) for n in range(30)]
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        found = raster.headers(paths * 5, pool)
    assert found["crs"].null_count == 150
    assert list(warnings.filters) == before


@pytest.mark.parametrize("left", [4, 8, 200, 5_000])
def test_a_file_that_is_cut_off_says_so(tmp_path: Path, left: int) -> None:
    pixels = np.random.default_rng(1).integers(0, 255, (1, 100, 100)).astype(np.uint8)
    path = write(tmp_path / "a.tif", pixels)
    os.truncate(path, left)
    with pytest.raises(InvalidMetadataError) as caught, raster.open_raster(path) as dataset:
        dataset.read()
    assert "cut off" in str(caught.value.hint)
    assert "See previous" not in str(caught.value.found)  # the first cause, not the last
