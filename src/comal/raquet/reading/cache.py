"""A cache with a budget in bytes."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ByteCache(Generic[K, V]):
    """Values by key, the least recently used thrown out first.

    Parameters
    ----------
    budget
        Bytes that are kept at most.
    keep_newest
        Whether the newest value is kept even when it alone is over the budget.
    """

    def __init__(self, budget: int, *, keep_newest: bool = False) -> None:
        self.budget = budget
        self._keep_newest = keep_newest
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    def get(self, key: K) -> V | None:
        """The value of `key`, or None."""
        if self._pid != os.getpid():
            # The lock of the parent may be held by one of its threads, which is not here.
            self._start()
        with self._lock:
            found = self._values.get(key)
            if found is None:
                return None
            self._values.move_to_end(key)
            return found[0]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def put(self, key: K, value: V, size: int) -> None:
        """Keep a value of `size` bytes."""
        if self._pid != os.getpid():
            self._start()
        if size > self.budget and not self._keep_newest:
            return
        with self._lock:
            old = self._values.pop(key, None)
            self._values[key] = (value, size)
            self._size += size - (old[1] if old else 0)
            least = 1 if self._keep_newest else 0
            while self._size > self.budget and len(self._values) > least:
                _, (_, gone) = self._values.popitem(last=False)
                self._size -= gone

    def clear(self) -> None:
        """Forget everything."""
        self._start()

    def __getstate__(self) -> dict[str, Any]:
        return {"budget": self.budget, "keep_newest": self._keep_newest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.budget = state["budget"]
        self._keep_newest = state["keep_newest"]
        self._start()
