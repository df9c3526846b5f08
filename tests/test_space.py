"""Boxes meet footprints, whatever the format and wherever on the earth.

The oracle is shapely on geometries that are split at the antimeridian by hand here.
"""

from __future__ import annotations

import itertools
import json
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
from rasterio.crs import CRS
from rasterio.warp import transform

import comal
from comal import server, taco, tortilla
from comal.geo.boxes import union_box, validate_bbox, wrap_arcs
from comal.geo.places import Places, ways_of
from tests.raster.rasters import write
from tests.server.asking import ask
from tests.server.making import COLLECTION, point

Box = tuple[float, float, float, float]
Raster = tuple[str, list[float], int]

_SURE = 2e-3
"""Degrees by which a footprint must miss or meet a box for the oracle to be sure."""
_WORLD = shapely.box(-180, -90, 180, 90)
_RANDOM = 25 * int(os.environ.get("COMAL_EXAMPLES", "1"))


def _square(crs: str, west: float, north: float, side: float, pixels: int = 20) -> Raster:
    return crs, [west, side / pixels, 0.0, north, 0.0, -side / pixels], pixels


RASTERS: dict[str, Raster] = {
    "plain": _square("EPSG:4326", 10, 4, 4),
    "rotated": ("EPSG:4326", [20.0, 0.1, 0.1, 0.0, 0.1, -0.1], 20),
    "a scene": _square("EPSG:32632", 300_000, 5_400_000, 100_000),
    "over the dateline": _square("EPSG:32660", 750_000, 5_400_000, 200_000),
    "over the dateline in degrees": _square("EPSG:4326", 178, -10, 4),
    "over it from the other side": _square("EPSG:4326", -182, -20, 4),
    "wider than 180": ("EPSG:4326", [-170.0, 3.4, 0.0, 30.0, 0.0, -0.3], 100),
    "wider than 180 in metres": ("EPSG:3857", [-1.9e7, 1.9e5, 0.0, 3e6, 0.0, -3e4], 200),
    "wider than 180 over the dateline": ("EPSG:4267", [20.0, 3.0, 0.0, 60.0, 0.0, -0.1], 100),
    "global": ("EPSG:4326", [-180.0, 3.6, 0.0, 90.0, 0.0, -1.8], 100),
    "global from Greenwich": ("EPSG:4326", [0.0, 3.6, 0.0, 90.0, 0.0, -1.8], 100),
    "at the north pole": _square("EPSG:3413", -1.5e6, 1.5e6, 3e6),
    "at the south pole": _square("EPSG:3031", -1e6, 2e6, 3e6),
    "beside a pole": _square("EPSG:3413", 100_000, 900_000, 800_000),
    "touching a pole": _square("EPSG:4326", -40, 90, 30),
}
POLYGONS: dict[str, tuple[Any, str | None]] = {
    "triangle": (shapely.Polygon([(30, 0), (40, 0), (30, 10)]), "EPSG:4326"),
    "without a CRS": (shapely.box(-31, -31, -30, -30), None),
    "beyond 180": (shapely.box(175, 40, 185, 45), "EPSG:4326"),
    "an edge over the dateline": (
        shapely.Polygon([(175, 50), (-175, 50), (-175, 55), (175, 55)]),
        "EPSG:4326",
    ),
    "split": (
        shapely.MultiPolygon([shapely.box(175, 60, 180, 65), shapely.box(-180, 60, -175, 65)]),
        "EPSG:4326",
    ),
    "in metres": (shapely.box(750_000, 5_000_000, 950_000, 5_200_000), "EPSG:32660"),
    "two islands": (
        shapely.MultiPolygon([shapely.box(0, -50, 1, -49), shapely.box(9, -41, 10, -40)]),
        "OGC:CRS84",
    ),
    "around a pole": (
        shapely.Polygon([(-150, 70), (-60, 75), (30, 70), (120, 80)]),
        "EPSG:4326",
    ),
    "around a pole in metres": (shapely.Point(0, 0).buffer(8e5), "EPSG:3031"),
}
CENTRES = {"centre": (-60.0, -10.0), "centre on the dateline": (-180.0, 12.0)}

BOXES: list[Box] = [
    (-180, -90, 180, 90),
    (9, -1, 15, 5),
    (14, 4, 16, 6),  # touches the corner of the plain one
    (14.1, 4.1, 16, 6),
    (20.1, -1.9, 20.4, -1.6),  # in the box of the rotated one, but not in it
    (170, -90, -170, 90),
    (179.9, -12, -179.9, -11),
    (180, -90, 180, 90),
    (-180, -90, -180, 90),
    (-181, -21, -180.5, -20.5),
    (36, 6, 40, 10),  # in the box of the triangle
    (3, -47, 6, -44),  # between the islands
    (-90, 89, -89, 90),
    (100, -90, 101, -89.5),
    (171, -30, -171, 30),  # beside what is wider than 180 degrees
    (0, -5, 1, 5),
    (40, 60.5, 50, 61),
]


def _split(lon: Any, lat: Any) -> Any:
    """A closed ring of continuous longitudes as an area within -180..180."""
    ring = np.column_stack([lon, lat])
    if abs(lon[-1] - lon[0]) > 180:
        pole = 90 if lat.mean() > 0 else -90
        ring = np.concatenate([ring, [[lon[-1], pole], [lon[0], pole]]])
    area = shapely.make_valid(shapely.Polygon(ring))
    turns = (
        shapely.transform(area, lambda xy, turn=turn: xy + np.array([turn, 0])) & _WORLD
        for turn in (-720, -360, 0, 360, 720)
    )
    return shapely.union_all(list(turns))


def _dense(ring: Any, pieces: int = 100) -> Any:
    closed = np.concatenate([ring, ring[:1]])
    t = np.linspace(0, 1, pieces, endpoint=False)[:, None]
    sides = itertools.pairwise(closed)
    return np.concatenate([start + t * (end - start) for start, end in sides])


def _oracle(crs: str, ring: Any, *, straight: bool = True) -> Any:
    """An area of which the corners are given; `straight` where longitudes are continuous."""
    ring = np.asarray(ring, float)
    closed = np.concatenate([ring, ring[:1]])
    if crs in {"EPSG:4326", "OGC:CRS84"}:
        lon, lat = closed.T
        return _split(lon if straight else np.unwrap(lon, period=360), lat)
    dense = _dense(ring)
    x, y = np.concatenate([dense, dense[:1]]).T
    lon, lat = transform(CRS.from_user_input(crs), CRS.from_epsg(4326), x, y)
    return _split(np.unwrap(lon, period=360), np.array(lat))


def _truths() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (crs, affine, pixels) in RASTERS.items():
        corners = np.array([(0, 0), (pixels, 0), (pixels, pixels), (0, pixels)], float)
        x = affine[0] + corners @ affine[1:3]
        y = affine[3] + corners @ affine[4:6]
        found[name] = _oracle(crs, np.column_stack([x, y]))
    # On the whole circle, where two meridians are one.
    found["global"] = found["global from Greenwich"] = _WORLD
    for name, (shape, named) in POLYGONS.items():
        parts = [
            _oracle(named or "EPSG:4326", np.array(part.exterior.coords)[:-1], straight=False)
            for part in shapely.get_parts(shape)
        ]
        found[name] = shapely.union_all(parts)
    found |= {name: shapely.Point(place) for name, place in CENTRES.items()}
    return found


TRUTHS = _truths()
LEAST, MOST = (shapely.buffer(list(TRUTHS.values()), by) for by in (-_SURE, _SURE))
"""What a footprint covers at least, and at most."""
NAMES = list(TRUTHS)


def _columns(shape: str) -> pa.Table:
    """A row for each footprint; what a row has no value of is null."""
    rasters = [RASTERS.get(name) for name in NAMES]
    polygons = [POLYGONS.get(name, (None, None)) for name in NAMES]
    centres = [CENTRES.get(name) for name in NAMES]
    ids = "id" if shape == "stac:tensor_shape" else "tortilla:id"
    return pa.table(
        {
            ids: NAMES,
            "path": pa.array([b"x"] * len(NAMES), pa.binary()),
            "stac:crs": pa.array([one and one[0] for one in rasters], pa.string()),
            "stac:geotransform": pa.array([one and one[1] for one in rasters], _LIST),
            shape: pa.array([one and [one[2], one[2]] for one in rasters], pa.list_(pa.int64())),
            "istac:geometry": pa.array(
                [None if one is None else one.wkb for one, _ in polygons], pa.binary()
            ),
            "istac:crs": pa.array([crs for _, crs in polygons], pa.string()),
            "stac:centroid": pa.array(
                [None if one is None else point(*one) for one in centres], pa.binary()
            )
            if ids == "id"
            else pa.array(
                [None if one is None else f"POINT ({one[0]} {one[1]})" for one in centres]
            ),
        }
    )


_LIST = pa.list_(pa.float64())


def packed(table: pa.Table, path: Path) -> Path:
    """A TACO of the rows of a table."""
    taco.create(taco.Taco(taco.Tortilla.from_table(table), **COLLECTION), path)
    return path


def indexed(folder: Path) -> list[Path]:
    """Two archives with half of the footprints each, and an index of them."""
    table, half = _columns("stac:tensor_shape"), len(NAMES) // 2
    tables = {"one": table.slice(0, half), "two": table.slice(half)}
    parts = [packed(some, folder / f"{name}.tacozip") for name, some in tables.items()]
    taco.create_tacocat(parts)
    return parts


Find = Callable[[Box], list[str]]


@pytest.fixture(scope="module")
def finders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Find]:
    """Each way to ask for the rows in a box."""
    folder = tmp_path_factory.mktemp("space")
    indexed(folder)
    packed(_columns("stac:tensor_shape"), folder / "a.tacozip")
    tortilla.create(_columns("stac:raster_shape"), folder / "a.tortilla")
    whole, cat = taco.load(folder / "a.tacozip"), taco.load(folder)
    frame = tortilla.open(folder / "a.tortilla")
    app = server.app({"taco": str(folder / "a.tacozip"), "tortilla": str(folder / "a.tortilla")})

    def served(name: str) -> Find:
        def find(box: Box) -> list[str]:
            edges = ",".join(map(repr, box))
            found = ask(app, f"/{name}/items?limit=100&bbox={edges}").json()
            return [one["id"] for one in found["features"]]

        return find

    return {
        "TACO": lambda box: whole.filter_bbox(*box).data["id"].to_pylist(),
        "TACO after a query": lambda box: (
            whole.sql("SELECT * FROM data").filter_bbox(*box).data["id"].to_pylist()
        ),
        "TACOCAT": lambda box: cat.filter_bbox(*box).data["id"].to_pylist(),
        "Tortilla": lambda box: frame.filter_bbox(*box)["tortilla:id"].to_pylist(),
        "items of a TACO": served("taco"),
        "items of a Tortilla": served("tortilla"),
    }


def test_an_index_is_filtered_without_its_parts(tmp_path: Path) -> None:
    """It has the rows of all of them, so that no part need be ruled out by its extent."""
    parts = indexed(tmp_path)
    whole = [taco.load(tmp_path).filter_bbox(*box).data["id"].to_pylist() for box in BOXES]
    assert len({tuple(found) for found in whole}) > 1
    for path in parts:
        path.unlink()
    alone = [taco.load(tmp_path).filter_bbox(*box).data["id"].to_pylist() for box in BOXES]
    assert alone == whole


def _windows(box: Box) -> Any:
    """A box as areas; -180 and 180 are one meridian."""
    west, east = (float(side[0]) for side in wrap_arcs([box[0]], [box[2]]))
    arcs = [(west, east)] if west <= east else [(west, 180.0), (-180.0, east)]
    arcs += [(-end, -end) for _, end in arcs if abs(end) == 180]
    arcs += [(-start, -start) for start, _ in arcs if abs(start) == 180]
    return np.array([[shapely.box(a, box[1], b, box[3])] for a, b in arcs])


def _random_boxes() -> list[Box]:
    random = np.random.default_rng(3)
    found = []
    for _ in range(_RANDOM):
        west, south = random.uniform(-180, 180), random.uniform(-90, 85)
        width, height = 10 ** random.uniform(-1, 2.4), 10 ** random.uniform(-1, 1.9)
        east = (west + width + 180) % 360 - 180
        found.append((west, south, east, min(90.0, south + height)))
    return found


WAYS = ["TACO", "TACO after a query", "TACOCAT", "Tortilla", "items of a TACO"]


@pytest.mark.parametrize("way", [*WAYS, "items of a Tortilla"])
def test_boxes_meet_footprints(way: str, finders: dict[str, Find]) -> None:
    truths = np.array(list(TRUTHS.values()))
    exact = np.isin(NAMES, ["plain", "global", "centre", "triangle", "wider than 180"])
    sure = 0
    boxes = BOXES + (_random_boxes() if way in {"TACO", "Tortilla"} else [])
    for box in boxes:
        found = np.isin(NAMES, finders[way](box))
        windows = _windows(box)
        touched = shapely.intersects(truths, windows).any(axis=0)
        certainly = np.where(exact, touched, shapely.intersects(LEAST, windows).any(axis=0))
        near = shapely.intersects(MOST, shapely.buffer(windows, _SURE)).any(axis=0)
        perhaps = np.where(exact, touched, near)
        assert not (wrong := [NAMES[n] for n in np.flatnonzero(certainly & ~found)]), (box, wrong)
        assert not (wrong := [NAMES[n] for n in np.flatnonzero(found & ~perhaps)]), (box, wrong)
        sure += int((certainly == perhaps).sum())
    assert sure > 0.9 * len(boxes) * len(NAMES)


def test_items_are_as_rfc_7946_wants_them(tmp_path: Path) -> None:
    """Geometries are split at the antimeridian, and boxes over it have west > east (3.1.9, 5.2)."""
    app = server.app({"a": str(packed(_columns("stac:tensor_shape"), tmp_path / "a.tacozip"))})
    for item in ask(app, "/a/items?limit=100").json()["features"]:
        name, truth = item["id"], TRUTHS[item["id"]]
        shape = shapely.from_geojson(json.dumps(item["geometry"]))
        west, south, east, north = shape.bounds
        assert shape.is_valid, name
        assert (west >= -180, east <= 180, south >= -90, north <= 90) == (True,) * 4, name
        if truth.area:
            assert shape.symmetric_difference(truth).area <= 0.005 * truth.area, name
        # The box is the smallest arc around the parts.
        parts = shapely.get_parts(truth)
        sides = (np.array(side) for side in shapely.bounds(parts).T)
        wanted = union_box(*sides)
        assert wanted is not None
        gap = 0.02 if truth.area else 1e-6
        assert item["bbox"] == pytest.approx(list(wanted), abs=gap), name
        assert (item["bbox"][0] > item["bbox"][2]) == (wanted[0] > wanted[2]), name


@pytest.mark.parametrize("name", ["rotated", "over the dateline", "global", "centre"])
def test_extents_come_from_footprints(name: str, tmp_path: Path) -> None:
    """And from centroids where there is nothing else, row by row."""
    chosen = pa.array([n in {name, "centre"} for n in NAMES])
    table = _columns("stac:tensor_shape").filter(chosen)
    both = shapely.get_parts([TRUTHS[name], TRUTHS["centre"]])
    wanted = union_box(*shapely.bounds(both).T)
    assert wanted is not None
    path = packed(table, tmp_path / "a.tacozip")
    assert taco.load(path).extent["spatial"] == pytest.approx(list(wanted), abs=0.02)
    assert taco.check(path).ok


def test_an_answer_says_what_decided(tmp_path: Path) -> None:
    path = packed(_columns("stac:tensor_shape"), tmp_path / "a.tacozip")
    tortilla.create(_columns("stac:raster_shape"), tmp_path / "a.tortilla")
    dataset, frame = taco.load(path), tortilla.open(tmp_path / "a.tortilla")
    app = server.app({"a": str(path)})
    both = ("footprint", "centroid")
    assert dataset.placed_by == frame.placed_by == ()
    assert dataset.filter_bbox(-180, -90, 180, 90).placed_by == both
    assert dataset.filter_bbox(0, 0, 1, 1, geometry_col="stac:centroid").placed_by == both[1:]
    for box, by in (((-180, -90, 180, 90), both), ((10, 0, 11, 1), both[:1])):
        assert frame.filter_bbox(*box).placed_by == by
        edges = ",".join(map(str, box))
        for page in ("items", "table"):
            assert ask(app, f"/a/{page}?bbox={edges}").json()["comal:placed_by"] == list(by)
    alone = frame.filter_bbox(-61, -11, -59, -9, geometry_col="stac:centroid")
    assert (len(alone), alone.placed_by) == (1, both[1:])


def test_a_geometry_without_a_crs_is_in_degrees_and_said_to_be(tmp_path: Path) -> None:
    table = _columns("stac:tensor_shape").select(["id", "path", "istac:geometry"])
    table = table.filter(pa.array([name == "triangle" for name in NAMES]))
    with pytest.warns(taco.TacoWarning, match=r"without istac:crs .* EPSG:4326"):
        path = packed(table, tmp_path / "a.tacozip")
    dataset = taco.load(path)
    assert dataset.extent["spatial"] == [30, 0, 40, 10]
    assert taco.check(path).counts == {"taco-crs-missing": 1}
    with pytest.warns(taco.TacoWarning, match="EPSG:4326"):
        assert len(dataset.filter_bbox(31, 1, 32, 2).data) == 1
    with pytest.warns(taco.TacoWarning, match="EPSG:4326"):
        assert len(dataset.filter_bbox(39, 9, 40, 10).data) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(server.app({"a": str(path)}), "/a").json()["bounds"] == [30, 0, 40, 10]


def test_without_a_level_the_one_with_the_column_is_found(tmp_path: Path) -> None:
    place: dict[str, Any] = {"stac:centroid": point(1, 1), "stac:time_start": 0}

    def dataset(*levels: int) -> Any:
        inner = taco.Sample(id="a.txt", path=b"x", **(place if 1 in levels else {}))
        outer = taco.Sample(id="s", path=taco.Tortilla([inner]), **(place if 0 in levels else {}))
        path = tmp_path / f"{levels}.tacozip"
        taco.create(taco.Taco(taco.Tortilla([outer]), **COLLECTION), path, overwrite=True)
        return taco.load(path)

    filters: list[Callable[..., Any]] = [
        lambda data, **named: data.filter_bbox(0, 0, 2, 2, **named),
        lambda data, **named: data.filter_datetime("1970-01-01", **named),
    ]
    for made in filters:
        for levels in ((0,), (1,)):
            assert len(made(dataset(*levels)).data) == 1
        both = dataset(0, 1)
        with pytest.warns(taco.TacoWarning, match="level 0 is filtered, but level 1 has"):
            assert len(made(both).data) == 1
        for level in (0, 1):
            assert len(made(both, level=level).data) == 1


@pytest.mark.parametrize(
    "name", ["plain", "a scene", "over the dateline", "wider than 180", "at the north pole"]
)
def test_a_raquet_says_where_its_data_are(name: str, tmp_path: Path) -> None:
    crs, affine, pixels = RASTERS[name]
    source = write(
        tmp_path / "a.tif", np.ones((pixels, pixels), np.uint8), crs=crs, affine=tuple(affine)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of a pole that is cut off
        made = comal.raquet.write(source, tmp_path / "a.parquet", block_size=64)
    truth = union_box(*shapely.bounds(shapely.get_parts(TRUTHS[name])).T)
    assert truth is not None
    west, south, east, north = truth
    wanted = (west, south, east, min(north, 85.0511287798066))
    with comal.raquet.open(tmp_path / "a.parquet") as file:
        assert file.bounds == pytest.approx(wanted, abs=0.05)
        assert list(made.bounds) == list(file.bounds)
    query = "SELECT west, south, east, north FROM metadata"
    row = comal.raquet.sql(tmp_path / "a.parquet", query).to_pylist()[0]
    assert list(row.values()) == list(made.bounds)
    app = server.app({"r": str(tmp_path / "a.parquet")})
    assert ask(app, "/r").json()["bounds"] == pytest.approx(wanted, abs=0.05)
    # TileJSON 3.0.0, 3.4: bounds must not wrap around the antimeridian.
    low, _, high, _ = ask(app, "/r.json").json()["bounds"]
    assert (low, high) == pytest.approx((west, east) if west < east else (-180, 180), abs=0.05)


@pytest.mark.parametrize(
    ("crs", "spread"),
    [
        ("EPSG:4326", (0.0, 180.0, 0.0, 85.0)),
        ("EPSG:32660", (800_000.0, 400_000.0, 5_000_000.0, 4_000_000.0)),
        ("EPSG:3413", (0.0, 3e6, 0.0, 3e6)),
        ("EPSG:6933", (0.0, 1.7e7, 0.0, 7e6)),
    ],
)
def test_rasters_that_are_far_are_passed_by_and_no_others(
    crs: str, spread: tuple[float, ...]
) -> None:
    random = np.random.default_rng(5)
    count, (x, dx, y, dy) = 1_000, spread
    west, north = random.uniform(x - dx, x + dx, count), random.uniform(y - dy, y + dy, count)
    side = 10 ** random.uniform(-5, -2, count) * dx
    zero = np.zeros(count)
    affine = np.stack([west, side, zero, north, zero, -side], axis=1)
    table = pa.table(
        {
            "stac:crs": [crs] * count,
            "stac:geotransform": pa.array(list(affine), _LIST),
            "stac:tensor_shape": pa.array([[10, 10]] * count, pa.list_(pa.int64())),
        }
    )
    ways = ways_of(table.schema)
    whole = Places(table, ways)
    met = 0
    for box in map(validate_bbox, [*BOXES, *_random_boxes()]):
        found, by = Places.meeting(table, ways, box)
        assert (found == whole.meet(box)).all(), box
        assert by == (("footprint",) if found.any() else ())
        met += int(found.sum())
    assert met > count
