"""Reading over a loopback server that answers ranges: how many requests, and how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import numpy as np

from comal import taco
from comal.storage import StorageConfig
from harness import main_of_case

LATENCY = 0.03
"""Seconds that the server waits before each answer: a data centre on the same continent."""


Part = tuple[str, str, bytes]
"""A header's name and value, and the bytes they speak of."""


class RangeHandler(SimpleHTTPRequestHandler):
    """Ranges, counted by request; several of them come as multipart/byteranges."""

    protocol_version = "HTTP/1.1"
    log: list[str]

    def __init__(self, *arguments: Any, log: list[str], **named: Any) -> None:
        self.log = log
        super().__init__(*arguments, **named)

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        size = path.stat().st_size
        asked = self.headers["Range"].removeprefix("bytes=")
        spans = [self._span(one.strip(), size) for one in asked.split(",")]
        self.log.append(",".join(f"{first}-{last}" for first, last in spans))
        time.sleep(LATENCY)
        with path.open("rb") as file:
            parts = [self._part(file, *span, size) for span in spans]
        name, value, body = parts[0] if len(parts) == 1 else _multipart(parts)
        self.send_response(206)
        self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{path.stat().st_mtime_ns}"')
        self.end_headers()
        self.wfile.write(body)

    @staticmethod
    def _part(file: IO[bytes], first: int, last: int, size: int) -> Part:
        file.seek(first)
        return "Content-Range", f"bytes {first}-{last}/{size}", file.read(last - first + 1)

    @staticmethod
    def _span(text: str, size: int) -> tuple[int, int]:
        first, _, last = text.partition("-")
        if not first:
            return max(0, size - int(last)), size - 1
        return int(first), min(int(last), size - 1) if last else size - 1

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _multipart(parts: list[Part]) -> Part:
    body = b"".join(
        f"\r\n--B\r\n{name}: {value}\r\n\r\n".encode() + data for name, value, data in parts
    )
    return "Content-Type", "multipart/byteranges; boundary=B", body + b"\r\n--B--\r\n"


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


def _scattered(path: str, config: StorageConfig) -> dict[str, Any]:
    with served(Path(path).parent) as (url, log):
        frame = taco.load(f"{url}/{Path(path).name}", config=config).data
        log.clear()
        start = time.perf_counter()
        frame.read_bytes(np.linspace(0, len(frame) - 1, 1000).astype(np.int64))
        return _answer(time.perf_counter() - start, log)


def scattered(directory: str, path: str) -> dict[str, Any]:
    return _scattered(path, StorageConfig(coalesce_gap=0))


def scattered_single(directory: str, path: str) -> dict[str, Any]:
    return _scattered(path, StorageConfig(coalesce_gap=0, multi_range=False))


if __name__ == "__main__":
    main_of_case(globals())
