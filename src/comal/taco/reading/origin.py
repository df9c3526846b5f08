"""Where a container lies and how its bytes are reached, without the tables of its levels.

A level holds this, and the container holds its levels: were it the container itself, the two would
hold each other, and the columns of a dataset that nobody uses any more would stay in memory until
Python looks for such cycles.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from comal import ziparchive
from comal.errors import UnsafeContentError, shown
from comal.limits import Limits
from comal.names import illegal
from comal.plan import Piece, run
from comal.storage import Source
from comal.taco import spec, wire

INDEX_KINDS = frozenset({"tacocat", "tacocat-folder"})


class Origin:
    """The object or folder of a container, and the ZIPs of an index.

    Parameters
    ----------
    source
        The ZIP, the folder or the index.
    opened
        What the opening plan returned.
    base
        Folder with the ZIPs of an index; None means beside the index.
    limits
        Caps on what a file may make us hold.
    """

    def __init__(
        self, source: Source, opened: wire.Opened, base: Source | None, limits: Limits
    ) -> None:
        self.source = source
        self.opened = opened
        self.base = base
        self.limits = limits
        self._parts: dict[str, Source] = {}

    @property
    def kind(self) -> wire.Container:
        """Which of the four forms this is."""
        return self.opened.container

    @property
    def is_index(self) -> bool:
        """Whether rows name the ZIP that holds them (6.5)."""
        return self.kind in INDEX_KINDS

    @property
    def known(self) -> Sequence[Piece]:
        """What opening fetched of the container's own object."""
        return self.opened.pieces

    def part(self, source_file: str | None) -> Source:
        """The ZIP that a row names, or the container itself."""
        if source_file is None or not self.is_index:
            return self.source
        found = self._parts.get(source_file)
        if found is None:
            reason = illegal(source_file)
            if reason is not None:
                raise UnsafeContentError(
                    f"{spec.SOURCE_FILE} is no file name: it {reason}",
                    where=self.source.href,
                    found=shown(source_file),
                )
            if self.base is not None:
                found = self.base.child(source_file)
            else:
                found = self.source.sibling(source_file)
            self._parts[source_file] = found
        return found

    def directory(self, source_file: str | None = None) -> Any:
        """The central directory of the ZIP, or of the ZIP that a row of an index names."""
        if source_file is None:
            return self._own_directory
        plan = ziparchive.directory_plan(limits=self.limits)
        return run(plan, self.part(source_file).fetch)

    @cached_property
    def _own_directory(self) -> Any:
        plan = ziparchive.directory_plan(limits=self.limits, known=self.known)
        return run(plan, self.source.fetch)

    def close(self) -> None:
        """Let go of what the sources hold."""
        for source in (self.source, *self._parts.values(), *([self.base] if self.base else [])):
            source.close()
