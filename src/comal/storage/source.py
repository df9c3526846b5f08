"""What the rest of comal knows of storage: sources, their wrappers and files, and versions.

Which version of an object was seen first is remembered: versions are never mixed.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from comal.errors import (
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    ObjectChangedError,
    ShortReadError,
)
from comal.limits import KIB
from comal.parallel import in_thread
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage.config import StorageConfig
from comal.storage.gdal import vsi_path
from comal.storage.location import Location

Ints = npt.NDArray[np.int64]
_LARGEST = 2**63 - 1
READ_AHEAD = 32 * KIB
# A folder data set may have millions of objects. Its indexes are opened first and stay pinned;
# leaves beyond this number are single reads, each checked against itself.
_MOST_PINS = 16_384


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """What is known of one object; two versions of it differ in size, `etag` or `modified`."""

    href: str
    """Normalised URL, without user, password and query, or absolute path."""
    size: int
    """Size in bytes; 0 for a folder."""
    etag: str | None = None
    """A strong entity tag or a version, where the storage gives one."""
    modified: int | None = None
    """Time of the last change in nanoseconds since 1970, UTC."""
    is_dir: bool = False
    """Whether this is a folder, or a prefix that objects have."""
    variant: str = field(default="", repr=False)
    """Tells apart objects whose URLs differ in their query alone."""


class Pins:
    """First answers by href, shared by a source and the sources made from it."""

    def __init__(self) -> None:
        self._seen: dict[str, ObjectInfo] = {}
        self.whole: Location | None = None
        """A file whose version is that of the whole folder; see `local.bind`."""

    def get(self, href: str) -> ObjectInfo | None:
        """What was seen first of an object."""
        return self._seen.get(href)

    def check(self, info: ObjectInfo, where: object) -> ObjectInfo:
        """Remember a first answer, or compare a later one with it.

        Raises
        ------
        ObjectChangedError
            When the object is another version than the one that is remembered.
        """
        # No lock, which a fork could leave held: `setdefault` is one step.
        first = self._seen.get(info.href)
        if first is None:
            first = self._seen.setdefault(info.href, info) if len(self._seen) < _MOST_PINS else info
        if not same_version(first, info):
            raise changed(where, first, info)
        return first

    def __getstate__(self) -> dict[str, Any]:
        return {"_seen": self._seen.copy(), "whole": self.whole}


def same_version(first: ObjectInfo, second: ObjectInfo) -> bool:
    """Whether two answers are of one version, as far as they tell.

    A strong entity tag decides; without one on both sides the time of change does, to the second,
    which is all that HTTP knows. The size always counts.
    """
    if first.size != second.size or first.is_dir != second.is_dir:
        return False
    if first.etag is not None and second.etag is not None:
        return first.etag == second.etag
    if first.modified is not None and second.modified is not None:
        return first.modified // 10**9 == second.modified // 10**9
    return True


def changed(where: object, first: ObjectInfo, second: ObjectInfo | None) -> ObjectChangedError:
    """The error for an object that is no longer the one that was opened."""
    return ObjectChangedError(
        "the object changed while it was read",
        where=str(where),
        found=_version_text(second) if second else None,
        expected=_version_text(first),
        hint="open it again to read the new version",
    )


def _version_text(info: ObjectInfo) -> str:
    version = f", version {info.etag}" if info.etag else ""
    return f"{info.size} bytes{version}"


class Closing(ABC):
    """Closes itself when its block ends, whether well or not."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what is held."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Source(Closing):
    """A pinned view of one location and of the objects below it.

    The empty `href` is the location itself, any other is a relative path below it. What an object
    is (entity tag, version, or size and time) is remembered at its first answer, and bytes of
    another version are never returned. Sources may be used from several threads, survive a fork
    and can be pickled; the copy keeps what it remembers.

    A kind of source has `fetch`, `stat`, `names` and `at`; all else follows from these. Every
    method raises `UnsafeContentError` for an `href` that is not a relative path below the
    location, `ObjectNotFoundError` for a missing object, `AccessDeniedError`, `StorageError` when
    the storage fails and `ObjectChangedError` when the object is no longer the same.
    """

    def __init__(self, location: Location, config: StorageConfig, pins: Pins | None = None) -> None:
        self.location = location
        self.href = location.href
        """The location: a normalised URL, or an absolute path; for people, without secrets."""
        self.config = config
        self.pins = pins if pins is not None else Pins()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location.label!r})"

    @abstractmethod
    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order.

        Raises
        ------
        ShortReadError
            When an object ends before a `ByteRange` does.
        LimitExceededError
            When an object is larger than its `Whole` allows.
        NotThisFormatError
            When the location is a folder or no regular file.
        """

    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `fetch`, without blocking the event loop."""
        # Neither files nor urllib3 have an async interface of their own: a thread waits for them.
        return await in_thread(self.fetch, wanted)

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one object, in order; raises as `fetch` does."""
        pairs = zip(offsets.tolist(), sizes.tolist(), strict=True)
        ranges = [ByteRange(offset, size, href) for offset, size in pairs]
        return [piece.data for piece in self.fetch(ranges)]

    @abstractmethod
    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, asking the storage if need be."""

    def known(self, href: str = "") -> ObjectInfo | None:
        """What is remembered of an object, without asking the storage."""
        return self.pins.get(self.resolve(href).href)

    @abstractmethod
    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it, sorted; folders end in ``/``."""

    @abstractmethod
    def at(self, location: Location, *, fresh: bool = False) -> Self:
        """The source of another place of this origin, spoken to alike.

        Parameters
        ----------
        fresh
            Whether it remembers nothing of objects that were read before.
        """

    def resolve(self, href: str) -> Location:
        """The location of an object of this source."""
        return self.location.join(href) if href else self.location

    def child(self, href: str) -> Self:
        """The source of a location below this one."""
        return self.at(self.resolve(href))

    def sibling(self, name: str) -> Self:
        """The source of a location in the folder that holds this one."""
        return self.at(self.location.parent().join(name))

    def vsi(self, href: str = "") -> str:
        """The path by which GDAL opens an object."""
        return vsi_path(self.resolve(href))

    def file(self, href: str = "", offset: int = 0, size: int | None = None) -> RangeFile:
        """A seekable binary file over an object or a span of it."""
        return RangeFile(self, href, offset, size)

    def close(self) -> None:
        """Do nothing: connections belong to the process and serve every source.

        So a pickled copy opens nothing, and a forked child inherits nothing that it could break.
        """


def check_wanted(want: Wanted, where: object) -> None:
    """Refuse a negative or overflowing offset or size, which only broken content asks for."""
    size = want.limit if isinstance(want, Whole) else want.size
    offset = want.offset if isinstance(want, ByteRange) else 0
    if size < 0 or offset < 0 or offset > _LARGEST - size:
        raise InvalidMetadataError(
            "a byte range that cannot exist", where=str(where), found=f"{offset}+{size}"
        )


def span_of(want: Wanted, total: int, where: object) -> tuple[int, int]:
    """Offset and size of `want` in an object of `total` bytes.

    Raises
    ------
    ShortReadError
        When the object ends before a `ByteRange` does.
    LimitExceededError
        When the object is larger than `Whole` allows.
    """
    if isinstance(want, ByteRange):
        if want.end > total:
            raise ShortReadError(
                "the object ends before the range",
                where=f"{where} (bytes {want.offset}+{want.size})",
                found=f"{total} bytes",
                expected=f"at least {want.end}",
            )
        return want.offset, want.size
    if isinstance(want, Head):
        return 0, min(want.size, total)
    if isinstance(want, Tail):
        size = min(want.size, total)
        return total - size, size
    if total > want.limit:
        raise too_large(where, total, want.limit)
    return 0, total


def too_large(where: object, found: int, limit: int) -> LimitExceededError:
    """The error for an object that is larger than its reader allows."""
    return LimitExceededError(
        "the object is larger than allowed",
        where=str(where),
        found=f"{found} bytes",
        expected=f"at most {limit}",
        hint="raise the limit if the source is trusted",
    )


class SourceWrapper(Source):
    """Passes everything on to `source`, except the reading, which its subclasses do."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.location, source.config, source.pins)
        self.source = source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"

    @abstractmethod
    def over(self, source: Source) -> Self:
        """The same wrapper around another source."""

    def at(self, location: Location, *, fresh: bool = False) -> Self:
        """The source of another place of this origin, wrapped too."""
        return self.over(self.source.at(location, fresh=fresh))

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object."""
        return self.source.stat(href)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it."""
        return self.source.names(prefix)


# -- files ----------------------------------------------------------------------------------------


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
        Reads shorter than this fetch so many bytes and keep them for the next read. 0 turns it
        off.

    Notes
    -----
    `zipfile`, `pyarrow` and `rasterio` take it as it is. Reads are as long as was asked for,
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
            raise InvalidInputError("a span with a negative end", found=f"{offset}+{size}")
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
        """Move the position; it may lie behind the end."""
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
            # What the io protocol asks for, and what its callers catch.
            raise ValueError("I/O operation on closed file")


# -- observers ------------------------------------------------------------------------------------
# They are context variables, so that a count goes through any wrappers between, across threads, and
# to nobody else's reads.


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the storage: a range, or a question when `size` is 0."""

    href: str
    """The object, absolute."""
    offset: int
    """First byte; negative for the last bytes of an object of unknown size."""
    size: int
    """Number of bytes that were asked for."""
    kind: str = "get"
    """``get``, ``stat`` or ``list``."""
    ranges: int = 1
    """Ranges that it asks for together; `offset` is where the first begins, `size` their sum."""


Observer = Callable[[Request], None]

_observers: ContextVar[tuple[Observer, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Report every request that is made in this context to `observer`, which is thread-safe."""
    token = _observers.set((*_observers.get(), observer))
    try:
        yield
    finally:
        _observers.reset(token)


def is_observed() -> bool:
    """Whether anybody in this context wants to hear of requests."""
    return bool(_observers.get())


def report(href: str, offset: int, size: int, kind: str = "get", ranges: int = 1) -> None:
    """Tell the observers of this context of one request."""
    observers = _observers.get()
    if observers:
        request = Request(href, offset, size, kind, ranges)
        for observer in observers:
            observer(request)
