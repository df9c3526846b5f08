"""Files of the existing writers become TACO 2.0: every byte, every value."""

from __future__ import annotations

import datetime as dt
import hashlib
import struct
from pathlib import Path
from typing import Any

import pytest
import rasterio

from comal import taco
from comal.convert import migrate
from tests.convert.migrated import FIELDS, assert_sound, collection, leaves, level
from tests.support import needs_shared
from tests.tortilla.read.test_fixtures import EXPECTED, FIXTURES

pytestmark = needs_shared

SINGLE = sorted(name for name in EXPECTED if ".part." not in name)


def digests(name: str) -> dict[str, str]:
    items = EXPECTED[name]["items"]
    return {one["path"]: one["sha256"] for one in items if one["format"] != "TORTILLA"}


def moved(name: str, output: Path, **more: Any) -> Any:
    fields = {} if name.endswith(".taco") else FIELDS
    return migrate(FIXTURES / name, output, **{**fields, **more})


@pytest.mark.parametrize("name", SINGLE)
def test_every_leaf_is_the_same(name: str, tmp_path: Path) -> None:
    output = tmp_path / "new.tacozip"
    report = moved(name, output)
    found = leaves(output)
    assert {path: hashlib.sha256(data).hexdigest() for path, data in found.items()} == digests(name)
    assert (report.leaves, report.bytes) == (len(found), sum(map(len, found.values())))
    assert report.ids.num_rows == report.padding == 0
    assert_sound(output)


def test_columns_have_the_names_and_types_of_taco(tmp_path: Path) -> None:
    output = tmp_path / "new.tacozip"
    moved("flat_stac_rai.tortilla", output)
    first = EXPECTED["flat_stac_rai.tortilla"]["first_row"]
    table = level(output)
    types = {field.name: str(field.type) for field in table.schema}
    row = table.to_pylist()[0]
    start = dt.datetime.fromtimestamp(first["stac:time_start"], dt.UTC).replace(tzinfo=None)
    end = dt.datetime.fromtimestamp(first["stac:time_end"], dt.UTC).replace(tzinfo=None)
    order, kind, x, y = struct.unpack("<BIdd", row["stac:centroid"])
    assert (order, kind) == (1, 1)
    assert f"POINT ({x:.6f} {y:.6f})" == first["stac:centroid"]
    with rasterio.MemoryFile(leaves(output)[row["id"]]) as file, file.open() as raster:
        shape = [raster.count, raster.height, raster.width]
    assert (row["id"], row["type"], row["split"]) == ("tile_00", "FILE", "train")
    assert row["tortilla:file_format"] == "GTiff"
    assert row["stac:tensor_shape"] == shape
    assert shape[1:] == first["stac:raster_shape"]
    assert (row["stac:time_start"], row["stac:time_end"]) == (start, end)
    assert row["stac:time_middle"] == start + (end - start) / 2
    assert row["rai:elevation"] == first["rai:ele"]
    for name in ("stac:crs", "stac:geotransform", "rai:hdi", "rai:admin1", "tags", "ml:score"):
        assert row[name] == first[name], name
    assert types["stac:time_start"] == types["stac:time_end"] == "timestamp[us]"
    assert types["stac:centroid"] == "binary"
    assert "stac:raster_shape" not in types
    assert "tortilla:data_split" not in types
    assert "tortilla:id" not in types


def test_a_nested_file_is_a_folder(tmp_path: Path) -> None:
    output = tmp_path / "new.tacozip"
    moved("nested.tortilla", output)
    document = collection(output)
    pit = document["taco:pit_schema"]
    assert pit["root"] == {"n": 4, "type": "FOLDER"}
    assert pit["hierarchy"]["1"][0]["id"] == ["image", "mask", "meta"]
    assert level(output)["split"].to_pylist()[0] == "train"
    # What writers copy from the first child is the shape of its raster.
    shapes = level(output)["stac:tensor_shape"].to_pylist()
    assert shapes == level(output, 1)["stac:tensor_shape"].to_pylist()[::3]
    with taco.load(output) as dataset:
        inner = dataset.data.read("roi_0")
        assert inner.read_bytes("meta") == leaves(output)["roi_0/meta"]


def test_the_collection(tmp_path: Path) -> None:
    output = tmp_path / "new.tacozip"
    report = moved("flat.taco", output, title="A title")
    old, new = EXPECTED["flat.taco"]["collection"], collection(output)
    for name in ("id", "dataset_version", "description", "licenses", "keywords"):
        assert new[name] == old[name], name
    assert (new["taco_version"], new["title"]) == ("2.0.0", "A title")
    assert new["tasks"] == [old["task"]]
    assert new["extent"] == {
        "spatial": old["extent"]["spatial"][0],
        "temporal": old["extent"]["temporal"][0],
    }
    assert new["providers"][0]["roles"] == ["host"]
    assert new["curators"][0]["email"] == "c@example.org"
    assert new["split:strategy"] == old["split_strategy"]
    assert new["optical:bands"] == old["optical_data"]["bands"]
    assert [one["category"] for one in new["labels:classes"]] == ["0", "1"]
    assert [one["doi"] for one in new["publications"]] == ["10.0000/x", "10.0000/y"]
    assert new["tortilla:discuss_link"] == old["discuss_link"]
    assert {change.name for change in report.of("kept")} == {
        "taco_version",
        "discuss_link",
        "raw_link",
    }
