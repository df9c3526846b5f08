"""The blob of a tile: pixels as bytes, and back.

RaQuet 0.1.0, bands: rows from top to bottom, each from left to right, nothing before or behind.
Bytes are little-endian (0.4.0 says so, and all files are).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, InvalidMetadataError, counted
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raquet import gzipped, spec

Pixels = npt.NDArray[Any]
Shape = tuple[int, ...]


def encode(
    array: Pixels, compression: str | None, *, level: int = gzipped.LEVEL, quality: int = 85
) -> bytes:
    """The blob of a tile.

    Parameters
    ----------
    array
        Shape (rows, columns) for one band, or (bands, rows, columns) for a tile of the
        interleaved layout, which is stored pixel by pixel.
    compression
        None, ``gzip``, ``jpeg`` or ``webp``.
    level
        Of gzip; see `comal.raquet.gzipped.compress`.
    quality
        Of a picture, 1 to 100.

    Raises
    ------
    InvalidInputError
        Not the shape or type of a tile, or an unknown compression.
    """
    if array.ndim not in {2, 3} or array.dtype.name not in spec.DTYPES:
        raise InvalidInputError(
            "not the pixels of a tile",
            found=f"{array.dtype}, shape {array.shape}",
            expected="numbers, shape (rows, columns) or (bands, rows, columns)",
        )
    if compression in spec.LOSSY_BANDS:
        # Only files of pictures need rasterio.
        from comal.raster.pictures import encode_picture  # noqa: PLC0415

        stacked = array if array.ndim == 3 else array[None]
        return encode_picture(stacked, str(compression), quality=quality)
    data = raw_bytes(array)
    if compression is None:
        return bytes(data)
    if compression == spec.GZIP:
        return gzipped.compress(data, level)
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
    """The pixels of a blob.

    Parameters
    ----------
    blob
        What the column of the band, or ``pixels``, holds for a tile.
    compression
        None, ``gzip``, ``jpeg`` or ``webp``.
    dtype
        Type of the pixels.
    shape
        (rows, columns), or (bands, rows, columns) for the interleaved layout.
    byte_interleaved
        Undo what one writer did to interleaved tiles of types wider than a byte: it took turns
        byte by byte instead of value by value.
    where
        What an error calls the tile.
    limits
        ``tile_bytes`` caps the decoded size.

    Returns
    -------
    Array of `shape` in the byte order of the machine; it may be read-only.

    Raises
    ------
    InvalidMetadataError
        A blob that does not decode to exactly these pixels.
    LimitExceededError
        Pixels over the limit; nothing has been decoded then.
    """
    pixel_type = np.dtype(dtype).newbyteorder("<")
    size = pixel_type.itemsize
    for length in shape:
        size *= length
    if size > limits.tile_bytes:
        limits.check("tile_bytes", size, where)
    if compression == spec.GZIP:
        data: bytes | bytearray = gzipped.decompress(blob, size, where)
    elif compression is None:
        data = blob
    else:
        return _picture(blob, compression, shape, where, limits)
    if len(data) != size:
        raise InvalidMetadataError(
            "tile has another size than its pixels",
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
    """Bands whose bytes took turns, each whole again; shape (bands, pixels)."""
    planes = np.ascontiguousarray(pixels.view(np.uint8).reshape(-1, bands).T)
    return planes.view(pixels.dtype)


def _picture(blob: bytes, kind: str, shape: Shape, where: str, limits: Limits) -> Pixels:
    # Only files of pictures need rasterio.
    from comal.raster.pictures import decode_picture  # noqa: PLC0415

    bands, rows, columns = shape if len(shape) == 3 else (1, *shape)
    return decode_picture(blob, kind, (bands, rows, columns), where, limits).reshape(shape)
