"""The training cases, with comal: its own loader, and PyTorch's over its data set."""

from __future__ import annotations

import http.client
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import ours_remote
import ours_taco
import training_loop
from training_loop import BATCH, batches

import comal
from harness import main_of_case

CONNECTIONS = 64
"""As many as comal opens by default."""


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


def _loader(path: str, peer: str, kind: str, workers: int, mixed: bool) -> Iterable[Any]:
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


class _Timed(ours_remote.RangeHandler):
    disable_nagle_algorithm = True
    spans: ClassVar[list[tuple[float, float]]] = []
    """End and start of each answer."""

    def do_GET(self) -> None:  # noqa: N802 - the name of the library
        started = time.perf_counter()
        super().do_GET()
        self.spans.append((time.perf_counter(), started))


def _rounds(spans: list[tuple[float, float]]) -> int:
    """Answers that came one after the other at least, however long anything else took."""
    rounds, last = 0, 0.0
    for ended, started in sorted(spans):
        if started >= last:
            rounds, last = rounds + 1, ended
    return rounds


def _serve(folder: str, latency: float, pipe: Any) -> None:
    """A server in a process of its own, which says how many requests came, in how many rounds."""
    ours_remote.LATENCY, ours_remote.RangeHandler = latency, _Timed
    ThreadingHTTPServer.request_queue_size = 128
    with ours_remote.served(Path(folder)) as (url, log):
        pipe.send(url)
        while pipe.recv():
            pipe.send(f"{len(log)} requests in {_rounds(_Timed.spans)} rounds")


@contextmanager
def _served(directory: str, latency: float) -> Iterator[tuple[str, Any]]:
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=_serve, args=(directory, latency, theirs))
    server.start()

    def requests() -> str:
        ours.send(True)
        return str(ours.recv())

    try:
        yield ours.recv(), requests
    finally:
        ours.send(False)
        server.join()


def bound(directory: str) -> dict[str, Any]:
    """What so many connections can do at best: rounds x latency + bytes / bandwidth."""
    archive = Path(directory) / "chips.tacozip"
    size, count = archive.stat().st_size, len(training_loop.samples(directory, "chips"))
    parts = range(0, size, 8 << 20)
    with _served(directory, 0) as (url, _):

        def share(first: int) -> None:
            connection = http.client.HTTPConnection(url.removeprefix("http://"))
            for start in parts[first::4]:
                span = f"bytes={start}-{min(start + parts.step, size) - 1}"
                connection.request("GET", f"/{archive.name}", headers={"Range": span})
                connection.getresponse().read()

        with ThreadPoolExecutor(4) as pool:
            started = time.perf_counter()
            list(pool.map(share, range(4)))
            transfer = time.perf_counter() - started
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
    with _served(directory, ours_remote.LATENCY) as (url, requests):
        return _timed(f"{url}/chips.tacozip", kind, int(workers), requests, 1 << 30)


def first_batch(directory: str, where: str) -> dict[str, Any]:
    """From the location of a million samples to the first batch of them."""
    next(iter(_local(directory, "comal", "small", "0", "random")))
    with _served(directory, ours_remote.LATENCY) as (url, requests):
        base = url if where == "remote" else directory
        return _timed(f"{base}/ours_batches.tacozip", "small", 0, requests, 1)


def decoder(directory: str, name: str, threads: str) -> dict[str, Any]:
    from comal.ml import tiff

    data = [path.read_bytes() for path in training_loop.samples(directory, "chips")]
    return {"seconds": len(data) / training_loop.rate(tiff.image, data, int(threads))}


if __name__ == "__main__":
    main_of_case(globals())
