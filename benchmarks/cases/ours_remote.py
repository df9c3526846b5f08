"""Reading over a loopback server that answers ranges: how many requests, and how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

from comal import taco
from harness import main_of_case

LATENCY = 0.03
"""Seconds that the server waits before each answer: a data centre on the same continent."""


class RangeHandler(SimpleHTTPRequestHandler):
    """One range per request, counted."""

    protocol_version = "HTTP/1.1"
    log: list[str]

    def __init__(self, *arguments: Any, log: list[str], **named: Any) -> None:
        self.log = log
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        size = path.stat().st_size
        first, last = self._range(size)
        self.log.append(f"{first}-{last}")
        time.sleep(LATENCY)
        with path.open("rb") as file:
            file.seek(first)
            body = file.read(last - first + 1)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        self.wfile.write(body)

    def _range(self, size: int) -> tuple[int, int]:
        first, _, last = self.headers["Range"].removeprefix("bytes=").partition("-")
        if not first:
            return max(0, size - int(last)), size - 1
        return int(first), min(int(last), size - 1) if last else size - 1

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, list[str]]]:
    log: list[str] = []
    handler = partial(RangeHandler, directory=str(folder), log=log)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", log
    finally:
        server.shutdown()
        server.server_close()


def _answer(seconds: float, log: list[str]) -> dict[str, Any]:
    trips = round(seconds / LATENCY, 1)
    note = {"requests": len(log), "latencies": trips, "latency_ms": LATENCY * 1000}
    return {"seconds": seconds, "check": note}


def open(directory: str, path: str) -> dict[str, Any]:  # noqa: A001 - the name of the case
    with served(Path(path).parent) as (url, _):
        taco.load(f"{url}/{Path(path).name}")  # imports are not what is measured
    with served(Path(path).parent) as (url, log):
        start = time.perf_counter()
        taco.load(f"{url}/{Path(path).name}")
        return _answer(time.perf_counter() - start, log)


def one_sample(directory: str, path: str) -> dict[str, Any]:
    with served(Path(path).parent) as (url, log):
        frame = taco.load(f"{url}/{Path(path).name}").data
        log.clear()
        start = time.perf_counter()
        frame.read_bytes(700)
        return _answer(time.perf_counter() - start, log)


def neighbours(directory: str, path: str) -> dict[str, Any]:
    with served(Path(path).parent) as (url, log):
        frame = taco.load(f"{url}/{Path(path).name}").data
        log.clear()
        start = time.perf_counter()
        frame.read_bytes(np.arange(200, 700))
        return _answer(time.perf_counter() - start, log)


if __name__ == "__main__":
    main_of_case(globals())
