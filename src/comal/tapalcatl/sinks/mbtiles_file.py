"""Tiles into MBTiles."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, BinaryIO

from comal.errors import ComalError, InvalidInputError, StorageError, shown, translated
from comal.progress import Progress, silent
from comal.storage.endings import check_ending
from comal.storage.kinds import file_kind
from comal.storage.targets import new_file
from comal.tapalcatl.sinks.describing import mbtiles_rows
from comal.tapalcatl.sinks.plain import Choice, plain_tiles, pyramid
from comal.tapalcatl.sinks.summary import Exported
from comal.tapalcatl.sources.base import Tiles
from comal.tapalcatl.sources.opening import opened

_DISK: dict[type[BaseException], type[ComalError]] = {sqlite3.Error: StorageError}


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
    with ExitStack() as scope:
        found = pyramid(opened(source, scope))
        choice = Choice(ext, scale)
        tiles = plain_tiles(found, choice, progress or silent, "writing tiles")
        file = scope.enter_context(new_file(path, overwrite, _KIND, source))
        with (
            translated(_DISK, "database cannot be written", where=shown(str(path), 200)),
            closing(sqlite3.connect(file.path)) as database,
        ):
            # The file has no name yet: nothing to roll back to, and it is made durable as a whole.
            for line in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
                database.execute(f"PRAGMA {line}")
            database.execute("CREATE TABLE metadata (name TEXT, value TEXT)")
            database.execute(
                "CREATE TABLE tiles (zoom_level INTEGER, tile_column INTEGER, tile_row INTEGER,"
                " tile_data BLOB)"
            )
            database.executemany("INSERT INTO tiles VALUES (?, ?, ?, ?)", _rows(tiles))
            database.execute(
                "CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)"
            )
            (count,) = database.execute("SELECT count(*) FROM tiles").fetchone()
            if not count:
                raise InvalidInputError("no tile of that kind", where=found.source.label)
            rows = mbtiles_rows(found.metadata, choice.ext, Path(path).stem)
            database.executemany("INSERT INTO metadata VALUES (?, ?)", rows.items())
            database.commit()
    return Exported(os.fspath(path), count, choice.ext, found.min_zoom, found.max_zoom)


def _rows(tiles: Iterator[Tiles]) -> Iterator[tuple[int, int, int, bytes]]:
    for part in tiles:
        rows = (1 << part.z) - 1 - part.y
        columns = (part.z.tolist(), part.x.tolist(), rows.tolist())
        yield from zip(*columns, part.payloads, strict=True)


def _is_mbtiles(file: BinaryIO) -> bool:
    """SQLite, with the tables that MBTiles asks for."""
    if not file.read(16).startswith(b"SQLite format 3\0"):
        return False
    uri = f"{Path(file.name).absolute().as_uri()}?mode=ro&immutable=1"
    with closing(sqlite3.connect(uri, uri=True)) as database:
        try:
            rows = database.execute("SELECT name FROM sqlite_master").fetchall()
        except sqlite3.Error:
            return False
    return {"tiles", "metadata"} <= {name for (name,) in rows}


_KIND = file_kind("an MBTiles file", _is_mbtiles)
