"""Pixels of one band out of a blob, and which of them are valid."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.limits import DEFAULT_LIMITS
from comal.plan import run
from comal.query.columns import is_bytes
from comal.raquet import spec
from comal.raquet.blobs import decode
from comal.raquet.querying.scanning import Files
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.pixels import alpha_of
from comal.raquet.spec import Band, Metadata, Number
from comal.raquet.wire import parse_metadata
from comal.raster.values import as_array, valid_mask

Pixels = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Tile = tuple[int, int, int]
"""Zoom, column from the west, row from the north."""

ALL_HIDDEN = b""
"""Stands for the blob of an alpha band whose tile is NULL: all of it is 0."""
GUESSED = "?"
"""Stands before a name that was not given: the column's own, which may be anything."""


@lru_cache(maxsize=64)
def document(text: str) -> Metadata:
    """The metadata of a row, read once for as many rows as there are."""
    return parse_metadata(text, "metadata")


@dataclass(frozen=True, slots=True)
class BandOf:
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
    def hidden_by(self) -> str | None:
        """The band of another column whose zeros hide pixels of this one."""
        alpha = self._alpha
        return None if alpha is None or self.metadata.interleaved else alpha.band.name

    @property
    def _alpha(self) -> BandOf | None:
        at = alpha_of(self.metadata.bands)
        return None if at is None or at == self.index else replace(self, index=at)

    def pixels(self, blob: bytes) -> Pixels:
        """The band in a blob, shape (rows, columns)."""
        meta = self.metadata
        if not meta.interleaved:
            alone: Pixels = decode(blob, meta.compression, self.band.dtype, self.shape)
            return alone
        one: Pixels = self._together(blob)[self.index]
        return one

    def _together(self, blob: bytes) -> Pixels:
        meta = self.metadata
        shape = (len(meta.bands), *self.shape)
        found: Pixels = decode(blob, meta.compression, self.band.dtype, shape)
        return found

    def read(self, blob: bytes, alpha: bytes | None) -> tuple[Pixels, Any]:
        """The band in a blob, and which pixels its alpha band does not hide.

        Parameters
        ----------
        blob
            The blob of the band.
        alpha
            The blob of the alpha band; None where that is not known.

        Raises
        ------
        InvalidInputError
            It is not known, but needed.
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

        Where it is said which tile it is, pixels are not padding either.
        """
        hole = self.band.nodata if nodata is None else nodata
        covered = None if tile is None else self.covered(tile, declared=nodata is None)
        return as_array(valid_mask(pixels, hole, covered), pixels.shape)

    def covered(self, tile: Tile, *, declared: bool = True) -> Bools | None:
        """Which pixels of a tile are no padding, as far as anything tells; None for all.

        Where the nodata value is not the one that is `declared` it does not tell padding.
        """
        cover = self.cover if declared else self.source
        return None if cover is None else _covered(cover, *tile, self.shape)

    def is_covered(self, tile: Tile | None, column: int, row: int) -> bool:
        """Whether a pixel is no padding."""
        inside = None if tile is None else self.covered(tile)
        return inside is None or bool(inside[row, column])


@lru_cache(maxsize=64)
def _covered(cover: Coverage, z: int, x: int, y: int, shape: tuple[int, int]) -> Bools | None:
    return cover.tile(z, x, y, shape)


@lru_cache(maxsize=256)
def band_of(text: str, name: str | None) -> BandOf:
    """The band called `name` of the document `text`.

    A guessed name (see `GUESSED`) that is none, or none at all, will do where all bands are of
    one type and one nodata value, and for interleaved tiles, of which it means the first band.

    Raises
    ------
    InvalidInputError
        No such band, or bands that have to be told apart.
    """
    metadata = document(text)
    guessed = name is None or name.startswith(GUESSED)
    plain = "" if name is None else name.removeprefix(GUESSED)
    guess = guessed and (metadata.interleaved or _alike(metadata))
    if plain in metadata.band_names or guess:
        known = plain in metadata.band_names
        index = metadata.band_index(plain) if known else _first(metadata)
        every = coverages([metadata]), coverages([metadata], declared=False)
        # A band that may be any of them has what all of them have.
        cover, source = (one[index] if known or len(set(one)) == 1 else None for one in every)
        return BandOf(metadata, index, cover, source, text)
    raise InvalidInputError(
        "it is not clear which band is meant" if guessed else "no such band",
        found=shown(plain),
        expected=", ".join(shown(band) for band in metadata.band_names[:20]),
        hint="give the name of the band as the last argument" if guessed else None,
    )


def _first(metadata: Metadata) -> int:
    """The first band; one that alpha hides rather than the alpha band itself."""
    return int(alpha_of(metadata.bands) == 0)


def _alike(metadata: Metadata) -> bool:
    # NaN is written as text, or no two of them would be alike.
    return len({(band.dtype, str(band.nodata)) for band in metadata.bands}) == 1


@lru_cache(maxsize=64)
def band_like(dtype: str, width: int, height: int, compression: str | None) -> BandOf:
    """A band that is described by arguments instead of a document."""
    if dtype not in spec.DTYPES or compression not in {None, "none", "", spec.GZIP}:
        raise InvalidInputError(
            "no such type or compression", found=f"{shown(dtype)}, {shown(compression)}"
        )
    size = width * height
    if min(width, height) < 1 or size * 8 > DEFAULT_LIMITS.tile_bytes:
        raise InvalidInputError("no such size of a tile", found=f"{width} x {height}")
    metadata = Metadata(
        compression=spec.GZIP if compression == spec.GZIP else None,
        block_width=width,
        block_height=height,
        min_zoom=0,
        max_zoom=0,
        bounds=(-180.0, -85.0, 180.0, 85.0),
        width=width,
        height=height,
        bands=(Band(name="band_1", dtype=dtype),),
    )
    return BandOf(metadata, 0)


# -- alpha -----------------------------------------------------------------------------------------


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Tiles:
    """Rows of the tiles of a data set by their block."""

    files: Files

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.files.store.ids, kind="stable")

    @cached_property
    def _ids(self) -> Ints:
        return self.files.store.ids[self._order]

    def blobs(self, cells: Sequence[int], columns: Sequence[str]) -> list[set[bytes]]:
        """The different blobs of each block in a column; of a time series there may be several."""
        store = self.files.store
        begin, end = (np.searchsorted(self._ids, cells, side) for side in ("left", "right"))
        rows = [self._order[one:other].tolist() for one, other in zip(begin, end, strict=True)]
        keys = {(row, name) for some, name in zip(rows, columns, strict=True) for row in some}
        found = run(store.blobs_plan(sorted(keys)), store.fetch) if keys else {}
        return [
            {found[row, name] or ALL_HIDDEN for row in some}
            for some, name in zip(rows, columns, strict=True)
        ]


@dataclass(frozen=True)
class Hiding:
    """The alpha bands of the data sets of a connection."""

    data_sets: Mapping[str, Sequence[_Tiles]] = field(default_factory=dict)
    """By the document in their rows, which several may have."""

    @classmethod
    def of(cls, data_sets: Iterable[tuple[str, Files]]) -> Hiding:
        """Of data sets, each with the document in its rows."""
        found: dict[str, list[_Tiles]] = {}
        for text, files in data_sets:
            found.setdefault(text, []).append(_Tiles(files))
        return cls(found)

    def blobs(
        self,
        given: Any,
        likes: Sequence[BandOf],
        cells: Ints | None = None,
        needed: npt.NDArray[np.bool_] | None = None,
    ) -> list[bytes | None]:
        """The blob of the alpha band for each row of a query.

        Parameters
        ----------
        given
            The argument ``alpha``: a column of blobs, or of nulls without type where it was not
            given.
        likes
            The band of each row.
        cells
            The block of each row; None where the function is not told it.
        needed
            For which rows; None for all.

        Returns
        -------
        None where there is no need for it, or no telling; `ALL_HIDDEN` for a NULL tile.

        Raises
        ------
        InvalidInputError
            `given` is something else.
        """
        if is_bytes(given):
            return [ALL_HIDDEN if blob is None else blob for blob in given.to_pylist()]
        if given.null_count < len(given):
            raise InvalidInputError("alpha is no blob", found=str(given.type))
        found: list[bytes | None] = [None] * len(likes)
        if cells is None:
            return found
        wanted: dict[str, list[int]] = {}
        for row, of in enumerate(likes):
            known = of.text in self.data_sets and of.hidden_by is not None
            if known and (needed is None or needed[row]):
                wanted.setdefault(of.text, []).append(row)
        for text, rows in wanted.items():
            names = [likes[row].hidden_by or "" for row in rows]
            every = [tiles.blobs(cells[rows].tolist(), names) for tiles in self.data_sets[text]]
            for row, *blobs in zip(rows, *every, strict=True):
                different = set().union(*blobs)
                # Where there are several, only the query can say which of them it is.
                if len(different) < 2:
                    found[row] = different.pop() if different else ALL_HIDDEN
        return found
