"""The interface of sources of tiles, and the class that carries tiles between containers.

A source lists its tiles in blocks of coordinates and reads them square by square. A square is at
most 16 tiles wide, so copying a pyramid of any size holds one square in memory at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError, ObjectChangedError
from comal.grid.quadbin import deinterleave, interleave
from comal.parallel import cached_property, results
from comal.table.columns import blobs_column, numbers_column
from comal.tapalcatl.containers.content import extension
from comal.tapalcatl.spec import TileSetMetadata
from comal.tapalcatl.wire import Int64s, Keys, suffix_of
from comal.ziparchive import wire
from comal.ziparchive.headermaking import checksums, payload_sizes

SIDE: Final = 16
"""Maximum tiles per side of a square."""
UNKNOWN_TIME: Final = -1


class Square(NamedTuple):
    """A square of tiles of one zoom: `side` columns from `x` on and `side` rows from `y` on.

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
    """Index into `suffixes`; None if names have no extension, so the bytes decide."""
    suffixes: tuple[str, ...] = ()
    """The text after the row in names, such as ``@2x.png``."""
    methods: npt.NDArray[np.uint16] | None = None
    """ZIP compression of payloads on top of the tile's own: stored (0) or DEFLATE (8)."""
    sizes: Int64s | None = None
    """Size of each tile in bytes without that compression."""
    crcs: npt.NDArray[np.uint32] | None = None
    """CRC-32 of each tile without that compression."""
    comments: Any = None
    """Arrow binary array of entry comments, which hold the tiles' own headers."""
    modified: Int64s | None = None
    """Modification times in seconds since 1970 UTC, `UNKNOWN_TIME` if unknown."""

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
            columns["comments"] = self.comments.take(numbers_column(rows))
        return replace(self, **columns)

    def ordered(self) -> Tiles:
        """Sorted by zoom, Morton code and suffix; of several tiles with one name the last."""
        if len(self) < 2:
            return self
        suffix = np.zeros(len(self), np.int32) if self.suffix is None else self.suffix
        codes = self.codes
        if _ascending(self.z, codes, suffix):
            return self
        order = np.lexsort((suffix, codes, self.z))
        columns = (self.z[order], codes[order], suffix[order])
        same = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
        # The sort is stable: the last of several tiles with one name stays last.
        return self.take(order[np.append(~same, True)])


def _ascending(z: Int64s, codes: Int64s, suffix: npt.NDArray[np.int32]) -> bool:
    first, last = slice(None, -1), slice(1, None)
    up = z[last] > z[first]
    level = z[last] == z[first]
    up |= level & (codes[last] > codes[first])
    level &= codes[last] == codes[first]
    return bool((up | (level & (suffix[last] > suffix[first]))).all())


class TileSource:
    """A pyramid of tiles in any storage; subclasses implement `keys` and `read`.

    Sources may be used from several threads and can be pickled for other processes.
    """

    label: str = "tiles"
    """Its name in messages."""
    metadata: TileSetMetadata
    """Its own metadata; zooms and bounds are as declared, not as found."""
    hint: str | None = None
    """The extension of its tiles, if declared."""
    encoding: str | None = None
    """The content encoding of its tiles, if declared."""
    modified: int | None = None
    """When it was last modified, in seconds since 1970 UTC."""
    newest: int | None = None
    """Time of the last change of its archives when tiles were listed, in nanoseconds since 1970."""

    @property
    def identity(self) -> str:
        """A text that stays the same as long as the source does; empty if that is unknown."""
        return ""

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None if there are no tiles."""
        return outermost((int(z.min()), int(z.max())) for z, _, _ in self.keys() if len(z))

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks, in any order."""
        raise NotImplementedError

    def read(self, square: Square) -> Tiles:
        """The tiles of a square, by Morton code, without duplicate names."""
        raise NotImplementedError

    def gather(self, squares: Sequence[Square]) -> Iterator[Tiles]:
        """The tiles of squares that hold some according to `keys`, in the order of `squares`.

        Squares are read ahead; at most three are in memory. A square that holds no tiles any more
        raises `ObjectChangedError`.
        """
        if len(squares) < 2:
            return map(self._expected, squares)
        return results(None, self._expected, squares, threads=1)

    def _expected(self, square: Square) -> Tiles:
        tiles = self.read(square)
        if not len(tiles):
            raise gone(self, square)
        return tiles

    def verify(self) -> None:
        """Raise `ObjectChangedError` if the source changed since it was opened."""

    def close(self) -> None:
        """Close files and connections that this source opened."""


def outermost(ends: Iterable[tuple[int, int] | None]) -> tuple[int, int] | None:
    """The first and last zoom of several ranges; None if there are none."""
    known = [end for end in ends if end is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def gone(source: TileSource, square: Square) -> ObjectChangedError:
    """The error for a square that holds no tiles any more."""
    return ObjectChangedError(
        "tiles that were there a moment ago are gone",
        where=f"{source.label}, {square.z}/{square.x}/{square.y}",
    )


def no_tiles(source: TileSource) -> InvalidInputError:
    """The error for a source without tiles."""
    return InvalidInputError(
        "the source holds no tiles", where=source.label, found="no tile", expected="at least one"
    )


def empty_tiles() -> Tiles:
    """No tiles at all."""
    none = np.zeros(0, np.int64)
    return Tiles(none, none, none, [])


def concatenated(parts: Sequence[Tiles]) -> Tiles:
    """Tiles of several sources, in order of `parts`; columns that a part lacks get defaults."""
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
"""Default values of columns that not all sources have."""


def binary(values: Iterable[bytes]) -> Any:
    """An Arrow binary array."""
    return blobs_column(list(values))


def named(
    tiles: Tiles,
    kinds: npt.NDArray[np.uint8],
    hint: str | None,
    ext: str | None = None,
    scale: float = 1,
) -> Tiles:
    """Give tiles without names the extension `ext`, or by default the one of their bytes."""
    table: dict[str, int] = {}
    codes = np.zeros(256, np.int32)
    for kind in np.unique(kinds).tolist():
        own = extension(kind, hint) if ext is None else ext
        codes[kind] = table.setdefault(suffix_of(scale, own), len(table))
    return replace(tiles, suffix=codes[kinds], suffixes=tuple(table))


class TileIndex:
    """Rows of tiles by coordinates, for sources that must list all tiles; 16 bytes per tile."""

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
        """The first and last zoom that occur; None if there are no tiles."""
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


class IndexedSource(TileSource, ABC):
    """A source that lists all of its tiles when opened, and reads them by row."""

    _keys: Keys
    """Zooms, columns and rows of all tiles."""

    @cached_property
    def _index(self) -> TileIndex:
        return TileIndex(*self._keys)

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None if there are no tiles."""
        return self._index.zooms()

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        return self._index.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square, by Morton code, without duplicate names."""
        rows = self._index.rows(square)
        return self.read_rows(rows).ordered() if len(rows) else empty_tiles()

    @abstractmethod
    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles by row; `rows` is not empty."""
