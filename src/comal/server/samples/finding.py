"""Which rows lie in a box or in a range of time, as the readers of the formats tell it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import ComalError
from comal.geo import boxes, footprint
from comal.geo.rings import Corners
from comal.server.samples.places import outline_columns
from comal.table.columns import one_array
from comal.taco import spec as taco_spec
from comal.taco.reading import filters
from comal.tortilla import spec
from comal.tortilla.reading import filtering

Mask = npt.NDArray[np.bool_]
Box = Sequence[float]

AUTO = filtering.AUTO
_OUTLINE = (spec.CRS, spec.GEOTRANSFORM, spec.RASTER_SHAPE)


class Finder(Protocol):
    """Finds rows of one table."""

    @property
    def is_placed(self) -> bool:
        """Whether rows can be found by a box."""
        ...

    @property
    def is_timed(self) -> bool:
        """Whether rows can be found by a range of time."""
        ...

    @property
    def outlines(self) -> Corners | None:
        """Boxes of the outlines of all rows, where they are kept."""
        ...

    def in_box(self, bbox: Box) -> Mask:
        """Which rows have a point in common with a box, as `filter_bbox` of the format tells it.

        Raises
        ------
        ComalError
            No box, or rows that say nothing of where they are.
        """
        ...

    def in_period(self, period: str) -> Mask:
        """Which rows lie in a range of time, as `filter_datetime` of the format tells it.

        Raises
        ------
        ComalError
            No range, or rows that say nothing of their time.
        """
        ...


class TacoFinder:
    """Finds rows of the outermost level of a TACO data set."""

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def is_placed(self) -> bool:
        """Whether there is a geometry."""
        schema = self._table.schema
        first = next((name for name in taco_spec.GEOMETRY_COLUMNS if name in schema.names), None)
        return first is not None and _is_wkb(schema.field(first).type)

    @property
    def is_timed(self) -> bool:
        """Whether there is a time."""
        return any(name in self._table.column_names for name in taco_spec.TIME_COLUMNS)

    @property
    def outlines(self) -> None:
        """None: geometries are compared as they are."""

    def in_box(self, bbox: Box) -> Mask:
        """Rows by their geometry."""
        rule = filters.box_filter(bbox, AUTO, 0, prune=False, schema=self._table.schema)
        return rule.matches(*(self._table.column(name) for name in rule.columns))

    def in_period(self, period: str) -> Mask:
        """Rows by their time."""
        rule = filters.period_filter(period, AUTO, 0, prune=False, schema=self._table.schema)
        return rule.matches(self._table.column(rule.column))


class TortillaFinder:
    """Finds items of a Tortilla.

    Parameters
    ----------
    table
        Columns as they are in the file.

    Notes
    -----
    Boxes of outlines are kept, as all that a filter costs is to transform them. An item whose box
    does not meet the box that is asked for does not meet it either, and one that reaches over none
    of its sides surely does; only of the others the reader is asked.
    """

    def __init__(self, table: Any) -> None:
        self._table = table

    @property
    def is_placed(self) -> bool:
        """Whether there are outlines, centres or geometries."""
        return geometry_column(self._table.schema) is not None

    @property
    def is_timed(self) -> bool:
        """Whether there is a time."""
        return time_column(self._table.schema) is not None

    def in_box(self, bbox: Box) -> Mask:
        """Items by their outlines, else their centres, else another geometry."""
        box = boxes.validate_bbox(bbox)
        column = geometry_column(self._table.schema) or AUTO
        corners = self.outlines if column == AUTO else None
        if corners is None:
            return filtering.box_mask(self._table, box, column)
        found = boxes.boxes_intersect(*corners, box)
        unknown = np.isnan(np.stack(corners)).any(axis=0)
        doubtful = np.flatnonzero(unknown | (found & ~_inside(corners, box)))
        if len(doubtful):
            names = [n for n in (*_OUTLINE, spec.CENTROID) if n in self._table.column_names]
            some = self._table.select(names).take(pa.array(doubtful))
            found[doubtful] = filtering.box_mask(some, box, column)
        return found

    @cached_property
    def outlines(self) -> Corners | None:
        """Boxes of all outlines; None where there are none, or where some are broken."""
        names = outline_columns(self._table.schema, (spec.RASTER_SHAPE,))
        if names is None:
            return None
        try:
            return footprint.footprints(*(one_array(self._table[name]) for name in names))
        except ComalError:
            return None  # the reader says what is wrong

    def in_period(self, period: str) -> Mask:
        """Items by their time."""
        column = time_column(self._table.schema) or AUTO
        return filtering.time_mask(self._table, period, column)


def geometry_column(schema: Any) -> str | None:
    """What `TortillaFrame.filter_bbox` takes as `geometry_col`; None where it finds nothing.

    The columns that the specification names come first, then those of TACO in their order.
    """
    if set(_OUTLINE) <= set(schema.names) or spec.CENTROID in schema.names:
        return AUTO
    known = (name for name in taco_spec.GEOMETRY_COLUMNS if name in schema.names)
    return next((name for name in known if _is_wkb(schema.field(name).type)), None)


def time_column(schema: Any) -> str | None:
    """What `TortillaFrame.filter_datetime` takes as `time_col`; None where it finds nothing."""
    if spec.TIME_START in schema.names:
        return AUTO
    return next((name for name in taco_spec.TIME_COLUMNS if name in schema.names), None)


def _is_wkb(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _inside(corners: Corners, box: boxes.Box) -> Mask:
    """Of outlines whose boxes meet a box, which reach over neither its sides nor its ends.

    An outline is in one piece and reaches all four sides of its box. So one that stays between the
    latitudes of another box, or between its longitudes, has a point in it.
    """
    above = boxes.boxes_intersect(*corners, (-180, box.north, 180, 90))
    below = boxes.boxes_intersect(*corners, (-180, -90, 180, box.south))
    aside = boxes.boxes_intersect(*corners, (box.east, -90, box.west, 90))
    inside: Mask = ~aside | ~(above | below)
    return inside
