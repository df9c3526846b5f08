"""granian's own interface (RSGI): one call sends a whole answer, where ASGI awaits two."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from comal.server.answers import Answer, Pairs
from comal.server.conditions import Headers
from comal.server.hottiles import HotTile
from comal.server.negotiation import encodings
from comal.server.pacing import Pace
from comal.server.requests import HOST_NEEDED

if TYPE_CHECKING:
    from comal.server.application import Application

_SAFE = "/:@!$&'()*+,;=~-._"
_CONDITIONS = ("if-none-match", "if-modified-since", "range", "if-match", "if-unmodified-since")
_CHOICES = ("accept-encoding", "if-range", "origin")
"""All that a tile's answer depends on."""
_QUICK_BYTES = 8_192


async def answer_rsgi(application: Application, scope: Any, protocol: Any) -> None:
    """Answer one request."""
    if scope.proto != "http":
        protocol.close(1008)
        return
    # RFC 9112, 3.2: without exactly one Host it is 400, which granian does not look at.
    if len(scope.headers.get_all("host")) == 1:
        hot = application.hot.entries.get(scope.path)
        if hot is not None and _fits(hot, scope):
            body = hot.content()
            if body is not None:
                hot.count += 1
                protocol.response_bytes(200, hot.headers, body)
                return
        if scope.method == "GET" and _sent_at_once(application, scope, protocol):
            return
    head = scope.method == "HEAD"

    stalled = application.settings.limits.stalled

    async def deliver(answer: Answer) -> int:
        if answer.blocks is None or head:
            body = b"" if head else answer.body
            protocol.response_bytes(answer.status, _texts(answer.headers), body)
            return len(body)
        with closing(Pace(scope.client)) as pace:
            return await _stream(answer, answer.blocks, protocol, pace, stalled)

    await application.full(_asgi_scope(scope), deliver, protocol.client_disconnect)


def _fits(hot: HotTile, scope: Any) -> bool:
    """Whether a kept answer is still right, and right for this request."""
    if not hot.is_right(monotonic()):
        return False
    given = scope.headers
    if scope.method != "GET" or any(map(given.__contains__, _CONDITIONS)):
        return False
    if sum(map(len, given.values())) > _QUICK_BYTES:
        return False
    return hot.gzip is None or hot.gzip is takes_gzip(given)


def takes_gzip(given: Any) -> bool:
    """Whether the client of these headers takes gzip."""
    value = _value(given, "accept-encoding")
    return value is not None and encodings(value.encode("latin-1", "replace")).gzip


def _sent_at_once(application: Application, scope: Any, protocol: Any) -> bool:
    """Answer a request for a tile that can be had without waiting; whether it was one."""
    path: str = scope.path
    parts = application.quick_parts(path)
    if parts is None:
        return False
    given = scope.headers
    # Names of headers count with 16 bytes each.
    values = given.values()
    if len(path) + sum(map(len, values)) + 16 * len(values) > _QUICK_BYTES:
        return False
    if any(map(given.__contains__, _CONDITIONS)) or not application.is_open:
        answer = application.quick(parts, headers_of(given))
        if answer is not None:
            protocol.response_bytes(answer.status, _texts(answer.headers), answer.body)
        return answer is not None
    found = application.plain_tile(parts, path, headers_of(given), gzip=takes_gzip(given))
    if found is not None:
        tile, body = found
        protocol.response_bytes(200, tile.headers, body)
    return found is not None


def headers_of(given: Any) -> Headers:
    """The headers that the answer for a tile depends on."""
    found: Headers = {}
    for name in (*_CONDITIONS, *_CHOICES):
        value = _value(given, name)
        if value is not None:
            found[name.encode()] = value.encode("latin-1", "replace")
    return found


def _value(given: Any, name: str) -> str | None:
    """A header; lines with the same name are one list (RFC 9110, 5.3)."""
    values = given.get_all(name)
    return ", ".join(values) if values else None


def _asgi_scope(scope: Any) -> dict[str, Any]:
    # Percent signs of the path have been decoded on the way; what matters is what it means.
    return {
        "type": "http",
        "method": scope.method,
        "path": scope.path,
        "raw_path": quote(scope.path, safe=_SAFE).encode("ascii"),
        "query_string": scope.query_string.encode("latin-1", "replace"),
        "root_path": "",
        HOST_NEEDED: scope.http_version == "1.1",
        "headers": [
            (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
            for name, value in scope.headers.items()
        ],
    }


def _texts(pairs: Pairs) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in pairs]


async def _stream(
    answer: Answer, blocks: AsyncIterator[bytes], protocol: Any, pace: Pace, stalled: float
) -> int:
    transport = protocol.response_stream(answer.status, _texts(answer.headers))
    sent = 0
    async for block in blocks:
        async with asyncio.timeout(stalled):
            await transport.send_bytes(block)
            await pace.drained()
        sent += len(block)
    return sent
