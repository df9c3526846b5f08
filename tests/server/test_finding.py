"""Boxes and times choose what the readers choose, whatever the columns of an archive are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from comal import server, taco, tortilla
from comal.errors import InvalidMetadataError
from comal.geo.places import Places
from comal.server.holdings import Holdings
from tests.server.asking import ask
from tests.server.making import COLLECTION
from tests.tortilla.build import Item, built

TEXT = pa.string()
NUMBERS = pa.list_(pa.float64())
WHOLE = pa.list_(pa.int64())


def rotated(x: float, y: float, size: float, degrees: float) -> list[float]:
    """The geotransform of a square of 100 x 100 pixels around a place."""
    step, turn = size / 100, math.radians(degrees)
    a, b = step * math.cos(turn), step * math.sin(turn)
    return [x - 50 * a - 50 * b, a, b, y - 50 * b + 50 * a, b, -a]


def places() -> list[tuple[str | None, list[float] | None, str | None]]:
    """CRS, geotransform and centre of rasters of every kind."""
    found: list[tuple[str | None, list[float] | None, str | None]] = [
        ("EPSG:4326", rotated(10, 10, 8, 45), None),
        ("EPSG:4326", rotated(179, 0, 4, 0), None),
        ("EPSG:4326", rotated(-179, -30, 4, 30), None),
        ("EPSG:32601", rotated(200_000, 7_000_000, 400_000, 20), None),
        ("EPSG:32760", rotated(830_000, 6_000_000, 400_000, -20), None),
        ("EPSG:3413", rotated(0, 0, 2_000_000, 10), None),
        ("EPSG:3031", rotated(1_500_000, 900_000, 900_000, 33), None),
        (None, None, "POINT (12.5 41.9)"),
        ("EPSG:4326", None, "POINT (-180 5)"),
        (None, None, None),
    ]
    rng = np.random.default_rng(7)
    for _ in range(400):
        zone, south = int(rng.integers(1, 61)), bool(rng.integers(2))
        place = rng.uniform(2e5, 8e5), rng.uniform(1e5, 9.3e6)
        size, turn = 10 ** rng.uniform(3, 5.7), rng.uniform(0, 90)
        code = (32700 if south else 32600) + zone
        found.append((f"EPSG:{code}", rotated(*place, size, turn), None))
    return found


@pytest.fixture(scope="module")
def rasters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rasters") / "rasters.tortilla"
    crs, affine, centres = (list(part) for part in zip(*places(), strict=True))
    rows = len(crs)
    table = pa.table(
        {
            "tortilla:id": [f"{number}" for number in range(rows)],
            "tortilla:file_format": ["BYTES"] * rows,
            "path": pa.array([b"x"] * rows, pa.binary()),
            "stac:crs": pa.array(crs, TEXT),
            "stac:geotransform": pa.array(affine, NUMBERS),
            "stac:raster_shape": pa.array([[100, 100]] * rows, WHOLE),
            "stac:centroid": pa.array(centres, TEXT),
            "stac:time_start": pa.array(
                [946_684_800 + n * 86_400 if n % 7 else None for n in range(rows)]
            ),
        }
    )
    tortilla.create(table, path)
    return path


def boxes() -> list[tuple[float, float, float, float]]:
    rng = np.random.default_rng(11)
    found = [
        (-180.0, -90.0, 180.0, 90.0),
        (-180.0, -90.0, 0.0, 90.0),
        (0.0, 0.0, 360.0, 0.0),
        (12.5, 41.9, 12.5, 41.9),
        (170.0, -50.0, -170.0, 70.0),
        (180.0, -90.0, 180.0, 90.0),
        (179.5, 85.0, -179.5, 90.0),
        (350.0, -10.0, 12.0, 20.0),
        (14.0, 14.0, 16.0, 16.0),  # beside the first raster, inside of its box
    ]
    for _ in range(10):
        west, south = rng.uniform(-180, 180), rng.uniform(-90, 80)
        width, height = 10 ** rng.uniform(-1, 2.5), 10 ** rng.uniform(-1, 2)
        east = (west + min(width, 359) + 180) % 360 - 180
        found.append((west, south, east, min(90.0, south + height)))
    return found


def ids(app: Any, query: str) -> list[str]:
    document = ask(app, f"/a/table?columns=id&limit=1000&{query}").json()
    return [row[0] for row in document["rows"]]


def test_boxes_of_outlines(rasters: Path) -> None:
    frame = tortilla.open(rasters)
    app = server.app({"a": str(rasters)})
    sizes = []
    for box in boxes():
        expected = frame.filter_bbox(*box)["tortilla:id"].to_pylist()
        assert ids(app, "bbox=" + ",".join(map(repr, box))) == expected, box
        west, south, east, north = box
        assert ids(app, f"bbox={west},{south},-100,{east},{north},9000") == expected, box
        sizes.append(len(expected))
    assert min(sizes) == 0
    assert max(sizes) == len(frame) - 1, "all but the one that lies nowhere"


def test_an_outline_is_less_than_its_box(rasters: Path) -> None:
    app = server.app({"a": str(rasters)})
    for box, expected in (("5,14,5.5,15", False), ("9,9,11,11", True)):
        assert ("0" in ids(app, f"bbox={box}")) is expected
    assert ask(app, "/a/items/0").json()["bbox"][0] < 5


def test_periods(rasters: Path) -> None:
    frame = tortilla.open(rasters)
    app = server.app({"a": str(rasters)})
    for period in ("2000-02-01/..", "../2000-02-01", "2000-01-03", "2000-01-03T00:00:00.5Z/.."):
        expected = frame.filter_datetime(period)["tortilla:id"].to_pylist()
        assert ids(app, f"datetime={period}") == expected, period


def test_places_are_transformed_once(rasters: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page of another box looks closely at those rows only that reach over its sides."""
    holdings = Holdings(tortilla.open(rasters), "tortilla")
    holdings.in_box((0, 0, 1, 1))
    asked: list[int] = []
    original = Places.shapes

    def counting(self: Places, rows: Any) -> Any:
        asked.append(len(rows))
        return original(self, rows)

    monkeypatch.setattr(Places, "shapes", counting)
    found = holdings.in_box((-30, -40, 60, 50))
    assert found.sum() > 30
    assert sum(asked) < found.sum() / 2


# -- files of strangers ----------------------------------------------------------------------------

GOOD = {
    "stac:crs": pa.array(["EPSG:4326"] * 2),
    "stac:geotransform": pa.array([[0.0, 1, 0, 5, 0, -1]] * 2),
    "stac:raster_shape": pa.array([[4, 4]] * 2),
}


def strange_file(path: Path, name: str, values: Any) -> Path:
    def change(table: pa.Table) -> pa.Table:
        for key, column in {**GOOD, name: values}.items():
            table = table.append_column(key, column)
        return table

    path.write_bytes(built([Item("a", b"x"), Item("b", b"y")], table=change))
    return path


@pytest.mark.filterwarnings("ignore:.*left as it is")
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("stac:geotransform", pa.array(["x", "y"])),
        ("stac:geotransform", pa.array([["a"] * 6] * 2)),
        ("stac:geotransform", pa.array([{"a": 1}] * 2)),
        ("stac:geotransform", pa.array([[0.0, 1, 0, 5, 0]] * 2)),
        ("stac:raster_shape", pa.array([4, 4])),
        ("stac:crs", pa.array([1, 2])),
        ("stac:crs", pa.array(["EPSG:9999999"] * 2)),
    ],
)
def test_broken_outlines_take_nothing_else_away(tmp_path: Path, name: str, values: Any) -> None:
    path = strange_file(tmp_path / "a.tortilla", name, values)
    with pytest.raises(InvalidMetadataError):
        tortilla.open(path).filter_bbox(-1, -1, 10, 10)
    app = server.app({"a": str(path)}, log="none")
    assert ask(app, "/a").json()["bounds"] is None
    items = ask(app, "/a/items").json()["features"]
    assert [(item["id"], item["geometry"]) for item in items] == [("a", None), ("b", None)]
    reply = ask(app, "/a/items?bbox=-1,-1,10,10")
    assert (reply.status, reply.json()["code"]) == (500, "damaged")


@pytest.mark.filterwarnings("ignore:.*left as it is")
@pytest.mark.parametrize(
    "values", [pa.array(["x", "y"]), pa.array([[1], [2]]), pa.array([True, False])]
)
def test_times_that_are_none_take_nothing_else_away(tmp_path: Path, values: Any) -> None:
    path = strange_file(tmp_path / "a.tortilla", "stac:time_start", values)
    app = server.app({"a": str(path)}, log="none")
    assert ask(app, "/a").json()["time"] is None
    assert ask(app, "/a/items?bbox=-1,-1,10,10").json()["numberMatched"] == 2
    assert ask(app, "/a/items?datetime=2020-01-01/..").status == 400


@pytest.mark.parametrize("name", ["comal:row", ".x", "[0]", "row", "0", ""])
def test_rows_are_sorted_by_columns_of_any_name(tmp_path: Path, name: str) -> None:
    path = strange_file(tmp_path / "a.tortilla", name, pa.array([2, 1]))
    app = server.app({"a": str(path)}, log="none")
    for order, expected in (("", ["b", "a"]), ("-", ["a", "b"])):
        reply = ask(app, f"/a/items?sortby={order}{quote(name)}")
        if name == "" and order == "":
            continue  # says nothing
        assert reply.status == 200, reply.body
        assert [item["id"] for item in reply.json()["features"]] == expected


def test_a_taco_is_found_by_the_outlines_of_its_rasters(tmp_path: Path) -> None:
    path = tmp_path / "a.tacozip"
    fields: dict[str, Any] = {
        "stac:crs": "EPSG:4326",
        "stac:geotransform": [0.0, 1.0, 0.0, 5.0, 0.0, -1.0],
        "stac:tensor_shape": [1, 4, 4],
    }
    sample = taco.Sample(id="a.txt", path=b"x", **fields)
    taco.create(taco.Taco(taco.Tortilla([sample]), **COLLECTION), path)
    app = server.app({"a": str(path)})
    document = ask(app, "/a").json()
    assert document["placed"] is True
    assert document["bounds"] == [0, 1, 4, 5]
    for box, count in (("-1,-1,10,10", 1), ("3.9,1,20,1.1", 1), ("4.1,1,20,1.1", 0)):
        found = ask(app, f"/a/items?bbox={box}").json()
        assert found["numberMatched"] == count
        assert found["comal:placed_by"] == ["footprint"][:count]
