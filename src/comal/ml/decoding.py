"""From the bytes of a leaf to what a training loop takes."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    MissingExtraError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS
from comal.ml import tiff
from comal.ml.fields import Field, Window
from comal.raster.values import as_array, valid_mask

_NPY = b"\x93NUMPY"
_IMAGES = (
    *(b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"),
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
)
_NETCDF = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")
_JSON = (".json", ".geojson")
_UNREADABLE: dict[type[BaseException], type[ComalError]] = {
    ValueError: InvalidMetadataError,
    OSError: InvalidMetadataError,
    EOFError: InvalidMetadataError,
}


def decoded(data: memoryview, field: Field, name: str = "", out: Any = None) -> Any:
    """The value of a leaf.

    Parameters
    ----------
    data
        Its bytes.
    field
        How it is decoded.
    name
        The id of the leaf.
    out
        An array to write pixels into; it is used where shape and type fit, and for images alone.

    Raises
    ------
    InvalidMetadataError, NotThisFormatError, LimitExceededError
        The bytes are broken, no image, or too large.
    """
    if callable(field.decode):
        return field.decode(bytes(data))
    kind = field.decode if field.decode != "auto" else kind_of(data, name)
    decoder = DECODERS.get(kind)
    if decoder is None:
        raise InvalidInputError(
            "unknown decoder", found=shown(kind), expected=", ".join(["auto", *DECODERS])
        )
    return decoder(data, field, out)


class Masked(NamedTuple):
    """Pixels and which of them have a value by the rules of `comal.raster.values`."""

    pixels: Any
    """(bands, y, x), or (y, x) of one band."""
    valid: Any = None
    """A mask of the same shape; None if all that are finite are valid."""

    def masks(self) -> Any:
        """A mask of the same shape."""
        pixels, valid = self
        return as_array(valid_mask(pixels, None, valid), pixels.shape)

    def planes(self) -> list[Any]:
        """The valid pixels of each band, (n,)."""
        pixels = self.pixels.view(np.uint8) if self.pixels.dtype == np.bool_ else self.pixels
        planes = np.moveaxis(pixels, -3, 0) if pixels.ndim > 2 else [pixels]
        valid = valid_mask(pixels, None, self.valid)
        if valid is None:
            return [plane.ravel() for plane in planes]
        masks = np.moveaxis(valid, -3, 0) if pixels.ndim > 2 else [valid]
        return [plane[mask] for plane, mask in zip(planes, masks, strict=True)]


@dataclass(frozen=True, slots=True)
class Masking:
    """A decoder that gives images as `Masked`, and anything else as a field does."""

    field: Field

    def __call__(self, data: bytes) -> Any:
        """The value of a leaf from its bytes."""
        field, view = self.field, memoryview(data)
        if field.decode not in ("auto", "image") or kind_of(view, field.leaf) != "image":
            return decoded(view, field, field.leaf)
        # Pixels without a value are told from others in the type of the file.
        pixels = decoded(view, replace(field, dtype=None), field.leaf)
        valid = Masked(pixels, tiff.valid(view, pixels, field.bands, field.window)).masks()
        if field.dtype is not None:
            pixels = _converted(np.where(valid, pixels, 0), field)
        return Masked(pixels, valid)


def extras(data: memoryview, field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    """What a field wants to know of an image besides its pixels, by name.

    `value` are the decoded pixels, of all bands or those of the field.
    """
    known = tiff.georeference(data)
    for name in field.extras:
        if name == "mask":
            yield name, tiff.valid(data, value, field.bands, field.window)
        elif name == "transform":
            yield name, _moved(known.transform, field.window)
        else:
            yield name, getattr(known, name)


def _moved(transform: Sequence[float], window: Window | None) -> tuple[float, ...]:
    """The transform of a window."""
    a, b, c, d, e, f = transform
    column, row = (0, 0) if window is None else window[:2]
    return a, b, a * column + b * row + c, d, e, d * column + e * row + f


def kind_of(data: memoryview, name: str) -> str:
    """The decoder that the first bytes ask for, and for JSON the name."""
    head = bytes(data[:12])
    if head.startswith(_IMAGES) or (head[:4] == b"RIFF" and head[8:] == b"WEBP"):
        return "image"
    if head.startswith(_NPY):
        return "npy"
    if head.startswith(_NETCDF):
        return "xarray"
    return "json" if name.endswith(_JSON) else "bytes"


def _of_image(data: memoryview, field: Field, out: Any) -> Any:
    fits = out is not None and (field.dtype is None or out.dtype == field.dtype)
    image = tiff.image(data, bands=field.bands, window=field.window, out=out if fits else None)
    return _converted(image, field)


def _of_npy(data: memoryview, field: Field, out: Any) -> Any:
    del out
    with translated(_UNREADABLE, "not a sound NPY file"):
        found = np.load(io.BytesIO(data), allow_pickle=False)
    native = found.astype(found.dtype.newbyteorder("="), copy=False)  # what torch takes
    return _converted(_cut(native, field), field)


def _cut(array: Any, field: Field) -> Any:
    """Bands and window of an array (bands, y, x) or (y, x)."""
    if field.bands is not None:
        array = array[[band - 1 for band in field.bands]]
    if field.window is not None:
        column, row, width, height = field.window
        array = array[..., row : row + height, column : column + width]
    return array


def _converted(array: Any, field: Field) -> Any:
    return array if field.dtype is None else array.astype(field.dtype, copy=False)


def _of_json(data: memoryview, field: Field, out: Any) -> Any:
    del field, out
    return strictjson.loads(bytes(data), "JSON", DEFAULT_LIMITS)


def _of_bytes(data: memoryview, field: Field, out: Any) -> bytes:
    del field, out
    return bytes(data)


def _by_xarray(data: memoryview, field: Field, out: Any) -> Any:
    del field, out
    try:
        import xarray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError.of("xarray", "xarray", "NetCDF samples") from error
    with translated(_UNREADABLE, "not a NetCDF file that xarray can read"):
        return xarray.open_dataset(io.BytesIO(data)).load()


DECODERS: Mapping[str, Callable[[memoryview, Field, Any], Any]] = {
    "image": _of_image,
    "npy": _of_npy,
    "json": _of_json,
    "xarray": _by_xarray,
    "bytes": _of_bytes,
}
"""Decoders by name."""
