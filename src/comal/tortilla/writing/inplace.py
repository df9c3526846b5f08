"""An existing file while it is changed, so that a crash leaves the old or the new one readable.

New items and a new footer are written behind the end and made durable; then the header is switched
to them by one write of at most 40 bytes. What is old stays where it is.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from comal.errors import InvalidInputError, StorageError, UnsupportedVersionError, shown
from comal.plan import ByteRange
from comal.storage import open_source, parse_href
from comal.storage.targetlock import locked, write_errors
from comal.tortilla import spec
from comal.tortilla.reading.frame import TortillaFrame
from comal.tortilla.reading.loading import open as open_frame
from comal.tortilla.writing.appender import Appender
from comal.tortilla.writing.columns import fitted, unified
from comal.tortilla.writing.footers import check_footer, settings, write_footer

Location = str | os.PathLike[str]
_SPAN = struct.Struct("<QQ")
_FOOTER_AT = 2
_PARTS_AT = 18
_COLLECTION_AT = 26


class Edit:
    """A file that is open for a change: what it says now, and where new bytes go."""

    def __init__(self, path: Path, file: Any, frame: TortillaFrame) -> None:
        self.path = path
        self._file = file
        self._part = frame.home.parts[0]
        self.table = _as_stored(frame)
        """The footer, offsets counted from the beginning of the file."""
        self.size = self._part.size
        self.out = Appender(file, self.size)
        self.switched = False

    def commit(self, table: Any, key_values: Mapping[str, str] | None = None) -> None:
        """Write a footer with these rows, make it durable, and switch the header to it."""
        schema = unified([table.schema], shown(self.path.name))
        table = fitted(table, schema)
        with write_errors("cannot write", self.path):
            start = self._file.seek(0, os.SEEK_END)
            how = settings(table.num_rows, {})
            write_footer(self._file, [table], schema, how, key_values)
            end = self._file.seek(0, os.SEEK_END)
            if self._part.collection is not None:
                self._file.write(self._part.collection)
            self._file.flush()
            footer = ByteRange(start, end - start)
            self._check(footer, table)
            os.fsync(self._file.fileno())
            self._switch(footer, end)
            os.fsync(self._file.fileno())

    def _check(self, footer: ByteRange, table: Any) -> None:
        offsets, lengths = (
            np.asarray(table[name].to_numpy(), np.int64) for name in (spec.OFFSET, spec.LENGTH)
        )
        ids = table[spec.ID].chunks
        with open_source(self.path) as source:
            check_footer(source, footer, ids, offsets, lengths)

    def _switch(self, footer: ByteRange, end: int) -> None:
        """One write, within one sector of the disk: it happens or it does not."""
        descriptor = self._file.fileno()
        collection = self._part.collection
        data = _SPAN.pack(footer.offset, footer.size)
        if collection is not None:
            between = os.pread(descriptor, _COLLECTION_AT - _PARTS_AT, _PARTS_AT)
            data += between + _SPAN.pack(end, len(collection))
        # From here on the new bytes may count, whatever fails.
        self.switched = True
        os.pwrite(descriptor, data, _FOOTER_AT)


@contextmanager
def editing(path: Location) -> Iterator[Edit]:
    """A file to be changed, locked; what is written and not committed is cut off again.

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
    with locked(target):
        frame = open_frame(target, typed=False)
        layout = frame.home.parts[0].header.layout
        if layout != "v0.5":
            raise UnsupportedVersionError(
                "files of older generations are not changed in place",
                where=shown(target, 200),
                found=layout,
                hint="write a new file with compile() and change that",
            )
        with write_errors("cannot open for writing", target):
            file = target.open("r+b")
        edit = Edit(target, file, frame)
        try:
            yield edit
        except BaseException:  # also on Ctrl-C: nothing half done may stay
            # Closed before it is cut: closing writes what a buffer still holds.
            _close_quietly(file)
            if not edit.switched:
                _take_back(target, edit.size)
            raise
        finally:
            _close_quietly(file)


def _close_quietly(file: Any) -> None:
    with suppress(OSError, ValueError, StorageError):
        file.close()


def _take_back(path: Path, size: int) -> None:
    """Cut off what was written in vain; the file is right with it, too."""
    with suppress(OSError):
        os.truncate(path, size)


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
