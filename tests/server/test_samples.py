"""Samples of TACO and Tortilla: items, filters, tables, trees, previews, bytes."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from comal import server, taco, tortilla
from comal.server.items import column_stats
from tests.server.asking import ask
from tests.server.making import COLLECTION, PNG, picture, tiff
from tests.support import SHARED, needs_shared
from tests.tortilla.build import Item, built


def ids(app: Any, query: str = "", source: str = "scenes") -> list[str]:
    reply = ask(app, f"/{source}/items?{query}")
    assert reply.status == 200, reply.body
    return [item["id"] for item in reply.json()["features"]]


def test_items_are_features(app: Any) -> None:
    reply = ask(app, "/scenes/items")
    assert reply.headers["content-type"] == "application/geo+json"
    document = reply.json()
    found = (document["type"], document["numberMatched"], document["numberReturned"])
    assert found == ("FeatureCollection", 6, 6)
    item = document["features"][1]
    assert item["id"] == "scene 1"
    assert item["geometry"]["coordinates"][0][0] == [10.0, 10.0]
    assert item["bbox"] == [10.0, 8.0, 12.0, 10.0]
    assert item["properties"]["datetime"] == "2023-02-01T00:00:00Z"
    assert item["properties"]["cloud_cover"] == 10.0
    assert not [name for name in item["properties"] if name.startswith("internal:")]
    assert item["assets"]["thumbnail"]["href"] == "/scenes/preview/scene%201?size=256"
    assert ask(app, "/scenes/items/scene%201").json() == item
    nested = ask(app, "/scenes/items/scene%201/image.tif").json()
    assert nested["assets"]["data"]["href"] == "/scenes/data/scene%201/image.tif"
    assert nested["assets"]["data"]["type"].startswith("image/tiff")


PUBLIC = "https://maps.example.org"


def addresses(document: Any) -> Iterator[str]:
    """Whatever a document calls an address."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if key in {"href", "url", "$id"} or (key == "tiles" and isinstance(value, list)):
            yield from [value] if isinstance(value, str) else value
        elif isinstance(value, dict | list):
            yield from addresses(value)


def test_addresses_are_those_that_clients_see(archives: dict[str, Path]) -> None:
    sources = {name: str(path) for name, path in archives.items()}
    app = server.app(sources, public_url=PUBLIC, prefix="/v1", log="none")
    paths = ["/", "/collections", "/collections/scenes", "/collections/scenes/items", "/dem.json"]
    paths += ["/scenes/items/scene%201/image.tif", "/dem/tiles/WebMercatorQuad", "/api"]
    paths += ["/tileMatrixSets", "/collections/scenes/queryables", "/tiles.json"]
    seen = []
    for path in paths:
        found = [*addresses(ask(app, f"/v1{path}").json())]
        assert found, path
        assert all(one.startswith(f"{PUBLIC}/v1") for one in found), path
        seen += found
    assert f"{PUBLIC}/v1/scenes/data/scene%201/image.tif" in seen
    layers = ask(app, "/v1/WMTSCapabilities.xml").body.decode()
    templates = re.findall(r'(?:template|href)="([^"]+)"', layers)
    assert all(one.startswith(f"{PUBLIC}/v1/") for one in templates)
    assert f"{PUBLIC}/v1/dem/{{TileMatrix}}/{{TileCol}}/{{TileRow}}.png" in templates


@pytest.mark.parametrize("kind", [dt.datetime, int])
def test_times_are_whole_or_say_that_they_are_not(kind: type, tmp_path: Path) -> None:
    moments = (np.datetime64(day, "us") for day in ("1970-01-01", "2024-02-01"))
    start, end = (one.astype(int).item() if kind is int else one.item() for one in moments)
    columns = "stac:time_start", "stac:time_end"
    ends = {"neither": (None, None), "start": (start, None), "end": (None, end)}
    samples = [
        taco.Sample(id=name, path=b"x", **dict[str, Any](zip(columns, pair, strict=True)))
        for name, pair in {**ends, "both": (start, end)}.items()
    ]
    path = tmp_path / "timed.tacozip"
    taco.create(taco.Taco(taco.Tortilla(samples), **COLLECTION), path)
    items = ask(server.app({"a": str(path)}), "/a/items").json()["features"]
    names = ("datetime", "start_datetime", "end_datetime")
    ever = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
    first, last = "1970-01-01T00:00:00Z", "2024-02-01T00:00:00Z"
    assert {one["id"]: tuple(one["properties"].get(name) for name in names) for one in items} == {
        "neither": (None, *ever),
        "start": (first, None, None),
        "end": (None, ever[0], last),
        "both": (first, first, last),
    }


def test_pages(app: Any) -> None:
    first = ask(app, "/scenes/items?limit=4&sortby=-cloud_cover").json()
    links = {link["rel"]: link["href"] for link in first["links"]}
    assert "prev" not in links
    second = ask(app, links["next"]).json()
    back = {link["rel"]: link["href"] for link in second["links"]}
    assert "next" not in back
    every = [item["id"] for page in (first, second) for item in page["features"]]
    assert every == ["scene 4", "scene 3", "scene 2", "scene 1", "scene 0", "scene 5"], "null last"
    assert ask(app, back["prev"]).json()["features"] == first["features"]
    assert ids(app, "limit=99999") == ids(app), "as many as the server gives"
    assert ids(app, "offset=99") == []


def test_of_a_column_named_twice_the_first_order_counts(app: Any) -> None:
    assert ids(app, "sortby=-id,id") == ids(app, "sortby=-id") == sorted(ids(app), reverse=True)
    assert ids(app, "sortby=split,-id,-split") == ids(app, "sortby=split,-id")


def test_periods_as_the_reader_filters(app: Any, archives: dict[str, Path]) -> None:
    data = taco.load(archives["scenes"])
    for period in ("2023-02-01/2023-04-01", "../2023-02-01", "2023-01-01T00:00:00Z"):
        expected = data.filter_datetime(period).data["id"].to_pylist()
        assert ids(app, f"datetime={period}") == expected


START = '"stac:time_start"'
DAY = 86_400
TIMES = {
    "seen > TIMESTAMP('1970-01-01T00:00:01Z')": [1, 2, 3],
    "seen >= TIMESTAMP('1970-01-01T00:00:01.500001Z')": [2, 3],
    "seen < TIMESTAMP('1970-01-01T00:00:01.5Z')": [0],
    "TIMESTAMP('1970-01-01T00:00:01.5Z') >= seen": [0, 1],
    "seen = TIMESTAMP('1970-01-01T00:00:01.5Z')": [1],
    "seen <> TIMESTAMP('1970-01-01T00:00:01.5Z')": [0, 2, 3],
    "seen = DATE('1970-01-01')": [0, 1, 2],
    "seen <= DATE('1970-01-01')": [0, 1, 2],
    "NOT seen = DATE('1970-01-01')": [3],
    "seen <> DATE('1970-01-01')": [3],
    "seen > '1970-01-01'": [3],
    "seen BETWEEN '1970-01-01T00:00:01.5Z' AND TIMESTAMP('1970-01-01T00:00:03.25Z')": [1, 2],
    "seen IN (TIMESTAMP('1970-01-01T00:00:03.25Z'), DATE('1970-01-02'))": [2, 3],
    "day = DATE('1970-01-01')": [0, 1, 2],
    f"{START} = TIMESTAMP('1970-01-01T00:00:01.5Z')": [],
    f"{START} >= TIMESTAMP('1970-01-01T00:00:00.5Z')": [1, 2, 3],
    f"{START} <= TIMESTAMP('1970-01-01T00:00:01Z')": [0, 1],
    f"seen > {START}": [1, 2],
    f'{START} = "stac:time_end"': [0],
    "stac:time_start >= DATE('1970-01-02')": [3],
    f"{START} = '1970-01-01'": [0, 1, 2],
    f"{START} > '1970-01-01'": [3],
    f"{START} IN (DATE('1970-01-02'), DATE('1970-01-03'))": [3],
    "type = 'FOLDER'": [],
    # NaN is a missing value
    "NOT cloud > 1": [0],
    "cloud NOT IN (1)": [3],
    "5 <> cloud": [0, 3],
    "day <> '1970-01-01' OR level <> cloud": [0, 3],
}


def test_filters_are_exact(tmp_path: Path) -> None:
    """Of a Tortilla, whose own times are whole seconds."""
    moments = [0, 1_500_000, 3_250_000, 1_000_000 * DAY]
    seen = pa.array([*moments, None], pa.timestamp("us", "UTC"))
    table = pa.table(
        {
            "tortilla:id": [f"{number}" for number in range(5)],
            "tortilla:file_format": ["BYTES"] * 5,
            "path": pa.array([b"x"] * 5, pa.binary()),
            "seen": seen,
            "day": seen.cast(pa.timestamp("us")).cast(pa.date32(), safe=False),
            "cloud": [1.0, float("nan"), None, 2.0, None],
            "level": [2, 2, 2, 2, None],
            # Python's calendar ends before these times
            "visits": pa.array([[2**62], [], None, [None], []], pa.list_(pa.timestamp("us"))),
            "stac:time_start": pa.array([0, 1, 3, DAY, None], pa.int64()),
            "stac:time_end": pa.array([0, 2, 4, DAY + 1, None], pa.int64()),
        }
    )
    tortilla.create(table, tmp_path / "a.tortilla")
    app = server.app({"a": str(tmp_path / "a.tortilla")})
    for condition, expected in TIMES.items():
        found = ids(app, f"filter={quote(condition)}", "a")
        assert found == [f"{number}" for number in expected], condition


def test_table_and_columns(app: Any) -> None:
    document = ask(
        app, "/scenes/table?columns=cloud_cover,stac:time_start&limit=2&filter=clear"
    ).json()
    names = [column["name"] for column in document["columns"]]
    assert names == ["id", "type", "cloud_cover", "stac:time_start"]
    assert document["rows"][1] == ["scene 1", "FOLDER", 10.0, "2023-02-01T00:00:00Z"]
    assert (document["matched"], document["next"]) == (2, None)
    assert ask(app, "/scenes/table?limit=4").json()["next"] == 4
    refused = ask(app, "/scenes/table?columns=id,nothing")
    assert refused.status == 400, "the table is there, what is asked of it makes no sense"
    assert "nothing" in refused.json()["detail"]
    numbers = ask(app, "/scenes/columns/cloud_cover?bins=4").json()
    assert (numbers["nulls"], numbers["min"], numbers["max"]) == (1, 0.0, 40.0)
    assert sum(numbers["histogram"]["counts"]) == 5
    texts = ask(app, "/scenes/columns/split").json()
    assert texts["values"] == [{"value": "test", "count": 3}, {"value": "train", "count": 3}]
    flags = ask(app, "/scenes/columns/clear?filter=cloud_cover>5").json()
    assert {one["value"]: one["count"] for one in flags["values"]} == {True: 1, False: 3}
    times = ask(app, "/scenes/columns/stac:time_start?bins=1").json()
    assert times["histogram"]["edges"] == ["2023-01-01T00:00:00Z", "2023-06-01T00:00:00Z"]
    empty = ask(app, "/scenes/columns/cloud_cover?filter=cloud_cover>1e9").json()
    assert (empty["rows"], empty["histogram"]) == (0, None)
    assert ask(app, "/scenes/columns/nothing").status == 404
    assert ask(app, "/scenes/columns/stac:geotransform").status == 400
    large = column_stats(pa.table({"n": [2**53 + 1, 2**60 + 1]}), np.arange(2), "n", 4)
    assert (large["min"], large["max"]) == (2**53 + 1, 2**60 + 1)


def test_tree(app: Any) -> None:
    top = ask(app, "/scenes/tree?limit=2").json()
    assert (top["total"], top["next"], top["children"][0]["has_children"]) == (6, 2, True)
    below = ask(app, "/scenes/tree?path=scene%202").json()
    assert [child["path"] for child in below["children"]] == [
        "scene 2/image.tif",
        "scene 2/note.txt",
    ]
    assert below["children"][1]["size"] == len("note 2")
    for path in ("nothing", "scene 2/note.txt", "scene 2/..", "../etc", "/"):
        expected = 200 if path == "/" else 404
        assert ask(app, f"/scenes/tree?path={quote(path)}").status == expected


def test_bytes(app: Any, archives: dict[str, Path]) -> None:
    whole = ask(app, "/scenes/data/scene%202/note.txt")
    assert (whole.status, whole.body) == (200, b"note 2")
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert "sandbox" in whole.headers["content-security-policy"]
    data = taco.load(archives["scenes"]).data
    image = ask(app, "/scenes/data/scene%201/image.tif").body
    assert image == data.read_bytes("scene 1/image.tif")
    for path in ("scene%202", "scene%202/nothing", "", "..%2F..%2Fetc%2Fpasswd", "scene%202/../x"):
        assert ask(app, f"/scenes/data/{path}").status == 404


def test_an_id_of_several_samples_names_none(tmp_path: Path) -> None:
    path = tmp_path / "a.tortilla"
    path.write_bytes(built([Item("a", b"first"), Item("b", b"other"), Item("a", b"second")]))
    app = server.app({"a": str(path)})
    assert ids(app, source="a") == ["a", "b", "a"]
    for place in ("data", "items", "preview"):
        reply = ask(app, f"/a/{place}/a")
        assert reply.status == 400
        assert "several samples have the id" in reply.json()["detail"]
    assert ask(app, "/a/data/b").body == b"other"


def test_damaged_sample_is_500(tmp_path: Path, archives: dict[str, Path]) -> None:
    data = bytearray(archives["scenes"].read_bytes())
    data[data.index(b"note 3")] ^= 1
    path = tmp_path / "damaged.tacozip"
    path.write_bytes(bytes(data))
    app = server.app({"a": str(path)}, log="none")
    reply = ask(app, "/a/data/scene%203/note.txt")
    assert (reply.status, reply.json()["code"]) == (500, "damaged")
    assert ask(app, "/a/data/scene%202/note.txt").status == 200


def test_previews(app: Any) -> None:
    for path in ("scene%201/image.tif", "scene%201"):
        reply = ask(app, f"/scenes/preview/{path}?size=64")
        assert (reply.status, reply.headers["content-type"]) == (200, "image/png")
        assert picture(reply.body).shape == (16, 16, 4)
    assert ask(app, "/scenes/preview/scene%201/image.tif?bidx=1").status == 200
    assert ask(app, "/scenes/preview/scene%201/note.txt").json()["code"] == "not-a-raster"
    assert ask(app, "/scenes/preview/nothing").status == 404
    for query in ("size=0", "size=99999", "bidx=x", "bidx=9", "bidx=1&bidx=2"):
        assert ask(app, f"/scenes/preview/scene%201/image.tif?{query}").status == 400


def test_documents(app: Any) -> None:
    collection = ask(app, "/scenes/collection")
    assert b"<script>" not in collection.body, "escaped, so that no page can be broken out of"
    assert collection.json()["description"] == "<script>alert(1)</script>"
    assert ids(app, source="collections/scenes") == ids(app)
    assert ask(app, "/scenes/0/0/0.png").status == 404
    assert ask(app, "/scenes/nothing").status == 404


@needs_shared
@pytest.mark.parametrize(
    "name",
    [
        "taco/flat.tacozip",
        "taco/nested_folder",
        "taco/nested_padded.tacozip",
        "taco/tacocat_binary",
        "tortilla/flat_stac_rai.tortilla",
        "tortilla/nested.taco",
        "tortilla/mixed_bytes.tortilla",
        "tortilla/legacy_df_0.1.2.tortilla",
        "tortilla/partitioned.0000.part.tortilla",
    ],
)
def test_archives_of_other_writers(name: str) -> None:
    path = SHARED / "fixtures" / name
    if not path.exists():
        pytest.skip("not among the reference files")
    app = server.app({"a": str(path)}, log="none")
    document = ask(app, "/a").json()
    if document.get("kind") is None:
        pytest.skip("an index whose parts lie elsewhere")
    page = ask(app, "/a/items?limit=3").json()
    assert page["numberMatched"] == document["count"]
    for item in page["features"]:
        place = "/".join(quote(part, safe="") for part in item["comal:path"].split("/"))
        assert ask(app, f"/a/items/{place}").json()["id"] == item["id"]
        if item["comal:type"] == "FILE":
            reply = ask(app, f"/a/data/{place}")
            size = item["assets"]["data"].get("file:size")
            assert reply.status == 200
            assert size is None or len(reply.body) == size


def test_tortilla(tmp_path: Path) -> None:
    path = tmp_path / "a.tortilla"
    pixels = [tiff(np.full((1, 8, 8), n, np.uint8)) for n in range(3)]
    samples = [
        tortilla.Sample(id=f"chip-{n}", path=pixels[n], file_format="GTiff", score=n)
        for n in range(3)
    ]
    others = [
        tortilla.Sample(id="picture", path=PNG, file_format="PNG", score=0),
        tortilla.Sample(id="note.txt", path=b"a note", file_format="BYTES", score=0),
    ]
    tortilla.create([*samples, *others], path)
    app = server.app({"a": str(path)})
    assert ids(app, "filter=score>0", "a") == ["chip-1", "chip-2"]
    assert ask(app, "/a/items/chip-1").json()["id"] == "chip-1"
    for name, media in (
        ("chip-1", "image/tiff; application=geotiff"),
        ("picture", "image/png"),
        ("note.txt", "text/plain; charset=utf-8"),
    ):
        assert ask(app, f"/a/items/{name}").json()["assets"]["data"]["type"] == media
        assert ask(app, f"/a/data/{name}").headers["content-type"] == media
    assert ask(app, "/a/preview/chip-1").status == 200
