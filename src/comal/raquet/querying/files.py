"""The files of one data set, opened for queries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from comal.errors import InvalidInputError
from comal.limits import DEFAULT_LIMITS, Limits
from comal.raquet.reading.file import RaquetFile
from comal.raquet.reading.opening import open as open_raquet
from comal.raquet.reading.part import Part
from comal.raquet.reading.store import TileStore
from comal.raquet.spec import Metadata
from comal.storage import StorageConfig

Location = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Files:
    """One data set of one file or several parts."""

    store: TileStore
    owned: bool = True
    """Whether closing this closes the sources."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """What is known of each file."""
        return self.store.parts

    @property
    def metadata(self) -> Metadata:
        """What the files say of themselves."""
        return self.store.metadata

    def close(self) -> None:
        """Let go of what was opened for the queries."""
        if self.owned:
            self.store.close()


def opened(
    href: Any, config: StorageConfig | None = None, limits: Limits = DEFAULT_LIMITS
) -> Files:
    """Open a file, the parts of a data set, or take a `RaquetFile` as it is.

    Raises
    ------
    InvalidInputError
        No path, URL or list of these.
    ComalError
        As for `comal.raquet.open`.
    """
    if isinstance(href, RaquetFile):
        # An opened file shares what it has read, and its cache.
        return Files(href.store, owned=False)
    if not isinstance(href, str | os.PathLike | Sequence) or not href:
        raise InvalidInputError("no RaQuet file", found=type(href).__name__, expected="a path")
    return Files(open_raquet(href, config=config, limits=limits).store)
