"""Bands of tiles as SQL has them: pixels out of a blob, and which of them have a value."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.query.columns import is_bytes
from comal.raquet.blobs import decode
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import alpha_of
from comal.raquet.spec import Band, Metadata, Number
from comal.raquet.wire import parse_metadata
from comal.raster.values import as_array, valid_mask

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""

ALL_HIDDEN = b""
"""Stands for the blob of an alpha band whose tile is NULL: all of it is 0."""
FROM_ALIAS = "?"
"""Stands before a name that was not given: the column's own, which may be anything."""


@lru_cache(maxsize=64)
def document(text: str) -> Metadata:
    """The metadata of a row, read once for as many rows as there are."""
    return parse_metadata(text, "metadata")


@dataclass(frozen=True, slots=True)
class SqlBand:
    """One band of a document: how its blobs are read."""

    metadata: Metadata
    index: int
    cover: Coverage | None = None
    """What the source of the band covers, where nodata does not tell."""
    source: Coverage | None = None
    """What it covers in any case."""
    text: str = ""
    """The document."""

    @property
    def band(self) -> Band:
        """Type, nodata and the rest."""
        return self.metadata.bands[self.index]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        return self.metadata.block_height, self.metadata.block_width

    @property
    def _alpha(self) -> SqlBand | None:
        at = alpha_of(self.metadata.bands)
        return None if at is None or at == self.index else replace(self, index=at)

    def pixels(self, blob: bytes) -> Pixels:
        """The band in a blob, shape (rows, columns)."""
        meta = self.metadata
        if meta.interleaved:
            together: Pixels = self._together(blob)[self.index]
            return together
        return decode(blob, meta.compression, self.band.dtype, self.shape)

    def _together(self, blob: bytes) -> Pixels:
        shape = (len(self.metadata.bands), *self.shape)
        return decode(blob, self.metadata.compression, self.band.dtype, shape)

    def read(self, blob: bytes, alpha: bytes | None) -> tuple[Pixels, Any]:
        """The band in a blob, and which pixels its alpha band does not hide.

        `alpha` is the blob of the alpha band; where it is None though one is needed, that is an
        error of who asks.
        """
        of_alpha = self._alpha
        if of_alpha is None:
            return self.pixels(blob), True
        if self.metadata.interleaved:
            together = self._together(blob)
            return together[self.index], together[of_alpha.index] != 0
        if alpha is None:
            name = of_alpha.band.name
            plain = name.isascii() and name.isidentifier()
            raise InvalidInputError(
                "another band hides pixels of this one, and is not known here",
                found=shown(self.band.name),
                expected=f"the alpha band {shown(name)}",
                hint=f"pass its column: alpha := {name if plain else '...'}",
            )
        return self.pixels(blob), False if alpha == ALL_HIDDEN else of_alpha.pixels(alpha) != 0

    def valid(
        self, pixels: Pixels, nodata: Number | None = None, tile: Tile | None = None
    ) -> Bools:
        """Which pixels have a value, but for alpha; `nodata` stands for the band's own.

        Where it is said which tile it is, pixels are not padding either. A nodata value that is
        not the declared one does not tell padding.
        """
        hole, cover = (self.band.nodata, self.cover) if nodata is None else (nodata, self.source)
        covered = None
        if tile is not None and cover is not None:
            covered = _covered(cover, *tile, self.shape)
        return as_array(valid_mask(pixels, hole, covered), pixels.shape)


@lru_cache(maxsize=64)
def _covered(cover: Coverage, z: int, x: int, y: int, shape: tuple[int, int]) -> Bools | None:
    return cover.tile(z, x, y, shape)


@lru_cache(maxsize=256)
def band_of(text: str, name: str) -> SqlBand:
    """The band called `name` of the document `text`.

    The name of a column (see `FROM_ALIAS`) that is that of no band will do where all bands are of
    one type and one nodata value, and for interleaved tiles, of which it means the first band.

    Raises
    ------
    InvalidInputError
        No such band, or bands that have to be told apart.
    """
    metadata = document(text)
    guessed, plain = name.startswith(FROM_ALIAS), name.removeprefix(FROM_ALIAS)
    known = plain in metadata.band_names
    if known or (guessed and (metadata.interleaved or _alike(metadata))):
        # Else the first band; one that alpha hides rather than the alpha band itself.
        index = metadata.band_index(plain) if known else int(alpha_of(metadata.bands) == 0)
        every = coverages([metadata]), coverages([metadata], declared=False)
        # A band that may be any of them has what all of them have.
        cover, source = (one[index] if known or len(set(one)) == 1 else None for one in every)
        return SqlBand(metadata, index, cover, source, text)
    raise InvalidInputError(
        "it is not clear which band is meant" if guessed else "no such band",
        found=shown(plain),
        expected=", ".join(shown(band) for band in metadata.band_names[:20]),
        hint="give the name of the band as the last argument" if guessed else None,
    )


def _alike(metadata: Metadata) -> bool:
    # NaN is written as text, or no two of them would be alike.
    return len({(band.dtype, str(band.nodata)) for band in metadata.bands}) == 1


def alpha_blobs(given: Any) -> list[bytes | None]:
    """What the argument ``alpha`` holds: nulls without type where a query leaves it out.

    None where there is no telling; `ALL_HIDDEN` for a NULL tile.
    """
    if is_bytes(given):
        return [ALL_HIDDEN if blob is None else blob for blob in given.to_pylist()]
    if given.null_count < len(given):
        raise InvalidInputError("alpha is no blob", found=str(given.type))
    return [None] * len(given)
