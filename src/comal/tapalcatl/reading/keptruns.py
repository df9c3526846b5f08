"""Payloads of archives in large reads, each of which is fetched once for all who need a part."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np

from comal.limits import MIB
from comal.plan import ByteRange, Piece, Wanted
from comal.storage import Source
from comal.storage.wrapping import WrappedSource
from comal.tapalcatl.spec import Tile
from comal.tapalcatl.wire import Int64s
from comal.ziparchive.local import runs

BUDGET: Final = 64 * MIB


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads that bring some records of an archive, ascending and apart from one another."""

    starts: Int64s
    stops: Int64s

    @classmethod
    def of(cls, table: Any) -> Reads:
        """Those of records, a NumPy array as `ArchiveIndex.table`."""
        starts = table["offset"].astype(np.int64)
        stops = starts + table["span"].astype(np.int64)
        found = list(runs(starts, stops, np.argsort(starts, kind="stable")))
        ends = np.array([(run.start, run.stop) for run in found], np.int64).reshape(-1, 2)
        return cls(ends[:, 0], ends[:, 1])

    def which(self, offsets: Any) -> Int64s:
        """The read that brings each of some of these records, by where they begin."""
        found: Int64s = np.searchsorted(self.starts, offsets.astype(np.int64), side="right") - 1
        return found


class KeptRuns:
    """What was read of archives, the least recently used thrown out beyond a budget of bytes."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._start()

    def source(self, source: Source, archive: Tile, start: int, stop: int) -> Source:
        """An archive whose bytes from `start` to `stop` come out of one read."""
        return _InRun(source, self, archive, start, stop)

    def read(self, source: Source, archive: Tile, start: int, stop: int) -> Piece:
        """The bytes of one read; who asks for what is on its way waits for it."""
        key = (archive, start)
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            with self._lock:
                kept = self._kept.get(key)
                if kept is not None:
                    self._kept.move_to_end(key)
                    return kept
            (piece,) = source.fetch([ByteRange(start, stop - start)])
            with self._lock:
                self._kept[key] = piece
                self._weight += len(piece.data)
                while len(self._kept) > 1 and self._weight > self._budget:
                    gone, old = self._kept.popitem(last=False)
                    self._locks.pop(gone, None)
                    self._weight -= len(old.data)
        return piece

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[Tile, int], threading.Lock] = {}
        self._kept: OrderedDict[tuple[Tile, int], Piece] = OrderedDict()
        self._weight = 0

    def __getstate__(self) -> int:
        return self._budget

    def __setstate__(self, budget: int) -> None:
        self._budget = budget
        self._start()


class _InRun(WrappedSource):
    """An archive of which one read is kept; what lies beside it is read as ever."""

    def __init__(self, source: Source, kept: KeptRuns, archive: Tile, start: int, stop: int):
        super().__init__(source)
        self._kept, self._archive, self._start, self._stop = kept, archive, start, stop

    def rewrap(self, source: Source) -> Self:
        return type(self)(source, self._kept, self._archive, self._start, self._stop)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        inside = [
            (one.offset - self._start, one.size)
            for one in wanted
            if isinstance(one, ByteRange)
            and self._start <= one.offset
            and one.offset + one.size <= self._stop
        ]
        if len(inside) < len(wanted):
            return self.source.fetch(wanted)
        whole = self._kept.read(self.source, self._archive, self._start, self._stop)
        return [
            Piece(whole.data[at : at + size], self._start + at, whole.total) for at, size in inside
        ]

    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        return await self.source.fetch_async(wanted)
