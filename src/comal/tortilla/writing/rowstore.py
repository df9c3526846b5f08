"""The metadata of what has been written, until the footer can be: in memory, then on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa

from comal.errors import ComalError, StorageError, translated
from comal.limits import MIB
from comal.samples.payloads import Ints
from comal.table.columns import numbers_column, one_array
from comal.tortilla import spec
from comal.tortilla.writing.columns import fitted, unified, with_column

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
