"""A folder of loose tiles, in one of the schemes of `schemes`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from comal import strictjson
from comal.errors import (
    ComalError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.storage.location import parse_href
from comal.tapalcatl.sources.base import Keys, Square, TileIndex, Tiles, empty_tiles
from comal.tapalcatl.sources.content import hinted
from comal.tapalcatl.sources.describing import metadata_of
from comal.tapalcatl.sources.schemes import GRIDSET, Scheme, scheme_of
from comal.tapalcatl.spec import MAX_ZOOM, TileSetMetadata
from comal.tapalcatl.wire import scales_of

_GRIDSET = re.compile(r"(.+)_[0-9]{2}")
_LAYERS: Final = "_alllayers"
"""Where ArcGIS puts the zooms of a cache."""
_DOCUMENTS = ("metadata.json", "tilejson.json", "tiles.json")
_READING: dict[type[BaseException], type[ComalError]] = {
    FileNotFoundError: ObjectChangedError,
    OSError: StorageError,
}


class _File(NamedTuple):
    z: int
    x: int
    y: int
    suffix: int


class Folder:
    """The tiles of a folder.

    Parameters
    ----------
    path
        A local folder whose folders are zooms. Files and folders with other names are left out.
    scheme
        ``xyz``, ``tms``, ``zyx``, ``ags`` or ``gwc``; see `schemes`.
    limits
        `tile_bytes` caps one tile.

    Notes
    -----
    About 30 bytes of memory a tile. Metadata are read from ``metadata.json`` in the folder.
    """

    encoding: str | None = None
    """Nothing: a folder does not say."""
    modified: int | None = None
    """Nothing: each tile has a time of its own."""

    def __init__(
        self, path: str | os.PathLike[str], scheme: str = "xyz", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        scheme_of(scheme)
        self._path = parse_href(path).path
        self._kind = scheme
        self._limits = limits
        if not Path(self._path).is_dir():
            raise ObjectNotFoundError("no such folder", where=self.label)
        suffixes: dict[str, int] = {}
        with translated({OSError: StorageError}, "folder cannot be listed", where=self.label):
            self._root = self._path
            if scheme == "ags" and Path(self._path, _LAYERS).is_dir():
                self._root = f"{self._path}/{_LAYERS}"
            self._gridset = _gridset(self._root) if scheme == "gwc" else GRIDSET
            found = _files(self._root, self._scheme, suffixes)
            files = np.array(list(found), np.int64).reshape(-1, 4)
        if not len(files):
            raise NotThisFormatError(
                "folder without tiles", where=self.label, expected="files named z/x/y.ext"
            )
        self._suffixes = tuple(suffixes)
        self._z, self._x, self._y = (np.ascontiguousarray(files[:, at]) for at in range(3))
        self._suffix = files[:, 3].astype(np.int32)
        self._index = TileIndex(self._z, self._x, self._y)
        values = _document(Path(self._path), limits)
        self._hint = hinted(str(values.get("format", "")))
        low, high = scales_of(self._suffixes)
        said: TileSetMetadata = metadata_of(values, self.label, limits)
        self.metadata = replace(said, min_scale=low, max_scale=high)

    @property
    def _scheme(self) -> Scheme:
        return scheme_of(self._kind, self._gridset)

    @property
    def href(self) -> str:
        """Where it is."""
        return self._path

    @property
    def label(self) -> str:
        """The path."""
        return shown(self._path, 200)

    @property
    def hint(self) -> str | None:
        """The extension for what the folder says its tiles are; names tell more."""
        return self._hint

    @property
    def identity(self) -> str:
        """Path and number of tiles."""
        return json.dumps(["folder", self._path, self._kind, len(self._index)])

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        return self._index.zooms()

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        return self._index.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square, with the times of their files."""
        rows = self._index.rows(square)
        if not len(rows):
            return empty_tiles()
        values, times = [], []
        columns = (self._z[rows], self._x[rows], self._y[rows], self._suffix[rows])
        for z, x, y, code in zip(*(column.tolist() for column in columns), strict=True):
            data, modified = self._read_one(z, x, y, self._suffixes[code])
            values.append(data)
            times.append(modified)
        tiles = Tiles(
            *columns[:3],
            payloads=values,
            suffix=columns[3],
            suffixes=self._suffixes,
            modified=np.array(times, np.int64),
        )
        return tiles.ordered()

    def verify(self) -> None:
        """Nothing: files that vanish are noticed when they are read."""

    def close(self) -> None:
        """Nothing is open."""

    def _read_one(self, z: int, x: int, y: int, suffix: str) -> tuple[bytes, int]:
        path = f"{self._root}/{'/'.join(self._scheme.place((z, x, y)))}{suffix}"
        with translated(_READING, "tile cannot be read", where=shown(path, 200)):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                status = os.fstat(descriptor)
                self._limits.check("tile_bytes", status.st_size, shown(path, 200))
                data = os.read(descriptor, status.st_size + 1)
                while len(data) < status.st_size and (more := os.read(descriptor, 1 << 20)):
                    data += more
            finally:
                os.close(descriptor)
        if len(data) != status.st_size:
            raise ObjectChangedError("tile was changed while it was read", where=shown(path, 200))
        return data, status.st_mtime_ns // 10**9


def _files(path: str, scheme: Scheme, suffixes: dict[str, int]) -> Iterator[_File]:
    for zoom, first, zoom_path in _folders(path, scheme.zoom):
        z = int(zoom)
        if z > MAX_ZOOM:
            continue
        last = (1 << z) - 1
        for number, second, folder in _folders(zoom_path, scheme.middle):
            for name, suffix in _names(folder, scheme.file):
                x, y = scheme.tile(z, number, name)
                if not (0 <= x <= last and 0 <= y <= last):
                    continue
                if scheme.place((z, x, y)) == (first, second, name):
                    yield _File(z, x, y, suffixes.setdefault(suffix, len(suffixes)))


def _names(folder: str, pattern: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            match = pattern.fullmatch(entry.name)
            if match is not None and entry.is_file():
                yield match[1], match[2]


def _folders(path: str, pattern: re.Pattern[str]) -> list[tuple[str, str, str]]:
    """The number, name and path of the folders that are called so."""
    with os.scandir(path) as entries:
        found = [(pattern.fullmatch(entry.name), entry) for entry in entries]
        return sorted(
            (match[1], entry.name, entry.path)
            for match, entry in found
            if match is not None and entry.is_dir()
        )


def _gridset(path: str) -> str:
    """The name of the grid that folders of GeoWebCache begin with."""
    with os.scandir(path) as entries:
        found = (_GRIDSET.fullmatch(entry.name) for entry in entries if entry.is_dir())
        return min((match[1] for match in found if match is not None), default=GRIDSET)


def _document(folder: Path, limits: Limits) -> dict[str, Any]:
    for name in _DOCUMENTS:
        path = folder / name
        if path.is_file():
            where = shown(str(path), 200)
            with translated(_READING, "metadata cannot be read", where=where):
                limits.check("json_bytes", path.stat().st_size, where)
                data = path.read_bytes()
            return strictjson.loads(data, where, limits)
    return {}
