"""Variables of NetCDF, HDF5 and Zarr files, by the names of GDAL and beside the path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from click.testing import CliRunner
from rasterio.shutil import copy

import comal
from comal.cli import root
from comal.errors import ComalError, InvalidInputError, ObjectNotFoundError
from comal.raster.describing import describe
from tests.raster.rasters import write

PIXELS = np.arange(2 * 40 * 50, dtype=np.int16).reshape(2, 40, 50)
AFFINE = (10.0, 0.01, 0.0, 50.0, 0.0, -0.01)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("variables of: all")  # a colon and blanks in the path
    write(made / "a.tif", PIXELS, crs="EPSG:4326", affine=AFFINE)
    for name, driver, more in (
        ("classic.nc", "netCDF", {}),
        ("four.nc", "netCDF", {"FORMAT": "NC4"}),
        ("cube.zarr", "Zarr", {}),
    ):
        copy(str(made / "a.tif"), str(made / name), driver=driver, **more)
    return made


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ('NETCDF:"{}/classic.nc":Band2', {}),
        ("netcdf:{}/classic.nc:Band2", {}),
        ('NETCDF:"{}/four.nc":Band2', {}),
        ("{}/classic.nc", {"variable": "Band2"}),
        ("{}/four.nc", {"variable": "Band2"}),
        ("{}/four.nc", {"variable": "/Band2"}),
    ],
)
def test_a_variable_is_a_raster(folder: Path, source: str, named: dict[str, Any]) -> None:
    info = describe(source.format(folder), **named)
    assert (info.width, info.height, len(info.bands)) == (50, 40, 1)
    made = comal.raquet.write(source.format(folder), folder / "a.parquet", overwrite=True, **named)
    with comal.raquet.open(made.path) as file:
        statistics = file.bands[0].statistics
        assert statistics is not None
        assert statistics.min is not None
        assert statistics.min >= PIXELS[1].min() - 1


@pytest.mark.parametrize(
    "source", ["{}/cube.zarr", 'ZARR:"{}/cube.zarr"', 'ZARR:"{}/cube.zarr":/cube']
)
def test_a_zarr_is_one(folder: Path, source: str) -> None:
    info = describe(source.format(folder), crs="EPSG:4326")
    assert (info.width, info.height, len(info.bands)) == (50, 40, 2)
    with rasterio.open(folder / "cube.zarr") as dataset:
        assert info.transform == tuple(dataset.transform)[:6]


@pytest.mark.parametrize(
    ("source", "variable", "kind", "text"),
    [
        ("{}/classic.nc", None, InvalidInputError, "several variables"),
        ("{}/four.nc", "Band9", InvalidInputError, "no such variable"),
        # HDF5 knows no CF: the file has a place for NetCDF alone.
        ('HDF5:"{}/four.nc"://Band2', None, InvalidInputError, "coordinate reference system"),
        ('NETCDF:"{}/four.nc":Band9', None, InvalidInputError, "'Band1', 'Band2'"),
        ('NETCDF:"{}/four.nc":Band1', "Band2", InvalidInputError, "two different variables"),
        ("{}/a.tif", "Band1", InvalidInputError, "has no variables"),
        ("{}/none.nc", "Band1", ObjectNotFoundError, "none.nc"),
        ('NETCDF:"{}/none.nc":Band1', None, ObjectNotFoundError, "none.nc"),
        ('NETCDF:"https://example.org/a.nc":v', None, InvalidInputError, "remote file"),
        ("https://example.org/a.nc", "v", InvalidInputError, "remote file"),
        ('NETCDF:"/vsicurl/https://example.org/a.nc":v', None, ComalError, "vsicurl"),
        ("{}/four.nc", 'a"b', InvalidInputError, "name of a variable"),
    ],
)
def test_what_is_none_is_told(
    folder: Path, source: str, variable: str | None, kind: type[ComalError], text: str
) -> None:
    with pytest.raises(kind, match=text):
        describe(source.format(folder), variable=variable)


def test_steps_in_time_are_told_of(tmp_path: Path) -> None:
    tags = {"NETCDF_DIM_EXTRA": "{time}", "NETCDF_DIM_time_DEF": "{2,6}"}
    tags |= {"NETCDF_DIM_time_VALUES": "{0,31}", "time#units": "days since 2000-01-01"}
    path = write(tmp_path / "a.tif", PIXELS, crs="EPSG:4326", affine=AFFINE)
    with rasterio.open(path, "r+") as dataset:
        dataset.update_tags(**tags)
        for band, day in ((1, "0"), (2, "31")):
            dataset.update_tags(band, NETCDF_VARNAME="sst", NETCDF_DIM_time=day)
    copy(str(path), str(tmp_path / "a.nc"), driver="netCDF")
    with pytest.warns(UserWarning, match="2 steps in time become bands; open the file with xarray"):
        made = comal.raquet.write(tmp_path / "a.nc", tmp_path / "a.parquet", variable="sst")
    assert len(made.bands) >= 2


def test_on_the_command_line(folder: Path) -> None:
    nc, out = folder / "four.nc", folder / "out.parquet"
    for arguments in (
        ["raquet", "create", str(nc), str(out), "--variable", "Band2"],
        ["raquet", "create", f'NETCDF:"{nc}":Band2', str(out)],
        ["convert", str(nc), str(out), "--variable", "Band2"],
        ["convert", f'NETCDF:"{nc}":Band2', str(out)],
    ):
        result = CliRunner().invoke(root, [*arguments, "--overwrite"])
        assert result.exit_code == 0, result.output
    result = CliRunner().invoke(root, ["convert", str(folder), "a.tacozip", "--variable", "x"])
    assert result.exit_code != 0


def test_a_variable_of_a_dataset(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    coords = {"y": 50 - 0.01 * np.arange(20), "x": 10 + 0.01 * np.arange(20)}
    one = xr.DataArray(np.ones((20, 20)), dims=("y", "x"), coords=coords)
    data = xr.Dataset({"a": one, "b": one.astype("int16") * 7})
    named: dict[str, Any] = {"crs": "EPSG:4326", "overwrite": True, "nodata": 0}
    for source in (data, data["b"]):
        made = comal.raquet.write(source, tmp_path / "a.parquet", variable="b", **named)
        with comal.raquet.open(made.path) as file:
            assert [band.name for band in file.bands] == ["b"]
            assert file.bands[0].dtype == "int16"
    with pytest.raises(InvalidInputError, match="no such variable"):
        comal.raquet.write(data, tmp_path / "a.parquet", variable="c", **named)
