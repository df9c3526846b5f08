"""The commands that make RaQuet files and take them apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner, Result

import comal.raquet
from comal.cli.convert import command as convert
from comal.cli.raquet import group
from comal.errors import ComalError, InvalidInputError
from tests.raquet.writing.sources import noise, on_grid, utm


def _run(*words: object) -> Result:
    return CliRunner().invoke(group, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return utm(tmp_path / "a.tif", noise((3, 200, 300), "uint8"), nodata=0)


def test_create_export_partition_merge(tmp_path: Path, source: Path) -> None:
    made = tmp_path / "a.parquet"
    said = _run("create", source, made, "--block-size", 32, "--json").output
    summary: dict[str, Any] = json.loads(said)
    assert summary["bands"] == ["band_1", "band_2", "band_3"]
    assert summary["size"] == made.stat().st_size
    assert "tiles of zooms" in _run("create", source, made, "--overwrite").output
    assert "pixels of zoom" in _run("export", made, tmp_path / "b.tif").output
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    _run("export", made, tmp_path / "c.tif", "--plain", "--band", "band_2", "--zoom", 11)
    with rasterio.open(tmp_path / "c.tif") as dataset:
        assert dataset.count == 1
    _run("export", made, tmp_path / "d.png", "--size", 64)
    assert (tmp_path / "d.png").read_bytes()[:4] == b"\x89PNG"
    assert "parts" in _run("partition", made, tmp_path / "parts", "--zoom", 12).output
    _run("merge", tmp_path / "parts", "-o", tmp_path / "e.parquet")
    assert (tmp_path / "e.parquet").read_bytes() == made.read_bytes()
    with pytest.raises(ComalError, match="unknown kind"):
        _run("export", made, tmp_path / "b.gif")


@pytest.mark.parametrize("name", ["y.xyz", "y.png", "y.csv", "y.tacozip"])
def test_convert_says_what_raquet_becomes(tmp_path: Path, source: Path, name: str) -> None:
    made = tmp_path / "a.parquet"
    comal.raquet.write(source, made)
    with pytest.raises(InvalidInputError, match=r"(?s)RaQuet cannot be converted.*COG"):
        CliRunner().invoke(convert, [str(made), str(tmp_path / name)], catch_exceptions=False)
    assert not (tmp_path / name).exists()


def test_a_chosen_nodata_value_is_told(tmp_path: Path) -> None:
    made = []
    for low, chosen, place in ((1, 0, utm), (0, 255, on_grid)):
        tiff = place(tmp_path / f"{low}.tif", np.full((60, 70), low, "uint8"))
        made.append(tmp_path / f"{low}.parquet")
        said = _run("create", tiff, made[-1], "--zoom", 9, "--min-zoom", 9).output
        assert f"nodata {chosen} was chosen for band_1" in said
    with pytest.raises(ComalError, match="do not belong to one raster"):
        _run("merge", *made, "-o", tmp_path / "m.parquet")
    assert (
        "was chosen" not in _run("create", tiff, tmp_path / "c.parquet", "--nodata", "none").output
    )
