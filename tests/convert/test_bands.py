"""Bands of rasters from their first bytes, against GDAL."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from comal.convert.columns import band_counts, bands_in, directory_at
from comal.progress import silent
from comal.samples.payloads import Spans
from comal.storage import open_source
from tests.raster.rasters import write

CASES: list[tuple[str, int, dict[str, Any]]] = [
    ("GTiff", 1, {}),
    ("GTiff", 5, {"interleave": "band"}),
    ("GTiff", 3, {"BIGTIFF": "YES"}),
    ("GTiff", 4, {"ENDIANNESS": "BIG"}),
    ("GTiff", 13, {"ENDIANNESS": "BIG", "BIGTIFF": "YES", "tiled": True}),
    ("COG", 2, {}),
]


def made(tmp_path: Path, driver: str, bands: int, options: dict[str, Any]) -> Path:
    pixels = np.arange(bands * 64 * 96, dtype=np.uint8).reshape(bands, 64, 96)
    return write(tmp_path / "raster", pixels, driver=driver, **options)


def counted(path: Path) -> int:
    size = path.stat().st_size
    with open_source(path) as source:
        spans = Spans([source], np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([size]))
        return int(band_counts(spans, np.zeros(1, np.int64), silent)[0])


@pytest.mark.parametrize(("driver", "bands", "options"), CASES)
def test_as_gdal_says(driver: str, bands: int, options: dict[str, Any], tmp_path: Path) -> None:
    path = made(tmp_path, driver, bands, options)
    assert counted(path) == bands


def test_a_directory_at_the_end_of_the_file(tmp_path: Path) -> None:
    entries = [(256, 3, 1, 96), (257, 3, 1, 64), (277, 3, 1, 7)]
    directory = struct.pack("<H", 3)
    for tag, kind, count, value in entries:
        directory += struct.pack("<HHIHH", tag, kind, count, value, 0)
    path = tmp_path / "raster"
    path.write_bytes(struct.pack("<2sHI", b"II", 42, 50_000).ljust(50_000, b"\0") + directory)
    assert counted(path) == 7


def test_other_bytes_tell_nothing(tmp_path: Path) -> None:
    path = tmp_path / "raster"
    for data in (b"", b"II", b"II*\0" + b"\xff" * 4, b"\x89HDF\r\n\x1a\n" + bytes(100), b"{}"):
        path.write_bytes(data)
        assert counted(path) == 0


@settings(max_examples=300)
@given(
    st.sampled_from([b"II*\0", b"MM\0*", b"II+\0", b"\x89PNG\r\n\x1a\n"]), st.binary(max_size=80)
)
def test_no_bytes_break_it(magic: bytes, data: bytes) -> None:
    head = magic + data
    assert 0 <= bands_in(head, head[directory_at(head) :]) < 1 << 16
