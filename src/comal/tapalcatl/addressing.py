"""Archive keys of Tapalcatl 1, definitions of ``{h}``, and bounding boxes of tiles.

Tapalcatl 1 has one archive per metatile, with names relative to it and no metadata inside. A
metatile of size m holds tiles of 256, 512, ... 256 * m pixels at one nominal zoom: its levels are
tile sizes, not overviews. Everything that a reader must know comes from configuration.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from comal.errors import InvalidInputError, shown
from comal.public import check_fields
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
"""Definitions of ``{h}``: md5 of ``z/x/y`` (the specification), of ``z/x/y.zip``, or of
``/{layer}/z/x/y.zip``, each cut to five hex digits."""
_FIELD = re.compile(r"\{([^{}]*)\}")


def tile_hash(tile: Tile, kind: str = "name", layer: str = "all") -> str:
    """The five hex digits of ``{h}``, by one of the three definitions in `HASHES`."""
    name = "/".join(map(str, tile))
    texts = {"name": name, "file": f"{name}.zip", "layer": f"/{layer}/{name}.zip"}
    if kind not in texts:
        raise InvalidInputError("unknown hash", found=shown(kind), expected=", ".join(HASHES))
    # The hash only spreads keys; it is not for security.
    return hashlib.md5(texts[kind].encode(), usedforsecurity=False).hexdigest()[:5]


UNIT: Final = 256
"""Pixels per side of the smallest tile; a metatile of size m holds m of them per side."""
FORMATS: Final[Mapping[str, Headers]] = {
    "json": ((CONTENT_TYPE, "application/json"),),
    "topojson": ((CONTENT_TYPE, "application/json"),),
    "mvt": ((CONTENT_TYPE, "application/x-protobuf"),),
    "mvtb": ((CONTENT_TYPE, "application/x-protobuf"),),
}
"""Headers that existing servers send."""
LAYOUTS: Final[Mapping[str, str]] = {
    "prefix-hash": "{prefix}/{hash}/{layer}/{z}/{x}/{y}.zip",
    "hash-prefix": "{hash}/{prefix}/{layer}/{z}/{x}/{y}.zip",
    "plain": "{prefix}/{layer}/{z}/{x}/{y}.zip",
}
"""Key layouts by name; callers may pass any other pattern. ``{fmt}`` is always ``zip``."""
_FIELDS = frozenset({"prefix", "hash", "layer", "z", "x", "y", "fmt"})


class Place(NamedTuple):
    """The metatile of a tile, and the tile's position in it."""

    metatile: Tile
    offset: Tile
    """Level, column and row relative to the metatile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation1:
    """Settings of a Tapalcatl 1 tileset, which a reader cannot find in its files.

    Raises
    ------
    InvalidInputError
        A size that is not a power of two, or a layout that is not a pattern of keys.
    """

    metatile: int = 4
    """Tiles of 256 pixels per side of an archive: 1, 2, 4, ... 128."""
    tile_size: int = 256
    """Pixels of a tile that is requested without a size."""
    max_detail_zoom: int | None = None
    """Deepest zoom with archives; tiles of deeper zooms are in these archives."""
    layout: str = "plain"
    """A name of `LAYOUTS`, or a pattern."""
    prefix: str = ""
    layer: str = ""
    formats: Mapping[str, Headers] = field(default_factory=lambda: dict(FORMATS))
    """Headers of each extension; empty headers mean the usual ones."""
    min_zoom: int = 0
    max_zoom: int = 20

    def __post_init__(self) -> None:
        check_fields(self)
        _log2(self.metatile, "metatile size")
        if self.metatile > 128:
            raise InvalidInputError(
                "the metatile is too large", found=self.metatile, expected="at most 128"
            )
        self.delta(self.tile_size)
        fields = set(_FIELD.findall(self.pattern))
        if not {"z", "x", "y"} <= fields or not fields <= _FIELDS:
            raise InvalidInputError(
                "unknown layout of keys",
                found=shown(self.layout),
                expected=", ".join([*LAYOUTS, "or a pattern with {z}, {x} and {y}"]),
            )

    @property
    def pattern(self) -> str:
        """The layout as a pattern."""
        return LAYOUTS.get(self.layout, self.layout)

    @property
    def levels(self) -> int:
        """Levels of an archive below its root: log2 of the metatile size."""
        return self.metatile.bit_length() - 1

    def delta(self, tile_size: int) -> int:
        """Number of zooms between a tile of this many pixels and its metatile above it.

        Raises
        ------
        InvalidInputError
            Not 256 pixels times a power of two, or larger than a metatile.
        """
        if tile_size % UNIT or tile_size <= 0:
            raise InvalidInputError(
                "the tile size cannot be used",
                found=tile_size,
                expected="256 pixels times a power of two",
            )
        delta = self.levels - _log2(tile_size // UNIT, "tile size")
        if delta < 0:
            raise InvalidInputError(
                "the tile size is larger than the metatile",
                found=f"{tile_size} pixels",
                expected=f"at most {self.metatile * UNIT}",
            )
        return delta

    def place(self, z: int, x: int, y: int, tile_size: int | None = None) -> Place:
        """Metatile and offset of a tile of `tile_size` pixels.

        Near the root no metatile is high enough, so the root's is used: its tile has more pixels
        than requested. Beyond `max_detail_zoom` the deepest metatiles are used.
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
        """The layout with prefix and layer filled in."""
        own = {"prefix": self.prefix, "layer": self.layer, "fmt": "zip"}
        text = _FIELD.sub(lambda one: own.get(one[1], one[0]).strip("/"), self.pattern)
        return "/".join(part for part in text.split("/") if part)

    def key(self, metatile: Tile) -> str:
        """The key of an archive, relative to the tileset's base."""
        layer = self.layer.strip("/")
        # If there is a layer, the hash includes its name.
        digest = tile_hash(metatile, "layer" if layer else "file", layer)
        values = {"hash": digest, **dict(zip("zxy", map(str, metatile), strict=True))}
        return _FIELD.sub(lambda match: values[match[1]], self.template)


def _log2(value: int, what: str) -> int:
    if value < 1 or value & (value - 1):
        raise InvalidInputError(f"{what} cannot be used", found=value, expected="a power of two")
    return value.bit_length() - 1


def with_formats(known: Mapping[str, Headers], found: Iterable[str]) -> dict[str, Headers]:
    """Known and found formats of a Tapalcatl 1 tileset: those of Tilezen first, in its order."""
    every = {*known, *found}
    names = [name for name in FORMATS if name in every]
    names += [name for name in known if name not in FORMATS]
    names += sorted(every - {*names})
    return {name: known.get(name) or usual_headers(name) for name in names}


def usual_headers(ext: str) -> Headers:
    """The headers that existing servers send, or the default ones of the extension."""
    return FORMATS.get(ext) or content_headers(ext)


# -- boxes ----------------------------------------------------------------------------------------

_ROUNDING: Final = 1e-6
"""Degrees; a tenth of a metre."""


def archive_bounds(archive: Tile, metatile: int) -> Bounds:
    """West, south, east and north of all root tiles of an archive."""
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
    """Columns and rows of the tiles of a zoom that a box overlaps by more than an edge.

    A box across the antimeridian counts as all longitudes; `column_ranges` returns its two
    ranges. Rounding never makes the ranges too narrow.
    """
    columns = column_ranges(bounds, z)
    count = 1 << z
    rows = [_row(bounds[3]) * count, _row(bounds[1]) * count]
    return range(columns[0].start, columns[-1].stop), _outward(rows, count)


def column_ranges(bounds: Bounds, z: int) -> tuple[range, ...]:
    """Columns of the tiles of a zoom that a box overlaps, from the west: one range or two.

    A box crosses the antimeridian if its west is greater than its east, or if it extends beyond
    180 degrees, as it often does in TileJSON.
    """
    west, east = turned(bounds[0], bounds[2])
    count = 1 << z
    if west <= east:
        return (_outward([_column(west) * count, _column(east) * count], count),)
    first = _outward([0, _column(east) * count], count)
    last = _outward([_column(west) * count, count], count)
    if first.stop >= last.start:
        return (range(count),)
    return first, last


def turned(west: float, east: float) -> tuple[float, float]:
    """West and east of a box, wrapped to -180 to 180; west > east across the antimeridian."""
    if east - west >= 360:
        return -180.0, 180.0
    # Values beyond the edge by a rounding error are meant as the edge.
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
    # A billionth of a tile: finer than written bounds, coarser than rounding errors.
    first = min(max(math.floor(ends[0] + 1e-9), 0), count - 1)
    stop = min(max(math.ceil(ends[1] - 1e-9), first + 1), count)
    return range(first, stop)


def union_of(tiles: Sequence[Tile]) -> Bounds:
    """The box around some tiles; the world if there are none."""
    if not tiles:
        return WORLD
    boxes = [tile_bounds(*tile) for tile in tiles]
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


Extent = tuple[int, int, int, int]
"""First column, first row, last column, last row."""


def covers(box: Bounds, zoom: int, extent: Extent) -> bool:
    """Whether the box overlaps all tiles of an extent."""
    columns, rows = tile_range(box, zoom)
    return (
        columns[0] <= extent[0]
        and rows[0] <= extent[1]
        and columns[-1] >= extent[2]
        and rows[-1] >= extent[3]
    )


def common(one: Bounds, other: Bounds | None) -> Bounds:
    """The intersection of two boxes; the first box if it is empty or just an edge."""
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
