"""From pixels to bytes: rescaling, colours, terrain, encoders.

Pictures come out as titiler makes them, pixel for pixel: the same rescaling (cut to the range,
rounded down), the same colour maps. What differs is the form: one band or one colour map becomes a
picture with a palette, of a quarter of the bytes, which is written in a fraction of the time.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, MissingExtraError
from comal.server.render.colours import Bytes

Pixels = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_PNG_LEVEL = 1
"""Of zlib. Level 6 takes three times as long for some hundredths of the size."""
_PNG_STRATEGY = 3
"""Z_RLE: where rows are filtered, longer matches are rare. A third faster than the default of
Pillow, and no larger."""
_QUALITY = {"jpeg": 85, "webp": 80}
_LUT_BITS = 16


@dataclass(frozen=True, slots=True)
class Picture:
    """Something to encode.

    Either `index` and `palette`, or `channels`.
    """

    valid: Mask | None
    """Pixels that are seen, shape (rows, columns); None when all are."""
    channels: Bytes | None = None
    """Shape (1 or 3, rows, columns)."""
    index: Bytes | None = None
    """Shape (rows, columns), numbers of rows of the palette."""
    palette: Bytes | None = None
    """RGBA, shape (256, 4)."""


# -- rescaling -------------------------------------------------------------------------------------


def rescaled(band: Pixels, low: float, high: float) -> Bytes:
    """Values from `low` to `high` as 0 to 255, rounded down; what lies outside is cut.

    Integers of up to 16 bits go through a table, which gives the same values.
    """
    kind = band.dtype
    if kind.kind in "iu" and kind.itemsize * 8 <= _LUT_BITS:
        table = _rescale_table(kind.newbyteorder("=").str, low, high)
        unsigned = band.astype(kind.newbyteorder("="), copy=False).view(f"u{kind.itemsize}")
        result: Bytes = table[unsigned]
        return result
    return _scaled(band.astype(np.float64, copy=False), low, high)


@lru_cache(maxsize=64)
def _rescale_table(kind: str, low: float, high: float) -> Bytes:
    size = np.dtype(kind).itemsize
    values = np.arange(2 ** (8 * size), dtype=np.uint32).astype(f"u{size}").view(kind)
    return _scaled(values.astype(np.float64), low, high)


def _scaled(values: npt.NDArray[np.float64], low: float, high: float) -> Bytes:
    with np.errstate(invalid="ignore"):
        part = (np.clip(values, low, high) - low) / (high - low) * 255.0
    result: Bytes = np.nan_to_num(part).astype(np.uint8)
    return result


# -- terrain ---------------------------------------------------------------------------------------


def terrain(height: npt.NDArray[np.float64], algorithm: str) -> Bytes:
    """Heights in metres as red, green and blue, shape (3, rows, columns).

    ``terrarium``: height = red * 256 + green + blue / 256 - 32768.
    ``terrainrgb`` (of Mapbox): height = -10000 + (red * 65536 + green * 256 + blue) * 0.1.
    """
    if algorithm == "terrarium":
        # Steps of 1/256 m: whole metres in red and green, the fraction in blue.
        steps = np.floor((height + 32768.0) * 256.0)
    else:
        steps = np.round((height + 10000.0) * 10.0)
    whole = np.clip(steps, 0, 2**24 - 1).astype(np.uint32)
    return np.stack([whole >> 16, (whole >> 8) & 255, whole & 255]).astype(np.uint8)


# -- encoding --------------------------------------------------------------------------------------


def encode(picture: Picture, ext: str, *, lossless: bool = False) -> bytes:
    """The picture in a format: ``png``, ``webp``, ``jpg`` or ``jpeg``.

    Raises
    ------
    InvalidInputError
        JPEG of what must not lose anything.
    """
    if ext in {"jpg", "jpeg"}:
        if lossless:
            raise InvalidInputError("terrain needs a format without loss", expected="png or webp")
        return _saved(_flat(picture), "JPEG", quality=_QUALITY["jpeg"])
    if ext == "webp":
        image = _image("RGBA" if picture.valid is not None else None, picture)
        if lossless:
            return _saved(image, "WEBP", lossless=True, quality=0, exact=True)
        return _saved(image, "WEBP", quality=_QUALITY["webp"], method=0)
    return _png(picture)


def npy(values: Pixels, valid: Mask | None) -> bytes:
    """Bands, and behind them the mask as 0 and 255 where there is one, as a file of NumPy."""
    native = values.astype(values.dtype.newbyteorder("="), copy=False)
    if valid is not None:
        native = np.concatenate([native, (valid * np.uint8(255))[np.newaxis]])
    file = io.BytesIO()
    np.save(file, native, allow_pickle=False)
    return file.getvalue()


def _pillow() -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - optional
    except ImportError as error:
        raise MissingExtraError.of("pillow", "server", "a picture") from error
    return Image


def _png(picture: Picture) -> bytes:
    if picture.index is not None:
        small = _palette_image(picture)
        if small is not None:
            return small
    channels = picture.channels
    if channels is not None and len(channels) == 1 and picture.valid is not None:
        grey = np.arange(256, dtype=np.uint8)
        table = np.stack([grey, grey, grey, np.full(256, 255, np.uint8)], axis=1)
        small = _palette_image(Picture(picture.valid, None, channels[0], table))
        if small is not None:
            return small
    mode = None if picture.valid is None else "RGBA"
    if mode and channels is not None and len(channels) == 1:
        mode = "LA"
    image = _image(mode, picture)
    return _saved(image, "PNG", compress_level=_PNG_LEVEL, compress_type=_PNG_STRATEGY)


def _palette_image(picture: Picture) -> bytes | None:
    """A PNG with a palette; None when no number is free for what is not seen."""
    index, palette = picture.index, picture.palette
    assert index is not None, "the caller has looked"
    assert palette is not None, "an index has a palette"
    if picture.valid is not None and not picture.valid.all():
        used = np.bincount(index[picture.valid].ravel(), minlength=256)
        clear = np.flatnonzero((palette[:, 3] == 0) | (used == 0))
        if not len(clear):
            return None
        number = int(clear[0])
        index = np.where(picture.valid, index, np.uint8(number)).astype(np.uint8)
        palette = palette.copy()
        palette[number] = 0
    rows, columns = index.shape
    image = _pillow().frombytes("P", (columns, rows), index.tobytes())
    image.putpalette(palette[:, :3].tobytes(), "RGB")
    options: dict[str, Any] = {"compress_level": _PNG_LEVEL}
    alpha = palette[:, 3]
    if (alpha < 255).any():
        last = int(np.flatnonzero(alpha < 255)[-1])
        options["transparency"] = alpha[: last + 1].tobytes()
    return _saved(image, "PNG", **options)


def _rgba(picture: Picture) -> Bytes:
    """Shape (rows, columns, 4)."""
    if picture.index is not None:
        assert picture.palette is not None, "an index has a palette"
        pixels = picture.palette[picture.index]
        if picture.valid is not None:
            pixels[~picture.valid] = 0
        return pixels
    channels = picture.channels
    assert channels is not None, "a picture has an index or channels"
    three = channels if len(channels) == 3 else np.repeat(channels, 3, axis=0)
    alpha = np.full(three.shape[1:], 255, np.uint8)
    if picture.valid is not None:
        alpha = np.where(picture.valid, np.uint8(255), np.uint8(0))
    return np.ascontiguousarray(np.moveaxis(np.concatenate([three, alpha[np.newaxis]]), 0, 2))


def _image(mode: str | None, picture: Picture) -> Any:
    """As an image of Pillow in this mode; the smallest that holds it when None."""
    pillow = _pillow()
    channels = picture.channels
    if mode is None and channels is not None:
        rows, columns = channels.shape[1:]
        if len(channels) == 1:
            return pillow.frombytes("L", (columns, rows), channels[0].tobytes())
        pixels = np.ascontiguousarray(np.moveaxis(channels, 0, 2))
        return pillow.frombytes("RGB", (columns, rows), pixels.tobytes())
    if mode == "LA":
        assert channels is not None, "the caller has looked"
        assert picture.valid is not None, "the caller has looked"
        alpha = np.where(picture.valid, np.uint8(255), np.uint8(0))
        pair = np.stack([channels[0], alpha], axis=2)
        return pillow.frombytes("LA", (pair.shape[1], pair.shape[0]), pair.tobytes())
    pixels = _rgba(picture)
    return pillow.frombytes("RGBA", (pixels.shape[1], pixels.shape[0]), pixels.tobytes())


def _flat(picture: Picture) -> Any:
    """Without transparency: what is not seen is black, as in titiler."""
    pixels = _rgba(picture)
    pixels[pixels[..., 3] == 0] = 0
    rows, columns = pixels.shape[:2]
    three = np.ascontiguousarray(pixels[..., :3])
    return _pillow().frombytes("RGB", (columns, rows), three.tobytes())


def _saved(image: Any, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()
