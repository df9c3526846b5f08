"""A source in memory, for tests that want to know which bytes were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from comal.errors import LimitExceededError, ObjectNotFoundError, ShortReadError
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage import Source, StorageConfig, parse_href
from comal.storage.location import Location
from comal.storage.source import ObjectInfo


class MemorySource(Source):
    """Objects by relative href; ``""`` is the object itself. Keeps a log of what was fetched."""

    def __init__(self, objects: Mapping[str, bytes]) -> None:
        super().__init__(parse_href("memory://fake/object"), StorageConfig())
        self.objects = objects
        self.log: list[list[Wanted]] = []

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

    def stat(self, href: str = "") -> ObjectInfo:
        return ObjectInfo(self.resolve(href).href, len(self._object(href)))

    def names(self, prefix: str = "") -> list[str]:
        return sorted(name.removeprefix(prefix) for name in self.objects if name > prefix)

    def at(self, location: Location, *, fresh: bool = False) -> Self:
        raise NotImplementedError("what is in memory has nothing beside it")

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
