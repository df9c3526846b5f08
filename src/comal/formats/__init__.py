"""Every format behind one door: recognised by its bytes, opened by its own room.

The formats do not know one another; this module is where they meet.
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
"""Columns of the tables that `Archive.leaves` yields, a row for each thing that an archive holds.

``key`` is ``a/b/c.tif``, of a tile ``z/x/y``; ``href`` the object that holds the bytes; ``offset``
where in it they start; ``size`` how many there are, null where only the object itself could say;
``type`` what the format says they are.
"""


class Archive(Protocol):
    """An opened archive of any format, as the generic commands see it."""

    def describe(self) -> Mapping[str, Any]:
        """``version``, ``container``, ``count``, ``size``, ``bounds`` and what else it can say."""
        ...

    def leaves(self) -> Iterator[Any]:
        """Every leaf in a fixed order, as Arrow tables of `LEAF_COLUMNS`."""
        ...

    def blocks(self, key: str) -> Iterator[bytes]:
        """The bytes of a leaf in blocks, checked against whatever checksum there is.

        `NotInContainerError` when there is no leaf called `key`.
        """
        ...

    def close(self) -> None:
        """Let go of what the archive holds."""
        ...


@runtime_checkable
class Partly(Protocol):
    """An archive of many objects: what can be read is listed, whatever the others are like."""

    failed: list[ComalError]
    """What was wrong with the objects that the last `Archive.leaves` could not list."""


class Adapter:
    """One format as the generic commands see it: its package, and its module in this one.

    `options` are what only some formats have: how a tileset is opened, statistics of a RaQuet.
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
        """Every problem of the archive, as far as `level` looks."""
        found: Report = self._room.check(href, level=level, progress=progress, **options)
        return found

    def repair(
        self, href: str, output: str, *, overwrite: bool, progress: Progress, **options: Any
    ) -> Any:
        """Write a mended copy; `href` itself is never changed."""
        repair = getattr(self._own, "repair", None) or self._room.repair
        return repair(href, output, overwrite=overwrite, progress=progress, **options)


def sniff(href: str | os.PathLike[str]) -> Found:
    """Which format lies at a path or a URL, and by what it was recognised."""
    with open_source(href) as source:
        return recognise(source)


def adapter_of(found: Format) -> Adapter:
    """The functions of a format that the generic commands use."""
    if found.adapter is None:
        raise AssertionError(f"{found.name} is refused before its adapter is asked for")
    return Adapter(found.adapter)


def of_band(archive: Archive, band: str | None) -> Archive:
    """The archive with one band alone, where its format has bands."""
    if band is None:
        return archive
    with_band = getattr(archive, "with_band", None)
    if with_band is None:
        archive.close()
        raise InvalidInputError("the leaves of this format have no bands", found=shown(band))
    return cast("Archive", with_band(band))


def open_any(href: str | os.PathLike[str]) -> Any:
    """Open an archive with the reader of its format, which its bytes tell; see `comal.open`."""
    return adapter_of(sniff(href).format).reader(href)
