"""Chips of a RaQuet and tiles of a Tapalcatl as samples, by number.

Positions are pixels of one zoom, counted from the north-west corner of the world. Columns continue
across the antimeridian. Rectangles are left, top, right and bottom, the latter two not included.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

import comal
from comal import raquet
from comal.errors import InvalidInputError, NotInContainerError, NotThisFormatError, shown
from comal.geo.boxes import wrap
from comal.grid import mercator
from comal.grid.cover import bbox_windows
from comal.limits import KIB
from comal.ml.archives import Dataset, Location, OnError, Sample
from comal.ml.decoding import Field, Masked, Masking, decoded
from comal.ml.index import Shared
from comal.ml.order import Ints, key_of, uniform
from comal.public import guarded, guarded_class, options_of, takes
from comal.raquet.reading.file import Bands, RaquetFile
from comal.raquet.reading.pixels import chosen_bands
from comal.raquet.reading.windows import CRS, Grid, Window, grid_of, in_tiles, merged
from comal.raquet.times import Step
from comal.tapalcatl.reading.tile import Tile
from comal.tapalcatl.reading.tileset import TileSet

_USUAL = 32 * KIB
_MOST = 1 << 62
"""Most places of a grid, so that their numbers fit 64 bits."""


class _Numbered(Dataset):
    """Samples of a source by number, all or some of them; workers share source and numbers."""

    masks = False
    """Whether images are `comal.ml.decoding.Masked`."""

    def __init__(self, source: Any, places: Any, how: Any) -> None:
        self._shared, self._how = Shared((source, places, None)), how

    def __len__(self) -> int:
        _, places, chosen = self._shared.value
        return len(places if chosen is None else chosen)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} of {shown(self._source.href, 90)}>"

    @guarded
    def take(self, rows: Ints | Sequence[int]) -> Self:
        """A data set of some samples, in that order."""
        source, places, chosen = self._shared.value
        numbers = self._rows(rows)
        shared = Shared((source, places, numbers if chosen is None else chosen[numbers]))
        found = copy(self)
        found._shared = shared  # noqa: SLF001 - of the same class
        return found

    def masked(self) -> Self:
        """The same samples without `transform`, with images as `comal.ml.decoding.Masked`."""
        found = copy(self)
        found.transform, found.masks = None, True
        return found

    def digest(self) -> str:
        """A text that tells this data set from others."""
        known = pickle.dumps(self._shared.value[1:]) + repr(self._how).encode()
        return f"{self!r} {hashlib.blake2b(known, digest_size=16).hexdigest()}"

    @property
    def _source(self) -> Any:
        return self._shared.value[0]

    def _places(self, rows: Ints) -> Ints:
        """Where some samples are."""
        _, places, chosen = self._shared.value
        found: Ints = places[rows if chosen is None else chosen[rows]]
        return found


@guarded_class
class ChipDataset(_Numbered):
    """Chips of a RaQuet. Made by `chips`."""

    _how: tuple[Grid, int, list[str], ChipOptions]

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some chips as float64, or less."""
        _, size, bands, _ = self._how
        return len(rows) * size**2 * len(bands) * 8

    def read(self, rows: Ints) -> list[Window]:
        """The pixels of some chips; all tiles that they touch are fetched together."""
        (grid, size, bands, options), corners = self._how, self._places(rows)
        corners[:, 0] %= grid.width
        how: Any = {"masked": True, "time": options.time, "scaled": options.scaled}
        file: RaquetFile = self._source
        return file.windows(grid.zoom, corners, size, size, bands, **how)

    def decode(self, place: int, raw: list[Window], out: Mapping[str, Any]) -> Sample:
        """One chip."""
        del out
        window, (grid, size, *_) = raw[place], self._how
        image, valid = window.data.data, ~np.ma.getmaskarray(window.data)
        return {
            **({"image": Masked(image, valid)} if self.masks else {"image": image, "valid": valid}),
            **_placed(grid, window.column, window.row, size, size),
            "id": f"{window.zoom}/{window.column}/{window.row}",
        }


def _placed(grid: Grid, column: int, row: int, width: int, height: int) -> Sample:
    """Where a window is; west > east crosses the antimeridian."""
    x, y = np.array([column, column + width]), np.array([row + height, row])
    (west, east), (south, north) = mercator.xy_to_lonlat(x / grid.width, y / grid.height, 0)
    bbox = tuple(map(float, (west, south, wrap(east), north)))
    return {"transform": grid.transform(column, row), "crs": CRS, "bbox": bbox}


@guarded_class
class TileDataset(_Numbered):
    """Tiles of a Tapalcatl. Made by `chips`."""

    _how: Field

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some tiles, guessed: their sizes are in the directories of archives."""
        return len(rows) * _USUAL

    def read(self, rows: Ints) -> tuple[Ints, list[Tile | None]]:
        """Some tiles, fetched together."""
        keys = self._places(rows)
        return keys, self._source.tiles(keys)

    def decode(
        self, place: int, raw: tuple[Ints, list[Tile | None]], out: Mapping[str, Any]
    ) -> Sample:
        """One tile."""
        z, x, y = raw[0][place].tolist()
        name, tile = f"{z}/{x}/{y}", raw[1][place]
        if tile is None:
            raise NotInContainerError("the tile is gone", where=self._source.href, found=name)
        data = memoryview(tile.content(self._source.limits))
        field = replace(self._how, decode=Masking(self._how)) if self.masks else self._how
        image = decoded(data, field, f"{name}.{tile.ext}", out.get("image"))
        found = {**_placed(Grid(z, 1, 1), x, y, 1, 1), "transform": None}
        if isinstance(image, np.ndarray):
            height, width = image.shape[-2:]
            found = _placed(Grid(z, width, height), x * width, y * height, width, height)
        return {"image": image, **found, "z": z, "x": x, "y": y, "id": name}


# -- opening ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipOptions:
    """Where chips of a raster are, and what they hold.

    Parameters
    ----------
    stride
        Pixels from one chip to the next; None for the size of chips. Chips begin at multiples of
        it, counted from the north-west corner of the world, so that chips of the size of tiles are
        tiles.
    count
        Instead of a grid: number of chips at random places, each a function of `seed` and its
        number. All pixels of tiles are equally likely as centres of a chip.
    seed
        Any integer.
    zoom
        None: the finest of a RaQuet, all of a Tapalcatl.
    bands
        Names, or numbers from 1; None for all. Bands of tiles have numbers only.
    bbox
        West, south, east, north in degrees of EPSG:4326; west > east crosses the antimeridian.
        Chips lie within it; tiles overlap it. None: chips with a pixel within the bounds of the
        raster; random ones lie within them if these are large enough.
    time, scaled
        See `RaquetFile`.
    """

    stride: int | None = None
    count: int | None = None
    seed: int = 0
    zoom: int | None = None
    bands: Bands = None
    bbox: Sequence[float] | None = None
    time: Step | None = None
    scaled: bool = False


@takes(ChipOptions)
def chips(
    source: Location | Sequence[Location] | RaquetFile | TileSet,
    size: int = 256,
    *,
    transform: Callable[[Sample], Any] | None = None,
    on_error: OnError = "raise",
    **options: Any,
) -> ChipDataset | TileDataset:
    """Chips of a RaQuet, or the tiles of a Tapalcatl, for training.

    Parameters
    ----------
    source
        Path or URL, the files of a partitioned RaQuet, or an open `RaquetFile` or `TileSet`.
    size
        Width and height of a chip in pixels; tiles have their own.
    transform, on_error
        See `dataset`.
    **options
        Fields of `ChipOptions`: ``stride`` or ``count`` and ``seed``, ``zoom``, ``bands``,
        ``bbox``, ``time``, ``scaled``. Tiles have zoom, bands and bbox.

    Returns
    -------
    ChipDataset or TileDataset
        A sample has ``image`` (bands, y, x), ``transform`` (a to f) in ``crs``, ``bbox`` in degrees
        (west > east crosses the antimeridian), and ``id``. A chip, which touches at least one tile,
        has ``valid`` too, of the shape of the image: False where a pixel is nodata, padding or in
        no tile; its id is ``z/column/row`` of its first pixel. A tile has ``z``, ``x``, ``y`` too,
        and its id is ``z/x/y``; the image of a tile that is none is its bytes, and its transform
        None.

    Raises
    ------
    InvalidInputError
        A zoom or band that the source does not have; no chip with a tile fits.
    NotThisFormatError
        The source is neither RaQuet nor Tapalcatl.
    """
    chosen = options_of(ChipOptions, options)
    for name, value in {"size": size, "stride": chosen.stride, "count": chosen.count}.items():
        if value is not None and value < 1:
            raise InvalidInputError(f"{name} of chips", found=value, expected="1 or more")
    found = _opened(source)
    data = _chips(found, size, chosen) if isinstance(found, RaquetFile) else _tiles(found, chosen)
    data.transform, data.on_error = transform, on_error
    return data


def _opened(source: Any) -> RaquetFile | TileSet:
    if not isinstance(source, str | os.PathLike | RaquetFile | TileSet):
        return raquet.open(list(source))
    found = comal.open(source) if isinstance(source, str | os.PathLike) else source
    if not isinstance(found, RaquetFile | TileSet):
        raise NotThisFormatError(
            "neither a raster nor map tiles",
            where=shown(source, 200),
            found=type(found).__name__,
            expected="a RaQuet or a Tapalcatl",
            hint="comal.ml.dataset reads samples",
        )
    return found


def _chips(file: RaquetFile, size: int, chosen: ChipOptions) -> ChipDataset:
    zoom = file.zooms[-1] if chosen.zoom is None else chosen.zoom
    grid = grid_of(file.metadata, zoom, file.href)
    if chosen.count is not None and chosen.stride is not None:
        raise InvalidInputError("chips are on a grid or at random places, not both")
    if size > min(grid.width, grid.height):
        raise InvalidInputError("a chip is larger than the world", found=size)
    left, top, width, height = grid.span(file.bounds if chosen.bbox is None else chosen.bbox)
    region = np.array([left, top, left + width, top + height], np.int64)
    cells = file.cells(zoom)
    if chosen.count is None:
        places = _on_grid(cells, grid, region, size, chosen)
    else:
        places = _at_random(cells, grid, region, size, chosen)
    if not places.rectangles.size:
        where, found = file.href, f"size {size}, bbox {chosen.bbox}"
        raise InvalidInputError("no chip with a tile fits", where=where, found=found)
    bands = [band.name for band in chosen_bands(file.metadata, chosen.bands, file.href)]
    return ChipDataset(file, places, (grid, size, bands, chosen))


def _tiles(found: TileSet, chosen: ChipOptions) -> TileDataset:
    zoom, bands, bbox = chosen.zoom, chosen.bands, chosen.bbox
    if replace(chosen, zoom=None, bands=None, bbox=None, seed=0) != ChipOptions():
        raise InvalidInputError(
            "the tiles of a Tapalcatl are samples as they are",
            expected="neither stride, count, time nor scaled",
        )
    keys = found.keys()
    keys = keys if zoom is None else keys[keys[:, 0] == zoom]
    if bbox is not None and len(keys):
        finest = int(keys[-1, 0])
        finer = finest - keys[:, :1]
        first, last = keys[:, 1:] << finer, (keys[:, 1:] + 1 << finer) - 1
        parts = [
            ((last >= part[:2]) & (first <= part[2:])).all(axis=1)
            for part in bbox_windows(bbox, finest)
        ]
        keys = keys[np.any(parts, axis=0)] if parts else keys[:0]
    if not len(keys):
        raise InvalidInputError(
            "no tile to take", where=found.href, found=f"zoom {zoom}, bbox {bbox}"
        )
    numbers: Any = [bands] if isinstance(bands, int | str) else bands
    return TileDataset(found, keys, Field(bands=numbers))


# -- places of chips -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """First pixels of chips: points of rectangles that do not overlap, by number or drawn."""

    rectangles: Ints
    """Shape (4, n), in strides; their points are numbered one rectangle after the other."""
    last_row: int
    """The last row in which a chip may begin."""
    stride: int = 1
    shift: int = 0
    """Pixels from the first one of a chip to its point."""
    draws: int | None = None
    """Number of points drawn at random; None for each of them once."""
    key: int = 0

    def __len__(self) -> int:
        left, top, right, bottom = self.rectangles
        return int(((right - left) * (bottom - top)).sum()) if self.draws is None else self.draws

    def __getitem__(self, numbers: Ints) -> Ints:
        """Columns and rows of first pixels, shape (n, 2)."""
        left, top, right, bottom = self.rectangles
        ends = np.cumsum((right - left) * (bottom - top))
        if self.draws is not None:
            points = (uniform(numbers, self.key) * ends[-1]).astype(np.int64)
            numbers = np.minimum(points, ends[-1] - 1)
        which = np.searchsorted(ends, numbers, side="right")
        down, across = np.divmod(numbers - np.append(0, ends)[which], (right - left)[which])
        columns = (left[which] + across) * self.stride - self.shift
        rows = (top[which] + down) * self.stride - self.shift
        return np.column_stack([columns, rows.clip(0, self.last_row)])


def _at_random(cells: Ints, grid: Grid, region: Ints, size: int, chosen: ChipOptions) -> Places:
    """Chips with their centres in tiles, within `bbox`; without one, in the bounds if they fit."""
    shift = size // 2
    centres = region + np.repeat([shift, shift - size + 1], 2)
    if chosen.bbox is not None or (centres[:2] < centres[2:]).all():
        region = centres
    drawn: Any = {"shift": shift, "draws": chosen.count, "key": key_of(chosen.seed)}
    return Places(in_tiles(cells, grid, region), grid.height - size, **drawn)


def _on_grid(cells: Ints, grid: Grid, region: Ints, size: int, chosen: ChipOptions) -> Places:
    """Chips with a pixel in a tile, within `bbox`; without one, with a pixel in the bounds."""
    stride, start, stop = chosen.stride or size, region[:2], region[2:]
    if chosen.bbox is None:
        first = np.maximum((start - size) // stride + 1, 0)
        last = np.minimum(stop - 1, [stop[0], grid.height - size]) // stride
    else:
        first, last = -(-start // stride), (stop - size) // stride
    across, down = np.maximum(last - first + 2, 1).tolist()
    if across * down > _MOST:
        raise InvalidInputError("the grid of chips has too many places", found=across * down)
    parts = in_tiles(cells, grid, region)
    # The first and last chips that touch each rectangle, counted from the first one of all.
    x0, y0 = np.maximum((parts[:2] - size) // stride + 1 - first[:, None], 0)
    x1, y1 = np.minimum((parts[2:] - 1) // stride, last[:, None]) - first[:, None]
    heights = np.where(x1 >= x0, np.maximum(y1 - y0 + 1, 0), 0)
    part = np.repeat(np.arange(len(heights)), heights)
    rows = y0[part] + np.arange(len(part)) - (np.cumsum(heights) - heights)[part]
    # Rows have a place more, so that the last chip of one is not next to the first one below.
    starts, stops = merged(rows * across + x0[part], rows * across + x1[part] + 1)
    top, left = np.divmod(starts, across)
    runs = np.stack([left, top, left + stops - starts, top + 1])
    return Places(runs + np.tile(first, 2)[:, None], grid.height - size, stride)
