"""The demo on made-up scenes: offline, deterministic, and what it leaves is sound."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import rasterio
from click.testing import CliRunner

import comal
from comal import demo
from comal.cli import root
from comal.demo import scenes
from comal.raster import open_raster


@pytest.fixture
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [place for place in scenes.PLACES if place.name in {"oaxaca", "cusco", "manaus"}]
    monkeypatch.setattr(scenes, "PLACES", tuple(few))
    monkeypatch.setattr(scenes, "SIZE", 96)


def test_what_it_leaves(whole_demo: demo.Result) -> None:
    assert sorted(path.name for path in whole_demo.folder.iterdir()) == [
        "contact-sheet.png",
        "pictures",
        "raster.parquet",
        "scenes",
        "scenes.tacozip",
        "tiles",
    ]
    assert len(whole_demo.pictures) == len(scenes.PLACES)
    for path in [*whole_demo.pictures, whole_demo.sheet]:
        with open_raster(path) as picture:
            assert picture.driver == "PNG"
            assert picture.read().std() > 20
    titles = [step.title for step in whole_demo.steps]
    assert titles == [
        *("Rasters", "Pack", "SQL", "Box", "Time", "Read", "Check", "Pictures"),
        *("RaQuet", "Tapalcatl"),
    ]


def test_the_map_is_of_the_scene(whole_demo: demo.Result) -> None:
    with open_raster(whole_demo.folder / "scenes" / "cusco" / "image.tif") as image:
        scene = image.read()
    with comal.open(whole_demo.folder / "raster.parquet") as raster:
        assert {band.nodata for band in raster.bands} == {0}
        assert scene.min() > 0
        assert [band.description for band in raster.bands] == ["B02", "B03", "B04", "B08"]
        for band, pixels in zip(raster.bands, scene, strict=True):
            assert band.statistics is not None
            assert band.statistics.mean == pytest.approx(pixels.mean(), rel=0.02)
    with comal.open(whole_demo.folder / "tiles") as tiles:
        keys = tiles.keys().tolist()
        assert keys
        assert all(tiles.tile(*key).content_type == "image/png" for key in keys)


def test_steps_name_the_folder_that_stays(whole_demo: demo.Result) -> None:
    for step in whole_demo.steps:
        assert ".part" not in step.text
    assert str(whole_demo.archive) in whole_demo.steps[1].text


def test_the_archive_holds_what_was_made(whole_demo: demo.Result) -> None:
    with comal.open(whole_demo.archive) as dataset:
        rows = dataset.data.to_arrow().to_pylist()
        assert [row["id"] for row in rows] == [place.name for place in scenes.PLACES]
        assert {row["split"] for row in rows} == {"train", "validation", "test"}
        assert {row["stac:time_start"].month for row in rows} == set(range(1, 13))
        west, _, east, _ = dataset.filter_bbox(179, -20, -179, -15).extent["spatial"]
        assert west <= -180 <= east or west > east or (west, east) == (-180, 180)
        assert dataset.filter_bbox(179, -20, -179, -15).data.to_arrow()["id"].to_pylist() == [
            "taveuni"
        ]
        for row in rows:
            with rasterio.open(dataset.data.read(row["id"]).read("mask.tif")) as mask:
                clouds = float((mask.read(1) == scenes.CLOUD).mean())
            assert row["cloud_cover"] == pytest.approx(100 * clouds, abs=0.01)


@pytest.mark.usefixtures("few_scenes")
def test_the_same_bytes_again(tmp_path: Path) -> None:
    """By the command, in place of an older demo."""
    first, out = demo.run(out=tmp_path / "first"), tmp_path / "out"
    shutil.copytree(first.folder, out)
    line = ["demo", "--out", str(out)]
    assert CliRunner().invoke(root, line).exit_code == 10
    result = CliRunner().invoke(root, [*line, "--overwrite"])
    assert result.exit_code == 0, result.output
    assert f"comal check {out / 'scenes.tacozip'}" in result.stdout
    for name in ("scenes.tacozip", "contact-sheet.png", "raster.parquet"):
        assert (out / name).read_bytes() == (first.folder / name).read_bytes()


@pytest.mark.usefixtures("few_scenes")
def test_a_wrong_pixel_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("comal.demo.scenes.same_pixels", lambda first, second: False)
    result = CliRunner().invoke(root, ["demo", "--out", str(tmp_path / "out"), "--json"])
    assert result.exit_code == 6
    assert "pixels differ" in json.loads(result.stderr)["what"]
    assert not (tmp_path / "out").exists()
