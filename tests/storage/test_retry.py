"""Waiting and giving up, on a clock that nobody waits for."""

from __future__ import annotations

import threading
from email.utils import formatdate

import pytest

from comal.errors import ShortReadError, StorageError
from comal.parallel import side_by_side
from comal.storage import StorageConfig, remote
from comal.storage.remote import TransientError, parse_retry_after, passes, retrying

SERVER_ASKS = [(0.0, 0.2), (7.0, 7.0), (30.0, 30.0), (999.0, 30.0)]


class FakeTime:
    """Instead of the clock, of pauses and of chance, which is as high as `luck` allows."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.luck = 1000.0, 1.0
        self.slept: list[float] = []
        self.calls: list[float] = []
        self.thread = threading.get_ident()
        monkeypatch.setattr("comal.storage.remote.time.monotonic", lambda: self.now)
        monkeypatch.setattr(remote, "pause", self.sleep)
        monkeypatch.setattr(remote, "_random", self)

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() == self.thread:  # not a request of an earlier test
            self.slept.append(seconds)
            self.now += seconds

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self.luck

    def run(self, *errors: TransientError, size: int = 0, **settings: float) -> str:
        """An operation that fails with each of these errors before it succeeds."""
        left = list(errors)

        def operation(deadline: float) -> str:
            self.calls.append(deadline)
            if left:
                raise left.pop(0)
            return "done"

        config = StorageConfig(**settings)  # type: ignore[arg-type]  # numbers by name
        return retrying(config, "s3://b/k", size, operation)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.mark.parametrize("luck", [0.0, 0.5, 1.0])
def test_pauses_double_up_to_a_limit_and_are_random(fake: FakeTime, luck: float) -> None:
    fake.luck = luck
    assert fake.run(*[TransientError("503")] * 9, tries=10) == "done"
    assert fake.slept == [luck * most for most in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 8.0, 8.0, 8.0)]
    assert fake.calls == [1060.0] * 10


@pytest.mark.parametrize(("asked", "slept"), SERVER_ASKS)
def test_the_server_may_ask_for_a_pause(fake: FakeTime, asked: float, slept: float) -> None:
    fake.run(TransientError("503", status=503, retry_after=asked))
    assert fake.slept == [slept]


@pytest.mark.parametrize(("short", "kind"), [(False, StorageError), (True, ShortReadError)])
def test_given_up_after_four_tries(fake: FakeTime, short: bool, kind: type[StorageError]) -> None:
    with pytest.raises(StorageError) as caught:
        fake.run(*[TransientError("status 503", status=503, short=short)] * 4)
    assert type(caught.value) is kind
    assert caught.value.fields == {"tries": 4, "status": 503}
    assert "s3://b/k" in str(caught.value)
    assert len(fake.calls) == 4


def test_given_up_when_the_time_is_over(fake: FakeTime) -> None:
    with pytest.raises(StorageError, match="3 tries"):
        fake.run(*[TransientError("503", retry_after=25.0)] * 4)
    assert fake.slept == [25.0, 25.0]
    assert len(fake.calls) == 3


def test_a_large_request_has_more_time(fake: FakeTime) -> None:
    fake.run(size=30_000, total_timeout=60.0, slowest=1000)
    assert fake.calls == [1090.0]


def test_given_up_when_nobody_waits() -> None:
    waiting = threading.Event()
    calls: list[float] = []
    given_up: list[StorageError] = []

    def operation(deadline: float) -> None:
        calls.append(deadline)
        raise TransientError("503")

    def patient() -> None:
        config = StorageConfig(backoff_first=1e6, backoff_limit=1e6, total_timeout=1e7)
        waiting.set()
        try:
            retrying(config, "s3://b/k", 0, operation)
        except StorageError as error:
            given_up.append(error)

    def failed() -> None:
        waiting.wait()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        side_by_side([failed, patient], 2)
    assert len(given_up) == 1
    assert len(calls) <= 2


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
