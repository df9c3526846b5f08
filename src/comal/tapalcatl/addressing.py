"""Where a tile of Tapalcatl 2 is: from its zoom, column and row to an archive and its address.

mz = the largest materialized zoom that is not above z;  d = z - mz
archive = (mz, (x >> d) rounded down to the metatile, (y >> d) likewise)
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.tapalcatl.spec import LATITUDE_LIMIT, MAX_ZOOM, WORLD, Bounds, Tile

Int64s = npt.NDArray[np.int64]

HASHES: Final = ("name", "file", "layer")
"""What ``{h}`` stands for: md5 of ``z/x/y`` (the specification), of ``z/x/y.zip``, or of
``/{layer}/z/x/y.zip``, each cut to five hex digits."""

_FIELD = re.compile(r"\{([^{}]*)\}")
_ROUNDING: Final = 1e-6
"""Degrees; a tenth of a metre."""


def tile_hash(tile: Tile, kind: str = "name", layer: str = "all") -> str:
    """The five hex digits that ``{h}`` stands for, in one of the three definitions of `HASHES`."""
    name = "/".join(map(str, tile))
    texts = {"name": name, "file": f"{name}.zip", "layer": f"/{layer}/{name}.zip"}
    if kind not in texts:
        raise InvalidInputError("unknown hash", found=shown(kind), expected=", ".join(HASHES))
    return md5_5(texts[kind])


def md5_5(text: str) -> str:
    """The first five hex digits of a text's MD5, which spreads keys and protects nothing."""
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()[:5]


@dataclass(frozen=True)
class Template:
    """Addresses of archives: ``{z}``, ``{x}`` and ``{y}``, and maybe ``{h}``."""

    text: str
    hash: str = "name"
    layer: str = "all"

    def __post_init__(self) -> None:
        fields = set(_FIELD.findall(self.text))
        if not {"z", "x", "y"} <= fields or not fields <= {"z", "x", "y", "h"}:
            raise InvalidMetadataError(
                "template of archives cannot be used",
                where="source",
                found=shown(self.text),
                expected="{z}, {x} and {y}, and maybe {h}",
            )

    @property
    def hashed(self) -> bool:
        """Whether addresses hold a hash."""
        return "{h}" in self.text

    def address(self, tile: Tile) -> str:
        """The address of one archive, relative where the template is."""
        z, x, y = tile
        text = self.text.replace("{z}", str(z)).replace("{x}", str(x)).replace("{y}", str(y))
        if self.hashed:
            text = text.replace("{h}", tile_hash(tile, self.hash, self.layer))
        return text


@dataclass(frozen=True)
class Layout:
    """Which tiles stand together in an archive."""

    materialized_zooms: tuple[int, ...] = (0,)
    metatile: int = 1

    def __post_init__(self) -> None:
        zooms = self.materialized_zooms
        valid = bool(zooms) and all(0 <= zoom <= MAX_ZOOM for zoom in zooms)
        if not valid or list(zooms) != sorted(set(zooms)):
            raise InvalidInputError(
                "materialized zooms", found=zooms, expected=f"ascending, 0 to {MAX_ZOOM}"
            )
        if self.metatile < 1 or self.metatile & (self.metatile - 1):
            raise InvalidInputError(
                "metatile cannot be this", found=self.metatile, expected="a power of two"
            )

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of zoom `z`; None below the first of them."""
        return max((zoom for zoom in self.materialized_zooms if zoom <= z), default=None)

    def last_zoom(self, root_zoom: int, max_zoom: int) -> int:
        """The deepest zoom in archives that begin at `root_zoom`."""
        later = (zoom - 1 for zoom in self.materialized_zooms if zoom > root_zoom)
        return min(min(later, default=max_zoom), max_zoom)

    def archive(self, z: int, x: int, y: int) -> Tile | None:
        """The archive that holds a tile, or None for a zoom below the first archives."""
        root = self.root_zoom(z)
        if root is None:
            return None
        depth, mask = z - root, -self.metatile
        return root, (x >> depth) & mask, (y >> depth) & mask

    def archives(self, z: Any, x: Any, y: Any) -> tuple[Int64s, Int64s, Int64s]:
        """As `archive` for arrays; a zoom below the first archives gives -1 in all three."""
        zs, xs, ys = (np.asarray(values, np.int64) for values in (z, x, y))
        zooms = np.array(self.materialized_zooms, np.int64)
        which = np.searchsorted(zooms, zs, side="right") - 1
        root = np.where(which >= 0, zooms[which], -1)
        depth, mask = np.where(which >= 0, zs - root, 0), -self.metatile
        ax = np.where(which >= 0, (xs >> depth) & mask, -1)
        ay = np.where(which >= 0, (ys >> depth) & mask, -1)
        return root, ax, ay

    def roots(self, archive: Tile) -> tuple[range, range]:
        """Columns and rows of an archive's root tiles, which stand at its own zoom."""
        z, x, y = archive
        stop = 1 << z
        return range(x, min(x + self.metatile, stop)), range(y, min(y + self.metatile, stop))


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
