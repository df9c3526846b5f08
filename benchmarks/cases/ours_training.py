"""The training cases, with comal: its own loader, and PyTorch's over its data set."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import obstore
import ours_remote
import ours_taco
import training_loop
from obstore.store import S3Store
from training_loop import BATCH, batches
from training_stores import BUCKET, CONNECTIONS, bucket, fetched, served

import comal
from comal import taco
from comal.ml.loader import Loader
from comal.ml.order import Order
from comal.storage import StorageConfig
from comal.storage.coalesce import coalesce
from harness import main_of_case


def prepare(directory: str, peer: str, kind: str) -> dict[str, Any]:
    """One archive of the loose files, for both ways to read it."""
    ours_taco.create_files(directory, str(Path(directory) / kind))
    (Path(directory) / "ours_files.tacozip").rename(Path(directory) / f"{kind}.tacozip")
    return {"seconds": 0}


def prepare_million(directory: str, count: str) -> dict[str, Any]:
    ours_taco.create_batches(directory, count)
    return {"seconds": 0}


class _Field:
    """Batches without their names, as the peers give them."""

    def __init__(self, loader: Iterable[Any], name: str) -> None:
        self.loader, self.name = loader, name

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch[self.name]


def _loader(path: Any, peer: str, kind: str, workers: int, mixed: bool) -> Iterable[Any]:
    if kind == "chips":
        data, to = comal.ml.dataset(path, fields={"data": ""}), "torch"
    else:
        data, to = comal.ml.dataset(path, fields={"data": ""}, decode="bytes"), "numpy"
    if peer == "comal":
        named = data.loader(BATCH, shuffle=mixed, workers=workers, processes="auto", to=to)
    else:
        named = batches(data, workers, shuffle=mixed, collate_fn=comal.ml.collate)
    return _Field(named, "data")


def _local(directory: str, peer: str, kind: str, workers: str, order: str) -> Iterable[Any]:
    path = str(Path(directory) / f"{kind}.tacozip")
    return _loader(path, peer, kind, int(workers), order == "random")


def epoch(*arguments: str) -> dict[str, Any]:
    return training_loop.epoch(_local(*arguments))


class _Numbers:
    """As many samples as there are chips, which cost a worker nothing."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, row: int) -> int:
        return row


def memory(*arguments: str) -> dict[str, Any]:
    directory, name, kind, workers, _ = arguments
    if name != "torch alone":
        return training_loop.memory(_local(*arguments))
    data = _Numbers(len(training_loop.samples(directory, kind)))
    return training_loop.memory(batches(data, int(workers), shuffle=True))


def bound(directory: str) -> dict[str, Any]:
    """What so many connections can do at best: rounds x latency + bytes / bandwidth."""
    archive = Path(directory) / "chips.tacozip"
    size, count = archive.stat().st_size, len(training_loop.samples(directory, "chips"))
    spans = [f"bytes={at}-{min(at + (8 << 20), size) - 1}" for at in range(0, size, 8 << 20)]
    with served(directory, 0) as (url, _):
        transfer = fetched(f"{url}/{archive.name}", spans, 4)
    rounds = -(-count // CONNECTIONS)
    note = {"rounds": rounds, "MB a second": round(size / transfer / 1e6)}
    return {"seconds": rounds * ours_remote.LATENCY + transfer, "note": note}


def _timed(url: str, kind: str, workers: int, requests: Any, most: int) -> dict[str, Any]:
    """Opening and so many batches in random order, with what they took of the server."""
    started, count = time.perf_counter(), 0
    for batch in islice(_loader(url, "comal", kind, workers, True), most):
        count += len(batch)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "check": count, "note": requests()}


def remote(directory: str, kind: str, workers: str) -> dict[str, Any]:
    """One epoch of the chips, decoded or as bytes."""
    next(iter(_local(directory, "comal", "small", "0", "random")))  # imports are not measured
    with served(directory, ours_remote.LATENCY) as (url, requests):
        return _timed(f"{url}/chips.tacozip", kind, int(workers), requests, 1 << 30)


def waiting(directory: str, kind: str) -> dict[str, Any]:
    """How long a loop waits whose step takes a quarter longer than a batch needs without it."""
    next(iter(_local(directory, "comal", "small", "0", "random")))
    with served(directory, ours_remote.LATENCY) as (url, _):
        loader = _loader(f"{url}/chips.tacozip", "comal", kind, 2, True)
        started = time.perf_counter()
        count = sum(1 for _ in loader)
        step = 1.25 * (time.perf_counter() - started) / count
        batches, waits = iter(loader), []
        for _ in range(count):
            started = time.perf_counter()
            next(batches)
            waits.append((time.perf_counter() - started) * 1e3)
            time.sleep(step)
    note = {
        "ms of a step": round(step * 1e3, 1),
        "steps": count,
        "ms until the first batch": round(waits[0], 1),
        "ms waited after it, in all": round(sum(waits[1:]), 1),
        "longest wait": round(max(waits[1:]), 1),
    }
    return {"seconds": sum(waits[1:]) / 1e3, "note": note}


def remote_bucket(directory: str, kind: str, most: str) -> dict[str, Any]:
    """Five epochs of so many samples from S3, each beside plain requests for the same ranges.

    Few samples, for moto copies the whole object for each request, which is what limits both.
    """
    archive = Path(directory) / "few.tacozip"
    whole = Path(directory) / "chips.tacozip"
    comal.ml.mirror(whole, archive, where=f"id < '{int(most):06}'", overwrite=True)
    next(iter(_local(directory, "comal", "small", "0", "random")))
    with bucket() as (options, asked):
        store = S3Store(BUCKET, config=options, client_options={"allow_http": True})
        obstore.put(store, archive.name, archive)
        href = f"s3://{BUCKET}/{archive.name}"
        with taco.load(href, config=StorageConfig(s3=options)) as opened:
            loader = _loader(opened, "comal", kind, 2, True)
            url = f"{options['endpoint']}/{BUCKET}/{archive.name}"
            count, ours, plain, requests = 0, [], [], 0
            for _ in range(5):
                asked()
                started = time.perf_counter()
                count += sum(len(batch) for batch in loader)
                ours.append(time.perf_counter() - started)
                ranges = asked()
                requests += len(ranges)
                plain.append(fetched(url, ranges, CONNECTIONS))
    note = {"requests": requests, "s of plain ones": round(sum(plain), 2)}
    note["x"] = round(sum(plain) / sum(ours), 2)
    return {"seconds": sum(ours), "check": count, "note": note}


def first_batch(directory: str, where: str) -> dict[str, Any]:
    """From the location of a million samples to the first batch of them."""
    next(iter(_local(directory, "comal", "small", "0", "random")))
    with served(directory, ours_remote.LATENCY) as (url, requests):
        base = url if where == "remote" else directory
        return _timed(f"{base}/ours_batches.tacozip", "small", 0, requests, 1)


def order(directory: str, kind: str, window: str = "32") -> dict[str, Any]:
    """An epoch of 100 000 samples in batches of 32, with 100 labels, sorted in the archive."""
    count, labels = 100_000, 100
    places = np.arange(count)
    shuffle: Any = {"full": True, "archive": False}.get(kind, "blocks")
    block = int(kind) if shuffle == "blocks" else 64
    made = Order(count, BATCH, shuffle=shuffle, block=block, window=int(window))
    each = made.at(places).reshape(-1, BATCH)
    alike = np.diff(np.sort(each * labels // count)) == 0
    trends = [abs(np.corrcoef(places, made.at(places, epoch))[0, 1]) for epoch in range(8)]
    note = {
        "correlation of place and row": f"{np.mean(trends):.3f}",
        "distance of neighbours": _part(np.abs(np.diff(each)).mean(), count / 3),
        "spread of means": _part(each.mean(axis=1).std(), count / np.sqrt(12 * BATCH)),
        "labels in a batch": f"{BATCH - alike.sum(axis=1).mean():.1f}",
        "requests for 300 KB": _requests(made, 300 << 10),
        "requests for 16 KB": _requests(made, 16 << 10),
        "requests for 4 KB": _requests(made, 4 << 10),
        "requests for 1 KB": _requests(made, 1 << 10),
    }
    return {"seconds": 0, "note": note}


class _Planned:
    """So many bytes a sample, for a loader that is asked what it would read together."""

    marks = None

    def __init__(self, size: int) -> None:
        self.size = size

    def nbytes(self, rows: Any) -> int:
        return len(rows) * self.size


def _requests(made: Order, size: int) -> int:
    """Requests of an epoch of samples of so many bytes, as comal merges them."""
    config, data, total = StorageConfig(), cast("Any", _Planned(size)), 0
    loader = Loader(data, made)
    groups = loader._groups(loader._rows(0, 0))  # noqa: SLF001 - without reading
    for rows in map(np.concatenate, groups):
        sizes = np.full(len(rows), size)
        merged = coalesce(rows * size, sizes, config.coalesce_gap, config.max_request)
        total += len(merged.starts)
    return total


def _part(found: Any, right: Any) -> str:
    return f"{found / right:.2f}"


def permutation(directory: str, count: str) -> dict[str, Any]:
    """A whole order in parts, as a loader asks for them, beside NumPy's, which is kept whole."""
    order, before = Order(int(count), shuffle=True), _peak()
    started = time.perf_counter()
    first = order.at(np.arange(BATCH))
    early = time.perf_counter() - started
    total = int(first.sum())
    for start in range(BATCH, len(order), 1 << 16):
        total += int(order.at(np.arange(start, min(start + (1 << 16), len(order)))).sum())
    seconds, after = time.perf_counter() - started, _peak()
    assert total == len(order) * (len(order) - 1) // 2
    started = time.perf_counter()
    np.random.default_rng(0).permutation(len(order))
    note = {
        "ms until the first batch": round(early * 1e3, 2),
        "MB": after - before,
        "s of NumPy": round(time.perf_counter() - started, 2),
        "MB of NumPy": _peak() - before,
    }
    return {"seconds": seconds, "note": note}


def _peak() -> int:
    """Most MB of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def decoder(directory: str, name: str, threads: str) -> dict[str, Any]:
    from comal.raster import imagebytes

    data = [path.read_bytes() for path in training_loop.samples(directory, "chips")]
    return {"seconds": len(data) / training_loop.rate(imagebytes.image, data, int(threads))}


if __name__ == "__main__":
    main_of_case(globals())
