"""Interpretation of pixels: which are valid, and their physical value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.raquet.spec import Band, Metadata
from comal.raster import values

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

_EXACT_IN_DOUBLE = 53


def fill_value(band: Band) -> Any:
    """The value of pixels that were never written: nodata if there is one, else 0."""
    nodata = stored_nodata(band)
    return np.dtype(band.dtype).type(0) if nodata is None else nodata


def stored_nodata(band: Band) -> Any:
    """The nodata value in the type of pixels; None without one, or if the type cannot hold it."""
    return values.stored_nodata(band.nodata, band.dtype)


def valid_of(pixels: Pixels, band: Band) -> Bools:
    """Which pixels of a band have a value, judged by the pixels alone."""
    return values.as_array(values.valid_mask(pixels, band.nodata), pixels.shape)


def alpha_of(bands: Sequence[Band]) -> int | None:
    """Position of the alpha band, whose zeros mask the pixels of all others; None without one."""
    return values.alpha_at([band.colorinterp for band in bands])


def chosen_bands(
    metadata: Metadata, bands: str | int | Iterable[str | int] | None, where: str
) -> tuple[Band, ...]:
    """Bands by name, or by number from 1; None for all.

    Raises
    ------
    InvalidInputError
        There is no such band, or the list is empty.
    """
    every = metadata.bands
    if bands is None:
        return every
    if isinstance(bands, str) or not isinstance(bands, Iterable):
        return (_chosen_band(every, bands, where),)
    found = tuple(_chosen_band(every, band, where) for band in bands)
    if not found:
        raise InvalidInputError("no band is chosen", where=where)
    return found


def _chosen_band(every: Sequence[Band], band: Any, where: str) -> Band:
    if isinstance(band, int) and 1 <= band <= len(every):
        return every[band - 1]
    for one in every:
        if one.name == band:
            return one
    raise InvalidInputError(
        "no such band",
        where=where,
        found=shown(band),
        expected=", ".join(shown(one.name) for one in every[:20]) + f", or 1 to {len(every)}",
    )


def tile_bytes(metadata: Metadata) -> int:
    """Size in bytes of the pixels of all bands of a tile."""
    pixels = metadata.block_width * metadata.block_height
    return pixels * sum(band.pixel_type.itemsize for band in metadata.bands)


def common_type(bands: Sequence[Band]) -> np.dtype[Any]:
    """The type that holds the pixels of all bands exactly.

    Raises
    ------
    InvalidInputError
        There is none: 64-bit integers with floats, or signed with unsigned ones.
    """
    types = [np.dtype(band.dtype) for band in bands]
    common = np.result_type(*types)
    if common.kind == "f":
        bits = {2: 11, 4: 24, 8: _EXACT_IN_DOUBLE}[common.itemsize]
        for one in types:
            if one.kind in "iu" and 8 * one.itemsize - (one.kind == "i") > bits:
                raise InvalidInputError(
                    "no type holds the pixels of all these bands",
                    found=", ".join(f"{band.name} {band.dtype}" for band in bands),
                    hint="read the bands one by one: bands=[...]",
                )
    return common


class Asked(NamedTuple):
    """The arguments of a read; see `RaquetFile`."""

    bands: tuple[Band, ...]
    read: tuple[Band, ...]
    """The bands, and after them an alpha band that is needed to mask their pixels."""
    step: int
    masked: bool
    scaled: bool

    def finished(self, data: Pixels, missing: Bools) -> Any:
        """The result for the caller, from the pixels of all bands that were read.

        Pixels that are `missing` (in no tile, or in a NULL tile) hold the fill value of their band.
        """
        if not self.masked and not self.scaled:
            return data
        mask, count = _mask_of(data, self.read, missing), len(self.bands)
        if count < len(self.read):
            mask = mask[:count]
            data = data[:count].astype(common_type(self.bands), copy=False)
        if self.scaled:
            data = _scaled(data, self.bands)
            data[mask] = np.nan
        if not self.masked:
            return data
        result: Any = np.ma.MaskedArray(data, mask)
        if not self.scaled:
            fills = {fill_value(band).item() for band in self.bands}
            result.fill_value = data.dtype.type(fills.pop() if len(fills) == 1 else 0)
        return result


def _mask_of(data: Pixels, bands: Sequence[Band], missing: Bools) -> Bools:
    """Which pixels hold no value."""
    mask = missing.copy()
    at = alpha_of(bands)
    alpha = None if at is None else data[at]
    if at is not None and stored_nodata(bands[at]) is not None:
        # A missing alpha tile masks all. Without a nodata value it reads as 0 already, and pixels
        # that a footprint counts as padding may still be opaque.
        alpha = np.where(missing[at], 0, data[at])
    for index, band in enumerate(bands):
        # Compared in the type of the band, not in the common type of all bands.
        pixels = data[index].astype(band.dtype, copy=False)
        valid = values.valid_mask(pixels, band.nodata, None, None if index == at else alpha)
        if valid is not None:
            mask[index] |= ~valid
    return mask


def _scaled(data: Pixels, bands: Sequence[Band]) -> Pixels:
    real = data.astype(np.float64)
    for index, band in enumerate(bands):
        if band.scale is not None:
            real[index] *= band.scale
        if band.offset is not None:
            real[index] += band.offset
    return real
