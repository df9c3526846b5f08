"""Where and when a dataset is, computed from the metadata of its samples (TACO 2.0, 5.6, 7.1.1).

The first level that tells a place gives the spatial extent, the first that tells a time the
temporal one. Boxes are those of the footprints and lie on the circle of longitudes: west is
greater than east where the dataset crosses the antimeridian.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from comal.errors import InvalidInputError
from comal.geo import boxes as geo_boxes
from comal.geo import times
from comal.geo.places import GEOMETRY, Places, Way, ways_of
from comal.public import warn
from comal.taco import spec
from comal.taco.model.levels import Levels
from comal.taco.spec import TacoWarning

_NAMESPACES = ("istac", "stac")

Boxes = tuple[Any, Any, Any, Any]


@dataclass(slots=True)
class Coverage:
    """What a growing number of rows covers; rows may come in batches."""

    boxes: list[Boxes] = field(default_factory=list)
    start: int | None = None
    end: int | None = None

    def add(self, table: Any) -> None:
        """Take in the rows of one table."""
        found = boxes(table)
        if found is not None:
            self.boxes.append(found)
            if len(self.boxes) > 64:
                self.boxes = [merged(self.boxes)]
        span = time_range(table)
        if span is not None:
            self.start = span[0] if self.start is None else min(self.start, span[0])
            self.end = span[1] if self.end is None else max(self.end, span[1])

    def spatial(self) -> list[float] | None:
        """The smallest box around everything, or None when no row had a place."""
        if not self.boxes:
            return None
        box = geo_boxes.union_box(*merged(self.boxes))
        return None if box is None else [float(value) for value in box]

    def temporal(self) -> list[str] | None:
        """The first start and the last end, or None when no row had a time."""
        if self.start is None or self.end is None:
            return None
        return [times.isoformat(self.start), times.isoformat(self.end)]


def extent_of(levels: Levels, known: Any = None) -> dict[str, Any]:
    """The extent of a dataset: ``{"spatial": [...], "temporal": [...] or None}``.

    What no column tells is that of `known`, an extent around it; without any place it is the whole
    world.
    """
    return extent_of_tables([level.table for level in levels], known)


def extent_of_tables(tables: Sequence[Any], known: Any = None) -> dict[str, Any]:
    """As `extent_of`, from the metadata tables of the levels."""
    spatial: list[float] | None = None
    temporal: list[str] | None = None
    for table in tables:
        coverage = Coverage()
        coverage.add(table)
        spatial = spatial or coverage.spatial()
        temporal = temporal or coverage.temporal()
        if spatial and temporal:
            break
    if isinstance(known, Mapping):
        spatial = spatial or known.get("spatial")
        temporal = temporal or known.get("temporal")
    return finished(spatial, temporal)


def finished(spatial: list[float] | None, temporal: list[str] | None) -> dict[str, Any]:
    """An extent object; the world where no place is known."""
    return {"spatial": spatial or list(spec.GLOBAL_BBOX), "temporal": temporal}


def united(extents: Sequence[Any]) -> dict[str, Any]:
    """One extent around several; those that say nothing are left out."""
    given = [extent for extent in extents if isinstance(extent, Mapping)]
    places = [extent.get("spatial") for extent in given]
    known = [box for box in places if isinstance(box, list) and len(box) == 4]
    spatial = geo_boxes.union_box(*np.asarray(known, np.float64).T) if known else None
    spans = [span for span in map(_span_of, given) if span is not None]
    ends = (min(start for start, _ in spans), max(end for _, end in spans)) if spans else ()
    return finished(
        None if spatial is None else [float(value) for value in spatial],
        [times.isoformat(end) for end in ends] or None,
    )


def _span_of(extent: Mapping[str, Any]) -> tuple[int, int] | None:
    """The times of an extent in microseconds; None where it says none that can be read."""
    pair = extent.get("temporal")
    if not isinstance(pair, list) or len(pair) != 2:
        return None
    try:
        return times.parse_instant(pair[0]), times.parse_instant(pair[1])
    except InvalidInputError:
        return None


def boxes(table: Any) -> Boxes | None:
    """Box of each row that tells where it is: west, south, east, north arrays; or None.

    Of footprints where they are there, else of centroids.
    """
    ways = ways_of(table.schema)
    places = Places(table, ways)
    known = places.told_by >= 0
    if not known.any():
        return None
    warn_without_crs(ways)
    west, south, east, north = (side[known] for side in places.corners)
    return west, south, east, north


def merged(parts: Sequence[Boxes]) -> Boxes:
    """Fewer boxes that cover the same longitudes and reach as far south and north.

    Overlapping arcs become one, so that what is kept does not grow with the number of rows.
    """
    west, south, east, north = (np.concatenate(side) for side in zip(*parts, strict=True))
    west, east = geo_boxes.wrap_arcs(west, east)
    over = west > east
    starts = np.concatenate([west, np.full(int(over.sum()), -180.0)])
    ends = np.concatenate([np.where(over, 180.0, east), east[over]])
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.r_[True, starts[1:] > ends[:-1]]
    last = np.r_[first[1:], True]
    count = int(first.sum())
    low, high = np.full(count, south.min()), np.full(count, north.max())
    return starts[first], low, ends[last], high


def time_range(table: Any) -> tuple[int, int] | None:
    """First start and last end of the rows in microseconds since 1970 UTC, or None.

    None, too, where one is beyond the years 1 to 9999, which no document can say.
    """
    names = table.column_names
    for namespace in _NAMESPACES:
        start = f"{namespace}:time_start"
        if start not in names or not pa.types.is_timestamp(table.schema.field(start).type):
            continue
        firsts = table[start]
        end = f"{namespace}:time_end"
        usable = end in names and pa.types.is_timestamp(table.schema.field(end).type)
        lasts = pc.coalesce(table[end], firsts) if usable else firsts
        low, high = pc.min(firsts), pc.max(lasts)
        if low.is_valid:
            span = _micros(low), _micros(high)
            return span if min(span) >= times.FIRST and max(span) <= times.LAST else None
    return None


def _micros(value: Any) -> int:
    return int(value.cast(pa.timestamp("us"), safe=False).value)


def warn_without_crs(ways: Iterable[Way]) -> None:
    """Say that geometries without a CRS are taken to be in degrees."""
    if any(way.columns == (GEOMETRY,) for way in ways):
        warn(f"{GEOMETRY} without istac:crs is taken to be in EPSG:4326", TacoWarning)
