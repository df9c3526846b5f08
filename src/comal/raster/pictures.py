"""Preview images of rasters, and images as tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from affine import Affine
from rasterio._err import CPLE_BaseError  # no public name, yet the drivers let it out
from rasterio.enums import ColorInterp, Interleaving, Resampling
from rasterio.errors import RasterioError
from rasterio.warp import reproject

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    counted,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import open_raster, place, read_valid, sniff_driver
from comal.raster.values import Mask, as_array, colour_table, default_bands, seen, valid_mask

Bytes = npt.NDArray[np.uint8]

_STRETCH = (2.0, 98.0)
_PLANE = "EPSG:3857"
_PICTURE_BYTES = 32
"""Approximate memory per pixel of an image while it is rendered."""
_DARKEST = 32
"""Darkest grey of pixels other than the edge, to distinguish them from it."""


def preview(
    source: Any,
    *,
    size: int = 512,
    bands: tuple[int, ...] | None = None,
    percentiles: tuple[float, float] = _STRETCH,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """A PNG image of a raster.

    Parameters
    ----------
    source
        Path, bytes or span, or an open rasterio dataset.
    size
        Longest side in pixels; a smaller raster keeps its size. Overviews are used.
    bands
        One or three bands, numbered from 1. By default those marked red, green and blue, else the
        first three, else the first.
    percentiles
        Percentiles that become black and white, per band; 8-bit colour is shown unchanged. If more
        pixels than that share the minimum, such as an edge without a nodata value, the minimum is
        black, and all others become dark grey to white by their own percentiles. A band with a
        colour table is shown in its colours.
    limits
        As for `open_raster`.

    Returns
    -------
    PNG, 8 bits, RGBA; pixels without a value in any band are transparent (`comal.raster.values`),
    and a band without a value contributes 0 to the colour. A raster stored from south to north is
    flipped, so that north is up.
    """
    if hasattr(source, "read_masks"):
        return _render(source, size, bands, percentiles, limits, source.name)
    with open_raster(source, limits) as dataset:
        return _render(dataset, size, bands, percentiles, limits, place(source))


def _render(
    dataset: Any,
    size: int,
    bands: tuple[int, ...] | None,
    percentiles: tuple[float, float],
    limits: Limits,
    where: str,
) -> bytes:
    chosen = bands or default_bands([colour.name for colour in dataset.colorinterp])
    if len(chosen) not in {1, 3} or not set(chosen) <= set(dataset.indexes):
        raise InvalidInputError(
            "no such bands to show", found=chosen, expected=f"1 or 3 bands of 1 to {dataset.count}"
        )
    shape = fitted(dataset.height, dataset.width, size)
    table = _colours(dataset, chosen)
    method = _resampling(dataset, chosen[0], shape, limits, where, mixed=table is None)
    pixels, masks = read_valid(dataset, chosen, out_shape=shape, resampling=method)
    if dataset.crs and dataset.transform.e > 0:
        pixels = pixels[:, ::-1]
        masks = [None if mask is None else mask[::-1] for mask in masks]
    return picture_of(pixels, masks, table, percentiles)


def _resampling(
    dataset: Any, band: int, shape: tuple[int, int], limits: Limits, where: str, *, mixed: bool
) -> Resampling:
    """The resampling of an image, after a check that it reads no more than the limits allow.

    A few bytes can declare any size, and GDAL reads every block that an image touches.
    """
    limits.check("raster_bytes", shape[0] * shape[1] * _PICTURE_BYTES, f"{where}, the picture")
    shrink = max(dataset.height / shape[0], dataset.width / shape[1])
    level = max((one for one in dataset.overviews(band) if one <= shrink), default=1)
    rows, columns = -(-dataset.height // level), -(-dataset.width // level)
    together = dataset.count if dataset.interleaving is Interleaving.pixel else 1
    size = np.dtype(dataset.dtypes[band - 1]).itemsize * together
    if mixed and rows * columns * size <= limits.raster_bytes:
        return Resampling.average
    high, wide = dataset.block_shapes[band - 1]
    touched = min(shape[0], -(-rows // high)) * min(shape[1], -(-columns // wide))
    if touched * high * wide * size > limits.raster_bytes:
        raise LimitExceededError(
            "the raster is too large for a picture",
            where=where,
            found=f"{dataset.width} x {dataset.height} pixels, overviews {dataset.overviews(band)}",
            expected=f"at most {limits.raster_bytes} bytes to read",
            hint="add overviews to the raster (gdaladdo), or pass limits=Limits(raster_bytes=...)",
            limit="raster_bytes",
        )
    return Resampling.nearest


def picture_of(
    pixels: npt.NDArray[Any],
    masks: Sequence[Mask | None],
    table: Bytes | None = None,
    percentiles: tuple[float, float] = _STRETCH,
) -> bytes:
    """A PNG of one or three bands that shows the pixels of `comal.raster.values.seen`.

    A single band may have a table of 256 colours as RGBA; `percentiles` are those of `preview`.
    """
    return encode_picture(coloured(pixels, masks, table, percentiles), "png")


def coloured(
    pixels: npt.NDArray[Any],
    masks: Sequence[Mask | None],
    table: Bytes | None = None,
    percentiles: tuple[float, float] = _STRETCH,
) -> Bytes:
    """The image of `picture_of` as an array (4, y, x): red, green, blue, alpha."""
    shown = as_array(seen(masks), pixels.shape[1:])
    if table is not None:
        rgba = table[np.clip(pixels[0], 0, 255).astype(np.uint8)]
        rgba[..., 3] = np.where(shown, rgba[..., 3], 0)
        return np.moveaxis(rgba, 2, 0)
    pixels = np.abs(pixels) if np.iscomplexobj(pixels) else pixels
    as_it_is = len(pixels) == 3 and pixels.dtype == np.uint8
    valid = [as_array(mask, shown.shape) for mask in masks]
    shades = [
        np.where(has, band, 0) if as_it_is else _stretched(band, has, percentiles)
        for band, has in zip(pixels, valid, strict=True)
    ]
    if len(shades) == 1:
        shades *= 3
    return np.stack([*shades, np.where(shown, 255, 0)]).astype(np.uint8)


def fitted(height: int, width: int, size: int) -> tuple[int, int]:
    """Rows and columns of an image whose longest side is at most `size` pixels."""
    shrink = max(1.0, max(height, width) / size)
    return max(1, round(height / shrink)), max(1, round(width / shrink))


def shrunk(
    pixels: npt.NDArray[Any], masks: Sequence[Mask | None], shape: tuple[int, int], *, mixed: bool
) -> tuple[npt.NDArray[Any], list[Mask | None]]:
    """Bands at a smaller size: `mixed` averages valid pixels, else the nearest pixel is taken."""
    rows, columns = pixels.shape[1:]
    wide = "float32" if pixels.dtype.itemsize <= 2 else "float64"
    source = pixels.astype(wide)
    for plane, mask in zip(source, masks, strict=True):
        if mask is not None:
            plane[~mask] = np.nan
    target = np.full((len(pixels), *shape), np.nan, wide)
    reproject(
        source,
        target,
        src_transform=Affine.scale(1 / columns, 1 / rows),
        dst_transform=Affine.scale(1 / shape[1], 1 / shape[0]),
        src_crs=_PLANE,
        dst_crs=_PLANE,
        resampling=Resampling.average if mixed else Resampling.nearest,
        src_nodata=np.nan,
        dst_nodata=np.nan,
        UNIFIED_SRC_NODATA="NO",  # validity is per band
    )
    valid = [valid_mask(plane, None) for plane in target]
    if pixels.dtype.kind in "iu":
        target = np.nan_to_num(target).round()
    return target.astype(pixels.dtype), valid


def _colours(dataset: Any, chosen: tuple[int, ...]) -> Bytes | None:
    """Colours of 256 values as (256, 4), if the only band that is shown has a colour table."""
    if len(chosen) != 1 or dataset.colorinterp[chosen[0] - 1] is not ColorInterp.palette:
        return None
    return colour_table(dataset.colormap(chosen[0]), 256)


def _stretched(
    band: npt.NDArray[Any], valid: npt.NDArray[np.bool_], percentiles: tuple[float, float]
) -> Bytes:
    values = band[valid].astype(np.float64)
    if not values.size:
        return np.zeros(band.shape, np.uint8)
    least = float(values.min())
    low, high = np.percentile(values, percentiles)
    darkest = 0
    if low == least and percentiles[0] > 0 and (values > least).any():
        # Many pixels share the minimum: an edge without a nodata value, or the sea.
        others = np.percentile(values[values > least], percentiles)
        if others[1] > others[0]:
            (low, high), darkest = others, _DARKEST
    if high <= low:
        low, high = least, float(values.max())
    if high <= low:
        return np.where(valid, 128, 0).astype(np.uint8)
    filled = np.where(valid, band, least).astype(np.float64)
    scaled = np.clip((filled - low) / (high - low), 0, 1)
    shade: Bytes = (darkest + scaled * (255 - darkest)).round().astype(np.uint8)
    shade[filled <= least] = 0
    return shade


# -- JPEG and WebP of tiles ------------------------------------------------------------------------


Pixels = npt.NDArray[np.uint8]

_BANDS = {"jpeg": (1, 3), "webp": (1, 3, 4), "png": (1, 2, 3, 4)}
"""Numbers of bands that each kind of image can have; GDAL's drivers have the same names."""


def decode_picture(
    data: bytes,
    kind: str,
    shape: tuple[int, int, int],
    where: str = "tile",
    limits: Limits = DEFAULT_LIMITS,
) -> Pixels:
    """The pixels of an image of known size.

    Parameters
    ----------
    data
        A complete file.
    kind
        ``jpeg``, ``webp`` or ``png``; must match the bytes.
    shape
        Required bands, rows, columns. A WebP without alpha counts as opaque if four bands are
        expected, and its first band is taken if one is: encoders drop an alpha that is 255
        everywhere, and WebP has no grey.

    Returns
    -------
    uint8 array of that shape.

    Raises
    ------
    InvalidMetadataError
        The kind or shape is another one, or the bytes do not decode.
    LimitExceededError
        The image exceeds the limits; nothing has been decoded then.
    """
    bands, rows, columns = shape
    limits.check("tile_bytes", bands * rows * columns, where)
    found = sniff_driver(data[:16], where)
    if found != kind.upper():
        raise InvalidMetadataError("the tile is another kind of picture", where=where, found=found)
    with open_raster(data, limits) as dataset:
        size = (dataset.count, dataset.height, dataset.width)
        if size[1:] != (rows, columns) or not _fits(kind, size[0], bands):
            raise InvalidMetadataError(
                "the tile is a picture of another size",
                where=where,
                found=f"{counted(size[0], 'band')} of {size[1]} x {size[2]}",
                expected=f"{counted(bands, 'band')} of {rows} x {columns}",
            )
        if dataset.dtypes[0] != "uint8":
            raise InvalidMetadataError(
                "the tile is a picture of another type", where=where, found=dataset.dtypes[0]
            )
        pixels: Pixels = dataset.read(list(range(1, min(bands, size[0]) + 1)))
    if len(pixels) < bands:
        opaque = np.full((1, rows, columns), 255, np.uint8)
        pixels = np.concatenate([pixels, opaque])
    return pixels


def _fits(kind: str, found: int, bands: int) -> bool:
    return found == bands or (kind == "webp" and found == 3 and bands in {1, 4})


def encode_picture(pixels: Pixels, kind: str, *, quality: int = 85) -> bytes:
    """Encode pixels as an image file.

    Pixels are uint8, shape (bands, rows, columns): 1 or 3 bands for JPEG, 1, 3 or 4 for WebP, which
    stores grey as three equal bands, 1 to 4 for PNG. `quality` is 1 to 100; only PNG is lossless.
    """
    allowed = _BANDS[kind]
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or len(pixels) not in allowed:
        raise InvalidInputError(
            f"not the pixels of a {kind} tile",
            found=f"{pixels.dtype}, shape {pixels.shape}",
            expected=f"uint8, shape (bands, rows, columns) with bands one of {allowed}",
        )
    if not 1 <= quality <= 100:
        raise InvalidInputError("quality out of range", found=quality, expected="1 to 100")
    if kind == "webp" and len(pixels) == 1:
        pixels = np.repeat(pixels, 3, axis=0)
    options = {} if kind == "png" else {"QUALITY": quality}
    profile = {
        "driver": kind.upper(),
        "count": len(pixels),
        "height": pixels.shape[1],
        "width": pixels.shape[2],
        "dtype": "uint8",
        # Not stored, but rasterio warns without one.
        "transform": rasterio.Affine(1, 0, 0, 0, -1, 1),
    }
    faults = {RasterioError: InvalidInputError, CPLE_BaseError: InvalidInputError}
    with (
        translated(faults, "the tile cannot be encoded", where=kind),
        rasterio.Env(GDAL_PAM_ENABLED="NO"),
        rasterio.MemoryFile() as memory,
    ):
        with memory.open(**profile, **options) as dataset:
            dataset.write(pixels)
        return bytes(memory.getbuffer())
