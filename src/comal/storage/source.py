"""What the rest of comal knows of storage: sources, and their wrappers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidMetadataError, LimitExceededError, ShortReadError
from comal.parallel import in_thread
from comal.plan import ByteRange, Head, Piece, Tail, Wanted, Whole
from comal.storage.config import StorageConfig
from comal.storage.file import RangeFile
from comal.storage.gdal import vsi_path
from comal.storage.location import Location
from comal.storage.pins import ObjectInfo, Pins

Ints = npt.NDArray[np.int64]
_LARGEST = 2**63 - 1


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
        self.config = config
        self.pins = pins if pins is not None else Pins()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location.label!r})"

    @property
    def href(self) -> str:
        """The location: a normalised URL, or an absolute path; for people, without secrets."""
        return self.location.href

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

    async def fetch_spans_async(self, offsets: Ints, sizes: Ints, href: str = "") -> list[bytes]:
        """As `fetch_spans`, without blocking the event loop."""
        return await in_thread(self.fetch_spans, offsets, sizes, href)

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
