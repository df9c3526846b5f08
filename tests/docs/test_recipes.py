"""The recipes for other engines find the samples that comal finds."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from comal import raquet, taco
from tests.docs.reading import blocks
from tests.raquet.writing.sources import noise, on_grid
from tests.support import REPOSITORY
from tests.taco.write.small import dataset

SCALE = REPOSITORY / "docs" / "scale.md"


def sample(name: str, row: int) -> taco.Sample:
    point = struct.pack("<BIdd", 1, 1, -72.0 + row / 4 + 10 * (name > "b"), -13.5)
    split = "train" if row % 2 else "test"
    where = {"stac:centroid": point, "split": split, "cloud": row / 8}
    return taco.Sample(f"{name}{row}", f"{name} {row}".encode()).extend_with(where)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipes")
    (folder / "parts").mkdir()
    for name in "abcd":
        samples = taco.Tortilla([sample(name, row) for row in range(8)])
        taco.create(dataset(samples, id=name), folder / "parts" / f"{name}.tacozip")
    taco.create(dataset(taco.Tortilla([sample("a", row) for row in range(8)])), folder / "scenes")
    on_grid(folder / "dem.tif", noise((1, 64, 64), "uint8"), nodata=0)
    raquet.write(folder / "dem.tif", folder / "dem.parquet")
    return folder


def names(archives: str, rows: Any) -> list[str]:
    return [f"{name}{row}" for name in archives for row in rows]


# Dask calls pandas in a way that its newest version would rather not have.
@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_recipes_find_what_comal_finds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    expected = {
        "filter_bbox": names("ab", range(3)),
        "append": names("abcd", range(8)),
        "import duckdb": names("ac", (1, 3, 5, 7)),
        "import polars": names("abcd", (1, 3)),
        "import geopandas": names("a", (1,)),
        "import dask": names("abcd", (1, 3)),
        "dem.parquet": sorted(raquet.open("dem.parquet").cells().tolist()),
    }
    found: dict[str, Any] = {}
    for block in blocks(SCALE, "python"):
        exec(block, found)
        (key,) = [key for key in expected if key in block][-1:]
        assert found["ids"] == expected[key], block
    assert found["data"] == b"a 1"
