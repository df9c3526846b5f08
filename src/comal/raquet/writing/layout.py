"""From tiles of a job to the Parquet file: the spool, padding, row groups.

The file has the metadata row, then the tiles in the order of their ids, in row groups of one zoom.
Bands are plain pages of one tile each, so that the page index locates every tile; all other
columns are compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, pairwise, repeat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import (
    ComalError,
    InvalidInputError,
    StorageError,
    shown_path,
    system_errors,
    translated,
)
from comal.grid import quadbin
from comal.limits import DEFAULT_LIMITS
from comal.parallel import results, width
from comal.raquet import spec
from comal.raquet.documents import label_of, metadata_json
from comal.raquet.spec import Band, Metadata
from comal.raquet.times import TimeAxis, time_columns
from comal.raquet.writing.job import WHOLE, Job, Subtree, Totals
from comal.raster.statistics import BandSums, counted_sums, is_counted
from comal.raster.values import ALPHA, occurring
from comal.table.columns import (
    blobs_column,
    check_schema,
    numbers_column,
    spans_column,
    texts_column,
)

ROWS = 64
"""Default number of tiles in a row group."""
_MOST_GROUPS = 1000
_GROUP_BYTES = 32 << 20
Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

_WRITING: dict[type[BaseException], type[ComalError]] = {
    pa.ArrowException: InvalidInputError,
    OSError: StorageError,
}


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Tiles of one row group."""

    cells: npt.NDArray[np.int64]
    columns: Sequence[Any]
    """The blobs of each column of pixels, None for NULL: a list or an Arrow array."""
    time_cf: Any = None
    """CF numbers: an array or a list."""
    time_ts: Any = None
    """Instants: an array with NaT, or a list of microseconds since 1970 with None."""
    statistics: npt.NDArray[np.float64] | None = None
    """(tiles, bands, 6); NaN in the count marks tiles without valid pixels."""


def schema_of(metadata: Metadata, block_dtype: str = "uint64") -> Any:
    """The Arrow schema of a file; raises an error for names that no reader would accept."""
    fields = [(spec.BLOCK, pa.type_for_alias(block_dtype)), (spec.METADATA, pa.string())]
    if metadata.time is not None:
        fields += [(spec.TIME_CF, pa.float64()), (spec.TIME_TS, pa.timestamp("us"))]
    fields += [(name, pa.binary()) for name in metadata.columns]
    fields += [
        (f"{band}_{kind}", pa.int64() if kind == "count" else pa.float64())
        for band in metadata.band_names
        for kind in metadata.tile_statistics
    ]
    schema = pa.schema(fields)
    check_schema(schema, DEFAULT_LIMITS, "the file to write")
    return schema


def write_parquet(
    file: BinaryIO,
    metadata: Metadata,
    version: str,
    groups: Iterable[RowGroup],
    block_dtype: str = "uint64",
) -> int:
    """Write row groups with ascending ids as a complete file; returns its number of tiles.

    The document holds `metadata` in this version; `file` stays open.
    """
    schema, document = schema_of(metadata, block_dtype), metadata_json(metadata, version)
    pixels = set(metadata.columns)
    others = [name for name in schema.names if name not in pixels]
    keys = [name for name in (spec.BLOCK, spec.TIME_CF) if name in others]
    with translated(_WRITING, "the table cannot be written"):
        writer = pq.ParquetWriter(
            file,
            schema,
            use_dictionary=False,
            compression={name: "none" if name in pixels else "zstd" for name in schema.names},
            write_statistics=[*keys, spec.METADATA],
            write_page_index=True,
            write_page_checksum=True,
            # RaQuet does not define pages: with one tile per page, a tile is one byte range.
            max_rows_per_page=1,
            sorting_columns=[
                pq.SortingColumn(schema.get_field_index(name), nulls_first=True) for name in keys
            ],
            store_schema=False,
        )
        # Closed on failure too: otherwise it would write when it is garbage-collected.
        with writer:
            writer.write_table(_metadata_row(schema, document))
            tiles = 0
            for rows in groups:
                writer.write_table(_table(schema, metadata, rows), row_group_size=len(rows.cells))
                tiles += len(rows.cells)
            writer.add_key_value_metadata(
                {spec.VERSION_KEY: label_of(metadata, version), spec.METADATA_KEY: document}
            )
    return tiles


def row_groups(cells: Ints, sizes: Ints, rows: int | None = None) -> Iterator[tuple[int, int]]:
    """Start and stop of each row group, from ascending ids and the sizes of their tiles.

    A group has `rows` tiles; by default 64, or more to have at most some 1000 groups, but never
    more than some 32 MiB.
    """
    wanted = rows or max(ROWS, -(-len(cells) // _MOST_GROUPS))
    zooms = np.asarray(quadbin.zooms(cells))
    changes = (np.flatnonzero(zooms[1:] != zooms[:-1]) + 1).tolist()
    for start, stop in pairwise([0, *changes, len(cells)]):
        while start < stop:
            end = min(start + wanted, stop)
            ends = np.cumsum(sizes[start:end])
            fitting = int(np.searchsorted(ends, _GROUP_BYTES, side="right"))
            end = start + max(1, min(fitting, end - start))
            yield start, end
            start = end  # noqa: PLW2901 - the next group of the same zoom


def lowest_zoom(zooms: Sequence[int]) -> int:
    """The coarsest zoom that is connected to the finest one without a gap."""
    present, lowest = set(zooms), max(zooms)
    while lowest - 1 in present:
        lowest -= 1
    return lowest


def _metadata_row(schema: Any, document: str) -> Any:
    block = schema.field(spec.BLOCK)
    found = {
        spec.BLOCK: numbers_column(np.zeros(1, np.int64), block.type),
        spec.METADATA: texts_column([document]),
    }
    rows = [found.get(field.name, pa.nulls(1, field.type)) for field in schema]
    return pa.table(rows, schema=schema)


def _table(schema: Any, metadata: Metadata, rows: RowGroup) -> Any:
    count = len(rows.cells)
    block = schema.field(spec.BLOCK).type
    found: dict[str, Any] = {
        spec.BLOCK: numbers_column(rows.cells, block),
        spec.METADATA: pa.nulls(count, pa.string()),
    }
    if metadata.time is not None:
        found[spec.TIME_CF] = pa.array(rows.time_cf, pa.float64())
        found[spec.TIME_TS] = pa.array(rows.time_ts, pa.timestamp("us"))
    for name, blobs in zip(metadata.columns, rows.columns, strict=True):
        is_arrow = isinstance(blobs, pa.Array | pa.ChunkedArray)
        found[name] = blobs if is_arrow else blobs_column(blobs)
    if metadata.tile_statistics and rows.statistics is not None:
        found |= _statistics_columns(metadata, rows.statistics)
    return pa.table([found[field.name] for field in schema], schema=schema)


def _statistics_columns(metadata: Metadata, statistics: npt.NDArray[np.float64]) -> dict[str, Any]:
    found = {}
    for at, band in enumerate(metadata.band_names):
        valid = ~np.isnan(statistics[:, at, 0])
        for kind in metadata.tile_statistics:
            values = statistics[:, at, spec.STATISTICS.index(kind)]
            if kind == "count":
                values = np.where(valid, values, 0).astype(np.int64)
            found[f"{band}_{kind}"] = numbers_column(values, valid=valid)
    return found


# -- spool -----------------------------------------------------------------------------------------


class Spool:
    """Tiles of a job in order of arrival, in files of a folder that the caller removes.

    When all have been added, `sort` orders them by id, then by time.
    """

    def __init__(self, folder: Path, target: Path) -> None:
        self._folder, self._target = folder, target
        self._files: dict[str, int] = {}
        """Number of each file by its name."""
        self.cells = self.offsets = np.empty(0, np.int64)
        self.steps = self.files = np.empty(0, np.int32)
        self.sizes = np.empty((0, 1), np.int64)
        """Size of each blob in bytes: (tiles, columns)."""
        self.statistics: npt.NDArray[np.float64] | None = None
        self.masks: list[bytes] | None = None
        """Coverage mask of each tile; None if no tile has padding, or masks are not needed."""
        self.reduced: dict[int, Array] = {}
        """What `occurring` finds in overviews of undecided bands, by position of the band."""
        self._parts: list[tuple[Any, ...]] = []
        self._masks: list[bytes] = []

    def add(self, made: Subtree, step: int) -> None:
        """Append tiles of a time step."""
        for at, values in made.reduced:
            known = self.reduced.get(at, values)
            self.reduced[at] = occurring(np.append(known, values), None)
        if not made.cells:
            return
        if made.place is None:
            with system_errors("cannot write", self._target):
                made.put_down(self._folder)
        assert made.place is not None
        name, start = made.place
        cells = np.array(made.cells, np.int64)
        sizes = np.array(made.sizes, np.int64).reshape(len(cells), -1)
        offsets = start + np.cumsum(sizes.sum(axis=1)) - sizes.sum(axis=1)
        steps = np.full(len(cells), step, np.int32)
        files = np.full(len(cells), self._files.setdefault(name, len(self._files)), np.int32)
        statistics = [np.stack(made.statistics)] if made.statistics else []
        self._parts.append((cells, steps, sizes, files, offsets, *statistics))
        self._masks += made.masks

    def sort(self) -> None:
        """Put all tiles in the order in which they will be written."""
        if not self._parts:
            return
        columns = list(map(np.concatenate, zip(*self._parts, strict=True)))
        self._parts.clear()
        order = np.lexsort((columns[1], columns[0]))
        self.cells, self.steps, self.sizes, self.files, self.offsets, *statistics = (
            column[order] for column in columns
        )
        self.statistics = statistics[0] if statistics else None
        if any(self._masks):
            self.masks = [self._masks[at] for at in order.tolist()]

    def blobs(self, rows: slice | list[int]) -> list[Any]:
        """The blobs of some rows, an Arrow array per column."""
        sizes = self.sizes[rows]
        view = np.empty(int(sizes.sum()), np.uint8).data
        names, at = list(self._files), 0
        runs = _runs(self.files[rows], self.offsets[rows], sizes.sum(axis=1))
        for file, offset, size in runs:
            self._read(names[file], offset, view[at : at + size])
            at += size
        columns = sizes.shape[1]
        if columns == 1:
            return [spans_column(view, sizes[:, 0])]
        ends = np.cumsum(sizes.ravel()).tolist()
        starts = [0, *ends[:-1]]
        return [
            spans_column(
                b"".join(
                    view[a:b] for a, b in zip(starts[at::columns], ends[at::columns], strict=True)
                ),
                sizes[:, at],
            )
            for at in range(columns)
        ]

    def _read(self, name: str, offset: int, view: memoryview) -> None:
        with system_errors("cannot read", self._target), (self._folder / name).open("rb") as file:
            file.seek(offset)
            if file.readinto(view) != len(view):
                raise StorageError("a temporary file is cut short", where=shown_path(file.name))


def _runs(
    files: npt.NDArray[np.int32], offsets: Ints, sizes: Ints
) -> Iterator[tuple[int, int, int]]:
    """File, offset and size of each range that holds rows; adjacent ones are merged."""
    if not len(offsets):
        return
    follows = (offsets[1:] == offsets[:-1] + sizes[:-1]) & (files[1:] == files[:-1])
    first = np.flatnonzero(np.r_[True, ~follows])
    lengths = np.add.reduceat(sizes, first)
    yield from zip(files[first].tolist(), offsets[first].tolist(), lengths.tolist(), strict=True)


# -- padding ---------------------------------------------------------------------------------------
#
# Pixels of tiles outside of their source, if the raster has no nodata value. Which values are free
# is known only after all pixels have been seen. Until then tiles at the edge are padded with the
# likeliest value, and keep a mask of the area that their source covers. For most rasters the guess
# holds; else only the tiles at the edge are encoded again. A raster that uses all values of its
# type gets the masks as an alpha band.


@dataclass(frozen=True, slots=True)
class Padding:
    """How padding is distinguished from pixels."""

    nodata: Mapping[int, int] = field(default_factory=dict)
    """Chosen nodata value by position of the band."""
    alpha: str | None = None
    """Type of the alpha band to add, if any."""


def first_choice(dtype: str) -> int:
    """The first choice for padding integers: 0, or the minimum of a signed type."""
    return int(np.iinfo(dtype).min) if np.dtype(dtype).kind == "i" else 0


def chosen_padding(job: Job, totals: Totals, spool: Spool) -> Padding:
    """One nodata value for all bands of a type, or an alpha band if a type has no free value."""
    if spool.masks is None:
        return Padding()
    dtypes = job.dtypes
    found: dict[int, int] = {}
    for dtype in sorted({dtypes[at] for at in job.undecided}):
        same = [at for at in job.undecided if dtypes[at] == dtype]
        used = [known for at in same for known in _used(totals.bands[at], spool.reduced.get(at))]
        value = free_value(dtype, used)
        if value is None:
            return Padding(alpha=dtype if job.interleaved else "uint8")
        found |= dict.fromkeys(same, value)
    return Padding(found)


def _used(sums: BandSums, reduced: Array | None) -> list[Array]:
    """Values of a band; for types wider than 16 bits only the minimum and maximum."""
    found = [] if reduced is None else [reduced]
    if sums.values is not None:
        found.append(sums.values.view(sums.dtype))
    elif sums.count:
        found.append(np.array([sums.low, sums.high], sums.dtype))
    return found


def free_value(dtype: str, used: Sequence[Array | None], liked: Sequence[int] = ()) -> int | None:
    """An integer that no pixel has, preferably one of `liked`; None if there is none.

    For types wider than 16 bits only the minimum and maximum of the values are known, and a free
    value must be outside of them.
    """
    limits = np.iinfo(dtype)
    least, most = int(limits.min), int(limits.max)
    arrays = [one for one in used if one is not None and len(one)]
    taken = {value for one in arrays for value in one.tolist()}
    if is_counted(dtype):
        order = (*liked, first_choice(dtype), most, *range(least, most + 1))
        return next((value for value in order if value not in taken), None)
    low, high = (min(taken), max(taken)) if taken else (1, 0)
    order = (*liked, first_choice(dtype), most)
    return next((value for value in order if not low <= value <= high), None)


def padded_bands(bands: Sequence[Band], padding: Padding) -> tuple[Band, ...]:
    """The bands with the chosen nodata values, and the alpha band if there is one."""
    found = [
        replace(band, nodata=padding.nodata.get(at, band.nodata)) for at, band in enumerate(bands)
    ]
    if padding.alpha is not None:
        found.append(alpha_band(bands, padding.alpha))
    return tuple(found)


def alpha_band(bands: Sequence[Band], dtype: str = "uint8") -> Band:
    """The alpha band to append to these bands."""
    names = [band.name for band in bands]
    numbered = [f"band_{at + 1}" for at in range(len(names))]
    # The reference converter reads no other names than these.
    name = f"band_{len(names) + 1}" if names == numbered else ALPHA
    while name in names:
        name += "_"
    return Band(name=name, dtype=dtype, colorinterp=ALPHA)


def alpha_sums(padding: Padding, covered: int) -> list[BandSums]:
    """Statistics of the alpha band, if there is one: all covered pixels are opaque."""
    if padding.alpha is None:
        return []
    top = int(np.iinfo(padding.alpha).max)
    if is_counted(padding.alpha):
        bits = np.array([top], padding.alpha).view(f"u{np.dtype(padding.alpha).itemsize}")
        return [counted_sums(padding.alpha, bits, np.array([covered]))]
    return [BandSums(padding.alpha, covered, top, top, top * covered, top * top * covered)]


class PaddedTiles:
    """The tiles of a job as written; `pool` encodes those again whose padding changes."""

    def __init__(self, tiles: Spool, job: Job, padding: Padding, pool: Executor) -> None:
        self._tiles, self._job, self._padding, self._pool = tiles, job, padding, pool
        self._has_alpha = padding.alpha is not None
        self._keeps_pixels = self._has_alpha and not job.interleaved  # as no value was free
        self._opaque: Sequence[bytes] = ()
        if self._keeps_pixels:
            (self._opaque,) = renew_tiles(job, padding, [(WHOLE, ())])

    def groups(self, axis: TimeAxis | None, rows: int | None) -> Iterator[RowGroup]:
        """The row groups, with `rows` tiles each if given."""
        tiles = self._tiles
        spans = list(row_groups(tiles.cells, tiles.sizes.sum(axis=1), rows))
        tasks = (task for span in spans for task in self._tasks(*span))
        renew = partial(renew_tiles, self._job, self._padding)
        renewed = chain.from_iterable(results(self._pool, renew, tasks, ahead=width(self._pool)))
        for start, stop in spans:
            times = time_columns(axis, tiles.steps[start:stop])
            columns, statistics = self._columns(start, stop, renewed), self._sums(start, stop)
            yield RowGroup(tiles.cells[start:stop], columns, *times, statistics)

    def _changed(self, start: int, stop: int) -> list[int]:
        """The rows whose tiles are encoded again."""
        masks = self._tiles.masks
        if masks is None or not (self._has_alpha or refilled(self._job, self._padding)):
            return []
        every = self._has_alpha and not self._keeps_pixels
        return [row for row in range(start, stop) if every or masks[row] != WHOLE]

    def _tasks(self, start: int, stop: int) -> Iterator[list[Renewal]]:
        rows, masks = self._changed(start, stop), self._tiles.masks
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            blobs: Iterable[Sequence[bytes]] = repeat(())
            if not self._keeps_pixels:
                columns = [column.to_pylist() for column in self._tiles.blobs(some)]
                blobs = zip(*columns, strict=True)
            assert masks is not None, "else nothing changes"
            yield [(masks[row], own) for row, own in zip(some, blobs, strict=False)]

    def _columns(self, start: int, stop: int, renewed: Iterator[Sequence[bytes]]) -> list[Any]:
        columns, changed = self._tiles.blobs(slice(start, stop)), self._changed(start, stop)
        rows: list[Sequence[bytes]] = [self._opaque] * (stop - start)
        if not self._keeps_pixels:
            if not changed:
                return columns
            rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
            columns = []
        for row in changed:
            rows[row - start] = next(renewed)
        return [*columns, *map(list, zip(*rows, strict=True))]

    def _sums(self, start: int, stop: int) -> npt.NDArray[np.float64] | None:
        """Tile statistics, including those of an added alpha band."""
        found, masks = self._tiles.statistics, self._tiles.masks
        if found is None:
            return None
        found = found[start:stop]
        if self._padding.alpha is None or masks is None:
            return found
        top = float(np.iinfo(self._padding.alpha).max)
        rows = []
        for mask in masks[start:stop]:
            count = int(np.count_nonzero(_covered(self._job, mask)))
            one = [float(count), top, top, count * top, top, 0.0]
            rows.append(one if count else [np.nan] * len(one))
        return np.concatenate([found, np.array(rows)[:, None]], axis=1)


_AT_ONCE = 16
"""Tiles that a task encodes again."""

Renewal = tuple[bytes, Sequence[bytes]]
"""Mask and blobs of a tile; no blobs if only its alpha is wanted."""


def renew_tiles(job: Job, padding: Padding, tiles: Sequence[Renewal]) -> list[list[bytes]]:
    """The blobs of tiles, encoded again with the final padding and alpha."""
    return [_renewed(job, padding, *tile) for tile in tiles]


def _renewed(job: Job, padding: Padding, mask: bytes, blobs: Sequence[bytes]) -> list[bytes]:
    covered = _covered(job, mask)
    planes = job.decoded(blobs) if blobs else []
    for at, value in refilled(job, padding).items():
        planes[at] = np.where(covered, planes[at], planes[at].dtype.type(value))
    if padding.alpha is not None:
        kind = np.dtype(padding.alpha)
        planes.append(np.where(covered, kind.type(np.iinfo(kind).max), kind.type(0)))
    return job.encoded(planes)


def refilled(job: Job, padding: Padding) -> dict[int, int]:
    """Bands whose chosen nodata value is not what tiles are padded with."""
    return {at: value for at, value in padding.nodata.items() if value != job.bands[at].fill}


def _covered(job: Job, mask: bytes) -> Array:
    """Which pixels of a tile the source covers."""
    if mask == WHOLE:
        return np.ones((job.block, job.block), bool)
    bits = np.frombuffer(zlib.decompress(mask), np.uint8)
    return np.unpackbits(bits, count=job.block**2).reshape(job.block, job.block).astype(bool)
