"""Epochs of an order, one after the other: where a run is, and how it continues there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from comal.errors import InvalidInputError, shown
from comal.limits import MIB
from comal.ml.order import Ints, Order, Rest, Share, Shuffle
from comal.ml.splits import coded, column_of
from comal.public import check_fields, guarded_class, warn
from comal.samples.payloads import bounds_of, bytes_of

_VERSION = 1
_OLD_BLOCKS = "64, 32"
"""Block and window of states that do not tell them."""
_SOME = 1024
"""Samples whose sizes stand for all."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """Which samples the batches of an epoch hold.

    Parameters
    ----------
    rest, drop_last
        What happens with the last, smaller step of an epoch: see `Share`.
    weights, strata, draws
        See `Order`. A text as weights or strata names a column of the data set.
    balance
        A column: samples are drawn so that its values are equally likely, and null never.
    block, window
        Those of `Order` for ``shuffle="blocks"``. By default a block has a sixteenth of the samples
        that a MiB holds by their mean size, from 2 to 64; a window has 32 blocks, and 16 blocks of
        2, which a batch of 32 then reads whole.
    """

    rest: Rest = "pad"
    drop_last: bool = False
    weights: Any = None
    strata: Any = None
    balance: str | None = None
    draws: int | None = None
    block: int | None = None
    window: int | None = None

    def __post_init__(self) -> None:
        check_fields(self)


@guarded_class
class Epochs:
    """What a `Sampler` and a `Loader` share: each iteration is the next epoch.

    `state_dict` says where it is, `load_state_dict` continues there, also with other workers,
    ranks or batch sizes: no sample of the epoch is lost or comes twice. All ranks have the same
    state, and that of a loader fits a sampler. `len` is the number of batches of this rank in a
    whole epoch.
    """

    def __init__(self, order: Order, share: Share | None = None, ids: Any = None) -> None:
        self._ids = ids
        self.order = order
        self.share = share or Share()
        self.epoch = 0
        """The epoch of the next batch."""
        self._done = 0
        self._continues = False

    def __len__(self) -> int:
        return self.share.steps(len(self.order))

    @cached_property
    def _samples(self) -> str | None:
        return None if self._ids is None else digest_of(self._ids)

    @cached_property
    def _drawn(self) -> str | None:
        """A checksum of weights or strata."""
        order = self.order
        drawn = order.strata if order.weights is None else order.weights
        return None if drawn is None else f"{isal_zlib.crc32(drawn):08x}"

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
            self._go_to(epoch, min(batches * self.share.step, len(self.order)))

    def state_dict(self) -> dict[str, Any]:
        """Where the run is: after the batch that was given last."""
        return {
            "version": _VERSION,
            "epoch": self.epoch,
            "done": self._done,
            "samples": len(self.order),
            "seed": self.order.seed,
            "shuffle": self.order.shuffle,
            "ids": self._samples,
            "drawn": self._drawn,
            "blocks": self.order.blocks,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a run was.

        Raises
        ------
        InvalidInputError
            The state is of another order: other samples, seed or shuffling.
        """
        mine = self.state_dict()
        state = {"blocks": _OLD_BLOCKS if state.get("shuffle") == "blocks" else None, **state}
        for name in ("version", "samples", "seed", "shuffle", "ids", "drawn", "blocks"):
            unknown = name == "drawn" and name not in state
            unknown |= name == "ids" and None in (state.get(name), mine[name])
            if state.get(name) != mine[name] and not unknown:
                raise InvalidInputError(
                    "the state of another loader",
                    where=name,
                    found=shown(repr(state.get(name))),
                    expected=repr(mine[name]),
                    hint="use the same samples in the same order (source, where, split), the same "
                    "seed and shuffle, weights and strata, block and window; set_epoch begins with "
                    "others",
                )
        epoch, done = state.get("epoch"), state.get("done")
        if not isinstance(epoch, int) or not isinstance(done, int) or epoch < 0 or done < 0:
            raise InvalidInputError("a state without epoch and position", found=shown(repr(state)))
        self._go_to(epoch, done)

    def _go_to(self, epoch: int, done: int) -> None:
        if done and self.share.is_over(len(self.order), done):
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
            done = self._done = min(done + self.share.step, len(self.order))
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
        batches, count = self.share.batches(len(self.order), done), 1
        while some := list(islice(batches, count)):
            rows = self.order.at(np.concatenate(some), epoch)
            yield from np.split(rows, np.cumsum([len(one) for one in some])[:-1])
            # The first batch did not wait for others; strata are spread over all rows at once.
            together = 4096 if self.order.strata is None else len(self.order)
            count = 1 + together // self.share.batch


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
    order, share
        Which samples come when, and those of this rank; None for one rank and batches of 1.
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


def planned(
    data: Any, options: SamplerOptions, shuffle: Shuffle, seed: int, **share: int
) -> tuple[Order, Share]:
    """The order of the samples of a data set, and the share of a rank, by options of a caller."""
    table, weights, strata = data.columns, options.weights, options.strata
    if isinstance(weights, str):
        weights = column_of(table, weights).to_numpy(zero_copy_only=False)
    if options.balance is not None:
        if weights is not None or strata is not None:
            raise InvalidInputError("weights, strata and balance exclude one another")
        classes, _ = coded(column_of(table, options.balance))
        counts = np.bincount(classes + 1, minlength=1)
        weights = np.where(classes < 0, 0, 1 / np.maximum(counts, 1)[classes + 1])
    if isinstance(strata, str):
        strata, _ = coded(column_of(table, strata))
    block = options.block
    if block is None:
        block = _usual_block(data) if shuffle == "blocks" else 2
    window = options.window if options.window is not None else 16 if block == 2 else 32
    drawn = {"weights": weights, "strata": strata, "draws": options.draws}
    order = Order(len(data), shuffle, seed, block, window, **drawn)
    return order, Share(rest=options.rest, drop_last=options.drop_last, **share)


def _usual_block(data: Any) -> int:
    """Samples of a block, a function of the index alone."""
    rows = np.linspace(0, max(0, len(data) - 1), min(len(data), _SOME)).astype(np.int64)
    fitting = MIB * len(rows) // max(1, int(data.nbytes(rows)))
    return min(max(2, fitting // 16), 64)
