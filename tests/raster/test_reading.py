from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import rasterio

from comal import raster
from comal.errors import NotThisFormatError, ObjectNotFoundError
from tests.raster.rasters import write
from tests.support import SHARED, needs_shared


def test_columns(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.tif", np.zeros((2, 5, 7), np.int16), nodata=-9999)
    nan = write(tmp_path / "b.tif", np.zeros((5, 7), np.float32), nodata=np.nan, crs="EPSG:4326")
    bare = write(tmp_path / "c.png", np.zeros((5, 7), np.uint8), driver="PNG", affine=None)
    rotated = (10.0, 0.5, 0.25, 50.0, 0.25, -0.5)
    turned = write(tmp_path / "d.tif", np.zeros((5, 7), np.uint16), affine=rotated)
    found = raster.headers([plain, nan, bare.read_bytes(), str(turned)])
    assert found["crs"].to_pylist() == ["EPSG:32718", "EPSG:4326", None, "EPSG:32718"]
    assert found["shape"].to_pylist() == [[2, 5, 7], [1, 5, 7], [1, 5, 7], [1, 5, 7]]
    assert found["geotransform"].to_pylist() == [
        [300000, 10, 0, 8700000, 0, -10],
        [300000, 10, 0, 8700000, 0, -10],
        None,
        list(rotated),
    ]
    assert found["dtype"].to_pylist() == ["int16", "float32", "uint8", "uint16"]
    nodata = found["nodata"].to_pylist()
    assert nodata[0] == -9999
    assert np.isnan(nodata[1])
    assert nodata[2:] == [None, None]
    assert found["driver"].to_pylist() == ["GTiff", "GTiff", "PNG", "GTiff"]


def test_crs_of_no_authority_is_wkt(tmp_path: Path) -> None:
    own = "+proj=laea +lat_0=12 +lon_0=34 +datum=WGS84 +units=m"
    crs = raster.header(write(tmp_path / "a.tif", np.zeros((2, 2), np.uint8), crs=own)).crs
    assert crs is not None
    assert not crs.startswith("EPSG")
    assert rasterio.CRS.from_user_input(crs) == rasterio.CRS.from_string(own)


def test_every_executor_keeps_the_order_and_names_the_file(
    tmp_path: Path, processes: Executor
) -> None:
    paths = [write(tmp_path / f"{n}.tif", np.zeros((n, 2), np.uint8)) for n in range(1, 200)]
    expected = [[1, n, 2] for n in range(1, 200)]
    bad = tmp_path / "bad.tif"
    bad.write_bytes(b"nothing")
    assert raster.headers([]).num_rows == 0
    with ThreadPoolExecutor(3) as threads:
        for executor in (None, threads, processes):
            assert raster.headers(iter(paths), executor)["shape"].to_pylist() == expected
            with pytest.raises(NotThisFormatError, match=r"bad\.tif"):
                raster.headers([*paths[:100], bad, *paths[100:]], executor)
            with pytest.raises(ObjectNotFoundError, match=r"gone\.tif"):
                raster.headers([*paths[:100], tmp_path / "gone.tif"], executor)


@needs_shared
def test_real_rasters_agree_with_rasterio() -> None:
    paths = sorted((SHARED / "data").glob("*.tif"))
    found = raster.headers(paths)
    for path, row in zip(paths, found.to_pylist(), strict=True):
        with rasterio.open(path) as dataset:
            assert row["shape"] == [dataset.count, *dataset.shape]
            assert row["geotransform"] == list(dataset.transform.to_gdal())
            assert rasterio.CRS.from_user_input(row["crs"]) == dataset.crs
            assert row["dtype"] == dataset.dtypes[0]
