"""Copies of open files: splitting a raster into parts, and merging parts into one file.

Tiles are copied as they are stored, row group by row group.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from comal import storage
from comal.errors import InvalidInputError
from comal.grid import quadbin
from comal.grid.mercator import lonlat_to_xy
from comal.parallel import cached_property
from comal.progress import Progress, silent
from comal.raquet import spec
from comal.raquet.documents import aligned_window, size_of
from comal.raquet.reading.coverage import extent_of, polygons_of, source_of
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.pixels import stored_nodata, tile_bytes
from comal.raquet.reading.store import TileStore, tile_statistics
from comal.raquet.spec import Band, Metadata
from comal.raquet.times import time_columns
from comal.raquet.writing.creating import PARTS, RAQUET, Written, write_rows
from comal.raquet.writing.layout import RowGroup, lowest_zoom, row_groups
from comal.raster.gridding import Footprint, extent, outline_of
from comal.storage.config import StorageConfig
from comal.storage.targets import check_ending, new_file, target_path

Ints = npt.NDArray[np.int64]
Path_ = str | os.PathLike[str]

TARGET = 128 << 20
"""Approximate size of a part in bytes; engines read files of some 100 MB best."""
MOST = 9_999
"""Most parts of a set."""


class StoredTiles:
    """All tiles of open files, in the order of their ids and of time."""

    def __init__(self, store: TileStore) -> None:
        self.store, self.axis, self.metadata = store, store.times, store.metadata
        rows = np.flatnonzero(store.ids != 0)
        steps = np.zeros(len(rows), np.int64)
        if self.axis is not None:
            values = np.concatenate([part.time for part in store.parts if part.time is not None])
            steps = np.searchsorted(self.axis.values, values[rows])
        order = np.lexsort((steps, store.ids[rows]))
        self.rows = rows[order]
        """Rows of the tiles, numbered across all files of a set."""
        self.cells, self.steps = store.ids[self.rows], steps[order]
        self.zooms = np.asarray(quadbin.zooms(self.cells), np.int64)

    def __len__(self) -> int:
        return len(self.rows)

    def distinct(self) -> tuple[Ints, int | None]:
        """Positions of the tiles without duplicates, and of the first duplicate that differs."""
        same = (self.cells[1:] == self.cells[:-1]) & (self.steps[1:] == self.steps[:-1])
        copies = np.flatnonzero(same) + 1
        unlike = (at for at in copies.tolist() if any(a != b for a, b in self.blobs([at - 1, at])))
        return np.setdiff1d(np.arange(len(self)), copies), next(unlike, None)

    def sizes(self) -> Ints:
        """Stored size of each tile in bytes, or the size of its pixels if that is unknown."""
        names, found = self.store.columns, []
        for part in self.store.parts:
            if all(name in part.pages for name in names):
                sizes = [part.pages[name].size for name in names]
                found.append(np.sum(sizes, axis=0, dtype=np.int64))
            else:
                found.append(np.full(len(part.ids), tile_bytes(self.metadata), np.int64))
        return np.asarray(np.concatenate(found)[self.rows])

    def least(self, chosen: Ints) -> int:
        """Bytes that a copy of the tiles at these positions takes at least.

        Pages of other writers may have long headers: they do not count.
        """
        parts, names = self.store.parts, self.store.columns
        own = [
            str(part.metadata.processing.get("created_by")).startswith("comal ")
            and all(name in part.pages for name in names)
            for part in parts
        ]
        known = np.repeat(own, [len(part.ids) for part in parts])[self.rows[chosen]]
        return int(self.sizes()[chosen[known]].sum())

    def blobs(self, chosen: Ints | list[int]) -> list[list[bytes | None]]:
        """For each column the blobs of the tiles at these positions."""
        rows, names = self.rows[chosen].tolist(), self.store.columns
        keys = [(row, name) for row in rows for name in names]
        found = self.store.blobs_of(keys)
        return [[found[row, name] for row in rows] for name in names]

    @cached_property
    def statistics(self) -> npt.NDArray[np.float64] | None:
        """Tile statistics as (tiles, bands, kinds); None without any."""
        if not self.metadata.tile_statistics:
            return None
        return np.asarray(tile_statistics(self.store))[self.rows]

    def groups(
        self, chosen: Ints, tell: Callable[[int], object] = lambda _: None
    ) -> Iterator[RowGroup]:
        """Row groups of the tiles at these ascending positions."""
        cells, sizes = self.cells[chosen], self.sizes()[chosen]
        for start, stop in row_groups(cells, sizes):
            part = chosen[start:stop]
            times = time_columns(self.axis, self.steps[part])
            statistics = None if self.statistics is None else self.statistics[part]
            yield RowGroup(cells[start:stop], self.blobs(part), *times, statistics)
            tell(stop)


def _one_of_each(tiles: StoredTiles) -> Ints:
    """Positions of the tiles without duplicates."""
    chosen, unlike = tiles.distinct()
    if unlike is not None:
        raise InvalidInputError(
            "a tile has different pixels in two files",
            found=f"block {tiles.cells[unlike]}",
            hint="to join files of different rasters, convert the rasters as a mosaic",
        )
    return chosen


def settled(metadata: Metadata, cells: Ints) -> Metadata:
    """The metadata with the lowest zoom, the number of blocks and the size set from the tiles."""
    zooms = np.asarray(quadbin.zooms(cells))
    metadata = replace(
        metadata,
        min_zoom=lowest_zoom(np.unique(zooms).tolist()),
        num_blocks=len(np.unique(cells[zooms == metadata.max_zoom])),
    )
    window = aligned_window(metadata)
    if window is None:
        return metadata  # the size follows only from bounds on tile edges
    width, height = size_of(metadata, window)
    return replace(metadata, width=width, height=height)


def version_for(version: str | None, *, nested: bool) -> str:
    """The version in which a file is rewritten: `version`, else one of the form that it has."""
    return version or (spec.WRITTEN[-1] if nested else spec.WRITTEN[0])


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
    """Write some tiles, with `metadata` updated from these tiles."""
    if not len(chosen) or int(tiles.zooms[chosen].max()) != metadata.max_zoom:
        raise InvalidInputError(
            "there is no tile at the maximum zoom", where=tiles.store.parts[0].where
        )
    groups = tiles.groups(chosen, lambda done: progress(done, len(chosen), "copying tiles"))
    metadata = settled(metadata, tiles.cells[chosen])
    metadata = metadata if min_zoom is None else replace(metadata, min_zoom=min_zoom)
    version = version_for(version, nested=metadata.nested)
    check_ending(path, ".parquet")
    with new_file(path, overwrite, RAQUET, tiles.store.sources) as file:
        file.expect(tiles.least(chosen))
        kind = str(tiles.store.parts[0].footer.schema.field(spec.BLOCK).type)
        return write_rows(file, path, metadata, version, groups, tiles.axis, kind)


# -- a raster in parts ---------------------------------------------------------------------------


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
    config: StorageConfig | None = None,
) -> tuple[Written, ...]:
    """Split a RaQuet file along the cells of a zoom.

    Parameters
    ----------
    source
        The file, or the parts of a set.
    folder
        The folder to create; it appears complete or not at all.
    zoom
        Zoom of the cells that become a part each; chosen from `target_size` by default.
    target_size
        Approximate size of a part in bytes.
    overviews
        Whether tiles coarser than `zoom` are kept, each in the part that holds the first tile
        below it.
    spec_version
        ``"0.1.0"`` or ``"0.5.0"``; by default the form that the source has.
    overwrite
        Whether to replace an existing folder.
    progress
        Called with the number of parts that are done.
    config
        Settings and credentials to read and to write with.

    Returns
    -------
    One summary per part; parts are called ``z{zoom}_{x}_{y}.parquet``. Their metadata, including
    band statistics, bounds and zooms, are those of the source, except ``num_blocks`` and ``part``
    in ``processing``, which describe the part: the tiles at and below ``12/2165/1426``, say.

    Raises
    ------
    InvalidInputError
        The zoom is beyond those of the file, or there would be more than 9 999 parts.
    ConflictError
        The folder exists and `overwrite` is false.
    """
    target = target_path(folder, config)
    check_ending(target, ".parquet")  # other tools name such folders the same way
    with open_raquet(source, config=config) as raster:
        tiles = StoredTiles(raster.store)
        cut, distinct = _cut_zoom(tiles, zoom, target_size), _one_of_each(tiles)
        owners = _owners(tiles, cut, overviews=overviews)
        cells = np.unique(owners[owners >= 0])
        if len(cells) > MOST:
            raise InvalidInputError(
                "too many parts",
                where=raster.href,
                found=f"{len(cells)} cells of zoom {cut}",
                expected=f"at most {MOST}",
                hint="choose a coarser zoom, or a larger target_size",
            )
        lowest = lowest_zoom(np.unique(tiles.zooms[owners >= 0]).tolist()) if len(cells) else 0
        made = []
        with storage.targets.new_folder(target, overwrite, PARTS, raster.store.sources) as part:
            for done, cell in enumerate(cells.tolist()):
                z, x, y = quadbin.tiles(cell)
                name = f"z{z}_{x}_{y}.parquet"
                chosen = distinct[owners[distinct] == cell]
                place = {**raster.metadata.processing, spec.PART: f"{z}/{x}/{y}"}
                own = replace(raster.metadata, processing=place)
                one = _write_copy(part / name, own, tiles, chosen, spec_version, min_zoom=lowest)
                made.append(replace(one, path=os.path.join(os.fspath(folder), name)))  # noqa: PTH118
                progress(done + 1, len(cells), "writing parts")
    return tuple(made)


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
    """For each tile the cell of the part that it belongs to, -1 for none."""
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


# -- parts as one file -----------------------------------------------------------------------------


def merge(
    parts: Path_ | Sequence[Path_],
    path: Path_,
    *,
    spec_version: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
    config: StorageConfig | None = None,
) -> Written:
    """Write the parts of a partitioned raster as one file.

    Statistics are kept if those of all parts are equal, as for the parts of one raster, and
    dropped otherwise; `repair` computes them. If the files have different sources, the result
    declares the union of their areas.

    Parameters
    ----------
    parts
        The files, or the folder that holds them.
    path
        The file to write.
    spec_version, overwrite, progress, config
        As for `partition`.

    Raises
    ------
    InvalidMetadataError
        The parts do not belong together, such as files with different nodata values.
    InvalidInputError
        Two parts hold the same tile with different pixels.
    """
    target = target_path(path, config)
    with open_raquet(parts, config=config) as raster:
        tiles = StoredTiles(raster.store)
        documents = [part.metadata for part in raster.store.parts]
        zooms = {one.max_zoom for one in documents}
        if len(zooms) > 1:
            raise InvalidInputError(
                "the files have different maximum zooms", found=", ".join(map(str, sorted(zooms)))
            )
        chosen, own = _one_of_each(tiles), raster.metadata
        metadata = replace(
            own,
            bands=tuple(map(_told_by_all, zip(*(one.bands for one in documents), strict=True))),
            processing={key: own.processing[key] for key in own.processing if key != spec.PART},
            custom=united_custom(documents),
        )
        return _write_copy(
            target, metadata, tiles, chosen, spec_version, overwrite=overwrite, progress=progress
        )


def _told_by_all(same: Sequence[Band]) -> Band:
    """The band, with its statistics only if they are the same in all files."""
    first = same[0]
    if all(band.statistics == first.statistics for band in same[1:]):
        return first
    return replace(first, statistics=None, histogram=None)


def united_custom(documents: Sequence[Metadata]) -> dict[str, Any]:
    """The entries of ``custom`` for a file that holds the tiles of several files.

    Entries that are equal in all of them, and in ``comal.source`` the union of the areas of their
    sources, unless a file does not store its area.
    """
    first = documents[0].custom
    if all(one.custom == first for one in documents):
        return dict(first)
    found = {
        key: value
        for key, value in first.items()
        if all(key in one.custom and one.custom[key] == value for one in documents)
    }
    padded = any(stored_nodata(band) is None for band in documents[0].bands)
    pixel_zoom = documents[0].max_zoom + documents[0].block_width.bit_length() - 1
    source = _united([source_of(one) for one in documents], pixel_zoom, padded=padded)
    return found if source is None else {**found, "comal": {"source": source}}


def _united(sources: Sequence[Any], pixel_zoom: int, *, padded: bool) -> Any:
    """The union of all sources; None if one of them does not store its area."""
    different = list({repr(one): one for one in sources}.values())
    if len(different) == 1:
        return different[0]
    polygons: list[Any] = []
    boxes = []
    for one in different:
        rings, place = polygons_of(one), extent_of(one)
        if rings is None or place is None:
            return None
        polygons += [shapely.Polygon(outer, inner) for outer, *inner in rings]
        west, south, east, north = place
        (left, right), (top, bottom) = lonlat_to_xy([west, east], [north, south], 0)
        box = (float(left), float(top), float(right) + (west > east), float(bottom))
        boxes.append(Footprint(box, 0.0, None, clipped=False))
    if not shapely.is_valid(polygons).all():
        return None
    bounds = extent(boxes)
    found: dict[str, Any] = {"bounds": list(bounds)}
    if padded:
        # Readers need it to distinguish pixels at the edge from padding.
        edge = outline_of(polygons, bounds, pixel_zoom)
        if edge is not None:
            found["footprint"] = edge
    rasters = [one.get("rasters", 1) for one in different]
    return found | {"rasters": sum(one for one in rasters if isinstance(one, int))}
