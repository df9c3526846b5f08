"""Telling who counts what really reaches the storage.

The observer is a context variable, so that a count goes through any wrappers between, across
threads, and to nobody else's reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


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
