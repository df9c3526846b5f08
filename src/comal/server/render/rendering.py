"""One tile of a raster as a picture, from its pixels and the parameters of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.server.render import colours, pictures
from comal.server.render.params import Params
from comal.server.render.pictures import Mask, Picture, Pixels


@dataclass(frozen=True, slots=True)
class Look:
    """What a source shows when a request says nothing."""

    bidx: tuple[int, ...]
    rescale: tuple[tuple[float, float], ...]
    """A range per band; empty for what is shown as it is."""
    table: npt.NDArray[np.uint8] | None = None
    """RGBA of the values of the only band that is shown."""


def bands_of(params: Params, look: Look) -> tuple[int, ...]:
    """The bands that must be read, counted from 1."""
    formula = params.formula()
    if formula is not None:
        return formula.bands
    return params.bidx or look.bidx


def render(
    pixels: Any,
    params: Params,
    look: Look,
    ext: str,
    *,
    scales: Sequence[tuple[float, float]] = (),
) -> bytes:
    """A tile in a format.

    Parameters
    ----------
    pixels
        Masked array (bands, rows, columns): the bands of `bands_of`, in their order.
    params
        What the request says.
    look
        What the source says.
    ext
        ``png``, ``webp``, ``jpg`` or ``npy``.
    scales
        Scale and offset of each band, which turn pixels into heights.

    Raises
    ------
    InvalidInputError
        Parameters that do not fit one another.
    """
    values, valid = _values(pixels, params)
    if ext == "npy":
        return pictures.npy(values, valid if params.return_mask else None)
    if params.algorithm is not None:
        return _terrain(values, valid, params, ext, scales)
    shown = valid if params.return_mask and not valid.all() else None
    return pictures.encode(_picture(values, shown, params, look), ext)


def _values(pixels: Any, params: Params) -> tuple[Pixels, Mask]:
    """Values of the bands or formulas, and which pixels are seen."""
    data, masked = np.ma.getdata(pixels), np.ma.getmaskarray(pixels)
    if params.nodata is not None:
        same = np.isnan(data) if np.isnan(params.nodata) else data == params.nodata
        masked = same
    formula = params.formula()
    if formula is not None:
        bands = dict(zip(formula.bands, data, strict=True))
        data = formula.values(bands)
        masked = np.broadcast_to(masked.any(axis=0), data.shape)
    if data.dtype.kind == "f":
        masked = masked | ~np.isfinite(data)
    # As in titiler, a pixel is seen when any of its bands has a value.
    return data, np.logical_not(masked.all(axis=0))


def _picture(values: Pixels, valid: Mask | None, params: Params, look: Look) -> Picture:
    count = len(values)
    if count not in {1, 3}:
        raise InvalidInputError(
            "a picture has one band or three", found=count, expected="bidx once or three times"
        )
    plain = params.expression is None and params.bidx in {(), look.bidx}
    if plain and look.table is not None and not (params.rescale or params.colormap_name):
        return _own_colours(values[0], look.table, valid)
    ranges = _ranges(values, params, look, plain=plain)
    if ranges is None:
        channels = values.astype(np.uint8, copy=False)
    else:
        pairs = zip(values, ranges, strict=True)
        channels = np.stack([pictures.rescaled(band, *pair) for band, pair in pairs])
    if params.colormap_name is not None:
        if count != 1:
            raise InvalidInputError("a colour map is for one band", found=f"{count} bands")
        table = colours.colormap_table(params.colormap_name)
        return Picture(valid, None, channels[0], table)
    return Picture(valid, channels)


def _own_colours(band: Pixels, table: npt.NDArray[np.uint8], valid: Mask | None) -> Picture:
    if len(table) == 256 and band.dtype.kind == "u" and band.dtype.itemsize == 1:
        return Picture(valid, None, band, table)
    inside = (band >= 0) & (band < len(table))
    if not inside.all():
        valid = inside if valid is None else valid & inside
    pixels = table[np.where(inside, band, 0).astype(np.int64)]
    seen = pixels[..., 3] > 0
    if not seen.all():
        valid = seen if valid is None else valid & seen
    return Picture(valid, np.moveaxis(pixels[..., :3], 2, 0).copy())


def _ranges(
    values: Pixels, params: Params, look: Look, *, plain: bool
) -> list[tuple[float, float]] | None:
    """A range per band; None for bytes that are shown as they are."""
    count = len(values)
    given = params.rescale or (look.rescale if plain else ())
    if given:
        if len(given) not in {1, count}:
            raise InvalidInputError(
                "rescale is said once, or once for each band", found=f"{len(given)} times"
            )
        return list(given) * (count if len(given) == 1 else 1)
    if values.dtype == np.uint8:
        return None
    raise InvalidInputError(
        "this needs rescale=min,max", found=f"{values.dtype}", expected="a range for the colours"
    )


def _terrain(
    values: Pixels,
    valid: Mask,
    params: Params,
    ext: str,
    scales: Sequence[tuple[float, float]],
) -> bytes:
    if len(values) != 1:
        raise InvalidInputError("terrain is made of one band", found=f"{len(values)} bands")
    height = values[0].astype(np.float64)
    if params.expression is None and scales:
        factor, offset = scales[0]
        height = height * factor + offset
    height = np.where(valid, height, params.nodata_height)
    # Opaque: browsers drop the colours of what is transparent, and with them the height.
    picture = Picture(None, pictures.terrain(height, str(params.algorithm)))
    return pictures.encode(picture, ext, lossless=True)
