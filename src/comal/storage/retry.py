"""Trying again: what passes, how long to wait, and when to give up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TypeVar

from comal.errors import ComalError, ShortReadError, StorageError, shown
from comal.parallel import pause, stopped
from comal.storage.config import StorageConfig

T = TypeVar("T")

_PASSING = frozenset({408, 429})


def passes(status: int) -> bool:
    """Whether an HTTP status tells of trouble that may pass: 408, 429 and all of 5xx."""
    return status in _PASSING or 500 <= status <= 599


class TransientError(Exception):
    """Trouble that may pass. It never leaves `comal.storage`.

    Parameters
    ----------
    reason
        What happened.
    status
        HTTP status, if there was one.
    retry_after
        Seconds that the server asks to wait.
    short
        Whether an answer ended early.
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
        """Seconds to wait after a failed try.

        Raises
        ------
        StorageError, ShortReadError
            When there is no try or no time left, or nobody waits for the answer any more.
        """
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
