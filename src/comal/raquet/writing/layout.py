"""The Parquet file: the metadata row, then the tiles in the order of their ids.

Row groups hold tiles of one zoom. Bands are plain pages of one tile each, so that the page index
leads to every tile; all other columns are compressed.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidInputError, StorageError, translated
from comal.raquet import spec
from comal.raquet.documents import label_of
from comal.raquet.spec import Metadata
from comal.raquet.writing.job import STATISTICS, Tiles
from comal.table.columns import blobs_column, numbers_column, spans_column, texts_column

ROWS = 64
"""Tiles of a row group."""
_MOST_GROUPS = 1000
_GROUP_BYTES = 32 << 20
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
    if block_dtype not in {"uint64", "int64"}:
        raise InvalidInputError(
            "unknown type for block", found=block_dtype, expected="uint64 or int64"
        )
    kinds = {"count": pa.int64()}
    fields = [(spec.BLOCK, pa.type_for_alias(block_dtype)), (spec.METADATA, pa.string())]
    if metadata.time is not None:
        fields += [(spec.TIME_CF, pa.float64()), (spec.TIME_TS, pa.timestamp("us"))]
    fields += [(name, pa.binary()) for name in metadata.columns]
    fields += [
        (f"{band}_{kind}", kinds.get(kind, pa.float64()))
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
    document: str,
    version: str,
    groups: Iterable[RowGroup],
    block_dtype: str = "uint64",
) -> int:
    """Write row groups with ascending ids as a whole file, and tell how many tiles it has.

    `document` is the JSON of `metadata` in this version; `file` stays open.
    """
    schema = schema_of(metadata, block_dtype)
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


def row_groups(
    cells: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    zoom_of: Callable[[Any], Any],
    rows: int | None = None,
) -> Iterator[tuple[int, int]]:
    """First and last row of each row group, of ascending ids and the bytes of their tiles.

    A group has `rows` tiles; by default 64, or more so that there are some 1000 groups, but never
    more than fit into some 32 MiB.
    """
    wanted = rows or max(ROWS, -(-len(cells) // _MOST_GROUPS))
    zooms = np.asarray(zoom_of(cells))
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


Ints = npt.NDArray[np.int64]


class Spool:
    """Tiles as they come, in a temporary file that the caller closes.

    A tile has as many blobs as there are `columns`, and statistics of `bands`, 0 for none.
    """

    def __init__(self, file: BinaryIO, columns: int, bands: int) -> None:
        self._file, self._columns, self._bands = file, columns, bands
        self._cells, self._steps = array("q"), array("i")
        self._offsets, self._sizes = array("q"), array("I")
        self._statistics = array("d")
        self._masks: list[bytes] = []
        self._end = 0
        self.reduced: dict[int, npt.NDArray[Any]] = {}
        """Of undecided bands, by position: the values that occur in overviews."""

    def __len__(self) -> int:
        return len(self._cells)

    def add(self, tiles: Tiles, step: int) -> None:
        """Append tiles of a step in time."""
        per_tile = self._columns
        for at, cell in enumerate(tiles.cells):
            blobs = tiles.blobs[at * per_tile : (at + 1) * per_tile]
            self._cells.append(cell)
            self._steps.append(step)
            self._offsets.append(self._end)
            self._sizes.extend(len(blob) for blob in blobs)
            self._end += sum(map(len, blobs))
        self._masks += tiles.masks
        for at, values in tiles.reduced:
            self.reduced[at] = np.union1d(self.reduced.get(at, values), values)
        for found in tiles.statistics:
            self._statistics.frombytes(np.ascontiguousarray(found, np.float64).tobytes())
        self._file.write(b"".join(tiles.blobs))

    def sorted(self) -> Sorted:
        """All tiles in the order of their ids, those of one id in the order of time."""
        self._file.flush()
        cells = np.frombuffer(self._cells, np.int64) if self._cells else np.empty(0, np.int64)
        steps = np.frombuffer(self._steps, np.int32) if self._steps else np.empty(0, np.int32)
        order = np.lexsort((steps, cells))
        sizes = np.frombuffer(self._sizes, np.uint32) if self._sizes else np.empty(0, np.uint32)
        offsets = np.frombuffer(self._offsets, np.int64) if self._offsets else cells
        statistics = None
        if self._bands:
            statistics = np.array(self._statistics).reshape(-1, self._bands, STATISTICS)[order]
        return Sorted(
            self._file,
            cells[order],
            steps[order],
            offsets[order],
            sizes.reshape(-1, self._columns)[order].astype(np.int64),
            statistics,
            [self._masks[at] for at in order.tolist()] if any(self._masks) else None,
        )


@dataclass(slots=True)
class Sorted:
    """Tiles in the order in which they are written."""

    file: BinaryIO
    cells: Ints
    steps: npt.NDArray[np.int32]
    offsets: Ints
    sizes: Ints
    """Bytes of each blob: (tiles, columns)."""
    statistics: npt.NDArray[np.float64] | None
    masks: list[bytes] | None
    """For each tile what is padding; None where no tile has any, or nobody needs to know."""

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
        self.file.seek(offset)
        return self.file.read(size)


def _runs(offsets: Ints, sizes: Ints) -> Iterator[tuple[int, int]]:
    """Ranges of the file, with those that follow one another as one."""
    if not len(offsets):
        return
    first = np.flatnonzero(np.r_[True, offsets[1:] != offsets[:-1] + sizes[:-1]])
    lengths = np.add.reduceat(sizes, first)
    yield from zip(offsets[first].tolist(), lengths.tolist(), strict=True)
