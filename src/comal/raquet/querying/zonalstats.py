"""Zonal statistics: every zone over every tile that it lies on, each tile read once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal import grid
from comal.errors import InvalidInputError, shown
from comal.geo.scanline import METHODS, Method, Spans
from comal.grid.arguments import integers
from comal.lazy import shapely
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.plan import run
from comal.progress import Progress, silent
from comal.public import options_of, takes
from comal.raquet import spec
from comal.raquet.querying.areas import Areas, tile_pairs
from comal.raquet.querying.moments import STATISTICS, Moments, of_spans
from comal.raquet.querying.ranks import Counts, Ranking, check_stat, is_ranked
from comal.raquet.querying.scanning import Files, opened
from comal.raquet.reading.pixels import alpha_of, stored_nodata
from comal.raquet.reading.store import tile_statistics as statistics_of_tiles
from comal.raquet.times import Step, axis_of
from comal.raster.values import as_array, valid_mask
from comal.raster.zones import zones_of
from comal.storage import StorageConfig

Ints = npt.NDArray[np.int64]

_AT_ONCE = 24 * MIB
"""Bytes of pixels that are in memory at a time, once."""
_WHOLE = 1e-9
"""What rounding may take from the share of a pixel that lies in a zone as a whole."""
_WORKERS = min(4, os.cpu_count() or 1)
_NO_ZONES = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions:
    """How zones are read, and what of their file is kept; see `zonal`."""

    crs: Any = None
    keep: Sequence[str] = ()
    layer: str | None = None
    tile_statistics: bool | None = None


@takes(ZoneOptions)
def zonal(
    href: Any,
    zones: Any,
    *,
    bands: Sequence[str] | None = None,
    zoom: int | None = None,
    time: Step | None = None,
    stats: Sequence[str] = ("count", "sum", "mean", "min", "max", "stddev"),
    method: Method = "centre",
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
    **options: Any,
) -> pa.Table:
    """Statistics of the pixels within zones.

    Each tile that a zone lies on is read and decoded once, whatever the number of zones; memory
    does not grow with the raster. Zones may overlap.

    Parameters
    ----------
    href
        Path or URL of a RaQuet file, an opened `RaquetFile`, or the parts of a data set.
    zones
        GeoDataFrame or GeoSeries; path or URL of a GeoParquet, GeoJSON or GeoPackage file, or
        path of a Shapefile (which needs geopandas); the Arrow table of a GeoParquet file; a
        GeoJSON document as a dict; shapely polygons and multipolygons, one or a sequence.
    bands
        Names of bands; None for all.
    zoom
        Zoom whose tiles count; moved into the range that there is. The finest one if absent.
    time
        Time step of a time series; see `comal.raquet.RaquetFile`.
    stats
        Of ``count``, ``sum``, ``mean``, ``min``, ``max``, ``range``, ``stddev`` and ``variance``
        (of the population, divided by n), ``stddev_sample`` (divided by n - 1); ``median``, and
        ``p10`` or ``p99.5`` for quantiles in percent; ``majority``, ``minority`` and ``variety``:
        the most and the least frequent value (of several the lowest), and how many different
        ones there are. All of stored pixels that are not nodata, not NaN and no padding, nor
        hidden by an alpha band that is 0.
    method
        Which pixels belong to a zone. ``centre``: those whose middle is inside. ``all_touched``:
        all that the zone has a part of. ``fractional``: all of these, weighted by the share of
        the pixel that is inside, which is computed exactly (by areas in the plane of the zones,
        not by sampling); ``count`` is then the sum of the weights, ``majority`` the value with
        the largest sum of weights, and a quantile the least value at which the weights of it and
        all lower ones reach that part of their sum. Without weights, quantiles are those of
        `numpy.quantile`: between two pixels in proportion.
    crs
        CRS of `zones` where they do not tell it themselves; longitude and latitude if absent.
    keep
        Columns of the zones that the result shall have too.
    layer
        Which layer of a GeoPackage that has several.
    tile_statistics
        Whether the statistics that a file has of its tiles stand for tiles that lie within zones
        as a whole, which then are not read. By default those of files by comal do; those of
        other writers may count pixels that are none. Of bands without a nodata value they do so
        for tiles that the source covers as a whole; of JPEG and WebP pixels are read in any case.
    progress
        Told how many tiles are done.
    config, limits
        How to speak to remote storage, and caps on what files may make us hold.

    Returns
    -------
    pyarrow.Table
        One row for each zone in their order: ``zone`` (its number, from 0 on), the columns `keep`,
        and ``{band}_{statistic}``. Zones without a valid pixel have count and variety 0, and null
        otherwise. Statistics are float64, in which integers beyond 2^53 are rounded.

    Raises
    ------
    InvalidInputError
        Zones that are no areas or not valid, an unknown band, statistic, method, CRS or time.
    InvalidMetadataError
        A tile that cannot be decoded.
    LimitExceededError
        More different values than memory should hold for ``majority``, ``minority`` or
        ``variety``. Quantiles are exact in any case; where values are that many, tiles are read
        several times.
    """
    _check_words(stats, method)
    asked = options_of(ZoneOptions, options)
    named: dict[str, Any] = {"crs": asked.crs, "keep": asked.keep, "layer": asked.layer}
    found = zones_of(zones, **named, config=config, limits=limits)
    areas = Areas.of(found.shapes, found.crs)
    files = opened(href, config, limits)
    try:
        known = _known_statistics(files, trusted=asked.tile_statistics)
        ranked = tuple(stat for stat in dict.fromkeys(stats) if is_ranked(stat))
        # Statistics of tiles do not tell how their values are spread.
        job = _Job.of(files, areas, method, bands, zoom, time, None if ranked else known)
        moments, rankings = job.run(ranked, progress or silent)
    finally:
        files.close()
    columns: dict[str, Any] = {"zone": pa.array(np.arange(len(areas))), **found.kept}
    for name, one, ranking in zip(job.names, moments, rankings, strict=True):
        for stat in stats:
            values = ranking.column(stat) if stat in ranked else one.column(stat)
            columns[f"{name}_{stat}"] = _column(values, stat, method)
    return pa.table(columns)


def statistics(
    href: Any,
    *,
    bands: Sequence[str] | None = None,
    zoom: int | None = None,
    time: Step | None = None,
    stats: Sequence[str] = ("count", "sum", "mean", "min", "max", "stddev"),
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> pa.Table:
    """Statistics of whole bands, computed from their pixels.

    Of a band without a nodata value only files that say where their source lies, as those by
    comal do, tell pixels from the padding of tiles at the edge; else all count. Parameters and
    errors are those of `zonal`.

    Returns
    -------
    pyarrow.Table
        One row for each band: ``band`` and the statistics.
    """
    if not stats:
        raise InvalidInputError("no statistic is asked for")
    world = shapely.box(-180, -90, 180, 90)
    named = {"bands": bands, "zoom": zoom, "time": time, "stats": stats, "progress": progress}
    found = zonal(href, [world], config=config, limits=limits, **named)  # type: ignore[arg-type]
    names = [name.removesuffix(f"_{stats[0]}") for name in found.column_names[1 :: len(stats)]]
    columns = {
        stat: pa.chunked_array([found.column(f"{name}_{stat}").combine_chunks() for name in names])
        for stat in stats
    }
    return pa.table({"band": pa.array(names, pa.string()), **columns})


def _check_words(stats: Sequence[str], method: str) -> None:
    for stat in stats:
        check_stat(stat, STATISTICS)
    if method not in METHODS:
        raise InvalidInputError("unknown method", found=shown(method), expected=", ".join(METHODS))


def _column(values: Any, stat: str, method: Method) -> Any:
    if stat == "count":
        return pa.array(values if method == "fractional" else values.astype(np.int64))
    missing = np.isnan(values)
    if stat == "variety":
        return pa.array(np.where(missing, 0, values).astype(np.int64))
    return pa.array(values, mask=missing)


@dataclass(frozen=True, slots=True)
class _Job:
    """Which zones lie on which tiles."""

    files: Files
    areas: Areas
    method: Method
    numbers: tuple[int, ...]
    """Of the bands."""
    rows: Ints
    """Rows of the tiles that count, ascending."""
    tiles: Ints
    """Zoom, column and row of each, shape (n, 3)."""
    chosen: Sequence[Ints]
    """Numbers of the zones on each tile, ascending."""
    known: Any
    """Statistics of tiles, shape (rows, bands, kinds), or None."""

    @classmethod
    def of(
        cls,
        files: Files,
        areas: Areas,
        method: Method,
        bands: Sequence[str] | None,
        zoom: int | None,
        time: Step | None,
        known: Any,
    ) -> _Job:
        """The tiles of a zoom and a time step, with their zones."""
        metadata = files.metadata
        for name in bands or ():
            if name not in metadata.band_names:
                raise InvalidInputError(
                    "no such band",
                    found=shown(name),
                    expected=", ".join(shown(band) for band in metadata.band_names[:20]),
                )
        numbers = [metadata.band_index(name) for name in bands or metadata.band_names]
        level = metadata.max_zoom if zoom is None else zoom
        level = max(metadata.min_zoom, min(metadata.max_zoom, int(integers(level, "zoom"))))
        rows = _rows_of(files, level, time)
        tiles = np.stack(grid.tiles(files.store.ids[rows]), axis=1)
        which, zone = _overlaps(areas, tiles, level)
        kept, starts = np.unique(which, return_index=True)
        chosen = np.split(zone, starts[1:]) if len(kept) else []
        return cls(files, areas, method, tuple(numbers), rows[kept], tiles[kept], chosen, known)

    @property
    def names(self) -> list[str]:
        """Of the bands."""
        return [self.files.metadata.bands[number].name for number in self.numbers]

    @property
    def _read(self) -> list[str]:
        """The bands that are needed: these, and an alpha band, which hides pixels of others."""
        bands = self.files.metadata.bands
        alpha = alpha_of(bands)
        more = [] if alpha is None or alpha in self.numbers else [bands[alpha].name]
        return [*self.names, *more]

    def run(
        self, ranked: tuple[str, ...], progress: Progress
    ) -> tuple[list[Moments], list[Ranking]]:
        """Moments of each band for all zones, and what the statistics `ranked` need."""
        totals = [Moments.empty(len(self.areas)) for _ in self.numbers]
        weighted = self.method == "fractional"
        bands = [self.files.metadata.bands[number] for number in self.numbers]
        rankings = [
            Ranking(np.dtype(band.dtype), len(self.areas), ranked, weighted, band.name)
            for band in bands
        ]
        self._pass(totals, rankings, progress)
        while any(ranking.is_open for ranking in rankings):
            self._pass(None, rankings, progress)
        return totals, rankings

    def _pass(
        self, totals: list[Moments] | None, rankings: Sequence[Ranking], progress: Progress
    ) -> None:
        """Go through all tiles once."""
        done = 0
        with ThreadPoolExecutor(_WORKERS) as pool:
            for some in self._batches():
                spans = dict(zip(some, pool.map(self._spans, some), strict=True))
                told = {at for at in some if self._is_told(at, spans[at])}
                pixels = self._pixels([at for at in some if at not in told])
                for found in pool.map(
                    lambda at, spans=spans, told=told, pixels=pixels: self._tile(
                        at,
                        spans[at],
                        None if at in told else pixels,
                        rankings,
                        moments=totals is not None,
                    ),
                    some,
                ):
                    # Merged in the order of the tiles, so that threads do not show.
                    for n, (zone, part, counts) in enumerate(found):
                        if totals is not None:
                            totals[n].merge(zone, part)
                        if counts is not None:
                            rankings[n].add(counts)
                done += len(some)
                progress(done, len(self.rows), "tiles")
        for ranking in rankings:
            if ranking.is_open:
                ranking.finish_pass()

    def _spans(self, at: int) -> Spans:
        """Of the zones on a tile."""
        metadata = self.files.metadata
        shape = metadata.block_height, metadata.block_width
        return self.areas.on_tile(
            tuple(self.tiles[at].tolist()), shape, self.method, self.chosen[at]
        )

    def _is_told(self, at: int, spans: Spans) -> bool:
        """Whether the statistics of a tile are enough: there is no zone that has a part of it."""
        if not len(spans):
            return True
        if self.known is None or (np.abs(spans.weight - 1) > _WHOLE).any():
            return False
        metadata = self.files.metadata
        first = np.flatnonzero(np.diff(spans.zone, prepend=-1))
        pixels = np.add.reduceat(spans.stop - spans.start, first)
        if not (pixels == metadata.block_width * metadata.block_height).all():
            return False
        return all(self._counts_right(at, number) for number in self.numbers)

    def _counts_right(self, at: int, number: int) -> bool:
        """Whether it is certain which pixels of a tile the statistics of a band count."""
        metadata = self.files.metadata
        if stored_nodata(metadata.bands[number]) is not None:
            return True
        # Without a nodata value the tile does not tell which pixels a mask took out, and at the
        # edge of the source its outline has a tolerance: only a tile with all pixels is certain.
        shape = metadata.block_height, metadata.block_width
        cover = self.files.store.coverage[number]
        count = self.known[self.rows[at], number, 0]
        if count != shape[0] * shape[1]:
            return False
        z, x, y = self.tiles[at].tolist()
        return cover is None or cover.tile(z, x, y, shape) is None

    def _batches(self) -> Iterator[range]:
        metadata = self.files.metadata
        size = metadata.block_width * metadata.block_height
        of_tile = sum(size * metadata.bands[n].pixel_type.itemsize for n in self.numbers)
        step = max(1, _AT_ONCE // of_tile)
        for start in range(0, len(self.rows), step):
            yield range(start, min(start + step, len(self.rows)))

    def _pixels(self, some: Sequence[int]) -> dict[tuple[int, str], Any]:
        store = self.files.store
        metadata = self.files.metadata
        names = metadata.columns if metadata.interleaved else self._read
        keys = [(int(self.rows[at]), name) for at in some for name in names]
        return run(store.pixels_plan(keys, keep=False), store.fetch)

    def _tile(
        self,
        at: int,
        spans: Spans,
        pixels: dict[tuple[int, str], Any] | None,
        rankings: Sequence[Ranking],
        *,
        moments: bool,
    ) -> list[tuple[Ints, Moments, Counts | None]]:
        """For each band the zones that have pixels on a tile, their moments and their values.

        Without pixels its statistics tell.
        """
        metadata = self.files.metadata
        found: list[tuple[Ints, Moments, Counts | None]] = []
        row = int(self.rows[at])
        alpha = alpha_of(metadata.bands)
        for number, ranking in zip(self.numbers, rankings, strict=True):
            band = metadata.bands[number]
            key = metadata.columns[0] if metadata.interleaved else band.name
            if pixels is None and len(spans):
                zones = np.unique(spans.zone)
                found.append((zones, _told(self.known[row, number], len(zones)), None))
                continue
            values = None if pixels is None else pixels[row, key]
            if values is None:
                found.append((_NO_ZONES, Moments.empty(0), None))
                continue
            if metadata.interleaved:
                values = values[number]
            hider = None
            if alpha is not None and number != alpha and pixels is not None:
                hider = self._alpha(pixels, row, alpha)
            valid = self._valid(values, number, at, hider)
            counts = ranking.count(values, valid, spans) if ranking.is_open else None
            part = of_spans(values, valid, spans) if moments else (_NO_ZONES, Moments.empty(0))
            found.append((*part, counts))
        return found

    def _alpha(self, pixels: dict[tuple[int, str], Any], row: int, alpha: int) -> Any:
        """The pixels of the alpha band; all 0 where its tile is NULL."""
        metadata = self.files.metadata
        if metadata.interleaved:
            return pixels[row, metadata.columns[0]][alpha]
        found = pixels[row, metadata.bands[alpha].name]
        shape = metadata.block_height, metadata.block_width
        return np.broadcast_to(np.uint8(0), shape) if found is None else found

    def _valid(self, values: Any, number: int, at: int, alpha: Any) -> Any:
        """Which pixels of a tile have a value."""
        cover = self.files.store.coverage[number]
        z, x, y = self.tiles[at].tolist()
        covered = None if cover is None else cover.tile(z, x, y, values.shape)
        nodata = self.files.metadata.bands[number].nodata
        return as_array(valid_mask(values, nodata, covered, alpha), values.shape)


def _known_statistics(files: Files, *, trusted: bool | None) -> Any:
    """The statistics of tiles, if there are all and they can be trusted."""
    metadata = files.metadata
    if trusted is None:
        trusted = str(metadata.processing.get("created_by", "")).startswith("comal ")
    lossy = metadata.compression in spec.LOSSY_BANDS
    if not trusted or lossy or tuple(metadata.tile_statistics) != spec.STATISTICS:
        return None
    return statistics_of_tiles(files.store)


def _told(values: Any, zones: int) -> Moments:
    """Moments of so many zones that hold the whole of a tile."""
    count, low, high, total, mean, deviation = values
    if not count > 0:
        return Moments.empty(zones)
    parts = (count, total, mean, deviation**2 * count, low, high)
    return Moments(*(np.full(zones, part) for part in parts))


def _rows_of(files: Files, zoom: int, time: Step | None) -> Ints:
    """Rows of the tiles of a zoom, and of a time step where there are several."""
    ids = files.store.ids
    first, last = grid.descendants(grid.cells(0, 0, 0), zoom)
    chosen = (ids >= first) & (ids <= last) & np.asarray(grid.is_valid(ids))
    if all(part.time is not None for part in files.parts):
        values = np.concatenate([part.time for part in files.parts if part.time is not None])
        stamps = [part.stamps for part in files.parts if part.stamps is not None]
        together = np.concatenate(stamps) if len(stamps) == len(files.parts) else None
        axis, steps = axis_of(values, together, ids != 0, files.metadata.time)
        chosen &= steps == axis.index(time, files.parts[0].where)
    elif time is not None:
        raise InvalidInputError("no time series", where=files.parts[0].where)
    return np.flatnonzero(chosen)


def _overlaps(areas: Areas, tiles: Ints, zoom: int) -> tuple[Ints, Ints]:
    """Pairs of tiles and zones whose boxes meet, tiles ascending, then zones."""
    columns, rows = tile_pairs(areas, zoom)
    side = 2.0**zoom
    boxes, zones = [], []
    for turn in (-side, 0.0, side):
        left, right = columns[:, 0] + turn, columns[:, 1] + turn
        known = np.flatnonzero((left <= side) & (right >= 0) & np.isfinite(rows).all(axis=1))
        if turn and areas.metric:
            continue
        boxes.append(shapely.box(left[known], rows[known, 0], right[known], rows[known, 1]))
        zones.append(known)
    numbers = np.concatenate(zones)
    tree = shapely.STRtree(np.concatenate(boxes))
    _, x, y = tiles.T
    which, found = tree.query(shapely.box(x, y, x + 1, y + 1))
    pairs = np.unique(np.stack([which, numbers[found]], axis=1), axis=0)
    return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)
