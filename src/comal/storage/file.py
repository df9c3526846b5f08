"""A seekable read-only binary file over a span of an object."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from comal.errors import InvalidInputError
from comal.limits import KIB
from comal.plan import ByteRange

if TYPE_CHECKING:
    from comal.storage.source import Source

READ_AHEAD = 32 * KIB


class RangeFile(io.RawIOBase):
    """A file whose bytes are fetched when they are read.

    Parameters
    ----------
    source
        Where the object is.
    href
        The object, relative to `source`.
    offset, size
        The span of the object that is the file; to its end when `size` is None.
    read_ahead
        Reads shorter than this fetch so many bytes and keep them for the next read. 0 turns it
        off.

    Notes
    -----
    `zipfile`, `pyarrow` and `rasterio` take it as it is. Reads are as long as was asked for,
    except at the end of the file. One file has one position: use a file per thread.
    """

    def __init__(
        self,
        source: Source,
        href: str = "",
        offset: int = 0,
        size: int | None = None,
        *,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        super().__init__()
        if offset < 0 or (size is not None and size < 0):
            raise InvalidInputError("a span with a negative end", found=f"{offset}+{size}")
        self._source = source
        self._href = href
        self._offset = offset
        self._size = size
        self._read_ahead = read_ahead
        self._position = 0
        self._kept = (0, b"")

    @property
    def name(self) -> str:
        """The object, as messages show it."""
        return f"{self._source.href}/{self._href}" if self._href else self._source.href

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        if self._size is None:
            self._size = max(0, self._source.stat(self._href).size - self._offset)
        return self._size

    def readable(self) -> bool:
        """True until the file is closed."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """True until the file is closed."""
        self._check_open()
        return True

    def tell(self) -> int:
        """The position, from the beginning of the span."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position; it may lie behind the end."""
        self._check_open()
        if whence == io.SEEK_SET:
            target = offset
        elif whence == io.SEEK_CUR:
            target = self._position + offset
        elif whence == io.SEEK_END:
            target = self.size + offset
        else:
            raise InvalidInputError("unknown whence", found=whence, expected="0, 1 or 2")
        if target < 0:
            raise InvalidInputError("seek before the beginning", where=self.name, found=target)
        self._position = target
        return target

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file, all the rest for -1."""
        self._check_open()
        left = max(0, self.size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        data = self.read_at(self._position, count)
        self._position += count
        return data

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer`, short only at the end of the file."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read_at(self, offset: int, size: int) -> bytes:
        """Exactly the bytes ``offset .. offset + size`` of the span; the position stays."""
        if size == 0:
            return b""
        at, kept = self._kept
        if at <= offset and offset + size <= at + len(kept):
            return kept[offset - at : offset - at + size]
        if size >= self._read_ahead:
            return self._fetch(offset, size)
        kept = self._fetch(offset, min(self._read_ahead, self.size - offset))
        self._kept = (offset, kept)
        return kept[:size]

    def close(self) -> None:
        """Close the file; the source stays open."""
        self._kept = (0, b"")
        super().close()

    def _fetch(self, offset: int, size: int) -> bytes:
        (piece,) = self._source.fetch([ByteRange(self._offset + offset, size, self._href)])
        return piece.data

    def _check_open(self) -> None:
        if self.closed:
            # What the io protocol asks for, and what its callers catch.
            raise ValueError("I/O operation on closed file")
