"""Opens anything that holds tiles as a source, and exports any source to other containers.

Tiles from an iterable are copied to an unnamed temporary file, so that any number of them takes
little memory.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np

from comal.errors import (
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.geo.times import parse_instant
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import Head
from comal.progress import Progress, silent
from comal.public import Summary
from comal.storage import open_source, parse_href
from comal.storage.config import StorageConfig
from comal.storage.location import STORE_SCHEMES, StorePath, stored
from comal.storage.targets import check_ending, target_path
from comal.tapalcatl.containers.base import (
    UNKNOWN_TIME,
    IndexedSource,
    Tiles,
    TileSource,
    binary,
    empty_tiles,
    no_tiles,
)
from comal.tapalcatl.containers.folder import check_scheme, folder_sink, loose
from comal.tapalcatl.containers.mbtiles import MBTiles, mbtiles_sink
from comal.tapalcatl.containers.pmtiles import PMTiles, pmtiles_sink
from comal.tapalcatl.containers.pmtileswire import tile_ids
from comal.tapalcatl.containers.survey import Choice, Order, TileSink, plain_tiles, survey
from comal.tapalcatl.containers.tilesets import TileSetSource
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import (
    MAX_ZOOM,
    META,
    Headers,
    TileSetMetadata,
    entry_comment,
    header_pairs,
)
from comal.tapalcatl.wire import Int64s, scales_of, split_suffix, suffix_of

_DISK: dict[type[BaseException], type[ComalError]] = {OSError: StorageError}
_IN_MEMORY: Final = 16 << 20


class NewTile(NamedTuple):
    """A tile to write."""

    z: int
    x: int
    y: int
    """Row from the north."""
    data: bytes
    ext: str | None = None
    """Extension without its dot; None detects it from the tile's first bytes."""
    scale: float = 1
    headers: Headers = ()
    """Headers of this tile alone: pairs of name and value."""
    modified: int | str | dt.datetime | None = None
    """When it was last modified; a number is seconds since 1970 UTC."""


class IterableSource(IndexedSource):
    """Tiles from an iterable of ``(z, x, y, data)`` or `NewTile`.

    Of several tiles with one name the last wins. The iterable is read to its end at once.
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

    def read_all(self) -> Tiles:
        """All tiles at once, without an index."""
        return self.read_rows(np.arange(len(self))).ordered() if len(self) else empty_tiles()

    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles by their positions in the iterable."""
        values = [
            self._bytes(offset, size)
            for offset, size in zip(
                self._offset[rows].tolist(), self._size[rows].tolist(), strict=True
            )
        ]
        comments = [self._comments.get(row, b"") for row in rows.tolist()]
        z, x, y = (column[rows] for column in self._keys)
        return Tiles(
            z,
            x,
            y,
            payloads=values,
            suffix=np.array(self._suffix, np.int32)[rows] if self._typed else None,
            suffixes=tuple(self._suffixes),
            comments=binary(comments) if any(comments) else None,
            modified=self._time[rows] if (self._time[rows] != UNKNOWN_TIME).any() else None,
        )

    def close(self) -> None:
        """Close the temporary file."""
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
            comment = entry_comment(header_pairs(tile.headers, _name(tile)))
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
            raise InvalidInputError("either all tiles need an extension or none", where=_name(tile))
        self._typed = typed
        if not typed:
            if tile.scale != 1:
                raise InvalidInputError("a tile with a scale needs an extension", where=_name(tile))
            return 0
        if not (isinstance(tile.ext, str) and isinstance(tile.scale, int | float)):
            raise InvalidInputError(
                "not an extension and a scale",
                where=_name(tile),
                found=shown((tile.ext, tile.scale)),
                expected="text without a dot, and a number",
            )
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
        if (z, x, y) != tile[:3]:
            raise ValueError("not whole numbers")  # noqa: TRY301 - raised again below
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            "not a tile", found=shown(item), expected="(z, x, y, data) or NewTile"
        ) from error
    if not (0 <= z <= MAX_ZOOM and 0 <= x < 1 << z and 0 <= y < 1 << z):
        raise InvalidInputError("the tile lies outside its zoom", found=f"{z}/{x}/{y}")
    if not isinstance(tile.data, bytes | bytearray | memoryview):
        raise InvalidInputError(
            "the tile has no bytes", where=_name(tile), found=type(tile.data).__name__
        )
    return tile._replace(z=z, x=x, y=y, data=bytes(tile.data))


def _name(tile: NewTile) -> str:
    return f"tile {tile.z}/{tile.x}/{tile.y}"


def _seconds(tile: NewTile) -> int:
    value = tile.modified
    if value is None:
        return UNKNOWN_TIME
    if not isinstance(value, int | np.integer):
        return parse_instant(value, _name(tile)) // 1_000_000
    return parse_instant(int(value) * 1_000_000, _name(tile)) // 1_000_000


Location = str | os.PathLike[str]
_SQLITE = b"SQLite format 3\0"
_PMTILES = b"PMTiles"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def opened(source: Any, scope: ExitStack) -> TileSource:
    """A source of tiles; `scope` closes it if it was opened here."""
    found = _opened(source, scope)
    if isinstance(found, TileSetSource):
        found.warn_of_variants()
    return found


def _opened(source: Any, scope: ExitStack) -> TileSource:
    if isinstance(source, TileSet):
        return TileSetSource(source)
    if all(callable(getattr(source, name, None)) for name in ("keys", "read", "verify")):
        return cast("TileSource", source)
    if isinstance(source, str | os.PathLike):
        return open_tiles(source, scope=scope)
    if isinstance(source, Iterable):
        given = IterableSource(source)
        scope.callback(given.close)
        return given
    raise InvalidInputError(
        "not a source of tiles", found=type(source).__name__, expected="a path, or an iterable"
    )


def open_tiles(
    href: str | os.PathLike[str], *, scheme: str | None = None, scope: ExitStack | None = None
) -> TileSource:
    """Open MBTiles, PMTiles, a folder of tiles or a tileset, detected by content.

    Parameters
    ----------
    href
        A path or URL; a folder is on this machine or in a store.
    scheme
        Of a folder: ``xyz``, ``tms`` or ``zyx``.
    scope
        Closes what this function opens.
    """
    place = parse_href(href)
    found: TileSource
    if place.path.endswith(".json"):
        found = _tileset(href, scope)
    elif place.is_local and Path(place.path).is_dir():
        found = _folder(href, scheme, scope)
    else:
        try:
            head = open_source(href).fetch([Head(16)])[0].data
        except (ObjectNotFoundError, NotThisFormatError) as error:
            if place.scheme not in STORE_SCHEMES:
                if not place.is_local:
                    error.hint = "check the URL; a folder of tiles is read from a disk or a store"
                raise
            found = _folder(href, scheme, scope)
        else:
            found = _file(href, head, scope)
    if scope is not None:
        scope.callback(found.close)
    return found


def _folder(href: Location, scheme: str | None, scope: ExitStack | None) -> TileSource:
    """A tileset, or a folder of tiles."""
    place = parse_href(href)
    if scheme is None and META in open_source(href).names():
        top = Path(place.path) if place.is_local else stored(href) or StorePath(place)
        return _tileset(top / META, scope)
    return loose(href, scheme or "xyz")


def _file(href: Location, head: bytes, scope: ExitStack | None) -> TileSource:
    """The tiles of a file that begins like this."""
    place = parse_href(href)
    if head.startswith(_PMTILES):
        return PMTiles(href)
    if head.startswith(_ZIP):
        return _tileset(href, scope)
    if not head.startswith(_SQLITE):
        raise NotThisFormatError(
            "not a container of tiles",
            where=place.label,
            found=shown(head[:8].hex()),
            expected="MBTiles, PMTiles, a folder of tiles, or a tileset",
        )
    if not place.is_local:
        raise InvalidInputError(
            "MBTiles are read from local files only",
            where=place.label,
            hint="download the file first",
        )
    return MBTiles(place.path)


def _tileset(href: Location, scope: ExitStack | None) -> TileSource:
    tileset = import_module("comal.tapalcatl").open(href)
    if scope is not None:
        scope.callback(tileset.close)
    return TileSetSource(tileset)


@dataclass(frozen=True, slots=True)
class Exported(Summary):
    """Tiles that were written in another format."""

    output: str
    tiles: int
    ext: str
    min_zoom: int
    max_zoom: int


def _exported(
    source: Any,
    path: Location,
    sink: Callable[..., AbstractContextManager[TileSink]],
    choice: Choice,
    progress: Progress | None,
    *,
    overwrite: bool,
    order: Order | None = None,
) -> Exported:
    """Write all chosen tiles of a source."""
    with ExitStack() as scope:
        origin = opened(source, scope)
        found = survey(origin)
        if not found.tiles:
            raise no_tiles(origin)
        count = 0
        with sink(path, origin.metadata, choice, overwrite=overwrite, source=source) as add:
            for tiles in plain_tiles(origin, found, choice, progress or silent, order):
                add(tiles)
                count += len(tiles)
            if not count:
                raise InvalidInputError("no tile of that kind", where=origin.label)
    ends = min(choice.extents), max(choice.extents)
    return Exported(os.fspath(path), count, choice.ext, *ends)


def to_mbtiles(
    source: Any,
    path: str | os.PathLike[str],
    *,
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Exported:
    """Write tiles as MBTiles 1.3, byte for byte; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A file, which appears when it is complete.
    ext, scale
        Selects one kind of tiles if the source has several.
    overwrite
        Replace `path`.
    progress
        Called with the number of tiles done.
    config
        Settings and credentials to write with, where `path` is in a store.

    Raises
    ------
    InvalidInputError
        No tiles, or tiles of several kinds.
    ConflictError
        `path` exists.
    """
    target = target_path(path, config)
    check_ending(target, ".mbtiles")
    return _exported(
        source, target, mbtiles_sink, Choice(ext, scale), progress, overwrite=overwrite
    )


def to_pmtiles(
    source: Any,
    path: str | os.PathLike[str],
    *,
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Exported:
    """Write tiles as one clustered PMTiles file, byte for byte; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A file, which appears when it is complete.
    ext, scale
        Selects one kind of tiles if the source has several.
    overwrite
        Replace `path`.
    progress
        Called with the number of tiles done.
    config
        Settings and credentials to write with, where `path` is in a store.

    Raises
    ------
    InvalidInputError
        No tiles, or tiles of several kinds.
    ConflictError
        `path` exists.
    """
    target = target_path(path, config)
    check_ending(target, ".pmtiles")
    return _exported(
        source,
        target,
        pmtiles_sink,
        Choice(ext, scale),
        progress,
        overwrite=overwrite,
        order=lambda keys: tile_ids(*keys),
    )


def to_directory(
    source: Any,
    path: str | os.PathLike[str],
    *,
    scheme: str = "xyz",
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    config: StorageConfig | None = None,
) -> Exported:
    """Write tiles as files ``z/x/y.ext`` and a ``metadata.json``; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A folder, which appears when it is complete.
    scheme
        ``xyz``, ``tms`` with rows from the south, or ``zyx``.
    ext, scale
        Selects kinds of tiles if the source has several; all kinds by default.
    overwrite
        Replace `path`, which must be such a folder and hold no other file.
    progress
        Called with the number of tiles done.
    config
        Settings and credentials to write with, where `path` is in a store.

    Raises
    ------
    InvalidInputError
        No tiles, or an unknown scheme.
    ConflictError
        `path` exists.
    """
    check_scheme(scheme)
    target = target_path(path, config)
    check_ending(target)
    sink = partial(folder_sink, scheme=scheme)
    choice = Choice(ext, scale, every=True)
    return _exported(source, target, sink, choice, progress, overwrite=overwrite)
