"""What a training sample is made of: fields that name leaves of the samples of an archive."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from comal.errors import InvalidInputError, shown
from comal.public import check_fields, guarded_class

Window = tuple[int, int, int, int]
Decoder = str | Callable[[bytes], Any]
EXTRAS = ("transform", "crs", "nodata", "mask")


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
        array, JSON as its value, anything else as bytes. ``"bytes"`` leaves all as they are. A
        function is called with the bytes.
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
    extras: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_fields(self)
        for name in self.extras:
            if name not in EXTRAS:
                raise InvalidInputError(
                    "unknown extra of a field", found=shown(name), expected=", ".join(EXTRAS)
                )

    @property
    def parts(self) -> tuple[str, ...]:
        """The ids of each depth below the sample; empty for the sample itself."""
        return tuple(self.leaf.strip("/").split("/")) if self.leaf.strip("/") else ()

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
