"""Checks whether the bytes of a tile match its headers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Final

from comal.errors import ComalError, InvalidMetadataError, LimitExceededError
from comal.limits import Limits
from comal.tapalcatl.reading.tile import gunzipped

Fault = tuple[str, str]
"""Code and message."""

_GZIP = b"\x1f\x8b"
_IMAGES = {"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg", "image/webp": "webp"}
_SIGNS = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpeg"}
_VECTORS = frozenset(
    {
        "application/vnd.mapbox-vector-tile",
        "application/x-protobuf",
        "application/protobuf",
        "application/vnd.mapbox.vector-tile",
    }
)


def fault_of(
    data: bytes, content_type: str, encoding: str | None, where: str, limits: Limits
) -> Fault | None:
    """The fault of a tile's bytes, or None."""
    if not data:
        return "tile-empty", "has no bytes"
    kind = content_type.partition(";")[0].strip().lower()
    plain, fault = _decoded(data, encoding, limits)
    if plain is None:
        return fault
    if kind in _IMAGES:
        return _image_fault(plain, _IMAGES[kind], where, limits)
    if kind in _VECTORS:
        message = _vector_fault(plain)
        return None if message is None else ("tile-vector", message)
    if kind.startswith("image/"):
        return _other_image_fault(plain, kind)
    if kind == "application/json" or kind.endswith("+json"):
        return _json_fault(plain)
    return fault


def _decoded(
    data: bytes, encoding: str | None, limits: Limits
) -> tuple[bytes | None, Fault | None]:
    zipped = data.startswith(_GZIP)
    name = (encoding or "identity").lower()
    if name == "identity":
        if zipped:
            return None, ("tile-encoding", "is gzip, but the headers do not say so")
        return data, None
    if name != "gzip":
        return None, None  # br and others are left to clients that know them
    if not zipped:
        return None, ("tile-encoding", "is not the gzip that the headers say")
    try:
        return gunzipped(data, limits), None
    except LimitExceededError as error:
        return None, ("limit-exceeded", error.what)
    except InvalidMetadataError as error:
        return None, ("tile-encoding", f"{error.what}: {error.found or ''}".rstrip(": "))


def _image_fault(data: bytes, kind: str, where: str, limits: Limits) -> Fault | None:
    # GDAL is loaded when there is something to decode.
    from comal.raster.opening import open_raster, sniff_driver  # noqa: PLC0415

    try:
        found = sniff_driver(data[:16], where).lower()
        with open_raster(data, limits) as dataset:
            limits.check("tile_bytes", dataset.count * dataset.height * dataset.width, where)
            dataset.read()
    except LimitExceededError as error:
        return "limit-exceeded", error.what
    except ComalError as error:
        return "tile-image", f"{error.what}: {error.found}" if error.found else error.what
    if found != kind:
        return "tile-type", f"is {found}, but the headers say {kind}"
    return None


def _other_image_fault(data: bytes, kind: str) -> Fault:
    for sign, found in _SIGNS.items():
        if data.startswith(sign):
            return "tile-type", f"is {found}, but the headers say {kind}"
    return "tile-not-decoded", f"is {kind}, which is not decoded here"


def _json_fault(data: bytes) -> Fault | None:
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return "tile-json", f"is not JSON: {str(error)[:60]}"
    return None


_LAYERS: Final = 3
_NAME: Final = 1
_WIDTHS: Final = {1: 8, 5: 4}
_LENGTH: Final = 2
_VARINT: Final = 0


def _vector_fault(data: bytes) -> str | None:
    """Why bytes are not a valid vector tile, or None."""
    try:
        for number, wire_type, start, stop in _fields(data, 0, len(data)):
            if number != _LAYERS or wire_type != _LENGTH:
                continue
            names = [
                data[begin:end]
                for field, kind, begin, end in _fields(data, start, stop)
                if field == _NAME and kind == _LENGTH
            ]
            if len(names) != 1:
                return f"has a layer with {len(names)} names"
            names[0].decode()
    except (ValueError, IndexError) as error:
        return f"is not a protobuf: {error}"
    return None


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Number, wire type, start and stop of each field of a message."""
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        start = at
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind == _LENGTH:
            size, start = _varint(data, at, end)
            at = start + size
        elif kind in _WIDTHS:
            at += _WIDTHS[kind]
        else:
            raise ValueError(f"wire type {kind}")
        if number == 0 or at > end:
            raise ValueError("a field that reaches past its message" if number else "field 0")
        yield number, kind, start, at


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise ValueError("a number that does not end")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
