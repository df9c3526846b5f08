"""Which archive each tile is in, in both generations, and the path and comment of each archive.

    mz = the largest materialized zoom that is not above z;  d = z - mz
    archive = (mz, (x >> d) rounded down to the metatile, (y >> d) likewise)

A layout finds a single tile by a table of zooms, without arrays; arrays of tiles are assigned to
archives block by block. Comments of archives of one zoom differ only in bounds and root: their text
is made once with marks for both, and filled in for each archive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from comal.errors import InvalidInputError, InvalidMetadataError, shown
from comal.limits import KIB
from comal.parallel import cached_property
from comal.public import check_fields, options_of, takes
from comal.tapalcatl.addressing import (
    Generation1,
    archive_bounds,
    column_ranges,
    tile_hash,
    tile_range,
)
from comal.tapalcatl.spec import (
    MAX_COMMENT,
    MAX_ZOOM,
    WORLD,
    ArchiveMetadata,
    Headers,
    Tile,
    TileSetMetadata,
    archive_comment,
    archive_document,
    ascii_line,
    shared,
)
from comal.tapalcatl.wire import Int64s, Keys, key_tiles, order_of, scales_of, tiles_in
from comal.ziparchive import wire

COMMENT_ROOM: Final = 8 << 10
"""A longer comment drops its extra keys: it is in the tail that readers fetch first."""
_MOST_LOOKED_FOR: Final = 1 << 20
Comment = tuple[bytes, tuple[str, ...]]
"""The comment of an archive, and the keys that did not fit into it."""
Spot = tuple[Tile, Tile]
"""The root tile of an archive, and the tile as named in its entries."""


@dataclass(frozen=True)
class Template:
    """Path template of archives with ``{z}``, ``{x}`` and ``{y}``, and optionally ``{h}``."""

    text: str
    hash: str = "name"
    layer: str = "all"

    def __post_init__(self) -> None:
        fields = set(re.findall(r"\{([^{}]*)\}", self.text))
        if not {"z", "x", "y"} <= fields or not fields <= {"z", "x", "y", "h"}:
            raise InvalidMetadataError(
                "the template of archives cannot be used",
                where="source",
                found=shown(self.text),
                expected="{z}, {x} and {y}, and maybe {h}",
            )

    @property
    def hashed(self) -> bool:
        """Whether the template contains a hash."""
        return "{h}" in self.text

    def address(self, tile: Tile) -> str:
        """The path or URL of one archive, relative if the template is."""
        z, x, y = tile
        text = self.text.replace("{z}", str(z)).replace("{x}", str(x)).replace("{y}", str(y))
        if self.hashed:
            text = text.replace("{h}", tile_hash(tile, self.hash, self.layer))
        return text


@dataclass(frozen=True)
class Layout:
    """Which tiles share an archive: the zooms of root tiles, and how many root tiles per side."""

    materialized_zooms: tuple[int, ...] = (0,)
    metatile: int = 1

    def __post_init__(self) -> None:
        zooms = self.materialized_zooms
        if type(zooms) is not tuple or {type(one) for one in (self.metatile, *zooms)} != {int}:
            check_fields(self)
            zooms = tuple(map(int, zooms))
            object.__setattr__(self, "materialized_zooms", zooms)
        valid = bool(zooms) and all(0 <= zoom <= MAX_ZOOM for zoom in zooms)
        if not valid or list(zooms) != sorted(set(zooms)):
            raise InvalidInputError(
                "the materialized zooms cannot be used",
                found=zooms,
                expected=f"ascending, 0 to {MAX_ZOOM}",
            )
        if self.metatile < 1 or self.metatile & (self.metatile - 1):
            raise InvalidInputError(
                "the metatile cannot be used", found=self.metatile, expected="a power of two"
            )

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of zoom `z`; None above the first archives."""
        return max((zoom for zoom in self.materialized_zooms if zoom <= z), default=None)

    def last_zoom(self, root_zoom: int, max_zoom: int) -> int:
        """The deepest zoom in archives that begin at `root_zoom`."""
        later = (zoom - 1 for zoom in self.materialized_zooms if zoom > root_zoom)
        return min(min(later, default=max_zoom), max_zoom)

    def archive(self, z: int, x: int, y: int) -> Tile | None:
        """The archive that holds a tile, or None for a zoom above the first archives."""
        root = self.root_zoom(z)
        if root is None:
            return None
        depth, mask = z - root, -self.metatile
        return root, (x >> depth) & mask, (y >> depth) & mask

    def archives(self, z: Any, x: Any, y: Any) -> tuple[Int64s, Int64s, Int64s]:
        """As `archive` for arrays; a zoom above the first archives gives -1 in all three."""
        zs, xs, ys = (np.asarray(values, np.int64) for values in (z, x, y))
        zooms = np.array(self.materialized_zooms, np.int64)
        which = np.searchsorted(zooms, zs, side="right") - 1
        root = np.where(which >= 0, zooms[which], -1)
        depth, mask = np.where(which >= 0, zs - root, 0), -self.metatile
        ax = np.where(which >= 0, (xs >> depth) & mask, -1)
        ay = np.where(which >= 0, (ys >> depth) & mask, -1)
        return root, ax, ay


DIRECTORY_LIMIT: Final = 64 * KIB
COMMENT_SIZE: Final = 1 * KIB
"""Bytes reserved for the comment of an archive, which is in the same tail."""
STEP: Final = 4
METATILE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySize:
    """Sizes that determine how long a directory is, besides the digits of names."""

    per_tile: int = 1
    """Entries of one tile: formats times scales."""
    suffix: str = ".mvt"
    """The text after the row in names, such as ``@2x.png``."""
    entry_extra: int = 0
    """Bytes of comment and extra fields of an entry."""
    comment: int = COMMENT_SIZE
    """Bytes of an archive's comment."""


@takes(EntrySize)
def choose_layout(
    min_zoom: int,
    max_zoom: int,
    *,
    metatile: int | None = None,
    materialized_zooms: Sequence[int] | None = None,
    **size: Any,
) -> Layout:
    """A layout whose directories fit into a reader's first request of 64 KiB.

    The rule: archives hold four zooms under two by two root tiles, which makes 340 entries of one
    format. Zooms are counted up from the deepest one (11, 7, 3, 0 for zooms 0 to 14), so that the
    most numerous archives are full; a zoom 0 that would be alone joins the next zooms. If
    directories would not fit, because a tile has many entries or long comments, the metatile is
    first reduced to 1, then archives hold three, two and one zooms. Arguments that are given are
    kept, whether the directories fit or not.
    """
    min_zoom, max_zoom = int(min_zoom), int(max_zoom)
    check_zooms(min_zoom, max_zoom)
    entry = options_of(EntrySize, size)
    sides = (METATILE, 1) if metatile is None else (metatile,)
    if materialized_zooms is not None and len(materialized_zooms) == 0:
        raise InvalidInputError("no materialized zooms", expected="at least one, or None")
    steps = (STEP, 3, 2, 1) if materialized_zooms is None else (0,)
    layout: Layout | None = None
    for step in steps:
        for side in sides:
            zooms = () if materialized_zooms is None else tuple(sorted(set(materialized_zooms)))
            layout = Layout(zooms or _zooms(min_zoom, max_zoom, step), side)
            longest = max(
                directory_bytes(layout, zoom, max_zoom, entry) for zoom in layout.materialized_zooms
            )
            if longest <= DIRECTORY_LIMIT:
                return layout
    assert layout is not None
    return layout


def directory_bytes(layout: Layout, zoom: int, max_zoom: int, size: EntrySize = EntrySize()) -> int:
    """Bytes of directory, end record and comment of a full archive that begins at `zoom`."""
    total, entries = wire.END_SIZE + size.comment, 0
    of_zoom = min(layout.metatile, 1 << zoom) ** 2 * size.per_tile
    for z in range(zoom, layout.last_zoom(zoom, max_zoom) + 1):
        # Assume the longest names: the largest column and row of the zoom.
        name = len(f"{z}/") + 2 * len(str((1 << z) - 1)) + 1 + len(size.suffix)
        total += of_zoom * (wire.CENTRAL_SIZE + name + size.entry_extra)
        entries += of_zoom
        of_zoom *= 4
    if entries > wire.U16:
        total += wire.END64_SIZE + wire.LOCATOR64_SIZE
    return total


def _zooms(min_zoom: int, max_zoom: int, step: int) -> tuple[int, ...]:
    zooms = list(range(max_zoom + 1 - step, min_zoom, -step))
    if zooms and zooms[-1] == 1 and min_zoom == 0 and step == STEP:
        zooms.pop()  # zoom 0 is one tile: 341 entries with the next four zooms
    return (min_zoom, *reversed(zooms))


def check_zooms(min_zoom: int, max_zoom: int) -> None:
    """Raise `InvalidInputError` for what is no range of zooms."""
    if not 0 <= min_zoom <= max_zoom <= MAX_ZOOM:
        raise InvalidInputError(
            "not a range of zooms",
            found=f"{min_zoom} to {max_zoom}",
            expected=f"0 to {MAX_ZOOM}, ascending",
        )


class ArchiveLayout:
    """How tiles are assigned to archives."""

    side = 1
    """Root tiles per side of an archive."""
    pattern = ""
    """Pattern of the paths of archives, with fields such as ``{z}``."""

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """Archive and entry of a tile, or None if the tileset cannot have it."""
        raise NotImplementedError

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of a zoom; None if there are none."""
        raise NotImplementedError

    def around(self, z: int, x: int, y: int, side: int) -> list[Tile]:
        """The archives that may hold tiles of a square; empty above the first archives."""
        root = self.root_zoom(z)
        if root is None:
            return []
        depth, mask = z - root, -self.side
        columns = sorted({(column >> depth) & mask for column in range(x, x + side)})
        rows = sorted({(row >> depth) & mask for row in range(y, y + side)})
        return [(root, column, row) for column in columns for row in rows]

    def tiles(self, archive: Tile, keys: Int64s) -> tuple[Int64s, Keys]:  # noqa: ARG002
        """Rows of the `keys` of an archive that `find` leads to, and their tiles."""
        return np.arange(len(keys)), key_tiles(keys)

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        raise NotImplementedError

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` values of the archives of some tiles, -1 if there can be none."""
        return order_of(*self.archives(keys))

    def inside(self, keys: Keys, owners: Int64s) -> Keys:  # noqa: ARG002
        """Tiles as named in entries of archives; `owners` are `order_of` values of the archives."""
        return keys

    def reach(self, root: int) -> int:
        """How many zooms archives with roots of this zoom reach below them, at most."""
        raise NotImplementedError

    def path(self, archive: Tile) -> str:
        """The path of an archive, relative to the tileset."""
        raise NotImplementedError

    def levels(self, said: TileSetMetadata) -> Iterator[tuple[int, int, int]]:
        """Zooms at which archives begin, depth of their first tiles, and root tiles per side."""
        raise NotImplementedError

    def leads_to(self, said: TileSetMetadata) -> Callable[[Tile], bool]:
        """A predicate whether a tile can be the root of an archive, by the declared zooms."""
        sides = {zoom: side for zoom, _, side in self.levels(said)}

        def fits(tile: Tile) -> bool:
            z, x, y = tile
            side = sides.get(z)
            return side is not None and not (x % side or y % side) and max(x, y) < 1 << z

        return fits

    def possible(self, said: TileSetMetadata) -> Iterator[Tile]:
        """Every archive that zooms and bounds allow."""
        ranges: list[tuple[int, range, range]] = []
        bounds = said.bounds or WORLD
        for zoom, depth, side in self.levels(said):
            down = _roots(tile_range(bounds, zoom + depth)[1], depth, side)
            across = [_roots(span, depth, side) for span in column_ranges(bounds, zoom + depth)]
            if len(across) > 1 and across[0].stop > across[1].start:
                across = [range(across[0].start, across[1].stop, side)]
            ranges += [(zoom, columns, down) for columns in across]
        total = sum(len(columns) * len(rows) for _, columns, rows in ranges)
        if total > _MOST_LOOKED_FOR:
            raise InvalidInputError(
                "archives cannot be listed here, and are too many to look for one by one",
                found=f"{total} possible archives",
                expected=f"at most {_MOST_LOOKED_FOR}",
                hint="narrow the zooms or the bounds, or read where the storage lists",
            )
        for zoom, columns, rows in ranges:
            yield from ((zoom, x, y) for x in columns for y in rows)

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:  # noqa: ARG002
        """The comment of an archive, and the keys that did not fit into it."""
        return b"", ()

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment` for several archives of one zoom."""
        return [self.comment(archive, formats) for archive in archives]

    def of_suffixes(self, suffixes: Iterable[str]) -> ArchiveLayout:  # noqa: ARG002
        """The same layout for archives whose entry names have these suffixes."""
        return self


def _roots(span: range, depth: int, side: int) -> range:
    """Columns or rows of the archives that hold tiles `depth` zooms below them."""
    return range((span[0] >> depth) & -side, (span[-1] >> depth) + 1, side)


_Zoom = tuple[int, int, int, int, int, int, int]
"""Root zoom, depth and mask, then the ends of columns and rows within the bounds."""


@dataclass(frozen=True)
class TreeLayout(ArchiveLayout):
    """Tapalcatl 2."""

    layout: Layout
    template: Template
    metadata: TileSetMetadata
    """Metadata of the tileset; zooms and bounds are those of the complete tileset."""

    @property
    def side(self) -> int:  # type: ignore[override]  # that of the layout
        """Root tiles per side of an archive."""
        return self.layout.metatile

    @property
    def pattern(self) -> str:  # type: ignore[override]  # that of the template
        """The template."""
        return self.template.text.removeprefix("./")

    def root_zoom(self, z: int) -> int | None:
        """The zoom of the archives that hold tiles of a zoom; None above the first archives."""
        return self.layout.root_zoom(z)

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """Archive and entry of a tile inside zooms and bounds; a `size` raises."""
        if size is not None:
            raise _no_size(size)
        zoom = (self._zooms[z] or self._zoom(z)) if 0 <= z <= MAX_ZOOM else None
        if zoom is None:
            return None
        root, depth, mask, west, east, north, south = zoom
        if not (west <= x < east and north <= y < south):
            return None
        return (root, x >> depth & mask, y >> depth & mask), (z, x, y)

    @cached_property
    def _zooms(self) -> list[_Zoom | None]:
        """Results of `_zoom` so far."""
        return [None] * (MAX_ZOOM + 1)

    def _zoom(self, z: int) -> _Zoom | None:
        said, root, whole = self.metadata, self.layout.root_zoom(z), range(1 << z)
        last = MAX_ZOOM if said.max_zoom is None else said.max_zoom
        if root is None or not (said.min_zoom or 0) <= z <= last:
            return None
        columns, rows = (whole, whole) if said.bounds is None else tile_range(said.bounds, z)
        ends = columns.start, columns.stop, rows.start, rows.stop
        self._zooms[z] = root, z - root, -self.layout.metatile, *ends
        return self._zooms[z]

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        found = self.layout.archives(*keys)
        if len(found[0]) and found[0].min() < 0:
            raise InvalidInputError(
                "tiles lie above the first materialized zoom",
                found=f"zoom {keys[0].min()}",
                expected=f"zoom {self.layout.materialized_zooms[0]} or deeper",
                hint="lay the tileset out anew by remetatile(), with materialized zooms from there",
            )
        return found

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` values of the archives of some tiles, -1 above the first archives."""
        z, x, y = self.layout.archives(*keys)
        there = z >= 0
        return np.where(there, order_of(*(np.where(there, part, 0) for part in (z, x, y))), -1)

    def reach(self, root: int) -> int:
        """How many zooms archives with roots of this zoom reach below them, at most."""
        last = MAX_ZOOM if self.metadata.max_zoom is None else self.metadata.max_zoom
        return max(self.layout.last_zoom(root, last) - root, 0)

    def path(self, archive: Tile) -> str:
        """The path of an archive, relative to the tileset."""
        return self.template.address(archive)

    def levels(self, said: TileSetMetadata) -> Iterator[tuple[int, int, int]]:
        """As `ArchiveLayout.levels`: the materialized zooms."""
        first, last = said.min_zoom or 0, said.max_zoom
        for zoom in self.layout.materialized_zooms:
            end = self.layout.last_zoom(zoom, zoom if last is None else last)
            if first <= end and (last is None or zoom <= last):
                yield zoom, max(first - zoom, 0), min(self.side, 1 << zoom)

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
        found = _comments_of_zoom(self._narrowed(archives[0], formats), archives)
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
    """Tapalcatl 1: archives of metatiles, without metadata inside."""

    settings: Generation1

    @property
    def pattern(self) -> str:  # type: ignore[override]  # that of the settings
        """The layout of keys."""
        return self.settings.template

    @cached_property
    def _depths(self) -> Int64s:
        """For each zoom, the level of its tiles within their metatile."""
        places = (self.settings.place(zoom, 0, 0) for zoom in range(MAX_ZOOM + 1))
        return np.array([place.offset[0] for place in places], np.int64)

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """Archive and entry of a tile of `size` pixels, by default the size in the settings."""
        settings = self.settings
        if not settings.min_zoom <= z <= settings.max_zoom:
            return None
        count = 1 << z
        if not (0 <= x < count and 0 <= y < count):
            return None
        return settings.place(z, x, y, size)

    def root_zoom(self, z: int) -> int:
        """The zoom of the metatiles of a zoom."""
        return self.settings.place(z, 0, 0).metatile[0]

    def tiles(self, archive: Tile, keys: Int64s) -> tuple[Int64s, Keys]:
        """Rows of the `keys` of a metatile with tiles of the configured size, and their tiles."""
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

    def inside(self, keys: Keys, owners: Int64s) -> Keys:
        """Tiles as named in entries of archives: relative to the metatile."""
        root, x, y = tiles_in(owners)
        z = keys[0] - root
        return z, keys[1] - (x << z), keys[2] - (y << z)

    def reach(self, root: int) -> int:  # noqa: ARG002 - the other one needs it
        """How many zooms archives with roots of this zoom reach below them, at most."""
        return self.settings.levels

    def path(self, archive: Tile) -> str:
        """The key of a metatile."""
        return self.settings.key(archive)

    def levels(self, said: TileSetMetadata) -> Iterator[tuple[int, int, int]]:
        """As `ArchiveLayout.levels`: every zoom that has metatiles."""
        delta = self.settings.delta(self.settings.tile_size)
        stop = max((said.max_zoom or 0) - delta, 0)
        last = min(stop, self.settings.max_detail_zoom or stop)
        yield from ((zoom, 0, 1) for zoom in range(max((said.min_zoom or 0) - delta, 0), last + 1))

    def leads_to(self, said: TileSetMetadata) -> Callable[[Tile], bool]:  # noqa: ARG002
        """Accepts any tile; the depth of the tree is unknown."""
        return lambda tile: max(tile[1:]) < 1 << tile[0]


@dataclass(frozen=True)
class SingleLayout(TreeLayout):
    """Tapalcatl 2 in one archive."""

    name: str = ""
    """The name of its file."""

    def path(self, archive: Tile) -> str:  # noqa: ARG002 - there is but one
        """The name of the file."""
        return self.name

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """The complete metadata as a comment, and the keys that did not fit."""
        return trimmed_comment(self._narrowed(archive, formats))

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment`."""
        return ArchiveLayout.comments(self, archives, formats)

    def of_suffixes(self, suffixes: Iterable[str]) -> SingleLayout:
        """The same with the scales of the tiles, which no document declares."""
        low, high = scales_of(suffixes)
        return replace(self, metadata=replace(self.metadata, min_scale=low, max_scale=high))

    def _narrowed(self, archive: Tile, formats: Mapping[str, Headers]) -> ArchiveMetadata:
        whole = self.metadata
        return replace(
            super()._narrowed(archive, formats),
            min_zoom=whole.min_zoom,
            max_zoom=whole.max_zoom,
            bounds=whole.bounds,
        )


class InArchive(ArchiveLayout):
    """A single archive opened for reading: only its directory says which tiles exist."""

    def root_zoom(self, z: int) -> int:  # noqa: ARG002 - there is but one
        """The zoom under which the archive is cached."""
        return 0

    def find(self, z: int, x: int, y: int, size: int | None = None) -> Spot | None:
        """Archive and entry of a tile; a `size` raises."""
        if size is not None:
            raise _no_size(size)
        count = 1 << z if 0 <= z <= MAX_ZOOM else 0
        if not (0 <= x < count and 0 <= y < count):
            return None
        return (0, 0, 0), (z, x, y)


def _no_size(size: int) -> InvalidInputError:
    return InvalidInputError(
        "tiles of Tapalcatl 2 have no size in pixels", found=size, hint="ask for a scale"
    )


def smallest_metatile(keys: Iterator[Keys], root: int) -> int:
    """Root tiles per side of the smallest archive at `root` that holds all deeper tiles."""
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
    # Columns with the same bits above some bit are in one aligned square of that side.
    return 1 << max(int(bits).bit_length() for bits in low ^ high)


_BOUNDS: Final = "\0bounds"
_ROOT: Final = "\0root"


def _comments_of_zoom(said: ArchiveMetadata, archives: Sequence[Tile]) -> list[bytes] | None:
    """Comments of archives of one zoom; `said` is the metadata of one of them.

    None if a text of the metadata looks like a mark, so that comments must be made one by one.
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


def trimmed_comment(said: ArchiveMetadata) -> Comment:
    """The comment of a single archive, and the keys that had to be left out.

    No document repeats what is left out here, so as few keys as possible are dropped: the longest
    unknown keys first, until the rest fits into 65 535 bytes.
    """
    kept = dict(said.extra)
    cut = []
    left = len(ascii_line(archive_document(said))) - MAX_COMMENT
    # With colon and comma.
    sizes = [(len(ascii_line(key)) + len(ascii_line(kept[key])) + 2, key) for key in kept]
    for size, key in sorted(sizes, reverse=True):
        if left <= 0:
            break
        del kept[key]
        cut.append(key)
        left -= size
    data, more = archive_comment(replace(said, extra=kept))
    return data, (*cut, *more)


def _texts(
    places: set[int], tile: Callable[[int], Tile], metatile: int, sides: tuple[int, int]
) -> dict[int, tuple[bytes, bytes]]:
    """Two sides of the bounds of archives as JSON, which depend only on column or row."""
    found = {}
    for place in places:
        bounds = archive_bounds(tile(place), metatile)
        low, high = (repr(bounds[side]).encode() for side in sides)
        found[place] = (low, high)
    return found
