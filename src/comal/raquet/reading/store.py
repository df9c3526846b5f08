"""The blobs of tiles from one or several files, and their pixels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from operator import itemgetter
from types import EllipsisType
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidMetadataError, LimitExceededError, shown
from comal.limits import KIB, MIB, Limits
from comal.parallel import ByteCache, cached_property, side_by_side
from comal.plan import ByteRange, Piece
from comal.raquet import blobs
from comal.raquet.reading.coverage import Coverage, coverages
from comal.raquet.reading.tilefile import (
    ABSENT,
    TileFile,
    TileIndex,
    chunk_ranges,
    read_columns,
)
from comal.raquet.spec import Band, Metadata
from comal.raquet.times import TimeAxis, axis_of
from comal.storage import Source
from comal.storage.source import HeldFile, held
from comal.table import ParquetTable
from comal.table.pages import OneValueReader

Pixels = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Key = tuple[int, str]
"""A row, numbered across all parts, and a column."""

_FOR_THREADS = 8
"""From this number of tiles on, they are decoded in threads."""
_MOST_THREADS = 8
_MOST_HELD = 64
"""Most files that are kept open; if a set has more, each is opened for every read."""
_IN_TWO = 16 * KIB
"""From this page size on, the header and the value are read separately."""
_TOGETHER = 256
"""Default number of blobs that an iteration fetches together."""
_LOCATED = 4_096
"""Number of blobs of local files whose offsets are looked up together."""
_FEW = 16
"""Number of blobs of local files that are read before they are yielded, few enough to stay in the
processor's cache."""
_MOST_HEAD = 256
"""Header sizes from this on are not remembered: the page is parsed on every read."""
_CHUNK_BYTES = 16 * MIB
"""Stored bytes of column chunks that are fetched together."""
_BESIDE = 64 * KIB
"""Bytes that a page may hold in addition to pixels that compression did not shrink."""


class TileStore:
    """Tiles by row and column, from files with a source and a part each.

    `cache_bytes` limits the cache of decoded tiles, and separately that of column chunks, which
    serves files whose tiles cannot be read one by one.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        parts: Sequence[TileFile],
        metadata: Metadata,
        *,
        cache_bytes: int,
        byte_interleaved: bool,
        limits: Limits,
    ) -> None:
        self.sources = tuple(sources)
        self.parts = tuple(parts)
        self.metadata = metadata
        self.byte_interleaved = byte_interleaved
        self.cache_bytes = cache_bytes
        self.limits = limits
        self.columns = metadata.columns
        interleaved = metadata.columns[0] if metadata.interleaved else None
        self.column_of = {band.name: interleaved or band.name for band in metadata.bands}
        """Column by name of the band."""
        self.ids = np.concatenate([part.ids for part in parts])
        sizes = np.array([len(part.ids) for part in parts], np.int64)
        self.starts = np.cumsum(sizes) - sizes
        self.times, steps = _time_steps(parts, self.ids != 0, metadata)
        self.index = TileIndex(self.ids, steps, parts[0].where)
        self._tiles: ByteCache[Key, Pixels] = ByteCache(cache_bytes)
        self._chunks: ByteCache[tuple[int, int, str], Any] = ByteCache(
            cache_bytes, keep_newest=True
        )
        self._decoders = {name: self._decoder(name) for name in self.columns}
        self._readers: dict[tuple[int, str], OneValueReader] = {}
        self._held: list[HeldFile | None] | None = None
        self._heads: dict[tuple[int, str], bytearray] = {}
        """Size of the page header by row, for pages that were read; 0 for all others."""

    @cached_property
    def coverage(self) -> tuple[Coverage | None, ...]:
        """The area that each band's source covers; None if unknown or if nodata marks padding."""
        return coverages([part.metadata for part in self.parts])

    @cached_property
    def columns_with_nulls(self) -> frozenset[str]:
        """Columns with NULL tiles, as far as the statistics of row groups tell."""
        return frozenset(
            name for part in self.parts for name in self.columns if part.nulls(name) > 1
        )

    # -- sources -----------------------------------------------------------------------------------

    def _fetch(self, wanted: Sequence[tuple[int, ByteRange]]) -> list[Piece]:
        """One piece for each range of a part, all in one round trip."""
        files = self._files()
        if None not in files:
            pieces = [self._read(part, want) for part, want in wanted]
            for part in {part for part, _ in wanted}:
                files[part].check_unchanged()  # type: ignore[union-attr]  # see above
            return pieces
        places: dict[int, list[int]] = {}
        for place, (part, _) in enumerate(wanted):
            places.setdefault(part, []).append(place)
        jobs = [
            partial(self.sources[part].fetch, [wanted[place][1] for place in some])
            for part, some in places.items()
        ]
        remote = any(not source.location.is_local for source in self.sources)
        fetched = side_by_side(jobs, remote=remote)
        found = zip(chain(*places.values()), chain(*fetched), strict=True)
        return [piece for _, piece in sorted(found, key=itemgetter(0))]

    @property
    def is_local(self) -> bool:
        """Whether all files are local ones that stay open."""
        return None not in self._files()

    def _files(self) -> list[HeldFile | None]:
        if self._held is None:
            few = len(self.sources) <= _MOST_HELD
            self._held = [held(source) if few else None for source in self.sources]
        return self._held

    def _read(self, part: int, want: ByteRange) -> Piece:
        file = self._files()[part]
        assert file is not None, "asked for before"
        data = file.read(want.offset, want.size)
        return Piece(data, want.offset, self.parts[part].footer.tail.total)

    def close(self) -> None:
        """Close the files and drop the caches."""
        self._held = None
        self._heads.clear()
        self._tiles.clear()
        self._chunks.clear()
        for source in self.sources:
            source.close()

    # -- one tile ----------------------------------------------------------------------------------

    def blob_here(
        self, row: int, column: str, *, verify: bool = True
    ) -> bytes | EllipsisType | None:
        """The blob of a tile by one read of a local file; `...` if that is not possible."""
        part, local = self.place(row) if len(self.parts) > 1 else (0, row)
        pages = self.parts[part].pages.get(column)
        file = (self._held or self._files())[part]
        if pages is None or file is None:
            return ...
        heads = self._heads_of(part, column)
        offset, size = pages.offset.item(local), pages.size.item(local)
        head = 0 if verify else heads[local]
        if head:
            return file.read_unchanged(offset + head, size - head)
        blob = self._blob(file, part, local, offset, size, column, verify=verify)
        file.check_unchanged()
        return blob

    def _heads_of(self, part: int, column: str) -> bytearray:
        """Header sizes of pages, which are parsed only once.

        Every read afterwards checks that the file has not changed since it was opened.
        """
        heads = self._heads.get((part, column))
        if heads is None:
            heads = self._heads[part, column] = bytearray(len(self.parts[part].ids))
        return heads

    def _blob(
        self,
        file: HeldFile,
        part: int,
        local: int,
        offset: int,
        size: int,
        column: str,
        *,
        verify: bool,
    ) -> bytes | None:
        """The value of a page. The caller must then check that the file has not changed."""
        row = local + int(self.starts[part])
        if size > self.limits.tile_bytes:
            self._check_page(size, row, column)
        reader = self._readers.get((part, column))
        if reader is None or size < _IN_TWO:
            page = file.read(offset, size)
        else:
            # Saves a copy of a large value.
            head = reader.head
            start, value = file.read(offset, head), file.read(offset + head, size - head)
            if reader.is_value(start, value, verify=verify):
                self._heads_of(part, column)[local] = head
                return value
            page = start + value
        try:
            found = self._value(page, row, column, verify=verify)
        except InvalidMetadataError:
            file.check_unchanged()  # a changed file is the better explanation
            raise
        if found and size - len(found) < _MOST_HEAD:
            self._heads_of(part, column)[local] = size - len(found)
        return found

    def pixels_here(self, row: int, column: str) -> Pixels | EllipsisType | None:
        """The same as `blob_here`, decoded and cached."""
        found = self._tiles.get((row, column))
        if found is not None:
            return found
        blob = self.blob_here(row, column)
        if blob is None or blob is ...:
            return blob
        return self._decoded(blob, row, column, keep=True)

    def bands_here(self, row: int, bands: Sequence[Band]) -> list[Pixels | None]:
        """The same as `bands_of` for one row: for a local file by one read without a copy."""
        picks = self._picks(bands)
        found = {name: self.pixels_here(row, name) for name, _ in picks}
        if any(pixels is ... for pixels in found.values()):
            return self.bands_of([row], bands)[row]
        return [_plane(found[name], at) for name, at in picks]

    # -- many tiles --------------------------------------------------------------------------------

    def iter_blobs(
        self, rows: Ints, column: str, *, verify: bool = True, together: int = _TOGETHER
    ) -> Iterator[bytes | None]:
        """The blobs of one column, one by one; None for `ABSENT` rows too.

        After every few reads the file is checked for changes. If reads cost requests, `together`
        blobs are fetched at a time.
        """
        if not self.is_local or any(column not in part.pages for part in self.parts):
            for at in range(0, len(rows), together):
                asked = rows[at : at + together].tolist()
                keys = [(row, column) for row in dict.fromkeys(asked) if row != ABSENT]
                found = self.blobs_of(keys)
                yield from (found.get((row, column)) for row in asked)
            return
        for at in range(0, len(rows), _LOCATED):
            yield from self._local_blobs(rows[at : at + _LOCATED], column, verify=verify)

    def _local_blobs(self, rows: Ints, column: str, *, verify: bool) -> Iterator[bytes | None]:
        files = self._files()
        places = self.parts_of(rows)
        local, there = rows - self.starts[places], rows != ABSENT
        offsets, sizes = np.zeros(len(rows), np.int64), np.full(len(rows), -1, np.int64)
        heads: dict[int, bytearray] = {}
        for part in np.unique(places[there]).tolist():
            mine, pages = (places == part) & there, self.parts[part].pages[column]
            offsets[mine], sizes[mine] = pages.offset[local[mine]], pages.size[local[mine]]
            heads[part] = self._heads_of(part, column)
        spans = zip(places.tolist(), local.tolist(), offsets.tolist(), sizes.tolist(), strict=True)
        while few := list(islice(spans, _FEW)):
            blobs: list[bytes | None] = []
            used = set()
            for part, at, offset, size in few:
                file = files[part] if size >= 0 else None
                if file is None:
                    blobs.append(None)
                    continue
                head = 0 if verify else heads[part][at]
                if head:
                    blobs.append(file.read(offset + head, size - head))
                else:
                    blobs.append(self._blob(file, part, at, offset, size, column, verify=verify))
                used.add(file)
            for file in used:
                file.check_unchanged()
            yield from blobs

    def blobs_of(self, keys: Sequence[Key]) -> dict[Key, bytes | None]:
        """The blobs of tiles: pages in one round trip, column chunks in one per some 16 MiB."""
        found: dict[Key, bytes | None] = {}
        pages: dict[Key, tuple[int, ByteRange]] = {}
        chunks: dict[int, dict[int, list[tuple[Key, int]]]] = {}
        for key in keys:
            row, column = key
            part, local = self.place(row)
            index = self.parts[part].pages.get(column)
            if index is not None:
                size = index.size.item(local)
                self._check_page(size, row, column)
                pages[key] = part, ByteRange(index.offset.item(local), size)
            else:
                ends = self.parts[part].row_ends
                group = int(np.searchsorted(ends, local, side="right"))
                at = local - int(ends[group] - self.parts[part].footer.layout.rows[group])
                chunks.setdefault(part, {}).setdefault(group, []).append((key, at))
        if pages:
            pieces = self._fetch(list(pages.values()))
            for key, piece in zip(pages, pieces, strict=True):
                found[key] = self._value(piece.data, *key)
        for part, groups in chunks.items():
            self._read_groups(part, groups, found)
        return found

    def pixels_of(self, keys: Sequence[Key], *, keep: bool = True) -> dict[Key, Pixels | None]:
        """The pixels of tiles; None for NULL. With `keep`, they stay in the cache."""
        found: dict[Key, Pixels | None] = {}
        missing: list[Key] = []
        for key in keys:
            pixels = self._tiles.get(key)
            if pixels is None:
                missing.append(key)
            else:
                found[key] = pixels
        if missing:
            fetched = self.blobs_of(missing)
            found.update(zip(fetched, self._all_decoded(fetched, keep=keep), strict=True))
        return found

    def bands_of(
        self, rows: Sequence[int], bands: Sequence[Band], *, keep: bool = True
    ) -> dict[int, list[Pixels | None]]:
        """The pixels of some bands by row, None for NULL; see `pixels_of`."""
        picks = self._picks(bands)
        names = dict.fromkeys(name for name, _ in picks)
        keys = [(row, name) for row in rows for name in names]
        found = self.pixels_of(keys, keep=keep)
        return {row: [_plane(found[row, name], at) for name, at in picks] for row in rows}

    def _picks(self, bands: Sequence[Band]) -> list[tuple[str, int | None]]:
        """For each band its column, and its index in an interleaved column."""
        metadata = self.metadata
        if metadata.interleaved:
            return [(self.columns[0], metadata.band_index(band.name)) for band in bands]
        return [(band.name, None) for band in bands]

    def _read_groups(
        self,
        part: int,
        groups: dict[int, list[tuple[Key, int]]],
        found: dict[Key, bytes | None],
    ) -> None:
        """Add the blobs of rows of row groups to `found`; rows are numbered within their group."""
        footer = self.parts[part].footer
        table = ParquetTable(self.sources[part], footer, limits=self.limits)
        for stretch in table.runs(self.columns, sorted(groups), stored=_CHUNK_BYTES):
            asked = [(group, key[1]) for group in stretch for key, _ in groups[group]]
            arrays: dict[tuple[int, str], Any] = {
                one: self._chunks.get((part, *one)) for one in dict.fromkeys(asked)
            }
            missing = [one for one, array in arrays.items() if array is None]
            wanted = [
                (part, chunk)
                for group, name in missing
                for chunk in chunk_ranges(footer, [name], [group], [footer.tail])
            ]
            pieces = self._fetch(wanted) if wanted else []
            for group, name in missing:
                column = read_columns(footer, [name], [group], self.limits, pieces).column(0)
                array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
                self._chunks.put((part, group, name), array, array.nbytes)
                arrays[group, name] = array
            for group in stretch:
                for key, at in groups[group]:
                    found[key] = arrays[group, key[1]][at].as_py()

    # -- decoding ----------------------------------------------------------------------------------

    def place(self, row: int) -> tuple[int, int]:
        """The part of a row, and its row number in the part."""
        if len(self.parts) == 1:
            return 0, row
        part = int(np.searchsorted(self.starts, row, side="right")) - 1
        return part, row - int(self.starts[part])

    def parts_of(self, rows: Ints) -> Ints:
        """The part of each of many rows."""
        return np.searchsorted(self.starts, rows, side="right") - 1

    def where(self, row: int, column: str) -> str:
        """Name of a tile in messages."""
        part, _ = self.place(row)
        return f"{self.parts[part].where}, block {self.ids[row]}, {column}"

    def _value(self, page: bytes, row: int, column: str, *, verify: bool = True) -> bytes | None:
        part = self.place(row)[0] if len(self.parts) > 1 else 0
        reader = self._readers.get((part, column))
        if reader is None:
            required = column in self.parts[part].required
            reader = self._readers[part, column] = OneValueReader(required=required)
        try:
            return reader.value(page, column, verify=verify)
        except InvalidMetadataError:
            # The place is only formatted for an error.
            return reader.value(page, self.where(row, column), verify=verify)

    def _decoded(self, blob: bytes, row: int, column: str, *, keep: bool) -> Pixels:
        try:
            pixels = self._decoders[column](blob)
        except (InvalidMetadataError, LimitExceededError):
            pixels = self._decoders[column](blob, where=self.where(row, column))
        pixels.flags.writeable = False
        if keep:
            self._tiles.put((row, column), pixels, pixels.nbytes)
        return pixels

    def _all_decoded(self, fetched: dict[Key, bytes | None], *, keep: bool) -> list[Pixels | None]:
        def decoded(key: Key) -> Pixels | None:
            blob = fetched[key]
            return None if blob is None else self._decoded(blob, *key, keep=keep)

        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        if len(fetched) < _FOR_THREADS or threads < 2:
            return [decoded(key) for key in fetched]
        # Inflating releases the GIL, and takes most of the time of a window.
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(decoded, fetched))

    def _decoder(self, column: str) -> Callable[..., Pixels]:
        dtype, shape = self.metadata.stored_in(column)
        return partial(
            blobs.decode,
            compression=self.metadata.compression,
            dtype=dtype,
            shape=shape,
            byte_interleaved=self.byte_interleaved,
            limits=self.limits,
        )

    def _check_page(self, size: int, row: int, column: str) -> None:
        if size > self.limits.tile_bytes + _BESIDE:
            self.limits.check("tile_bytes", size, self.where(row, column))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_held": None, "_readers": {}, "_heads": {}}


def _time_steps(
    parts: Sequence[TileFile], tiles: npt.NDArray[np.bool_], metadata: Metadata
) -> tuple[TimeAxis | None, Ints | None]:
    """The time axis of a set, and the step number of each row; None without time."""
    values = [part.time for part in parts if part.time is not None]
    if not values:
        return None, None
    if len(values) < len(parts):
        raise InvalidMetadataError("only some files of the set have times", where=parts[0].where)
    stamps = [
        np.full(len(part.ids), np.datetime64("NaT", "us")) if part.stamps is None else part.stamps
        for part in parts
    ]
    return axis_of(np.concatenate(values), np.concatenate(stamps), tiles, metadata.time)


def _plane(pixels: Any, at: int | None) -> Any:
    return pixels if at is None or pixels is None else pixels[at]


# -- statistics of tiles ---------------------------------------------------------------------------


def tile_statistics(store: TileStore) -> npt.NDArray[np.float64] | None:
    """Statistics (rows, bands, kinds) of all tiles, NaN for NULL; None if the file has none.

    The kinds are those of `Metadata.tile_statistics`.
    """
    metadata = store.metadata
    if not metadata.tile_statistics:
        return None
    names = list(metadata.statistics_columns)
    for part in store.parts:
        missing = [name for name in names if name not in part.footer.schema.names]
        if missing:
            raise InvalidMetadataError(
                "declared tile statistics have no columns",
                where=part.where,
                found=", ".join(map(shown, missing[:3])),
                hint="comal.raquet.repair writes a copy that has them",
            )
    tables = [
        ParquetTable(source, part.footer, limits=store.limits).read(names)
        for source, part in zip(store.sources, store.parts, strict=True)
    ]
    table = pa.concat_tables(tables)
    columns: list[Any] = [
        table.column(name).cast(pa.float64()).to_numpy(zero_copy_only=False) for name in names
    ]
    stacked = np.stack(columns, axis=1)
    return stacked.reshape(len(stacked), len(metadata.bands), len(metadata.tile_statistics))
