"""The main job on real rasters: packed, and each pixel back, from disk and over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
import rasterio

import comal
from comal import demo
from comal.demo.pipeline import leaf_paths
from comal.demo.scenes import same_pixels
from tests.servers.http import HttpServer
from tests.support import SHARED

RASTERS = sorted((SHARED / "data").glob("*.tif"))

pytestmark = pytest.mark.skipif(not RASTERS, reason="real rasters are not beside the checkout")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> demo.Result:
    return demo.run(RASTERS, tmp_path_factory.mktemp("real") / "out")


def test_pixels_from_disk(packed: demo.Result) -> None:
    assert packed.keys == [path.name for path in RASTERS]
    with comal.open(packed.archive) as dataset:
        for path in RASTERS:
            vsi = dataset.data.read(path.name)
            assert vsi.startswith("/vsisubfile/")
            assert same_pixels(vsi, path), path.name
            assert dataset.data.read_bytes(path.name) == path.read_bytes()


def test_pixels_over_http(packed: demo.Result, http_server: HttpServer) -> None:
    url = http_server.serve_folder(packed.folder) + "/scenes.tacozip"
    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), comal.open(url) as dataset:
        leaves = dict(leaf_paths(dataset))
        assert sorted(leaves) == [path.name for path in RASTERS]
        for path in RASTERS:
            assert leaves[path.name].endswith(f",/vsicurl/{url}")
            assert same_pixels(leaves[path.name], path), path.name


def test_ranges_over_http(packed: demo.Result, http_server: HttpServer) -> None:
    """Opening takes one round trip of two requests, a sample one request more."""
    url = http_server.serve_folder(packed.folder) + "/scenes.tacozip"
    with comal.open(url) as dataset:
        frame = dataset.data
        http_server.reset()
        name = "landsat8_b_uint16_utm18.tif"
        assert frame.read_bytes(name) == (SHARED / "data" / name).read_bytes()
        assert [seen.method for seen in http_server.requests] == ["GET"]


def test_every_raster_has_a_picture(packed: demo.Result) -> None:
    assert [Path(path).stem for path in packed.pictures] == [path.stem for path in RASTERS]
    assert all(path.stat().st_size > 500 for path in packed.pictures)
