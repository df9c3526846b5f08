"""Overviews above the subtrees: one open tile per zoom, whatever the size of the raster."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from comal.raquet.writing.job import Job, Tiles, Worker, blank
from comal.raster.warping import Patch, Window2D


@dataclass(slots=True)
class _Open:
    """A tile whose children are still coming."""

    x: int
    y: int
    children: dict[tuple[int, int], Patch] = field(default_factory=dict)


class Pyramid:
    """Makes the overviews of tiles that come in the order of their ids.

    Parameters
    ----------
    job
        What is made.
    worker
        Stores the tiles.
    """

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
