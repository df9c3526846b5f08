"""Chips of a RaQuet and tiles of a Tapalcatl as samples, by number.

Positions are pixels of one zoom, counted from the north-west corner of the world. Columns continue
across the antimeridian. Rectangles are left, top, right and bottom, the latter two not included.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

import comal
from comal import raquet
from comal.errors import InvalidInputError, NotInContainerError, NotThisFormatError, shown
from comal.geo.boxes import wrap
from comal.grid import mercator
from comal.grid.cover import bbox_windows
from comal.limits import KIB
from comal.ml.archives import Dataset, Location, OnError, Sample, check_on_error
from comal.ml.decoding import Field, enter, masked
from comal.ml.index import Shared
from comal.ml.order import Floats, Ints, key_of, uniform
from comal.public import guarded_class, options_of, takes
from comal.raquet.reading.file import Bands, RaquetFile
from comal.raquet.reading.pixels import chosen_bands
from comal.raquet.reading.windows import CRS, Grid, Window, grid_of, in_tiles
from comal.raquet.times import Step
from comal.tapalcatl.reading.tileset import TileSet

_USUAL = 32 * KIB
_MOST = 1 << 25
"""Most chips; the place of each takes 16 bytes."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where chips or tiles are in their source, a row each."""

    source: Any
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Ints) -> Places:
        """Some of the places."""
        return Places(self.source, self.rows[rows])


@guarded_class
class ChipDataset(Dataset):
    """Chips of a RaQuet. Made by `chips`."""

    def __init__(self, places: Places, how: Any) -> None:
        self._shared, self._how = Shared(places), how

    @property
    def places(self) -> Places:
        """Where the samples are."""
        found: Places = self._shared.value
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} of {shown(self.places.source.href, 90)}>"

    @property
    def marks(self) -> Any:
        """The places of the samples as bytes, an Arrow array."""
        rows = self.places.rows
        kind = pa.binary(8 * rows.shape[1])
        return pa.FixedSizeBinaryArray.from_buffers(kind, len(rows), [None, pa.py_buffer(rows)])

    def digest(self) -> str:
        """A text that tells this data set from others."""
        known = hashlib.blake2b(repr(self._how).encode(), digest_size=16)
        known.update(self.places.rows.tobytes())
        return f"{self!r} {known.hexdigest()}"

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some chips as float64, or less."""
        _, size, bands, _ = self._how
        return len(rows) * int(size) ** 2 * len(bands) * 8

    def read(self, rows: Ints) -> list[Window]:
        """The pixels of some chips; all tiles that they touch are fetched together."""
        (grid, size, bands, how), at = self._how, self.places.rows[rows]
        found: list[Window] = self.places.source.windows(grid.zoom, at, size, size, bands, **how)
        return found

    def decode(self, place: int, raw: list[Window], out: Mapping[str, Any]) -> Sample:
        """One chip."""
        del out
        window, (grid, size, *_) = raw[place], self._how
        image, valid = window.data.data, ~np.ma.getmaskarray(window.data)
        images = {"image": image, "valid": valid}
        if self.masks:
            images = {"image": masked(image, valid)}
        bbox = _degrees(grid, window.column, window.row, size)
        name = f"{window.zoom}/{window.column}/{window.row}"
        return {**images, "transform": window.transform, "crs": CRS, "bbox": bbox, "id": name}


def _degrees(grid: Grid, column: int, row: int, size: int) -> tuple[float, ...]:
    """The box of a square of pixels; west > east crosses the antimeridian."""
    x, y = np.array([column, column + size]), np.array([row + size, row])
    (west, east), (south, north) = mercator.xy_to_lonlat(x / grid.width, y / grid.height, 0)
    return tuple(map(float, (west, south, wrap(east), north)))


@guarded_class
class TileDataset(ChipDataset):
    """Tiles of a Tapalcatl. Made by `chips`."""

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some tiles, guessed: their sizes are in the directories of archives."""
        return len(rows) * _USUAL

    def read(self, rows: Ints) -> Any:
        """Some tiles with their zooms, columns and rows, fetched together."""
        at = self.places.rows[rows]
        return list(zip(at.tolist(), self.places.source.tiles(at), strict=True))

    def decode(self, place: int, raw: Any, out: Mapping[str, Any]) -> Sample:
        """One tile."""
        (z, x, y), tile = raw[place]
        source, name = self.places.source, f"{z}/{x}/{y}"
        if tile is None:
            raise NotInContainerError("the tile is gone", where=source.href, found=name)
        data, label = memoryview(tile.content(source.limits)), f"{name}.{tile.ext}"
        found: Sample = {}
        enter(found, "image", self._how, data, label, out.get("image"), masks=self.masks)
        image, transform = found["image"], None
        if isinstance(image, np.ndarray):
            height, width = image.shape[-2:]
            transform = Grid(z, width, height).transform(x * width, y * height)
        bbox, known = _degrees(Grid(z, 1, 1), x, y, 1), {"z": z, "x": x, "y": y, "id": name}
        return {"image": image, "transform": transform, "crs": CRS, "bbox": bbox, **known}


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
        Any integer from -2**63 to 2**63 - 1.
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
    check_on_error(on_error)
    chosen = options_of(ChipOptions, options)
    for name, value in {"size": size, "stride": chosen.stride, "count": chosen.count}.items():
        if value is not None and not 1 <= value <= _MOST:
            raise InvalidInputError(f"{name} of chips", found=value, expected=f"1 to {_MOST}")
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
    grid = grid_of(file.metadata, file.zooms[-1] if chosen.zoom is None else chosen.zoom, file.href)
    if chosen.count is not None and chosen.stride is not None:
        raise InvalidInputError("chips are on a grid or at random places, not both")
    if size > min(grid.width, grid.height):
        raise InvalidInputError("a chip is larger than the world", found=size)
    left, top, width, height = grid.span(file.bounds if chosen.bbox is None else chosen.bbox)
    region = np.array([left, top, left + width, top + height], np.int64)
    places_of = _on_grid if chosen.count is None else _at_random
    places = places_of(file.cells(grid.zoom), grid, region, size, chosen)
    if not len(places):
        where, found = file.href, f"size {size}, bbox {chosen.bbox}"
        raise InvalidInputError("no chip with a tile fits", where=where, found=found)
    bands = [band.name for band in chosen_bands(file.metadata, chosen.bands, file.href)]
    how = {"masked": True, "time": chosen.time, "scaled": chosen.scaled}
    places[:, 0] %= grid.width  # columns continue across the antimeridian
    return ChipDataset(Places(file, places), (grid, size, bands, how))


def _tiles(found: TileSet, chosen: ChipOptions) -> TileDataset:
    zoom, bands, bbox = chosen.zoom, chosen.bands, chosen.bbox
    if replace(chosen, zoom=None, bands=None, bbox=None, seed=0) != ChipOptions():
        raise InvalidInputError(
            "the tiles of a Tapalcatl are samples as they are",
            expected="neither stride, count, time nor scaled",
        )
    keys = found.keys()
    keys = keys if zoom is None else keys[keys[:, 0] == zoom]
    keys = keys if bbox is None else keys[_overlapping(keys, bbox)]
    if not len(keys):
        sought = f"zoom {zoom}, bbox {bbox}"
        raise InvalidInputError("no tile to take", where=found.href, found=sought)
    numbers: Any = [bands] if isinstance(bands, int | str) else bands
    return TileDataset(Places(found, keys), Field(bands=numbers))


# -- places ----------------------------------------------------------------------------------------


def _overlapping(keys: Ints, bbox: Sequence[float]) -> Any:
    """Which tiles overlap a box in degrees."""
    zooms, tiles = keys[:, 0], keys[:, 1:]
    found = np.zeros(len(keys), np.bool_)
    for zoom in np.unique(zooms).tolist():
        for window in bbox_windows(bbox, zoom):
            inside = (tiles >= window[:2]) & (tiles <= window[2:])
            found |= (zooms == zoom) & inside.all(axis=1)
    return found


def _at_random(cells: Ints, grid: Grid, region: Ints, size: int, chosen: ChipOptions) -> Ints:
    """Chips with their centres in tiles, within `bbox`; without one, in the bounds if they fit."""
    shift = size // 2
    centres = region + np.repeat([shift, shift - size + 1], 2)
    if chosen.bbox is not None or (centres[:2] < centres[2:]).all():
        region = centres
    drawn = uniform(np.arange(chosen.count or 0), key_of(chosen.seed))
    places = _points(in_tiles(cells, grid, region), drawn) - shift
    places[:, 1] = places[:, 1].clip(0, grid.height - size)
    return places


def _on_grid(cells: Ints, grid: Grid, region: Ints, size: int, chosen: ChipOptions) -> Ints:
    """Chips with a pixel in a tile, within `bbox`; without one, with a pixel in the bounds."""
    stride, start, stop = chosen.stride or size, region[:2], region[2:]
    if chosen.bbox is None:
        first = np.maximum((start - size) // stride + 1, 0)
        last = np.minimum(stop - 1, [stop[0], grid.height - size]) // stride
    else:
        first, last = -(-start // stride), (stop - size) // stride
    parts = in_tiles(cells, grid, region)
    # The first and last chips that touch each rectangle; one may touch several.
    low = np.maximum((parts[:2] - size) // stride + 1, first[:, None])
    high = np.minimum((parts[2:] - 1) // stride, last[:, None])
    places = _points(np.concatenate([low, np.maximum(high + 1, low)]))
    places = places[np.lexsort(places.T)]  # by rows
    once = np.append(True, np.diff(places, axis=0).any(axis=1))[: len(places)]
    return np.asarray(places[once] * stride)


def _points(rectangles: Ints, drawn: Floats | None = None) -> Ints:
    """Points of rectangles, shape (n, 2): all, or one for each number from 0 to below 1."""
    left, top, right, bottom = rectangles
    ends = np.append(0, np.cumsum((right - left) * (bottom - top)))
    total = int(ends[-1])
    if drawn is None or not total:
        if total > _MOST:
            raise InvalidInputError("too many chips", found=total, expected=f"<= {_MOST}")
        numbers = np.arange(total)
    else:
        numbers = np.minimum((drawn * total).astype(np.int64), total - 1)
    which = np.searchsorted(ends, numbers, side="right") - 1
    down, across = np.divmod(numbers - ends[which], (right - left)[which])
    return np.column_stack([left[which] + across, top[which] + down])
