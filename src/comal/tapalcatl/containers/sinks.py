"""What tiles are written to: the shape of a sink, and tiles of any source as sinks take them.

A container is opened by a context manager that yields a `TileSink`; what is missing when all tiles
are there is written at the end of its block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from comal.errors import InvalidInputError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.progress import Progress
from comal.tapalcatl.containers.base import SIDE, Square, Tiles
from comal.tapalcatl.containers.content import extension, gzipped, kinds_of
from comal.tapalcatl.containers.survey import Pyramid
from comal.tapalcatl.wire import Int64s, Keys, split_suffix, suffix_of, tiles_in
from comal.ziparchive import STORE, extracted

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
    """All tiles, square by square, nothing compressed but what belongs to the tile.

    Parameters
    ----------
    found
        The source.
    choice
        Which of several formats and scales.
    progress
        Told the tiles done.
    order
        By which tiles come; by zoom and Morton code if None.
    """
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
