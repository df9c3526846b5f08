"""Tiles of a local file whose pages hold many of them, without reading its column chunks whole.

A plan asks for a chunk and says of which rows it wants the values. Where looking at many places
costs nothing, the values are the answer; all other sources give the chunk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import EllipsisType

from comal.plan import ByteRange, Piece
from comal.raquet.reading.cache import ByteCache
from comal.raquet.reading.part import Part
from comal.storage.held import HeldFile
from comal.table.chunkvalues import CODECS, ChunkValues

_PER_PAGE, _PER_ROW = 128, 64
"""Bytes that it takes to know where the values of a chunk lie: for 64 KiB of it, and for a row."""


@dataclass(frozen=True, slots=True)
class SoughtRange(ByteRange):
    """A column chunk of which some values are wanted."""

    group: int = 0
    column: str = ""
    rows: tuple[int, ...] = ()
    """Counted within the row group."""


@dataclass(frozen=True, slots=True)
class FoundPiece(Piece):
    """The values instead of the bytes."""

    values: Mapping[int, bytes | None]
    """By row."""


class Seeker:
    """Finds values in chunks, and remembers where they lie.

    Parameters
    ----------
    budget
        Bytes for what is remembered.
    most
        Bytes that a value may have.
    """

    def __init__(self, budget: int, most: int) -> None:
        self._most = most
        self._chunks: ByteCache[tuple[int, int, str], ChunkValues] = ByteCache(budget)

    def found(
        self, want: SoughtRange, number: int, part: Part, file: HeldFile
    ) -> FoundPiece | None:
        """The values that are wanted; None where the chunk must be read."""
        chunk = self._chunk(want, number, part)
        values: dict[int, bytes | None] = {}
        for row in want.rows:
            value: bytes | EllipsisType | None = ...
            if chunk is not None:
                value = chunk.value(row, file.read, self._most)
            if value is ...:
                return None
            values[row] = value
        return FoundPiece(b"", want.offset, file.info.size or 0, values)

    def _chunk(self, want: SoughtRange, number: int, part: Part) -> ChunkValues | None:
        key = number, want.group, want.column
        chunk = self._chunks.get(key)
        if chunk is None:
            layout = part.footer.layout
            leaf = layout.leaves[want.column][0]
            codec = layout.codec.item(want.group, leaf)
            if codec not in CODECS or not layout.flat[leaf] or layout.width[leaf]:
                return None
            rows = layout.rows.item(want.group)
            required = bool(layout.required[leaf])
            chunk = ChunkValues(want.offset, want.size, codec, rows, required=required)
            size = (want.size >> 16) * _PER_PAGE + rows * _PER_ROW
            self._chunks.put(key, chunk, size)
        return chunk

    def clear(self) -> None:
        """Forget everything."""
        self._chunks.clear()
