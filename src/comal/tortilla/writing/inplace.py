"""A file while it is changed: a copy of it gets new items and a new footer, and then its name.

What is old stays where it is in the copy.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, StorageError, UnsupportedVersionError, shown
from comal.limits import MIB
from comal.plan import ByteRange
from comal.samples.copying import Appender
from comal.storage import open_source, parse_href
from comal.storage.replacing import NextVersion, changing_file
from comal.storage.targetlock import write_errors
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.loading import open as open_frame
from comal.tortilla.writing.columns import fitted, unified
from comal.tortilla.writing.footers import check_footer, settings, write_footer

Location = str | os.PathLike[str]
_SPAN = struct.Struct("<QQ")
_FOOTER_AT = 2
_COLLECTION_AT = 26


class Edit:
    """A file that is open for a change: what it says now, and where new bytes go."""

    def __init__(self, path: Path, version: NextVersion, frame: TortillaFrame) -> None:
        self.path = path
        self._version = version
        self._part = frame.home.parts[0]
        self.table = _as_stored(frame)
        """The footer, offsets counted from the beginning of the file."""

    @cached_property
    def _file(self) -> io.BufferedRandom:
        return io.BufferedRandom(self._version.file(), MIB)

    @cached_property
    def out(self) -> Appender:
        """Writes to the end of the next version."""
        return Appender(self._file, self._part.size)

    def commit(self, table: Any, key_values: Mapping[str, str] | None = None) -> None:
        """Write a footer with these rows, and the header that leads to it."""
        schema = unified([table.schema], shown(self.path.name))
        table = fitted(table, schema)
        with write_errors("cannot write", self.path):
            file, collection = self._file, self._part.collection
            start = file.seek(0, os.SEEK_END)
            write_footer(file, [table], schema, settings(table.num_rows, {}), key_values)
            end = file.seek(0, os.SEEK_END)
            if collection is not None:
                file.write(collection)
                file.seek(_COLLECTION_AT)
                file.write(_SPAN.pack(end, len(collection)))
            file.seek(_FOOTER_AT)
            file.write(_SPAN.pack(start, end - start))
            file.flush()
            self._check(ByteRange(start, end - start), table)

    def _check(self, footer: ByteRange, table: Any) -> None:
        offsets, lengths = (
            np.asarray(table[name].to_numpy(), np.int64) for name in (spec.OFFSET, spec.LENGTH)
        )
        with open_source(self._version.path) as source:
            check_footer(source, footer, table[spec.ID].chunks, offsets, lengths)

    def close(self) -> None:
        """Let go of the copy; what its buffer still holds then is in vain."""
        if "_file" in self.__dict__:
            with suppress(OSError, ValueError, StorageError):
                self._file.close()


@contextmanager
def editing(path: Location) -> Iterator[Edit]:
    """A file to be changed, locked; what is committed takes its place at the end.

    Raises
    ------
    ConflictError
        Somebody else is writing it.
    UnsupportedVersionError
        A file of an older generation.
    InvalidInputError
        No local file.
    """
    target = local_path(path).resolve()
    with changing_file(target) as change:
        frame = open_frame(target, typed=False)
        layout = frame.home.parts[0].header.layout
        if layout != "v0.5":
            raise UnsupportedVersionError(
                "files of older generations are not changed",
                where=shown(target, 200),
                found=layout,
                hint="write a new file with compile() and change that",
            )
        with change.edit(target) as version:
            edit = Edit(target, version, frame)
            try:
                yield edit
            finally:
                edit.close()


def local_path(path: Location) -> Path:
    """The local path of a file that is to be changed."""
    location = parse_href(path)
    if location.scheme != "file":
        raise InvalidInputError(
            "only local files can be changed",
            where=location.label,
            hint="fetch it, or write a changed copy with compile()",
        )
    return Path(location.path)


def _as_stored(frame: TortillaFrame) -> Any:
    table = frame.to_arrow()
    return table.select([n for n in table.column_names if not n.startswith(spec.INTERNAL)])
