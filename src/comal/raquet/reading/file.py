"""An open RaQuet raster: tiles, windows, points."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown, translated
from comal.grid import quadbin
from comal.grid.arguments import NO_ARRAY, integers, tile_rows
from comal.parallel import in_thread
from comal.plan import awaiting
from comal.public import guarded_class
from comal.raquet.reading.coverage import Coverage, add_padding, bounds_of, coverages
from comal.raquet.reading.pixels import (
    Asked,
    alpha_of,
    chosen_bands,
    common_type,
    fill_value,
)
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import ABSENT, cell_of
from comal.raquet.reading.windows import (
    CRS,
    Grid,
    Window,
    check_tile_size,
    filled,
    grid_of,
    points_of,
    tiles_of,
    window_of,
    windows_of,
    zoom_for,
)
from comal.raquet.spec import Band, Bounds, Metadata, Number
from comal.raquet.times import Step, TimeAxis
from comal.storage import Source
from comal.storage.source import Closing

Ints = npt.NDArray[np.int64]
Pixels = Any
"""A numpy array, or a `numpy.ma.MaskedArray` with `masked`."""
Bands = str | int | Sequence[str | int] | None
"""Bands by name, or by number from 1; None for all."""
Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""


@guarded_class
class RaquetFile(Closing):
    """A raster in one RaQuet file, or in the files of a partitioned set. Made by `open`.

    Every method that reads takes

    bands
        Names, or numbers from 1; None for all bands. Results always have an axis for bands, and a
        type that holds all of these bands exactly.
    time
        The step of a time series: an int counts from 0, a float is a value of ``time_cf``, and
        anything else is a point in time.
    masked
        Return a `numpy.ma.MaskedArray` that masks pixels that are nodata, NaN, or in no tile. In
        bands without a nodata value it also masks the padding of tiles at the edge, if the file
        says what its source covered, as files by comal do. If there is an alpha band, requested
        or not, it masks pixels with alpha 0 in all bands except the alpha band itself.
        If false, pixels hold what is stored; pixels in no tile hold the nodata value or 0.
    scaled
        Return physical values as float64: pixel x scale + offset, NaN for invalid pixels.

    Notes
    -----
    Safe to use from several threads, after a fork, and with pickle.
    """

    def __init__(self, store: TileStore, nodata: Number | None = None) -> None:
        self._store = store
        self._lookup = store.index
        self.times: TimeAxis | None = store.times
        """The time steps, or None if there is no time dimension."""
        self.metadata: Metadata = store.metadata
        """The metadata of the file; for a set, those of all its files together."""
        self._declared = nodata is None
        if nodata is not None:
            alpha = alpha_of(self.bands)
            bands = (
                band if at == alpha else replace(band, nodata=nodata)
                for at, band in enumerate(self.bands)
            )
            self.metadata = replace(self.metadata, bands=tuple(bands))

    # -- properties --------------------------------------------------------------------------------

    @property
    def store(self) -> TileStore:
        """The tiles by row and column of the table, and the parts of the set.

        For work on many tiles, such as queries and copies. This object uses the same store and
        its caches.
        """
        return self._store

    @property
    def href(self) -> str:
        """Href of the file; for a set, of its first file."""
        return self._store.sources[0].href

    @property
    def sources(self) -> tuple[Source, ...]:
        """The source of each file."""
        return self._store.sources

    @property
    def bands(self) -> tuple[Band, ...]:
        """The bands."""
        return self.metadata.bands

    @property
    def bounds(self) -> Bounds:
        """West, south, east, north in degrees of the area that the source covers, without padding.

        West > east across the antimeridian. If the file does not say it, the bounds in `metadata`,
        which are those of complete tiles.
        """
        return bounds_of([part.metadata for part in self._store.parts], self.metadata)

    @property
    def crs(self) -> str:
        """CRS of the pixels: EPSG:3857."""
        return CRS

    @property
    def zooms(self) -> range:
        """The zooms that the file declares."""
        return range(self.metadata.min_zoom, self.metadata.max_zoom + 1)

    def everything(self) -> Bounds:
        """The bbox of all tiles: that of `metadata`, or `bounds` if they cross the antimeridian.

        In the latter case the bbox of the metadata spans the world.
        """
        own = self.bounds
        return own if own[0] > own[2] else self.metadata.bounds

    @property
    def coverage(self) -> tuple[Coverage | None, ...]:
        """The area that each band's source covers; None if unknown or if nodata marks padding."""
        if self._declared:
            return self._store.coverage
        return coverages([part.metadata for part in self._store.parts], declared=False)

    def with_nodata(self, nodata: Number | None) -> RaquetFile:
        """The same raster with this nodata value for its bands instead of the declared ones.

        None returns the raster itself. Pixels that are NaN, infinite, padding or have alpha 0 stay
        without a value; padding that only a declared nodata value marks counts as pixels. Open
        files, caches and `close` are shared.
        """
        if nodata is None:
            return self
        return RaquetFile(self._store, nodata)

    def documents(self) -> tuple[str, ...]:
        """The metadata document of each file, as stored."""
        return tuple(part.document for part in self._store.parts)

    def cells(self, zoom: int | None = None) -> Ints:
        """Ids of the existing tiles, ascending; of one zoom, or of all."""
        if zoom is None:
            return self._lookup.between(1, 2**63 - 2)
        first, last = quadbin.descendants(cell_of(0, 0, 0), zoom)
        return self._lookup.between(int(first), int(last))

    def __repr__(self) -> str:
        names = ", ".join(f"{band.name} {band.dtype}" for band in self.bands[:4])
        more = ", ..." if len(self.bands) > 4 else ""
        zooms = f"zooms {self.zooms[0]}-{self.zooms[-1]}"
        return f"RaquetFile({shown(self.href, 90)}, {zooms}, {names}{more})"

    # -- tiles -------------------------------------------------------------------------------------

    def tile(
        self,
        z: int,
        x: int,
        y: int,
        bands: Bands = None,
        *,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> Pixels:
        """The pixels of one tile.

        Returns
        -------
        Array of shape (bands, rows, columns), which the caller may change.

        Raises
        ------
        InvalidInputError
            The file does not declare the zoom, the tile is outside of the world, or there is no
            such band or time step.
        InvalidMetadataError
            The tile does not decode, or appears twice.
        """
        asked, row = self._asked(bands, time, masked, scaled), self._row(z, x, y, time)
        planes = None if row == ABSENT else self._store.bands_here(row, asked.read)
        return self._tile_of(row, planes, asked)

    tile_async = awaiting(tile)
    """As `tile`, without blocking the event loop."""

    def tiles(
        self,
        tiles: Iterable[Tile] | Ints,
        bands: Bands = None,
        *,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> list[Pixels]:
        """The pixels of many tiles, fetched together; see `tile`.

        `tiles` are triples of zoom, column and row, or an array of shape (n, 3).

        Raises
        ------
        LimitExceededError
            Together they take more bytes than ``Limits.raster_bytes``.
        """
        asked = self._asked(bands, time, masked, scaled)
        rows: list[int] = self._rows(tiles, time).tolist()
        size = self.metadata.block_width * self.metadata.block_height
        size *= len(rows) * len(asked.bands) * common_type(asked.bands).itemsize
        self._store.limits.check("raster_bytes", size, self.href)
        there = [row for row in dict.fromkeys(rows) if row != ABSENT]
        found = self._store.bands_of(there, asked.read)
        return [self._tile_of(row, found.get(row), asked) for row in rows]

    tiles_async = awaiting(tiles)
    """As `tiles`, without blocking the event loop."""

    def raw_blob(
        self,
        z: int,
        x: int,
        y: int,
        band: str | int = 1,
        *,
        time: Step | None = None,
        verify: bool = True,
    ) -> bytes | None:
        """The blob of one tile and band as it is stored; None if there is none.

        In the interleaved layout it holds all bands, whichever is named. Raises the errors of
        `tile`, except those of decoding. Without `verify`, the checksum of a page that is read
        from a local file is not verified; a gzip blob has its own checksum, which decoding
        verifies.
        """
        row = self._row(z, x, y, time)
        if row == ABSENT:
            return None
        store = self._store
        column = self._column(band)
        blob = store.blob_here(row, column, verify=verify)
        if blob is ...:
            return store.blobs_of([(row, column)])[row, column]
        return blob

    def raw_blobs(
        self,
        tiles: Iterable[Tile] | Ints,
        band: str | int = 1,
        *,
        time: Step | None = None,
        verify: bool = True,
    ) -> list[bytes | None]:
        """The blobs of many tiles and one band, in the order of `tiles`, fetched together.

        Parameters
        ----------
        tiles
            Zoom, column and row of each: triples, or an array of shape (n, 3).
        band, time, verify
            See `raw_blob`, which also lists the errors.
        """
        rows, column = self._rows(tiles, time), self._column(band)
        together = max(1, len(rows))
        return list(self._store.iter_blobs(rows, column, verify=verify, together=together))

    async def raw_blobs_async(
        self,
        tiles: Iterable[Tile] | Ints,
        band: str | int = 1,
        *,
        time: Step | None = None,
    ) -> list[bytes | None]:
        """As `raw_blobs`, without blocking the event loop; checksums are verified."""
        return await in_thread(self.raw_blobs, tiles, band, time=time)

    def iter_raw_blobs(
        self,
        tiles: Iterable[Tile] | Ints,
        band: str | int = 1,
        *,
        time: Step | None = None,
        verify: bool = True,
    ) -> Iterator[bytes | None]:
        """As `raw_blobs`, one by one: only a few are in memory at a time.

        For local files this is the fastest way to read blobs, since memory is reused.
        """
        rows, column = self._rows(tiles, time), self._column(band)
        return self._store.iter_blobs(rows, column, verify=verify)

    def raw_tile(
        self, z: int, x: int, y: int, *, time: Step | None = None
    ) -> tuple[bytes | None, ...] | None:
        """The blobs of one tile, one for each of `Metadata.columns`; None if it is absent."""
        row = self._row(z, x, y, time)
        if row == ABSENT:
            return None
        columns = self._store.columns
        found = self._store.blobs_of([(row, column) for column in columns])
        return tuple(found[row, column] for column in columns)

    raw_tile_async = awaiting(raw_tile)
    """As `raw_tile`, without blocking the event loop."""

    def has_tile(self, z: int, x: int, y: int, *, time: Step | None = None) -> bool:
        """Whether a tile exists; nothing is read."""
        return self._row(z, x, y, time) != ABSENT

    # -- windows -----------------------------------------------------------------------------------

    def read(
        self,
        bbox: Sequence[float] | None = None,
        *,
        zoom: int | None = None,
        resolution: float | None = None,
        bands: Bands = None,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> Window:
        """The pixels that a bbox touches.

        Parameters
        ----------
        bbox
            West, south, east, north in degrees of EPSG:4326; west > east crosses the
            antimeridian. None for all tiles, see `everything`.
        zoom
            Zoom to read; clamped to the zooms of the file. None for the finest.
        resolution
            Instead of `zoom`: the largest pixel size, in metres of EPSG:3857.
        bands, time, masked, scaled
            See the class.

        Raises
        ------
        InvalidInputError
            `bbox` is not a bbox, or both `zoom` and `resolution` are given.
        LimitExceededError
            The pixels take more than ``raster_bytes``.
        """
        low, high = self.zooms[0], self.zooms[-1]
        if zoom is not None and resolution is not None:
            raise InvalidInputError("both zoom and resolution are given", where=self.href)
        if resolution is not None:
            zoom = zoom_for(resolution, self.metadata.block_width, low, high)
        zoom = high if zoom is None else max(low, min(high, int(integers(zoom, "zoom"))))
        span = self._grid(zoom).span(self.everything() if bbox is None else bbox)
        asked = self._asked(bands, time, masked, scaled)
        return self._window(zoom, span, asked)

    read_async = awaiting(read)
    """As `read`, without blocking the event loop."""

    def window(
        self,
        zoom: int,
        column: int,
        row: int,
        width: int,
        height: int,
        bands: Bands = None,
        *,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> Window:
        """A window in pixels of one zoom, counted from the north-west corner of the world.

        Columns wrap around the world; rows must be within it.

        Raises
        ------
        InvalidInputError
            The file does not declare the zoom, or the window is outside of the world.
        """
        span = self._span(zoom, column, row, width, height)
        asked = self._asked(bands, time, masked, scaled)
        return self._window(zoom, span, asked)

    window_async = awaiting(window)
    """As `window`, without blocking the event loop."""

    def windows(
        self,
        zoom: int,
        corners: Iterable[tuple[int, int]] | Ints,
        width: int,
        height: int,
        bands: Bands = None,
        *,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> list[Window]:
        """Many windows of one size, whose tiles are fetched together; see `window`.

        Parameters
        ----------
        zoom, width, height, bands, time, masked, scaled
            As for `window`.
        corners
            First column and row of each: pairs, or an array of shape (n, 2).

        Raises
        ------
        LimitExceededError
            Together they take more bytes than ``Limits.raster_bytes``.
        """
        with translated(NO_ARRAY, "not a list of corners", expected="column and row of each"):
            given = corners if isinstance(corners, np.ndarray) else np.array(list(corners))
            places = integers(given, "corner").reshape(-1, 2)
        spans = [self._span(zoom, column, row, width, height) for column, row in places.tolist()]
        return self._windows(zoom, spans, self._asked(bands, time, masked, scaled))

    windows_async = awaiting(windows)
    """As `windows`, without blocking the event loop."""

    def holes(self, zoom: int, column: int, row: int, width: int, height: int) -> frozenset[str]:
        """Bands in which pixels of a window may lack a value without holding a nodata value.

        These are bands that an alpha band masks, whose source covers only a part of the window, or
        that miss a tile. Nothing is read: NULL tiles anywhere in the file count, but only if its
        statistics tell.
        """
        span, grid = self._span(zoom, column, row, width, height), self._grid(zoom)
        names = self.metadata.band_names
        across, down = tiles_of(grid, span)
        steps = 1 if self.times is None else len(self.times)
        if len(across) * len(down) * steps > len(self._lookup.ids):
            return frozenset(names)
        xs, ys = np.meshgrid(across % (1 << zoom), down)
        if (self._lookup.counts(quadbin.cells(zoom, xs.ravel(), ys.ravel())) < steps).any():
            return frozenset(names)
        alpha, world = alpha_of(self.bands), (grid.width, grid.height)
        covers, nulls = self.coverage, self._store.columns_with_nulls
        whole = {cover: cover is None or cover.is_whole(span, world) for cover in set(covers)}
        return frozenset(
            name
            for at, (name, cover) in enumerate(zip(names, covers, strict=True))
            if alpha not in (None, at) or not whole[cover] or self._column(name) in nulls
        )

    # -- points ------------------------------------------------------------------------------------

    def point(
        self,
        lon: float,
        lat: float,
        bands: Bands = None,
        *,
        zoom: int | None = None,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> Pixels:
        """The pixel that contains a point in degrees of EPSG:4326, shape (bands,); see `points`."""
        asked = self._asked(bands, time, masked, scaled)
        found = self._points([lon], [lat], zoom, asked)
        return found[:, 0]

    point_async = awaiting(point)
    """As `point`, without blocking the event loop."""

    def points(
        self,
        lons: Any,
        lats: Any,
        bands: Bands = None,
        *,
        zoom: int | None = None,
        time: Step | None = None,
        masked: bool = False,
        scaled: bool = False,
    ) -> Pixels:
        """The pixels that contain many points; each tile is read and decoded once.

        Parameters
        ----------
        lons, lats
            Degrees of EPSG:4326, of equal length.
        bands, time, masked, scaled
            See the class. Without `masked`, a point outside of the raster can read as 0.
        zoom
            Zoom to read; None for the finest. If it has no tile at a point, the point has no
            value, even if another zoom has one.

        Returns
        -------
        Array of shape (bands, points).

        Raises
        ------
        InvalidInputError
            A coordinate is not finite, or a latitude is beyond 90 degrees.
        """
        asked = self._asked(bands, time, masked, scaled)
        return self._points(lons, lats, zoom, asked)

    points_async = awaiting(points)
    """As `points`, without blocking the event loop."""

    # -- end ---------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the files and drop cached tiles."""
        self._store.close()

    # -- arguments ---------------------------------------------------------------------------------

    def _asked(
        self,
        bands: Bands,
        time: Step | None,
        masked: bool,  # noqa: FBT001 - as callers of public methods have named it
        scaled: bool,  # noqa: FBT001
    ) -> Asked:
        chosen = chosen_bands(self.metadata, bands, self.href)
        every = self.metadata.bands
        at = alpha_of(every) if masked or scaled else None
        read = chosen if at is None or every[at] in chosen else (*chosen, every[at])
        return Asked(chosen, read, self._step(time), masked, scaled)

    def _column(self, band: str | int) -> str:
        """The column that holds a band."""
        store = self._store
        if type(band) is str and (column := store.column_of.get(band)) is not None:
            return column
        (found,) = chosen_bands(store.metadata, band, self.href)
        return store.column_of[found.name]

    def _rows(self, tiles: Iterable[Tile] | Ints, time: Step | None) -> Ints:
        """The same as `_row`, for many tiles."""
        places = tile_rows(tiles)
        z, x, y = places.T
        side = np.int64(1) << np.clip(z, 0, quadbin.MAX_ZOOM)
        wrong = (z < self.metadata.min_zoom) | (z > self.metadata.max_zoom)
        wrong |= (x < 0) | (x >= side) | (y < 0) | (y >= side)
        if wrong.any():
            z0, x0, y0 = places[np.argmax(wrong)].tolist()
            self._row(z0, x0, y0, time)  # raises the error
        return self._lookup.rows(quadbin.cells(z, x, y), self._step(time))

    def _row(self, z: int, x: int, y: int, time: Step | None) -> int:
        metadata = self.metadata
        if not type(z) is type(x) is type(y) is int:
            z, x, y = self._whole(z, x, y)
        if not metadata.min_zoom <= z <= metadata.max_zoom:
            grid_of(metadata, z, self.href)  # raises the error
        side = 1 << z
        if not (0 <= x < side and 0 <= y < side):
            raise InvalidInputError(
                "no such tile",
                where=self.href,
                found=f"{z}/{x}/{y}",
                expected=f"column and row below {side}",
            )
        return self._lookup.row(cell_of(z, x, y), self._step(time))

    def _whole(self, *place: Any) -> tuple[int, ...]:
        try:
            return tuple(map(operator.index, place))
        except TypeError as error:
            raise InvalidInputError(
                "no such tile",
                where=self.href,
                found="/".join(map(shown, place)),
                expected="zoom, column and row as whole numbers",
            ) from error

    def _step(self, time: Step | None) -> int:
        if self.times is not None:
            return self.times.index(time, self.href)
        if time is None or time == 0:
            return 0
        raise InvalidInputError("the file has no time", where=self.href, found=str(time))

    def _grid(self, zoom: int) -> Grid:
        return Grid(zoom, self.metadata.block_width, self.metadata.block_height)

    def _span(
        self, zoom: int, column: int, row: int, width: int, height: int
    ) -> tuple[int, int, int, int]:
        grid = grid_of(self.metadata, zoom, self.href)
        inside = row >= 0 and height > 0 and row + height <= grid.height
        if not inside or not 0 < width <= grid.width or abs(column) > grid.width:
            raise InvalidInputError(
                "the window lies outside the world",
                where=self.href,
                found=f"{width} x {height} at column {column}, row {row}",
                expected=f"within {grid.width} x {grid.height}",
            )
        return column, row, width, height

    def _covers(self, asked: Asked) -> tuple[Coverage | None, ...]:
        """The coverage of each band to read; empty if padding does not matter."""
        every = self.coverage if asked.masked or asked.scaled else ()
        return tuple(every[self.metadata.band_index(band.name)] for band in asked.read if every)

    # -- pixels ------------------------------------------------------------------------------------

    def _tile_of(self, row: int, planes: Sequence[Any] | None, asked: Asked) -> Pixels:
        check_tile_size(self._store, asked.read, self.href)
        shape = self.metadata.block_height, self.metadata.block_width
        planes = planes or [None] * len(asked.read)
        data = np.empty((len(planes), *shape), common_type(asked.read))
        missing = np.zeros(data.shape, np.bool_)
        for index, pixels in enumerate(planes):
            # Filling a plane takes as long as copying one: only those without pixels are filled.
            if pixels is None:
                missing[index] = True
            data[index] = fill_value(asked.read[index]) if pixels is None else pixels
        if row != ABSENT:
            self._add_padding_of_tile(missing, self._covers(asked), row)
        return asked.finished(data, missing)

    def _add_padding_of_tile(
        self,
        missing: Any,
        covers: Sequence[Coverage | None],
        row: int,
        at: Any = ...,
        pixels: Any = ...,
    ) -> None:
        """Mark padding in `missing`: the `pixels` of the tile are at the index `at` there."""
        if any(covers):
            z, x, y = (int(one) for one in quadbin.tiles(int(self._store.ids[row])))
            shape = self.metadata.block_height, self.metadata.block_width

            def covered(cover: Coverage) -> Any:
                inside = cover.tile(z, x, y, shape)
                return None if inside is None else inside[pixels]

            add_padding(missing, covers, covered, at)

    def _window(self, zoom: int, span: tuple[int, int, int, int], asked: Asked) -> Window:
        store, grid, (column, row, width, height) = self._store, self._grid(zoom), span
        check_tile_size(store, asked.read, self.href)
        size = len(asked.read) * width * height * common_type(asked.read).itemsize
        store.limits.check("raster_bytes", size, self.href)
        wanted, keep = window_of(grid, span), size * 2 < store.cache_bytes
        rows = self._lookup.rows(wanted.cells, asked.step)
        data, missing = filled(store, wanted, rows, asked.read, keep=keep)
        world = grid.width, grid.height
        add_padding(missing, self._covers(asked), lambda cover: cover.window(span, world))
        return Window(asked.finished(data, missing), grid.transform(column, row), zoom, column, row)

    def _windows(
        self, zoom: int, spans: Sequence[tuple[int, int, int, int]], asked: Asked
    ) -> list[Window]:
        """Windows of one size."""
        if not spans:
            return []
        store, grid, (_, _, width, height) = self._store, self._grid(zoom), spans[0]
        check_tile_size(store, asked.read, self.href)
        size = len(asked.read) * len(spans) * width * height * common_type(asked.read).itemsize
        store.limits.check("raster_bytes", size, self.href)
        wanted, keep = windows_of(grid, spans), size * 2 < store.cache_bytes
        rows = self._lookup.rows(wanted.cells, asked.step)
        data, missing = filled(store, wanted, rows, asked.read, keep=keep)
        world, covers = (grid.width, grid.height), self._covers(asked)
        for at, span in enumerate(spans if any(covers) else ()):
            add_padding(missing, covers, partial(Coverage.window, span=span, world=world), at)
        pixels = asked.finished(data, missing)
        return [
            Window(pixels[:, at], grid.transform(column, row), zoom, column, row)
            for at, (column, row, _, _) in enumerate(spans)
        ]

    def _points(self, lons: Any, lats: Any, zoom: int | None, asked: Asked) -> Pixels:
        grid = self._grid(self.zooms[-1] if zoom is None else int(quadbin.zooms_of(zoom)))
        wanted, covers = points_of(grid, lons, lats), self._covers(asked)
        rows = self._lookup.rows(wanted.cells, asked.step)
        data, missing = filled(self._store, wanted, rows, asked.read)
        for at in np.flatnonzero(rows != ABSENT).tolist() if any(covers) else ():
            self._add_padding_of_tile(missing, covers, int(rows[at]), *wanted.part_of(at))
        return asked.finished(data, missing)
