"""What stands where tiles reach beyond their source, when the raster has no nodata value.

Which values are free is known when all pixels have been seen. Until then tiles at the edge are
padded with the likeliest value, and keep a mask of what their source covers. At the end the value
is as it was guessed in most rasters; else only the tiles at the edge are encoded again. A raster
that has all values of its type gets the masks as an alpha band.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.raquet.spec import Band
from comal.raquet.writing.accumulating import BandSums, Totals, counted_sums, is_counted
from comal.raquet.writing.job import WHOLE, Job, decoded, encoded
from comal.raquet.writing.layout import Sorted, Spool
from comal.raster.values import ALPHA

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Padding:
    """How padding is told from pixels."""

    nodata: Mapping[int, int] = field(default_factory=dict)
    """By position of a band the value that is chosen."""
    alpha: str | None = None
    """Type of the alpha band that is added."""


def first_choice(dtype: str) -> int:
    """What integers are padded with: 0, or the least value of a type that has negative ones."""
    return int(np.iinfo(dtype).min) if np.dtype(dtype).kind == "i" else 0


def chosen_padding(job: Job, totals: Totals, spool: Spool, tiles: Sorted) -> Padding:
    """One value for all bands of a type; for the whole raster an alpha band if a type has none."""
    if tiles.masks is None:
        return Padding()
    dtypes = [band.dtype for band in job.steps[0].bands]
    found: dict[int, int] = {}
    for dtype in sorted({dtypes[at] for at in job.undecided}):
        same = [at for at in job.undecided if dtypes[at] == dtype]
        used = [known for at in same for known in _used(totals.bands[at], spool.reduced.get(at))]
        value = free_value(dtype, used)
        if value is None:
            return Padding(alpha=dtype if job.coding.interleaved else "uint8")
        found |= dict.fromkeys(same, value)
    return Padding(found)


def _used(sums: BandSums, reduced: Array | None) -> list[Array]:
    """Values of a band; of types wider than 16 bits those at the ends."""
    found = [] if reduced is None else [reduced]
    if sums.values is not None:
        found.append(sums.values.view(sums.dtype))
    elif sums.count:
        found.append(np.array([sums.low, sums.high], sums.dtype))
    return found


def free_value(dtype: str, used: Sequence[Array | None], liked: Sequence[int] = ()) -> int | None:
    """An integer that no pixel has, if there is one a value that is `liked`; None where none is.

    Of types wider than 16 bits only the least and the greatest of the values that occur are known,
    and what is free must be beyond them.
    """
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    arrays = [one for one in used if one is not None and len(one)]
    taken = {value for one in arrays for value in one.tolist()}
    if is_counted(dtype):
        order = (*liked, first_choice(dtype), most, *range(least, most + 1))
        return next((value for value in order if value not in taken), None)
    low, high = (min(taken), max(taken)) if taken else (1, 0)
    order = (*liked, first_choice(dtype), most)
    return next((value for value in order if not low <= value <= high), None)


def padded_bands(bands: Sequence[Band], padding: Padding) -> tuple[Band, ...]:
    """The bands with the values that were chosen, and the alpha band if there is one."""
    found = [
        replace(band, nodata=padding.nodata.get(at, band.nodata)) for at, band in enumerate(bands)
    ]
    if padding.alpha is not None:
        found.append(alpha_band(bands, padding.alpha))
    return tuple(found)


def alpha_band(bands: Sequence[Band], dtype: str = "uint8") -> Band:
    """The band that tells which pixels have a value, to go behind the others."""
    names = [band.name for band in bands]
    numbered = [f"band_{at + 1}" for at in range(len(names))]
    # The reference converter reads no other names than these.
    name = f"band_{len(names) + 1}" if names == numbered else ALPHA
    while name in names:
        name += "_"
    return Band(name=name, dtype=dtype, colorinterp=ALPHA)


def alpha_sums(padding: Padding, covered: int) -> list[BandSums]:
    """Statistics of the alpha band, if there is one: all that the source covers is opaque."""
    if padding.alpha is None:
        return []
    top = int(np.iinfo(padding.alpha).max)
    if is_counted(padding.alpha):
        bits = np.array([top], padding.alpha).view(f"u{np.dtype(padding.alpha).itemsize}")
        return [counted_sums(padding.alpha, bits, np.array([covered]))]
    return [BandSums(padding.alpha, covered, top, top, top * covered, top * top * covered)]


class PaddedTiles:
    """The tiles of a job as they are written; `pool` encodes again those that padding changes."""

    def __init__(self, tiles: Sorted, job: Job, padding: Padding, pool: Executor) -> None:
        self.tiles, self._job, self._padding, self._pool = tiles, job, padding, pool
        bands = job.steps[0].bands
        self._refilled = {
            at: value for at, value in padding.nodata.items() if value != bands[at].fill
        }
        self._dtypes = [band.dtype for band in bands]
        self._opaque: bytes | None = None

    def columns(self, start: int, stop: int) -> list[Any]:
        """For each column of the file the blobs of some tiles."""
        columns, masks = self.tiles.blobs(start, stop), self.tiles.masks
        if masks is None or (self._padding.alpha is None and not self._refilled):
            return columns
        rows = [column.to_pylist() for column in columns]
        made = self._pool.map(self._renewed, masks[start:stop], zip(*rows, strict=True))
        return [list(column) for column in zip(*made, strict=True)]

    def statistics(self, start: int, stop: int) -> npt.NDArray[np.float64] | None:
        """Tile statistics, those of an alpha band included."""
        found = self.tiles.statistics
        if found is None:
            return None
        found = found[start:stop]
        if self._padding.alpha is None or self.tiles.masks is None:
            return found
        top = float(np.iinfo(self._padding.alpha).max)
        rows = []
        for mask in self.tiles.masks[start:stop]:
            covered = self._covered(mask)
            count = self._job.block**2 if covered is None else int(np.count_nonzero(covered))
            one = [float(count), top, top, count * top, top, 0.0]
            rows.append(one if count else [np.nan] * len(one))
        return np.concatenate([found, np.array(rows)[:, None]], axis=1)

    def _renewed(self, mask: bytes, columns: Sequence[bytes]) -> list[bytes]:
        """The blobs of a tile, with what padding and alpha turned out to be."""
        coding, dtypes = self._job.coding, self._dtypes
        shape = (self._job.block, self._job.block)
        covered, alpha = self._covered(mask), self._padding.alpha
        refilled = {} if covered is None else self._refilled
        if not coding.interleaved:
            made = list(columns)
            for at, value in refilled.items():
                (pixels,) = decoded([made[at]], coding, [dtypes[at]], shape)
                (made[at],) = encoded([_filled(pixels, covered, value)], coding)
            return made if alpha is None else [*made, self._alpha_blob(covered)]
        if not refilled and alpha is None:
            return list(columns)
        planes = decoded(columns, coding, dtypes, shape)
        for at, value in refilled.items():
            planes[at] = _filled(planes[at], covered, value)
        added = [] if alpha is None else [self._alpha_pixels(covered)]
        return encoded([*planes, *added], coding)

    def _alpha_pixels(self, covered: Array | None) -> Array:
        shape = (self._job.block, self._job.block)
        top = np.dtype(self._padding.alpha).type(np.iinfo(str(self._padding.alpha)).max)
        return np.full(shape, top) if covered is None else np.where(covered, top, top.dtype.type(0))

    def _alpha_blob(self, covered: Array | None) -> bytes:
        if covered is not None:
            return encoded([self._alpha_pixels(covered)], self._job.coding)[0]
        if self._opaque is None:
            self._opaque = encoded([self._alpha_pixels(None)], self._job.coding)[0]
        return self._opaque

    def _covered(self, mask: bytes) -> Array | None:
        """What the source covers of a tile; None for all of it."""
        if mask == WHOLE:
            return None
        block = self._job.block
        bits = np.frombuffer(zlib.decompress(mask), np.uint8)
        return np.unpackbits(bits, count=block * block).reshape(block, block).astype(bool)


def _filled(pixels: Any, covered: Any, value: int) -> Array:
    return np.asarray(np.where(covered, pixels, pixels.dtype.type(value)))
