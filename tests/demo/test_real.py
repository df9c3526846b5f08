"""The main job on real rasters: packed, and all of them back, from disk and over HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
import rasterio

import comal
from comal import taco
from comal.demo.pipeline import leaf_paths
from comal.demo.scenes import same_pixels
from tests.servers.http import HttpServer
from tests.support import SHARED

RASTERS = sorted((SHARED / "data").glob("*.tif"))
SMALL = [path for path in RASTERS if path.stat().st_size < 10_000_000][:4]

pytestmark = pytest.mark.skipif(not RASTERS, reason="real rasters are not beside the checkout")


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("real") / "real.tacozip"
    (written,) = taco.pack_folder(SHARED / "data", path, pattern="*.tif", id="real")
    return written


def test_bytes_and_pixels_from_disk(packed: Path) -> None:
    with comal.open(packed) as dataset:
        assert dataset.data.to_arrow()["id"].to_pylist() == [path.name for path in RASTERS]
        for path in RASTERS:
            assert dataset.data.read(path.name).startswith("/vsisubfile/")
            assert dataset.data.read_bytes(path.name) == path.read_bytes()
        for path in SMALL:
            assert same_pixels(dataset.data.read(path.name), path), path.name


def test_pixels_over_http(packed: Path, http_server: HttpServer) -> None:
    """Opening takes one round trip of two requests, a sample one request more."""
    url = http_server.serve_folder(packed.parent) + f"/{packed.name}"
    with rasterio.Env(GDAL_DISABLE_READDIR_ON_OPEN="EMPTY_DIR"), comal.open(url) as dataset:
        leaves = dict(leaf_paths(dataset))
        http_server.reset()
        assert dataset.data.read_bytes(SMALL[0].name) == SMALL[0].read_bytes()
        assert [seen.method for seen in http_server.requests] == ["GET"]
        for path in SMALL:
            assert leaves[path.name].endswith(f",/vsicurl/{url}")
            assert same_pixels(leaves[path.name], path), path.name
