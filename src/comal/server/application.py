"""The ASGI application: checks of requests, queueing, responses and their common headers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import Any

from isal import isal_zlib

from comal.errors import ComalError, InvalidInputError, ObjectChangedError
from comal.public import options_of, takes
from comal.server.http import Headers, encodings, folded
from comal.server.metrics import SECONDS, AccessRecord, Metrics, WorkerCounts, log_access, log_bug
from comal.server.mounts import Mount, places
from comal.server.pages import Pages
from comal.server.readyresponses import PlainRequests
from comal.server.requests import Request, check_head, segments_of, split_root
from comal.server.responses import (
    GZIP,
    VARY_ENCODING,
    Pairs,
    Refusal,
    Response,
    not_found,
    problem_response,
    refusal_of,
)
from comal.server.runtime import Client, ConcurrencyLimit, Runtime
from comal.server.settings import RequestLimits, Settings, normalised_prefix, origins
from comal.server.sources import ServedSource

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_METHODS = b"GET, HEAD, OPTIONS"
_PREFLIGHT = (
    (b"access-control-allow-methods", _METHODS),
    (
        b"access-control-allow-headers",
        b"accept, if-match, if-none-match, if-modified-since, if-unmodified-since, if-range, range",
    ),
    (b"access-control-max-age", b"86400"),
)
_EXPOSED = (b"access-control-expose-headers", b"*")
_GONE = Refusal(499, "client-gone", "the client went away")


class Application:
    """Serves archives. An ASGI 3 application that can be mounted in another one.

    Made by `comal.server.app`.
    """

    def __init__(self, sources: Any, settings: Settings) -> None:
        self.settings = settings
        self.metrics = Metrics()
        self.runtime = Runtime(settings)
        self.mounts = {
            name: Mount(name, place, self.runtime, self.metrics)
            for name, place in places(sources).items()
        }
        limits = settings.limits
        self.gate = ConcurrencyLimit(limits.in_flight, limits.queue, limits.seconds)
        self.streams = ConcurrencyLimit(limits.streams, limits.queue, limits.seconds)
        self.pages = Pages(self.mounts, self.runtime, self.metrics)
        self._posting: asyncio.Task[None] | None = None
        self._every_origin = settings.cors == ("*",)
        self._cors: Pairs = []
        if self._every_origin:
            self._cors = [(b"access-control-allow-origin", b"*"), _EXPOSED]
        self.plain = PlainRequests(self.mounts, settings, self._cors, self.metrics)
        self.metrics.ready = self.plain.ready.counts
        self._watch()

    def _watch(self) -> None:
        runtime, mounts = self.runtime, self.mounts.values()
        watched: dict[str, tuple[str, Callable[[], float]]] = {
            "cache_hits_total": ("Results found in the cache.", lambda: runtime.hits),
            "cache_misses_total": ("Results not found in the cache.", lambda: runtime.misses),
            "requests_in_flight": ("Requests being worked on.", lambda: self.gate.active),
            "requests_waiting": ("Requests waiting.", lambda: self.gate.waiting),
            "streams_in_flight": ("Long bodies being sent.", lambda: self.streams.active),
            "cache_bytes": ("Bytes of rendered results kept.", lambda: runtime.cache.size),
            "hot_bytes": ("Bytes of tiles kept ready.", lambda: self.plain.ready.size),
            "sources_failed": (
                "Sources that cannot be opened.",
                lambda: sum(mount.error is not None for mount in mounts),
            ),
        }
        self.metrics.watched |= {f"comal_{name}": found for name, found in watched.items()}

    # -- ASGI --------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's request, or the lifespan of the process."""
        if scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._begin()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                self._end()
                await send({"type": "lifespan.shutdown.complete"})
                return

    def _begin(self) -> None:
        """Start to publish counts for the other workers."""
        if self.pages.board is not None:
            self._posting = asyncio.get_running_loop().create_task(self._post(self.pages.board))

    def _end(self) -> None:
        """Stop: readiness fails, and the last counts are published."""
        self.pages.draining = self.plain.closed = True
        if self._posting is not None and self.pages.board is not None:
            self._posting.cancel()
            self.pages.board.post(self.metrics.now())
        self.runtime.close()

    async def _post(self, board: WorkerCounts) -> None:
        while True:
            await self.runtime.run(board.post, self.metrics.now())
            await asyncio.sleep(SECONDS)

    # -- requests ----------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request with all checks."""
        started = time.perf_counter()
        headers = folded(scope["headers"])
        record = AccessRecord(scope["method"], scope["path"])
        client = Client(partial(_gone, receive))
        try:
            answer = await self._answered(scope, headers, record, client)
            if record.route not in {"tile", "data", "preview"}:
                answer = await compressed(answer, headers, self.runtime)
        except Exception as error:  # noqa: BLE001 - whatever happens, the client gets an answer
            answer = self._refused(_GONE if client.left else error, record)
        finally:
            client.rest()
        try:
            if answer.status == _GONE.status:
                record.status = answer.status
            else:
                record.bytes = await self._sent(answer, headers, record, send)
        except (OSError, TimeoutError):
            record.failure = "the client went away"
        except ComalError as error:
            # The head is sent already: the client sees that the connection ends early.
            record.failure = f"{type(error).__name__}: {error}"
        record.seconds = time.perf_counter() - started
        name = record.source if record.source in self.mounts else ""
        self.metrics.count(name, record.route, answer.status, record.bytes, record.seconds)
        log_access(record, self.settings.log)

    async def _sent(
        self, answer: Response, headers: Headers, record: AccessRecord, send: Send
    ) -> int:
        """Send an answer; long bodies are queued, so that their number is bounded."""
        if answer.blocks is not None and record.method != "HEAD":
            try:
                async with self.streams:
                    return await self._out(answer, headers, record, send)
            except Refusal as refusal:  # before anything was sent
                answer = self._refused(refusal, record)
        return await self._out(answer, headers, record, send)

    async def _out(
        self, answer: Response, headers: Headers, record: AccessRecord, send: Send
    ) -> int:
        record.status = answer.status
        answer.headers += self._cors_of(headers)
        stalled = self.settings.limits.stalled
        return await _deliver(answer, send, stalled, head=record.method == "HEAD")

    async def _answered(
        self, scope: Scope, headers: Headers, record: AccessRecord, client: Client
    ) -> Response:
        limits = self.settings.limits
        check_head(scope, limits.url_bytes, limits.header_bytes)
        method = scope["method"]
        if method == "OPTIONS":
            return self._options(headers)
        if method not in {"GET", "HEAD"}:
            raise Refusal(405, "method-not-allowed", None, ((b"allow", _METHODS),))
        request = self._request(scope, headers)
        first = request.segments[0]
        if first in {"healthz", "readyz", "metrics"}:  # answered even when overloaded
            record.route = first
            return await self.pages.answer(request)
        async with self.gate, asyncio.timeout(limits.seconds) as end:
            client.watch(end)
            if first not in self.mounts:
                record.route = "root"
                return await self._below_root(request, record)
            return await self._of_source(request, first, request.segments[1:], record)

    def _request(self, scope: Scope, headers: Headers) -> Request:
        found = split_root(scope, self.settings.prefix)
        if found is None:
            raise not_found()
        base, path = found
        query = scope.get("query_string", b"")
        public = base
        if self.settings.public_url is not None:
            public = self.settings.public_url.rstrip("/") + self.settings.prefix
        if not path:
            # Relative, so that it contains no header of the client.
            location = (base.rpartition("/")[2] + "/").encode("ascii", "ignore")
            raise Refusal(
                308,
                "moved",
                "the address of the root ends with a slash",
                ((b"location", location),),
            )
        head = scope["method"] == "HEAD"
        return Request(segments_of(path), query, headers, base, public, head)

    async def _below_root(self, request: Request, record: AccessRecord) -> Response:
        segments = request.segments
        if segments[0] == "collections" and len(segments) > 2 and segments[1] in self.mounts:
            return await self._of_source(request, segments[1], segments[2:], record)
        name = segments[0].removesuffix(".json")
        if len(segments) == 1 and name in self.mounts:
            return await self._of_source(request, name, ("tilejson.json",), record)
        return await self.pages.answer(request)

    async def _of_source(
        self, request: Request, name: str, rest: Sequence[str], record: AccessRecord
    ) -> Response:
        record.source = name
        mount = self.mounts[name]
        try:
            served = await mount.get()
        except InvalidInputError as error:
            # A mistake of the operator is not the client's fault.
            detail = "the source cannot be opened as it is configured"
            raise Refusal(500, "misconfigured", detail) from error
        record.route = served.route_of(rest)
        try:
            return await served.answer(request, tuple(rest))
        except ObjectChangedError:
            # The file was replaced under the open reader: the new one answers.
            renewed: ServedSource = await mount.changed()
            return await renewed.answer(request, tuple(rest))

    def _refused(self, error: Exception, record: AccessRecord) -> Response:
        refusal = refusal_of(error)
        if refusal.status >= 500:
            record.failure = f"{type(error).__name__}: {error}"
            if not isinstance(error, ComalError | Refusal | TimeoutError):
                log_bug(error, record)
        if refusal.status == 204:
            return Response(204, [*refusal.headers])
        return problem_response(refusal, record.id)

    # -- what every answer has ---------------------------------------------------------------------

    def _cors_of(self, headers: Headers) -> Pairs:
        if self._every_origin or not self.settings.cors:
            return self._cors
        origin = headers.get(b"origin", b"")
        pairs: Pairs = [(b"vary", b"origin")]
        if origin.decode("latin-1") in self.settings.cors:
            pairs += [(b"access-control-allow-origin", origin), _EXPOSED]
        return pairs

    def _options(self, headers: Headers) -> Response:
        pairs: Pairs = [(b"allow", _METHODS)]
        if self.settings.cors and b"access-control-request-method" in headers:
            pairs += _PREFLIGHT
        return Response(204, pairs)


async def _gone(receive: Receive) -> None:
    """Returns when the client has gone away."""
    await receive()  # the request, which has no body
    while (await receive())["type"] != "http.disconnect":  # noqa: ASYNC110 - it waits
        await asyncio.sleep(1)  # for servers that repeat the event


async def _deliver(answer: Response, send: Send, stalled: float, *, head: bool) -> int:
    """Send an answer; returns how many bytes of a body went out."""
    start = {"status": answer.status, "headers": answer.headers}
    await send({"type": "http.response.start", **start})
    if head or answer.blocks is None:
        body = b"" if head else answer.body
        await send({"type": "http.response.body", "body": body})
        return len(body)
    sent = 0
    async for block in answer.blocks:
        async with asyncio.timeout(stalled):
            await send({"type": "http.response.body", "body": block, "more_body": True})
        sent += len(block)
    await send({"type": "http.response.body", "body": b""})
    return sent


@takes(Settings)
def app(
    sources: Any,
    *,
    prefix: str = "",
    cors: bool | str | Sequence[str] | None = True,
    linked_origins: Sequence[str] | None = None,
    limits: RequestLimits | None = None,
    **options: Any,
) -> Application:
    """An ASGI application that serves archives.

    It can be run by any ASGI server, and mounted in Starlette and FastAPI; `comal serve` runs it in
    uvicorn. Sources are opened at their first request. No URL that a client sends is
    ever fetched.

    Parameters
    ----------
    sources
        A mapping of names to paths, URLs or open readers, or a sequence of these, which get names
        from their location: ``dem`` for ``/data/dem.parquet``, ``roads`` for
        ``s3://bucket/roads/meta.json``.
    prefix
        Path before all routes, such as ``/maps``.
    public_url
        Scheme and host that clients see (``https://maps.example.org``), for documents that other
        programs read. Without it such links are paths; headers of requests are never used for them.
    missing
        Status of a tile that is absent within the zooms and bounds of its set: 404 or 204.
    cache_control
        ``Cache-Control`` of responses made from archives, unless an archive sets its own; None
        for none.
    cors
        True for every origin, None for none, or the origins that may read.
    reload_seconds
        A source is checked for changes at most this often; 0 is never.
    log
        ``all`` requests, ``errors`` or ``none``, to the logger ``comal.server.requests``.
    viewer
        Whether the root is the viewer.
    metrics
        Whether there is ``/metrics``.
    linked_origins
        Origins besides its own that an archive may refer to, as for `comal.storage.StorageConfig`:
        ``https://host[:port]``, ``s3://bucket``. Others are never requested, because the author of
        an archive is a stranger. By default those of ``COMAL_LINKED_ORIGINS``.
    limits
        Upper bounds for requests.

    Raises
    ------
    InvalidInputError
        A name or an option that cannot be used.
    """
    named = {
        "prefix": normalised_prefix(prefix),
        "cors": origins(cors),
        "linked_origins": None if linked_origins is None else tuple(linked_origins),
        "limits": limits or RequestLimits(),
    }
    settings = options_of(Settings, {**named, **options})
    return Application(sources, settings)


# -- compression -----------------------------------------------------------------------------------


_LEAST = 1_024
_LEVEL = 2
_GZIP = 31
_TYPES = (
    b"application/json",
    b"application/geo+json",
    b"application/schema+json",
    b"application/vnd.oai.openapi+json",
    b"application/manifest+json",
    b"text/html",
    b"text/css",
    b"text/javascript",
    b"text/plain",
    b"image/svg+xml",
)
"""Types of the server's own texts. Tiles and samples have their own codings and are left alone."""


async def compressed(answer: Response, headers: Headers, runtime: Runtime) -> Response:
    """The answer, compressed if it is a long text and the client takes gzip."""
    given = dict(answer.headers)
    kind = given.get(b"content-type", b"").partition(b";")[0]
    if answer.status != 200 or len(answer.body) < _LEAST or kind not in _TYPES:
        return answer
    if VARY_ENCODING not in answer.headers:
        answer.headers.append(VARY_ENCODING)
    if not encodings(headers.get(b"accept-encoding")).gzip:
        return answer
    text, tag = answer.body, given.get(b"etag")
    if tag is None:
        body = await runtime.run(_gzip, text)
    else:
        body = await runtime.once(("gzip", kind, tag), lambda: runtime.run(_gzip, text))
    pairs = [pair for pair in answer.headers if pair[0] != b"content-length"]
    pairs += [(b"content-length", b"%d" % len(body)), GZIP]
    return Response(200, pairs, body)


def _gzip(text: bytes) -> bytes:
    stream = isal_zlib.compressobj(_LEVEL, wbits=_GZIP)
    return bytes(stream.compress(text) + stream.flush())
