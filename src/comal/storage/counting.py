"""Who listens to requests, and a source that counts what goes through it.

The observer is a context variable, so that a count goes through any wrappers between, across
threads, and to nobody else's reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from comal.plan import Piece, Wanted
from comal.storage.source import ObjectInfo, Source, SourceWrapper


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the storage: a range, or a question when `size` is 0."""

    href: str
    """The object, absolute."""
    offset: int
    """First byte; negative for the last bytes of an object of unknown size."""
    size: int
    """Number of bytes that were asked for."""
    kind: str = "get"
    """``get``, ``stat`` or ``list``."""
    ranges: int = 1
    """Ranges that it asks for together; `offset` is where the first begins, `size` their sum."""


Observer = Callable[[Request], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Report every request that is made in this context to `observer`, which is thread-safe."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def is_observed() -> bool:
    """Whether anybody in this context wants to hear of requests."""
    return bool(_observers.get())


def report(href: str, offset: int, size: int, kind: str = "get", ranges: int = 1) -> None:
    """Tell the observers of this context of one request."""
    observers = _observers.get()
    if observers:
        request = Request(href, offset, size, kind, ranges)
        for observer in observers:
            observer(request)


class Counts:
    """Numbers that a counting source and the sources made from it share."""

    def __init__(self) -> None:
        self.wanted = 0
        self.round_trips = 0
        self.log: list[Request] = []
        self._lock = threading.Lock()

    def request(self, request: Request) -> None:
        """Count one request to the storage."""
        with self._lock:
            self.log.append(request)

    @contextmanager
    def trip(self, wanted: int) -> Iterator[None]:
        """Count the requests of one call; the call is a round trip if it makes any."""
        made: list[Request] = []
        try:
            with observed(made.append), observed(self.request):
                yield
        finally:
            with self._lock:
                self.wanted += wanted
                self.round_trips += bool(made)

    def __getstate__(self) -> dict[str, Any]:
        return {"wanted": self.wanted, "round_trips": self.round_trips, "log": list(self.log)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()


class CountingSource(SourceWrapper):
    """Counts what goes through it, and what of that reaches the storage.

    Sources and files made from it count into the same numbers. A copy in another process starts
    with the numbers of this one and goes on by itself.
    """

    def __init__(self, source: Source, counts: Counts | None = None) -> None:
        super().__init__(source)
        self.counts = counts if counts is not None else Counts()

    @property
    def wanted(self) -> int:
        """Ranges that were asked for through this source, before coalescing."""
        return self.counts.wanted

    @property
    def requests(self) -> int:
        """Requests that reached the storage, after coalescing and caching, tries included."""
        return len(self.counts.log)

    @property
    def round_trips(self) -> int:
        """Calls that had to wait for the storage; requests of one call go out together."""
        return self.counts.round_trips

    @property
    def bytes(self) -> int:
        """Bytes that were asked of the storage."""
        return sum(request.size for request in self.counts.log)

    @property
    def log(self) -> list[Request]:
        """Every request to the storage."""
        return list(self.counts.log)

    def reset(self) -> None:
        """Start again from zero."""
        self.counts.log.clear()
        self.counts.wanted = self.counts.round_trips = 0

    def over(self, source: Source) -> CountingSource:
        """The same counter around another source."""
        return CountingSource(source, self.counts)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, counted."""
        with self.counts.trip(len(wanted)):
            return self.source.fetch(wanted)

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, counted."""
        with self.counts.trip(0):
            return self.source.stat(href)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location, counted."""
        with self.counts.trip(0):
            return self.source.names(prefix)
