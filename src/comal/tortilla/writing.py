"""The files of a set: items back to back, nested files among them, then the footer.

A nested file counts its offsets from its own beginning ("Nested properties"), so it is written
in place: room for its header, its items, its footer, and then the header. Rows are kept in
memory, then on disk, until the footer can be written; files have hidden names until all are
complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    StorageError,
    counted,
    shown,
    system_errors,
    translated,
)
from comal.limits import MIB, parse_size
from comal.plan import ByteRange, Head, run
from comal.progress import Progress, silent
from comal.samples.copying import Appender, copy_payloads
from comal.samples.payloads import Ints, Spans
from comal.storage import open_source
from comal.storage.targets import (
    TargetFile,
    TargetSet,
    beside,
    magic_kind,
    new_set,
    not_as_written,
)
from comal.table import ParquetSettings, ParquetTable, Writer, footer_plan, write_table
from comal.table.columns import numbers_column
from comal.tortilla import spec, wire
from comal.tortilla.columns import fitted, unified, with_column
from comal.tortilla.describing import PayloadWarnings
from comal.tortilla.samples import Prepared

_FEW = 256
"""Below this many rows dictionaries make a footer larger, and slower to write."""

SETTINGS = ParquetSettings(
    level=9,
    content_defined_chunking=False,
    statistics=False,
    arrow_schema=False,
    encodings=(
        (spec.ID, "DELTA_BYTE_ARRAY"),
        (spec.OFFSET, "DELTA_BINARY_PACKED"),
        (spec.LENGTH, "DELTA_BINARY_PACKED"),
    ),
)
"""Neighbours in these columns differ little: the encodings take a fiftieth of the bytes of a
dictionary. Arrow's copy of the schema and the statistics of a single row group would be more than
half of a small footer."""
_SMALL = replace(SETTINGS, level=3, dictionary=False, encodings=())

_HELD = 32 * MIB
"""Bytes of rows in memory before they go to a temporary file."""
_DISK: dict[type[BaseException], type[ComalError]] = {
    OSError: StorageError,
    pa.ArrowException: StorageError,
}
_CHECKED = [spec.ID, spec.OFFSET, spec.LENGTH]
SPANS = pa.schema([(spec.OFFSET, pa.int64()), (spec.LENGTH, pa.int64())])


def settings(rows: int, chosen: Mapping[str, Any]) -> ParquetSettings:
    """Settings for a footer of `rows` rows; `chosen` are keywords of the caller."""
    base = _SMALL if rows <= _FEW else SETTINGS
    # Statistics only help if a reader can skip row groups.
    base = replace(base, statistics=rows > base.row_group_size)
    if not chosen:
        return base
    given = ParquetSettings.from_kwargs(**chosen)
    keys = {"level" if key == "compression_level" else key for key in chosen}
    if "compression" in keys:
        keys.add("level")
    return replace(base, **{key: getattr(given, key) for key in keys})


def write_end(
    out: Appender,
    tables: Iterable[Any],
    schema: Any,
    how: ParquetSettings,
    collection: bytes | None,
    parts: int,
) -> wire.Header:
    """Write a footer, the JSON of a TACO v1 after it, and the header that refers to both."""
    start = out.position
    writer = Writer(out.file, schema, how)
    for table in tables:
        writer.write(table)
    writer.close()
    end = out.position = out.file.seek(0, os.SEEK_END)
    header = wire.Header(ByteRange(start, end - start), parts)
    if collection is not None:
        out.write(collection)
        span = ByteRange(end, len(collection))
        header = replace(header, magic=wire.TACO_MAGIC, collection=span)
    out.patch(0, wire.pack_header(header))
    return header


def check_end(path: Path, header: wire.Header, tables: Iterable[Any], rows: int) -> None:
    """Raise if header, ids or spans of a file differ from those that were written.

    `tables` are all rows, in pieces; a file that differs must not be published.
    """
    with open_source(path) as source:
        (head,) = source.fetch([Head(wire.HEADER_SIZE)])
        found = wire.parse_header(head.data, head.total, source.href)
        if found != header:
            raise not_as_written("header", found, header)
        footer = ParquetTable(source, run(footer_plan(header.footer), source.fetch))
        _check_rows(footer, tables, rows)


def _check_rows(footer: ParquetTable, tables: Iterable[Any], rows: int) -> None:
    if footer.num_rows != rows:
        raise not_as_written("footer", counted(footer.num_rows, "row"), rows)
    waiting = (table.select(_CHECKED) for table in tables)
    held = next(waiting)
    row = 0
    for batch in footer.iter_batches(_CHECKED):
        while held.num_rows < len(batch):
            held = pa.concat_tables([held, next(waiting)])
        for name in _CHECKED:
            if not held[name].slice(0, len(batch)).equals(pa.chunked_array([batch[name]])):
                raise not_as_written(name, "another value", f"rows {row} to {row + len(batch)}")
        held = held.slice(len(batch))
        row += len(batch)


class RowStore:
    """Collects tables, whose schemas may differ.

    More than 32 MiB go to a file that `spool` creates; `where` is the name of the table in
    messages.
    """

    def __init__(self, spool: Callable[[], BinaryIO], where: str) -> None:
        self._spool = spool
        self._where = where
        self._held: list[Any] = []
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._spooled: list[tuple[int, int]] = []
        self._schemas: list[Any] = []
        self._rows = 0

    def append(self, table: Any) -> None:
        """Add rows, spans included."""
        self._rows += table.num_rows
        if not any(schema.equals(table.schema) for schema in self._schemas[-4:]):
            self._schemas.append(table.schema)
        self._held.append(table)
        self._bytes += table.get_total_buffer_size()  # `nbytes` allocates memory
        if self._bytes > _HELD and (self._file is not None or len(self._held) > 1):
            self._write_out()

    def __len__(self) -> int:
        return self._rows

    def schema(self) -> Any:
        """One schema for all rows, in the order of a footer."""
        return unified([SPANS, *self._schemas], self._where)

    def tables(self, schema: Any) -> Iterator[Any]:
        """All rows in pieces, converted to a schema that contains theirs."""
        for start, size in self._spooled:
            assert self._file is not None
            with translated(_DISK, "a temporary file cannot be read"):
                self._file.seek(start)
                data = self._file.read(size)
                table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
            yield fitted(table, schema)
        for table in self._held:
            yield fitted(table, schema)

    def _write_out(self) -> None:
        if self._file is None:
            self._file = self._spool()
        for table in self._held:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            data = sink.getvalue()
            with translated(_DISK, "a temporary file cannot be written"):
                start = self._file.seek(0, 2)
                self._file.write(data)
            self._spooled.append((start, len(data)))
        self._held, self._bytes = [], 0


def spanned(table: Any, end: int, lengths: Ints) -> Any:
    """The table with columns for the spans of its items, which are adjacent and end at `end`."""
    offsets = end - int(lengths.sum()) + np.cumsum(lengths) - lengths
    return with_spans(table, offsets, lengths)


def with_spans(table: Any, offsets: Ints, lengths: Ints) -> Any:
    """The table with these spans."""
    for name, values in ((spec.OFFSET, offsets), (spec.LENGTH, lengths)):
        table = with_column(table, name, numbers_column(values))
    return table


_STEP = 16_384
"""Items that are copied between two calls of progress."""


@dataclass(slots=True)
class ItemWriter:
    """Appends items one after the other, and reports the progress."""

    progress: Progress = silent
    warnings: PayloadWarnings = field(default_factory=PayloadWarnings)
    done: int = 0
    """Items of the outermost level written so far."""

    def write(self, out: Appender, items: Prepared) -> Any:
        """Append all items, whose formats are known; returns their table with spans."""
        lengths = self._write(out, items, 0, len(items), depth=0)
        return spanned(items.table, out.position, lengths)

    def wrote(self, count: int) -> None:
        """Count `count` more written items of the outermost level."""
        self.done += count
        self.progress(self.done, None, "samples")

    def _write(self, out: Appender, items: Prepared, start: int, stop: int, *, depth: int) -> Ints:
        """Append the items of some rows; returns their lengths."""
        lengths = np.empty(stop - start, np.int64)
        row = start
        # Runs of plain items, each up to a nested one or the end.
        for edge in [*items.nested(start, stop).tolist(), stop]:
            while row < edge:
                last = min(row + _STEP, edge)
                copied = copy_payloads(items.payloads, row, last, out)
                if not isinstance(items.payloads, Spans):  # copied bytes are not checked
                    self.warnings.look(copied, items.table, row)
                lengths[row - start : last - start] = copied.sizes
                if depth == 0:
                    self.wrote(last - row)
                row = last
            if edge < stop:
                lengths[edge - start] = self._write_nested(out, items, edge, depth)
                row = edge + 1
                if depth == 0:
                    self.wrote(1)
        return lengths

    def _write_nested(self, out: Appender, items: Prepared, row: int, depth: int) -> int:
        below = items.below
        assert below is not None, "the item is a nested one"
        begin, start, stop = out.position, int(below.starts[row]), int(below.stops[row])
        out.write(bytes(wire.HEADER_SIZE))
        lengths = self._write(out, below.items, start, stop, depth=depth + 1)
        # Offsets count from the beginning of the nested file.
        table = spanned(below.items.table.slice(start, stop - start), out.position - begin, lengths)
        table = fitted(table, unified([table.schema], "nested samples"))
        footer = io.BytesIO()
        write_table(table, footer, settings(table.num_rows, {}))
        span = ByteRange(out.position - begin, footer.tell())
        out.write(footer.getbuffer())
        out.patch(begin, wire.pack_header(wire.Header(span)))
        return out.position - begin


TORTILLA = magic_kind("a Tortilla", b"#y", b"WX")
_MOST = 9_999


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOptions:
    """The division of a set into files, and the settings of its footers; see `create`."""

    chunk_size: int | str | None = None
    chunk_rows: int | None = None
    allow_ids: bool = False
    parquet: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the footer."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> SetOptions:
        """The options from a caller's keywords; unknown ones are settings of the footer."""
        own = {name: value for name, value in given.items() if name in cls.__dataclass_fields__}
        rest = {name: value for name, value in given.items() if name not in own}
        made = cls(**{**own, "parquet": {**own.get("parquet", {}), **rest}})
        rows, size = made.chunk_rows, made.chunk_size
        if rows is not None and (isinstance(rows, bool) or rows < 1):
            raise InvalidInputError(
                "chunk_rows is not a number of items", found=shown(rows), expected="1 or more"
            )
        return replace(
            made, chunk_size=None if size is None else parse_size(size, "chunk_size is not a size")
        )

    def stop(self, ends: Ints, start: int, held: int = 0, rows: int = 0) -> int:
        """Where a file ends whose next item is `start` ("The Data Partition").

        `ends` has the bytes up to the end of each item. The file has `rows` items of `held` bytes
        already; without any it gets one item, however large.
        """
        stop = len(ends)
        if self.chunk_size is not None:
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + int(self.chunk_size) - held, side="right"))
            stop = max(stop, start if rows else start + 1)
        return stop if self.chunk_rows is None else min(stop, start + self.chunk_rows - rows)

    def cuts(self, ends: Ints) -> list[tuple[int, int]]:
        """First and last item (exclusive) of each file of a set."""
        found: list[tuple[int, int]] = []
        while not found or found[-1][1] < len(ends):
            start = found[-1][1] if found else 0
            found.append((start, self.stop(ends, start)))
        return found


class Part:
    """One file that is being written: its data, and the rows of its footer."""

    def __init__(self, file: TargetFile) -> None:
        self.file = file
        self.rows = RowStore(file.spool, shown(file.target.name))
        self.bytes = 0
        """Bytes of its items; `chunk_size` counts neither header nor footer."""
        stream: Any = file
        self._out: Appender | None = Appender(stream)
        self._position = 0
        self._out.write(bytes(wire.HEADER_SIZE))

    @property
    def out(self) -> Appender:
        """The end of the file; opens the file again if it was closed."""
        if self._out is None:
            with system_errors("cannot write", self.file.target):
                stream: Any = self.file.path.open("r+b")
            self._out = Appender(stream, self._position)
        return self._out

    def close(self) -> None:
        """Close descriptor and buffer until the next write."""
        if self._out is not None:
            self._position = self._out.position
            with system_errors("cannot write", self.file.target):
                self._out.file.close()
            self._out = None

    def finish(
        self, schema: Any, options: SetOptions, collection: bytes | None, parts: int
    ) -> None:
        """Write footer, collection and header; and read them back for a check."""
        how, rows = settings(len(self.rows), options.parquet), self.rows
        header = write_end(self.out, rows.tables(schema), schema, how, collection, parts)
        self.close()
        check_end(self.file.path, header, rows.tables(schema), len(rows))


def numbered(output: Path, position: int) -> Path:
    """The name of a file of a set of several."""
    if position >= _MOST:
        raise InvalidInputError("too many parts", expected=f"at most {_MOST}")
    stem, dot, extension = output.name.rpartition(".")
    if extension not in ("tortilla", "taco") or not dot:
        stem, extension = output.name, "tortilla"
    stem = stem.removesuffix(".part")
    return output.with_name(spec.part_name(stem, position + 1, extension))


def named_alike(output: Path) -> list[Path]:
    """Existing files that have the name of a set, or of any part of it."""
    found = spec.PART_NAME.fullmatch(numbered(output, 0).name)
    assert found is not None, "parts have names of parts"
    alike = []
    for path in beside(output):
        other = spec.PART_NAME.fullmatch(path.name)
        of_set = other is not None and other["stem"] == found["stem"]
        if of_set or path.name == output.name:
            alike.append(path)
    return alike


def refuse_strangers(output: Path, own: Collection[str]) -> None:
    """Raise if a file with the name of a set is none of its `own`: it would mix with them."""
    for path in named_alike(output):
        if path.name not in own:
            raise ConflictError(
                "a part of another set has this name",
                where=shown(path, 200),
                hint="remove the old set, or choose another name",
            )


class PartSet:
    """Files of one set; a single one has the plain name, several are numbered."""

    def __init__(
        self, output: Path, options: SetOptions, made: TargetSet, files: ExitStack
    ) -> None:
        self._output = output
        self._options = options
        self._made = made
        self._files = files
        self.parts: list[Part] = []

    def begin(self) -> Part:
        """Begin the next file; closes the descriptor of the previous one."""
        number = len(self.parts)
        target = numbered(self._output, number) if number else self._output
        for part in self.parts[-1:]:
            part.close()
        file = self._files.enter_context(self._made.file(target.name, TORTILLA))
        self.parts.append(Part(file))
        return self.parts[-1]

    def expect(self, items: Prepared) -> None:
        """Refuse items for which the disk, or the file that holds all of them, has no room."""
        cuts = self._options.chunk_size is not None or self._options.chunk_rows is not None
        place = self._made if cuts else (self.parts[-1] if self.parts else self.begin()).file
        place.expect(int(items.sizes().sum()))

    def cut(self, items: Prepared) -> Iterator[tuple[Part, Ints]]:
        """Runs of rows, each with its target file ("The Data Partition").

        A new file begins when an item would make the current one larger than `SetOptions` allows;
        an item that is itself larger gets its own file.
        """
        cuts = self._options.chunk_size is not None
        ends = np.cumsum(items.sizes() if cuts else np.zeros(len(items), np.int64))
        start = 0
        while start < len(items):
            part = self.parts[-1] if self.parts else self.begin()
            stop = self._options.stop(ends, start, part.bytes, len(part.rows))
            if stop == start:
                self.begin()
                continue
            part.bytes += int(ends[stop - 1]) - (int(ends[start - 1]) if start else 0)
            yield part, np.arange(start, stop)
            start = stop

    def finish(self, collection: bytes | None = None, of: int | None = None) -> None:
        """Write footers and headers; every part gets the columns of all parts.

        The JSON of a TACO v1 follows each footer. `of` is the number of files in the set if a
        single one of its files is rewritten.
        """
        schemas = [part.rows.schema() for part in self.parts]
        if len(schemas) > 1:
            schemas = [unified(schemas, self._output.name)] * len(schemas)
            self._made.rename(self.parts[0].file, numbered(self._output, 0).name)
            self._refuse_strangers()
        for part, schema in zip(self.parts, schemas, strict=True):
            part.finish(schema, self._options, collection, of or len(schemas))

    def _refuse_strangers(self) -> None:
        """Raise if another set in the folder has this name: its parts would mix with ours."""
        mine = {part.file.target.name for part in self.parts}
        refuse_strangers(self._output, {*mine, self._output.name})

    def publish(self) -> list[Path]:
        """Give all files their names, together."""
        self._files.close()
        names = [path.name for path in self._made.publish()]
        return [self._output.with_name(name) for name in names]


@contextmanager
def part_set(output: Path, options: SetOptions, *, overwrite: bool) -> Iterator[PartSet]:
    """A set that is published by `PartSet.publish`, and removed when its block fails."""
    with new_set(output, overwrite) as made, ExitStack() as files:
        yield PartSet(output, options, made, files)
