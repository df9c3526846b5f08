"""Tiles of any source, as bytes and in an order, for formats that hold one kind of tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from comal.errors import InvalidInputError, ObjectChangedError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.progress import Progress
from comal.tapalcatl.sources.ahead import read_ahead
from comal.tapalcatl.sources.base import SIDE, Int64s, Keys, Square, Tiles, TileSource, no_tiles
from comal.tapalcatl.sources.content import extension, gzipped, kinds_of
from comal.tapalcatl.spec import Bounds, TileSetMetadata
from comal.tapalcatl.wire import split_suffix, suffix_of
from comal.tapalcatl.writing.arranging import Distinct, order_of, tiles_in
from comal.tapalcatl.writing.boxes import bounds_of
from comal.ziparchive import STORE, extracted


@dataclass(frozen=True)
class Pyramid:
    """What a source holds, before its tiles are read."""

    source: TileSource
    squares: Int64s
    """`order_of` the first tile of each square that has tiles, ascending."""
    extents: dict[int, tuple[int, int, int, int]]
    """For each zoom the first and last column and row: (x, y, x, y)."""
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
            self.source.metadata,
            min_zoom=self.min_zoom,
            max_zoom=self.max_zoom,
            bounds=self.bounds,
        )


def pyramid(source: TileSource) -> Pyramid:
    """Look over a source.

    Raises
    ------
    InvalidInputError
        It has no tiles.
    """
    found = Distinct()
    extents: dict[int, tuple[int, int, int, int]] = {}
    total = 0
    for z, x, y in source.keys():  # noqa: SIM118 - no mapping
        if not len(z):
            continue
        total += len(z)
        masks = -np.minimum(SIDE, np.int64(1) << z)
        found.add(order_of(z, x & masks, y & masks))
        for zoom in np.unique(z).tolist():
            rows = z == zoom
            extent = (x[rows].min(), y[rows].min(), x[rows].max(), y[rows].max())
            old = extents.get(zoom, extent)
            ends = [*map(min, extent[:2], old[:2]), *map(max, extent[2:], old[2:])]
            extents[zoom] = (int(ends[0]), int(ends[1]), int(ends[2]), int(ends[3]))
    if not total:
        raise no_tiles(source)
    squares, _ = found.result()
    return Pyramid(source, squares, dict(sorted(extents.items())), total)


def plain_tiles(
    found: Pyramid,
    choice: Choice,
    progress: Progress,
    what: str,
    order: Callable[[Keys], Int64s] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Iterator[Tiles]:
    """All tiles, square by square, nothing compressed but what belongs to the tile.

    Parameters
    ----------
    found
        The source.
    choice
        Which of several formats and scales.
    progress, what
        Told the tiles done, and what is done.
    order
        A number for each tile, such that those of a square follow each other; tiles come by it.
        By zoom and Morton code if None.
    """
    squares = found.squares
    if order is not None:
        # Squares are stretches of the curve: any of its tiles tells where one stands.
        squares = squares[np.argsort(order(tiles_in(squares)), kind="stable")]
    keys = zip(*(column.tolist() for column in tiles_in(squares)), strict=True)
    wanted = [Square(z, x, y, min(SIDE, 1 << z)) for z, x, y in keys]
    done = 0
    for square, tiles in zip(wanted, read_ahead(found.source.read, wanted), strict=True):
        if not len(tiles):
            raise ObjectChangedError(
                "tiles are gone that were there a moment ago",
                where=f"{found.source.label}, {square.z}/{square.x}/{square.y}",
            )
        done += len(tiles)
        chosen = _decoded(choice.of(tiles, found.source.hint), found.source.label, limits)
        if order is not None:
            chosen = chosen.take(np.argsort(order((chosen.z, chosen.x, chosen.y)), kind="stable"))
        yield chosen
        progress(min(done, found.tiles), found.tiles, what)
    found.source.verify()


class Choice:
    """The one kind of tile that a format holds; `every` leaves all of them in."""

    def __init__(
        self, ext: str | None = None, scale: float | None = None, *, every: bool = False
    ) -> None:
        self._ext, self._scale, self._every = ext, scale, every
        self.suffix: str | None = None
        """The suffix that was chosen, once a tile was met."""
        self.gzipped: set[bool] = set()
        """Whether tiles are gzip: both, once some are and some are not."""

    @property
    def ext(self) -> str:
        """The extension of the tiles that were met."""
        return split_suffix(self.suffix or "")[1]

    def of(self, tiles: Tiles, hint: str | None) -> Tiles:
        """Those of the tiles that were chosen, with names.

        Raises
        ------
        InvalidInputError
            There are several kinds and none was chosen.
        """
        kinds = kinds_of(tiles.payloads)
        if tiles.suffix is None:
            # Names without extensions: one kind, whatever single tiles are.
            self.suffix = self.suffix or suffix_of(1, self._ext or extension(int(kinds[0]), hint))
            named = replace(tiles, suffix=np.zeros(len(tiles), np.int32), suffixes=(self.suffix,))
            self.gzipped.update(gzipped(kinds).tolist())
            return named
        fits = [self._fits(suffix) for suffix in tiles.suffixes]
        rows = np.flatnonzero(np.array(fits, np.bool_)[tiles.suffix])
        met = [tiles.suffixes[code] for code in np.unique(tiles.suffix[rows]).tolist()]
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
