"""Opening one file, several files as one raster, or a folder of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from comal.errors import InvalidInputError, InvalidMetadataError, ObjectNotFoundError, naming
from comal.limits import DEFAULT_LIMITS, MIB, Limits
from comal.parallel import in_thread, side_by_side
from comal.plan import run
from comal.raquet import spec
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.store import TileStore
from comal.raquet.reading.tilefile import TileFile, file_plan
from comal.raquet.spec import Metadata
from comal.storage import Source, StorageConfig, as_source

Location = str | os.PathLike[str] | Source

CACHE = 64 * MIB
SUFFIX = ".parquet"
_FEW = 64
"""Files whose last 64 KiB may stay in memory."""


def open(  # noqa: A001 - the name users expect: raquet.open
    path: Location | Sequence[Location],
    *,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
    cache_bytes: int = CACHE,
    byte_interleaved: bool = False,
) -> RaquetFile:
    """Open a RaQuet file of any version, or a partitioned set of them as one raster.

    Opening reads the end of the file, and the rest of the page index if it is longer. In files
    that comal wrote, a tile is then one exact range per band. In other files the column chunk
    that holds the tile is read and cached.

    Parameters
    ----------
    path
        Path or URL of a file, a list of them, or a folder whose ``*.parquet`` are opened together
        (as a URL, with a slash at its end). An open `Source` is used as it is.
    config
        Settings of remote storage.
    limits
        Caps on the memory that a file can make a reader use.
    cache_bytes
        Size of the cache of decoded tiles in bytes; the cache of column chunks has the same size.
    byte_interleaved
        For interleaved files of one writer with types wider than a byte, in which the bytes of
        the bands are interleaved instead of their values.

    Raises
    ------
    ObjectNotFoundError, AccessDeniedError, StorageError
        The file does not exist or cannot be read.
    NotThisFormatError, UnsupportedVersionError
        The file has another format, or a newer major version.
    InvalidMetadataError
        The content is broken, or files of a set do not belong together.
    LimitExceededError
        The content is larger than the limits allow.
    """

    def part_of(source: Source) -> TileFile:
        with naming(source.href if len(sources) > 1 else ""):
            return run(file_plan(source.href, limits, alone=len(sources) > _FEW), source.fetch)

    sources = sources_of(path, config)
    remote = any(not source.location.is_local for source in sources)
    parts = side_by_side([partial(part_of, source) for source in sources], remote=remote)
    store = TileStore(
        sources,
        parts,
        together(parts),
        limits=limits,
        cache_bytes=cache_bytes,
        byte_interleaved=byte_interleaved,
    )
    return RaquetFile(store)


@contextmanager
def borrowed(
    source: Any, config: StorageConfig | None = None, limits: Limits = DEFAULT_LIMITS
) -> Iterator[RaquetFile]:
    """An open raster as it is; anything else is opened, and closed at the end.

    Raises
    ------
    InvalidInputError
        The source is not a raster, path, URL or list of these.
    ComalError
        As for `open`.
    """
    if isinstance(source, RaquetFile):
        yield source
        return
    if not isinstance(source, str | os.PathLike | Sequence) or not source:
        raise InvalidInputError("not a RaQuet file", found=type(source).__name__, expected="a path")
    with open(source, config=config, limits=limits) as file:
        yield file


async def open_async(
    path: Location | Sequence[Location],
    *,
    config: StorageConfig | None = None,
    limits: Limits = DEFAULT_LIMITS,
    cache_bytes: int = CACHE,
    byte_interleaved: bool = False,
) -> RaquetFile:
    """As `open`, without blocking the event loop."""
    return await in_thread(
        open,
        path,
        config=config,
        limits=limits,
        cache_bytes=cache_bytes,
        byte_interleaved=byte_interleaved,
    )


# -- sources --------------------------------------------------------------------------------------


def sources_of(path: Location | Sequence[Location], config: StorageConfig | None) -> list[Source]:
    """The source of every named file; no file is read yet."""
    if isinstance(path, Sequence) and not isinstance(path, str | bytes | bytearray):
        if not path:
            raise InvalidInputError("nothing to open", expected="at least one path")
        return [source for one in path for source in sources_of(one, config)]
    source = as_source(path, config=config)
    if isinstance(path, str | os.PathLike) and _is_folder(os.fspath(path), source):
        return _in_folder(source)
    return [source]


def _is_folder(path: str, source: Source) -> bool:
    return path.endswith("/") or ("://" not in source.href and os.path.isdir(source.href))  # noqa: PTH112 - hrefs are strings


def _in_folder(source: Source) -> list[Source]:
    names = [name for name in source.names() if name.endswith(SUFFIX) and name[0] not in "._"]
    if not names:
        raise ObjectNotFoundError(f"no *{SUFFIX} in the folder", where=source.href)
    return [source.child(name) for name in names]


# -- sets of files --------------------------------------------------------------------------------


def together(parts: Sequence[TileFile]) -> Metadata:
    """The metadata of a set of files, which must have the same tile size, compression and bands."""
    first = parts[0].metadata
    for part in parts[1:]:
        other = part.metadata
        for name in ("block_width", "block_height", "compression", "layout"):
            if getattr(other, name) != getattr(first, name):
                raise _apart(parts[0], part, name, getattr(other, name), getattr(first, name))
        bands = [
            [(band.name, band.dtype, repr(band.nodata)) for band in one.bands]
            for one in (first, other)
        ]
        if bands[0] != bands[1]:
            raise _apart(parts[0], part, "bands", bands[1], bands[0])
    if len(parts) == 1:
        return first
    every = [part.metadata for part in parts]
    counts = [one.num_blocks for one in every]
    west, south, east, north = zip(*(one.bounds for one in every), strict=True)
    return replace(
        first,
        processing={key: value for key, value in first.processing.items() if key != spec.PART},
        min_zoom=min(one.min_zoom for one in every),
        max_zoom=max(one.max_zoom for one in every),
        bounds=(min(west), min(south), max(east), max(north)),
        num_blocks=None if None in counts else sum(count or 0 for count in counts),
    )


def _apart(
    first: TileFile, part: TileFile, name: str, found: object, expected: object
) -> InvalidMetadataError:
    return InvalidMetadataError(
        "the files do not belong to one raster",
        where=f"{first.where} and {part.where}: {name}",
        found=str(found)[:200],
        expected=str(expected)[:200],
    )
