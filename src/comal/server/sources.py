"""A source of the server, independent of its format."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from comal.grid import cover
from comal.grid.mercator import LATITUDE_LIMIT
from comal.server import ogc
from comal.server.http import Headers, best_type
from comal.server.requests import ANY, Address, Handler, Request, Route, handlers, parse_address
from comal.server.responses import (
    LOOKED_AT,
    VARY_ACCEPT,
    Refusal,
    Response,
    json_response,
    not_found,
)
from comal.server.runtime import Runtime

_MOST_TEXT = 2_000
_PLAIN, _SIZED, _OGC = 3, 4, 5
"""Segments of tile paths: z/x/y, the same after a size in pixels, and those of OGC API Tiles."""


class ServedSource(ABC):
    """An opened archive under a name."""

    kind: ClassVar[str]
    """``raster``, ``tiles`` or ``samples``."""
    format: str
    routes: ClassVar[tuple[Route, ...]] = ()
    """Its routes; handlers also get the segments after the first word."""
    handlers: ClassVar[Mapping[str, Handler]] = {}

    def __init_subclass__(cls) -> None:
        """Sort the handlers of the routes by word."""
        cls.handlers = handlers(cls.routes)

    def __init__(self, name: str, title: str, runtime: Runtime, version: str) -> None:
        self.name = name
        self.title = title
        self.runtime = runtime
        self.version = version
        """Changes with the archive; part of all cache keys and entity tags."""

    @property
    def cache_control(self) -> tuple[tuple[bytes, bytes], ...]:
        """The header for content made from the archive."""
        value = self.runtime.settings.cache_control
        return () if value is None else ((b"cache-control", value.encode()),)

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Its entry in a list of sources: plain data for JSON."""

    @abstractmethod
    async def details(self) -> dict[str, Any]:
        """The fields of its own document besides the summary."""

    async def tile(self, request: Request, address: Address) -> Response:
        """One tile."""
        del request, address
        raise not_found("this source has no tiles")

    def local_response(self, parts: Sequence[str], headers: Headers) -> Response | None:
        """The answer for a tile that needs no waiting; None if it does.

        `parts` are the name of the source, z, x and the last segment.
        """
        del parts, headers
        return None

    def place_of(self, parts: Sequence[str]) -> tuple[Any, tuple[int, int, int] | None] | None:
        """What the freshness of such a tile depends on, and where its bytes are; or None.

        The first is an object with the time `checked` and a `file` to read from; the second is
        offset, size and CRC-32, None if the file does not hold the bytes as they are sent.
        """
        del parts
        return None

    def tilejson(self, request: Request) -> dict[str, Any]:
        """TileJSON 3.0."""
        del request
        raise not_found("this source has no tiles")

    def route_of(self, rest: Sequence[str]) -> str:
        """The kind of route of a request below the source's name, for counts: one of few words."""
        if not rest or rest == ("",):
            return "document"
        if rest[0] == "tiles" and len(rest) == _OGC:
            return "tile"
        if rest[0] in self.handlers:
            return rest[0]
        if rest == ("tilejson.json",):
            return "tilejson"
        return "tile" if len(rest) in {_PLAIN, _SIZED} else "none"

    async def answer(self, request: Request, rest: Sequence[str]) -> Response:
        """The answer to a request below the source's name."""
        if not rest or rest == ("",):
            document = {**self.summary(), **await self.details()}
            return json_response(document, headers=(LOOKED_AT,))
        handler = self.handlers.get(rest[0])
        if handler is not None:
            return await handler(self, request, rest[1:])
        if rest == ("tilejson.json",):
            return json_response(self.tilejson(request), headers=self.cache_control)
        if len(rest) != _PLAIN:
            raise not_found()
        return await self.preferred(request, parse_address(*rest))

    async def preferred(self, request: Request, address: Address) -> Response:
        """One tile; without an extension in the format that Accept prefers."""
        kinds: Mapping[str, str] = {} if address.ext else self.summary().get("media_types", {})
        if not kinds or "" in kinds:
            return await self.tile(request, address)
        kind = best_type(request.headers.get(b"accept"), list(kinds.values()))
        if kind is None:
            about = "available: " + ", ".join(kinds.values())
            raise Refusal(406, "not-acceptable", about, (VARY_ACCEPT,))
        ext = next(ext for ext in kinds if kinds[ext] == kind)
        answer = await self.tile(request, replace(address, ext=ext))
        answer.headers.append(VARY_ACCEPT)
        return answer

    async def tilesets(self, request: Request, rest: Sequence[str]) -> Response:
        """OGC API Tiles: the list of tile sets, which has one, the tile set, and its tiles."""
        match rest:
            case []:
                document = ogc.tilesets(request, self.summary())
            case [ogc.WEB_MERCATOR_QUAD]:
                document = ogc.tileset(request, self.summary())
            case [ogc.WEB_MERCATOR_QUAD, z, row, last]:
                # Row before column; the suffix of the last segment (@2x, .png) applies to the tile.
                column = last.partition(".")[0].partition("@")[0]
                address = parse_address(z, column, row + last[len(column) :])
                return await self.preferred(request, address)
            case _:
                raise not_found()
        return json_response(document, headers=(LOOKED_AT,))

    def listed(self) -> Iterator[Route]:
        """The routes that the OpenAPI document lists for it."""
        yield from (route for route in (*_EVERY, *self.routes) if route.is_listed)

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Close the files of the source."""


_EVERY = (
    Route("/{source}", "A source"),
    Route("/collections/{source}", "A source as a collection"),
)
LOOK: Final = (
    "bidx", "expression", "rescale", "colormap_name", "nodata", "return_mask", "algorithm",
    "nodata_height", "time",
)  # fmt: skip
"""Query parameters for the look of a raster."""
TILES: Final = (
    Route("/{source}.json", "TileJSON 3.0", query=("ext", *LOOK)),
    Route("/{source}/{z}/{x}/{y}.{ext}", "A tile", media=ANY, query=LOOK),
    Route("/{source}/{z}/{x}/{y}@{scale}x.{ext}", "A tile of more pixels", media=ANY, query=LOOK),
    Route("/{source}/tiles", "Tile sets", ServedSource.tilesets),
    Route("/{source}/tiles/WebMercatorQuad", "The tile set"),
    Route(
        "/{source}/tiles/WebMercatorQuad/{z}/{y}/{x}.{ext}",
        "A tile, row first",
        media=ANY,
        query=LOOK,
    ),
)
"""Routes of every source of tiles."""


def short_text(value: Any) -> str | None:
    """The beginning of a text from an archive; None for an empty text and other types."""
    return value[:_MOST_TEXT] if isinstance(value, str) and value else None


def file_name(href: str) -> str:
    """The last segment of a URL."""
    return href.rpartition("/")[2]


def only(rest: Sequence[str], count: int) -> Sequence[str]:
    """The segments, if there are exactly `count`; else raises 404."""
    if len(rest) != count:
        raise not_found()
    return rest


def tile_meets(z: int, x: int, y: int, bounds: Sequence[float]) -> bool:
    """Whether a tile and a box have more than an edge in common; west > east crosses 180."""
    windows = _windows(bounds, z)
    return any(left <= x <= right and top <= y <= low for left, top, right, low in windows)


def middle_tile(bounds: Sequence[float], z: int) -> tuple[int, int, int]:
    """The tile in the middle of a box, or of its western part if it crosses the antimeridian."""
    left, top, right, bottom = _windows(bounds, z)[0]
    return z, (left + right) // 2, (top + bottom) // 2


def _windows(bounds: Sequence[float], z: int) -> list[list[int]]:
    """Windows of tiles of a box; the bounds of an archive may exceed the world."""
    world = np.array([180.0, np.nextafter(LATITUDE_LIMIT, 0)] * 2)  # so that some tile is there
    inside = np.clip(bounds, -world, world).tolist()
    windows: list[list[int]] = cover.bbox_windows(inside, z).tolist()
    return windows
