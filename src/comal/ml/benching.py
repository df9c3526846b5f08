"""What limits a loader: its storage, its decoding, or Python."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from comal.errors import InvalidInputError
from comal.ml.archives import Dataset, Sample
from comal.ml.loader import Loader
from comal.ml.order import Ints, Shuffle
from comal.progress import Progress, silent

_ENDLESS = 1 << 20
_LONGEST = 86_400
_ADVICE = {
    "storage": "read neighbours together (shuffle='blocks'), read further ahead (ahead_bytes=), or "
    "bring the bytes nearer: a faster disk, 'comal mirror', and for remote archives cache=",
    "decoding": "decode with as many workers as there are processors, decode less (bands and a "
    "window of a Field), or store GeoTIFF with deflate in one strip or tile",
    "python": "decode in processes (processes=True, or torch's DataLoader over the same data set), "
    "or have fewer samples that are larger, or a larger batch_size",
}
"""By limit."""


@dataclass(frozen=True, slots=True)
class Bench:
    """How many samples a second a loader gives, and what keeps it from more."""

    rates: Mapping[str, float]
    """Samples a second: of ``everything``; of ``storage``, without decoding; of ``decoding``, from
    memory; of ``python``, from memory and without decoding."""
    sample_bytes: int
    """Encoded bytes of a sample, on average."""
    limit: str
    """What takes most of the time: ``storage``, ``decoding`` or ``python``."""
    advice: str
    """What to change, the most promising first."""


class _Stage(Dataset):
    """Samples of which only some steps are done: a batch that is `held` comes again and again."""

    def __init__(self, data: Dataset, batch: int, held: Any = None, *, decodes: bool) -> None:
        self.on_error = data.on_error
        self._data, self._batch, self._held, self._decodes = data, batch, held, decodes

    def __len__(self) -> int:
        return len(self._data) if self._held is None else _ENDLESS

    def nbytes(self, rows: Ints) -> int:
        return self._data.nbytes(rows % len(self._data))

    def read(self, rows: Ints) -> Any:
        return self._data.read(rows) if self._held is None else self._held

    def decode(self, place: int, raw: Any, out: Mapping[str, Any]) -> Sample:
        # Batches may be read together.
        return self._data.decode(place % self._batch, raw, out) if self._decodes else {"at": place}


def bench(
    data: Dataset,
    batch_size: int = 32,
    *,
    shuffle: Shuffle = True,
    workers: int = 2,
    seconds: float = 3.0,
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
    some = np.arange(batch_size) % len(data)
    held = data.read(some)
    stages = {
        "everything": data,
        "storage": _Stage(data, batch_size, decodes=False),
        "decoding": _Stage(data, batch_size, held, decodes=True),
        "python": _Stage(data, batch_size, held, decodes=False),
    }
    rates, busy = {}, {}
    for number, (name, stage) in enumerate(stages.items()):
        progress(number, len(stages), f"measuring {name}")
        # Another seed for each, or a run would find what the last one has read.
        loader = stage.loader(batch_size, shuffle=shuffle, seed=number, workers=workers)
        rates[name], busy[name] = _rate(loader, seconds)
    limit = limit_of(rates, busy["storage"])
    return Bench(rates, round(data.nbytes(some) / batch_size), limit, _ADVICE[limit])


def _rate(loader: Loader, seconds: float) -> tuple[float, float]:
    """Samples a second after the first batch, and processors in use."""
    batches = _endless(loader)
    next(batches)
    begun, used = time.perf_counter(), time.process_time()
    samples, passed = 0, 0.0
    while passed <= seconds:
        batch = next(batches)
        samples += len(next(iter(batch.values())) if isinstance(batch, Mapping) else batch)
        passed = time.perf_counter() - begun
    return samples / passed, (time.process_time() - used) / passed


def _endless(loader: Loader) -> Iterator[Any]:
    """Epoch after epoch."""
    while True:
        given = False
        for batch in loader:
            given = True
            yield batch
        if not given:
            raise InvalidInputError("no batch to measure, as all samples failed")


def limit_of(rates: Mapping[str, float], busy: float) -> str:
    """What takes most of the time.

    Python has its part in all runs. It is the limit if the others are not much slower than it is
    alone, and if reading keeps a processor busy (`busy`, their number) instead of waiting.
    """
    slowest = min(("storage", "decoding"), key=lambda name: rates[name])
    if rates["python"] < 2 * rates[slowest] or (slowest == "storage" and busy > 0.8):
        return "python"
    return slowest
