"""The ZIP container (TACO 2.0, 6.3).

Order of entries: TACO_HEADER, data depth-first in sample order, `__meta__` files from the deepest
level up, the level tables, COLLECTION.json. All metadata thus lies at the end, and one range
fetches it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal import strictjson
from comal.errors import InvalidInputError
from comal.progress import Progress
from comal.samples.copying import STREAM_BYTES, blocks
from comal.samples.payloads import Files, Payloads
from comal.storage.targets import TargetFile
from comal.table import ParquetSettings
from comal.taco import spec, wire
from comal.taco.model.extent import Coverage, finished
from comal.taco.model.levels import (
    Leaves,
    Levels,
    check_names,
    check_twins,
    flat,
    leaves,
    relative_paths,
)
from comal.taco.writing.stored import (
    Spans,
    internal_columns,
    meta_files,
    stored_schema,
    stored_table,
    table_writer,
    write_level,
)
from comal.taco.writing.verify import check_archive
from comal.ziparchive import ZipWriter

FILE_ROWS = 8_192
"""Local files between two messages about progress."""

Document = Callable[[Sequence[Any], dict[str, Any] | None], dict[str, Any]]


class ZipBuilder:
    """The entries that every TACO archive has, whichever way its samples come."""

    def __init__(self, file: TargetFile, progress: Progress) -> None:
        self.file = file
        self.zip = ZipWriter(file)
        self._header = self.zip.reserve(wire.HEADER_NAME, wire.HEADER_PAYLOAD)
        self._slots: list[tuple[int, int]] = []
        self._progress = progress
        self._written = 0

    def add_payloads(self, names: Any, payloads: Payloads, total: int | None) -> Spans:
        """Copy all payloads under `names`; the span of each, in their order."""
        # Padding has no path: it cannot be among files that are opened one after the other.
        if isinstance(payloads, Files) and payloads.paths.null_count == 0:
            return self._add_files(names, payloads, total)
        sizes = payloads.sizes()
        offsets = np.empty(len(sizes), np.int64)
        for start, stop in blocks(sizes):
            part = names.slice(start, stop - start)
            if stop - start == 1 and sizes[start] >= STREAM_BYTES:
                offsets[start] = self._stream(part[0].as_py(), payloads, start, int(sizes[start]))
            else:
                block = payloads.block(np.arange(start, stop), sizes[start:stop])
                offsets[start:stop] = self.zip.add_many(part, block)
            self._tell(stop - start, total)
        return Spans(offsets, sizes)

    def _add_files(self, names: Any, files: Files, total: int | None) -> Spans:
        """Copy files of any size, each measured when it is opened and not before."""
        found = []
        for start in range(0, len(files), FILE_ROWS):
            paths = files.paths.slice(start, FILE_ROWS).to_pylist()
            part = names.slice(start, FILE_ROWS)
            found.append(self.zip.add_paths(part, paths, regular=files.regular))
            self._tell(len(paths), total)
        if not found:
            return Spans.of(0)
        return Spans(*(np.concatenate(column) for column in zip(*found, strict=True)))

    def _tell(self, count: int, total: int | None) -> None:
        self._written += count
        self._progress(self._written, total, "samples")

    def _stream(self, name: str, payloads: Payloads, row: int, size: int) -> int:
        with payloads.open(row) as source:
            return self.zip.add_stream(name, source, size, where=payloads.place(row)).offset

    def add_table(self, depth: int, write: Callable[[Any], None]) -> None:
        """Add the level table that `write` puts into a file."""
        spool = self.file.spool()
        write(spool)
        self.add_spooled(depth, spool)

    def add_spooled(self, depth: int, spool: Any) -> None:
        """Add a level table that is in a temporary file already."""
        name = spec.level_path(depth)
        size = spool.seek(0, 2)
        spool.seek(0)
        span = self.zip.add_stream(name, spool, size, where=name)
        self._slots.append((span.offset, span.size))

    def finish(self, document: dict[str, Any]) -> list[tuple[int, int]]:
        """Add COLLECTION.json, fill TACO_HEADER and close; the slots of the header."""
        span = self.zip.add(spec.COLLECTION, strictjson.dumps(document))
        self._slots.append((span.offset, span.size))
        self.zip.fill(self._header, wire.pack_header(self._slots))
        self.zip.close()
        self.file.flush()
        return self._slots


def write_zip(
    file: TargetFile,
    levels: Levels,
    document: dict[str, Any],
    parquet: ParquetSettings,
    *,
    progress: Progress,
    executor: Executor | None = None,
) -> None:
    """Write a dataset that is in columns, and compare the archive with what was meant."""
    paths = relative_paths(levels)
    builder = ZipBuilder(file, progress)
    spans = [Spans.of(level.rows) for level in levels]
    _add_leaves(builder, leaves(levels, paths), spans)
    for depth in reversed(range(len(levels) - 1)):
        _add_meta(builder, levels, depth, paths[depth], spans, executor)
    for depth, level in enumerate(levels):
        if (spans[depth].offset < 0).any():
            raise AssertionError(f"level {depth} has rows without a span")
        builder.add_table(
            depth,
            lambda spool, n=depth, of=level: write_level(of, spans[n], paths[n], spool, parquet),  # type: ignore[misc]
        )
    slots = builder.finish(document)
    progress(0, None, "verify")
    check_archive(file.path, slots, paths, spans)


def _add_leaves(builder: ZipBuilder, files: Leaves, spans: Sequence[Spans]) -> None:
    names = pc.binary_join_element_wise(spec.DATA, files.paths, "")
    written = builder.add_payloads(names, files.payloads, len(files))
    for depth, span in enumerate(spans):
        # By row, not by position in any sorted list: ids such as s2 and s10 sort otherwise.
        mine = files.level == depth
        span.offset[files.row[mine]] = written.offset[mine]
        span.size[files.row[mine]] = written.size[mine]


def _add_meta(
    builder: ZipBuilder,
    levels: Levels,
    depth: int,
    paths: Any,
    spans: Sequence[Spans],
    executor: Executor | None,
) -> None:
    """Add the local metadata of the FOLDER rows of one level; their spans are those of it."""
    names = pc.binary_join_element_wise(spec.DATA, paths, spec.META, "")
    for rows, files in meta_files(levels, depth, spans[depth + 1], executor):
        offsets = builder.zip.add_many(names.take(pa.array(rows)), files)
        spans[depth].offset[rows] = offsets
        spans[depth].size[rows] = pc.binary_length(files).to_numpy()


class ZipStream:
    """An archive of samples that come in batches; only their ids and spans are kept.

    Parameters
    ----------
    file
        The target. What fails before `finish` leaves it to its block.
    schema
        Arrow schema of the metadata tables.
    """

    def __init__(
        self, file: TargetFile, schema: Any, parquet: ParquetSettings, progress: Progress
    ) -> None:
        self._file = file
        self._builder = ZipBuilder(file, progress)
        self._coverage = Coverage()
        self._ids: list[Any] = []
        self._spans: list[Spans] = []
        self._count = 0
        self._spool = file.spool()
        self._table = ExitStack()
        self._rows = self._table.enter_context(
            table_writer(self._spool, stored_schema(schema, with_spans=True), parquet)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._table.__exit__(kind, error, trace)

    def add(self, table: Any, payloads: Payloads) -> None:
        """Write the payloads of some samples, and keep their rows for the end."""
        column = flat(table.column(spec.ID))
        check_names(column)
        names = pc.binary_join_element_wise(spec.DATA, column, "")
        span = self._builder.add_payloads(names, payloads, None)
        parent = np.arange(self._count, self._count + table.num_rows)
        internal = internal_columns(self._count, parent, span, column)
        self._rows.write(stored_table(table, internal))
        self._coverage.add(table)
        self._ids.append(column)
        self._spans.append(span)
        self._count += table.num_rows

    def finish(self, document: Document) -> Any:
        """Write what stands at the end, and compare the archive with what was meant.

        Returns
        -------
        pyarrow.ChunkedArray
            All ids.
        """
        self._table.close()
        if not self._count:
            raise no_sample()
        all_ids = pa.chunked_array(self._ids)
        check_twins(all_ids)
        pa.default_memory_pool().release_unused()
        self._builder.add_spooled(0, self._spool)
        extent = finished(self._coverage.spatial(), self._coverage.temporal())
        slots = self._builder.finish(document([self._count], extent))
        whole = Spans(
            np.concatenate([span.offset for span in self._spans]),
            np.concatenate([span.size for span in self._spans]),
        )
        check_archive(self._file.path, slots, [all_ids], [whole])
        return all_ids


def no_sample() -> InvalidInputError:
    """The error for batches without any row."""
    return InvalidInputError("batches hold no sample", expected="at least one")
