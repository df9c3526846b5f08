"""What all sides of the training benchmark share: the samples, an epoch, the memory of workers."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

BATCH = 32
NAMES = {"chips": "*.tif", "small": "*.bin"}


def samples(directory: str, kind: str) -> list[Path]:
    """The loose files that every format is made from, in order."""
    return sorted((Path(directory) / kind).glob(NAMES[kind]))


def chip(row: int) -> Any:
    """Four bands of a smooth surface with noise, which deflate to six tenths of their size."""
    random = np.random.default_rng(row)
    y, x = np.mgrid[0:256, 0:256] / 256
    field = np.zeros((4, 256, 256))
    for wave in range(1, 6):
        slope, phase = random.normal(0, 4, (2, 4, 1, 1)), random.uniform(0, 7, (4, 1, 1))
        field += np.sin(wave * (slope[0] * x + slope[1] * y) + phase) / wave
    return np.clip(2000 + 600 * field + random.normal(0, 20, field.shape), 0, 1e4).astype(np.uint16)


def batches(
    data: Any, workers: int, kind: Any = None, size: int | None = BATCH, **options: Any
) -> Any:
    """PyTorch's loader or one derived from it, with workers that stay for the next epoch."""
    from torch.utils.data import DataLoader

    stay = {"num_workers": workers, "persistent_workers": workers > 0}
    return (kind or DataLoader)(data, batch_size=size, **stay, **options)


def drain(loader: Iterable[Any]) -> list[int]:
    """Number and content of the samples of an epoch, in whatever order they come."""
    count = content = 0
    for batch in loader:
        for sample in batch:
            data = sample if isinstance(sample, bytes) else np.ascontiguousarray(sample)
            content += zlib.crc32(data)
            count += 1
    return [count, content]


def epoch(loader: Iterable[Any]) -> dict[str, Any]:
    """The second epoch: workers are there, and what the first one brought has been compared."""
    check = drain(loader)
    started, used = time.perf_counter(), _processor()
    count = sum(len(batch) for batch in loader)
    seconds = time.perf_counter() - started
    assert count == check[0], (count, check)
    return {"seconds": seconds, "check": check, "note": _processor() - used}


def memory(loader: Iterable[Any]) -> dict[str, Any]:
    """In each epoch, MB of this process, of its largest child, and what that shares with no one."""
    epochs = []
    for _ in range(3):
        peak = [0, 0, 0]
        for number, _batch in enumerate(loader):
            if number % 8 == 7:
                own, *children = [_megabytes(process) for process in _processes()]
                now = [own[0], *(max(sizes) for sizes in zip(*children, (0, 0), strict=True))]
                peak = [max(pair) for pair in zip(peak, now, strict=True)]
        epochs.append(peak)
    return {"seconds": 0, "check": len(epochs), "note": epochs}


def rate(function: Any, items: list[Any], threads: int) -> float:
    """Items a second that so many threads get through."""
    function(items[0])
    with ThreadPoolExecutor(threads) as pool:
        started = time.perf_counter()
        list(
            pool.map(lambda first: [function(one) for one in items[first::threads]], range(threads))
        )
        return len(items) / (time.perf_counter() - started)


def _processes(process: str = "self") -> list[Path]:
    """A process and all below it."""
    found = [Path("/proc", process)]
    for children in found[0].glob("task/*/children"):
        for child in children.read_text().split():
            found += _processes(child)
    return found


def _processor() -> float:
    """Seconds of processor time so far."""
    fields = [(process / "stat").read_text().rpartition(")")[2].split() for process in _processes()]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def _megabytes(process: Path) -> tuple[int, int]:
    """What is resident, and what of it no other process shares."""
    lines = (process / "smaps_rollup").read_text().splitlines()[1:]
    size = {name: int(value.split()[0]) for name, value in (line.split(":") for line in lines)}
    return size["Rss"] // 1024, (size["Private_Clean"] + size["Private_Dirty"]) // 1024
