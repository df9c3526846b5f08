"""Loose tiles: folders by zoom, folders in there, and files.

``xyz``
    ``z/x/y``, rows from the north.
``tms``
    ``z/x/y``, rows from the south.
``zyx``
    ``z/y/x``, rows from the north.
``ags``
    Exploded caches of ArcGIS: ``L05/R0000000c/C0000000a``, rows from the north.
``gwc``
    GeoWebCache: ``EPSG_900913_05/0_0/0010_0019``, rows from the south.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from comal import strictjson
from comal.errors import (
    ComalError,
    InvalidInputError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.storage.kinds import Kind
from comal.storage.location import parse_href
from comal.storage.targetlock import Owns, write_errors
from comal.storage.targets import new_folder
from comal.tapalcatl.containers.base import Square, TileIndex, Tiles, TileSource, empty_tiles
from comal.tapalcatl.containers.content import hinted, json_values, metadata_of
from comal.tapalcatl.containers.sinks import Choice, TileSink
from comal.tapalcatl.containers.survey import Pyramid
from comal.tapalcatl.spec import MAX_ZOOM, TileSetMetadata
from comal.tapalcatl.wire import Keys, scales_of

SCHEMES: Final = ("xyz", "tms", "zyx", "ags", "gwc")
GRIDSET: Final = "EPSG_900913"
"""What GeoWebCache calls the grid of Web Mercator."""

_NUMBER: Final = r"(0|[1-9][0-9]{0,9})"
_SUFFIX: Final = r"((?:@[1-9][0-9]*x)?(?:\.[0-9A-Za-z_+-]{1,32})?)"
Key = tuple[int, int, int]
Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Scheme:
    """One way to name tiles. Of two names that mean one tile only that of `name` counts."""

    zoom: re.Pattern[str]
    """A folder of the first level; its group is the zoom."""
    middle: re.Pattern[str]
    file: re.Pattern[str]
    """A file: its name without the suffix, and the suffix."""
    tile: Callable[[int, str, str], tuple[int, int]]
    """Column and row from the north, by zoom, group of `middle`, and file without suffix."""
    place: Callable[[Key], tuple[str, str, str]]
    """The two folders and the file of a tile, without its suffix."""


@cache
def scheme_of(name: str, gridset: str = GRIDSET) -> Scheme:
    """A scheme by its name; of ``gwc`` folders begin with the name of a grid.

    Raises
    ------
    InvalidInputError
        There is none of this name.
    """
    if name not in SCHEMES:
        raise InvalidInputError(
            "scheme of a folder", found=shown(name), expected=", ".join(SCHEMES)
        )
    if name == "ags":
        return Scheme(
            re.compile(r"L([0-9]{2})"),
            re.compile(r"R([0-9a-f]{8})"),
            re.compile(f"(C[0-9a-f]{{8}}){_SUFFIX}"),
            lambda _, row, column: (int(column[1:], 16), int(row, 16)),
            lambda key: (f"L{key[0]:02d}", f"R{key[2]:08x}", f"C{key[1]:08x}"),
        )
    if name == "gwc":
        return Scheme(
            re.compile(rf"{re.escape(gridset)}_([0-9]{{2}})"),
            re.compile(r"([0-9]+_[0-9]+)"),
            re.compile(f"([0-9]+_[0-9]+){_SUFFIX}"),
            _tile_of_gwc,
            lambda key: _gwc(key, gridset),
        )
    number = re.compile(_NUMBER)
    file = re.compile(_NUMBER + _SUFFIX)
    if name == "zyx":
        return Scheme(
            number, number, file,
            lambda _, row, column: (int(column), int(row)),
            lambda key: (str(key[0]), str(key[2]), str(key[1])),
        )  # fmt: skip
    if name == "tms":
        return Scheme(
            number, number, file,
            lambda z, column, row: (int(column), _flipped(z, int(row))),
            lambda key: (str(key[0]), str(key[1]), str(_flipped(key[0], key[2]))),
        )  # fmt: skip
    return Scheme(
        number, number, file,
        lambda _, column, row: (int(column), int(row)),
        lambda key: (str(key[0]), str(key[1]), str(key[2])),
    )  # fmt: skip


def _flipped(z: int, row: int) -> int:
    return (1 << z) - 1 - row


def _tile_of_gwc(z: int, _: str, file: str) -> tuple[int, int]:
    column, row = file.split("_")
    return int(column), _flipped(z, int(row))


def _gwc(key: Key, gridset: str) -> tuple[str, str, str]:
    """As GeoWebCache's FilePathGenerator: folders of a square of tiles, digits by its side."""
    z, x, y = key
    south = _flipped(z, y)
    side = 2 << (z // 2)
    digits = int(math.log10(side)) + 1 if side > 10 else 1
    middle = f"{x // side:0{digits}d}_{south // side:0{digits}d}"
    return f"{gridset}_{z:02d}", middle, f"{x:0{2 * digits}d}_{south:0{2 * digits}d}"


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


class Folder(TileSource):
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

    def __init__(
        self, path: str | os.PathLike[str], scheme: str = "xyz", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        scheme_of(scheme)
        self._path = parse_href(path).path
        self.label = shown(self._path, 200)
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
        self.hint = hinted(str(values.get("format", "")))
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


_METADATA = "metadata.json"


@contextmanager
def folder_sink(
    path: Location,
    found: Pyramid,
    choice: Choice,
    *,
    overwrite: bool,
    source: Any,
    scheme: str = "xyz",
) -> Iterator[TileSink]:
    """Files in a scheme and a ``metadata.json``; gzip of vector tiles stays."""
    names = scheme_of(scheme)
    made: set[str] = set()
    with new_folder(path, overwrite, _kind(names), source) as folder:

        def add(tiles: Tiles) -> None:
            with write_errors("cannot write", path):
                _write(os.fspath(folder), tiles, names, made)

        yield add
        values = json_values(found.metadata, choice.ext if len(choice.exts) == 1 else None)
        with write_errors("cannot write", path):
            (folder / _METADATA).write_text(json.dumps(values, indent=1) + "\n")


def _kind(scheme: Scheme) -> Kind:
    """Folders of tiles that are named like this."""

    def owns(name: str) -> bool:
        parts = name.split("/")
        patterns = (scheme.zoom, scheme.middle, scheme.file)
        fits = zip(patterns, parts, strict=False)
        return name == _METADATA or (len(parts) == 3 and all(p.fullmatch(one) for p, one in fits))

    def claim(path: Path) -> Owns | None:
        return owns if (path / _METADATA).is_file() else None

    return Kind(f"a folder of tiles with {_METADATA}", claim)


def _write(folder: str, tiles: Tiles, scheme: Scheme, made: set[str]) -> None:
    assert tiles.suffix is not None
    columns = (tiles.z, tiles.x, tiles.y, tiles.suffix)
    rows = zip(*(column.tolist() for column in columns), tiles.payloads, strict=True)
    for z, x, y, code, payload in rows:
        first, second, file = scheme.place((z, x, y))
        place = f"{folder}/{first}/{second}"
        if place not in made:
            os.makedirs(place, exist_ok=True)  # noqa: PTH103 - a string, a hundred thousand times
            made.add(place)
        name = f"{place}/{file}{tiles.suffixes[code]}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(payload)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
