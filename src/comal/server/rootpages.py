"""What lies beside the sources: lists, health, metrics, the viewer, what OGC API clients ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from comal.server import ogc
from comal.server.answers import LOOKED_AT, Answer, content_answer, json_answer, plain_answer
from comal.server.measures import CONTENT_TYPE
from comal.server.negotiation import best_type
from comal.server.problems import Refusal, not_found
from comal.server.requests import Request
from comal.server.viewerfiles import INDEX, ViewerFiles

if TYPE_CHECKING:
    from comal.server.application import Application

_PROBED = 0.5
"""Seconds that who asks for readiness waits: probes commonly give up after one."""
_VARY = (b"vary", b"accept")
_NOT_KEPT = (b"cache-control", b"no-store")
_KEPT = (b"cache-control", b"public, max-age=86400")
"""Of what only another version of the server changes."""


class RootPages:
    """Answers what is no source."""

    def __init__(self, application: Application) -> None:
        self.application = application
        self.viewer = ViewerFiles()
        self.routes: dict[str, Callable[[Request], Awaitable[Answer]]] = {
            "": self._root,
            "_": self._viewer_file,
            "healthz": self._health,
            "readyz": self._ready,
            "metrics": self._metrics,
            "sources.json": self._sources,
            "colormaps.json": self._colormaps,
            "conformance": self._conformance,
            "api": self._api,
            "collections": self._collections,
            "tileMatrixSets": self._matrices,
            ogc.WMTS_PATH: self._wmts,
        }

    async def answer(self, request: Request) -> Answer:
        """The answer to a request whose first segment names no source."""
        route = self.routes.get(request.segments[0])
        if route is None:
            raise not_found()
        return await route(request)

    async def _root(self, request: Request) -> Answer:
        if len(request.segments) > 1:
            raise not_found()
        settings = self.application.settings
        # Browsers name text/html; programs take anything, and get the API's landing page.
        offers = ["application/json"]
        if settings.viewer and await self._run(self.viewer.is_there):
            offers.append("text/html")
        chosen = best_type(request.headers.get(b"accept"), offers)
        if chosen is None:
            raise Refusal(406, "not-acceptable", f"there is {' and '.join(offers)}", (_VARY,))
        if chosen == "text/html":
            return await self._viewer_file(request, INDEX)
        found = await self.application.describe_all()
        document = ogc.landing(request, found)
        return json_answer(document, headers=(_VARY, LOOKED_AT))

    async def _viewer_file(self, request: Request, name: str | None = None) -> Answer:
        if not self.application.settings.viewer:
            raise not_found()
        wanted = name or "/".join(request.segments[1:])
        content = await self._run(self.viewer.content, wanted)
        if content is None:
            raise not_found()
        answer = content_answer(content, request.headers)
        if name is not None:
            answer.headers.append(_VARY)
        return answer

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        return await self.application.workshop.run(function, *args)

    # -- operations --------------------------------------------------------------------------------

    async def _health(self, request: Request) -> Answer:
        _alone(request)
        return json_answer({"status": "ok"}, headers=(_NOT_KEPT,))

    async def _ready(self, request: Request) -> Answer:
        _alone(request)
        found = await self.application.describe_all(_PROBED)
        named = dict(zip(self.application.slots, found, strict=True))
        problems = {name: one["problem"] for name, one in named.items() if "problem" in one}
        states = dict.fromkeys(named, "ready")
        states |= {name: problem["code"] for name, problem in problems.items()}
        # One broken archive does not take away the others.
        ready = not self.application.draining and "ready" in states.values()
        status = "not ready" if not ready else "degraded" if problems else "ready"
        document = {"status": status, "sources": states, "problems": problems}
        return json_answer(document, status=200 if ready else 503, headers=(_NOT_KEPT,))

    async def _metrics(self, request: Request) -> Answer:
        _alone(request)
        if not self.application.settings.metrics:
            raise not_found()
        board = self.application.board
        others = [] if board is None else await self._run(list, board.others())
        text = self.application.measures.text(others)
        return plain_answer(200, CONTENT_TYPE, text, (_NOT_KEPT,))

    # -- lists -------------------------------------------------------------------------------------

    async def _sources(self, request: Request) -> Answer:
        _alone(request)
        found = await self.application.describe_all()
        return json_answer({"sources": found}, headers=(LOOKED_AT,))

    async def _colormaps(self, request: Request) -> Answer:
        _alone(request)
        from comal.server.render import colours  # noqa: PLC0415 - brings numpy

        document = await self._run(colours.colormap_list)
        return json_answer(document, headers=(_KEPT,))

    async def _conformance(self, request: Request) -> Answer:
        _alone(request)
        return json_answer({"conformsTo": list(ogc.CONFORMANCE)}, headers=(_KEPT,))

    async def _api(self, request: Request) -> Answer:
        _alone(request)
        from comal.server import openapi  # noqa: PLC0415 - brings the columns of samples

        document = openapi.document(request, await self.application.describe_all())
        return json_answer(document, kind=ogc.OPENAPI.encode(), headers=(LOOKED_AT,))

    async def _collections(self, request: Request) -> Answer:
        if len(request.segments) == 1:
            found = await self.application.describe_all()
            return json_answer(ogc.collections(request, found), headers=(LOOKED_AT,))
        slot = self.application.slots.get(request.segments[1])
        if slot is not None and len(request.segments) == 2:
            one = await self.application.describe(slot)
            if one["state"] == "ready":
                return json_answer(ogc.collection(request, one), headers=(LOOKED_AT,))
        raise not_found("there is no such collection")

    async def _wmts(self, request: Request) -> Answer:
        _alone(request)
        body = ogc.wmts(request, await self.application.describe_all())
        return plain_answer(200, ogc.XML.encode(), body, (LOOKED_AT,))

    async def _matrices(self, request: Request) -> Answer:
        rest = request.segments[1:]
        if not rest:
            return json_answer(ogc.matrix_sets(request), headers=(_KEPT,))
        if rest == (ogc.WEB_MERCATOR_QUAD,):
            return json_answer(ogc.web_mercator_quad(), headers=(_KEPT,))
        raise not_found("there is no such tile matrix set")


def _alone(request: Request) -> None:
    if len(request.segments) != 1:
        raise not_found()
