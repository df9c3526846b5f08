"""Pixels and georeference of images in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import rasterio
from rasterio.io import MemoryFile
from rasterio.windows import Window

from comal.errors import InvalidMetadataError, translated


class Georeference(NamedTuple):
    """Where the pixels of an image are, and which of them have no value."""

    transform: tuple[float, ...]
    crs: str | None
    nodata: float | None


@contextmanager
def _opened(data: Any) -> Iterator[Any]:
    faults = {rasterio.errors.RasterioError: InvalidMetadataError}
    with (
        translated(faults, "not an image that GDAL can read"),
        MemoryFile(bytes(data)) as file,
        file.open() as image,
    ):
        yield image


def image(
    data: Any,
    *,
    bands: Sequence[int] | None = None,
    window: tuple[int, int, int, int] | None = None,
    out: Any = None,
) -> Any:
    """The pixels of an image, (bands, y, x)."""
    with _opened(data) as source:
        part = None if window is None else Window(*window)
        found = source.read(None if bands is None else list(bands), window=part)
    if out is not None and out.shape == found.shape and out.dtype == found.dtype:
        out[...] = found
        return out
    return found


def georeference(data: Any) -> Georeference:
    """Transform (a to f), CRS and nodata value of an image."""
    with _opened(data) as source:
        crs = None if source.crs is None else source.crs.to_string()
        return Georeference(tuple(source.transform)[:6], crs, source.nodata)


def valid(
    data: Any,
    pixels: Any,
    bands: Sequence[int] | None = None,
    window: tuple[int, int, int, int] | None = None,
) -> Any:
    """Mask of the pixels that are valid, of the shape of `pixels`."""
    with _opened(data) as source:
        part = None if window is None else Window(*window)
        masks = source.read_masks(None if bands is None else list(bands), window=part)
    return np.asarray(masks, np.bool_).reshape(pixels.shape)
