"""Times of entries: exact ones of an extra field where there are any, else MS-DOS in UTC."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal.ziparchive import Directory
from comal.ziparchive.headers import extra_field

UT_ID: Final = 0x5455
"""The "extended timestamp" field of Info-ZIP: a byte of flags and seconds since 1970."""


def modified_times(directory: Directory) -> npt.NDArray[np.int64]:
    """When each entry changed last, in seconds since 1970, UTC; 0 where nothing is said."""
    times = dos_seconds(directory.date, directory.time)
    if directory.extras is not None:
        for row, extra in enumerate(directory.extras.to_pylist()):
            exact = ut_seconds(extra)
            if exact is not None:
                times[row] = exact
    return times


def dos_seconds(dates: Any, times: Any) -> npt.NDArray[np.int64]:
    """MS-DOS dates and times, taken as UTC, in seconds since 1970; 0 for what is no date."""
    if len(dates) == 0:
        return np.zeros(0, np.int64)
    both = np.asarray(dates).astype(np.uint32) << np.uint32(16) | np.asarray(times)
    if (both == both[0]).all():
        return np.full(len(both), dos_moment(int(dates[0]), int(times[0])), np.int64)
    distinct, which = np.unique(both, return_inverse=True)
    seconds: npt.NDArray[np.int64] = _all(distinct)[which]
    return seconds


def _all(both: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    date, time = (both >> np.uint32(16)).astype(np.int64), (both & 0xFFFF).astype(np.int64)
    year, month, day = (date >> 9) + 1980, (date >> 5) & 15, date & 31
    hour, minute, second = time >> 11, (time >> 5) & 63, (time & 31) * 2
    months = (year - 1970) * 12 + month - 1
    days = months.astype("M8[M]").astype("M8[D]").astype(np.int64) + day - 1
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second
    real = (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60)
    found: npt.NDArray[np.int64] = np.where(real, seconds, 0)
    return found


@lru_cache(maxsize=256)
def dos_moment(date: int, time: int) -> int:
    """As `dos_seconds`, for one entry."""
    return int(_all(np.array([date << 16 | time], np.uint32))[0])


def ut_seconds(extra: bytes) -> int | None:
    """The time of the last change in an extended timestamp field, or None."""
    field = extra_field(extra, UT_ID)
    if field is None or len(field) < 5 or not field[0] & 1:
        return None
    seconds: int = struct.unpack_from("<i", field, 1)[0]
    return max(seconds, 0)


def ut_field(seconds: int) -> bytes:
    """An extended timestamp field with the time of the last change, for both headers."""
    return struct.pack("<HHBi", UT_ID, 5, 1, seconds)


def dos_of(seconds: int) -> tuple[int, int]:
    """Date and time of MS-DOS for seconds since 1970, UTC; its first and last day at the ends."""
    moment = np.datetime64(min(max(seconds, 315_532_800), 4_354_819_198), "s").item()
    date = (moment.year - 1980) << 9 | moment.month << 5 | moment.day
    time = moment.hour << 11 | moment.minute << 5 | moment.second // 2
    return date, time
