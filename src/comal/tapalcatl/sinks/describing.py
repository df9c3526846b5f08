"""Metadata of a tileset as other formats write them down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from comal.tapalcatl.spec import TileSetMetadata

_VECTOR: Final = ("vector_layers", "tilestats")
_NAMES: Final[Mapping[str, str]] = {"mvt": "pbf", "jpeg": "jpg"}


def mbtiles_rows(metadata: TileSetMetadata, ext: str, label: str) -> dict[str, str]:
    """Names and values of the table of metadata (MBTiles 1.3)."""
    values: dict[str, Any] = {"name": metadata.name or label, "format": _NAMES.get(ext, ext)}
    if metadata.description:
        values["description"] = metadata.description
    if metadata.bounds is not None:
        values["bounds"] = ",".join(f"{number:.10g}" for number in metadata.bounds)
    values["minzoom"], values["maxzoom"] = metadata.min_zoom, metadata.max_zoom
    layers = {key: metadata.extra[key] for key in _VECTOR if key in metadata.extra}
    for key, value in metadata.extra.items():
        if key == "center" and isinstance(value, list):
            values[key] = ",".join(f"{number:.10g}" for number in value)
        elif key not in layers:
            values[key] = value
    if layers:
        values["json"] = json.dumps(layers, ensure_ascii=False, separators=(",", ":"))
    return {key: _text(value) for key, value in values.items() if value is not None}


def json_values(metadata: TileSetMetadata, ext: str | None) -> dict[str, Any]:
    """A JSON document of the same."""
    values: dict[str, Any] = {
        "name": metadata.name,
        "description": metadata.description,
        "format": None if ext is None else _NAMES.get(ext, ext),
        "minzoom": metadata.min_zoom,
        "maxzoom": metadata.max_zoom,
        "bounds": None if metadata.bounds is None else list(metadata.bounds),
        **metadata.extra,
    }
    return {key: value for key, value in values.items() if value is not None}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
