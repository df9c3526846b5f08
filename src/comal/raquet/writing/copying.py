"""Tiles of an open file, copied into another one: byte for byte, or with other nodata values.

Files that are merged need one value for each band. Bands that stand beside those of another raster
need one where they have no tile, and where only an alpha band told what has no value. Their tiles
are stored anew with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.grid import quadbin
from comal.plan import run
from comal.raquet import spec
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.pixels import alpha_of, fill_value, stored_nodata, tile_bytes
from comal.raquet.reading.store import TileStore, tile_statistics
from comal.raquet.spec import Band, Metadata, Number
from comal.raquet.times import time_columns
from comal.raquet.writing.job import Coding, decoded, encoded
from comal.raquet.writing.layout import RowGroup, row_groups
from comal.raquet.writing.padding import free_value
from comal.raster.values import ALPHA, as_array, occurring, valid_mask

Ints = npt.NDArray[np.int64]


class StoredTiles:
    """All tiles of an open file or set, in the order of their ids and of time."""

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
        found = []
        for part in store.parts:
            if all(name in part.pages for name in store.columns):
                found.append(
                    np.sum(
                        [part.pages[name].size for name in store.columns], axis=0, dtype=np.int64
                    )
                )
            else:
                found.append(np.full(len(part.ids), tile_bytes(self.metadata), np.int64))
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

    @cached_property
    def blank(self) -> list[Any]:
        """The pixels of a tile without data, for each band."""
        shape = (self.metadata.block_height, self.metadata.block_width)
        return [np.full(shape, fill_value(band), band.dtype) for band in self.metadata.bands]

    def planes(self, at: Ints) -> Iterator[list[Any]]:
        """The bands of each of some tiles, given by their positions; `blank` for -1."""
        store, blank = self._store, self.blank
        for one in at.tolist():
            if one < 0:
                yield list(blank)
                continue
            row, bands = int(self.rows[one]), self.metadata.bands
            found = run(store.bands_plan([row], bands, keep=False), store.fetch)[row]
            if self.renamed:
                found = self.renamed[0].renewed(found, int(self.cells[one]))
            yield [
                empty if pixels is None else pixels
                for empty, pixels in zip(blank, found, strict=True)
            ]

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
    ) -> Iterator[RowGroup]:
        """Row groups of some tiles, whose positions ascend."""
        cells, sizes = self.cells[chosen], self.sizes()[chosen]
        for start, stop in row_groups(cells, sizes, quadbin.zooms, rows):
            part = chosen[start:stop]
            time_cf, time_ts = time_columns(self.raster.times, self.steps[part])
            yield RowGroup(
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


def steps_of(raster: RaquetFile) -> int:
    """Steps in time, 1 without time."""
    return 1 if raster.times is None else len(raster.times)


def version_for(version: str | None, *, nested: bool) -> str:
    """The version in which a file is written anew: as asked, else in the form that it has."""
    if version is not None:
        return version
    return spec.WRITTEN[-1] if nested else spec.WRITTEN[0]


# -- nodata values ---------------------------------------------------------------------------------


_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Renaming:
    """Tiles of a file whose nodata values become those of `bands`."""

    metadata: Metadata
    bands: tuple[Band, ...]
    covers: tuple[Coverage | None, ...]
    alpha: int | None = None
    """Position of a band that shall hide the others no longer."""

    def pixels(self, blobs: Sequence[bytes | None]) -> list[Any]:
        """Each band of a tile, None where it is NULL."""
        own = self.metadata
        dtypes = [band.dtype for band in own.bands]
        return decoded(blobs, Coding.of(own), dtypes, (own.block_height, own.block_width))

    def valid(self, at: int, planes: Sequence[Any], cell: int) -> Any:
        """Which pixels of a band have a value; None for all."""
        cover, pixels = self.covers[at], planes[at]
        covered = None if cover is None else cover.tile(*quadbin.tiles(cell), pixels.shape)
        if covered is not None:
            # Such padding is 0; the middle of a pixel of an overview may lie beside what it shows.
            covered = covered | (pixels != 0)
        alpha = None
        if self.alpha not in {None, at}:
            # Alpha that is not stored hides all.
            alpha = planes[self.alpha]
            alpha = np.zeros(pixels.shape, np.uint8) if alpha is None else alpha
        return valid_mask(pixels, self.metadata.bands[at].nodata, covered, alpha)

    def renewed(self, planes: Sequence[Any], cell: int) -> list[Any]:
        """The bands of a tile with the new values."""
        found = list(planes)
        for at, (band, plane) in enumerate(zip(self.bands, planes, strict=True)):
            fill = stored_nodata(band)
            if plane is not None and fill is not None:
                found[at] = np.where(
                    as_array(self.valid(at, planes, cell), plane.shape), plane, fill
                )
        return found

    def blobs(self, blobs: Sequence[bytes | None], cell: int) -> list[bytes | None]:
        """The blobs of a tile with the new values."""
        coding = Coding.of(self.metadata)
        planes = self.renewed(self.pixels(blobs), cell)
        if coding.interleaved:
            return list(blobs) if planes[0] is None else [*encoded(planes, coding)]
        return [None if one is None else encoded([one], coding)[0] for one in planes]


def unify(tiles: StoredTiles, documents: Sequence[Metadata]) -> tuple[Band, ...]:
    """Let `tiles` come with one nodata value for each band; the bands with these values.

    Raises
    ------
    InvalidInputError
        Integers of all values, so that no value is free.
    """
    bands = documents[0].bands
    if all(
        repr(stored_nodata(one)) == repr(stored_nodata(band))
        for document in documents
        for one, band in zip(document.bands, bands, strict=True)
    ):
        return bands
    unlike = [Renaming(one, one.bands, coverages([one])) for one in documents]
    used = _used(tiles, unlike)
    bands = tuple(
        replace(band, nodata=_common(band, [one.bands[at] for one in documents], used[at]))
        for at, band in enumerate(bands)
    )
    wanted = [repr(stored_nodata(band)) for band in bands]
    for at, one in enumerate(unlike):
        if [repr(stored_nodata(band)) for band in one.metadata.bands] != wanted:
            tiles.renamed[at] = replace(one, bands=bands)
    return bands


def declare(tiles: StoredTiles, *, gaps: bool, added: bool) -> None:
    """Let `tiles` come with bands that tell by themselves which of their pixels have a value.

    They are of one of two rasters whose bands come into one file: the other has tiles that this one
    has not (`gaps`), or bands in front of these, which the alpha band of these must not hide
    (`added`). A band that needs a nodata value and has pixels of all values is an error.
    """
    old = tiles.metadata
    alpha = alpha_of(old.bands)
    hides = alpha if added else None
    shown_bands = tuple(
        replace(band, colorinterp=None)
        if band.colorinterp == ALPHA and (added or alpha is None)
        else band
        for band in old.bands
    )
    tiles.metadata = replace(old, bands=shown_bands)
    needed = hides is not None or (gaps and alpha is None)
    undeclared = [
        at
        for at, band in enumerate(old.bands)
        if needed and at != alpha and stored_nodata(band) is None
    ]
    documents = [part.metadata for part in tiles.raster.store.parts]
    one = Renaming(old, shown_bands, coverages(documents), hides)
    if not undeclared and hides is None:
        return
    used = _used(tiles, [one] * len(documents)) if undeclared else []
    bands = list(shown_bands)
    for at in undeclared:
        bands[at] = replace(bands[at], nodata=_chosen(bands[at], used[at], one, at))
    tiles.metadata = replace(old, bands=tuple(bands))
    tiles.renamed = dict.fromkeys(range(len(documents)), replace(one, bands=tuple(bands)))


def _chosen(band: Band, used: Any, renaming: Renaming, at: int) -> Number | None:
    """A value that is none of a band; None where the file says by its source what is padding."""
    if band.pixel_type.kind == "f":
        return float("nan")
    value = free_value(band.dtype, [used])
    if value is None and (renaming.alpha is not None or renaming.covers[at] is None):
        raise InvalidInputError(
            "a band without a nodata value, of which no value is free for pixels without one",
            found=f"band {shown(band.name)}, {band.dtype}",
            hint="convert the raster to a wider type before, or leave its alpha band out",
        )
    return value


def _used(tiles: StoredTiles, files: Sequence[Renaming]) -> list[Any]:
    """Of each band of integers the values that occur."""
    found: list[Any] = [None] * len(files[0].bands)
    kinds = [band.pixel_type.kind for band in files[0].bands]
    for start in range(0, len(tiles), _AT_ONCE):
        chosen = np.arange(start, min(start + _AT_ONCE, len(tiles)))
        owners = tiles.owners(chosen).tolist()
        columns = tiles.blobs(chosen)
        for row, (owner, cell) in enumerate(zip(owners, tiles.cells[chosen].tolist(), strict=True)):
            file = files[owner]
            planes = file.pixels([column[row] for column in columns])
            for at, pixels in enumerate(planes):
                if pixels is not None and kinds[at] != "f":
                    values = occurring(pixels, file.valid(at, planes, cell))
                    found[at] = values if found[at] is None else np.union1d(found[at], values)
    return found


def _common(band: Band, same: Sequence[Band], used: Any) -> Number | None:
    """The nodata value of a band in all files: one of theirs, if it is no pixel's value."""
    own = [stored_nodata(one) for one in same]
    if all(one is None for one in own):
        return band.nodata
    if band.pixel_type.kind == "f":
        return float("nan")
    known = [int(one) for one in own if one is not None]
    value = free_value(band.dtype, [used], known)
    if value is None:
        raise InvalidInputError(
            "files of different nodata values, and no value is free for both",
            found=f"band {shown(band.name)}: {', '.join(map(str, dict.fromkeys(known)))}",
            hint="convert the rasters as a mosaic",
        )
    return value
