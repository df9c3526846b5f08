"""What a training sample is made of: leaves of an archive, and how their bytes are decoded."""

from __future__ import annotations

import io
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

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
from comal.public import check_fields, guarded_class
from comal.raster import imagebytes
from comal.raster.values import valid_mask

Window = tuple[int, int, int, int]
Decoder = Literal["auto", "image", "npy", "json", "xarray", "bytes"] | Callable[[bytes], Any]
Extra = Literal["transform", "crs", "nodata", "mask"]
_MAGIC = (
    (
        "image",
        re.compile(
            rb"II[*+]\0|MM\0[*+]|\x89PNG\r\n\x1a\n|\xff\xd8\xff|RIFF.{4}WEBP"
            rb"|\0\0\0\x0cjP  \r\n\x87\n|\xff\x4f\xff\x51",
            re.DOTALL,
        ),
    ),
    ("npy", re.compile(rb"\x93NUMPY")),
    ("xarray", re.compile(rb"\x89HDF\r\n\x1a\n|CDF[\x01\x02\x05]")),
)
"""The first bytes of what a decoder reads."""
_ZIP = b"PK\3\4"
_NAMED = ((".json", "json"), (".geojson", "json"), (".zarr", "xarray"), (".zarr.zip", "xarray"))
"""The ends of names of what its first bytes do not tell."""
# Libraries raise the last ones for damaged chunks and documents.
_UNREADABLE: Mapping[type[BaseException], type[ComalError]] = dict.fromkeys(
    (
        ValueError,
        OSError,
        EOFError,
        zipfile.BadZipFile,
        zlib.error,
        tokenize.TokenError,
        RuntimeError,
        LookupError,
        TypeError,
        AttributeError,
    ),
    InvalidMetadataError,
)


@guarded_class
@dataclass(frozen=True, slots=True)
class Field:
    """A leaf of each sample, and how it is decoded.

    Parameters
    ----------
    leaf
        Ids below the sample, joined by slashes: ``"s2.tif"``, ``"t1/image.tif"``. The empty string
        is the sample itself, where samples are files. ``*`` and ``?`` stand for any characters
        of an id; all leaves that match are a series, in the order of the archive.
    bands
        Bands to decode, from 1; None for all.
    window
        Column, row, width and height in pixels; None for the whole image.
    dtype
        Type that pixels are converted to, such as ``"float32"``; None keeps that of the file.
    decode
        ``"auto"`` goes by the bytes: GeoTIFF and other images as arrays (bands, y, x), NPY as the
        array, JSON as its value, NetCDF and a Zarr in a ZIP (``.zarr``, ``.zarr.zip``) as a dataset
        of xarray, anything else as bytes. JSON and Zarr are known by the end of `leaf`, so that
        ``"*.json"`` gives values, and ``"*"`` bytes. ``"bytes"`` leaves all as they are. A function
        is called with the bytes.
    optional
        A sample without this leaf has None; otherwise it is an error.
    extras
        Of ``transform``, ``crs``, ``nodata``, ``mask``: each becomes an entry of the sample,
        called like the field with ``_transform`` and so on. The mask is True where pixels are
        valid.
    """

    leaf: str = ""
    bands: Sequence[int] | None = None
    window: Window | None = None
    dtype: str | None = None
    decode: Decoder = "auto"
    optional: bool = False
    extras: Sequence[Extra] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        if self.dtype is not None:
            with translated({TypeError: InvalidInputError}, "no such dtype of a field"):
                np.dtype(self.dtype)

    @property
    def parts(self) -> tuple[str, ...]:
        """The ids of each depth below the sample; empty for the sample itself."""
        return tuple(self.leaf.strip("/").split("/")) if self.leaf.strip("/") else ()

    @property
    def endings(self) -> list[str]:
        """What its entries in a sample have after its name: nothing, ``_mask`` and so on."""
        return ["", *(f"_{extra}" for extra in self.extras)]

    @property
    def is_series(self) -> bool:
        """Whether several leaves of a sample may match."""
        return "*" in self.leaf or "?" in self.leaf


def fields_of(given: Mapping[str, str | Field], decode: Decoder = "auto") -> dict[str, Field]:
    """The fields of a caller, where a text is short for a `Field`."""
    found = {}
    for name, one in given.items():
        if not name or not isinstance(name, str):
            raise InvalidInputError("a field has no name", found=shown(repr(name)))
        found[name] = one if isinstance(one, Field) else Field(one, decode=decode)
    return found


def matcher(part: str) -> Callable[[str], bool]:
    """Whether an id is that of one part of a field, with its wildcards."""
    pattern = re.escape(part).replace(r"\*", ".*").replace(r"\?", ".")
    matches = re.compile(pattern, re.DOTALL).fullmatch
    return lambda text: matches(text) is not None


# -- from bytes ------------------------------------------------------------------------------------


def decoded(data: memoryview, field: Field, name: str = "", out: Any = None) -> Any:
    """The value of a leaf with an id; pixels are in `out` if shape and type fit.

    Raises
    ------
    InvalidMetadataError, NotThisFormatError, LimitExceededError
        The bytes are broken, no image, or too large.
    """
    if callable(field.decode):
        return field.decode(bytes(data))
    kind = field.decode if field.decode != "auto" else kind_of(data, name)
    return _DECODERS[kind](data, field, out)


def enter(
    sample: dict[str, Any],
    name: str,
    field: Field,
    data: memoryview | None,
    label: str,
    out: Any = None,
    *,
    masks: bool = False,
) -> None:
    """Put what a leaf of a field gives into a sample: None if it is missing, also as extras.

    With `masks` that is only its value, by `with_mask`.
    """
    if masks:
        sample[name] = None if data is None else with_mask(data, field, label)
        return
    value = sample[name] = None if data is None else decoded(data, field, label, out)
    if data is None:
        sample.update(dict.fromkeys(name + end for end in field.endings))
    elif field.extras:
        for extra, known in extras(data, field, value):
            sample[f"{name}_{extra}"] = known


def masked(pixels: Any, valid: Any = None) -> Any:
    """Pixels as a masked array, by the rules of `comal.raster.values`."""
    found = valid_mask(pixels, None, valid)
    return np.ma.MaskedArray(pixels, np.ma.nomask if found is None else ~found)


def with_mask(data: memoryview, field: Field, name: str) -> Any:
    """The value of a leaf as that of `decoded`, but pixels of an image as a masked array."""
    if field.decode not in ("auto", "image") or kind_of(data, name) != "image":
        return decoded(data, field, name)
    # Pixels without a value are told from others in the type of the file.
    pixels = decoded(data, replace(field, dtype=None), name)
    found = masked(pixels, imagebytes.valid(data, pixels, field.bands, field.window))
    return found if field.dtype is None else _converted(found.filled(0), field, found.mask)


def images_of(sample: Mapping[str, Any]) -> Iterator[tuple[str, list[Any]]]:
    """The fields of a sample with numbers: masked arrays, one or those of a series."""
    for name, value in sample.items():
        series = value if isinstance(value, list) else [value]
        first = series[0] if series else None
        if isinstance(first, np.ndarray) and first.ndim and first.dtype.kind in "biufc":
            parts = [(np.ma.getdata(one), ~np.ma.getmaskarray(one)) for one in series]
            yield name, [masked(*part) for part in parts]


def extras(data: memoryview, field: Field, value: Any) -> Iterator[tuple[str, Any]]:
    """What a field wants to know of an image besides its pixels, which are `value`, by name."""
    if not isinstance(value, np.ndarray):
        what, found = "only images have extras", f"{', '.join(field.extras)} of a {type(value)}"
        raise InvalidInputError(what, found=found, hint="leave them out, or decode as 'image'")
    known = imagebytes.georeference(data)
    for name in field.extras:
        if name == "mask":
            yield name, imagebytes.valid(data, value, field.bands, field.window)
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
    """The decoder that the first bytes ask for, and for JSON and Zarr the name."""
    head = bytes(data[:12])
    usual = next((kind for end, kind in _NAMED if name.endswith(end)), "bytes")
    return next((kind for kind, magic in _MAGIC if magic.match(head)), usual)


def _of_image(data: memoryview, field: Field, out: Any) -> Any:
    fits = out is not None and (field.dtype is None or out.dtype == field.dtype)
    image = imagebytes.image(
        data, bands=field.bands, window=field.window, out=out if fits else None
    )
    return _converted(image, field)


def _of_npy(data: memoryview, field: Field) -> Any:
    with translated(_UNREADABLE, "not a sound NPY file"):
        found = np.load(io.BytesIO(data), allow_pickle=False)
    native = found.astype(found.dtype.newbyteorder("="), copy=False)  # what torch takes
    if field.bands is not None or field.window is not None:
        if native.ndim < (2 if field.bands is None else 3):
            found, expected = f"shape {native.shape}", "(bands, rows, columns), as images have"
            raise InvalidInputError("no bands or window to take", found=found, expected=expected)
        shape = len(native) if native.ndim > 2 else 1, *native.shape[-2:]
        bands, part = imagebytes.part_of(shape, field.bands, field.window)
        column, row, width, height = part
        native = native[..., row : row + height, column : column + width]
        native = native if field.bands is None else native[bands]
    return _converted(native, field)


def _converted(array: Any, field: Field, mask: Any = None) -> Any:
    found = array if field.dtype is None else array.astype(field.dtype, copy=False)
    return found if mask is None else np.ma.MaskedArray(found, mask)


def _by_xarray(data: memoryview) -> Any:
    try:
        import xarray  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError.of("xarray", "xarray", "NetCDF and Zarr samples") from error
    store = _zarr(data) if data[:4] == _ZIP else None
    faults = {**_UNREADABLE, ImportError: MissingExtraError}  # xarray reads by other libraries
    with translated(faults, "not a NetCDF file or a Zarr in a ZIP that xarray can read"):
        if store is None:
            opened = xarray.open_dataset(io.BytesIO(data))
        else:
            opened = xarray.open_zarr(store, chunks=None, consolidated=False)
        with opened:
            DEFAULT_LIMITS.check("raster_bytes", opened.nbytes, "NetCDF or Zarr sample")
            return opened.load()


def _zarr(data: memoryview) -> Any:
    """The files of a Zarr in a ZIP, by name, as zarr takes them."""
    try:
        from zarr.core.buffer import default_buffer_prototype  # noqa: PLC0415 - of the user
    except ImportError as error:
        raise MissingExtraError("Zarr samples need zarr", hint="pip install zarr") from error
    buffer = default_buffer_prototype().buffer
    with translated(_UNREADABLE, "not a sound ZIP"), zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = archive.infolist()
        DEFAULT_LIMITS.check("raster_bytes", sum(one.file_size for one in files), "Zarr sample")
        return {one.filename: buffer.from_bytes(archive.read(one)) for one in files}


_DECODERS: Mapping[str, Callable[[memoryview, Field, Any], Any]] = {
    "image": _of_image,
    "npy": lambda data, field, _: _of_npy(data, field),
    "json": lambda data, *_: strictjson.loads(bytes(data), "JSON", DEFAULT_LIMITS),
    "xarray": lambda data, *_: _by_xarray(data),
    "bytes": lambda data, *_: bytes(data),
}
