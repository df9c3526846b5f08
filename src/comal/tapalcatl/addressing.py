"""Keys of archives of Tapalcatl 1, what ``{h}`` stands for, and boxes of tiles.

Tapalcatl 1 has one archive per metatile, names relative to it, and nothing described inside. A
metatile of size m holds tiles of 256, 512, ... 256 * m pixels at one nominal zoom: its levels are
tile sizes, not overviews. Everything that a reader must know is told by configuration.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from comal.errors import InvalidInputError, shown
from comal.tapalcatl.spec import (
    CONTENT_TYPE,
    LATITUDE_LIMIT,
    WORLD,
    Bounds,
    Headers,
    Tile,
    content_headers,
)

HASHES: Final = ("name", "file", "layer")
"""What ``{h}`` stands for: md5 of ``z/x/y`` (the specification), of ``z/x/y.zip``, or of
``/{layer}/z/x/y.zip``, each cut to five hex digits."""
_FIELD = re.compile(r"\{([^{}]*)\}")


def tile_hash(tile: Tile, kind: str = "name", layer: str = "all") -> str:
    """The five hex digits that ``{h}`` stands for, in one of the three definitions of `HASHES`."""
    name = "/".join(map(str, tile))
    texts = {"name": name, "file": f"{name}.zip", "layer": f"/{layer}/{name}.zip"}
    if kind not in texts:
        raise InvalidInputError("unknown hash", found=shown(kind), expected=", ".join(HASHES))
    # It spreads keys and protects nothing.
    return hashlib.md5(texts[kind].encode(), usedforsecurity=False).hexdigest()[:5]


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

    @property
    def template(self) -> str:
        """The layout with prefix and layer in their places."""
        own = {"prefix": self.prefix, "layer": self.layer, "fmt": "zip"}
        text = _FIELD.sub(lambda one: own.get(one[1], one[0]).strip("/"), self.pattern)
        return "/".join(part for part in text.split("/") if part)

    def key(self, metatile: Tile) -> str:
        """The key of an archive, relative to where the tileset is."""
        layer = self.layer.strip("/")
        # With a layer its name is hashed, too.
        digest = tile_hash(metatile, "layer" if layer else "file", layer)
        values = {"hash": digest, **dict(zip("zxy", map(str, metatile), strict=True))}
        return _FIELD.sub(lambda match: values[match[1]], self.template)


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


# -- boxes ----------------------------------------------------------------------------------------

_ROUNDING: Final = 1e-6
"""Degrees; a tenth of a metre."""


def archive_bounds(archive: Tile, metatile: int) -> Bounds:
    """West, south, east and north of an archive's root tiles together."""
    z, x, y = archive
    side = min(metatile, 1 << z)
    west, _, _, north = tile_bounds(z, x, y)
    _, south, east, _ = tile_bounds(z, x + side - 1, y + side - 1)
    return west, south, east, north


def tile_bounds(z: int, x: int, y: int) -> Bounds:
    """West, south, east and north of a tile in degrees (Web Mercator, rows from the north)."""
    count = 1 << z
    north, south = (
        math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / count)))) for row in (y, y + 1)
    )
    return x / count * 360 - 180, south, (x + 1) / count * 360 - 180, north


def tile_range(bounds: Bounds, z: int) -> tuple[range, range]:
    """Columns and rows of the tiles of a zoom that a box touches with more than an edge.

    A box across the antimeridian is taken as the whole circle; `column_ranges` tells its two
    parts. Rounding never makes the ranges too narrow.
    """
    columns = column_ranges(bounds, z)
    count = 1 << z
    rows = [_row(bounds[3]) * count, _row(bounds[1]) * count]
    return range(columns[0].start, columns[-1].stop), _outward(rows, count)


def column_ranges(bounds: Bounds, z: int) -> tuple[range, ...]:
    """Columns of the tiles of a zoom that a box touches, from the west: one range or two.

    A box crosses the antimeridian when its west is greater than its east, or when it reaches
    beyond 180 degrees, as TileJSON is often written there.
    """
    west, east = _turned(bounds[0], bounds[2])
    count = 1 << z
    if west <= east:
        return (_outward([_column(west) * count, _column(east) * count], count),)
    first = _outward([0, _column(east) * count], count)
    last = _outward([_column(west) * count, count], count)
    if first.stop >= last.start:
        return (range(count),)
    return first, last


def _turned(west: float, east: float) -> tuple[float, float]:
    """West and east of a box between -180 and 180; west > east across the antimeridian."""
    if east - west >= 360:
        return -180.0, 180.0
    # What is beyond by a rounding is meant to be the edge.
    if west >= -180 - _ROUNDING and east <= 180 + _ROUNDING:
        return west, east
    return (west + 180) % 360 - 180, (east + 180) % 360 - 180


def _column(longitude: float) -> float:
    return min(max((longitude + 180) / 360, 0.0), 1.0)


def _row(latitude: float) -> float:
    if abs(latitude) >= LATITUDE_LIMIT:
        return 0.0 if latitude > 0 else 1.0
    row = 0.5 - math.asinh(math.tan(math.radians(latitude))) / math.tau
    return min(max(row, 0.0), 1.0)


def _outward(ends: Sequence[float], count: int) -> range:
    # A billionth of a tile: below what bounds are written with, above what arithmetic loses.
    first = min(max(math.floor(ends[0] + 1e-9), 0), count - 1)
    stop = min(max(math.ceil(ends[1] - 1e-9), first + 1), count)
    return range(first, stop)


def union_of(tiles: Sequence[Tile]) -> Bounds:
    """The box around some tiles; that of the world without any."""
    if not tiles:
        return WORLD
    boxes = [tile_bounds(*tile) for tile in tiles]
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


Extent = tuple[int, int, int, int]
"""The first column and row, and the last ones."""


def covers(box: Bounds, zoom: int, extent: Extent) -> bool:
    """Whether the tiles of a zoom within an extent all touch the box."""
    columns, rows = tile_range(box, zoom)
    return (
        columns[0] <= extent[0]
        and rows[0] <= extent[1]
        and columns[-1] >= extent[2]
        and rows[-1] >= extent[3]
    )


def common(one: Bounds, other: Bounds | None) -> Bounds:
    """The common part of two boxes; the first where they have none, or just an edge."""
    if other is None or other[0] > other[2]:
        return one
    west, south = max(one[0], other[0]), max(one[1], other[1])
    east, north = min(one[2], other[2]), min(one[3], other[3])
    return (west, south, east, north) if west < east and south < north else one


def union(one: Bounds, other: Bounds) -> Bounds:
    """The smallest box that holds both."""
    return (
        min(one[0], other[0]),
        min(one[1], other[1]),
        max(one[2], other[2]),
        max(one[3], other[3]),
    )
