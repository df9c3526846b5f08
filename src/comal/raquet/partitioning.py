"""One raster as several files, and several as one.

Tiles are copied as they are stored. A part holds the tiles at and below one cell of the zoom along
which the raster is cut. A coarser overview goes to the part that holds the first of the tiles below
it, so that all parts together are the raster with its whole pyramid, each tile once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from comal import storage
from comal.errors import InvalidInputError
from comal.grid import quadbin
from comal.progress import Progress, silent
from comal.raquet import spec
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.opening import open_unlike
from comal.raquet.spec import Band, BandStatistics, Metadata
from comal.raquet.writing.accumulating import BandSums
from comal.raquet.writing.combining import settled, united_custom
from comal.raquet.writing.copying import StoredTiles, steps_of, unify, version_for
from comal.raquet.writing.creating import Written, write_rows
from comal.raquet.writing.layout import lowest_zoom
from comal.raquet.writing.options import PARTS, RAQUET
from comal.storage.kinds import check_ending

Ints = npt.NDArray[np.int64]
Path_ = str | os.PathLike[str]

TARGET = 128 << 20
"""Bytes that a part shall have about; engines read files of some 100 MB best."""


MOST = 9_999
"""Parts of one set."""


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
    the whole, statistics of bands, bounds and zooms included, but for ``num_blocks`` and ``part``
    in ``processing``, which say what is in it: the tiles at and below ``12/2165/1426``, say.

    Raises
    ------
    InvalidInputError
        A zoom beyond those of the file, or more than 9 999 parts.
    ConflictError
        The folder exists and may not be replaced.
    """
    check_ending(folder, ".parquet")  # as others call such folders, too
    with open_raquet(source) as raster:
        tiles = StoredTiles(raster)
        cut = _cut_zoom(tiles, zoom, target_size)
        owners = _owners(tiles, cut, overviews=overviews)
        cells = np.unique(owners[owners >= 0])
        if len(cells) > MOST:
            raise InvalidInputError(
                "too many parts",
                where=raster.href,
                found=f"{len(cells)} cells of zoom {cut}",
                expected=f"at most {MOST}",
                hint="a coarser zoom, or a larger target_size",
            )
        lowest = lowest_zoom(np.unique(tiles.zooms[owners >= 0]).tolist()) if len(cells) else 0
        made = []
        with storage.targets.new_folder(folder, overwrite, PARTS, raster.store.sources) as part:
            for done, cell in enumerate(cells.tolist()):
                z, x, y = quadbin.tiles(cell)
                name = f"z{z}_{x}_{y}.parquet"
                chosen = np.flatnonzero(owners == cell)
                place = {**raster.metadata.processing, spec.PART: f"{z}/{x}/{y}"}
                own = replace(raster.metadata, processing=place)
                one = _write_copy(part / name, own, tiles, chosen, spec_version, min_zoom=lowest)
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
    they are merged, which leaves no quantiles. Files of different sources are told to cover what
    these cover together. Where their nodata values differ, one is taken that is no pixel's value
    in any of them, and the tiles of files that have another are stored anew.

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
        A tile that stands in two of them with different pixels, or different nodata values and
        pixels of all others.
    """
    with open_unlike(parts) as raster:
        tiles = StoredTiles(raster)
        documents = [part.metadata for part in raster.store.parts]
        zooms = {one.max_zoom for one in documents}
        if len(zooms) > 1:
            raise InvalidInputError(
                "files of different maximum zooms", found=", ".join(map(str, sorted(zooms)))
            )
        named = unify(tiles, documents)
        chosen = _without_copies(tiles)
        bands = tuple(
            replace(band, nodata=one.nodata)
            for band, one in zip(_merged_bands(documents), named, strict=True)
        )
        documents = [replace(one, bands=bands) for one in documents]
        processing = dict(raster.metadata.processing)
        processing.pop(spec.PART, None)
        metadata = replace(
            raster.metadata,
            bands=bands,
            processing=processing,
            custom=united_custom(documents),
        )
        made = _write_copy(
            path, metadata, tiles, chosen, spec_version, overwrite=overwrite, progress=progress
        )
        changed = {
            band.name: one.nodata
            for band, one in zip(raster.metadata.bands, named, strict=True)
            if tiles.renamed and one.nodata is not None and math.isfinite(one.nodata)
        }
        return replace(made, chosen_nodata=changed)


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
    metadata: Metadata,
    tiles: StoredTiles,
    chosen: Ints,
    version: str | None,
    *,
    min_zoom: int | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> Written:
    """Write some tiles, with what `metadata` say but for what the tiles tell themselves."""
    raster = tiles.raster
    if not len(chosen) or int(tiles.zooms[chosen].max()) != metadata.max_zoom:
        raise InvalidInputError("no tile at the maximum zoom", where=raster.href)
    groups = tiles.groups(chosen, told=lambda done: progress(done, len(chosen), "copying tiles"))
    metadata = settled(metadata, tiles.cells[chosen])
    metadata = metadata if min_zoom is None else replace(metadata, min_zoom=min_zoom)
    version = version_for(version, nested=metadata.nested)
    check_ending(path, ".parquet")
    with storage.targets.new_file(path, overwrite, RAQUET, raster.store.sources) as file:
        made = write_rows(file, path, metadata, version, groups)
    return replace(made, steps=steps_of(raster))


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
    """Of several files; None when one does not say enough."""
    sums = BandSums("float64")
    known = [one for one in every if one is not None]
    for one in known:
        count, mean, stddev = one.count, one.mean, one.stddev
        if count is None or (count and (mean is None or stddev is None)):
            return None
        if count and mean is not None and stddev is not None:
            if one.min is None or one.max is None:
                return None
            total, squares = one.sum or 0, one.sum_squares or 0
            m2 = stddev**2 * count
            sums.add(BandSums("float64", count, one.min, one.max, total, squares, mean, m2))
    if not sums.count or len(known) < len(every):
        return None
    return BandStatistics(
        count=sums.count,
        min=sums.low,
        max=sums.high,
        mean=sums.mean,
        stddev=math.sqrt(sums.m2 / sums.count),
        sum=sums.total,
        sum_squares=sums.squares,
        approximated=any(one.approximated for one in known),
        version=known[0].version,
    )
