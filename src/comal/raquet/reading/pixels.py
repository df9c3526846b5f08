"""What pixels mean: which are valid, and what their physical value is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.raquet.spec import Band, Number

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]

ALPHA = "alpha"
_EXACT_IN_DOUBLE = 53


def fill_value(band: Band) -> Any:
    """What a pixel that was never written holds: nodata where there is one, else 0."""
    nodata = stored_nodata(band)
    return np.dtype(band.dtype).type(0) if nodata is None else nodata


def stored_nodata(band: Band) -> Any:
    """The nodata value as a pixel holds it; None without one, or where the type cannot hold it."""
    if band.nodata is None:
        return None
    return as_pixel(band.nodata, np.dtype(band.dtype))


def as_pixel(value: Number, dtype: np.dtype[Any]) -> Any:
    """A number as a scalar of `dtype`, or None where it is no value of it."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            found = dtype.type(value)
        # A number that only becomes infinite by rounding is not one that pixels can have.
        return None if np.isinf(found) and not np.isinf(float(value)) else found
    if not isinstance(value, int):
        return None
    limits = np.iinfo(dtype)
    return dtype.type(value) if limits.min <= value <= limits.max else None


def invalid(pixels: Pixels, band: Band) -> Bools:
    """Which pixels hold no value: nodata, and NaN in any case."""
    nodata = stored_nodata(band)
    found: Bools
    if pixels.dtype.kind == "f":
        found = np.isnan(pixels)
        if nodata is not None and not np.isnan(nodata):
            found |= pixels == nodata
        return found
    if nodata is None:
        return np.zeros(pixels.shape, np.bool_)
    found = pixels == nodata
    return found


def alpha_of(bands: Sequence[Band]) -> int | None:
    """Position of the band whose zeros hide the pixels of all others; None without one."""
    found = [at for at, band in enumerate(bands) if band.colorinterp == ALPHA]
    return found[0] if found and len(bands) > 1 else None


def common_type(bands: Sequence[Band]) -> np.dtype[Any]:
    """The type that holds the pixels of all bands exactly.

    Raises
    ------
    InvalidInputError
        There is none: 64-bit integers beside floats, or beside integers of another sign.
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
                    hint="read bands= one by one",
                )
    return common


def finished(
    data: Pixels,
    bands: Sequence[Band],
    missing: Bools | None,
    *,
    masked: bool,
    scaled: bool,
    count: int | None = None,
) -> Pixels:
    """Pixels as the caller wants them.

    Parameters
    ----------
    data
        Shape (bands, ..); pixels that are missing hold the fill value of their band.
    bands
        The bands of the first axis.
    missing
        Which pixels are in no tile or in one that is NULL, shape as `data`; None for none.
    masked
        Give a `numpy.ma.MaskedArray` without the pixels that hold no value.
    scaled
        Give physical values as float64: pixel x scale + offset; NaN where there is none.
    count
        How many bands the caller wants; an alpha band behind them only tells what is hidden.
    """
    if not masked and not scaled:
        return data
    mask = _mask_of(data, bands, missing)
    if count is not None and count < len(bands):
        bands, mask = bands[:count], mask[:count]
        data = data[:count].astype(common_type(bands), copy=False)
    if scaled:
        data = _scaled(data, bands)
        data[mask] = np.nan
    if not masked:
        return data
    result: Pixels = np.ma.MaskedArray(data, mask)
    if not scaled:
        result.fill_value = _common_fill(bands, data.dtype)  # type: ignore[attr-defined]
    return result


def _mask_of(data: Pixels, bands: Sequence[Band], missing: Bools | None) -> Bools:
    """Which pixels hold no value."""
    mask = np.empty(data.shape, np.bool_)
    for index, band in enumerate(bands):
        # Compared in the type of the band: 255 is no nodata once it is a float.
        mask[index] = invalid(data[index].astype(band.dtype, copy=False), band)
    if missing is not None:
        mask |= missing
    alpha = alpha_of(bands)
    if alpha is not None:
        hidden = data[alpha] == 0
        for index in range(len(bands)):
            if index != alpha:
                mask[index] |= hidden
    return mask


def _scaled(data: Pixels, bands: Sequence[Band]) -> Pixels:
    values = data.astype(np.float64)
    for index, band in enumerate(bands):
        if band.scale is not None:
            values[index] *= band.scale
        if band.offset is not None:
            values[index] += band.offset
    return values


def _common_fill(bands: Sequence[Band], dtype: np.dtype[Any]) -> Any:
    values = {fill_value(band).item() for band in bands}
    return dtype.type(values.pop()) if len(values) == 1 else dtype.type(0)
