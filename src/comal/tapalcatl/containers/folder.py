"""Loose tiles in nested folders by zoom and column, or zoom and row.

``xyz``
    ``z/x/y``, rows from the north.
``tms``
    ``z/x/y``, rows from the south.
``zyx``
    ``z/y/x``, rows from the north.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
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
    system_errors,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.storage.location import parse_href
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, new_folder
from comal.tapalcatl.containers.base import IndexedSource, Tiles
from comal.tapalcatl.containers.content import hinted, json_values, metadata_of
from comal.tapalcatl.containers.survey import Choice, TileSink
from comal.tapalcatl.spec import MAX_ZOOM, TileSetMetadata
from comal.tapalcatl.wire import Int64s, scales_of

SCHEMES: Final = ("xyz", "tms", "zyx")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_FILE: Final = re.compile(rf"({_NUMBER.pattern})((?:@[1-9][0-9]*x)?(?:\.[0-9A-Za-z_+-]{{1,32}})?)")
Key = tuple[int, int, int]
Location = str | os.PathLike[str]


def check_scheme(name: str) -> None:
    """Raise `InvalidInputError` for an unknown scheme."""
    if name not in SCHEMES:
        raise InvalidInputError(
            "unknown scheme of a folder", found=shown(name), expected=", ".join(SCHEMES)
        )


def _turned(scheme: str, z: int, first: int, second: int) -> tuple[int, int]:
    """Column and row from the numbers of folder and file, or the reverse."""
    if scheme == "zyx":
        return second, first
    return first, (1 << z) - 1 - second if scheme == "tms" else second


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


class Folder(IndexedSource):
    """The tiles of a local folder with a folder per zoom; files with other names are skipped.

    Each tile takes about 30 bytes of memory. Metadata are read from ``metadata.json``.
    """

    def __init__(
        self, path: str | os.PathLike[str], scheme: str = "xyz", limits: Limits = DEFAULT_LIMITS
    ) -> None:
        check_scheme(scheme)
        self.href = parse_href(path).path
        self.label = shown(self.href, 200)
        self._scheme = scheme
        self._limits = limits
        if not Path(self.href).is_dir():
            raise ObjectNotFoundError("no such folder", where=self.label)
        suffixes: dict[str, int] = {}
        with translated({OSError: StorageError}, "the folder cannot be listed", where=self.label):
            found = list(_files(self.href, scheme, suffixes))
            files = np.array(found, np.int64).reshape(-1, 4)
        if not len(files):
            raise NotThisFormatError(
                "the folder holds no tiles", where=self.label, expected="files named z/x/y.ext"
            )
        self._suffixes = tuple(suffixes)
        z, x, y, suffix = np.ascontiguousarray(files.T)
        self._keys = z, x, y
        self._suffix = suffix.astype(np.int32)
        values = _document(Path(self.href), limits)
        self.hint = hinted(str(values.get("format", "")))
        low, high = scales_of(self._suffixes)
        said: TileSetMetadata = metadata_of(values, self.label, limits)
        self.metadata = replace(said, min_scale=low, max_scale=high)

    @property
    def identity(self) -> str:
        """Path, and a digest of names, sizes and times of the files."""
        seen, columns = hashlib.sha256(), (*self._keys, self._suffix)
        order = np.lexsort(columns)
        with translated(_READING, "the folder cannot be read", where=self.label):
            for z, x, y, code in zip(*(one[order].tolist() for one in columns), strict=True):
                path = self._path(z, x, y, self._suffixes[code])
                status = os.stat(path)  # noqa: PTH116 - a string, maybe a million
                seen.update(os.fsencode(f"{path}\0{status.st_size}\0{status.st_mtime_ns}\n"))
        return json.dumps(["folder", self.href, self._scheme, seen.hexdigest()])

    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles, with the modification times of their files."""
        values, times = [], []
        z, x, y = (column[rows] for column in self._keys)
        codes = self._suffix[rows]
        files = zip(z.tolist(), x.tolist(), y.tolist(), codes.tolist(), strict=True)
        for zoom, column, row, code in files:
            data, modified = self._read_one(zoom, column, row, self._suffixes[code])
            values.append(data)
            times.append(modified)
        when = np.array(times, np.int64)
        return Tiles(z, x, y, values, suffix=codes, suffixes=self._suffixes, modified=when)

    def _path(self, z: int, x: int, y: int, suffix: str) -> str:
        first, second = _turned(self._scheme, z, x, y)
        return f"{self.href}/{z}/{first}/{second}{suffix}"

    def _read_one(self, z: int, x: int, y: int, suffix: str) -> tuple[bytes, int]:
        path = self._path(z, x, y, suffix)
        with translated(_READING, "the tile cannot be read", where=shown(path, 200)):
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
            raise ObjectChangedError(
                "the tile was changed while it was read", where=shown(path, 200)
            )
        return data, status.st_mtime_ns // 10**9


def _files(path: str, scheme: str, suffixes: dict[str, int]) -> Iterator[_File]:
    for z, zoom in _folders(path):
        if z > MAX_ZOOM:
            continue
        last = (1 << z) - 1
        for number, folder in _folders(zoom):
            for name, suffix in _names(folder):
                x, y = _turned(scheme, z, number, name)
                if 0 <= x <= last and 0 <= y <= last:
                    yield _File(z, x, y, suffixes.setdefault(suffix, len(suffixes)))


def _names(folder: str) -> Iterator[tuple[int, str]]:
    """The numbers and suffixes of the files with names of tiles."""
    with os.scandir(folder) as entries:
        for entry in entries:
            match = _FILE.fullmatch(entry.name)
            if match is not None and entry.is_file():
                yield int(match[1]), match[2]


def _folders(path: str) -> list[tuple[int, str]]:
    """The numbers and paths of the folders whose names are numbers."""
    with os.scandir(path) as entries:
        found = [entry for entry in entries if _NUMBER.fullmatch(entry.name) and entry.is_dir()]
        return sorted((int(entry.name), entry.path) for entry in found)


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
    said: TileSetMetadata,
    choice: Choice,
    *,
    overwrite: bool,
    source: Any,
    scheme: str = "xyz",
) -> Iterator[TileSink]:
    """Files in a scheme and a ``metadata.json``; gzip of vector tiles stays."""
    made: set[str] = set()
    with new_folder(path, overwrite, _KIND, source) as folder:

        def add(tiles: Tiles) -> None:
            with system_errors("cannot write", path):
                _write(os.fspath(folder), tiles, scheme, made)

        yield add
        values = json_values(said, choice.ext if len(choice.exts) == 1 else None)
        with system_errors("cannot write", path):
            (folder / _METADATA).write_text(json.dumps(values, indent=1) + "\n")


def _owns(name: str) -> bool:
    fits = zip((_NUMBER, _NUMBER, _FILE), name.split("/"), strict=False)
    inside = name.count("/") == 2 and all(pattern.fullmatch(part) for pattern, part in fits)
    return inside or name == _METADATA


def _claim(path: Path) -> Owns | None:
    return _owns if (path / _METADATA).is_file() else None


_KIND = Kind(f"a folder of tiles with {_METADATA}", _claim)


def _write(folder: str, tiles: Tiles, scheme: str, made: set[str]) -> None:
    assert tiles.suffix is not None
    columns = (tiles.z, tiles.x, tiles.y, tiles.suffix)
    rows = zip(*(column.tolist() for column in columns), tiles.payloads, strict=True)
    for z, x, y, code, payload in rows:
        first, second = _turned(scheme, z, x, y)
        place = f"{folder}/{z}/{first}"
        if place not in made:
            os.makedirs(place, exist_ok=True)  # noqa: PTH103 - a string, a hundred thousand times
            made.add(place)
        name = f"{place}/{second}{tiles.suffixes[code]}"
        descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            left = memoryview(payload)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
