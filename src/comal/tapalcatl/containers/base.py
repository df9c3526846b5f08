"""What every source of tiles offers, and the shape in which tiles travel.

A source tells which tiles it has in blocks of coordinates, and reads them square by square. A
square is at most 16 tiles wide, so whoever copies a pyramid of any size holds one square at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, ObjectChangedError
from comal.grid.quadbin import deinterleave, interleave
from comal.parallel import results
from comal.tapalcatl.containers.content import extension
from comal.tapalcatl.spec import TileSetMetadata
from comal.tapalcatl.wire import Int64s, Keys, suffix_of
from comal.ziparchive import wire
from comal.ziparchive.headermaking import checksums, payload_sizes

SIDE: Final = 16
"""Tiles of a square per side, at most."""
UNKNOWN_TIME: Final = -1


class Square(NamedTuple):
    """Tiles of one zoom: `side` columns from `x` and `side` rows from `y` on.

    `side` is a power of two, at most `SIDE`; `x` and `y` are multiples of it.
    """

    z: int
    x: int
    y: int
    side: int


@dataclass(frozen=True, slots=True)
class Tiles:
    """Some tiles with their bytes; arrays of shape (n,)."""

    z: Int64s
    x: Int64s
    y: Int64s
    payloads: list[bytes]
    """Each tile as its source stores it."""
    suffix: npt.NDArray[np.int32] | None = None
    """Index into `suffixes`; None where names have no extension and the bytes must tell."""
    suffixes: tuple[str, ...] = ()
    """What follows the row in names, such as ``@2x.png``."""
    methods: npt.NDArray[np.uint16] | None = None
    """How payloads are compressed besides what belongs to the tile: stored (0), DEFLATE (8)."""
    sizes: Int64s | None = None
    """Bytes of each tile when that compression is undone."""
    crcs: npt.NDArray[np.uint32] | None = None
    """CRC-32 of each tile when that compression is undone."""
    comments: Any = None
    """Arrow binary array of entry comments, the tiles' own headers."""
    modified: Int64s | None = None
    """Seconds since 1970 UTC, `UNKNOWN_TIME` where nobody knows."""

    def __len__(self) -> int:
        return len(self.z)

    @property
    def keys(self) -> Keys:
        """Zooms, columns and rows."""
        return self.z, self.x, self.y

    @property
    def codes(self) -> Int64s:
        """Morton codes within the zoom."""
        return interleave(self.x, self.y)

    def take(self, rows: Int64s) -> Tiles:
        """The tiles at `rows`, in that order."""
        columns: dict[str, Any] = {}
        for name in ("z", "x", "y", "suffix", "methods", "sizes", "crcs", "modified"):
            column = getattr(self, name)
            columns[name] = None if column is None else column[rows]
        columns["payloads"] = [self.payloads[row] for row in rows.tolist()]
        if self.comments is not None:
            columns["comments"] = self.comments.take(pa.array(rows))
        return replace(self, **columns)

    def ordered(self) -> Tiles:
        """By zoom, then Morton code, then suffix; of several of one name the last."""
        if len(self) < 2:
            return self
        suffix = np.zeros(len(self), np.int32) if self.suffix is None else self.suffix
        codes = self.codes
        if _ascending(self.z, codes, suffix):
            return self
        order = np.lexsort((suffix, codes, self.z))
        columns = (self.z[order], codes[order], suffix[order])
        same = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
        # Sorting is stable, so that the last of several stands last.
        return self.take(order[np.append(~same, True)])


def _ascending(z: Int64s, codes: Int64s, suffix: npt.NDArray[np.int32]) -> bool:
    first, last = slice(None, -1), slice(1, None)
    up = z[last] > z[first]
    level = z[last] == z[first]
    up |= level & (codes[last] > codes[first])
    level &= codes[last] == codes[first]
    return bool((up | (level & (suffix[last] > suffix[first]))).all())


class TileSource:
    """A pyramid of tiles, wherever it is stored: what has tiles says `keys` and `read`.

    Sources may be used from several threads and can be pickled for other processes.
    """

    label: str = "tiles"
    """What messages call it."""
    metadata: TileSetMetadata
    """What it says about itself; zooms and bounds are what it says, not what is there."""
    hint: str | None = None
    """The extension of its tiles, if it says so."""
    encoding: str | None = None
    """The content encoding of its tiles, if it says so."""
    modified: int | None = None
    """When it was changed last, in seconds since 1970 UTC."""

    @property
    def identity(self) -> str:
        """The same text as long as the source is the same; empty where nobody can tell."""
        return ""

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        return outermost((int(z.min()), int(z.max())) for z, _, _ in self.keys() if len(z))

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks of any order."""
        raise NotImplementedError

    def read(self, square: Square) -> Tiles:
        """The tiles of a square, by Morton code; none of a name twice."""
        raise NotImplementedError

    def gather(self, squares: Sequence[Square]) -> Iterator[Tiles]:
        """The tiles of squares that `keys` has shown to hold some, in their order.

        Each is read ahead of its use, and at most three of them are held. `ObjectChangedError` is
        raised for one that holds none any more.
        """
        if len(squares) < 2:
            return map(self._expected, squares)
        return results(1, self._expected, squares, 2)

    def _expected(self, square: Square) -> Tiles:
        tiles = self.read(square)
        if not len(tiles):
            raise gone(self, square)
        return tiles

    def verify(self) -> None:
        """Raise `ObjectChangedError` when it is no longer what it was when it was opened."""

    def close(self) -> None:
        """Let go of files and connections that were opened here."""


def outermost(ends: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The first and the last zoom of several; None where there are none."""
    known = [end for end in ends if end is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def gone(source: TileSource, square: Square) -> ObjectChangedError:
    """The error for a square that holds no tiles any more."""
    return ObjectChangedError(
        "tiles are gone that were there a moment ago",
        where=f"{source.label}, {square.z}/{square.x}/{square.y}",
    )


def no_tiles(source: TileSource) -> InvalidInputError:
    """The error for a source of which nothing can be made."""
    return InvalidInputError(
        "source without tiles", where=source.label, found="no tile", expected="at least one"
    )


def empty_tiles() -> Tiles:
    """No tiles at all."""
    none = np.zeros(0, np.int64)
    return Tiles(none, none, none, [])


def concatenated(parts: Sequence[Tiles]) -> Tiles:
    """Tiles of several sources in one, those of later parts behind; what one lacks is made up."""
    parts = [part for part in parts if len(part)]
    if len(parts) < 2:
        return parts[0] if parts else empty_tiles()

    def column(name: str, made: Callable[[Tiles], Any]) -> list[Any] | None:
        found = [getattr(part, name) for part in parts]
        if all(one is None for one in found):
            return None
        return [made(part) if one is None else one for one, part in zip(found, parts, strict=True)]

    columns: dict[str, Any] = {
        name: np.concatenate([getattr(part, name) for part in parts]) for name in ("z", "x", "y")
    }
    for name, made in _MADE_UP.items():
        values = column(name, made)
        columns[name] = None if values is None else np.concatenate(values)
    suffixes: dict[str, int] = {}
    codes = column("suffix", lambda part: np.zeros(len(part), np.int32))
    if codes is not None:
        tables = [
            [suffixes.setdefault(suffix, len(suffixes)) for suffix in part.suffixes or ("",)]
            for part in parts
        ]
        named = zip(tables, codes, strict=True)
        columns["suffix"] = np.concatenate([np.array(table, np.int32)[own] for table, own in named])
    comments = column("comments", lambda part: binary([b""] * len(part)))
    return Tiles(
        **columns,
        payloads=[payload for part in parts for payload in part.payloads],
        suffixes=tuple(suffixes),
        comments=None if comments is None else pa.concat_arrays(comments),
    )


_MADE_UP: Final[dict[str, Callable[[Tiles], Any]]] = {
    "methods": lambda part: np.full(len(part), wire.STORE, np.uint16),
    "sizes": lambda part: payload_sizes(part.payloads),
    "crcs": lambda part: checksums(part.payloads),
    "modified": lambda part: np.full(len(part), UNKNOWN_TIME, np.int64),
}
"""Columns that not all sources have, and what stands for them."""


def binary(values: Iterable[bytes]) -> Any:
    """An Arrow binary array."""
    return pa.array(values, pa.binary())


def named(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    hint: str | None,
    ext: str | None = None,
    scale: float = 1,
) -> Tiles:
    """Tiles without names get the extension that was asked for, or that their bytes tell."""
    table: dict[str, int] = {}
    codes = np.zeros(256, np.int32)
    for kind in np.unique(kinds).tolist():
        own = extension(kind, hint) if ext is None else ext
        codes[kind] = table.setdefault(suffix_of(scale, own), len(table))
    return replace(tiles, suffix=codes[kinds], suffixes=tuple(table))


class TileIndex:
    """Where each of many tiles is, for sources that must look at all of them; 16 bytes a tile."""

    def __init__(self, z: Int64s, x: Int64s, y: Int64s) -> None:
        codes = interleave(x, y)
        # Rows of one tile keep their order.
        order = np.lexsort((codes, z))
        self._z = z[order].astype(np.uint8)
        self._codes = codes[order]
        self._rows = order
        self._starts = np.searchsorted(self._z, np.arange(65))

    def __len__(self) -> int:
        return len(self._codes)

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        return (int(self._z[0]), int(self._z[-1])) if len(self) else None

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        for start in range(0, len(self), 1 << 18):
            part = slice(start, start + (1 << 18))
            yield (self._z[part].astype(np.int64), *deinterleave(self._codes[part]))

    def rows(self, square: Square) -> Int64s:
        """Rows of the tiles in a square, by Morton code."""
        start, stop = self._starts[square.z], self._starts[square.z + 1]
        first = int(interleave(square.x, square.y))
        bounds = [first, first + square.side**2]
        low, high = np.searchsorted(self._codes[start:stop], bounds) + start
        return self._rows[low:high]


class IndexedSource(TileSource):
    """A source that has looked at all of its tiles, and reads them by their rows."""

    _keys: Keys
    """Zooms, columns and rows of all tiles."""

    @cached_property
    def _index(self) -> TileIndex:
        return TileIndex(*self._keys)

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        return self._index.zooms()

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        return self._index.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square, by Morton code; none of a name twice."""
        rows = self._index.rows(square)
        return self.read_rows(rows).ordered() if len(rows) else empty_tiles()

    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles by their rows, of which there is at least one."""
        raise NotImplementedError
