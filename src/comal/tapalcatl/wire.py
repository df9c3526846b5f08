"""Entry names ``{z}/{x}/{y}[@{scale}x][.{ext}]``, one or a whole directory at a time; entry times.

The text after the row is the suffix: ``@2x.png``, ``.mvt``, or nothing. A directory holds few
different suffixes, so its names become arrays of numbers with a suffix code each. Times come from
an extra field with exact times if there is one, else from the MS-DOS fields, taken as UTC.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, shown
from comal.grid.quadbin import deinterleave, interleave
from comal.table.columns import numbers_of
from comal.tapalcatl.spec import MAX_ZOOM, Tile
from comal.ziparchive import Directory
from comal.ziparchive.directory import extra_field, slices
from comal.ziparchive.headermaking import value_bytes, value_offsets

Int64s = npt.NDArray[np.int64]
Keys = tuple[Int64s, Int64s, Int64s]
"""Zooms, columns and rows of some tiles, arrays of shape (n,)."""

_NUMBER = r"(0|[1-9][0-9]{0,9})"
_SUFFIX = r"(?:@([0-9]{1,6}(?:\.[0-9]{1,6})?)x)?(?:\.([0-9A-Za-z_+-]{1,32}))?"
_NAME_RE = re.compile(f"{_NUMBER}/{_NUMBER}/{_NUMBER}({_SUFFIX})")
_VARIANT_RE: Final = re.compile(r"[A-Za-z_-][\w.-]*(/[A-Za-z_-][\w.-]*)*", re.ASCII)
_SUFFIX_RE = re.compile(_SUFFIX)
_SHORT = 16
"""Suffixes up to this length are compared byte by byte if all have the same length."""

BASES: Final[tuple[int, ...]] = tuple((4**z - 1) // 3 for z in range(MAX_ZOOM + 2))
"""Number of tiles above each zoom, which is also the key of the zoom's first tile."""
_BASES = np.array(BASES, np.int64)
_LEAST = np.array([0, 0, *(10**size for size in range(1, 10))], np.int64)


def tile_key(z: int, x: int, y: int) -> int:
    """A tile as one integer below 2 ** 62: ordered by zoom, then column, then row."""
    return BASES[z] + (x << z) + y


def tile_keys(z: Any, x: Any, y: Any) -> Int64s:
    """As `tile_key` for arrays."""
    zs = np.asarray(z, np.int64)
    keys: Int64s = _BASES[zs] + (np.asarray(x, np.int64) << zs) + np.asarray(y, np.int64)
    return keys


def key_tiles(keys: Int64s) -> Keys:
    """Zooms, columns and rows of `tile_keys`."""
    z = np.searchsorted(_BASES, keys, side="right").astype(np.int64) - 1
    rest = keys - _BASES[z]
    return z, rest >> z, rest & ((np.int64(1) << z) - 1)


def order_of(z: Any, x: Any, y: Any) -> Int64s:
    """Tiles as integers below 2 ** 62 in the order of archives: by zoom, then Morton code."""
    codes: Int64s = _BASES[np.asarray(z, np.int64)] + interleave(x, y)
    return codes


def tiles_in(order: Int64s) -> Keys:
    """The tiles of `order_of`."""
    z = np.searchsorted(_BASES, order, side="right") - 1
    return (z.astype(np.int64), *deinterleave(order - _BASES[z]))


def key_tile(key: int) -> Tile:
    """The tile of a `tile_key`."""
    z = bisect_right(BASES, key) - 1
    rest = key - BASES[z]
    return z, rest >> z, rest & ((1 << z) - 1)


def suffix_of(scale: float, ext: str) -> str:
    """The text after the row in a name, such as ``@2x.png``; a scale of 1 is not written.

    `ext` is without its dot and may be empty.
    """
    dotted = f".{ext}" if ext else ""
    if scale == 1:
        return dotted
    if not 0 < scale < 1e6:
        raise InvalidInputError("not a scale", found=scale, expected="a number above 0")
    return f"@{int(scale) if scale == int(scale) else scale}x{dotted}"


@lru_cache(maxsize=256)
def is_suffix(suffix: str) -> bool:
    """Whether this can follow the row in the name of a tile."""
    return _SUFFIX_RE.fullmatch(suffix) is not None


@lru_cache(maxsize=256)
def split_suffix(suffix: str) -> tuple[float, str]:
    """Scale and extension of a suffix."""
    match = _SUFFIX_RE.fullmatch(suffix)
    if match is None:
        raise InvalidInputError("not the end of a tile's name", found=shown(suffix))
    scale = float(match[1]) if match[1] else 1.0
    return int(scale) if scale == int(scale) else scale, match[2] or ""


def parse_name(name: str) -> tuple[Tile, str] | None:
    """Tile and suffix of a name, or None if it is not the name of a tile."""
    match = _NAME_RE.fullmatch(name)
    if match is None:
        return None
    z, x, y = int(match[1]), int(match[2]), int(match[3])
    if z > MAX_ZOOM or max(x, y) >> z:
        return None
    return (z, x, y), match[4]


def scales_of(suffixes: Iterable[str]) -> tuple[float, float]:
    """The smallest and largest scale of some suffixes; 1 if there are none."""
    scales = [split_suffix(suffix)[0] for suffix in suffixes] or [1]
    return min(scales), max(scales)


def variant_prefix(variant: str | None) -> bytes:
    """The prefix of a variant's names; empty for tiles without variant."""
    return f"{variant.strip('/')}/".encode() if variant else b""


def new_variant(variant: str) -> str:
    """The name of a variant to write, checked and without leading or trailing slashes."""
    name = variant.strip("/")
    if not _VARIANT_RE.fullmatch(name):
        raise InvalidInputError(
            "the name of a variant cannot be used",
            found=shown(variant),
            expected="letters, digits, '-', '_', '.' and slashes between parts, such as 'dark'",
        )
    return name


@dataclass(frozen=True, slots=True)
class TileNames:
    """The entries of a directory that are tiles; arrays of shape (m,), in directory order."""

    rows: Int64s
    """Rows of these entries in the directory."""
    z: Int64s
    x: Int64s
    y: Int64s
    suffix: npt.NDArray[np.int32]
    """Index into `suffixes`."""
    suffixes: tuple[str, ...]
    """Every suffix that occurs, in order of first occurrence."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> Int64s:
        """The tiles as `tile_keys`."""
        return tile_keys(self.z, self.x, self.y)


def parse_names(names: Any, prefix: bytes = b"") -> TileNames:
    """The tiles among the names of a directory, an Arrow binary or string array.

    Names that do not begin with `prefix`, a variant's name with its slash, are skipped.
    """
    offsets = value_offsets(names).astype(np.int64)
    data = np.frombuffer(value_bytes(names), np.uint8)
    offsets = offsets - offsets[0]
    rows = np.arange(len(names))
    starts, stops = offsets[:-1], offsets[1:]
    if prefix:
        rows = rows[_begins_with(data, starts, stops, prefix)]
        starts, stops = starts[rows] + len(prefix), stops[rows]
    slashes = np.flatnonzero(data == 0x2F)
    kept, first, second = _two_slashes(slashes, starts, stops)
    if kept is not None:
        rows, starts, stops = rows[kept], starts[kept], stops[kept]
    marks = _first_mark(data, second, stops)
    z, good = _numbers(data, starts, first, 2)
    for_x, good_x = _numbers(data, first + 1, second, 10)
    for_y, good_y = _numbers(data, second + 1, marks, 10)
    good &= good_x & good_y & (z <= MAX_ZOOM)
    good &= (np.maximum(for_x, for_y) >> np.minimum(z, 62)) == 0
    codes, suffixes = _suffixes(data, marks, stops, good)
    good &= codes >= 0
    if good.all():
        return TileNames(rows, z, for_x, for_y, codes, suffixes)
    return TileNames(rows[good], z[good], for_x[good], for_y[good], codes[good], suffixes)


def _begins_with(
    data: npt.NDArray[np.uint8], starts: Int64s, stops: Int64s, prefix: bytes
) -> npt.NDArray[np.bool_]:
    same = (stops - starts) >= len(prefix)
    if not len(data):
        return same
    last = len(data) - 1
    for at, byte in enumerate(prefix):
        same &= data[np.minimum(starts + at, last)] == byte
    return same


def _two_slashes(
    slashes: Int64s, starts: Int64s, stops: Int64s
) -> tuple[Int64s | None, Int64s, Int64s]:
    """Rows of the names with exactly two slashes (None for all), and offsets of both slashes."""
    if len(slashes) == 2 * len(starts):
        first, second = slashes[0::2], slashes[1::2]
        if (first >= starts).all() and (second < stops).all():
            return None, first, second
    before = np.searchsorted(slashes, starts)
    kept = np.flatnonzero(np.searchsorted(slashes, stops) - before == 2)
    return kept, slashes[before[kept]], slashes[before[kept] + 1]


def _first_mark(data: npt.NDArray[np.uint8], after: Int64s, stops: Int64s) -> Int64s:
    """Where the suffix of each name begins: its first ``.`` or ``@`` after the second slash."""
    marks = np.flatnonzero((data == 0x2E) | (data == 0x40))
    if len(marks) == len(stops) and (marks > after).all() and (marks < stops).all():
        return marks
    at = np.searchsorted(marks, after)
    padded = np.append(marks, np.iinfo(np.int64).max)
    found: Int64s = np.minimum(padded[at], stops)
    return found


def _numbers(
    data: npt.NDArray[np.uint8], starts: Int64s, stops: Int64s, most: int
) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Decimal numbers of up to `most` digits without leading zeros, and a mask of the valid ones.

    Values that are not valid are arbitrary, but below 10 ** 12.
    """
    sizes = stops - starts
    good = (sizes >= 1) & (sizes <= most)
    values = np.zeros(len(sizes), np.int64)
    if not len(sizes):
        return values, good
    shortest, longest = int(sizes.min()), min(int(sizes.max()), most)
    for place in range(longest):
        rows = slice(None) if place < shortest else np.flatnonzero(sizes > place)
        digits = data[stops[rows] - (1 + place)] - np.uint8(0x30)
        good[rows] &= digits < 10
        values[rows] += digits * np.int64(10**place)
    # The smallest number with that many digits: no leading zeros.
    return values, good & (values >= _LEAST[np.clip(sizes, 0, most)])


def _suffixes(
    data: npt.NDArray[np.uint8], marks: Int64s, stops: Int64s, good: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int32], tuple[str, ...]]:
    """A suffix code for each name, -1 if its suffix is not valid; and the suffixes by code."""
    sizes = stops - marks
    same = _all_alike(data, marks, sizes) if good.all() else None
    if same is not None:
        valid = _SUFFIX_RE.fullmatch(same) is not None
        return np.full(len(sizes), 0 if valid else -1, np.int32), (same,) if valid else ()
    codes = np.full(len(sizes), -1, np.int32)
    suffixes: dict[str, int] = {}
    rows = np.flatnonzero(good)
    found = slices(data.tobytes(), marks[rows], sizes[rows]).dictionary_encode()
    table = np.full(len(found.dictionary), -1, np.int32)
    for place, suffix in enumerate(found.dictionary.to_pylist()):
        text = suffix.decode("latin-1")
        if _SUFFIX_RE.fullmatch(text):
            table[place] = suffixes.setdefault(text, len(suffixes))
    codes[rows] = table[numbers_of(found.indices)]
    return codes, tuple(suffixes)


def _all_alike(data: npt.NDArray[np.uint8], marks: Int64s, sizes: Int64s) -> str | None:
    """The suffix of all names if they share a short one, which is the usual case."""
    size = int(sizes[0]) if len(sizes) else _SHORT + 1
    if size > _SHORT or not (sizes == size).all():
        return None
    first = data[marks[0] : marks[0] + size]
    for at in range(size):
        if not (data[marks + at] == first[at]).all():
            return None
    return bytes(first).decode("latin-1")


UT_ID: Final = 0x5455
"""The "extended timestamp" field of Info-ZIP: a byte of flags and seconds since 1970."""


def modified_times(directory: Directory) -> npt.NDArray[np.int64]:
    """When each entry was last modified, in seconds since 1970 UTC; 0 if unknown."""
    times = dos_seconds(directory.date, directory.time)
    if directory.extras is not None:
        for row, extra in enumerate(directory.extras.to_pylist()):
            exact = ut_seconds(extra)
            if exact is not None:
                times[row] = exact
    return times


def dos_seconds(dates: Any, times: Any) -> npt.NDArray[np.int64]:
    """MS-DOS dates and times, taken as UTC, in seconds since 1970; 0 for invalid dates."""
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
    """The modification time in an extended timestamp field, or None."""
    field = extra_field(extra, UT_ID)
    if field is None or len(field) < 5 or not field[0] & 1:
        return None
    seconds: int = struct.unpack_from("<i", field, 1)[0]
    return max(seconds, 0)


def ut_field(seconds: int) -> bytes:
    """An extended timestamp field with the modification time, for both headers."""
    return struct.pack("<HHBi", UT_ID, 5, 1, seconds)


def dos_of(seconds: int) -> tuple[int, int]:
    """MS-DOS date and time for seconds since 1970 UTC, clamped to the range of MS-DOS dates."""
    moment = np.datetime64(min(max(seconds, 315_532_800), 4_354_819_198), "s").item()
    date = (moment.year - 1980) << 9 | moment.month << 5 | moment.day
    time = moment.hour << 11 | moment.minute << 5 | moment.second // 2
    return date, time
