"""Geometries, times and reference systems as they stand in columns and documents."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely
from shapely.geometry import LineString, MultiPolygon, Point, Polygon

from comal.errors import ComalError
from comal.geo import wkb
from comal.geo.boxes import validate_bbox
from comal.geo.footprints import geometry_footprints
from comal.geo.shapes import geometry_boxes, geometry_centroids
from comal.geo.times import isoformat, parse_instant, parse_range, timestamps
from comal.raster.zones import load_regions, zones_of
from tests.fuzz.base import Target, as_file

_SQUARE = Polygon([(0, 0), (1, 0), (1, 1), (0, 1)], [[(0.2, 0.2), (0.4, 0.2), (0.4, 0.4)]])
_SHAPES = [
    Point(1, 2),
    Point(),
    LineString([(0, 0), (179, 1), (-179, 2)]),
    _SQUARE,
    MultiPolygon([_SQUARE, Polygon()]),
    shapely.GeometryCollection([Point(1, 2, 3), _SQUARE]),
]


def _wkb(data: bytes) -> None:
    """One geometry between two sound points, which must come out whatever stands between."""
    column = pa.array([shapely.to_wkb(Point(3, 4)), data, None], pa.binary())
    for read in (geometry_boxes, geometry_centroids, geometry_footprints, wkb.points_xy):
        try:
            read(column)
        except ComalError:
            continue
    bounds = np.array(wkb.bounds(column))
    assert bounds[:, 0].tolist() == [3, 4, 3, 4]
    with np.errstate(invalid="ignore"):
        expected = shapely.bounds(shapely.from_wkb(data))
    assert np.array_equal(bounds[:, 1], expected, equal_nan=True)


def _words(data: bytes) -> None:
    """A text as a time, a range of times, and a box."""
    text = data.decode("utf-8", "replace")
    try:
        moment = parse_instant(text)
        assert -(2**63) <= moment < 2**63
        assert parse_instant(isoformat(moment)) == moment
    except ComalError:
        pass
    for read in (parse_range, lambda value: timestamps([value])):
        try:
            read(text)
        except ComalError:
            continue
    numbers = text.split(",")
    try:
        box = [float(number) for number in numbers]
    except ValueError:
        return
    validate_bbox(box)


def _regions(data: bytes) -> None:
    regions = load_regions(as_file(data, "areas.geojson"))
    assert len(regions.names) == len(regions.geometries)


def _zones(data: bytes) -> None:
    zones = zones_of(as_file(data, "zones.gpkg"), keep=["name"])
    assert {len(zones.shapes)} == {len(column) for column in zones.kept.values()}


def _geometries() -> Iterator[bytes]:
    for shape in _SHAPES:
        yield shapely.to_wkb(shape)
        yield shapely.to_wkb(shape, byte_order=0, output_dimension=3)
        yield shapely.to_wkb(shapely.set_srid(shape, 4326), include_srid=True)


def _areas() -> Iterator[bytes]:
    feature = '{"type":"Feature","properties":{"name":"a","n":1},"geometry":%s}'
    features = ",".join(feature % shapely.to_geojson(shape) for shape in _SHAPES)
    yield f'{{"type":"FeatureCollection","features":[{features}]}}'.encode()
    table = pa.table({"geometry": shapely.to_wkb(_SHAPES), "name": list("abcdef")})
    geo = '{"primary_column":"geometry","columns":{"geometry":{"crs":{"id":{}}}}}'
    for made in (table, table.replace_schema_metadata({"geo": geo})):
        file = io.BytesIO()
        pq.write_table(made, file, compression="none")
        yield file.getvalue()


def _geopackage() -> bytes:
    """Two rows and one without a geometry, as GeoPackage 1.3 has them (2.1)."""
    header = b"GP\0\1" + (4326).to_bytes(4, "little")
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            "PRAGMA page_size = 512;"
            "CREATE TABLE gpkg_spatial_ref_sys (srs_id, organization, organization_coordsys_id,"
            " definition);"
            "CREATE TABLE gpkg_geometry_columns (table_name, column_name, srs_id);"
            "INSERT INTO gpkg_spatial_ref_sys VALUES (4326, 'EPSG', 4326, '');"
            "INSERT INTO gpkg_geometry_columns VALUES ('zones', 'geom', 4326);"
            "CREATE TABLE zones (fid INTEGER PRIMARY KEY, geom BLOB, name TEXT);"
        )
        rows = [(header + shapely.to_wkb(shape), "a") for shape in (_SQUARE, Point(1, 2))]
        database.executemany("INSERT INTO zones (geom, name) VALUES (?, ?)", [*rows, (None, "c")])
        database.commit()
        return database.serialize()


def _zone_files() -> Iterator[bytes]:
    yield from _areas()
    yield _geopackage()


TARGETS = {
    "wkb": Target(_wkb, _geometries),
    "words": Target(
        _words,
        lambda: [
            b"2023-01-01T12:30:45.123456+02:00",
            b"2023-01-01/..",
            b"2023-12-31T23:59:60Z/2024-W01",
            b"-10,-20.5,1e1,20",
            b"-0044-03-15",
        ],
    ),
    "regions": Target(_regions, _areas),
    "zones": Target(_zones, _zone_files),
}
