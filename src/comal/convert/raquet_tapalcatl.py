"""RaQuet to Tapalcatl: a raster drawn once as PNG tiles, for maps that compute nothing."""

from __future__ import annotations

import math
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import raquet, tapalcatl
from comal.errors import InvalidInputError, counted, shown
from comal.grid import quadbin
from comal.parallel import ByteCache, Workers, results
from comal.progress import Progress, silent
from comal.raquet.reading.pixels import chosen_bands
from comal.raquet.spec import Band
from comal.raster.pictures import encode_picture
from comal.raster.values import as_array, colour_table, drawn_range, rgb_bands, seen
from comal.storage.targets import refuse_sources, target_of
from comal.tapalcatl.containers.base import IndexedSource, Tiles
from comal.tapalcatl.wire import Int64s, Keys

Bytes = npt.NDArray[np.uint8]
Tile = tuple[int, int, int, bytes]
_TAILS = "19"
"""The finest quantiles that a file keeps: its first and last leave five percent outside."""
_BLOCK = 256
_TASKS = 64
"""Tiles of a task at most, and how many tasks there are at least if tiles suffice."""
_FILES = {".mbtiles": tapalcatl.to_mbtiles, ".pmtiles": tapalcatl.to_pmtiles}


def draw(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    bands: Sequence[int | str] | None = None,
    stretch: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
    executor: Workers = None,
    progress: Progress | None = None,
    **options: Any,
) -> Any:
    """Draw every tile of a RaQuet file as PNG into a Tapalcatl 2 tileset, MBTiles or PMTiles.

    Parameters
    ----------
    source
        Path or URL of a RaQuet file.
    out
        A folder, or a name that ends in ``.zip`` for a single archive, in ``.mbtiles`` or in
        ``.pmtiles``; it appears when it is complete.
    bands
        One or three bands, by name or number from 1; by default those marked red, green and blue,
        else the first. A single band with a colour table is drawn in its colours.
    stretch
        Values that become black and white: a pair, or one for each band. By default 8-bit colour
        is kept; for other bands the inner 90 percent of the values are stretched, by the statistics
        of the file.
    executor
        Draws tiles: any `concurrent.futures.Executor`, or a number of processes; by default they
        are drawn one after the other.
    progress
        Called with the number of tiles that were looked at.
    options
        As for `comal.tapalcatl.build`; MBTiles and PMTiles take only ``overwrite`` and ``config``.

    Returns
    -------
    comal.tapalcatl.Built
        For MBTiles and PMTiles what `comal.tapalcatl.to_mbtiles` returns.

    Raises
    ------
    ConflictError
        The target is the source, or contains it.
    InvalidInputError
        No such bands, or neither one nor three; a stretch without extent, or not one for each
        band; an option that the target does not take.
    """
    with ExitStack() as scope:
        drawn, named = open_drawn(source, scope, bands=bands, stretch=stretch, **options)
        target = target_of(out)
        refuse_sources(target, source)
        tiles = scope.enter_context(closing(drawn.all(executor, progress or silent)))
        write = _FILES.get(target.suffix.lower())
        if write is None:
            return tapalcatl.build(tiles, out, **named)
        others = options.keys() - {"overwrite", "config"}
        if others:
            raise InvalidInputError(
                "unknown option",
                where=target.name,
                found=repr(min(others)),
                expected="config, overwrite",
            )
        return write(tiles, out, **options)


def open_drawn(
    source: str | os.PathLike[str],
    scope: ExitStack,
    *,
    bands: Sequence[int | str] | None = None,
    stretch: tuple[float, float] | Sequence[tuple[float, float]] | None = None,
    **options: Any,
) -> tuple[Drawn, dict[str, Any]]:
    """The tiles of a RaQuet file as `draw` draws them, and the options to build with."""
    file = scope.enter_context(raquet.open(source))
    chosen = _chosen(file, bands)
    size = file.metadata.block_width
    named = {"scale": size // 256 if size % 256 == 0 else 1, "ext": "png", **options}
    named.setdefault("bounds", file.metadata.bounds)
    return Drawn(file, chosen, _stretches(chosen, stretch)), named


class Drawn(IndexedSource):
    """The tiles of a RaQuet file, drawn when they are read; those without any value are no tiles.

    To list them is to read all their pixels, on threads.
    """

    def __init__(
        self,
        file: raquet.RaquetFile,
        bands: Sequence[Band],
        drawing: Sequence[tuple[float, float] | None],
    ) -> None:
        self._file, self._bands, self._drawing = file, bands, drawing
        self._names = [band.name for band in bands]
        self._keys = quadbin.tiles(file.cells())
        self.label, self.metadata = file.href, tapalcatl.TileSetMetadata()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (self._file.sources, self._names, self._drawing)

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom with a value."""
        there = sorted(set(self._keys[0].tolist()))
        ends = (next(filter(self._is_drawn, zooms), None) for zooms in (there, there[::-1]))
        low, high = ends
        return None if low is None or high is None else (low, high)

    def _is_drawn(self, zoom: int) -> bool:
        rows = np.flatnonzero(self._keys[0] == zoom)
        return any(self._pixels(row) is not None for row in rows.tolist())

    def keys(self) -> Iterator[Keys]:
        """The tiles with a value, in blocks."""
        rows = np.arange(len(self._keys[0]))
        blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
        z, x, y = self._keys
        for some in results(None, self._with_value, blocks):
            yield z[some], x[some], y[some]

    def _with_value(self, rows: Int64s) -> Int64s:
        return rows[[self._pixels(row) is not None for row in rows.tolist()]]

    def read_rows(self, rows: Int64s) -> Tiles:
        """Draw some tiles, as far as they have a value."""
        drawn = {row: data for row in rows.tolist() if (data := self._drawn(row)) is not None}
        z, x, y = (column[list(drawn)] for column in self._keys)
        return Tiles(z, x, y, list(drawn.values()))

    def all(self, executor: Workers, progress: Progress) -> Generator[Tile]:
        """All tiles in order; each is read once."""
        count = len(self._keys[0])
        step = min(_BLOCK, count // _TASKS + 1)
        blocks = (np.arange(start, min(start + step, count)) for start in range(0, count, step))
        # Threads take a fifth longer than one: small tiles wait for the interpreter's lock.
        with closing(results(executor, self.read_rows, blocks, threads=0)) as every:
            for number, tiles in enumerate(every, 1):
                columns = (column.tolist() for column in tiles.keys)
                yield from zip(*columns, tiles.payloads, strict=True)
                progress(min(number * step, count), count, "tiles")

    def _pixels(self, row: int) -> Any:
        z, x, y = (int(column[row]) for column in self._keys)
        pixels: Any = self._file.tile(z, x, y, self._names, masked=True)
        return None if np.all(np.ma.getmaskarray(pixels)) else pixels

    def _drawn(self, row: int) -> bytes | None:
        pixels = self._pixels(row)
        if pixels is None:
            return None
        return encode_picture(_picture(pixels, self._bands, self._drawing), "png")


_recent: ByteCache[Any, Drawn] = ByteCache(1, keep_newest=True)


def _opened_again(sources: Any, names: Sequence[str], drawing: Sequence[Any]) -> Drawn:
    """The tiles in another process, which keeps the file that it opened last for more tasks."""
    versions = [(source.href, repr(source.pins.seen())) for source in sources]
    key = (*versions, *names, *drawing)
    drawn = _recent.get(key)
    if drawn is None:
        file = raquet.open(sources)
        drawn = Drawn(file, chosen_bands(file.metadata, names, file.href), drawing)
        _recent.put(key, drawn, 1)
    return drawn


def _picture(
    pixels: Any, bands: Sequence[Band], drawing: Sequence[tuple[float, float] | None]
) -> Bytes:
    """Red, green, blue and alpha of a tile."""
    data, valid = np.ma.getdata(pixels), ~np.ma.getmaskarray(pixels)
    shown = as_array(seen(list(valid)), valid.shape[1:])
    table = bands[0].colortable if len(bands) == 1 and drawing[0] is None else None
    if table is not None:
        picture: Bytes = np.moveaxis(colour_table(table, 256)[data[0]], -1, 0).copy()
        picture[3][~shown] = 0
        return picture
    shades = [
        np.where(has, _shade(band, ends), 0)
        for band, has, ends in zip(data, valid, drawing, strict=True)
    ]
    alpha = np.where(shown, 255, 0)
    return np.stack([*(shades if len(shades) == 3 else shades * 3), alpha]).astype(np.uint8)


def _shade(pixels: Any, ends: tuple[float, float] | None) -> Bytes:
    if ends is None:
        return np.asarray(pixels, np.uint8)
    low, high = ends
    share = (pixels.astype(np.float64) - low) / (high - low)
    return np.asarray(np.nan_to_num(np.clip(share, 0, 1)) * 255 + 0.5, np.uint8)


def _chosen(file: raquet.RaquetFile, wanted: Sequence[int | str] | None) -> Sequence[Band]:
    if wanted is None:
        shown = rgb_bands([band.colorinterp for band in file.bands]) or (1,)
        return [file.bands[number - 1] for number in shown]
    found = chosen_bands(file.metadata, wanted, file.href)
    if len(found) not in {1, 3}:
        raise InvalidInputError(
            "neither one nor three bands", found=len(found), expected="1 for grey, 3 for colour"
        )
    return found


def _stretches(bands: Sequence[Band], given: Any) -> list[tuple[float, float] | None]:
    """Values of each band that become black and white; None keeps bytes as they are."""
    if given is None:
        return [_stretch(band) for band in bands]
    try:
        several = [given] if isinstance(given[0], Real) else given
        pairs = [(float(low), float(high)) for low, high in several]
    except (LookupError, TypeError, ValueError):
        pairs = []
    if len(pairs) not in {1, len(bands)}:
        raise InvalidInputError(
            "stretch is not one pair of values, or one for each band",
            found=f"{shown(repr(given))[1:-1]} for {counted(len(bands), 'band')}",
        )
    for low, high in pairs:
        if not (low < high and math.isfinite(high - low)):
            raise InvalidInputError(
                "the stretch does not go from low to high", found=f"{low:g}, {high:g}"
            )
    return [*pairs] * (len(bands) // len(pairs))


def _stretch(band: Band) -> tuple[float, float] | None:
    if band.dtype == "uint8":
        return None
    statistics = band.statistics
    if statistics is None or statistics.min is None or statistics.max is None:
        raise InvalidInputError(
            "the file has no minimum and maximum of its values",
            where=f"band {band.name}",
            hint="pass stretch=(low, high)",
        )
    tails = (statistics.quantiles or {}).get(_TAILS)
    low, high = (tails[0], tails[-1]) if tails else (statistics.min, statistics.max)
    if not low < high:
        low, high = statistics.min, statistics.max
    return drawn_range(float(low), float(high))
