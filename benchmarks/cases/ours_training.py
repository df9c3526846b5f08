"""The training cases, with comal: its own loader, and PyTorch's over its data set."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import obstore
import ours_remote
import ours_taco
import training_loop
from obstore.store import S3Store
from training_loop import BATCH, batches
from training_stores import BUCKET, CONNECTIONS, bucket, fetched, served

import comal
from comal import taco
from comal.storage import StorageConfig
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
        named = data.loader(batch_size=BATCH, shuffle=mixed, seed=0, workers=workers, to=to)
    else:
        named = batches(data, workers, shuffle=mixed, collate_fn=comal.ml.collate)
    return _Field(named, "data")


def _local(directory: str, peer: str, kind: str, workers: str, order: str) -> Iterable[Any]:
    path = str(Path(directory) / f"{kind}.tacozip")
    return _loader(path, peer, kind, int(workers), order == "random")


def epoch(*arguments: str) -> dict[str, Any]:
    return training_loop.epoch(_local(*arguments))


def memory(*arguments: str) -> dict[str, Any]:
    return training_loop.memory(_local(*arguments))


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
    """So many samples in random order from S3, beside plain requests for the same ranges.

    Few samples, for moto copies the whole object for each request.
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
            asked()
            started = time.perf_counter()
            count = sum(len(batch) for batch in loader)
            seconds = time.perf_counter() - started
        ranges = asked()
        alone = fetched(f"{options['endpoint']}/{BUCKET}/{archive.name}", ranges, CONNECTIONS)
    note = {"requests": len(ranges), "the same by plain requests": round(alone, 2)}
    return {"seconds": seconds, "check": count, "note": note | {"x": round(alone / seconds, 2)}}


def first_batch(directory: str, where: str) -> dict[str, Any]:
    """From the location of a million samples to the first batch of them."""
    next(iter(_local(directory, "comal", "small", "0", "random")))
    with served(directory, ours_remote.LATENCY) as (url, requests):
        base = url if where == "remote" else directory
        return _timed(f"{base}/ours_batches.tacozip", "small", 0, requests, 1)


def decoder(directory: str, name: str, threads: str) -> dict[str, Any]:
    from comal.ml import tiff

    data = [path.read_bytes() for path in training_loop.samples(directory, "chips")]
    return {"seconds": len(data) / training_loop.rate(tiff.image, data, int(threads))}


if __name__ == "__main__":
    main_of_case(globals())
