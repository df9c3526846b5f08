"""A source in memory, for tests that want to know which bytes were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from comal.errors import LimitExceededError, ObjectNotFoundError, ShortReadError
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole


@dataclass
class MemorySource:
    """Objects by relative href; ``""`` is the object itself. Keeps a log of what was fetched."""

    objects: Mapping[str, bytes]
    href: str = "memory://fake/object"
    log: list[list[Wanted]] = field(default_factory=list)

    @classmethod
    def of(cls, data: bytes) -> MemorySource:
        return cls({"": data})

    @property
    def round_trips(self) -> int:
        """How often `fetch` was called."""
        return len(self.log)

    @property
    def requests(self) -> int:
        """How many ranges were asked for."""
        return sum(len(wanted) for wanted in self.log)

    @property
    def bytes_read(self) -> int:
        """How many bytes were handed out."""
        return sum(len(self._piece(item).data) for wanted in self.log for item in wanted)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        self.log.append(list(wanted))
        return [self._piece(item) for item in wanted]

    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        return self.fetch(wanted)

    def _object(self, href: str) -> bytes:
        try:
            return self.objects[href]
        except KeyError as error:
            raise ObjectNotFoundError("no such object", where=f"{self.href}/{href}") from error

    def _piece(self, item: Wanted) -> Piece:
        data = self._object(item.href)
        match item:
            case ByteRange(offset=offset, size=size):
                if offset + size > len(data):
                    raise ShortReadError("object ends early", where=item.href, found=len(data))
                return Piece(data[offset : offset + size], offset, len(data))
            case Head(size=size):
                return Piece(data[:size], 0, len(data))
            case Tail(size=size):
                start = max(0, len(data) - size)
                return Piece(data[start:], start, len(data))
            case Whole(limit=limit):
                if len(data) > limit:
                    raise LimitExceededError("object over the limit", where=item.href)
                return Piece(data, 0, len(data))
