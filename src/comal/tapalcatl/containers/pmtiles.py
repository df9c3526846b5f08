"""PMTiles 3: tiles as ranges of one file, local or remote, along a Hilbert curve.

Directories are read once and cached within a budget. An aligned square is one stretch of the
curve, so in a clustered file a square of tiles is one range.

The writer of the pmtiles library copies all tiles through a temporary file, trusts a hash that may
collide and keeps an object for each tile. Here tiles are written to their final offset at once:
header and root directory take the first 16 KiB; metadata, tiles and leaf directories follow.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import numpy as np

from comal.errors import InvalidMetadataError, LimitExceededError, ObjectChangedError, shown
from comal.limits import DEFAULT_LIMITS, Limits
from comal.parallel import ByteCache
from comal.plan import ByteRange, Head
from comal.storage import Source, open_source
from comal.storage.targets import magic_kind, new_file
from comal.strictjson import loads
from comal.tapalcatl.addressing import turned
from comal.tapalcatl.containers.base import Square, Tiles, TileSource, empty_tiles
from comal.tapalcatl.containers.content import center_of, json_values, metadata_of
from comal.tapalcatl.containers.pmtileswire import (
    GZIP,
    HEADER_SIZE,
    LARGEST,
    PMDirectory,
    inflated,
    pack_directory,
    pack_header,
    parse_directory,
    parse_header,
    tile_ids,
    tiles_of,
)
from comal.tapalcatl.containers.survey import Choice, TileSink
from comal.tapalcatl.spec import TileSetMetadata
from comal.tapalcatl.wire import BASES, Int64s, Keys
from comal.ziparchive.local import runs

_HEAD: Final = 16_384
Location = str | os.PathLike[str]
_BUDGET: Final = 64 << 20
_EXTENSIONS: Final = {1: "mvt", 2: "png", 3: "jpg", 4: "webp", 5: "avif", 6: "mlt"}
_ENCODINGS: Final = {2: "gzip", 3: "br", 4: "zstd"}
_DEEPEST: Final = 3
_BLOCK: Final = 1 << 18


class PMTiles(TileSource):
    """The tiles of a PMTiles file."""

    def __init__(
        self, href: str | os.PathLike[str] | Source, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        opened = isinstance(href, str | os.PathLike)
        self._source: Source = open_source(href) if opened else href  # type: ignore[arg-type, assignment]
        self.href = self._source.href
        self.label = shown(self.href, 200)
        self._limits = limits
        self._kept: ByteCache[int, PMDirectory] = ByteCache(_BUDGET, keep_newest=True)
        (head,) = self._source.fetch([Head(_HEAD)])
        self._total = head.total
        self._header = parse_header(head.data, self.label)
        self._gzip = self._header["internal_compression"] == GZIP
        self._root = self._parsed(self._header["root_offset"], self._header["root_length"])
        self._stat = self._source.stat()
        when = self._stat.modified
        self.modified = None if when is None else when // 10**9
        self.hint = _EXTENSIONS.get(self._header["tile_type"])
        self.encoding = _ENCODINGS.get(self._header["tile_compression"])
        self.metadata = self._metadata()

    @property
    def identity(self) -> str:
        """URL, size and version of the file."""
        stat = self._stat
        return json.dumps(["pmtiles", self.href, stat.size, stat.etag, stat.modified])

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None if there are no tiles."""
        ends = [self._end(at) for at in (0, -1)]
        found = [tile_id for tile_id in ends if tile_id is not None]
        if len(found) < 2:
            return None
        z, _, _ = tiles_of(np.array(found))
        return int(z[0]), int(z[1])

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        for part in self._parts(self._root, 0, 0, np.iinfo(np.int64).max):
            for ids in _spread(part):
                yield tiles_of(ids)

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        z, x, y, side = square
        first = int(tile_ids(z, x, y)) - BASES[z]
        first = first - first % side**2 + BASES[z]
        stop = first + side**2
        found = [_clipped(part, first, stop) for part in self._parts(self._root, 0, first, stop)]
        ids, offsets, lengths = (np.concatenate(column) for column in zip(*found, strict=True))
        if not len(ids):
            return empty_tiles()
        self._limits.check("tile_bytes", int(lengths.max()), self.label)
        return Tiles(*tiles_of(ids), self._fetched(offsets, lengths)).ordered()

    def verify(self) -> None:
        """Raise `ObjectChangedError` if a local file changed; storage checks remote ones itself."""
        if "://" not in self.href and open_source(self.href).stat() != self._stat:
            raise ObjectChangedError("the file was changed while it was read", where=self.label)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _metadata(self) -> TileSetMetadata:
        header = self._header
        text = self._bytes(header["metadata_offset"], header["metadata_length"])
        if self._gzip and text:
            text = inflated(text, self._limits.json_bytes, f"{self.label}, metadata")
        values = loads(text, f"{self.label}, metadata", self._limits) if text.strip() else {}
        places = [header[name] / 1e7 for name in _PLACES]
        # Writers that do not know the bounds leave an empty box.
        known = places[0] < places[2] and places[1] < places[3]
        values = {
            **values,
            "bounds": places[:4] if known else values.get("bounds"),
            "minzoom": header["min_zoom"],
            "maxzoom": header["max_zoom"],
        }
        if known and (header["center_zoom"] or places[4] or places[5]):
            values["center"] = [*places[4:], header["center_zoom"]]
        return metadata_of(values, self.label, self._limits)

    def _bytes(self, offset: int, size: int) -> bytes:
        if offset + size > self._total:
            raise InvalidMetadataError(
                "the range reaches outside the file",
                where=self.label,
                found=f"{offset}+{size}",
                expected=f"at most {self._total}",
            )
        return self._source.fetch([ByteRange(offset, size)])[0].data if size else b""

    def _parsed(self, offset: int, size: int) -> PMDirectory:
        where = f"{self.label}, directory at {offset}"
        if size > LARGEST:
            raise InvalidMetadataError("the directory is too large", where=where, found=size)
        data = self._bytes(offset, size)
        return parse_directory(inflated(data, LARGEST, where) if self._gzip else data, where)

    def _leaf(self, offset: int, size: int) -> PMDirectory:
        leaf = self._kept.get(offset)
        if leaf is None:
            leaf = self._parsed(self._header["leaf_directory_offset"] + offset, size)
            self._kept.put(offset, leaf, leaf.size)
        return leaf

    def _end(self, at: int) -> int | None:
        """The first tile id, or the last one if `at` is -1."""
        directory = self._root
        for depth in range(_DEEPEST + 1):
            if not len(directory.ids):
                break
            run = int(directory.runs[at])
            if run:
                return int(directory.ids[at]) + (run - 1 if at else 0)
            directory = self._below(directory, at, depth)
        return None

    def _parts(
        self, directory: PMDirectory, depth: int, first: int, stop: int
    ) -> Iterator[PMDirectory]:
        """Entries by id of the tiles from `first` to before `stop`, perhaps also of others."""
        start = max(0, int(np.searchsorted(directory.ids, first, side="right")) - 1)
        end = int(np.searchsorted(directory.ids, stop))
        inner = start + np.flatnonzero(directory.runs[start:end] == 0)
        for row in inner.tolist():
            yield directory.part(start, row)
            yield from self._parts(self._below(directory, row, depth), depth + 1, first, stop)
            start = row + 1
        yield directory.part(start, end)

    def _below(self, directory: PMDirectory, row: int, depth: int) -> PMDirectory:
        if depth >= _DEEPEST:
            raise InvalidMetadataError("the directories are nested too deep", where=self.label)
        leaf = self._leaf(int(directory.offsets[row]), int(directory.lengths[row]))
        if len(leaf.ids) and leaf.ids[0] < directory.ids[row]:
            raise InvalidMetadataError(
                "the leaf directory is not where it belongs", where=self.label
            )
        return leaf

    def _fetched(self, offsets: Int64s, lengths: Int64s) -> list[bytes]:
        limit = self._header["tile_data_length"]
        if (offsets + lengths > limit).any() or (offsets < 0).any():
            raise InvalidMetadataError("the tile reaches outside the file", where=self.label)
        starts = offsets + self._header["tile_data_offset"]
        stops = starts + lengths
        covers = list(runs(starts, stops, np.argsort(starts, kind="stable")))
        wanted = [ByteRange(run.start, run.stop - run.start) for run in covers]
        if any(want.end > self._total for want in wanted):
            raise InvalidMetadataError("the tile reaches outside the file", where=self.label)
        values: list[bytes] = [b""] * len(starts)
        for run, piece in zip(covers, self._source.fetch(wanted), strict=True):
            for row in run.rows.tolist():
                values[row] = piece.slice(int(starts[row]), int(lengths[row]))
        return values


_PLACES = (
    "min_lon_e7", "min_lat_e7", "max_lon_e7", "max_lat_e7", "center_lon_e7", "center_lat_e7",
)  # fmt: skip


def _clipped(part: PMDirectory, first: int, stop: int) -> tuple[Int64s, Int64s, Int64s]:
    """Ids, offsets and lengths of the tiles from `first` to before `stop`."""
    begin = np.maximum(part.ids, first)
    counts = np.maximum(np.minimum(part.ids + part.runs, stop) - begin, 0)
    return (
        _numbered(begin, counts),
        np.repeat(part.offsets, counts),
        np.repeat(part.lengths, counts),
    )


def _numbered(begin: Int64s, counts: Int64s) -> Int64s:
    before = np.cumsum(counts) - counts
    ids: Int64s = np.repeat(begin - before, counts) + np.arange(int(counts.sum()))
    return ids


def _spread(part: PMDirectory) -> Iterator[Int64s]:
    """Ids of all tiles of some entries, in blocks."""
    ends = np.cumsum(part.runs)
    start = 0
    while start < len(part.ids):
        before = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, before + _BLOCK, side="right")))
        begin, counts = part.ids[start:stop], part.runs[start:stop]
        if stop == start + 1:
            first, last = int(begin[0]), int(begin[0] + counts[0])
            for at in range(first, last, _BLOCK):
                yield np.arange(at, min(at + _BLOCK, last))
        else:
            yield _numbered(begin, counts)
        start = stop


_KIND: Final = magic_kind("a PMTiles file", b"PMTiles")
_ROOT: Final = 16_384
"""Bytes in which header and root directory must fit (PMTiles 3, section 2)."""
_LEAF: Final = 4_096
_SAME: Final = 4_096
"""Tiles up to this size are deduplicated: repeated tiles are small."""
_KNOWN: Final = 1 << 18
_TYPES: Final = {"mvt": 1, "pbf": 1, "png": 2, "jpg": 3, "jpeg": 3, "webp": 4, "avif": 5, "mlt": 6}


@contextmanager
def pmtiles_sink(
    path: Location, said: TileSetMetadata, choice: Choice, *, overwrite: bool, source: Any
) -> Iterator[TileSink]:
    """One clustered file, byte for byte; gzip of vector tiles stays."""
    with new_file(path, overwrite, _KIND, source) as file:
        metadata = gzip.compress(json.dumps(_document(said)).encode(), mtime=0)
        file.write(bytes(_ROOT) + metadata)
        body = _Body(file)
        yield body.add
        root, leaves = _directories(body.directory())
        file.write(leaves)
        start = _ROOT + len(metadata)
        is_gzip = next(iter(choice.gzipped)) if len(choice.gzipped) == 1 else None
        header = {
            **_places(choice.described(said)),
            "root_offset": HEADER_SIZE,
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
            "clustered": 1,
            "internal_compression": GZIP,
            "tile_compression": {None: 0, False: 1, True: GZIP}[is_gzip],
            "tile_type": _TYPES.get(choice.ext, 0),
        }
        file.seek(0)
        file.write(pack_header(header) + root)


def _document(said: TileSetMetadata) -> dict[str, Any]:
    """Metadata without the fields that the header holds."""
    values = json_values(said, None)
    for key in ("minzoom", "maxzoom", "bounds", "center"):
        values.pop(key, None)
    return values


def _places(said: TileSetMetadata) -> dict[str, Any]:
    """Zooms, box and centre; decimal degrees times ten million, rounded outward."""
    assert said.min_zoom is not None
    assert said.bounds is not None
    west, east = turned(said.bounds[0], said.bounds[2])
    east += 360 * (west > east)
    south, north = (min(max(degrees, -90.0), 90.0) for degrees in said.bounds[1::2])
    center = center_of(said.extra.get("center")) or [(west + east) / 2, (south + north) / 2]
    return {
        "min_zoom": said.min_zoom,
        "max_zoom": said.max_zoom,
        "min_lon_e7": int(np.floor(west * 1e7)),
        "min_lat_e7": int(np.floor(south * 1e7)),
        "max_lon_e7": int(np.ceil(east * 1e7)),
        "max_lat_e7": int(np.ceil(north * 1e7)),
        "center_zoom": center[2] if len(center) > 2 else said.min_zoom,
        "center_lon_e7": round(center[0] * 1e7),
        "center_lat_e7": round(center[1] * 1e7),
    }


class _Body:
    """Writes the tiles and collects their directory entries: 32 bytes each."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._ids, self._runs, self._lengths, self._offsets = (array("q") for _ in range(4))
        self._known: dict[bytes, int] = {}
        self.length = 0
        """Bytes of all contents."""
        self.addressed = 0
        """Tiles."""
        self.contents = 0
        """Distinct contents, as far as they were deduplicated."""

    @property
    def entries(self) -> int:
        """Number of directory entries."""
        return len(self._ids)

    def add(self, tiles: Tiles) -> None:
        """Add tiles, in order of their ids."""
        ids = tile_ids(tiles.z, tiles.x, tiles.y).tolist()
        fresh: list[bytes] = []
        for tile_id, payload in zip(ids, tiles.payloads, strict=True):
            offset = self._place(payload, fresh)
            self._enter(tile_id, offset, len(payload))
        self._file.write(b"".join(fresh))
        self.addressed += len(ids)

    def directory(self) -> PMDirectory:
        """All entries."""
        columns = (self._ids, self._runs, self._lengths, self._offsets)
        return PMDirectory(*(np.array(column, np.int64) for column in columns))

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


def _directories(whole: PMDirectory) -> tuple[bytes, bytes]:
    """The root directory, which fits into 16 KiB with the header, and its leaf directories."""
    room, count = _ROOT - HEADER_SIZE, len(whole.ids)
    if count <= 4 * _LEAF:
        root = pack_directory(whole)
        if len(root) <= room:
            return root, b""
    size = _LEAF
    while size < 2 * count:
        starts = range(0, count, size)
        leaves = [pack_directory(whole.part(start, start + size)) for start in starts]
        lengths = np.array([len(leaf) for leaf in leaves], np.int64)
        root = pack_directory(
            PMDirectory(
                whole.ids[::size], np.zeros_like(lengths), lengths, np.cumsum(lengths) - lengths
            )
        )
        if len(root) <= room:
            return root, b"".join(leaves)
        size *= 2
    raise LimitExceededError("the root directory of PMTiles does not fit into 16 KiB")
