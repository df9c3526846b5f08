"""Bands of two rasters side by side in one file.

Tiles are copied as they are stored, where both files store them as the new one does; else pixels
are decoded and stored anew, which loses nothing.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.grid import quadbin
from comal.progress import Progress, silent
from comal.public import warn
from comal.raquet import spec
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.pixels import alpha_of
from comal.raquet.spec import Metadata
from comal.raquet.times import time_columns
from comal.raquet.writing.combining import check_grids, joined, settled
from comal.raquet.writing.copying import StoredTiles, declare, steps_of, version_for
from comal.raquet.writing.creating import Written, write, write_rows
from comal.raquet.writing.job import Coding, encoded
from comal.raquet.writing.layout import RowGroup, row_groups
from comal.raquet.writing.options import NO_NODATA, RAQUET
from comal.storage.kinds import check_ending
from comal.storage.targets import TargetFile, new_file

Ints = npt.NDArray[np.int64]
Path_ = str | os.PathLike[str]


def append_bands(
    source: Path_ | Sequence[Path_],
    other: Any,
    path: Path_,
    *,
    names: Mapping[str, str] | None = None,
    layout: str | None = None,
    spec_version: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> Written:
    """Write a file with the bands of two rasters.

    Parameters
    ----------
    source
        A RaQuet file.
    other
        Another one on the same grid, or a raster or array, which is put on that grid.
    path
        The file to write.
    names
        New names for bands of `other`, such as ``{"band_1": "elevation"}``.
    layout
        ``sequential`` or ``interleaved``; by default that of `source`. Bands of several types
        need the former.
    spec_version, overwrite, progress
        As for `partition`.
    **options
        How a raster is converted, as for `write`.

    Notes
    -----
    A tile that only one of them has is written for both; bands without pixels hold nodata there.
    Where a band has no nodata value and needs one for that, one is chosen that none of its pixels
    has, and NaN for floats. An alpha band of `other` comes as a band that hides nothing: what it
    hid becomes nodata. That of `source` hides the added bands too, as RaQuet has one for all bands
    of a file; a warning says so.
    Tiles of JPEG and WebP are never compressed a second time: in the sequential layout their
    pixels are stored with gzip.

    Raises
    ------
    InvalidInputError
        Grids, times, types or names that do not go together; a band that needs a nodata value and
        has pixels of all values.
    """
    check_ending(path, ".parquet")
    with (
        open_raquet(source) as first,
        new_file(path, overwrite, RAQUET, [*first.store.sources, other]) as file,
        open_raquet(_as_raquet(other, first, file, options)) as second,
    ):
        check_grids(first.metadata, second.metadata)
        _check_steps(first, second)
        halves = (StoredTiles(first), StoredTiles(second))
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
        metadata = joined(first.metadata, second.metadata, both, layout, first.href)
        alpha = alpha_of(first.metadata.bands)
        if alpha is not None:
            name = shown(first.metadata.bands[alpha].name)
            warn(f"alpha band {name} hides the added bands, too: pixels without it are nodata")
        keys = _keys(halves)
        for added, one in enumerate(halves):
            declare(one, gaps=len(one) < len(keys), added=bool(added))
        told = [band for one in halves for band in one.metadata.bands]
        bands = tuple(replace(new, name=band.name) for new, band in zip(told, both, strict=True))
        metadata = settled(replace(metadata, bands=bands), keys[:, 0])
        version = version_for(spec_version, nested=metadata.nested)
        made = write_rows(file, path, metadata, version, _groups(halves, metadata, keys, progress))
        chosen = {
            new.name: new.nodata
            for new, band in zip(bands, both, strict=True)
            if band.nodata is None and new.nodata is not None and math.isfinite(new.nodata)
        }
        return replace(made, steps=steps_of(first), chosen_nodata=chosen)


def _as_raquet(other: Any, first: RaquetFile, file: TargetFile, options: dict[str, Any]) -> Any:
    """`other` as a RaQuet file on the grid of `first`."""
    single = isinstance(other, str | os.PathLike)
    if single and Path(os.fspath(other)).suffix.lower() == ".parquet":
        if options:
            raise InvalidInputError(
                "options are for rasters that are converted", found=list(options)
            )
        return other
    metadata = first.metadata
    lossy = metadata.compression in spec.LOSSY_BANDS
    grid = {
        "zoom": metadata.max_zoom,
        "min_zoom": metadata.min_zoom,
        "block_size": metadata.block_width,
        "compression": spec.GZIP if lossy else metadata.compression,
        "spec_version": version_for(None, nested=metadata.nested),
        "tile_statistics": bool(metadata.tile_statistics),
    }
    made = file.folder() / "other.parquet"
    written = write(other, made, **{**grid, **options})
    if written.added_alpha is not None and not written.chosen_nodata and "nodata" not in options:
        # An alpha band would hide the bands of the first raster where the other one ends.
        write(other, made, overwrite=True, **{**grid, **options, "nodata": NO_NODATA})
    return made


def _check_steps(first: RaquetFile, second: RaquetFile) -> None:
    times = [None if raster.times is None else raster.times.values for raster in (first, second)]
    if (times[0] is None) != (times[1] is None) or (
        times[0] is not None and not np.array_equal(times[0], times[1])  # type: ignore[arg-type]
    ):
        raise InvalidInputError("rasters with other steps in time cannot share a file")


# -- tiles -----------------------------------------------------------------------------------------


def _keys(halves: Sequence[StoredTiles]) -> Ints:
    """Id and step in time of all tiles."""
    every = [np.stack([one.cells, one.steps], axis=1) for one in halves]
    return np.unique(np.concatenate(every), axis=0)


def _groups(
    halves: Sequence[StoredTiles], metadata: Metadata, keys: Ints, progress: Progress
) -> Iterator[RowGroup]:
    places = [_positions(one, keys) for one in halves]
    sizes = np.zeros(len(keys), np.int64)
    for tiles, place in zip(halves, places, strict=True):
        sizes += np.where(place >= 0, tiles.sizes()[np.maximum(place, 0)], 0)
    coding = Coding.of(metadata)
    for start, stop in row_groups(keys[:, 0], sizes, quadbin.zooms):
        at = [place[start:stop] for place in places]
        statistics = [
            _spread(tiles.statistics(some[some >= 0]), np.flatnonzero(some >= 0), len(some))
            for tiles, some in zip(halves, at, strict=True)
        ]
        known = [one for one in statistics if one is not None]
        time_cf, time_ts = time_columns(halves[0].raster.times, keys[start:stop, 1])
        yield RowGroup(
            cells=keys[start:stop, 0],
            columns=_columns(halves, at, coding),
            time_cf=time_cf,
            time_ts=time_ts,
            statistics=np.concatenate(known, axis=1) if len(known) == len(statistics) else None,
        )
        progress(stop, len(keys), "copying tiles")


def _positions(tiles: StoredTiles, keys: Ints) -> Ints:
    """Where tiles stand, -1 where there is none."""
    mine = np.stack([tiles.cells, tiles.steps], axis=1)
    every, inverse = np.unique(np.concatenate([keys, mine]), axis=0, return_inverse=True)
    assert len(every) == len(keys), "keys are all there are"
    found = np.full(len(keys), -1, np.int64)
    found[inverse.ravel()[len(keys) :]] = np.arange(len(mine))
    return found


def _columns(
    halves: Sequence[StoredTiles], at: Sequence[Ints], coding: Coding
) -> Sequence[Sequence[bytes | None]]:
    """The columns of some tiles, which stand in both files at these positions."""
    both = list(zip(halves, at, strict=True))
    if not coding.interleaved:
        return [column for tiles, some in both for column in _sequential(tiles, some, coding)]
    rows = zip(*(tiles.planes(some) for tiles, some in both), strict=True)
    return [[blob for bands in rows for blob in encoded([*chain(*bands)], coding)]]


def _sequential(tiles: StoredTiles, at: Ints, coding: Coding) -> Sequence[Sequence[bytes | None]]:
    """A column for each band: blobs as they are, or made from their pixels."""
    stored = tiles.metadata
    if stored.interleaved or stored.compression != coding.compression:
        rows = [encoded(bands, coding) for bands in tiles.planes(at)]
        return [list(column) for column in zip(*rows, strict=True)]
    columns: list[list[bytes | None]] = [
        [blob] * len(at) for one in tiles.blank for blob in encoded([one], coding)
    ]
    there = np.flatnonzero(at >= 0)
    for column, blobs in zip(columns, tiles.blobs(at[there]), strict=True):
        for row, blob in zip(there.tolist(), blobs, strict=True):
            column[row] = blob
    return columns


def _spread(
    found: npt.NDArray[np.float64] | None, there: Ints, count: int
) -> npt.NDArray[np.float64] | None:
    if found is None:
        return None
    whole = np.full((count, *found.shape[1:]), np.nan)
    whole[there] = found
    return whole
