from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

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
from comal.raster.zones import Regions, load_regions

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
    "name that is no UTF-8": _parquet(table()).replace(b"shapeName", b"shape\xe2ame"),
    "geometry as a number": _parquet(pa.table({"geometry": [1], "name": ["a"]})),
    "page cut short": _parquet(table())[:50] + _parquet(table())[60:],
}


KINDS: dict[str, type[ComalError]] = {
    "metadata without end": LimitExceededError,
    "geometry as a number": InvalidInputError,
}
"""What is no broken content."""


@pytest.mark.parametrize("kind", BROKEN)
def test_broken_files(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "areas"
    path.write_bytes(BROKEN[kind])
    with pytest.raises(KINDS.get(kind, InvalidMetadataError)):
        load_regions(path)
