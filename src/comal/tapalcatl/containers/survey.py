"""Surveys all tiles of a source in one pass, and reads them in the form that containers write.

A survey finds archives, squares and extents: memory grows with archives and squares, not with
tiles. A container is written by a context manager that yields a `TileSink`; indexes and metadata
are written at the end of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from comal.errors import InvalidInputError
from comal.limits import DEFAULT_LIMITS
from comal.progress import Progress
from comal.tapalcatl.addressing import Extent, covers, tile_bounds, union
from comal.tapalcatl.containers.base import SIDE, Square, Tiles, TileSource
from comal.tapalcatl.containers.content import extension, gzipped, kinds_of
from comal.tapalcatl.layout import ArchiveLayout, Layout, Template, TreeLayout
from comal.tapalcatl.spec import MAX_ZOOM, WORLD, ArchiveMetadata, Bounds, TileSetMetadata
from comal.tapalcatl.wire import Int64s, Keys, order_of, split_suffix, suffix_of, tiles_in
from comal.ziparchive import STORE, extracted

GROUP: Final = 32
"""Tiles per side of a group at its deepest zoom: some 1 365 in all."""
Said = TypeVar("Said", TileSetMetadata, ArchiveMetadata)
Extents = Mapping[int, Extent]
"""Extent of each zoom with tiles."""


@dataclass(frozen=True)
class Survey:
    """The content of a source: archives in groups, and the squares in which groups are read.

    A group is a square of neighbouring archives that are small enough to be written together,
    usually just one.
    """

    layout: ArchiveLayout
    archives: Int64s
    """`order_of` value of each archive, by group; shape (n,)."""
    counts: Int64s
    """Number of tiles of each archive as the source lists them; shape (n,)."""
    archive_starts: Int64s
    """Index into `archives` where each group begins; shape (groups + 1,)."""
    squares: Int64s
    """`order_of` value of each square's first tile, by group, ascending; shape (m,)."""
    square_starts: Int64s
    """Index into `squares` where each group begins; shape (groups + 1,)."""
    extents: Extents
    tiles: int

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.square_starts) - 1

    def squares_of(self, group: int) -> list[Square]:
        """The squares of a group, by zoom and Morton code."""
        squares = self.squares[self.square_starts[group] : self.square_starts[group + 1]]
        keys = tiles_in(squares)
        roots = self.layout.archives(keys)[0]
        sides = _square_side(keys[0], roots, self.layout)
        columns = (column.tolist() for column in (*keys, sides))
        return [Square(*one) for one in zip(*columns, strict=True)]

    def rows_of(self, group: int) -> range:
        """The archives of a group."""
        return range(int(self.archive_starts[group]), int(self.archive_starts[group + 1]))

    def described(self, said: TileSetMetadata) -> TileSetMetadata:
        """Metadata with the zooms that occur, and with bounds that cover all tiles."""
        return _described(said, self.extents)


def _described(said: TileSetMetadata, extents: Extents) -> TileSetMetadata:
    bounds = bounds_of(extents, said.bounds)
    return replace(said, min_zoom=min(extents), max_zoom=max(extents), bounds=bounds)


_TOGETHER: Final = TreeLayout(Layout(), Template("{z}/{x}/{y}.zip"), TileSetMetadata())
"""All tiles in one archive."""


def survey(source: TileSource, layout: ArchiveLayout = _TOGETHER) -> Survey:
    """Survey all tiles of a source; memory grows only with archives and squares."""
    squares, archives = Distinct(), Distinct()
    extents: dict[int, Extent] = {}
    for z, x, y in source.keys():  # noqa: SIM118 - no mapping
        if not len(z):
            continue
        widen(extents, (z, x, y))
        owners = layout.archives((z, x, y))
        archives.add(order_of(*owners))
        masks = -_square_side(z, owners[0], layout)
        squares.add(order_of(z, x & masks, y & masks))
    found, counts = archives.result()
    ordered, _ = squares.result()
    archive_groups = _groups_of(tiles_in(found), layout)
    square_groups = _groups_of(layout.archives(tiles_in(ordered)), layout)
    by_archive = np.argsort(archive_groups, kind="stable")
    by_square = np.argsort(square_groups, kind="stable")
    groups = np.unique(archive_groups)
    return Survey(
        layout=layout,
        archives=found[by_archive],
        counts=counts[by_archive],
        archive_starts=_starts(archive_groups[by_archive], groups),
        squares=ordered[by_square],
        square_starts=_starts(square_groups[by_square], groups),
        extents=dict(sorted(extents.items())),
        tiles=int(counts.sum()),
    )


def _group_side(roots: Int64s, layout: ArchiveLayout) -> Int64s:
    """Root tiles per side of a group: its deepest zoom is `GROUP` tiles wide if possible."""
    table = np.ones(MAX_ZOOM + 1, np.int64)
    for root in np.unique(roots).tolist():
        table[root] = min(max(layout.side, GROUP >> layout.reach(root)), 1 << root)
    sides: Int64s = table[roots]
    return sides


def _square_side(z: Int64s, roots: Int64s, layout: ArchiveLayout) -> Int64s:
    """Sides of the squares that tiles are in; `roots` are the root zooms of their archives."""
    sides: Int64s = np.minimum(_group_side(roots, layout) << (z - roots), SIDE)
    return sides


def _groups_of(archives: Keys, layout: ArchiveLayout) -> Int64s:
    z, x, y = archives
    masks = -_group_side(z, layout)
    return order_of(z, x & masks, y & masks)


def _starts(ordered: Int64s, groups: Int64s) -> Int64s:
    return np.append(np.searchsorted(ordered, groups), len(ordered))


class Distinct:
    """Distinct integers of many blocks, with their counts."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._held = 0

    def add(self, values: Int64s) -> None:
        """Add a block."""
        distinct, counts = np.unique(values, return_counts=True)
        self._parts.append((distinct, counts.astype(np.int64)))
        self._held += len(distinct)
        if len(self._parts) > 1 and self._held > 2 * max(len(self._parts[0][0]), 1 << 20):
            self._merge()

    def result(self) -> tuple[Int64s, Int64s]:
        """The distinct integers, ascending, and the count of each."""
        self._merge()
        return self._parts[0]

    def _merge(self) -> None:
        if not self._parts:
            self._parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        values = np.concatenate([part[0] for part in self._parts])
        distinct, which = np.unique(values, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        np.add.at(counts, which, np.concatenate([part[1] for part in self._parts]))
        self._parts = [(distinct, counts)]
        self._held = len(distinct)


def widen(extents: MutableMapping[int, Extent], keys: Keys) -> None:
    """Widen extents to include some tiles."""
    z, x, y = keys
    for zoom in np.unique(z).tolist():
        rows = z == zoom
        columns, lines = x[rows], y[rows]
        first, top, last, low = extents.get(zoom, (1 << zoom, 1 << zoom, 0, 0))
        extents[zoom] = (
            min(first, int(columns.min())),
            min(top, int(lines.min())),
            max(last, int(columns.max())),
            max(low, int(lines.max())),
        )


def extents_of(keys: Keys) -> dict[int, Extent]:
    """The extents of some tiles."""
    found: dict[int, Extent] = {}
    widen(found, keys)
    return found


def bounds_of(extents: Extents, said: Bounds | None) -> Bounds:
    """The declared bounds, or those of the deepest zoom, widened to cover all tiles.

    Readers answer "no tile" outside of the bounds: a box that misses a tile hides it. If west >
    east in `said`, the box spans all longitudes.
    """
    if not extents:
        return WORLD if said is None else said
    box = _box(max(extents), extents[max(extents)]) if said is None else said
    if box[0] > box[2]:
        box = -180.0, box[1], 180.0, box[3]
    for zoom, extent in extents.items():
        if not covers(box, zoom, extent):
            box = union(box, _box(zoom, extent))
    return box


def grown(said: Said, extents: Extents) -> Said:
    """Metadata with zooms and bounds widened to include some tiles.

    An archive without bounds stays without bounds.
    """
    if not extents:
        return said
    low, high = said.min_zoom, said.max_zoom
    nowhere = said.bounds is None and isinstance(said, ArchiveMetadata)
    return replace(
        said,
        min_zoom=min(extents) if low is None else min(low, *extents),
        max_zoom=max(extents) if high is None else max(high, *extents),
        bounds=None if nowhere else bounds_of(extents, said.bounds),
    )


def scaled(said: Said, suffixes: Iterable[str]) -> Said:
    """Metadata with scales widened to include those of some tiles."""
    scales: list[float] = [split_suffix(suffix)[0] for suffix in suffixes]
    return replace(
        said, min_scale=min([said.min_scale, *scales]), max_scale=max([said.max_scale, *scales])
    )


def _box(zoom: int, extent: Extent) -> Bounds:
    west, _, _, north = tile_bounds(zoom, extent[0], extent[1])
    _, south, east, _ = tile_bounds(zoom, extent[2], extent[3])
    return west, south, east, north


TileSink = Callable[[Tiles], None]
"""Writes tiles, which have no compression except the tile's own."""
Order = Callable[[Keys], Int64s]
"""Sort key of tiles that keeps the tiles of a square together."""


def plain_tiles(
    source: TileSource,
    found: Survey,
    choice: Choice,
    progress: Progress,
    order: Order | None = None,
) -> Iterator[Tiles]:
    """All tiles, square by square, without compression except the tile's own."""
    squares = found.squares_of(0)
    if order is not None:
        # A square is one stretch of the curve: the key of any of its tiles sorts it.
        places = order(tiles_in(found.squares))
        squares = [squares[row] for row in np.argsort(places, kind="stable").tolist()]
    done = 0
    for tiles in source.gather(squares):
        done += len(tiles)
        chosen = _decoded(choice.of(tiles, source.hint), source.label)
        choice.note(chosen)
        if order is not None:
            chosen = chosen.take(np.argsort(order(chosen.keys), kind="stable"))
        yield chosen
        progress(min(done, found.tiles), found.tiles, "writing tiles")
    source.verify()


class Choice:
    """Selects the one kind of tile that a format can hold; `every` keeps all kinds."""

    def __init__(
        self, ext: str | None = None, scale: float | None = None, *, every: bool = False
    ) -> None:
        self._ext, self._scale, self._every = ext, scale, every
        self.suffix: str | None = None
        """The chosen suffix; None until the first tile."""
        self.exts: set[str] = set()
        """Extensions of the tiles so far."""
        self.gzipped: set[bool] = set()
        """Whether the tiles so far are gzip: holds both values if they differ."""
        self.extents: dict[int, Extent] = {}
        """Extents of the tiles so far."""

    @property
    def ext(self) -> str:
        """The extension of the tiles so far if all share one, else empty."""
        return next(iter(self.exts)) if len(self.exts) == 1 else ""

    def of(self, tiles: Tiles, hint: str | None) -> Tiles:
        """The chosen ones of these tiles, with names."""
        if tiles.suffix is None:
            # Names without extensions: all count as one kind, that of the first tile.
            kind = int(kinds_of(tiles.payloads[:1])[0])
            self.suffix = self.suffix or suffix_of(1, self._ext or extension(kind, hint))
            self.exts.add(split_suffix(self.suffix)[1])
            return replace(tiles, suffix=np.zeros(len(tiles), np.int32), suffixes=(self.suffix,))
        kinds = map(split_suffix, tiles.suffixes)
        fits = [self._ext in {None, ext} and self._scale in {None, scale} for scale, ext in kinds]
        rows = np.flatnonzero(np.array(fits, np.bool_)[tiles.suffix])
        met = [tiles.suffixes[code] for code in np.unique(tiles.suffix[rows]).tolist()]
        self.exts.update(split_suffix(suffix)[1] for suffix in met)
        if not self._every:
            for suffix in met:
                self.suffix = suffix if self.suffix is None else self.suffix
                if suffix != self.suffix:
                    raise InvalidInputError(
                        "the source holds several kinds of tiles",
                        found=f"{self.suffix or 'no extension'} and {suffix or 'none'}",
                        hint="choose one by ext= and scale=",
                    )
        return tiles.take(rows)

    def note(self, tiles: Tiles) -> None:
        """Note what the next tiles are, which have no compression but their own."""
        self.gzipped.update(gzipped(kinds_of(tiles.payloads)).tolist())
        widen(self.extents, tiles.keys)

    def described(self, said: TileSetMetadata) -> TileSetMetadata:
        """Metadata with the zooms of the tiles so far, and with bounds that cover them."""
        return _described(said, self.extents)


def _decoded(tiles: Tiles, where: str) -> Tiles:
    if tiles.methods is None or not (tiles.methods != STORE).any():
        return tiles
    assert tiles.sizes is not None
    assert tiles.crcs is not None
    columns = (tiles.methods.tolist(), tiles.sizes.tolist(), tiles.crcs.tolist())
    payloads = []
    for payload, method, size, crc in zip(tiles.payloads, *columns, strict=True):
        DEFAULT_LIMITS.check("tile_bytes", size, where)
        payloads.append(extracted(payload, method=method, size=size, crc=crc, where=where))
    return replace(tiles, payloads=payloads, methods=None, sizes=None)
