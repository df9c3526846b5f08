"""Documents for clients of OGC APIs, WMTS and STAC: landing page, collections, tiles, OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from comal.geo.boxes import unturned
from comal.server.requests import ANY, Request, Route

_RELATION = "http://www.opengis.net/def/rel/ogc/1.0/"
_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_GREGORIAN = "http://www.opengis.net/def/uom/ISO-8601/0/Gregorian"
_WORLD = (-180.0, -90.0, 180.0, 90.0)
WEB_MERCATOR_QUAD = "WebMercatorQuad"
_MATRIX_URI = f"http://www.opengis.net/def/tilematrixset/OGC/1.0/{WEB_MERCATOR_QUAD}"
_MATRIX_PATH = f"tileMatrixSets/{WEB_MERCATOR_QUAD}"
_EPSG_3857 = "http://www.opengis.net/def/crs/EPSG/0/3857"
WMTS_PATH = "WMTSCapabilities.xml"
JSON = "application/json"
XML = "application/xml"
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
    "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/tileset",
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
            link(request, "alternate", WMTS_PATH, XML, "WMTS 1.0.0"),
            link(request, _RELATION + "tiling-schemes", "tileMatrixSets", JSON),
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
    """One source as a collection: of items, or of tiles with its tile sets and TileJSON."""
    name, is_samples = source["name"], source["kind"] == "samples"
    links = [
        link(request, "self", f"collections/{name}", JSON, source["title"]),
        link(request, "root", "", JSON),
        link(request, "parent", "", JSON),
        link(request, "alternate", name, JSON, "comal's own description"),
    ]
    if is_samples:
        path = f"collections/{name}/items"
        links.append(link(request, "items", path, "application/geo+json"))
        path = f"collections/{name}/queryables"
        links.append(link(request, _RELATION + "queryables", path, "application/schema+json"))
    else:
        links.append(
            link(request, f"{_RELATION}tilesets-{_data_type(source)}", f"{name}/tiles", JSON)
        )
        links.append(link(request, "tilejson", f"{name}.json", JSON, "TileJSON"))
    found: dict[str, Any] = {
        "id": name,
        "title": source["title"],
        "type": "Collection",
        "stac_version": "1.1.0",
        "license": source.get("license") or "other",
        "description": source.get("description") or source["title"],
        # STAC requires both extents: unknown ones are the whole world and all of time.
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


# -- tiles -----------------------------------------------------------------------------------------


_EDGE = 20_037_508.342789244
"""Distance of the edges of the world from its middle, in metres."""
_CELL = 156_543.03392804097
"""Metres per pixel if the world has 256 pixels."""
_SCALE = 559_082_264.0287178
"""The scale denominator of such pixels, as OGC defines it."""
_DEEPEST = 24


def _matrix(z: int, size: int = 256) -> dict[str, Any]:
    """One zoom of tiles of `size` pixels, in terms of both standards (OGC 17-083r4, annex D)."""
    return {
        "id": str(z),
        "scaleDenominator": _SCALE * 256 / size / 2**z,
        "cellSize": _CELL * 256 / size / 2**z,
        "cornerOfOrigin": "topLeft",
        "pointOfOrigin": [-_EDGE, _EDGE],
        "matrixWidth": 2**z,
        "matrixHeight": 2**z,
        "tileWidth": size,
        "tileHeight": size,
    }


def matrix_sets(request: Request) -> dict[str, Any]:
    """The list of tile matrix sets, which has one entry."""
    links = [link(request, "self", _MATRIX_PATH, JSON)]
    return {"tileMatrixSets": [{"id": WEB_MERCATOR_QUAD, "uri": _MATRIX_URI, "links": links}]}


def web_mercator_quad() -> dict[str, Any]:
    """The definition of WebMercatorQuad."""
    return {
        "id": WEB_MERCATOR_QUAD,
        "title": "Google Maps Compatible for the World",
        "uri": _MATRIX_URI,
        "crs": _EPSG_3857,
        "orderedAxes": ["X", "Y"],
        "wellKnownScaleSet": "http://www.opengis.net/def/wkss/OGC/1.0/GoogleMapsCompatible",
        "tileMatrices": [_matrix(z) for z in range(_DEEPEST + 1)],
    }


def _data_type(source: dict[str, Any]) -> str:
    return "vector" if source["tile_type"] == "vector" else "map"


def tilesets(request: Request, source: dict[str, Any]) -> dict[str, Any]:
    """The tile sets of a source: one, in WebMercatorQuad."""
    whole = tileset(request, source)
    links = [one for one in whole["links"] if not one.get("templated")]
    about = {name: whole[name] for name in ("title", "dataType", "crs", "tileMatrixSetURI")}
    return {"tilesets": [{**about, "links": links}]}


def tileset(request: Request, source: dict[str, Any]) -> dict[str, Any]:
    """The tile set of a source in WebMercatorQuad; its templates have the row before the column."""
    path = f"{source['name']}/tiles/{WEB_MERCATOR_QUAD}"
    links = [
        link(request, "self", path, JSON),
        link(request, _RELATION + "tiling-scheme", _MATRIX_PATH, JSON),
        link(request, "describedby", source["links"]["tilejson"], JSON, "TileJSON"),
    ]
    for ext, kind in source["media_types"].items():
        item = link(
            request, "item", path + "/{tileMatrix}/{tileRow}/{tileCol}" + _dotted(ext), kind
        )
        links.append({**item, "templated": True})
    west, south, east, north = source["bounds"]
    return {
        "title": source["title"],
        "dataType": _data_type(source),
        "crs": _EPSG_3857,
        "tileMatrixSetURI": _MATRIX_URI,
        "links": links,
        "boundingBox": {"lowerLeft": [west, south], "upperRight": [east, north], "crs": _CRS84},
        "tileMatrixSetLimits": [
            {
                "tileMatrix": str(z),
                "minTileRow": 0,
                "maxTileRow": 2**z - 1,
                "minTileCol": 0,
                "maxTileCol": 2**z - 1,
            }
            for z in range(source["minzoom"], source["maxzoom"] + 1)
        ],
    }


def _dotted(ext: str) -> str:
    return f".{ext}" if ext else ""


_CAPABILITIES = """<?xml version="1.0" encoding="utf-8"?>
<Capabilities version="1.0.0" xmlns="http://www.opengis.net/wmts/1.0"
  xmlns:ows="http://www.opengis.net/ows/1.1" xmlns:xlink="http://www.w3.org/1999/xlink">
<ows:ServiceIdentification>
  <ows:Title>comal</ows:Title>
  <ows:ServiceType>OGC WMTS</ows:ServiceType>
  <ows:ServiceTypeVersion>1.0.0</ows:ServiceTypeVersion>
</ows:ServiceIdentification>
<Contents>
{contents}
</Contents>
<ServiceMetadataURL xlink:href="{href}"/>
</Capabilities>
"""
_LAYER = """<Layer>
  <ows:Title>{title}</ows:Title>
  <ows:WGS84BoundingBox>
    <ows:LowerCorner>{west} {south}</ows:LowerCorner>
    <ows:UpperCorner>{east} {north}</ows:UpperCorner>
  </ows:WGS84BoundingBox>
  <ows:Identifier>{name}</ows:Identifier>
  <Style isDefault="true"><ows:Identifier>default</ows:Identifier></Style>
  <Format>{kind}</Format>
  <TileMatrixSetLink><TileMatrixSet>{name}</TileMatrixSet></TileMatrixSetLink>
  <ResourceURL format="{kind}" resourceType="tile"
    template="{href}/{{TileMatrix}}/{{TileCol}}/{{TileRow}}{dotted}"/>
</Layer>"""
_MATRIX_SET = """<TileMatrixSet>
  <ows:Identifier>{name}</ows:Identifier>
  <ows:SupportedCRS>urn:ogc:def:crs:EPSG::3857</ows:SupportedCRS>
{matrices}
</TileMatrixSet>"""
_MATRIX = """  <TileMatrix>
    <ows:Identifier>{id}</ows:Identifier>
    <ScaleDenominator>{scaleDenominator}</ScaleDenominator>
    <TopLeftCorner>{pointOfOrigin[0]} {pointOfOrigin[1]}</TopLeftCorner>
    <TileWidth>{tileWidth}</TileWidth>
    <TileHeight>{tileHeight}</TileHeight>
    <MatrixWidth>{matrixWidth}</MatrixWidth>
    <MatrixHeight>{matrixHeight}</MatrixHeight>
  </TileMatrix>"""
_UNPRINTABLE = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot contain."""


def wmts(request: Request, sources: Sequence[dict[str, Any]]) -> bytes:
    """Pictures of rasters and tilesets as layers of WMTS 1.0.0 (OGC 07-057r7, RESTful).

    Each layer has its own set of matrices, with its zooms and tile size.
    """
    layers, sets = [], []
    for one in sources:
        ext = _picture(one)
        if ext is None:
            continue
        west, south, east, north = unturned(one["bounds"])
        box = {"west": west, "south": south, "east": east, "north": north}
        about = {"title": one["title"], "name": one["name"], "kind": one["media_types"][ext]}
        where = {"href": request.link(one["name"]), "dotted": _dotted(ext)}
        texts = {name: _xml(text) for name, text in {**about, **where}.items()}
        layers.append(_LAYER.format(**texts, **box))
        zooms = range(one["minzoom"], min(one["maxzoom"], _DEEPEST) + 1)
        matrices = "\n".join(_MATRIX.format(**_matrix(z, one["tilesize"])) for z in zooms)
        sets.append(_MATRIX_SET.format(name=one["name"], matrices=matrices))
    contents = "\n".join([*layers, *sets])
    document = _CAPABILITIES.format(contents=contents, href=_xml(request.link(WMTS_PATH)))
    return document.encode()


def _picture(source: dict[str, Any]) -> str | None:
    """The extension of tiles that are pictures, None if there are none."""
    # Some clients take any of several, so only one is offered; a lossless one if there is one.
    kinds = source.get("media_types", {})
    found = [ext for ext, kind in kinds.items() if kind.startswith("image/")]
    return "png" if "png" in found else next(iter(found), None)


def _xml(text: str) -> str:
    """A text escaped for XML, between tags and between quotes."""
    return escape(_UNPRINTABLE.sub(" ", text), {'"': "&quot;"})


# -- OpenAPI ---------------------------------------------------------------------------------------


_NUMBER = {"type": "number"}
_WHOLE = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_BOX = {"type": "array", "items": _NUMBER, "minItems": 4, "maxItems": 6}

_QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "bbox": (_BOX, "west,south,east,north in degrees; west > east crosses the antimeridian"),
    "datetime": (_TEXT, "an instant, or an interval: 2024-01-01/2024-06-30, ../2024-06-30"),
    "limit": ({"type": "integer", "minimum": 1, "default": 100}, "most items on a page"),
    "offset": (_WHOLE, "items to skip"),
    "filter": (_TEXT, "CQL2 text over the queryables"),
    "filter-lang": ({"type": "string", "enum": ["cql2-text"]}, "language of the filter"),
    "filter-crs": (_TEXT, "CRS84"),
    "sortby": (_TEXT, "columns to sort by, each with + or - before it"),
    "columns": (_TEXT, "names, separated by commas"),
    "bins": ({"type": "integer", "minimum": 1, "maximum": 512}, "classes of a histogram"),
    "size": ({"type": "integer", "minimum": 8, "maximum": 1024}, "longer edge in pixels"),
    "path": (_TEXT, "ids from the top down, separated by slashes"),
    "ext": (_TEXT, "format of the tiles"),
    "bidx": ({"type": "array", "items": {"type": "integer", "minimum": 1}}, "numbers of bands"),
    "expression": (_TEXT, "formulas over b1, b2, ..., separated by semicolons"),
    "rescale": ({"type": "array", "items": _TEXT}, "low,high: once, or once for each band"),
    "colormap_name": (_TEXT, "one of /colormaps.json"),
    "nodata": (_NUMBER, "value to take as nodata instead of the one the raster declares"),
    "return_mask": ({"type": "boolean"}, "whether pictures have an alpha channel"),
    "algorithm": (
        {"type": "string", "enum": ["terrarium", "terrainrgb"]},
        "how to turn heights into colours",
    ),
    "nodata_height": (_NUMBER, "with algorithm: height of pixels without a value"),
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
    """The OpenAPI document of a server with these routes and sources."""
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
