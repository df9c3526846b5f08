"""What the server answers, as OpenAPI 3.0 (the ``service-desc`` of OGC API clients)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from comal.server.requests import Request, Route
from comal.server.sources import ANY, ServedSource

_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_BOX = {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 6}

_QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "bbox": (_BOX, "west,south,east,north in degrees; west > east crosses the antimeridian"),
    "datetime": (_TEXT, "an instant, or an interval: 2024-01-01/2024-06-30, ../2024-06-30"),
    "limit": ({"type": "integer", "minimum": 1, "default": 100}, "most items of a page"),
    "offset": (_WHOLE, "items before the page"),
    "filter": (_TEXT, "CQL2 text over the queryables"),
    "filter-lang": ({"type": "string", "enum": ["cql2-text"]}, "language of filter"),
    "filter-crs": (_TEXT, "CRS84"),
    "sortby": (_TEXT, "columns, each with + or - before it"),
    "columns": (_TEXT, "names, between commas"),
    "bins": ({"type": "integer", "minimum": 1, "maximum": 512}, "classes of a histogram"),
    "size": ({"type": "integer", "minimum": 8, "maximum": 1024}, "longer edge in pixels"),
    "path": (_TEXT, "ids from the top down, between slashes"),
    "ext": (_TEXT, "format of the tiles"),
    "bidx": ({"type": "array", "items": {"type": "integer", "minimum": 1}}, "numbers of bands"),
    "expression": (_TEXT, "formulas over b1, b2, ..., between semicolons"),
    "rescale": ({"type": "array", "items": _TEXT}, "low,high: once, or once for each band"),
    "colormap_name": (_TEXT, "one of /colormaps.json"),
    "nodata": (_NUMBER, "counts as no value, in place of what the raster declares"),
    "return_mask": ({"type": "boolean"}, "whether pictures have an alpha channel"),
    "algorithm": ({"type": "string", "enum": ["terrarium", "terrainrgb"]}, "heights as colours"),
    "nodata_height": (_NUMBER, "height where there is none, with algorithm"),
    "time": (_TEXT, "number or instant of a time step"),
    "zoom": (_WHOLE, "zoom whose pixel is read"),
}
_PROBLEM = {
    "description": "what is wrong (RFC 9457)",
    "content": {
        "application/problem+json": {
            "schema": {
                "type": "object",
                "required": ["title", "status", "code", "id"],
                "properties": {
                    "title": _TEXT,
                    "status": {"type": "integer"},
                    "detail": _TEXT,
                    "code": _TEXT,
                    "id": _TEXT,
                },
            }
        }
    },
}

_SEGMENTS = {"z": _WHOLE, "x": _WHOLE, "y": _WHOLE, "scale": _WHOLE, "lon": _NUMBER, "lat": _NUMBER}


def document(
    request: Request, routes: Iterable[Route], sources: Iterable[ServedSource]
) -> dict[str, Any]:
    """The OpenAPI document of a server with these routes of its own, and of these sources."""
    names: dict[Route, list[str]] = {route: [] for route in routes if route.is_listed}
    for source in sources:
        for route in source.listed():
            names.setdefault(route, []).append(source.name)
    return {
        "openapi": "3.0.3",
        "info": {"title": "comal", "version": "1"},
        "servers": [{"url": request.public or "/"}],
        "paths": {route.path: {"get": _operation(route, names[route])} for route in names},
    }


def _operation(route: Route, names: list[str]) -> dict[str, Any]:
    segments = [part.partition("}")[0] for part in route.path.split("{")[1:]]
    parameters = [_in_path(name, names) for name in segments]
    parameters += [_in_query(name) for name in route.query]
    kind = "string" if route.media == "image/png" else "object"
    schema = {} if route.media == ANY else {"type": kind}
    return {
        "summary": route.about,
        "operationId": route.path.strip("/") or "landing",
        "parameters": parameters,
        "responses": {
            "200": {"description": route.about, "content": {route.media: {"schema": schema}}},
            "default": _PROBLEM,
        },
    }


def _in_path(name: str, names: list[str]) -> dict[str, Any]:
    schema = {"type": "string", "enum": names} if name == "source" else _SEGMENTS.get(name, _TEXT)
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _in_query(name: str) -> dict[str, Any]:
    schema, about = _QUERY[name]
    found: dict[str, Any] = {"name": name, "in": "query", "description": about, "schema": schema}
    if schema.get("type") == "array":
        found |= {"style": "form", "explode": name != "bbox"}
    return found
