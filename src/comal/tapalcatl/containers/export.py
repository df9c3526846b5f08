"""From whatever holds tiles to a source of them, and from any source to other containers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from comal.errors import InvalidInputError, NotThisFormatError, shown
from comal.plan import Head
from comal.progress import Progress, silent
from comal.storage import open_source, parse_href
from comal.storage.kinds import check_ending
from comal.tapalcatl.containers.base import TileSource
from comal.tapalcatl.containers.folder import Folder, check_scheme, folder_sink
from comal.tapalcatl.containers.iterable import IterableSource
from comal.tapalcatl.containers.mbtiles import MBTiles, mbtiles_sink
from comal.tapalcatl.containers.pmtiles import PMTiles, pmtiles_sink
from comal.tapalcatl.containers.pmtileswire import tile_ids
from comal.tapalcatl.containers.sinks import Choice, Order, TileSink, plain_tiles
from comal.tapalcatl.containers.survey import pyramid
from comal.tapalcatl.containers.tilesets import TileSetSource
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import META

Location = str | os.PathLike[str]
_SQLITE = b"SQLite format 3\0"
_PMTILES = b"PMTiles"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")


def opened(source: Any, scope: ExitStack) -> TileSource:
    """A source of tiles, closed with `scope` when it was opened here.

    Parameters
    ----------
    source
        A path or URL, an open tileset, a source, or an iterable of tiles.

    Raises
    ------
    NotThisFormatError
        Nothing that holds tiles.
    """
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
        "no source of tiles", found=type(source).__name__, expected="a path, or an iterable"
    )


def open_tiles(
    href: str | os.PathLike[str], *, scheme: str | None = None, scope: ExitStack | None = None
) -> TileSource:
    """Open MBTiles, PMTiles, a folder of tiles or a tileset, by what it is.

    Parameters
    ----------
    href
        A path or URL.
    scheme
        Of a folder: ``xyz``, ``tms`` or ``zyx``.
    scope
        Closes what was opened.
    """
    location = parse_href(href)
    path = Path(location.path) if location.is_local else None
    found: TileSource
    if path is not None and path.is_dir():
        if scheme is None and (path / META).is_file():
            return _tileset(os.fspath(path / META), scope)
        found = Folder(path, scheme or "xyz")
    else:
        if location.path.endswith(".json"):
            return _tileset(os.fspath(href), scope)
        head = open_source(href).fetch([Head(16)])[0].data
        if head.startswith(_PMTILES):
            found = PMTiles(href)
        elif head.startswith(_SQLITE):
            if path is None:
                raise InvalidInputError(
                    "MBTiles are read from local files only",
                    where=location.label,
                    hint="fetch the file first",
                )
            found = MBTiles(path)
        elif head.startswith(_ZIP):
            return _tileset(os.fspath(href), scope)
        else:
            raise NotThisFormatError(
                "nothing that holds tiles",
                where=location.label,
                found=shown(head[:8].hex()),
                expected="MBTiles, PMTiles, a folder of tiles, or a tileset",
            )
    if scope is not None:
        scope.callback(found.close)
    return found


def _tileset(href: str, scope: ExitStack | None) -> TileSource:
    tileset = import_module("comal.tapalcatl").open(href)
    if scope is not None:
        scope.callback(tileset.close)
    return TileSetSource(tileset)


@dataclass(frozen=True, slots=True)
class Exported:
    """Tiles that were written in another format."""

    output: str
    tiles: int
    ext: str
    min_zoom: int
    max_zoom: int

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data."""
        return asdict(self)


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
    """Write all tiles of a source that are chosen."""
    with ExitStack() as scope:
        found = pyramid(opened(source, scope))
        count = 0
        with sink(path, found, choice, overwrite=overwrite, source=source) as add:
            for tiles in plain_tiles(found, choice, progress or silent, order):
                add(tiles)
                count += len(tiles)
            if not count:
                raise InvalidInputError("no tile of that kind", where=found.source.label)
    return Exported(os.fspath(path), count, choice.ext, found.min_zoom, found.max_zoom)


def to_mbtiles(
    source: Any,
    path: str | os.PathLike[str],
    *,
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write tiles as MBTiles 1.3, byte for byte; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A local file, which appears when it is complete.
    ext, scale
        Which tiles, where the source has several kinds.
    overwrite
        Replace `path`.
    progress
        Told the tiles done.

    Raises
    ------
    InvalidInputError
        No tiles, or tiles of several kinds.
    ConflictError
        `path` exists.
    """
    check_ending(path, ".mbtiles")
    return _exported(source, path, mbtiles_sink, Choice(ext, scale), progress, overwrite=overwrite)


def to_pmtiles(
    source: Any,
    path: str | os.PathLike[str],
    *,
    ext: str | None = None,
    scale: float | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Exported:
    """Write tiles as one clustered PMTiles file, byte for byte; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A local file, which appears when it is complete.
    ext, scale
        Which tiles, where the source has several kinds.
    overwrite
        Replace `path`.
    progress
        Told the tiles done.

    Raises
    ------
    InvalidInputError
        No tiles, or tiles of several kinds.
    ConflictError
        `path` exists.
    """
    check_ending(path, ".pmtiles")
    return _exported(
        source,
        path,
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
) -> Exported:
    """Write tiles as files ``z/x/y.ext`` and a ``metadata.json``; gzip of vector tiles stays.

    Parameters
    ----------
    source
        Anything that `build` takes.
    path
        A local folder, which appears when it is complete.
    scheme
        ``xyz``, ``tms`` with rows from the south, or ``zyx``.
    ext, scale
        Which tiles, where the source has several kinds; all of them unless given.
    overwrite
        Replace `path`, which must be such a folder and hold no other file.
    progress
        Told the tiles done.

    Raises
    ------
    InvalidInputError
        No tiles, or an unknown scheme.
    ConflictError
        `path` exists.
    """
    check_scheme(scheme)
    check_ending(path)
    sink = partial(folder_sink, scheme=scheme)
    choice = Choice(ext, scale, every=True)
    return _exported(source, path, sink, choice, progress, overwrite=overwrite)
