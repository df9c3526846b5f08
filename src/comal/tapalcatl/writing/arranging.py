"""Which archive each tile goes to, in both generations, and what the archive is called.

An arrangement answers for arrays of tiles, so that a pyramid is dealt out block by block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from comal.errors import InvalidInputError
from comal.grid.morton import deinterleave, interleave
from comal.tapalcatl.addressing import Layout, Template, archive_bounds
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.sources.base import SIDE, Int64s, Keys, Square
from comal.tapalcatl.spec import (
    MAX_ZOOM,
    ArchiveMetadata,
    Headers,
    Tile,
    TileSetMetadata,
    archive_comment,
)
from comal.tapalcatl.wire import BASES
from comal.tapalcatl.writing.commenting import filled

GROUP: Final = 32
"""Tiles of a group per side at its deepest zoom: some 1 365 in all."""
COMMENT_ROOM: Final = 8 << 10
"""A comment stands in the tail that readers fetch for the directory: no more of it for layers."""
_BASES = np.array(BASES, np.int64)

Comment = tuple[bytes, tuple[str, ...]]
"""The comment of an archive, and the keys that had no room in it."""


class Arrangement(Protocol):
    """How tiles are dealt out to archives."""

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        ...

    def archive(self, tile: Tile) -> Tile:
        """The archive of one tile."""
        ...

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the archives of some tiles, -1 where there can be none."""
        ...

    def inside(self, keys: Keys, owners: Int64s) -> Keys:
        """Tiles as entries of archives are called; `owners` are `order_of` these."""
        ...

    def reach(self, root: int) -> int:
        """How many zooms deeper than their root archives of a zoom go, at most."""
        ...

    def metatile(self, root: int) -> int:
        """Root tiles of an archive of a zoom per side."""
        ...

    def path(self, archive: Tile) -> str:
        """Where an archive stands, relative to the tileset."""
        ...

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """The comment of an archive, and the keys that had no room in it."""
        ...

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment` for several archives of one zoom."""
        ...

    def of_suffixes(self, suffixes: Iterable[str]) -> Arrangement:
        """The same for archives whose names have these ends."""
        ...


@dataclass(frozen=True)
class Second:
    """Tapalcatl 2."""

    layout: Layout
    template: Template
    metadata: TileSetMetadata
    """Of the tileset; its zooms and bounds are those of the whole."""

    def archives(self, keys: Keys) -> Keys:
        """Zooms, columns and rows of the archives of some tiles."""
        found = self.layout.archives(*keys)
        if len(found[0]) and found[0].min() < 0:
            raise self._too_shallow(int(keys[0].min()))
        return found

    def archive(self, tile: Tile) -> Tile:
        """The archive of one tile."""
        found = self.layout.archive(*tile)
        if found is None:
            raise self._too_shallow(tile[0])
        return found

    def _too_shallow(self, zoom: int) -> InvalidInputError:
        return InvalidInputError(
            "tiles lie above the first materialized zoom",
            found=f"zoom {zoom}",
            expected=f"zoom {self.layout.materialized_zooms[0]} or deeper",
            hint="lay the tileset out anew with remetatile(), materialized zooms from there on",
        )

    def reach(self, root: int) -> int:
        """How many zooms deeper than their root archives of a zoom go, at most."""
        last = MAX_ZOOM if self.metadata.max_zoom is None else self.metadata.max_zoom
        return max(self.layout.last_zoom(root, last) - root, 0)

    def metatile(self, root: int) -> int:
        """Root tiles of an archive of a zoom per side."""
        return min(self.layout.metatile, 1 << root)

    def path(self, archive: Tile) -> str:
        """Where an archive stands, relative to the tileset."""
        if self.template.hashed:
            return self.template.address(archive)
        return self._pattern % dict(zip("zxy", archive, strict=True))

    @cached_property
    def _pattern(self) -> str:
        text = self.template.text.replace("%", "%%")
        for name in "zxy":
            text = text.replace(f"{{{name}}}", f"%({name})d")
        return text

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the archives of some tiles, -1 above the first of them."""
        z, x, y = self.layout.archives(*keys)
        there = z >= 0
        return np.where(there, order_of(*(np.where(there, part, 0) for part in (z, x, y))), -1)

    def inside(self, keys: Keys, owners: Int64s) -> Keys:  # noqa: ARG002 - the other one needs it
        """Tiles as entries of archives are called: absolute."""
        return keys

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """The tileset's document, narrowed to the archive."""
        own = self._narrowed(archive, formats)
        data, cut = archive_comment(own)
        if len(data) > COMMENT_ROOM and not cut:
            cut = tuple(own.extra)
            data, _ = archive_comment(replace(own, extra={}))
        return data, cut

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment` for several archives of one zoom."""
        found = filled(self._narrowed(archives[0], formats), archives)
        if found is None or max(map(len, found)) > COMMENT_ROOM:
            return [self.comment(archive, formats) for archive in archives]
        return [(comment, ()) for comment in found]

    def of_suffixes(self, suffixes: Iterable[str]) -> Arrangement:  # noqa: ARG002
        """The same: what one archive has in common with others is said of all of them."""
        return self

    def _narrowed(self, archive: Tile, formats: Mapping[str, Headers]) -> ArchiveMetadata:
        whole = self.metadata
        last = self.layout.last_zoom(
            archive[0], MAX_ZOOM if whole.max_zoom is None else whole.max_zoom
        )
        return ArchiveMetadata(
            formats=formats,
            min_zoom=max(archive[0], whole.min_zoom or 0),
            max_zoom=max(last, archive[0]),
            bounds=archive_bounds(archive, self.layout.metatile),
            metatile=self.layout.metatile,
            root=archive,
            materialized_zooms=self.layout.materialized_zooms,
            name=whole.name,
            description=whole.description,
            min_scale=whole.min_scale,
            max_scale=whole.max_scale,
            extra=whole.extra,
        )


@dataclass(frozen=True)
class First:
    """Tapalcatl 1: archives of metatiles, with nothing said inside."""

    settings: Generation1

    def archives(self, keys: Keys) -> Keys:
        """Metatiles of some tiles."""
        z, x, y = keys
        depth = self._depths(z)
        return z - depth, x >> depth, y >> depth

    def reach(self, root: int) -> int:  # noqa: ARG002 - the other one needs it
        """How many zooms deeper than their root archives of a zoom go, at most."""
        return self.settings.levels

    def metatile(self, root: int) -> int:  # noqa: ARG002
        """Root tiles of an archive of a zoom per side: itself."""
        return 1

    def path(self, archive: Tile) -> str:
        """The key of a metatile."""
        return self.settings.key(archive)

    def archive(self, tile: Tile) -> Tile:
        """The metatile of one tile."""
        return self.settings.place(*tile).metatile

    def owners(self, keys: Keys) -> Int64s:
        """`order_of` the metatiles of some tiles."""
        return order_of(*self.archives(keys))

    def inside(self, keys: Keys, owners: Int64s) -> Keys:
        """Tiles as entries of archives are called: relative to the metatile."""
        root, x, y = tiles_in(owners)
        z = keys[0] - root
        return z, keys[1] - (x << z), keys[2] - (y << z)

    def comment(
        self,
        archive: Tile,  # noqa: ARG002 - the other one needs it
        formats: Mapping[str, Headers],  # noqa: ARG002
    ) -> Comment:
        """No comment."""
        return b"", ()

    def comments(
        self,
        archives: Sequence[Tile],
        formats: Mapping[str, Headers],  # noqa: ARG002 - the other one needs it
    ) -> Sequence[Comment]:
        """No comments."""
        return [(b"", ())] * len(archives)

    def of_suffixes(self, suffixes: Iterable[str]) -> Arrangement:  # noqa: ARG002
        """The same: nothing is said."""
        return self

    def _depths(self, z: Int64s) -> Int64s:
        table = [z - self.settings.place(z, 0, 0).metatile[0] for z in range(MAX_ZOOM + 1)]
        depths: Int64s = np.array(table, np.int64)[z]
        return depths


def order_of(z: Any, x: Any, y: Any) -> Int64s:
    """Tiles as integers in the order of archives: by zoom, then Morton code. Below 2 ** 62."""
    codes: Int64s = _BASES[np.asarray(z, np.int64)] + interleave(x, y)
    return codes


def tiles_in(order: Int64s) -> Keys:
    """The tiles of `order_of`."""
    z = np.searchsorted(_BASES, order, side="right") - 1
    return (z.astype(np.int64), *deinterleave(order - _BASES[z]))


@dataclass(frozen=True)
class Dealt:
    """A pyramid dealt out: archives in groups, and the squares in which groups are read.

    A group is a square of neighbouring archives that are small enough to be written together, most
    often just one.
    """

    archives: Int64s
    """`order_of` each archive, by group; shape (n,)."""
    counts: Int64s
    """Tiles of each as the source lists them; shape (n,)."""
    archive_starts: Int64s
    """Where the archives of each group begin; shape (groups + 1,)."""
    squares: Int64s
    """`order_of` the first tile of each square, by group and then ascending; shape (m,)."""
    square_starts: Int64s
    """Where the squares of each group begin; shape (groups + 1,)."""
    extents: Mapping[int, tuple[int, int, int, int]]
    """For each zoom the first and last column and row: (x, y, x, y)."""
    tiles: int

    @property
    def groups(self) -> int:
        """How many groups there are."""
        return len(self.square_starts) - 1

    def squares_of(self, group: int, arrangement: Arrangement) -> list[Square]:
        """The squares of a group, by zoom and Morton code."""
        squares = self.squares[self.square_starts[group] : self.square_starts[group + 1]]
        sides = side_of(squares, arrangement).tolist()
        columns = (column.tolist() for column in tiles_in(squares))
        return [Square(*one) for one in zip(*columns, sides, strict=True)]

    def rows_of(self, group: int) -> range:
        """The archives of a group."""
        return range(int(self.archive_starts[group]), int(self.archive_starts[group + 1]))


def dealt(keys: Iterator[Keys], arrangement: Arrangement) -> Dealt:
    """Deal out all tiles of a source; memory grows with archives and squares only."""
    squares, archives = Distinct(), Distinct(counting=True)
    extents: dict[int, tuple[int, int, int, int]] = {}
    total = 0
    for z, x, y in keys:
        if not len(z):
            continue
        total += len(z)
        owners = arrangement.archives((z, x, y))
        archives.add(order_of(*owners))
        sides = group_side(owners[0], arrangement) << (z - owners[0])
        masks = -np.minimum(sides, SIDE)
        squares.add(order_of(z, x & masks, y & masks))
        for zoom in np.unique(z).tolist():
            rows = z == zoom
            extents[zoom] = _widened(extents.get(zoom), x[rows], y[rows])
    found, counts = archives.result()
    ordered, _ = squares.result()
    archive_groups = _groups_of(tiles_in(found), arrangement)
    square_groups = _groups_of(arrangement.archives(tiles_in(ordered)), arrangement)
    by_archive = np.argsort(archive_groups, kind="stable")
    by_square = np.argsort(square_groups, kind="stable")
    groups = np.unique(archive_groups)
    return Dealt(
        archives=found[by_archive],
        counts=counts[by_archive],
        archive_starts=_starts(archive_groups[by_archive], groups),
        squares=ordered[by_square],
        square_starts=_starts(square_groups[by_square], groups),
        extents=dict(sorted(extents.items())),
        tiles=total,
    )


def group_side(roots: Int64s, arrangement: Arrangement) -> Int64s:
    """Root tiles of a group per side: its deepest zoom is `GROUP` tiles wide, if it can."""
    table = np.ones(MAX_ZOOM + 1, np.int64)
    for root in np.unique(roots).tolist():
        wanted = max(arrangement.metatile(root), GROUP >> arrangement.reach(root))
        table[root] = min(wanted, 1 << root)
    sides: Int64s = table[roots]
    return sides


def side_of(squares: Int64s, arrangement: Arrangement) -> Int64s:
    """Sides of squares by their first tiles."""
    keys = tiles_in(squares)
    roots = arrangement.archives(keys)[0]
    sides: Int64s = np.minimum(group_side(roots, arrangement) << (keys[0] - roots), SIDE)
    return sides


def _groups_of(archives: Keys, arrangement: Arrangement) -> Int64s:
    z, x, y = archives
    masks = -group_side(z, arrangement)
    return order_of(z, x & masks, y & masks)


def _starts(ordered: Int64s, groups: Int64s) -> Int64s:
    return np.append(np.searchsorted(ordered, groups), len(ordered))


class Distinct:
    """Different integers of many blocks, and how often each was met."""

    def __init__(self, *, counting: bool = False) -> None:
        self._parts: list[tuple[Int64s, Int64s]] = []
        self._held = 0
        self._counting = counting

    def add(self, values: Int64s) -> None:
        """Take a block."""
        distinct, counts = np.unique(values, return_counts=True)
        self._parts.append((distinct, counts.astype(np.int64)))
        self._held += len(distinct)
        if len(self._parts) > 1 and self._held > 2 * max(len(self._parts[0][0]), 1 << 20):
            self._merge()

    def result(self) -> tuple[Int64s, Int64s]:
        """The integers, ascending, and how often each was met where that is counted."""
        self._merge()
        return self._parts[0]

    def _merge(self) -> None:
        if not self._parts:
            self._parts = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
        values = np.concatenate([part[0] for part in self._parts])
        distinct, which = np.unique(values, return_inverse=True)
        counts = np.zeros(len(distinct), np.int64)
        if self._counting:
            np.add.at(counts, which, np.concatenate([part[1] for part in self._parts]))
        self._parts = [(distinct, counts)]
        self._held = len(distinct)


def _widened(
    extent: tuple[int, int, int, int] | None, x: Int64s, y: Int64s
) -> tuple[int, int, int, int]:
    found = (int(x.min()), int(y.min()), int(x.max()), int(y.max()))
    if extent is None:
        return found
    return (
        min(found[0], extent[0]),
        min(found[1], extent[1]),
        max(found[2], extent[2]),
        max(found[3], extent[3]),
    )
