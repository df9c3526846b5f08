"""Documents for clients of OGC API Features and STAC: landing page, collections, OpenAPI."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from comal.server.requests import ANY, Request, Route

_RELATION = "http://www.opengis.net/def/rel/ogc/1.0/"
_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_GREGORIAN = "http://www.opengis.net/def/uom/ISO-8601/0/Gregorian"
_WORLD = (-180.0, -90.0, 180.0, 90.0)
JSON = "application/json"
OPENAPI = "application/vnd.oai.openapi+json;version=3.0"

CONFORMANCE = (
    "http://www.opengis.net/spec/ogcapi-common-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-common-1/1.0/conf/json",
    "http://www.opengis.net/spec/ogcapi-common-2/1.0/conf/collections",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/geojson",
    "http://www.opengis.net/spec/ogcapi-features-1/1.0/conf/oas30",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/queryables",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/filter",
    "http://www.opengis.net/spec/ogcapi-features-3/1.0/conf/features-filter",
    "http://www.opengis.net/spec/cql2/1.0/conf/cql2-text",
    "http://www.opengis.net/spec/cql2/1.0/conf/basic-cql2",
    "http://www.opengis.net/spec/cql2/1.0/conf/advanced-comparison-operators",
    "https://api.stacspec.org/v1.0.0/core",
    "https://api.stacspec.org/v1.0.0/collections",
    "https://api.stacspec.org/v1.0.0/ogcapi-features",
)


def link(
    request: Request, rel: str, path: str, kind: str, title: str | None = None
) -> dict[str, Any]:
    """One link of a document."""
    found = {"rel": rel, "type": kind, "href": request.link(path)}
    if title is not None:
        found["title"] = title
    return found


def landing(request: Request, sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The root as JSON."""
    return {
        "title": "comal",
        "description": "Archives of samples, rasters and tiles",
        "type": "Catalog",
        "id": "comal",
        "stac_version": "1.1.0",
        "conformsTo": list(CONFORMANCE),
        "links": [
            link(request, "self", "", JSON),
            link(request, "root", "", JSON),
            link(request, "service-desc", "api", OPENAPI),
            link(request, "conformance", "conformance", JSON),
            link(request, "data", "collections", JSON),
            *(
                link(request, "child", f"collections/{one['name']}", JSON, one["title"])
                for one in sources
                if one["state"] == "ready"
            ),
        ],
    }


def collections(request: Request, sources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All sources as collections."""
    ready = [one for one in sources if one["state"] == "ready"]
    return {
        "links": [
            link(request, "self", "collections", JSON),
            link(request, "root", "", JSON),
        ],
        "collections": [collection(request, one) for one in ready],
    }


def collection(request: Request, source: dict[str, Any]) -> dict[str, Any]:
    """One source as a collection: of items, or of tiles with the address of its TileJSON."""
    name, is_samples = source["name"], source["kind"] == "samples"
    links = [
        link(request, "self", f"collections/{name}", JSON, source["title"]),
        link(request, "root", "", JSON),
        link(request, "parent", "", JSON),
        link(request, "alternate", name, JSON, "what comal tells of it"),
    ]
    if is_samples:
        path = f"collections/{name}/items"
        links.append(link(request, "items", path, "application/geo+json"))
        path = f"collections/{name}/queryables"
        links.append(link(request, _RELATION + "queryables", path, "application/schema+json"))
    else:
        links.append(link(request, "tilejson", f"{name}.json", JSON, "TileJSON"))
    found: dict[str, Any] = {
        "id": name,
        "title": source["title"],
        "type": "Collection",
        "stac_version": "1.1.0",
        "license": source.get("license") or "other",
        "description": source.get("description") or source["title"],
        # STAC wants both extents: unknown are the whole world and all of time.
        "extent": {
            "spatial": {"bbox": [source.get("bounds") or _WORLD], "crs": _CRS84},
            "temporal": {"interval": [source.get("time") or [None, None]], "trs": _GREGORIAN},
        },
        "links": links,
        "crs": [_CRS84],
    }
    if is_samples:
        found["itemType"] = "feature"
    if source.get("keywords"):
        found["keywords"] = source["keywords"]
    return found


# -- OpenAPI ---------------------------------------------------------------------------------------


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


def openapi(request: Request, routes: Iterable[Route], sources: Iterable[Any]) -> dict[str, Any]:
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
