"""The demo on made-up scenes: offline, deterministic, and what it leaves is sound."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner

import comal
from comal import demo
from comal.cli import root
from comal.demo import pipeline, scenes
from comal.errors import InvalidInputError
from comal.raster import open_raster


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> demo.Result:
    return demo.run(out=tmp_path_factory.mktemp("demo") / "out")


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_what_it_leaves(made: demo.Result) -> None:
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "contact-sheet.png",
        "pictures",
        "raster.parquet",
        "scenes",
        "scenes.tacozip",
        "tiles",
    ]
    assert len(made.pictures) == len(scenes.PLACES)
    for path in [*made.pictures, made.sheet]:
        with open_raster(path) as picture:
            assert picture.driver == "PNG"
            assert picture.read().std() > 20
    titles = [step.title for step in made.steps]
    assert titles == [
        *("Rasters", "Pack", "SQL", "Box", "Time", "Read", "Check", "Pictures"),
        *("RaQuet", "Tapalcatl"),
    ]


def test_the_map_is_of_the_scene(made: demo.Result) -> None:
    with open_raster(made.folder / "scenes" / "cusco" / "image.tif") as image:
        scene = image.read()
    with comal.open(made.folder / "raster.parquet") as raster:
        assert {band.nodata for band in raster.bands} == {0}
        assert scene.min() > 0
        assert [band.description for band in raster.bands] == ["B02", "B03", "B04", "B08"]
        for band, pixels in zip(raster.bands, scene, strict=True):
            assert band.statistics is not None
            assert band.statistics.mean == pytest.approx(pixels.mean(), rel=0.02)
    with comal.open(made.folder / "tiles") as tiles:
        keys = tiles.keys().tolist()
        assert keys
        assert all(tiles.tile(*key).content_type == "image/png" for key in keys)


def test_steps_name_the_folder_that_stays(made: demo.Result) -> None:
    for step in made.steps:
        assert ".part" not in step.text
    assert str(made.archive) in made.steps[1].text


def test_the_archive_holds_what_was_made(made: demo.Result) -> None:
    with comal.open(made.archive) as dataset:
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


def test_the_same_bytes_again(made: demo.Result, tmp_path: Path) -> None:
    sources = sorted((made.folder / "scenes" / "furano").iterdir())
    first = demo.run(sources, tmp_path / "first")
    second = demo.run(sources, tmp_path / "second")
    assert digest(first.archive) == digest(second.archive)
    assert digest(first.sheet) == digest(second.sheet)


def test_rasters_of_ones_own(made: demo.Result, tmp_path: Path) -> None:
    sources = [made.folder / "scenes" / "cusco" / name for name in ("image.tif", "mask.tif")]
    found = demo.run(sources, tmp_path / "own")
    assert found.keys == ["image.tif", "mask.tif"]
    again = demo.run(sources[:1], tmp_path / "own", overwrite=True)
    assert again.keys == ["image.tif"]
    with pytest.raises(InvalidInputError):
        demo.run([], tmp_path / "nothing")


def test_a_wrong_pixel_is_found(
    made: demo.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("comal.demo.scenes.same_pixels", lambda first, second: False)
    source = made.folder / "scenes" / "cusco" / "mask.tif"
    with pytest.raises(comal.ComalError, match="pixels differ"):
        demo.run([source], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_command(tmp_path: Path, made: demo.Result) -> None:
    raster = made.folder / "scenes" / "namib" / "image.tif"
    out = tmp_path / "out"
    result = CliRunner().invoke(root, ["demo", str(raster), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert f"comal check {out / 'scenes.tacozip'}" in result.stdout
    result = CliRunner().invoke(root, ["demo", str(raster), "--out", str(out)])
    assert result.exit_code == 10
    line = ["demo", str(raster), "--out", str(out), "--overwrite", "--json"]
    summary = json.loads(CliRunner().invoke(root, line).stdout)
    assert summary["samples"] == 1
    assert Path(summary["sheet"]).is_file()


def test_scenes_are_what_they_say() -> None:
    place = next(place for place in scenes.PLACES if place.name == "manaus")
    first = scenes.make(place, 500_000, 9_000_000, seed=1, number=3)
    second = scenes.make(place, 500_000, 9_000_000, seed=1, number=3)
    other = scenes.make(place, 500_000, 9_000_000, seed=2, number=3)
    assert np.array_equal(first.image, second.image)
    assert not np.array_equal(first.image, other.image)
    assert first.image.shape == (4, scenes.SIZE, scenes.SIZE)
    assert first.image.dtype == np.uint16
    green = first.mask == scenes.TREES
    assert first.image[3][green].mean() > 3 * first.image[2][green].mean()


def test_contact_sheet_keeps_shapes_and_colours() -> None:
    red = np.zeros((3, 40, 90), np.uint8)
    red[0] = 200
    with open_raster(pipeline.contact_sheet([red] * 4, columns=2, width=100)) as sheet:
        shown = sheet.read()
    found = np.argwhere((shown == np.array([200, 0, 0])[:, None, None]).all(axis=0))
    assert len(found) == 4 * 40 * 90
    large = pipeline.contact_sheet([np.tile(red, (1, 10, 10))], columns=1)
    with open_raster(large) as sheet:
        assert sheet.width == 420 + 28
