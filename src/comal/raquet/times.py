"""The time dimension (0.2.0): steps as CF numbers and as instants, and how callers name a step."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, MissingExtraError
from comal.geo.times import parse_instant

STANDARD = frozenset({"standard", "gregorian", "proleptic_gregorian"})
CALENDARS = STANDARD | {"360_day", "365_day", "noleap", "366_day", "all_leap", "julian"}
_SECONDS = {
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
_SHORT = {"us": "microsecond", "usec": "microsecond", "microsec": "microsecond"}
_SHORT |= {"ms": "millisecond", "msec": "millisecond", "millisec": "millisecond"}
_SHORT |= {"s": "second", "sec": "second", "min": "minute", "h": "hour", "hr": "hour"}
_SHORT |= {"d": "day", "wk": "week", "mon": "month", "y": "year", "yr": "year"}
_SHORT |= {"common_year": "year"}
_MONTHS = {"month": 1, "year": 12}
"""Units that follow the calendar: CF warns of their mean length, and users mean dates."""
_UNITS = re.compile(r"\s*([A-Za-z_]+)\s+since\s+(.+?)\s*", re.IGNORECASE)
_START = re.compile(
    r"(\d+)-(\d+)-(\d+)(?:[T ]+(\d+):(\d+)(?::(\d+(?:\.\d*)?))?)?"
    r"\s*(?:UTC|GMT|Z|([+-]?)(\d{1,2}):?(\d{2})?)?",
    re.IGNORECASE,
)
_DAY = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_REFORMED = (dt.datetime(1582, 10, 15, tzinfo=dt.UTC) - _EPOCH) // dt.timedelta(microseconds=1)
_PROLEPTIC = "proleptic_gregorian"

Step = int | float | str | dt.datetime | dt.date | np.datetime64
"""A time step: an int counts steps from 0 (or from the end, if negative), a float is a value of
``time_cf``, and anything else is a point in time."""


@dataclass(frozen=True, slots=True, eq=False)
class TimeAxis:
    """The time steps of a file, in chronological order."""

    values: npt.NDArray[np.float64]
    """``time_cf`` of each step."""
    stamps: npt.NDArray[np.datetime64]
    """The same as instants in UTC; NaT if the calendar has none."""
    units: str
    """CF units: ``days since 2000-01-01 00:00:00``."""
    calendar: str

    def __len__(self) -> int:
        return len(self.values)

    def index(self, step: Step | None, where: str) -> int:
        """Number of a step, from 0.

        Raises
        ------
        InvalidInputError
            There is no such step, or `step` is None and there are several.
        """
        count = len(self.values)
        if step is None:
            if count == 1:
                return 0
            raise InvalidInputError(
                "no time step is chosen",
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


def axis_of(
    values: npt.NDArray[np.float64],
    stamps: npt.NDArray[np.datetime64],
    tiles: npt.NDArray[np.bool_],
    described: Mapping[str, Any] | None,
) -> tuple[TimeAxis, npt.NDArray[np.int64]]:
    """The time axis, and the step number of each row.

    `values` and `stamps` are ``time_cf`` and ``time_ts`` of all rows, `tiles` marks the rows that
    are tiles, and `described` is ``time`` of the document, which tells instants that no row has.
    """
    found = np.unique(values[tiles])
    numbers = np.searchsorted(found, np.where(tiles, values, found[0] if len(found) else 0.0))
    axis = np.full(len(found), np.datetime64("NaT", "us"))
    axis[numbers[tiles][::-1]] = stamps[tiles][::-1]
    axis = np.where(np.isnat(axis), stamps_of(found, described), axis)
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


def stamps_of(
    values: npt.NDArray[np.float64], described: Mapping[str, Any] | None
) -> npt.NDArray[np.datetime64]:
    """Instants of ``time_cf`` by ``time`` of the document; NaT where that has none."""
    named = described or {}
    units, calendar = named.get("cf:units"), named.get("cf:calendar") or "standard"
    stamps = np.full(len(values), np.datetime64("NaT", "us"))
    known = np.isfinite(values)
    distinct = np.unique(values[known])
    with suppress(InvalidInputError):  # unknown units are kept as they are
        instants = instants_of(distinct.tolist(), str(units), str(calendar).lower())
        told = np.array(instants, "datetime64[us]")
        stamps[known] = told[np.searchsorted(distinct, values[known])]
    return stamps


# -- writing --------------------------------------------------------------------------------------


def time_columns(axis: TimeAxis | None, steps: npt.NDArray[np.integer[Any]]) -> tuple[Any, Any]:
    """``time_cf`` and ``time_ts`` of tiles with these steps; None without a time axis."""
    return (None, None) if axis is None else (axis.values[steps], axis.stamps[steps])


def time_document(axis: TimeAxis) -> dict[str, Any]:
    """The ``time`` object of the metadata (0.2.0 and later)."""
    found: dict[str, Any] = {"cf:units": axis.units, "cf:calendar": axis.calendar}
    resolution = _resolution(axis.stamps)
    if resolution is not None:
        found["resolution"] = resolution
    found["interpretation"] = "period_start"
    found["count"] = len(axis)
    found["range"] = [float(axis.values.min()), float(axis.values.max())]
    return found


def _resolution(stamps: npt.NDArray[np.datetime64]) -> str | None:
    """ISO 8601 duration between steps; None unless they are equally spaced."""
    gaps = np.unique(np.diff(stamps).astype(np.int64))
    if len(gaps) != 1 or np.isnat(stamps).any():
        return None
    gap = int(gaps[0])
    for size, mark in ((_DAY, "P{}D"), (3_600_000_000, "PT{}H"), (60_000_000, "PT{}M")):
        if gap > 0 and gap % size == 0:
            return mark.format(gap // size)
    return f"PT{gap / 1e6:g}S" if gap > 0 else None


def time_axis(values: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> TimeAxis:
    """The axis of some times: instants (`datetime`, numpy, text), dates of cftime, or CF numbers.

    `attributes` may hold ``units`` and ``calendar`` of CF: numbers need units; for other times
    they choose the units to write. Calendars other than the standard one need cftime.
    """
    if len(values) == 0:
        raise InvalidInputError("no times", expected="one for each step")
    named = dict(attributes or {})
    calendar = str(
        named.get("calendar") or getattr(values[0], "calendar", "") or "standard"
    ).lower()
    if calendar not in CALENDARS:
        raise InvalidInputError("unknown calendar", found=calendar, expected=", ".join(CALENDARS))
    units = named.get("units")
    if all(isinstance(value, int | float | np.integer | np.floating) for value in values):
        if not units:
            raise InvalidInputError(
                "the times are numbers without units",
                hint="pass dates, or numbers with CF units",
            )
        cf = tuple(float(value) for value in values)
        instants = instants_of(cf, str(units), calendar)
    elif hasattr(values[0], "calendar"):
        cf, units = _cftime_numbers(values, units, calendar)
        instants = instants_of(cf, str(units), calendar)
    else:
        scalars = (
            one.item() if isinstance(one, np.ndarray) and one.ndim == 0 else one for one in values
        )
        found = [parse_instant(value) for value in scalars]
        instants = [*found]
        if min(found) < _REFORMED and not named.get("calendar"):
            # These dates are Gregorian; before the reform those of the standard calendar are not.
            calendar = _PROLEPTIC
        unit = "days" if all(one % _DAY == 0 for one in found) else "seconds"
        units = units or f"{unit} since 1970-01-01 00:00:00"
        cf = numbers_of(found, str(units), calendar)
    if len(set(cf)) != len(cf):
        raise InvalidInputError("several steps have the same time", found=len(cf) - len(set(cf)))
    stamps = np.array(instants, "datetime64[us]")
    return TimeAxis(np.array(cf), stamps, str(units), calendar)


def _parsed_units(units: str) -> tuple[str, dt.datetime]:
    """The unit, and its reference time."""
    match = _UNITS.fullmatch(units)
    if match is None:
        raise InvalidInputError("not CF units", found=units, expected="'days since 2000-01-01'")
    name = match[1].lower()
    name = _SHORT.get(name) or _SHORT.get(name.removesuffix("s")) or name.removesuffix("s")
    if name not in _SECONDS and name not in _MONTHS:
        raise InvalidInputError(
            "unknown unit of time", found=match[1], expected=", ".join((*_SECONDS, *_MONTHS))
        )
    return name, _start(match[2], units)


def _start(text: str, units: str) -> dt.datetime:
    """The reference time of CF units, whose fields may have one digit."""
    match = _START.fullmatch(text)
    expected = "a date such as 2000-01-01 00:00:00"
    if match is None:
        instant = parse_instant(text, f"units {units}")
        return _EPOCH + dt.timedelta(microseconds=instant)
    year, month, day, hour, minute = (int(part or 0) for part in match.groups()[:5])
    # UDUNITS: a time zone is hours and minutes east of Greenwich.
    ahead = dt.timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
    try:
        moment = dt.datetime(year, month, day, hour, minute, tzinfo=dt.UTC)
        moment += dt.timedelta(seconds=float(match[6] or 0))
        return moment + ahead if match[7] == "-" else moment - ahead
    except (ValueError, OverflowError) as error:
        raise InvalidInputError("not CF units", found=units, expected=expected) from error


def instants_of(cf: Sequence[float], units: str, calendar: str) -> list[int | None]:
    """CF numbers as microseconds since 1970.

    None in calendars other than `STANDARD`, for Julian dates, and for years out of the range of
    dates.
    Months and years are calendar months and years.

    Raises
    ------
    InvalidInputError
        The units are invalid, or a number is a fraction of a month.
    """
    if calendar not in STANDARD:
        return [None] * len(cf)
    name, start = _parsed_units(units)
    if name in _MONTHS:
        return [_month(start, value * _MONTHS[name], units) for value in cf]
    first = _first(start, calendar)
    found = [first + round(value * _SECONDS[name] * 1e6) for value in cf]
    least = 1 - 2**63 if calendar == _PROLEPTIC else _REFORMED
    return [one if least < one < 2**63 - 1 else None for one in found]


def _first(start: dt.datetime, calendar: str) -> int:
    """A reference time in microseconds since 1970.

    Before 1582-10-15 the standard calendar of CF is the Julian one, as for days since year 1.
    """
    first = (start - _EPOCH) // dt.timedelta(microseconds=1)
    if calendar == _PROLEPTIC or first >= _REFORMED:
        return first
    century = (start.year - (start.month < 3)) // 100
    return first + (century - century // 4 - 2) * _DAY


def _month(start: dt.datetime, months: float, units: str) -> int | None:
    if months != int(months):
        raise InvalidInputError(
            "the time is a fraction of a month",
            found=f"{months} months, {units}",
            expected="a unit of days or shorter",
        )
    year, month = divmod(start.year * 12 + start.month - 1 + int(months), 12)
    try:
        moment = start.replace(year=year, month=month + 1)
    except ValueError:  # no such day, or a year out of range
        return None
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def numbers_of(instants: Sequence[int], units: str, calendar: str) -> tuple[float, ...]:
    """Microseconds since 1970 as CF numbers, in units of fixed length."""
    name, start = _parsed_units(units)
    if name in _MONTHS:
        raise InvalidInputError(
            "the unit of time has no fixed length",
            found=units,
            expected="a unit of days or shorter",
        )
    first = _first(start, calendar)
    return tuple((one - first) / 1e6 / _SECONDS[name] for one in instants)


def _cftime_numbers(
    values: Sequence[Any], units: Any, calendar: str
) -> tuple[tuple[float, ...], str]:
    try:
        cftime: Any = import_module("cftime")  # only for calendars of models
    except ImportError as error:
        raise MissingExtraError.of("cftime", "xarray", f"calendar {calendar}") from error
    units = str(units or "days since 1970-01-01 00:00:00")
    numbers = cftime.date2num(list(values), units, calendar)
    return tuple(float(number) for number in np.atleast_1d(numbers)), units
