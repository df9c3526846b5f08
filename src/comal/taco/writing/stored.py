"""What is stored of a level: the metadata fields and the ``internal:`` columns.

Offsets are put beside the rows that they were measured for, never matched up by order of names:
a level table and the `__meta__` files below it are cut from one and the same table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from comal.errors import ComalError, InvalidInputError, translated
from comal.parallel import results
from comal.progress import Progress, silent
from comal.samples.payloads import Ints
from comal.table import ParquetSettings, Writer, write_table
from comal.taco import spec
from comal.taco.model.columns import descriptions, without_null_type
from comal.taco.model.levels import Level, Levels
from comal.taco.model.pit import pit_schema

_META_GROUP = 128
"""Folders per unit of work; a __meta__ file takes about 0.1 ms."""
_COMPRESS_META_ROWS = 256
"""Below this many rows a codec makes a __meta__ file larger and slower to write."""
_WORKERS = 2
_IN_FLIGHT = 8
_ENCODINGS = (
    (spec.ID, "DELTA_BYTE_ARRAY"),
    (spec.RELATIVE_PATH, "DELTA_BYTE_ARRAY"),
    (spec.CURRENT_ID, "DELTA_BINARY_PACKED"),
    (spec.PARENT_ID, "DELTA_BINARY_PACKED"),
    (spec.OFFSET, "DELTA_BINARY_PACKED"),
    (spec.SIZE, "DELTA_BINARY_PACKED"),
)
"""Neighbours differ little in these columns: a tenth of the bytes of a dictionary, and of the time.
All readers of Parquet format 2 know these encodings."""


_FOLDER: Mapping[str, Any] = {
    "chunk_bytes": (16_384, 131_072),
    "dictionary": None,
    "row_group_size": 131_072,
}
"""The tables of a folder lie alone in storage that keeps equal chunks once (TACO 2.0, 6.4), whose
chunks are of about 64 KB: so pages are, and no dictionary of many values changes with every row.
The first page of each column of a row group is another one when rows come or go before it: the
larger the groups, the fewer such pages; but whoever wants one row reads a whole group."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How a dataset is written."""

    parquet: ParquetSettings
    overwrite: bool = False
    progress: Progress = silent
    executor: Executor | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def settings(parquet: Mapping[str, Any], kind: str) -> ParquetSettings:
    """Settings of the level tables from the keywords of the caller.

    Parameters
    ----------
    parquet
        Keywords of the caller; they win.
    kind
        ``zip`` or ``folder``, which has settings of its own.
    """
    own = _FOLDER if kind == "folder" else {}
    return replace(ParquetSettings.from_kwargs(**{**own, **parquet}), encodings=_ENCODINGS)


@dataclass(frozen=True, slots=True)
class Spans:
    """Offset and size of each row's payload in the container, filled in as they are written."""

    offset: Ints
    size: Ints

    @classmethod
    def of(cls, rows: int) -> Spans:
        """Spans of `rows` rows that are not known yet (-1)."""
        return cls(np.full(rows, -1, np.int64), np.full(rows, -1, np.int64))


def internal_columns(
    first: int, parent: Ints, spans: Spans | None, paths: Any
) -> list[tuple[str, Any]]:
    """The ``internal:`` columns of rows `first` and following, in their order in the file."""
    columns: list[tuple[str, Any]] = [
        (spec.CURRENT_ID, pa.array(np.arange(first, first + len(parent), dtype=np.int64))),
        (spec.PARENT_ID, pa.array(parent)),
    ]
    if spans is not None:
        columns += [(spec.OFFSET, pa.array(spans.offset)), (spec.SIZE, pa.array(spans.size))]
    if paths is not None:
        columns.append((spec.RELATIVE_PATH, paths))
    return columns


def stored_table(table: Any, internal: Sequence[tuple[str, Any]]) -> Any:
    """A metadata table with its ``internal:`` columns, bare of everything but names and types."""
    table = without_null_type(table)
    for name, values in internal:
        table = table.append_column(name, values)
    return table.cast(bare_schema(table.schema)) if _has_metadata(table.schema) else table


def _has_metadata(schema: Any) -> bool:
    return bool(schema.metadata) or any(found.metadata for found in schema)


def bare_schema(schema: Any) -> Any:
    """The schema without descriptions and other metadata."""
    return pa.schema([pa.field(found.name, found.type) for found in schema])


def stored_schema(table_schema: Any, *, with_spans: bool) -> Any:
    """Schema of the level file that a metadata table of this schema becomes."""
    none = np.zeros(0, np.int64)
    spans = Spans.of(0) if with_spans else None
    empty = internal_columns(0, none, spans, pa.array([], pa.string()))
    return stored_table(table_schema.empty_table(), empty).schema


def field_schema(schemas: Sequence[Any], *, with_spans: bool) -> dict[str, list[list[str]]]:
    """``taco:field_schema``: every stored column of every level, with its description."""
    texts: dict[str, str] = {}
    for schema in reversed(schemas):
        texts.update(descriptions(schema))
    stored = [stored_schema(schema, with_spans=with_spans) for schema in schemas]
    return spec.field_schema(stored, texts)


def computed_schemas(levels: Levels, *, spans: bool) -> dict[str, Any]:
    """``taco:pit_schema`` and ``taco:field_schema`` of levels that form a regular tree."""
    schemas = [level.table.schema for level in levels]
    return {
        spec.PIT_SCHEMA: pit_schema(levels).to_dict(),
        spec.FIELD_SCHEMA: field_schema(schemas, with_spans=spans),
    }


def write_level(
    level: Level, spans: Spans | None, paths: Any, file: BinaryIO, parquet: ParquetSettings
) -> None:
    """Write the consolidated metadata of one level (TACO 2.0, 6.2)."""
    internal = internal_columns(0, level.parent, spans, paths)
    write_table(stored_table(level.table, internal), file, parquet)


@contextmanager
def table_writer(file: BinaryIO, schema: Any, parquet: ParquetSettings) -> Iterator[Writer]:
    """A `Writer` that is closed whatever happens; a failure before that is the one that counts."""
    writer = Writer(file, schema, parquet)
    try:
        yield writer
    except BaseException:  # also on Ctrl-C: the writer must not stay open
        with suppress(ComalError):
            writer.close()
        raise
    writer.close()


# -- __meta__ --------------------------------------------------------------------------------


def meta_files(
    levels: Levels, depth: int, spans: Spans | None, executor: Executor | None = None
) -> Iterator[tuple[Ints, Any]]:
    """The local metadata of all FOLDER rows of `levels[depth]`, in the order of their paths.

    Yields
    ------
    (numpy.ndarray, pyarrow.BinaryArray)
        Ints of the level and the Parquet file of each (TACO 2.0, 6.2).
    """
    below = levels[depth + 1]
    folders = np.flatnonzero(levels[depth].folders)
    internal = internal_columns(0, below.parent, spans, None)
    batch = _one_batch(stored_table(below.table, internal))
    starts = np.searchsorted(below.parent, folders, side="left")
    stops = np.searchsorted(below.parent, folders, side="right")
    groups = [slice(n, n + _META_GROUP) for n in range(0, len(folders), _META_GROUP)]
    jobs = (_job(batch, starts[group], stops[group]) for group in groups)
    files: Iterator[Any] = map(_encode, jobs)
    if len(groups) > 1:
        files = results(executor or _WORKERS, _encode, jobs, _IN_FLIGHT)
    for group, some in zip(groups, files, strict=True):
        yield folders[group], some


def _one_batch(table: Any) -> Any:
    batches = table.combine_chunks().to_batches()
    return batches[0] if len(batches) == 1 else table.combine_chunks()


_Job = tuple[Any, list[int], list[int]]


def _job(batch: Any, starts: Ints, stops: Ints) -> _Job:
    """The rows of some neighbouring folders, and where each folder's rows lie in them."""
    first, last = int(starts[0]), int(stops[-1])
    return batch.slice(first, last - first), (starts - first).tolist(), (stops - first).tolist()


def _encode(job: _Job) -> Any:
    batch, starts, stops = job
    return pa.array(
        [_encode_one(batch.slice(a, b - a)) for a, b in zip(starts, stops, strict=True)],
        pa.binary(),
    )


def _encode_one(rows: Any) -> bytes:
    """One small Parquet file: no dictionaries, statistics or second schema for a few rows."""
    many = rows.num_rows >= _COMPRESS_META_ROWS
    sink = pa.BufferOutputStream()
    with (
        translated({pa.ArrowException: InvalidInputError}, "local metadata cannot be written"),
        pq.ParquetWriter(
            sink,
            rows.schema,
            compression="zstd" if many else "none",
            use_dictionary=many,
            write_statistics=many,
            store_schema=many,
            write_page_checksum=True,
        ) as writer,
    ):
        writer.write(rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data
