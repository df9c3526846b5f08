"""Statistics of pixels in areas, tile by tile, merged without loss.

Quantiles and frequencies are exact, from sorted counts of the values in each area. If there are too
many distinct values for memory, values are first counted by their leading bits; tiles are then read
again for the few ranges that contain a quantile. Frequencies have no such fallback.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, LimitExceededError, shown
from comal.geo.scanline import Spans

Ints = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Moments:
    """For each of n areas: count, sum, mean, squared deviations, minimum and maximum.

    With weights, `count` is the sum of the weights of valid pixels, in pixels.
    """

    count: Floats
    sum: Floats
    mean: Floats
    squares: Floats
    """Sum of squared deviations from the mean."""
    min: Floats
    max: Floats

    @classmethod
    def empty(cls, n: int) -> Moments:
        """The moments of no pixels."""
        zero = np.zeros(n)
        return cls(
            zero, zero.copy(), zero.copy(), zero.copy(), np.full(n, np.inf), np.full(n, -np.inf)
        )

    @classmethod
    def stacked(cls, parts: Sequence[Moments]) -> Moments:
        """The areas of all parts, concatenated."""
        columns = ([getattr(part, one.name) for part in parts] for one in fields(cls))
        return cls(*(np.concatenate([np.empty(0), *column]) for column in columns))

    @np.errstate(over="ignore", invalid="ignore")  # sums beyond all floats
    def merge(self, rows: Any, other: Moments) -> None:
        """Add the moments of other pixels to the areas `rows` (Chan, Golub and LeVeque)."""
        count = self.count[rows] + other.count
        some = np.maximum(count, np.finfo(np.float64).tiny)
        shift = other.mean - self.mean[rows]
        share = other.count / some
        self.squares[rows] += other.squares + shift * shift * self.count[rows] * share
        self.mean[rows] += shift * share
        self.sum[rows] += other.sum
        self.count[rows] = count
        self.min[rows] = np.minimum(self.min[rows], other.min)
        self.max[rows] = np.maximum(self.max[rows], other.max)

    def column(self, name: str) -> Floats:
        """One of `STATISTICS` for every area; NaN if no pixel is valid, except 0 for counts."""
        if name == "count":
            return self.count
        with np.errstate(invalid="ignore", divide="ignore"):
            values = _FORMULAS[name](self)
        return np.where(self.count > 0, values, np.nan)


_FORMULAS: dict[str, Any] = {
    "sum": lambda found: found.sum,
    "mean": lambda found: found.mean,
    "min": lambda found: found.min,
    "max": lambda found: found.max,
    "range": lambda found: found.max - found.min,
    "variance": lambda found: found.squares / found.count,
    "stddev": lambda found: np.sqrt(found.squares / found.count),
    "stddev_sample": lambda found: np.sqrt(
        np.where(found.count > 1, found.squares / (found.count - 1), np.nan)
    ),
}
STATISTICS = ("count", *_FORMULAS)
"""Statistics of `Moments.column`; ``stddev`` and ``variance`` are those of the population."""


def of_tile(values: Any, valid: Bools) -> Moments:
    """Moments of an entire tile, as a single area."""
    found = Moments.empty(1)
    pixels = values[valid]
    if len(pixels):
        floats = pixels.astype(np.float64)
        mean = floats.mean()
        off = floats - mean
        # The second term corrects for rounding of the mean.
        squares = (off * off).sum() - off.sum() ** 2 / len(off)
        parts = (len(off), _sum(pixels, floats), mean, squares, floats.min(), floats.max())
        found = Moments(*(np.array([float(part)]) for part in parts))
    return found


def _sum(pixels: Any, floats: Floats) -> float:
    small = pixels.dtype.kind in "iub" and pixels.dtype.itemsize <= 4
    return float(pixels.sum(dtype=np.int64)) if small else float(floats.sum())


@np.errstate(over="ignore", invalid="ignore")  # extreme pixels outside of the areas
def of_spans(values: Any, valid: Bools, spans: Spans) -> tuple[Any, Moments]:
    """Numbers of the areas that have a pixel on a tile, ascending, and their moments."""
    first = np.flatnonzero(np.concatenate([[True], spans.zone[1:] != spans.zone[:-1]]))
    if not len(spans):
        return spans.zone, Moments.empty(0)
    zones = spans.zone[first]
    width = values.shape[1]
    ends = np.stack([spans.row * width + spans.start, spans.row * width + spans.stop], axis=1)
    over = _Runs(ends.ravel(), first, spans.weight)
    floats = np.where(valid, values, 0).astype(np.float64)
    count = over.total(valid.astype(np.float64))
    some = np.maximum(count, np.finfo(np.float64).tiny)
    exact = values.dtype.kind in "iub" and values.dtype.itemsize <= 4
    total = over.total(np.where(valid, values, 0).astype(np.int64) if exact else floats)
    mean = total / some
    low = over.extreme(np.where(valid, floats, np.inf), np.minimum)
    high = over.extreme(np.where(valid, floats, -np.inf), np.maximum)
    squares = np.where(high > low, over.squares(floats, valid, count, mean, high > low), 0.0)
    return zones, Moments(count, total, mean, squares, low, high)


_FAR = 1e-8
"""Least ratio of a difference to its parts that leaves enough digits of it."""


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of pixels in a flattened tile."""

    ends: Any
    first: Ints
    weight: Floats

    def total(self, pixels: Any) -> Floats:
        """Weighted sum over the runs of each area."""
        found = np.add.reduceat(_padded(pixels), self.ends)[::2] * self.weight
        return np.add.reduceat(found, self.first).astype(np.float64)

    def extreme(self, pixels: Any, of: Any) -> Floats:
        """Minimum or maximum pixel of the runs of each area."""
        found = of.reduceat(_padded(pixels), self.ends)[::2]
        result: Floats = of.reduceat(found, self.first)
        return result

    def squares(
        self, floats: Floats, valid: Bools, count: Floats, mean: Floats, wanted: Bools
    ) -> Floats:
        """Sum of squared deviations from the `mean` of each area that is `wanted`."""
        middle = floats.sum() / max(int(valid.sum()), 1)
        off = np.where(valid, floats - middle, 0.0)
        far = count * (mean - middle) ** 2
        found = np.asarray(self.total(off * off) - far)
        # Other pixels of the tile, such as a nodata value that is not declared, can move the
        # middle so far away that the difference has no digits left.
        last = np.append(self.first[1:], len(self.weight))
        for n in np.flatnonzero(wanted & ~(found > _FAR * far)).tolist():
            found[n] = 0.0
            for run in range(self.first[n], last[n]):
                (start, stop), weight = self.ends[2 * run : 2 * run + 2], self.weight[run]
                away = floats.flat[start:stop] - mean[n]
                found[n] += weight * (away * away)[valid.flat[start:stop]].sum()
        return found


def _padded(pixels: Any) -> Any:
    # A run may end after the last pixel, and `reduceat` needs a valid index there.
    return np.concatenate([pixels.ravel(), pixels.ravel()[-1:]])


# -- quantiles and frequencies ---------------------------------------------------------------------


FREQUENCIES = ("majority", "minority", "variety")
"""The most and the least frequent value (the lowest in a tie), and the number of values."""
_PERCENT = re.compile(r"p(\d{1,2}(?:\.\d{1,6})?|100)")
_PAIRS = 1 << 21
"""Most pairs of area and value in memory; one takes some 24 bytes."""
_STEP = 8
"""Most bits by which keys are shortened at a time if there are too many pairs."""
_SURE = 1e-12
"""Fraction of a sum of weights that counts as rounding error."""


def quantile_of(stat: str) -> float | None:
    """The quantile of a statistic: 0.5 for ``median``, 0.1 for ``p10``; else None."""
    if stat == "median":
        return 0.5
    match = _PERCENT.fullmatch(stat)
    return None if match is None else float(match[1]) / 100


def is_ranked(stat: str) -> bool:
    """Whether `Ranking` computes a statistic."""
    return stat in FREQUENCIES or quantile_of(stat) is not None


@dataclass(frozen=True, slots=True)
class Counts:
    """Frequencies of values: unique pairs of area and key, ascending, and their weight."""

    zone: Ints
    key: Keys
    weight: Floats

    def __len__(self) -> int:
        return len(self.zone)

    @classmethod
    def of(cls, zone: Ints, key: Keys, weight: Floats) -> Counts:
        """Counts from pairs in any order."""
        order = np.lexsort((key, zone))
        zone, key, weight = zone[order], key[order], weight[order]
        first = np.flatnonzero(_fresh(zone, key))
        if not len(first):
            return cls(zone, key, weight)
        return cls(zone[first], key[first], np.add.reduceat(weight, first))

    @classmethod
    def of_pixels(cls, zone: Ints, key: Keys) -> Counts:
        """Counts from pixels of weight 1, whose areas and keys have at most 32 bits."""
        both = np.sort(zone.astype(np.uint64) << np.uint64(32) | key)
        first = np.flatnonzero(_fresh(both, both))
        weight = np.diff(np.append(first, len(both))).astype(np.float64)
        both = both[first]
        low = np.uint64((1 << 32) - 1)
        return cls((both >> np.uint64(32)).astype(np.int64), both & low, weight)

    @classmethod
    def joined(cls, parts: Sequence[Counts]) -> Counts:
        """The merged pairs of all parts."""
        return cls.of(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("zone", "key", "weight")
            )
        )

    def shifted(self, bits: int) -> Counts:
        """The same counts with keys that lack the last `bits` bits."""
        return Counts.of(self.zone, self.key >> np.uint64(bits), self.weight)


_NONE = Counts(np.empty(0, np.int64), np.empty(0, np.uint64), np.empty(0))


@dataclass(slots=True)
class _Targets:
    """Ranks whose values are wanted, shape (n,)."""

    zone: Ints
    rest: Floats
    """Rank, or weight, from the start of the range; see `_find`."""
    prefix: Keys | None = None
    """Leading bits of the range that contains it; None while the range is everything."""
    key: Keys | None = None
    """Keys of the values that were found."""


@dataclass(slots=True)
class Ranking:
    """Quantiles and frequencies of one band in n areas.

    Without weights a quantile is that of `numpy.quantile`, with linear interpolation. With weights
    it is the smallest value at which the cumulative weight reaches that fraction of the total, as
    in `numpy.quantile` with ``method="inverted_cdf"``.
    """

    dtype: np.dtype[Any]
    zones: int
    stats: tuple[str, ...]
    """The requested statistics that are ranked (`is_ranked`)."""
    weighted: bool
    name: str = ""
    """Name of the band in errors."""
    _shift: int = 0
    _limit: int = 0
    """Largest allowed shift."""
    _unknown: int = 0
    """Trailing bits of keys that the ranges of the last pass leave undetermined."""
    _counts: Counts = _NONE
    _pending: list[Counts] = field(default_factory=list)
    _targets: _Targets | None = None
    _total: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        bits = 8 * self.dtype.itemsize
        self._limit = 0 if set(self.stats) & set(FREQUENCIES) else bits - 1

    @property
    def is_open(self) -> bool:
        """Whether a (further) pass over the tiles is needed."""
        return bool(self.stats) and (self._targets is None or self._targets.key is None)

    def count(self, values: Any, valid: Bools, spans: Spans) -> Counts:
        """Count the pixels of a tile; changes no state, so it can run in a thread."""
        length = spans.stop - spans.start
        which = np.repeat(np.arange(len(spans)), length)
        before = np.cumsum(length) - length
        column = np.arange(len(which)) - before[which] + spans.start[which]
        at = spans.row[which] * values.shape[1] + column
        chosen = np.flatnonzero(valid.ravel()[at])
        which, at = which[chosen], at[chosen]
        zone, key = spans.zone[which], keys_of(values.ravel()[at])
        targets = self._targets
        if targets is not None and targets.prefix is not None:
            inside = np.flatnonzero(self._is_wanted(zone, key))
            which, zone, key = which[inside], zone[inside], key[inside]
        if not self.weighted and self.dtype.itemsize <= 4:
            return Counts.of_pixels(zone, key)
        return Counts.of(zone, key, spans.weight[which])

    def add(self, counts: Counts) -> None:
        """Add a result of `count`."""
        shift = np.uint64(self._shift)
        self._pending.append(
            counts if not self._shift else Counts(counts.zone, counts.key >> shift, counts.weight)
        )
        if sum(map(len, self._pending)) > max(_PAIRS // 2, len(self._counts)):
            self._settle()

    def finish_pass(self) -> None:
        """End a pass over all tiles."""
        self._settle()
        if self._targets is None:
            sums = np.bincount(self._counts.zone, self._counts.weight, self.zones)
            self._total = sums.astype(np.float64)
            self._targets = self._wanted()
        self._find(self._targets)
        if self._targets.key is None:
            self._counts = _NONE
            # Each pass determines at least one more bit.
            self._unknown, self._limit, self._shift = self._shift, self._shift - 1, 0

    def column(self, stat: str) -> Floats:
        """A statistic for every area; NaN if no pixel is valid."""
        some: Any = np.flatnonzero(self._total > 0)
        result = np.full(self.zones, np.nan)
        if not len(some):
            return result
        if stat in FREQUENCIES:
            result[some] = self._frequency(stat)
            return result
        assert self._targets is not None
        assert self._targets.key is not None, "all passes are done"
        number = [quantile_of(one) is not None for one in self.stats[: self.stats.index(stat)]]
        found = values_of(self._targets.key, self.dtype).reshape(-1, 2, len(some))
        low, high = found[sum(number)]
        place, _ = self._places(quantile_of(stat) or 0.0, self._total[some])
        result[some] = low if self.weighted else _between(low, high, place % 1)
        return result

    # -- the order ---------------------------------------------------------------------------------

    def _places(self, quantile: float, total: Floats) -> tuple[Floats, Floats]:
        """The ranks on both sides of a quantile, from 0, or the weight at which it is."""
        if self.weighted:
            at = quantile * total * (1 - _SURE)
            return at, at
        at = quantile * (total - 1)
        return at, np.minimum(np.floor(at) + 1, total - 1)

    def _wanted(self) -> _Targets:
        some = np.flatnonzero(self._total > 0)
        quantiles = [q for q in map(quantile_of, self.stats) if q is not None]
        places = [
            place if self.weighted else np.floor(place)
            for q in quantiles
            for place in self._places(q, self._total[some])
        ]
        zone = np.tile(some, len(places))
        return _Targets(zone, np.concatenate(places) if places else np.empty(0))

    def _find(self, targets: _Targets) -> None:
        """Set the keys of the targets, or the ranges that contain them and the ranks in these."""
        counts, cumulated = self._counts, np.cumsum(self._counts.weight)
        start, stop = self._groups(targets)
        before = np.where(start > 0, cumulated[start - 1] if len(counts) else 0.0, 0.0)
        # A rank is the number of pixels before it; a weight has to be reached.
        side: Any = "left" if self.weighted else "right"
        at = np.searchsorted(cumulated, before + targets.rest, side=side)
        at = np.clip(at, start, stop - 1)
        key = counts.key[at]
        if not self._shift:
            targets.key = key
            return
        passed = np.where(at > 0, cumulated[at - 1], 0.0)
        targets.rest = np.asarray(targets.rest - (passed - before))
        targets.prefix = key << np.uint64(self._shift)

    def _groups(self, targets: _Targets) -> tuple[Ints, Ints]:
        """Start and stop of the pairs of the range that contains each target."""
        counts = self._counts
        if targets.prefix is None:
            return (
                np.searchsorted(counts.zone, targets.zone, side="left"),
                np.searchsorted(counts.zone, targets.zone, side="right"),
            )
        mask = ~np.uint64((1 << self._unknown) - 1)
        prefix = (counts.key << np.uint64(self._shift)) & mask
        first = np.flatnonzero(_fresh(counts.zone, prefix))
        ends = np.append(first[1:], len(counts))
        pairs = zip(counts.zone[first].tolist(), prefix[first].tolist(), strict=True)
        known = {pair: number for number, pair in enumerate(pairs)}
        wanted = zip(targets.zone.tolist(), targets.prefix.tolist(), strict=True)
        number = np.array([known[pair] for pair in wanted], np.int64)
        return first[number], ends[number]

    def _is_wanted(self, zone: Ints, key: Keys) -> Bools:
        """Which pixels are in a range with a target."""
        targets = self._targets
        assert targets is not None
        assert targets.prefix is not None
        prefixes = np.unique(targets.prefix)
        ids = np.unique(targets.zone * len(prefixes) + np.searchsorted(prefixes, targets.prefix))
        mask = ~np.uint64((1 << self._unknown) - 1)
        at = np.searchsorted(prefixes, key & mask)
        at = np.minimum(at, len(prefixes) - 1)
        found = (prefixes[at] == key & mask) & np.isin(zone * len(prefixes) + at, ids)
        return np.asarray(found, np.bool_)

    def _settle(self) -> None:
        """Merge pending counts, with shorter keys if there are too many pairs."""
        self._counts = Counts.joined([self._counts, *self._pending])
        self._pending = []
        while len(self._counts) > _PAIRS:
            step = min(_STEP, self._limit - self._shift)
            if not step:
                raise LimitExceededError(
                    "too many different values in too many zones",
                    where=f"band {shown(self.name)}",
                    found=len(self._counts),
                    expected=f"at most {_PAIRS} pairs of zone and value",
                    hint="ask for fewer zones at once, or leave out majority, minority and variety",
                )
            self._shift += step
            self._counts = self._counts.shifted(step)

    # -- frequencies -------------------------------------------------------------------------------

    def _frequency(self, stat: str) -> Any:
        counts = self._counts
        first = np.flatnonzero(np.diff(counts.zone, prepend=-1))
        sizes = np.diff(np.append(first, len(counts)))
        if stat == "variety":
            return sizes
        extreme = np.maximum if stat == "majority" else np.minimum
        wanted = np.repeat(extreme.reduceat(counts.weight, first), sizes)
        # Equal sums of weights can differ by rounding.
        same = np.abs(counts.weight - wanted) <= _SURE * np.maximum(wanted, 1)
        hits = np.flatnonzero(same)
        lowest = hits[np.flatnonzero(np.diff(counts.zone[hits], prepend=-1))]
        return values_of(counts.key[lowest], self.dtype)


def keys_of(values: Any) -> Keys:
    """Unsigned numbers in the order of the values; 0.0 and -0.0 have the same key."""
    kind = values.dtype.kind
    if kind == "u":
        return np.asarray(values, np.uint64)
    bits = 8 * values.dtype.itemsize
    plain = np.dtype(f"u{values.dtype.itemsize}")
    sign = np.uint64(1 << (bits - 1))
    if kind == "f":
        raw = (values + values.dtype.type(0)).view(plain).astype(np.uint64)
        everything = np.uint64((1 << bits) - 1)
        return np.asarray(np.where(raw & sign, raw ^ everything, raw | sign), np.uint64)
    return np.asarray(np.ascontiguousarray(values).view(plain).astype(np.uint64) ^ sign, np.uint64)


def values_of(keys: Keys, dtype: np.dtype[Any]) -> Floats:
    """The values of keys from `keys_of`, as float64."""
    if dtype.kind == "u":
        return keys.astype(np.float64)
    bits = 8 * dtype.itemsize
    sign, everything = np.uint64(1 << (bits - 1)), np.uint64((1 << bits) - 1)
    raw = keys ^ sign
    if dtype.kind == "f":
        raw = np.where(keys & sign, raw, keys ^ everything)
    found: Floats = (
        raw.astype(f"u{dtype.itemsize}").view(dtype.newbyteorder("=")).astype(np.float64)
    )
    return found


def check_stat(stat: str) -> None:
    """Reject a statistic that is neither in `STATISTICS` nor ranked."""
    if stat not in STATISTICS and not is_ranked(stat):
        raise InvalidInputError(
            "unknown statistic",
            found=shown(stat),
            expected=", ".join((*STATISTICS, "median", "p0 to p100", *FREQUENCIES)),
        )


def _between(low: Floats, high: Floats, part: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        return np.where(part == 0, low, low + (high - low) * part)


def _fresh(one: Any, other: Any) -> Bools:
    """Where a pair differs from the one before it."""
    found = np.ones(len(one), np.bool_)
    found[1:] = (one[1:] != one[:-1]) | (other[1:] != other[:-1])
    return found
