"""Whole answers for tiles that are asked for again and again, ready to be sent.

An answer is used only as long as the archive that it came from is believed to be the same without
asking (`OpenArchive.checked`); after that the next request goes the long way once, which looks at
the archive and, if it is the same, makes all of its answers good again.

Bodies that do not fit are left out: where a tile lies uncompressed in its archive, one read and its
checksum bring it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import ReferenceType

from isal import isal_zlib

from comal.errors import ComalError

if TYPE_CHECKING:
    from comal.server.slots import Slot
    from comal.server.sources.base import Served

FRESH = 1.0
"""Seconds for which an archive is believed to be the same."""
_OVERHEAD = 1_200
"""About what an entry takes beside its body."""
_REPLACED = 8
"""When there is no room, one of so many throws out others: what is asked for once, little."""


@dataclass(slots=True)
class HotTile:
    """The answer 200 for a path, to requests without conditions and ranges."""

    slot: Slot
    served: ReferenceType[Served]
    """The version of the source; an answer must not hold it open once another took its place."""
    gzip: bool | None
    """For whom it is: those who take gzip, those who do not, or (None) both."""
    headers: list[tuple[str, str]]
    body: bytes | None
    archive: ReferenceType[Any] | None = None
    """The open archive; it may close while the answer is kept, which ends its use."""
    place: tuple[int, int, int] | None = None
    """Offset, size and CRC-32 of the body in the file of the archive."""
    head: bytes = b""
    """The headers as they are sent, where somebody sends them himself."""
    count: int = 0
    """How often it was sent since the last `HotTiles.counts`."""
    size: int = 0
    """Bytes of the body."""

    def is_right(self, now: float) -> bool:
        """Whether the archive is believed to be the one that this came from."""
        slot = self.slot
        archive = None if self.archive is None else self.archive()
        return (
            archive is not None
            and now - archive.checked < FRESH
            and now < slot.next_look
            and slot.served is self.served()
        )

    def content(self) -> bytes | None:
        """The body, read where it is not kept; None where it can no longer be had."""
        if self.body is not None:
            return self.body
        archive = None if self.archive is None else self.archive()
        if archive is None or self.place is None:
            return None
        offset, size, crc = self.place
        try:
            body: bytes = archive.file.read(offset, size)
        except ComalError:
            return None
        return body if isal_zlib.crc32(body) == crc else None


class HotTiles:
    """Answers by path, or by the first line of a request; the oldest thrown out first.

    Parameters
    ----------
    budget
        Bytes of all of them together, a quarter of these for all that is not a body; 0 keeps none.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.entries: dict[str | bytes, HotTile] = {}
        self._most = budget // 4 // _OVERHEAD
        self._room = budget - budget // 4
        self._bodies: dict[str | bytes, int] = {}
        self._filled = 0
        self._turn = 0
        self._left: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """Bytes of all answers, about."""
        return self._filled + _OVERHEAD * len(self.entries)

    def wants(self, key: str | bytes, size: int) -> bool:
        """Whether an answer with so long a body should be kept now."""
        if self._most == 0 or size > self._room // 16:
            return False
        has_room = len(self.entries) < self._most and self._filled + size <= self._room
        if has_room or key in self.entries:
            return True
        self._turn = (self._turn + 1) % _REPLACED
        return self._turn == 0 or len(self.entries) < self._most

    def put(self, key: str | bytes, tile: HotTile) -> None:
        """Keep an answer, in place of the one that was there."""
        body = tile.body
        assert body is not None, "an answer comes with its body"
        tile.size = len(body)
        self.drop(key)
        if self._filled + tile.size > self._room and tile.place is not None and self._turn:
            tile.body = None
        else:
            while self._bodies and self._filled + tile.size > self._room:
                self._empty(next(iter(self._bodies)))
            self._bodies[key] = tile.size
            self._filled += tile.size
        while len(self.entries) >= self._most:
            self.drop(next(iter(self.entries)))
        self.entries[key] = tile

    def drop(self, key: str | bytes) -> None:
        """Forget an answer."""
        self._filled -= self._bodies.pop(key, 0)
        old = self.entries.pop(key, None)
        if old is not None:
            self._add(old)

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each source how many answers were sent, and their bytes."""
        for tile in self.entries.values():
            self._add(tile)
        return {name: (count, size) for name, (count, size) in self._left.items()}

    def _empty(self, key: str | bytes) -> None:
        """Forget a body, and all of an answer whose body cannot be read again."""
        tile = self.entries[key]
        if tile.place is None:
            self.drop(key)
        else:
            tile.body = None
            self._filled -= self._bodies.pop(key)

    def _add(self, tile: HotTile) -> None:
        if tile.count:
            total = self._left.setdefault(tile.slot.name, [0, 0])
            total[0] += tile.count
            total[1] += tile.count * tile.size
            tile.count = 0
