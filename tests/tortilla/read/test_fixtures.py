"""Files of the existing writers, against what is known of them."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pyarrow as pa
import pytest
import rasterio

from comal import tortilla
from comal.tortilla import spec
from comal.tortilla.frame import TortillaFrame
from tests.support import SHARED, needs_shared

pytestmark = needs_shared

FIXTURES = SHARED / "fixtures" / "tortilla"


EXPECTED: dict[str, Any] = (
    json.loads((FIXTURES / "expected.json").read_text()) if FIXTURES.is_dir() else {}
)
NAMES = sorted(EXPECTED)


def items(frame: TortillaFrame, prefix: str = "") -> list[dict[str, Any]]:
    """Every item at every depth, nested files before what they hold."""
    found = []
    rows = frame.to_arrow().to_pylist()
    for row, values in enumerate(rows):
        path = prefix + values[spec.ID]
        found.append(
            {
                "path": path,
                "format": values[spec.FILE_FORMAT],
                "offset": values[spec.OFFSET],
                "length": values[spec.LENGTH],
                "split": values.get(spec.DATA_SPLIT),
                "sha256": hashlib.sha256(frame.read_bytes(row)).hexdigest(),
            }
        )
        if values[spec.FILE_FORMAT] == spec.TORTILLA:
            found += items(frame.read(row), path + "/")
    return found


@pytest.mark.parametrize("name", NAMES)
def test_header_columns_and_every_item_at_every_depth(name: str) -> None:
    frame = tortilla.open(FIXTURES / name)
    assert len(frame) == EXPECTED[name]["rows"]
    assert items(frame) == EXPECTED[name]["items"]
    assert frame.collection == EXPECTED[name].get("collection")
    stored = {spec.ALIASES.get(column, column) for column in EXPECTED[name]["columns"]}
    assert set(frame.columns) == stored | {spec.FILE_FORMAT, spec.SUBFILE}
    raw = tortilla.open(FIXTURES / name, typed=False)
    assert set(EXPECTED[name]["columns"]) <= set(raw.columns)
    want = EXPECTED[name]
    (part,) = frame.home.parts
    header = part.header
    assert header.magic.decode() == want["magic"]
    assert (header.footer.offset, header.footer.size) == (want["FO"], want["FL"])
    assert (header.layout, header.parts) == (want["layout"], want["DP"])
    assert header.driver == want.get("DF")
    assert part.size == want["size"]
    if "CO" in want:
        assert header.collection is not None
        assert (header.collection.offset, header.collection.size) == (want["CO"], want["CL"])
    with (FIXTURES / name).open("rb") as file:
        assert struct.unpack("<2sQQ", file.read(18)) == (
            header.magic,
            header.footer.offset,
            header.footer.size,
        )


def test_first_row_in_the_types_of_the_specification() -> None:
    frame = tortilla.open(FIXTURES / "flat_stac_rai.tortilla")
    (row,) = frame.head(1).to_arrow().to_pylist()
    for name, value in EXPECTED["flat_stac_rai.tortilla"]["first_row"].items():
        assert row[spec.ALIASES.get(name, name)] == value
    for name, kind in spec.TYPES.items():
        assert frame.schema.field(name).type == kind
    assert frame["rai:ele"].equals(frame["rai:elevation"])
    assert row["stac:time_start"] == 1704105000


def test_untyped_columns_are_as_they_are_stored() -> None:
    frame = tortilla.open(FIXTURES / "flat_stac_rai.tortilla", typed=False)
    assert frame.schema.field("stac:time_start").type == pa.float64()
    assert "rai:ele" in frame.columns


@pytest.mark.parametrize("pair", [("flat.taco", "flat_stac_rai.tortilla")])
def test_a_taco_has_the_items_of_its_tortilla(pair: tuple[str, str]) -> None:
    taco, plain = (tortilla.open(FIXTURES / name) for name in pair)
    assert (
        taco.to_arrow()
        .drop_columns([spec.SUBFILE])
        .equals(plain.to_arrow().drop_columns([spec.SUBFILE]))
    )
    assert plain.collection is None


def test_vsi_names_the_outer_file_once_and_gdal_opens_it() -> None:
    frame = tortilla.open(FIXTURES / "nested.tortilla")
    path = frame.read("roi_1/image")
    assert path == f"/vsisubfile/30700_14717,{FIXTURES / 'nested.tortilla'}"
    with rasterio.open(path) as raster:
        assert raster.shape == (64, 64)
        assert raster.read(1).size == 4096
    assert dict(frame.walk())["roi_1/image"] == path


def test_five_parts_are_one_table() -> None:
    names = [f"p{number:02d}" for number in range(20)]
    paths = [FIXTURES / f"partitioned.{number:04d}.part.tortilla" for number in range(5)]
    for frame in (
        tortilla.open(FIXTURES / "partitioned.*.part.tortilla"),
        tortilla.open(list(reversed(paths))),
        tortilla.open(paths[2], siblings=True),
    ):
        assert frame[spec.ID].to_pylist() == names
        assert frame[spec.PART].to_pylist() == [number // 4 for number in range(20)]
        assert frame.read_bytes() == [bytes([number]) * 10_000 for number in range(20)]
        assert frame.read("p09") == bytes([9]) * 10_000
        assert frame[spec.SUBFILE][5].as_py() == f"/vsisubfile/10200_10000,{paths[1]}"
