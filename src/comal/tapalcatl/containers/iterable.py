"""Tiles that a program hands over one by one, in any order.

They are copied to a nameless file, so that any number of them takes little memory.
"""

from __future__ import annotations

import datetime as dt
import tempfile
import threading
from array import array
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from comal.errors import ComalError, InvalidInputError, StorageError, shown, translated
from comal.geo.times import parse_instant
from comal.limits import DEFAULT_LIMITS, Limits
from comal.tapalcatl.containers.base import (
    UNKNOWN_TIME,
    Square,
    TileIndex,
    Tiles,
    TileSource,
    binary,
    empty_tiles,
)
from comal.tapalcatl.spec import MAX_ZOOM, Headers, TileSetMetadata, entry_comment
from comal.tapalcatl.wire import Int64s, Keys, scales_of, split_suffix, suffix_of

_DISK: dict[type[BaseException], type[ComalError]] = {OSError: StorageError}
_IN_MEMORY: Final = 16 << 20


class NewTile(NamedTuple):
    """A tile that is to be written."""

    z: int
    x: int
    y: int
    """Row from the north."""
    data: bytes
    ext: str | None = None
    """Extension without its dot; None: by the tile's first bytes."""
    scale: float = 1
    headers: Headers = ()
    """Headers of this tile alone: pairs of name and value."""
    modified: int | str | dt.datetime | None = None
    """When it was changed last; a number counts seconds since 1970 UTC."""


class IterableSource(TileSource):
    """Tiles from an iterable of ``(z, x, y, data)`` or `NewTile`.

    Of several for one name the last counts. The iterable is read to its end at once.

    Raises
    ------
    InvalidInputError
        A tile that cannot be one.
    LimitExceededError
        A tile over `limits.tile_bytes`.
    """

    def __init__(self, tiles: Iterable[Any], limits: Limits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._spool = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - kept
        self._guard = threading.Lock()
        self._columns = {name: array("q") for name in ("z", "x", "y", "offset", "size", "time")}
        self._suffixes: dict[str, int] = {}
        self._suffix = array("i")
        self._comments: dict[int, bytes] = {}
        self._typed = False
        try:
            with translated(_DISK, "tiles cannot be set aside"):
                self._take_all(tiles)
        except BaseException:  # also on Ctrl-C: the file must not stay open
            self._spool.close()
            raise
        z, x, y, self._offset, self._size, self._time = (
            np.array(self._columns[name], np.int64)
            for name in ("z", "x", "y", "offset", "size", "time")
        )
        self._keys = z, x, y
        low, high = scales_of(self._suffixes)
        self.metadata = TileSetMetadata(min_scale=low, max_scale=high)

    def __len__(self) -> int:
        return len(self._offset)

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        return self._index.zooms()

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        return self._index.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        rows = self._index.rows(square)
        return self._read(rows) if len(rows) else empty_tiles()

    def read_all(self) -> Tiles:
        """All tiles at once."""
        return self._read(np.arange(len(self))) if len(self) else empty_tiles()

    @cached_property
    def _index(self) -> TileIndex:
        return TileIndex(*self._keys)

    def _read(self, rows: Int64s) -> Tiles:
        values = [
            self._bytes(offset, size)
            for offset, size in zip(
                self._offset[rows].tolist(), self._size[rows].tolist(), strict=True
            )
        ]
        comments = [self._comments.get(row, b"") for row in rows.tolist()]
        tiles = Tiles(
            self._keys[0][rows],
            self._keys[1][rows],
            self._keys[2][rows],
            payloads=values,
            suffix=np.array(self._suffix, np.int32)[rows] if self._typed else None,
            suffixes=tuple(self._suffixes),
            comments=binary(comments) if any(comments) else None,
            modified=self._time[rows] if (self._time[rows] != UNKNOWN_TIME).any() else None,
        )
        return tiles.ordered()

    def close(self) -> None:
        """Give the file back."""
        self._spool.close()

    def __reduce__(self) -> Any:
        raise InvalidInputError(
            "tiles of an iterable cannot go to other processes",
            hint="use an executor of threads, or write them to MBTiles first",
        )

    def _take_all(self, tiles: Iterable[Any]) -> None:
        position = 0
        for item in tiles:
            tile = _tile(item)
            self._limits.check("tile_bytes", len(tile.data), _name(tile))
            comment = entry_comment(tuple(tile.headers))
            if comment:
                self._comments[len(self._suffix)] = comment
            self._suffix.append(self._suffix_of(tile))
            seconds = _seconds(tile)
            numbers = (tile.z, tile.x, tile.y, position, len(tile.data), seconds)
            for column, number in zip(self._columns.values(), numbers, strict=True):
                column.append(number)
            position += self._spool.write(tile.data)

    def _suffix_of(self, tile: NewTile) -> int:
        typed = tile.ext is not None
        if len(self._suffix) and typed != self._typed:
            raise InvalidInputError("either all tiles have an extension or none", where=_name(tile))
        self._typed = typed
        if not typed:
            if tile.scale != 1:
                raise InvalidInputError("a tile with a scale needs an extension", where=_name(tile))
            return 0
        suffix = suffix_of(tile.scale, tile.ext or "")
        split_suffix(suffix)
        return self._suffixes.setdefault(suffix, len(self._suffixes))

    def _bytes(self, offset: int, size: int) -> bytes:
        with self._guard, translated(_DISK, "tiles that were set aside cannot be read"):
            self._spool.seek(offset)
            return self._spool.read(size)


def _tile(item: Any) -> NewTile:
    try:
        tile = item if isinstance(item, NewTile) else NewTile(*item)
        z, x, y = (int(number) for number in tile[:3])
    except (TypeError, ValueError) as error:
        raise InvalidInputError(
            "no tile", found=shown(item), expected="(z, x, y, data) or NewTile"
        ) from error
    if not (0 <= z <= MAX_ZOOM and 0 <= x < 1 << z and 0 <= y < 1 << z):
        raise InvalidInputError("tile outside of its zoom", found=f"{z}/{x}/{y}")
    if not isinstance(tile.data, bytes | bytearray | memoryview):
        raise InvalidInputError(
            "tile without bytes", where=_name(tile), found=type(tile.data).__name__
        )
    return tile._replace(z=z, x=x, y=y, data=bytes(tile.data))


def _name(tile: NewTile) -> str:
    return f"tile {tile.z}/{tile.x}/{tile.y}"


def _seconds(tile: NewTile) -> int:
    value = tile.modified
    if value is None:
        return UNKNOWN_TIME
    return value if isinstance(value, int) else parse_instant(value) // 1_000_000
