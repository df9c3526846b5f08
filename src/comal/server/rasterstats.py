"""Statistics of a raster over a box, at the finest zoom that is cheap enough to read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError
from comal.geo.boxes import validate_bbox
from comal.grid import mercator, quadbin
from comal.limits import MIB
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.windows import Grid
from comal.server.expressions import Expression, evaluated
from comal.server.responses import Refusal
from comal.server.runtime import check_wanted

_MOST_PIXELS = 4_194_304
"""Pixels of one band that are looked at: 64 tiles of 256 x 256."""
_MOST_VALUES = 8 * _MOST_PIXELS
"""Pixels of all bands together."""
_RANGE_PIXELS = 1_048_576
_BATCH_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of a box."""

    bbox: tuple[float, ...]
    zoom: int
    exact: bool
    """Whether this is the finest zoom."""
    names: tuple[str, ...]
    values: list[npt.NDArray[Any]]
    """Of each band or formula those that are valid."""
    pixels: int
    """How many pixels the box has."""


@dataclass(frozen=True, slots=True)
class _Cover:
    """The tiles of a zoom that are there and lie in a box, and the pixels of the box."""

    grid: Grid
    span: tuple[int, int, int, int]
    x: npt.NDArray[np.int64]
    y: npt.NDArray[np.int64]

    @classmethod
    def of(cls, file: RaquetFile, zoom: int, box: Sequence[float]) -> _Cover:
        metadata = file.metadata
        grid = Grid(zoom, metadata.block_width, metadata.block_height)
        column, row, width, height = span = grid.span(box)
        cells, side = file.cells(zoom), 1 << zoom
        top, bottom = row // grid.block_height, (row + height - 1) // grid.block_height
        # Columns of a box over the antimeridian go on behind the last one of the world.
        first, last = column // grid.block_width, (column + width - 1) // grid.block_width
        if (last - first + 1) * (bottom - top + 1) < len(cells):
            across, down = np.unique(np.arange(first, last + 1) % side), np.arange(top, bottom + 1)
            x, y = (one.ravel() for one in np.meshgrid(across, down))
            wanted = quadbin.cells(zoom, x, y)
            at = np.minimum(np.searchsorted(cells, wanted), len(cells) - 1)
            inside = cells[at] == wanted
        else:
            _, x, y = quadbin.tiles(cells)
            inside = ((x >= first) & (x <= last)) | (x + side <= last)
            inside &= (y >= top) & (y <= bottom)
        return cls(grid, span, x[inside], y[inside])

    @property
    def pixels(self) -> int:
        """Of all these tiles."""
        return len(self.x) * self.grid.block_width * self.grid.block_height

    def parts(self, at: int) -> Iterator[tuple[slice, slice]]:
        """Rows and columns of a tile that lie in the box."""
        column, row, width, height = self.span
        left, top = (
            int(self.x[at]) * self.grid.block_width,
            int(self.y[at]) * self.grid.block_height,
        )
        rows = slice(max(0, row - top), min(self.grid.block_height, row + height - top))
        for turn in (0, self.grid.width):
            start, stop = column - left - turn, column + width - left - turn
            if start < self.grid.block_width and stop > 0:
                yield rows, slice(max(0, start), min(self.grid.block_width, stop))


def _cover_for(file: RaquetFile, box: Sequence[float], most: int) -> _Cover:
    """The tiles of the finest zoom at which those that are there have at most `most` pixels.

    At the coarsest zoom they may have more.
    """
    metadata = file.metadata
    block = metadata.block_width * metadata.block_height
    west, south, east, north = file.everything()
    whole = box[0] <= west < east <= box[2] and box[1] <= south and box[3] >= north
    for zoom in range(metadata.max_zoom, metadata.min_zoom, -1):
        if whole and len(file.cells(zoom)) * block > most:
            continue
        cover = _Cover.of(file, zoom, box)
        if cover.pixels <= most:
            return cover
    return _Cover.of(file, metadata.min_zoom, box)


def sample(
    file: RaquetFile,
    bands: Sequence[int],
    bbox: Sequence[float],
    step: Any,
    formula: Expression | None = None,
    most: int = _MOST_PIXELS,
    *,
    some: bool = False,
) -> Sample:
    """Values of bands, or of formulas over them, within a box.

    Memory is bounded by the tiles that are there, a batch at a time, and by the values that are
    kept; the size of the box does not matter.

    Parameters
    ----------
    bands
        Numbers of bands, from 1 on; with a formula those that it uses.
    bbox
        West, south, east, north in degrees.
    step
        The time step.
    most
        Pixels of one band that may be looked at.
    some
        Whether tiles that are evenly spread will do where there are too many.

    Raises
    ------
    Refusal
        422: the box has more pixels than that at the coarsest zoom.
    """
    box = tuple(validate_bbox(bbox))
    names = names_of(file, bands, formula)
    most = min(most, _MOST_VALUES // max(len(names), len(bands)))
    cover = _cover_for(file, box, most)
    _, _, width, height = cover.span
    step_by = max(1, -(-cover.pixels // most))
    if step_by > 1 and not some:
        raise _too_large(cover, most)
    chosen = range(0, len(cover.x), step_by)
    kept: list[list[npt.NDArray[Any]]] = [[] for _ in names]
    zoom = cover.grid.zoom
    for batch in _batches(file, len(bands), chosen):
        check_wanted()
        tiles = [(zoom, int(cover.x[at]), int(cover.y[at])) for at in batch]
        found = file.tiles(tiles, list(bands), time=step, masked=True)
        for at, pixels in zip(batch, found, strict=True):
            for rows, columns in cover.parts(at):
                data, valid = evaluated(pixels[:, rows, columns], formula)
                for values_of, plane, has in zip(kept, data, valid, strict=True):
                    values_of.append(plane[has])
    values = [np.concatenate(some) if some else np.empty(0) for some in kept]
    return Sample(box, zoom, zoom == file.metadata.max_zoom, names, values, width * height)


def names_of(file: RaquetFile, bands: Sequence[int], formula: Expression | None) -> tuple[str, ...]:
    """What bands, or formulas over them, are called."""
    if formula is not None:
        return formula.texts
    return tuple(file.bands[number - 1].name for number in bands)


def _batches(file: RaquetFile, count: int, chosen: range) -> Iterator[range]:
    metadata = file.metadata
    size = max(np.dtype(band.dtype).itemsize for band in file.bands)
    tile = metadata.block_width * metadata.block_height * size * count
    step = max(1, _BATCH_BYTES // tile)
    for start in range(0, len(chosen), step):
        yield chosen[start : start + step]


def _too_large(cover: _Cover, most: int) -> Refusal:
    tiles = max(1, most // (cover.grid.block_width * cover.grid.block_height))
    zoom, side = cover.grid.zoom, math.isqrt(tiles)
    x, y = int(cover.x.min()), int(cover.y.min())
    west, north = mercator.xy_to_lonlat(x, y, zoom)
    east, south = mercator.xy_to_lonlat(x + side, y + side, zoom)
    box = ",".join(f"{edge:.9g}" for edge in (west, south, east, north))
    return Refusal(
        422,
        "limit-exceeded",
        f"the box has {len(cover.x)} tiles at zoom {zoom}, the coarsest; ask for a bbox with at"
        f" most {tiles}, such as bbox={box}",
    )


def sampled_range(file: RaquetFile, number: int) -> tuple[float, float] | None:
    """2 and 98 percent of a band, from an overview; None when nothing can be told."""
    step = None if file.times is None else 0
    try:
        found = sample(file, [number], file.everything(), step, most=_RANGE_PIXELS, some=True)
    except ComalError:
        return None  # a broken tile; those that are sound are shown all the same
    values = found.values[0].astype(np.float64)
    if not len(values):
        return None
    low, high = (float(edge) for edge in np.percentile(values, (2, 98)))
    if low < high:
        return low, high
    low, high = float(values.min()), float(values.max())
    return (low, high) if low < high else None


def counts_of(values: npt.NDArray[Any], pixels: int, bins: int) -> dict[str, Any]:
    """Statistics with the names of titiler; all None when no pixel is valid.

    Parameters
    ----------
    values
        Those that are valid.
    pixels
        How many there are with those that are not.
    bins
        Classes of the histogram.
    """
    valid = values.astype(np.float64)
    document: dict[str, Any] = {
        "valid_pixels": len(valid),
        "masked_pixels": pixels - len(valid),
        "valid_percent": round(100 * len(valid) / pixels, 2) if pixels else 0.0,
        "count": len(valid),
    }
    names = ("min", "max", "mean", "std", "sum", "median", "percentile_2", "percentile_98")
    if not len(valid):
        return document | dict.fromkeys(names) | {"histogram": None}
    low, median, high = (float(edge) for edge in np.percentile(valid, (2, 50, 98)))
    counts, edges = np.histogram(valid, bins)
    numbers = (
        float(valid.min()),
        float(valid.max()),
        float(valid.mean()),
        float(valid.std()),
        float(valid.sum()),
        median,
        low,
        high,
    )
    histogram = [counts.tolist(), edges.tolist()]
    return document | dict(zip(names, numbers, strict=True)) | {"histogram": histogram}
