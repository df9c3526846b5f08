"""How many archives and entries a layout makes, how long directories get, and which one to choose.

A reader fetches the last 64 KiB of an archive at first. A directory that lies in them costs no
further request: that is what `choose_layout` sees to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from comal.errors import InvalidInputError
from comal.geo.boxes import validate_bbox
from comal.limits import KIB
from comal.public import options_of, takes
from comal.tapalcatl.addressing import Layout, column_ranges, tile_range
from comal.tapalcatl.spec import MAX_ZOOM, WORLD, Bounds
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


@dataclass(frozen=True, slots=True)
class ZoomPlan:
    """The archives that begin at one zoom."""

    zoom: int
    """Their root zoom."""
    last_zoom: int
    """The deepest zoom in them."""
    archives: int
    """How many there are when every tile is."""
    entries: int
    """Tiles in all of them."""
    most_entries: int
    """Tiles in a full one, times the entries of each tile."""
    directory_bytes: int
    """Directory and end record of a full one, its comment included."""


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """What a layout comes to."""

    min_zoom: int
    max_zoom: int
    bounds: Bounds
    metatile: int
    materialized_zooms: tuple[int, ...]
    zooms: tuple[ZoomPlan, ...]

    @property
    def layout(self) -> Layout:
        """The layout itself."""
        return Layout(self.materialized_zooms, self.metatile)

    @property
    def archives(self) -> int:
        """Archives in all."""
        return sum(zoom.archives for zoom in self.zooms)

    @property
    def entries(self) -> int:
        """Tiles in all."""
        return sum(zoom.entries for zoom in self.zooms)

    @property
    def directory_bytes(self) -> int:
        """Bytes of the largest directory."""
        return max((zoom.directory_bytes for zoom in self.zooms), default=0)

    @property
    def fits(self) -> bool:
        """Whether every directory comes with the first request of 64 KiB."""
        return self.directory_bytes <= DIRECTORY_LIMIT

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        return {
            "minzoom": self.min_zoom,
            "maxzoom": self.max_zoom,
            "bounds": list(self.bounds),
            "metatile": self.metatile,
            "materializedZooms": list(self.materialized_zooms),
            "archives": self.archives,
            "entries": self.entries,
            "directory_bytes": self.directory_bytes,
            "fits": self.fits,
            "zooms": [asdict(zoom) for zoom in self.zooms],
        }


@takes(EntrySize)
def plan(
    min_zoom: int,
    max_zoom: int,
    *,
    bounds: Bounds | None = None,
    metatile: int | None = None,
    materialized_zooms: Sequence[int] | None = None,
    **size: Any,
) -> LayoutPlan:
    """What a layout comes to when every tile of these zooms is there.

    Parameters
    ----------
    min_zoom, max_zoom
        Zooms of the tiles, both included.
    bounds
        West, south, east, north in degrees; the world unless given.
    metatile, materialized_zooms
        The layout; what is not given is chosen by `choose_layout`.
    **size
        Fields of `EntrySize`, such as ``suffix="@2x.png"``.

    Raises
    ------
    InvalidInputError
        Zooms that are none, a box that is none, or a layout that cannot be, such as one that has
        no archive for the first zooms.
    """
    _check_zooms(min_zoom, max_zoom)
    layout = choose_layout(
        min_zoom, max_zoom, metatile=metatile, materialized_zooms=materialized_zooms, **size
    )
    if layout.root_zoom(min_zoom) is None:
        raise InvalidInputError(
            "no archives for the first zooms",
            where="materialized zooms",
            found=f"archives from zoom {layout.materialized_zooms[0]}, tiles from {min_zoom}",
        )
    entry = options_of(EntrySize, size)
    box = WORLD if bounds is None else validate_bbox(bounds)
    zooms = [
        _zoom_plan(layout, zoom, (min_zoom, max_zoom), box, entry)
        for zoom in layout.materialized_zooms
        if zoom <= max_zoom and layout.last_zoom(zoom, max_zoom) >= min_zoom
    ]
    return LayoutPlan(
        min_zoom, max_zoom, box, layout.metatile, layout.materialized_zooms, tuple(zooms)
    )


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


def _zoom_plan(
    layout: Layout,
    zoom: int,
    zooms: tuple[int, int],
    bounds: Bounds,
    size: EntrySize,
) -> ZoomPlan:
    first, last = max(zoom, zooms[0]), layout.last_zoom(zoom, zooms[1])
    entries = 0
    for z in range(first, last + 1):
        columns = sum(map(len, column_ranges(bounds, z)))
        entries += columns * len(tile_range(bounds, z)[1])
    side = layout.metatile << (first - zoom)
    spans = column_ranges(bounds, first)
    across = sum(_squares(span, side) for span in spans)
    if len(spans) > 1 and spans[0][-1] // side == spans[1][0] // side:
        across -= 1
    archives = across * _squares(tile_range(bounds, first)[1], side)
    full = full_entries(layout, zoom, first, last)
    return ZoomPlan(
        zoom,
        last,
        archives,
        entries * size.per_tile,
        full * size.per_tile,
        directory_bytes(layout, zoom, zooms[1], size),
    )


def _squares(span: range, side: int) -> int:
    """How many squares of so many tiles per side a span touches."""
    return span[-1] // side - span[0] // side + 1


def _check_zooms(min_zoom: int, max_zoom: int) -> None:
    if not 0 <= min_zoom <= max_zoom <= MAX_ZOOM:
        raise InvalidInputError(
            "no range of zooms",
            found=f"{min_zoom} to {max_zoom}",
            expected=f"0 to {MAX_ZOOM}, ascending",
        )
