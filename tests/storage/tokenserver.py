"""A server that gives out tokens, as clouds do to machines and users."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: its query and its form are one table."""

    method: str
    path: str
    headers: dict[str, str]
    given: dict[str, str]


class TokenServer:
    """Answers each path by what its function gives; tokens are numbered.

    Attributes
    ----------
    asked
        Every request.
    tokens
        How many tokens were given out.
    troubles
        Statuses and headers of the next answers.
    life
        Seconds that a token is good for.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.tokens = 0
        self.troubles: list[tuple[int, dict[str, str]]] = []
        self.life = 3600
        self.answers: dict[str, Callable[[], dict[str, Any]]] = {}
        self._guard = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.host = f"127.0.0.1:{self._server.server_address[1]}"
        self.origin = f"{'http' if context is None else 'https'}://{self.host}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def token(self) -> str:
        """A new token."""
        with self._guard:
            self.tokens += 1
            return f"token-{self.tokens}"

    def answer(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        """What to answer a request."""
        with self._guard:
            self.asked.append(asked)
            if self.troubles:
                status, headers = self.troubles.pop(0)
                return status, headers, b"{}"
        found = self.answers.get(asked.path)
        if found is None:
            return 404, {}, b"{}"
        return 200, {"Content-Type": "application/json"}, json.dumps(found()).encode()

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()


def _handler(owner: TokenServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            """Say nothing."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if "form" in (self.headers.get("Content-Type") or ""):
                given |= {name: values[0] for name, values in parse_qs(body).items()}
            headers = {name.lower(): text for name, text in self.headers.items()}
            status, sent, data = owner.answer(Asked(self.command, parts.path, headers, given))
            with suppress(OSError):
                self.send_response(status)
                for name, text in {**sent, "Content-Length": str(len(data))}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

        do_POST = do_GET  # noqa: N815 - the base's name

    return Handler
