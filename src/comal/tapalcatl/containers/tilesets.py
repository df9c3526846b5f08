"""Another Tapalcatl tileset as a source: its payloads as they are stored, with times and headers.

Nothing is inflated on the way, whatever the archives of the copy will be.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from comal.errors import ComalError, InvalidMetadataError
from comal.limits import MIB
from comal.plan import ByteRange, Piece, Wanted
from comal.storage import Source
from comal.storage.source import SourceWrapper
from comal.tapalcatl.addressing import Layout
from comal.tapalcatl.containers.base import (
    UNKNOWN_TIME,
    Square,
    Tiles,
    TileSource,
    binary,
    concatenated,
    empty_tiles,
)
from comal.tapalcatl.generation1 import Generation1
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.index import Record
from comal.tapalcatl.reading.places import InArchive, InMetatiles
from comal.tapalcatl.reading.tile import check_local_name, refuse
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import MAX_ZOOM, Tile, TileSetMetadata
from comal.tapalcatl.wire import BASES, Int64s, Keys, key_tiles
from comal.ziparchive import STORE, wire
from comal.ziparchive.headermaking import checksums
from comal.ziparchive.local import read_payloads, runs

BUDGET: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads that bring some records of an archive, ascending and apart from one another."""

    starts: Int64s
    stops: Int64s

    @classmethod
    def of(cls, table: Any) -> Reads:
        """Those of records, a NumPy array as `ArchiveIndex.table`."""
        starts = table["offset"].astype(np.int64)
        stops = starts + table["span"].astype(np.int64)
        found = list(runs(starts, stops, np.argsort(starts, kind="stable")))
        ends = np.array([(run.start, run.stop) for run in found], np.int64).reshape(-1, 2)
        return cls(ends[:, 0], ends[:, 1])

    def which(self, offsets: Any) -> Int64s:
        """The read that brings each of some of these records, by where they begin."""
        found: Int64s = np.searchsorted(self.starts, offsets.astype(np.int64), side="right") - 1
        return found


class KeptRuns:
    """What was read of archives, the least recently used thrown out beyond a budget of bytes."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._start()

    def source(self, source: Source, archive: Tile, start: int, stop: int) -> Source:
        """An archive whose bytes from `start` to `stop` come out of one read."""
        return _InRun(source, self, archive, start, stop)

    def read(self, source: Source, archive: Tile, start: int, stop: int) -> Piece:
        """The bytes of one read; who asks for what is on its way waits for it."""
        key = (archive, start)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None:
                    self._kept.move_to_end(key)
                    return kept
            (piece,) = source.fetch([ByteRange(start, stop - start)])
            with self._lock:
                self._kept[key] = piece
                self._weight += len(piece.data)
                while len(self._kept) > 1 and self._weight > self._budget:
                    gone, old = self._kept.popitem(last=False)
                    self._locks.pop(gone, None)
                    self._weight -= len(old.data)
        return piece

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Tile, int], threading.Lock] = {}
        self._kept: OrderedDict[tuple[Tile, int], Piece] = OrderedDict()
        self._weight = 0

    def __getstate__(self) -> int:
        return self._budget

    def __setstate__(self, budget: int) -> None:
        self._budget = budget
        self._start()


class _InRun(SourceWrapper):
    """An archive of which one read is kept; what lies beside it is read as ever."""

    def __init__(self, source: Source, kept: KeptRuns, archive: Tile, start: int, stop: int):
        super().__init__(source)
        self._kept, self._archive, self._start, self._stop = kept, archive, start, stop

    def over(self, source: Source) -> Self:
        return type(self)(source, self._kept, self._archive, self._start, self._stop)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        inside = [
            (one.offset - self._start, one.size)
            for one in wanted
            if isinstance(one, ByteRange)
            and self._start <= one.offset
            and one.offset + one.size <= self._stop
        ]
        if len(inside) < len(wanted):
            return self.source.fetch(wanted)
        whole = self._kept.read(self.source, self._archive, self._start, self._stop)
        return [
            Piece(whole.data[at : at + size], self._start + at, whole.total) for at, size in inside
        ]


_WHOLE: Tile = (0, 0, 0)


class TileSetSource(TileSource):
    """The tiles of an open tileset of either generation.

    Parameters
    ----------
    tileset
        From `comal.tapalcatl.open`; not closed here.

    Notes
    -----
    Of Tapalcatl 1, whose archives hold the same place in several sizes, the tiles of the size
    that the tileset was opened for are taken.
    """

    def __init__(self, tileset: TileSet) -> None:
        self._tileset = tileset
        self.label = tileset.href
        tileset.learn_formats()
        locator = tileset.locator
        self._single = isinstance(locator, InArchive)
        self._depths = _depths(locator.config) if isinstance(locator, InMetatiles) else None
        own = tileset.metadata
        self._layout = (
            None
            if self._depths is not None
            else Layout(own.materialized_zooms or (0,), own.metatile)
        )

    @property
    def href(self) -> str:
        """Where it is."""
        return self._tileset.href.removesuffix("/meta.json")

    @property
    def metadata(self) -> TileSetMetadata:  # type: ignore[override]  # formats are learned
        """That of the tileset."""
        return self._tileset.metadata

    @property
    def identity(self) -> str:
        """Address and version of the document, where there is one."""
        with suppress(ComalError):
            stat = self._tileset.source.stat()
            if not stat.is_dir:
                return json.dumps(["tileset", stat.href, stat.size, stat.etag, stat.modified])
        return ""

    def keys(self) -> Iterator[Keys]:
        """All tiles, archive by archive; those of several formats several times."""
        for archive, opened in self._archives():
            for suffix in opened.index.suffixes:
                keys, _ = opened.index.keys[suffix]
                z, x, y = key_tiles(np.asarray(keys, np.int64))
                yield self._absolute(archive, z, x, y)

    def read(self, square: Square) -> Tiles:
        """The tiles of a square in all formats and scales."""
        parts = [self._read(archive, square) for archive in self._around(square)]
        return concatenated(parts).ordered()

    def _archives(self) -> Iterator[tuple[Tile, OpenArchive]]:
        addresses = [_WHOLE] if self._single else self._tileset.archive_tiles()
        for archive in addresses:
            opened = self._tileset.archives.get(archive)
            if opened is not None:
                yield archive, opened

    def _absolute(self, archive: Tile, z: Int64s, x: Int64s, y: Int64s) -> Keys:
        if self._depths is None:
            return z, x, y
        zooms = z + archive[0]
        fits = zooms <= MAX_ZOOM
        fits[fits] = self._depths[zooms[fits]] == z[fits]
        z, x, y = z[fits], x[fits], y[fits]
        return z + archive[0], x + (archive[1] << z), y + (archive[2] << z)

    def _around(self, square: Square) -> Iterator[Tile]:
        """The archives that a square lies in."""
        z, x, y, side = square
        if self._single:
            yield _WHOLE
            return
        if self._depths is not None:
            depth, metatile = int(self._depths[z]), 1
            root = z - depth
        else:
            assert self._layout is not None
            zoom = self._layout.root_zoom(z)
            if zoom is None:
                return
            root, depth, metatile = zoom, z - zoom, self._layout.metatile
        mask = -metatile
        columns = sorted({(column >> depth) & mask for column in range(x, x + side)})
        rows = sorted({(row >> depth) & mask for row in range(y, y + side)})
        yield from ((root, column, row) for column in columns for row in rows)

    def _read(self, archive: Tile, square: Square) -> Tiles:
        opened = self._tileset.archives.get(archive)
        if opened is None:
            return empty_tiles()
        z, x, y, side = square
        if self._depths is not None:
            z -= archive[0]
            x, y = x - (archive[1] << z), y - (archive[2] << z)
            # An archive may be smaller than the square.
            side = min(side, 1 << z)
            x, y = max(x, 0), max(y, 0)
        index = opened.index
        numbers, codes = [], []
        for code, suffix in enumerate(index.suffixes):
            keys, first = index.keys[suffix]
            rows = _within(np.asarray(keys, np.int64), z, x, y, side)
            numbers.append(rows + first)
            codes.append(np.full(len(rows), code, np.int32))
        rows = np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
        if not len(rows):
            return empty_tiles()
        return self._tiles(archive, opened, rows, np.concatenate(codes))

    def _tiles(self, archive: Tile, opened: OpenArchive, rows: Int64s, codes: Any) -> Tiles:
        index = opened.index
        table = index.table[rows]
        found = np.concatenate([np.asarray(index.keys[one][0], np.int64) for one in index.suffixes])
        z, x, y = self._absolute(archive, *key_tiles(found[rows]))
        comments = [index.comments.get(row, b"") for row in rows.tolist()]
        modified = table["modified"].astype(np.int64)
        payloads = self._payloads(opened, table, found[rows].tolist(), codes.tolist())
        _check(payloads, table, self.label)
        return Tiles(
            z,
            x,
            y,
            payloads,
            suffix=codes,
            suffixes=index.suffixes,
            methods=table["method"].astype(np.uint16),
            sizes=table["size"].astype(np.int64),
            crcs=table["crc"].astype(np.uint32),
            comments=binary(comments) if any(comments) else None,
            modified=np.where(modified == 0, UNKNOWN_TIME, modified),
        )

    def _payloads(
        self, opened: OpenArchive, table: Any, keys: list[int], codes: list[int]
    ) -> list[bytes]:
        limits = self._tileset.limits
        odd = (table["method"] != STORE) & (table["method"] != wire.DEFLATE)
        odd |= table["csize"] > limits.tile_bytes
        for row in np.flatnonzero(odd).tolist():
            refuse(Record(*table[row].tolist()), limits, opened.source.href)
        starts = table["offset"].astype(np.int64)
        stops = starts + table["span"].astype(np.int64)

        def check(row: int, data: bytes, at: int) -> None:
            suffix = opened.index.suffixes[codes[row]]
            check_local_name(opened, int(starts[row]), data, keys[row], suffix, at)

        sizes = table["csize"].astype(np.int64)
        return read_payloads(opened.source.fetch, (starts, stops), sizes, check, opened.source.href)


def _check(payloads: list[bytes], table: Any, where: str) -> None:
    """Compare checksums where that takes no inflating; the others are copied with theirs."""
    plain = table["method"] == STORE
    bad = plain & ((checksums(payloads) != table["crc"]) | (table["csize"] != table["size"]))
    if bad.any():
        raise InvalidMetadataError(
            "tile is damaged",
            where=where,
            found=f"{int(bad.sum())} of {len(bad)} checksums differ",
            hint="'comal check' tells which tiles",
        )


def _within(keys: Int64s, z: int, x: int, y: int, side: int) -> Int64s:
    """Places of the tiles of a square among sorted keys, which go column by column."""
    first = BASES[z] + (np.arange(x, x + side, dtype=np.int64) << z) + y
    low, high = np.searchsorted(keys, first), np.searchsorted(keys, first + side)
    if not (high > low).any():
        return np.zeros(0, np.int64)
    return np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)])


def _depths(config: Generation1) -> Int64s:
    """For each zoom at which depth of its archive its tiles are."""
    return np.array([z - config.place(z, 0, 0).metatile[0] for z in range(MAX_ZOOM + 1)], np.int64)
