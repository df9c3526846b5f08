"""Waiting and giving up, on a clock that nobody waits for."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from email.utils import formatdate

import pytest

from comal.errors import ShortReadError, StorageError
from comal.parallel import side_by_side
from comal.storage import StorageConfig
from comal.storage.remote import (
    Clock,
    TransientError,
    Tries,
    parse_retry_after,
    passes,
    retrying,
)


@dataclass
class FakeTime:
    now: float = 1000.0
    slept: list[float] = field(default_factory=list)
    luck: float = 1.0

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    @property
    def clock(self) -> Clock:
        return Clock(lambda: self.now, self.sleep, lambda low, high: low + (high - low) * self.luck)


def failing(*errors: TransientError) -> tuple[list[float], object]:
    left = list(errors)
    calls: list[float] = []

    def operation(deadline: float) -> str:
        calls.append(deadline)
        if left:
            raise left.pop(0)
        return "done"

    return calls, operation


def tries(time: FakeTime, **settings: float) -> Tries:
    config = StorageConfig(**settings)  # type: ignore[arg-type]  # numbers by name
    return Tries(config, "s3://b/k", 0, time.clock)


def test_pauses_double() -> None:
    time = FakeTime()
    calls, operation = failing(*[TransientError("503")] * 3)
    assert retrying(tries(time), operation) == "done"  # type: ignore[arg-type]
    assert time.slept == [0.2, 0.4, 0.8]
    assert calls == [1060.0] * 4


def test_pauses_are_limited() -> None:
    time = FakeTime()
    _, operation = failing(*[TransientError("503")] * 9)
    retrying(tries(time, tries=10), operation)  # type: ignore[arg-type]
    assert time.slept == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0, 8.0]


def test_pauses_may_be_nothing() -> None:
    time = FakeTime(luck=0.0)
    _, operation = failing(*[TransientError("503")] * 3)
    retrying(tries(time), operation)  # type: ignore[arg-type]
    assert time.slept == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(("asked", "slept"), [(0.0, 0.2), (7.0, 7.0), (30.0, 30.0), (999.0, 30.0)])
def test_the_server_may_ask_for_a_pause(asked: float, slept: float) -> None:
    time = FakeTime()
    _, operation = failing(TransientError("503", status=503, retry_after=asked))
    retrying(tries(time), operation)  # type: ignore[arg-type]
    assert time.slept == [slept]


@pytest.mark.parametrize(("short", "kind"), [(False, StorageError), (True, ShortReadError)])
def test_given_up_after_four_tries(short: bool, kind: type[StorageError]) -> None:
    time = FakeTime()
    calls, operation = failing(*[TransientError("status 503", status=503, short=short)] * 4)
    with pytest.raises(StorageError) as caught:
        retrying(tries(time), operation)  # type: ignore[arg-type]
    assert type(caught.value) is kind
    assert caught.value.fields == {"tries": 4, "status": 503}
    assert "s3://b/k" in str(caught.value)
    assert len(calls) == 4


def test_given_up_when_the_time_is_over() -> None:
    time = FakeTime()
    calls, operation = failing(*[TransientError("503", retry_after=25.0)] * 4)
    with pytest.raises(StorageError, match="3 tries"):
        retrying(tries(time), operation)  # type: ignore[arg-type]
    assert time.slept == [25.0, 25.0]
    assert len(calls) == 3


def test_given_up_when_nobody_waits() -> None:
    waiting = threading.Event()
    calls, operation = failing(*[TransientError("503")] * 4)
    given_up: list[StorageError] = []

    def patient() -> None:
        config = StorageConfig(backoff_first=1e6, backoff_limit=1e6, total_timeout=1e7)
        waiting.set()
        try:
            retrying(Tries(config, "s3://b/k"), operation)  # type: ignore[arg-type]
        except StorageError as error:
            given_up.append(error)

    def failed() -> None:
        waiting.wait()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        side_by_side([failed, patient], 2)
    assert len(given_up) == 1
    assert len(calls) <= 2


def test_a_large_request_has_more_time() -> None:
    time = FakeTime()
    config = StorageConfig(total_timeout=60.0, slowest=1000)
    assert Tries(config, "", 30_000, time.clock).deadline == 1090.0


def test_other_errors_pass() -> None:
    def operation(deadline: float) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        retrying(tries(FakeTime()), operation)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("0", 0.0),
        ("120", 120.0),
        (" 5 ", 5.0),
        ("9" * 50, 999_999_999.0),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("", None),
        ("\u0665", None),
        (formatdate(1_700_000_090, usegmt=True), 90.0),
        (formatdate(1_600_000_000, usegmt=True), 0.0),
        ("Mon, 99 Foo 2023 00:00:00 GMT", None),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert parse_retry_after(value, lambda: 1_700_000_000.0) == seconds


def test_which_statuses_pass() -> None:
    passing = [status for status in range(100, 700) if passes(status)]
    assert passing == [408, 429, *range(500, 600)]
