"""Whether the bytes of a tile are what its headers say they are."""

from __future__ import annotations

import json

from comal.errors import ComalError, InvalidMetadataError, LimitExceededError
from comal.limits import Limits
from comal.tapalcatl.checking.pictures import decoding_fault, is_decodable
from comal.tapalcatl.checking.vectortiles import vector_fault
from comal.tapalcatl.reading.tile import gunzipped

Fault = tuple[str, str]
"""Code and message."""

_GZIP = b"\x1f\x8b"
_IMAGES = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/webp": "webp",
}
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
    """What is wrong with the bytes of a tile, or None.

    Parameters
    ----------
    data
        The tile's bytes out of the archive.
    content_type, encoding
        What its headers say.
    """
    if not data:
        return "tile-empty", "has no bytes"
    kind = content_type.partition(";")[0].strip().lower()
    plain, fault = _decoded(data, encoding, limits)
    if plain is None:
        return fault
    if kind in _IMAGES:
        return _image_fault(plain, _IMAGES[kind], where, limits)
    if kind in _VECTORS:
        message = vector_fault(plain)
        return None if message is None else ("tile-vector", message)
    if kind.startswith("image/"):
        return _other_image_fault(plain, kind, where, limits)
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
            return None, ("tile-encoding", "is gzip, and the headers do not say so")
        return data, None
    if name != "gzip":
        return None, None  # br and others are for clients that know them
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
        return "tile-type", f"is {found}, the headers say {kind}"
    return None


def _other_image_fault(data: bytes, kind: str, where: str, limits: Limits) -> Fault | None:
    for sign, found in _SIGNS.items():
        if data.startswith(sign):
            return "tile-type", f"is {found}, the headers say {kind}"
    if not is_decodable(kind):
        return "tile-not-decoded", f"is {kind}, which is not decoded here"
    try:
        message = decoding_fault(data, kind, where, limits)
    except LimitExceededError as error:
        return "limit-exceeded", error.what
    return None if message is None else ("tile-image", message)


def _json_fault(data: bytes) -> Fault | None:
    try:
        json.loads(data)
    except (ValueError, RecursionError) as error:
        return "tile-json", f"is no JSON: {str(error)[:60]}"
    return None
