"""What limits a loader: its storage, its decoding, or Python."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.limits import MIB
from comal.ml.archives import Dataset, Sample
from comal.ml.loader import Loader
from comal.ml.order import Ints, Shuffle
from comal.progress import Progress, silent

STAGES = ("everything", "storage", "decoding", "python")
_HELD_BYTES, _HELD = 64 * MIB, 16
"""Encoded bytes and batches that are kept in memory to be decoded again and again."""
_ENDLESS = 1 << 20
_LONGEST = 86_400


@dataclass(frozen=True, slots=True)
class Bench:
    """How many samples a second a loader gives, and what keeps it from more."""

    rates: Mapping[str, float]
    """Samples a second: of ``everything``; of ``storage``, without decoding; of ``decoding``, from
    memory; of ``python``, from memory and without decoding."""
    first: float
    """Seconds until the first batch."""
    sample_bytes: int
    """Encoded bytes of a sample, on average."""
    limit: str
    """What takes most of the time: ``storage``, ``decoding`` or ``python``."""
    advice: tuple[str, ...]
    """What to change, the most promising first."""


class _Stage(Dataset):
    """Samples of which only some steps are done."""

    def __init__(self, data: Dataset, batch: int, *, held: int = 0, decodes: bool = True) -> None:
        self.on_error = data.on_error
        self._data, self._batch, self._decodes = data, batch, decodes
        starts = range(0, min(len(data), held * batch), batch)
        rows = [np.arange(start, min(start + batch, len(data))) for start in starts]
        self._raws = [(len(some), data.read(some)) for some in rows]

    def __len__(self) -> int:
        return self._batch * _ENDLESS if self._raws else len(self._data)

    def nbytes(self, rows: Ints) -> int:
        """Bytes that are read."""
        return self._data.nbytes(rows % len(self._data))

    def read(self, rows: Ints) -> Any:
        """Bytes from memory, or from the data set."""
        if not self._raws:
            return self._data.read(rows)
        return self._raws[int(rows[0]) // self._batch % len(self._raws)]

    def decode(self, place: int, raw: Any, out: Mapping[str, Any]) -> Sample:
        """A sample of the batch that is in memory, if that is asked for."""
        count, found = raw if self._raws else (place + 1, raw)
        place %= count
        return self._data.decode(place, found, out) if self._decodes else {"place": place}

    def take(self, rows: Any) -> Any:
        """The same steps of some samples."""
        return _Stage(self._data.take(rows), self._batch, decodes=self._decodes)


def bench(
    data: Dataset,
    batch_size: int = 32,
    *,
    shuffle: Shuffle = True,
    workers: int = 2,
    seconds: float = 3.0,
    remote: bool = False,
    progress: Progress = silent,
) -> Bench:
    """Run a loader for some seconds: whole, without decoding, from memory, and both.

    Files that were read before come from the memory of the system.

    Parameters
    ----------
    data
        The samples.
    batch_size, shuffle, workers
        As for `Dataset.loader`.
    seconds
        Time for each of the four runs, at most a day.
    remote
        Whether the data set is on another machine, for the advice.
    progress
        Called before each run.

    Raises
    ------
    InvalidInputError
        There are no samples; `seconds` is no such time.
    """
    if not len(data):
        raise InvalidInputError("no samples to read", found=repr(data))
    if not 0 <= seconds <= _LONGEST:
        raise InvalidInputError("seconds of a run", found=seconds, expected=f"0 to {_LONGEST}")
    size = data.nbytes(np.arange(min(len(data), batch_size)))
    held = max(1, min(_HELD, _HELD_BYTES // max(1, size)))
    rates, first, busy = {}, 0.0, 0.0
    for number, name in enumerate(STAGES):
        progress(number, len(STAGES), f"measuring {name}")
        stage, order = data, shuffle
        if name == "storage":
            stage = _Stage(data, batch_size, decodes=False)
        elif name != "everything":
            stage = _Stage(data, batch_size, held=held, decodes=name == "decoding")
            order = False
        # Another seed for each, or a run would find what the last one has read.
        loader = stage.loader(batch_size, shuffle=order, seed=number, workers=workers)
        rates[name], waited, share = _rate(loader, seconds)
        first = waited if name == "everything" else first
        busy = share if name == "storage" else busy
    limit = limit_of(rates, busy)
    each = round(size / min(len(data), batch_size))
    return Bench(rates, first, each, limit, _advice(limit, rates, workers, remote=remote))


def _rate(loader: Loader, seconds: float) -> tuple[float, float, float]:
    """Samples a second after the first batch, seconds until then, and processors in use."""
    asked = begun = time.perf_counter()
    used, samples = 0.0, -1
    while True:
        for batch in loader:
            now = time.perf_counter()
            if samples < 0:
                begun, used, samples = now, time.process_time(), 0
                continue
            samples += len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
            if now - begun > seconds:
                passed = now - begun
                return samples / passed, begun - asked, (time.process_time() - used) / passed


def limit_of(rates: Mapping[str, float], busy: float) -> str:
    """What takes most of the time.

    Python has its part in all runs. It is the limit if the others are not much slower than it is
    alone, and if reading keeps a processor busy (`busy`, their number) instead of waiting.
    """
    slowest = min(("storage", "decoding"), key=lambda name: rates[name])
    if rates["python"] < 2 * rates[slowest] or (slowest == "storage" and busy > 0.8):
        return "python"
    return slowest


def _advice(
    limit: str, rates: Mapping[str, float], workers: int, *, remote: bool
) -> tuple[str, ...]:
    processors = len(os.sched_getaffinity(0))
    told = []
    if limit == "storage" and remote:
        told = [
            "keep what was read on a fast disk: cache='/fast/disk'",
            "read neighbours together: shuffle='blocks'",
            "have more on its way: a larger ahead_bytes, a larger batch_size",
            "copy the samples and leaves in use to a nearer place: 'comal mirror'",
        ]
    elif limit == "storage":
        told = ["read neighbours together: shuffle='blocks'", "put the archive on a faster disk"]
    elif limit == "decoding":
        if workers < processors:
            told.append(f"decode with more workers: {workers} of {processors} processors do")
        told.append("decode less: bands and a window of each Field")
        told.append("store leaves that decode faster: GeoTIFF with deflate, in one strip or tile")
    else:
        told = [
            "decode in several processes: torch's DataLoader over the same data set",
            "have fewer samples that are larger, or a larger batch_size",
        ]
    if rates["everything"] < rates[limit] / 2:
        told.append("look at what else runs: the steps are slower together, or a transform is slow")
    return tuple(told)
