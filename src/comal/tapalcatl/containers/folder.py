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
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
from comal.parallel import cached_property
from comal.plan import Whole
from comal.storage.location import StorePath, parse_href, stored
from comal.storage.opening import open_source
from comal.storage.source import ObjectInfo, Source
from comal.storage.targetlock import Owns
from comal.storage.targets import Kind, new_folder
from comal.tapalcatl.containers.base import IndexedSource, Tiles
from comal.tapalcatl.containers.content import hinted, json_values, metadata_of
from comal.tapalcatl.containers.survey import Choice, TileSink
from comal.tapalcatl.spec import MAX_ZOOM, TileSetMetadata
from comal.tapalcatl.wire import Int64s, scales_of

SCHEMES: Final = ("xyz", "tms", "zyx")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")
_SCALE: Final = r"@(?=[0-9.]*[1-9])[0-9]{1,6}(?:\.[0-9]{1,6})?x"
_LISTING: Final = b"comal:listing"
_FILE: Final = re.compile(rf"({_NUMBER.pattern})((?:{_SCALE})?(?:\.[0-9A-Za-z_+-]{{1,32}})?)")
_OBJECT: Final = re.compile(rf"({_NUMBER.pattern})/({_NUMBER.pattern})/{_FILE.pattern}")
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


_UNSEEN: Final = -1
"""The size of a file that was listed by its name alone."""


class _File(NamedTuple):
    z: int
    x: int
    y: int
    suffix: int
    size: int = _UNSEEN
    modified: int = 0
    """Since 1970 UTC, in seconds in a store and in nanoseconds on a disk."""


Rows = npt.NDArray[np.int64]
"""A row of numbers for each file."""


def _rows(files: Iterable[_File]) -> Rows:
    return np.array(list(files), np.int64).reshape(-1, len(_File._fields))


class Loose(IndexedSource):
    """Loose tiles, which were listed when they were opened, or before: see `listing`."""

    def __init__(
        self,
        place: Location,
        scheme: str = "xyz",
        limits: Limits = DEFAULT_LIMITS,
        listed: Any = None,
    ) -> None:
        check_scheme(scheme)
        where = parse_href(place)
        self.href = where.path if where.is_local else where.href
        self.label = shown(where.path, 200) if where.is_local else where.label
        self._place, self._scheme, self._limits = place, scheme, limits
        self._codes: dict[str, int] = {}
        if listed is None:
            self._hold(*self._find())
            return
        told = json.loads(listed.schema.metadata[_LISTING])
        self._codes = {suffix: code for code, suffix in enumerate(told["suffixes"])}
        columns = [column.to_numpy() for column in listed.columns]
        self._hold(np.stack(columns, 1).astype(np.int64), told["said"])

    @abstractmethod
    def _find(self) -> tuple[Rows, dict[str, Any]]:
        """List the files; also returns what a document says."""

    def _file(self, z: int, first: int, second: int, suffix: str, *version: int) -> Iterator[_File]:
        """The tile with these numbers in its name, if the pyramid has it."""
        if z <= MAX_ZOOM:
            x, y = _turned(self._scheme, z, first, second)
            if 0 <= x < 1 << z and 0 <= y < 1 << z:
                code = self._codes.setdefault(suffix, len(self._codes))
                yield _File(z, x, y, code, *version)

    def listing(self) -> Any:
        """What was listed, as an Arrow table from which the source can be opened again."""
        versions = self._versions(np.arange(len(self._suffix)))
        columns = zip(_File._fields, (*self._keys, self._suffix, *versions), strict=True)
        told = {"suffixes": self._suffixes, "said": self._said}
        return pa.table(dict(columns)).replace_schema_metadata({_LISTING: json.dumps(told)})

    def _hold(self, found: Rows, said: Mapping[str, Any]) -> None:
        """Take over what was listed."""
        self._said = said
        if not len(found):
            raise NotThisFormatError(
                "the folder holds no tiles", where=self.label, expected="files named z/x/y.ext"
            )
        # Sorted, as the order of a folder differs from disk to disk, and that of entries must not.
        self._suffixes = tuple(sorted(self._codes))
        codes = np.array([self._suffixes.index(suffix) for suffix in self._codes], np.int32)
        self._keys = found[:, 0].copy(), found[:, 1].copy(), found[:, 2].copy()
        self._suffix = codes[found[:, 3]]
        self._known = None if found[0, 4] == _UNSEEN else found[:, 4:].copy()
        self.hint = hinted(str(said.get("format", "")))
        low, high = scales_of(self._suffixes)
        own: TileSetMetadata = metadata_of(said, self.label, self._limits)
        self.metadata = replace(own, min_scale=low, max_scale=high)

    def _names(self, rows: Int64s) -> list[str]:
        """The names of some tiles below the folder."""
        numbers = [column[rows].tolist() for column in (*self._keys, self._suffix)]
        named = []
        for z, x, y, code in zip(*numbers, strict=True):
            first, second = _turned(self._scheme, z, x, y)
            named.append(f"{z}/{first}/{second}{self._suffixes[code]}")
        return named

    def _tiles(self, rows: Int64s, payloads: list[bytes], modified: Any) -> Tiles:
        z, x, y = (column[rows] for column in self._keys)
        codes, when = self._suffix[rows], np.asarray(modified, np.int64)
        return Tiles(z, x, y, payloads, suffix=codes, suffixes=self._suffixes, modified=when)

    @property
    def identity(self) -> str:
        """Path, and a digest of names, sizes and times of the files."""
        seen, rows = hashlib.sha256(), np.lexsort((*self._keys, self._suffix))
        for one in zip(self._names(rows), *self._versions(rows), strict=True):
            seen.update(os.fsencode("\0".join(map(str, one)) + "\n"))
        return json.dumps(["folder", self.href, self._scheme, seen.hexdigest()])

    def _versions(self, rows: Int64s) -> tuple[Iterable[int], Iterable[int]]:
        """Size and time of some tiles."""
        assert self._known is not None
        size, modified = self._known[rows].T.tolist()
        return size, modified


class Folder(Loose):
    """The tiles of a local folder with a folder per zoom; files with other names are skipped.

    Each tile takes about 30 bytes of memory. Metadata are read from ``metadata.json``.
    """

    def _find(self) -> tuple[Rows, dict[str, Any]]:
        if not Path(self.href).is_dir():
            raise ObjectNotFoundError("no such folder", where=self.label)
        with translated({OSError: StorageError}, "the folder cannot be listed", where=self.label):
            return _rows(self._listed()), _document(Path(self.href), self._limits)

    def _listed(self) -> Iterator[_File]:
        for z, zoom in _folders(self.href):
            for number, folder in _folders(zoom):
                for name, suffix in _names(folder):
                    yield from self._file(z, number, name, suffix)

    def _versions(self, rows: Int64s) -> tuple[Iterable[int], Iterable[int]]:
        if self._known is not None:
            return super()._versions(rows)
        with translated(_READING, "the folder cannot be read", where=self.label):
            paths = (f"{self.href}/{name}" for name in self._names(rows))
            found = [os.stat(path) for path in paths]  # noqa: PTH116 - strings, maybe a million
        return [one.st_size for one in found], [one.st_mtime_ns for one in found]

    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles, with the modification times of their files."""
        paths = [f"{self.href}/{name}" for name in self._names(rows)]
        found = [self._read_one(path) for path in paths]
        if self._known is not None:
            for path, (data, time), known in zip(paths, found, self._known[rows], strict=True):
                if [len(data), time] != known.tolist():
                    what = "the tile has changed since it was listed"
                    raise ObjectChangedError(what, where=shown(path, 200))
        times = [time // 10**9 for _, time in found]
        return self._tiles(rows, [data for data, _ in found], times)

    def _read_one(self, path: str) -> tuple[bytes, int]:
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
        return data, status.st_mtime_ns


class StoredFolder(Loose):
    """The tiles of a folder in a store, as `Folder`.

    They are listed once, a thousand a request, and take about 50 bytes of memory each. Only the
    versions that were listed are read, as far as size and time tell.
    """

    @cached_property
    def _source(self) -> Source:
        return open_source(self._place)

    def _find(self) -> tuple[Rows, dict[str, Any]]:
        from comal.storage.storeobject import StoreObject  # noqa: PLC0415 - it loads obstore

        self._source.stat()  # an error if there is nothing
        blocks = StoreObject(cast("StorePath", self._place)).listed(
            lambda some: _rows(self._among(some))
        )
        return np.concatenate([_rows(()), *blocks]), self._document()

    def _among(self, some: Mapping[str, Any]) -> Iterator[_File]:
        """The tiles among some objects."""
        for name, meta in some.items():
            match = _OBJECT.fullmatch(name)
            if match is not None:
                z, first, second = map(int, match.group(1, 2, 3))
                version = meta["size"], int(meta["last_modified"].timestamp())
                yield from self._file(z, first, second, match[4], *version)

    def _document(self) -> dict[str, Any]:
        for name in _DOCUMENTS:
            with suppress(ObjectNotFoundError):
                (piece,) = self._source.fetch([Whole(self._limits.json_bytes, name)])
                return strictjson.loads(piece.data, f"{self.label}/{name}", self._limits)
        return {}

    def read_rows(self, rows: Int64s) -> Tiles:
        """Some tiles, with the times of their objects; they are requested side by side."""
        source = self._source.at(self._source.location, fresh=True)
        names, (sizes, times) = self._names(rows), self._versions(rows)
        for name, size, modified in zip(names, sizes, times, strict=True):
            href = source.resolve(name).href
            source.pins.expect(ObjectInfo(href, size, None, modified * 10**9))
        try:
            pieces = source.fetch([Whole(self._limits.tile_bytes, name) for name in names])
        except ObjectNotFoundError as error:
            raise ObjectChangedError("a tile is gone that was listed", where=error.where) from error
        return self._tiles(rows, [piece.data for piece in pieces], times)


def loose(href: Location, scheme: str = "xyz", listed: Any = None) -> Loose:
    """The folder at a path or URL, maybe as it was `listed` before."""
    place = parse_href(href)
    if place.is_local:
        return Folder(href, scheme, listed=listed)
    return StoredFolder(stored(href) or StorePath(place), scheme, listed=listed)


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
        values = json_values(choice.described(said), choice.ext if len(choice.exts) == 1 else None)
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
