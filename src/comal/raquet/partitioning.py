"""One raster as several files, several as one, and bands of two rasters side by side.

Tiles are copied as they are stored. A part holds the tiles at and below one cell of the zoom along
which the raster is cut. A coarser overview goes to the part that holds the first of the tiles below
it, so that all parts together are the raster with its whole pyramid, each tile once.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal import storage
from comal.errors import InvalidInputError
from comal.grid import quadbin
from comal.grid.mercator import lonlat_to_xy
from comal.progress import Progress, silent
from comal.raquet.documents import metadata_json
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.pixels import fill_value
from comal.raquet.spec import Band, BandStatistics, Metadata
from comal.raquet.writing.copying import StoredTiles, lowest_zoom, version_for
from comal.raquet.writing.creating import Written, write
from comal.raquet.writing.job import Coding, encoded
from comal.raquet.writing.layout import Rows, row_groups, write_parquet
from comal.raquet.writing.options import LEVEL

Ints = npt.NDArray[np.int64]
Path_ = str | os.PathLike[str]

_ON_A_LINE = 1e-4
TARGET = 128 << 20
"""Bytes that a part shall have about; engines read files of some 100 MB best."""


def partition(
    source: Path_ | Sequence[Path_],
    folder: Path_,
    *,
    zoom: int | None = None,
    target_size: int = TARGET,
    overviews: bool = True,
    spec_version: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> tuple[Written, ...]:
    """Cut a RaQuet file along the cells of a zoom.

    Parameters
    ----------
    source
        The file, or the parts of a set.
    folder
        The folder to make; it appears complete or not at all.
    zoom
        Zoom of the cells that become a part each; chosen from `target_size` by default.
    target_size
        Bytes that a part shall have about.
    overviews
        Whether tiles coarser than `zoom` are kept, each in the part that holds the first tile
        below it.
    spec_version
        ``"0.1.0"`` or ``"0.5.0"``; by default the form that the source has.
    overwrite
        Whether an existing folder is replaced.
    progress
        Told how many parts are done.

    Returns
    -------
    One summary for each part; parts are called ``z{zoom}_{x}_{y}.parquet``. Metadata are those of
    the whole but for ``num_blocks`` and the zooms.

    Raises
    ------
    InvalidInputError
        A zoom beyond those of the file.
    ConflictError
        The folder exists and may not be replaced.
    """
    with _opened(source) as raster:
        tiles = StoredTiles(raster)
        cut = _cut_zoom(tiles, zoom, target_size)
        owners = _owners(tiles, cut, overviews=overviews)
        cells = np.unique(owners[owners >= 0])
        made = []
        with storage.targets.new_folder(folder, overwrite) as part:
            for done, cell in enumerate(cells.tolist()):
                z, x, y = quadbin.tiles(cell)
                name = f"z{z}_{x}_{y}.parquet"
                chosen = np.flatnonzero(owners == cell)
                one = _write_copy(part / name, raster, tiles, chosen, spec_version)
                made.append(replace(one, path=os.path.join(os.fspath(folder), name)))  # noqa: PTH118
                progress(done + 1, len(cells), "writing parts")
    return tuple(made)


def merge(
    parts: Path_ | Sequence[Path_],
    path: Path_,
    *,
    spec_version: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Written:
    """Write the parts of a partitioned raster as one file.

    Statistics of the parts are kept where they are all the same, as those of one raster are; else
    they are merged, which leaves no quantiles.

    Parameters
    ----------
    parts
        The files, or the folder that holds them.
    path
        The file to write.
    spec_version, overwrite, progress
        As for `partition`.

    Raises
    ------
    InvalidMetadataError
        Parts that do not belong together.
    InvalidInputError
        A tile that stands in two of them with different pixels.
    """
    with _opened(parts) as raster:
        tiles = StoredTiles(raster)
        chosen = _without_copies(tiles)
        documents = [part.metadata for part in raster.store.parts]
        zooms = {one.max_zoom for one in documents}
        if len(zooms) > 1:
            raise InvalidInputError(
                "files of different maximum zooms", found=", ".join(map(str, sorted(zooms)))
            )
        bands = _merged_bands(documents)
        if any(one.custom != documents[0].custom for one in documents):
            # Where the source of one of them lies says nothing of the others.
            raster.metadata = replace(raster.metadata, custom={})
        return _write_copy(
            path,
            raster,
            tiles,
            chosen,
            spec_version,
            bands=bands,
            overwrite=overwrite,
            progress=progress,
        )


def append_bands(
    source: Path_ | Sequence[Path_],
    other: Any,
    path: Path_,
    *,
    names: Mapping[str, str] | None = None,
    spec_version: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> Written:
    """Write a file with the bands of two rasters.

    Parameters
    ----------
    source
        A RaQuet file in the sequential layout.
    other
        Another one on the same grid, or a raster or array, which is put on that grid.
    path
        The file to write.
    names
        New names for bands of `other`, such as ``{"band_1": "elevation"}``.
    spec_version, overwrite, progress
        As for `partition`.
    **options
        How a raster is converted, as for `write`.

    Notes
    -----
    A tile that only one of them has is written for both; bands without pixels hold nodata there.

    Raises
    ------
    InvalidInputError
        Grids, compressions, times or names that do not go together.
    """
    with (
        _opened(source) as first,
        tempfile.TemporaryDirectory(prefix=".bands.", dir=Path(path).absolute().parent) as scratch,
        _opened(_as_raquet(other, first, scratch, options)) as second,
    ):
        _check_grids(first, second)
        renamed = tuple(
            replace(band, name=(names or {}).get(band.name, band.name))
            for band in second.metadata.bands
        )
        both = (*first.metadata.bands, *renamed)
        if len({band.name for band in both}) != len(both):
            raise InvalidInputError(
                "two bands of one name",
                found=", ".join(band.name for band in both),
                hint="give new names: names={'band_1': '...'}",
            )
        return _write_joined(path, first, second, both, spec_version, progress, overwrite=overwrite)


def _opened(source: Any) -> Any:
    return open_raquet(source)


def _cut_zoom(tiles: StoredTiles, zoom: int | None, target: int) -> int:
    metadata = tiles.metadata
    if zoom is not None:
        if not 0 <= zoom <= metadata.max_zoom:
            raise InvalidInputError(
                "zoom of the parts out of range", found=zoom, expected=f"0 to {metadata.max_zoom}"
            )
        return zoom
    if target < 1:
        raise InvalidInputError("size of a part out of range", found=target)
    mean = float(tiles.sizes().mean()) if len(tiles) else 1.0
    up = max(0, round(math.log(max(target / mean, 1.0), 4)))
    return max(metadata.max_zoom - up, 0)


def _owners(tiles: StoredTiles, cut: int, *, overviews: bool) -> Ints:
    """For each tile the cell whose part it belongs to, -1 for none."""
    zooms = tiles.zooms
    owners = np.full(len(tiles), -1, np.int64)
    fine = zooms >= cut
    owners[fine] = quadbin.parents(tiles.cells[fine], cut)
    cells = np.unique(owners[fine])
    coarse = np.flatnonzero(~fine)
    if overviews and len(coarse) and len(cells):
        first, last = quadbin.descendants(tiles.cells[coarse], cut)
        at = np.minimum(np.searchsorted(cells, first), len(cells) - 1)
        owners[coarse] = np.where((cells[at] >= first) & (cells[at] <= last), cells[at], -1)
    return owners


def _without_copies(tiles: StoredTiles) -> Ints:
    """Positions of all tiles, of those that stand there twice the first."""
    same = (tiles.cells[1:] == tiles.cells[:-1]) & (tiles.steps[1:] == tiles.steps[:-1])
    copies = np.flatnonzero(same) + 1
    for at in copies.tolist():
        first, second = (tiles.blobs(np.array([one])) for one in (at - 1, at))
        if first != second:
            raise InvalidInputError(
                "a tile stands in two files with different pixels",
                found=f"block {tiles.cells[at]}",
                hint="files of different rasters are joined by converting the rasters as a mosaic",
            )
    return np.setdiff1d(np.arange(len(tiles)), copies)


def _write_copy(
    path: Path_,
    raster: RaquetFile,
    tiles: StoredTiles,
    chosen: Ints,
    version: str | None,
    *,
    bands: tuple[Band, ...] | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Written:
    metadata = raster.metadata
    zooms = tiles.zooms[chosen]
    if not len(chosen) or int(zooms.max()) != metadata.max_zoom:
        raise InvalidInputError("no tile at the maximum zoom", where=raster.href)
    written = replace(
        metadata,
        min_zoom=lowest_zoom(np.unique(zooms).tolist()),
        num_blocks=len(np.unique(tiles.cells[chosen][zooms == metadata.max_zoom])),
        bands=bands or metadata.bands,
        **_hull(metadata),
    )
    groups = tiles.groups(chosen, told=lambda done: progress(done, len(chosen), "copying tiles"))
    return _write(path, written, groups, version, len(chosen), raster, overwrite=overwrite)


def _hull(metadata: Metadata) -> dict[str, Any]:
    """Size in pixels of the bounds, where those are of whole tiles."""
    west, south, east, north = metadata.bounds
    x, y = lonlat_to_xy([west, east], [north, south], metadata.max_zoom)
    if np.abs([x - np.round(x), y - np.round(y)]).max() > _ON_A_LINE:
        return {}
    return {
        "width": round(x[1] - x[0]) * metadata.block_width,
        "height": round(y[1] - y[0]) * metadata.block_height,
    }


def _write(
    path: Path_,
    metadata: Metadata,
    groups: Iterator[Rows],
    version: str | None,
    count: int,
    raster: RaquetFile,
    *,
    overwrite: bool = False,
) -> Written:
    version = version_for(version, nested=metadata.nested)
    document = metadata_json(metadata, version)
    with storage.targets.new_file(path, overwrite) as file:
        write_parquet(file, metadata, document, version, groups)
        size = file.tell()
    return Written(
        path=os.fspath(path),
        version=version,
        size=size,
        tiles=count,
        num_blocks=metadata.num_blocks or 0,
        min_zoom=metadata.min_zoom,
        max_zoom=metadata.max_zoom,
        width=metadata.width,
        height=metadata.height,
        bounds=metadata.bounds,
        bands=metadata.band_names,
        steps=1 if raster.times is None else len(raster.times),
    )


def _merged_bands(documents: Sequence[Metadata]) -> tuple[Band, ...]:
    found = []
    for same in zip(*(one.bands for one in documents), strict=True):
        first = same[0]
        if all(band.statistics == first.statistics for band in same[1:]):
            found.append(first)
            continue
        merged = _merged_statistics([band.statistics for band in same])
        found.append(replace(first, statistics=merged, histogram=None))
    return tuple(found)


def _merged_statistics(every: Sequence[BandStatistics | None]) -> BandStatistics | None:
    """Chan, Golub and LeVeque; None when a part does not say enough."""
    count, mean, m2, total, squares = 0, 0.0, 0.0, 0.0, 0.0
    lows, highs = [], []
    for one in every:
        if one is None or one.count is None or (one.count and None in (one.mean, one.stddev)):
            return None
        if not one.count:
            continue
        assert one.mean is not None
        assert one.stddev is not None
        both = count + one.count
        step = one.mean - mean
        m2 += one.stddev**2 * one.count + step * step * count * one.count / both
        mean += step * one.count / both
        count = both
        total += one.sum or 0
        squares += one.sum_squares or 0
        lows.append(one.min)
        highs.append(one.max)
    if not count or None in lows or None in highs:
        return None
    return BandStatistics(
        count=count,
        min=min(low for low in lows if low is not None),
        max=max(high for high in highs if high is not None),
        mean=mean,
        stddev=math.sqrt(m2 / count),
        sum=total,
        sum_squares=squares,
        approximated=any(one is not None and one.approximated for one in every),
        version=next((one.version for one in every if one is not None), None),
    )


# -- bands side by side ---------------------------------------------------------------------------


def _as_raquet(other: Any, first: RaquetFile, scratch: str, options: dict[str, Any]) -> Any:
    """`other` as a RaQuet file on the grid of `first`."""
    if first.metadata.interleaved:
        raise InvalidInputError(
            "bands cannot be added to the interleaved layout",
            where=first.href,
            hint="its tiles hold all bands; export it, and convert it in the sequential layout",
        )
    single = isinstance(other, str | os.PathLike)
    if single and Path(os.fspath(other)).suffix.lower() == ".parquet":
        if options:
            raise InvalidInputError(
                "options are for rasters that are converted", found=list(options)
            )
        return other
    metadata = first.metadata
    grid = {
        "zoom": metadata.max_zoom,
        "min_zoom": metadata.min_zoom,
        "block_size": metadata.block_width,
        "compression": metadata.compression,
        "spec_version": version_for(None, nested=metadata.nested),
        "tile_statistics": bool(metadata.tile_statistics),
    }
    made = Path(scratch) / "other.parquet"
    write(other, made, **{**grid, **options})
    return made


def _check_grids(first: RaquetFile, second: RaquetFile) -> None:
    one, two = first.metadata, second.metadata
    for what in ("block_width", "block_height", "max_zoom", "compression", "layout"):
        if getattr(one, what) != getattr(two, what):
            raise InvalidInputError(
                f"rasters with another {what.replace('_', ' ')} cannot share a file",
                found=getattr(two, what),
                expected=getattr(one, what),
            )
    if one.tile_statistics != two.tile_statistics:
        raise InvalidInputError("only one of the rasters has tile statistics")
    times = [None if raster.times is None else raster.times.values for raster in (first, second)]
    if (times[0] is None) != (times[1] is None) or (
        times[0] is not None and not np.array_equal(times[0], times[1])  # type: ignore[arg-type]
    ):
        raise InvalidInputError("rasters with other steps in time cannot share a file")


def _write_joined(
    path: Path_,
    first: RaquetFile,
    second: RaquetFile,
    bands: tuple[Band, ...],
    version: str | None,
    progress: Progress,
    *,
    overwrite: bool,
) -> Written:
    halves = [StoredTiles(first), StoredTiles(second)]
    keys = np.unique(
        np.concatenate([np.stack([one.cells, one.steps], axis=1) for one in halves]), axis=0
    )
    places = [_positions(one, keys) for one in halves]
    metadata = first.metadata
    zooms = np.asarray(quadbin.zooms(keys[:, 0]))
    union = [
        (min if at < 2 else max)(first.metadata.bounds[at], second.metadata.bounds[at])
        for at in range(4)
    ]
    metadata = replace(
        metadata,
        bands=bands,
        bounds=(union[0], union[1], union[2], union[3]),
        min_zoom=lowest_zoom(np.unique(zooms).tolist()),
        num_blocks=len(np.unique(keys[zooms == metadata.max_zoom, 0])),
    )
    metadata = replace(metadata, **_hull(metadata))
    groups = _joined_groups(halves, places, keys, progress)
    return _write(path, metadata, groups, version, len(keys), first, overwrite=overwrite)


def _positions(tiles: StoredTiles, keys: Ints) -> Ints:
    """Where tiles stand, -1 where there is none."""
    mine = np.stack([tiles.cells, tiles.steps], axis=1)
    every, inverse = np.unique(np.concatenate([keys, mine]), axis=0, return_inverse=True)
    assert len(every) == len(keys), "keys are all there are"
    found = np.full(len(keys), -1, np.int64)
    found[inverse.ravel()[len(keys) :]] = np.arange(len(mine))
    return found


def _joined_groups(
    halves: Sequence[StoredTiles], places: Sequence[Ints], keys: Ints, progress: Progress
) -> Iterator[Rows]:
    sizes = np.zeros(len(keys), np.int64)
    for tiles, place in zip(halves, places, strict=True):
        sizes += np.where(place >= 0, tiles.sizes()[np.maximum(place, 0)], 0)
    empty = [_empty_blobs(tiles.metadata) for tiles in halves]
    for start, stop in row_groups(keys[:, 0], sizes, quadbin.zooms):
        columns: list[list[bytes | None]] = []
        statistics = []
        times: tuple[Any, Any] = (None, None)
        for tiles, place, blank in zip(halves, places, empty, strict=True):
            at = place[start:stop]
            there = np.flatnonzero(at >= 0)
            found = tiles.blobs(at[there])
            for name, blobs in enumerate(found):
                column: list[bytes | None] = [blank[name]] * len(at)
                for row, blob in zip(there.tolist(), blobs, strict=True):
                    column[row] = blob
                columns.append(column)
            statistics.append(_spread(tiles.statistics(at[there]), there, len(at)))
        axis = halves[0].raster.times
        if axis is not None:
            steps = keys[start:stop, 1]
            stamps = axis.stamps[steps].astype("datetime64[us]")
            gone = np.isnat(stamps)
            whole = stamps.astype(np.int64).tolist()
            times = (
                axis.values[steps].tolist(),
                [None if no else one for no, one in zip(gone, whole, strict=True)],
            )
        known = [one for one in statistics if one is not None]
        yield Rows(
            cells=keys[start:stop, 0],
            columns=columns,
            time_cf=times[0],
            time_ts=times[1],
            statistics=np.concatenate(known, axis=1) if len(known) == len(statistics) else None,
        )
        progress(stop, len(keys), "copying tiles")


def _empty_blobs(metadata: Metadata) -> list[bytes]:
    """A tile without data, for each band."""
    shape = (metadata.block_height, metadata.block_width)
    coding = Coding(metadata.compression, LEVEL, metadata.quality or 85, interleaved=False)
    return [
        encoded([np.full(shape, fill_value(band), band.dtype)], coding)[0]
        for band in metadata.bands
    ]


def _spread(
    found: npt.NDArray[np.float64] | None, there: Ints, count: int
) -> npt.NDArray[np.float64] | None:
    if found is None:
        return None
    whole = np.full((count, *found.shape[1:]), np.nan)
    whole[there] = found
    return whole
