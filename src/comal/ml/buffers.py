"""Memory of batches that is used again, also where another process holds the batch."""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from functools import cache
from typing import Any

import numpy as np

from comal.errors import system_errors

_KEPT = 8
"""Arrays that wait for their next use at most."""
_FREED = 31 << 20
_MEMORY = "/dev/shm"  # noqa: S108 - files without a name


@cache
def keep_freed_memory() -> None:
    """Have the bytes of the next batch where those of the last one were.

    glibc returns memory to the system when the blocks of a batch are freed, which then clears its
    pages once more: a twelfth of the time of a batch. It keeps what is no larger than twice the
    largest block, up to 32 MiB, that it has seen freed.
    """
    np.empty(_FREED, np.uint8)


class Buffers:
    """Arrays for batches, used again once nobody holds the batch that had them.

    New memory for each batch costs more than decoding into memory that is there: the system
    clears every page before it is used.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrays: list[Any] = []

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array of undefined content."""
        with self._lock:
            for number in range(len(self._arrays)):
                array = self._arrays[number]
                # The list, `array` and the argument of the call refer to it, and nobody else: a
                # view or a tensor of a batch would.
                unused = sys.getrefcount(array) == 3 and not self._is_lent(array)
                if array.shape == shape and array.dtype == dtype and unused:
                    self._arrays.append(self._arrays.pop(number))
                    return array[...]
            array = self._new(shape, np.dtype(dtype))
            self._arrays.append(array)
            del self._arrays[:-_KEPT]
            return array[...]

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        """An array that refers to no other one."""
        return np.empty(shape, dtype)

    def _is_lent(self, array: Any) -> bool:  # noqa: ARG002 - others look at it
        """Whether somebody holds an array to whom no name here refers."""
        return False


class SharedBuffers(Buffers):
    """Arrays in files without a name, which another process maps into its memory.

    The last byte of a file says whether that process holds the array: `lent` sets it, and
    `received` has it cleared in the end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files: dict[int, tuple[mmap.mmap, Any]] = {}

    def _new(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
        size = math.prod(shape) * dtype.itemsize + 1
        file = _allocated(size)
        memory = mmap.mmap(file.fileno(), size)
        array = np.ndarray(shape, dtype, memory)
        self._files[address(array)] = memory, file
        weakref.finalize(array, self._drop, address(array))
        return array

    def _is_lent(self, array: Any) -> bool:
        return bool(self._files[address(array)][0][-1])

    def _drop(self, place: int) -> None:
        """Close the file of an array that is gone; who has it mapped keeps its memory."""
        _, file = self._files.pop(place)
        file.close()

    def lent(self, place: int) -> int | None:
        """The descriptor of the file with the array at an address, which is lent from now on.

        None if there is none, or somebody has it already.
        """
        found = self._files.get(place)
        if found is None or found[0][-1]:
            return None
        memory, file = found
        memory[-1] = 1
        handle: int = file.fileno()
        return handle


def received(handle: int, shape: tuple[int, ...], dtype: Any) -> Any:
    """The array in a file that another process has lent; closes the descriptor."""
    try:
        memory = mmap.mmap(handle, 0)
    finally:
        os.close(handle)
    array = np.ndarray(shape, dtype, memory)
    weakref.finalize(array, _give_back, memory, os.getpid()).atexit = False
    return array


def _give_back(memory: mmap.mmap, owner: int) -> None:
    if os.getpid() == owner:  # and not a fork of it, which has the array too
        memory[-1] = 0


@cache
def _for_torch() -> SharedBuffers:
    """Arrays for the batches of this process, a worker of torch, and how it sends their tensors.

    torch itself sends a tensor in memory of its own, which the system clears for each batch.
    """
    from multiprocessing.reduction import DupFd, ForkingPickler  # noqa: PLC0415 - not on Windows

    import torch  # noqa: PLC0415 - loaded already
    from torch.multiprocessing.reductions import reduce_tensor  # noqa: PLC0415

    buffers = SharedBuffers()

    def reduced(tensor: Any) -> Any:
        plain = tensor.layout == torch.strided and tensor.is_contiguous()
        if plain and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg()):
            handle = buffers.lent(tensor.data_ptr())
            if handle is not None:
                return _tensor, (DupFd(handle), tensor.shape, tensor.dtype)
        return reduce_tensor(tensor)

    ForkingPickler.register(torch.Tensor, reduced)
    return buffers


def _tensor(handle: Any, shape: Any, dtype: Any) -> Any:
    """A tensor that a worker has lent."""
    import torch  # noqa: PLC0415 - loaded already

    array = received(handle.detach(), (shape.numel() * dtype.itemsize,), np.uint8)
    return torch.from_numpy(array).view(dtype).view(shape)


def buffers_of_worker() -> Buffers | None:
    """Where a data set puts its pixels that torch has sent to a worker; None if it has not."""
    workers = sys.modules.get("torch.utils.data")
    if workers is None or workers.get_worker_info() is None:
        return None
    return _for_torch() if sys.platform == "linux" else Buffers()


def _allocated(size: int) -> Any:
    """A file without a name in memory, or on disk if there is no room."""
    with suppress(OSError):
        return _reserved(size, _MEMORY)
    with system_errors("cannot share the memory of a batch", tempfile.gettempdir()):
        return _reserved(size, None)


def _reserved(size: int, folder: str | None) -> Any:
    file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - who sends the batch closes it
    try:
        # Writing to pages that the system cannot give would kill the process.
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError:
        file.close()
        raise
    return file


def address(array: Any) -> int:
    """Where the pixels of an array begin in memory."""
    found: int = array.__array_interface__["data"][0]
    return found
