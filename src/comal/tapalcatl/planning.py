"""How many archives and entries a layout makes, how long directories get, and which one to choose.

A reader fetches the last 64 KiB of an archive at first. A directory that lies in them costs no
further request: that is what `choose_layout` sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from comal.errors import InvalidInputError
from comal.limits import KIB
from comal.public import options_of, takes
from comal.tapalcatl.addressing import Layout
from comal.tapalcatl.spec import MAX_ZOOM
from comal.ziparchive import wire

DIRECTORY_LIMIT: Final = 64 * KIB
COMMENT_SIZE: Final = 1 * KIB
"""Room for the comment of an archive, which stands in the same tail."""
STEP: Final = 4
METATILE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EntrySize:
    """What entries take in a directory beside the digits of their names."""

    per_tile: int = 1
    """Entries of one tile: formats times scales."""
    suffix: str = ".mvt"
    """What follows the row in names, such as ``@2x.png``."""
    entry_extra: int = 0
    """Bytes of comment and extra fields of an entry."""
    comment: int = COMMENT_SIZE
    """Bytes of an archive's comment."""


@takes(EntrySize)
def choose_layout(
    min_zoom: int,
    max_zoom: int,
    *,
    metatile: int | None = None,
    materialized_zooms: Sequence[int] | None = None,
    **size: Any,
) -> Layout:
    """A layout whose directories come with the first request of 64 KiB.

    The rule: archives hold four zooms under two by two root tiles, which makes 340 entries of one
    format. Zooms are counted from the deepest one up (11, 7, 3, 0 for zooms 0 to 14), so that the
    archives of which there are most are full; a zoom 0 that would stand alone joins those behind
    it. Where directories would not fit, because a tile has many entries or long comments, first
    the metatile becomes 1, then archives hold three, two and one zooms. What is given stays as it
    is, whether it fits or not.
    """
    _check_zooms(min_zoom, max_zoom)
    entry = options_of(EntrySize, size)
    sides = (METATILE, 1) if metatile is None else (metatile,)
    if materialized_zooms is not None and len(materialized_zooms) == 0:
        raise InvalidInputError("no materialized zooms", expected="at least one, or None")
    steps = (STEP, 3, 2, 1) if materialized_zooms is None else (0,)
    layout: Layout | None = None
    for step in steps:
        for side in sides:
            zooms = tuple(sorted(set(materialized_zooms or ())))
            layout = Layout(zooms or _zooms(min_zoom, max_zoom, step), side)
            longest = max(
                directory_bytes(layout, zoom, max_zoom, entry) for zoom in layout.materialized_zooms
            )
            if longest <= DIRECTORY_LIMIT:
                return layout
    assert layout is not None
    return layout


def directory_bytes(
    layout: Layout,
    zoom: int,
    max_zoom: int,
    size: EntrySize = EntrySize(),
) -> int:
    """Bytes of directory, end record and comment of a full archive that begins at `zoom`."""
    last = layout.last_zoom(zoom, max_zoom)
    total = wire.END_SIZE + size.comment
    for z in range(zoom, last + 1):
        # The longest names count: a column of the zoom's last digits.
        name = len(f"{z}/") + 2 * len(str((1 << z) - 1)) + 1 + len(size.suffix)
        entries = full_entries(layout, zoom, z, z) * size.per_tile
        total += entries * (wire.CENTRAL_SIZE + name + size.entry_extra)
    if full_entries(layout, zoom, zoom, last) * size.per_tile > wire.U16:
        total += wire.END64_SIZE + wire.LOCATOR64_SIZE
    return total


def full_entries(layout: Layout, zoom: int, first: int, last: int) -> int:
    """Tiles of the zooms `first` to `last` in a full archive that begins at `zoom`."""
    side = min(layout.metatile, 1 << zoom)
    return sum(side * side << 2 * (z - zoom) for z in range(first, last + 1))


def _zooms(min_zoom: int, max_zoom: int, step: int) -> tuple[int, ...]:
    zooms = list(range(max_zoom + 1 - step, min_zoom, -step))
    if zooms and zooms[-1] == 1 and min_zoom == 0 and step == STEP:
        zooms.pop()  # zoom 0 is one tile: 341 entries with the four zooms behind it
    return (min_zoom, *reversed(zooms))


def _check_zooms(min_zoom: int, max_zoom: int) -> None:
    if not 0 <= min_zoom <= max_zoom <= MAX_ZOOM:
        raise InvalidInputError(
            "no range of zooms",
            found=f"{min_zoom} to {max_zoom}",
            expected=f"0 to {MAX_ZOOM}, ascending",
        )
