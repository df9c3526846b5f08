"""What was rendered lately, bounded by its bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Any

_OVERHEAD = 400
"""About what a key and an entry take beside their bytes."""


class ByteCache:
    """Least recently used values go first. May be used from several threads.

    Parameters
    ----------
    budget
        Bytes of all values together; 0 keeps nothing.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.size = 0
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> Any:
        """The value, or None."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self.misses += 1
                return None
            self.hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value of `size` bytes; one above an eighth of the budget is not kept."""
        size += _OVERHEAD
        if size > self.budget // 8:
            return
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self.size -= old[1]
            self._entries[key] = (value, size)
            self.size += size
            while self.size > self.budget:
                _, (_, freed) = self._entries.popitem(last=False)
                self.size -= freed

    def __contains__(self, key: Hashable) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)
