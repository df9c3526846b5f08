"""What the rest of comal knows of storage: the `Source` protocol."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from comal.plan import ByteRange, Piece, Wanted
from comal.storage.file import RangeFile

Ints = npt.NDArray[np.int64]


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


class SpansByFetch:
    """`Source.fetch_spans` by way of `fetch`, for sources that have nothing better."""

    @abstractmethod
    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `Source.fetch`."""

    @abstractmethod
    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `Source.fetch_async`."""

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one object, in order."""
        return [piece.data for piece in self.fetch(_ranges(offsets, sizes, href))]

    async def fetch_spans_async(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """As `fetch_spans`, without blocking the event loop."""
        return [piece.data for piece in await self.fetch_async(_ranges(offsets, sizes, href))]


def _ranges(offsets: Ints, sizes: Ints, href: str) -> list[ByteRange]:
    pairs = zip(offsets.tolist(), sizes.tolist(), strict=True)
    return [ByteRange(offset, size, href) for offset, size in pairs]


@runtime_checkable
class Source(Protocol):
    """A pinned view of one location and of the objects below it.

    The empty `href` is the location itself, any other is a relative path below it. What an object
    is (entity tag, version, or size and time) is remembered at its first answer, and bytes of
    another version are never returned. Sources may be used from several threads, survive a fork
    and can be pickled; the copy keeps what it remembers.

    Every method raises `UnsafeContentError` for an `href` that is not a relative path below the
    location, `ObjectNotFoundError` for a missing object, `AccessDeniedError`, `StorageError` when
    the storage fails and `ObjectChangedError` when the object is no longer the same.
    """

    @property
    def href(self) -> str:
        """The location: a normalised URL, or an absolute path; for people, without secrets."""
        ...

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
        ...

    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `fetch`, without blocking the event loop."""
        ...

    def fetch_spans(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """The bytes of many ranges of one object, in order, without an object for each of them.

        Raises as `fetch` does.
        """
        ...

    async def fetch_spans_async(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """As `fetch_spans`, without blocking the event loop."""
        ...

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object, asking the storage if need be."""
        ...

    def known(self, href: str = "") -> ObjectInfo | None:
        """What is remembered of an object, without asking the storage."""
        ...

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it, sorted; folders end in ``/``."""
        ...

    def child(self, href: str) -> Source:
        """The source of a location below this one."""
        ...

    def sibling(self, name: str) -> Source:
        """The source of a location in the folder that holds this one."""
        ...

    def vsi(self, href: str = "") -> str:
        """The path by which GDAL opens an object."""
        ...

    def file(self, href: str = "", offset: int = 0, size: int | None = None) -> RangeFile:
        """A seekable binary file over an object or a span of it."""
        ...

    def close(self) -> None:
        """Let go of what the source holds."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...
