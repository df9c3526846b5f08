"""The work on one subtree of tiles: read, count, compress, and make the overviews inside.

A job is plain data and a task is a job with the cell at the root of a subtree, so that tasks run in
threads, processes or on a cluster alike. What a task returns depends on its cell alone.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.grid import quadbin
from comal.parallel import results, width
from comal.progress import Progress
from comal.raquet import blobs
from comal.raquet.spec import Metadata, Number
from comal.raquet.writing.accumulating import Totals, moments, sums_of
from comal.raquet.writing.reducing import halved
from comal.raster.describing import gdal_rules
from comal.raster.gridding import TileRange
from comal.raster.mosaic import GridReader, GridSource
from comal.raster.values import Mask, both, occurring, valid_mask, valid_masks
from comal.raster.warping import Patch, Window2D

Array = npt.NDArray[Any]

STATISTICS = 6
"""Numbers that a tile's statistics have: count, min, max, sum, mean, stddev."""

LEVEL = 3
"""Of gzip: within two percent of the size of level 6 at two thirds of its time."""
QUALITY = 85

_MOST_SIDE = 2048
"""Pixels that a subtree has each way at most."""
_MOST_BYTES = 8 << 20
"""Bytes of its pixels."""

WHOLE = b""
"""Stands for the mask of a tile that is covered all over."""


@dataclass(frozen=True, slots=True)
class Coding:
    """How the pixels of a tile become blobs."""

    compression: str | None
    level: int
    quality: int
    interleaved: bool

    @classmethod
    def of(cls, metadata: Metadata) -> Coding:
        """As the tiles of a file are."""
        quality = metadata.quality or QUALITY
        return cls(metadata.compression, LEVEL, quality, metadata.interleaved)


@dataclass(frozen=True, slots=True)
class Job:
    """All that a worker needs to know."""

    key: str
    """Tells jobs apart; files stay open between the tasks of one."""
    steps: tuple[GridSource, ...]
    """What is read: one source, or one for each step in time."""
    names: tuple[str, ...]
    """Names of the bands."""
    zoom: int
    min_zoom: int
    block: int
    depth: int
    """Zooms between the root of a subtree and the full resolution."""
    ranges: tuple[TileRange, ...]
    """Tiles at the full resolution."""
    overviews: tuple[str, ...]
    """For each band how its overviews are made."""
    alpha: int | None
    """Position of an alpha band."""
    coding: Coding
    keep_empty: bool
    tile_statistics: bool
    sample_step: int
    """Distance of the pixels from which quantiles of wide types are taken."""
    undecided: tuple[int, ...] = ()
    """Positions of bands that have no nodata value, but get one if tiles turn out to need it.

    Each tile then has a mask of what is covered; see `comal.raquet.writing.padding`.
    """
    reused: tuple[tuple[int, GridSource], ...] = ()
    """Zooms whose tiles come from overviews of the source."""

    @property
    def root_zoom(self) -> int:
        """Zoom of the roots."""
        return self.zoom - self.depth

    @property
    def nodata(self) -> tuple[Number | None, ...]:
        """Nodata value of each band."""
        return tuple(band.nodata for band in self.steps[0].bands)


@dataclass(slots=True)
class Tiles:
    """Compressed tiles in the order in which they were made."""

    cells: list[int] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    """Column after column for each tile."""
    statistics: list[Array] = field(default_factory=list)
    """For each tile (bands, 6); NaN where nothing is valid."""
    masks: list[bytes] = field(default_factory=list)
    """For each tile what its source covers, where bands are undecided."""
    reduced: list[tuple[int, Array]] = field(default_factory=list)
    """Of undecided bands: values that occur in overviews, with the position of the band."""


@dataclass(slots=True)
class Subtree:
    """What became of a subtree."""

    tiles: Tiles
    totals: Totals
    root: Patch | None
    """The pixels of its root, when there are overviews above; None when it is empty."""


class Worker:
    """Runs tasks of one job in one thread."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._readers: dict[int, GridReader] = {}
        self._reused = {zoom: GridReader(source) for zoom, source in job.reused}

    def close(self) -> None:
        """Close all files."""
        for reader in (*self._readers.values(), *self._reused.values()):
            reader.close()
        self._readers.clear()

    def subtree(self, step: int, x: int, y: int) -> Subtree:
        """The tiles below a root, itself included where it is not coarser than wanted."""
        job, tiles = self.job, Tiles()
        totals = Totals.of(tuple(band.dtype for band in job.steps[0].bands))
        with gdal_rules(job.steps[step].config):
            window = _clipped(job, x, y)
            patch = self._reader(step).read(_pixels(window, job.block))
            if patch is None and not job.keep_empty:
                return Subtree(tiles, totals, None)
            if patch is None:
                patch = blank(job, window.height * job.block, window.width * job.block)
            else:
                self._count(patch, window, totals)
            return Subtree(tiles, totals, self._descend(patch, window, tiles))

    def _descend(self, patch: Patch, window: Window2D, tiles: Tiles) -> Patch | None:
        """Store a window of tiles, then its overviews up to the root."""
        job = self.job
        if not job.keep_empty and _is_blank(patch, job):
            return None
        for zoom in range(job.zoom, max(job.root_zoom, job.min_zoom) - 1, -1):
            if zoom < job.zoom:
                patch, window = self._halved(patch, window, zoom)
            self._store(patch, window, zoom, tiles)
        if job.min_zoom >= job.root_zoom:
            return None
        assert (window.width, window.height) == (1, 1), "a root is one tile"
        return patch if not _is_blank(patch, job) else None

    def _halved(self, patch: Patch, window: Window2D, zoom: int) -> tuple[Patch, Window2D]:
        job = self.job
        patch, window = _even(patch, window, job)
        window = Window2D(window.x // 2, window.y // 2, window.width // 2, window.height // 2)
        return self.overview(patch, window, zoom), window

    def overview(self, patch: Patch, window: Window2D, zoom: int) -> Patch:
        """A window of tiles at half the resolution, or what the source has as such."""
        reader = self._reused.get(zoom)
        if reader is not None:
            with gdal_rules(reader.source.config):
                found = reader.read(_pixels(window, self.job.block))
            if found is not None:
                return found
        padding = tuple(band.padding for band in self.job.steps[0].bands)
        return halved(patch, self.job.overviews, self.job.nodata, self.job.alpha, padding)

    def store_root(self, patch: Patch, x: int, y: int, zoom: int, tiles: Tiles) -> None:
        """Store one tile."""
        self._store(patch, Window2D(x, y, 1, 1), zoom, tiles)

    def _store(self, patch: Patch, window: Window2D, zoom: int, tiles: Tiles) -> None:
        job, block = self.job, self.job.block
        wanted = _present(patch, job, window)
        if job.keep_empty:
            wanted |= _in_ranges(job, window, zoom)
        rows, columns = np.nonzero(wanted)
        if not len(rows):
            return
        if zoom < job.zoom:
            for band in job.undecided:
                tiles.reduced.append((band, occurring(patch.bands[band], patch.covered)))
        cells = quadbin.cells(zoom, window.x + columns, window.y + rows)
        for at in np.argsort(cells):
            top, left = int(rows[at]) * block, int(columns[at]) * block
            place = np.s_[top : top + block, left : left + block]
            bands = [pixels[place] for pixels in patch.bands]
            tiles.cells.append(int(cells[at]))
            covered = None if patch.covered is None else patch.covered[place]
            tiles.blobs += encoded(bands, job.coding)
            if job.undecided:
                tiles.masks.append(_packed(covered))
            if job.tile_statistics:
                tiles.statistics.append(tile_statistics(bands, job.nodata, covered, job.alpha))

    def _count(self, patch: Patch, window: Window2D, totals: Totals) -> None:
        job, size = self.job, self.job.block
        x, y = window.x * size, window.y * size
        stored = None
        if job.alpha is not None and not job.keep_empty:
            # Of tiles that are transparent and black, which are left out, no pixel counts.
            tiles = np.repeat(_present(patch, job, window), size, axis=0)
            stored = None if tiles.all() else np.repeat(tiles, size, axis=1)
        masks = valid_masks(patch.bands, job.nodata, patch.covered, job.alpha)
        for at, (pixels, valid) in enumerate(zip(patch.bands, masks, strict=True)):
            counted = valid if stored is None else both(valid, stored)
            made = sums_of(pixels, counted, step=job.sample_step, x=x, y=y)
            totals.bands[at].add(made)
        whole, covered = patch.bands[0].size, patch.covered
        totals.covered += whole if covered is None else int(np.count_nonzero(covered))

    def _reader(self, step: int) -> GridReader:
        reader = self._readers.get(step)
        if reader is None:
            for old in self._readers.values():
                old.close()
            self._readers.clear()
            reader = self._readers[step] = GridReader(self.job.steps[step])
        return reader


_local = threading.local()


def run_subtree(job: Job, place: tuple[int, int, int]) -> Subtree:
    """Run a task in whatever thread this is; its files stay open for the next of the same job."""
    worker: Worker | None = getattr(_local, "worker", None)
    if worker is None or worker.job.key != job.key:
        if worker is not None:
            worker.close()
        worker = _local.worker = Worker(job)
    return worker.subtree(*place)


def roots(job: Job) -> Iterator[tuple[int, int]]:
    """Columns and rows of all roots in the order of their ids."""
    found = []
    for part in job.ranges:
        x, y = np.meshgrid(
            np.arange(part.west >> job.depth, (part.east >> job.depth) + 1),
            np.arange(part.north >> job.depth, (part.south >> job.depth) + 1),
        )
        found.append(quadbin.cells(job.root_zoom, x.ravel(), y.ravel()))
    _, x, y = quadbin.tiles(np.unique(np.concatenate(found)))
    yield from zip(x.tolist(), y.tolist(), strict=True)


def blank(job: Job, rows: int, columns: int) -> Patch:
    """Pixels of what no source covers."""
    bands = [np.full((rows, columns), band.fill, band.dtype) for band in job.steps[0].bands]
    return Patch(bands, np.zeros((rows, columns), bool))


def encoded(bands: list[Array], coding: Coding) -> list[bytes]:
    """The blobs of a tile, one for each column."""
    named = {"level": coding.level, "quality": coding.quality}
    if coding.interleaved:
        return [blobs.encode(np.stack(bands), coding.compression, **named)]
    return [blobs.encode(pixels, coding.compression, **named) for pixels in bands]


def decoded(
    found: Sequence[bytes | None], coding: Coding, dtypes: Sequence[str], shape: tuple[int, int]
) -> list[Any]:
    """The bands of a tile from its blobs, None where one is NULL."""
    if not coding.interleaved:
        return [
            None if blob is None else blobs.decode(blob, coding.compression, dtype, shape)
            for blob, dtype in zip(found, dtypes, strict=True)
        ]
    (blob,), count = found, len(dtypes)
    if blob is None:
        return [None] * count
    return list(blobs.decode(blob, coding.compression, dtypes[0], (count, *shape)))


def _packed(covered: Mask | None) -> bytes:
    if covered is None or covered.all():
        return WHOLE
    return zlib.compress(np.packbits(covered).tobytes(), 1)


def tile_statistics(
    bands: list[Array],
    nodata: tuple[Number | None, ...],
    covered: Mask | None,
    alpha: int | None,
) -> Array:
    """Statistics of one tile: (bands, 6), NaN where nothing is valid."""
    found = np.full((len(bands), STATISTICS), np.nan)
    masks = valid_masks(bands, nodata, covered, alpha)
    for at, (pixels, valid) in enumerate(zip(bands, masks, strict=True)):
        sums = sums_of(pixels, valid, step=len(pixels), x=0, y=0)
        if sums.count:
            mean, stddev = moments(sums)
            found[at] = (sums.count, sums.low, sums.high, float(sums.total), mean, stddev)
    return found


def _clipped(job: Job, x: int, y: int) -> Window2D:
    """The tiles of a subtree; without overviews above it only those that are wanted."""
    side = 1 << job.depth
    left, top, right, bottom = x * side, y * side, (x + 1) * side, (y + 1) * side
    parts = [
        part
        for part in job.ranges
        if part.west < right and part.east >= left and part.north < bottom and part.south >= top
    ]
    left = max(left, min(part.west for part in parts))
    top = max(top, min(part.north for part in parts))
    right = min(right, max(part.east for part in parts) + 1)
    bottom = min(bottom, max(part.south for part in parts) + 1)
    return Window2D(left, top, right - left, bottom - top)


def _pixels(window: Window2D, block: int) -> Window2D:
    return Window2D(window.x * block, window.y * block, window.width * block, window.height * block)


def _even(patch: Patch, window: Window2D, job: Job) -> tuple[Patch, Window2D]:
    """A window widened to whole parents; what is added has no data."""
    left, top = window.x % 2, window.y % 2
    right, bottom = (window.x + window.width) % 2, (window.y + window.height) % 2
    if not (left or top or right or bottom):
        return patch, window
    size = job.block
    grown = blank(
        job,
        (top + window.height + bottom) * size,
        (left + window.width + right) * size,
    )
    assert grown.covered is not None
    rows, columns = patch.bands[0].shape
    at = np.s_[top * size : top * size + rows, left * size : left * size + columns]
    for mine, theirs in zip(grown.bands, patch.bands, strict=True):
        mine[at] = theirs
    grown.covered[at] = True if patch.covered is None else patch.covered
    wide = Window2D(
        window.x - left,
        window.y - top,
        left + window.width + right,
        top + window.height + bottom,
    )
    return grown, wide


def _present(patch: Patch, job: Job, window: Window2D) -> npt.NDArray[np.bool_]:
    """Which tiles of a window have a valid pixel in any band."""
    shape = (window.height, window.width)
    present = np.zeros(shape, bool)
    for pixels, nodata in zip(patch.bands, job.nodata, strict=True):
        valid = valid_mask(pixels, nodata, patch.covered)
        if valid is None:
            present[:] = True
        else:
            present |= _any(valid, job.block, shape)
        if present.all():
            break
    if job.alpha is not None and present.any():
        # What is transparent and black is what a missing tile shows.
        shown = np.zeros(shape, bool)
        for pixels in patch.bands:
            shown |= _any(pixels != 0, job.block, shape)
        present &= shown
    return present


def _any(mask: Mask, block: int, shape: tuple[int, int]) -> npt.NDArray[np.bool_]:
    return np.asarray(mask.reshape(shape[0], block, shape[1], block).any(axis=(1, 3)))


def _in_ranges(job: Job, window: Window2D, zoom: int) -> npt.NDArray[np.bool_]:
    up = job.zoom - zoom
    rows, columns = np.mgrid[0 : window.height, 0 : window.width]
    x, y = columns + window.x, rows + window.y
    found = np.zeros((window.height, window.width), bool)
    for part in job.ranges:
        found |= (
            (x >= part.west >> up)
            & (x <= part.east >> up)
            & (y >= part.north >> up)
            & (y <= part.south >> up)
        )
    return found


def _is_blank(patch: Patch, job: Job) -> bool:
    window = Window2D(
        0, 0, patch.bands[0].shape[1] // job.block, patch.bands[0].shape[0] // job.block
    )
    return not bool(_present(patch, job, window).any())


def depth_of(block: int, zoom: int, pixel_bytes: int) -> int:
    """How many zooms a subtree spans: few enough that its pixels take some 16 MiB at most."""
    depth = 0
    while (
        depth < zoom
        and block << (depth + 1) <= _MOST_SIDE
        and (block << (depth + 1)) ** 2 * pixel_bytes <= _MOST_BYTES
    ):
        depth += 1
    return depth


# -- pyramid ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A tile whose children are still coming."""

    x: int
    y: int
    children: dict[tuple[int, int], Patch] = field(default_factory=dict)


class Pyramid:
    """Makes the overviews of tiles that come in the order of their ids; `worker` stores them."""

    def __init__(self, job: Job, worker: Worker) -> None:
        self._job, self._worker = job, worker
        self._open: dict[int, _Open] = {}

    def add(self, x: int, y: int, patch: Patch | None, tiles: Tiles) -> None:
        """Take the next root, None when it is empty; what gets complete goes to `tiles`."""
        self._take(self._job.root_zoom, x, y, patch, tiles)

    def finish(self, tiles: Tiles) -> None:
        """Complete all that is open."""
        for zoom in range(self._job.root_zoom - 1, self._job.min_zoom - 1, -1):
            if zoom in self._open:
                self._complete(zoom, tiles)

    def _take(self, zoom: int, x: int, y: int, patch: Patch | None, tiles: Tiles) -> None:
        if zoom <= self._job.min_zoom:
            return
        above = zoom - 1
        place = (x >> 1, y >> 1)
        current = self._open.get(above)
        if current is not None and (current.x, current.y) != place:
            self._complete(above, tiles)
            current = None
        if current is None:
            current = self._open[above] = _Open(*place)
        if patch is not None:
            current.children[y & 1, x & 1] = patch

    def _complete(self, zoom: int, tiles: Tiles) -> None:
        done = self._open.pop(zoom)
        patch = None
        if done.children or self._job.keep_empty:
            joined = _joined(done.children, self._job)
            patch = self._worker.overview(joined, Window2D(done.x, done.y, 1, 1), zoom)
            self._worker.store_root(patch, done.x, done.y, zoom, tiles)
        self._take(zoom, done.x, done.y, patch, tiles)


def _joined(children: dict[tuple[int, int], Patch], job: Job) -> Patch:
    size = job.block
    if len(children) == 4 and all(child.covered is None for child in children.values()):
        whole = blank(job, 0, 0)
        whole.covered = None
        whole.bands = [
            np.block(
                [
                    [children[0, 0].bands[at], children[0, 1].bands[at]],
                    [children[1, 0].bands[at], children[1, 1].bands[at]],
                ]
            )
            for at in range(len(job.names))
        ]
        return whole
    whole = blank(job, 2 * size, 2 * size)
    assert whole.covered is not None
    for (row, column), child in children.items():
        at = np.s_[row * size : (row + 1) * size, column * size : (column + 1) * size]
        for mine, theirs in zip(whole.bands, child.bands, strict=True):
            mine[at] = theirs
        whole.covered[at] = True if child.covered is None else child.covered
    return whole


# -- running --------------------------------------------------------------------------------------

_AHEAD = 2
"""Tasks in flight beyond those that workers work at."""

Place = tuple[int, int, int]
Made = Iterator[Subtree]


def run_job(
    job: Job, totals: Totals, executor: Executor | None, progress: Progress
) -> Generator[tuple[Tiles, int], None, None]:
    """Run all subtrees, and add up `totals`; tiles come with the number of their step in time.

    The order of tiles and of additions is that of the ids, whoever does the work, so that the
    same job gives the same bytes with any executor and any number of workers.

    Raises
    ------
    ComalError
        Of the first subtree that fails; those that have not begun are not run.
    """
    places = list(roots(job))
    total, done = len(places) * len(job.steps), 0
    above = Worker(job)
    try:
        with _working(job, executor) as working:
            for step in range(len(job.steps)):
                pyramid = Pyramid(job, above)
                tasks = [(step, x, y) for x, y in places]
                for (x, y), made in zip(places, working(tasks), strict=True):
                    totals.add(made.totals)
                    if job.root_zoom > job.min_zoom:
                        pyramid.add(x, y, made.root, made.tiles)
                    yield made.tiles, step
                    done += 1
                    progress(done, total, "making tiles")
                last = Tiles()
                pyramid.finish(last)
                yield last, step
    finally:
        above.close()


@contextmanager
def _working(job: Job, executor: Executor | None) -> Iterator[Callable[[Sequence[Place]], Made]]:
    """What makes the subtrees of places (step, x, y): on an executor, or in threads of our own."""
    if executor is not None:
        run = partial(run_subtree, job)
        yield lambda places: results(executor, run, places, width(executor) + _AHEAD)
        return
    count = os.cpu_count() or 1
    own = _Threads(job)
    with ThreadPoolExecutor(count, thread_name_prefix="comal-raquet") as pool:
        try:
            yield lambda places: results(pool, own.run, places, count + _AHEAD)
        finally:
            pool.shutdown(cancel_futures=True)
            own.close()


class _Threads:
    """A worker for each thread of a pool; all are closed together."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._local = threading.local()
        self._workers: list[Worker] = []

    def run(self, place: Place) -> Subtree:
        """Run a task in the worker of this thread."""
        worker: Any = getattr(self._local, "worker", None)
        if worker is None:
            worker = self._local.worker = Worker(self._job)
            self._workers.append(worker)
        made: Subtree = worker.subtree(*place)
        return made

    def close(self) -> None:
        """Close all files; no thread runs any more."""
        for worker in self._workers:
            worker.close()
