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
from comal.limits import DEFAULT_LIMITS, Limits
from comal.progress import Progress
from comal.tapalcatl.addressing import Extent, covers, tile_bounds, union
from comal.tapalcatl.containers.base import SIDE, Square, Tiles, TileSource, no_tiles
from comal.tapalcatl.containers.content import extension, gzipped, kinds_of
from comal.tapalcatl.layout import ArchiveLayout
from comal.tapalcatl.spec import MAX_ZOOM, WORLD, ArchiveMetadata, Bounds, TileSetMetadata
from comal.tapalcatl.wire import Int64s, Keys, order_of, split_suffix, suffix_of, tiles_in
from comal.ziparchive import STORE, extracted

GROUP: Final = 32
"""Tiles of a group per side at its deepest zoom: some 1 365 in all."""
Said = TypeVar("Said", TileSetMetadata, ArchiveMetadata)
Extents = Mapping[int, Extent]
"""That of each zoom with tiles."""


@dataclass(frozen=True)
class Dealt:
    """A pyramid dealt out: archives in groups, and the squares in which groups are read.

    A group is a square of neighbouring archives that are small enough to be written together, most
    often just one.
    """

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

    def squares_of(self, group: int, arrangement: ArchiveLayout) -> list[Square]:
        """The squares of a group, by zoom and Morton code."""
        squares = self.squares[self.square_starts[group] : self.square_starts[group + 1]]
        sides = side_of(squares, arrangement).tolist()
        columns = (column.tolist() for column in tiles_in(squares))
        return [Square(*one) for one in zip(*columns, sides, strict=True)]

    def rows_of(self, group: int) -> range:
        """The archives of a group."""
        return range(int(self.archive_starts[group]), int(self.archive_starts[group + 1]))


def dealt(keys: Iterator[Keys], arrangement: ArchiveLayout) -> Dealt:
    """Deal out all tiles of a source; memory grows with archives and squares only."""
    squares, archives = Distinct(), Distinct(counting=True)
    extents: dict[int, Extent] = {}
    for z, x, y in _looked_over(keys, extents):
        owners = arrangement.archives((z, x, y))
        archives.add(order_of(*owners))
        sides = group_side(owners[0], arrangement) << (z - owners[0])
        masks = -np.minimum(sides, SIDE)
        squares.add(order_of(z, x & masks, y & masks))
    found, counts = archives.result()
    ordered, _ = squares.result()
    archive_groups = _groups_of(tiles_in(found), arrangement)
    square_groups = _groups_of(arrangement.archives(tiles_in(ordered)), arrangement)
    by_archive = np.argsort(archive_groups, kind="stable")
    by_square = np.argsort(square_groups, kind="stable")
    groups = np.unique(archive_groups)
    return Dealt(
        archives=found[by_archive],
        counts=counts[by_archive],
        archive_starts=_starts(archive_groups[by_archive], groups),
        squares=ordered[by_square],
        square_starts=_starts(square_groups[by_square], groups),
        extents=dict(sorted(extents.items())),
        tiles=int(counts.sum()),
    )


def _looked_over(keys: Iterator[Keys], extents: MutableMapping[int, Extent]) -> Iterator[Keys]:
    """Blocks that hold tiles; extents take them in."""
    for block in keys:
        if len(block[0]):
            widen(extents, block)
            yield block


def group_side(roots: Int64s, arrangement: ArchiveLayout) -> Int64s:
    """Root tiles of a group per side: its deepest zoom is `GROUP` tiles wide, if it can."""
    table = np.ones(MAX_ZOOM + 1, np.int64)
    for root in np.unique(roots).tolist():
        wanted = max(arrangement.side, GROUP >> arrangement.reach(root))
        table[root] = min(wanted, 1 << root)
    sides: Int64s = table[roots]
    return sides


def side_of(squares: Int64s, arrangement: ArchiveLayout) -> Int64s:
    """Sides of squares by their first tiles."""
    keys = tiles_in(squares)
    roots = arrangement.archives(keys)[0]
    sides: Int64s = np.minimum(group_side(roots, arrangement) << (keys[0] - roots), SIDE)
    return sides


def _groups_of(archives: Keys, arrangement: ArchiveLayout) -> Int64s:
    z, x, y = archives
    masks = -group_side(z, arrangement)
    return order_of(z, x & masks, y & masks)


def _starts(ordered: Int64s, groups: Int64s) -> Int64s:
    return np.append(np.searchsorted(ordered, groups), len(ordered))


class Distinct:
    """Different integers of many blocks, and how often each was met."""

    def __init__(self, *, counting: bool = False) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._held = 0
        self._counting = counting

    def add(self, values: Int64s) -> None:
        """Take a block."""
        distinct, counts = np.unique(values, return_counts=True)
        self._parts.append((distinct, counts.astype(np.int64)))
        self._held += len(distinct)
        if len(self._parts) > 1 and self._held > 2 * max(len(self._parts[0][0]), 1 << 20):
            self._merge()

    def result(self) -> tuple[Int64s, Int64s]:
        """The integers, ascending, and how often each was met where that is counted."""
        self._merge()
        return self._parts[0]

    def _merge(self) -> None:
        if not self._parts:
            self._parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        values = np.concatenate([part[0] for part in self._parts])
        distinct, which = np.unique(values, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        if self._counting:
            np.add.at(counts, which, np.concatenate([part[1] for part in self._parts]))
        self._parts = [(distinct, counts)]
        self._held = len(distinct)


@dataclass(frozen=True)
class Pyramid:
    """What a source holds, before its tiles are read."""

    source: TileSource
    squares: Int64s
    """`order_of` the first tile of each square that has tiles, ascending."""
    extents: Extents
    tiles: int

    @property
    def min_zoom(self) -> int:
        """The first zoom that occurs."""
        return min(self.extents)

    @property
    def max_zoom(self) -> int:
        """The last zoom that occurs."""
        return max(self.extents)

    @property
    def bounds(self) -> Bounds:
        """What the source says, widened where that would hide tiles."""
        return bounds_of(self.extents, self.source.metadata.bounds)

    @property
    def metadata(self) -> TileSetMetadata:
        """What the source says, with the zooms and bounds that hold."""
        return replace(
            self.source.metadata, min_zoom=self.min_zoom, max_zoom=self.max_zoom, bounds=self.bounds
        )


def pyramid(source: TileSource) -> Pyramid:
    """Look over a source."""
    found = Distinct()
    extents: dict[int, Extent] = {}
    total = 0
    for z, x, y in _looked_over(source.keys(), extents):
        total += len(z)
        masks = -np.minimum(SIDE, np.int64(1) << z)
        found.add(order_of(z, x & masks, y & masks))
    if not total:
        raise no_tiles(source)
    squares, _ = found.result()
    return Pyramid(source, squares, dict(sorted(extents.items())), total)


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
    found: Pyramid,
    choice: Choice,
    progress: Progress,
    order: Order | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Tiles]:
    """All tiles, square by square, nothing compressed but what belongs to the tile."""
    squares = found.squares
    if order is not None:
        # Squares are stretches of the curve: any of its tiles tells where one stands.
        squares = squares[np.argsort(order(tiles_in(squares)), kind="stable")]
    keys = zip(*(column.tolist() for column in tiles_in(squares)), strict=True)
    wanted = [Square(z, x, y, min(SIDE, 1 << z)) for z, x, y in keys]
    done = 0
    for tiles in found.source.gather(wanted):
        done += len(tiles)
        chosen = _decoded(choice.of(tiles, found.source.hint), found.source.label, limits)
        if order is not None:
            chosen = chosen.take(np.argsort(order((chosen.z, chosen.x, chosen.y)), kind="stable"))
        yield chosen
        progress(min(done, found.tiles), found.tiles, "writing tiles")
    found.source.verify()


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


def _decoded(tiles: Tiles, where: str, limits: Limits) -> Tiles:
    if tiles.methods is None or not (tiles.methods != STORE).any():
        return tiles
    assert tiles.sizes is not None
    assert tiles.crcs is not None
    columns = (tiles.methods.tolist(), tiles.sizes.tolist(), tiles.crcs.tolist())
    payloads = []
    for payload, method, size, crc in zip(tiles.payloads, *columns, strict=True):
        limits.check("tile_bytes", size, where)
        payloads.append(extracted(payload, method=method, size=size, crc=crc, where=where))
    return replace(tiles, payloads=payloads, methods=None, sizes=None)
