"""Detects the kind of a tile by its first bytes, and converts metadata of other tile formats.

MBTiles, PMTiles and folders share one vocabulary: the names and text values of MBTiles. The fields
of TileJSON that vector tiles need are in a JSON text or next to the others.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal import strictjson
from comal.errors import ComalError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.tapalcatl.spec import MAX_ZOOM, MEDIA_TYPES, Bounds, TileSetMetadata

GZIP: Final = "gzip"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tile."""

    name: str
    ext: str | None
    """Its extension; None if the content may be of any kind."""
    compressed: bool


KINDS: Final = (
    Kind("unknown", None, compressed=False),
    Kind("png", "png", compressed=True),
    Kind("jpeg", "jpg", compressed=True),
    Kind("webp", "webp", compressed=True),
    Kind("avif", "avif", compressed=True),
    Kind("gif", "gif", compressed=True),
    Kind(GZIP, None, compressed=True),
    Kind("zstd", None, compressed=True),
    Kind("json", "json", compressed=False),
    Kind("tiff", "tif", compressed=False),
    Kind("pbf", "mvt", compressed=False),
)
_CODES = {kind.name: code for code, kind in enumerate(KINDS)}
_COMPRESSED = np.array([kind.compressed for kind in KINDS])

# Name, first bytes, and more bytes with their offset.
_MAGIC: Final[tuple[tuple[str, bytes, bytes, int], ...]] = (
    ("png", b"\x89PNG\r\n\x1a\n", b"", 0),
    ("jpeg", b"\xff\xd8\xff", b"", 0),
    ("webp", b"RIFF", b"WEBP", 8),
    # The first byte is the high byte of the first box's size, which is always small.
    ("avif", b"\0", b"ftypavif", 4),
    ("avif", b"\0", b"ftypavis", 4),
    ("gif", b"GIF8", b"", 0),
    (GZIP, b"\x1f\x8b", b"", 0),
    ("zstd", b"\x28\xb5\x2f\xfd", b"", 0),
    ("json", b"{", b"", 0),
    ("json", b"[", b"", 0),
    ("tiff", b"II*\0", b"", 0),
    ("tiff", b"MM\0*", b"", 0),
    # A vector tile is a list of layers: field 3, with a length (vector tile specification 4.1).
    ("pbf", b"\x1a", b"", 0),
)
_LONG: Final = max(max(len(mark), at + len(second)) for _, mark, second, at in _MAGIC)


def kinds_of(payloads: list[bytes]) -> npt.NDArray[np.uint8]:
    """The index into `KINDS` of each payload."""
    heads = [payload[:_LONG] for payload in payloads]
    table = {head: _kind(head) for head in set(heads)}
    return np.fromiter(map(table.__getitem__, heads), np.uint8, len(heads))


def _kind(head: bytes) -> int:
    for name, mark, second, at in _MAGIC:
        if head.startswith(mark) and head.startswith(second, at):
            return _CODES[name]
    return 0


def compressed(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which kinds are compressed already."""
    result: npt.NDArray[np.bool_] = _COMPRESSED[kinds]
    return result


def gzipped(kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Which are gzip, with any content."""
    result: npt.NDArray[np.bool_] = kinds == _CODES[GZIP]
    return result


def extension(kind: int, hint: str | None) -> str:
    """The extension of a kind; `hint` is the extension that the source declares.

    Gzip without a hint is taken for vector tiles, the only tiles that are stored in gzip.
    """
    found = KINDS[kind].ext
    if found == "mvt" and hint in {"pbf", "mlt"}:
        return hint
    if found is None:
        found = hint or ("mvt" if KINDS[kind].name == GZIP else "")
    return found


def hinted(format_name: str | None) -> str | None:
    """The extension for the name of a format in MBTiles."""
    if not format_name:
        return None
    text = format_name.strip().lower().removeprefix(".")
    by_type = {media: ext for ext, media in reversed(list(MEDIA_TYPES.items()))}
    text = by_type.get(text, text)
    names = {"jpeg": "jpg", "pbf": "mvt", "application/x-protobuf": "mvt"}
    text = names.get(text, text)
    return text if text in MEDIA_TYPES else None


# Keys that have a field of their own, or that describe the source file.
_DROPPED: Final = frozenset(
    {
        "name", "description", "bounds", "minzoom", "maxzoom", "scheme", "basename", "filesize",
        "format", "type", "json", "tiles", "tilejson", "compression", "generator_options",
    }
)  # fmt: skip


def metadata_of(
    values: Mapping[str, Any], where: str, limits: Limits = DEFAULT_LIMITS
) -> TileSetMetadata:
    """Metadata from names and values as in MBTiles; values that make no sense are left out."""
    merged = dict(values)
    text = merged.get("json")
    if isinstance(text, str):
        with suppress(ComalError):  # tiles are worth copying without it
            merged.update(strictjson.loads(text.encode(), f"{where}, json", limits))
    extra = {key: value for key, value in merged.items() if key not in _DROPPED}
    if center := center_of(extra.pop("center", None)):
        extra["center"] = center
    return TileSetMetadata(
        name=_text(merged.get("name")),
        description=_text(merged.get("description")),
        bounds=_bounds(merged.get("bounds")),
        min_zoom=_zoom(merged.get("minzoom")),
        max_zoom=_zoom(merged.get("maxzoom")),
        extra=extra,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _numbers(value: Any) -> list[float]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list):
        return []
    numbers = []
    for part in parts:
        try:
            numbers.append(float(part))
        except (TypeError, ValueError):
            return []
    return numbers if all(map(math.isfinite, numbers)) else []


def center_of(value: Any) -> list[Any]:
    """Longitude, latitude and perhaps zoom; empty if the value is no such place."""
    numbers = _numbers(value)
    if len(numbers) not in {2, 3} or abs(numbers[0]) > 180 or abs(numbers[1]) > 90:
        return []
    zooms = [_zoom(number) for number in numbers[2:]]
    return [] if None in zooms else [*numbers[:2], *zooms]


def _bounds(value: Any) -> Bounds | None:
    numbers = _numbers(value)
    if len(numbers) != 4 or numbers[1] > numbers[3]:
        return None
    return numbers[0], numbers[1], numbers[2], numbers[3]


def _zoom(value: Any) -> int | None:
    try:
        zoom = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return zoom if 0 <= zoom <= MAX_ZOOM else None


_VECTOR: Final = ("vector_layers", "tilestats")
_NAMES: Final[Mapping[str, str]] = {"mvt": "pbf", "jpeg": "jpg"}


def mbtiles_rows(metadata: TileSetMetadata, ext: str, label: str) -> dict[str, str]:
    """Names and values of the ``metadata`` table (MBTiles 1.3)."""
    values: dict[str, Any] = {"name": metadata.name or label, "format": _NAMES.get(ext, ext)}
    if metadata.description:
        values["description"] = metadata.description
    if metadata.bounds is not None:
        values["bounds"] = ",".join(f"{number:.10g}" for number in metadata.bounds)
    values["minzoom"], values["maxzoom"] = metadata.min_zoom, metadata.max_zoom
    layers = {key: metadata.extra[key] for key in _VECTOR if key in metadata.extra}
    for key, value in metadata.extra.items():
        if key == "center":
            values[key] = ",".join(f"{number:.10g}" for number in center_of(value)) or None
        elif key not in {*layers, *values}:  # what the tiles show counts
            values[key] = value
    if layers:
        values["json"] = json.dumps(layers, ensure_ascii=False, separators=(",", ":"))
    return {key: _as_text(value) for key, value in values.items() if value is not None}


def json_values(metadata: TileSetMetadata, ext: str | None) -> dict[str, Any]:
    """The same metadata as a JSON object."""
    values: dict[str, Any] = {
        "name": metadata.name,
        "description": metadata.description,
        "format": None if ext is None else _NAMES.get(ext, ext),
        "minzoom": metadata.min_zoom,
        "maxzoom": metadata.max_zoom,
        "bounds": None if metadata.bounds is None else list(metadata.bounds),
        **{key: value for key, value in metadata.extra.items() if key != "format"},
    }
    return {key: value for key, value in values.items() if value is not None}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
