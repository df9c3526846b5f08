"""The stores of the training benchmark, each in a process of its own: HTTP with latency, and S3."""

from __future__ import annotations

import http.client
import logging
import multiprocessing
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from getpass import getuser
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

CONNECTIONS = 64
"""As many as comal opens by default."""
BUCKET = "bench"


NGINX = """
load_module modules/ngx_http_echo_module.so;
daemon off;
user {user};
pid {work}/nginx.pid;
error_log {work}/nginx.log;
events {{ worker_connections 1024; }}
http {{
    log_format times "$msec $request_time";
    access_log {work}/asked times;
    sendfile on;
    keepalive_requests 1000000;
    server {{
        listen 127.0.0.1:{port};
        root {folder};
        location / {{ {wait} }}
        location @file {{ }}
    }}
}}
"""
"""One process, whose answers take so little time that only the reader is measured."""


def _rounds(spans: list[tuple[float, float]]) -> int:
    """Answers that came one after the other at least, however long anything else took."""
    rounds, last = 0, 0.0
    for ended, started in sorted(spans):
        if started >= last:
            rounds, last = rounds + 1, ended
    return rounds


def _serve_bucket(pipe: Any) -> None:
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
def served(folder: str, latency: float) -> Iterator[tuple[str, Callable[[], str]]]:
    """nginx with a folder, waiting before each answer: its URL, and what it says of requests."""
    with TemporaryDirectory() as work, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        wait = f"echo_sleep {latency}; echo_exec @file;" if latency else ""
        names = {"work": work, "user": getuser(), "folder": Path(folder).absolute()}
        config = Path(work, "nginx.conf")
        config.write_text(NGINX.format(port=port, wait=wait, **names))
        free.close()
        server = subprocess.Popen(["nginx", "-e", f"{work}/nginx.log", "-c", str(config)])

        def asked() -> str:
            lines = [line.split() for line in Path(work, "asked").read_text().splitlines()]
            spans = [(float(ended), float(ended) - float(took)) for ended, took in lines]
            return f"{len(spans)} requests in {_rounds(spans)} rounds"

        try:
            _wait_for(port)
            yield f"http://127.0.0.1:{port}", asked
        finally:
            server.terminate()
            server.wait()


def _wait_for(port: int) -> None:
    for _ in range(500):
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.01)
    raise SystemExit("nginx does not start; it needs Debian's nginx and libnginx-mod-http-echo")


@contextmanager
def _bucket_served() -> Iterator[tuple[str, Callable[[], list[str]]]]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve_bucket, args=(theirs,))
    server.start()

    def asked() -> list[str]:
        ours.send(True)
        return list(ours.recv())

    try:
        yield ours.recv(), asked
    finally:
        ours.send(False)
        server.join()


@contextmanager
def bucket() -> Iterator[tuple[dict[str, str], Callable[[], list[str]]]]:
    """The options of a store with an empty bucket, and the ranges that were asked for."""
    with _bucket_served() as (endpoint, asked):
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
