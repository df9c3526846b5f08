"""The files of a set: items back to back, nested files among them, then the footer.

A nested file counts its offsets from its own beginning ("Nested properties"), so it is written
where it lies: room for its header, its items, its footer, and then the header. Rows are kept in
memory, then on disk, until the footer can be written; files have hidden names until all are
complete.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    StorageError,
    counted,
    shown,
    translated,
)
from comal.lazy import pc
from comal.limits import MIB, parse_size
from comal.plan import ByteRange, Head, run
from comal.progress import Progress, silent
from comal.samples.copying import Appender, copy_payloads
from comal.samples.payloads import Ints
from comal.storage import Source, open_source
from comal.storage.kinds import magic_kind
from comal.storage.targetlock import write_errors
from comal.storage.targets import TargetFile, TargetSet, new_set
from comal.table import ParquetSettings, ParquetTable, Writer, footer_plan, write_table
from comal.table.columns import numbers_column, numbers_of, one_array
from comal.tortilla import spec, wire
from comal.tortilla.writing.columns import SHORT, fitted, unified, with_column
from comal.tortilla.writing.describing import Oddities
from comal.tortilla.writing.samples import Prepared

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
"""Neighbours differ little in those columns: a fiftieth of the bytes of a dictionary. Arrow's own
copy of the schema and statistics of a single row group are more than half of a small footer."""
_SMALL = replace(SETTINGS, level=3, dictionary=False, encodings=())

_ALIASES = {name: alias for alias, name in spec.ALIASES.items()}


def settings(rows: int, chosen: Mapping[str, Any]) -> ParquetSettings:
    """How a footer of so many rows is written.

    Parameters
    ----------
    rows
        Rows of the table.
    chosen
        Keywords of the caller, as `ParquetSettings.from_kwargs` takes them.
    """
    base = _SMALL if rows <= _FEW else SETTINGS
    # Statistics help where a reader can leave out row groups, and nowhere else.
    base = replace(base, statistics=rows > base.row_group_size)
    if not chosen:
        return base
    given = ParquetSettings.from_kwargs(**chosen)
    keys = {"level" if key == "compression_level" else key for key in chosen}
    if "compression" in keys:
        keys.add("level")
    return replace(base, **{key: getattr(given, key) for key in keys})


def written_names(schema: Any, *, aliases: bool) -> Any:
    """The schema with the names of published writers (``rai:ele``) where they are wanted."""
    if not aliases:
        return schema
    return pa.schema([field.with_name(_ALIASES.get(field.name, field.name)) for field in schema])


def write_footer(
    file: BinaryIO,
    tables: Iterable[Any],
    schema: Any,
    how: ParquetSettings,
    key_values: Mapping[str, str] | None = None,
) -> None:
    """Write the footer of a file, table by table; columns are taken by position."""
    writer = Writer(file, schema, how)
    for table in tables:
        writer.write(table.rename_columns(schema.names))
    writer.close(key_values)


def nested_footer(table: Any, *, aliases: bool = False) -> bytes:
    """The footer of a nested file, of a few rows most times; `aliases` as for `written_names`."""
    sink = io.BytesIO()
    if aliases:
        table = table.rename_columns(written_names(table.schema, aliases=True).names)
    write_table(table, sink, settings(table.num_rows, {}))
    return sink.getvalue()


def check_written(
    source: Source, header: wire.Header, ids: Iterable[Any], offsets: Ints, lengths: Ints
) -> None:
    """Refuse a file whose header or footer says another thing than what was written.

    Parameters
    ----------
    source
        The file under its temporary name.
    header
        What its header should be.
    ids, offsets, lengths
        As for `check_footer`.

    Raises
    ------
    InvalidMetadataError
        They disagree; the file must not be published.
    """
    (head,) = source.fetch([Head(wire.HEADER_SIZE)])
    found = wire.parse_header(head.data, head.total, source.href)
    if found != header:
        raise _broken("header", found, header)
    check_footer(source, header.footer, ids, offsets, lengths)


def check_footer(
    source: Source, span: ByteRange, ids: Iterable[Any], offsets: Ints, lengths: Ints
) -> None:
    """Refuse a footer that says another thing than what was written.

    Parameters
    ----------
    source
        The file.
    span
        Where the footer lies.
    ids
        Arrow arrays of the ids of all rows.
    offsets, lengths
        Spans of all rows.

    Raises
    ------
    InvalidMetadataError
        They disagree.
    """
    table = ParquetTable(source, run(footer_plan(span), source.fetch))
    if table.num_rows != len(offsets):
        raise _broken("footer", counted(table.num_rows, "row"), len(offsets))
    row = 0
    waiting = iter(ids)
    held: Any = pa.nulls(0, pa.string())
    for batch in table.iter_batches([spec.ID, spec.OFFSET, spec.LENGTH]):
        rows = slice(row, row + len(batch))
        while len(held) < len(batch):
            held = pa.concat_arrays([held, next(waiting)])
        for name, wanted in ((spec.OFFSET, offsets[rows]), (spec.LENGTH, lengths[rows])):
            if batch[name].null_count or not np.array_equal(numbers_of(batch[name]), wanted):
                raise _broken(name, "another value", f"rows {rows.start} to {rows.stop}")
        if not batch[spec.ID].equals(held.slice(0, len(batch))):
            raise _broken(spec.ID, "another id", f"rows {rows.start} to {rows.stop}")
        held = held.slice(len(batch))
        row = rows.stop


def _broken(what: str, found: object, expected: object) -> InvalidMetadataError:
    return InvalidMetadataError(
        "written file does not match its rows",
        where=what,
        found=found,
        expected=expected,
        hint="this is a fault of comal; nothing was published, please report it",
    )


_HELD = 32 * MIB
_DISK: dict[type[BaseException], type[ComalError]] = {
    OSError: StorageError,
    pa.ArrowException: StorageError,
}


class RowStore:
    """Tables that come one after the other, of schemas that may differ.

    Ids and spans stay in memory, some 40 bytes an item; the other columns go to a temporary file
    when they are more than 32 MiB.

    Parameters
    ----------
    spool
        Makes a temporary file.
    where
        What messages call the table.
    """

    def __init__(self, spool: Callable[[], BinaryIO], where: str) -> None:
        self._spool = spool
        self._where = where
        self._held: list[Any] = []
        self._bytes = 0
        self._file: BinaryIO | None = None
        self._spooled: list[tuple[int, int]] = []
        self._schemas: list[Any] = []
        self._offsets: list[Ints] = []
        self._lengths: list[Ints] = []
        self.ids: list[Any] = []
        """Arrow arrays of the ids, in order."""

    def append(self, table: Any, offsets: Ints, lengths: Ints) -> None:
        """Add rows."""
        self.ids.append(one_array(table[spec.ID]))
        self._offsets.append(offsets)
        self._lengths.append(lengths)
        if not any(schema.equals(table.schema) for schema in self._schemas[-4:]):
            self._schemas.append(table.schema)
        self._held.append(table)
        self._bytes += table.get_total_buffer_size()  # `nbytes` takes memory to tell
        if self._bytes > _HELD and (self._file is not None or len(self._held) > 1):
            self._write_out()

    def __len__(self) -> int:
        return sum(map(len, self._offsets))

    @property
    def offsets(self) -> Ints:
        """Offsets of all rows."""
        return np.concatenate([*self._offsets, np.zeros(0, np.int64)])

    @property
    def lengths(self) -> Ints:
        """Lengths of all rows."""
        return np.concatenate([*self._lengths, np.zeros(0, np.int64)])

    def schema(self) -> Any:
        """One schema for all rows, offsets and lengths included, in the order of a footer."""
        spans = pa.schema([(spec.OFFSET, pa.int64()), (spec.LENGTH, pa.int64())])
        return unified([spans, *self._schemas], self._where)

    def tables(self, schema: Any) -> Iterator[Any]:
        """All rows in a schema that holds theirs, piece by piece."""
        for number, table in enumerate(self._stored()):
            yield fitted(spanned(table, self._offsets[number], self._lengths[number]), schema)

    def _stored(self) -> Iterator[Any]:
        for start, size in self._spooled:
            assert self._file is not None
            with translated(_DISK, "temporary file cannot be read"):
                self._file.seek(start)
                data = self._file.read(size)
                table = pa.ipc.open_stream(pa.BufferReader(data)).read_all()
            yield table
        yield from self._held

    def _write_out(self) -> None:
        if self._file is None:
            self._file = self._spool()
        for table in self._held:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            data = sink.getvalue()
            with translated(_DISK, "temporary file cannot be written"):
                start = self._file.seek(0, 2)
                self._file.write(data)
            self._spooled.append((start, len(data)))
        self._held, self._bytes = [], 0


def spanned(table: Any, offsets: Ints, lengths: Ints) -> Any:
    """Metadata with the columns that say where the items lie."""
    for name, values in ((spec.OFFSET, offsets), (spec.LENGTH, lengths)):
        table = with_column(table, name, numbers_column(values))
    return table


_STEP = 16_384
"""Items that are copied between two messages about progress."""


@dataclass(slots=True)
class Telling:
    """What is told of a write that is going on."""

    progress: Progress = silent
    oddities: Oddities = field(default_factory=Oddities)
    done: int = 0

    def wrote(self, count: int) -> None:
        """So many items more of the outermost level are written."""
        self.done += count
        self.progress(self.done, None, "samples")


def write_items(out: Appender, items: Prepared, telling: Telling, *, aliases: bool = False) -> Ints:
    """Append all items.

    Parameters
    ----------
    out
        Stands where the first one begins.
    items
        What to write; formats are known.
    telling
        Told what was written and what looked odd.
    aliases
        Nested footers have the names of published writers, as the outermost one is to have them.

    Returns
    -------
    Lengths of the items in bytes; each begins where the one before it ends.
    """
    return _Writing(out, telling, aliases).write(items, 0, len(items), depth=0)


@dataclass(frozen=True, slots=True)
class _Writing:
    """One call of `write_items`."""

    out: Appender
    telling: Telling
    aliases: bool

    def write(self, items: Prepared, start: int, stop: int, *, depth: int) -> Ints:
        """Append the items of some rows; their lengths."""
        lengths = np.empty(stop - start, np.int64)
        row = start
        # Runs of plain items, each up to a nested one or the end.
        for edge in [*items.nested(start, stop).tolist(), stop]:
            while row < edge:
                last = min(row + _STEP, edge)
                copied = copy_payloads(items.payloads, row, last, self.out)
                self.telling.oddities.look(copied, items.table, row)
                lengths[row - start : last - start] = copied.sizes
                if depth == 0:
                    self.telling.wrote(last - row)
                row = last
            if edge < stop:
                lengths[edge - start] = self._write_nested(items, edge, depth)
                row = edge + 1
                if depth == 0:
                    self.telling.wrote(1)
        return lengths

    def _write_nested(self, items: Prepared, row: int, depth: int) -> int:
        assert items.below is not None
        assert items.starts is not None
        assert items.stops is not None
        out, begin = self.out, self.out.position
        start, stop = int(items.starts[row]), int(items.stops[row])
        out.write(bytes(wire.HEADER_SIZE))
        lengths = self.write(items.below, start, stop, depth=depth + 1)
        offsets = wire.HEADER_SIZE + np.cumsum(lengths) - lengths
        table = spanned(items.below.table.slice(start, stop - start), offsets, lengths)
        table = fitted(table, unified([table.schema], "nested samples"))
        footer = nested_footer(table, aliases=self.aliases)
        span = ByteRange(out.position - begin, len(footer))
        out.write(footer)
        out.patch(begin, wire.pack_header(wire.Header(span)))
        return out.position - begin


TORTILLA = magic_kind("a Tortilla", b"#y", b"WX")
_MOST = 9_999
_OPEN = 64
"""Files that are open at once; each has a descriptor and a buffer of 1 MiB."""


@dataclass(frozen=True, slots=True)
class How:
    """How files are written."""

    overwrite: bool = False
    first_part: int = 1
    aliases: bool = False
    """Names of published writers where they differ from the specification."""
    parquet: Mapping[str, Any] = field(default_factory=dict)
    key_values: Mapping[str, str] = field(default_factory=dict)
    collection: bytes | None = None
    """JSON of a TACO v1, behind the footer of each file."""
    parts: int | None = None
    """Files of the set that one file belongs to, where it is written anew alone."""


class Part:
    """One file that is being written: its data, and what its footer will say."""

    def __init__(self, scope: AbstractContextManager[TargetFile], how: How) -> None:
        self.file = scope.__enter__()
        self.scope = scope
        self.rows = RowStore(self.file.spool, shown(self.file.target.name))
        self.header: wire.Header | None = None
        self._how = how
        stream: Any = self.file
        self._out: Appender | None = Appender(stream)
        self._position = 0
        self._out.write(bytes(wire.HEADER_SIZE))

    @property
    def out(self) -> Appender:
        """The end of the file, which is opened again where it was closed."""
        if self._out is None:
            with write_errors("cannot write", self.file.target):
                stream: Any = self.file.path.open("r+b")
            self._out = Appender(stream, self._position)
        return self._out

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor and a buffer."""
        return self._out is not None

    def close(self) -> None:
        """Let go of descriptor and buffer until more is written."""
        if self._out is not None:
            self._position = self._out.position
            with write_errors("cannot write", self.file.target):
                self._out.file.close()
            self._out = None

    def add(self, table: Any, lengths: Ints) -> None:
        """Take note of items of these lengths, which are the last that were written."""
        offsets = self.out.position - int(lengths.sum()) + np.cumsum(lengths) - lengths
        self.rows.append(table, offsets, lengths)

    def finish(self, schema: Any) -> None:
        """Write the footer, and what stands behind it."""
        out, start = self.out, self.out.position
        write_footer(
            out.file,
            self.rows.tables(schema),
            written_names(schema, aliases=self._how.aliases),
            settings(len(self.rows), self._how.parquet),
            self._how.key_values,
        )
        end = out.position = out.file.seek(0, os.SEEK_END)
        collection, magic = None, wire.TORTILLA_MAGIC
        if self._how.collection is not None:
            out.write(self._how.collection)
            collection, magic = ByteRange(end, len(self._how.collection)), wire.TACO_MAGIC
        self.header = wire.Header(ByteRange(start, end - start), 1, magic, collection=collection)

    def seal(self, parts: int) -> None:
        """Write the header, and read all of it again."""
        assert self.header is not None
        self.header = replace(self.header, parts=parts)
        self.out.patch(0, wire.pack_header(self.header))
        self.close()
        with open_source(self.file.path) as source:
            check_written(source, self.header, self.rows.ids, self.rows.offsets, self.rows.lengths)


class PartSet:
    """Files of one set; one alone has the plain name, several are numbered."""

    def __init__(self, output: Path, how: How, made: TargetSet) -> None:
        if how.first_part not in (0, 1):
            raise InvalidInputError(
                "the first part cannot have this number", found=how.first_part, expected="1, or 0"
            )
        self._output = output
        self._how = how
        self._made = made
        self.parts: list[Part] = []

    def part(self, number: int) -> Part:
        """The part with this number, counted from 0; the next one is begun."""
        if number == len(self.parts):
            if number == _MOST:
                raise InvalidInputError("too many parts", expected=f"at most {_MOST}")
            target = self._output if number == 0 else self._numbered(number)
            self.parts.append(Part(self._made.file(target.name, TORTILLA), self._how))
            if sum(part.is_open for part in self.parts) > _OPEN:
                for part in self.parts[:-1]:
                    part.close()
        return self.parts[number]

    def _numbered(self, position: int) -> Path:
        stem, dot, extension = self._output.name.rpartition(".")
        if extension not in ("tortilla", "taco") or not dot:
            stem, extension = self._output.name, "tortilla"
        number = position + self._how.first_part
        return self._output.with_name(spec.part_name(stem.removesuffix(".part"), number, extension))

    def finish(self, *, one_schema: bool = True) -> None:
        """Write footers and headers; `one_schema` gives every part the columns of all."""
        schemas = [part.rows.schema() for part in self.parts]
        if one_schema and len(schemas) > 1:
            schemas = [unified(schemas, self._output.name)] * len(schemas)
        if len(schemas) > 1:
            self._made.rename(self.parts[0].file, self._numbered(0).name)
            self._refuse_strangers()
        for part, schema in zip(self.parts, schemas, strict=True):
            part.finish(schema)
            part.seal(self._how.parts or len(schemas))

    def _refuse_strangers(self) -> None:
        """Refuse a folder in which another set has this name: its parts would mix with ours."""
        mine = {part.file.target.name for part in self.parts}
        for path in self.named_alike():
            if path.name not in mine and path != self._output.absolute():
                raise ConflictError(
                    "a part of another set has this name",
                    where=shown(path, 200),
                    hint="remove the old set, or choose another name",
                )

    def named_alike(self) -> list[Path]:
        """Existing files that have the name of the set, or of any part of it."""
        output = self._output.absolute()
        found = spec.PART_NAME.fullmatch(self._numbered(0).name)
        assert found is not None, "parts have names of parts"
        alike = [output] if output.exists() else []
        for path in output.parent.iterdir() if output.parent.is_dir() else ():
            other = spec.PART_NAME.fullmatch(path.name)
            if other is not None and other["stem"] == found["stem"]:
                alike.append(path)
        return alike

    def publish(self) -> list[Path]:
        """Give all files their names, together."""
        for part in self.parts:
            part.scope.__exit__(None, None, None)
        names = [path.name for path in self._made.publish()]
        return [self._output.with_name(name) for name in names]

    def discard(self, error: BaseException) -> None:
        """Close what has no name yet."""
        for part in self.parts:
            # The error is raised again by who caught it.
            with suppress(type(error)):
                part.scope.__exit__(type(error), error, error.__traceback__)


@contextmanager
def part_set(output: Path, how: How) -> Iterator[PartSet]:
    """A set that is published by `PartSet.publish`, and removed when its block fails."""
    with new_set(output, how.overwrite) as made:
        parts = PartSet(output, how, made)
        try:
            yield parts
        except BaseException as error:
            parts.discard(error)
            raise


# -- cutting ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a set is cut into files; nothing given means one file."""

    size: int | None = None
    """Bytes of items in a file; header and footer do not count ("The Data Partition")."""
    rows: int | None = None
    """Items in a file."""
    column: str | None = None
    """A file, or several, for each value of this column."""

    @classmethod
    def of(cls, size: int | str | None, rows: int | None, column: str | None) -> Cut:
        """Checked.

        Raises
        ------
        InvalidInputError
            No size, or no positive number.
        """
        if rows is not None and (isinstance(rows, bool) or rows < 1):
            raise InvalidInputError(
                "no number of items in a part", found=shown(rows), expected="1 or more"
            )
        return cls(None if size is None else parse_size(size), rows, column)

    @property
    def is_none(self) -> bool:
        """Whether all goes into one file."""
        return self.size is None and self.rows is None and self.column is None


@dataclass(slots=True)
class Bin:
    """How full the file is that is being filled."""

    key: str
    number: int
    bytes: int = 0
    rows: int = 0


class Router:
    """Tells the file of each item as they come; keeps files of several values open at once."""

    def __init__(self, cut: Cut) -> None:
        self._cut = cut
        self._bins: dict[str, Bin] = {}
        self._count = 0

    def route(self, items: Prepared) -> Iterator[tuple[int, Ints]]:
        """Number of the file (from 0, in the order of their first items) and the rows for it.

        Rows of a value keep their order. A new file is begun when an item would make it larger
        than the cut allows; an item that is larger itself has a file of its own.
        """
        sizes = items.sizes() if self._cut.size is not None else np.zeros(len(items), np.int64)
        for key, rows in self._groups(items):
            start = 0
            while start < len(rows):
                bin_ = self._bins.get(key) or self._new(key)
                stop = start + self._room(bin_, sizes[rows[start:]])
                if stop == start:
                    bin_ = self._new(key)
                    continue
                bin_.bytes += int(sizes[rows[start:stop]].sum())
                bin_.rows += stop - start
                yield bin_.number, rows[start:stop]
                start = stop

    def _new(self, key: str) -> Bin:
        self._bins[key] = Bin(key, self._count)
        self._count += 1
        return self._bins[key]

    def _room(self, bin_: Bin, sizes: Ints) -> int:
        """How many of the next items fit; at least one into an empty file."""
        fits = len(sizes)
        if self._cut.rows is not None:
            fits = min(fits, self._cut.rows - bin_.rows)
        if self._cut.size is not None and fits:
            left = self._cut.size - bin_.bytes
            fits = min(fits, int(np.searchsorted(np.cumsum(sizes), left, side="right")))
            fits = max(fits, int(bin_.rows == 0))
        return fits

    def _groups(self, items: Prepared) -> Iterator[tuple[str, Ints]]:
        if self._cut.column is None:
            yield "", np.arange(len(items))
            return
        name = SHORT.get(self._cut.column, self._cut.column)
        if name not in items.table.column_names:
            raise InvalidInputError(
                f"no column {shown(name)} to cut by",
                found=", ".join(map(shown, items.table.column_names[:40])),
            )
        try:
            values = pc.fill_null(pc.cast(items.table[name], pa.string()), "\0")
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(
                f"column {shown(name)} cannot be cut by", found=str(items.table[name].type)
            ) from error
        encoded = pc.dictionary_encode(values).combine_chunks()
        codes: Any = encoded.indices.to_numpy(zero_copy_only=False)
        for code, value in enumerate(encoded.dictionary.to_pylist()):
            yield value, np.flatnonzero(codes == code)
