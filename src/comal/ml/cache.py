"""Leaves that were read before, on a fast disk, for all processes of a host."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from isal import isal_zlib

from comal.errors import reason_of
from comal.limits import GIB
from comal.public import warn

_SUM = 4
"""Bytes of the checksum before each value."""
_SHARE = 16
"""A process looks through the folder after it has written this part of its size."""


class LeafCache:
    """A folder with a file for each leaf, about `size` bytes; the least recently used go first.

    Any number of processes may share a folder. A file that is damaged counts as absent. When the
    disk is full or broken, nothing is kept from then on, and a warning says so once.
    """

    def __init__(self, folder: str | os.PathLike[str], size: int = 10 * GIB) -> None:
        self.folder, self.size = Path(folder).absolute(), size
        self._works, self._written = True, 0

    def get(self, keys: Iterable[str]) -> dict[str, memoryview]:
        """The leaves that are kept of some keys."""
        found = {}
        for key in keys:
            path = self._path(key)
            with suppress(OSError):  # it is absent, or was removed just now
                data = memoryview(path.read_bytes())
                if _sum(data[_SUM:]) == data[:_SUM]:
                    found[key] = data[_SUM:]
                    os.utime(path)
        return found

    def put(self, leaves: Mapping[str, memoryview]) -> None:
        """Keep some leaves."""
        try:
            for key, data in leaves.items() if self._works else ():
                self._keep(self._path(key), _sum(data) + bytes(data))
        except OSError as error:
            self._works = False
            warn(f"nothing more is kept in {self.folder}: {reason_of(error)}")

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _keep(self, path: Path, value: bytes) -> None:
        part = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(value)
            part.replace(path)
        except OSError:
            part.unlink(missing_ok=True)
            raise
        self._written += len(value)
        if self._written * _SHARE > self.size:
            self._written = 0
            self._trim()

    def _trim(self) -> None:
        """Remove what was used longest ago, and what killed processes left."""
        known = []
        for path in self.folder.glob("*/*"):
            with suppress(FileNotFoundError):  # another process removes files too
                state = path.stat()
                known.append((state.st_mtime_ns, max(state.st_size, state.st_blocks * 512), path))
        over = sum(size for _, size, _ in known) - self.size
        for _, size, path in sorted(known):
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= size


def _sum(data: Any) -> bytes:
    return isal_zlib.crc32(data).to_bytes(_SUM, "little")


def key_of(*parts: object) -> str:
    """A short key of what identifies a leaf."""
    text = "\n".join(map(str, parts))
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()
