"""Writing a RaQuet file from rasters or arrays."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal import storage
from comal.errors import ComalError, InvalidInputError
from comal.grid import quadbin
from comal.parallel import Workers, workers_of
from comal.plan import ByteRange, run
from comal.progress import Progress, silent
from comal.public import Summary, options_of, takes
from comal.raquet import spec
from comal.raquet.documents import label_of
from comal.raquet.reading.coverage import bounds_of
from comal.raquet.spec import Band, BandStatistics, Metadata, Number
from comal.raquet.times import TimeAxis, time_document
from comal.raquet.writing.job import Totals, run_job
from comal.raquet.writing.layout import (
    PaddedTiles,
    Padding,
    RowGroup,
    Spool,
    alpha_sums,
    chosen_padding,
    lowest_zoom,
    padded_bands,
    write_parquet,
)
from comal.raquet.writing.planning import Conversion, Options, conversion_of, sources_of
from comal.raster.describing import crs_label, file_of
from comal.raster.gridding import outline
from comal.raster.statistics import BandSums, is_counted, moments, ordered
from comal.raster.values import stored_nodata
from comal.raster.warping import MASK_BAND
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, TargetFile, check_ending
from comal.table.footer import footer_plan

Array = npt.NDArray[Any]
Source = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Any


# -- targets ---------------------------------------------------------------------------------------


_PART = re.compile(r"z\d{1,2}_\d{1,10}_\d{1,10}\.parquet")


def _claim_file(path: Path) -> Owns | None:
    with storage.open_source(path) as source:
        span = ByteRange(0, source.stat().size)
        names = run(footer_plan(span), source.fetch).schema.names
    return (lambda _: True) if {spec.BLOCK, spec.METADATA} < set(names) else None


def _claim_parts(path: Path) -> Owns | None:
    def owns(name: str) -> bool:
        if not _PART.fullmatch(name):
            return False
        try:
            return _claim_file(path / name) is not None
        except ComalError:
            return False

    return owns if any(owns(part.name) for part in path.iterdir()) else None


RAQUET: Final = Kind("a RaQuet file", _claim_file)
PARTS: Final = Kind("a folder of RaQuet parts", _claim_parts)


# -- writing ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written(Summary):
    """What was written."""

    path: str
    """The file."""
    version: str
    """Version of the metadata."""
    size: int
    """Size of the file in bytes."""
    tiles: int
    """Number of rows with pixels, including overviews and all time steps."""
    num_blocks: int
    """Number of tiles at the maximum zoom."""
    min_zoom: int
    max_zoom: int
    width: int
    height: int
    bounds: tuple[float, float, float, float]
    """Bounds of the source in degrees; west > east across the antimeridian."""
    bands: tuple[str, ...]
    steps: int = 1
    """Number of time steps."""
    chosen_nodata: Mapping[str, Number] = field(default_factory=dict)
    """Nodata values by band that were chosen for padding; no pixel has them. NaN of float bands
    is not listed."""
    added_alpha: str | None = None
    """Name of the alpha band that was added to mark pixels without a value."""


@takes(Options)
def write(
    source: Source,
    path: str | os.PathLike[str],
    *,
    spec_version: str = spec.WRITTEN[0],
    zoom: int | None = None,
    zoom_strategy: str = "auto",
    min_zoom: int | None = None,
    time: Sequence[Any] | None = None,
    overwrite: bool = False,
    executor: Workers = None,
    progress: Progress = silent,
    **options: Any,
) -> Written:
    """Convert a raster to RaQuet.

    A raster on the pixel grid of a Web Mercator zoom is copied exactly, whatever its type; any
    other is warped. Memory does not grow with the raster. The same source and options give the
    same bytes with any executor and number of workers.

    Parameters
    ----------
    source
        Path or URL of a raster, several for a mosaic (the first one that has a pixel wins), a
        variable of a local NetCDF, HDF5 or Zarr file (``NETCDF:"path":name``, or the file and
        `variable`), or an xarray DataArray or Dataset, with or without a time dimension.
    path
        The file to write; its name ends in ``.parquet``.
    spec_version
        ``"0.1.0"``, or ``"0.5.0"`` for the interleaved layout, JPEG, WebP, float16 and tile
        statistics.
    zoom
        Zoom of the full resolution; by default chosen from the resolution of the source.
    zoom_strategy
        ``auto`` takes the nearest zoom, ``lower`` the coarser and ``upper`` the finer one.
    min_zoom
        Zoom of the coarsest overview; by default the raster is some 128 pixels wide there. Equal
        to `zoom` for no overviews.
    time
        Instants, one for each source; the sources are then the steps of a time series instead of
        a mosaic. Arrays have their own.
    overwrite
        Whether to replace an existing file.
    executor
        Any `concurrent.futures.Executor`, such as one of a Dask cluster, which must reach the same
        files; or a number of processes; threads by default.
    progress
        Called with the number of subtrees of tiles that are done.
    **options
        Fields of `comal.raquet.Options`: ``resampling`` (``nearest``), ``overview_resampling``
        (``average``; ``mode`` for colour tables), ``block_size`` (256), ``bands``, ``nodata``
        (that of the source, else one is chosen if tiles need padding; ``"none"`` to choose none),
        ``crs``, ``variable``, ``config`` (a `comal.storage.StorageConfig` for remote rasters, with
        the ``linked_origins`` that a VRT may refer to), ``compression`` (``gzip``), ``level``,
        ``quality``, ``layout``, ``tile_statistics``, ``row_group_size``, ``block_dtype``.

    Returns
    -------
    What was written.

    Raises
    ------
    InvalidInputError
        An option is invalid, or a raster has no CRS, no georeference or an unusable rotation, has
        complex numbers, or has no pixel with data.
    ConflictError
        The target exists and `overwrite` is false.
    ObjectNotFoundError, NotThisFormatError, InvalidMetadataError, StorageError
        A source cannot be read, or the disk is full. No file is left behind.
    """
    named = {"zoom": zoom, "zoom_strategy": zoom_strategy, "min_zoom": min_zoom}
    chosen = options_of(Options, {"spec_version": spec_version, **named, **options})
    return written(source, path, chosen, time, executor, overwrite=overwrite, progress=progress)[0]


def written(
    source: Source,
    path: str | os.PathLike[str],
    chosen: Options,
    time: Sequence[Any] | None = None,
    executor: Workers = None,
    *,
    overwrite: bool = False,
    progress: Progress = silent,
) -> tuple[Written, Metadata]:
    """As `write`; also returns the metadata, whose statistics have more than 0.5.0 writes."""
    chosen.check()
    check_ending(path, ".parquet")
    rasters = source if isinstance(source, list | tuple) else [source]
    files = [file_of(one) for one in rasters if isinstance(one, str | os.PathLike)]
    target = storage.targets.target_path(path, chosen.config)
    with storage.targets.new_file(target, overwrite, RAQUET, files) as file:
        conversion = conversion_of(sources_of(source, chosen, time), chosen)
        job, axis, folder = conversion.job, conversion.sources.time, file.folder().absolute()
        spool, totals = Spool(folder, file.target), Totals.of(job.dtypes)
        with workers_of(executor) as pool:
            with closing(run_job(job, folder, totals, pool, progress)) as subtrees:
                for tiles, step in subtrees:
                    spool.add(tiles, step)
            spool.sort()
            padding = chosen_padding(job, totals, spool)
            metadata = metadata_of(conversion, chosen, totals, spool, padding)
            groups = PaddedTiles(spool, job, padding, pool).groups(axis, chosen.row_group_size)
            made = write_rows(
                file, path, metadata, chosen.spec_version, groups, axis, chosen.block_dtype
            )
    added = padding.alpha is not None or any(band.source == MASK_BAND for band in job.bands)
    names = metadata.band_names
    told = {names[at]: value for at, value in padding.nodata.items()}
    return replace(made, chosen_nodata=told, added_alpha=names[-1] if added else None), metadata


def write_rows(
    file: TargetFile,
    path: str | os.PathLike[str],
    metadata: Metadata,
    version: str,
    groups: Iterable[RowGroup],
    axis: TimeAxis | None,
    block_dtype: str = "uint64",
) -> Written:
    """Write finished tiles into a file that will be `path`; returns its summary."""
    tiles = write_parquet(file, metadata, version, groups, block_dtype)
    return Written(
        path=os.fspath(path),
        version=label_of(metadata, version),
        size=file.tell(),
        tiles=tiles,
        num_blocks=metadata.num_blocks or 0,
        min_zoom=metadata.min_zoom,
        max_zoom=metadata.max_zoom,
        width=metadata.width,
        height=metadata.height,
        bounds=bounds_of([metadata]),
        bands=metadata.band_names,
        steps=1 if axis is None else len(axis),
    )


def metadata_of(
    conversion: Conversion, options: Options, totals: Totals, tiles: Spool, padding: Padding
) -> Metadata:
    """The metadata of a converted raster; raises an error if there is no tile."""
    job, grid, sources = conversion.job, conversion.grid, conversion.sources
    zooms = np.asarray(quadbin.zooms(tiles.cells), np.int64)
    if job.zoom not in zooms:
        raise InvalidInputError(
            "no pixel of the raster has data",
            where=sources.first.where,
            empty=True,
        )
    hull = grid.hull
    corners = quadbin.cells(job.zoom, [hull.west, hull.east], [hull.north, hull.south])
    bands = tuple(
        replace(
            band,
            statistics=finished(sums, totals.covered, step=job.sample_step),
            histogram=histogram(sums) if options.spec_version != spec.WRITTEN[0] else None,
        )
        for band, sums in zip(
            padded_bands(conversion.bands, padding),
            [*totals.bands, *alpha_sums(padding, totals.covered)],
            strict=True,
        )
    )
    lossy = options.compression in spec.LOSSY_BANDS
    return Metadata(
        version=options.spec_version,
        compression=options.compression,
        quality=options.quality if lossy else None,
        layout=options.layout,
        block_width=job.block,
        block_height=job.block,
        min_zoom=lowest_zoom(np.unique(zooms).tolist()),
        max_zoom=job.zoom,
        num_blocks=len(np.unique(tiles.cells[zooms == job.zoom])),
        bounds=quadbin.extent(corners),
        width=(hull.east - hull.west + 1) * job.block,
        height=(hull.south - hull.north + 1) * job.block,
        bands=bands,
        time=None if sources.time is None else time_document(sources.time),
        tile_statistics=spec.STATISTICS if job.tile_statistics else (),
        custom={"comal": {"source": _source_document(conversion, bands)}},
        processing=_processing(conversion, options),
    )


def _source_document(conversion: Conversion, bands: Sequence[Band]) -> dict[str, Any]:
    """The value of ``custom.comal.source``: the area and the grid of the source."""
    sources = conversion.sources
    first = sources.first
    a, b, c, d, e, f = first.transform
    found: dict[str, Any] = {"bounds": list(conversion.grid.extent)}
    if any(stored_nodata(band.nodata, band.dtype) is None for band in bands):
        # Readers need it to distinguish pixels at the edge from padding.
        members = (member for step in conversion.job.steps for member in step.members)
        edge = outline(
            (member.footprint for member in members), found["bounds"], conversion.grid.pixel_zoom
        )
        if edge is not None:
            found["footprint"] = edge
    if len(sources.every) == 1 or sources.time is not None:
        found |= {
            "crs": crs_label(first.crs),
            "transform": [a, b, c, d, e, f],
            "width": first.width,
            "height": first.height,
        }
    else:
        found["rasters"] = len(sources.every)
    return found


def _processing(conversion: Conversion, options: Options) -> dict[str, Any]:
    from comal import __version__  # noqa: PLC0415 - the package imports this module

    copied = all(
        member.offset is not None for step in conversion.job.steps for member in step.members
    )
    found = {"source_crs": crs_label(conversion.sources.first.crs)}
    if not copied:
        found["resampling"] = options.resampling
    if conversion.job.min_zoom < conversion.job.zoom:
        found["overview_resampling"] = "/".join(dict.fromkeys(conversion.job.overviews))
    return {**found, "created_by": f"comal {__version__}"}


# -- statistics ------------------------------------------------------------------------------------

QUANTILES = range(3, 20)
"""Numbers of equal parts that quantiles divide the pixels into; n parts have n - 1 values."""
TOP = 100
BUCKETS = 256
VERSION = "1"
"""Version of the method that computes these statistics."""
_MOST = 10**36


def finished(sums: BandSums, covered: int | None, *, step: int) -> BandStatistics:
    """The statistics for the metadata."""
    percent = None
    if covered is not None:
        percent = 100.0 * sums.count / covered if covered else 0.0
    if not sums.count:
        return BandStatistics(
            count=0, valid_percent=percent, approximated=False, version=VERSION, top_values={}
        )
    mean, stddev = moments(sums)
    numbers, counts = ordered(sums)
    return BandStatistics(
        count=sums.count,
        min=sums.low,
        max=sums.high,
        mean=mean,
        stddev=stddev,
        sum=_writable(sums.total),
        sum_squares=_writable(sums.squares),
        valid_percent=percent,
        quantiles=_quantiles(numbers, counts),
        top_values=_top_values(numbers, counts),
        approximated=not is_counted(sums.dtype) and step > 1,
        version=VERSION,
    )


def _writable(number: Number) -> Number:
    """A sum as JSON can hold it: exact, unless it has more digits than readers accept."""
    return float(number) if abs(number) >= _MOST else number


def histogram(sums: BandSums) -> dict[str, Any] | None:
    """Counts of 256 equal ranges between minimum and maximum, both inclusive."""
    numbers, counts = ordered(sums)
    if not len(numbers) or sums.low is None or sums.high is None:
        return None
    low, high = float(sums.low), float(sums.high)
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    unit = 1.0 if math.isfinite(high - low) else 0.5  # a range that is too wide for a float
    width = (high * unit - low * unit) / BUCKETS or 1.0
    places = (numbers.astype(np.float64) * unit - low * unit) / width
    at = np.clip(places, 0, BUCKETS - 1).astype(np.int64)
    found = np.bincount(at, weights=counts.astype(np.float64), minlength=BUCKETS)
    whole = found.sum()
    if whole and whole != sums.count:
        # Counts of a sample are scaled to the number of pixels.
        ends = np.floor(np.cumsum(found) * (sums.count / whole) + 0.5)
        found = np.diff(ends, prepend=0.0)
    return {
        "min": sums.low,
        "max": sums.high,
        "buckets": BUCKETS,
        "counts": [int(one) for one in found],
    }


def _quantiles(numbers: Array, counts: Array) -> dict[str, tuple[Number, ...]]:
    """The same as ``numpy.quantile(..., method="lower")``: values that occur."""
    ends = np.cumsum(counts)
    if not len(ends):
        return {}
    found = {}
    for parts in QUANTILES:
        at = np.floor((ends[-1] - 1) * (np.arange(1, parts) / parts)).astype(np.int64)
        picked = numbers[np.searchsorted(ends, at, side="right")]
        found[str(parts)] = tuple(picked.tolist())
    return found


def _top_values(numbers: Array, counts: Array) -> dict[str, int]:
    if numbers.dtype.kind == "f":
        return {}
    order = np.lexsort((numbers, -counts))[:TOP]
    return {
        str(value): int(count)
        for value, count in zip(numbers[order].tolist(), counts[order].tolist(), strict=True)
    }
