"""Documents for clients of the OGC API: landing page, collections, tile matrix set, OpenAPI."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from comal.server.requests import ANY, Request, Route

WEB_MERCATOR_QUAD = "WebMercatorQuad"
_MATRIX_URI = "http://www.opengis.net/def/tilematrixset/OGC/1.0/WebMercatorQuad"
_MATRIX_PATH = f"tileMatrixSets/{WEB_MERCATOR_QUAD}"
_RELATION = "http://www.opengis.net/def/rel/ogc/1.0/"
_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_WMTS = "http://www.opengis.net/wmts/1.0"
_PREFIXES = {
    "xmlns:ows": "http://www.opengis.net/ows/1.1",
    "xmlns:xlink": "http://www.w3.org/1999/xlink",
}
_UNPRINTABLE = re.compile("[^\\t\\n\\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to say."""
_GREGORIAN = "http://www.opengis.net/def/uom/ISO-8601/0/Gregorian"
_WORLD = (-180.0, -90.0, 180.0, 90.0)
_EPSG_3857 = "http://www.opengis.net/def/crs/EPSG/0/3857"
_EDGE = 20_037_508.342789244
_CELL = 156_543.03392804097
_SCALE = 559_082_264.0287178
_DEEPEST = 24
JSON = "application/json"
XML = "application/xml"
WMTS_PATH = "WMTSCapabilities.xml"
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
    """One source as a collection of OGC API Features, Tiles, or both."""
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
        kind = "vector" if source.get("tile_type") == "vector" else "map"
        links.append(link(request, f"{_RELATION}tilesets-{kind}", f"{name}/tiles", JSON))
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


def wmts(request: Request, sources: Sequence[dict[str, Any]]) -> bytes:
    """Pictures of rasters and tilesets as layers of WMTS 1.0.0 (OGC 07-057r7, RESTful)."""
    root = Element("Capabilities", {"xmlns": _WMTS, **_PREFIXES, "version": "1.0.0"})
    about = SubElement(root, "ows:ServiceIdentification")
    for name, text in (("Title", "comal"), ("ServiceType", "OGC WMTS")):
        SubElement(about, f"ows:{name}").text = text
    SubElement(about, "ows:ServiceTypeVersion").text = "1.0.0"
    contents = SubElement(root, "Contents")
    shown = [one for one in sources if one["state"] == "ready" and _picture(one) is not None]
    for one in shown:
        _layer(request, contents, one)
    for one in shown:
        _matrix_set(contents, one)
    SubElement(root, "ServiceMetadataURL", {"xlink:href": request.link(WMTS_PATH)})
    return bytes(tostring(root, "utf-8", xml_declaration=True))


def _picture(source: dict[str, Any]) -> str | None:
    """The extension of tiles that are pictures, None where there are none."""
    # Some clients take any of several, so there is one; the lossless one where there is a choice.
    kinds = source.get("media_types", {})
    found = [ext for ext, kind in kinds.items() if kind.startswith("image/")]
    return "png" if "png" in found else next(iter(found), None)


def _layer(request: Request, contents: Element, source: dict[str, Any]) -> None:
    layer = SubElement(contents, "Layer")
    SubElement(layer, "ows:Title").text = _UNPRINTABLE.sub(" ", source["title"])
    west, south, east, north = source["bounds"]
    # Clients take the corners as numbers: across the antimeridian the layer goes around the world.
    west, east = (west, east) if west < east else (-180, 180)
    box = SubElement(layer, "ows:WGS84BoundingBox")
    SubElement(box, "ows:LowerCorner").text = f"{west} {south}"
    SubElement(box, "ows:UpperCorner").text = f"{east} {north}"
    SubElement(layer, "ows:Identifier").text = source["name"]
    style = SubElement(layer, "Style", {"isDefault": "true"})
    SubElement(style, "ows:Identifier").text = "default"
    ext = _picture(source)
    kind = source["media_types"][ext]
    SubElement(layer, "Format").text = kind
    SubElement(SubElement(layer, "TileMatrixSetLink"), "TileMatrixSet").text = source["name"]
    dot = f".{ext}" if ext else ""
    template = request.link(source["name"]) + "/{TileMatrix}/{TileCol}/{TileRow}" + dot
    where = {"format": kind, "resourceType": "tile", "template": template}
    SubElement(layer, "ResourceURL", where)


def _matrix_set(contents: Element, source: dict[str, Any]) -> None:
    """The zooms of a source, with the size that its tiles have."""
    found = SubElement(contents, "TileMatrixSet")
    SubElement(found, "ows:Identifier").text = source["name"]
    SubElement(found, "ows:SupportedCRS").text = "urn:ogc:def:crs:EPSG::3857"
    size = source["tilesize"]
    for z in range(source["minzoom"], min(source["maxzoom"], _DEEPEST) + 1):
        matrix = SubElement(found, "TileMatrix")
        SubElement(matrix, "ows:Identifier").text = str(z)
        SubElement(matrix, "ScaleDenominator").text = repr(_SCALE * 256 / size / 2**z)
        SubElement(matrix, "TopLeftCorner").text = f"{-_EDGE} {_EDGE}"
        for name in ("TileWidth", "TileHeight"):
            SubElement(matrix, name).text = str(size)
        for name in ("MatrixWidth", "MatrixHeight"):
            SubElement(matrix, name).text = str(2**z)


def tilesets(request: Request, source: dict[str, Any]) -> dict[str, Any]:
    """The tile sets of a source: one, in WebMercatorQuad."""
    return {"tilesets": [tileset(request, source, links_only=True)]}


def tileset(
    request: Request, source: dict[str, Any], *, links_only: bool = False
) -> dict[str, Any]:
    """The tile set of a source in WebMercatorQuad; its templates have the row before the column."""
    name = source["name"]
    path = f"{name}/tiles/{WEB_MERCATOR_QUAD}"
    found: dict[str, Any] = {
        "title": source["title"],
        "dataType": "vector" if source.get("tile_type") == "vector" else "map",
        "crs": _EPSG_3857,
        "tileMatrixSetURI": _MATRIX_URI,
        "links": [
            link(request, "self", path, JSON),
            link(request, _RELATION + "tiling-scheme", _MATRIX_PATH, JSON),
            link(request, "describedby", f"{name}.json", JSON, "TileJSON"),
        ],
    }
    if links_only:
        return found
    for ext, kind in source["media_types"].items():
        item = link(request, "item", path, kind)
        dot = f".{ext}" if ext else ""
        item["href"] += "/{tileMatrix}/{tileRow}/{tileCol}" + dot
        item["templated"] = True
        found["links"].append(item)
    if source.get("bounds"):
        west, south, east, north = source["bounds"]
        found["boundingBox"] = {
            "lowerLeft": [west, south],
            "upperRight": [east, north],
            "crs": _CRS84,
        }
    found["tileMatrixSetLimits"] = [
        {
            "tileMatrix": str(z),
            "minTileRow": 0,
            "maxTileRow": 2**z - 1,
            "minTileCol": 0,
            "maxTileCol": 2**z - 1,
        }
        for z in range(source["minzoom"], source["maxzoom"] + 1)
    ]
    return found


def matrix_sets(request: Request) -> dict[str, Any]:
    """The list of tile matrix sets, which is one."""
    links = [link(request, "self", _MATRIX_PATH, JSON)]
    return {"tileMatrixSets": [{"id": WEB_MERCATOR_QUAD, "uri": _MATRIX_URI, "links": links}]}


def web_mercator_quad() -> dict[str, Any]:
    """The definition of WebMercatorQuad (OGC 17-083r4, annex D)."""
    return {
        "id": WEB_MERCATOR_QUAD,
        "title": "Google Maps Compatible for the World",
        "uri": _MATRIX_URI,
        "crs": _EPSG_3857,
        "orderedAxes": ["X", "Y"],
        "wellKnownScaleSet": "http://www.opengis.net/def/wkss/OGC/1.0/GoogleMapsCompatible",
        "tileMatrices": [
            {
                "id": str(z),
                "scaleDenominator": _SCALE / 2**z,
                "cellSize": _CELL / 2**z,
                "cornerOfOrigin": "topLeft",
                "pointOfOrigin": [-_EDGE, _EDGE],
                "matrixWidth": 2**z,
                "matrixHeight": 2**z,
                "tileWidth": 256,
                "tileHeight": 256,
            }
            for z in range(_DEEPEST + 1)
        ],
    }


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
