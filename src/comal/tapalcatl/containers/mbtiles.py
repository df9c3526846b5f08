"""MBTiles: tiles in a SQLite table, rows counted from the south, metadata as names and values.

Files are opened read-only and never locked. A foreign database cannot run code: its functions and
views are not trusted (``trusted_schema``).
"""

from __future__ import annotations

import io
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import quote

import numpy as np

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.storage.location import parse_href
from comal.storage.targets import file_kind, new_file
from comal.tapalcatl.containers.base import Square, Tiles, TileSource, empty_tiles
from comal.tapalcatl.containers.content import hinted, mbtiles_rows, metadata_of
from comal.tapalcatl.containers.survey import Choice, TileSink
from comal.tapalcatl.spec import MAX_ZOOM, TileSetMetadata
from comal.tapalcatl.wire import Keys

_ROWS: Final = 65_536
Location = str | os.PathLike[str]
_ERRORS: dict[type[BaseException], type[ComalError]] = {
    sqlite3.DataError: LimitExceededError,
    sqlite3.DatabaseError: InvalidMetadataError,
    OverflowError: InvalidMetadataError,
}
_DISK: dict[type[BaseException], type[ComalError]] = {sqlite3.Error: StorageError}
_TILES = "SELECT zoom_level, tile_column, tile_row{data} FROM {table}"
_END = "SELECT {end}(zoom_level) FROM {table}"
_UNFINISHED = (
    "a writer is at work or was killed: let it finish, or open the file once with sqlite3, which"
    " undoes what was not finished"
)
_PARTS = (
    "(SELECT m.zoom_level, m.tile_column, m.tile_row, i.tile_data"
    " FROM map m JOIN images i ON i.tile_id = m.tile_id)"
)


class MBTiles(TileSource):
    """The tiles of an MBTiles file."""

    def __init__(self, path: str | os.PathLike[str], limits: Limits = DEFAULT_LIMITS) -> None:
        self.href = parse_href(path).path
        self.label = shown(self.href, 200)
        self._limits = limits
        self._idle: list[tuple[int, sqlite3.Connection]] = []
        with translated({FileNotFoundError: ObjectNotFoundError}, "no such file", where=self.label):
            self._seen = _version(self.href)
        self.modified = self._seen[1] // 10**9
        self._table = self._find_table()
        values = self._values()
        self.hint = hinted(values.get("format"))
        self.metadata = metadata_of(values, self.label, limits)

    @property
    def identity(self) -> str:
        """Path, size and time of the file."""
        return json.dumps(["mbtiles", self.href, *self._seen])

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None if there are no tiles."""
        with self._reading() as database:
            # Two queries: the index of the table answers min or max, but not both at once.
            ends = [
                database.execute(_END.format(end=end, table=self._table)).fetchone()[0]
                for end in ("min", "max")
            ]
        if ends[0] is None:
            return None
        z, _, _ = self._keys([(zoom, 0, 0) for zoom in ends])
        return int(z[0]), int(z[1])

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks, rows counted from the north."""
        with self._reading() as database:
            cursor = database.execute(_TILES.format(data="", table=self._table))
            while rows := cursor.fetchmany(_ROWS):
                yield self._keys(rows)

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        z, x, y, side = square
        last = (1 << z) - 1 - y
        # The index of the table finds one range of rows per column.
        columns = ", ".join("?" * side)
        query = (
            _TILES.format(data=", tile_data", table=self._table)
            + f" WHERE zoom_level = ? AND tile_column IN ({columns})"
            + " AND tile_row BETWEEN ? AND ?"
        )
        values = (z, *range(x, x + side), last - side + 1, last)
        with self._reading() as database:
            rows = database.execute(query, values).fetchall()
        if not rows:
            return empty_tiles()
        keys = self._keys([row[:3] for row in rows])
        return Tiles(*keys, self._payloads(rows)).ordered()

    def verify(self) -> None:
        """Raise `ObjectChangedError` if the file's size or time changed since it was opened."""
        if _version(self.href) != self._seen:
            raise ObjectChangedError("the file was changed while it was read", where=self.label)

    def close(self) -> None:
        """Close the connections."""
        while self._idle:
            self._idle.pop()[1].close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": []}

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that no other thread uses meanwhile."""
        with translated(_ERRORS, "the database cannot be read", where=self.label):
            try:
                process, database = self._idle.pop()
            except IndexError:
                process = -1
            if process != os.getpid():  # a process that was forked opens its own
                database = _connect(self.href, self._limits)
            try:
                yield database
            finally:
                self._idle.append((os.getpid(), database))

    def _find_table(self) -> str:
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
        try:
            with self._reading() as database:
                names = {row[0] for row in database.execute(query)}
        except InvalidMetadataError as error:
            if _size(self.href + "-journal"):
                error.hint = _UNFINISHED
                raise
            raise NotThisFormatError(
                "not an MBTiles file", where=self.label, found=error.found
            ) from error
        if "tiles" in names:
            return "tiles"
        if {"map", "images"} <= names:
            return _PARTS
        raise NotThisFormatError(
            "the database holds no tiles", where=self.label, expected="a table or view 'tiles'"
        )

    def _values(self) -> dict[str, str]:
        query = "SELECT name, value FROM metadata"
        try:
            with self._reading() as database:
                rows = database.execute(query).fetchmany(1_000)
        except InvalidMetadataError as error:
            if "no such table" in str(error.found):
                return {}
            raise
        return {str(name): str(value) for name, value in rows if value is not None}

    def _keys(self, rows: list[Any]) -> Keys:
        try:
            z, x, row = np.array(rows, np.int64).T
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidMetadataError(
                "the tile has a zoom, column or row that is not a number", where=self.label
            ) from error
        levels = (z >= 0) & (z <= MAX_ZOOM)
        last = (1 << np.where(levels, z, 0)) - 1
        good = levels & (x >= 0) & (x <= last) & (row >= 0) & (row <= last)
        if not good.all():
            bad = int(np.argmin(good))
            raise InvalidMetadataError(
                "the tile lies outside its zoom",
                where=self.label,
                found=f"{z[bad]}/{x[bad]}/{row[bad]}",
            )
        return z, x, last - row

    def _payloads(self, rows: list[Any]) -> list[bytes]:
        values = [row[3] for row in rows]
        if set(map(type, values)) != {bytes}:
            bad = next(row for row in rows if not isinstance(row[3], bytes))
            raise InvalidMetadataError(
                "the tile has no bytes",
                where=f"{self.label}, zoom {bad[0]}, column {bad[1]}, row {bad[2]}",
                found=type(bad[3]).__name__,
            )
        return values


def _version(path: str) -> tuple[int, int, int]:
    """Size and time of the file, and the size of its log, which grows with each commit."""
    status = os.stat(path)  # noqa: PTH116 - a string already
    return status.st_size, status.st_mtime_ns, _size(path + "-wal")


def _size(path: str) -> int:
    """Bytes of a file, 0 if there is none."""
    try:
        return os.stat(path).st_size  # noqa: PTH116 - a string already
    except OSError:
        return 0


def _connect(path: str, limits: Limits) -> sqlite3.Connection:
    # Without locks, unless a log or a journal says that the file alone is not the whole truth.
    live = any(_size(path + end) for end in ("-wal", "-journal"))
    uri = f"file:{quote(path)}?mode=ro" + ("" if live else "&immutable=1")
    database = sqlite3.connect(uri, uri=True, check_same_thread=False)
    database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, limits.tile_bytes)
    database.execute("PRAGMA trusted_schema = OFF")
    database.execute("PRAGMA query_only = ON")
    # Read, not mapped: truncating a mapped file would kill the process.
    database.execute("PRAGMA mmap_size = 0")
    return database


@contextmanager
def mbtiles_sink(
    path: Location, said: TileSetMetadata, choice: Choice, *, overwrite: bool, source: Any
) -> Iterator[TileSink]:
    """MBTiles 1.3, byte for byte; gzip of vector tiles stays."""
    with (
        new_file(path, overwrite, _KIND, source) as file,
        translated(_DISK, "the database cannot be written", where=shown(str(path), 200)),
        closing(sqlite3.connect(file.path)) as database,
    ):
        # The file has no name yet: no rollback is needed, and `new_file` makes it durable.
        for line in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            database.execute(f"PRAGMA {line}")
        database.execute("CREATE TABLE metadata (name TEXT, value TEXT)")
        database.execute(
            "CREATE TABLE tiles (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER,"
            " tile_data BLOB)"
        )

        def add(tiles: Tiles) -> None:
            rows = (1 << tiles.z) - 1 - tiles.y
            columns = (tiles.z.tolist(), tiles.x.tolist(), rows.tolist(), tiles.payloads)
            database.executemany(
                "INSERT INTO tiles VALUES (?, ?, ?, ?)", zip(*columns, strict=True)
            )

        yield add
        database.execute(
            "CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)"
        )
        values = mbtiles_rows(choice.described(said), choice.ext, Path(path).stem)
        database.executemany("INSERT INTO metadata VALUES (?, ?)", values.items())
        database.commit()


def _is_mbtiles(file: BinaryIO) -> bool:
    """Whether a file is SQLite with the tables that MBTiles requires."""
    head = file.read(MIB)
    if not head.startswith(b"SQLite format 3\0"):
        return False
    # The names of tables are at the beginning; SQLite also compares the size.
    with tempfile.NamedTemporaryFile() as copy, ExitStack() as scope:
        copy.write(head)
        copy.truncate(file.seek(0, io.SEEK_END))
        uri = f"file:{quote(copy.name)}?mode=ro&immutable=1"
        database = scope.enter_context(closing(sqlite3.connect(uri, uri=True)))
        try:
            rows = database.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.Error:
            return False
    return {"tiles", "metadata"} <= {name for (name,) in rows}


_KIND = file_kind("an MBTiles file", _is_mbtiles)
