"""Leaves that were read before, on a fast disk, for all processes of a host."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from isal import isal_zlib

from comal.errors import (
    InvalidInputError,
    MissingExtraError,
    reason_of,
    system_errors,
    translated,
)
from comal.limits import GIB
from comal.parallel import PerProcess
from comal.public import warn

_SUM = 4
"""Bytes of the checksum before each value."""
_open: PerProcess[tuple[str, int], Any] = PerProcess()


class LeafCache:
    """A folder of leaves by key, at most `size` bytes; the least recently used go first.

    Any number of processes may share a folder. A value that is damaged counts as absent. When the
    disk is full or broken, nothing is kept from then on, and a warning says so once.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int = 10 * GIB) -> None:
        self.folder = os.fspath(Path(folder).absolute())
        self.size = size
        self._works = True
        _ = self._cache  # a missing extra is an error here, not in a worker

    def __reduce__(self) -> tuple[Any, ...]:
        return LeafCache, (self.folder, self.size)

    @property
    def _cache(self) -> Any:
        return _open.get((self.folder, self.size), partial(_opened, self.folder, self.size))

    def get(self, keys: Iterable[str]) -> dict[str, memoryview]:
        """The leaves that are kept of some keys."""
        found = {}
        try:
            for key in keys if self._works else ():
                value = self._cache.get(key)
                if isinstance(value, bytes) and _sum(value[_SUM:]) == value[:_SUM]:
                    found[key] = memoryview(value)[_SUM:]
        except _faults() as error:
            self._fails(error)
        return found

    def put(self, leaves: Mapping[str, memoryview]) -> None:
        """Keep some leaves."""
        try:
            for key, data in leaves.items() if self._works else ():
                self._cache.set(key, _sum(data) + bytes(data))
        except _faults() as error:
            self._fails(error)

    def _fails(self, error: Exception) -> None:
        self._works = False
        warn(f"nothing more is kept in {self.folder}: {reason_of(error)}")


def _faults() -> tuple[type[Exception], ...]:
    """What diskcache raises: its own error where another process has held the lock for a minute."""
    import diskcache  # noqa: PLC0415 - an extra, loaded already

    return OSError, sqlite3.Error, diskcache.Timeout


def _opened(folder: str, size: int) -> Any:
    try:
        import diskcache  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError.of("diskcache", "cache", "cache=") from error

    class Plain(diskcache.Disk):  # type: ignore[misc,unused-ignore] # without types
        """Bytes as they are: a pickle that somebody put there must not be loaded."""

        def fetch(self, mode: int, filename: str, value: Any, read: bool) -> Any:  # noqa: FBT001
            if mode == diskcache.core.MODE_PICKLE:
                return None
            return super().fetch(mode, filename, value, read)

    policy = "least-recently-used"
    kinds: Mapping[type[BaseException], Any] = {sqlite3.Error: InvalidInputError}
    with (
        translated(kinds, "no folder for a cache", where=folder),
        system_errors("no cache", folder),
    ):
        return diskcache.Cache(folder, disk=Plain, size_limit=size, eviction_policy=policy)


def _sum(data: Any) -> bytes:
    return isal_zlib.crc32(data).to_bytes(_SUM, "little")


def key_of(*parts: object) -> str:
    """A short key of what identifies a leaf."""
    text = "\n".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
