"""The files of a set: written under hidden names, and named together when all are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from comal import arrowcompute as pc
from comal.errors import ConflictError, InvalidInputError, shown
from comal.limits import parse_size
from comal.plan import ByteRange
from comal.samples.copying import Appender
from comal.samples.payloads import Ints
from comal.storage import open_source
from comal.storage.kinds import magic_kind
from comal.storage.targetlock import write_errors
from comal.storage.targets import TargetFile, TargetSet, new_set
from comal.tortilla import spec, wire
from comal.tortilla.writing.columns import SHORT, unified
from comal.tortilla.writing.footers import check_written, settings, write_footer, written_names
from comal.tortilla.writing.prepared import Prepared
from comal.tortilla.writing.rowstore import RowStore

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
