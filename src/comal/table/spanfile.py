"""A Parquet file inside an object, as the file that pyarrow wants."""

from __future__ import annotations

import io
import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import Protocol

from comal.plan import ByteRange, Piece, Wanted


class Ranges(Protocol):
    """What a table needs of a source."""

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each range."""
        ...


class SpanFile(io.RawIOBase):
    """Read-only file over a span of an object.

    Bytes that lie in `pieces` are served from there, others by one request for each read.
    """

    def __init__(self, source: Ranges, span: ByteRange, pieces: Sequence[Piece]) -> None:
        super().__init__()
        self._source = source
        self._span = span
        self._pieces = sorted(pieces, key=lambda piece: piece.offset)
        self._offsets = [piece.offset for piece in self._pieces]
        self._position = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether it can seek: always."""
        return True

    def tell(self) -> int:
        """Position in the span."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to a position in the span."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._span.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """Read `size` bytes, fewer only at the end of the span."""
        left = max(0, self._span.size - self._position)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._bytes(self._span.offset + self._position, wanted) if wanted else b""
        self._position += len(data)
        return data

    def _bytes(self, offset: int, size: int) -> bytes:
        index = bisect_right(self._offsets, offset) - 1
        if index >= 0 and self._pieces[index].holds(offset, size):
            return self._pieces[index].slice(offset, size)
        (piece,) = self._source.fetch([ByteRange(offset, size, self._span.href)])
        return piece.data
