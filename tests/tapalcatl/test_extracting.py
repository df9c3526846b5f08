"""Parts of tilesets, with the bytes, headers and times of their tiles."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import shapely

from comal import tapalcatl
from comal.errors import ConflictError, InvalidInputError, ObjectNotFoundError
from comal.tapalcatl.addressing import tile_bounds
from comal.tapalcatl.containers.base import Square
from comal.tapalcatl.containers.tilesets import Area, PartOptions, TileSetSource
from comal.ziparchive import local
from tests.servers.http import HttpServer
from tests.support import needs_shared
from tests.tapalcatl.answers import FOLDER
from tests.tapalcatl.making import payload

pytestmark = needs_shared
PNG, MVT = FOLDER / "t2/landcover-png", FOLDER / "t2/mvt-js"


def inside(keys: Any, shape: Any, zooms: range) -> list[list[int]]:
    """Those tiles that a geometry touches with more than an edge."""
    found = []
    for z, x, y in keys:
        box = shapely.box(*tile_bounds(z, x, y))
        touched = shapely.intersects(box, shape) and not shapely.touches(box, shape)
        if z in zooms and touched:
            found.append([z, x, y])
    return found


RING = [[-100, -60], [100, -60], [100, 60], [-100, 60], [-100, -60]]
HOLE = [[-80, -50], [80, -50], [80, 50], [-80, 50], [-80, -50]]
ISLAND = [[150, 10], [179, 10], [179, 30], [150, 10]]
LINE = {"type": "LineString", "coordinates": [[-170, -80], [-100, 20]]}
POLYGONS = {"type": "MultiPolygon", "coordinates": [[RING, HOLE], [ISLAND]]}
BOXES = [(5, 45, 30, 60), (-180, -85, 180, 85), (0.5, 0.5, 0.6, 0.6), (-179, -80, -91, 66)]
OUTLINES: list[dict[str, Any]] = [
    {"type": "Polygon", "coordinates": [RING, HOLE]},
    {"type": "Polygon", "coordinates": [RING[::-1]]},
    POLYGONS,
    LINE,
    {"type": "GeometryCollection", "geometries": [LINE, POLYGONS]},
]


@pytest.mark.parametrize(
    ("named", "area"),
    [
        *(({"bbox": box}, shapely.box(*box)) for box in BOXES),
        *(({"geometry": one}, shapely.from_geojson(json.dumps(one))) for one in OUTLINES),
    ],
)
def test_a_box_or_an_outline(tmp_path: Path, named: dict[str, Any], area: Any) -> None:
    whole = tapalcatl.open(PNG)
    made = tapalcatl.extract(PNG, tmp_path / "x", **named)
    part = tapalcatl.open(tmp_path / "x")
    assert part.keys().tolist() == inside(whole.keys().tolist(), area, range(6))
    assert made.tiles == len(part.keys())
    assert all(part.tile(*key) == whole.tile(*key) for key in part.keys().tolist()[::3])
    assert part.metadata.materialized_zooms == (0, 4)
    assert tapalcatl.check(tmp_path / "x", level="structure").ok


def test_zooms_headers_and_times(tmp_path: Path) -> None:
    tapalcatl.extract(MVT, tmp_path / "x", min_zoom=0, max_zoom=1)
    part, whole = tapalcatl.open(tmp_path / "x"), tapalcatl.open(MVT)
    assert sorted({z for z, _, _ in part.keys().tolist()}) == [0, 1]
    tile = part.tile(0, 0, 0)
    assert tile == whole.tile(0, 0, 0)
    assert tile is not None
    assert tile.header("X-Fixture") == "root"
    assert part.metadata.extra["vector_layers"] == whole.metadata.extra["vector_layers"]


TRIANGLE = {"type": "Polygon", "coordinates": [[[5, 45], [40, 45], [40, 70], [5, 45]]]}


@pytest.mark.parametrize(
    "form", ["mapping", "text", "file", "feature", "collection", "marked", "shapely"]
)
def test_every_form_of_an_outline(tmp_path: Path, form: str) -> None:
    feature = {"type": "Feature", "properties": {}, "geometry": TRIANGLE}
    nowhere = {"type": "Feature", "properties": None, "geometry": None}
    forms: dict[str, Any] = {
        "mapping": TRIANGLE,
        "text": json.dumps(TRIANGLE),
        "file": tmp_path / "area.geojson",
        "feature": feature,
        "collection": {"type": "FeatureCollection", "features": [nowhere, feature]},
        "marked": tmp_path / "marked.geojson",
        "shapely": shapely.from_geojson(json.dumps(TRIANGLE)),
    }
    (tmp_path / "area.geojson").write_text(json.dumps(TRIANGLE))
    (tmp_path / "marked.geojson").write_bytes(b"\xef\xbb\xbf" + json.dumps(feature).encode())
    tapalcatl.extract(PNG, tmp_path / "x", geometry=forms[form])
    found = tapalcatl.open(tmp_path / "x").keys().tolist()
    keys = tapalcatl.open(PNG).keys().tolist()
    assert found == inside(keys, forms["shapely"], range(6))


@pytest.mark.parametrize(
    "shape",
    [
        # As RFC 7946 has it, and beyond 180 degrees.
        {
            "type": "MultiPolygon",
            "coordinates": [
                [[[170, -10], [180, -10], [180, 10], [170, 10], [170, -10]]],
                [[[-180, -10], [-170, -10], [-170, 10], [-180, 10], [-180, -10]]],
            ],
        },
        {
            "type": "Polygon",
            "coordinates": [[[170, -10], [190, -10], [190, 10], [170, 10], [170, -10]]],
        },
    ],
)
def test_an_outline_across_the_antimeridian(tmp_path: Path, shape: dict[str, Any]) -> None:
    tapalcatl.extract(PNG, tmp_path / "x", geometry=shape)
    tapalcatl.extract(PNG, tmp_path / "y", bbox=(170, -10, -170, 10))
    keys = tapalcatl.open(tmp_path / "x").keys().tolist()
    assert keys == tapalcatl.open(tmp_path / "y").keys().tolist()
    assert len(keys) == 21
    assert {x for z, x, _ in keys if z == 5} == {0, 31}
    assert tapalcatl.check(tmp_path / "x").ok


@pytest.mark.parametrize("roots", [(24,), (24, 27)])
def test_zooms_below_those_of_cell_ids(tmp_path: Path, roots: tuple[int, ...]) -> None:
    keys = [(z, (1 << z) - 1 - x, 9 << (z - 25)) for z in (25, 28) for x in (0, 40)]
    tiles = [(*key, payload(*key)) for key in keys]
    tapalcatl.build(tiles, tmp_path / "whole", materialized_zooms=roots)
    box = tile_bounds(*keys[2])
    for name, options, found in (
        ("every", {}, keys),
        ("deep", {"min_zoom": 28}, keys[2:]),
        ("box", {"bbox": box}, [keys[0], keys[2]]),
    ):
        tapalcatl.extract(tmp_path / "whole", tmp_path / name, **options)
        made = tapalcatl.open(tmp_path / name).keys()
        assert sorted(map(tuple, made.tolist())) == sorted(found)


def test_a_background(tmp_path: Path) -> None:
    made = tapalcatl.extract(PNG, tmp_path / "x", bbox=(5, 45, 6, 46), overview_zoom=2)
    keys = tapalcatl.open(tmp_path / "x").keys().tolist()
    assert len(keys) == made.tiles == 1 + 4 + 16 + 3
    assert tapalcatl.check(tmp_path / "x").ok


def test_from_a_server(tmp_path: Path, http_server: HttpServer) -> None:
    url = http_server.serve_folder(PNG, "t") + "/meta.json"
    made = tapalcatl.extract(url, tmp_path / "x", bbox=(5, 45, 30, 60))
    # The document, then for each of two archives a tail, a square that tells what tiles are like,
    # and one range for all of its tiles; nothing is listed.
    assert len(http_server.requests) == 1 + 3 * 2
    local = tapalcatl.extract(PNG, tmp_path / "y", bbox=(5, 45, 30, 60))
    assert made.tiles == local.tiles
    files = sorted(p.relative_to(tmp_path / "x") for p in (tmp_path / "x").rglob("*.zip"))
    assert all(
        (tmp_path / "x" / name).read_bytes() == (tmp_path / "y" / name).read_bytes()
        for name in files
    )


def test_parts_go_to_other_processes(http_server: HttpServer) -> None:
    url = http_server.serve_folder(PNG, "t") + "/meta.json"
    part = TileSetSource(tapalcatl.open(url), Area(PartOptions(bbox=(5, 45, 30, 60))))
    square = Square(5, 16, 8, 8)
    here, there = part.read(square), pickle.loads(pickle.dumps(part)).read(square)
    assert len(here) > 1
    assert here.payloads == there.payloads


def test_large_archives_are_read_in_parts(
    tmp_path: Path, http_server: HttpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SIZE", 2_000)
    url = http_server.serve_folder(PNG, "t") + "/meta.json"
    made = tapalcatl.extract(url, tmp_path / "x", bbox=(-179, -80, 179, 80))
    assert len(http_server.requests) > 50
    whole, part = tapalcatl.open(PNG), tapalcatl.open(tmp_path / "x")
    assert len(part.keys()) == made.tiles
    assert all(part.tile(*key) == whole.tile(*key) for key in part.keys().tolist())


def test_from_the_first_generation(tmp_path: Path) -> None:
    source = tapalcatl.open(FOLDER / "t1/m4_nohash", metatile=4, layer="all")
    point = {"type": "Point", "coordinates": [10, 10]}
    made = tapalcatl.extract(source, tmp_path / "x", geometry=point)
    part = tapalcatl.open(tmp_path / "x")
    keys = part.keys().tolist()
    assert [z for z, _, _ in keys] == [0, 1, 2, 3, 4]
    assert made.tiles == 5 * 3
    for key in keys:
        for ext in ("mvt", "json", "topojson"):
            one, other = part.tile(*key, ext=ext), source.tile(*key, ext=ext)
            assert one is not None
            assert other is not None
            assert one.data == other.data


def test_another_layout(tmp_path: Path) -> None:
    tapalcatl.extract(PNG, tmp_path / "x", metatile=1, materialized_zooms=[0, 2])
    part = tapalcatl.open(tmp_path / "x")
    assert (part.metadata.metatile, part.metadata.materialized_zooms) == (1, (0, 2))
    assert len(part.keys()) == 1365


def test_wrong_arguments(tmp_path: Path) -> None:
    wrongs: tuple[dict[str, Any], ...] = (
        {"bbox": (0, 0, 1, 1), "geometry": TRIANGLE},
        {"min_zoom": 5, "max_zoom": 4},
        {"max_zoom": 40},
        {"bbox": (0, 0, 1)},
        {"geometry": {"type": "Nonsense"}},
        {"geometry": '{"type": '},
        {"geometry": b"\xff{}"},
        {"geometry": 5},
        {"geometry": [TRIANGLE]},
        {"geometry": {"type": "Feature", "properties": {}, "geometry": None}},
        {"geometry": {"type": "FeatureCollection", "features": []}},
        {"geometry": {"type": "GeometryCollection", "geometries": []}},
    )
    for options in wrongs:
        with pytest.raises(InvalidInputError):
            tapalcatl.extract(PNG, tmp_path / "x", **options)
    with pytest.raises(InvalidInputError, match="no tile lies in the part") as caught:
        tapalcatl.extract(PNG, tmp_path / "x", min_zoom=9)
    assert caught.value.found == "zooms 9 to 30"
    assert not (tmp_path / "x").exists()
    with pytest.raises(ObjectNotFoundError):
        tapalcatl.extract(PNG, tmp_path / "x", geometry=tmp_path / "nothing.geojson")
    (tmp_path / "x").mkdir()
    with pytest.raises(ConflictError):
        tapalcatl.extract(PNG, tmp_path / "x", max_zoom=1)
