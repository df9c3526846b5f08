"""Requests for tiles answered from the bytes of the connection, before anything parses them.

A request counts as plain when it is a GET for a path of ordinary characters, whole in one piece,
and no header of it changes what the answer is. Everything else is left to the HTTP server. What
clients send after the first line is nearly always the same, so it is looked at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import formatdate
from time import monotonic
from typing import TYPE_CHECKING

from comal.server.conditions import Headers
from comal.server.hottiles import HotTile
from comal.server.negotiation import encodings

if TYPE_CHECKING:
    from comal.server.application import Application

LONGEST = 8_192
"""A request with more bytes is looked at closely."""

_LINE = re.compile(rb"GET (/[A-Za-z0-9._@/-]+) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\x20-\x7e\t]*)")
_DECIDING = frozenset(
    {
        # the answer would be another one (RFC 9110, 13 and 14)
        *(b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"),
        *(b"if-range", b"range"),
        # more than a head, or another protocol
        *(b"content-length", b"transfer-encoding", b"te", b"trailer", b"expect", b"upgrade"),
        *(b"http2-settings", b"connection", b"proxy-connection", b"keep-alive"),
    }
)
_MOST_KNOWN = 256


@dataclass(frozen=True, slots=True)
class _Rest:
    """A request behind its first line, where that is plain."""

    headers: Headers
    """Of these only what the answer depends on."""
    gzip: bool


class PlainWire:
    """Answers plain requests of every connection of a worker.

    Parameters
    ----------
    application
        Whose tiles are asked for.
    """

    def __init__(self, application: Application) -> None:
        self._application = application
        self._entries = application.hot.entries
        self._known: dict[bytes, _Rest | None] = {}
        self._start = b""
        self._start_until = 0.0

    def answer(self, data: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The parts of a whole answer to what a client has sent; None where it is not plain."""
        end = data.find(b"\r\n")
        behind = data[end:]
        try:
            rest = self._known[behind]
        except KeyError:
            rest = self._learnt(behind)
        if rest is None:
            return None
        line = data[:end]
        now = monotonic()
        body = None
        hot = self._entries.get(line)
        if hot is not None and hot.is_right(now) and (hot.gzip is None or hot.gzip is rest.gzip):
            body = hot.content()
        if hot is not None and body is not None:
            hot.count += 1
        else:
            made = self._made(line, rest)
            if made is None:
                return None
            hot, body = made
        if now >= self._start_until:
            self._start_until = now + 0.5
            self._start = b"HTTP/1.1 200 OK\r\ndate: %b\r\n" % formatdate(usegmt=True).encode()
        return self._start, hot.head, body

    def _made(self, line: bytes, rest: _Rest) -> tuple[HotTile, bytes] | None:
        application = self._application
        match = _LINE.fullmatch(line)
        parts = None if match is None else application.quick_parts(match[1].decode("ascii"))
        if parts is None or not application.is_open or application.draining:
            return None
        made = application.plain_tile(parts, line, rest.headers, gzip=rest.gzip)
        if made is not None:
            tile = made[0]
            pairs = "".join(f"{name}: {value}\r\n" for name, value in tile.headers)
            tile.head = pairs.encode("latin-1") + b"\r\n"
            tile.headers = []
        return made

    def _learnt(self, behind: bytes) -> _Rest | None:
        rest = _rest_of(behind) if len(behind) <= LONGEST else None
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        if len(behind) <= LONGEST:
            self._known[behind] = rest
        return rest


def _rest_of(behind: bytes) -> _Rest | None:
    """The headers between two line ends and the empty line, if all are plain."""
    if not behind.startswith(b"\r\n") or behind.find(b"\r\n\r\n") != len(behind) - 4:
        return None
    found: Headers = {}
    for line in behind[2:-4].split(b"\r\n"):
        match = _FIELD.fullmatch(line)
        if match is None:
            return None
        name = match[1].lower()
        if name in found or (name in _DECIDING and not _is_usual(name, match[2])):
            return None
        found[name] = match[2].rstrip()
    if b"host" not in found:  # RFC 9112, 3.2: 400
        return None
    accepted = found.get(b"accept-encoding")
    headers: Headers = {} if accepted is None else {b"accept-encoding": accepted}
    return _Rest(headers, encodings(accepted).gzip)


def _is_usual(name: bytes, value: bytes) -> bool:
    return name == b"connection" and value.strip().lower() == b"keep-alive"


def is_whole_head(data: bytes) -> bool:
    """Whether bytes are one request without a body, from its first byte to its last."""
    if not data.startswith((b"GET ", b"HEAD ", b"OPTIONS ")):
        return False
    if len(data) > LONGEST or data.find(b"\r\n\r\n") != len(data) - 4:
        return False
    lower = data.lower()
    return not any(
        name in lower for name in (b"content-length", b"transfer-encoding", b"\nupgrade")
    )
