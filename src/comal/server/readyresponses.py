"""Answers requests for tiles from the raw bytes of a connection, before an HTTP server parses them.

A request is plain if it is a GET for a path of ordinary characters, complete in one piece, without
headers that change the answer. All other requests are left to the HTTP server. The bytes after the
request line are nearly always the same for a client, so they are parsed only once.

Responses are kept for the next request. A response is only used while its archive is assumed to be
unchanged (`OpenArchive.checked`); after that the next request takes the long way once, which checks
the archive and, if it is unchanged, makes all of its responses valid again. Bodies that do not fit
are dropped: if a tile is stored uncompressed in its archive, one read with its checksum restores
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from time import monotonic, perf_counter
from typing import Any
from weakref import ReferenceType, ref

from isal import isal_zlib

from comal.errors import ComalError
from comal.server.http import Headers, encodings
from comal.server.metrics import Metrics
from comal.server.mounts import Mount
from comal.server.responses import GZIP, VARY_ENCODING, Pairs
from comal.server.settings import Settings
from comal.server.sources import ServedSource

LONGEST = 8_192
"""Longer requests are left to the HTTP server."""
FRESH = 1.0
"""Seconds for which an archive is assumed to be unchanged."""
_OVERHEAD = 1_200
"""Approximate size of an entry without its body."""
_REPLACED = 8
"""When the cache is full, one of so many new responses evicts others: rare ones do little."""
_ASKING = (b"accept-encoding", b"if-none-match")
"""Headers of plain requests that the answer depends on."""
_LINE = re.compile(rb"GET (/[A-Za-z0-9._@/-]+) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\x20-\x7e\t]*)")
_DECIDING = frozenset(
    {
        # the answer would be another one (RFC 9110, 13 and 14)
        *(b"if-match", b"if-modified-since", b"if-unmodified-since", b"if-range", b"range"),
        # more than a head, or another protocol
        *(b"content-length", b"transfer-encoding", b"te", b"trailer", b"expect", b"upgrade"),
        *(b"http2-settings", b"connection", b"proxy-connection", b"keep-alive"),
    }
)
_MOST_KNOWN = 256
_STATUS = {200: b"200 OK", 304: b"304 Not Modified"}
"""Status lines of the answers that are sent from here."""


@dataclass(slots=True)
class ReadyResponse:
    """The 200 response for a path, for requests without conditions and ranges."""

    mount: Mount
    served: ReferenceType[ServedSource]
    """The version of the source; weak, as a response must not keep a replaced one open."""
    gzip: bool | None
    """Whether it is for clients that take gzip or for others; None for both."""
    head: bytes
    """The headers as they are sent, including the empty line."""
    body: bytes | None
    archive: ReferenceType[Any] | None = None
    """The open archive; weak: the response cannot be used after it is closed."""
    place: tuple[int, int, int] | None = None
    """Offset, size and CRC-32 of the body in the file of the archive."""
    count: int = 0
    """Number of times it was sent since the last `ReadyResponses.counts`."""
    size: int = 0
    """Bytes of the body."""

    def is_fresh(self, now: float) -> bool:
        """Whether the archive is assumed to be unchanged."""
        mount = self.mount
        archive = None if self.archive is None else self.archive()
        return (
            archive is not None
            and now - archive.checked < FRESH
            and now < mount.next_look
            and mount.served is self.served()
        )

    def content(self) -> bytes | None:
        """The body, read again if it was dropped; None if that is impossible."""
        if self.body is not None:
            return self.body
        archive = None if self.archive is None else self.archive()
        if archive is None or self.place is None:
            return None
        offset, size, crc = self.place
        try:
            body: bytes = archive.file.read(offset, size)
        except ComalError:
            return None
        return body if isal_zlib.crc32(body) == crc else None


class ReadyResponses:
    """Responses by request line; evicts the oldest first."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        """Bytes of all responses, a quarter of them for everything except bodies; 0 keeps none."""
        self.entries: dict[bytes, ReadyResponse] = {}
        self._most = budget // 4 // _OVERHEAD
        self._room = budget - budget // 4
        self._bodies: dict[bytes, int] = {}
        self._filled = 0
        self._turn = 0
        self._left: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        """Bytes of all responses, about."""
        return self._filled + _OVERHEAD * len(self.entries)

    def wants(self, key: bytes, size: int) -> bool:
        """Whether a response with a body of `size` bytes should be kept now."""
        if self._most == 0 or size > self._room // 16:
            return False
        has_room = len(self.entries) < self._most and self._filled + size <= self._room
        if has_room or key in self.entries:
            return True
        self._turn = (self._turn + 1) % _REPLACED
        return self._turn == 0 or len(self.entries) < self._most

    def put(self, key: bytes, response: ReadyResponse) -> None:
        """Keep a response, replacing an older one."""
        body = response.body
        assert body is not None, "a response comes with its body"
        response.size = len(body)
        self.drop(key)
        if self._filled + response.size > self._room and response.place is not None and self._turn:
            response.body = None
        else:
            while self._bodies and self._filled + response.size > self._room:
                self._empty(next(iter(self._bodies)))
            self._bodies[key] = response.size
            self._filled += response.size
        while len(self.entries) >= self._most:
            self.drop(next(iter(self.entries)))
        self.entries[key] = response

    def drop(self, key: bytes) -> None:
        """Forget a response."""
        self._filled -= self._bodies.pop(key, 0)
        old = self.entries.pop(key, None)
        if old is not None:
            self._add(old)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Number and bytes of the kept responses that were sent, by source."""
        for response in self.entries.values():
            self._add(response)
        return {name: (count, size) for name, (count, size) in self._left.items()}

    def _empty(self, key: bytes) -> None:
        """Drop a body, or the whole response if its body cannot be read again."""
        response = self.entries[key]
        if response.place is None:
            self.drop(key)
        else:
            response.body = None
            self._filled -= self._bodies.pop(key)

    def _add(self, response: ReadyResponse) -> None:
        if response.count:
            total = self._left.setdefault(response.mount.name, [0, 0])
            total[0] += response.count
            total[1] += response.count * response.size
            response.count = 0


@dataclass(frozen=True, slots=True)
class _Rest:
    """A plain request without its request line."""

    headers: Headers
    """Only the headers that the answer depends on."""
    gzip: bool
    conditional: bool
    """Whether there is an If-None-Match; such requests vary, so nothing of them is cached."""


class PlainRequests:
    """Answers plain requests of every connection of a worker."""

    def __init__(
        self, mounts: Mapping[str, Mount], settings: Settings, common: Pairs, metrics: Metrics
    ) -> None:
        self.ready = ReadyResponses(settings.limits.tile_bytes)
        self.closed = settings.log == "all" or settings.cors not in {(), ("*",)}
        """Whether all requests are left to the HTTP server."""
        self._mounts = mounts
        self._prefix = settings.prefix
        self._common = common
        self._metrics = metrics
        self._known: dict[bytes, _Rest | None] = {}
        self._date = b""
        self._date_until = 0.0

    def answer(self, data: bytes) -> tuple[bytes, bytes, bytes] | None:
        """The parts of the complete answer to the bytes of a client; None if they are not plain."""
        if self.closed:
            return None
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
        if now >= self._date_until:
            self._date_until = now + 0.5
            self._date = b"\r\ndate: %b\r\n" % formatdate(usegmt=True).encode()
        ready = None if rest.conditional else self.ready.entries.get(line)
        if ready is not None and ready.is_fresh(now) and ready.gzip in {None, rest.gzip}:
            body = ready.content()
            if body is not None:
                ready.count += 1
                return b"HTTP/1.1 200 OK" + self._date, ready.head, body
        return self._made(line, rest)

    def _made(self, line: bytes, rest: _Rest) -> tuple[bytes, bytes, bytes] | None:
        match = _LINE.fullmatch(line)
        parts = None if match is None else self._parts(match[1].decode("ascii"))
        if parts is None:
            return None
        mount = self._mounts[parts[0]]
        served = mount.served
        assert served is not None, "the path was looked at"
        started = perf_counter()
        if monotonic() >= mount.next_look:
            mount.look()
        answer = served.local_response(parts, rest.headers)
        if answer is None or answer.status not in _STATUS:
            return None
        status, body = answer.status, answer.body
        lines = [b"%b: %b\r\n" % pair for pair in (*answer.headers, *self._common)]
        head = b"".join((*lines, b"\r\n"))
        varies = VARY_ENCODING in answer.headers
        # Only of gzip is it known here who takes it.
        is_kept = not rest.conditional and (not varies or GZIP in answer.headers)
        if is_kept and self.ready.wants(line, len(body)):
            place = served.place_of(parts)
            if place is not None:
                gzip = rest.gzip if varies else None
                ready = ReadyResponse(mount, ref(served), gzip, head, body, ref(place[0]), place[1])
                self.ready.put(line, ready)
        self._metrics.count(mount.name, "tile", status, len(body), perf_counter() - started)
        return b"HTTP/1.1 " + _STATUS[status] + self._date, head, body

    def _parts(self, path: str) -> list[str] | None:
        """Name, z, x and the last segment, if a path looks like a tile of an open source."""
        if not path.startswith(self._prefix + "/"):
            return None
        parts = path[len(self._prefix) + 1 :].split("/")
        if len(parts) != 4:
            return None
        mount = self._mounts.get(parts[0])
        return parts if mount is not None and mount.served is not None else None

    def _learnt(self, behind: bytes) -> _Rest | None:
        if len(behind) > LONGEST:
            return None
        rest = _rest_of(behind)
        if rest is None or not rest.conditional:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
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
    headers = {name: found[name] for name in _ASKING if name in found}
    gzip = encodings(headers.get(b"accept-encoding")).gzip
    return _Rest(headers, gzip, b"if-none-match" in headers)


def _is_usual(name: bytes, value: bytes) -> bool:
    return name == b"connection" and value.strip().lower() == b"keep-alive"


def is_whole_head(data: bytes) -> bool:
    """Whether the bytes are exactly one request without a body."""
    if not data.startswith((b"GET ", b"HEAD ", b"OPTIONS ")):
        return False
    if len(data) > LONGEST or data.find(b"\r\n\r\n") != len(data) - 4:
        return False
    lower = data.lower()
    return not any(
        name in lower for name in (b"content-length", b"transfer-encoding", b"\nupgrade")
    )
