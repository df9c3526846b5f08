"""The stores of the training benchmark, each in a process of its own: HTTP with latency, and S3."""

from __future__ import annotations

import http.client
import logging
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import ours_remote

CONNECTIONS = 64
"""As many as comal opens by default."""
BUCKET = "bench"


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
    """HTTP; says how many requests came, in how many rounds."""
    ours_remote.LATENCY, ours_remote.RangeHandler = latency, _Timed
    ThreadingHTTPServer.request_queue_size = 128
    with ours_remote.served(Path(folder)) as (url, log):
        pipe.send(url)
        while pipe.recv():
            pipe.send(f"{len(log)} requests in {_rounds(_Timed.spans)} rounds")


def _serve_bucket(_: str, __: float, pipe: Any) -> None:
    """S3 as moto makes it; says which ranges were asked for since it was asked last."""
    from moto.server import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    answer, ranges = DomainDispatcherApplication(create_backend_app), []

    def noted(environ: Any, start: Any) -> Any:
        if environ["REQUEST_METHOD"] == "GET":
            ranges.append(environ.get("HTTP_RANGE", ""))
        return answer(environ, start)

    server = make_server("127.0.0.1", 0, noted, threaded=True, request_handler=MotoRequestHandler)
    pipe.send(f"http://127.0.0.1:{server.server_port}")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        while pipe.recv():
            pipe.send(ranges.copy())
            ranges.clear()
        server.shutdown()


@contextmanager
def served(
    folder: str, latency: float, serve: Any = _serve
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """A server of a folder: its URL, and what it says of the requests so far."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    server = context.Process(target=serve, args=(folder, latency, theirs))
    server.start()

    def asked() -> Any:
        ours.send(True)
        return ours.recv()

    try:
        yield ours.recv(), asked
    finally:
        ours.send(False)
        server.join()


@contextmanager
def bucket() -> Iterator[tuple[dict[str, str], Callable[[], list[str]]]]:
    """The options of a store with an empty bucket, and the ranges that were asked for."""
    with served("", 0, _serve_bucket) as (endpoint, asked):
        connection = http.client.HTTPConnection(urlsplit(endpoint).netloc)
        connection.request("PUT", f"/{BUCKET}")
        assert connection.getresponse().status == 200
        keys = {"access_key_id": "testing", "secret_access_key": "testing"}
        yield {"endpoint": endpoint, "region": "us-east-1", **keys}, asked


def fetched(url: str, ranges: Sequence[str], connections: int) -> float:
    """Seconds for plain requests by so many connections, and nothing else."""
    parts = urlsplit(url)

    def share(first: int) -> None:
        connection = http.client.HTTPConnection(parts.netloc)
        for span in ranges[first::connections]:
            connection.request("GET", parts.path, headers={"Range": span})
            connection.getresponse().read()

    with ThreadPoolExecutor(connections) as pool:
        started = time.perf_counter()
        list(pool.map(share, range(connections)))
        return time.perf_counter() - started
