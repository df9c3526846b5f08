"""What the server answers, as OpenAPI 3.0 (the ``service-desc`` of OGC API clients)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comal.server.ogc import OPENAPI
from comal.server.requests import Request
from comal.server.selection import PARAMETERS as SELECTING

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
_LOOK = ("bidx", "expression", "rescale", "colormap_name", "nodata", "return_mask", "algorithm")
_DRAWN = (*_LOOK, "nodata_height", "time")
_VALUES = ("bidx", "expression", "nodata", "time")
_ROWS = tuple(name for name in SELECTING if name not in {"limit", "offset", "sortby"})

_JSON = "application/json"
_GEOJSON = "application/geo+json"
_ANY = "*/*"
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

_Routes = dict[str, tuple[str, str, tuple[str, ...]]]
"""Path, with what it is, its media type and the parameters of its query."""

_ROOT: _Routes = {
    "/": ("Links to everything", _JSON, ()),
    "/conformance": ("Standards that are followed", _JSON, ()),
    "/api": ("This document", OPENAPI, ()),
    "/sources.json": ("All sources", _JSON, ()),
    "/colormaps.json": ("Names for colormap_name", _JSON, ()),
    "/collections": ("All sources as collections", _JSON, ()),
    "/WMTSCapabilities.xml": ("Pictures as layers of WMTS", "application/xml", ()),
    "/tileMatrixSets": ("Tile matrix sets", _JSON, ()),
    "/tileMatrixSets/WebMercatorQuad": ("The one of all tiles", _JSON, ()),
    "/healthz": ("Whether the process lives", _JSON, ()),
    "/readyz": ("Whether there is something to serve", _JSON, ()),
}
_ALL: _Routes = {
    "/{source}": ("A source", _JSON, ()),
    "/collections/{source}": ("A source as a collection", _JSON, ()),
}
_TILES: _Routes = {
    "/{source}.json": ("TileJSON 3.0", _JSON, ("ext", *_DRAWN)),
    "/{source}/{z}/{x}/{y}.{ext}": ("A tile", _ANY, _DRAWN),
    "/{source}/{z}/{x}/{y}@{scale}x.{ext}": ("A tile of more pixels", _ANY, _DRAWN),
    "/{source}/tiles": ("Tile sets", _JSON, ()),
    "/{source}/tiles/WebMercatorQuad": ("The tile set", _JSON, ()),
    "/{source}/tiles/WebMercatorQuad/{z}/{y}/{x}.{ext}": ("A tile, row first", _ANY, _DRAWN),
}
_VARIANTS: _Routes = {
    "/{source}/variants": ("Variants of the tiles", _JSON, ()),
    "/{source}/variants/{variant}/tilejson.json": ("TileJSON 3.0 of a variant", _JSON, ("ext",)),
    "/{source}/variants/{variant}/{z}/{x}/{y}.{ext}": ("A tile of a variant", _ANY, ()),
}
_RASTER: _Routes = {
    "/{source}/point/{lon},{lat}": ("Values at a point", _JSON, (*_VALUES, "zoom")),
    "/{source}/statistics": ("Statistics of a box", _JSON, (*_VALUES, "bbox", "bins")),
    "/{source}/histogram": ("Histogram of a band", _JSON, (*_VALUES, "bbox", "bins")),
}
_SAMPLES: _Routes = {
    "/{source}/collection": ("The archive's own description", _JSON, ()),
    "/collections/{source}/items": ("Samples", _GEOJSON, SELECTING),
    "/collections/{source}/items/{path}": ("A sample", _GEOJSON, ()),
    "/{source}/items": ("Samples", _GEOJSON, SELECTING),
    "/{source}/queryables": ("Columns for filter", "application/schema+json", ()),
    "/{source}/table": ("Rows", _JSON, (*SELECTING, "columns")),
    "/{source}/columns/{name}": ("What a column holds", _JSON, (*_ROWS, "bins")),
    "/{source}/tree": ("Children of a folder", _JSON, ("path", "limit", "offset")),
    "/{source}/preview/{path}": ("A picture of a sample", "image/png", ("size", "bidx")),
    "/{source}/data/{path}": ("The bytes of a sample", _ANY, ()),
}
_KINDS = {"raster": {**_TILES, **_RASTER}, "tiles": _TILES, "samples": _SAMPLES}
_SEGMENTS = {"z": _WHOLE, "x": _WHOLE, "y": _WHOLE, "scale": _WHOLE, "lon": _NUMBER, "lat": _NUMBER}


def document(request: Request, sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document of a server with these sources."""
    ready = [one for one in sources if one["state"] == "ready"]
    names: dict[str, list[str]] = {}
    for one in ready:
        of_variants = _VARIANTS if one.get("variants") else {}
        for path in {**_ALL, **_KINDS[one["kind"]], **of_variants}:
            names.setdefault(path, []).append(one["name"])
    routes = {**_ALL, **_TILES, **_VARIANTS, **_RASTER, **_SAMPLES}
    paths = {path: {"get": _operation(path, *about, [])} for path, about in _ROOT.items()}
    for path, found in names.items():
        paths[path] = {"get": _operation(path, *routes[path], found)}
    return {
        "openapi": "3.0.3",
        "info": {"title": "comal", "version": "1"},
        "servers": [{"url": request.public or "/"}],
        "paths": paths,
    }


def _operation(
    path: str, about: str, kind: str, query: tuple[str, ...], names: list[str]
) -> dict[str, Any]:
    segments = [part.partition("}")[0] for part in path.split("{")[1:]]
    parameters = [_in_path(name, names) for name in segments]
    parameters += [_in_query(name) for name in query]
    schema = {} if kind == _ANY else {"type": "string" if kind == "image/png" else "object"}
    return {
        "summary": about,
        "operationId": path.strip("/") or "landing",
        "parameters": parameters,
        "responses": {
            "200": {"description": about, "content": {kind: {"schema": schema}}},
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
