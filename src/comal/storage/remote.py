"""Reading over a network: one engine for every transport.

It resolves wanted ranges, merges them into requests, keeps a bounded number of them in flight and
splits the bytes again. A transport makes one request, and retries transient failures.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from itertools import count
from typing import Self, TypeVar

import numpy as np

from comal.errors import ComalError, ShortReadError, StorageError, counted, shown
from comal.parallel import pause, shared_threads, side_by_side, stopped
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage.coalesce import bundled, coalesce, scatter
from comal.storage.config import StorageConfig
from comal.storage.location import Location
from comal.storage.source import ObjectInfo, Pins, Source, check_wanted, report, span_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """One response: bytes, their offset, and the object that they belong to."""

    data: bytes
    offset: int
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. ``Head(0)`` only asks for size and version of the object."""

    location: Location
    want: Wanted
    known: ObjectInfo | None

    @property
    def is_question(self) -> bool:
        """Whether only the object's version is requested, and no bytes."""
        return isinstance(self.want, Head | Tail) and self.want.size == 0

    def size(self, most: int) -> int:
        """Most bytes of the response; a `Whole` may be answered by its first `most`."""
        return min(self.want.limit, most) if isinstance(self.want, Whole) else self.want.size

    def span(self, total: int, most: int) -> tuple[int, int]:
        """Offset and size that the response must have, in an object of `total` bytes."""
        offset, size = span_of(self.want, total, self.location)
        return offset, min(size, most) if isinstance(self.want, Whole) else size

    def answered(self, info: ObjectInfo, most: int, get: Callable[[Ask], Reply]) -> Reply:
        """The wanted bytes of an object whose size is known by now, by one more request."""
        offset, size = self.span(info.size, most)
        if size == 0:
            return Reply(b"", offset, info)
        return get(Ask(self.location, ByteRange(offset, size), info))


class Transport(ABC):
    """A protocol, for the engine. It is picklable and retries by itself."""

    @abstractmethod
    def get(self, ask: Ask) -> Reply:
        """Make one request; a `Whole` may be answered by its first `max_request` bytes."""

    def stat(self, ask: Ask) -> ObjectInfo:
        """Size and version of an object."""
        return self.get(ask).info

    @abstractmethod
    def names(self, location: Location) -> list[str]:
        """Names directly below a prefix; prefixes end in ``/``."""

    def takes_many(self, location: Location) -> bool | None:  # noqa: ARG002 - for who does
        """Whether `get_many` works for an object; None if its first call will find out."""
        return False

    def get_many(self, asks: Sequence[Ask]) -> list[Reply] | None:  # noqa: ARG002 - as above
        """Request ascending ranges of one known object; None if each must be requested alone."""
        return None


class RemoteSource(Source):
    """Objects that a transport reaches."""

    def __init__(
        self,
        location: Location,
        config: StorageConfig,
        transport: Transport,
        pins: Pins | None = None,
    ) -> None:
        super().__init__(location, config, pins)
        self.transport = transport

    def at(self, location: Location, *, fresh: bool = False) -> Self:
        """The source of another location of this origin, with the same settings."""
        if fresh:
            return type(self)(location, self.config, copy(self.transport))
        return type(self)(location, self.config, self.transport, self.pins)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order."""
        by_href: dict[str, dict[int, Wanted]] = {}
        for index, want in enumerate(wanted):
            by_href.setdefault(want.href, {})[index] = want
        groups = []
        for href, some in by_href.items():
            location = self.resolve(href)
            groups.append(_Group(location, self.pins.get(location.href), some, self.config))
        replies = iter(self._run([ask for group in groups for ask in group.asks]))
        found: dict[int, Piece] = {}
        for group in groups:
            found |= group.pieces([next(replies) for _ in group.asks])
        # The rest of large objects that were wanted whole before their size was known.
        rest = {
            index: ByteRange(piece.end, piece.total - piece.end, wanted[index].href)
            for index, piece in found.items()
            if isinstance(wanted[index], Whole) and piece.end < piece.total
        }
        for index, more in zip(rest, self.fetch(list(rest.values())) if rest else (), strict=True):
            first = found[index]
            found[index] = Piece(first.data + more.data, first.offset, first.total)
        return [found[index] for index in range(len(wanted))]

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object; the remembered ones after the first request."""
        location = self.resolve(href)
        known = self.pins.get(location.href)
        if known is not None:
            return known
        report(location.href, 0, 0, "stat")
        info = self.transport.stat(Ask(location, Head(0), None))
        return info if info.is_dir else self.pins.check(info, location)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a prefix in it."""
        location = self.resolve(prefix)
        report(location.href, 0, 0, "list")
        return self.transport.names(location)

    def _asked(self, asks: Sequence[Ask]) -> list[Reply] | None:
        """The replies to ranges of one request; None if each must be requested alone."""
        want, location = asks[0].want, asks[0].location
        size = sum(ask.size(self.config.max_request) for ask in asks)
        offset = want.offset if isinstance(want, ByteRange) else 0
        report(location.href, -size if isinstance(want, Tail) else offset, size, ranges=len(asks))
        alone = len(asks) == 1
        replies = [self.transport.get(asks[0])] if alone else self.transport.get_many(asks)
        for reply in replies or ():
            self.pins.check(reply.info, location)
        return replies

    def _run(self, asks: list[Ask]) -> list[Reply]:
        found: dict[int, Reply] = {}
        self._side_by_side(asks, self._jobs(asks, found), found)
        alone = [[index] for index in range(len(asks)) if index not in found]
        self._side_by_side(asks, alone, found)
        return [found[index] for index in range(len(asks))]

    def _jobs(self, asks: list[Ask], found: dict[int, Reply]) -> list[list[int]]:
        """Group `asks` into requests; the reply to a trial is put into `found`.

        Up to `concurrency` single ranges take one round trip, and all servers support them. Beyond
        that, each further batch costs another round trip, and requests for many ranges pay off,
        even with a trial, which costs a round trip of its own.
        """
        transport, config = self.transport, self.config
        if len(asks) <= config.concurrency or not config.multi_range:
            return [[index] for index in range(len(asks))]
        jobs: list[list[int]] = []
        for bundles in _bundles(asks, config):
            location = asks[bundles[0][0]].location
            longest = max(bundles, key=len)
            if len(longest) > 1 and transport.takes_many(location) is None:
                self._side_by_side(asks, [longest], found)
            if transport.takes_many(location):
                jobs += [job for job in bundles if job[0] not in found]
            else:
                jobs += [[index] for job in bundles for index in job if index not in found]
        return jobs

    def _side_by_side(
        self, asks: list[Ask], jobs: list[list[int]], found: dict[int, Reply]
    ) -> None:
        """Make the requests of `jobs` at once, and put their replies into `found`."""
        calls = [partial(self._asked, [asks[index] for index in job]) for job in jobs]
        pool = shared_threads("requests", self.config.concurrency)
        for job, replies in zip(jobs, side_by_side(calls, pool), strict=True):
            if replies is not None:
                found.update(zip(job, replies, strict=True))


class _Group:
    """The requests for the wanted ranges of one object, and the pieces from their replies."""

    def __init__(
        self,
        location: Location,
        known: ObjectInfo | None,
        wanted: dict[int, Wanted],
        config: StorageConfig,
    ) -> None:
        self.asks: list[Ask] = []
        self._total = known.size if known is not None else None
        self._single: dict[int, Wanted] = {}
        spans: dict[int, tuple[int, int]] = {}
        for index, want in wanted.items():
            check_wanted(want, location)
            if known is not None:
                spans[index] = span_of(want, known.size, location)
            elif isinstance(want, ByteRange) and want.size:
                spans[index] = want.offset, want.size
            else:
                self._single[index] = want
                empty = isinstance(want, ByteRange)
                self.asks.append(Ask(location, Head(0) if empty else want, known))
        self._ranges = list(spans)
        table = np.array(list(spans.values()), np.int64).reshape(-1, 2)
        self._offsets, self._sizes = table[:, 0], table[:, 1]
        self._merged = coalesce(self._offsets, self._sizes, config.coalesce_gap, config.max_request)
        merged = zip(self._merged.starts.tolist(), self._merged.sizes.tolist(), strict=True)
        self.asks += [Ask(location, ByteRange(start, size), known) for start, size in merged]

    def pieces(self, replies: list[Reply]) -> dict[int, Piece]:
        """The piece for each of the wanted ranges, by its index."""
        found: dict[int, Piece] = {}
        for (index, want), reply in zip(self._single.items(), replies, strict=False):
            offset = reply.offset
            if not reply.data:
                # In an object of unknown size, the offset of an empty range is known only now.
                offset, _ = span_of(want, reply.info.size, reply.info.href)
            found[index] = Piece(reply.data, offset, reply.info.size)
        answers = replies[len(found) :]
        total = self._total if self._total is not None else replies[-1].info.size
        bodies = [reply.data for reply in answers]
        data = scatter(self._merged, bodies, self._offsets, self._sizes)
        for index, offset, part in zip(self._ranges, self._offsets.tolist(), data, strict=True):
            found[index] = Piece(part, offset, total)
        return found


def _bundles(asks: list[Ask], config: StorageConfig) -> Iterator[list[list[int]]]:
    """Groups of ranges that may share a request, by object; anything else is alone."""
    by_href: dict[str, list[int]] = {}
    spans: dict[int, tuple[int, int]] = {}
    for index, ask in enumerate(asks):
        want = ask.want
        if ask.known is not None and isinstance(want, ByteRange) and want.size:
            by_href.setdefault(ask.location.href, []).append(index)
            spans[index] = want.offset, want.size
        else:
            yield [[index]]
    for indexes in by_href.values():
        bundles = bundled(
            [spans[index] for index in indexes], config.concurrency, config.max_request
        )
        yield [[indexes[position] for position in bundle] for bundle in bundles]


# -- trying again ----------------------------------------------------------------------------------


_random = random.SystemRandom()
_PASSING = frozenset({408, 429})


def passes(status: int) -> bool:
    """Whether an HTTP status is a transient failure: 408, 429 and all of 5xx."""
    return status in _PASSING or 500 <= status <= 599


@dataclass(eq=False)
class TransientError(Exception):
    """A failure that may pass. It never leaves `comal.storage`."""

    reason: str
    _: KW_ONLY
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the server asks to wait."""
    short: bool = False
    """Whether a response ended early."""


def retrying(config: StorageConfig, where: object, size: int, operation: Callable[[float], T]) -> T:
    """Call `operation` with its deadline until it does not raise `TransientError`.

    The deadline, by `time.monotonic`, is that of a request for `size` bytes. Raises `StorageError`
    when tries or time are used up, or nobody waits any more.
    """
    deadline = time.monotonic() + config.deadline(size)
    longest = config.backoff_first
    for made in count(1):
        try:
            return operation(deadline)
        except TransientError as error:
            wait = _random.uniform(0.0, min(config.backoff_limit, longest))
            if error.retry_after is not None:
                wait = max(wait, min(error.retry_after, config.retry_after_limit))
            over = time.monotonic() + wait >= deadline
            if made >= config.tries or over or stopped():
                raise _given_up(error, where, made) from error
        longest *= 2
        pause(wait)
    raise AssertionError("unreachable: the numbers do not end")


def _given_up(error: TransientError, where: object, made: int) -> ComalError:
    kind = ShortReadError if error.short else StorageError
    return kind(
        f"the storage failed after {counted(made, 'try', 'tries')}",
        where=str(where),
        found=shown(error.reason, 200)[1:-1],
        hint="try again later",
        tries=made,
        status=error.status,
    )


def parse_retry_after(value: str | None, now: Callable[[], float] = time.time) -> float | None:
    """Seconds of a ``Retry-After`` header: a number or an HTTP date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now())
    except (ValueError, OverflowError):
        return None
