"""Zones out of every form that users have, and areas with names in which places lie."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import geopandas as gpd  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from comal.errors import (
    ComalError,
    InvalidInputError,
    InvalidMetadataError,
    LimitExceededError,
    NotThisFormatError,
    ObjectNotFoundError,
)
from comal.raster.zones import Regions, Zones, load_regions, zones_of

WEST, EAST = shapely.box(-10, -10, 0, 10), shapely.box(0, -10, 10, 10)


def geojson(path: Path, key: str = "name") -> Path:
    features = [
        {
            "type": "Feature",
            "properties": {key: name},
            "geometry": json.loads(shapely.to_geojson(area)),
        }
        for name, area in (("west", WEST), ("east", EAST))
    ]
    features.append({"type": "Feature", "properties": {key: "nowhere"}, "geometry": None})
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


def table() -> pa.Table:
    return pa.table({"shapeName": ["west", "east"], "geometry": [WEST.wkb, EAST.wkb]})


def sources(folder: Path) -> list[Any]:
    pq.write_table(table(), folder / "areas.parquet")
    return [
        geojson(folder / "areas.geojson"),
        str(geojson(folder / "areas2.geojson", "Name")),
        (geojson(folder / "areas3.geojson", "label"), "label"),
        folder / "areas.parquet",
        table(),
        (table(), "shapeName"),
        [(WEST.wkb, "west"), (EAST.wkb, "east")],
        Regions(pa.array(["west", "east"]), np.array([WEST, EAST], object)),
    ]


def test_every_source(tmp_path: Path) -> None:
    for source in sources(tmp_path):
        regions = load_regions(source)
        found = regions.find([-5, 5, 50, np.nan, 0], [0, 0, 0, 0, 0])
        assert found.to_pylist() == ["west", "east", None, None, "west"]


def test_nearest_within_a_tolerance() -> None:
    regions = load_regions([(WEST.wkb, "west"), (EAST.wkb, "east")])
    assert regions.find([10.5, 12, -10.5], [0, 0, 0], 1.0).to_pylist() == ["east", None, "west"]


def test_geoparquet_of_another_crs(tmp_path: Path) -> None:
    import pyproj

    area = shapely.box(-1113194.9, -1118889.97, 0, 1118889.97)
    metadata = {
        "version": "1.1.0",
        "primary_column": "shape",
        "columns": {"shape": {"encoding": "WKB", "crs": pyproj.CRS.from_epsg(3857).to_json_dict()}},
    }
    plain = pa.table({"name": ["west"], "shape": [area.wkb]})
    pq.write_table(
        plain.replace_schema_metadata({"geo": json.dumps(metadata)}), tmp_path / "a.parquet"
    )
    regions = load_regions(tmp_path / "a.parquet")
    assert regions.find([-9.9, -10.1], [9.9, 0]).to_pylist() == ["west", None]


def test_faults(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no areas")
    (tmp_path / "b.geojson").write_text("{")
    (tmp_path / "c.geojson").write_text('{"type": "Point"}')
    (tmp_path / "d.parquet").write_bytes(b"PAR1PAR1PAR1")
    geojson(tmp_path / "e.geojson", "label")
    for name, kind in (
        ("absent", ObjectNotFoundError),
        ("a.txt", NotThisFormatError),
        ("b.geojson", InvalidMetadataError),
        ("c.geojson", InvalidMetadataError),
        ("d.parquet", InvalidMetadataError),
        ("e.geojson", InvalidInputError),
    ):
        with pytest.raises(kind):
            load_regions(tmp_path / name)
    with pytest.raises(InvalidInputError, match="names"):
        load_regions(table(), "title")
    with pytest.raises(InvalidMetadataError, match="a column of geometries"):
        load_regions(pa.table({"name": ["x"]}))
    for wrong in (5, ["x"], [(1, 2)]):
        with pytest.raises(InvalidInputError):
            load_regions(wrong)


def _feature(properties: Any) -> bytes:
    point = {"type": "Point", "coordinates": [1, 2]}
    return json.dumps(
        {"type": "FeatureCollection", "features": [{"properties": properties, "geometry": point}]}
    ).encode()


def _parquet(areas: pa.Table, geo: str | None = None) -> bytes:
    file = io.BytesIO()
    pq.write_table(areas if geo is None else areas.replace_schema_metadata({"geo": geo}), file)
    return file.getvalue()


BROKEN = {
    "properties as a list": _feature(["name"]),
    "properties as a number": _feature(7),
    "half a character": _feature({"name": "\ud800"}),
    "columns as a list": _parquet(table(), '{"columns": [1]}'),
    "column as a number": _parquet(table(), '{"columns": {"geometry": 3}}'),
    "metadata as a text": _parquet(table(), '"geo"'),
    "metadata without end": _parquet(table(), "[" * 5_000),
    "name that is not UTF-8": _parquet(table()).replace(b"shapeName", b"shape\xe2ame"),
    "geometry as a number": _parquet(pa.table({"geometry": [1], "name": ["a"]})),
    "page cut short": _parquet(table())[:50] + _parquet(table())[60:],
}


KINDS: dict[str, type[ComalError]] = {
    "metadata without end": LimitExceededError,
    "geometry as a number": InvalidInputError,
}
"""What is not broken content."""


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "areas"
    path.write_bytes(BROKEN[kind])
    with pytest.raises(KINDS.get(kind, InvalidMetadataError)):
        load_regions(path)


# -- zones in every form ---------------------------------------------------------------------------


@pytest.fixture
def frame() -> Any:
    """Areas in EPSG:3857: a box, one with a hole, one in two parts."""
    box, ring = shapely.box(0, 5e6, 1e5, 5.1e6), shapely.Point(3e5, 5e6).buffer(5e4)
    areas = [box, ring.difference(ring.buffer(-2e4)), box.union(shapely.box(2e5, 5e6, 3e5, 6e6))]
    names = [f"zone {n}" for n in range(3)]
    return gpd.GeoDataFrame({"name": names, "size": range(3)}, geometry=areas, crs=3857)


def same(found: Zones, wanted: Any, columns: Sequence[str] = ("name", "size")) -> None:
    """Columns, and geometries at the same places."""
    assert {name: list(map(str, found.kept[name])) for name in columns} == {
        name: list(map(str, wanted[name])) for name in columns
    }
    shapes = gpd.GeoSeries(found.shapes, crs=found.crs).to_crs(3857)
    assert shapes.geom_equals_exact(wanted.geometry.to_crs(3857), 1e-6).all()


@pytest.mark.parametrize("crs", ["EPSG:3857", "EPSG:4326", "ESRI:54009"])
@pytest.mark.parametrize("ending", ["geojson", "gpkg", "parquet"])
def test_zones_of_files_that_gdal_writes(tmp_path: Path, frame: Any, ending: str, crs: str) -> None:
    moved = frame.to_crs(crs)
    file = tmp_path / f"zones.{ending}"
    moved.to_parquet(file) if ending == "parquet" else moved.to_file(file)
    # GeoJSON has its coordinates rounded, so that what is read back is the oracle.
    same(
        zones_of(file, keep=["name", "size"]), moved if ending == "parquet" else gpd.read_file(file)
    )


def test_zones_in_memory(frame: Any) -> None:
    same(zones_of(frame, keep=["name", "size"]), frame)
    same(zones_of(frame.geometry), frame, [])
    same(zones_of(list(frame.geometry), crs="EPSG:3857"), frame, [])
    wkb = pa.table({"geometry": frame.geometry.to_wkb().tolist()})
    same(zones_of(wkb, crs="EPSG:3857"), frame, [])
    document = json.loads(frame.to_crs(4326).to_json())
    same(zones_of(document, keep=["name"]), frame, ["name"])
    feature = document["features"][0]
    for one in (feature, feature["geometry"]):
        same(zones_of(one), frame.head(1), [])
    nothing = {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": None}]}
    assert zones_of(nothing).shapes.tolist() == [None]


def test_what_is_no_zone(tmp_path: Path, frame: Any) -> None:
    frame.to_parquet(tmp_path / "z.parquet")
    cases: list[tuple[Any, dict[str, Any], type[ComalError], str]] = [
        (["POINT (1 1)"], {}, InvalidInputError, "not zones"),
        (list(frame.geometry), {"keep": ["name"]}, InvalidInputError, "columns"),
        (frame, {"keep": ["x"]}, InvalidInputError, "no such column"),
        (tmp_path / "z.parquet", {"keep": ["x"]}, InvalidInputError, "no such column"),
        (pa.table({"geometry": ["POINT (1 1)"]}), {}, InvalidInputError, "not WKB"),
        (pa.table({"shape": ["POINT (1 1)"]}), {}, InvalidMetadataError, "not GeoParquet"),
    ]
    for source, named, kind, text in cases:
        with pytest.raises(kind, match=text):
            zones_of(source, **named)


def test_a_geopackage_of_several_layers_wants_the_name_of_one(tmp_path: Path, frame: Any) -> None:
    file = tmp_path / "zones.gpkg"
    frame.to_file(file, layer="all")
    frame.head(2).to_file(file, layer='fi"rst')
    assert len(zones_of(file, layer='fi"rst').shapes) == 2
    for layer in (None, "other"):
        with pytest.raises(InvalidInputError, match="all"):
            zones_of(file, layer=layer)
    file.write_bytes(file.read_bytes().replace(b"all", b"a\xbfl"))
    with pytest.raises(InvalidMetadataError, match="broken GeoPackage"):
        zones_of(file, layer='fi"rst')


_COLLECTION = '{"type": "GeometryCollection", "geometries": ['


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "Topology"}',
        '{"type": "FeatureCollection"}',
        '{"type": "FeatureCollection", "features": [1]}',
        '{"type": "Polygon", "coordinates": [[[0, 0]]]}',
        '{"type": "Polygon", "coordinates": 7}',
        '{"type": "Feature", "geometry": 5}',
        '{"type": "FeatureCollection", "features": [',
        _COLLECTION * 9001 + "]}" * 9001,
        "SQLite format 3\0 and no more",
        "\0\0\x27\x0a and no more",
    ],
)
def test_files_of_zones_that_are_broken(tmp_path: Path, text: str) -> None:
    file = tmp_path / "zones"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ComalError):
        zones_of(file)
