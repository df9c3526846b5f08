"""What sources that wrap another one have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from comal.plan import Piece, Wanted
from comal.storage.closing import Closing
from comal.storage.file import RangeFile
from comal.storage.source import ObjectInfo, Source, SpansByFetch


class WrappedSource(SpansByFetch, Closing):
    """Passes everything on to `source`, except the reading, which its subclasses do."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r})"

    @property
    def href(self) -> str:
        """The location: a normalised URL, or an absolute path."""
        return self.source.href

    @abstractmethod
    def rewrap(self, source: Source) -> Self:
        """The same wrapper around another source."""

    @abstractmethod
    def fetch(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """One piece for each of `wanted`, in their order."""

    @abstractmethod
    async def fetch_async(self, wanted: Sequence[Wanted]) -> list[Piece]:
        """As `fetch`, without blocking the event loop."""

    def stat(self, href: str = "") -> ObjectInfo:
        """Size and version of an object."""
        return self.source.stat(href)

    def known(self, href: str = "") -> ObjectInfo | None:
        """What is remembered of an object, without asking the storage."""
        return self.source.known(href)

    def names(self, prefix: str = "") -> list[str]:
        """Names directly below the location or a folder in it."""
        return self.source.names(prefix)

    def child(self, href: str) -> Self:
        """The source of a location below this one, wrapped too."""
        return self.rewrap(self.source.child(href))

    def sibling(self, name: str) -> Self:
        """The source of a location beside this one, wrapped too."""
        return self.rewrap(self.source.sibling(name))

    def vsi(self, href: str = "") -> str:
        """The path by which GDAL opens an object, past this wrapper."""
        return self.source.vsi(href)

    def file(self, href: str = "", offset: int = 0, size: int | None = None) -> RangeFile:
        """A seekable binary file that reads through this wrapper."""
        return RangeFile(self, href, offset, size)

    def close(self) -> None:
        """Close the wrapped source."""
        self.source.close()
