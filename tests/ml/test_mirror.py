"""A mirror has the samples and leaves that were asked for, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner

from comal import ml, taco, tortilla
from comal.cli import root
from comal.errors import ConflictError, InvalidInputError
from tests.ml.made import items, nested, pixels


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_leaves_and_samples(tmp_path: Path, kind: str) -> None:
    source = nested(tmp_path, kind=kind)
    target = tmp_path / "part.tacozip"
    ml.mirror(source, target, fields=["mask.tif", "series/t?.tif"], where="label > 8")
    assert taco.check(target).ok
    with ZipFile(target) as archive:
        names = {name for name in archive.namelist() if name.startswith("DATA/s")}
        leaves = {name.split("/", 2)[2] for name in names if name.endswith(".tif")}
        assert archive.testzip() is None
    assert leaves == {"mask.tif", "series/t0.tif", "series/t1.tif", "series/t2.tif"}
    data = ml.dataset(target, {"mask": "mask.tif", "series": "series/*"}, columns=["label"])
    assert [sample["label"] for sample in data.head()] == [9, 10, 11]
    assert np.array_equal(data[1]["mask"], pixels(10, bands=1))
    assert data[1]["series"].shape == (3, 3, 16, 16)


def test_everything_and_a_tortilla(tmp_path: Path) -> None:
    for made in (nested(tmp_path), items(tmp_path)):
        target = tmp_path / f"copy{made.suffix}"
        ml.mirror(made, target, where="label % 2 = 0")
        fields: Any = {"image": "image.tif"}
        assert [int(one["image"][0, 0, 0]) for one in ml.dataset(target, fields).head(9)] == [
            0,
            2,
            4,
            6,
            8,
            10,
        ]
        with pytest.raises(ConflictError):
            ml.mirror(made, target)
        ml.mirror(made, target, overwrite=True)
        for fields in ("mask.tif", []):
            with pytest.raises(InvalidInputError, match="by a list"):
                ml.mirror(made, target, fields=fields)
        for leaves in (None, ["image.tif"]):
            with pytest.raises(InvalidInputError, match=r"(export|copy): [\s\S]*loosen"):
                ml.mirror(made, tmp_path / f"x{made.suffix}", fields=leaves, where="label < 0")
        for leaf in ("nope", "", "a/b/c"):
            with pytest.raises(InvalidInputError, match="no sample has this leaf"):
                ml.mirror(made, tmp_path / f"x{made.suffix}", fields=[leaf])


def test_leaves_of_a_tortilla(tmp_path: Path) -> None:
    """Nested files are written anew, with the columns of what they hold."""
    target = tmp_path / "part.tortilla"
    ml.mirror(items(tmp_path), target, fields=["mask.tif", "series/*1.tif"], where="label > 8")
    assert tortilla.check(target).ok
    found = dict(tortilla.open(target).walk())
    leaves = ("mask.tif", "series/t1.tif")
    assert list(found) == [f"s{number:03d}/{leaf}" for number in (9, 10, 11) for leaf in leaves]
    for name, place in found.items():
        number, is_mask = int(name[1:4]), name.endswith("mask.tif")
        with rasterio.open(place) as image:
            right = pixels(number, bands=1) if is_mask else pixels(number + 1)
            assert np.array_equal(image.read(), right)

    def sample(name: str, *below: str) -> tortilla.Sample:
        return tortilla.Sample(name, path=[tortilla.Sample(n, path=b"x", part=n[0]) for n in below])

    two = [sample("p", "b", "c"), sample("q", "a", "b")]
    parts = tortilla.create(two, tmp_path / "a.tortilla", chunk_rows=1).paths
    frame = tortilla.open(list(parts))
    ml.mirror(frame, target, fields=["b"], overwrite=True)
    nested = tortilla.open(target)[1]
    assert nested.to_arrow().select(["tortilla:id", "part"]).to_pylist() == [
        {"tortilla:id": "b", "part": "b"}
    ]
    with pytest.raises(InvalidInputError, match="not every sample has this leaf"):
        ml.mirror(frame, target, fields=["b", "c"], overwrite=True)


def test_the_command(tmp_path: Path) -> None:
    words = ["mirror", str(nested(tmp_path)), str(tmp_path / "m.tacozip"), "--fields", "image.tif"]
    result = CliRunner().invoke(root, [*words, "--where", "label < 2", "--json"])
    assert result.exit_code == 0, result.output
    assert '"samples": 2' in result.output
