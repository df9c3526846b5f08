"""From a tile to its archive and its key in there: arithmetic alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from comal.errors import InvalidInputError
from comal.tapalcatl.addressing import Layout, tile_range
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.spec import MAX_ZOOM, Bounds, Tile
from comal.tapalcatl.wire import BASES, Int64s, tile_key, tile_keys

Spot = tuple[Tile, int]
"""The root tile of an archive, and the `tile_key` of an entry in it."""
Spots = tuple[Int64s, Int64s]
"""As `Spot` for many tiles: keys of the root tiles, -1 for None, and keys of the entries."""
_ONE = (0, 0, 0)


class Locator(Protocol):
    """Where tiles are."""

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile, or None where the tileset can have none."""
        ...

    def find_many(self, rows: Int64s, size: int | None = None) -> Spots:
        """As `find` for tiles of shape (n, 3)."""
        ...


class InTree:
    """Tapalcatl 2: only tiles inside the zooms and the bounds of the tileset."""

    def __init__(
        self, layout: Layout, min_zoom: int | None, max_zoom: int | None, bounds: Bounds | None
    ) -> None:
        self.layout = layout
        first = layout.materialized_zooms[0] if min_zoom is None else min_zoom
        last = MAX_ZOOM if max_zoom is None else max_zoom
        self._mask = -layout.metatile
        self._zooms: list[tuple[int, int, int, int, int, int, int] | None] = []
        for z in range(MAX_ZOOM + 1):
            root = layout.root_zoom(z)
            if root is None or not first <= z <= last:
                self._zooms.append(None)
                continue
            whole = range(1 << z), range(1 << z)
            columns, rows = whole if bounds is None else tile_range(bounds, z)
            ends = columns.start, columns.stop, rows.start, rows.stop
            self._zooms.append((root, z - root, BASES[z], *ends))
        # Of a zoom without tiles no column is east of 0 and west of 0.
        table = np.array([zoom or (0,) * 7 for zoom in self._zooms], np.int64)
        self._table = np.delete(table, 2, axis=1)

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile; `size` has no meaning here."""
        if not 0 <= z <= MAX_ZOOM or size is not None:
            _refuse_size(size)
            return None
        zoom = self._zooms[z]
        if zoom is None:
            return None
        root, depth, base, west, east, north, south = zoom
        if not (west <= x < east and north <= y < south):
            return None
        mask = self._mask
        return (root, x >> depth & mask, y >> depth & mask), base + (x << z) + y

    def find_many(self, rows: Int64s, size: int | None = None) -> Spots:
        """As `find` for tiles of shape (n, 3)."""
        _refuse_size(size)
        known = (rows[:, 0] >= 0) & (rows[:, 0] <= MAX_ZOOM)
        z, x, y = np.where(known[:, None], rows, 0).T
        root, depth, west, east, north, south = self._table[z].T
        known &= (west <= x) & (x < east) & (north <= y) & (y < south)
        z, x, y = np.where(known, (z, x, y), 0)
        root, depth = np.where(known, (root, depth), 0)
        roots = tile_keys(root, x >> depth & self._mask, y >> depth & self._mask)
        return np.where(known, roots, -1), tile_keys(z, x, y)


class InArchive:
    """A single archive: its directory alone says which tiles there are."""

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile; `size` has no meaning here."""
        if not 0 <= z <= MAX_ZOOM or size is not None:
            _refuse_size(size)
            return None
        count = 1 << z
        if not (0 <= x < count and 0 <= y < count):
            return None
        return _ONE, BASES[z] + (x << z | y)

    def find_many(self, rows: Int64s, size: int | None = None) -> Spots:
        """As `find` for tiles of shape (n, 3)."""
        _refuse_size(size)
        z, x, y = rows.T
        side = np.int64(1) << np.clip(z, 0, MAX_ZOOM)
        known = (z >= 0) & (z <= MAX_ZOOM) & (x >= 0) & (x < side) & (y >= 0) & (y < side)
        keys = tile_keys(*(rows if known.all() else np.where(known[:, None], rows, 0)).T)
        return known.astype(np.int64) - 1, keys


class InMetatiles:
    """Tapalcatl 1: the metatile of a tile of so many pixels, and its offset in there."""

    def __init__(self, config: Generation1) -> None:
        self.config = config

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile of `size` pixels, by default those of the configuration."""
        config = self.config
        if not config.min_zoom <= z <= config.max_zoom:
            return None
        count = 1 << z
        if not (0 <= x < count and 0 <= y < count):
            return None
        metatile, (depth, column, row) = config.place(z, x, y, size)
        return metatile, BASES[depth] + (column << depth) + row

    def find_many(self, rows: Int64s, size: int | None = None) -> Spots:
        """As `find` for tiles of shape (n, 3)."""
        spots = [self.find(z, x, y, size) for z, x, y in rows.tolist()]
        roots = [-1 if spot is None else tile_key(*spot[0]) for spot in spots]
        keys = [0 if spot is None else spot[1] for spot in spots]
        return np.array(roots, np.int64), np.array(keys, np.int64)


def _refuse_size(size: int | None) -> None:
    if size is not None:
        raise InvalidInputError(
            "tiles of Tapalcatl 2 have no size in pixels", found=size, hint="ask for a scale"
        )
