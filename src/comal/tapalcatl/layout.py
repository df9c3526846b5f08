"""Which archive each tile is in, in both generations, what the archive is called and says.

A layout finds a single tile by a table of zooms, without arrays, and answers for arrays of tiles,
so that a pyramid is dealt out block by block. Comments
of a zoom's archives differ in where the archives are and in nothing else: their text is made once,
with marks where bounds and root stand, and filled in for each archive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np

from comal.errors import InvalidInputError
from comal.tapalcatl.addressing import Layout, Template, archive_bounds, tile_range
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.spec import (
    MAX_COMMENT,
    MAX_ZOOM,
    ArchiveMetadata,
    Headers,
    Tile,
    TileSetMetadata,
    archive_comment,
    archive_document,
    ascii_line,
    shared,
)
from comal.tapalcatl.wire import BASES, Int64s, Keys, key_tiles, order_of, split_suffix, tiles_in

COMMENT_ROOM: Final = 8 << 10
"""A comment stands in the tail that readers fetch for the directory: no more of it for layers."""

Comment = tuple[bytes, tuple[str, ...]]
"""The comment of an archive, and the keys that had no room in it."""


Spot = tuple[Tile, int]
"""The root tile of an archive, and the `tile_key` of an entry in it."""


class ArchiveLayout:
    """How tiles are dealt out to archives."""

    side = 1
    """Root tiles of an archive per side."""

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile, or None where the tileset can have none."""
        raise NotImplementedError

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of a zoom; None where there are none."""
        raise NotImplementedError

    def around(self, z: int, x: int, y: int, side: int) -> list[Tile]:
        """The archives that tiles of a square may be in; none above the first of them."""
        root = self.root_zoom(z)
        if root is None:
            return []
        depth, mask = z - root, -self.side
        columns = sorted({(column >> depth) & mask for column in range(x, x + side)})
        rows = sorted({(row >> depth) & mask for row in range(y, y + side)})
        return [(root, column, row) for column in columns for row in rows]

    def tiles(self, archive: Tile, keys: Int64s) -> tuple[Int64s, Keys]:  # noqa: ARG002
        """Tiles by their `tile_key` in an archive; first the rows of those that `find` leads to."""
        return np.arange(len(keys)), key_tiles(keys)

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        raise NotImplementedError

    def archive(self, tile: Tile) -> Tile:
        """The archive of one tile."""
        raise NotImplementedError

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the archives of some tiles, -1 where there can be none."""
        return order_of(*self.archives(keys))

    def inside(self, keys: Keys, owners: Int64s) -> Keys:  # noqa: ARG002
        """Tiles as entries of archives are called; `owners` are `order_of` these."""
        return keys

    def reach(self, root: int) -> int:
        """How many zooms deeper than their root archives of a zoom go, at most."""
        raise NotImplementedError

    def path(self, archive: Tile) -> str:
        """Where an archive stands, relative to the tileset."""
        raise NotImplementedError

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:  # noqa: ARG002
        """The comment of an archive, and the keys that had no room in it."""
        return b"", ()

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment` for several archives of one zoom."""
        return [self.comment(archive, formats) for archive in archives]

    def of_suffixes(self, suffixes: Iterable[str]) -> ArchiveLayout:  # noqa: ARG002
        """The same for archives whose names have these ends."""
        return self


_Zoom = tuple[int, int, int, int, int, int, int, int]
"""Root, depth and mask, the first key, and the columns and rows that bounds leave."""


@dataclass(frozen=True)
class TreeLayout(ArchiveLayout):
    """Tapalcatl 2."""

    layout: Layout
    template: Template
    metadata: TileSetMetadata
    """Of the tileset; its zooms and bounds are those of the whole."""

    @property
    def side(self) -> int:  # type: ignore[override]  # that of the layout
        """Root tiles of an archive per side."""
        return self.layout.metatile

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of a zoom; None above the first of them."""
        return self.layout.root_zoom(z)

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile inside the zooms and bounds; `size` has no meaning here."""
        if size is not None:
            raise _no_size(size)
        zoom = self._zooms[z] if 0 <= z <= MAX_ZOOM else None
        if zoom is None:
            return None
        root, depth, mask, base, west, east, north, south = zoom
        if not (west <= x < east and north <= y < south):
            return None
        return (root, x >> depth & mask, y >> depth & mask), base + (x << z) + y

    @cached_property
    def _zooms(self) -> list[_Zoom | None]:
        return [self._zoom(z) for z in range(MAX_ZOOM + 1)]

    def _zoom(self, z: int) -> _Zoom | None:
        layout, said = self.layout, self.metadata
        root = layout.root_zoom(z)
        first = layout.materialized_zooms[0] if said.min_zoom is None else said.min_zoom
        last = MAX_ZOOM if said.max_zoom is None else said.max_zoom
        if root is None or not first <= z <= last:
            return None
        whole = range(1 << z), range(1 << z)
        columns, rows = whole if said.bounds is None else tile_range(said.bounds, z)
        ends = columns.start, columns.stop, rows.start, rows.stop
        return root, z - root, -layout.metatile, BASES[z], *ends

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        found = self.layout.archives(*keys)
        if len(found[0]) and found[0].min() < 0:
            raise self._too_shallow(int(keys[0].min()))
        return found

    def archive(self, tile: Tile) -> Tile:
        """The archive of one tile."""
        found = self.layout.archive(*tile)
        if found is None:
            raise self._too_shallow(tile[0])
        return found

    def _too_shallow(self, zoom: int) -> InvalidInputError:
        return InvalidInputError(
            "tiles lie above the first materialized zoom",
            found=f"zoom {zoom}",
            expected=f"zoom {self.layout.materialized_zooms[0]} or deeper",
            hint="lay the tileset out anew with remetatile(), materialized zooms from there on",
        )

    def reach(self, root: int) -> int:
        """How many zooms deeper than their root archives of a zoom go, at most."""
        last = MAX_ZOOM if self.metadata.max_zoom is None else self.metadata.max_zoom
        return max(self.layout.last_zoom(root, last) - root, 0)

    def path(self, archive: Tile) -> str:
        """Where an archive stands, relative to the tileset."""
        return self.template.address(archive)

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the archives of some tiles, -1 above the first of them."""
        z, x, y = self.layout.archives(*keys)
        there = z >= 0
        return np.where(there, order_of(*(np.where(there, part, 0) for part in (z, x, y))), -1)

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """The tileset's document, narrowed to the archive."""
        own = self._narrowed(archive, formats)
        data, cut = archive_comment(own)
        if len(data) > COMMENT_ROOM and not cut:
            cut = tuple(own.extra)
            data, _ = archive_comment(replace(own, extra={}))
        return data, cut

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment` for several archives of one zoom."""
        found = comments_of_zoom(self._narrowed(archives[0], formats), archives)
        if found is None or max(map(len, found)) > COMMENT_ROOM:
            return super().comments(archives, formats)
        return [(comment, ()) for comment in found]

    def _narrowed(self, archive: Tile, formats: Mapping[str, Headers]) -> ArchiveMetadata:
        whole = self.metadata
        own = {
            **shared(whole),
            "formats": formats,
            "min_zoom": max(archive[0], whole.min_zoom or 0),
            "max_zoom": archive[0] + self.reach(archive[0]),
            "bounds": archive_bounds(archive, self.layout.metatile),
            "metatile": self.layout.metatile,
            "materialized_zooms": self.layout.materialized_zooms,
        }
        return ArchiveMetadata(**own, root=archive)


@dataclass(frozen=True)
class MetatileLayout(ArchiveLayout):
    """Tapalcatl 1: archives of metatiles, with nothing said inside."""

    settings: Generation1

    @cached_property
    def _depths(self) -> Int64s:
        """For each zoom at which level of its metatile its tiles are."""
        places = (self.settings.place(zoom, 0, 0) for zoom in range(MAX_ZOOM + 1))
        return np.array([place.offset[0] for place in places], np.int64)

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile of `size` pixels, by default those of the settings."""
        settings = self.settings
        if not settings.min_zoom <= z <= settings.max_zoom:
            return None
        count = 1 << z
        if not (0 <= x < count and 0 <= y < count):
            return None
        metatile, (depth, column, row) = settings.place(z, x, y, size)
        return metatile, BASES[depth] + (column << depth) + row

    def root_zoom(self, z: int) -> int:
        """The zoom of the metatiles of a zoom."""
        return self.settings.place(z, 0, 0).metatile[0]

    def tiles(self, archive: Tile, keys: Int64s) -> tuple[Int64s, Keys]:
        """Tiles of the configured size by their `tile_key` in a metatile; first their rows."""
        z, x, y = key_tiles(keys)
        zooms = z + archive[0]
        rows = np.flatnonzero(zooms <= MAX_ZOOM)
        rows = rows[self._depths[zooms[rows]] == z[rows]]
        z = z[rows]
        return rows, (zooms[rows], x[rows] + (archive[1] << z), y[rows] + (archive[2] << z))

    def archives(self, keys: Keys) -> Keys:
        """Metatiles of some tiles."""
        z, x, y = keys
        depth = self._depths[z]
        return z - depth, x >> depth, y >> depth

    def reach(self, root: int) -> int:  # noqa: ARG002 - the other one needs it
        """How many zooms deeper than their root archives of a zoom go, at most."""
        return self.settings.levels

    def path(self, archive: Tile) -> str:
        """The key of a metatile."""
        return self.settings.key(archive)

    def archive(self, tile: Tile) -> Tile:
        """The metatile of one tile."""
        return self.settings.place(*tile).metatile

    def inside(self, keys: Keys, owners: Int64s) -> Keys:
        """Tiles as entries of archives are called: relative to the metatile."""
        root, x, y = tiles_in(owners)
        z = keys[0] - root
        return z, keys[1] - (x << z), keys[2] - (y << z)


@dataclass(frozen=True)
class SingleLayout(TreeLayout):
    """Tapalcatl 2 in one archive."""

    name: str = ""
    """The name of its file."""

    def path(self, archive: Tile) -> str:  # noqa: ARG002 - there is but one
        """The name of the file."""
        return self.name

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """What a document would say, and the keys that had no room."""
        return trimmed_comment(self._narrowed(archive, formats))

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment`."""
        return ArchiveLayout.comments(self, archives, formats)

    def of_suffixes(self, suffixes: Iterable[str]) -> SingleLayout:
        """The same with the scales of the tiles, for no document tells them."""
        scales = [split_suffix(suffix)[0] for suffix in suffixes]
        if not scales:
            return self
        metadata = replace(self.metadata, min_scale=min(scales), max_scale=max(scales))
        return replace(self, metadata=metadata)

    def _narrowed(self, archive: Tile, formats: Mapping[str, Headers]) -> ArchiveMetadata:
        whole = self.metadata
        return replace(
            super()._narrowed(archive, formats),
            min_zoom=whole.min_zoom,
            max_zoom=whole.max_zoom,
            bounds=whole.bounds,
        )


class InArchive(ArchiveLayout):
    """A single archive that is read: its directory alone says which tiles there are."""

    def root_zoom(self, z: int) -> int:  # noqa: ARG002 - there is but one
        """That of the archive as it is looked for."""
        return 0

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """The place of a tile; `size` has no meaning here."""
        if size is not None:
            raise _no_size(size)
        count = 1 << z if 0 <= z <= MAX_ZOOM else 0
        if not (0 <= x < count and 0 <= y < count):
            return None
        return (0, 0, 0), BASES[z] + (x << z | y)


def _no_size(size: int) -> InvalidInputError:
    return InvalidInputError(
        "tiles of Tapalcatl 2 have no size in pixels", found=size, hint="ask for a scale"
    )


def smallest_metatile(keys: Iterator[Keys], root: int) -> int:
    """Root tiles per side of the smallest archive of a zoom that holds all tiles from there on."""
    low: Int64s | None = None
    high: Int64s | None = None
    for z, x, y in keys:
        deep = z >= root
        if not deep.any():
            continue
        shift = z[deep] - root
        places = np.stack([x[deep] >> shift, y[deep] >> shift])
        least, most = places.min(axis=1), places.max(axis=1)
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
    if low is None or high is None:
        return 1
    # Columns that differ in no bit from a bit on lie in one aligned square of that side.
    return 1 << max(int(bits).bit_length() for bits in low ^ high)


_BOUNDS: Final = "\0bounds"
_ROOT: Final = "\0root"


def comments_of_zoom(said: ArchiveMetadata, archives: Sequence[Tile]) -> list[bytes] | None:
    """What `archive_document` gives for each archive, as bytes.

    Parameters
    ----------
    said
        The metadata of one of them.
    archives
        All of one zoom.

    Returns
    -------
    list of bytes or None
        None when a text of the metadata looks like a mark, so that they must be made one by one.
    """
    form = {**archive_document(said), "bounds": _BOUNDS, "root": _ROOT}
    head, *middle = ascii_line(form).split(ascii_line(_BOUNDS))
    parts = middle[0].split(ascii_line(_ROOT)) if len(middle) == 1 else []
    if len(parts) != 2:
        return None
    between, tail = parts
    z = archives[0][0]
    across = _texts({x for _, x, _ in archives}, lambda x: (z, x, 0), said.metatile, (0, 2))
    along = _texts({y for _, _, y in archives}, lambda y: (z, 0, y), said.metatile, (1, 3))
    comments = []
    for _, x, y in archives:
        (west, east), (south, north) = across[x], along[y]
        text = b'[%b,%b,%b,%b]%b"%d/%d/%d"' % (west, south, east, north, between, z, x, y)
        comments.append(head + text + tail)
    return comments


def trimmed_comment(said: ArchiveMetadata) -> tuple[bytes, tuple[str, ...]]:
    """The comment of an archive that stands alone, and the keys that had to be left out.

    No document says elsewhere what is left out here, so that it is as little as can be: of keys
    that the format does not know the longest ones, until the rest fits into 65 535 bytes.

    Raises
    ------
    InvalidInputError
        What the format itself needs is too long.
    """
    kept = dict(said.extra)
    cut = []
    left = len(ascii_line(archive_document(said))) - MAX_COMMENT
    for size, key in sorted(((_size(key, said.extra[key]), key) for key in kept), reverse=True):
        if left <= 0:
            break
        del kept[key]
        cut.append(key)
        left -= size
    data, more = archive_comment(replace(said, extra=kept))
    return data, (*cut, *more)


def _size(key: str, value: object) -> int:
    """Bytes of a key, its value and what stands around them."""
    return len(ascii_line(key)) + len(ascii_line(value)) + 2


def _texts(
    places: set[int], tile: Callable[[int], Tile], metatile: int, sides: tuple[int, int]
) -> dict[int, tuple[bytes, bytes]]:
    """Two sides of the bounds of archives as JSON, which depend on column or row alone."""
    found = {}
    for place in places:
        bounds = archive_bounds(tile(place), metatile)
        low, high = (repr(bounds[side]).encode() for side in sides)
        found[place] = (low, high)
    return found
