"""The order of an epoch: which row comes at which position.

Orders are functions of seed, epoch and position. Nothing is stored for a shuffled epoch, any
position can be asked for by itself, and a run that resumes with other ranks, workers or batch
sizes sees the same order. No data is read, and no generator of a library is used whose streams
may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError, translated
from comal.public import check_fields, guarded_class

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

Sides = npt.NDArray[np.uint32]
Turn = Callable[[Sides], Sides]

Shuffle = bool | Literal["blocks"]
Rest = Literal["pad", "drop", "uneven"]

_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_MOST = 1 << 48
"""Largest number of rows: both halves of a position then have 24 bits and products fit 64."""
_AT_ONCE = 1 << 16
"""Positions that are computed together; their arrays stay in the processor's caches."""


def mixed(values: Words, key: int) -> Words:
    """Well-mixed 64-bit words of `values` under a key (the finaliser of SplitMix64)."""
    found = values * np.uint64(_GOLDEN) + np.uint64(key)
    found ^= found >> np.uint64(30)
    found *= np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(27)
    found *= np.uint64(0x94D049BB133111EB)
    found ^= found >> np.uint64(31)
    return found


def key_of(*parts: int) -> int:
    """One 64-bit key from several integers."""
    key = 0
    for part in parts:
        word = np.array([(key ^ part ^ (part >> 64)) & _MASK], np.uint64)
        key = int(mixed(word, key)[0])
    return key


def uniform(values: Ints, key: int) -> Floats:
    """Numbers from 0 to below 1 at random, each a function of a value and a key."""
    return fractions(mixed(values.astype(np.uint64), key))


def fractions(words: Words) -> Floats:
    """Words as numbers from 0 to below 1, of 53 bits, as many as a float holds."""
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, np.float64)


def permuted(positions: Ints, count: int, key: int) -> Ints:
    """The values of a random permutation of ``range(count)`` at some positions.

    A Feistel network over pairs (a, b) with a * b just above `count`; values outside are mapped
    again until they are inside, which keeps the function one to one.
    """
    if count > _MOST:
        raise InvalidInputError("too many rows to shuffle", found=count, expected=f"<= {_MOST}")
    width = max(1, math.isqrt(max(0, count - 1)) + 1)
    height = max(1, -(-count // width))
    sizes = height, width
    turns = [_turn(key_of(key, turn), sizes[turn % 2]) for turn in range(_ROUNDS)]
    if len(positions) > 4 * width:
        # A side has few values: what a turn adds to the other is looked up.
        turns = [
            turn(np.arange(sizes[1 - n % 2], dtype=np.uint32)).take for n, turn in enumerate(turns)
        ]
    found = np.empty(len(positions), np.int64)
    for start in range(0, len(positions), _AT_ONCE):
        values = _once(positions[start : start + _AT_ONCE], sizes, turns)
        while (outside := values >= count).any():
            values[outside] = _once(values[outside], sizes, turns)
        found[start : start + _AT_ONCE] = values
    return found


def _turn(key: int, size: int) -> Turn:
    """What a turn moves one side by, of a size, as a function of the other side."""
    scale, half = np.uint64(size), np.uint64(32)

    def turn(side: Sides) -> Sides:
        # The upper 32 bits, scaled to the size of the side.
        words = (mixed(side.astype(np.uint64), key) >> half) * scale >> half
        return words.astype(np.uint32)

    return turn


def _once(values: Ints, sizes: tuple[int, int], turns: Sequence[Turn]) -> Ints:
    left = values // sizes[1]
    sides: list[Sides] = [left.astype(np.uint32), (values - left * sizes[1]).astype(np.uint32)]
    for number, turn in enumerate(turns):
        side = number % 2
        moved = sides[side] + turn(sides[1 - side])
        # Of two values of 32 bits that differ by the size, one has wrapped around.
        sides[side] = np.minimum(moved, moved - np.uint32(sizes[side]))
    return sides[0].astype(np.int64) * sizes[1] + sides[1]


@guarded_class
@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Rows by position, for any epoch.

    Parameters
    ----------
    rows
        Number of rows to choose from.
    shuffle
        False: as they are. True: all orders are equally likely. ``"blocks"``: neighbours stay
        near each other, so that remote reads can be merged: blocks of `block` rows are shuffled,
        and rows are shuffled within every `window` blocks. Where blocks begin changes with the
        epoch. A `Loader` or `Sampler` chooses both by the sizes of samples: see `SamplerOptions`.
    seed
        Any integer.
    weights
        Non-negative numbers, shape (rows,): rows are drawn with replacement in proportion.
    strata
        Integers, shape (rows,): each class is spread evenly over the epoch, so that every batch
        has the proportions of all rows.
    draws
        With `weights`: number of positions of an epoch; None for `rows`.

    Raises
    ------
    InvalidInputError
        Weights or strata are no numbers for all rows, or are not alone; a value does not fit.
    """

    rows: int
    shuffle: Shuffle = False
    seed: int = 0
    block: int = 64
    window: int = 32
    weights: Any = None
    strata: Any = None
    draws: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        least = {"rows": 0, "draws": 0, "block": 1, "window": 1}
        for name, value in ((name, getattr(self, name)) for name in least):
            if value is not None and value < least[name]:
                expected = f"{least[name]} or more"
                raise InvalidInputError(f"{name} of an order", found=value, expected=expected)
        if self.weights is not None and self.strata is not None:
            raise InvalidInputError("an order has weights or strata, not both")
        if self.draws is not None and self.weights is None:
            raise InvalidInputError("draws go with weights")
        if self.weights is not None:
            self._set("weights", _summed)
        if self.strata is not None:
            self._set("strata", _ranked)

    def _set(self, name: str, change: Callable[[Any], Any]) -> None:
        """Change what a caller gave for each row into an array."""
        faults: Any = dict.fromkeys((TypeError, ValueError, OverflowError), InvalidInputError)
        with translated(faults, f"{name} do not fit", expected=f"one for each of {self.rows} rows"):
            found = change(getattr(self, name))
            if found.shape != (self.rows,):
                raise ValueError(f"shape {found.shape}")
        object.__setattr__(self, name, found)

    def __len__(self) -> int:
        """Number of positions of an epoch."""
        return self.rows if self.draws is None else self.draws

    @property
    def blocks(self) -> str | None:
        """Block and window of ``shuffle="blocks"``, for states."""
        return f"{self.block}, {self.window}" if self.shuffle == "blocks" else None

    def at(self, positions: Ints, epoch: int = 0) -> Ints:
        """The rows at some positions of an epoch.

        Raises
        ------
        InvalidInputError
            An epoch has no such position.
        """
        if len(positions) and not 0 <= positions.min() <= positions.max() < len(self):
            found, expected = f"{positions.min()} to {positions.max()}", f"0 to {len(self) - 1}"
            raise InvalidInputError("no such positions", found=found, expected=expected)
        key = key_of(self.seed, epoch)
        if self.weights is not None and len(positions):
            drawn = uniform(positions, key) * self.weights[-1]
            places: Ints = np.searchsorted(self.weights, drawn, side="right")
            return places
        if self.strata is not None:
            return self._spread(key)[positions]
        if self.shuffle == "blocks":
            return self._in_blocks(positions, key)
        return permuted(positions, self.rows, key) if self.shuffle else positions

    def _in_blocks(self, positions: Ints, key: int) -> Ints:
        whole = self.rows // self.block
        mixed_rows = self.block * self.window
        # Rows left over by whole blocks come last; the turn makes them others in each epoch.
        turn = key_of(key, 1) % max(1, self.rows)
        found = positions.copy()
        inside = positions < whole * self.block
        places = positions[inside]
        for number in np.unique(places // mixed_rows).tolist():
            mine = places // mixed_rows == number
            count = min(mixed_rows, whole * self.block - number * mixed_rows)
            own = permuted(places[mine] - number * mixed_rows, count, key_of(key, 2, number))
            places[mine] = own + number * mixed_rows
        blocks = permuted(places // self.block, whole, key_of(key, 3))
        found[inside] = blocks * self.block + places % self.block
        return (found + turn) % self.rows

    def _spread(self, key: int) -> Ints:
        """All rows, each class evenly over the epoch, at random within a class."""
        rows = np.arange(self.rows, dtype=np.int64)
        shuffled = permuted(rows, self.rows, key) if self.shuffle else rows
        classes = self.strata[shuffled]
        by_class = np.argsort(classes, kind="stable")
        counts = np.bincount(classes)
        first = np.cumsum(counts) - counts
        within = np.arange(self.rows) - first[classes[by_class]]
        # A random start for each class, or the first rows would be one of each.
        starts = uniform(np.arange(len(counts)), key)
        places = np.empty(self.rows)
        places[by_class] = (within + starts[classes[by_class]]) / counts[classes[by_class]]
        return shuffled[np.argsort(places, kind="stable")]


def _summed(weights: Any) -> Floats:
    """Weights added up, so that rows can be drawn by them."""
    found = np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        total: Floats = np.cumsum(found)
    if (found < 0).any() or (len(found) and not 0 < total[-1] < math.inf):
        raise ValueError("weights that are negative, or whose sum is 0 or not finite")
    return total


def _ranked(strata: Any) -> Ints:
    """Classes as numbers from 0."""
    return np.unique(np.asarray(strata), return_inverse=True)[1]


@guarded_class
@dataclass(frozen=True, slots=True)
class Share:
    """What one of several ranks takes of an epoch, in batches.

    All ranks go through the positions together: a step takes ``ranks * batch`` of them, each rank
    its `batch`. So the number of positions that are done says all that a resumed run needs, also
    with other ranks or batches.

    Parameters
    ----------
    batch
        Samples in a batch of one rank.
    rank, ranks
        This rank, from 0, and how many there are.
    rest
        The last step of an epoch may have too few samples for all. ``"pad"``: every rank gets as
        many, and the first samples of the epoch come again to fill up. ``"drop"``: every rank
        gets as many, and up to ``ranks - 1`` samples are left out. ``"uneven"``: every sample
        once; ranks differ by one sample.
    drop_last
        Leave out the last step if its batches are not full.

    Raises
    ------
    InvalidInputError
        There is no such rank or batch; a value does not fit.
    """

    batch: int = 1
    rank: int = 0
    ranks: int = 1
    rest: Rest = "pad"
    drop_last: bool = False

    def __post_init__(self) -> None:
        check_fields(self)
        if self.batch < 1 or self.ranks < 1 or not 0 <= self.rank < self.ranks:
            raise InvalidInputError(
                "a share that does not exist",
                found=f"batches of {self.batch}, rank {self.rank} of {self.ranks}",
                expected="batches of 1 or more, and 0 <= rank < ranks",
            )

    @property
    def step(self) -> int:
        """Positions that all ranks take together."""
        return self.batch * self.ranks

    def steps(self, total: int, done: int = 0) -> int:
        """Number of batches of this rank between `done` positions and all of them."""
        whole, left = divmod(max(0, total - done), self.step)
        return whole + (len(self._last(total - left, total)) > 0)

    def is_over(self, total: int, done: int) -> bool:
        """Whether no rank has a batch left; the first rank never has fewer than others."""
        return not replace(self, rank=0).steps(total, done)

    def batches(self, total: int, done: int = 0) -> Iterator[Ints]:
        """The positions of each batch of this rank, from `done` positions on."""
        end = total - max(0, total - done) % self.step
        for first in range(done + self.rank * self.batch, end, self.step):
            yield np.arange(first, first + self.batch)
        last = self._last(end, total)
        if len(last):
            yield last

    def _last(self, done: int, total: int) -> Ints:
        left = 0 if self.drop_last else max(0, total - done)
        even = left // self.ranks * self.ranks
        rests = {"uneven": left, "drop": even, "pad": even + self.ranks * (left > even)}
        most, more = divmod(rests[self.rest], self.ranks)
        first = done + self.rank * most + min(self.rank, more)
        return np.arange(first, first + most + (self.rank < more)) % max(1, total)
