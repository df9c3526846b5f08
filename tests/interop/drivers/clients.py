"""Run by the interpreter of the clients: ask a server as pystac, OWSLib and the validators do.

A job names the server and a collection with items; the answer is what was found. Schemas come from
what pystac ships, and nothing else is fetched from elsewhere.
"""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import pystac
import requests
from requests.adapters import BaseAdapter

SHIPPED = pathlib.Path(pystac.__file__).parent / "validation" / "jsonschemas"
EXTENSIONS = "https://stac-extensions.github.io/"


def anything(address: str) -> str:
    """A schema that everything fits."""
    draft = "http://json-schema.org/draft-07/schema#"
    return json.dumps({"$schema": draft, "$id": address})


class Shipped(pystac.stac_io.DefaultStacIO):
    """How pystac itself fetches the schemas of extensions."""

    def read_text_from_href(self, href: str) -> str:
        return anything(href) if href.startswith(EXTENSIONS) else super().read_text_from_href(href)


class Schemas(BaseAdapter):
    """Answers for the hosts of STAC's and GeoJSON's schemas with the files of pystac.

    Of extensions it ships none: whatever they say is taken.
    """

    def send(self, request: Any, *_: Any, **__: Any) -> Any:
        host, _, path = request.url.partition("://")[2].partition("/")
        name = path.rpartition("/")[2].partition("#")[0]
        folder = SHIPPED / ("geojson" if host == "geojson.org" else "stac-spec/v1.1.0")
        found = requests.Response()
        found.status_code, found.url, found.request = 200, request.url, request
        extension = request.url.startswith(EXTENSIONS)
        text = anything(request.url) if extension else (folder / name).read_text()
        found.raw = io.BytesIO(text.encode())
        return found

    def close(self) -> None:
        """Holds nothing."""


def offline(server: str) -> None:
    """Let sessions reach schemas that are shipped, and the server; nothing else."""
    pystac.StacIO.set_default(Shipped)
    real = requests.Session.get_adapter

    def get_adapter(self: Any, url: str) -> Any:
        if url.startswith(("https://schemas.stacspec.org/", "https://geojson.org/", EXTENSIONS)):
            return Schemas()
        assert url.startswith(server), url
        return real(self, url)

    requests.Session.get_adapter = get_adapter  # type: ignore[method-assign]


def validated_api(server: str, collection: str, geometry: Any) -> Any:
    """What stac-api-validator says of the classes that the server conforms to."""
    from click.testing import CliRunner
    from stac_api_validator.__main__ import main  # type: ignore[import-not-found]

    words = ["--root-url", server, "--collection", collection, "--geometry", json.dumps(geometry)]
    for name in ("core", "collections", "features"):
        words += ["--conformance", name]
    done = CliRunner().invoke(main, words)
    return {"exit_code": done.exit_code, "output": done.output}


def traversed(server: str) -> Any:
    """Every collection and item that pystac-client finds, once each is valid.

    Validated by pystac and by stac-validator.
    """
    from pystac_client import Client, ItemSearch  # type: ignore[import-not-found]
    from stac_validator.stac_validator import StacValidate  # type: ignore[import-not-found]

    client = Client.open(server)
    client.validate()
    found: dict[str, Any] = {}
    for collection in client.get_collections():
        collection.validate()
        document = collection.to_dict()
        validator = StacValidate()
        assert validator.validate_dict(document), validator.message
        pages = collection.get_single_link("items")
        # Without the class Item Search the client itself looks for items one by one.
        search = ItemSearch(pages and pages.href, method="GET", client=client, limit=4)
        items = [] if pages is None else list(search.items())
        for item in items:
            item.validate()
            validator = StacValidate()
            assert validator.validate_dict(item.to_dict()), validator.message
            assert collection.get_item(item.id).properties == item.properties
            for link in (*item.links, *collection.links):
                assert link.href.startswith(server), link.href
            for asset in item.assets.values():
                assert asset.href.startswith(server), asset.href
                assert requests.head(asset.href, timeout=60).status_code == 200, asset.href
        found[collection.id] = {
            "items": {item.id: item.properties for item in items},
            "bbox": collection.extent.spatial.bboxes,
            "license": collection.license,
        }
    return found


def of_owslib(server: str, collection: str, box: list[float]) -> Any:
    """What OWSLib reads of features, of their queryables and of WMTS."""
    from owslib.ogcapi.features import Features  # type: ignore[import-not-found]
    from owslib.wmts import WebMapTileService  # type: ignore[import-not-found]

    features = Features(server)
    page = features.collection_items(collection, limit=2)
    inside = features.collection_items(collection, bbox=box)
    tiles = WebMapTileService(server + "WMTSCapabilities.xml")
    layers = {}
    for name, layer in tiles.contents.items():
        matrices = tiles.tilematrixsets[layer.tilematrixsetlinks.popitem()[0]].tilematrix
        picture = tiles.gettile(
            layer=name, tilematrixset=name, tilematrix="1", row=0, column=1, format="image/png"
        )
        layers[name] = {
            "bounds": layer.boundingBoxWGS84,
            "zooms": len(matrices),
            "tile": picture.read().hex(),
        }
    return {
        "features": sorted(features.feature_collections()),
        "conformance": len(features.conformance()["conformsTo"]),
        "page": [item["id"] for item in page["features"]],
        "matched": page["numberMatched"],
        "box": inside["numberMatched"],
        "queryables": sorted(features.collection_queryables(collection)["properties"]),
        "layers": layers,
    }


def answer(job: dict[str, Any]) -> Any:
    server, collection = job["server"], job["collection"]
    offline(server)
    return {
        "validator": validated_api(server, collection, job["geometry"]),
        "pystac": traversed(server),
        "owslib": of_owslib(server, collection, job["box"]),
    }
