"""Tilesets as sources of tiles: one, a part of one, or several as one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import numpy as np

from comal.errors import ComalError, InvalidInputError, InvalidMetadataError
from comal.limits import MIB
from comal.parallel import ByteCache
from comal.plan import ByteRange, Fetch, Piece, Wanted
from comal.storage import Source
from comal.tapalcatl.addressing import tile_bounds
from comal.tapalcatl.containers.base import (
    UNKNOWN_TIME,
    Square,
    Tiles,
    TileSource,
    binary,
    concatenated,
    empty_tiles,
)
from comal.tapalcatl.containers.content import extension, kinds_of
from comal.tapalcatl.containers.survey import common, union
from comal.tapalcatl.layout import MetatileLayout
from comal.tapalcatl.reading.archives import OpenArchive
from comal.tapalcatl.reading.entries import all_keys
from comal.tapalcatl.reading.index import Record
from comal.tapalcatl.reading.tile import check_local_name, refuse
from comal.tapalcatl.reading.tileset import TileSet
from comal.tapalcatl.spec import MAX_ZOOM, Bounds, Tile, TileSetMetadata
from comal.tapalcatl.wire import BASES, Int64s, Keys, suffix_of
from comal.ziparchive import STORE, wire
from comal.ziparchive.headermaking import checksums
from comal.ziparchive.local import read_payloads, runs

CONFLICTS: Final = ("last", "first", "error")


class MergedSource(TileSource):
    """The tiles of several sources; of several for one name one counts.

    Parameters
    ----------
    sources
        At least one.
    conflict
        One of `CONFLICTS`.
    """

    def __init__(self, sources: Sequence[TileSource], conflict: str = "last") -> None:
        if conflict not in CONFLICTS:
            raise InvalidInputError(
                "what to do about tiles of several sources",
                found=conflict,
                expected=", ".join(CONFLICTS),
            )
        self._sources = tuple(sources)
        self._conflict = conflict
        self.metadata = _merged([source.metadata for source in sources])
        self.label = ", ".join(source.label for source in sources)
        encodings = {source.encoding for source in sources}
        self.encoding = encodings.pop() if len(encodings) == 1 else None
        times = [one.modified for one in sources if one.modified is not None]
        self.modified = max(times, default=None)

    @property
    def href(self) -> list[Any]:
        """Where they are."""
        return list(self._sources)

    @property
    def identity(self) -> str:
        """All of their identities, if each has one."""
        all_of = [source.identity for source in self._sources]
        return json.dumps([self._conflict, *all_of]) if all(all_of) else ""

    def zooms(self) -> tuple[int, int] | None:
        """The first and last zoom that occur; None without any tile."""
        ends = [found for source in self._sources if (found := source.zooms()) is not None]
        return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else None

    def keys(self) -> Iterator[Keys]:
        """All tiles in blocks; those of several sources several times."""
        for source in self._sources:
            yield from source.keys()

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        parts = [_named(source.read(square), source) for source in self._sources]
        if self._conflict == "first":
            parts.reverse()
        joined = concatenated(parts)
        tiles = joined.ordered()
        if self._conflict == "error" and len(tiles) != len(joined):
            self._refuse(joined, tiles)
        return tiles

    def verify(self) -> None:
        """Each of them; whoever opened them closes them."""
        for source in self._sources:
            source.verify()

    def _refuse(self, joined: Tiles, kept: Tiles) -> None:
        assert kept.suffix is not None
        assert joined.suffix is not None
        known = {key: row for row, key in enumerate(_names(kept))}
        for row, key in enumerate(_names(joined)):
            if joined.payloads[row] != kept.payloads[known[key]]:
                raise InvalidInputError(
                    "several sources have a tile, with different bytes",
                    where=self.label,
                    found=f"{key[0]}/{key[1]}/{key[2]}{joined.suffixes[key[3]]}",
                    hint="say which counts: the first or the last",
                )


class FilteredSource(TileSource):
    """A part of a source: some zooms, and the descendants of one tile."""

    def __init__(
        self,
        source: TileSource,
        min_zoom: int = 0,
        max_zoom: int = MAX_ZOOM,
        root: Tile | None = None,
    ) -> None:
        self._source = source
        self._low, self._high, self._root = min_zoom, max_zoom, root
        own = source.metadata
        bounds = own.bounds
        if root is not None:
            bounds = common(tile_bounds(*root), bounds)
        self.metadata = replace(own, bounds=bounds)
        self.label, self.hint = source.label, source.hint
        self.encoding, self.modified = source.encoding, source.modified

    @property
    def href(self) -> list[Any]:
        """Where it is."""
        return [self._source]

    @property
    def identity(self) -> str:
        """That of the source, and which part this is."""
        own = self._source.identity
        return json.dumps([own, self._low, self._high, self._root]) if own else ""

    def keys(self) -> Iterator[Keys]:
        """The tiles in blocks."""
        for z, x, y in self._source.keys():  # noqa: SIM118 - no mapping
            rows = self._inside(z, x, y)
            yield z[rows], x[rows], y[rows]

    def read(self, square: Square) -> Tiles:
        """The tiles of a square."""
        if not self._low <= square.z <= self._high:
            return empty_tiles()
        tiles = self._source.read(square)
        rows = self._inside(tiles.z, tiles.x, tiles.y)
        return tiles if len(rows) == len(tiles) else tiles.take(rows)

    def verify(self) -> None:
        """That of the source; whoever opened it closes it."""
        self._source.verify()

    def _inside(self, z: Int64s, x: Int64s, y: Int64s) -> Int64s:
        inside = (z >= self._low) & (z <= self._high)
        if self._root is not None:
            zoom, column, row = self._root
            shift = np.maximum(z - zoom, 0)
            inside &= (z >= zoom) & (x >> shift == column) & (y >> shift == row)
        return np.flatnonzero(inside)


def _named(tiles: Tiles, source: TileSource) -> Tiles:
    """Tiles with suffixes: those without any get theirs as their own source would give it."""
    if tiles.suffix is not None or not len(tiles):
        return tiles
    table: dict[str, int] = {}
    kinds = kinds_of(tiles.payloads)
    codes = [
        table.setdefault(suffix_of(1, extension(kind, source.hint)), len(table))
        for kind in kinds.tolist()
    ]
    return replace(tiles, suffix=np.array(codes, np.int32), suffixes=tuple(table))


def _names(tiles: Tiles) -> Iterator[tuple[int, int, int, int]]:
    assert tiles.suffix is not None
    columns = (tiles.z, tiles.x, tiles.y, tiles.suffix)
    return zip(*(column.tolist() for column in columns), strict=True)


def _merged(all_of: Sequence[TileSetMetadata]) -> TileSetMetadata:
    """What the first one says, with the formats and the box of all."""
    first = all_of[0]
    formats = {ext: headers for one in reversed(all_of) for ext, headers in one.formats.items()}
    boxes = [one.bounds for one in all_of]
    bounds: Bounds | None = None
    known = [box for box in boxes if box is not None]
    if len(known) == len(boxes):
        bounds = reduce(union, known)
    return replace(
        first,
        formats=formats,
        bounds=bounds,
        min_scale=min(one.min_scale for one in all_of),
        max_scale=max(one.max_scale for one in all_of),
    )


BUDGET: Final = 64 * MIB
_LOCKS: Final = 64
"""Reads share so many locks, as few of them are on their way at once."""


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
        self._kept: ByteCache[tuple[Tile, int], Piece] = ByteCache(budget, keep_newest=True)
        self._locks = [threading.Lock() for _ in range(_LOCKS)]

    def read(self, source: Source, archive: Tile, start: int, stop: int) -> Piece:
        """The bytes of one read; who asks for what is on its way waits for it."""
        key = (archive, start)
        with self._locks[hash(key) % _LOCKS]:
            piece = self._kept.get(key)
            if piece is None:
                (piece,) = source.fetch([ByteRange(start, stop - start)])
                self._kept.put(key, piece, len(piece.data))
        return piece

    def fetch(self, source: Source, archive: Tile, start: int, stop: int) -> Fetch:
        """What gives ranges out of one read; those beside it come from the archive."""

        def fetched(wanted: Sequence[Wanted]) -> Sequence[Piece]:
            ranges = [one for one in wanted if isinstance(one, ByteRange)]
            if any(one.offset < start or one.end > stop for one in ranges):
                return source.fetch(wanted)
            whole = self.read(source, archive, start, stop)
            return [Piece(whole.slice(r.offset, r.size), r.offset, whole.total) for r in ranges]

        return fetched

    def __reduce__(self) -> tuple[type[KeptRuns], tuple[int]]:
        return KeptRuns, (self._kept.budget,)


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
            for keys, _ in opened.index.keys.values():
                yield self._tileset.locator.tiles(archive, np.asarray(keys, np.int64))[1]

    def read(self, square: Square) -> Tiles:
        """The tiles of a square in all formats and scales."""
        parts = [self._read(archive, square) for archive in self._around(square)]
        return concatenated(parts).ordered()

    def _archives(self) -> Iterator[tuple[Tile, OpenArchive]]:
        for archive in self._tileset.archive_tiles():
            opened = self._tileset.archives.get(archive)
            if opened is not None:
                yield archive, opened

    def _around(self, square: Square) -> list[Tile]:
        """The archives that a square lies in."""
        return self._tileset.locator.around(*square)

    def _read(self, archive: Tile, square: Square) -> Tiles:
        opened = self._tileset.archives.get(archive)
        if opened is None:
            return empty_tiles()
        z, x, y, side = square
        if isinstance(self._tileset.locator, MetatileLayout):
            z -= archive[0]
            x, y = x - (archive[1] << z), y - (archive[2] << z)
            # An archive may be smaller than the square.
            side = min(side, 1 << z)
            x, y = max(x, 0), max(y, 0)
        numbers = [
            _within(np.asarray(keys, np.int64), z, x, y, side) + first
            for keys, first in opened.index.keys.values()
        ]
        rows = self._meant(archive, opened, np.concatenate([np.zeros(0, np.int64), *numbers]))
        return self._tiles(archive, opened, rows) if len(rows) else empty_tiles()

    def _meant(self, archive: Tile, opened: OpenArchive, rows: Int64s) -> Int64s:  # noqa: ARG002
        """Those of some records of an archive that are tiles of this source."""
        return rows

    def _tiles(self, archive: Tile, opened: OpenArchive, rows: Int64s) -> Tiles:
        index = opened.index
        table = index.table[rows]
        keys, codes = all_keys(opened)
        keys, codes = keys[rows], codes[rows]
        _, (z, x, y) = self._tileset.locator.tiles(archive, keys)
        comments = [index.comments.get(row, b"") for row in rows.tolist()]
        modified = table["modified"].astype(np.int64)
        payloads = self._payloads(opened, table, keys.tolist(), codes.tolist())
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
        self,
        opened: OpenArchive,
        table: Any,
        keys: list[int],
        codes: list[int],
        fetch: Fetch | None = None,
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
        source = opened.source
        return read_payloads(fetch or source.fetch, (starts, stops), sizes, check, source.href)


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
