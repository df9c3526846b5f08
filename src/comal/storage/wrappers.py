"""Wrappers of sources: files, a block cache with a budget, a counter of requests."""

from __future__ import annotations

import io
import os
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Self

from comal.errors import InvalidInputError, ObjectChangedError
from comal.limits import KIB
from comal.parallel import ByteCache
from comal.plan import ByteRange, Piece, Wanted
from comal.storage.location import Location
from comal.storage.source import (
    ObjectInfo,
    Request,
    Source,
    check_wanted,
    observed,
    span_of,
)

BLOCK = 64 * KIB
READ_AHEAD = 32 * KIB

Key = tuple[ObjectInfo, int]
Load = Callable[[list[int]], list[bytes]]

_numbers = count()


class RangeFile(io.RawIOBase):
    """A file whose bytes are fetched when they are read.

    Parameters
    ----------
    source
        Where the object is.
    href
        The object, relative to `source`.
    offset, size
        The span of the object that is the file; to its end when `size` is None.
    read_ahead
        Reads shorter than this fetch this many bytes and keep them for the next read. 0 turns it
        off.

    Notes
    -----
    `zipfile`, `pyarrow` and `rasterio` accept it as it is. Reads return the requested length,
    except at the end of the file. One file has one position: use a file per thread.
    """

    def __init__(
        self,
        source: Source,
        href: str = "",
        offset: int = 0,
        size: int | None = None,
        *,
        read_ahead: int = READ_AHEAD,
    ) -> None:
        super().__init__()
        if offset < 0 or (size is not None and size < 0):
            raise InvalidInputError(
                "a span has a negative offset or size", found=f"{offset}+{size}"
            )
        self._source = source
        self._href = href
        self._offset = offset
        self._size = size
        self._read_ahead = read_ahead
        self._position = 0
        self._kept = (0, b"")

    @property
    def name(self) -> str:
        """The object, as messages show it."""
        return f"{self._source.href}/{self._href}" if self._href else self._source.href

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        if self._size is None:
            self._size = max(0, self._source.stat(self._href).size - self._offset)
        return self._size

    def readable(self) -> bool:
        """True until the file is closed."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """True until the file is closed."""
        self._check_open()
        return True

    def tell(self) -> int:
        """The position, from the beginning of the span."""
        self._check_open()
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, which may be behind the end."""
        self._check_open()
        if whence == io.SEEK_SET:
            target = offset
        elif whence == io.SEEK_CUR:
            target = self._position + offset
        elif whence == io.SEEK_END:
            target = self.size + offset
        else:
            raise InvalidInputError("unknown whence", found=whence, expected="0, 1 or 2")
        if target < 0:
            raise InvalidInputError("seek before the beginning", where=self.name, found=target)
        self._position = target
        return target

    def read(self, size: int | None = -1, /) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file, all the rest for -1."""
        self._check_open()
        left = max(0, self.size - self._position)
        count = left if size is None or size < 0 else min(size, left)
        data = self.read_at(self._position, count)
        self._position += count
        return data

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fill `buffer`, short only at the end of the file."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def read_at(self, offset: int, size: int) -> bytes:
        """Exactly the bytes ``offset .. offset + size`` of the span; the position stays."""
        if size == 0:
            return b""
        at, kept = self._kept
        if at <= offset and offset + size <= at + len(kept):
            return kept[offset - at : offset - at + size]
        if size >= self._read_ahead:
            return self._fetch(offset, size)
        kept = self._fetch(offset, min(self._read_ahead, self.size - offset))
        self._kept = (offset, kept)
        return kept[:size]

    def close(self) -> None:
        """Close the file; the source stays open."""
        self._kept = (0, b"")
        super().close()

    def _fetch(self, offset: int, size: int) -> bytes:
        (piece,) = self._source.fetch([ByteRange(self._offset + offset, size, self._href)])
        return piece.data

    def _check_open(self) -> None:
        if self.closed:
            # The error of the io protocol, which its callers catch.
            raise ValueError("I/O operation on closed file")


class SourceWrapper(Source):
    """Passes everything on to `source`, except reading, which subclasses implement."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.location, source.config, source.pins)
        self.source = source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"

    @abstractmethod
    def over(self, source: Source) -> Self:
        """The same wrapper around another source."""

    def at(self, location: Location, *, fresh: bool = False) -> Self:
        """The source of another location of this origin, wrapped too."""
        return self.over(self.source.at(location, fresh=fresh))

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object."""
        return self.source.stat(href)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it."""
        return self.source.names(prefix)


# -- cache ----------------------------------------------------------------------------------------


class BlockCache:
    """Blocks of objects, the least recently used thrown out first. Several sources may share it.

    A key is a version of an object and a block of it, so that a new version never gets bytes of
    an old one. Two threads that want the same block fetch it once.

    Parameters
    ----------
    budget
        Largest total size of the kept blocks in bytes.
    block_size
        Size of a block in bytes.
    """

    def __init__(self, budget: int, *, block_size: int = BLOCK) -> None:
        if budget < 0 or block_size < 1:
            raise InvalidInputError(
                "a cache needs a budget of 0 or more and blocks of 1 byte or more",
                found=f"budget {budget}, block {block_size}",
            )
        self.budget = budget
        self.block_size = block_size
        self._kept: ByteCache[Key, bytes] = ByteCache(budget)
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._coming: dict[Key, Future[bytes]] = {}

    @property
    def size(self) -> int:
        """Total size of the kept blocks in bytes."""
        return self._kept.size

    def blocks(self, info: ObjectInfo, numbers: Sequence[int], load: Load) -> dict[int, bytes]:
        """Blocks of an object by number; those not cached or in flight come from `load`."""
        if self._pid != os.getpid():
            # A thread of the parent that does not exist here may hold the lock.
            self._start()
        found: dict[int, bytes] = {}
        waiting: dict[int, Future[bytes]] = {}
        mine: dict[int, Future[bytes]] = {}
        with self._lock:
            for number in numbers:
                key = info, number
                if (data := self._kept.get(key)) is not None:
                    found[number] = data
                elif key in self._coming:
                    waiting[number] = self._coming[key]
                else:
                    mine[number] = self._coming[key] = Future()
        if mine:
            found.update(self._load(info, mine, load))
        for number, future in waiting.items():
            found[number] = future.result()
        return found

    def put(self, info: ObjectInfo, piece: Piece) -> None:
        """Keep the complete blocks of a piece."""
        size = self.block_size
        first = -(-piece.offset // size)
        stop = -(-info.size // size) if piece.end >= info.size else piece.end // size
        for number in range(first, stop):
            at = number * size - piece.offset
            data = piece.data[at : at + size]
            self._kept.put((info, number), data, len(data))

    def drop(self, href: str) -> None:
        """Forget all blocks of an object, in every version."""
        self._kept.drop(lambda key: key[0].href == href)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()

    def _load(
        self, info: ObjectInfo, mine: Mapping[int, Future[bytes]], load: Load
    ) -> dict[int, bytes]:
        try:
            loaded = dict(zip(mine, load(list(mine)), strict=True))
            for number, data in loaded.items():
                self._kept.put((info, number), data, len(data))
                mine[number].set_result(data)
        except BaseException as error:
            # Whoever waits for these blocks gets the same error instead of waiting for ever.
            for future in mine.values():
                if not future.done():
                    future.set_exception(error)
            raise
        finally:
            with self._lock:
                for number in mine:
                    del self._coming[info, number]
        return loaded

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(BlockCache, self.budget, block_size=self.block_size), ()


class CachedSource(SourceWrapper):
    """Reads through a `BlockCache`.

    The first read of an object is passed through, because only its response shows size and version;
    later reads fetch whole blocks. A pickled copy starts with an empty cache. Blocks of an object
    without a version are not shared with other sources, which may have opened another object.
    """

    def __init__(self, source: Source, cache: BlockCache) -> None:
        super().__init__(source)
        self.cache = cache
        self._own = f"\n{next(_numbers)}"

    def over(self, source: Source) -> CachedSource:
        """The same cache before another source."""
        return CachedSource(source, self.cache)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, from the cache as far as possible."""
        try:
            return self._fetch(wanted)
        except ObjectChangedError:
            for href in {want.href for want in wanted}:
                info = self.source.known(href)
                if info is not None:
                    self.cache.drop(info.href)
            raise

    def _fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        known = {href: self._key(href) for href in {want.href for want in wanted}}
        spans: dict[int, tuple[ObjectInfo, int, int]] = {}
        needed: dict[tuple[ObjectInfo, str], set[int]] = {}
        for index, want in enumerate(wanted):
            check_wanted(want, self.href)
            info = known[want.href]
            if info is not None:
                offset, size = span_of(want, info.size, info.href)
                spans[index] = info, offset, size
                needed.setdefault((info, want.href), set()).update(self._numbers(offset, size))
        first = iter(self._first([want for want in wanted if known[want.href] is None]))
        found: dict[Key, bytes] = {}
        for (info, href), numbers in needed.items():
            blocks = self.cache.blocks(info, sorted(numbers), self._loader(info, href))
            found.update({(info, number): data for number, data in blocks.items()})
        return [
            self._piece(*spans[index], found) if index in spans else next(first)
            for index in range(len(wanted))
        ]

    def _first(self, wanted: Sequence[Wanted]) -> list[Piece]:
        pieces = self.source.fetch(wanted) if wanted else []
        for want, piece in zip(wanted, pieces, strict=True):
            info = self._key(want.href)
            if info is not None:
                self.cache.put(info, piece)
        return pieces

    def _key(self, href: str) -> ObjectInfo | None:
        """What is remembered of an object, as the cache knows it."""
        info = self.source.known(href)
        if info is None or info.has_version:
            return info
        return replace(info, variant=info.variant + self._own)

    def _numbers(self, offset: int, size: int) -> range:
        """The blocks that a span touches."""
        block = self.cache.block_size
        return range(offset // block, -(-(offset + size) // block))

    def _loader(self, info: ObjectInfo, href: str) -> Load:
        block = self.cache.block_size

        def load(numbers: list[int]) -> list[bytes]:
            places = [(number * block, info.size - number * block) for number in numbers]
            wanted = [ByteRange(offset, min(block, left), href) for offset, left in places]
            return [piece.data for piece in self.source.fetch(wanted)]

        return load

    def _piece(self, info: ObjectInfo, offset: int, size: int, blocks: dict[Key, bytes]) -> Piece:
        numbers = self._numbers(offset, size)
        data = b"".join(blocks[info, number] for number in numbers)
        start = offset - numbers.start * self.cache.block_size
        return Piece(data[start : start + size], offset, info.size)


# -- counting --------------------------------------------------------------------------------------


class Counts:
    """What a counting source and the sources made from it share.

    Threads only append to these lists, which needs no lock.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[int, bool]] = []
        """For each call the number of wanted ranges, and whether it waited for the storage."""
        self.log: list[Request] = []

    @contextmanager
    def call(self, wanted: int) -> Iterator[None]:
        """Count the requests of one call."""
        made: list[Request] = []
        try:
            with observed(made.append), observed(self.log.append):
                yield
        finally:
            self.calls.append((wanted, bool(made)))


class CountingSource(SourceWrapper):
    """Counts reads through it, and the requests that reach the storage.

    Sources and files made from it share its numbers. A copy in another process starts with these
    numbers and continues on its own.
    """

    def __init__(self, source: Source, counts: Counts | None = None) -> None:
        super().__init__(source)
        self.counts = counts if counts is not None else Counts()

    @property
    def wanted(self) -> int:
        """Ranges requested through this source, before coalescing."""
        return sum(wanted for wanted, _ in self.counts.calls)

    @property
    def requests(self) -> int:
        """Requests that reached the storage, after coalescing and caching, retries included."""
        return len(self.counts.log)

    @property
    def round_trips(self) -> int:
        """Calls that had to wait for the storage; requests of one call go out together."""
        return sum(waited for _, waited in self.counts.calls)

    @property
    def bytes(self) -> int:
        """Bytes requested from the storage."""
        return sum(request.size for request in self.counts.log)

    @property
    def log(self) -> list[Request]:
        """Every request to the storage."""
        return list(self.counts.log)

    def reset(self) -> None:
        """Start again from zero."""
        self.counts.log.clear()
        self.counts.calls.clear()

    def over(self, source: Source) -> CountingSource:
        """The same counter around another source."""
        return CountingSource(source, self.counts)

    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, counted."""
        with self.counts.call(len(wanted)):
            return self.source.fetch(wanted)

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, counted."""
        with self.counts.call(0):
            return self.source.stat(href)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location, counted."""
        with self.counts.call(0):
            return self.source.names(prefix)
