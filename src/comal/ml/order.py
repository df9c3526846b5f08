"""The order of an epoch, which of it a rank takes, and where a run through epochs is.

Orders are functions of seed, epoch and position. Nothing is stored for a shuffled epoch, any
position can be asked for by itself, and a run that resumes with other ranks, workers or batch
sizes sees the same order. No data is read, and no generator of a library is used whose streams
may change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from comal.errors import InvalidInputError, shown, translated
from comal.parallel import cached_property
from comal.public import check_fields, guarded_class, options_of, takes, warn
from comal.samples.payloads import bounds_of, bytes_of

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]

Sides = npt.NDArray[np.uint32]
Turn = Callable[[Sides], Sides]

Shuffle = bool | Literal["blocks"]
Rest = Literal["pad", "drop", "uneven"]
T = TypeVar("T")

_ROUNDS = 8
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_MOST = 1 << 48
"""Largest number of rows: both halves of a position then have 24 bits and products fit 64."""
_VERSION = 1
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplerOptions:
    """Which samples come when, and which of them this process takes.

    Parameters
    ----------
    shuffle
        False: as they are. True: all orders are equally likely. ``"blocks"``: neighbours stay
        near each other, so that remote reads can be merged: blocks of `block` samples are
        shuffled, and samples are shuffled within every `window` blocks. Where blocks begin changes
        with the epoch.
    seed
        Any integer from -2**63 to 2**63 - 1.
    rank, ranks
        This process, from 0, and how many there are, in training on several devices. They go
        through an epoch together: a step takes ``ranks * batch_size`` samples.
    rest
        The last step of an epoch may have too few samples for all. ``"pad"``: every rank gets as
        many, and the first samples of the epoch come again to fill up. ``"drop"``: every rank
        gets as many, and up to ``ranks - 1`` samples are left out. ``"uneven"``: every sample
        once; ranks differ by one sample.
    drop_last
        Leave out the last step if its batches are not full.
    weights
        Numbers not below 0, one a sample, or the name of a column: samples are drawn with
        replacement in proportion.
    balance
        A column: samples are drawn so that its values are equally likely, and null never.
    draws
        With `weights` or `balance`: samples of an epoch; None for as many as there are.
    strata
        Classes, one a sample, or the name of a column: each class is spread evenly over the epoch,
        so that every batch has the proportions of all samples.
    block, window
        For ``shuffle="blocks"``. By default a block has a sixteenth of the samples that a MiB
        holds by their mean size, from 2 to 64; a window has 32 blocks, and 16 blocks of 2, which a
        batch of 32 then reads whole.
    """

    shuffle: Shuffle = False
    seed: int = 0
    rank: int = 0
    ranks: int = 1
    rest: Rest = "pad"
    drop_last: bool = False
    weights: Any = None
    balance: str | None = None
    draws: int | None = None
    strata: Any = None
    block: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        least = {"ranks": 1, "draws": 0, "block": 1, "window": 1}
        for name, value in ((name, getattr(self, name)) for name in least):
            if value is not None and value < least[name]:
                expected = f"{least[name]} or more"
                raise InvalidInputError(f"{name} of an order", found=value, expected=expected)
        if not 0 <= self.rank < self.ranks:
            raise InvalidInputError(
                "no such rank", found=f"{self.rank} of {self.ranks}", expected="0 <= rank < ranks"
            )
        if sum(one is not None for one in (self.weights, self.strata, self.balance)) > 1:
            raise InvalidInputError("weights, strata and balance exclude one another")
        if self.draws is not None and self.weights is None and self.balance is None:
            raise InvalidInputError("draws go with weights or balance")


@guarded_class
class Order:
    """The rows of an epoch by position, and the positions that one of several ranks takes.

    All ranks go through the positions together: a step takes ``ranks * batch`` of them, each rank
    its `batch`. So the number of positions that are done says all that a resumed run needs, also
    with other ranks or batches.

    Parameters
    ----------
    rows
        Number of rows to choose from.
    batch
        Rows in a batch of one rank.
    **options
        Fields of `SamplerOptions`; weights and strata are arrays, and blocks of 64 rows in windows
        of 32 the default.

    Raises
    ------
    InvalidInputError
        Weights or strata are no numbers for all rows; there is no such rank; a value does not fit.
    """

    @takes(SamplerOptions)
    def __init__(self, rows: int, batch: int = 1, **options: Any) -> None:
        self.rows, self.batch, self.how = rows, batch, options_of(SamplerOptions, options)
        if rows < 0 or batch < 1:
            found, expected = f"{rows} rows in batches of {batch}", "rows >= 0, and batches >= 1"
            raise InvalidInputError("no such order", found=found, expected=expected)
        if self.how.balance is not None:
            raise InvalidInputError("an order has no columns to balance, but arrays as weights")
        self.block, self.window = self.how.block or 64, self.how.window or 32
        self.totals, self.classes = self._array("weights", _summed), self._array("strata", _ranked)

    def _array(self, name: str, change: Callable[[Any], Any]) -> Any:
        """What a caller gave for each row, changed into an array."""
        if getattr(self.how, name) is None:
            return None
        faults: Any = dict.fromkeys((TypeError, ValueError, OverflowError), InvalidInputError)
        with translated(faults, f"{name} do not fit", expected=f"one for each of {self.rows} rows"):
            found = change(getattr(self.how, name))
            if found.shape != (self.rows,):
                raise ValueError(f"shape {found.shape}")
        object.__setattr__(self.how, name, found)  # what was given may be as large
        return found

    def __len__(self) -> int:
        """Number of positions of an epoch."""
        return self.rows if self.how.draws is None else self.how.draws

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
        key = key_of(self.how.seed, epoch)
        if self.totals is not None and len(positions):
            drawn = uniform(positions, key) * self.totals[-1]
            places: Ints = np.searchsorted(self.totals, drawn, side="right")
            return places
        if self.classes is not None:
            return self._spread(key)[positions]
        if self.how.shuffle == "blocks":
            return self._in_blocks(positions, key)
        return permuted(positions, self.rows, key) if self.how.shuffle else positions

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
        shuffled = permuted(rows, self.rows, key) if self.how.shuffle else rows
        classes = self.classes[shuffled]
        by_class = np.argsort(classes, kind="stable")
        counts = np.bincount(classes)
        first = np.cumsum(counts) - counts
        within = np.arange(self.rows) - first[classes[by_class]]
        # A random start for each class, or the first rows would be one of each.
        starts = uniform(np.arange(len(counts)), key)
        places = np.empty(self.rows)
        places[by_class] = (within + starts[classes[by_class]]) / counts[classes[by_class]]
        return shuffled[np.argsort(places, kind="stable")]

    @property
    def step(self) -> int:
        """Positions that all ranks take together."""
        return self.batch * self.how.ranks

    def steps(self, done: int = 0, rank: int | None = None) -> int:
        """Number of batches of a rank, by default this one, after `done` positions."""
        whole, left = divmod(max(0, len(self) - done), self.step)
        return whole + (len(self._last(left, rank)) > 0)

    def batches(self, done: int = 0) -> Iterator[Ints]:
        """The positions of each batch of this rank, from `done` positions on."""
        left = max(0, len(self) - done) % self.step
        first = done + self.how.rank * self.batch
        for start in range(first, len(self) - left, self.step):
            yield np.arange(start, start + self.batch)
        last = self._last(left)
        if len(last):
            yield last

    def _last(self, left: int, rank: int | None = None) -> Ints:
        """The positions of a rank in a last step, for which `left` positions are left."""
        rank, ranks = self.how.rank if rank is None else rank, self.how.ranks
        done, left = len(self) - left, 0 if self.how.drop_last else left
        even = left // ranks * ranks
        rests = {"uneven": left, "drop": even, "pad": even + ranks * (left > even)}
        most, more = divmod(rests[self.how.rest], ranks)
        first = done + rank * most + min(rank, more)
        return np.arange(first, first + most + (rank < more)) % max(1, len(self))


def _summed(weights: Any) -> Floats:
    """Weights added up, so that rows can be drawn by them."""
    found = np.asarray(weights, np.float64)
    with np.errstate(over="ignore"):
        total: Floats = np.cumsum(found)
    if (found < 0).any() or (len(total) and not 0 < total[-1] < math.inf):
        raise ValueError("weights that are negative, or whose sum is 0 or not finite")
    return total


def _ranked(strata: Any) -> Ints:
    """Classes as numbers from 0."""
    return np.unique(np.asarray(strata), return_inverse=True)[1]


@guarded_class
class Epochs:
    """What a `Sampler` and a `Loader` share: each iteration is the next epoch.

    `state_dict` says where it is, `load_state_dict` continues there, also with other workers,
    ranks or batch sizes: no sample of the epoch is lost or comes twice. All ranks have the same
    state, and that of a loader fits a sampler. `len` is the number of batches of this rank in a
    whole epoch.
    """

    def __init__(self, order: Order, ids: Any = None) -> None:
        self._ids = ids
        self.order = order
        self.epoch = 0
        """The epoch of the next batch."""
        self._done = 0
        self._continues = False

    def __len__(self) -> int:
        return self.order.steps()

    @cached_property
    def _kept(self) -> dict[str, Any]:
        """What a state tells of samples and order, in which another run must agree."""
        order, how = self.order, self.order.how
        drawn = order.classes if order.totals is None else order.totals
        return {
            "version": _VERSION,
            "samples": len(order),
            "seed": how.seed,
            "shuffle": how.shuffle,
            "ids": None if self._ids is None else digest_of(self._ids),
            "drawn": None if drawn is None else f"{isal_zlib.crc32(drawn):08x}",
            "blocks": f"{order.block}, {order.window}" if how.shuffle == "blocks" else None,
        }

    @property
    def sampler(self) -> Self:
        """Itself, because Lightning and Accelerate tell the epoch to the sampler of a loader."""
        return self

    def set_epoch(self, epoch: int, batches: int = 0) -> None:
        """Begin `epoch` with the next iteration, after so many batches of this rank.

        Right after `load_state_dict` of a state in this epoch it changes nothing, as training
        loops also call it in the epoch that they continue.
        """
        if epoch < 0 or batches < 0:
            raise InvalidInputError("negative numbers", found=f"epoch {epoch}, batch {batches}")
        if batches or epoch != self.epoch or not self._continues:
            self._go_to(epoch, min(batches * self.order.step, len(self.order)))

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: after the batch that was given last."""
        return {**self._kept, "epoch": self.epoch, "done": self._done}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a run was.

        Raises
        ------
        InvalidInputError
            The state is of another order: other samples, seed or shuffling.
        """
        for name, mine in self._kept.items():
            unknown = name == "ids" and None in (state.get(name), mine)
            if state.get(name) != mine and not unknown:
                raise InvalidInputError(
                    "the state of another loader",
                    where=name,
                    found=shown(repr(state.get(name))),
                    expected=repr(mine),
                    hint="use the same samples in the same order (source, where, split), the same "
                    "seed and shuffle, weights and strata, block and window; set_epoch begins with "
                    "others",
                )
        epoch, done = state.get("epoch"), state.get("done")
        if not isinstance(epoch, int) or not isinstance(done, int) or epoch < 0 or done < 0:
            raise InvalidInputError("a state without epoch and position", found=shown(repr(state)))
        self._go_to(epoch, done)

    def _go_to(self, epoch: int, done: int) -> None:
        if done and not self.order.steps(done, rank=0):  # which never has fewer than others
            epoch, done = epoch + 1, 0
        self.epoch, self._done, self._continues = epoch, done, True

    def _begin(self) -> None:
        """Begin an iteration: what was left early is over, unless it is to be continued."""
        if self._done and not self._continues:
            self.epoch, self._done = self.epoch + 1, 0

    def _counted(self, batches: Iterable[T], done: int) -> Iterator[T]:
        """The batches from a position on; the run is after the one that was given last."""
        self._continues, epoch = False, self.epoch
        for batch in batches:
            done = self._done = min(done + self.order.step, len(self.order))
            yield batch
            if self.epoch != epoch:
                warn(
                    f"epoch {epoch} goes on, as its first batches had been given when epoch "
                    f"{self.epoch} was set; workers of torch take batches as soon as they are "
                    "iterated, so set the epoch before"
                )
                self.epoch = epoch  # a state is that of the batches that are given
        self.epoch, self._done = epoch + 1, 0

    def _rows(self, epoch: int, done: int) -> Iterator[Ints]:
        """The rows of each batch; positions are computed for many batches at once."""
        batches, count = self.order.batches(done), 1
        while some := list(islice(batches, count)):
            rows = self.order.at(np.concatenate(some), epoch)
            yield from np.split(rows, np.cumsum([len(one) for one in some])[:-1])
            # The first batch did not wait for others; strata are spread over all rows at once.
            together = 4096 if self.order.classes is None else len(self.order)
            count = 1 + together // self.order.batch


@guarded_class
class Sampler(Epochs):
    """The numbers of the samples of each batch, for loaders of other libraries.

    ``torch.utils.data.DataLoader(data, batch_sampler=data.sampler(32, shuffle=True))`` reads each
    batch in one fetch. The state is after the batch that was handed to the loader last.
    torchdata's ``StatefulDataLoader`` keeps the state of the batch that its caller got, so that
    its own state continues exactly. A plain ``DataLoader`` with workers takes batches ahead of
    its caller, who counts them: ``set_epoch(epoch, batches)`` continues after them. Made by
    `Dataset.sampler`.

    Parameters
    ----------
    order
        Which samples come when.
    ids
        Those of the samples, an Arrow array, so that a state of others is refused; None for any.
    """

    _again = False

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a run was; raises as that of `Epochs`."""
        super().load_state_dict(state)
        self._again = state["done"] > self._done

    def __iter__(self) -> Iterator[list[int]]:
        if self._again and self._done and not self._continues:
            self._done = 0  # torchdata reads ahead at the end of an epoch, and throws that away
        self._begin()
        return self._lists()

    def _lists(self) -> Iterator[list[int]]:
        # Only when the first batch is asked for: loaders set the epoch after they began to iterate.
        rows = self._rows(self.epoch, self._done)
        yield from self._counted((one.tolist() for one in rows), self._done)
        self._again = False


def digest_of(ids: Any) -> str:
    """A text that tells the ids of samples and their order from others.

    A checksum, which takes 50 ms for ten million: nobody forges the state of their own run.

    Parameters
    ----------
    ids
        Arrow strings or bytes.
    """
    texts = ids.cast(pa.large_binary())
    texts = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    bounds = bounds_of(texts)
    letters = bytes_of(texts)[bounds[0] : bounds[-1]]
    return f"{isal_zlib.crc32(np.diff(bounds)):08x}{isal_zlib.crc32(letters):08x}"
