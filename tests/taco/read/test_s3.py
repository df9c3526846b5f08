"""A dataset in an object store: opened, queried, read by comal and by GDAL, exported, checked."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio

from comal import taco
from tests.raster.rasters import write

if TYPE_CHECKING:
    from tests.servers.s3 import S3Server


@pytest.fixture
def local(tmp_path: Path) -> Path:
    """Three scenes of one raster each, as a ZIP."""
    for number in (2, 10, 1):
        (tmp_path / "in" / f"s{number}").mkdir(parents=True)
        pixels = np.full((10, 20), number, np.uint16)
        affine = (5e5 + 1e4 * number, 10, 0, 1e4, 0, -10)
        write(tmp_path / f"in/s{number}/image.tif", pixels, crs="EPSG:32631", affine=affine)
    taco.pack_folder(tmp_path / "in", tmp_path / "x.tacozip", id="s3")
    return tmp_path / "x.tacozip"


@pytest.fixture
def gdal(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What GDAL needs to know of the server; comal has it in its configuration."""
    for name, value in {
        "AWS_S3_ENDPOINT": s3_server.endpoint.partition("://")[2],
        "AWS_HTTPS": "NO",
        "AWS_VIRTUAL_HOSTING": "FALSE",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("gdal")
def test_open_query_read_export_and_check(s3_server: S3Server, local: Path, tmp_path: Path) -> None:
    href = s3_server.put("read/x.tacozip", local.read_bytes())
    with taco.load(href, config=s3_server.config) as dataset:
        found = dataset.sql("SELECT * FROM data WHERE id <> 's1'")
        assert found.data.to_arrow().column("id").to_pylist() == ["s10", "s2"]
        for number in (10, 2):
            children = found.data.read(f"s{number}")
            image = tmp_path / "in" / f"s{number}" / "image.tif"
            assert children.read_bytes("image.tif") == image.read_bytes()
            path = children.read("image.tif")
            assert path.startswith("/vsisubfile/")
            assert "/vsis3/" in path
            with rasterio.open(path) as opened:
                assert (opened.read() == number).all()
        out = taco.export(found, tmp_path / "out.tacozip", quiet=True)
    assert taco.check(out).ok
    assert taco.load(out).collection["taco:subset_of"] == "s3"
    assert taco.check(href, config=s3_server.config).ok
    copy = taco.zip2folder(href, tmp_path / "copy", quiet=True, config=s3_server.config)
    image = tmp_path / "in" / "s10" / "image.tif"
    assert (copy / "DATA" / "s10" / "image.tif").read_bytes() == image.read_bytes()


@pytest.mark.usefixtures("gdal")
def test_folders_and_indexes(s3_server: S3Server, local: Path, tmp_path: Path) -> None:
    folder = taco.zip2folder(local, tmp_path / "folder", quiet=True)
    for path in folder.rglob("*"):
        if path.is_file():
            s3_server.put(f"folder/{path.relative_to(folder).as_posix()}", path.read_bytes())
    image = (tmp_path / "in" / "s2" / "image.tif").read_bytes()
    with taco.load(s3_server.url_for("folder"), config=s3_server.config) as dataset:
        assert dataset.data.read("s2").read_bytes("image.tif") == image
        with rasterio.open(dataset.data.read("s2").read("image.tif")) as opened:
            assert (opened.read() == 2).all()
    (tmp_path / "index").mkdir()
    (path,) = taco.create_tacocat([local], tmp_path / "index", form="binary")
    index = s3_server.put(f"elsewhere/{path.name}", path.read_bytes())
    s3_server.put(f"parts/{local.name}", local.read_bytes())
    base = s3_server.url_for("parts")
    with taco.load(index, base_path=base, config=s3_server.config) as dataset:
        assert dataset.data.read("s2").read_bytes("image.tif") == image


def test_a_dataset_that_was_used_survives_a_fork(s3_server: S3Server, local: Path) -> None:
    href = s3_server.put("fork/x.tacozip", local.read_bytes())
    with taco.load(href, config=s3_server.config, tail=1000) as dataset:
        wanted = dataset.data.read("s2").read_bytes("image.tif")
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
            found = list(pool.map(_image, [dataset] * 2, ["s2", "s10"]))
        assert found[0] == wanted
        assert found[1] == _image(dataset, "s10") != wanted


def _image(dataset: taco.TacoDataset, name: str) -> Any:
    return dataset.data.read(name).read_bytes("image.tif")
