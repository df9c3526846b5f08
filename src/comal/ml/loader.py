"""Batches in the order of an epoch, read and decoded before they are asked for."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from comal.errors import InvalidInputError, counted
from comal.limits import MIB
from comal.ml.batches import (
    Batch,
    Fetched,
    Kind,
    Together,
    converted,
)
from comal.ml.buffers import Buffers, keep_freed_memory
from comal.ml.order import Epochs, Ints, Order, SamplerOptions
from comal.ml.processes import Loaded, Processes, pays
from comal.ml.splits import coded, column_of
from comal.public import guarded_class, warn

if TYPE_CHECKING:
    from comal.ml.archives import Dataset

_SOME = 1024
"""Samples whose sizes stand for all."""
_TRIED = 8
"""Samples whose decoding is timed."""
_READERS = 16
"""Reads at once at most; each may send several requests."""
_AT_FIRST = 4
"""Reads at once until the first batch is there; two more with each, for the requests compete."""
_TOGETHER = MIB
_SAMPLES = 1024
"""Bytes and samples up to which batches are read together, as one takes longer than its bytes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoaderOptions(SamplerOptions):
    """How batches are made of samples, and how far a `Loader` reads ahead.

    Parameters
    ----------
    workers
        Threads or processes that decode. With 0 a batch is read and decoded when it is asked for,
        large samples in threads that all data sets share.
    processes
        Whether workers are processes, which read and decode, and call `transform` and a function
        as `on_error`: for decoders that hold the lock of the interpreter. ``"auto"`` decodes a few
        samples in one thread and in two, and takes processes if two are hardly faster; then
        `Loader.processes` tells what was taken. They are spawned: a script must start its work
        below ``if __name__ == "__main__"``, and all functions are those of a module.
    ahead_bytes
        Bytes that may be on their way or wait in memory, encoded and decoded, besides the batch
        that is in use. One batch is always under way.
    to
        What arrays become: ``"numpy"``, ``"torch"`` or ``"jax"``.
    together
        ``"stack"``, ``"pad"`` or ``"list"``: see `collate`.
    shuffle, seed, rank, ranks, rest, drop_last, weights, balance, draws, strata, block, window
        See `SamplerOptions`.
    """

    workers: int = 2
    processes: bool | Literal["auto"] = False
    ahead_bytes: int = 256 * MIB
    to: Kind = "numpy"
    together: Together = "stack"

    def __post_init__(self) -> None:
        SamplerOptions.__post_init__(self)
        if self.workers < 0 or self.ahead_bytes < 1:
            raise InvalidInputError(
                "a loader needs memory to read ahead, and no negative workers",
                found=f"{self.workers} workers, {self.ahead_bytes} bytes",
            )


@guarded_class
class Loader(Epochs):
    """An iterable of batches, read and decoded ahead; each iteration is the next epoch.

    See `Epochs` for its place in a run, which is after the batch that was given last. Made by
    `Dataset.loader`.

    Parameters
    ----------
    data
        The samples.
    order
        Which samples come when.
    options
        How they are loaded; None for the defaults.
    """

    def __init__(self, data: Dataset, order: Order, options: LoaderOptions | None = None) -> None:
        super().__init__(order, data.marks)
        keep_freed_memory()
        self.data = data
        self.options = options or LoaderOptions()
        self.skipped = 0
        """Samples of this epoch that failed and were left out."""
        self.processes: bool | None = None
        """Whether processes decode; None until the first batch if that is to be measured."""
        self._pool: Processes | None = None
        self._buffers = Buffers()
        self._size_of_decoded = 0.0

    def __iter__(self) -> Iterator[Batch]:
        self._begin()
        return self._epoch()

    def _epoch(self) -> Iterator[Batch]:
        self.skipped = 0
        batches = self._batches(self.epoch, self._done)
        try:
            for batch in self._counted(batches, self._done):
                if batch is not None:  # all samples of a batch may have failed
                    yield batch
        finally:
            batches.close()
        if self.skipped:
            warn(f"{counted(self.skipped, 'sample')} of the epoch failed and were left out")

    def _batches(self, epoch: int, done: int) -> Generator[Batch]:
        if self.processes is None:
            self.processes = self.options.workers > 0 and self._wants_processes(epoch, done)
        if self.processes:
            yield from map(self._given, self._by_processes(epoch, done))
        else:
            yield from map(self._given, self._loading(self._rows(epoch, done)))

    def _wants_processes(self, epoch: int, done: int) -> bool:
        if self.options.processes != "auto":
            return self.options.processes
        rows = next(self._rows(epoch, done), np.zeros(0, np.int64))[:_TRIED]
        raw = self.data.attempt(rows) if len(rows) else None
        return raw is not None and pays(lambda place: self.data.decode(place, raw, {}), len(rows))

    def _by_processes(self, epoch: int, done: int) -> Iterator[Loaded]:
        count = self.options.workers
        if self._pool is None:
            ahead = max(1, self.options.ahead_bytes // count)
            drawn = dict.fromkeys(("weights", "strata", "balance", "draws"))  # the order knows
            one: Any = {"workers": 1, "processes": False, "ahead_bytes": ahead, **drawn}
            options = replace(self.options, **one)
            self._pool = Processes(partial(_part, self.data, self.order, options), count)
            weakref.finalize(self, self._pool.close)
        pool, self._pool = self._pool, None
        try:
            yield from pool.batches((epoch, done))
        except BaseException:  # also when the epoch is left early
            pool.close()
            raise
        self._pool = pool

    def _loading(self, rows: Iterator[Ints]) -> Iterator[Loaded]:
        if not self.options.workers:
            for group in self._groups(rows):
                yield from self._loaded(group, self.data.attempt(np.concatenate(group)))
            return
        with (
            ThreadPoolExecutor(_READERS, "comal-read") as readers,
            ThreadPoolExecutor(self.options.workers, "comal-decode") as decoders,
        ):
            try:
                yield from self._ahead(self._groups(rows), readers, decoders)
            finally:
                for pool in (readers, decoders):
                    pool.shutdown(wait=False, cancel_futures=True)

    def _groups(self, rows: Iterator[Ints]) -> Iterator[list[Ints]]:
        """Batches that are read together; the first does not wait for others."""
        most = min(_TOGETHER, self.options.ahead_bytes // _READERS)
        group = list(islice(rows, 1))
        size = count = most
        for some in rows:
            mine = self.data.nbytes(some)
            if size + mine > most or count + len(some) > _SAMPLES:
                yield group
                group, size, count = [], 0, 0
            group.append(some)
            size, count = size + mine, count + len(some)
        if group:
            yield group

    def _ahead(
        self,
        waiting: Iterator[list[Ints]],
        readers: ThreadPoolExecutor,
        decoders: ThreadPoolExecutor,
    ) -> Iterator[Loaded]:
        under_way: deque[tuple[Future[list[Loaded]], int]] = deque()
        loaded: list[Loaded] = []
        taken, most = 0, _AT_FIRST
        following = next(waiting, None)
        while under_way or loaded or following is not None:
            while following is not None and len(under_way) < most:
                rows = np.concatenate(following)
                cost = self._cost(rows)
                if under_way and taken + cost > self.options.ahead_bytes:
                    break
                read = readers.submit(self.data.attempt, rows)
                made = decoders.submit(self._decoded, following, read)
                under_way.append((made, cost))
                taken += cost
                following = next(waiting, None)
            # No name here refers to a batch, so that its arrays are free when the caller's are.
            while loaded:
                yield loaded.pop()
            if under_way:
                taken -= under_way[0][1]
                loaded = under_way.popleft()[0].result()
                most = min(most + 2, _READERS)

    def _cost(self, rows: Ints) -> int:
        """Bytes of samples in memory: encoded, and decoded as large as the largest so far."""
        return self.data.nbytes(rows) + int(self._size_of_decoded * len(rows))

    def _decoded(self, group: list[Ints], read: Future[Any]) -> list[Loaded]:
        """The batches of a group, the first one last."""
        return [*self._loaded(group, read.result())][::-1]

    def _given(self, loaded: Loaded) -> Batch:
        batch, failed = loaded
        self.skipped += failed
        return None if batch is None else converted(batch, self.options.to)

    def _loaded(self, group: list[Ints], raw: Any) -> Iterator[Loaded]:
        """Batches, and how many samples of each failed."""
        first = 0
        for rows in group:
            alone = not self.options.workers
            samples = Fetched.of(self.data, rows, raw, self._buffers, first, alone=alone)
            batch = samples.batch(self.options.together) if samples else None
            size = samples.places.nbytes / len(rows)
            self._size_of_decoded = max(self._size_of_decoded, size)
            first += len(rows)
            failed = len(rows) - len(samples)
            del samples
            yield batch, failed
            del batch


def _part(
    data: Dataset,
    order: Order,
    options: LoaderOptions,
    buffers: Buffers,
    place: tuple[int, int],
    epoch: tuple[int, int],
) -> Iterator[Loaded]:
    """The batches that one of several processes loads: `place` is its number and their count."""
    loader, (number, count) = Loader(data, order, options), place
    loader._buffers = buffers  # noqa: SLF001 - memory that is shared
    return loader._loading(islice(loader._rows(*epoch), number, None, count))  # noqa: SLF001


def order_of(data: Dataset, batch: int, how: SamplerOptions) -> Order:
    """The order of the samples of a data set by options of a caller, which may name columns."""
    chosen: dict[str, Any] = {one.name: getattr(how, one.name) for one in fields(SamplerOptions)}
    if isinstance(how.weights, str):
        weights = column_of(data.columns, how.weights)
        chosen["weights"] = weights.to_numpy(zero_copy_only=False)
    if isinstance(how.strata, str):
        chosen["strata"], _ = coded(column_of(data.columns, how.strata))
    if how.balance is not None:
        classes, _ = coded(column_of(data.columns, how.balance))
        counts = np.bincount(classes + 1, minlength=1)
        each = 1 / np.maximum(counts, 1)[classes + 1]
        chosen |= {"balance": None, "weights": np.where(classes < 0, 0, each)}
    if how.block is None:
        chosen["block"] = _usual_block(data) if how.shuffle == "blocks" else 2
    if how.window is None:
        chosen["window"] = 16 if chosen["block"] == 2 else 32
    return Order(len(data), batch, **chosen)


def _usual_block(data: Dataset) -> int:
    """Samples of a block, a function of the index alone."""
    rows = np.linspace(0, max(0, len(data) - 1), min(len(data), _SOME)).astype(np.int64)
    fitting = MIB * len(rows) // max(1, int(data.nbytes(rows)))
    return min(max(2, fitting // 16), 64)
