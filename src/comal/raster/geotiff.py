"""Writing GeoTIFF and COG block by block."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import rasterio
from affine import Affine
from rasterio.enums import ColorInterp, Resampling
from rasterio.errors import NotGeoreferencedWarning
from rasterio.shutil import copy as copy_dataset
from rasterio.windows import Window

from comal.errors import ComalError, InvalidInputError, StorageError, translated
from comal.raster.describing import BandInfo, Transform
from comal.raster.opening import gdal_rules

CODECS = ("deflate", "lzw", "zstd", "lerc", "packbits", "none")
_WRITING: dict[type[BaseException], type[ComalError]] = {
    rasterio.errors.RasterioError: StorageError,
    rasterio._err.CPLE_BaseError: StorageError,  # noqa: SLF001 - no public name
}
_SMALLEST = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TiffLayout:
    """Properties of a GeoTIFF to write."""

    width: int
    height: int
    transform: Transform
    crs: str
    dtype: str
    """Type of all bands."""
    bands: tuple[BandInfo, ...]
    """Descriptions, units, scales, offsets and colours."""
    nodata: int | float | None = None
    """Nodata value of all bands."""
    masked: bool = False
    """Whether it has an internal mask; blocks are then masked arrays."""
    compression: str = "deflate"
    block: int = 256

    def __post_init__(self) -> None:
        if self.compression not in CODECS:
            raise InvalidInputError(
                "unknown compression", found=self.compression, expected=", ".join(CODECS)
            )


Blocks = Iterator[tuple[int, int, npt.NDArray[Any]]]
"""Column, row and pixels (bands, rows, columns) of blocks."""


def write_geotiff(
    path: str | os.PathLike[str],
    layout: TiffLayout,
    blocks: Blocks,
    *,
    overviews: str | None = None,
) -> None:
    """Write a tiled GeoTIFF.

    Blocks of pixels can come in any order; an existing file is overwritten. `overviews` is the
    resampling of overviews, None for no overviews.
    """
    with _rules(), rasterio.open(path, "w", **_profile(layout)) as dataset:
        _describe(dataset, layout)
        for column, row, pixels in blocks:
            _, height, width = pixels.shape
            _write(dataset, layout, pixels, Window(column, row, width, height))
    if overviews is not None:
        _add_overviews(path, overviews)


def _add_overviews(path: str | os.PathLike[str], method: str) -> None:
    """Add overviews to a GeoTIFF, down to 256 pixels."""
    with _rules(), rasterio.open(path, "r+") as dataset:
        factors: list[int] = []
        while max(dataset.width, dataset.height) >> len(factors) > _SMALLEST:
            factors.append(2 << len(factors))
        if factors:
            dataset.build_overviews(factors, Resampling[method])


def geotiff_to_cog(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    method: str,
    compression: str,
    block: int,
) -> None:
    """Write a GeoTIFF as a Cloud-Optimized GeoTIFF with overviews."""
    with _rules():
        copy_dataset(
            os.fspath(source),
            os.fspath(target),
            driver="COG",
            COMPRESS=compression.upper(),
            BLOCKSIZE=max(block, 128),
            OVERVIEW_RESAMPLING=method.upper(),
            BIGTIFF="IF_SAFER",
        )


def _write(dataset: Any, layout: TiffLayout, pixels: npt.NDArray[Any], window: Window) -> None:
    dataset.write(np.ma.getdata(pixels), window=window)
    if layout.masked:
        dataset.write_mask(~np.ma.getmaskarray(pixels).all(axis=0), window=window)


@contextmanager
def _rules() -> Iterator[None]:
    with (
        gdal_rules(),
        # Else masks become separate files.
        rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True),
        translated(_WRITING, "the GeoTIFF cannot be written"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", NotGeoreferencedWarning)
        yield


def _profile(layout: TiffLayout) -> dict[str, Any]:
    kind = np.dtype(layout.dtype)
    profile: dict[str, Any] = {
        "driver": "GTiff",
        "width": layout.width,
        "height": layout.height,
        "count": len(layout.bands),
        "dtype": layout.dtype,
        "crs": layout.crs,
        "transform": Affine(*layout.transform),
        "tiled": True,
        "blockxsize": layout.block,
        "blockysize": layout.block,
        "BIGTIFF": "IF_SAFER",
        "interleave": "band" if len(layout.bands) > 4 else "pixel",
    }
    if layout.nodata is not None:
        profile["nodata"] = layout.nodata
    if layout.compression != "none":
        profile["compress"] = layout.compression
    if layout.compression in {"deflate", "lzw", "zstd"} and kind.itemsize <= 8:
        profile["predictor"] = 3 if kind.kind == "f" else 2
    if [band.colorinterp for band in layout.bands[:3]] == ["red", "green", "blue"]:
        profile["photometric"] = "RGB"
    return profile


def _describe(dataset: Any, layout: TiffLayout) -> None:
    bands: Sequence[BandInfo] = layout.bands
    for index, band in enumerate(bands, 1):
        if band.description:
            dataset.set_band_description(index, band.description)
        if band.unit:
            dataset.set_band_unit(index, band.unit)
        if band.colortable and layout.dtype in {"uint8", "uint16"}:
            dataset.write_colormap(index, dict(band.colortable))
    dataset.scales = [1.0 if band.scale is None else band.scale for band in bands]
    dataset.offsets = [0.0 if band.offset is None else band.offset for band in bands]
    known = ColorInterp.__members__
    kinds = [known.get(str(band.colorinterp).lower(), ColorInterp.undefined) for band in bands]
    if ColorInterp.palette not in kinds:
        dataset.colorinterp = kinds
