"""Bearer tokens for stores: of the caller, or of the caller's provider."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from comal.errors import InvalidInputError, StorageError, shown

_Provider = Callable[[], Mapping[str, Any]]
# A token that is about to expire could do so on its way.
_BEFORE = 60.0


@dataclass(frozen=True, slots=True, repr=False)
class Token:
    """A token and when it expires, by `time.monotonic`."""

    value: str
    until: float


class Tokens:
    """The token that is good now, asked of a provider when there is none."""

    def __init__(self, provider: _Provider, where: str) -> None:
        self._provider = provider
        self._where = where
        self._token: Token | None = None
        self._start()

    def _start(self) -> None:
        self._lock = threading.RLock()
        self._pid = os.getpid()

    def get(self, refused: str = "") -> Token | None:
        """A token that has not expired, and is not the one that was refused.

        None where the provider gives credentials of another kind.

        Raises
        ------
        StorageError
            When the provider fails.
        InvalidInputError
            When what it gives is not a token.
        """
        token = self._good(refused)
        if token is not None:
            return token
        if self._pid != os.getpid():
            # A thread of the parent, which is not here, may hold the lock.
            self._start()
        with self._lock:
            # Services for tokens refuse who asks too often: one thread asks, the others wait.
            token = self._good(refused)
            if token is None:
                token = self._token = self._ask()
            return token

    def _good(self, refused: str) -> Token | None:
        token = self._token
        good = token is not None and token.value != refused and time.monotonic() < token.until
        return token if good else None

    def _ask(self) -> Token | None:
        try:
            given = self._provider()
            if "token" not in given:
                return None
            value, expires = given["token"], given.get("expires_at")
            left = math.inf if expires is None else expires.timestamp() - time.time()
        except Exception as error:  # whatever the caller's own code may raise
            raise StorageError(
                "the credential provider failed",
                where=self._where,
                found=shown(" ".join(f"{type(error).__name__}: {error}".split()), 200)[1:-1],
            ) from error
        if not isinstance(value, str) or not value.isascii() or not value.isprintable():
            raise InvalidInputError(
                "the credential provider gives no token",
                where=self._where,
                expected="printable ASCII",
            )
        return Token(value, time.monotonic() + left - _BEFORE)
