"""What every archive offers to the generic commands, whichever format it has."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import formats
from comal.errors import InvalidInputError, NotInContainerError
from tests.support import SHARED, needs_shared

pytestmark = needs_shared

FIXTURES = SHARED / "fixtures"
STORED = [
    *("taco/flat.tacozip", "taco/nested_padded.tacozip", "taco/nested_folder", "taco/cat"),
    *("taco/tacocat_binary/__TACOCAT__", "tortilla/flat.taco", "tortilla/nested.tortilla"),
    *("tortilla/mixed_bytes.tortilla", "tapalcatl/t2/mvt-js", "tapalcatl/t2/mvt-js/0/0/0.zip"),
]
"""Archives whose leaves lie in them as they are."""
RAQUET = "raquet/constructed/v010_one_tile_per_page.parquet"
DEFLATED = [RAQUET, "tapalcatl/t2/landcover-png"]
ABSENT = ("", "x", "../x", "x/y/z", "9/9/9", "9/9/9.mvt", "0/0/0/9/9/9.mvt", "3/9/1@0")


def opened(name: str) -> Any:
    source = FIXTURES / name
    return closing(formats.adapter_of(formats.sniff(source).format).archive(str(source)))


def leaves(archive: Any) -> list[dict[str, Any]]:
    tables = list(archive.leaves())
    assert all(tuple(one.column_names[:5]) == formats.LEAF_COLUMNS for one in tables)
    return [row for table in tables for row in table.to_pylist()]


@pytest.mark.parametrize("name", STORED)
def test_leaves_are_where_they_say(name: str) -> None:
    with opened(name) as archive:
        rows = leaves(archive)
        assert rows == leaves(archive)
        assert len({row["key"] for row in rows}) == len(rows) == archive.describe()["count"]
        for row in rows[:: max(1, len(rows) // 50)]:
            data = Path(row["href"]).read_bytes()[row["offset"] :][: row["size"]]
            assert len(data) == row["size"]
            assert b"".join(archive.blocks(row["key"])) == data


@pytest.mark.parametrize("name", [*STORED, *DEFLATED])
def test_what_is_the_same_for_all(name: str) -> None:
    with opened(name) as archive:
        about = archive.describe()
        assert {"version", "container", "count", "size", "bounds"} <= set(about)
        if about["bounds"] is not None:
            west, south, east, north = np.array(about["bounds"], float)
            assert max(abs(west), abs(east)) <= 180
            assert -90 <= south <= north <= 90
        keys = {row["key"] for row in leaves(archive)}
        for key in ABSENT:
            if key not in keys:
                with pytest.raises(NotInContainerError):
                    list(archive.blocks(key))
        assert formats.of_band(archive, None) is archive
        with pytest.raises(InvalidInputError, match="band"):
            formats.of_band(archive, "no such band")
