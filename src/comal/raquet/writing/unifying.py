"""One nodata value for files that are merged: tiles of those that have another are stored anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, shown
from comal.grid import quadbin
from comal.raquet.blobs import decode
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import stored_nodata
from comal.raquet.spec import Band, Metadata, Number
from comal.raquet.writing.copying import StoredTiles
from comal.raquet.writing.job import Coding, encoded
from comal.raquet.writing.options import LEVEL
from comal.raquet.writing.padding import free_value
from comal.raster.values import as_array, occurring, valid_mask

_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Renaming:
    """Tiles of a file whose nodata values become those of `bands`."""

    metadata: Metadata
    bands: tuple[Band, ...]
    covers: tuple[Coverage | None, ...]

    def pixels(self, blobs: Sequence[bytes | None]) -> list[Any]:
        """Each band of a tile, None where it is NULL."""
        own = self.metadata
        shape = (own.block_height, own.block_width)
        if own.interleaved:
            (blob,) = blobs
            if blob is None:
                return [None] * len(own.bands)
            whole = (len(own.bands), *shape)
            return list(decode(blob, own.compression, own.bands[0].dtype, whole))
        return [
            None if blob is None else decode(blob, own.compression, band.dtype, shape)
            for blob, band in zip(blobs, own.bands, strict=True)
        ]

    def valid(self, at: int, pixels: Any, cell: int) -> Any:
        """Which pixels of a band have a value; None for all."""
        cover = self.covers[at]
        covered = None if cover is None else cover.tile(*quadbin.tiles(cell), pixels.shape)
        if covered is not None:
            # Such padding is 0; the middle of a pixel of an overview may lie beside what it shows.
            covered = covered | (pixels != 0)
        return valid_mask(pixels, self.metadata.bands[at].nodata, covered)

    def blobs(self, blobs: Sequence[bytes | None], cell: int) -> list[bytes | None]:
        """The blobs of a tile with the new values."""
        own = self.metadata
        coding = Coding(own.compression, LEVEL, own.quality or 0, own.interleaved)
        planes = self.pixels(blobs)
        for at, (band, plane) in enumerate(zip(self.bands, planes, strict=True)):
            fill = stored_nodata(band)
            if plane is not None and fill is not None:
                valid = as_array(self.valid(at, plane, cell), plane.shape)
                planes[at] = np.where(valid, plane, fill)
        if own.interleaved:
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
            for at, pixels in enumerate(file.pixels([column[row] for column in columns])):
                if pixels is not None and kinds[at] != "f":
                    values = occurring(pixels, file.valid(at, pixels, cell))
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
