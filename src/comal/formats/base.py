"""What the generic commands need of a format, whichever it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from comal.check import Report
from comal.errors import ComalError
from comal.progress import Progress

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


class Adapter(Protocol):
    """One format as `comal.formats` sees it. A module with these functions is one.

    `options` are what only some formats have: how a tileset is opened, statistics of a RaQuet.
    """

    def reader(self, href: str | os.PathLike[str]) -> Any:
        """The format's own reader, as `comal.open` returns it."""
        ...

    def archive(self, href: str, **options: Any) -> Archive:
        """The archive behind the generic commands."""
        ...

    def check(self, href: str, *, level: str, progress: Progress, **options: Any) -> Report:
        """Every problem of the archive, as far as `level` looks."""
        ...

    def repair(
        self, href: str, output: str, *, overwrite: bool, progress: Progress, **options: Any
    ) -> Any:
        """Write a mended copy; `href` itself is never changed."""
        ...
