"""Small rasters made for tests, written with rasterio."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import rasterio
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import NotGeoreferencedWarning
from rasterio.transform import Affine


def write(
    path: Path,
    pixels: Any,
    *,
    crs: str | None = "EPSG:32718",
    affine: tuple[float, ...] | None = (300000, 10, 0, 8700000, 0, -10),
    mask: Any = None,
    colours: Mapping[int, tuple[int, ...]] | None = None,
    interpreted: Sequence[str] = (),
    overviews: list[int] | None = None,
    **profile: Any,
) -> Path:
    """Write (bands, rows, columns) or (rows, columns) pixels; the geotransform in GDAL order.

    `colours` are a colour table, `interpreted` names the colour that each band is.
    """
    pixels = np.asarray(pixels)
    pixels = pixels[None] if pixels.ndim == 2 else pixels
    bands, rows, columns = pixels.shape
    placed: dict[str, Any] = {"crs": crs} if affine is not None or "gcps" in profile else {}
    if affine is not None:
        placed["transform"] = Affine.from_gdal(*affine)
    profile = {"driver": "GTiff", "dtype": pixels.dtype, **placed, **profile}
    with warnings.catch_warnings(), rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        with rasterio.open(path, "w", count=bands, height=rows, width=columns, **profile) as file:
            if interpreted:  # before the pixels, or GDAL keeps it in a file beside
                file.colorinterp = [ColorInterp[name] for name in interpreted]
            file.write(pixels)
            if mask is not None:
                file.write_mask(mask)
            if colours is not None:
                file.write_colormap(1, dict(colours))
            if overviews:
                file.build_overviews(overviews, Resampling.average)
    return path
