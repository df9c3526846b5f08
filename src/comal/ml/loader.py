"""Batches in the order of an epoch, read and decoded before they are asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from comal.errors import InvalidInputError, counted, shown
from comal.limits import MIB
from comal.ml.batches import Batch, Buffers, Kind, Places, Together, converted
from comal.ml.order import Ints, Order, Rest, Share
from comal.public import check_fields, guarded_class, warn

if TYPE_CHECKING:
    from comal.ml.archives import Dataset

_VERSION = 1
_READERS = 16
"""Batches whose bytes are fetched at once at most; each may send several requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOptions:
    """How batches are made of samples, and how far a `Loader` reads ahead.

    Parameters
    ----------
    workers
        Threads that decode. 0 reads and decodes in the thread that asks for a batch.
    ahead_bytes
        Bytes that may be on their way or wait in memory, encoded and decoded, besides the batch
        that is in use. One batch is always under way.
    to
        What arrays become: ``"numpy"``, ``"torch"`` or ``"jax"``.
    together
        ``"stack"``, ``"pad"`` or ``"list"``: see `collate`.
    rest, drop_last
        What happens with the last, smaller step of an epoch: see `Share`.
    weights, strata, draws, block, window
        See `Order`.
    """

    workers: int = 2
    ahead_bytes: int = 512 * MIB
    to: Kind = "numpy"
    together: Together = "stack"
    rest: Rest = "pad"
    drop_last: bool = False
    weights: Any = None
    strata: Any = None
    draws: int | None = None
    block: int = 64
    window: int = 32

    def __post_init__(self) -> None:
        check_fields(self)
        if self.workers < 0 or self.ahead_bytes < 1:
            raise InvalidInputError(
                "a loader needs memory to read ahead, and no negative workers",
                found=f"{self.workers} workers, {self.ahead_bytes} bytes",
            )


@guarded_class
class Loader:
    """An iterable of batches; each iteration is the next epoch.

    `state_dict` says where it is, `load_state_dict` continues there, also with other workers,
    ranks or batch sizes: no sample of the epoch is lost or comes twice. `len` is the number of
    batches of this rank in a whole epoch.
    """

    def __init__(
        self,
        data: Dataset,
        order: Order,
        share: Share | None = None,
        options: LoaderOptions | None = None,
    ) -> None:
        self.data = data
        self.order = order
        self.share = share or Share()
        self.options = options or LoaderOptions()
        self.epoch = 0
        """The epoch of the next batch."""
        self.skipped = 0
        """Samples of this epoch that failed and were left out."""
        self._done = 0
        self._continues = False
        self._buffers = Buffers()
        self._size_of_decoded = 0.0

    def __len__(self) -> int:
        return self.share.steps(len(self.order))

    def set_epoch(self, epoch: int) -> None:
        """Begin `epoch` with the next iteration."""
        self.epoch, self._done, self._continues = epoch, 0, False

    # -- state -------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: after the batch that was given last."""
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "done": self._done,
            "samples": len(self.order),
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a loader was.

        Raises
        ------
        InvalidInputError
            The state is of another order: other samples, seed or shuffling.
        """
        mine = self.state_dict()
        for name in ("version", "samples", "seed", "shuffle"):
            if state.get(name) != mine[name]:
                raise InvalidInputError(
                    "the state of another loader",
                    where=name,
                    found=shown(repr(state.get(name))),
                    expected=repr(mine[name]),
                    hint="open the same data set with the same seed and shuffle",
                )
        epoch, done = state.get("epoch"), state.get("done")
        if not isinstance(epoch, int) or not isinstance(done, int) or epoch < 0 or done < 0:
            raise InvalidInputError("a state without epoch and position", found=shown(repr(state)))
        self.epoch, self._done, self._continues = epoch, done, True

    # -- batches -----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Batch]:
        total = len(self.order)
        left_early = self._done and not self._continues
        if left_early or (self._done and self.share.is_over(total, self._done)):
            self.epoch, self._done = self.epoch + 1, 0
        self._continues = False
        self.skipped = 0
        done = self._done
        batches = self._batches(self.epoch, done)
        try:
            for batch in batches:
                done = min(done + self.share.step, total)
                self._done = done
                if batch is not None:  # all samples of a batch may have failed
                    yield batch
        finally:
            batches.close()
        self.epoch, self._done = self.epoch + 1, 0
        if self.skipped:
            warn(f"{counted(self.skipped, 'sample')} of the epoch failed and were left out")

    def _rows(self, epoch: int, done: int) -> Iterator[Ints]:
        """The rows of each batch; positions are computed for many batches at once."""
        share, total = self.share, len(self.order)
        waiting: list[Ints] = []
        for positions in share.batches(total, done):
            waiting.append(positions)
            if sum(map(len, waiting)) >= 4096:
                yield from self._at(waiting, epoch)
                waiting = []
            elif len(waiting) == 1 and positions[0] - done < share.step:
                yield from self._at(waiting, epoch)  # the first batch does not wait for others
                waiting = []
        yield from self._at(waiting, epoch)

    def _at(self, positions: list[Ints], epoch: int) -> Iterator[Ints]:
        if positions:
            rows = self.order.at(np.concatenate(positions), epoch)
            yield from np.split(rows, np.cumsum([len(one) for one in positions])[:-1])

    def _batches(self, epoch: int, done: int) -> Generator[Batch]:
        if not self.options.workers:
            for rows in self._rows(epoch, done):
                yield self._given(self._loaded(rows, self.data.attempt(rows)))
            return
        with (
            ThreadPoolExecutor(_READERS, "comal-read") as readers,
            ThreadPoolExecutor(self.options.workers, "comal-decode") as decoders,
        ):
            under_way: deque[tuple[Future[Any], int]] = deque()
            try:
                yield from self._ahead(self._rows(epoch, done), readers, decoders, under_way)
            finally:
                for pool in (readers, decoders):
                    pool.shutdown(wait=False, cancel_futures=True)

    def _ahead(
        self,
        waiting: Iterator[Ints],
        readers: ThreadPoolExecutor,
        decoders: ThreadPoolExecutor,
        under_way: deque[tuple[Future[Any], int]],
    ) -> Iterator[Batch]:
        taken = 0
        following = next(waiting, None)
        while under_way or following is not None:
            while following is not None and len(under_way) < _READERS:
                cost = self._cost(following)
                if under_way and taken + cost > self.options.ahead_bytes:
                    break
                read = readers.submit(self.data.attempt, following)
                made = decoders.submit(self._decoded, following, read)
                under_way.append((made, cost))
                taken += cost
                following = next(waiting, None)
            taken -= under_way[0][1]
            # No name here refers to the batch, so that its arrays are free when the caller's are.
            yield self._given(under_way.popleft()[0].result())

    def _cost(self, rows: Ints) -> int:
        """Bytes of a batch in memory: encoded, and decoded as large as the last ones."""
        return self.data.nbytes(rows) + int(self._size_of_decoded * len(rows))

    def _decoded(self, rows: Ints, read: Future[Any]) -> Any:
        return self._loaded(rows, read.result())

    def _given(self, loaded: tuple[Batch, int]) -> Batch:
        batch, failed = loaded
        self.skipped += failed
        return None if batch is None else converted(batch, self.options.to)

    def _loaded(self, rows: Ints, raw: Any) -> tuple[Batch, int]:
        """A batch, and how many of its samples failed."""
        places = Places(self._buffers, len(rows))
        complete = self.data.complete(rows, raw, places.free)
        change = self.data.transform
        samples = [places.keep(one) if change is None else change(one) for one in complete]
        batch = places.batch(samples, self.options.together) if samples else None
        self._size_of_decoded = max(self._size_of_decoded, places.nbytes / len(rows))
        return batch, len(rows) - len(samples)


def loader_of(
    data: Dataset, order: Mapping[str, Any], share: Mapping[str, Any], options: LoaderOptions
) -> Loader:
    """A loader from the arguments of its order and share, and the options of a caller."""

    def of(kind: type) -> dict[str, Any]:
        names = kind.__dataclass_fields__  # type: ignore[attr-defined] # a dataclass
        return {
            one.name: getattr(options, one.name) for one in fields(options) if one.name in names
        }

    ordered = Order(len(data), **order, **of(Order))
    return Loader(data, ordered, Share(**share, **of(Share)), options)
