"""An HTTP server with byte ranges that counts its requests and misbehaves on demand."""

from __future__ import annotations

import gzip
import hashlib
import re
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from tests.servers.multipart import HONEST, Form, Span, many_spans

MISSING = b"not here"
"""The body of a 404."""
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as the server saw it."""

    method: str
    path: str
    range: str | None
    headers: dict[str, str]
    status: int
    target: str
    """Path and query as they were sent."""


@dataclass(slots=True)
class Behaviour:
    """How the next `times` requests for `path` are answered; for ever when `times` is None."""

    kind: str
    path: str | None = None
    times: int | None = None
    skip: int = 0
    options: dict[str, Any] = field(default_factory=dict)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    owner: HttpServer

    def __init__(self, owner: HttpServer, address: tuple[str, int]) -> None:
        self.owner = owner
        self._open: set[socket.socket] = set()
        self._guard = threading.Lock()
        super().__init__(address, Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        sock, address = super().get_request()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._guard:
            self._open.add(sock)
        return sock, address

    def shutdown_request(self, request: Any) -> None:
        with self._guard:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._guard:
            for sock in self._open:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that go away are none of the server's business."""


class HttpServer:
    """Serves bytes from memory and folders from disk on the loopback interface.

    Attributes
    ----------
    requests
        Every request, in the order of the answers.
    latency
        Seconds to wait before each answer.
    sent
        Bytes of bodies that were handed to the system, as far as they went.
    """

    def __init__(self, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.requests: list[Seen] = []
        self.latency = 0.0
        self.sent = 0
        self._objects: dict[str, tuple[bytes, str, float]] = {}
        self._made: dict[str, Callable[[], bytes]] = {}
        self._folders: list[tuple[str, Path]] = []
        self._behaviours: list[Behaviour] = []
        self._guard = threading.Lock()
        self._secure = context is not None
        self._server = _Server(self, (host, 0))
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        )
        self._thread.start()

    @property
    def origin(self) -> str:
        scheme = "https" if self._secure else "http"
        host, port = self._server.server_address[:2]
        return f"{scheme}://{host!s}:{port}"

    def url_for(self, path: str = "") -> str:
        """The URL of a name given to `put`, or of a path below a served folder."""
        return f"{self.origin}/{quote(path.lstrip('/'))}"

    def put(
        self, name: str, data: bytes, *, etag: str | None = None, modified: float | None = None
    ) -> str:
        """Serve bytes under a name; the URL comes back. A changed object gets another ETag."""
        tag = etag if etag is not None else f'"{hashlib.sha256(data).hexdigest()[:16]}"'
        with self._guard:
            self._objects[name.lstrip("/")] = data, tag, modified or time.time()
        return self.url_for(name)

    def make(self, name: str, make: Callable[[], bytes]) -> str:
        """Serve under a name what a function makes for each request; the URL comes back."""
        self._made[name] = make
        return self.url_for(name)

    def remove(self, name: str) -> None:
        """Stop serving a name."""
        with self._guard:
            self._objects.pop(name, None)
            self._made.pop(name, None)

    def serve_folder(self, folder: Path | str, prefix: str = "") -> str:
        """Serve the files below a folder; the URL of the folder comes back."""
        self._folders.append((prefix.strip("/"), Path(folder)))
        return self.url_for(prefix).rstrip("/")

    def behave(
        self,
        kind: str,
        *,
        path: str | None = None,
        times: int | None = None,
        skip: int = 0,
        **options: Any,
    ) -> None:
        """Misbehave from now on; see `Handler` for the kinds.

        Parameters
        ----------
        kind
            ``status`` (`code`, `headers`), ``ignore-range``, ``no-length``, ``reset``,
            ``short-body`` (`keep`), ``wrong-range`` (`shift`), ``gzip``, ``etag`` (`value`),
            ``no-validators``, ``redirect`` (`to`, `code`), ``stall`` (`seconds`),
            ``trickle`` (`seconds`), ``trickle-header`` (`seconds`),
            ``call`` (`function`, called before the answer). Requests for many ranges are ignored
            unless they meet ``multipart`` (`form`), ``first-only``, ``spanning`` or
            ``many-status`` (`code`).
        path
            Only requests for this name.
        times
            So many requests, then well again.
        skip
            So many requests are answered well first.
        """
        with self._guard:
            self._behaviours.append(
                Behaviour(kind, path.lstrip("/") if path else None, times, skip, options)
            )

    def well(self) -> None:
        """Behave well again."""
        with self._guard:
            self._behaviours.clear()

    def reset(self) -> None:
        """Forget the requests seen."""
        with self._guard:
            self.requests.clear()

    @property
    def told(self) -> list[str]:
        """The identity that each request names; clients write its header in either case."""
        fields = [{key.lower(): text for key, text in s.headers.items()} for s in self.requests]
        return [headers.get("authorization", "") for headers in fields]

    def find(self, name: str) -> tuple[bytes, str, float] | None:
        """Bytes, ETag and time of a name."""
        with self._guard:
            if name in self._objects:
                return self._objects[name]
            if name in self._made:
                return self._made[name](), "", time.time()
        for prefix, folder in self._folders:
            if name.startswith(prefix + "/") or not prefix:
                file = folder / name[len(prefix) :].lstrip("/")
                if file.is_file():
                    status = file.stat()
                    tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}"'
                    return file.read_bytes(), tag, status.st_mtime
        return None

    def current(self, name: str) -> dict[str, dict[str, Any]]:
        """The behaviours that apply to this request."""
        active: dict[str, dict[str, Any]] = {}
        with self._guard:
            for behaviour in self._behaviours:
                if behaviour.path not in (None, name) or behaviour.times == 0:
                    continue
                if behaviour.skip:
                    behaviour.skip -= 1
                    continue
                if behaviour.times is not None:
                    behaviour.times -= 1
                active[behaviour.kind] = behaviour.options
        return active

    def saw(self, seen: Seen) -> None:
        """Remember a request."""
        with self._guard:
            self.requests.append(seen)

    def close(self) -> None:
        """Stop; no thread and no socket stays."""
        self.stopping.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join(5)


class Handler(BaseHTTPRequestHandler):
    """Answers a request, as `HttpServer.behave` tells it."""

    protocol_version = "HTTP/1.1"
    server: _Server
    wbufsize = 1 << 16

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        """Say nothing."""

    def handle(self) -> None:
        with suppress(OSError, ValueError):
            super().handle()

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        owner = self.server.owner
        name = unquote(self.path.partition("?")[0]).lstrip("/")
        active = owner.current(name)
        if owner.latency:
            time.sleep(owner.latency)
        if "call" in active:
            active["call"]["function"]()
        if "stall" in active:
            owner.stopping.wait(active["stall"]["seconds"])
        if "reset" in active:
            self._reset(name)
        elif "trickle-header" in active:
            self._trickle(b"HTTP/1.1 206 Partial Content\r\nX-Slow: " + b"x" * 10_000, active)
        elif "redirect" in active:
            options = active["redirect"]
            self._send(name, options.get("code", 302), {"Location": options["to"]}, b"", active)
        elif "status" in active:
            options = active["status"]
            self._send(name, options["code"], options.get("headers", {}), b"no", active)
        else:
            self._object(name, active, body=body)

    def _object(self, name: str, active: dict[str, dict[str, Any]], *, body: bool) -> None:
        found = self.server.owner.find(name)
        if found is None:
            self._send(name, 404, {}, MISSING, active)
            return
        data, tag, modified = found
        tag = active.get("etag", {}).get("value", tag)
        headers = {"ETag": tag, "Last-Modified": formatdate(modified, usegmt=True)}
        if "no-validators" in active:
            headers = {}
        if "If-Match" in self.headers and self.headers["If-Match"] not in ("*", tag):
            self._send(name, 412, headers, b"", active)
            return
        many = many_spans(self.headers["Range"], len(data))
        if many and self._many(name, headers, data, many, active):
            return
        span = None if "ignore-range" in active else _span(self.headers["Range"], len(data))
        if many and "first-only" in active:
            span = many[0]
        elif many and "spanning" in active:
            span = many[0][0], many[-1][1]
        if span is not None and span[0] >= span[1]:
            headers["Content-Range"] = f"bytes */{len(data)}"
            self._send(name, 416, headers, b"", active)
            return
        status = 200
        if span is not None:
            shift = active.get("wrong-range", {}).get("shift", 0)
            headers["Content-Range"] = f"bytes {span[0] + shift}-{span[1] - 1 + shift}/{len(data)}"
            headers.update(active.get("content-range", {}))
            data, status = data[slice(*span)], 206
        if "gzip" in active:
            headers["Content-Encoding"] = "gzip"
            data = gzip.compress(data)
        self._send(name, status, headers, data, active, body=body)

    def _many(
        self,
        name: str,
        headers: dict[str, str],
        data: bytes,
        spans: list[Span],
        active: dict[str, dict[str, Any]],
    ) -> bool:
        """Answer a request for many ranges, if there is a way of its own for them."""
        if "many-status" in active:
            self._send(name, active["many-status"]["code"], headers, b"no", active)
        elif "multipart" in active:
            self._multipart(name, headers, data, spans, active["multipart"].get("form", HONEST))
        else:
            return False
        return True

    def _multipart(
        self, name: str, headers: dict[str, str], data: bytes, spans: list[Span], form: Form
    ) -> None:
        self._saw(name, 206)
        self.send_response(206)
        if form.span:
            headers["Content-Range"] = form.span
        for key, value in {**headers, "Content-Type": form.content_type}.items():
            self.send_header(key, value)
        body = form.body(data, spans)
        if form.endless:
            self.close_connection = True
            self.send_header("Connection", "close")
        elif form.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            chunks = (b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body if piece)
            body = chain(chunks, [b"0\r\n\r\n"])
        else:
            whole = b"".join(body)
            body = iter([whole])
            self.send_header("Content-Length", str(len(whole)))
            if form.cut >= 0:
                self.close_connection = True
                body = iter([whole[: form.cut]])
        self.end_headers()
        for piece in body:
            self._write(piece)

    def _write(self, data: bytes) -> None:
        """Send in small steps, so that `sent` tells how much went out before a client left."""
        owner = self.server.owner
        for at in range(0, len(data), 1 << 16):
            step = data[at : at + (1 << 16)]
            self.wfile.write(step)
            owner.sent += len(step)

    def _send(
        self,
        name: str,
        status: int,
        headers: dict[str, str],
        data: bytes,
        active: dict[str, dict[str, Any]],
        *,
        body: bool = True,
    ) -> None:
        self._saw(name, status)
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        if "no-length" in active:
            self.close_connection = True
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if not body:
            return
        if "short-body" in active:
            self.wfile.write(data[: active["short-body"].get("keep", len(data) // 2)])
            self.close_connection = True
        elif "trickle" in active:
            self._drip(data, active["trickle"]["seconds"])
        else:
            self._write(data)

    def _trickle(self, data: bytes, active: dict[str, dict[str, Any]]) -> None:
        self._saw(self.path, 206)
        self._drip(data, active["trickle-header"]["seconds"])
        self.close_connection = True

    def _drip(self, data: bytes, seconds: float) -> None:
        for at in range(len(data)):
            self.wfile.write(data[at : at + 1])
            self.wfile.flush()
            if self.server.owner.stopping.wait(seconds):
                return

    def _reset(self, name: str) -> None:
        self._saw(name, 0)
        # Lingering for no time makes the close a reset.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def _saw(self, name: str, status: int) -> None:
        headers = dict(self.headers.items())
        seen = Seen(self.command, name, self.headers["Range"], headers, status, self.path)
        self.server.owner.saw(seen)


def _span(header: str | None, size: int) -> tuple[int, int] | None:
    """Start and stop of a range header, equal or crossed when it cannot be satisfied."""
    match = _RANGE.match(header or "")
    if match is None or match[0] == "bytes=-":
        return None
    if not match[1]:
        return max(0, size - int(match[2])), size
    stop = min(size, int(match[2]) + 1) if match[2] else size
    return int(match[1]), stop
