"""TileJSON beside the archives of Tapalcatl 1, where servers of that generation look for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from comal.tapalcatl.generation1 import tilejson_key
from comal.tapalcatl.reading.describing import tilejson
from comal.tapalcatl.spec import TileSetMetadata, ascii_line

NAMES: Final[Mapping[str, str]] = {"mvt": "mapbox", "json": "geojson", "topojson": "topojson"}
"""Names of the documents by the extension of the tiles; others are called like their extension."""


def tilejson_files(said: TileSetMetadata, found: TileSetMetadata, address: str) -> dict[str, bytes]:
    """A document for each kind of tile, by its key without a hash.

    Parameters
    ----------
    said
        Name, description, attribution and other keys.
    found
        Zooms, bounds and formats of the tiles that were written.
    address
        Where tiles will be served, with ``{z}``, ``{x}`` and ``{y}``; ``{fmt}`` becomes the
        extension.
    """
    whole = replace(said, min_zoom=found.min_zoom, max_zoom=found.max_zoom, bounds=found.bounds)
    return {
        tilejson_key(NAMES.get(ext, ext or "tiles"), hashed=False): ascii_line(
            tilejson(whole, [address.replace("{fmt}", ext)])
        )
        for ext in found.formats
    }
