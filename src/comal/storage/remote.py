"""Reading over a network: one engine for every transport.

It resolves what is wanted, merges it into requests, keeps a bounded number of them in flight and
deals the bytes out again. A transport makes one request, and tries it again where its trouble may
pass.
"""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Self, TypeVar

import numpy as np

from comal.errors import ComalError, ShortReadError, StorageError, shown
from comal.parallel import pause, shared_threads, side_by_side, stopped
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage.coalesce import Merged, bundled, coalesce, scatter
from comal.storage.config import StorageConfig
from comal.storage.location import Location
from comal.storage.source import ObjectInfo, Pins, Source, check_wanted, report, span_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer: bytes, where they start, and the object that they are of."""

    data: bytes
    offset: int
    info: ObjectInfo


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. ``Head(0)`` only asks what the object is."""

    location: Location
    want: Wanted
    known: ObjectInfo | None


class Transport(ABC):
    """What the engine needs of a protocol. It is picklable and tries again by itself."""

    @abstractmethod
    def get(self, ask: Ask) -> Reply:
        """Make one request; a `Whole` may be answered by its first `max_request` bytes."""

    def stat(self, ask: Ask) -> ObjectInfo:
        """What an object is."""
        return self.get(ask).info

    @abstractmethod
    def names(self, location: Location) -> list[str]:
        """Names directly below a prefix; prefixes end in ``/``."""

    def takes_many(self, location: Location) -> bool | None:  # noqa: ARG002 - for who does
        """Whether `get_many` is of use for an object; None when its first call will tell."""
        return False

    def get_many(self, asks: Sequence[Ask]) -> list[Reply] | None:  # noqa: ARG002 - as above
        """Ask for ranges of one known object, ascending; None where each is to be asked alone."""
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
        """The source of another place of this origin, spoken to alike."""
        if fresh:
            return type(self)(location, self.config, copy(self.transport))
        return type(self)(location, self.config, self.transport, self.pins)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order."""
        batch = _Batch(self, wanted)
        pieces = batch.pieces(self._run(batch.asks))
        rest = _rest(wanted, pieces)
        return _joined(pieces, rest, self.fetch(list(rest.values()))) if rest else pieces

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, from memory if it was asked before."""
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
        """The answers to ranges that go together; None where each is to be asked alone."""
        if len(asks) == 1:
            _report(asks[0], self.config.max_request)
            replies: list[Reply] | None = [self.transport.get(asks[0])]
        else:
            _report_many(asks)
            replies = self.transport.get_many(asks)
        for reply in replies or ():
            self.pins.check(reply.info, asks[0].location)
        return replies

    def _run(self, asks: list[Ask]) -> list[Reply]:
        found: dict[int, Reply] = {}
        self._side_by_side(asks, self._jobs(asks, found), found)
        alone = [[index] for index in range(len(asks)) if index not in found]
        self._side_by_side(asks, alone, found)
        return [found[index] for index in range(len(asks))]

    def _jobs(self, asks: list[Ask], found: dict[int, Reply]) -> list[list[int]]:
        """Which of `asks` go together in a request; the answer to a trial is put into `found`.

        As long as all fit into the connections at once, single ranges take one round trip, and
        all servers know them. Beyond that each further wave of them waits once more, and asking
        for many ranges at once pays, also for a trial, which has one wait to itself.
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
        """Make the requests of `jobs` at once, and put their answers into `found`."""
        calls = [partial(self._asked, [asks[index] for index in job]) for job in jobs]
        pool = shared_threads("requests", self.config.concurrency)
        for job, replies in zip(jobs, side_by_side(calls, pool), strict=True):
            if replies is not None:
                found.update(zip(job, replies, strict=True))


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranges of one object that were merged, and the requests they became."""

    indexes: list[int]
    offsets: np.ndarray[tuple[int], np.dtype[np.int64]]
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]]
    merged: Merged
    first: int
    total: int | None


class _Batch:
    """Which requests some wanted ranges become, and which pieces their answers become."""

    def __init__(self, source: RemoteSource, wanted: Sequence[Wanted]) -> None:
        self._wanted = wanted
        self._config = source.config
        self.asks: list[Ask] = []
        self._groups: list[_Group] = []
        self._single: dict[int, int] = {}
        by_href: dict[str, list[int]] = {}
        for index, want in enumerate(wanted):
            by_href.setdefault(want.href, []).append(index)
        for href, indexes in by_href.items():
            location = source.resolve(href)
            self._plan(location, source.pins.get(location.href), indexes)

    def _plan(self, location: Location, known: ObjectInfo | None, indexes: list[int]) -> None:
        spans: dict[int, tuple[int, int]] = {}
        for index in indexes:
            want = self._wanted[index]
            check_wanted(want, location)
            if known is not None:
                spans[index] = span_of(want, known.size, location)
            elif isinstance(want, ByteRange) and want.size:
                spans[index] = want.offset, want.size
            else:
                self._single[index] = len(self.asks)
                empty = isinstance(want, ByteRange)
                self.asks.append(Ask(location, Head(0) if empty else want, known))
        if spans:
            self._merge(location, known, spans)

    def _merge(
        self, location: Location, known: ObjectInfo | None, spans: dict[int, tuple[int, int]]
    ) -> None:
        table = np.array(list(spans.values()), np.int64)
        offsets, sizes = table[:, 0], table[:, 1]
        config = self._config
        merged = coalesce(offsets, sizes, config.coalesce_gap, config.max_request)
        total = known.size if known is not None else None
        first = len(self.asks)
        self._groups.append(_Group(list(spans), offsets, sizes, merged, first, total))
        for start, size in zip(merged.starts.tolist(), merged.sizes.tolist(), strict=True):
            self.asks.append(Ask(location, ByteRange(start, size), known))

    def pieces(self, replies: list[Reply]) -> list[Piece]:
        """The answer to each of the wanted ranges."""
        found: dict[int, Piece] = {}
        for index, number in self._single.items():
            found[index] = _single_piece(self._wanted[index], replies[number])
        for group in self._groups:
            answers = replies[group.first : group.first + len(group.merged.starts)]
            bodies = [reply.data for reply in answers]
            total = group.total if group.total is not None else answers[0].info.size
            data = scatter(group.merged, bodies, group.offsets, group.sizes)
            offsets = group.offsets.tolist()
            for index, offset, part in zip(group.indexes, offsets, data, strict=True):
                found[index] = Piece(part, offset, total)
        return [found[index] for index in range(len(self._wanted))]


def _bundles(asks: list[Ask], config: StorageConfig) -> Iterator[list[list[int]]]:
    """For each object which of its ranges may go together; what is no range is alone."""
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


def _single_piece(want: Wanted, reply: Reply) -> Piece:
    if not reply.data:
        # Of an object that was not known yet only now the place of an empty range is known.
        offset, _ = span_of(want, reply.info.size, reply.info.href)
        return Piece(b"", offset, reply.info.size)
    return Piece(reply.data, reply.offset, reply.info.size)


def _rest(wanted: Sequence[Wanted], pieces: list[Piece]) -> dict[int, ByteRange]:
    """What is missing of large objects that were wanted whole before their size was known."""
    return {
        index: ByteRange(piece.end, piece.total - piece.end, want.href)
        for index, (want, piece) in enumerate(zip(wanted, pieces, strict=True))
        if isinstance(want, Whole) and piece.end < piece.total
    }


def _joined(pieces: list[Piece], rest: dict[int, ByteRange], more: list[Piece]) -> list[Piece]:
    joined = list(pieces)
    for index, piece in zip(rest, more, strict=True):
        first = pieces[index]
        joined[index] = Piece(first.data + piece.data, first.offset, first.total)
    return joined


def _report_many(asks: Sequence[Ask]) -> None:
    spans = [ask.want for ask in asks if isinstance(ask.want, ByteRange)]
    size = sum(span.size for span in spans)
    report(asks[0].location.href, spans[0].offset, size, ranges=len(spans))


def _report(ask: Ask, most: int) -> None:
    want, href = ask.want, ask.location.href
    if isinstance(want, ByteRange):
        report(href, want.offset, want.size)
    elif isinstance(want, Tail):
        report(href, -want.size, want.size)
    elif isinstance(want, Head):
        report(href, 0, want.size)
    else:
        report(href, 0, min(want.limit, most))


# -- trying again ----------------------------------------------------------------------------------


_PASSING = frozenset({408, 429})


def passes(status: int) -> bool:
    """Whether an HTTP status tells of trouble that may pass: 408, 429 and all of 5xx."""
    return status in _PASSING or 500 <= status <= 599


class TransientError(Exception):
    """Trouble that may pass. It never leaves `comal.storage`.

    `retry_after` are seconds that the server asks to wait; `short` says that an answer ended early.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        short: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status
        self.retry_after = retry_after
        self.short = short


@dataclass(frozen=True, slots=True)
class Clock:
    """Time and chance, exchanged by tests."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = pause
    uniform: Callable[[float, float], float] = random.SystemRandom().uniform


SYSTEM_CLOCK = Clock()


class Tries:
    """The tries of one request, counted against the configuration."""

    def __init__(
        self,
        config: StorageConfig,
        where: object,
        size: int = 0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._config = config
        self._where = where
        self._clock = clock
        self._made = 0
        self.deadline = clock.now() + config.deadline(size)
        """When the whole request must be done, on the clock of `Clock.now`."""

    def pause(self, error: TransientError) -> float:
        """Seconds to wait after a failed try; raises when no try, no time, or nobody is left."""
        self._made += 1
        if self._made >= self._config.tries or stopped():
            raise self._given_up(error) from error
        config = self._config
        longest = min(config.backoff_limit, config.backoff_first * 2 ** (self._made - 1))
        pause = self._clock.uniform(0.0, longest)
        if error.retry_after is not None:
            pause = max(pause, min(error.retry_after, config.retry_after_limit))
        if self._clock.now() + pause >= self.deadline:
            raise self._given_up(error) from error
        return pause

    def wait(self, seconds: float) -> None:
        """Sleep, less long when nobody waits for the answer any more."""
        self._clock.sleep(seconds)

    def _given_up(self, error: TransientError) -> ComalError:
        kind = ShortReadError if error.short else StorageError
        times = "1 try" if self._made == 1 else f"{self._made} tries"
        return kind(
            f"the storage failed after {times}",
            where=str(self._where),
            found=shown(error.reason, 200)[1:-1],
            hint="try again later",
            tries=self._made,
            status=error.status,
        )


def retrying(tries: Tries, operation: Callable[[float], T]) -> T:
    """Call `operation` with its deadline until it does not raise `TransientError`."""
    while True:
        try:
            return operation(tries.deadline)
        except TransientError as error:
            pause = tries.pause(error)
        tries.wait(pause)


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
