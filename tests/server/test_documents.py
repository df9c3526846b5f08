"""What clients are told: OpenAPI, links, and texts of strangers that must stay texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import fromstring

import numpy as np
import pyarrow.parquet as pq
import pytest

from comal import server, taco, tortilla
from tests.server.asking import Reply, ask
from tests.server.making import COLLECTION, raquet_file, tiff, tileset

SCRIPT = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def filled(path: str) -> str:
    """A path of the document with values that are there."""
    tile = {"z": "0", "x": "0", "y": "0", "ext": "png", "scale": "2", "lon": "1.5", "lat": "-2"}
    values = {**tile, "name": "cloud_cover", "path": "scene%201/image.tif"}
    return re.sub(r"\{(\w+)\}", lambda match: values[match[1]], path)


def test_openapi_is_valid(app: Any) -> None:
    validator = pytest.importorskip("openapi_spec_validator")
    reply = ask(app, "/api")
    assert reply.headers["content-type"] == "application/vnd.oai.openapi+json;version=3.0"
    validator.validate(reply.json())


def test_openapi_says_what_is_there(app: Any) -> None:
    paths = ask(app, "/api").json()["paths"]
    asked = 0
    for path, item in paths.items():
        operation = item["get"]
        names = [
            one["schema"]["enum"] for one in operation["parameters"] if one["name"] == "source"
        ] or [[""]]
        for name in names[0]:
            if name == "tiles" and "@" in path:
                continue  # it has one tile of twice the size
            (kind,) = operation["responses"]["200"]["content"]
            address = filled(path.replace("{source}", name))
            reply = ask(app, address, headers={"Accept": kind})
            assert reply.status == 200, (path, name, reply.body)
            assert kind in {"*/*", reply.headers["content-type"]}
            asked += 1
    assert asked > 50
    assert ask(app, "/healthz/x").status == 404


def test_every_parameter_of_the_document_is_taken(app: Any) -> None:
    values = {
        "bbox": "-10,-10,60,60",
        "datetime": "2020-01-01/..",
        "filter": "cloud_cover < 50",
        "filter-lang": "cql2-text",
        "filter-crs": quote("http://www.opengis.net/def/crs/OGC/1.3/CRS84"),
        "sortby": "-cloud_cover",
        "columns": "cloud_cover",
        "path": "scene%201",
        "expression": "b1*2&rescale=0,1",
        "rescale": "0,100",
        "colormap_name": "viridis",
        "return_mask": "true",
        "algorithm": "terrarium",
        "ext": "png",
        "size": "32",
    }
    for path, item in ask(app, "/api").json()["paths"].items():
        for one in item["get"]["parameters"]:
            name = one["name"]
            if one["in"] == "query" and name != "time":
                given = values.get(name, "1")
                source = "scenes" if "items" in path or "/table" in path else "dem"
                source = "scenes" if path.split("/")[-1] in {"{name}", "{path}", "tree"} else source
                reply = ask(app, f"{filled(path.replace('{source}', source))}?{name}={given}")
                assert reply.status == 200, (path, name, reply.body)


def links_of(document: Any) -> Iterator[dict[str, Any]]:
    """Links of a document and of what is in it."""
    inner = document.values() if isinstance(document, dict) else document
    for value in inner:
        if isinstance(value, dict | list):
            yield from links_of(value)
    if isinstance(document, dict) and isinstance(document.get("links"), list):
        yield from document["links"]


def test_links_of_the_landing_page_lead_somewhere(app: Any) -> None:
    landing = ask(app, "/", headers={"Accept": "application/json"}).json()
    relations = {link["rel"] for link in landing["links"]}
    assert {"self", "service-desc", "conformance", "data"} <= relations
    conforms = ask(app, "/conformance").json()["conformsTo"]
    assert landing["conformsTo"] == conforms
    waiting = list(links_of(landing))
    seen: set[str] = set()
    while waiting:
        link = waiting.pop()
        if link["href"] in seen or link.get("templated"):
            continue
        seen.add(link["href"])
        reply = ask(app, link["href"], headers={"Accept": link["type"]})
        assert reply.status == 200, link
        assert reply.headers["content-type"] == link["type"]
        if "json" in link["type"]:
            waiting += links_of(reply.json())
    assert len(seen) > 25
    for href in ("/collections/scenes/items", "/dem.json", "/dem/tiles/WebMercatorQuad"):
        assert href in seen


# What the standards want of each document: OGC API Features 1 (17-069r4, 7.2 to 7.16, tables 1 to 9
# and its OpenAPI components), Tiles (20-057, annex B), Tile Matrix Set 2 (17-083r4, 7.2).
TEXT, NUMBER = {"type": "string", "minLength": 1}, {"type": "number"}
URI = {"type": "string", "pattern": "^https://maps[.]example[.]org/"}
WHOLE = {"type": "integer", "minimum": 0}
INSTANT = {"type": ["string", "null"], "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d([.]\d+)?Z$"}


def some(**members: Any) -> dict[str, Any]:
    """An object that has these members; one whose name ends in ``_`` may be missing."""
    names = [name for name in members if not name.endswith("_")]
    properties = {name.rstrip("_"): schema for name, schema in members.items()}
    return {"type": "object", "required": names, "properties": properties}


def listed(schema: Any, least: int = 1, most: int | None = None) -> dict[str, Any]:
    """A list of these."""
    found = {"type": "array", "items": schema, "minItems": least}
    return found if most is None else found | {"maxItems": most}


LINK = some(href=URI, rel=TEXT, type_=TEXT, title_=TEXT, templated_={"type": "boolean"})
LINKS = listed(LINK)
PAIR = listed(NUMBER, 2, 2)
SPATIAL = some(bbox=listed(listed(NUMBER, 4, 6)))
EXTENT = some(spatial=SPATIAL, temporal=some(interval=listed(listed(INSTANT, 2, 2))))
COLLECTION_OF = some(
    id=TEXT, links=LINKS, extent=EXTENT, title=TEXT, description=TEXT,
    itemType_={"const": "feature"}, crs=listed(TEXT),
)  # fmt: skip
FEATURE = some(
    type={"const": "Feature"}, geometry={"type": ["object", "null"]}, links=LINKS, id=TEXT,
    properties={"type": ["object", "null"]},
)  # fmt: skip
TILESET = some(
    dataType={"enum": ["map", "vector", "coverage"]}, crs=TEXT, links=LINKS, title_=TEXT,
    tileMatrixSetURI=TEXT, boundingBox_=some(lowerLeft=PAIR, upperRight=PAIR),
    tileMatrixSetLimits_=listed(
        some(
            tileMatrix=TEXT, minTileRow=WHOLE, maxTileRow=WHOLE, minTileCol=WHOLE,
            maxTileCol=WHOLE,
        )
    ),
)  # fmt: skip
MATRIX = some(
    id=TEXT, scaleDenominator=NUMBER, cellSize=NUMBER, pointOfOrigin=PAIR, tileWidth=WHOLE,
    tileHeight=WHOLE, matrixWidth=WHOLE, matrixHeight=WHOLE,
)  # fmt: skip
WANTED = {
    "/": some(links=LINKS, conformsTo=listed(TEXT), title_=TEXT, description_=TEXT),
    "/conformance": some(conformsTo=listed(TEXT)),
    "/collections": some(links=LINKS, collections=listed(COLLECTION_OF, 5)),
    "/collections/scenes": COLLECTION_OF,
    "/collections/dem": COLLECTION_OF,
    "/collections/scenes/items?limit=2": some(
        type={"const": "FeatureCollection"}, features=listed(FEATURE, 2, 2), links=LINKS,
        numberMatched=WHOLE, numberReturned={"const": 2},
    ),
    "/collections/scenes/items/scene%201": FEATURE,
    "/collections/scenes/queryables": some(
        **{"$schema": TEXT, "$id": URI}, type={"const": "object"}, properties={"type": "object"}
    ),
    "/dem/tiles": some(tilesets=listed(TILESET)),
    "/dem/tiles/WebMercatorQuad": TILESET,
    "/tiles/tiles/WebMercatorQuad": TILESET,
    "/tileMatrixSets": some(tileMatrixSets=listed(some(links=LINKS, id=TEXT, uri=TEXT))),
    "/tileMatrixSets/WebMercatorQuad": some(crs=TEXT, tileMatrices=listed(MATRIX), id_=TEXT),
}  # fmt: skip


def test_documents_have_what_the_standards_want(archives: dict[str, Path]) -> None:
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    sources = {name: str(path) for name, path in archives.items()}
    app = server.app(sources, public_url="https://maps.example.org", log="none")
    for path, schema in WANTED.items():
        problems = [*validator(schema).iter_errors(ask(app, path).json())]
        assert problems == [], path


def test_templates_of_tile_sets_lead_to_tiles(app: Any) -> None:
    tileset = ask(app, "/dem/tiles/WebMercatorQuad").json()
    templates = [link for link in tileset["links"] if link.get("templated")]
    assert len(templates) == 4
    for link in templates:
        reply = ask(app, link["href"].format(tileMatrix=1, tileRow=0, tileCol=1))
        assert (reply.status, reply.headers["content-type"]) == (200, link["type"])


@pytest.mark.parametrize("name", ["tiles", "dem", "scenes"])
def test_the_lines_that_are_shown_open_it(
    archives: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archives[name]
    monkeypatch.chdir(path.parent)
    names: dict[str, Any] = {}
    exec(ask(server.app({"a": path.name}), "/a").json()["python"], names)  # that it runs is tested
    found = {"tiles": "tile", "dem": "window", "scenes": "rows"}[name]
    assert names[found] is not None


# -- texts of strangers ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """Scripts wherever an archive may hold a text; and the folder, of which nobody may hear."""
    folder = tmp_path_factory.mktemp("a-secret-folder")
    meta = {"name": SCRIPT, "description": SCRIPT, "attribution": SCRIPT}
    layers = {"vector_layers": [{"id": SCRIPT, "fields": {SCRIPT: SCRIPT}}]}
    tiles = tileset(folder / "tiles", **meta, **layers)
    band = {"name": "height", "description": SCRIPT, "unit": SCRIPT}
    dem = raquet_file(
        folder / f"{quote('<b>', safe='')}.parquet",
        {"height": np.ones((128, 128), np.int16)},
        extra={"height": band},
    )
    samples = [taco.Sample(id="a", path=tiff(np.ones((1, 8, 8), np.uint8)), note=SCRIPT)]
    about: dict[str, Any] = {"title": SCRIPT, "description": SCRIPT, "keywords": [SCRIPT]}
    about |= {"providers": [{"name": SCRIPT}], "curators": [{"name": SCRIPT}]}
    scenes = folder / "scenes.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **{**COLLECTION, **about}), scenes)
    old = folder / "old.tortilla"
    sample = tortilla.Sample(id="<b>", path=b"x", file_format=SCRIPT, note=SCRIPT)
    tortilla.create([sample], old, allow_ids=True)
    broken = folder / "broken.parquet"
    broken.write_bytes(b"PAR1" + SCRIPT.encode() + b"PAR1")
    cut = folder / "cut.tacozip"
    cut.write_bytes(scenes.read_bytes()[:-300])
    sources = {
        "tiles": str(tiles),
        "dem": str(dem),
        "scenes": str(scenes),
        "old": str(old),
        "broken": str(broken),
        "cut": str(cut),
        "gone": str(folder / "gone.parquet"),
        "old1": {"href": str(folder / "nowhere"), "metatile": 4},
    }
    return server.app(sources, log="none"), folder


PATHS = (
    *("/", "/sources.json", "/collections", "/api", "/conformance", "/readyz", "/metrics"),
    *("/tiles", "/tiles.json", "/tiles/tiles", "/tiles/tiles/WebMercatorQuad", "/tiles/2/0/0.png"),
    *("/WMTSCapabilities.xml", "/tileMatrixSets", "/tileMatrixSets/WebMercatorQuad"),
    *("/dem", "/dem.json", "/dem/statistics", "/dem/point/1,1", "/dem/9/0/0.png"),
    *("/dem/0/0/0.png?colormap_name=%3Cscript%3E", "/dem/0/0/0.png?expression=%3Cscript%3E"),
    *("/scenes", "/scenes/collection", "/scenes/items", "/scenes/items/a", "/scenes/table"),
    *("/scenes/columns/note", "/scenes/tree", "/scenes/queryables", "/scenes/preview/nothing"),
    *("/scenes/items?filter=%3Cscript%3E", "/scenes/items?bbox=%3Cscript%3E"),
    *("/scenes/items?%3Cscript%3E=1", "/scenes/items?sortby=%3Cscript%3E"),
    *("/scenes/data/%3Cscript%3E", "/%3Cscript%3E", "/scenes/preview/a?bidx=99"),
    *("/old", "/old/items", "/old/table", "/old/tree", "/old/preview/%3Cb%3E"),
    *("/broken", "/broken/0/0/0.png", "/cut", "/cut/items", "/gone", "/gone/0/0/0.png"),
    *("/old1", "/old1/0/0/0.mvt", "/collections/gone", "/collections/broken/items"),
)


@pytest.mark.parametrize("path", PATHS)
def test_texts_of_strangers_stay_texts(hostile: tuple[Any, Path], path: str) -> None:
    app, folder = hostile
    for accept in ("application/json", "text/html", "*/*"):
        reply = ask(app, path, headers={"Accept": accept})
        _check_harmless(reply)
        text = reply.body.decode("utf-8", "replace") + str(reply.pairs)
        assert folder.name not in text
        assert str(folder.parent) not in text
        for secret in ("Traceback", "site-packages", ".py", "pyarrow", "Errno"):
            assert secret not in text.replace("application/", ""), path
        if reply.status >= 400:
            assert reply.headers["content-type"] == "application/problem+json"
            document = reply.json()
            assert document["id"] == reply.headers["x-request-id"]
            assert document["code"]


def _check_harmless(reply: Reply) -> None:
    assert reply.headers["x-content-type-options"] == "nosniff"
    kind = reply.headers["content-type"]
    if kind.startswith("text/html"):
        assert "default-src 'none'" in reply.headers["content-security-policy"]
        assert b"alert(1)" not in reply.body
    elif "json" in kind:
        assert b"<" not in reply.body, "a page that takes it as it is cannot be broken out of"
        json.loads(reply.body)
    elif kind.startswith("text/"):
        assert b"<script" not in reply.body


def test_layers_of_strangers_are_xml(tmp_path: Path) -> None:
    """Also with what XML cannot say, and across the antimeridian."""
    place, pacific = {"name": f"{SCRIPT}\0{{west}}"}, {"bounds": [170.0, -10.0, -170.0, 10.0]}
    app = server.app({"a": str(tileset(tmp_path / "set", **place, **pacific))}, log="none")
    root = fromstring(ask(app, "/WMTSCapabilities.xml").body)
    texts = [(one.text or "").strip() for one in root.iter()]
    for text in (f"{SCRIPT} {{west}}", "-180.0 -10.0", "180.0 10.0"):
        assert text in texts
    assert ask(app, "/a.json").json()["bounds"] == [-180, -10, 180, 10]


def test_such_texts_are_told_in_full(hostile: tuple[Any, Path]) -> None:
    app, _ = hostile
    assert ask(app, "/tiles").json()["title"] == SCRIPT
    assert ask(app, "/tiles.json").json()["name"] == SCRIPT
    assert ask(app, "/scenes/collection").json()["title"] == SCRIPT
    assert ask(app, "/scenes/items").json()["features"][0]["properties"]["note"] == SCRIPT
    assert ask(app, "/dem").json()["bands"][0]["description"] == SCRIPT


def test_samples_of_strangers_run_nothing(tmp_path: Path) -> None:
    page = f"<html>{SCRIPT}</html>".encode()
    path = tmp_path / "a.tortilla"
    tortilla.create([tortilla.Sample(id="page.html", path=page, file_format="HTML")], path)
    reply = ask(server.app({"a": str(path)}), "/a/data/page.html")
    assert reply.body == page
    assert reply.headers["content-type"] == "application/octet-stream"
    assert reply.headers["content-disposition"] == "attachment"
    assert "sandbox" in reply.headers["content-security-policy"]
    assert reply.headers["x-content-type-options"] == "nosniff"


# -- many samples ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A TACO of 100 000 rows, as a peer of ours would write one without payloads to speak of."""
    from tests.server.making import many_samples

    return many_samples(tmp_path_factory.mktemp("many") / "many.tacozip", 100_000)


def test_pages_of_a_large_archive_are_bounded(many: Path) -> None:
    app = server.app({"many": str(many)}, log="none")
    assert ask(app, "/many").json()["count"] == 100_000
    page = ask(app, "/many/items").json()
    assert (page["numberMatched"], page["numberReturned"]) == (100_000, 100)
    last = ask(app, "/many/items?limit=1000000&offset=99500").json()
    assert last["numberReturned"] == 500
    assert last["features"][-1]["id"] == "s099999"
    most = ask(app, "/many/items?limit=1000000")
    assert most.json()["numberReturned"] == app.settings.limits.items
    assert len(most.body) < 2_000_000
    assert len(ask(app, "/many/tree?limit=1000000").json()["children"]) == 1000
    found = ask(app, "/many/items?filter=cloud%20%3C%200.001%20AND%20split%3D%27b%27").json()
    table = pq.read_table(many.with_suffix(".oracle"))
    cloud, split = (table.column(name).to_numpy() for name in ("cloud", "split"))
    assert found["numberMatched"] == int(((cloud < 0.001) & (split == "b")).sum())
