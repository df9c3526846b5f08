"""PMTiles 3: tiles by range of one file, local or remote, along a Hilbert curve.

Directories are read once and kept within a budget. An aligned square is one stretch of the curve,
so in a clustered file a square of tiles is one range.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from comal.errors import (
    ComalError,
    InvalidMetadataError,
    MissingExtraError,
    NotThisFormatError,
    ObjectChangedError,
    UnsupportedVersionError,
    shown,
    translated,
)
from comal.limits import DEFAULT_LIMITS, Limits
from comal.plan import ByteRange, Head
from comal.storage import Source, open_source
from comal.strictjson import loads
from comal.tapalcatl.sources.base import Int64s, Keys, Square, Tiles, empty_tiles
from comal.tapalcatl.sources.describing import metadata_of
from comal.tapalcatl.sources.hilbert import tile_ids, tiles_of
from comal.tapalcatl.sources.pmdirectory import LARGEST, PMDirectory, inflated, parse_directory
from comal.tapalcatl.spec import TileSetMetadata
from comal.tapalcatl.wire import BASES
from comal.ziparchive.local import runs

_HEAD: Final = 16_384
_HEADER: Final = 127
_BUDGET: Final = 64 << 20
_DEEPEST: Final = 3
_BLOCK: Final = 1 << 18
_HEADER_ERRORS: dict[type[BaseException], type[ComalError]] = {
    ValueError: InvalidMetadataError,
    IndexError: InvalidMetadataError,
}


class PMTiles:
    """The tiles of a PMTiles file.

    Parameters
    ----------
    href
        A path, a URL, or an opened `Source`.
    limits
        `tile_bytes` caps one tile, `json_bytes` the metadata.

    Raises
    ------
    NotThisFormatError
        No PMTiles file.
    UnsupportedVersionError
        Another version than 3, or directories in another compression than gzip.
    MissingExtraError
        The library of that format is not installed.
    """

    def __init__(
        self, href: str | os.PathLike[str] | Source, limits: Limits = DEFAULT_LIMITS
    ) -> None:
        opened = isinstance(href, str | os.PathLike)
        self._source: Source = open_source(href) if opened else href  # type: ignore[arg-type, assignment]
        self._limits = limits
        self._guard = threading.Lock()
        self._kept: OrderedDict[int, PMDirectory] = OrderedDict()
        self._kept_bytes = 0
        (head,) = self._source.fetch([Head(_HEAD)])
        self._total = head.total
        self._header = _header(head.data[:_HEADER], self.label)
        self._gzip = self._header["internal_compression"] == 2
        self._root = self._parsed(self._header["root_offset"], self._header["root_length"])
        self._stat = self._source.stat()
        self.metadata: TileSetMetadata = self._metadata()

    @property
    def href(self) -> str:
        """Where it is."""
        return self._source.href

    @property
    def label(self) -> str:
        """The path or URL."""
        return shown(self._source.href, 200)

    @property
    def hint(self) -> str | None:
        """The extension for what the file says its tiles are."""
        types = {1: "mvt", 2: "png", 3: "jpg", 4: "webp", 5: "avif", 6: "mlt"}
        return types.get(self._header["tile_type"])

    @property
    def encoding(self) -> str | None:
        """How the file says its tiles are compressed."""
        return {2: "gzip", 3: "br", 4: "zstd"}.get(self._header["tile_compression"])

    @property
    def modified(self) -> int | None:
        """Time of the file, where its storage tells."""
        when = self._stat.modified
        return None if when is None else when // 10**9

    @property
    def identity(self) -> str:
        """Address, size and version of the file."""
        stat = self._stat
        return json.dumps(["pmtiles", self._source.href, stat.size, stat.etag, stat.modified])

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        first, last = self._ends()
        if first is None or last is None:
            return None
        z, _, _ = tiles_of(np.array([first, last]))
        return int(z[0]), int(z[1])

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks."""
        for directory in self._leaves(self._root, 0):
            for ids in _spread(directory):
                yield tiles_of(ids)

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        z, x, y, side = square
        first = int(tile_ids(z, x, y)) - BASES[z]
        first = first - first % side**2 + BASES[z]
        found = [self._between(self._root, first, first + side**2, 0)]
        ids, offsets, lengths = (np.concatenate(column) for column in zip(*found, strict=True))
        if not len(ids):
            return empty_tiles()
        self._limits.check("tile_bytes", int(lengths.max()), self.label)
        return Tiles(*tiles_of(ids), self._fetched(offsets, lengths)).ordered()

    def verify(self) -> None:
        """Compare a local file to what it was; storage does so itself for every other one."""
        if "://" not in self._source.href and open_source(self._source.href).stat() != self._stat:
            raise ObjectChangedError("the file was changed while it was read", where=self.label)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_guard": None, "_kept": OrderedDict(), "_kept_bytes": 0}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _guard=threading.Lock())

    def _metadata(self) -> TileSetMetadata:
        header = self._header
        text = self._bytes(header["metadata_offset"], header["metadata_length"])
        if self._gzip and text:
            text = inflated(text, self._limits.json_bytes, f"{self.label}, metadata")
        values = loads(text, f"{self.label}, metadata", self._limits) if text.strip() else {}
        places = [header[name] / 1e7 for name in _PLACES]
        # Files that were never told where they are have an empty box.
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
                "range outside of the file",
                where=self.label,
                found=f"{offset}+{size}",
                expected=f"at most {self._total}",
            )
        return self._source.fetch([ByteRange(offset, size)])[0].data if size else b""

    def _parsed(self, offset: int, size: int) -> PMDirectory:
        where = f"{self.label}, directory at {offset}"
        if size > LARGEST:
            raise InvalidMetadataError("directory is too large", where=where, found=size)
        data = self._bytes(offset, size)
        return parse_directory(inflated(data, LARGEST, where) if self._gzip else data, where)

    def _leaf(self, offset: int, size: int) -> PMDirectory:
        with self._guard:
            if offset in self._kept:
                self._kept.move_to_end(offset)
                return self._kept[offset]
        leaf = self._parsed(self._header["leaf_directory_offset"] + offset, size)
        with self._guard:
            if offset not in self._kept:
                self._kept[offset] = leaf
                self._kept_bytes += leaf.size
            while self._kept_bytes > _BUDGET and len(self._kept) > 1:
                self._kept_bytes -= self._kept.popitem(last=False)[1].size
        return leaf

    def _ends(self) -> tuple[int | None, int | None]:
        """The first and last id of a tile."""
        first, last = None, None
        directory = self._root
        for depth in range(_DEEPEST + 1):
            if not len(directory.ids):
                break
            if directory.runs[0]:
                first = int(directory.ids[0])
                break
            directory = self._below(directory, 0, depth)
        directory = self._root
        for depth in range(_DEEPEST + 1):
            if not len(directory.ids):
                break
            if directory.runs[-1]:
                last = int(directory.ids[-1] + directory.runs[-1]) - 1
                break
            directory = self._below(directory, len(directory.ids) - 1, depth)
        return first, last

    def _leaves(self, directory: PMDirectory, depth: int) -> Iterator[PMDirectory]:
        """Parts of the tree that lead to tiles, by tile id."""
        inner = np.flatnonzero(directory.runs == 0)
        start = 0
        for row in inner.tolist():
            yield _part(directory, start, row)
            yield from self._leaves(self._below(directory, row, depth), depth + 1)
            start = row + 1
        yield _part(directory, start, len(directory.ids))

    def _below(self, directory: PMDirectory, row: int, depth: int) -> PMDirectory:
        if depth >= _DEEPEST:
            raise InvalidMetadataError("directories are nested too deep", where=self.label)
        leaf = self._leaf(int(directory.offsets[row]), int(directory.lengths[row]))
        if len(leaf.ids) and leaf.ids[0] < directory.ids[row]:
            raise InvalidMetadataError("leaf directory is not where it belongs", where=self.label)
        return leaf

    def _between(
        self, directory: PMDirectory, first: int, stop: int, depth: int
    ) -> tuple[Int64s, Int64s, Int64s]:
        """Ids, offsets and lengths of the tiles from `first` to before `stop`."""
        low = max(0, int(np.searchsorted(directory.ids, first, side="right")) - 1)
        high = int(np.searchsorted(directory.ids, stop))
        parts = []
        start = low
        inner = low + np.flatnonzero(directory.runs[low:high] == 0)
        for row in inner.tolist():
            parts.append(_clipped(_part(directory, start, row), first, stop))
            below = self._below(directory, row, depth)
            parts.append(self._between(below, first, stop, depth + 1))
            start = row + 1
        parts.append(_clipped(_part(directory, start, high), first, stop))
        ids, offsets, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        return ids, offsets, lengths

    def _fetched(self, offsets: Int64s, lengths: Int64s) -> list[bytes]:
        limit = self._header["tile_data_length"]
        if (offsets + lengths > limit).any() or (offsets < 0).any():
            raise InvalidMetadataError("tile outside of the file", where=self.label)
        starts = offsets + self._header["tile_data_offset"]
        stops = starts + lengths
        covers = list(runs(starts, stops, np.argsort(starts, kind="stable")))
        wanted = [ByteRange(run.start, run.stop - run.start) for run in covers]
        if any(want.end > self._total for want in wanted):
            raise InvalidMetadataError("tile outside of the file", where=self.label)
        values: list[bytes] = [b""] * len(starts)
        for run, piece in zip(covers, self._source.fetch(wanted), strict=True):
            for row in run.rows.tolist():
                values[row] = piece.slice(int(starts[row]), int(lengths[row]))
        return values


_PLACES = (
    "min_lon_e7", "min_lat_e7", "max_lon_e7", "max_lat_e7", "center_lon_e7", "center_lat_e7",
)  # fmt: skip


def _header(data: bytes, where: str) -> dict[str, Any]:
    try:
        from pmtiles import tile as library  # noqa: PLC0415 - optional, needed for this format only
    except ImportError as error:
        raise MissingExtraError.of("pmtiles", "pmtiles", "reading PMTiles") from error
    if not data.startswith(b"PMTiles"):
        raise NotThisFormatError("no PMTiles file", where=where)
    if len(data) < _HEADER or data[7] != 3:
        raise UnsupportedVersionError(
            "version of PMTiles", where=where, found=int(data[7]) if len(data) > 7 else None,
            expected="3",
        )  # fmt: skip
    with translated(_HEADER_ERRORS, "header of PMTiles", where=where):
        header = dict(library.deserialize_header(data))
    for name in ("internal_compression", "tile_compression", "tile_type"):
        header[name] = header[name].value  # type: ignore[attr-defined]
    if header["internal_compression"] not in {1, 2}:
        raise UnsupportedVersionError(
            "directories are compressed by neither gzip nor nothing", where=where
        )
    return header


def _part(directory: PMDirectory, start: int, stop: int) -> PMDirectory:
    rows = slice(start, stop)
    return PMDirectory(
        directory.ids[rows], directory.runs[rows], directory.lengths[rows], directory.offsets[rows]
    )


def _clipped(part: PMDirectory, first: int, stop: int) -> tuple[Int64s, Int64s, Int64s]:
    """Entries with their runs spread out, of which only the ids in the range are kept."""
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
