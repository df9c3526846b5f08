"""The blob of a tile: pixels as bytes, and back.

RaQuet 0.1.0, bands: rows from top to bottom, each from left to right, without header or trailer.
Bytes are little-endian (0.4.0 says so, and all files are).

The compression ``gzip`` is written in one framing and read in every framing that exists.
RaQuet 0.1.0 says "zlib compressed" in one place and ``gzip`` in another. Files hold gzip members,
zlib streams, and ten bytes of a gzip header in front of a complete zlib stream.
"""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass
from typing import Any

import deflate
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from comal.errors import InvalidInputError, InvalidMetadataError, counted
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raquet import spec
from comal.raquet.spec import GZIP

Pixels = npt.NDArray[Any]
Shape = tuple[int, ...]

ZLIB, HYBRID = "zlib", "hybrid"
"""Framings other than `comal.raquet.spec.GZIP`."""

_HEADER = bytes.fromhex("1f8b08000000000000ff")  # no flags, no time, system unknown
_PLAIN_HEADER = b"\x1f\x8b\x08\x00"  # deflate, no flags: ten bytes, then the stream
_HEADER_SIZE, _TRAILER_SIZE = 10, 8
LEVEL = 6
FAST = 0
_ISAL_LEVEL = 1
_LEVELS = range(13)
_GZIP_BITS = 16 + zlib.MAX_WBITS
_MOST_MEMBERS = 1024  # each one copies the bytes after it


def encode(
    array: Pixels, compression: str | None, *, level: int = LEVEL, quality: int = 85
) -> bytes:
    """Encode a tile: one band, or (bands, rows, columns), which is stored pixel by pixel.

    `compression` is None, ``gzip`` with a level of `compress`, or ``jpeg`` and ``webp`` with a
    quality of 1 to 100.

    Raises
    ------
    InvalidInputError
        The array has no shape or type of a tile, or the compression is unknown.
    """
    if array.ndim not in {2, 3} or array.dtype.name not in spec.DTYPES:
        raise InvalidInputError(
            "not the pixels of a tile",
            found=f"{array.dtype}, shape {array.shape}",
            expected="numbers, shape (rows, columns) or (bands, rows, columns)",
        )
    if compression in spec.LOSSY_BANDS:
        # Only lossy tiles need rasterio.
        from comal.raster.pictures import encode_picture  # noqa: PLC0415

        stacked = array if array.ndim == 3 else array[None]
        return encode_picture(stacked, str(compression), quality=quality)
    data = raw_bytes(array)
    if compression is None:
        return bytes(data)
    if compression == GZIP:
        return compress(data, level)
    raise InvalidInputError("unknown compression", found=compression, expected="gzip, jpeg, webp")


def raw_bytes(array: Pixels) -> memoryview:
    """The pixels as they are stored without compression."""
    if array.ndim == 3:
        array = array.transpose(1, 2, 0)
    stored = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return stored.reshape(-1).view(np.uint8).data


def decode(
    blob: bytes,
    compression: str | None,
    dtype: str | np.dtype[Any],
    shape: Shape,
    *,
    byte_interleaved: bool = False,
    where: str = "tile",
    limits: Limits = DEFAULT_LIMITS,
) -> Pixels:
    """The pixels of a blob, in the byte order of the machine; they may be read-only.

    `shape` is (rows, columns), or (bands, rows, columns) for the interleaved layout. One writer
    interleaved the bytes of the bands, not their values; `byte_interleaved` undoes that.

    Raises
    ------
    InvalidMetadataError
        The blob does not decode to exactly these pixels.
    LimitExceededError
        The pixels take more than ``tile_bytes``; nothing has been decoded then.
    """
    pixel_type = np.dtype(dtype).newbyteorder("<")
    size = pixel_type.itemsize
    for length in shape:
        size *= length
    if size > limits.tile_bytes:
        limits.check("tile_bytes", size, where)
    if compression == GZIP:
        data: bytes | bytearray = decompress(blob, size, where)
    elif compression is None:
        data = blob
    else:
        return _picture(blob, compression, shape, where, limits)
    if len(data) != size:
        raise InvalidMetadataError(
            "the tile does not have the size of its pixels",
            where=where,
            found=counted(len(data), "byte"),
            expected=size,
        )
    pixels = np.frombuffer(data, pixel_type)
    if len(shape) == 3:
        bands = shape[0]
        pixels = _undone(pixels, bands) if byte_interleaved else pixels.reshape(-1, bands).T
    pixels = pixels.reshape(shape)
    return pixels if sys.byteorder == "little" else pixels.astype(pixel_type.newbyteorder("="))


def _undone(pixels: Pixels, bands: int) -> Pixels:
    """The bands of byte-interleaved pixels, shape (bands, pixels)."""
    planes = np.ascontiguousarray(pixels.view(np.uint8).reshape(-1, bands).T)
    return planes.view(pixels.dtype)


def _picture(blob: bytes, kind: str, shape: Shape, where: str, limits: Limits) -> Pixels:
    # Only lossy tiles need rasterio.
    from comal.raster.pictures import decode_picture  # noqa: PLC0415

    bands, rows, columns = shape if len(shape) == 3 else (1, *shape)
    return decode_picture(blob, kind, (bands, rows, columns), where, limits).reshape(shape)


# -- gzip -----------------------------------------------------------------------------------------


def compress(data: bytes | memoryview, level: int = LEVEL) -> bytes:
    """One gzip member, the same bytes for the same data and level.

    Levels 1 to 12 use libdeflate, with the same output on every machine. Level 0 uses ISA-L:
    several times faster than 1, a few percent larger, and its output can depend on the processor.
    """
    if level not in _LEVELS:
        raise InvalidInputError("compression level out of range", found=level, expected="0 to 12")
    body: bytes | bytearray
    if level == FAST:
        body = isal_zlib.compress(data, _ISAL_LEVEL, -15)
    else:
        body = deflate.deflate_compress(data, level)
    size = len(data) if isinstance(data, bytes) else data.nbytes
    checksum = isal_zlib.crc32(data)
    trailer = checksum.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little")
    return b"".join((_HEADER, body, trailer))


def decompress(blob: bytes, size: int, where: str) -> bytes | bytearray:
    """Decompress exactly `size` bytes from a blob in any framing.

    At most ``size + 1`` bytes are inflated, whatever size the blob claims.

    Raises
    ------
    InvalidMetadataError
        The framing is unknown, the size or checksum is wrong, or the blob is cut short.
    """
    if blob[:4] == _PLAIN_HEADER:
        fast = _one_member(blob, size)
        if fast is not None:
            return fast
    return unpack(blob, size, where).data


@dataclass(frozen=True, slots=True)
class Unpacked:
    """The content of a blob."""

    data: bytes
    framing: str
    """``gzip``, ``zlib`` or ``hybrid``."""
    behind: int = 0
    """Bytes after the end of the stream."""


def _one_member(blob: bytes, size: int) -> bytearray | None:
    """Fast path for a single gzip member; None for every other blob."""
    trailer = blob[-_TRAILER_SIZE:]
    if int.from_bytes(trailer[4:], "little") != size & 0xFFFFFFFF:
        return None
    try:
        data: bytearray = deflate.deflate_decompress(blob[_HEADER_SIZE:-_TRAILER_SIZE], size)
    except deflate.DeflateError:
        return None
    if len(data) != size or isal_zlib.crc32(data) != int.from_bytes(trailer[:4], "little"):
        return None
    return data


def unpack(blob: bytes, size: int, where: str) -> Unpacked:
    """As `decompress`, and how the blob is framed."""
    if blob[:2] == b"\x1f\x8b":
        try:
            return _members(blob, size, where)
        except zlib.error as error:
            # Read as deflate, a zlib stream starts with a stored block of an invalid length.
            if not _is_zlib(blob[_HEADER_SIZE : _HEADER_SIZE + 2]) or blob[_HEADER_SIZE] != 0x78:
                raise _broken(where, str(error)) from error
        return _zlib_stream(blob, _HEADER_SIZE, size, where, HYBRID)
    if _is_zlib(blob[:2]):
        return _zlib_stream(blob, 0, size, where, ZLIB)
    raise InvalidMetadataError(
        "the tile is not compressed as the metadata say",
        where=where,
        found=f"first bytes {blob[:4].hex(' ') or 'missing'}, {len(blob)} bytes",
        expected="a gzip member or a zlib stream",
    )


def _is_zlib(head: bytes) -> bool:
    """RFC 1950: the method is 8, and the two bytes are a multiple of 31."""
    return len(head) == 2 and head[0] & 0x0F == 8 and int.from_bytes(head, "big") % 31 == 0


def _members(blob: bytes, size: int, where: str) -> Unpacked:
    """RFC 1952: consecutive members are one stream."""
    parts: list[bytes] = []
    left, rest = size, blob
    for _ in range(_MOST_MEMBERS):
        data, rest = _inflated(rest, _GZIP_BITS, left, where, size)
        parts.append(data)
        left -= len(data)
        if rest[:2] != b"\x1f\x8b":
            return Unpacked(_whole(b"".join(parts), size, where), GZIP, len(rest))
    raise _broken(where, f"more than {_MOST_MEMBERS} gzip members")


def _zlib_stream(blob: bytes, at: int, size: int, where: str, framing: str) -> Unpacked:
    try:
        data, rest = _inflated(blob[at:], zlib.MAX_WBITS, size, where, size)
    except zlib.error as error:
        raise _broken(where, str(error)) from error
    return Unpacked(_whole(data, size, where), framing, len(rest))


def _inflated(data: bytes, bits: int, most: int, where: str, size: int) -> tuple[bytes, bytes]:
    """At most `most` bytes of one stream, and the bytes after the stream."""
    stream = zlib.decompressobj(bits)
    found = stream.decompress(data, most + 1)
    if not stream.eof and len(found) <= most:
        # The unconsumed tail may hold only the end of the stream.
        found += stream.decompress(stream.unconsumed_tail, most - len(found) + 1)
    if len(found) > most:
        raise InvalidMetadataError(
            "the tile is too long", where=where, found=f"more than {size} bytes", expected=size
        )
    if not stream.eof:
        raise InvalidMetadataError(
            "the tile is cut short", where=where, found="no end of the stream"
        )
    return found, stream.unused_data


def _whole(data: bytes, size: int, where: str) -> bytes:
    if len(data) != size:
        raise InvalidMetadataError(
            "the tile is too short", where=where, found=f"{len(data)} bytes", expected=size
        )
    return data


def _broken(where: str, reason: str) -> InvalidMetadataError:
    return InvalidMetadataError("the tile does not decompress", where=where, found=reason)
