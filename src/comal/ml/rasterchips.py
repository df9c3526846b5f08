"""Chips of a RaQuet and tiles of a Tapalcatl as samples, by number."""

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
from comal.ml.chipplaces import Places, at_random, on_grid
from comal.ml.decoding import Masked, Masking, decoded
from comal.ml.fields import Field
from comal.ml.index import Shared
from comal.ml.order import Ints
from comal.public import guarded, guarded_class, options_of, takes
from comal.raquet.reading.file import Bands, RaquetFile
from comal.raquet.reading.pixels import chosen_bands
from comal.raquet.reading.windows import CRS, Grid, Window, grid_of
from comal.raquet.times import Step
from comal.tapalcatl.reading.tile import Tile
from comal.tapalcatl.reading.tileset import TileSet

_USUAL = 32 * KIB


class _Numbered(Dataset):
    """Samples of a source by number, all or some of them; workers share source and numbers."""

    def __init__(self, source: Any, places: Any) -> None:
        self._shared = Shared((source, places, None))

    def __len__(self) -> int:
        _, places, chosen = self._shared.value
        return len(places if chosen is None else chosen)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self):,} of {shown(self._shared.value[0].href, 90)}>"

    @guarded
    def take(self, rows: Ints | Sequence[int]) -> Self:
        """A data set of some samples, in that order."""
        source, places, _ = self._shared.value
        found = copy(self)
        shared = Shared((source, places, self._numbers(self._rows(rows))))
        found._shared = shared  # noqa: SLF001 - of the same class
        return found

    def digest(self) -> str:
        """A text that tells this data set from others."""
        _, places, chosen = self._shared.value
        how = {**vars(self), "_shared": None, "transform": None, "on_error": None}
        known = pickle.dumps((places, chosen)) + repr(sorted(how.items(), key=str)).encode()
        return f"{self!r} {hashlib.blake2b(known, digest_size=16).hexdigest()}"

    def _numbers(self, rows: Ints) -> Ints:
        """The numbers of samples among all that the source has."""
        chosen = self._shared.value[2]
        found: Ints = rows if chosen is None else chosen[rows]
        return found


@guarded_class
class ChipDataset(_Numbered):
    """Chips of a RaQuet. Made by `chips`."""

    def __init__(
        self, file: RaquetFile, places: Places, grid: Grid, size: int, options: Mapping[str, Any]
    ) -> None:
        super().__init__(file, places)
        self._grid, self._size, self._options = grid, size, options

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some chips as float64, or less."""
        return len(rows) * self._size**2 * len(self._options["bands"]) * 8

    def read(self, rows: Ints) -> list[Window]:
        """The pixels of some chips; all tiles that they touch are fetched together."""
        file, places, _ = self._shared.value
        corners = places.at(self._numbers(rows))
        corners[:, 0] %= self._grid.width
        sides = self._size, self._size
        found: list[Window] = file.windows(
            self._grid.zoom, corners, *sides, masked=True, **self._options
        )
        return found

    def masked(self) -> Self:
        """The same chips without `transform`, with images as `comal.ml.decoding.Masked`."""
        found = copy(self)
        found.transform = _masked
        return found

    def decode(self, place: int, raw: list[Window], out: Mapping[str, Any]) -> Sample:
        """One chip."""
        window, grid, size = raw[place], self._grid, self._size
        west, east = window.column / grid.width, (window.column + size) / grid.width
        north, south = window.row / grid.height, (window.row + size) / grid.height
        return {
            "image": _placed(window.data.data, out.get("image")),
            "valid": _placed(~np.ma.getmaskarray(window.data), out.get("valid")),
            "transform": window.transform,
            "crs": window.crs,
            "bbox": _degrees(0, west, south, east, north),
            "id": f"{window.zoom}/{window.column}/{window.row}",
        }


def _masked(sample: Sample) -> Sample:
    """A chip with its image and the mask of it as one."""
    found = {name: value for name, value in sample.items() if name != "valid"}
    return {**found, "image": Masked(sample["image"], sample["valid"])}


def _placed(pixels: Any, out: Any) -> Any:
    """Pixels in an array of their own, which is `out` where it fits."""
    if out is None or out.shape != pixels.shape or out.dtype != pixels.dtype:
        return pixels.copy()
    out[...] = pixels
    return out


def _degrees(zoom: int, west: float, south: float, east: float, north: float) -> tuple[float, ...]:
    """A box in tiles of a zoom as one in degrees; west > east crosses the antimeridian."""
    lon, lat = mercator.xy_to_lonlat(np.array([west, east]), np.array([south, north]), zoom)
    return float(lon[0]), float(lat[0]), float(wrap(lon[1])), float(lat[1])


@guarded_class
class TileDataset(_Numbered):
    """Tiles of a Tapalcatl. Made by `chips`."""

    def __init__(self, tiles: TileSet, keys: Ints, field: Field) -> None:
        super().__init__(tiles, keys)
        self._field = field

    def masked(self) -> Self:
        """The same tiles without `transform`, with images as `comal.ml.decoding.Masked`."""
        found = copy(self)
        found.transform = None
        found._field = replace(self._field, decode=Masking(self._field))  # noqa: SLF001 - its own
        return found

    def nbytes(self, rows: Ints) -> int:
        """Bytes of some tiles, guessed: their sizes are in the directories of archives."""
        return len(rows) * _USUAL

    def read(self, rows: Ints) -> tuple[Ints, list[Tile | None]]:
        """Some tiles, fetched together."""
        tiles, keys, _ = self._shared.value
        keys = keys[self._numbers(rows)]
        return keys, tiles.tiles(keys)

    def decode(
        self, place: int, raw: tuple[Ints, list[Tile | None]], out: Mapping[str, Any]
    ) -> Sample:
        """One tile."""
        z, x, y = raw[0][place].tolist()
        name, tile, tiles = f"{z}/{x}/{y}", raw[1][place], self._shared.value[0]
        if tile is None:
            raise NotInContainerError("the tile is gone", where=tiles.href, found=name)
        data = memoryview(tile.content(tiles.limits))
        image = decoded(data, self._field, f"{name}.{tile.ext}", out.get("image"))
        transform = None
        if isinstance(image, np.ndarray):
            (west, _, _, north), (height, width) = mercator.tile_box_3857(z, x, y), image.shape[-2:]
            pixel = mercator.pixel_size(z, width), mercator.pixel_size(z, height)
            transform = (pixel[0], 0.0, west, 0.0, -pixel[1], north)
        return {
            "image": image,
            "transform": transform,
            "crs": CRS,
            "bbox": _degrees(z, x, y + 1, x + 1, y),
            "z": z,
            "x": x,
            "y": y,
            "id": name,
        }


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


def _chips(file: RaquetFile, size: int, chosen: ChipOptions) -> ChipDataset | TileDataset:
    zoom = file.zooms[-1] if chosen.zoom is None else chosen.zoom
    grid = grid_of(file.metadata, zoom, file.href)
    if chosen.count is None:
        places: Places = on_grid(file, grid, chosen.bbox, size, chosen.stride or size)
    elif chosen.stride is None:
        places = at_random(file, grid, chosen.bbox, size, chosen.count, chosen.seed)
    else:
        raise InvalidInputError("chips are on a grid or at random places, not both")
    bands = [band.name for band in chosen_bands(file.metadata, chosen.bands, file.href)]
    options = {"bands": bands, "time": chosen.time, "scaled": chosen.scaled}
    return ChipDataset(file, places, grid, size, options)


def _tiles(found: TileSet, chosen: ChipOptions) -> TileDataset:
    zoom, bands, bbox = chosen.zoom, chosen.bands, chosen.bbox
    if replace(chosen, zoom=None, bands=None, bbox=None, seed=0) != ChipOptions():
        raise InvalidInputError(
            "the tiles of a Tapalcatl are samples as they are",
            expected="neither stride, count, time nor scaled",
        )
    keys = found.keys()
    there = np.ones(len(keys), np.bool_) if zoom is None else keys[:, 0] == zoom
    if bbox is not None:
        inside = np.zeros(len(keys), np.bool_)
        for level in np.unique(keys[there, 0]).tolist():
            for west, north, east, south in bbox_windows(bbox, level).tolist():
                low, high = (level, west, north), (level, east, south)
                inside |= ((keys >= low) & (keys <= high)).all(axis=1)
        there &= inside
    if not there.any():
        raise InvalidInputError(
            "no tile to take", where=found.href, found=f"zoom {zoom}, bbox {bbox}"
        )
    numbers: Any = [bands] if isinstance(bands, int | str) else bands
    return TileDataset(found, keys[there], Field(bands=numbers))
