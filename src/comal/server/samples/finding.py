"""Which rows lie in a box or in a range of time, as the readers of the formats tell it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import ComalError, InvalidInputError
from comal.geo import boxes
from comal.geo.places import TIMES, Places, ways_of
from comal.geo.selecting import within
from comal.geo.times import parse_range
from comal.tortilla.reading import filtering

Mask = npt.NDArray[np.bool_]
Box = Sequence[float]


class Finder:
    """Finds rows of one table.

    Parameters
    ----------
    table
        Columns as they are in the file.
    seconds
        Numbers in columns of times are seconds, as a Tortilla has them, and not microseconds.

    Notes
    -----
    Boxes of footprints are kept, as all that a filter costs is to transform them. Only rows whose
    box reaches over a side of the box that is asked for are looked at more closely.
    """

    def __init__(self, table: Any, *, seconds: bool) -> None:
        self._table = table
        self._seconds = seconds

    @property
    def is_placed(self) -> bool:
        """Whether rows can be found by a box."""
        return bool(ways_of(self._table.schema))

    @property
    def is_timed(self) -> bool:
        """Whether rows can be found by a range of time."""
        return any(name in self._table.column_names for name in TIMES)

    @cached_property
    def places(self) -> Places:
        """Where the rows are.

        Raises
        ------
        ComalError
            Their columns say nothing of it.
        """
        return Places(self._table, filtering.ways_in(self._table))

    @property
    def bounds(self) -> boxes.Box | None:
        """The box of all rows, None when nothing is known or a place is broken."""
        try:
            return boxes.union_box(*self.places.corners)
        except ComalError:
            return None  # `comal check` tells

    def in_box(self, bbox: Box) -> Mask:
        """Which rows have a point in common with a box, as `filter_bbox` of the format tells it.

        Raises
        ------
        ComalError
            No box, or rows that say nothing of where they are.
        """
        box, places = boxes.validate_bbox(bbox), self.places
        try:
            return places.meet(box)
        except InvalidInputError as error:
            raise filtering.broken(error) from error

    def in_period(self, period: str) -> Mask:
        """Which rows lie in a range of time, as `filter_datetime` of the format tells it.

        Raises
        ------
        ComalError
            No range, or rows that say nothing of their time.
        """
        if self._seconds:
            return filtering.time_mask(self._table, period, filtering.AUTO)
        name = next((name for name in TIMES if name in self._table.column_names), None)
        if name is None:
            raise InvalidInputError(
                "the columns say nothing of the time of samples", expected=" or ".join(TIMES)
            )
        return within(self._table.column(name), *parse_range(period), name)
