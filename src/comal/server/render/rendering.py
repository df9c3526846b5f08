"""One tile of a raster as a picture, from its pixels and the parameters of a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.raster.values import as_array, seen
from comal.server.render import colours, pictures
from comal.server.render.expressions import evaluated
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
    values, valid = evaluated(pixels, params.formula())
    shown = as_array(seen([None if band.all() else band for band in valid]), valid.shape[1:])
    if ext == "npy":
        return pictures.npy(values, shown if params.return_mask else None)
    if params.algorithm is not None:
        return _terrain(values, shown, params, ext, scales)
    picture = _picture(values, valid, params, look)
    if params.return_mask and not shown.all():
        hidden = picture.valid
        picture = replace(picture, valid=shown if hidden is None else shown & hidden)
    return pictures.encode(picture, ext)


def _picture(values: Pixels, valid: Mask, params: Params, look: Look) -> Picture:
    """The colours of all pixels; a band without a value gives 0."""
    count = len(values)
    if count not in {1, 3}:
        raise InvalidInputError(
            "a picture has one band or three", found=count, expected="bidx once or three times"
        )
    plain = params.expression is None and params.bidx in {(), look.bidx}
    if plain and look.table is not None and not (params.rescale or params.colormap_name):
        return _own_colours(values[0], look.table)
    ranges = _ranges(values, params, look, plain=plain)
    if ranges is None:
        channels = values.astype(np.uint8, copy=False)
    else:
        pairs = zip(values, ranges, strict=True)
        channels = np.stack([pictures.rescaled(band, *pair) for band, pair in pairs])
    if not valid.all():
        channels = np.where(valid, channels, np.uint8(0))
    if params.colormap_name is not None:
        if count != 1:
            raise InvalidInputError("a colour map is for one band", found=f"{count} bands")
        table = colours.colormap_table(params.colormap_name)
        return Picture(None, None, channels[0], table)
    return Picture(None, channels)


def _own_colours(band: Pixels, table: npt.NDArray[np.uint8]) -> Picture:
    """In the colours of the band; values that have none are not seen."""
    if len(table) == 256 and band.dtype.kind == "u" and band.dtype.itemsize == 1:
        return Picture(None, None, band, table)
    inside = (band >= 0) & (band < len(table))
    pixels = table[np.where(inside, band, 0).astype(np.int64)]
    visible = inside & (pixels[..., 3] > 0)
    channels = np.moveaxis(pixels[..., :3], 2, 0).copy()
    return Picture(None if visible.all() else visible, channels)


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
