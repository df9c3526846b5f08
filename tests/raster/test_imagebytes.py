"""Pixels of GeoTIFFs, compared with those that rasterio gives without comal."""

from __future__ import annotations

import itertools
import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import MaskFlags

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
)
from comal.raster import imagebytes, opening
from comal.raster.imagebytes import georeference, image, valid
from tests.raster.rasters import write

INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float32", "float64")
STRIPS = {"blockysize": 7}
TILES = {"tiled": True, "blockxsize": 32, "blockysize": 16}
PACKED = {"compress": "deflate", "predictor": 2}
RGBA = {"photometric": "RGB", "interpreted": ("red", "green", "blue", "alpha")}
COLOURS = {"colours": {n: (n, 9, 9, 255) for n in range(7)}}


def pixels_of(dtype: str, bands: int = 4, height: int = 77, width: int = 41) -> Any:
    noise = np.random.default_rng(bands).integers(0, 90, (bands, height, width))
    slope = np.add.outer(np.arange(height) * 300, np.arange(width) * 170)
    return (slope + noise * 1.37).astype(dtype)


def tiff(folder: Path, pixels: Any, **profile: Any) -> bytes:
    return write(folder / "a.tif", pixels, **profile).read_bytes()


def by_rasterio(data: bytes) -> Any:
    with opening.gdal_rules(), rasterio.MemoryFile(data) as memory, memory.open() as dataset:
        return dataset.read()


def same(found: Any, expected: Any) -> bool:
    """Whether arrays are identical, NaN and signs of zeros too."""
    kinds = (found.dtype, found.shape), (expected.dtype, expected.shape)
    return kinds[0] == kinds[1] and bool(found.tobytes() == expected.tobytes())


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to rasterio."""
    monkeypatch.setattr(opening, "open_raster", None)


@pytest.mark.parametrize(("interleave", "gap"), [("pixel", 1), ("pixel", 2), ("band", 2)])
@pytest.mark.parametrize("layout", [STRIPS, TILES], ids=["strips", "tiles"])
def test_types_and_predictors(
    tmp_path: Path,
    layout: Any,
    interleave: str,
    gap: int,
    alone: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With the sums of any processor, and of a few rows at a time."""
    monkeypatch.setattr(imagebytes, "_gap", lambda: gap)
    monkeypatch.setattr(imagebytes, "_ROWS", 10)
    codecs: list[dict[str, Any]] = [
        {"compress": codec, "predictor": n} for codec in ("deflate", "zstd") for n in (1, 2, 3)
    ]
    for dtype, codec in itertools.product(INTEGERS + FLOATS, [{}, *codecs]):
        if codec.get("predictor") == 3 and dtype not in FLOATS:
            continue
        pixels = pixels_of(dtype)
        data = tiff(tmp_path, pixels, interleave=interleave, **layout, **codec)
        assert same(image(data), pixels), (dtype, codec)
        part = image(data, bands=[3, 1], window=(5, 3, 33, 20))
        assert same(part, pixels[[2, 0], 3:23, 5:38]), (dtype, codec)


@pytest.mark.parametrize("bands", [1, 2, 3, 4, 5, 13])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 300), (300, 1), (16, 32), (17, 33)])
def test_sizes(tmp_path: Path, bands: int, height: int, width: int, alone: None) -> None:
    for dtype, layout in itertools.product(["uint8", "uint16"], [{}, STRIPS, TILES]):
        pixels = pixels_of(dtype, bands, height, width)
        assert same(image(tiff(tmp_path, pixels, **PACKED, **layout)), pixels)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_sums_of_wide_rows(tmp_path: Path, dtype: str, alone: None) -> None:
    # Differences of -1 are stored as the largest number, and sums carry into every bit.
    pixels = np.arange(70_000, 0, -1).astype(dtype) * np.ones((4, 1, 1), dtype)
    for width in (65_536, 65_537, 70_000):
        assert same(image(tiff(tmp_path, pixels[..., :width], **PACKED)), pixels[..., :width])


@pytest.mark.parametrize(("bands", "profile"), [(1, COLOURS), (4, RGBA)], ids=["palette", "alpha"])
def test_palettes_and_alpha(tmp_path: Path, bands: int, profile: Any, alone: None) -> None:
    data = tiff(tmp_path, pixels_of("uint8", bands) % 7, **profile)
    assert same(image(data), by_rasterio(data))


def test_overviews_and_masks_are_no_bands(tmp_path: Path) -> None:
    pixels = pixels_of("uint16", 2, 256, 300)
    mask = pixels[0] > 30_000
    data = tiff(tmp_path, pixels, mask=mask, overviews=[2, 4], compress="deflate", **TILES)
    assert same(image(data), pixels)
    assert same(valid(data, pixels), np.stack([mask, mask]))
    assert same(valid(data, pixels[1:, 9:20, 7:9], [2], (7, 9, 2, 11)), mask[None, 9:20, 7:9])
    assert valid(tiff(tmp_path, pixels), pixels).all()
    data = tiff(tmp_path, pixels, nodata=pixels[0, 0, 0])
    assert same(valid(data, pixels), pixels != pixels[0, 0, 0])


LEFT: list[dict[str, Any]] = [
    *({"compress": codec} for codec in ("lzw", "packbits", "lerc", "jpeg")),
    {"compress": "webp", "WEBP_LOSSLESS": "YES"},
    {"compress": "jpeg", "photometric": "YCBCR"},
    {"compress": "deflate", "nbits": 5},
    {"compress": "deflate", "photometric": "MINISWHITE"},
    *({**PACKED, option: value} for option, value in (("ENDIANNESS", "BIG"), ("BIGTIFF", "YES"))),
    {"sparse_ok": True},
]


@pytest.mark.parametrize("profile", LEFT, ids=str)
def test_what_is_left_to_rasterio(tmp_path: Path, profile: dict[str, Any]) -> None:
    pixels = np.zeros((3, 40, 64), np.uint8) if "sparse_ok" in profile else pixels_of("uint8", 3)
    data = tiff(tmp_path, pixels % 32, **TILES, **profile)
    expected = by_rasterio(data)
    assert same(image(data), expected)
    assert same(image(data, bands=[2], window=(3, 5, 7, 9)), expected[1:2, 5:14, 3:10])


def test_out_takes_the_pixels(tmp_path: Path) -> None:
    pixels = pixels_of("float32")
    for predictor, codec in itertools.product((1, 2, 3), ("deflate", "lzw")):
        data = tiff(tmp_path, pixels, compress=codec, predictor=predictor, **TILES)
        batch = np.zeros((2, 77, 41, 4), np.float32)
        out = batch[1].transpose(2, 0, 1)
        assert image(memoryview(data), out=out) is out
        assert np.array_equal(out, pixels)
        assert not batch[0].any()


@pytest.mark.parametrize("codec", ["deflate", "lzw"])
def test_arguments_that_do_not_fit(tmp_path: Path, codec: str) -> None:
    data = tiff(tmp_path, pixels_of("uint16"), compress=codec)
    for bands in ([0], [5], [], [-1]):
        with pytest.raises(InvalidInputError, match="no such band"):
            image(data, bands=bands)
    for window in ((0, 0, 42, 1), (-1, 0, 2, 2), (0, 77, 1, 1), (0, 0, 0, 1), (0, 0, 1, -1)):
        with pytest.raises(InvalidInputError, match="window"):
            image(data, window=window)
    for shape, dtype in (((4, 77, 40), "u2"), ((4, 77, 41), "i2"), ((4, 77, 41), ">u2")):
        out = np.zeros(shape, dtype)
        assert same(image(data, out=out), pixels_of("uint16"))
        assert not out.any()


def test_a_window_reads_only_what_it_touches(tmp_path: Path) -> None:
    pixels = pixels_of("uint16", 2, 64, 64)
    data = bytearray(tiff(tmp_path, pixels, compress="deflate", interleave="band", **TILES))
    with rasterio.MemoryFile(bytes(data)) as memory, memory.open() as dataset:
        # The last tile of the second band.
        at = int(dataset.get_tag_item("BLOCK_OFFSET_1_3", "TIFF", 2))
    data[at + 9] ^= 1
    assert same(image(bytes(data), window=(0, 0, 64, 48)), pixels[:, :48])
    assert same(image(bytes(data), bands=[1]), pixels[:1])
    with pytest.raises(InvalidMetadataError, match="damaged pixels"):
        image(bytes(data))


def test_georeference(tmp_path: Path) -> None:
    pixels = pixels_of("uint8")
    affine = (500_000.0, 20.0, 0.0, 100.0, 0.0, -20.0)
    for profile in ({}, {"nodata": 7}, {"mask": pixels[0] > 9}, {"BIGTIFF": "YES"}, RGBA):
        data = tiff(tmp_path, pixels, affine=affine, **profile)
        found = georeference(data)
        with rasterio.MemoryFile(data) as memory, memory.open() as dataset:
            masked = MaskFlags.per_dataset in dataset.mask_flag_enums[0]
            transform = tuple(dataset.transform)[:6]
            assert found == (transform, dataset.crs.to_string(), dataset.nodata, masked)
        again = georeference(tiff(tmp_path, pixels + 1, affine=affine, **profile))
        assert (again is found) == profile.keys().isdisjoint({"mask", "BIGTIFF"})
        moved = georeference(tiff(tmp_path, pixels, affine=(1.0, *affine[1:]), **profile))
        assert moved.transform[2] == 1


DAMAGED: list[dict[str, Any]] = [
    {"nodata": 3, **PACKED, **TILES},
    {"compress": "deflate", "interleave": "band", "blockysize": 4},
    {"compress": "zstd", "predictor": 2},
    {"blockysize": 4},
]


@pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")
@pytest.mark.parametrize("profile", DAMAGED, ids=str)
def test_damage_gives_what_rasterio_gives_or_an_error(tmp_path: Path, profile: Any) -> None:
    data = tiff(tmp_path, pixels_of("uint16", 3, 9, 20), **profile)
    number = random.Random(1)
    for turn in range(200):
        file = bytearray(data)
        at = number.randrange(number.choice([200, 500, len(data)]))
        file[at % len(data)] ^= number.choice([1, 2, 16, 128, 255])
        file = file if turn % 5 else file[: number.randrange(len(data))]
        try:
            found = image(bytes(file))
        except (InvalidMetadataError, LimitExceededError, NotThisFormatError):
            continue
        assert same(found, by_rasterio(bytes(file)))


def patched(data: bytes, values: dict[int, int]) -> bytes:
    """A little-endian classic TIFF with other values of tags that have one LONG or SHORT."""
    file, first = bytearray(data), int.from_bytes(data[4:8], "little") + 2
    for tag, value in values.items():
        at = first
        while int.from_bytes(file[at : at + 2], "little") != tag:
            at += 12
        file[at + 2 : at + 4] = (4).to_bytes(2, "little")
        file[at + 8 : at + 12] = value.to_bytes(4, "little")
    return bytes(file)


WIDTH, HEIGHT, STRIP_ROWS, BANDS, TILE_WIDTH, TILE_HEIGHT, TILE_BYTES = (
    256,
    257,
    278,
    277,
    322,
    323,
    325,
)


def test_bombs_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    tiled = tiff(tmp_path, pixels_of("uint8", 1, 16, 32), compress="deflate", **TILES)
    striped = tiff(tmp_path, pixels_of("uint8", 1, 32, 32), compress="deflate", blockysize=32)
    wide = {WIDTH: 30_000, HEIGHT: 30_000, STRIP_ROWS: 30_000}
    tracemalloc.start()
    for file, window in (
        (patched(striped, {WIDTH: 1 << 16, HEIGHT: 1 << 16}), None),
        (patched(striped, {BANDS: (1 << 32) - 1}), None),
        (patched(striped, wide), (0, 0, 1, 1)),
        (patched(tiled, {TILE_WIDTH: 30_000, TILE_HEIGHT: 30_000}), None),
        (patched(tiled, {TILE_BYTES: 1 << 30}), None),
    ):
        with pytest.raises((InvalidMetadataError, LimitExceededError)):
            image(file, window=window)
    assert tracemalloc.get_traced_memory()[1] < 16_000_000
    tracemalloc.stop()


def test_strips_that_inflate_to_another_size(tmp_path: Path) -> None:
    data = tiff(tmp_path, pixels_of("uint8", 1, 16, 8), compress="deflate", blockysize=8)
    assert image(patched(data, {HEIGHT: 16})).shape == (1, 16, 8)
    for values in ({HEIGHT: 12}, {HEIGHT: 18, STRIP_ROWS: 9}):
        with pytest.raises(InvalidMetadataError, match="damaged pixels"):
            image(patched(data, values))


@pytest.mark.parametrize("data", [b"", b"II", b"II*\0", b"GIF89a", b"MM\0+" + bytes(20)])
def test_what_is_no_image(data: bytes) -> None:
    for function in (image, georeference):
        with pytest.raises((InvalidMetadataError, NotThisFormatError)):
            function(data)
