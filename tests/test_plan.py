"""Plans and their drivers."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Sequence

import pytest

from comal.errors import ObjectNotFoundError
from comal.plan import (
    ByteRange,
    Head,
    Piece,
    Plan,
    Tail,
    Wanted,
    Whole,
    awaiting,
    read_span,
    run,
    together,
)

DATA = bytes(range(100))


def fetch(wanted: Sequence[Wanted]) -> list[Piece]:
    return [answer(want) for want in wanted]


def answer(want: Wanted) -> Piece:
    if want.href:
        raise ObjectNotFoundError("absent", where=want.href)
    if isinstance(want, ByteRange):
        return Piece(DATA[want.offset : want.end], want.offset, 100)
    if isinstance(want, Tail):
        return Piece(DATA[-want.size :], 100 - want.size, 100)
    return Piece(DATA[: want.size] if isinstance(want, Head) else DATA, 0, 100)


def two_rounds() -> Plan[bytes]:
    head, tail = yield [Head(2), Tail(3)]
    (whole,) = yield [Whole(100)]
    return head.data + tail.data + whole.data[50:52]


class Fetches:
    """Counts the ranges of each fetch."""

    def __init__(self) -> None:
        self.steps: list[Sequence[Wanted]] = []

    def __call__(self, wanted: Sequence[Wanted]) -> list[Piece]:
        self.steps.append(wanted)
        return fetch(wanted)


def test_each_step_is_one_fetch_whose_pieces_are_sent_in_order() -> None:
    fetches = Fetches()
    assert run(two_rounds(), fetches) == bytes([0, 1, 97, 98, 99, 50, 51])
    assert fetches.steps == [[Head(2), Tail(3)], [Whole(100)]]


def test_a_plan_that_wants_nothing() -> None:
    def nothing() -> Plan[int]:
        if not DATA:
            yield []
        return 5

    fetches = Fetches()
    assert run(nothing(), fetches) == 5
    assert fetches.steps == []


def test_an_error_of_the_fetch_reaches_the_plan() -> None:
    def optional() -> Plan[str]:
        try:
            yield [Head(1, "absent")]
        except ObjectNotFoundError:
            (piece,) = yield [Head(1)]
            return f"absent, {piece.data!r}"
        return "present"

    assert run(optional(), fetch) == "absent, b'\\x00'"


def test_foreign_errors_are_not_shown_to_the_plan() -> None:
    seen: list[BaseException] = []

    def plan() -> Plan[None]:
        try:
            yield [Head(1)]
        except Exception as error:  # noqa: BLE001 - that none arrives is the test
            seen.append(error)

    def broken(wanted: Sequence[Wanted]) -> list[Piece]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(plan(), broken)
    assert seen == []


def test_pieces() -> None:
    piece = Piece(b"abcdef", 10, 100)
    assert piece.end == 16
    assert piece.slice(12, 3) == b"cde"
    assert piece.holds(10, 6)
    assert piece.holds(16, 0)
    assert not piece.holds(9, 2)
    assert not piece.holds(15, 2)
    assert ByteRange(5, 6).end == 11


def test_a_span_that_is_here_already_costs_nothing() -> None:
    fetches = Fetches()
    known = [Piece(DATA[:10], 0, 100), Piece(DATA[40:60], 40, 100)]
    assert run(read_span(known, 45, 5), fetches) == DATA[45:50]
    assert fetches.steps == []
    assert run(read_span(known, 55, 10), fetches) == DATA[55:65]
    assert fetches.steps == [[ByteRange(55, 10)]]


class Letters:
    """An object with a method that blocks and its twin."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def letters(self, start: int, *, count: int = 1) -> dict[str, bytes]:
        """Some letters."""
        self.asked.append(threading.current_thread().name)
        return {"found": DATA[start : start + count]}

    letters_async = awaiting(letters)


def test_the_twin_of_a_method_waits_in_a_thread() -> None:
    one = Letters()
    assert one.letters(5, count=2) == {"found": DATA[5:7]}
    assert asyncio.run(one.letters_async(count=3, start=7)) == {"found": DATA[7:10]}
    here, there = one.asked
    assert here == threading.current_thread().name != there
    assert inspect.iscoroutinefunction(Letters.letters_async)
    told = str(inspect.signature(Letters.letters_async))
    assert told.endswith("count: 'int' = 1) -> 'dict[str, bytes]'")
    assert Letters.letters_async.__qualname__ == "Letters.letters_async"


def test_plans_together_share_their_round_trips() -> None:
    trips: list[int] = []

    def counted(wanted: Sequence[Wanted]) -> list[Piece]:
        trips.append(len(wanted))
        return fetch(wanted)

    def reads(*offsets: int) -> Plan[bytes]:
        found = b""
        for offset in offsets:
            first, second = yield [ByteRange(offset, 1), ByteRange(offset + 1, 1)]
            found += first.data + second.data
        return found

    plans = [reads(1, 5), reads(), reads(10, 20, 30)]
    assert run(together(plans), counted) == [
        b"\x01\x02\x05\x06",
        b"",
        bytes([10, 11, 20, 21, 30, 31]),
    ]
    assert trips == [4, 4, 2]
