"""Whatever goes wrong, the error says it and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rasterio.control import GroundControlPoint
from rasterio.rpc import RPC

import comal.raquet
from comal.errors import (
    ComalError,
    ConflictError,
    InvalidInputError,
    InvalidMetadataError,
    NotThisFormatError,
    ObjectNotFoundError,
)
from comal.raquet.writing import job as jobs
from tests.raquet.writing.sources import noise, on_grid, utm
from tests.raster.rasters import write as write_tiff


def _refused(
    tmp_path: Path, source: Any, kind: type[ComalError], text: str, **options: Any
) -> ComalError:
    target = tmp_path / "out.parquet"
    before = set(tmp_path.iterdir())
    with pytest.raises(kind, match=text) as caught:
        comal.raquet.write(source, target, **{"block_size": 32, **options})
    assert set(tmp_path.iterdir()) == before
    return caught.value


def test_a_crs_that_is_missing_or_none(tmp_path: Path) -> None:
    source = write_tiff(tmp_path / "a.tif", noise((40, 40), "uint8"), crs=None)
    assert "crs=" in str(_refused(tmp_path, source, InvalidInputError, "coordinate reference"))
    # One that is not needed must be one as well.
    for path in (source, utm(tmp_path / "b.tif", noise((40, 40), "uint8"))):
        _refused(tmp_path, path, InvalidInputError, "invalid CRS", crs="EPSG:nonsense")
    made = comal.raquet.write(source, tmp_path / "out.parquet", crs="EPSG:32718")
    assert made.bounds[3] < 0


POLAR = (-50_000, 1000, 0, 50_000, 0, -1000)


@pytest.mark.parametrize(
    ("pixels", "named", "text"),
    [
        (noise((40, 40), "uint8"), {"affine": None, "crs": None}, "not georeferenced"),
        (np.ones((40, 40), np.complex64), {}, "complex"),
        (np.zeros((40, 40), np.uint8), {"nodata": 0}, "no pixel"),
        (noise((100, 100), "uint8"), {"crs": "EPSG:3031", "affine": POLAR}, "Web Mercator"),
    ],
)
def test_rasters_that_cannot_be(tmp_path: Path, pixels: Any, named: Any, text: str) -> None:
    source = write_tiff(tmp_path / "a.tif", pixels, **{"crs": "EPSG:32632", **named})
    options = {"crs": "EPSG:32632"} if named.get("crs", "") is None else {}
    _refused(tmp_path, source, InvalidInputError, text, **options)


def test_no_raster(tmp_path: Path) -> None:
    (tmp_path / "a.tif").write_bytes(b"no raster" * 100)
    _refused(tmp_path, tmp_path / "a.tif", NotThisFormatError, "not a raster")
    _refused(tmp_path, tmp_path / "b.tif", ObjectNotFoundError, "cannot be opened")
    _refused(tmp_path, [], InvalidInputError, "nothing is given")
    _refused(tmp_path, 5, InvalidInputError, "not a list")


@pytest.mark.parametrize("cut", [0.3, 0.95])
@pytest.mark.parametrize("make", [utm, on_grid])
def test_truncated_files(tmp_path: Path, cut: float, make: Callable[..., Path]) -> None:
    source = make(
        tmp_path / "a.tif",
        noise((300, 300), "uint8"),
        tiled=True,
        blockxsize=64,
        blockysize=64,
        compress="deflate",
    )
    data = source.read_bytes()
    # The directory is at the front, so that the file opens and fails later.
    source.write_bytes(data[: int(len(data) * cut)])
    error = _refused(tmp_path, source, InvalidMetadataError, "raster cannot be read")
    assert "cut off" in str(error.hint)


@pytest.mark.parametrize("at", [0, 2])
def test_a_worker_that_dies_ends_the_job(
    tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = utm(tmp_path / "a.tif", noise((700, 700), "uint8"))
    calls = []
    real = jobs.Job.encoded

    def failing(*args: Any) -> list[bytes]:
        calls.append(1)
        if len(calls) > 20 * at:
            raise MemoryError("injected")
        return real(*args)

    monkeypatch.setattr(jobs.Job, "encoded", failing)
    before = set(tmp_path.iterdir())
    with pytest.raises(MemoryError, match="injected"):
        comal.raquet.write(source, tmp_path / "out.parquet", block_size=32)
    with ThreadPoolExecutor(2) as executor, pytest.raises(MemoryError, match="injected"):
        comal.raquet.write(source, tmp_path / "out.parquet", block_size=32, executor=executor)
    assert set(tmp_path.iterdir()) == before


def test_a_source_whose_name_says_no_format_is_no_target(tmp_path: Path) -> None:
    source = utm(tmp_path / "a.tif", noise((40, 40), "uint8")).rename(tmp_path / "a")
    with pytest.raises(ConflictError, match="is the source"):
        comal.raquet.write(source, source, overwrite=True)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"spec_version": "0.4.0"}, "version"),
        ({"zoom": 27}, "zoom"),
        ({"zoom": 3, "min_zoom": 5}, "minimum zoom"),
        ({"min_zoom": 25}, "minimum zoom"),
        ({"zoom_strategy": "best"}, "strategy"),
        ({"block_size": 48}, "block size"),
        ({"compression": "zstd"}, "compression"),
        ({"layout": "diagonal"}, "layout"),
        ({"layout": "interleaved"}, "interleaved"),
        ({"compression": "jpeg", "spec_version": "0.5.0"}, "interleaved"),
        ({"tile_statistics": True}, "tile statistics"),
        ({"resampling": "sharp"}, "resampling"),
        ({"overview_resampling": "bilinear"}, "overview resampling"),
        ({"level": 13}, "level"),
        ({"quality": 0}, "quality"),
        ({"row_group_size": 0}, "row group"),
        ({"block_dtype": "float64"}, "block"),
        ({"bands": [3]}, "no such band"),
        ({"bands": ["red"]}, "no such band"),
        ({"bands": []}, "no band is chosen"),
        ({"bands": {}}, "no band is chosen"),
        ({"bands": {"block": 1}}, "not a band name"),
        ({"bands": {"": 1}}, "not a band name"),
        ({"nodata": 256}, "cannot hold"),
        ({"nodata": "x"}, "not a number"),
        ({"nodata": [1, 2]}, "not a number"),
        ({"nodata": {"other": 1}}, "not written"),
        ({"time": ["2020-01-01", "2021-01-01"]}, "do not fit"),
        ({"colour": "red"}, "unknown option"),
    ],
)
def test_options_that_cannot_be(tmp_path: Path, options: dict[str, Any], text: str) -> None:
    source = utm(tmp_path / "a.tif", noise((40, 40), "uint8"))
    _refused(tmp_path, source, InvalidInputError, text, **options)


def test_classes_are_never_mixed(tmp_path: Path) -> None:
    pixels = np.where(np.random.default_rng(0).random((300, 300)) < 0.5, 1, 10).astype(np.uint8)
    source = utm(tmp_path / "a.tif", pixels, colours={1: (1, 2, 3, 255), 10: (4, 5, 6, 255)})
    _refused(tmp_path, source, InvalidInputError, "classes", resampling="bilinear")
    _refused(tmp_path, source, InvalidInputError, "classes", overview_resampling="average")
    path = tmp_path / "out.parquet"
    comal.raquet.write(source, path, block_size=32, min_zoom=8)
    with comal.raquet.open(path) as raster:
        for cell in raster.cells().tolist():
            from comal.grid import quadbin

            assert set(np.unique(raster.tile(*quadbin.tiles(cell)))) <= {0, 1, 10}


def test_finer_than_the_last_zoom(tmp_path: Path) -> None:
    affine = (600_000, 0.0005, 0, 5_300_000, 0, -0.0005)
    source = write_tiff(
        tmp_path / "a.tif", noise((40, 40), "uint8"), crs="EPSG:32632", affine=affine
    )
    with pytest.warns(UserWarning, match="finer than zoom 26"):
        made = comal.raquet.write(source, tmp_path / "a.parquet")
    assert made.max_zoom == 26


def test_rasters_that_must_be_rectified_first(tmp_path: Path) -> None:
    """GCPs and RPCs: their CRS is not that of a transform, and must not be asked for."""
    corners = [(0, 0, 10.0, 50.0), (0, 40, 11.0, 50.2), (40, 0, 10.1, 49.0), (40, 40, 11.2, 49.1)]
    points = [GroundControlPoint(row, column, x, y) for row, column, x, y in corners]
    line = [1.0, *[0.0] * 19]
    rational = RPC(0, 1, 50, 1, line, line, 20, 20, 10, 1, line, line, 20, 20, 0, 0)
    kinds: dict[str, dict[str, Any]] = {
        "control points": {"gcps": points, "crs": "EPSG:4326"},
        "RPC": {"rpcs": rational},
    }
    for told, change in kinds.items():
        pixels = np.ones((40, 40), "uint8")
        path = write_tiff(tmp_path / "a.tif", pixels, affine=None, **change)
        for crs in (None, "EPSG:32632"):
            error = _refused(tmp_path, path, InvalidInputError, "not georeferenced", crs=crs)
            assert told in str(error.found)
            assert "gdalwarp" in str(error.hint)
