"""Whole answers for tiles that are asked for again and again, ready to be sent.

An answer is used only as long as the archive that it came from is believed to be the same without
asking (`OpenArchive.checked`); after that the next request goes the long way once, which looks at
the archive and, if it is the same, makes all of its answers good again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from comal.server.slots import Slot
    from comal.server.sources.base import Served

FRESH = 1.0
"""Seconds for which an archive is believed to be the same."""
_OVERHEAD = 2_000
"""About what an entry takes beside its body."""


@dataclass(slots=True)
class HotTile:
    """The answer 200 for a path, to requests without conditions and ranges."""

    slot: Slot
    served: Served
    archive: Any
    gzip: bool | None
    """For whom it is: those who take gzip, those who do not, or (None) both."""
    headers: list[tuple[str, str]]
    body: bytes
    count: int = 0
    """How often it was sent since the last `HotTiles.counts`."""


class HotTiles:
    """Answers by path, the oldest thrown out first.

    Parameters
    ----------
    budget
        Bytes of all of them together; 0 keeps none.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self.entries: dict[str, HotTile] = {}
        self._left: dict[str, list[int]] = {}

    @property
    def has_room(self) -> bool:
        """Whether more can be kept and nothing need be thrown out."""
        return self.size < self.budget - self.budget // 16

    def put(self, path: str, tile: HotTile) -> None:
        """Keep an answer in place of the one that was there."""
        size = len(tile.body) + _OVERHEAD
        if size > self.budget // 16:
            return
        self.drop(path)
        while self.size + size > self.budget:
            self.drop(next(iter(self.entries)))
        self.entries[path] = tile
        self.size += size

    def drop(self, path: str) -> None:
        """Forget an answer."""
        old = self.entries.pop(path, None)
        if old is not None:
            self.size -= len(old.body) + _OVERHEAD
            self._add(old)

    def counts(self) -> dict[str, tuple[int, int]]:
        """For each source how many answers were sent, and their bytes."""
        for tile in self.entries.values():
            self._add(tile)
        return {name: (count, size) for name, (count, size) in self._left.items()}

    def _add(self, tile: HotTile) -> None:
        if tile.count:
            total = self._left.setdefault(tile.slot.name, [0, 0])
            total[0] += tile.count
            total[1] += tile.count * len(tile.body)
            tile.count = 0
