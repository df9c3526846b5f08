"""What a mended copy says of itself: bounds, counts, statistics out of what is there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import grid
from comal.errors import InvalidMetadataError
from comal.limits import Limits
from comal.raquet import spec
from comal.raquet.checking.document import PLACE, aligned_window, contradiction
from comal.raquet.reading.coverage import Coverage
from comal.raquet.reading.pixels import alpha_of, valid_of
from comal.raquet.spec import Metadata
from comal.raquet.wire import parse_metadata, read_document
from comal.raquet.writing.accumulating import BandSums, finished, lattice_step, moments, sums_of

Ints = npt.NDArray[np.int64]


def usable_metadata(text: str, cells: Ints, limits: Limits) -> Metadata:
    """The document; bounds that are none are replaced by those of the tiles.

    Raises
    ------
    InvalidMetadataError, UnsupportedVersionError, LimitExceededError
        As for `comal.raquet.parse_metadata`: what nothing else can tell.
    """
    try:
        return parse_metadata(text, PLACE, limits)
    except InvalidMetadataError as error:
        if {one.code for one in error.problems if one.severity == "error"} != {"raquet-bounds"}:
            raise
    document, _ = read_document(text, PLACE, limits)
    finest = cells[np.asarray(grid.zooms(cells)) == np.asarray(grid.zooms(cells)).max()]
    west, south, east, north = grid.bounds(finest)
    document["bounds"] = [
        float(west.min()),
        float(south.min()),
        float(east.max()),
        float(north.max()),
    ]
    # Numbers of Python that are not JSON are read again as they are written here.
    return parse_metadata(json.dumps(document), PLACE, limits)


def on_grid(metadata: Metadata, cells: Ints) -> Metadata:
    """Bounds of whole tiles, the size that follows from them, and the number of tiles."""
    zoom = metadata.max_zoom
    finest = cells[np.asarray(grid.zooms(cells)) == zoom]
    window = aligned_window(metadata)
    if window is None or not _holds(window, finest):
        window = _around(metadata, finest)
    x0, y0, x1, y1 = window
    north_west = grid.xy_to_lonlat(x0, y0, zoom)
    south_east = grid.xy_to_lonlat(x1, y1, zoom)
    bounds = (north_west[0], south_east[1], south_east[0], north_west[1])
    if aligned_window(metadata) == window:
        bounds = metadata.bounds
    return replace(
        metadata,
        bounds=bounds,
        width=(x1 - x0) * metadata.block_width,
        height=(y1 - y0) * metadata.block_height,
        num_blocks=len(np.unique(finest)),
    )


def _holds(window: tuple[int, int, int, int], cells: Ints) -> bool:
    _, x, y = grid.tiles(cells)
    x0, y0, x1, y1 = window
    return bool(((x >= x0) & (x < x1) & (y >= y0) & (y < y1)).all())


def _around(metadata: Metadata, cells: Ints) -> tuple[int, int, int, int]:
    """Whole tiles around the bounds and the tiles."""
    windows = [grid.bbox_windows(metadata.bounds, metadata.max_zoom)]
    if len(cells):
        _, x, y = grid.tiles(cells)
        windows.append(np.stack([x, y, x, y], axis=1))
    every = np.concatenate(windows)
    first, last = every[:, :2].min(axis=0), every[:, 2:].max(axis=0)
    return int(first[0]), int(first[1]), int(last[0]) + 1, int(last[1]) + 1


@dataclass(slots=True)
class Recount:
    """Statistics of a file while its tiles are gone through.

    Without a nodata value nothing tells padding from pixels, and beside an alpha band pixels may
    be hidden: such bands keep what they have, as long as it does not contradict itself.
    """

    metadata: Metadata
    sums: list[BandSums]
    step: int

    @classmethod
    def of(cls, metadata: Metadata) -> Recount:
        """Of no tiles yet."""
        pixels = metadata.width * metadata.height
        return cls(
            metadata,
            [BandSums(band.dtype) for band in metadata.bands],
            lattice_step(pixels, len(metadata.bands)),
        )

    def add(self, number: int, cell: int, pixels: Any) -> None:
        """The pixels of a band of a tile of the maximum zoom."""
        z, x, y = grid.tiles(cell)
        if z != self.metadata.max_zoom:
            return
        band = self.metadata.bands[number]
        height, width = pixels.shape
        valid = valid_of(pixels, band)
        self.sums[number].add(sums_of(pixels, valid, step=self.step, x=x * width, y=y * height))

    def finish(self) -> Metadata:
        """The document with these statistics."""
        bands = []
        for band, sums in zip(self.metadata.bands, self.sums, strict=True):
            if band.nodata is not None and alpha_of(self.metadata.bands) is None:
                found = finished(sums, None, step=self.step)
                old = band.statistics
                if old is not None and old.valid_percent is not None:
                    found = replace(found, valid_percent=_percent(old.count, sums.count, old))
                bands.append(replace(band, statistics=found))
            elif contradiction(band) is not None:
                bands.append(replace(band, statistics=None))
            else:
                bands.append(band)
        return replace(self.metadata, bands=tuple(bands))


def _percent(before: int | None, count: int, old: Any) -> float | None:
    # Only a writer that counted the same pixels knows how many the source covers.
    return old.valid_percent if before == count else None


def statistics_of_tile(
    metadata: Metadata, covers: Sequence[Coverage | None], cell: int, pixels: list[Any]
) -> Any:
    """Tile statistics (0.5.0) of the bands of a tile, shape (bands, 6); NaN without a valid one.

    Parameters
    ----------
    metadata, covers
        The bands, and what the source of each covers.
    cell, pixels
        The tile, and its pixels for each band.
    """
    found = np.full((len(metadata.bands), len(spec.STATISTICS)), np.nan)
    alpha = alpha_of(metadata.bands)
    for number, (band, cover, one) in enumerate(zip(metadata.bands, covers, pixels, strict=True)):
        if one is None:
            continue
        valid = valid_of(one, band)
        inside = None if cover is None else cover.tile(*grid.tiles(cell), one.shape)
        if inside is not None:
            valid = valid & inside
        if alpha is not None and number != alpha:
            valid = valid & (False if pixels[alpha] is None else pixels[alpha] != 0)
        sums = sums_of(one, valid, step=len(one), x=0, y=0)
        if sums.count:
            assert sums.low is not None
            assert sums.high is not None
            low, high = float(sums.low), float(sums.high)
            found[number] = (sums.count, low, high, float(sums.total), *moments(sums))
    return found
