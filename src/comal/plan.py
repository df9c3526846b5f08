"""Plans: format logic that yields the byte ranges it needs and leaves the fetching to others.

A plan is a generator. It yields all ranges that it can name at once, and is sent one `Piece` for
each in the same order; its return value is the result. `run` fetches for it, so that format logic
does no I/O and a test can count the round trips.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from comal.errors import ComalError
from comal.parallel import in_thread

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Exactly `size` bytes from `offset` on.

    `href` is relative to the object that the plan is run for; empty for that object itself.
    An object that ends earlier is an error.
    """

    offset: int
    size: int
    href: str = ""

    @property
    def end(self) -> int:
        """Offset of the first byte after the range."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Head:
    """The first `size` bytes, or all of a shorter object."""

    size: int
    href: str = ""


@dataclass(frozen=True, slots=True)
class Tail:
    """The last `size` bytes, or all of a shorter object."""

    size: int
    href: str = ""


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole object; raises `LimitExceededError` if it is larger than `limit` bytes."""

    limit: int
    href: str = ""


Wanted = ByteRange | Head | Tail | Whole


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that answer one `Wanted`."""

    data: bytes
    """The bytes."""
    offset: int
    """Offset of the first byte in the object."""
    total: int
    """Size of the whole object in bytes."""

    @property
    def end(self) -> int:
        """Offset of the first byte after the piece."""
        return self.offset + len(self.data)

    def holds(self, offset: int, size: int) -> bool:
        """Whether the object's bytes ``offset .. offset + size`` are in this piece."""
        return self.offset <= offset and offset + size <= self.end

    def slice(self, offset: int, size: int) -> bytes:
        """The object's bytes ``offset .. offset + size``, which must be in this piece."""
        start = offset - self.offset
        return self.data[start : start + size]


Plan = Generator[Sequence[Wanted], Sequence[Piece], T]
Fetch = Callable[[Sequence[Wanted]], Sequence[Piece]]


def run(plan: Plan[T], fetch: Fetch) -> T:
    """Run `plan` to its end, fetching with `fetch`; errors of the fetch reach the plan."""
    try:
        wanted = next(plan)
        while True:
            try:
                pieces = fetch(wanted)
            except ComalError as error:
                wanted = plan.throw(error)
            else:
                wanted = plan.send(pieces)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


# -- methods --------------------------------------------------------------------------------------


S = TypeVar("S")


def awaiting(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """The async twin of a blocking method, which it calls in a thread."""

    @wraps(method)
    async def twin(self: S, *args: P.args, **named: P.kwargs) -> T:
        return await in_thread(method, self, *args, **named)

    twin.__name__ += "_async"
    twin.__qualname__ += "_async"
    twin.__doc__ = f"As `{method.__name__}`, without blocking the event loop."
    return twin  # type: ignore[return-value]  # `self` by its name is more than is asked for


# -- plans -----------------------------------------------------------------------------------------


def together(plans: Sequence[Plan[T]]) -> Plan[list[T]]:
    """Several plans of one object as one: what they want at the same time is fetched at once."""
    results: dict[int, T] = {}
    answers: dict[int, Sequence[Piece] | None] = dict.fromkeys(range(len(plans)))
    while answers:
        wanted: dict[int, Sequence[Wanted]] = {}
        for number, pieces in answers.items():
            plan = plans[number]
            try:
                wanted[number] = next(plan) if pieces is None else plan.send(pieces)
            except StopIteration as stop:
                results[number] = stop.value
        found = iter((yield [want for some in wanted.values() for want in some]) if wanted else ())
        answers = {number: [next(found) for _ in some] for number, some in wanted.items()}
    return [results[number] for number in range(len(plans))]


# -- spans ----------------------------------------------------------------------------------------


def cut(known: Sequence[Piece], offset: int, size: int) -> Piece | None:
    """The bytes of a span from the piece that contains it; None if none does."""
    for piece in known:
        start = offset - piece.offset
        if start >= 0 and start + size <= len(piece.data):
            return Piece(piece.data[start : start + size], offset, piece.total)
    return None


def read_span(known: Sequence[Piece], offset: int, size: int, href: str = "") -> Plan[bytes]:
    """The bytes of a span, from a known piece or by one more request."""
    found = cut(known, offset, size)
    if found is None:
        (found,) = yield [ByteRange(offset, size, href)]
    return found.data
