"""The commands that make RaQuet files and take them apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from tests.cli.conftest import Run
from tests.raquet.writing.sources import noise, on_grid, utm


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return utm(tmp_path / "a.tif", noise((3, 200, 300), "uint8"), nodata=0)


def test_create_export_partition_merge(run: Run, tmp_path: Path, source: Path) -> None:
    made = tmp_path / "a.parquet"
    said = run("raquet", "create", source, made, "--block-size", 32, "--json").output
    summary: dict[str, Any] = json.loads(said)
    assert summary["bands"] == ["band_1", "band_2", "band_3"]
    assert summary["size"] == made.stat().st_size
    assert "tiles of zooms" in run("raquet", "create", source, made, "--overwrite").output
    assert "pixels of zoom" in run("raquet", "export", made, tmp_path / "b.tif").output
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
    run("raquet", "export", made, tmp_path / "c.tif", "--plain", "--band", "band_2", "--zoom", 11)
    with rasterio.open(tmp_path / "c.tif") as dataset:
        assert dataset.count == 1
    run("raquet", "export", made, tmp_path / "d.png", "--size", 64)
    assert (tmp_path / "d.png").read_bytes()[:4] == b"\x89PNG"
    assert "parts" in run("raquet", "partition", made, tmp_path / "parts", "--zoom", 12).output
    run("raquet", "merge", tmp_path / "parts", "-o", tmp_path / "e.parquet")
    assert (tmp_path / "e.parquet").read_bytes() == made.read_bytes()


@pytest.mark.parametrize("name", ["y.xyz", "y.png", "y.csv", "y.tacozip"])
def test_convert_says_what_raquet_becomes(
    run: Run, tmp_path: Path, source: Path, name: str
) -> None:
    made = tmp_path / "a.parquet"
    run("raquet", "create", source, made)
    told = run("convert", made, tmp_path / name, code=2).stderr
    assert "RaQuet cannot be converted" in told
    assert "COG" in told
    assert not (tmp_path / name).exists()


def test_a_chosen_nodata_value_is_told(run: Run, tmp_path: Path) -> None:
    made = []
    for low, chosen, place in ((1, 0, utm), (0, 255, on_grid)):
        tiff = place(tmp_path / f"{low}.tif", np.full((60, 70), low, "uint8"))
        made.append(tmp_path / f"{low}.parquet")
        said = run("raquet", "create", tiff, made[-1], "--zoom", 9, "--min-zoom", 9).output
        assert f"nodata {chosen} was chosen for band_1" in said
    told = run("raquet", "merge", *made, "-o", tmp_path / "m.parquet", code=6).stderr
    assert "do not belong to one raster" in told
    plain = run("raquet", "create", tiff, tmp_path / "c.parquet", "--nodata", "none").output
    assert "was chosen" not in plain
