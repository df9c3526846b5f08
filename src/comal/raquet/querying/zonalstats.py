"""Zonal statistics: every zone with every tile that it touches, each tile read once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
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
from comal.progress import Progress, silent
from comal.public import options_of, takes
from comal.raquet.reading.file import Bands
from comal.raquet.reading.opening import borrowed
from comal.raquet.reading.pixels import alpha_of, chosen_bands
from comal.raquet.reading.store import TileStore
from comal.raquet.spec import Band
from comal.raquet.times import Step
from comal.raster.areas import Areas
from comal.raster.areastatistics import (
    Counts,
    Moments,
    Ranking,
    check_stat,
    is_ranked,
    of_spans,
)
from comal.raster.values import as_array, valid_mask
from comal.raster.zones import zones_of
from comal.storage import StorageConfig, check_several

Ints = npt.NDArray[np.int64]

_AT_ONCE = 24 * MIB
"""Bytes of pixels that are in memory at a time."""
_WORKERS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZoneOptions:
    """How zones are read, and which of their columns are kept; see `zonal`."""

    crs: Any = None
    keep: Sequence[str] = ()
    layer: str | None = None


@takes(ZoneOptions)
def zonal(
    href: Any,
    zones: Any,
    *,
    bands: Bands = None,
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

    Each tile that a zone touches is read and decoded once, whatever the number of zones; memory
    does not grow with the raster. Zones may overlap.

    Parameters
    ----------
    href
        Path or URL of a RaQuet file, an open `RaquetFile`, or the parts of a data set.
    zones
        GeoDataFrame or GeoSeries; path or URL of a GeoParquet, GeoJSON or GeoPackage
        file; the Arrow table of a GeoParquet file; a GeoJSON document as a dict; shapely polygons
        and multipolygons, one or a sequence.
    bands
        Bands by name, or by number from 1; one or several. None for all.
    zoom
        Zoom whose tiles are used; clamped to the zooms of the file. None for the finest.
    time
        Time step of a time series; see `comal.raquet.RaquetFile`.
    stats
        Of ``count``, ``sum``, ``mean``, ``min``, ``max``, ``range``, ``stddev`` and ``variance``
        (of the population, divided by n), ``stddev_sample`` (divided by n - 1); ``median``, and
        ``p10`` or ``p99.5`` for percentiles; ``majority``, ``minority`` and ``variety``: the most
        and the least frequent value (the lowest in a tie), and the number of distinct values.
        They are computed from stored pixels that are not nodata, NaN or padding, and whose alpha
        is not 0.
    method
        Which pixels belong to a zone. ``centre``: those whose centre is inside. ``all_touched``:
        all that the zone touches. ``fractional``: all of these, weighted by the fraction of the
        pixel that is inside, which is computed exactly (by areas in the plane of the zones, not
        by sampling); ``count`` is then the sum of weights, ``majority`` the value with the largest
        sum of weights, and a quantile the smallest value at which the cumulative weight reaches
        that fraction of the total. Without weights, quantiles are those of `numpy.quantile`, with
        linear interpolation.
    crs
        CRS of `zones` that do not declare one; longitude and latitude if absent.
    keep
        Columns of the zones to copy to the result.
    layer
        Which layer of a GeoPackage that has several.
    config, limits
        Settings of remote storage, and caps on the memory that files can make a reader use.

    Returns
    -------
    pyarrow.Table
        One row per zone in their order: ``zone`` (its number, from 0), the columns `keep`, and
        ``{band}_{statistic}``. Zones without a valid pixel have count and variety 0, and null
        otherwise. Statistics are float64, in which integers beyond 2^53 are rounded.

    Raises
    ------
    InvalidInputError
        Zones are not areas or invalid, or a band, statistic, method, CRS or time is unknown.
    InvalidMetadataError
        A tile cannot be decoded.
    LimitExceededError
        There are too many distinct values for ``majority``, ``minority`` or ``variety`` to keep
        in memory. Quantiles are always exact; with that many values, tiles are read several times.
    """
    check_several(stats, "statistics")
    for stat in stats:
        check_stat(stat)
    if method not in METHODS:
        raise InvalidInputError("unknown method", found=shown(method), expected=", ".join(METHODS))
    asked = options_of(ZoneOptions, options)
    check_several(asked.keep, "columns")
    named: dict[str, Any] = {"crs": asked.crs, "keep": asked.keep, "layer": asked.layer}
    found = zones_of(zones, **named, config=config, limits=limits)
    areas = Areas.of(found.shapes, found.crs)
    ranked = tuple(stat for stat in dict.fromkeys(stats) if is_ranked(stat))
    with borrowed(href, config, limits) as file:
        job = _job(file.store, areas, method, bands, zoom, time)
        _check_names(found.kept, job.bands, stats)
        moments, rankings = job.run(ranked, progress or silent)
    columns: dict[str, Any] = {"zone": pa.array(np.arange(len(areas))), **found.kept}
    for band, one, ranking in zip(job.bands, moments, rankings, strict=True):
        for stat in stats:
            values = ranking.column(stat) if stat in ranked else one.column(stat)
            columns[f"{band.name}_{stat}"] = _column(values, stat, method)
    return pa.table(columns)


def statistics(
    href: Any,
    *,
    bands: Bands = None,
    zoom: int | None = None,
    time: Step | None = None,
    stats: Sequence[str] = ("count", "sum", "mean", "min", "max", "stddev"),
    progress: Progress | None = None,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> pa.Table:
    """Statistics of entire bands, computed from their pixels.

    In a band without a nodata value, the padding of tiles at the edge is excluded only if the file
    stores the area of its source, as files by comal do; else all pixels count. Parameters and
    errors are those of `zonal`.

    Returns
    -------
    pyarrow.Table
        One row per band: ``band`` and the statistics.
    """
    if not stats:
        raise InvalidInputError("no statistic is asked for")
    world = shapely.box(-180, -90, 180, 90)
    named = {"bands": bands, "zoom": zoom, "time": time, "stats": stats, "progress": progress}
    found = zonal(href, [world], config=config, limits=limits, **named)  # type: ignore[arg-type]
    asked = len(set(stats))
    names = [name.removesuffix(f"_{stats[0]}") for name in found.column_names[1::asked]]
    columns = {
        stat: pa.chunked_array([found.column(f"{name}_{stat}").combine_chunks() for name in names])
        for stat in stats
    }
    return pa.table({"band": pa.array(names, pa.string()), **columns})


def _check_names(kept: Iterable[str], bands: Iterable[Band], stats: Iterable[str]) -> None:
    """A column of the zones must not replace one of the result, nor the other way round."""
    own = {"zone", *(f"{band.name}_{stat}" for band, stat in product(bands, stats))}
    for name in own.intersection(kept):
        raise InvalidInputError(
            "a column of the zones has the name of a column of the result",
            found=shown(name),
            hint="rename the column of the zones",
        )


def _column(values: Any, stat: str, method: Method) -> Any:
    if stat == "count":
        return pa.array(values if method == "fractional" else values.astype(np.int64))
    missing = np.isnan(values)
    if stat == "variety":
        return pa.array(np.where(missing, 0, values).astype(np.int64))
    return pa.array(values, mask=missing)


def _job(
    store: TileStore,
    areas: Areas,
    method: Method,
    names: Bands,
    zoom: int | None,
    time: Step | None,
) -> _Job:
    """The tiles of a zoom and a time step, with their zones."""
    metadata, where = store.metadata, store.parts[0].where
    bands = chosen_bands(metadata, names or None, where)
    numbers = tuple(metadata.band_index(band.name) for band in bands)
    level = metadata.max_zoom if zoom is None else int(integers(zoom, "zoom"))
    level = max(metadata.min_zoom, min(metadata.max_zoom, level))
    if store.times is None and time is not None:
        raise InvalidInputError("the file has no time", where=where)
    step = None if store.times is None else store.times.index(time, where)
    first, last = grid.descendants(grid.cells(0, 0, 0), level)
    rows = store.index.rows_between(first, last, step)
    rows = rows[np.flatnonzero(grid.is_valid(store.ids[rows]))]
    tiles = np.stack(grid.tiles(store.ids[rows]), axis=1)
    which, zone = areas.pairs(tiles, level)
    kept, starts = np.unique(which, return_index=True)
    chosen = np.split(zone, starts[1:]) if len(kept) else []
    return _Job(store, areas, method, numbers, rows[kept], tiles[kept], chosen)


@dataclass(frozen=True, slots=True)
class _Job:
    """The tiles to read, and the zones on each of them."""

    store: TileStore
    areas: Areas
    method: Method
    numbers: tuple[int, ...]
    """Positions of the bands."""
    rows: Ints
    """Rows of the tiles, ascending."""
    tiles: Ints
    """Zoom, column and row of each, shape (n, 3)."""
    chosen: Sequence[Ints]
    """Numbers of the zones on each tile, ascending."""

    @property
    def bands(self) -> list[Band]:
        """The requested bands."""
        return [self.store.metadata.bands[number] for number in self.numbers]

    @property
    def _shape(self) -> tuple[int, int]:
        return self.store.metadata.block_height, self.store.metadata.block_width

    def run(
        self, ranked: tuple[str, ...], progress: Progress
    ) -> tuple[list[Moments], list[Ranking]]:
        """Moments of each band for all zones, and rankings for the statistics `ranked`."""
        totals = [Moments.empty(len(self.areas)) for _ in self.numbers]
        weighted = self.method == "fractional"
        rankings = [
            Ranking(np.dtype(band.dtype), len(self.areas), ranked, weighted, band.name)
            for band in self.bands
        ]
        self._pass(totals, rankings, progress)
        while any(ranking.is_open for ranking in rankings):
            self._pass(None, rankings, progress)
        return totals, rankings

    def _pass(
        self, totals: list[Moments] | None, rankings: Sequence[Ranking], progress: Progress
    ) -> None:
        """Read all tiles once."""
        alpha = alpha_of(self.store.metadata.bands)
        # An alpha band masks pixels of others.
        more = [] if alpha is None else [self.store.metadata.bands[alpha]]
        read = [*self.bands, *more]
        open_ones = [ranking if ranking.is_open else None for ranking in rankings]
        done = 0
        with ThreadPoolExecutor(_WORKERS) as pool:
            for start in range(0, len(self.rows), self._step(read)):
                some = range(start, min(start + self._step(read), len(self.rows)))
                spans = dict(zip(some, pool.map(self._spans, some), strict=True))
                there = [at for at in some if len(spans[at])]
                rows = self.rows[there].tolist()
                pixels = self.store.bands_of(rows, read, keep=False)

                def tile(at: int, spans: Any = spans, pixels: Any = pixels) -> list[Any]:
                    planes = pixels[int(self.rows[at])]
                    return self._tile(at, spans[at], planes, open_ones, alpha, totals is not None)

                for found in pool.map(tile, there):
                    # Merged in the order of tiles, so results do not depend on threads.
                    for n, (zone, part, counts) in found:
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
        """The pixels of the zones on a tile."""
        tile = tuple(self.tiles[at].tolist())
        return self.areas.on_tile(tile, self._shape, self.method, self.chosen[at])

    def _step(self, read: Sequence[Band]) -> int:
        """Number of tiles whose pixels are in memory at a time."""
        of_tile = self._shape[0] * self._shape[1] * sum(b.pixel_type.itemsize for b in read)
        return max(1, _AT_ONCE // of_tile)

    def _tile(
        self,
        at: int,
        spans: Spans,
        planes: Sequence[Any],
        rankings: Sequence[Ranking | None],
        alpha: int | None,
        moments: bool,  # noqa: FBT001 - private
    ) -> list[tuple[int, tuple[Ints, Moments, Counts | None]]]:
        """For each band with pixels on a tile: zones, their moments, and their value counts."""
        found: list[tuple[int, tuple[Ints, Moments, Counts | None]]] = []
        z, x, y = self.tiles[at].tolist()
        for n, (number, ranking) in enumerate(zip(self.numbers, rankings, strict=True)):
            values, hider = planes[n], None
            if values is None:
                continue
            if alpha not in (None, number):
                # If the tile of the alpha band is NULL, all pixels are masked.
                hider = np.broadcast_to(0, self._shape) if planes[-1] is None else planes[-1]
            cover, nodata = self.store.coverage[number], self.bands[n].nodata
            covered = None if cover is None else cover.tile(z, x, y, values.shape)
            valid = as_array(valid_mask(values, nodata, covered, hider), values.shape)
            counts = None if ranking is None else ranking.count(values, valid, spans)
            part = of_spans(values, valid, spans) if moments else _NOTHING
            found.append((n, (*part, counts)))
        return found


_NOTHING = np.empty(0, np.int64), Moments.empty(0)
