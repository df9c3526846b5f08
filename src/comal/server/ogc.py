"""Documents for clients of the OGC API: landing page, collections, tile matrix set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from comal.server.requests import Request

WEB_MERCATOR_QUAD = "WebMercatorQuad"
_MATRIX_URI = "http://www.opengis.net/def/tilematrixset/OGC/1.0/WebMercatorQuad"
_CRS84 = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
_EPSG_3857 = "http://www.opengis.net/def/crs/EPSG/0/3857"
_EDGE = 20_037_508.342789244
_CELL = 156_543.03392804097
_SCALE = 559_082_264.0287178
_DEEPEST = 24
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
    "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/core",
    "http://www.opengis.net/spec/ogcapi-tiles-1/1.0/conf/tileset",
    "http://www.opengis.net/spec/cql2/1.0/conf/cql2-text",
    "http://www.opengis.net/spec/cql2/1.0/conf/basic-cql2",
    "http://www.opengis.net/spec/cql2/1.0/conf/advanced-comparison-operators",
    "https://api.stacspec.org/v1.0.0/core",
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
            link(
                request,
                "http://www.opengis.net/def/rel/ogc/1.0/tiling-schemes",
                "tileMatrixSets",
                JSON,
            ),
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
        "links": [link(request, "self", "collections", JSON)],
        "collections": [collection(request, one) for one in ready],
    }


def collection(request: Request, source: dict[str, Any]) -> dict[str, Any]:
    """One source as a collection of OGC API Features, Tiles, or both."""
    name = source["name"]
    links = [link(request, "self", f"collections/{name}", JSON, source["title"])]
    if source["kind"] == "samples":
        path = f"collections/{name}/items"
        links.append(link(request, "items", path, "application/geo+json"))
        relation = "http://www.opengis.net/def/rel/ogc/1.0/queryables"
        links.append(link(request, relation, f"{name}/queryables", "application/schema+json"))
    else:
        kind = "vector" if source.get("tile_type") == "vector" else "map"
        relation = f"http://www.opengis.net/def/rel/ogc/1.0/tilesets-{kind}"
        links.append(link(request, relation, f"{name}/tiles", JSON))
    found: dict[str, Any] = {
        "id": name,
        "title": source["title"],
        "type": "Collection",
        "stac_version": "1.1.0",
        "license": "other",
        "links": links,
        "crs": [_CRS84],
    }
    if source.get("description"):
        found["description"] = source["description"]
    extent: dict[str, Any] = {}
    if source.get("bounds"):
        extent["spatial"] = {"bbox": [source["bounds"]], "crs": _CRS84}
    if source.get("time"):
        extent["temporal"] = {"interval": [source["time"]]}
    if extent:
        found["extent"] = extent
    return found


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
            link(
                request,
                "http://www.opengis.net/def/rel/ogc/1.0/tiling-scheme",
                f"tileMatrixSets/{WEB_MERCATOR_QUAD}",
                JSON,
            ),
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
    path = f"tileMatrixSets/{WEB_MERCATOR_QUAD}"
    return {
        "tileMatrixSets": [
            {
                "id": WEB_MERCATOR_QUAD,
                "uri": _MATRIX_URI,
                "links": [link(request, "self", path, JSON)],
            }
        ]
    }


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
