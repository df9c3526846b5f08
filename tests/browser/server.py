"""A static server as a store would be: types, byte ranges, CORS; and faults on demand."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_TYPES = {
    ".css": "text/css",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request as the server saw it."""

    method: str
    path: str
    range: str | None
    status: int


class StaticServer:
    """Serves folders and bytes on the loopback interface.

    Attributes
    ----------
    cors
        Whether pages of other origins may read, as object stores are set up.
    exposes
        Which headers they may see besides the safelisted ones.
    ranges
        Whether byte ranges are answered; otherwise the whole object is.
    faults
        Status to answer by path instead of the file.
    """

    def __init__(self) -> None:
        self.cors = False
        self.exposes = ""
        self.ranges = True
        self.faults: dict[str, int] = {}
        self.requests: list[Request] = []
        self._mounts: list[tuple[str, Path]] = []
        self._objects: dict[str, bytes] = {}
        owner = self

        class Handler(_Handler):
            server_owner = owner

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()

    @property
    def origin(self) -> str:
        """Where it listens, as an origin that browsers trust with service workers."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def mount(self, prefix: str, folder: Path) -> str:
        """Serve the files below a folder; the address of the prefix comes back."""
        self._mounts.append((f"/{prefix.strip('/')}/".replace("//", "/"), folder))
        return f"{self.origin}/{prefix.strip('/')}"

    def put(self, path: str, data: bytes) -> str:
        """Serve bytes; their address comes back."""
        self._objects[path] = data
        return self.origin + path

    def find(self, path: str) -> bytes | None:
        """The bytes of a path."""
        if path in self._objects:
            return self._objects[path]
        for prefix, folder in reversed(self._mounts):
            file = folder / path.removeprefix(prefix)
            if path.startswith(prefix) and file.is_file():
                return file.read_bytes()
        return None

    def seen(self, part: str) -> list[Request]:
        """The requests whose path contains `part`."""
        return [request for request in self.requests if part in request.path]

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    server_owner: StaticServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def handle(self) -> None:
        with suppress(OSError, ValueError):
            super().handle()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_OPTIONS(self) -> None:
        self._send(204 if self.server_owner.cors else 403, b"", [])

    def _answer(self) -> None:
        owner = self.server_owner
        path = unquote(self.path.partition("?")[0])
        path += "index.html" if path.endswith("/") else ""
        if path in owner.faults:
            self._send(owner.faults[path], b"fault", [])
            return
        data = owner.find(path)
        if data is None:
            self._send(404, b"not here", [])
            return
        kind = _TYPES.get(Path(path).suffix, "application/octet-stream")
        tag = f'"{hash(data) & 0xFFFFFFFF:08x}"'
        headers = [("Content-Type", kind), ("Cache-Control", "no-cache"), ("ETag", tag)]
        current = self.headers.get("If-Range") in (None, tag)
        asked = self.headers.get("Range") if owner.ranges and current else None
        match = _RANGE.match(asked or "")
        if match is None:
            self._send(200, data, headers)
            return
        total = len(data)
        start = int(match[1]) if match[1] else max(0, total - int(match[2]))
        stop = min(total, int(match[2]) + 1) if match[1] and match[2] else total
        if start >= stop:
            self._send(416, b"", [("Content-Range", f"bytes */{total}")])
            return
        headers.append(("Content-Range", f"bytes {start}-{stop - 1}/{total}"))
        self._send(206, data[start:stop], headers)

    def _send(self, status: int, body: bytes, headers: Iterable[tuple[str, str]]) -> None:
        owner = self.server_owner
        owner.requests.append(Request(self.command, self.path, self.headers.get("Range"), status))
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if owner.cors:
            self.send_header("Access-Control-Allow-Origin", "*")
            if owner.exposes:
                self.send_header("Access-Control-Expose-Headers", owner.exposes)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
