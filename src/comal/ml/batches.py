"""Samples put together as a batch, in arrays that are used again, for NumPy, torch or JAX."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from comal.errors import InvalidInputError, MissingExtraError, shown
from comal.limits import KIB
from comal.ml.buffers import Buffers, address
from comal.ml.order import Ints
from comal.parallel import shared_threads

if TYPE_CHECKING:
    from comal.ml.archives import Dataset

Batch = Any
Kind = Literal["numpy", "torch", "jax"]
KINDS = ("numpy", "torch", "jax")
Together = Literal["stack", "pad", "list"]
TOGETHERS = ("stack", "pad", "list")
_NUMBERS = bool | int | float | np.bool_ | np.number
_LARGE = 32 * KIB
"""Bytes of a sample from which on decoding takes longer than handing it to a thread."""


def collate(samples: Sequence[Any], together: Together = "stack", to: Kind = "torch") -> Batch:
    """One batch of samples, for ``torch.utils.data.DataLoader(data, collate_fn=collate)``.

    Parameters
    ----------
    samples
        Dicts with the same keys, or anything else, which stays a list.
    together
        Arrays are stacked if their shapes agree. If they differ: ``"stack"`` is an error that
        names the sample, ``"pad"`` fills up at the end of each axis with 0, ``"list"`` leaves a
        list. Numbers become one array, anything else a list.
    to
        ``"torch"``, ``"numpy"`` or ``"jax"``.

    Returns
    -------
    dict or list
        A dict of arrays with a first axis for the samples, and of lists.

    Raises
    ------
    InvalidInputError
        There are no samples; arrays of one key differ.
    MissingExtraError
        torch or jax is not installed.
    """
    if together not in TOGETHERS:
        raise InvalidInputError(
            "unknown value of together", found=shown(together), expected=", ".join(TOGETHERS)
        )
    if not len(samples):
        raise InvalidInputError("a batch of no samples", expected="1 or more")
    if not isinstance(samples, Fetched):
        samples = Fetched(samples, Places(Buffers(), len(samples)))
    return converted(samples.batch(together), to)


def _column(name: str, values: list[Any], samples: Sequence[Any], how: Together) -> Any:
    first = values[0]
    if all(type(value) is np.ndarray for value in values):
        if len({(value.shape, value.dtype) for value in values}) == 1:
            return np.stack(values)
        return values if how == "list" else _uneven(name, values, samples, how)
    if isinstance(first, _NUMBERS) and all(type(one) is type(first) for one in values):
        found = np.array(values)
        if type(first) is int and found.dtype == np.float64:  # some are beyond int64, others not
            return values if min(values) < 0 else np.array(values, np.uint64)
        return values if found.dtype == object else found  # larger than 64 bits
    return values


def _uneven(name: str, values: list[Any], samples: Sequence[Any], how: Together) -> Any:
    first = values[0]
    for value, sample in zip(values, samples, strict=True):
        fits = value.dtype == first.dtype and value.ndim == first.ndim
        if not fits or (how == "stack" and value.shape != first.shape):
            raise InvalidInputError(
                f"samples of one batch differ in {shown(name)}",
                where=f"sample {shown(sample.get('id'), 120)}",
                found=f"{value.dtype} {value.shape}",
                expected=f"{first.dtype} {first.shape}, as sample "
                f"{shown(samples[0].get('id'), 120)}",
                hint="a window of the field cuts them, together='pad' fills them up",
            )
    shape = tuple(np.array([value.shape for value in values]).max(axis=0).tolist())
    batch = np.zeros((len(values), *shape), first.dtype)
    for number, value in enumerate(values):
        place: Any = (number, *map(slice, value.shape))
        batch[place] = value
    return batch


def converted(batch: Batch, to: Kind) -> Batch:
    """A batch with its arrays as tensors of another library, which share their memory."""
    if to == "numpy":
        return batch
    if to not in KINDS:
        raise InvalidInputError("unknown library", found=shown(to), expected=", ".join(KINDS))
    convert = _torch() if to == "torch" else _jax()

    def each(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: each(one) for name, one in value.items()}
        if isinstance(value, list):  # samples or a series that cannot be stacked
            return [each(one) for one in value]
        return convert(value) if isinstance(value, np.ndarray) else value

    return each(batch)


def _torch() -> Callable[[Any], Any]:
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise MissingExtraError.of("torch", "ml", "to='torch'") from error

    def tensor(array: Any) -> Any:
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        try:
            return torch.from_numpy(array)
        except TypeError as error:
            raise InvalidInputError(
                "torch has no tensors of this type",
                found=str(array.dtype),
                hint="to='numpy', or decode it to numbers: a function as decode of a Field",
            ) from error

    return tensor


def _jax() -> Callable[[Any], Any]:
    try:
        from jax import numpy  # type: ignore[import-not-found] # noqa: PLC0415 - as torch
    except ImportError as error:
        raise MissingExtraError("to='jax' needs jax", library="jax") from error
    convert: Callable[[Any], Any] = numpy.asarray
    return convert


class Places:
    """The places of samples in the arrays of one batch, so that pixels are decoded into them."""

    def __init__(self, buffers: Buffers, count: int) -> None:
        self._buffers = buffers
        self._count = count
        self._arrays: dict[str, Any] = {}
        self._taken = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(array.nbytes for array in self._arrays.values())

    def free(self, after: int = 0) -> dict[str, Any]:
        """For each field the array of the sample `after` the next; none before the first."""
        return {name: array[self._taken + after] for name, array in self._arrays.items()}

    def keep(self, sample: dict[str, Any]) -> dict[str, Any]:
        """Put the arrays of a sample into their places, unless they were decoded there."""
        for name, value in sample.items():
            if type(value) is not np.ndarray:  # an array of another class has more to it
                continue
            if not self._taken:
                shape = (self._count, *value.shape)
                self._arrays[name] = self._buffers.take(shape, value.dtype)
            array = self._arrays.get(name)
            if array is None or array.shape[1:] != value.shape or array.dtype != value.dtype:
                continue
            if value.base is not array.base:
                array[self._taken] = value
                sample[name] = array[self._taken, ...]
        self._taken += 1
        return sample

    def batch(self, samples: Sequence[Any], how: Together) -> Batch:
        """One batch of samples, of which all or none were kept."""
        if not all(isinstance(one, Mapping) for one in samples):
            return list(samples)
        return {
            name: self._arrays[name][: len(samples)]
            if name in self._arrays and self._is_whole(name, samples)
            else _column(name, [sample.get(name) for sample in samples], samples, how)
            for name in samples[0]
        }

    def _is_whole(self, name: str, samples: Sequence[Any]) -> bool:
        """Whether the values of samples are what was kept, in that order."""
        array = self._arrays[name]
        start, step = address(array), array.strides[0]
        return len(samples) <= len(array) and all(
            isinstance(value := sample.get(name), np.ndarray)
            and value.base is array.base
            and (value.shape, value.strides) == (array.shape[1:], array.strides[1:])
            and value.dtype == array.dtype
            and address(value) == start + number * step
            for number, sample in enumerate(samples)
        )


class Fetched(list[Any]):
    """Samples of a batch, whose pixels are neighbours in memory, so that nobody copies them."""

    def __init__(self, samples: Iterable[Any], places: Places) -> None:
        super().__init__(samples)
        self.places = places

    @classmethod
    def of(
        cls,
        data: Dataset,
        rows: Ints,
        raw: Any,
        buffers: Buffers,
        first: int = 0,
        *,
        alone: bool,
    ) -> Fetched:
        """Some rows of a data set, decoded and changed; see `Dataset.complete`.

        A process that has no workers (`alone`) decodes large samples in threads.
        """
        places, change, threads = Places(buffers, len(rows)), data.transform, None
        if alone and data.nbytes(rows) > _LARGE * len(rows):
            threads = shared_threads("decode", os.cpu_count() or 1)
        complete = data.complete(rows, raw, places.free, first, threads)
        return cls(map(places.keep if change is None else change, complete), places)

    def batch(self, together: Together) -> Batch:
        """One batch of them."""
        return self.places.batch(self, together)
