"""Steps in time as CF numbers and as instants."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

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
"""Units that are counted on the calendar: CF warns of their mean length, and users mean dates."""
_UNITS = re.compile(r"\s*([A-Za-z_]+)\s+since\s+(.+?)\s*", re.IGNORECASE)
_START = re.compile(
    r"(\d+)-(\d+)-(\d+)(?:[T ]+(\d+):(\d+)(?::(\d+(?:\.\d*)?))?)?"
    r"\s*(?:UTC|GMT|Z|([+-]?)(\d{1,2}):?(\d{2})?)?",
    re.IGNORECASE,
)
_DAY = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """The steps of a time series."""

    units: str
    """``days since 2000-01-01 00:00:00``."""
    calendar: str
    cf: tuple[float, ...]
    """CF number of each step."""
    instants: tuple[int | None, ...]
    """Microseconds since 1970; None in calendars that are not of this world."""

    def document(self) -> dict[str, Any]:
        """The ``time`` object of the metadata (0.2.0 and later)."""
        found: dict[str, Any] = {"cf:units": self.units, "cf:calendar": self.calendar}
        resolution = self._resolution()
        if resolution is not None:
            found["resolution"] = resolution
        found["interpretation"] = "period_start"
        found["count"] = len(self.cf)
        found["range"] = [min(self.cf), max(self.cf)]
        return found

    def _resolution(self) -> str | None:
        """ISO 8601 duration between the steps when all are equally far apart."""
        if len(self.cf) < 2 or None in self.instants:
            return None
        gaps = set(np.diff(np.array(self.instants, np.int64)).tolist())
        if len(gaps) != 1:
            return None
        gap = gaps.pop()
        for size, mark in ((_DAY, "P{}D"), (3_600_000_000, "PT{}H"), (60_000_000, "PT{}M")):
            if gap > 0 and gap % size == 0:
                return mark.format(gap // size)
        return f"PT{gap / 1e6:g}S" if gap > 0 else None


def time_axis(values: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> TimeAxis:
    """The axis of some times.

    Parameters
    ----------
    values
        Instants (`datetime`, numpy, text), dates of cftime, or CF numbers.
    attributes
        ``units`` and ``calendar`` of CF: needed for numbers, else the wish how to count.

    Raises
    ------
    InvalidInputError
        What is no time, a time twice, or numbers without units.
    MissingExtraError
        Calendars other than the usual one need cftime.
    """
    if len(values) == 0:
        raise InvalidInputError("no times", expected="one for each step")
    named = dict(attributes or {})
    calendar = str(named.get("calendar") or _calendar_of(values)).lower()
    if calendar not in CALENDARS:
        raise InvalidInputError("unknown calendar", found=calendar, expected=", ".join(CALENDARS))
    units = named.get("units")
    if _numbers(values):
        if not units:
            raise InvalidInputError(
                "times are numbers without units", hint="give them as dates, or with CF units"
            )
        cf = tuple(float(value) for value in values)
        instants = tuple(instants_of(cf, str(units), calendar))
    elif hasattr(values[0], "calendar"):
        cf, units = _cftime_numbers(values, units, calendar)
        instants = tuple(
            instants_of(cf, str(units), calendar) if calendar in STANDARD else [None] * len(cf)
        )
    else:
        found = [parse_instant(_plain(value)) for value in values]
        instants = tuple(found)
        units = units or _units_for(found)
        cf = numbers_of(found, str(units))
    if len(set(cf)) != len(cf):
        raise InvalidInputError("two steps have the same time", found=len(cf) - len(set(cf)))
    return TimeAxis(str(units), calendar, cf, instants)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _numbers(values: Sequence[Any]) -> bool:
    kinds = int | float | np.integer | np.floating
    return all(isinstance(value, kinds) for value in values)


def _calendar_of(values: Sequence[Any]) -> str:
    return str(getattr(values[0], "calendar", "") or "standard")


def _units_for(instants: list[int]) -> str:
    whole = all(one % _DAY == 0 for one in instants)
    return f"{'days' if whole else 'seconds'} since 1970-01-01 00:00:00"


def _parsed_units(units: str) -> tuple[str, dt.datetime]:
    """A unit, and the moment from which it counts."""
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
    """The moment of CF units, whose fields may have one digit."""
    match = _START.fullmatch(text)
    expected = "a date such as 2000-01-01 00:00:00"
    if match is None:
        instant = parse_instant(text, f"units {units}")
        return _EPOCH + dt.timedelta(microseconds=instant)
    year, month, day, hour, minute = (int(part or 0) for part in match.groups()[:5])
    # UDUNITS: a zone is hours and minutes east of Greenwich.
    ahead = dt.timedelta(hours=int(match[8] or 0), minutes=int(match[9] or 0))
    try:
        moment = dt.datetime(year, month, day, hour, minute, tzinfo=dt.UTC)
        moment += dt.timedelta(seconds=float(match[6] or 0))
        return moment + ahead if match[7] == "-" else moment - ahead
    except (ValueError, OverflowError) as error:
        raise InvalidInputError("not CF units", found=units, expected=expected) from error


def instants_of(cf: Sequence[float], units: str, calendar: str) -> list[int | None]:
    """CF numbers as microseconds since 1970.

    None in calendars that are not of this world, and for what lies beyond the years that a date
    has. Months and years are those of the calendar.

    Raises
    ------
    InvalidInputError
        Units that are none, or a part of a month.
    """
    if calendar not in STANDARD:
        return [None] * len(cf)
    name, start = _parsed_units(units)
    if name in _MONTHS:
        return [_month(start, value * _MONTHS[name], units) for value in cf]
    first = (start - _EPOCH) // dt.timedelta(microseconds=1)
    found = [first + round(value * _SECONDS[name] * 1e6) for value in cf]
    return [one if abs(one) < 2**63 - 1 else None for one in found]


def _month(start: dt.datetime, months: float, units: str) -> int | None:
    if months != int(months):
        raise InvalidInputError(
            "part of a month", found=f"{months} months, {units}", expected="days or shorter"
        )
    year, month = divmod(start.year * 12 + start.month - 1 + int(months), 12)
    try:
        moment = start.replace(year=year, month=month + 1)
    except ValueError:  # no such day, or a year that a date does not have
        return None
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def numbers_of(instants: Sequence[int], units: str) -> tuple[float, ...]:
    """Microseconds since 1970 as CF numbers.

    Raises
    ------
    InvalidInputError
        Units that are none, or whose length changes.
    """
    name, start = _parsed_units(units)
    if name in _MONTHS:
        raise InvalidInputError(
            "unit of time without a fixed length", found=units, expected="days or shorter"
        )
    first = (start - _EPOCH) // dt.timedelta(microseconds=1)
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
