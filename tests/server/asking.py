"""Requests to an ASGI application, byte for byte as a server would pass them on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    pairs: list[tuple[str, str]]
    body: bytes

    @property
    def headers(self) -> dict[str, str]:
        """Headers by lower-case name; repeated ones joined."""
        found: dict[str, str] = {}
        for name, value in self.pairs:
            found[name] = f"{found[name]}, {value}" if name in found else value
        return found

    def json(self) -> Any:
        return json.loads(self.body)


def scope_of(
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    root_path: str = "",
) -> dict[str, Any]:
    raw, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": root_path,
        "headers": [
            (name.lower().encode(), value.encode("latin-1"))
            for name, value in (headers or {}).items()
        ],
    }


async def reply_of(app: Any, scope: dict[str, Any]) -> Reply:
    status, pairs, body = 0, [], b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, pairs, body
        if message["type"] == "http.response.start":
            status = message["status"]
            pairs = [(n.decode("latin-1"), v.decode("latin-1")) for n, v in message["headers"]]
        else:
            body += message.get("body", b"")

    await app(scope, receive, send)
    return Reply(status, pairs, body)


def ask(
    app: Any,
    path: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    root_path: str = "",
) -> Reply:
    """One request."""
    return asyncio.run(reply_of(app, scope_of(path, method, headers, root_path)))


def ask_all(app: Any, paths: Sequence[str], **headers: str) -> list[Reply]:
    """Several requests at once."""

    async def every() -> list[Reply]:
        return await asyncio.gather(
            *(reply_of(app, scope_of(path, headers=headers)) for path in paths)
        )

    return asyncio.run(every())
