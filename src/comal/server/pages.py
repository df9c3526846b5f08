"""Routes besides the sources: lists, health, metrics, the viewer, documents of OGC APIs."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from functools import cache
from typing import Any, ClassVar, Final

from comal.server import ogc
from comal.server.http import text_etag
from comal.server.metrics import CONTENT_TYPE, Metrics, WorkerCounts
from comal.server.mounts import Mount
from comal.server.requests import Request, Route, handlers
from comal.server.responses import (
    LOOKED_AT,
    NOT_KEPT,
    VARY_ACCEPT,
    Content,
    Refusal,
    Response,
    content_response,
    json_response,
    not_found,
    plain_response,
    refusal_of,
)
from comal.server.runtime import Runtime
from comal.site.writing import PAGE, viewer_files

_LISTED = 10.0
"""Seconds that a list waits for sources to be opened."""
_PROBED = 0.5
"""Seconds that a readiness probe waits: probes commonly give up after one."""
_KEPT = (b"cache-control", b"public, max-age=86400")
"""Header for content that only changes with the version of the server."""


class Pages:
    """Answers requests that concern no source."""

    def __init__(self, mounts: Mapping[str, Mount], runtime: Runtime, metrics: Metrics) -> None:
        self.draining = False
        """Whether the server is stopping."""
        self.board: WorkerCounts | None = None
        """The counts of the other workers."""
        self._mounts = mounts
        self._runtime = runtime
        self._metrics = metrics

    async def answer(self, request: Request) -> Response:
        """The answer to a request whose first segment names no source."""
        first, *rest = request.segments
        handler = _HANDLERS.get(first)
        if handler is None or (rest and first not in _DEEP):
            raise not_found()
        return await handler(self, request)

    async def _root(self, request: Request) -> Response:
        # Browsers name text/html; programs take anything, and get the API's landing page.
        accept = request.headers.get(b"accept", b"")
        is_browser = b"text/html" in accept and b"application/json" not in accept
        if is_browser and self._runtime.settings.viewer:
            return await self._viewer_file(request, PAGE)
        found = await self.describe_all()
        document = ogc.landing(request, found)
        return json_response(document, headers=(VARY_ACCEPT, LOOKED_AT))

    async def _viewer_file(self, request: Request, name: str | None = None) -> Response:
        if not self._runtime.settings.viewer:
            raise not_found()
        wanted = name or "/".join(request.segments[1:])
        content = (await self._runtime.run(_viewer)).get(wanted)
        if content is None:
            raise not_found()
        answer = content_response(content, request.headers)
        if name is not None:
            answer.headers.append(VARY_ACCEPT)
        return answer

    # -- operations --------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Response:
        del request
        return json_response({"status": "ok"}, headers=(NOT_KEPT,))

    async def _ready(self, request: Request) -> Response:
        del request
        found = await self.describe_all(_PROBED)
        named = dict(zip(self._mounts, found, strict=True))
        problems = {name: one["problem"] for name, one in named.items() if "problem" in one}
        states = dict.fromkeys(named, "ready")
        states |= {name: problem["code"] for name, problem in problems.items()}
        # One broken archive does not make the server unready.
        ready = not self.draining and "ready" in states.values()
        status = "not ready" if not ready else "degraded" if problems else "ready"
        document = {"status": status, "sources": states, "problems": problems}
        return json_response(document, status=200 if ready else 503, headers=(NOT_KEPT,))

    async def _metrics_text(self, request: Request) -> Response:
        del request
        if not self._runtime.settings.metrics:
            raise not_found()
        board = self.board
        others = [] if board is None else await self._runtime.run(list, board.others())
        text = self._metrics.text(others)
        return plain_response(200, CONTENT_TYPE, text, (NOT_KEPT,))

    # -- lists -------------------------------------------------------------------------------------

    async def describe(self, mount: Mount, patience: float = _LISTED) -> dict[str, Any]:
        """A source for lists, even if it cannot be opened within `patience` seconds."""
        try:
            async with asyncio.timeout(patience):
                served = await mount.get()
        except Exception as error:  # noqa: BLE001 - one source must not break the list
            refusal = refusal_of(error)
            if isinstance(error, TimeoutError):
                opening = Refusal(503, "opening", "the source is being opened")
                refusal = opening if mount.error is None else refusal_of(mount.error)
            problem = {"code": refusal.code, "status": refusal.status, "detail": refusal.detail}
            if mount.error is not None:
                problem["retry_seconds"] = math.ceil(mount.retry_seconds)
            return {
                "name": mount.name,
                "title": mount.title,
                "kind": None,
                "state": "error",
                "problem": problem,
            }
        return {**served.summary(), "state": "ready"}

    async def describe_all(self, patience: float = _LISTED) -> list[dict[str, Any]]:
        """All sources, in their order; those that are not open yet are opened side by side."""
        waiting = (self.describe(mount, patience) for mount in self._mounts.values())
        return list(await asyncio.gather(*waiting))

    async def _sources(self, request: Request) -> Response:
        del request
        found = await self.describe_all()
        return json_response({"sources": found}, headers=(LOOKED_AT,))

    async def _colormaps(self, request: Request) -> Response:
        del request
        from comal.server.render import colormap_list  # noqa: PLC0415 - brings numpy

        document = await self._runtime.run(colormap_list)
        return json_response(document, headers=(_KEPT,))

    async def _conformance(self, request: Request) -> Response:
        del request
        return json_response({"conformsTo": list(ogc.CONFORMANCE)}, headers=(_KEPT,))

    async def _api(self, request: Request) -> Response:
        await self.describe_all()
        served = [one for mount in self._mounts.values() if (one := mount.served) is not None]
        document = ogc.openapi(request, self.routes, served)
        return json_response(document, kind=ogc.OPENAPI.encode(), headers=(LOOKED_AT,))

    async def _collections(self, request: Request) -> Response:
        if len(request.segments) == 1:
            found = await self.describe_all()
            return json_response(ogc.collections(request, found), headers=(LOOKED_AT,))
        mount = self._mounts.get(request.segments[1])
        if mount is not None and len(request.segments) == 2:
            one = await self.describe(mount)
            if one["state"] == "ready":
                return json_response(ogc.collection(request, one), headers=(LOOKED_AT,))
        raise not_found("there is no such collection")

    async def _wmts(self, request: Request) -> Response:
        body = ogc.wmts(request, await self.describe_all())
        return plain_response(200, ogc.XML.encode(), body, (LOOKED_AT,))

    async def _matrices(self, request: Request) -> Response:
        rest = request.segments[1:]
        if not rest:
            return json_response(ogc.matrix_sets(request), headers=(_KEPT,))
        if rest == (ogc.WEB_MERCATOR_QUAD,):
            return json_response(ogc.web_mercator_quad(), headers=(_KEPT,))
        raise not_found("there is no such tile matrix set")

    routes: ClassVar[tuple[Route, ...]] = (
        Route("/", "Links to everything", _root),
        Route("/_/{file}", "Files of the viewer", _viewer_file, is_listed=False),
        Route("/conformance", "Standards that are followed", _conformance),
        Route("/api", "This document", _api, ogc.OPENAPI),
        Route("/sources.json", "All sources", _sources),
        Route("/colormaps.json", "Names for colormap_name", _colormaps),
        Route("/collections", "All sources as collections", _collections),
        Route(f"/{ogc.WMTS_PATH}", "Pictures as WMTS layers", _wmts, ogc.XML),
        Route("/tileMatrixSets", "Tile matrix sets", _matrices),
        Route(f"/tileMatrixSets/{ogc.WEB_MERCATOR_QUAD}", "The tile matrix set of all tiles"),
        Route("/healthz", "Whether the process is alive", _health),
        Route("/readyz", "Whether there is something to serve", _ready),
        Route("/metrics", "Counts for Prometheus", _metrics_text, is_listed=False),
    )


_HANDLERS: Final = handlers(Pages.routes)
_DEEP: Final = frozenset({"_", "collections", "tileMatrixSets"})
"""Words whose handlers answer paths below them, too."""

POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    b"connect-src 'self'; worker-src 'self' blob:; child-src blob:; font-src 'self'; "
    b"manifest-src 'self'; base-uri 'self'; form-action 'none'; frame-ancestors 'self'"
)
"""The Content-Security-Policy of pages: nothing from other hosts, no inline script or style."""

_PAGE = (
    (b"content-security-policy", POLICY),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


@cache
def _viewer() -> dict[str, Content]:
    """Files of the viewer by name."""
    found = {}
    for name, asset in viewer_files().items():
        body, kind = asset.path.read_bytes(), asset.content_type.encode()
        headers = (LOOKED_AT, *(_PAGE if kind.startswith(b"text/html") else ()))
        found[name] = Content(kind, text_etag(body), len(body), body=body, headers=headers)
    return found
