"""Images that GDAL does not decode here, by Pillow where it is installed."""

from __future__ import annotations

import warnings
from importlib import import_module
from io import BytesIO
from typing import Any, Final

from comal.errors import LimitExceededError
from comal.limits import Limits

_FORMATS: Final = {"image/avif": "AVIF", "image/gif": "GIF"}
_BANDS: Final = 4
"""Bytes of a pixel at most: Pillow decodes both formats to eight bits."""


def is_decodable(kind: str) -> bool:
    """Whether images of a content type can be decoded with what is installed."""
    name = _FORMATS.get(kind)
    if name is None:
        return False
    try:
        image = import_module("PIL.Image")
    except ImportError:
        return False
    image.init()
    return name in image.OPEN


def decoding_fault(data: bytes, kind: str, where: str, limits: Limits) -> str | None:
    """What keeps an image from being decoded, or None; only of those that `is_decodable`.

    Raises
    ------
    LimitExceededError
        More pixels than `Limits.tile_bytes` has room for; nothing is decoded then.
    """
    image: Any = import_module("PIL.Image")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of many pixels: they are counted here
            with image.open(BytesIO(data), formats=[_FORMATS[kind]]) as picture:
                columns, rows = picture.size
                frames = int(getattr(picture, "n_frames", 1))
                limits.check("tile_bytes", columns * rows * frames * _BANDS, where)
                for frame in range(frames):
                    picture.seek(frame)
                    picture.load()
    except LimitExceededError:
        raise
    except image.UnidentifiedImageError:
        return f"is no {_FORMATS[kind]}"
    except Exception as error:  # noqa: BLE001 - Pillow has no error of its own, plugins raise any
        return f"cannot be decoded: {str(error) or type(error).__name__}"
    return None
