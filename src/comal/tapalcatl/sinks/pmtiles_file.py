"""Tiles into PMTiles 3.

The library's writer copies all tiles through a temporary file, trusts a hash that may collide and
keeps an object for each tile. Here tiles go to their place at once: header and root directory have
the first 16 KiB, metadata, tiles and leaf directories follow.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from array import array
from contextlib import ExitStack
from typing import Any, BinaryIO, Final

import numpy as np

from comal.errors import InvalidInputError, LimitExceededError, MissingExtraError
from comal.progress import Progress, silent
from comal.storage.endings import check_ending
from comal.storage.targets import new_file
from comal.tapalcatl.kinds import PMTILES
from comal.tapalcatl.sinks.describing import json_values
from comal.tapalcatl.sinks.plain import Choice, Pyramid, plain_tiles, pyramid
from comal.tapalcatl.sinks.summary import Exported
from comal.tapalcatl.sources.base import Tiles
from comal.tapalcatl.sources.hilbert import tile_ids
from comal.tapalcatl.sources.opening import opened

_HEADER: Final = 127
_ROOT: Final = 16_384
"""Header and root directory lie in so many bytes (PMTiles 3, section 2)."""
_LEAF: Final = 4_096
_SAME: Final = 4_096
"""Tiles up to this length are looked for among those that are there: what repeats is small."""
_KNOWN: Final = 1 << 18
_TYPES: Final = {"mvt": 1, "pbf": 1, "png": 2, "jpg": 3, "jpeg": 3, "webp": 4, "avif": 5, "mlt": 6}


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
    MissingExtraError
        The library of that format is not installed.
    ConflictError
        `path` exists.
    """
    library = _library()
    check_ending(path, ".pmtiles")
    with ExitStack() as scope:
        found = pyramid(opened(source, scope))
        choice = Choice(ext, scale)
        file = scope.enter_context(new_file(path, overwrite, PMTILES, source))
        metadata = gzip.compress(json.dumps(_document(found)).encode(), mtime=0)
        file.write(bytes(_ROOT) + metadata)
        body = _Body(file)
        tiles = plain_tiles(
            found, choice, progress or silent, "writing tiles", lambda keys: tile_ids(*keys)
        )
        for part in tiles:
            body.add(part)
        if not body.addressed:
            raise InvalidInputError("no tile of that kind", where=found.source.label)
        root, leaves = _directories(library, *body.columns())
        file.write(leaves)
        start = _ROOT + len(metadata)
        header = {
            **_places(found),
            "root_offset": _HEADER,
            "root_length": len(root),
            "metadata_offset": _ROOT,
            "metadata_length": len(metadata),
            "tile_data_offset": start,
            "tile_data_length": body.length,
            "leaf_directory_offset": start + body.length,
            "leaf_directory_length": len(leaves),
            "addressed_tiles_count": body.addressed,
            "tile_entries_count": body.entries,
            "tile_contents_count": body.contents,
            "clustered": True,
            "internal_compression": library.Compression.GZIP,
            "tile_compression": library.Compression(_compression(choice)),
            "tile_type": library.TileType(_TYPES.get(choice.ext, 0)),
        }
        file.seek(0)
        file.write(library.serialize_header(header) + root)
    return Exported(os.fspath(path), body.addressed, choice.ext, found.min_zoom, found.max_zoom)


def _library() -> Any:
    try:
        from pmtiles import tile  # noqa: PLC0415 - optional, needed for this format only
    except ImportError as error:
        raise MissingExtraError.of("pmtiles", "pmtiles", "writing PMTiles") from error
    return tile


def _document(found: Pyramid) -> dict[str, Any]:
    """Metadata beside those of the header."""
    values = json_values(found.metadata, None)
    for key in ("minzoom", "maxzoom", "bounds", "center"):
        values.pop(key, None)
    return values


def _places(found: Pyramid) -> dict[str, Any]:
    """Zooms, box and centre; decimal degrees times ten million, rounded outward."""
    west, south, east, north = found.bounds
    center = found.source.metadata.extra.get("center")
    if not isinstance(center, list) or len(center) < 2:
        center = [(west + east) / 2, (south + north) / 2]
    zoom = int(center[2]) if len(center) > 2 else found.min_zoom
    return {
        "min_zoom": found.min_zoom,
        "max_zoom": found.max_zoom,
        "min_lon_e7": int(np.floor(west * 1e7)),
        "min_lat_e7": int(np.floor(south * 1e7)),
        "max_lon_e7": int(np.ceil(east * 1e7)),
        "max_lat_e7": int(np.ceil(north * 1e7)),
        "center_zoom": min(max(zoom, 0), 255),
        "center_lon_e7": round(center[0] * 1e7),
        "center_lat_e7": round(center[1] * 1e7),
    }


def _compression(choice: Choice) -> int:
    if choice.gzipped == {True}:
        return 2
    return 1 if choice.gzipped == {False} else 0


class _Body:
    """The tiles in the file, and the entries that lead to them: 32 bytes each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ids, self._runs, self._lengths, self._offsets = (array("q") for _ in range(4))
        self._known: dict[bytes, int] = {}
        self.length = 0
        """Bytes of all contents."""
        self.addressed = 0
        """Tiles."""
        self.contents = 0
        """Different contents, as far as they were told apart."""

    @property
    def entries(self) -> int:
        """Entries of directories."""
        return len(self._ids)

    def add(self, tiles: Tiles) -> None:
        """Add tiles that come by their ids."""
        ids = tile_ids(tiles.z, tiles.x, tiles.y).tolist()
        fresh: list[bytes] = []
        for tile_id, payload in zip(ids, tiles.payloads, strict=True):
            offset = self._place(payload, fresh)
            self._enter(tile_id, offset, len(payload))
        self._file.write(b"".join(fresh))
        self.addressed += len(ids)

    def columns(self) -> tuple[Any, Any, Any, Any]:
        """Ids, runs, lengths and offsets."""
        return self._ids, self._runs, self._lengths, self._offsets

    def _place(self, payload: bytes, fresh: list[bytes]) -> int:
        digest = None
        if len(payload) <= _SAME:
            digest = hashlib.blake2b(payload, digest_size=20).digest()
            if digest in self._known:
                return self._known[digest]
        offset = self.length
        fresh.append(payload)
        self.length += len(payload)
        self.contents += 1
        if digest is not None and len(self._known) < _KNOWN:
            self._known[digest] = offset
        return offset

    def _enter(self, tile_id: int, offset: int, length: int) -> None:
        if (
            self._ids
            and self._offsets[-1] == offset
            and self._lengths[-1] == length
            and self._ids[-1] + self._runs[-1] == tile_id
        ):
            self._runs[-1] += 1
            return
        self._ids.append(tile_id)
        self._runs.append(1)
        self._lengths.append(length)
        self._offsets.append(offset)


def _directories(
    library: Any, ids: Any, runs: Any, lengths: Any, offsets: Any
) -> tuple[bytes, bytes]:
    """The root directory, which fits into its room, and the leaves that it leads to."""

    def packed(start: int, stop: int) -> bytes:
        columns = (column[start:stop] for column in (ids, offsets, lengths, runs))
        rows = [library.Entry(*row) for row in zip(*columns, strict=True)]
        data: bytes = library.serialize_directory(rows)
        return data

    room = _ROOT - _HEADER
    count = len(ids)
    if count <= 4 * _LEAF:
        root = packed(0, count)
        if len(root) <= room:
            return root, b""
    size = _LEAF
    while size < 2 * count:
        leaves = [packed(start, min(start + size, count)) for start in range(0, count, size)]
        places = np.cumsum([0, *map(len, leaves)])[:-1].tolist()
        firsts = [ids[start] for start in range(0, count, size)]
        entries = [
            library.Entry(first, place, len(leaf), 0)
            for first, place, leaf in zip(firsts, places, leaves, strict=True)
        ]
        root = library.serialize_directory(entries)
        if len(root) <= room:
            return root, b"".join(leaves)
        size *= 2
    raise LimitExceededError("root directory of PMTiles does not fit into 16 KiB")
