"""Figures of samples, by the pixels that they show."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from comal import ml, taco
from comal.errors import InvalidInputError, MissingExtraError, NotInContainerError
from tests.ml.made import geotiff, nested, pack

if not os.environ.get("CI"):  # with CI=true its absence is a failure
    pytest.importorskip("matplotlib")

COLUMNS = ["split", "cover", "place"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Any:
    random = np.random.default_rng(1)
    samples = []
    for number in range(5):
        image = random.integers(100, 900, (4, 8, 8)).astype(np.uint16)
        image[:, 0, 0] = 0
        mask = np.arange(64).reshape(1, 8, 8).astype(np.uint8) // 16 + number
        leaves = [
            taco.Sample(id="image.tif", path=geotiff(image, nodata=0)),
            taco.Sample(id="mask.tif", path=geotiff(mask, nodata=3)),
            taco.Sample(id="colour.tif", path=geotiff(image[:3].astype(np.uint8))),
        ]
        samples.append(
            taco.Sample(
                id=f"s${number}$",
                path=taco.Tortilla(leaves),
                split="train",
                cover=number / 3,
                place=None if number else "here",
            )
        )
    path = pack(tmp_path_factory.mktemp("made") / "made.tacozip", samples)
    names = {"image": "image.tif", "mask": "mask.tif", "colour": "colour.tif"}
    return ml.dataset(path, names, columns=COLUMNS, transform=lambda sample: sample["id"])


def shown(figure: Any) -> list[dict[str, Any]]:
    """For each sample of a figure the drawn pixels by title."""
    return [
        {one.get_title(): np.asarray(one.images[0].get_array()) for one in part.axes if one.images}
        for part in figure.subfigs
    ]


def test_a_sample_with_its_image_and_mask(data: Any) -> None:
    figure = data.plot(1)
    (found,) = shown(figure)
    assert list(found) == ["image", "mask", "colour"]
    image = found["image"]
    assert image.dtype == np.uint8
    assert image.shape == (8, 8, 4)
    assert image[0, 0, 3] == 0  # nodata is left white
    assert (image[..., 3] > 0).sum() == 63
    assert {image[..., :3].min(), image[..., :3].max()} == {0, 255}
    (part,) = figure.subfigs
    assert part.get_suptitle() == "s$1$"
    assert figure._repr_png_()[:4] == b"\x89PNG"
    assert figure.savefig(os.devnull, format="png") is None


def test_bands_and_stretch(data: Any) -> None:
    pixels = data.masked()[2]["image"].data
    found = shown(data.plot(2, bands={"image": [4, 1, 2]}))[0]["image"]
    for place, band in enumerate([3, 0, 1]):
        values = pixels[band].astype(float)
        inside = values > 0
        low, high = np.percentile(values[inside], (2, 98))
        right = np.round(255 * np.clip((values - low) / (high - low), 0, 1))
        assert np.array_equal(found[inside][:, place], right[inside])
    grey = shown(data.plot(2, bands={"image": [4]}))[0]["image"]
    assert np.array_equal(grey[..., 0], grey[..., 2])
    colour = shown(data.plot(2))[0]["colour"]
    assert np.array_equal(colour[..., :3], data.masked()[2]["colour"].data.transpose(1, 2, 0))


def test_classes_have_the_same_colours_in_all_samples(data: Any) -> None:
    figure = data.grid([0, -1, 2, 1], classes={"mask": {2: "water"}})
    found = shown(figure)
    colours: dict[int, set[Any]] = {}
    for number, one in zip((0, 4, 2, 1), found, strict=False):
        values = np.arange(64).reshape(8, 8) // 16 + number
        for value in np.unique(values):
            drawn = {tuple(pixel) for pixel in one["mask"][values == value]}
            assert len(drawn) == 1
            colours.setdefault(int(value), set()).update(drawn)
    assert colours.pop(3) == {(1.0, 1.0, 1.0, 1.0)}  # nodata
    assert all(len(one) == 1 for one in colours.values())
    assert len(set.union(*colours.values())) == len(colours)
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["0", "1", "water", "4", "5", "6", "7"]
    assert len(figure.subfigs) == 6


def test_series_are_drawn_one_by_one(tmp_path: Path) -> None:
    fields = {"x": "series/*.tif", "about": "about.json"}
    (found,) = shown(ml.dataset(nested(tmp_path, 2), fields).plot(0))
    assert list(found) == ["x 0", "x 1", "x 2"]


def test_complex_numbers_are_drawn_by_their_magnitude(tmp_path: Path) -> None:
    turns = np.exp(1j * np.arange(64).reshape(1, 8, 8))
    values = np.hypot(*np.mgrid[0:8, 0:8])[None]
    leaves = [turns * values, values]
    samples = [taco.Sample(f"{at}.tif", geotiff(one, predictor=1)) for at, one in enumerate(leaves)]
    data = ml.dataset(pack(tmp_path / "a.tacozip", samples))
    (radar,), (plain,) = (one.values() for one in shown(data.grid([0, 1])))
    assert np.abs(radar.astype(int) - plain).max() <= 1


def test_what_cannot_be_drawn(data: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotInContainerError):
        data.plot(5)
    with pytest.raises(InvalidInputError, match="no images to draw"):
        data.grid([])
    for bands in ([5], [0], [1, 2]):
        with pytest.raises(InvalidInputError, match="no such bands of 'image'"):
            data.plot(0, bands={"image": bands})
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.delitem(sys.modules, "comal.ml.plotting")
    with pytest.raises(MissingExtraError, match=r"comal\[plot\]"):
        data.plot(0)
