"""``ST_*`` in every engine, against shapely one row at a time, and pyproj."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyproj
import pytest
import shapely

from comal.errors import InvalidInputError, InvalidMetadataError, QueryError
from comal.geo import wkb
from comal.grid import bounds, cells
from comal.query import Budget, Session, engine, select_isolated

TEXTS = [
    "POINT (1 2)",
    "POINT EMPTY",
    "POINT Z (4 5 6)",
    "LINESTRING (0 0, 3 4, 3 9)",
    "POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0), (2 2, 4 2, 4 4, 2 4, 2 2))",
    "POLYGON ((0 0, 4 4, 4 0, 0 4, 0 0))",
    "POLYGON EMPTY",
    "MULTIPOINT (1 1, 3 4, 20 20)",
    "MULTILINESTRING ((0 0, 1 1), (5 5, 7 5))",
    "MULTIPOLYGON (((0 0, 2 0, 2 2, 0 2, 0 0)), ((10 10, 14 10, 14 14, 10 14, 10 10)))",
    "GEOMETRYCOLLECTION (POINT (3 3), LINESTRING (0 0, 0 5), POLYGON ((0 0, 1 0, 1 1, 0 0)))",
    # What follows lies on an edge of OTHER; GEOS 3.14 crashed over the empty part.
    "GEOMETRYCOLLECTION (GEOMETRYCOLLECTION (LINESTRING (1 1, 1 4)), POINT EMPTY)",
    "MULTILINESTRING (EMPTY, (1 1, 1 4))",
]
SHAPES = [*map(shapely.from_wkt, TEXTS), None]
VALID = [None if one is None or not one.is_valid else one for one in SHAPES]
OTHER = shapely.from_wkt("POLYGON ((1 1, 9 1, 9 5, 1 5, 1 1))")
KINDS = ["POINT", "LINESTRING", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING"]
KINDS += ["MULTIPOLYGON", "GEOMETRYCOLLECTION"]


def parts(shape: Any) -> list[Any]:
    return (
        [one for part in shape.geoms for one in parts(part)] if hasattr(shape, "geoms") else [shape]
    )


def length(dimension: int) -> Callable[[Any], float]:
    return lambda one: sum(p.length for p in parts(one) if shapely.get_dimensions(p) == dimension)


def bound(number: int) -> Callable[[Any], Any]:
    return lambda one: None if one.is_empty else one.bounds[number]


def only_points(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda one: None if one.is_empty else read(one)


MERCATOR = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:3857", always_xy=True)

ONE: dict[str, Callable[[Any], Any]] = {
    "ST_XMin({0})": bound(0),
    "ST_YMin({0})": bound(1),
    "ST_XMax({0})": bound(2),
    "ST_YMax({0})": bound(3),
    "ST_Area({0})": lambda one: one.area,
    "ST_Length({0})": length(1),
    "ST_Perimeter({0})": length(2),
    "ST_GeometryType({0})": lambda one: KINDS[shapely.get_type_id(one)],
    "ST_NPoints({0})": lambda one: int(shapely.get_num_coordinates(one)),
    "ST_NumGeometries({0})": lambda one: int(shapely.get_num_geometries(one)),
    "ST_Dimension({0})": lambda one: int(shapely.get_dimensions(one)),
    "ST_IsEmpty({0})": lambda one: one.is_empty,
    "ST_IsValid({0})": lambda one: one.is_valid,
    "ST_IsSimple({0})": lambda one: one.is_simple,
    "ST_Centroid({0})": lambda one: one.centroid,
    "ST_PointOnSurface({0})": shapely.point_on_surface,
    "ST_ConvexHull({0})": lambda one: one.convex_hull,
    "ST_MakeValid({0})": shapely.make_valid,
    "ST_Reverse({0})": shapely.reverse,
    "ST_Normalize({0})": shapely.normalize,
    "ST_Envelope({0})": lambda one: shapely.Polygon() if one.is_empty else shapely.box(*one.bounds),
    "ST_Simplify({0}, 1)": lambda one: one.simplify(1, preserve_topology=False),
    "ST_SimplifyPreserveTopology({0}, 1)": lambda one: one.simplify(1),
    "ST_Buffer({0}, 1.5)": lambda one: one.buffer(1.5, quad_segs=8),
    "ST_Buffer({0}, 1, 2)": lambda one: one.buffer(1, quad_segs=2),
    "ST_Transform({0}, 'EPSG:4326', 'EPSG:3857')": lambda one: shapely.transform(
        one, MERCATOR.transform, interleaved=False, include_z=one.has_z
    ),
    "ST_GeomFromText(ST_AsText({0}))": lambda one: one,
    "ST_GeomFromWKB(ST_AsWKB({0}))": lambda one: one,
    "ST_GeomFromGeoJSON(ST_AsGeoJSON({0}))": lambda one: one,
    "ST_DWithin({0}, $other, 2)": lambda one: shapely.dwithin(one, OTHER, 2),
    "ST_Distance({0}, $other)": lambda one: None if one.is_empty else one.distance(OTHER),
    "ST_CoveredBy({0}, $other)": lambda one: shapely.covered_by(one, OTHER),
}
OVERLAYS: dict[str, Callable[[Any], Any]] = {}


def pairs(found: dict[str, Callable[[Any], Any]], form: str, *names: str) -> None:
    """Functions of two geometries, either of which is the same in all rows."""
    for name in names:
        found[f"ST_{name}({form})"] = partial(pair, name.lower(), form.startswith("{"))


def pair(name: str, first: bool, one: Any) -> Any:
    return getattr(shapely, name)(*((one, OTHER) if first else (OTHER, one)))


pairs(ONE, "{0}, $other", "Intersects", "Disjoint", "Within", "Contains", "Covers", "Touches")
pairs(ONE, "{0}, $other", "Overlaps", "Crosses", "Equals")
pairs(ONE, "$other, {0}", "Intersects", "Within", "Contains", "Covers", "Touches")
pairs(OVERLAYS, "{0}, $other", "Union", "Intersection", "Difference")
POINTS: dict[str, Callable[[Any], Any]] = {
    "ST_X({0})": only_points(lambda one: one.x),
    "ST_Y({0})": only_points(lambda one: one.y),
    "ST_FlipCoordinates({0})": lambda one: (
        shapely.Point() if one.is_empty else shapely.Point(one.y, one.x)
    ),
}


def agrees(found: Any, wanted: Any, *, exact: bool = False) -> bool:
    if wanted is None or found is None:
        return found is wanted
    if isinstance(wanted, shapely.Geometry):
        shape = shapely.from_wkb(found)
        if wanted.is_empty or shape.is_empty:
            return bool(wanted.is_empty and shape.is_empty)
        return bool(shapely.equals_exact(shape, wanted, 1e-9 if exact else 1e-6))
    if isinstance(wanted, float | np.floating):
        return bool(np.isclose(found, wanted, rtol=1e-12))
    return bool(found == wanted) and isinstance(found, bool) == isinstance(wanted, bool | np.bool_)


def tables(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """One table: of each ending its shapes as WKB in b... and as text in t..., filled with null."""
    count = max(map(len, columns.values()))
    found: dict[str, Any] = {"n": list(range(count))}
    for ending, shapes in columns.items():
        filled = [*shapes, *[None] * (count - len(shapes))]
        blobs = [None if one is None else shapely.to_wkb(one, flavor="iso") for one in filled]
        found[f"b{ending}"] = pa.array(blobs, pa.binary())
        found[f"t{ending}"] = [None if one is None else shapely.to_wkt(one) for one in filled]
    return {"data": pa.table(found)}


def run(query: str, shapes: list[Any], **params: Any) -> Any:
    return engine().select(query, params, tables=tables({"": shapes}))


CASES: dict[str, tuple[dict[str, Callable[[Any], Any]], list[Any]]] = {
    "": (ONE, SHAPES),
    "_valid": (OVERLAYS, VALID),
    "_point": (POINTS, [*SHAPES[:2], None]),
}
"""Functions and what they take, by the ending of its columns."""
ORACLES = [
    (text, oracle, ending) for ending, (cases, _) in CASES.items() for text, oracle in cases.items()
]
FORMS = ["b{0}", "t{0}", "ST_GeomFromWKB(b{0})", "t{0}::GEOMETRY"]


def selected(cases: Iterable[str]) -> str:
    columns = ", ".join(f"{text} AS c{n}" for n, text in enumerate(cases))
    return f"SELECT n, {columns} FROM data WHERE $other IS NOT NULL ORDER BY n"


def everything(form: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """All cases as one query, with its parameter and its table."""
    query = selected(text.format(form.format(ending)) for text, _, ending in ORACLES)
    held = tables({ending: shapes for ending, (_, shapes) in CASES.items()})
    return query, {"other": OTHER.wkb}, held


# What the oldest pyproj does with the arrays of one point that shapely hands it.
@pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning")
@pytest.mark.parametrize("form", FORMS)
def test_expressions_are_those_of_shapely(form: str) -> None:
    query, values, held = everything(form)
    found = engine().select(query, values, tables=held)
    wrong = []
    for (text, oracle, ending), column in zip(ORACLES, found.columns[1:], strict=True):
        wrong += [
            (text, str(shape), value, wanted)
            for shape, value in zip(CASES[ending][1], column.to_pylist(), strict=False)
            if not agrees(value, wanted := None if shape is None else oracle(shape))
        ]
    assert wrong == []


def test_every_engine_gives_the_same() -> None:
    query, values, held = everything("b{0}")
    wanted = engine().select(query, values, tables=held)
    session = Session(tables=held)
    assert session.select(query, values).equals(wanted)
    session.close()
    budget = Budget(cpu=60, wall=60.0)
    assert select_isolated(query, values, tables=held, budget=budget).equals(wanted)


def test_arguments_that_are_null() -> None:
    cases = [*ONE, *OVERLAYS, *POINTS, "ST_Point(NULL, 1)", "ST_DWithin($other, $other, NULL)"]
    (row,) = run(
        selected(text.format("NULL") for text in cases), SHAPES[:1], other=OTHER.wkb
    ).to_pylist()
    assert set(row.values()) == {0, None}
    assert list(row.values()).count(0) == 1


TYPES = {
    "ST_Point(1, 2)": "GEOMETRY", "ST_MakeEnvelope(0, 0, 1, 1)": "GEOMETRY",
    "ST_Area(b)": "DOUBLE", "ST_X('POINT (1 2)')": "DOUBLE", "ST_NPoints(b)": "UINTEGER",
    "ST_Intersects(b, t)": "BOOLEAN", "ST_Buffer(b, 1)": "GEOMETRY", "ST_AsText(b)": "VARCHAR",
    "ST_AsGeoJSON(b)": "JSON", "ST_AsWKB(t)": "BLOB", "ST_GeomFromText(t)": "GEOMETRY",
    "ST_Transform(b, 'EPSG:4326', 'EPSG:3857')": "GEOMETRY", "ST_GeometryType(b)": "VARCHAR",
}  # fmt: skip


def test_types() -> None:
    texts = ", ".join(f"typeof({text})" for text in TYPES)
    found = run(f"SELECT {texts} FROM data", SHAPES[:1])
    assert [column[0].as_py() for column in found.columns] == list(TYPES.values())


def test_points_and_boxes() -> None:
    query = (
        "SELECT ST_AsText(ST_Point(n, n + 0.5)) p, ST_MakeEnvelope(n, 0, n + 1, 2) e,"
        " ST_AsGeoJSON(ST_Point(n, 1)) j FROM data ORDER BY n"
    )
    first, second = run(query, SHAPES[:2]).to_pylist()
    assert [first["p"], second["p"]] == ["POINT (0 0.5)", "POINT (1 1.5)"]
    assert shapely.from_wkb(second["e"]).equals(shapely.box(1, 0, 2, 2))
    assert json.loads(second["j"]) == {"type": "Point", "coordinates": [1, 1]}


def test_a_cell_is_its_box() -> None:
    cell = int(cells(np.array([3]), np.array([7]), np.array([2]))[0])
    box = shapely.box(*(float(edge[0]) for edge in bounds(np.array([cell]))))
    beyond = shapely.box(box.bounds[2] - 1, 10, box.bounds[2] + 9, 60).wkt
    query = (
        "SELECT ST_GeomFromQuadbin($c::UBIGINT) g, ST_Area($c::UBIGINT) a,"
        " ST_Intersects($c::UBIGINT, $w) i, ST_Disjoint($w, $c::UBIGINT) d,"
        " ST_Contains('POLYGON ((500 0, 540 0, 540 80, 490 80, 490 0, 500 0))', $c::UBIGINT) k,"
        " ST_Within($c::UBIGINT, 'POLYGON ((-230 0, -180 0, -180 80, -230 80, -230 0))') w"
    )
    (row,) = run(query, SHAPES[:1], c=cell, w=beyond).to_pylist()
    assert shapely.from_wkb(row.pop("g")).equals(box)
    assert row.pop("a") == pytest.approx(box.area)
    assert row == {"i": True, "d": False, "k": True, "w": True}


def test_footprints_of_rasters() -> None:
    affine = [[500_000.0, 10.0, 0.0, 4_500_000.0, 0.0, -10.0]] * 3 + [None]
    affine[1] = [790_000.0, 10.0, 0.0, 8_000_000.0, 0.0, -10.0]
    crs = ["EPSG:32631", "EPSG:32760", None, "EPSG:32631"]
    table = pa.table(
        {"crs": crs, "t": affine, "s": [[3, 100, 200], [2_000, 9_000], [1, 1], [1, 1]]}
    )
    query = "SELECT ST_Footprint(crs, t, s) g, ST_GeometryType(ST_Footprint(crs, t, s)) k FROM data"
    found = engine().select(query, tables={"data": table}).to_pylist()
    assert [row["k"] for row in found] == ["POLYGON", "MULTIPOLYGON", None, None]
    degrees = pyproj.Transformer.from_crs("EPSG:32631", "EPSG:4326", always_xy=True)
    wanted = degrees.transform_bounds(500_000, 4_499_000, 502_000, 4_500_000, densify_pts=200)
    assert shapely.from_wkb(found[0]["g"]).bounds == pytest.approx(wanted, abs=1e-6)
    left, right = shapely.from_wkb(found[1]["g"]).geoms
    degrees = pyproj.Transformer.from_crs("EPSG:32760", "EPSG:4326", always_xy=True)
    corners = [
        degrees.transform(x, y)[0] for x in (790_000, 880_000) for y in (7_980_000, 8_000_000)
    ]
    assert left.bounds[0] == pytest.approx(min(lon for lon in corners if lon > 0), abs=1e-3)
    assert (left.bounds[2], right.bounds[0]) == (180, -180)
    assert right.bounds[2] == pytest.approx(max(lon for lon in corners if lon < 0), abs=1e-3)


FAULTS: dict[str, type[InvalidInputError]] = {
    r"ST_Area('\x01'::BLOB)": QueryError,
    r"ST_AsText('\x01'::BLOB)": QueryError,
    r"ST_GeomFromWKB('\x09\x07'::BLOB)": QueryError,
    "ST_Area('POINT (1')": QueryError,
    "ST_GeomFromText('nowhere')": QueryError,
    "ST_GeomFromGeoJSON('{}')": QueryError,
    "ST_Area(1.5)": QueryError,
    "ST_Area()": QueryError,
    "ST_Hilbert('POINT (1 1)')": QueryError,
    "ST_Intersection(t, t)": QueryError,
    "ST_Transform('POINT (200 95)', 'EPSG:4326', 'EPSG:3035')": QueryError,
    "ST_Transform(t, 'EPSG:4326', 'EPSG:3857', false)": QueryError,
    "ST_Area(7)": InvalidInputError,
    "ST_X('LINESTRING (0 0, 1 1)')": InvalidInputError,
    "ST_Buffer('POINT (1 1)', 'wide')": InvalidInputError,
    "ST_Buffer('POINT (1 1)', 1, 0)": InvalidInputError,
    "ST_Buffer('POINT (1 1)', 1, 2000000000)": InvalidInputError,  # GEOS: an empty polygon
    "ST_Point('a', 1)": InvalidInputError,
    "ST_Transform(t, 'EPSG:4326', 'EPSG:0')": InvalidInputError,
    "ST_Transform(t, '+proj=longlat +nadgrids=/etc/passwd', 'EPSG:3857')": InvalidInputError,
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_cannot_be_used_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(FAULTS[text]) as caught:
        run(f"SELECT {text} FROM data", [SHAPES[5]])
    assert "Traceback" not in str(caught.value)
    assert "INSTALL" not in str(caught.value)
    # The engine goes on.
    assert engine().select("SELECT ST_X('POINT (1 2)') AS v").to_pylist() == [{"v": 1.0}]


def test_the_mend_for_an_unknown_function() -> None:
    with pytest.raises(QueryError, match="unknown function") as caught:
        engine().select("SELECT ST_Hilbert('POINT (1 1)')")
    mend, _, _ = (caught.value.hint or "").partition(" lists")
    names = engine().select(mend).column(0).to_pylist()
    assert {"st_area", "st_astext", "quadbin_kring"} <= {name.lower() for name in names}


def nested(depth: int, order: str, kind: int) -> bytes:
    head = (b"\1" if order == "<" else b"\0") + struct.pack(order + "II", kind, 1)
    return head * depth + b"\1" + struct.pack("<Idd", 1, 0.0, 0.0)


def test_geometries_too_deep_for_a_stack() -> None:
    """GEOS recurses: a geometry of a megabyte ended the process."""
    deep: list[Any] = [
        nested(200_000, *how) for how in (("<", 7), (">", 7), ("<", 1007), (">", 3007))
    ]
    deep += [nested(200_000, "<", 0x8000_0007), nested(200_000, ">", 0x8000_0007)]
    for blob in deep:
        for text in ("ST_Area($g::BLOB)", "ST_AsText($g::BLOB)"):
            with pytest.raises(QueryError):
                engine().select(f"SELECT {text} AS v", {"g": blob})
        with pytest.raises(InvalidMetadataError, match="collections"):
            wkb.to_shapely(pa.array([None, blob]))
    text = "GEOMETRYCOLLECTION(" * 200_000 + "POINT (0 0)" + ")" * 200_000
    for call in ("ST_Area($g)", "ST_GeomFromText($g)"):
        with pytest.raises(QueryError):
            engine().select(f"SELECT {call} AS v", {"g": text})
    for column in (pa.array([deep[0]]), pa.array([text])):
        assert np.isnan(wkb.lenient_points_xy(column)).all()
    flat = shapely.GeometryCollection([shapely.GeometryCollection([shapely.Point(0, 0)])] * 900)
    assert wkb.to_shapely(pa.array([flat.wkb]))[0].equals(flat)


def test_no_library_of_geometries_without_need() -> None:
    script = (
        "import sys; from comal.query import engine; e = engine()\n"
        "e.select('SELECT quadbin_resolution(5192650370358181887) v')\n"
        "assert not {'shapely', 'pyproj'} & set(sys.modules), 'loaded'\n"
        "e.select(\"SELECT ST_Area('POINT (1 1)') v\")\n"
        "assert 'shapely' in sys.modules and 'pyproj' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
