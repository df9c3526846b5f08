"""The two containers that samples are written to: ZIP (TACO 2.0, 6.3) and FOLDER (6.1 and 6.4).

Order of the entries of a ZIP: TACO_HEADER, data depth-first in sample order, `__meta__` files from
the deepest level up, the level tables, COLLECTION.json. So all metadata is at the end, and one
range fetches it. A folder is written in the same order.

Offsets are stored by row, never matched up by order of names: a level table and the `__meta__`
files of its rows are slices of the same table.
"""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from comal import strictjson
from comal.errors import ComalError, InvalidInputError, system_errors, translated
from comal.limits import MIB
from comal.parallel import Workers, results
from comal.progress import Progress
from comal.samples.copying import STREAM_BYTES, blocks
from comal.samples.payloads import Files, Ints, Payloads
from comal.samples.tables import refuse_unread
from comal.storage import targets
from comal.storage.manyfiles import changed_size, opened
from comal.storage.targets import TargetFile
from comal.table.columns import plain_table
from comal.table.write import ParquetSettings, Writer, write_table
from comal.taco import spec, wire
from comal.taco.model.collection import Coverage, finished
from comal.taco.model.levels import (
    Leaves,
    Levels,
    check_names,
    check_twins,
    flat,
    leaves,
    pit_schema,
    relative_paths,
)
from comal.taco.writing.verify import FOLDER, ZIP, check_archive, check_folder
from comal.ziparchive import ZipWriter

if TYPE_CHECKING:
    from comal.taco.model.collection import Taco

_META_GROUP = 128
"""Folders per job; a __meta__ file takes about 0.1 ms."""
_COMPRESS_META_ROWS = 256
"""With fewer rows, compression makes a __meta__ file larger and slower to write."""
_WORKERS = 2
_MANY = 1_000
"""Fewer columns of types that are not nested are always within the limits of readers."""
_ENCODINGS = (
    (spec.ID, "DELTA_BYTE_ARRAY"),
    (spec.RELATIVE_PATH, "DELTA_BYTE_ARRAY"),
    (spec.CURRENT_ID, "DELTA_BINARY_PACKED"),
    (spec.PARENT_ID, "DELTA_BINARY_PACKED"),
    (spec.OFFSET, "DELTA_BINARY_PACKED"),
    (spec.SIZE, "DELTA_BINARY_PACKED"),
)
"""Successive values of these columns are similar: a tenth of the bytes and time of a dictionary.
All readers of Parquet format 2 know these encodings."""
_FOLDER_TABLES: Mapping[str, Any] = {
    "chunk_bytes": (16_384, 131_072),
    "dictionary": None,
    "row_group_size": 131_072,
}
"""For storage that deduplicates chunks of about 64 KB (TACO 2.0, 6.4): pages have that size, and no
dictionary of many values changes with every row. Inserted or deleted rows change the first page of
each column in all later row groups: larger groups have fewer such pages, but reading one row reads
an entire group."""


@dataclass(frozen=True, slots=True)
class Writing:
    """Options of writing a dataset."""

    parquet: ParquetSettings
    overwrite: bool = False
    progress: Progress | None = None
    executor: Workers = None


def settings(parquet: Mapping[str, Any], kind: str) -> ParquetSettings:
    """Settings of the tables of a container, ``zip`` or ``folder``; those of the caller win."""
    own = _FOLDER_TABLES if kind == "folder" else {}
    return replace(ParquetSettings.from_kwargs(**{**own, **parquet}), encodings=_ENCODINGS)


@dataclass(frozen=True, slots=True)
class Spans:
    """Offset and size of each row's payload in the container, set during writing."""

    offset: Ints
    size: Ints

    @classmethod
    def of(cls, rows: int) -> Spans:
        """Unknown spans (-1) for `rows` rows."""
        return cls(np.full(rows, -1, np.int64), np.full(rows, -1, np.int64))

    @classmethod
    def joined(cls, parts: Sequence[Spans]) -> Spans:
        """The spans of all rows of the parts."""
        offsets, sizes = ([part.offset for part in parts], [part.size for part in parts])
        return cls(np.concatenate(offsets), np.concatenate(sizes))


def stored_table(table: Any, first: int, parent: Ints, spans: Spans | None, paths: Any) -> Any:
    """A metadata table as stored, with ``internal:`` columns after its own.

    Its rows start at row `first` of their level; local metadata has no `paths`.
    """
    rows = np.arange(first, first + len(parent), dtype=np.int64)
    internal = {spec.CURRENT_ID: pa.array(rows), spec.PARENT_ID: pa.array(parent)}
    if spans is not None:
        internal |= {spec.OFFSET: pa.array(spans.offset), spec.SIZE: pa.array(spans.size)}
    if paths is not None:
        internal[spec.RELATIVE_PATH] = paths
    for position, field in enumerate(table.schema):
        if pa.types.is_null(field.type):  # no values, but a stored column needs a type
            empty = pc.cast(table.column(position), pa.string())
            table = table.set_column(position, field.with_type(pa.string()), empty)
    for name, values in internal.items():
        table = table.append_column(name, values)
    return table


def stored_schema(schema: Any, *, with_spans: bool) -> Any:
    """Schema of the level file for a metadata table of this schema."""
    none, paths = Spans.of(0), pa.array([], pa.string())
    spans = none if with_spans else None
    return stored_table(schema.empty_table(), 0, none.offset, spans, paths).schema


def field_schema(schemas: Sequence[Any], *, with_spans: bool) -> dict[str, list[list[str]]]:
    """``taco:field_schema``: every stored column of every level, with its description."""
    return spec.field_schema([stored_schema(one, with_spans=with_spans) for one in schemas])


def computed_schemas(levels: Levels, *, spans: bool) -> dict[str, Any]:
    """``taco:pit_schema`` and ``taco:field_schema`` of levels that form a regular tree.

    Raises for columns that readers would refuse.
    """
    stored = [stored_schema(level.table.schema, with_spans=spans) for level in levels]
    for depth, schema in enumerate(stored):
        if len(schema) > _MANY or any(field.type.num_fields for field in schema):
            refuse_unread(schema, f"level {depth}")
    return {
        spec.PIT_SCHEMA: pit_schema(levels).to_dict(),
        spec.FIELD_SCHEMA: spec.field_schema(stored),
    }


@contextmanager
def table_writer(
    file: BinaryIO, schema: Any, parquet: ParquetSettings, before: Iterable[bytes] = ()
) -> Iterator[Writer]:
    """A `Writer` that is always closed; an earlier error takes precedence over one of closing."""
    writer = Writer(file, schema, parquet, before)
    try:
        yield writer
    except BaseException:  # also on Ctrl-C: the writer must not stay open
        with suppress(ComalError):
            writer.close()
        raise
    writer.close()


# -- __meta__ --------------------------------------------------------------------------------


def meta_files(
    levels: Levels, depth: int, spans: Spans | None, executor: Workers = None
) -> Iterator[tuple[Ints, Any]]:
    """Groups of FOLDER rows of `levels[depth]`, with the local metadata of each row (6.2)."""
    below = levels[depth + 1]
    folders = np.flatnonzero(levels[depth].folders)
    table = plain_table(stored_table(below.table, 0, below.parent, spans, None)).combine_chunks()
    batches = table.to_batches()
    batch = batches[0] if len(batches) == 1 else table
    starts = np.searchsorted(below.parent, folders, side="left")
    stops = np.searchsorted(below.parent, folders, side="right")
    groups = [slice(n, n + _META_GROUP) for n in range(0, len(folders), _META_GROUP)]
    jobs = (_job(batch, starts[group], stops[group]) for group in groups)
    files: Iterator[Any] = map(encode_local_metadata, jobs)
    if len(groups) > 1:
        files = results(executor, encode_local_metadata, jobs, threads=_WORKERS)
    for group, some in zip(groups, files, strict=True):
        yield folders[group], some


_Job = tuple[Any, list[int], list[int]]


def _job(batch: Any, starts: Ints, stops: Ints) -> _Job:
    """The rows of some consecutive folders, and the first and last row of each folder in them."""
    first, last = int(starts[0]), int(stops[-1])
    rows = batch.take(pa.array(np.arange(first, last)))  # a slice is pickled with all rows
    return rows, (starts - first).tolist(), (stops - first).tolist()


def encode_local_metadata(job: _Job) -> Any:
    """The files of some folders, as bytes; a task of `meta_files`."""
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


# -- the containers ------------------------------------------------------------------------------


FILE_ROWS = 8_192
"""Number of local files between two progress reports of a ZIP."""
_BLOCK_ROWS = 2_048


class Sink(ABC):
    """A container during writing."""

    with_spans: bool
    """Whether its tables hold offset and size of each sample."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._written = 0

    def add_folders(self, names: Any) -> None:  # noqa: B027 - most containers have no folders
        """Make the folders of FOLDER samples, whose names end in a slash, parents first."""

    @abstractmethod
    def add_payloads(self, names: Any, payloads: Payloads, total: int | None) -> Spans | None:
        """Copy all payloads to paths below DATA/; returns the span of each, in order."""

    @abstractmethod
    def add_meta(self, names: Any, contents: Any) -> Spans | None:
        """Add the local metadata of FOLDER samples; returns the span of each."""

    @abstractmethod
    def table(self, depth: int) -> AbstractContextManager[BinaryIO]:
        """The file for the table of a level, added if the block succeeds."""

    @abstractmethod
    def finish(
        self, document: dict[str, Any], paths: Sequence[Any], spans: Sequence[Spans | None]
    ) -> None:
        """Add COLLECTION.json, and verify the container.

        `paths` and `spans` are per level the path below DATA/ and the span of each row.
        """

    def _tell(self, count: int, total: int | None) -> None:
        self._written += count
        self._say(self._written, total, "samples")

    def _say(self, done: int, total: int | None, what: str) -> None:
        if self._progress is not None:
            self._progress(done, total, what)


class ZipSink(Sink):
    """A ZIP archive of stored entries."""

    with_spans = True

    def __init__(self, file: TargetFile, progress: Progress | None) -> None:
        super().__init__(progress)
        self._file = file
        self._zip = ZipWriter(file)
        self._header = self._zip.reserve(wire.HEADER_NAME, wire.HEADER_PAYLOAD)
        self._slots: list[tuple[int, int]] = []

    def add_payloads(self, names: Any, payloads: Payloads, total: int | None) -> Spans:
        """Copy all payloads to entries below DATA/."""
        names = pc.binary_join_element_wise(spec.DATA, names, "")
        sizes = payloads.sizes()
        self._file.expect(int(sizes.sum()))
        if _all_files(payloads):
            return self._add_files(names, payloads, total)
        offsets = np.empty(len(sizes), np.int64)
        for start, stop in list(blocks(sizes)):
            part = names.slice(start, stop - start)
            if stop - start == 1 and sizes[start] >= STREAM_BYTES:
                offsets[start] = self._stream(part[0].as_py(), payloads, start, int(sizes[start]))
            else:
                block = payloads.block(np.arange(start, stop), sizes[start:stop])
                offsets[start:stop] = self._zip.add_many(part, block)
            self._tell(stop - start, total)
        return Spans(offsets, sizes)

    def _add_files(self, names: Any, files: Any, total: int | None) -> Spans:
        """Copy files of any size, which counts when a file is opened, not before."""
        found = [Spans.of(0)]
        for start in range(0, len(files), FILE_ROWS):
            paths = files.paths.slice(start, FILE_ROWS).to_pylist()
            part = names.slice(start, FILE_ROWS)
            found.append(Spans(*self._zip.add_paths(part, paths, regular=files.regular)))
            self._tell(len(paths), total)
        return Spans.joined(found)

    def _stream(self, name: str, payloads: Payloads, row: int, size: int) -> int:
        with payloads.open(row) as source:
            return self._zip.add_stream(name, source, size, where=payloads.place(row)).offset

    def add_meta(self, names: Any, contents: Any) -> Spans:
        """Add the local metadata of FOLDER samples."""
        names = pc.binary_join_element_wise(spec.DATA, names, spec.META, "")
        return Spans(self._zip.add_many(names, contents), pc.binary_length(contents).to_numpy())

    @contextmanager
    def table(self, depth: int) -> Iterator[BinaryIO]:
        """A temporary file for the table of a level, added if the block succeeds."""
        spool = self._file.spool()
        yield spool
        name = spec.LEVEL_PATHS[depth]
        size = spool.seek(0, 2)
        spool.seek(0)
        span = self._zip.add_stream(name, spool, size, where=name)
        self._slots.append((span.offset, span.size))

    def finish(
        self, document: dict[str, Any], paths: Sequence[Any], spans: Sequence[Spans | None]
    ) -> None:
        """Add COLLECTION.json, fill TACO_HEADER, close, and compare all entries with the rows."""
        known = [span for span in spans if span is not None]
        for depth, span in enumerate(known):
            if (span.offset < 0).any():
                raise AssertionError(f"level {depth} has rows without a span")
        collection = self._zip.add(spec.COLLECTION, strictjson.dumps(document))
        self._slots.append((collection.offset, collection.size))
        self._zip.fill(self._header, wire.pack_header(self._slots))
        self._zip.close()
        self._file.flush()
        self._say(0, None, "verify")
        check_archive(self._file.path, self._slots, paths, known)


class FolderSink(Sink):
    """A folder, which must be empty at first; COLLECTION.json is written last."""

    with_spans = False

    def __init__(self, root: Path, progress: Progress | None) -> None:
        super().__init__(progress)
        self._root = root
        self._data = f"{root}/DATA"
        with _writing(root):
            (root / "DATA").mkdir()
            (root / "METADATA").mkdir()

    def add_folders(self, names: Any) -> None:
        """Make the folders of FOLDER samples, whose names end in a slash, parents first."""
        with _writing(self._root):
            for name in names.to_pylist():
                os.mkdir(f"{self._data}/{name}")  # noqa: PTH102 - one string per folder, no Path

    def add_payloads(self, names: Any, payloads: Payloads, total: int | None) -> None:
        """Copy all payloads to paths below DATA/."""
        sizes = payloads.sizes()
        targets.refuse_full(self._root.parent.parent, self._root, int(sizes.sum()))
        jobs = (
            (names.slice(start, stop - start), payloads, start, sizes[start:stop])
            for start, stop in blocks(sizes, rows=_BLOCK_ROWS)
        )
        copied = results(None, lambda job: self._copy_block(*job), jobs, threads=_WORKERS)
        with closing(copied) as counts:
            for count in counts:
                self._tell(count, total)

    def _copy_block(self, names: Any, payloads: Payloads, start: int, sizes: Ints) -> int:
        made = [f"{self._data}/{name}" for name in names.to_pylist()]
        if _all_files(payloads):
            sources = payloads.paths.slice(start, len(sizes)).to_pylist()  # type: ignore[attr-defined]
            for source, target, size in zip(sources, made, sizes.tolist(), strict=True):
                _copy_file(source, target, size)
        elif len(sizes) == 1 and sizes[0] >= STREAM_BYTES:
            with payloads.open(start) as stream, _writing(made[0]), Path(made[0]).open("xb") as f:
                shutil.copyfileobj(stream, f, MIB)
                if f.tell() != sizes[0]:
                    raise changed_size(payloads.place(start), f"{f.tell()} bytes", int(sizes[0]))
        else:
            rows = np.arange(start, start + len(sizes))
            for target, content in zip(made, payloads.block(rows, sizes), strict=True):
                _write_new(target, content.as_buffer())
        return len(sizes)

    def add_meta(self, names: Any, contents: Any) -> None:
        """Add the local metadata of FOLDER samples."""
        for name, content in zip(names.to_pylist(), contents, strict=True):
            _write_new(f"{self._data}/{name}{spec.META}", content.as_buffer())

    @contextmanager
    def table(self, depth: int) -> Iterator[BinaryIO]:
        """The file of the table of a level."""
        path = self._root / spec.LEVEL_PATHS[depth]
        with _writing(path):
            file = path.open("xb")
        try:
            yield file
        finally:
            with _writing(path):
                file.close()

    def finish(
        self, document: dict[str, Any], paths: Sequence[Any], spans: Sequence[Spans | None]
    ) -> None:
        """Write COLLECTION.json, and compare all files with the rows."""
        del spans
        _write_new(str(self._root / spec.COLLECTION), strictjson.dumps(document))
        self._say(0, None, "verify")
        check_folder(self._root, document, [flat(path) for path in paths])


def _all_files(payloads: Payloads) -> bool:
    """Whether all payloads are local files; padding has no path."""
    return isinstance(payloads, Files) and payloads.paths.null_count == 0


def _copy_file(source: str, target: str, size: int) -> None:
    with opened(source) as (reading, _), _writing(target):
        writing = _create(target)
        try:
            done = 0
            while count := os.sendfile(writing, reading, None, 1 << 30):
                done += count
        finally:
            os.close(writing)
    if done != size:
        raise changed_size(source, f"{done} bytes", size)


def _write_new(target: str, content: Any) -> None:
    with _writing(target):
        descriptor = _create(target)
        try:
            left = memoryview(content)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)


def _create(target: str) -> int:
    return os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _writing(where: object) -> AbstractContextManager[None]:
    return system_errors("cannot write", where)


@contextmanager
def new_container(target: Path, kind: str, how: Writing) -> Iterator[Sink]:
    """A container, ``zip`` or ``folder``, that gets its name if the block succeeds."""
    if kind == "zip":
        with targets.new_file(target, how.overwrite, ZIP) as file:
            yield ZipSink(file, how.progress)
    else:
        with targets.new_folder(target, how.overwrite, FOLDER) as folder:
            yield FolderSink(folder, how.progress)


# -- datasets in columns ---------------------------------------------------------------------------


def write_columns(sink: Sink, levels: Levels, document: dict[str, Any], how: Writing) -> None:
    """Write a dataset from its levels."""
    paths = relative_paths(levels)
    files = leaves(levels, paths)
    for path in paths:
        sink.add_folders(path.filter(pc.ends_with(path, "/")))
    written = sink.add_payloads(files.paths, files.payloads, len(files.paths))
    spans = [_of_level(files, written, depth, len(path)) for depth, path in enumerate(paths)]
    for depth in reversed(range(len(levels) - 1)):
        for rows, contents in meta_files(levels, depth, spans[depth + 1], how.executor):
            found, whole = sink.add_meta(paths[depth].take(rows), contents), spans[depth]
            if found is not None and whole is not None:
                whole.offset[rows], whole.size[rows] = found.offset, found.size
    for depth, level in enumerate(levels):
        table = stored_table(level.table, 0, level.parent, spans[depth], paths[depth])
        with sink.table(depth) as file:
            write_table(table, file, how.parquet)
    sink.finish(document, paths, spans)


def _of_level(files: Leaves, written: Spans | None, depth: int, rows: int) -> Spans | None:
    """The spans of the FILE rows of one level; those of FOLDER rows are still -1."""
    if written is None:
        return None
    spans = Spans.of(rows)
    # By row, not by position in a sorted list: ids such as s2 and s10 sort differently.
    mine = files.level == depth
    spans.offset[files.row[mine]] = written.offset[mine]
    spans.size[files.row[mine]] = written.size[mine]
    return spans


# -- datasets in batches ---------------------------------------------------------------------------


class BatchWriter:
    """Writes samples that come in batches; keeps only their ids and spans.

    `finish` closes its files, or the exit of `scope` if `finish` is not reached.
    """

    def __init__(self, sink: Sink, schema: Any, how: Writing, scope: ExitStack) -> None:
        self._sink = sink
        self._schema = schema
        self._coverage = Coverage()
        self._ids: list[Any] = []
        self._spans: list[Spans | None] = []
        self._count = 0
        self._table = ExitStack()
        scope.push(self._table)
        file = self._table.enter_context(sink.table(0))
        stored = stored_schema(schema, with_spans=sink.with_spans)
        refuse_unread(stored, "level 0")
        self._rows = self._table.enter_context(table_writer(file, stored, how.parquet))

    def add(self, table: Any, payloads: Payloads) -> None:
        """Write the payloads and rows of some samples."""
        column = flat(table.column(spec.ID))
        check_names(column)
        self._ids.append(column)
        try:
            span = self._sink.add_payloads(column, payloads, None)
        except ComalError:
            check_twins(pa.chunked_array(self._ids))  # an existing file means a repeated id
            raise
        parent = np.arange(self._count, self._count + table.num_rows)
        self._rows.write(stored_table(table, self._count, parent, span, column))
        self._coverage.add(table)
        self._spans.append(span)
        self._count += table.num_rows

    def finish(self, taco: Taco) -> Any:
        """Write the end of the container and verify it; returns all ids."""
        self._table.close()
        if not self._count:
            raise no_sample()
        ids = pa.chunked_array(self._ids)
        check_twins(ids)
        pa.default_memory_pool().release_unused()
        known = [span for span in self._spans if span is not None]
        whole = Spans.joined(known) if known else None
        self._sink.finish(self._document(taco), [ids], [whole])
        return ids

    def _document(self, taco: Taco) -> dict[str, Any]:
        pit = spec.PITSchema(self._count, spec.FILE, {}, (self._count,))
        found = finished(self._coverage.spatial(), self._coverage.temporal())
        return {
            **taco.export_metadata(),
            "extent": taco.extent or found,
            spec.PIT_SCHEMA: pit.to_dict(),
            spec.FIELD_SCHEMA: field_schema([self._schema], with_spans=self._sink.with_spans),
        }


def no_sample() -> InvalidInputError:
    """The error for batches without any row."""
    return InvalidInputError("the batches hold no samples", expected="at least one")
