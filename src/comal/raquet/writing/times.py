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
_SHORT = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second"} | {
    "min": "minute",
    "h": "hour",
    "hr": "hour",
    "d": "day",
}
_UNITS = re.compile(r"\s*([A-Za-z]+)\s+since\s+(.+?)\s*")
_START = re.compile(r"(\d+)-(\d+)-(\d+)(?:[T ](\d+):(\d+)(?::(\d+(?:\.\d*)?))?)?(?: .*)?")
_DAY = 86_400_000_000


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
        instants = tuple(_instants_of(cf, str(units), calendar))
    elif hasattr(values[0], "calendar"):
        cf, units = _cftime_numbers(values, units, calendar)
        instants = tuple(
            _instants_of(cf, str(units), calendar) if calendar in STANDARD else [None] * len(cf)
        )
    else:
        found = [parse_instant(_plain(value)) for value in values]
        instants = tuple(found)
        units = units or _units_for(found)
        size, start = _parsed_units(str(units))
        cf = tuple((one - start) / 1e6 / size for one in found)
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


def _parsed_units(units: str) -> tuple[float, int]:
    """Seconds of a unit, and the instant from which it counts."""
    match = _UNITS.fullmatch(units)
    if match is None:
        raise InvalidInputError("not CF units", found=units, expected="'days since 2000-01-01'")
    name = match[1].lower()
    name = _SHORT.get(name, name.removesuffix("s"))
    if name not in _SECONDS:
        raise InvalidInputError(
            "unit of time without a fixed length", found=match[1], expected="days or shorter"
        )
    text = match[2].removesuffix("UTC").removesuffix("Z").strip()
    return _SECONDS[name], parse_instant(_start(text))


def _start(text: str) -> Any:
    """The instant of CF units, whose fields may have one digit."""
    match = _START.fullmatch(text)
    if match is None:
        return text
    year, month, day, hour, minute = (int(part or 0) for part in match.groups()[:5])
    second = float(match[6] or 0)
    moment = dt.datetime(year, month, day, hour, minute, tzinfo=dt.UTC)
    return moment + dt.timedelta(seconds=second)


def _instants_of(cf: Sequence[float], units: str, calendar: str) -> list[int | None]:
    if calendar not in STANDARD:
        return [None] * len(cf)
    size, start = _parsed_units(units)
    return [start + round(value * size * 1e6) for value in cf]


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
