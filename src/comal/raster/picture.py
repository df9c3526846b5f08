"""A small picture of a raster, for people."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import NotGeoreferencedWarning

from comal.errors import InvalidInputError, LimitExceededError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raster.opening import check_read, open_raster, place

Bytes = npt.NDArray[np.uint8]

_STRETCH = (2.0, 98.0)
_DARKEST = 32
"""Of what is not an edge, so that it is told from one."""


def preview(
    source: Any,
    *,
    size: int = 512,
    bands: tuple[int, ...] | None = None,
    percentiles: tuple[float, float] = _STRETCH,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """A PNG picture of a raster.

    Parameters
    ----------
    source
        Path, bytes or span, or a rasterio dataset that is open already.
    size
        Longest side in pixels; a smaller raster keeps its size. Overviews are used.
    bands
        One or three bands counted from 1. By default those marked red, green and blue, else the
        first three, else the first.
    percentiles
        Values that become black and white, per band; 8-bit colour is shown as it is. Where more
        pixels than that share the least value, as those of an edge without a nodata value do, it
        is black, and all others become dark grey to white by their own percentiles. A band with
        a colour table is shown in its colours.
    limits
        As for `open_raster`.

    Returns
    -------
    PNG, 8 bits, RGBA; pixels without data are transparent. A raster stored from south to north is
    turned over, so that north is up.
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
    chosen = bands or _default_bands(dataset)
    if len(chosen) not in {1, 3} or not set(chosen) <= set(dataset.indexes):
        raise InvalidInputError(
            "no such bands to show", found=chosen, expected=f"1 or 3 of 1..{dataset.count}"
        )
    shape = _fitted(dataset, size)
    table = _colours(dataset, chosen)
    # Classes must not be mixed; without overviews the whole raster is read to be averaged.
    method = Resampling.nearest if table is not None else Resampling.average
    if not dataset.overviews(chosen[0]):
        try:
            check_read(dataset, dataset.width * dataset.height, limits, where)
        except LimitExceededError:
            method = Resampling.nearest
    pixels = dataset.read(chosen, out_shape=(len(chosen), *shape), resampling=method)
    masks = dataset.read_masks(chosen, out_shape=(len(chosen), *shape)) > 0
    if dataset.crs and dataset.transform.e > 0:
        pixels, masks = pixels[:, ::-1], masks[:, ::-1]
    if np.iscomplexobj(pixels):
        pixels = np.abs(pixels)
    if pixels.dtype.kind == "f":
        masks &= np.isfinite(pixels)
    alpha = masks.all(axis=0)
    if table is not None:
        rgba = table[np.clip(pixels[0], 0, 255).astype(np.uint8)]
        rgba[..., 3] = np.where(alpha, rgba[..., 3], 0)
        return encode_png(np.moveaxis(rgba, 2, 0))
    as_it_is = len(chosen) == 3 and pixels.dtype == np.uint8
    shades = [band if as_it_is else _stretched(band, alpha, percentiles) for band in pixels]
    if len(shades) == 1:
        shades *= 3
    return encode_png(np.stack([*shades, np.where(alpha, 255, 0).astype(np.uint8)]))


def encode_png(picture: Bytes) -> bytes:
    """A picture (bands, rows, columns) of 8 bits as PNG."""
    count, rows, columns = picture.shape
    with rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.MemoryFile(ext=".png") as memory:
        profile = {"driver": "PNG", "count": count, "height": rows, "width": columns}
        with warnings.catch_warnings():
            # A picture has no place on the ground.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            with memory.open(dtype="uint8", **profile) as target:
                target.write(picture)
        return bytes(memory.read())


def _default_bands(dataset: Any) -> tuple[int, ...]:
    found = {
        meaning: band for band, meaning in zip(dataset.indexes, dataset.colorinterp, strict=True)
    }
    colours = (ColorInterp.red, ColorInterp.green, ColorInterp.blue)
    if all(colour in found for colour in colours):
        return tuple(found[colour] for colour in colours)
    kinds = zip(dataset.indexes, dataset.colorinterp, strict=True)
    visible = tuple(band for band, meaning in kinds if meaning is not ColorInterp.alpha)
    if len(visible) >= 3:
        return visible[:3]
    return visible[:1] or (1,)


def _fitted(dataset: Any, size: int) -> tuple[int, int]:
    shrink = max(1.0, max(dataset.height, dataset.width) / size)
    return max(1, round(dataset.height / shrink)), max(1, round(dataset.width / shrink))


def _colours(dataset: Any, chosen: tuple[int, ...]) -> Bytes | None:
    """Colours of 256 values as (256, 4), when the only band that is shown has a colour table."""
    if len(chosen) != 1 or dataset.colorinterp[chosen[0] - 1] is not ColorInterp.palette:
        return None
    table = np.zeros((256, 4), np.uint8)
    for value, colour in dataset.colormap(chosen[0]).items():
        if 0 <= value < 256:
            table[value] = colour
    return table


def _stretched(
    band: npt.NDArray[Any], alpha: npt.NDArray[np.bool_], percentiles: tuple[float, float]
) -> Bytes:
    values = band[alpha].astype(np.float64)
    if not values.size:
        return np.zeros(band.shape, np.uint8)
    least = float(values.min())
    low, high = np.percentile(values, percentiles)
    darkest = 0
    if low == least and percentiles[0] > 0 and (values > least).any():
        # Many pixels share the least value: an edge without a nodata value, or the sea.
        others = np.percentile(values[values > least], percentiles)
        if others[1] > others[0]:
            (low, high), darkest = others, _DARKEST
    if high <= low:
        low, high = least, float(values.max())
    if high <= low:
        return np.full(band.shape, 128, np.uint8)
    filled = np.where(alpha, band, least).astype(np.float64)
    scaled = np.clip((filled - low) / (high - low), 0, 1)
    shade: Bytes = (darkest + scaled * (255 - darkest)).round().astype(np.uint8)
    shade[filled <= least] = 0
    return shade
