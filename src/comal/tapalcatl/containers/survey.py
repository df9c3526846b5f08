"""One look over all tiles of a source, and its tiles as containers take them.

Which archives and squares there are, and where they end: memory grows with archives and squares,
not with tiles. A container is opened by a context manager that yields a `TileSink`; what is missing
when all tiles are there is written at the end of its block.
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
"""Tiles of a group per side at its deepest zoom: some 1 365 in all."""
Said = TypeVar("Said", TileSetMetadata, ArchiveMetadata)
Extents = Mapping[int, Extent]
"""That of each zoom with tiles."""


@dataclass(frozen=True)
class Survey:
    """What a source holds: archives in groups, and the squares in which groups are read.

    A group is a square of neighbouring archives that are small enough to be written together, most
    often just one.
    """

    layout: ArchiveLayout
    archives: Int64s
    """`order_of` each archive, by group; shape (n,)."""
    counts: Int64s
    """Tiles of each as the source lists them; shape (n,)."""
    archive_starts: Int64s
    """Where the archives of each group begin; shape (groups + 1,)."""
    squares: Int64s
    """`order_of` the first tile of each square, by group and then ascending; shape (m,)."""
    square_starts: Int64s
    """Where the squares of each group begin; shape (groups + 1,)."""
    extents: Extents
    tiles: int

    @property
    def groups(self) -> int:
        """How many groups there are."""
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
        """Metadata with the zooms that occur, and with bounds that hide no tile."""
        return replace(
            said,
            min_zoom=min(self.extents),
            max_zoom=max(self.extents),
            bounds=bounds_of(self.extents, said.bounds),
        )


_TOGETHER: Final = TreeLayout(Layout(), Template("{z}/{x}/{y}.zip"), TileSetMetadata())
"""All tiles in one archive."""


def survey(source: TileSource, layout: ArchiveLayout = _TOGETHER) -> Survey:
    """Look over all tiles of a source; memory grows with archives and squares only."""
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
    """Root tiles of a group per side: its deepest zoom is `GROUP` tiles wide, if it can."""
    table = np.ones(MAX_ZOOM + 1, np.int64)
    for root in np.unique(roots).tolist():
        table[root] = min(max(layout.side, GROUP >> layout.reach(root)), 1 << root)
    sides: Int64s = table[roots]
    return sides


def _square_side(z: Int64s, roots: Int64s, layout: ArchiveLayout) -> Int64s:
    """Sides of the squares of tiles; `roots` are the zooms at which their archives begin."""
    sides: Int64s = np.minimum(_group_side(roots, layout) << (z - roots), SIDE)
    return sides


def _groups_of(archives: Keys, layout: ArchiveLayout) -> Int64s:
    z, x, y = archives
    masks = -_group_side(z, layout)
    return order_of(z, x & masks, y & masks)


def _starts(ordered: Int64s, groups: Int64s) -> Int64s:
    return np.append(np.searchsorted(ordered, groups), len(ordered))


class Distinct:
    """Different integers of many blocks, and how often each was met."""

    def __init__(self) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._held = 0

    def add(self, values: Int64s) -> None:
        """Take a block."""
        distinct, counts = np.unique(values, return_counts=True)
        self._parts.append((distinct, counts.astype(np.int64)))
        self._held += len(distinct)
        if len(self._parts) > 1 and self._held > 2 * max(len(self._parts[0][0]), 1 << 20):
            self._merge()

    def result(self) -> tuple[Int64s, Int64s]:
        """The integers, ascending, and how often each was met."""
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
    """Let extents take in some tiles."""
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
    """The box of what a source says, or of its deepest zoom, widened where tiles lie outside.

    Readers answer "no tile" outside of the bounds: a box that misses a tile hides it. West > east
    in `said` is taken for the whole circle.
    """
    if not extents:
        return WORLD if said is None else said
    box = _box(max(extents), extents[max(extents)]) if said is None else _ordered(said)
    for zoom, extent in extents.items():
        if not covers(box, zoom, extent):
            box = union(box, _box(zoom, extent))
    return box


def grown(said: Said, extents: Extents) -> Said:
    """Metadata whose zooms and bounds hide none of some tiles.

    An archive that does not say where it is goes on to say nothing of it.
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
    """Metadata whose scales take in those of some tiles."""
    scales: list[float] = [split_suffix(suffix)[0] for suffix in suffixes]
    return replace(
        said, min_scale=min([said.min_scale, *scales]), max_scale=max([said.max_scale, *scales])
    )


def _ordered(box: Bounds) -> Bounds:
    west, south, east, north = box
    return (-180.0, south, 180.0, north) if west > east else box


def _box(zoom: int, extent: Extent) -> Bounds:
    west, _, _, north = tile_bounds(zoom, extent[0], extent[1])
    _, south, east, _ = tile_bounds(zoom, extent[2], extent[3])
    return west, south, east, north


TileSink = Callable[[Tiles], None]
"""Takes tiles, nothing compressed but what belongs to them."""
Order = Callable[[Keys], Int64s]
"""A number for each tile, such that those of a square follow each other."""


def plain_tiles(
    source: TileSource,
    found: Survey,
    choice: Choice,
    progress: Progress,
    order: Order | None = None,
) -> Iterator[Tiles]:
    """All tiles, square by square, nothing compressed but what belongs to the tile."""
    squares = found.squares_of(0)
    if order is not None:
        # Squares are stretches of the curve: any of its tiles tells where one stands.
        places = order(tiles_in(found.squares))
        squares = [squares[row] for row in np.argsort(places, kind="stable").tolist()]
    done = 0
    for tiles in source.gather(squares):
        done += len(tiles)
        chosen = _decoded(choice.of(tiles, source.hint), source.label)
        if order is not None:
            chosen = chosen.take(np.argsort(order(chosen.keys), kind="stable"))
        yield chosen
        progress(min(done, found.tiles), found.tiles, "writing tiles")
    source.verify()


class Choice:
    """The one kind of tile that a format holds; `every` leaves all of them in."""

    def __init__(
        self, ext: str | None = None, scale: float | None = None, *, every: bool = False
    ) -> None:
        self._ext, self._scale, self._every = ext, scale, every
        self.suffix: str | None = None
        """The suffix that was chosen, once a tile was met."""
        self.exts: set[str] = set()
        """Extensions of the tiles that were met."""
        self.gzipped: set[bool] = set()
        """Whether tiles are gzip: both, once some are and some are not."""

    @property
    def ext(self) -> str:
        """The extension of the tiles that were met, if all have the same."""
        return next(iter(self.exts)) if len(self.exts) == 1 else ""

    def of(self, tiles: Tiles, hint: str | None) -> Tiles:
        """Those of the tiles that were chosen, with names."""
        kinds = kinds_of(tiles.payloads)
        if tiles.suffix is None:
            # Names without extensions: one kind, whatever single tiles are.
            self.suffix = self.suffix or suffix_of(1, self._ext or extension(int(kinds[0]), hint))
            named = replace(tiles, suffix=np.zeros(len(tiles), np.int32), suffixes=(self.suffix,))
            self.gzipped.update(gzipped(kinds).tolist())
            self.exts.add(split_suffix(self.suffix)[1])
            return named
        fits = [self._fits(suffix) for suffix in tiles.suffixes]
        rows = np.flatnonzero(np.array(fits, np.bool_)[tiles.suffix])
        met = [tiles.suffixes[code] for code in np.unique(tiles.suffix[rows]).tolist()]
        self.exts.update(split_suffix(suffix)[1] for suffix in met)
        if not self._every:
            for suffix in met:
                self.suffix = suffix if self.suffix is None else self.suffix
                if suffix != self.suffix:
                    raise InvalidInputError(
                        "several kinds of tiles",
                        found=f"{self.suffix or 'no extension'} and {suffix or 'none'}",
                        hint="say which: ext= and scale=",
                    )
        stored = np.ones(len(tiles), np.bool_) if tiles.methods is None else tiles.methods == STORE
        self.gzipped.update(gzipped(kinds)[rows[stored[rows]]].tolist())
        return tiles.take(rows)

    def _fits(self, suffix: str) -> bool:
        scale, ext = split_suffix(suffix)
        return self._ext in {None, ext} and self._scale in {None, scale}


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
