"""Every format behind one interface: recognised by its bytes, opened by its own package.

The formats do not import one another; this module knows all of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Protocol, cast, runtime_checkable

from comal.check import Report
from comal.errors import ComalError, InvalidInputError, shown
from comal.formats.sniff import FORMATS, Evidence, Format, Found, recognise
from comal.progress import Progress
from comal.storage import open_source

__all__ = [
    "FORMATS",
    "LEAF_COLUMNS",
    "Adapter",
    "Archive",
    "Evidence",
    "Format",
    "Found",
    "Partly",
    "adapter_of",
    "of_band",
    "open_any",
    "recognise",
    "sniff",
]


LEAF_COLUMNS = ("key", "href", "offset", "size", "type")
"""Columns of the tables that `Archive.leaves` yields, a row for each leaf.

``key`` is ``a/b/c.tif``, for a tile ``z/x/y``; ``href`` the object that holds the bytes; ``offset``
their first byte in it; ``size`` their number, null if only a request for the object could say;
``type`` the type that the format gives.
"""


class Archive(Protocol):
    """An opened archive of any format, as the generic commands see it."""

    def describe(self) -> Mapping[str, Any]:
        """``version``, ``container``, ``count``, ``size``, ``bounds`` and other fields."""
        ...

    def leaves(self) -> Iterator[Any]:
        """Every leaf in a fixed order, as Arrow tables of `LEAF_COLUMNS`."""
        ...

    def blocks(self, key: str) -> Iterator[bytes]:
        """The bytes of a leaf in blocks, compared with their checksum if there is one.

        Raises `NotInContainerError` when there is no leaf called `key`.
        """
        ...

    def close(self) -> None:
        """Close files and connections of the archive."""
        ...


@runtime_checkable
class Partly(Protocol):
    """An archive of many objects that lists those it can read even if others are broken."""

    failed: list[ComalError]
    """Errors of the objects that the last `Archive.leaves` could not list."""


class Adapter:
    """One format as the generic commands see it: its package, and its module in `comal.formats`.

    `options` are specific to a format: how a tileset is opened, statistics of a RaQuet.
    """

    def __init__(self, module: str) -> None:
        self._own = import_module(module)
        self._room = import_module(module.replace(".formats.", "."))

    def reader(self, href: str | os.PathLike[str]) -> Any:
        """The format's own reader, as `comal.open` returns it."""
        opened = getattr(self._room, "open", None) or self._room.load
        return opened(href)

    def archive(self, href: str, **options: Any) -> Archive:
        """The archive behind the generic commands."""
        return cast("Archive", self._own.archive(href, **options))

    def check(self, href: str, *, level: str, progress: Progress, **options: Any) -> Report:
        """Every problem of the archive, as far as `level` checks."""
        found: Report = self._room.check(href, level=level, progress=progress, **options)
        return found

    def repair(
        self, href: str, output: str, *, overwrite: bool, progress: Progress, **options: Any
    ) -> Any:
        """Write a repaired copy; `href` itself is never changed."""
        repair = getattr(self._own, "repair", None) or self._room.repair
        return repair(href, output, overwrite=overwrite, progress=progress, **options)


def sniff(href: str | os.PathLike[str]) -> Found:
    """The format of a path or a URL, and how it was recognised."""
    with open_source(href) as source:
        return recognise(source)


def adapter_of(found: Format) -> Adapter:
    """The functions of a format that the generic commands use."""
    if found.adapter is None:
        raise AssertionError(f"{found.name} is refused before its adapter is asked for")
    return Adapter(found.adapter)


def of_band(archive: Archive, band: str | None) -> Archive:
    """The archive restricted to one band, if its format has bands."""
    if band is None:
        return archive
    with_band = getattr(archive, "with_band", None)
    if with_band is None:
        archive.close()
        raise InvalidInputError("the leaves of this format have no bands", found=shown(band))
    return cast("Archive", with_band(band))


def open_any(href: str | os.PathLike[str]) -> Any:
    """Open an archive with the reader of its format, found by its bytes; see `comal.open`."""
    return adapter_of(sniff(href).format).reader(href)
