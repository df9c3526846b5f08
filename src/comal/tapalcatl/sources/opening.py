"""From whatever holds tiles to a source of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from comal.errors import InvalidInputError, NotThisFormatError, shown
from comal.plan import Head
from comal.storage import open_source, parse_href
from comal.storage.location import FILE
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.sources.base import TileSource
from comal.tapalcatl.sources.folder import Folder
from comal.tapalcatl.sources.given import Given
from comal.tapalcatl.sources.mbtiles import MBTiles
from comal.tapalcatl.sources.pmtiles_file import PMTiles
from comal.tapalcatl.sources.tilesets import OfTileSet
from comal.tapalcatl.spec import META

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
        return OfTileSet(source)
    if all(callable(getattr(source, name, None)) for name in ("keys", "read", "verify")):
        return cast("TileSource", source)
    if isinstance(source, str | os.PathLike):
        return open_tiles(source, scope=scope)
    if isinstance(source, Iterable):
        given = Given(source)
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
        Of a folder: ``xyz``, ``tms``, ``zyx``, ``ags`` or ``gwc``.
    scope
        Closes what was opened.
    """
    location = parse_href(href)
    path = Path(location.path) if location.scheme == FILE else None
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
    return OfTileSet(tileset)
