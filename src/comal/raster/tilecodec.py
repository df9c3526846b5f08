"""Tiles that are pictures: JPEG and WebP as arrays, and arrays as JPEG and WebP."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio._err import CPLE_BaseError  # no public name, yet the drivers let it out
from rasterio.errors import RasterioError

from comal.errors import InvalidInputError, InvalidMetadataError, counted, translated
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import open_raster, sniff_driver

Pixels = npt.NDArray[np.uint8]

DRIVERS = {"jpeg": "JPEG", "webp": "WEBP", "png": "PNG"}
"""GDAL's driver for each kind of picture."""
_OPTIONS = {"JPEG": {"PROGRESSIVE": "NO"}, "WEBP": {}, "PNG": {}}
_QUALITY = frozenset({"JPEG", "WEBP"})


def decode_picture(
    data: bytes,
    kind: str,
    shape: tuple[int, int, int],
    where: str = "tile",
    limits: Limits = DEFAULT_LIMITS,
) -> Pixels:
    """The pixels of a picture whose size is known beforehand.

    Parameters
    ----------
    data
        A whole file.
    kind
        ``jpeg``, ``webp`` or ``png``; what the bytes are must agree.
    shape
        Bands, rows, columns that it must have. A WebP without alpha counts as opaque where four
        bands are expected, and its first band is taken where one is: encoders leave out an alpha
        that is 255 everywhere, and WebP has no grey.

    Returns
    -------
    uint8 array of that shape.

    Raises
    ------
    InvalidMetadataError
        Another kind or shape, or bytes that do not decode.
    LimitExceededError
        A picture over the limits; nothing has been decoded then.
    """
    driver = DRIVERS[kind]
    bands, rows, columns = shape
    limits.check("tile_bytes", bands * rows * columns, where)
    found = sniff_driver(data[:16], where)
    if found != driver:
        raise InvalidMetadataError("tile is another kind of picture", where=where, found=found)
    with open_raster(data, limits) as dataset:
        size = (dataset.count, dataset.height, dataset.width)
        if size[1:] != (rows, columns) or not _fits(driver, size[0], bands):
            raise InvalidMetadataError(
                "tile is a picture of another size",
                where=where,
                found=f"{counted(size[0], 'band')} of {size[1]} x {size[2]}",
                expected=f"{counted(bands, 'band')} of {rows} x {columns}",
            )
        if dataset.dtypes[0] != "uint8":
            raise InvalidMetadataError(
                "tile is a picture of another type", where=where, found=dataset.dtypes[0]
            )
        pixels: Pixels = dataset.read(list(range(1, min(bands, size[0]) + 1)))
    if len(pixels) < bands:
        opaque = np.full((1, rows, columns), 255, np.uint8)
        pixels = np.concatenate([pixels, opaque])
    return pixels


def _fits(driver: str, found: int, bands: int) -> bool:
    if found == bands:
        return True
    return driver == "WEBP" and found == 3 and bands in {1, 4}


def encode_picture(pixels: Pixels, kind: str, *, quality: int = 85) -> bytes:
    """A picture file of the pixels.

    Parameters
    ----------
    pixels
        uint8, shape (bands, rows, columns): 1 or 3 bands for JPEG, 1, 3 or 4 for WebP (grey is
        stored as three equal bands).
    kind
        ``jpeg``, ``webp`` or ``png``.
    quality
        1 to 100; lossy at any quality but for PNG.

    Raises
    ------
    InvalidInputError
        Another type, shape or quality.
    """
    driver = DRIVERS[kind]
    allowed = {"JPEG": (1, 3), "WEBP": (1, 3, 4), "PNG": (1, 2, 3, 4)}[driver]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in allowed:
        raise InvalidInputError(
            f"not the pixels of a {kind} tile",
            found=f"{pixels.dtype}, shape {pixels.shape}",
            expected=f"uint8, shape (bands, rows, columns) with bands one of {allowed}",
        )
    if not 1 <= quality <= 100:
        raise InvalidInputError("quality out of range", found=quality, expected="1 to 100")
    if driver == "WEBP" and len(pixels) == 1:
        pixels = np.repeat(pixels, 3, axis=0)
    options: dict[str, Any] = dict(_OPTIONS[driver])
    if driver in _QUALITY:
        options["QUALITY"] = quality
    profile = {
        "driver": driver,
        "count": len(pixels),
        "height": pixels.shape[1],
        "width": pixels.shape[2],
        "dtype": "uint8",
        # Nothing of it is stored; without one rasterio warns.
        "transform": rasterio.Affine(1, 0, 0, 0, -1, 1),
    }
    faults = {RasterioError: InvalidInputError, CPLE_BaseError: InvalidInputError}
    with (
        translated(faults, "tile cannot be encoded", where=kind),
        rasterio.Env(GDAL_PAM_ENABLED="NO"),
        rasterio.MemoryFile() as memory,
    ):
        with memory.open(**profile, **options) as dataset:
            dataset.write(pixels)
        return bytes(memory.getbuffer())
