"""Windows of pixels: their position, and how tiles are combined into one array."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.geo.boxes import validate_bbox
from comal.grid import mercator, quadbin
from comal.grid.arguments import reals
from comal.limits import MIB
from comal.public import guarded_class
from comal.raquet.reading.pixels import common_type, fill_value, tile_bytes
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import ABSENT
from comal.raquet.spec import Band, Metadata

Pixels = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

CRS = "EPSG:3857"
_ON_THE_LINE = 1e-2
"""Fraction of a pixel within which a bbox edge snaps to a pixel edge."""
_BATCH_BYTES = 32 * MIB
_BATCH_TILES = 256
_MANY_BYTES = 256 * MIB
"""Bytes of decoded tiles to fetch together for many windows."""


@guarded_class
@dataclass(frozen=True, slots=True)
class Window:
    """Pixels of a bbox, and their position."""

    data: Any
    """Array of shape (bands, rows, columns); a `numpy.ma.MaskedArray` if requested."""
    transform: tuple[float, float, float, float, float, float]
    """From column and row to metres of `crs`: a, b, c, d, e, f as in `rasterio.Affine`."""
    zoom: int
    """Zoom of the pixels."""
    column: int
    row: int
    """The first pixel, counted from the north-west corner of the world at that zoom."""
    crs: str = CRS

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north in metres of `crs`."""
        a, _, west, _, e, north = self.transform
        _, height, width = self.data.shape
        return west, north + e * height, west + a * width, north


@dataclass(frozen=True, slots=True)
class Grid:
    """The pixels of one zoom."""

    zoom: int
    block_width: int
    block_height: int

    @property
    def width(self) -> int:
        """Width of the world in pixels."""
        return self.block_width << self.zoom

    @property
    def height(self) -> int:
        """Height of the world in pixels, between the limits of the projection."""
        return self.block_height << self.zoom

    def transform(self, column: int, row: int) -> tuple[float, float, float, float, float, float]:
        """The transform of a window whose first pixel is this one."""
        across = mercator.CIRCUMFERENCE / self.width
        down = mercator.CIRCUMFERENCE / self.height
        return (
            across,
            0.0,
            column * across - mercator.HALF,
            0.0,
            -down,
            mercator.HALF - row * down,
        )

    def span(self, bbox: Sequence[float]) -> tuple[int, int, int, int]:
        """First column, first row, width and height of the pixels that a bbox touches, each once.

        If the bbox crosses the antimeridian (west > east), columns continue past the last one.
        """
        west, south, east, north = validate_bbox(bbox)
        left, top = mercator.lonlat_to_xy(west, north, 0)
        right, bottom = mercator.lonlat_to_xy(east, south, 0)
        if right < left:
            right += 1
        first, last = _outward(left * self.width, right * self.width)
        top_row, last_row = _outward(top * self.height, bottom * self.height)
        top_row = min(top_row, self.height - 1)
        first = min(first, self.width - 1) if last <= self.width else first
        width = max(1, min(last - first, self.width))
        return first, top_row, width, max(1, min(last_row, self.height) - top_row)


def grid_of(metadata: Metadata, zoom: int, where: str) -> Grid:
    """The grid of a zoom that the file declares."""
    low, high = metadata.min_zoom, metadata.max_zoom
    if zoom not in range(low, high + 1):
        raise InvalidInputError(
            "the file has no such zoom", where=where, found=zoom, expected=f"{low} to {high}"
        )
    return Grid(zoom, metadata.block_width, metadata.block_height)


def _outward(start: float, stop: float) -> tuple[int, int]:
    """The pixels that contain an interval; an edge close to a pixel edge snaps to it."""
    near_start, near_stop = round(start), round(stop)
    first = near_start if abs(start - near_start) <= _ON_THE_LINE else math.floor(start)
    last = near_stop if abs(stop - near_stop) <= _ON_THE_LINE else math.ceil(stop)
    return first, last


def zoom_for(resolution: float, block: int, low: int, high: int) -> int:
    """The coarsest zoom whose pixels are no larger than `resolution` metres of EPSG:3857.

    It is clamped to `low` to `high`.
    """
    length = float(reals(resolution, "resolution"))
    if not (math.isfinite(length) and length > 0):
        raise InvalidInputError(
            "resolution is not a length", found=resolution, expected="metres above 0"
        )
    exact = math.log2(mercator.CIRCUMFERENCE / block / length)
    return max(low, min(high, math.ceil(exact - 1e-6)))


def blank(bands: Sequence[Band], shape: tuple[int, ...]) -> tuple[Pixels, Bools]:
    r"""Fill values of shape (bands, \*shape), and a mask in which all of them are missing."""
    data = np.empty((len(bands), *shape), common_type(bands))
    for index, band in enumerate(bands):
        data[index] = fill_value(band)
    return data, np.ones(data.shape, np.bool_)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requested pixels, and the tiles that hold them."""

    shape: tuple[int, ...]
    """Shape of the result without bands."""
    cells: Ints
    """Ids of the tiles, each once."""
    part_of: Callable[[int], tuple[Any, Any]]
    """By index of a tile: the index of its pixels in the result, and in the tile."""
    together: int
    """Most tiles to fetch together."""
    memory: int = _BATCH_BYTES
    """Most bytes of decoded tiles to fetch together."""


def window_of(grid: Grid, span: tuple[int, int, int, int]) -> Wanted:
    """The pixels of a span of a grid."""
    column, row, width, height = span
    xs, ys = (part.ravel() for part in np.meshgrid(*tiles_of(grid, span)))

    def part_of(at: int) -> tuple[Any, Any]:
        left = int(xs[at]) * grid.block_width - column
        top = int(ys[at]) * grid.block_height - row
        x0, x1 = max(0, left), min(width, left + grid.block_width)
        y0, y1 = max(0, top), min(height, top + grid.block_height)
        return (
            (slice(y0, y1), slice(x0, x1)),
            (slice(y0 - top, y1 - top), slice(x0 - left, x1 - left)),
        )

    cells = quadbin.cells(grid.zoom, xs % (1 << grid.zoom), ys)
    return Wanted((height, width), cells, part_of, _BATCH_TILES)


def windows_of(grid: Grid, spans: Sequence[tuple[int, int, int, int]]) -> Wanted:
    """The pixels of n spans of one size, shape (n, height, width).

    Tiles are in the order of their ids; one that several spans share comes once for each.
    """
    each = [window_of(grid, span) for span in spans]
    sizes = np.array([len(one.cells) for one in each], np.int64)
    owner = np.repeat(np.arange(len(each)), sizes)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    cells = np.concatenate([one.cells for one in each])
    order = np.argsort(cells, kind="stable")

    def part_of(at: int) -> tuple[Any, Any]:
        number = int(owner[order[at]])
        target, part = each[number].part_of(int(within[order[at]]))
        return (number, *target), part

    shape = (len(each), *each[0].shape)
    return Wanted(shape, cells[order], part_of, len(cells), _MANY_BYTES)


def points_of(grid: Grid, lons: Any, lats: Any) -> Wanted:
    """The pixels that contain points in degrees of EPSG:4326."""
    cells, columns, rows = pixels_of(grid, lons, lats)
    different, of_cell = np.unique(cells, return_inverse=True)
    order = np.argsort(of_cell, kind="stable")
    ends = np.cumsum(np.bincount(of_cell, minlength=len(different)))

    def part_of(at: int) -> tuple[Any, Any]:
        points = order[(ends[at - 1] if at else 0) : ends[at]]
        return points, (rows[points], columns[points])

    return Wanted(cells.shape, different, part_of, len(different))


def filled(
    store: TileStore, wanted: Wanted, rows: Ints, bands: Sequence[Band], *, keep: bool = True
) -> tuple[Pixels, Bools]:
    """The requested pixels, bands first, and which of them are in no tile.

    `rows` are the table rows of the tiles. With `keep`, decoded tiles stay in the cache.
    """
    data, missing = blank(bands, wanted.shape)
    there = np.flatnonzero(rows != ABSENT)
    count = max(1, min(wanted.together, wanted.memory // max(1, tile_bytes(store.metadata))))
    for start in range(0, len(there), count):
        batch = there[start : start + count].tolist()
        found = store.bands_of(rows[batch].tolist(), bands, keep=keep)
        for at in batch:
            target, part = wanted.part_of(at)
            for index, pixels in enumerate(found[int(rows[at])]):
                if pixels is not None:
                    data[index][target] = pixels[part]
                    missing[index][target] = False
    return data, missing


def check_tile_size(store: TileStore, bands: Sequence[Band], where: str) -> None:
    """Reject tiles that exceed the limits before memory for any tile, even absent, is allocated."""
    pixels = store.metadata.block_width * store.metadata.block_height
    size = pixels * max(np.dtype(band.dtype).itemsize for band in bands)
    store.limits.check("tile_bytes", size, where)
    store.limits.check("raster_bytes", size * len(bands), where)


def tiles_of(grid: Grid, span: tuple[int, int, int, int]) -> tuple[Ints, Ints]:
    """Columns and rows of the tiles of a window; columns continue past the antimeridian."""
    column, row, width, height = span
    across = np.arange(column // grid.block_width, -(-(column + width) // grid.block_width))
    down = np.arange(row // grid.block_height, -(-(row + height) // grid.block_height))
    return across, down


def in_tiles(cells: Ints, grid: Grid, box: Ints) -> Ints:
    """The parts of a box that are in tiles, as rectangles in ascending order, shape (4, n).

    Box and rectangles are left, top, right and bottom in pixels, the latter two not included.
    Columns continue across the antimeridian. `cells` are tiles of the zoom of the grid.
    """
    _, x, y = (np.atleast_1d(part) for part in quadbin.tiles(cells))
    sides = np.array([[grid.block_width], [grid.block_height]])
    first, last, world = box[:2, None], box[2:, None], 1 << grid.zoom
    low = np.stack([np.concatenate([x, x + world]), np.concatenate([y, y])])
    inside = (low * sides < last) & ((low + 1) * sides > first) & (first < last)
    x, y = low[:, inside.all(axis=0)]
    # Tiles side by side are one rectangle; the last one of a row is not next to the row below.
    numbers = y * (2 * world + 1) + x
    starts, stops = merged(numbers, numbers + 1)
    y, x = np.divmod(starts, 2 * world + 1)
    low, high = np.stack([x, y]) * sides, np.stack([x + stops - starts, y + 1]) * sides
    return np.concatenate([np.maximum(low, first), np.minimum(high, last)])


def merged(starts: Ints, stops: Ints) -> tuple[Ints, Ints]:
    """The runs that ranges of numbers cover together, ascending."""
    order = np.argsort(starts, kind="stable")
    starts, stops = starts[order], np.maximum.accumulate(stops[order])
    opens = np.append(True, starts[1:] > stops[:-1])[: len(starts)]
    return starts[opens], stops[np.append(opens[1:], True)[: len(starts)]]


def pixels_of(grid: Grid, lons: Any, lats: Any) -> tuple[Any, Any, Any]:
    """The cell of each point, and the column and row of its pixel within the tile.

    Points beyond the latitude limits of the projection belong to its first or last row.
    """
    longitude = reals(lons, "longitude").ravel()
    latitude = reals(lats, "latitude").ravel()
    if longitude.shape != latitude.shape:
        raise InvalidInputError(
            "the numbers of longitudes and latitudes differ",
            found=f"{len(longitude)} and {len(latitude)}",
        )
    if not (np.isfinite(longitude).all() and (np.abs(latitude) <= 90).all()):
        raise InvalidInputError(
            "not a point on the earth", expected="finite degrees, latitude <= 90"
        )
    x, y = mercator.lonlat_to_xy(longitude, latitude, grid.zoom)
    last = (1 << grid.zoom) - 1
    across = np.minimum(np.floor(x).astype(np.int64), last)
    down = np.minimum(np.floor(y).astype(np.int64), last)
    columns = np.floor((x - across) * grid.block_width).astype(np.int64)
    rows = np.floor((y - down) * grid.block_height).astype(np.int64)
    return (
        quadbin.cells(grid.zoom, across, down),
        np.clip(columns, 0, grid.block_width - 1),
        np.clip(rows, 0, grid.block_height - 1),
    )
