"""A local file that stays open, for readers of thousands of small ranges.

Opening a file for each read costs more than the read. Who holds a file sees the version that was
opened, also when another one takes its name; `HeldFile.current` tells whether that has happened.

Where `StorageConfig.memory_map` asks for it the file is mapped, and a read copies out of the map.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence

from comal.errors import ShortReadError
from comal.plan import Piece, Wanted
from comal.storage.base import check_wanted, span_of
from comal.storage.local import LocalSource, translated_local
from comal.storage.observe import report
from comal.storage.pins import changed, same_version
from comal.storage.source import Source


class HeldFile:
    """An open descriptor of one version of a file. It closes with the last reference to it.

    Reads have no position, so that threads and forked processes may share it.
    """

    __slots__ = ("_descriptor", "_map", "_source", "info")

    def __init__(self, source: LocalSource) -> None:
        self._descriptor = -1
        self._source = source
        self._descriptor, self.info = source.open_descriptor()
        self._map = _mapped(self._descriptor, self.info.size) if source.config.memory_map else None

    @property
    def descriptors(self) -> int:
        """Open descriptors that this takes: a map has one of its own."""
        return 1 if self._map is None else 2

    def read(self, offset: int, size: int) -> bytes:
        """Exactly the bytes ``offset .. offset + size``.

        Raises
        ------
        ShortReadError
            The file ends before; it was cut while it was open.
        StorageError
            The disk fails.
        """
        if self._map is not None and offset >= 0:
            data = self._map[offset : offset + size]
        else:
            try:
                data = os.pread(self._descriptor, size, offset)
            except OSError:
                with translated_local("cannot read", self._source.location):
                    raise
        return data if len(data) == size else self._rest(data, offset, size)

    def check_unchanged(self) -> None:
        """Raise `ObjectChangedError` when the opened file itself was written to since.

        One that has lost its name to another file is still what it was. Asking costs little
        enough for every read.
        """
        status = os.fstat(self._descriptor)
        if status.st_mtime_ns != self.info.modified or status.st_size != self.info.size:
            raise changed(self._source.location, self.info, self._source.info_of(status))

    def read_unchanged(self, offset: int, size: int) -> bytes:
        """`read` and `check_unchanged` in one."""
        if self._map is None and offset >= 0:
            info, descriptor = self.info, self._descriptor
            try:
                data, status = os.pread(descriptor, size, offset), os.fstat(descriptor)
            except OSError:
                pass  # it is told below, where it costs nothing while all is well
            else:
                same = status.st_mtime_ns == info.modified and status.st_size == info.size
                if same and len(data) == size:
                    return data
        data = self.read(offset, size)
        self.check_unchanged()
        return data

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, of this version and no other; as `Source.fetch`."""
        total, where = self.info.size, self._source.location
        pieces = []
        for want in wanted:
            check_wanted(want, where)
            offset, size = span_of(want, total, where)
            report(self.info.href, offset, size)
            # What opens a file is read once, and an unfinished update may be cut off meanwhile.
            pieces.append(Piece(self._rest(b"", offset, size), offset, total))
        return pieces

    def current(self) -> bool:
        """Whether this version still has the name under which it was opened."""
        try:
            status = os.stat(self._source.location.path)  # noqa: PTH116 - a string throughout
        except OSError:
            return False
        return same_version(self.info, self._source.info_of(status))

    def check_current(self) -> None:
        """Raise `ObjectChangedError` unless `current`."""
        if not self.current():
            raise changed(self._source.location, self.info, None)

    def _rest(self, data: bytes, offset: int, size: int) -> bytes:
        """What follows after `data`, by descriptor."""
        parts, have = [data] if data else [], len(data)
        while have < size:
            with translated_local("cannot read", self._source.location):
                part = os.pread(self._descriptor, size - have, offset + have)
            if not part:
                raise ShortReadError(
                    "the object ends before the range",
                    where=f"{self._source.location} (bytes {offset}+{size})",
                    found=f"{have} bytes of it",
                    expected=size,
                )
            parts.append(part)
            have += len(part)
        return b"".join(parts)

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _mapped(descriptor: int, size: int) -> mmap.mmap | None:
    """The file in memory; None where that cannot be, as of an empty one."""
    try:
        return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
    except (OSError, ValueError, OverflowError):
        return None  # reads by descriptor say what is wrong, if anything is


def held(source: Source) -> HeldFile | None:
    """The file at `source` kept open, or None where it is no plain local file.

    A source that counts or caches is no plain one: its reads must go through it.
    """
    return HeldFile(source) if isinstance(source, LocalSource) else None
