"""The time dimension (0.2.0): which steps there are, and how one is named."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.geo.times import parse_instant

Step = int | float | str | dt.datetime | dt.date | np.datetime64
"""A time step: an int counts steps from 0 on (or from the end, if negative), a float is a value of
``time_cf``, and anything else is a point in time."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeAxis:
    """The time steps of a file, in the order of time."""

    values: npt.NDArray[np.float64]
    """``time_cf`` of each step."""
    stamps: npt.NDArray[np.datetime64]
    """The same as instants of UTC, NaT where the calendar has none."""
    units: str
    """As CF writes them: ``days since 2000-01-01 00:00:00``."""
    calendar: str

    def __len__(self) -> int:
        return len(self.values)

    def index(self, step: Step | None, where: str) -> int:
        """Number of a step, from 0 on.

        Raises
        ------
        InvalidInputError
            There is no such step, or none is named though there are several.
        """
        count = len(self.values)
        if step is None:
            if count == 1:
                return 0
            raise InvalidInputError(
                "which time step is wanted must be said",
                where=where,
                expected=f"time=0 to {count - 1}, a time_cf from {self._range()}, or an instant",
            )
        if isinstance(step, int | np.integer) and not isinstance(step, bool):
            if not -count <= step < count:
                raise InvalidInputError(
                    "no such time step", where=where, found=step, expected=f"0 to {count - 1}"
                )
            return int(step) % count
        if isinstance(step, float | np.floating):
            return self._nearest(self.values, float(step), step, where)
        instant = np.datetime64(parse_instant(step), "us")
        return self._nearest(self.stamps, instant, step, where)

    def _nearest(self, axis: npt.NDArray[Any], value: Any, step: object, where: str) -> int:
        found = np.flatnonzero(axis == value)
        if not len(found):
            raise InvalidInputError(
                "no such time step", where=where, found=str(step), expected=self._range()
            )
        return int(found[0])

    def _range(self) -> str:
        first, last = self.values[0], self.values[-1]
        told = f"{first:g} to {last:g} {self.units}".rstrip()
        if len(self.stamps) and not np.isnat(self.stamps[[0, -1]]).any():
            told += f" ({self.stamps[0]} to {self.stamps[-1]})"
        return told


def time_axis(
    values: npt.NDArray[np.float64],
    stamps: npt.NDArray[np.datetime64] | None,
    tiles: npt.NDArray[np.bool_],
    described: Mapping[str, Any] | None,
) -> tuple[TimeAxis, npt.NDArray[np.int64]]:
    """The steps, and the number of the step of each row.

    Parameters
    ----------
    values, stamps
        ``time_cf`` and ``time_ts`` of each row.
    tiles
        Which rows are tiles, and not metadata.
    described
        ``time`` of the document.
    """
    found = np.unique(values[tiles])
    numbers = np.searchsorted(found, np.where(tiles, values, found[0] if len(found) else 0.0))
    axis = np.full(len(found), np.datetime64("NaT", "us"))
    if stamps is not None:
        axis[numbers[tiles][::-1]] = stamps[tiles][::-1]
    named = described or {}
    units, calendar = named.get("cf:units"), named.get("cf:calendar")
    return (
        TimeAxis(
            found,
            axis,
            units if isinstance(units, str) else "",
            calendar if isinstance(calendar, str) else "standard",
        ),
        numbers.astype(np.int64),
    )
