"""Recipes for Spark, Ray and Lithops, which the nightly run has in an environment of their own."""

from __future__ import annotations

import ast
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import pytest

from comal import raquet, taco
from tests.docs.reading import blocks
from tests.docs.test_recipes import SCALE, names, place
from tests.raquet.writing.sources import noise, on_grid
from tests.support import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore")  # those of the libraries
__all__ = ["place"]


def recipe(document: Path, word: str) -> str:
    (found,) = (block for block in blocks(document, "py") if word in block)
    return found


def test_spark(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.chdir(place)
    taco.create_tacocat(sorted(Path("parts").glob("*.tacozip")), overwrite=True)
    found: dict[str, Any] = {}
    exec(recipe(SCALE, "import SparkSession"), found)
    found["spark"].stop()
    assert found["ids"] == names("a", (1, 3, 5, 7))
    assert sorted(found["blocks"]) == sorted(raquet.open("dem.parquet").cells().tolist())


@pytest.mark.parametrize("library", ["ray", "lithops"])
def test_executor(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # else it writes a token into the home folder
    document = REPOSITORY / "docs" / "scale-out.md"
    found: dict[str, Any] = {}
    exec("from concurrent.futures import ThreadPoolExecutor", found)
    (block,) = (block for block in blocks(document, "python") if "class Elsewhere" in block)
    (made,) = (one for one in ast.parse(block).body if isinstance(one, ast.ClassDef))
    exec(ast.unparse(made), found)
    exec(recipe(document, f"import {library}" if library == "ray" else f"from {library}"), found)
    executor: Executor = found["executor"]
    on_grid(tmp_path / "dem.tif", noise((1, 1024, 1024), "uint8"), nodata=0)
    raquet.write(tmp_path / "dem.tif", tmp_path / "here.parquet")
    with executor:
        raquet.write(tmp_path / "dem.tif", tmp_path / "there.parquet", executor=executor)
    if library == "ray":
        found["ray"].shutdown()
    assert (tmp_path / "here.parquet").read_bytes() == (tmp_path / "there.parquet").read_bytes()
