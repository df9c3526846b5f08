"""RaQuet files by the generic commands, and the group ``comal raquet``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from tests.cli.conftest import Run
from tests.raquet.build import Plan, noise, stored, write
from tests.raquet.writing import sources

TILES = [(2, 2, 1), (3, 4, 2), (3, 5, 2)]
BANDS = (("land", "uint8", 0), ("height", "int16", -1))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    tiles: dict[Any, Any] = {
        tile: [noise(n), noise(n + 9, "int16")] for n, tile in enumerate(TILES)
    }
    return write(tmp_path / "two.parquet", tiles, Plan(bands=BANDS))


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_generic_commands(run: Run, path: Path, tmp_path: Path) -> None:
    assert json.loads(run("info", path, "--json").stdout)["format"] == "raquet"
    assert run("ls", path).stdout.splitlines()[0].startswith("2/2/1\t")
    found = lines(run("ls", path, "--json").stdout)
    assert [band["name"] for band in found[0]["bands"]] == ["land", "height"]
    (only,) = lines(run("ls", path, "--json", "--band", "land").stdout)[0]["bands"]
    assert only == found[0]["bands"][0]
    result = run("get", path, "3/4/2", "--band", "height")
    assert result.stdout_bytes == stored(noise(10, "int16"))
    run("get", path, "3/4/2", "--band", "land", "-o", tmp_path / "tile.raw")
    assert (tmp_path / "tile.raw").read_bytes() == stored(noise(1))
    assert "--band" in run("get", path, "3/4/2", code=2).output
    assert "no such band" in run("ls", path, "--band", "x", code=2).output
    assert "no such tile" in run("get", path, "3/0/0", "--band", "land", code=3).output


def test_bands_are_of_rasters(run: Run, flat: Path) -> None:
    assert "no bands" in run("ls", flat, "--band", "x", code=2).output


def test_check_of_statistics_and_repair(run: Run, tmp_path: Path) -> None:
    tiles = {tile: [noise(n)] for n, tile in enumerate(TILES)}
    bands = [{"name": "band_1", "type": "uint8", "nodata": "0", "stats": {"min": 1, "max": 200}}]
    path = write(tmp_path / "a.parquet", tiles, Plan(change={"bands": bands}))
    assert json.loads(run("check", path, "--json").stdout)["total"] == 0
    found = json.loads(run("check", path, "--statistics", "--json").stdout)
    assert found["counts"] == {"raquet-statistics-differ": 1}
    repair = ("check", path, "--statistics", "--repair", tmp_path / "b.parquet")
    run(*repair)
    run(*repair, code=10)
    found = json.loads(run("check", tmp_path / "b.parquet", "--statistics", "--json").stdout)
    assert found["total"] == 0
    wrong = write(tmp_path / "c.parquet", tiles, Plan(change={"num_blocks": 9}))
    told = run("check", wrong, path, code=1)
    assert "raquet-num-blocks" in told.stdout
    assert [line.partition(": ")[0] for line in told.stderr.splitlines()] == [str(wrong), str(path)]
    lines = run("check", path, tmp_path / "absent", wrong, "--json", code=11).stdout.splitlines()
    assert [json.loads(line)["source"] for line in lines] == [str(path), str(wrong)]
    run("check", path, wrong, "--repair", tmp_path / "d.parquet", code=2)
    run("check", path, "--byte-interleaved", code=2)


def test_options_of_one_format_are_refused_for_others(run: Run, flat: Path, tmp_path: Path) -> None:
    assert "RaQuet only" in run("check", flat, "--statistics", code=2).stderr


def test_points_and_documents(run: Run, path: Path) -> None:
    found = json.loads(run("raquet", "point", path, "1", "66", "--json").stdout)
    assert found.keys() == {"land", "height"}
    assert found["land"] == noise(1)[0, 0]
    west = run("raquet", "point", path, "-100.5", "40", "--band", "land", "--json")
    assert json.loads(west.stdout) == {"land": None}
    assert json.loads(run("raquet", "inspect", path).stdout)["version"] == "0.1.0"
    assert len(run("raquet", "inspect", path, "--json").stdout.splitlines()) == 1
    assert "raquet zonal" in run("raquet", "--help").output


# -- files are made and taken apart ----------------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return sources.utm(tmp_path / "a.tif", sources.noise((3, 200, 300), "uint8"), nodata=0)


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


def test_convert_says_what_raquet_and_tiles_become(run: Run, tmp_path: Path, source: Path) -> None:
    made, tiles = tmp_path / "a.parquet", tmp_path / "tiles"
    run("raquet", "create", source, made)
    run("convert", made, tiles)
    for name in ("y.xyz", "y.png", "y.csv", "y.tacozip"):
        for title, one in (("RaQuet", made), ("Tapalcatl", tiles)):
            told = run("convert", one, tmp_path / name, code=2).stderr
            assert f"{title} cannot be converted" in told, name
            assert ("COG" in told) == (one == made)
            assert not (tmp_path / name).exists()


def test_a_chosen_nodata_value_is_told(run: Run, tmp_path: Path) -> None:
    made = []
    for low, chosen, place in ((1, 0, sources.utm), (0, 255, sources.on_grid)):
        tiff = place(tmp_path / f"{low}.tif", np.full((60, 70), low, "uint8"))
        made.append(tmp_path / f"{low}.parquet")
        said = run("raquet", "create", tiff, made[-1], "--zoom", 9, "--min-zoom", 9).output
        assert f"nodata {chosen} was chosen for band_1" in said
    told = run("raquet", "merge", *made, "-o", tmp_path / "m.parquet", code=6).stderr
    assert "do not belong to one raster" in told
    plain = run("raquet", "create", tiff, tmp_path / "c.parquet", "--nodata", "none").output
    assert "was chosen" not in plain
