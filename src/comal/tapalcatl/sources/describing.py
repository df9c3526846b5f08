"""What other tile formats say about themselves, as the metadata of a tileset.

MBTiles, PMTiles and folders share one vocabulary: names and texts of MBTiles, with the fields of
TileJSON that vector tiles need in a text of JSON, or beside the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from comal import strictjson
from comal.errors import ComalError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.tapalcatl.spec import MAX_ZOOM, Bounds, TileSetMetadata

# Said by the tileset itself, or about the file that it was.
_DROPPED: Final = frozenset(
    {
        "name", "description", "bounds", "minzoom", "maxzoom", "scheme", "basename", "filesize",
        "format", "type", "json", "tiles", "tilejson", "compression", "generator_options",
    }
)  # fmt: skip


def metadata_of(
    values: Mapping[str, Any], where: str, limits: Limits = DEFAULT_LIMITS
) -> TileSetMetadata:
    """Metadata from names and values as MBTiles has them; what cannot be meant is left out."""
    merged = dict(values)
    text = merged.get("json")
    if isinstance(text, str):
        with suppress(ComalError):  # tiles are worth copying without it
            merged.update(strictjson.loads(text.encode(), f"{where}, json", limits))
    extra = {key: value for key, value in merged.items() if key not in _DROPPED}
    center = _numbers(extra.pop("center", None))
    if len(center) in {2, 3}:
        extra["center"] = [*center[:2], *map(int, center[2:])]
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
