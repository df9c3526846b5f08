"""The work on one subtree of tiles: read, count, compress, and make the overviews inside.

A job is plain data, and a task is a job with the cell at the root of a subtree, so that tasks can
run in threads, processes or on a cluster. The result of a task depends on its cell alone.
"""

from __future__ import annotations

import os
import threading
import uuid
import zlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.grid import quadbin
from comal.parallel import Workers, results, width, workers_of
from comal.progress import Progress
from comal.raquet import blobs
from comal.raquet.spec import Number
from comal.raster.gridding import TileRange, Window2D
from comal.raster.opening import gdal_rules
from comal.raster.overviews import halved
from comal.raster.statistics import BandSums, moments, sums_of
from comal.raster.values import Mask, both, occurring, valid_mask, valid_masks
from comal.raster.warping import GridReader, GridSource, OutBand, Patch

Array = npt.NDArray[Any]

STATISTICS = 6
"""Number of tile statistics: count, min, max, sum, mean, stddev."""

LEVEL = 3
"""Default level of gzip: within two percent of the size of level 6 in two thirds of its time."""
QUALITY = 85

_MOST_SIDE = 2048
"""Largest side of a subtree in pixels."""
_MOST_BYTES = 8 << 20
"""Largest size of the pixels of a subtree in bytes."""

_AHEAD = 2
"""Tasks in flight beyond those that workers are processing."""

WHOLE = b""
"""Mask of a fully covered tile."""


_local = threading.local()


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that a worker needs."""

    key: str
    """Identifies the job; files stay open between its tasks."""
    steps: tuple[GridSource, ...]
    """The source to read, or one for each time step."""
    zoom: int
    min_zoom: int
    block: int
    depth: int
    """Zooms between the root of a subtree and the full resolution."""
    ranges: tuple[TileRange, ...]
    """Tiles at the full resolution."""
    overviews: tuple[str, ...]
    """Overview resampling of each band."""
    alpha: int | None
    """Position of the alpha band."""
    compression: str | None
    level: int
    quality: int
    interleaved: bool
    tile_statistics: bool
    sample_step: int
    """Spacing of the pixels that quantiles of wide types are sampled from."""
    undecided: tuple[int, ...] = ()
    """Positions of bands without a nodata value that get one if tiles turn out to need it.

    Each tile then has a coverage mask; see `comal.raquet.writing.layout`.
    """

    @property
    def root_zoom(self) -> int:
        """Zoom of the roots."""
        return self.zoom - self.depth

    @property
    def bands(self) -> tuple[OutBand, ...]:
        """The bands to write."""
        return self.steps[0].bands

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Type of each band."""
        return tuple(band.dtype for band in self.bands)

    @property
    def nodata(self) -> tuple[Number | None, ...]:
        """Nodata value of each band."""
        return tuple(band.nodata for band in self.bands)

    def encoded(self, bands: list[Array]) -> list[bytes]:
        """The blobs of a tile, one for each column."""
        pixels = [np.stack(bands)] if self.interleaved else bands
        named = {"level": self.level, "quality": self.quality}
        return [blobs.encode(one, self.compression, **named) for one in pixels]

    def decoded(self, found: Sequence[bytes]) -> list[Array]:
        """The bands of a tile from its blobs."""
        shape = self.block, self.block
        if self.interleaved:
            every = (len(self.bands), *shape)
            return list(blobs.decode(found[0], self.compression, self.dtypes[0], every))
        return [
            blobs.decode(blob, self.compression, dtype, shape)
            for blob, dtype in zip(found, self.dtypes, strict=True)
        ]


@dataclass(slots=True)
class Totals:
    """Statistics of all bands of a raster."""

    bands: list[BandSums]
    covered: int = 0
    """Number of pixels that the source covers, valid or not."""

    @classmethod
    def of(cls, dtypes: tuple[str, ...]) -> Totals:
        """Empty totals."""
        return cls([BandSums(dtype) for dtype in dtypes])

    def add(self, other: Totals) -> None:
        """Add the statistics of other pixels."""
        self.covered += other.covered
        for mine, theirs in zip(self.bands, other.bands, strict=True):
            mine.add(theirs)


@dataclass(slots=True)
class Subtree:
    """Compressed tiles in the order in which they were made, and their statistics."""

    totals: Totals
    cells: list[int] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    """Tile by tile, and column by column within a tile; none if they are in a file."""
    sizes: list[int] = field(default_factory=list)
    """Bytes of each blob, if they are in a file."""
    place: tuple[str, int] | None = None
    """Name of that file, and offset of the first blob."""
    statistics: list[Array] = field(default_factory=list)
    """Statistics of each tile (bands, 6); NaN for bands without valid pixels."""
    masks: list[bytes] = field(default_factory=list)
    """Coverage mask of each tile, if bands are undecided."""
    reduced: list[tuple[int, Array]] = field(default_factory=list)
    """Position of an undecided band, and values that occur in its overviews."""
    root: Patch | None = None
    """The pixels of the root, if there are overviews above and it is not empty."""

    def put_down(self, folder: Path) -> None:
        """Append the blobs to the file that this thread has in a folder; `OSError` if it cannot."""
        if getattr(_local, "pid", None) != os.getpid():  # a fork inherits the name
            _local.pid, _local.file = os.getpid(), uuid.uuid4().hex
        with (folder / _local.file).open("ab") as file:
            at = file.tell()
            file.writelines(self.blobs)
        self.sizes, self.place = list(map(len, self.blobs)), (_local.file, at)
        self.blobs = []


def make_tiles(job: Job, folder: Path, task: tuple[int, int, int]) -> Subtree:
    """The tiles below a root (step, x, y), and the root itself unless it is too coarse.

    Blobs are left in a file of `folder` where it can be reached, so that they need not be sent.
    """
    step, x, y = task
    made, size = Subtree(Totals.of(job.dtypes)), job.block
    with gdal_rules(job.steps[step].members[0].info.config):
        window = _clipped(job, x, y)
        patch = _reader(job, step).read(
            Window2D(window.x * size, window.y * size, window.width * size, window.height * size)
        )
        if patch is not None:
            _count(job, patch, window, made.totals)
            _descend(job, patch, window, made)
    if made.blobs:
        # On another machine there is no such folder. A full disk is told by who keeps what is sent.
        with suppress(OSError):
            made.put_down(folder)
    return made


_open_readers: dict[str, set[GridReader]] = {}
"""Open readers of this process, by key of their job."""


def _reader(job: Job, step: int) -> GridReader:
    """The reader of a step in this thread; its files stay open for the next task of the step."""
    key, known, reader = getattr(_local, "held", ("", -1, None))
    if reader is None or (key, known) != (job.key, step):
        if reader is not None:
            reader.close()
            _open_readers.get(key, set()).discard(reader)
        reader = GridReader(job.steps[step])
        _local.held = job.key, step, reader
        _open_readers.setdefault(job.key, set()).add(reader)
    return reader


def _close_readers(key: str) -> None:
    for reader in _open_readers.pop(key, set()):
        reader.close()


def _descend(job: Job, patch: Patch, window: Window2D, made: Subtree) -> None:
    """Store a window of tiles, then its overviews up to the root."""
    if not _present(patch, job).any():
        return
    for zoom in range(job.zoom, max(job.root_zoom, job.min_zoom) - 1, -1):
        if zoom < job.zoom:
            patch, window = _widened(patch, window, job)
            window = Window2D(window.x // 2, window.y // 2, window.width // 2, window.height // 2)
            patch = _overview(job, patch)
        _store(job, patch, window, zoom, made)
    if job.min_zoom < job.root_zoom and _present(patch, job).any():
        assert (window.width, window.height) == (1, 1), "a root is one tile"
        made.root = patch


def _overview(job: Job, patch: Patch) -> Patch:
    """A patch at half its resolution."""
    padding = tuple(band.padding for band in job.bands)
    return halved(patch, job.overviews, job.nodata, job.alpha, padding)


def _store(job: Job, patch: Patch, window: Window2D, zoom: int, made: Subtree) -> None:
    """Compress the tiles of a window that have valid pixels."""
    block = job.block
    rows, columns = np.nonzero(_present(patch, job))
    if not len(rows):
        return
    if zoom < job.zoom:
        for band in job.undecided:
            made.reduced.append((band, occurring(patch.bands[band], patch.covered)))
    cells = quadbin.cells(zoom, window.x + columns, window.y + rows)
    for at in np.argsort(cells):
        top, left = int(rows[at]) * block, int(columns[at]) * block
        place = np.s_[top : top + block, left : left + block]
        bands = [pixels[place] for pixels in patch.bands]
        covered = None if patch.covered is None else patch.covered[place]
        made.cells.append(int(cells[at]))
        made.blobs += job.encoded(bands)
        if job.undecided:
            made.masks.append(_packed(covered))
        if job.tile_statistics:
            masks = valid_masks(bands, job.nodata, covered, job.alpha)
            made.statistics.append(tile_statistics(bands, masks))


def _count(job: Job, patch: Patch, window: Window2D, totals: Totals) -> None:
    size = job.block
    x, y = window.x * size, window.y * size
    stored = None
    if job.alpha is not None:
        # Pixels of transparent black tiles, which are not written, do not count.
        tiles = np.repeat(_present(patch, job), size, axis=0)
        stored = None if tiles.all() else np.repeat(tiles, size, axis=1)
    masks = valid_masks(patch.bands, job.nodata, patch.covered, job.alpha)
    for at, (pixels, valid) in enumerate(zip(patch.bands, masks, strict=True)):
        counted = valid if stored is None else both(valid, stored)
        totals.bands[at].add(sums_of(pixels, counted, step=job.sample_step, x=x, y=y))
    whole, covered = patch.bands[0].size, patch.covered
    totals.covered += whole if covered is None else int(np.count_nonzero(covered))


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


def _packed(covered: Mask | None) -> bytes:
    if covered is None or covered.all():
        return WHOLE
    return zlib.compress(np.packbits(covered).tobytes(), 1)


def tile_statistics(bands: Sequence[Array | None], masks: Sequence[Mask | None]) -> Array:
    """Statistics of one tile from its bands and their valid masks: (bands, 6).

    NaN for a band that is missing or has no valid pixel.
    """
    found = np.full((len(bands), STATISTICS), np.nan)
    for at, (pixels, valid) in enumerate(zip(bands, masks, strict=True)):
        if pixels is None:
            continue
        sums = sums_of(pixels, valid, step=len(pixels), x=0, y=0)
        if sums.count:
            found[at] = (sums.count, sums.low, sums.high, float(sums.total), *moments(sums))
    return found


def _clipped(job: Job, x: int, y: int) -> Window2D:
    """The tile window of a subtree, clipped to the tiles of the job."""
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


def _widened(patch: Patch, window: Window2D, job: Job) -> tuple[Patch, Window2D]:
    """A window extended to complete parent tiles; added pixels have no data."""
    left, top = window.x % 2, window.y % 2
    width, height = left + window.width, top + window.height
    width, height = width + width % 2, height + height % 2
    if (width, height) == (window.width, window.height):
        return patch, window
    wide = Window2D(window.x - left, window.y - top, width, height)
    return _composed(job, height, width, [(top, left, patch)]), wide


Part = tuple[int, int, Patch]
"""Row and column of the first tile in a larger patch, and the pixels."""


def _composed(job: Job, rows: int, columns: int, parts: Iterable[Part]) -> Patch:
    """A patch of `rows` x `columns` tiles, composed of smaller ones."""
    size = job.block
    shape = rows * size, columns * size
    bands = [np.full(shape, band.fill, band.dtype) for band in job.bands]
    covered = np.zeros(shape, bool)
    for row, column, patch in parts:
        height, width = patch.bands[0].shape
        at = np.s_[row * size : row * size + height, column * size : column * size + width]
        for mine, theirs in zip(bands, patch.bands, strict=True):
            mine[at] = theirs
        covered[at] = True if patch.covered is None else patch.covered
    return Patch(bands, None if covered.all() else covered)


def _present(patch: Patch, job: Job) -> Mask:
    """Which tiles of a patch have a valid pixel in any band."""
    shape = tuple(side // job.block for side in patch.bands[0].shape)
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
        # Transparent black tiles look the same as missing ones.
        shown = np.zeros(shape, bool)
        for pixels in patch.bands:
            shown |= _any(pixels != 0, job.block, shape)
        present &= shown
    return present


def _any(mask: Mask, block: int, shape: tuple[int, ...]) -> Mask:
    return np.asarray(mask.reshape(shape[0], block, shape[1], block).any(axis=(1, 3)))


def depth_of(block: int, zoom: int, pixel_bytes: int) -> int:
    """Number of zooms below the root of a subtree, limited by its side and bytes of pixels."""
    depth = 0
    while (
        depth < zoom
        and block << (depth + 1) <= _MOST_SIDE
        and (block << (depth + 1)) ** 2 * pixel_bytes <= _MOST_BYTES
    ):
        depth += 1
    return depth


# -- pyramid ---------------------------------------------------------------------------------------


class Pyramid:
    """Makes the overviews of tiles that arrive in the order of their ids."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._open: dict[int, tuple[tuple[int, int], list[Part]]] = {}
        """By zoom: column and row of the incomplete tile, and its children so far."""

    def finish(self, made: Subtree) -> None:
        """Complete all open tiles."""
        for zoom in range(self._job.root_zoom - 1, self._job.min_zoom - 1, -1):
            if zoom in self._open:
                self._complete(zoom, made)

    def add(self, zoom: int, x: int, y: int, patch: Patch | None, made: Subtree) -> None:
        """Add the next tile, None if it is empty; overviews that become complete go to `made`."""
        if zoom <= self._job.min_zoom:
            return
        above, place = zoom - 1, (x >> 1, y >> 1)
        current = self._open.get(above)
        if current is not None and current[0] != place:
            self._complete(above, made)
            current = None
        if current is None:
            current = self._open[above] = (place, [])
        if patch is not None:
            current[1].append((y & 1, x & 1, patch))

    def _complete(self, zoom: int, made: Subtree) -> None:
        ((x, y), children), patch = self._open.pop(zoom), None
        if children:
            patch = _overview(self._job, _composed(self._job, 2, 2, children))
            _store(self._job, patch, Window2D(x, y, 1, 1), zoom, made)
        self.add(zoom, x, y, patch, made)


# -- running ---------------------------------------------------------------------------------------


def run_job(
    job: Job, folder: Path, totals: Totals, executor: Workers, progress: Progress
) -> Generator[tuple[Subtree, int], None, None]:
    """Run all subtrees, and add to `totals`; yields tiles with the number of their time step.

    Workers leave tiles in files of `folder` if they reach it.

    Tiles and additions are in the order of ids, whatever the order of the work, so the same job
    gives the same bytes with any executor and any number of workers.
    """
    places = list(roots(job))
    total, done = len(places) * len(job.steps), 0
    with ExitStack() as stack:
        stack.callback(_close_readers, job.key)
        pool = stack.enter_context(workers_of(executor))
        for step in range(len(job.steps)):
            pyramid, make = Pyramid(job), partial(make_tiles, job, folder)
            tasks = [(step, x, y) for x, y in places]
            with closing(results(pool, make, tasks, ahead=width(pool) + _AHEAD)) as subtrees:
                for (x, y), made in zip(places, subtrees, strict=True):
                    totals.add(made.totals)
                    yield made, step
                    above = Subtree(totals)
                    pyramid.add(job.root_zoom, x, y, made.root, above)
                    yield above, step
                    done += 1
                    progress(done, total, "making tiles")
            last = Subtree(totals)
            pyramid.finish(last)
            yield last, step
