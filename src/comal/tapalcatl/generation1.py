"""Tapalcatl 1: one archive per metatile, names relative to it, nothing described inside.

A metatile of size m holds tiles of 256, 512, ... 256 * m pixels at one nominal zoom: its levels
are tile sizes, not overviews. Everything that a reader must know is told by configuration.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from comal.errors import InvalidInputError, shown
from comal.tapalcatl.addressing import md5_5
from comal.tapalcatl.spec import (
    CONTENT_TYPE,
    Headers,
    Tile,
    TileSetMetadata,
    ascii_line,
    content_headers,
    tilejson,
)

UNIT: Final = 256
"""Pixels of the smallest tile, of which a metatile of size m holds m per side."""

FORMATS: Final[Mapping[str, Headers]] = {
    "json": ((CONTENT_TYPE, "application/json"),),
    "topojson": ((CONTENT_TYPE, "application/json"),),
    "mvt": ((CONTENT_TYPE, "application/x-protobuf"),),
    "mvtb": ((CONTENT_TYPE, "application/x-protobuf"),),
}
"""What the existing servers answer."""

LAYOUTS: Final[Mapping[str, str]] = {
    "prefix-hash": "{prefix}/{hash}/{layer}/{z}/{x}/{y}.zip",
    "hash-prefix": "{hash}/{prefix}/{layer}/{z}/{x}/{y}.zip",
    "plain": "{prefix}/{layer}/{z}/{x}/{y}.zip",
}
"""Layouts of keys by name; any other pattern may be given, ``{fmt}`` standing for ``zip``."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_FIELDS = frozenset({"prefix", "hash", "layer", "z", "x", "y", "fmt"})


class Place(NamedTuple):
    """Where a tile is: its metatile, and its name in there."""

    metatile: Tile
    offset: Tile
    """Level, column and row relative to the metatile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation1:
    """A Tapalcatl 1 tileset as its reader must be told.

    Raises
    ------
    InvalidInputError
        A size that is no power of two, or a layout that is no pattern of keys.
    """

    metatile: int = 4
    """Tiles of 256 pixels per side of an archive: 1, 2, 4, ... 128."""
    tile_size: int = 256
    """Pixels of a tile that is asked for without a size."""
    max_detail_zoom: int | None = None
    """Deepest zoom of which there are archives; tiles beyond it come out of these."""
    layout: str = "plain"
    """A name of `LAYOUTS`, or a pattern."""
    prefix: str = ""
    layer: str = ""
    formats: Mapping[str, Headers] = field(default_factory=lambda: dict(FORMATS))
    """Headers of each extension; none stand for the usual ones."""
    min_zoom: int = 0
    max_zoom: int = 20

    def __post_init__(self) -> None:
        _log2(self.metatile, "metatile size")
        if self.metatile > 128:
            raise InvalidInputError(
                "metatile is too large", found=self.metatile, expected="at most 128"
            )
        self.delta(self.tile_size)
        fields = set(_FIELD.findall(self.pattern))
        if not {"z", "x", "y"} <= fields or not fields <= _FIELDS:
            raise InvalidInputError(
                "layout of keys",
                found=shown(self.layout),
                expected=", ".join([*LAYOUTS, "or a pattern with {z}, {x} and {y}"]),
            )

    @property
    def pattern(self) -> str:
        """The layout as a pattern."""
        return LAYOUTS.get(self.layout, self.layout)

    @property
    def levels(self) -> int:
        """Levels of an archive beside its root: log2 of the metatile size."""
        return self.metatile.bit_length() - 1

    def delta(self, tile_size: int) -> int:
        """How many zooms above a tile of so many pixels its metatile stands.

        Raises
        ------
        InvalidInputError
            No multiple of 256 pixels by a power of two, or larger than a metatile.
        """
        if tile_size % UNIT or tile_size <= 0:
            raise InvalidInputError(
                "tile size", found=tile_size, expected="256 pixels times a power of two"
            )
        delta = self.levels - _log2(tile_size // UNIT, "tile size")
        if delta < 0:
            raise InvalidInputError(
                "tile size is larger than the metatile",
                found=f"{tile_size} pixels",
                expected=f"at most {self.metatile * UNIT}",
            )
        return delta

    def place(self, z: int, x: int, y: int, tile_size: int | None = None) -> Place:
        """Metatile and offset of a tile of `tile_size` pixels.

        Near the root there is no metatile high enough, and the root's answers: with a tile of more
        pixels than were asked for. Beyond `max_detail_zoom` the deepest metatiles do.
        """
        delta = self.delta(self.tile_size if tile_size is None else tile_size)
        if z < delta:
            meta = (0, 0, 0)
        else:
            if self.max_detail_zoom is not None and z - delta > self.max_detail_zoom:
                delta = min(z - self.max_detail_zoom, self.levels)
            meta = (z - delta, x >> delta, y >> delta)
        depth = z - meta[0]
        return Place(meta, (depth, x - (meta[1] << depth), y - (meta[2] << depth)))

    def key(self, metatile: Tile) -> str:
        """The key of an archive, relative to where the tileset is."""
        z, x, y = metatile
        values = {
            "prefix": self.prefix.strip("/"),
            "layer": self.layer.strip("/"),
            "hash": metatile_hash(metatile, self.layer.strip("/")),
            "z": str(z),
            "x": str(x),
            "y": str(y),
            "fmt": "zip",
        }
        key = _FIELD.sub(lambda match: values[match[1]], self.pattern)
        return "/".join(part for part in key.split("/") if part)


def metatile_hash(metatile: Tile, layer: str = "") -> str:
    """The hash in keys: md5 of ``/{layer}/z/x/y.zip``, or of ``z/x/y.zip`` without a layer."""
    name = "/".join(map(str, metatile)) + ".zip"
    return md5_5(f"/{layer}/{name}" if layer else name)


def _log2(value: int, what: str) -> int:
    if value < 1 or value & (value - 1):
        raise InvalidInputError(what, found=value, expected="a power of two")
    return value.bit_length() - 1


def with_formats(known: Mapping[str, Headers], found: Iterable[str]) -> dict[str, Headers]:
    """Formats of Tapalcatl 1 as its archives show them: those of Tilezen first, in its order."""
    every = {*known, *found}
    names = [name for name in FORMATS if name in every]
    names += [name for name in known if name not in FORMATS]
    names += sorted(every - {*names})
    return {name: known.get(name) or usual_headers(name) for name in names}


def usual_headers(ext: str) -> Headers:
    """What the existing servers answer, or what the extension is known for."""
    return FORMATS.get(ext) or content_headers(ext)


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
        f"tilejson/{NAMES.get(ext, ext or 'tiles')}.json": ascii_line(
            tilejson(whole, [address.replace("{fmt}", ext)])
        )
        for ext in found.formats
    }
