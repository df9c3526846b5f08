"""Files of the existing writers, against what is known of them."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import pytest

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
