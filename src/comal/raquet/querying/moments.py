"""Statistics of pixels in areas, tile by tile, merged without loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.geo.scanline import Spans

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Moments:
    """For each of n areas: count, sum, mean, squared deviations, least and largest value.

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
        """Of no pixels."""
        zero = np.zeros(n)
        return cls(
            zero, zero.copy(), zero.copy(), zero.copy(), np.full(n, np.inf), np.full(n, -np.inf)
        )

    @classmethod
    def stacked(cls, parts: Sequence[Moments]) -> Moments:
        """The areas of all parts, one behind the other."""
        columns = ([getattr(part, field.name) for part in parts] for field in fields(cls))
        return cls(*(np.concatenate([np.empty(0), *column]) for column in columns))

    def merge(self, rows: Any, other: Moments) -> None:
        """Add what was found for the areas `rows` in other pixels (Chan, Golub and LeVeque)."""
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
        """One of `STATISTICS` for every area; NaN where no pixel is valid, but 0 for counts."""
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
"""What `Moments.column` can tell; ``stddev`` and ``variance`` are those of the population."""


def of_tile(values: Any, valid: Bools) -> Moments:
    """Moments of a whole tile, as those of one area."""
    found = Moments.empty(1)
    pixels = values[valid]
    if len(pixels):
        floats = pixels.astype(np.float64)
        mean = floats.mean()
        off = floats - mean
        # The second term is what rounding of the mean leaves.
        squares = (off * off).sum() - off.sum() ** 2 / len(off)
        parts = (len(off), _sum(pixels, floats), mean, squares, floats.min(), floats.max())
        found = Moments(*(np.array([float(part)]) for part in parts))
    return found


def _sum(pixels: Any, floats: Floats) -> float:
    small = pixels.dtype.kind in "iub" and pixels.dtype.itemsize <= 4
    return float(pixels.sum(dtype=np.int64)) if small else float(floats.sum())


def of_spans(values: Any, valid: Bools, spans: Spans) -> tuple[Any, Moments]:
    """Moments of the areas that lie on a tile.

    Parameters
    ----------
    values, valid
        Pixels of the tile (rows, columns), and which of them count.
    spans
        Pixels of the areas.

    Returns
    -------
    zones, moments
        Numbers of the areas that have a pixel there, ascending, and theirs.
    """
    first = np.flatnonzero(np.concatenate([[True], spans.zone[1:] != spans.zone[:-1]]))
    if not len(spans):
        return spans.zone, Moments.empty(0)
    zones = spans.zone[first]
    width = values.shape[1]
    ends = np.stack([spans.row * width + spans.start, spans.row * width + spans.stop], axis=1)
    over = _Runs(ends.ravel(), first, spans.weight)
    floats = np.where(valid, values, 0).astype(np.float64)
    count = over.total(valid.astype(np.float64))
    middle = float(floats.sum() / max(int(valid.sum()), 1))
    off = np.where(valid, floats - middle, 0.0)
    shifted = over.total(off)
    some = np.maximum(count, np.finfo(np.float64).tiny)
    squares = np.maximum(over.total(off * off) - shifted * shifted / some, 0.0)
    mean = np.where(count > 0, middle + shifted / some, 0.0)
    exact = values.dtype.kind in "iub" and values.dtype.itemsize <= 4
    total = over.total(np.where(valid, values, 0).astype(np.int64) if exact else floats)
    low = over.extreme(np.where(valid, floats, np.inf), np.minimum)
    high = over.extreme(np.where(valid, floats, -np.inf), np.maximum)
    return zones, Moments(count, total, mean, squares, low, high)


@dataclass(frozen=True, slots=True)
class _Runs:
    """Runs of pixels in a flattened tile."""

    ends: Any
    first: Any
    weight: Floats

    def total(self, pixels: Any) -> Floats:
        """Weighted sum over the runs of each area."""
        found = np.add.reduceat(_padded(pixels), self.ends)[::2] * self.weight
        return np.add.reduceat(found, self.first).astype(np.float64)

    def extreme(self, pixels: Any, of: Any) -> Floats:
        """Least or largest pixel of the runs of each area."""
        found = of.reduceat(_padded(pixels), self.ends)[::2]
        result: Floats = of.reduceat(found, self.first)
        return result


def _padded(pixels: Any) -> Any:
    # A run may end behind the last pixel, where `reduceat` wants one.
    return np.concatenate([pixels.ravel(), pixels.ravel()[-1:]])
