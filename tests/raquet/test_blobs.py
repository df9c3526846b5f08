"""Blobs of tiles: what is written, the three framings that are read, and bombs."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
)
from comal.limits import Limits
from comal.raquet import blobs, spec
from comal.raquet.blobs import decode, encode
from tests.raquet.build import framed, noise, stored, with_crc

SHAPE = (16, 32)
RAW = stored(noise(1, "uint16", SHAPE))


def read(blob: bytes, size: int = len(RAW)) -> bytes:
    return bytes(blobs.decompress(blob, size, "tile"))


# -- round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", spec.DTYPES)
@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("shape", [SHAPE, (3, *SHAPE)])
def test_every_type(dtype: str, compression: str | None, shape: tuple[int, ...]) -> None:
    pixels = noise(2, dtype, shape)
    blob = encode(pixels, compression)
    found = decode(blob, compression, dtype, shape)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(found, pixels)


def test_bytes_are_little_endian_and_rows_from_the_top() -> None:
    pixels = np.array([[1, 2], [3, 0x0405]], ">u2")
    assert encode(pixels, None) == bytes([1, 0, 2, 0, 3, 0, 5, 4])
    found = decode(bytes([1, 0, 2, 0, 3, 0, 5, 4]), None, "uint16", (2, 2))
    assert found.tolist() == [[1, 2], [3, 0x0405]]


def test_bands_take_turns_pixel_by_pixel() -> None:
    pixels = np.array([[[1, 2]], [[11, 12]], [[21, 22]]], "<u2")
    blob = encode(pixels, None)
    assert np.frombuffer(blob, "<u2").tolist() == [1, 11, 21, 2, 12, 22]
    np.testing.assert_array_equal(decode(blob, None, "uint16", (3, 1, 2)), pixels)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "float32", "int64"])
def test_bands_whose_bytes_took_turns(dtype: str) -> None:
    pixels = noise(3, dtype, (3, *SHAPE))
    planes = [np.frombuffer(stored(band), np.uint8) for band in pixels]
    blob = np.stack(planes, axis=-1).tobytes()
    shape = (3, *SHAPE)
    found = decode(blob, None, dtype, shape, byte_interleaved=True)
    np.testing.assert_array_equal(found, pixels)
    if dtype != "uint8":
        assert (decode(blob, None, dtype, shape) != pixels).any()


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=3000), st.integers(0, 12))
def test_what_is_compressed_is_one_legal_member(data: bytes, level: int) -> None:
    blob = blobs.compress(data, level)
    assert blob[:10] == bytes.fromhex("1f8b08000000000000ff")
    assert gzip.decompress(blob) == data
    assert read(blob, len(data)) == data
    assert blobs.compress(data, level) == blob


def test_levels() -> None:
    # A picture of few colours, where longer searches pay.
    data = stored(noise(7, "uint8", (200, 200)) // 30)
    sizes = [len(blobs.compress(data, level)) for level in (0, 1, 12)]
    assert sizes[2] < min(sizes[:2])
    for level in (-1, 13):
        with pytest.raises(InvalidInputError):
            blobs.compress(b"", level)


def test_pixels_that_are_none() -> None:
    with pytest.raises(InvalidInputError):
        encode(np.zeros(4), "gzip")
    with pytest.raises(InvalidInputError):
        encode(np.zeros(SHAPE, np.complex64), "gzip")
    with pytest.raises(InvalidInputError):
        encode(np.zeros(SHAPE), "zstd")


# -- framings -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=500), st.sampled_from(["gzip", "zlib", "hybrid"]), st.integers(-1, 9))
def test_framings(data: bytes, how: str, level: int) -> None:
    blob = framed(data, how)
    if how == "zlib":
        blob = zlib.compress(data, level)
    assert read(blob, len(data)) == data
    assert blobs.unpack(blob, len(data), "tile") == blobs.Unpacked(data, how)


def test_a_header_with_everything_in_it() -> None:
    packed = io.BytesIO()
    with gzip.GzipFile("name", "wb", fileobj=packed, mtime=1234567) as file:
        file.write(RAW)
    assert read(packed.getvalue()) == RAW
    assert blobs.unpack(packed.getvalue(), len(RAW), "tile").framing == "gzip"


def test_several_members_are_one_stream() -> None:
    blob = b"".join(framed(RAW[at : at + 100]) for at in range(0, len(RAW), 100))
    assert read(blob) == RAW
    assert blobs.unpack(blob, len(RAW), "tile").behind == 0


@pytest.mark.parametrize("how", ["gzip", "zlib", "hybrid"])
def test_bytes_behind_the_end_are_told(how: str) -> None:
    blob = framed(RAW, how) + b"more"
    assert read(blob) == RAW
    assert blobs.unpack(blob, len(RAW), "tile").behind == 4


@pytest.mark.parametrize("how", ["gzip", "zlib", "hybrid"])
@pytest.mark.parametrize("size", [0, len(RAW) - 1, len(RAW) + 1])
def test_another_size(how: str, size: int) -> None:
    with pytest.raises(InvalidMetadataError, match=r"too (long|short)"):
        read(framed(RAW, how), size)


@pytest.mark.parametrize("how", ["gzip", "zlib", "hybrid"])
def test_every_truncation_is_an_error(how: str) -> None:
    data = RAW[:200]
    blob = framed(data, how)
    for size in range(len(blob)):
        with pytest.raises(InvalidMetadataError):
            read(blob[:size], len(data))


@pytest.mark.parametrize("how", ["gzip", "zlib", "hybrid"])
def test_every_flipped_bit_gives_the_right_bytes_or_an_error(how: str) -> None:
    data = RAW[:120]
    blob = framed(data, how)
    for place in range(len(blob)):
        for bit in range(8):
            broken = bytearray(blob)
            broken[place] ^= 1 << bit
            try:
                found = read(bytes(broken), len(data))
            except ComalError:
                continue
            assert found == data


def test_no_framing_at_all() -> None:
    for blob in (b"", b"\x1f", b"\x1f\x8b", RAW, b"PK\x03\x04", b"\x78"):
        with pytest.raises(InvalidMetadataError):
            read(blob)


def test_a_trailer_that_lies_about_the_size() -> None:
    body = zlib.compress(RAW, 6, -15)
    lying = bytes.fromhex("1f8b08000000000000ff") + body + with_crc(RAW)[:4] + b"\xff\xff\xff\x7f"
    with pytest.raises(InvalidMetadataError):
        read(lying)
    with pytest.raises(InvalidMetadataError):
        read(lying, 0x7FFFFFFF)


def test_members_without_end() -> None:
    with pytest.raises(InvalidMetadataError, match="members"):
        read(framed(b"") * 2000)


# -- sizes ----------------------------------------------------------------------------------------


def test_raw_pixels_of_another_size() -> None:
    for blob in (RAW[:-1], RAW + b"x", b""):
        with pytest.raises(InvalidMetadataError, match="not have the size of its pixels"):
            decode(blob, None, "uint16", SHAPE)


def test_a_tile_over_the_limit_is_not_decoded() -> None:
    with pytest.raises(LimitExceededError):
        decode(b"", "gzip", "float64", (8192, 8192))
    with pytest.raises(LimitExceededError):
        decode(encode(noise(1), "gzip"), "gzip", "uint8", (16, 16), limits=Limits(tile_bytes=255))


# -- pictures -------------------------------------------------------------------------------------


def smooth(bands: int, size: int = 64) -> Any:
    rows, columns = np.mgrid[:size, :size]
    return np.stack([(columns * 3), rows * 2, columns + rows, 255 - rows])[:bands].astype(np.uint8)


@pytest.mark.parametrize(
    ("kind", "bands"), [("jpeg", 1), ("jpeg", 3), ("webp", 1), ("webp", 3), ("webp", 4)]
)
def test_pictures(kind: str, bands: int) -> None:
    pixels = smooth(bands)
    blob = encode(pixels, kind, quality=95)
    found = decode(blob, kind, "uint8", pixels.shape)
    assert found.shape == pixels.shape
    assert np.abs(found.astype(int) - pixels).max() < 16
    # Another library sees the same.
    seen = np.atleast_3d(np.asarray(Image.open(io.BytesIO(blob))))
    assert np.abs(seen.transpose(2, 0, 1)[:bands].astype(int) - found).max() < 16
    assert encode(pixels, kind, quality=95) == blob
    assert len(encode(pixels, kind, quality=20)) < len(blob)


def test_a_picture_of_one_band() -> None:
    blob = encode(smooth(1)[0], "jpeg")
    assert decode(blob, "jpeg", "uint8", (64, 64)).shape == (64, 64)


def test_an_opaque_alpha_is_left_out_by_encoders() -> None:
    pixels = smooth(4)
    pixels[3] = 255
    found = decode(encode(pixels, "webp"), "webp", "uint8", (4, 64, 64))
    assert (found[3] == 255).all()


def test_pictures_of_another_size_or_kind() -> None:
    blob = encode(smooth(3), "jpeg")
    with pytest.raises(InvalidMetadataError, match="another size"):
        decode(blob, "jpeg", "uint8", (3, 64, 32))
    with pytest.raises(InvalidMetadataError, match="another size"):
        decode(blob, "jpeg", "uint8", (1, 64, 64))
    with pytest.raises(InvalidMetadataError, match="another kind"):
        decode(blob, "webp", "uint8", (3, 64, 64))
    with pytest.raises(NotThisFormatError):
        decode(b"not a picture", "webp", "uint8", (3, 64, 64))
    with pytest.raises(InvalidMetadataError):
        decode(encode(smooth(3), "webp")[:100], "webp", "uint8", (3, 64, 64))


def test_a_picture_that_is_larger_than_its_tile_is_not_decoded() -> None:
    large = io.BytesIO()
    Image.new("RGB", (12_000, 12_000)).save(large, "JPEG")
    with pytest.raises(InvalidMetadataError, match="another size"):
        decode(large.getvalue(), "jpeg", "uint8", (3, 64, 64))


def test_pixels_that_no_picture_holds() -> None:
    with pytest.raises(InvalidInputError):
        encode(smooth(2), "jpeg")
    with pytest.raises(InvalidInputError):
        encode(smooth(3).astype(np.uint16), "webp")
    with pytest.raises(InvalidInputError):
        encode(smooth(3), "webp", quality=0)
