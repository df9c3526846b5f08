"""Several sources as one, and a part of one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from comal.errors import InvalidInputError
from comal.tapalcatl.addressing import tile_bounds
from comal.tapalcatl.containers.base import (
    Square,
    Tiles,
    TileSource,
    concatenated,
    empty_tiles,
)
from comal.tapalcatl.containers.content import extension, kinds_of
from comal.tapalcatl.spec import MAX_ZOOM, Bounds, Tile, TileSetMetadata
from comal.tapalcatl.wire import Int64s, Keys, suffix_of

CONFLICTS: Final = ("last", "first", "error")


class MergedSource(TileSource):
    """The tiles of several sources; of several for one name one counts.

    Parameters
    ----------
    sources
        At least one.
    conflict
        One of `CONFLICTS`.
    """

    def __init__(self, sources: Sequence[TileSource], conflict: str = "last") -> None:
        if conflict not in CONFLICTS:
            raise InvalidInputError(
                "what to do about tiles of several sources",
                found=conflict,
                expected=", ".join(CONFLICTS),
            )
        self._sources = tuple(sources)
        self._conflict = conflict
        self.metadata = _merged([source.metadata for source in sources])
        self.label = ", ".join(source.label for source in sources)
        encodings = {source.encoding for source in sources}
        self.encoding = encodings.pop() if len(encodings) == 1 else None
        times = [one.modified for one in sources if one.modified is not None]
        self.modified = max(times, default=None)

    @property
    def href(self) -> list[Any]:
        """Where they are."""
        return list(self._sources)

    @property
    def identity(self) -> str:
        """All of their identities, if each has one."""
        all_of = [source.identity for source in self._sources]
        return json.dumps([self._conflict, *all_of]) if all(all_of) else ""

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        ends = [found for source in self._sources if (found := source.zooms()) is not None]
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks; those of several sources several times."""
        for source in self._sources:
            yield from source.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        parts = [_named(source.read(square), source) for source in self._sources]
        if self._conflict == "first":
            parts.reverse()
        joined = concatenated(parts)
        tiles = joined.ordered()
        if self._conflict == "error" and len(tiles) != len(joined):
            self._refuse(joined, tiles)
        return tiles

    def verify(self) -> None:
        """Each of them; whoever opened them closes them."""
        for source in self._sources:
            source.verify()

    def _refuse(self, joined: Tiles, kept: Tiles) -> None:
        assert kept.suffix is not None
        assert joined.suffix is not None
        known = {key: row for row, key in enumerate(_names(kept))}
        for row, key in enumerate(_names(joined)):
            if joined.payloads[row] != kept.payloads[known[key]]:
                raise InvalidInputError(
                    "several sources have a tile, with different bytes",
                    where=self.label,
                    found=f"{key[0]}/{key[1]}/{key[2]}{joined.suffixes[key[3]]}",
                    hint="say which counts: the first or the last",
                )


class FilteredSource(TileSource):
    """A part of a source: some zooms, and the descendants of one tile."""

    def __init__(
        self,
        source: TileSource,
        min_zoom: int = 0,
        max_zoom: int = MAX_ZOOM,
        root: Tile | None = None,
    ) -> None:
        self._source = source
        self._low, self._high, self._root = min_zoom, max_zoom, root
        own = source.metadata
        bounds = own.bounds
        if root is not None:
            bounds = _inside(tile_bounds(*root), bounds)
        self.metadata = replace(own, bounds=bounds)
        self.label, self.hint = source.label, source.hint
        self.encoding, self.modified = source.encoding, source.modified

    @property
    def href(self) -> list[Any]:
        """Where it is."""
        return [self._source]

    @property
    def identity(self) -> str:
        """That of the source, and which part this is."""
        own = self._source.identity
        return json.dumps([own, self._low, self._high, self._root]) if own else ""

    def keys(self) -> Iterator[Keys]:
        """The tiles in blocks."""
        for z, x, y in self._source.keys():  # noqa: SIM118 - no mapping
            rows = self._inside(z, x, y)
            yield z[rows], x[rows], y[rows]

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        if not self._low <= square.z <= self._high:
            return empty_tiles()
        tiles = self._source.read(square)
        rows = self._inside(tiles.z, tiles.x, tiles.y)
        return tiles if len(rows) == len(tiles) else tiles.take(rows)

    def verify(self) -> None:
        """That of the source; whoever opened it closes it."""
        self._source.verify()

    def _inside(self, z: Int64s, x: Int64s, y: Int64s) -> Int64s:
        inside = (z >= self._low) & (z <= self._high)
        if self._root is not None:
            zoom, column, row = self._root
            shift = np.maximum(z - zoom, 0)
            inside &= (z >= zoom) & (x >> shift == column) & (y >> shift == row)
        return np.flatnonzero(inside)


def _named(tiles: Tiles, source: TileSource) -> Tiles:
    """Tiles with suffixes: those without any get theirs as their own source would give it."""
    if tiles.suffix is not None or not len(tiles):
        return tiles
    table: dict[str, int] = {}
    kinds = kinds_of(tiles.payloads)
    codes = [
        table.setdefault(suffix_of(1, extension(kind, source.hint)), len(table))
        for kind in kinds.tolist()
    ]
    return replace(tiles, suffix=np.array(codes, np.int32), suffixes=tuple(table))


def _names(tiles: Tiles) -> Iterator[tuple[int, int, int, int]]:
    assert tiles.suffix is not None
    columns = (tiles.z, tiles.x, tiles.y, tiles.suffix)
    return zip(*(column.tolist() for column in columns), strict=True)


def _merged(all_of: Sequence[TileSetMetadata]) -> TileSetMetadata:
    """What the first one says, with the formats and the box of all."""
    first = all_of[0]
    formats = {ext: headers for one in reversed(all_of) for ext, headers in one.formats.items()}
    boxes = [one.bounds for one in all_of]
    bounds: Bounds | None = None
    known = [box for box in boxes if box is not None]
    if len(known) == len(boxes):
        west, south, east, north = zip(*known, strict=True)
        bounds = (min(west), min(south), max(east), max(north))
    return replace(
        first,
        formats=formats,
        bounds=bounds,
        min_scale=min(one.min_scale for one in all_of),
        max_scale=max(one.max_scale for one in all_of),
    )


def _inside(one: Bounds, other: Bounds | None) -> Bounds:
    """The common part of two boxes; the first where they have none."""
    if other is None or other[0] > other[2]:
        return one
    west, south = max(one[0], other[0]), max(one[1], other[1])
    east, north = min(one[2], other[2]), min(one[3], other[3])
    return (west, south, east, north) if west < east and south < north else one
