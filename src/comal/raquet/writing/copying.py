"""Tiles of an open file, copied into another one byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.grid import quadbin
from comal.plan import run
from comal.raquet import spec
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.store import TileStore, tile_statistics
from comal.raquet.times import time_columns
from comal.raquet.writing.layout import Rows, row_groups

Ints = npt.NDArray[np.int64]


class StoredTiles:
    """All tiles of a file or of a set, in the order of their ids and of time.

    Parameters
    ----------
    raster
        The open file.
    """

    def __init__(self, raster: RaquetFile) -> None:
        self.raster = raster
        self.metadata = raster.metadata
        self._store: TileStore = raster.store
        ids = self._store.ids
        rows = np.flatnonzero(ids != 0)
        steps = self._steps(rows)
        order = np.lexsort((steps, ids[rows]))
        self.rows = rows[order]
        """Rows of the file, counted through all files of a set."""
        self.cells = ids[self.rows]
        self.steps = steps[order]
        """Step in time of each tile, 0 without time."""
        self._statistics: Any = None
        self._starts = np.cumsum([0, *(len(part.ids) for part in self._store.parts)])
        self.renamed: dict[int, Any] = {}
        """By the number of a file of the set what changes the nodata values of its tiles."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def zooms(self) -> Ints:
        """Zoom of each tile."""
        return np.asarray(quadbin.zooms(self.cells), np.int64)

    def sizes(self) -> Ints:
        """Bytes of each tile as it is stored, or of its pixels where that cannot be told."""
        store = self._store
        pixels = self.metadata.block_width * self.metadata.block_height
        whole = sum(band.pixel_type.itemsize for band in self.metadata.bands) * pixels
        found = []
        for part in store.parts:
            if all(name in part.pages for name in store.columns):
                found.append(
                    np.sum(
                        [part.pages[name].size for name in store.columns], axis=0, dtype=np.int64
                    )
                )
            else:
                found.append(np.full(len(part.ids), whole, np.int64))
        return np.asarray(np.concatenate(found)[self.rows])

    def blobs(self, chosen: Ints) -> list[list[bytes | None]]:
        """For each column the blobs of some tiles, given by their positions here."""
        rows = self.rows[chosen].tolist()
        names = self._store.columns
        keys = [(row, name) for row in rows for name in names]
        found = run(self._store.blobs_plan(keys), self._store.fetch)
        tiles = [[found[row, name] for name in names] for row in rows]
        if self.renamed:
            for at, owner in enumerate(self.owners(chosen).tolist()):
                if owner in self.renamed:
                    tiles[at] = self.renamed[owner].blobs(tiles[at], int(self.cells[chosen[at]]))
        return [list(column) for column in zip(*tiles, strict=True)] or [[] for _ in names]

    def owners(self, chosen: Ints) -> Ints:
        """For some tiles which file of a set has them."""
        return np.asarray(np.searchsorted(self._starts, self.rows[chosen], side="right") - 1)

    def statistics(self, chosen: Ints) -> npt.NDArray[np.float64] | None:
        """Tile statistics as (tiles, bands, kinds); None when the file has none."""
        if not self.metadata.tile_statistics:
            return None
        if self._statistics is None:
            self._statistics = tile_statistics(self._store)
        return np.asarray(self._statistics[self.rows[chosen]])

    def groups(
        self,
        chosen: Ints,
        rows: int | None = None,
        told: Callable[[int], None] | None = None,
    ) -> Iterator[Rows]:
        """Row groups of some tiles, whose positions ascend."""
        cells, sizes = self.cells[chosen], self.sizes()[chosen]
        for start, stop in row_groups(cells, sizes, quadbin.zooms, rows):
            part = chosen[start:stop]
            time_cf, time_ts = time_columns(self.raster.times, self.steps[part])
            yield Rows(
                cells=cells[start:stop],
                columns=self.blobs(part),
                time_cf=time_cf,
                time_ts=time_ts,
                statistics=self.statistics(part),
            )
            if told is not None:
                told(stop)

    def _steps(self, rows: Ints) -> Ints:
        axis = self.raster.times
        if axis is None:
            return np.zeros(len(rows), np.int64)
        values = np.concatenate([part.time for part in self._store.parts if part.time is not None])
        return np.asarray(np.searchsorted(axis.values, values[rows]), np.int64)


def version_for(version: str | None, *, nested: bool) -> str:
    """The version in which a file is written anew: as asked, else in the form that it has."""
    if version is not None:
        return version
    return spec.WRITTEN[-1] if nested else spec.WRITTEN[0]


def lowest_zoom(zooms: Sequence[int]) -> int:
    """The coarsest zoom, of those that go without a gap up to the finest."""
    present, lowest = set(zooms), max(zooms)
    while lowest - 1 in present:
        lowest -= 1
    return lowest
