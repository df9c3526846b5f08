"""The ASGI application: checks, turns, answers and what every one of them has."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from comal.errors import ComalError, InvalidInputError, ObjectChangedError
from comal.server import journal
from comal.server.answers import Answer, Pairs
from comal.server.board import SECONDS, Board
from comal.server.conditions import Headers, folded
from comal.server.gate import Client, Clients, Gate
from comal.server.measures import Measures
from comal.server.problems import Refusal, not_found, problem_answer, refusal_of
from comal.server.readyresponses import PlainRequests
from comal.server.requests import Request, check_head, segments_of, split_root
from comal.server.rootpages import RootPages
from comal.server.settings import Settings
from comal.server.slots import Slot, places
from comal.server.sources.base import Served
from comal.server.squeezing import squeezed
from comal.server.workshop import Workshop

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Deliver = Callable[[Answer], Awaitable[int]]

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
_BARE = {412: "precondition-failed", 416: "range-not-satisfiable"}
_LISTED = 10.0
"""Seconds that a list waits for sources to be opened."""
_GONE = Refusal(499, "client-gone", "the client went away")


class Application:
    """Serves archives. An ASGI 3 application that can be mounted in another one.

    Made by `comal.server.app`.
    """

    def __init__(self, sources: Any, settings: Settings) -> None:
        self.settings = settings
        self.measures = Measures()
        self.workshop = Workshop(settings)
        self.slots = {
            name: Slot(name, place, self.workshop, self.measures)
            for name, place in places(sources).items()
        }
        limits = settings.limits
        self.gate = Gate(limits.in_flight, limits.queue, limits.seconds)
        self.streams = Gate(limits.streams, limits.queue, limits.seconds)
        self.clients = Clients()
        self.pages = RootPages(self)
        self.draining = False
        self.board: Board | None = None
        self._posting: asyncio.Task[None] | None = None
        self._every_origin = settings.cors == ("*",)
        self._cors: Pairs = []
        if self._every_origin:
            self._cors = [(b"access-control-allow-origin", b"*"), _EXPOSED]
        self.plain = PlainRequests(self.slots, settings, self._cors, self.measures)
        self.measures.ready = self.plain.ready.counts
        self._gauges()

    def _gauges(self) -> None:
        cache = self.workshop.cache
        self.measures.counters.update(
            {
                "comal_cache_hits": ("Results found in the cache.", lambda: cache.hits),
                "comal_cache_misses": ("Results not found in the cache.", lambda: cache.misses),
            }
        )
        self.measures.gauges.update(
            {
                "comal_requests_in_flight": (
                    "Requests that are worked on.",
                    lambda: self.gate.active,
                ),
                "comal_requests_waiting": ("Requests that wait.", lambda: self.gate.waiting),
                "comal_streams_in_flight": (
                    "Long bodies that are sent.",
                    lambda: self.streams.active,
                ),
                "comal_cache_bytes": ("Bytes of rendered results kept.", lambda: cache.size),
                "comal_hot_bytes": ("Bytes of tiles kept ready.", lambda: self.plain.ready.size),
                "comal_sources_failed": (
                    "Sources that cannot be opened.",
                    lambda: sum(slot.error is not None for slot in self.slots.values()),
                ),
            }
        )

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
        """The server has started: leave counts for the other workers from now on."""
        if self.board is not None:
            self._posting = asyncio.get_running_loop().create_task(self._post(self.board))

    def _end(self) -> None:
        """The server stops."""
        self.draining = self.plain.closed = True
        if self._posting is not None and self.board is not None:
            self._posting.cancel()
            self.board.post(self.measures.now())
        self.workshop.close()

    async def _post(self, board: Board) -> None:
        while True:
            await self.workshop.run(board.post, self.measures.now())
            await asyncio.sleep(SECONDS)

    # -- requests ----------------------------------------------------------------------------------

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = scope["method"] == "HEAD"
        stalled = self.settings.limits.stalled

        async def gone() -> None:
            await receive()  # the request, which has no body
            while (await receive())["type"] != "http.disconnect":  # noqa: ASYNC110 - it waits
                await asyncio.sleep(1)  # but for those servers that repeat themselves

        await self.full(scope, lambda answer: _deliver(answer, send, stalled, head=head), gone)

    async def full(
        self, scope: Scope, deliver: Deliver, gone: Callable[[], Awaitable[object]]
    ) -> None:
        """Answer a request with all checks.

        Parameters
        ----------
        scope
            The request.
        deliver
            Sends an answer and says how many bytes went out.
        gone
            Returns when the client has gone away, whose work is cancelled then.
        """
        started = time.perf_counter()
        headers = folded(scope["headers"])
        record = journal.Record(scope["method"], scope["path"])
        client = Client(gone)
        try:
            answer = await self._answered(scope, headers, record, client)
            answer = _with_problem(answer, record.id)
            if record.route not in {"tile", "data", "preview"}:
                answer = await squeezed(answer, headers, self.workshop)
        except Exception as error:  # noqa: BLE001 - whatever happens, the client gets an answer
            answer = self._refused(_GONE if client.left else error, record)
        finally:
            self.clients.remove(client)
        try:
            if answer.status == _GONE.status:
                record.status = answer.status
            else:
                record.bytes = await self._sent(answer, headers, record, deliver)
        except (OSError, TimeoutError):
            record.failure = "the client went away"
        except ComalError as error:
            # The head is out already: the connection ends early, which tells the client.
            record.failure = f"{type(error).__name__}: {error}"
        record.seconds = time.perf_counter() - started
        name = record.source if record.source in self.slots else ""
        self.measures.count(name, record.route, answer.status, record.bytes, record.seconds)
        journal.write(record, self.settings.log)

    async def _sent(
        self, answer: Answer, headers: Headers, record: journal.Record, deliver: Deliver
    ) -> int:
        """Send an answer; a long body waits for its turn, so that their number is bounded."""
        if answer.blocks is not None and record.method != "HEAD":
            try:
                async with self.streams:
                    return await self._out(answer, headers, record, deliver)
            except Refusal as refusal:  # before anything was sent
                answer = self._refused(refusal, record)
        return await self._out(answer, headers, record, deliver)

    async def _out(
        self, answer: Answer, headers: Headers, record: journal.Record, deliver: Deliver
    ) -> int:
        record.status = answer.status
        answer.headers += self._cors_of(headers)
        return await deliver(answer)

    async def _answered(
        self, scope: Scope, headers: Headers, record: journal.Record, client: Client
    ) -> Answer:
        limits = self.settings.limits
        check_head(scope, limits.url_bytes, limits.header_bytes)
        method = scope["method"]
        if method == "OPTIONS":
            return self._options(headers)
        if method not in {"GET", "HEAD"}:
            raise Refusal(405, "method-not-allowed", None, ((b"allow", _METHODS),))
        request = self._request(scope, headers)
        record.id = request.id
        first = request.segments[0]
        if first in {"healthz", "readyz", "metrics"}:  # these answer when all else is busy
            record.route = first
            return await self.pages.answer(request)
        async with self.gate, asyncio.timeout(limits.seconds) as end:
            self.clients.add(client, end)
            if first not in self.slots:
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
            # Relative, so that no header of the client stands in it.
            location = (base.rpartition("/")[2] + "/").encode("ascii", "ignore")
            raise Refusal(308, "moved", "the root ends in a slash", ((b"location", location),))
        head = scope["method"] == "HEAD"
        return Request(segments_of(path), query, headers, base, public, head)

    async def _below_root(self, request: Request, record: journal.Record) -> Answer:
        segments = request.segments
        if segments[0] == "collections" and len(segments) > 2 and segments[1] in self.slots:
            return await self._of_source(request, segments[1], segments[2:], record)
        name = segments[0].removesuffix(".json")
        if len(segments) == 1 and name in self.slots:
            return await self._of_source(request, name, ("tilejson.json",), record)
        return await self.pages.answer(request)

    async def _of_source(
        self, request: Request, name: str, rest: Sequence[str], record: journal.Record
    ) -> Answer:
        record.source = name
        slot = self.slots[name]
        try:
            served = await slot.get()
        except InvalidInputError as error:
            # What the operator wrote is no fault of whoever asks.
            detail = "the source cannot be opened as it is configured"
            raise Refusal(500, "misconfigured", detail) from error
        record.route = served.route_of(rest)
        try:
            return await served.answer(request, tuple(rest))
        except ObjectChangedError:
            # The file was replaced under the open reader: the new one answers.
            renewed: Served = await slot.changed()
            return await renewed.answer(request, tuple(rest))

    def _refused(self, error: Exception, record: journal.Record) -> Answer:
        refusal = refusal_of(error)
        if refusal.status >= 500:
            record.failure = f"{type(error).__name__}: {error}"
            if not isinstance(error, ComalError | Refusal | TimeoutError):
                journal.bug(error, record)
        if refusal.status == 204:
            return Answer(204, [*refusal.headers])
        return problem_answer(refusal, record.id)

    # -- what every answer has ---------------------------------------------------------------------

    def _cors_of(self, headers: Headers) -> Pairs:
        if self._every_origin or not self.settings.cors:
            return self._cors
        origin = headers.get(b"origin", b"")
        pairs: Pairs = [(b"vary", b"origin")]
        if origin.decode("latin-1") in self.settings.cors:
            pairs += [(b"access-control-allow-origin", origin), _EXPOSED]
        return pairs

    def _options(self, headers: Headers) -> Answer:
        pairs: Pairs = [(b"allow", _METHODS)]
        if self.settings.cors and b"access-control-request-method" in headers:
            pairs += _PREFLIGHT
        return Answer(204, pairs)

    async def describe(self, slot: Slot, patience: float = _LISTED) -> dict[str, Any]:
        """A source as lists show it, also one that cannot be opened within some seconds."""
        try:
            async with asyncio.timeout(patience):
                served = await slot.get()
        except Exception as error:  # noqa: BLE001 - one source never takes the list away
            refusal = refusal_of(error)
            if isinstance(error, TimeoutError):
                opening = Refusal(503, "opening", "the source is being opened")
                refusal = opening if slot.error is None else refusal_of(slot.error)
            problem = {"code": refusal.code, "status": refusal.status, "detail": refusal.detail}
            if slot.error is not None:
                problem["retry_seconds"] = math.ceil(slot.retry_seconds)
            return {
                "name": slot.name,
                "title": slot.title,
                "kind": None,
                "state": "error",
                "problem": problem,
            }
        return {**served.summary(), "state": "ready"}

    async def describe_all(self, patience: float = _LISTED) -> list[dict[str, Any]]:
        """All sources, in their order; those that are not open yet are opened side by side."""
        waiting = (self.describe(slot, patience) for slot in self.slots.values())
        return list(await asyncio.gather(*waiting))


def _with_problem(answer: Answer, request_id: str) -> Answer:
    """An answer, with the problem document where it says no more than that it refuses."""
    code = _BARE.get(answer.status)
    if code is None or answer.body:
        return answer
    return problem_answer(Refusal(answer.status, code, None, tuple(answer.headers)), request_id)


async def _deliver(answer: Answer, send: Send, stalled: float, *, head: bool) -> int:
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
