"""From tiles of a job to the Parquet file: the spool, padding, row groups.

The file has the metadata row, then the tiles in the order of their ids, in row groups of one zoom.
Bands are plain pages of one tile each, so that the page index leads to every tile; all other
columns are compressed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidInputError, StorageError, translated
from comal.grid import quadbin
from comal.raquet import spec
from comal.raquet.documents import label_of, metadata_json
from comal.raquet.spec import Band, Metadata
from comal.raquet.times import TimeAxis, time_columns
from comal.raquet.writing.job import WHOLE, Job, Subtree, Totals
from comal.raster.statistics import BandSums, counted_sums, is_counted
from comal.raster.values import ALPHA
from comal.table.columns import blobs_column, numbers_column, spans_column, texts_column

ROWS = 64
"""Tiles of a row group."""
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
    """For each column of pixels its blobs, None for NULL: a list or an Arrow array."""
    time_cf: Any = None
    """Numbers: an array or a list."""
    time_ts: Any = None
    """Instants: an array with NaT, or a list of microseconds since 1970 with None."""
    statistics: npt.NDArray[np.float64] | None = None
    """(tiles, bands, 6); NaN in the count marks tiles without valid pixels."""


def schema_of(metadata: Metadata, block_dtype: str = "uint64") -> Any:
    """The Arrow schema of a file."""
    fields = [(spec.BLOCK, pa.type_for_alias(block_dtype)), (spec.METADATA, pa.string())]
    if metadata.time is not None:
        fields += [(spec.TIME_CF, pa.float64()), (spec.TIME_TS, pa.timestamp("us"))]
    fields += [(name, pa.binary()) for name in metadata.columns]
    fields += [
        (f"{band}_{kind}", pa.int64() if kind == "count" else pa.float64())
        for band in metadata.band_names
        for kind in metadata.tile_statistics
    ]
    names = [name for name, _ in fields]
    if len(set(names)) != len(names):
        raise InvalidInputError("two columns of one name", found=", ".join(names))
    return pa.schema(fields)


def write_parquet(
    file: BinaryIO,
    metadata: Metadata,
    version: str,
    groups: Iterable[RowGroup],
    block_dtype: str = "uint64",
) -> int:
    """Write row groups with ascending ids as a whole file, and tell how many tiles it has.

    The document says `metadata` in this version; `file` stays open.
    """
    schema, document = schema_of(metadata, block_dtype), metadata_json(metadata, version)
    pixels = set(metadata.columns)
    others = [name for name in schema.names if name not in pixels]
    keys = [name for name in (spec.BLOCK, spec.TIME_CF) if name in others]
    with translated(_WRITING, "table cannot be written"):
        writer = pq.ParquetWriter(
            file,
            schema,
            use_dictionary=False,
            compression={name: "none" if name in pixels else "zstd" for name in schema.names},
            write_statistics=[*keys, spec.METADATA],
            write_page_index=True,
            write_page_checksum=True,
            # RaQuet says nothing of pages: one tile in each is what lets a tile be one range.
            max_rows_per_page=1,
            sorting_columns=[
                pq.SortingColumn(schema.get_field_index(name), nulls_first=True) for name in keys
            ],
            store_schema=False,
        )
        # It closes on a failure too, because it would otherwise write when it is collected.
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
    """First and last row of each row group, of ascending ids and the bytes of their tiles.

    A group has `rows` tiles; by default 64, or more so that there are some 1000 groups, but never
    more than fit into some 32 MiB.
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
    """The coarsest zoom, of those that go without a gap up to the finest."""
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
    """Tiles of a job as they come, in a temporary file that the caller closes.

    Once all are there, `sort` puts them in the order of their ids, those of one id in that of time.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.cells = self.offsets = np.empty(0, np.int64)
        self.steps = np.empty(0, np.int32)
        self.sizes = np.empty((0, 1), np.int64)
        """Bytes of each blob: (tiles, columns)."""
        self.statistics: npt.NDArray[np.float64] | None = None
        self.masks: list[bytes] | None = None
        """For each tile what is padding; None where no tile has any, or nobody needs to know."""
        self.reduced: dict[int, Array] = {}
        """Of undecided bands, by position: the values that occur in overviews."""
        self._parts: list[tuple[Any, ...]] = []
        self._masks: list[bytes] = []

    def add(self, made: Subtree, step: int) -> None:
        """Append tiles of a step in time."""
        for at, values in made.reduced:
            self.reduced[at] = np.union1d(self.reduced.get(at, values), values)
        if not made.cells:
            return
        cells = np.array(made.cells, np.int64)
        sizes = np.array([len(blob) for blob in made.blobs], np.int64).reshape(len(cells), -1)
        steps = np.full(len(cells), step, np.int32)
        statistics = [np.stack(made.statistics)] if made.statistics else []
        self._parts.append((cells, steps, sizes, *statistics))
        self._masks += made.masks
        self._file.write(b"".join(made.blobs))

    def sort(self) -> None:
        """Put all tiles in the order in which they are written."""
        self._file.flush()
        if not self._parts:
            return
        cells, steps, sizes, *statistics = map(np.concatenate, zip(*self._parts, strict=True))
        self._parts.clear()
        order = np.lexsort((steps, cells))
        ends = np.cumsum(sizes.sum(axis=1))
        self.cells, self.steps, self.sizes = cells[order], steps[order], sizes[order]
        self.offsets = (ends - sizes.sum(axis=1))[order]
        self.statistics = statistics[0][order] if statistics else None
        if any(self._masks):
            self.masks = [self._masks[at] for at in order.tolist()]

    def blobs(self, start: int, stop: int) -> list[Any]:
        """For each column the blobs of some rows, as an Arrow array."""
        sizes = self.sizes[start:stop]
        data = b"".join(
            self._read(offset, size)
            for offset, size in _runs(self.offsets[start:stop], sizes.sum(axis=1))
        )
        columns = sizes.shape[1]
        if columns == 1:
            return [spans_column(data, sizes[:, 0])]
        view, ends = memoryview(data), np.cumsum(sizes.ravel()).tolist()
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

    def _read(self, offset: int, size: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(size)


def _runs(offsets: Ints, sizes: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of the file, with those that follow one another as one."""
    if not len(offsets):
        return
    first = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1] + sizes[:-1]])
    lengths = np.add.reduceat(sizes, first)
    yield from zip(offsets[first].tolist(), lengths.tolist(), strict=True)


# -- padding ---------------------------------------------------------------------------------------
#
# What stands where tiles reach beyond their source, when the raster has no nodata value. Which
# values are free is known when all pixels have been seen. Until then tiles at the edge are padded
# with the likeliest value, and keep a mask of what their source covers. At the end the value is as
# it was guessed in most rasters; else only the tiles at the edge are encoded again. A raster that
# has all values of its type gets the masks as an alpha band.


@dataclass(frozen=True, slots=True)
class Padding:
    """How padding is told from pixels."""

    nodata: Mapping[int, int] = field(default_factory=dict)
    """By position of a band the value that is chosen."""
    alpha: str | None = None
    """Type of the alpha band that is added."""


def first_choice(dtype: str) -> int:
    """What integers are padded with: 0, or the least value of a type that has negative ones."""
    return int(np.iinfo(dtype).min) if np.dtype(dtype).kind == "i" else 0


def chosen_padding(job: Job, totals: Totals, spool: Spool) -> Padding:
    """One value for all bands of a type; for the whole raster an alpha band if a type has none."""
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
    """Values of a band; of types wider than 16 bits those at the ends."""
    found = [] if reduced is None else [reduced]
    if sums.values is not None:
        found.append(sums.values.view(sums.dtype))
    elif sums.count:
        found.append(np.array([sums.low, sums.high], sums.dtype))
    return found


def free_value(dtype: str, used: Sequence[Array | None], liked: Sequence[int] = ()) -> int | None:
    """An integer that no pixel has, if there is one a value that is `liked`; None where none is.

    Of types wider than 16 bits only the least and the greatest of the values that occur are known,
    and what is free must be beyond them.
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
    """The bands with the values that were chosen, and the alpha band if there is one."""
    found = [
        replace(band, nodata=padding.nodata.get(at, band.nodata)) for at, band in enumerate(bands)
    ]
    if padding.alpha is not None:
        found.append(alpha_band(bands, padding.alpha))
    return tuple(found)


def alpha_band(bands: Sequence[Band], dtype: str = "uint8") -> Band:
    """The band that tells which pixels have a value, to go behind the others."""
    names = [band.name for band in bands]
    numbered = [f"band_{at + 1}" for at in range(len(names))]
    # The reference converter reads no other names than these.
    name = f"band_{len(names) + 1}" if names == numbered else ALPHA
    while name in names:
        name += "_"
    return Band(name=name, dtype=dtype, colorinterp=ALPHA)


def alpha_sums(padding: Padding, covered: int) -> list[BandSums]:
    """Statistics of the alpha band, if there is one: all that the source covers is opaque."""
    if padding.alpha is None:
        return []
    top = int(np.iinfo(padding.alpha).max)
    if is_counted(padding.alpha):
        bits = np.array([top], padding.alpha).view(f"u{np.dtype(padding.alpha).itemsize}")
        return [counted_sums(padding.alpha, bits, np.array([covered]))]
    return [BandSums(padding.alpha, covered, top, top, top * covered, top * top * covered)]


class PaddedTiles:
    """The tiles of a job as they are written; `pool` encodes again those that padding changes."""

    def __init__(self, tiles: Spool, job: Job, padding: Padding, pool: Executor) -> None:
        self._tiles, self._job, self._padding, self._pool = tiles, job, padding, pool
        self._refilled = {
            at: value for at, value in padding.nodata.items() if value != job.bands[at].fill
        }
        self._opaque: list[bytes] = []
        if padding.alpha is not None and not job.interleaved:
            self._opaque = job.encoded([self._alpha(self._covered(WHOLE))])

    def groups(self, axis: TimeAxis | None, rows: int | None) -> Iterator[RowGroup]:
        """The row groups, of `rows` tiles each where that is given."""
        tiles = self._tiles
        for start, stop in row_groups(tiles.cells, tiles.sizes.sum(axis=1), rows):
            times = time_columns(axis, tiles.steps[start:stop])
            statistics = self._statistics(start, stop)
            yield RowGroup(tiles.cells[start:stop], self._columns(start, stop), *times, statistics)

    def _columns(self, start: int, stop: int) -> list[Any]:
        columns, masks = self._tiles.blobs(start, stop), self._tiles.masks
        if masks is None or (self._padding.alpha is None and not self._refilled):
            return columns
        rows = [column.to_pylist() for column in columns]
        made = self._pool.map(self._renewed, masks[start:stop], zip(*rows, strict=True))
        return [list(column) for column in zip(*made, strict=True)]

    def _statistics(self, start: int, stop: int) -> npt.NDArray[np.float64] | None:
        """Tile statistics, those of an alpha band included."""
        found, masks = self._tiles.statistics, self._tiles.masks
        if found is None:
            return None
        found = found[start:stop]
        if self._padding.alpha is None or masks is None:
            return found
        top = float(np.iinfo(self._padding.alpha).max)
        rows = []
        for mask in masks[start:stop]:
            count = int(np.count_nonzero(self._covered(mask)))
            one = [float(count), top, top, count * top, top, 0.0]
            rows.append(one if count else [np.nan] * len(one))
        return np.concatenate([found, np.array(rows)[:, None]], axis=1)

    def _renewed(self, mask: bytes, columns: Sequence[bytes]) -> list[bytes]:
        """The blobs of a tile, with what padding and alpha turned out to be."""
        job, with_alpha = self._job, self._padding.alpha is not None
        if mask == WHOLE and not (with_alpha and job.interleaved):
            return [*columns, *self._opaque]
        covered = self._covered(mask)
        planes = job.decoded(columns)
        for at, value in self._refilled.items():
            planes[at] = np.where(covered, planes[at], planes[at].dtype.type(value))
        return job.encoded([*planes, *([self._alpha(covered)] if with_alpha else [])])

    def _alpha(self, covered: Array) -> Array:
        kind = np.dtype(self._padding.alpha)
        return np.where(covered, kind.type(np.iinfo(kind).max), kind.type(0))

    def _covered(self, mask: bytes) -> Array:
        """What the source covers of a tile."""
        block = self._job.block
        if mask == WHOLE:
            return np.ones((block, block), bool)
        bits = np.frombuffer(zlib.decompress(mask), np.uint8)
        return np.unpackbits(bits, count=block * block).reshape(block, block).astype(bool)
