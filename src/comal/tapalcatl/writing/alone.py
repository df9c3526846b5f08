"""One archive that holds a whole tileset: ``world.zip`` in place of a folder with ``meta.json``.

Its only root zoom is the first zoom of the tiles, and its metatile the smallest power of two that
takes in all their ancestors there, so that arithmetic leads every tile to it. The comment says all
that a document would: zooms and bounds are those of the tiles.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.storage import href_text
from comal.storage.targets import new_file
from comal.tapalcatl.kinds import ARCHIVE
from comal.tapalcatl.sources.base import Int64s, Keys
from comal.tapalcatl.spec import ArchiveMetadata, Headers, Tile
from comal.tapalcatl.wire import split_suffix
from comal.tapalcatl.writing.arranging import Comment, Dealt, Second
from comal.tapalcatl.writing.commenting import fitted
from comal.tapalcatl.writing.workplace import Workplace

Location = str | os.PathLike[str]


@dataclass(frozen=True)
class Alone(Second):
    """Tapalcatl 2 in one archive."""

    name: str = ""
    """The name of its file."""

    def path(self, archive: Tile) -> str:  # noqa: ARG002 - there is but one
        """The name of the file."""
        return self.name

    def comment(self, archive: Tile, formats: Mapping[str, Headers]) -> Comment:
        """What a document would say, and the keys that had no room."""
        return fitted(self._narrowed(archive, formats))

    def comments(
        self, archives: Sequence[Tile], formats: Mapping[str, Headers]
    ) -> Sequence[Comment]:
        """As `comment`."""
        return [self.comment(archive, formats) for archive in archives]

    def of_suffixes(self, suffixes: Iterable[str]) -> Alone:
        """The same with the scales of the tiles, for no document tells them."""
        scales = [split_suffix(suffix)[0] for suffix in suffixes]
        if not scales:
            return self
        metadata = replace(self.metadata, min_scale=min(scales), max_scale=max(scales))
        return replace(self, metadata=metadata)

    def _narrowed(self, archive: Tile, formats: Mapping[str, Headers]) -> ArchiveMetadata:
        whole = self.metadata
        return replace(
            super()._narrowed(archive, formats),
            min_zoom=whole.min_zoom,
            max_zoom=whole.max_zoom,
            bounds=whole.bounds,
        )


def is_archive(out: Location) -> bool:
    """Whether a target is one archive by its name; with a slash at its end it is a folder."""
    return href_text(out).lower().endswith(".zip")


def smallest_metatile(keys: Iterator[Keys], root: int) -> int:
    """Root tiles per side of the smallest archive of a zoom that holds all tiles from there on."""
    low: Int64s | None = None
    high: Int64s | None = None
    for z, x, y in keys:
        deep = z >= root
        if not deep.any():
            continue
        shift = z[deep] - root
        places = np.stack([x[deep] >> shift, y[deep] >> shift])
        least, most = places.min(axis=1), places.max(axis=1)
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
    if low is None or high is None:
        return 1
    # Columns that differ in no bit from a bit on lie in one aligned square of that side.
    return 1 << max(int(bits).bit_length() for bits in low ^ high)


def check_one(plan: Dealt, out: Location) -> None:
    """Refuse a layout that takes more than one archive.

    Raises
    ------
    InvalidInputError
        It takes several.
    """
    if len(plan.archives) > 1:
        raise InvalidInputError(
            "the layout takes several archives, and the target is a single one",
            where=os.fspath(out),
            found=f"{len(plan.archives)} archives",
            hint="leave out metatile and materialized zooms, or write to a folder",
        )


@contextmanager
def place_of_one(out: Location, *, overwrite: bool, source: Any) -> Iterator[Workplace]:
    """Where a single archive is written: a file beside its target, published when it is whole.

    Raises
    ------
    ConflictError
        The target exists, or somebody else is writing it.
    InvalidInputError
        It is a folder.
    """
    with new_file(out, overwrite, ARCHIVE, source) as file:
        # The archive is written by its path, and made durable by that.
        file.close()
        yield Workplace(Path(file.path.parent), file.target, going_on=False, name=file.path.name)
