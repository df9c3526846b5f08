"""Arrays of xarray, time series, the antimeridian and masks."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import comal.raquet
from comal.errors import InvalidInputError, ObjectNotFoundError
from comal.raquet.times import time_axis
from tests.raquet.writing.sources import assembled, noise, on_grid, utm
from tests.servers.http import HttpServer

xr = pytest.importorskip("xarray")


def _series(count: int = 4, dtype: str = "float32") -> Any:
    values = noise((count, 45, 90), dtype)
    return xr.DataArray(
        values,
        dims=("time", "lat", "lon"),
        coords={
            "time": np.datetime64("2020-01-01", "ns") + np.arange(count) * np.timedelta64(1, "D"),
            "lat": 88.0 - 4 * np.arange(45),
            "lon": -178.0 + 4 * np.arange(90),
        },
        name="sst",
        attrs={"units": "K", "long_name": "temperature"},
    )


def _write(tmp_path: Path, source: Any, **options: Any) -> Path:
    path = tmp_path / "a.parquet"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the raster reaches beyond")
        comal.raquet.write(source, path, **{"block_size": 64, "overwrite": True, **options})
    return path


def test_a_series_has_a_row_for_each_tile_and_step(tmp_path: Path) -> None:
    series = _series()
    path = _write(tmp_path, series)
    table = pq.read_table(path)
    assert table.column_names == ["block", "metadata", "time_cf", "time_ts", "band_1"]
    assert table["time_cf"][0].as_py() is None
    keys = list(zip(table["block"].to_pylist()[1:], table["time_cf"].to_pylist()[1:], strict=True))
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)
    document = json.loads(table["metadata"][0].as_py())
    assert document["time"]["count"] == 4
    assert document["time"]["resolution"] == "P1D"
    assert document["num_blocks"] == len({key[0] for key in keys if (key[0] >> 52) & 31 == 0})
    with comal.raquet.open(path) as raster:
        assert raster.times is not None
        assert raster.times.stamps.astype("datetime64[ns]").tolist() == series.time.values.tolist()
        statistics = raster.bands[0].statistics
        assert statistics is not None
        assert statistics.count is not None
        steps = []
        for step in range(4):
            only = _write(tmp_path / "..", series.isel(time=step, drop=True))
            with comal.raquet.open(only) as one:
                assert one.bands[0].statistics is not None
                steps.append(one.bands[0].statistics.count)
                z = one.metadata.max_zoom
                np.testing.assert_array_equal(raster.tile(z, 0, 0, time=step), one.tile(z, 0, 0))
        assert statistics.count == sum(count or 0 for count in steps)
    assert comal.raquet.check(path, level="full").ok


def test_calendars_of_models_have_no_instants(tmp_path: Path) -> None:
    cftime = pytest.importorskip("cftime")
    series = _series(3)
    times = [cftime.Datetime360Day(2000, 2, day) for day in (1, 15, 30)]
    path = _write(tmp_path, series.assign_coords(time=("time", times)))
    table = pq.read_table(path)
    assert table["time_ts"].null_count == table.num_rows
    with comal.raquet.open(path) as raster:
        assert raster.times is not None
        assert raster.times.calendar == "360_day"
        assert np.diff(raster.times.values).tolist() == [14, 15]


def test_files_become_the_steps_of_a_series(tmp_path: Path) -> None:
    sources = [on_grid(tmp_path / f"{n}.tif", noise((64, 64), "uint8", n)) for n in range(2)]
    path = _write(tmp_path, sources, time=["2024-05-01", "2023-05-01"])
    with comal.raquet.open(path) as raster:
        assert raster.times is not None
        assert [str(stamp)[:4] for stamp in raster.times.stamps] == ["2023", "2024"]
        z = raster.metadata.max_zoom
        from comal.grid import quadbin

        tile = quadbin.tiles(int(raster.cells(z)[0]))
        first = raster.tile(*tile, time="2024-05-01")
    alone = _write(tmp_path, sources[0])
    with comal.raquet.open(alone) as raster:
        np.testing.assert_array_equal(raster.tile(*tile), first)


def test_variables_of_a_dataset_are_bands_of_their_own_types(tmp_path: Path) -> None:
    coords = {"y": 5e6 - 100.0 * np.arange(50), "x": 6e5 + 100.0 * np.arange(60)}
    data = xr.Dataset(
        {
            "classes": (("y", "x"), noise((50, 60), "uint8"), {"_FillValue": 7}),
            "height": (("y", "x"), noise((50, 60), "float64"), {"scale_factor": 0.5}),
            "water": (("y", "x"), noise((50, 60), "uint8"), {}, {"_FillValue": 9}),
        },
        coords=coords,
        attrs={"crs": "EPSG:32632"},
    )
    path = _write(tmp_path, data)
    with comal.raquet.open(path) as raster:
        kinds = [(band.name, band.dtype, band.scale) for band in raster.bands]
        assert kinds[:2] == [("classes", "uint8", None), ("height", "float64", 0.5)]
        assert (raster.bands[0].nodata, raster.bands[2].nodata) == (7, 9)
        assert np.isnan(raster.bands[1].nodata or 0)
    assert comal.raquet.check(path, level="full").ok


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of affine, in rioxarray
def test_an_array_gives_the_tiles_of_the_same_geotiff(tmp_path: Path) -> None:
    rioxarray = pytest.importorskip("rioxarray")
    pixels = noise((2, 150, 200), "int16")
    source = utm(tmp_path / "a.tif", pixels, nodata=-1)
    file = _write(tmp_path, source)
    right = assembled(file)[0]
    with rioxarray.open_rasterio(source) as array:
        found = assembled(_write(tmp_path, array))[0]
    np.testing.assert_array_equal(found, right)


def test_float16_stays_or_becomes_wider(tmp_path: Path) -> None:
    step = 2 * np.pi * 6378137 / 2**15
    half = np.pi * 6378137
    array = xr.DataArray(
        noise((64, 64), "float32").astype(np.float16),
        dims=("y", "x"),
        coords={
            "y": half - (10_240.5 + np.arange(64)) * step,
            "x": (16_384.5 + np.arange(64)) * step - half,
        },
        attrs={"crs": "EPSG:3857"},
    )
    for version, dtype in (("0.1.0", "float32"), ("0.5.0", "float16")):
        path = _write(tmp_path, array, spec_version=version)
        whole, _, _ = assembled(path)
        assert whole.dtype == dtype
        np.testing.assert_array_equal(whole[0], array.values.astype(dtype))


def test_arrays_without_a_place(tmp_path: Path) -> None:
    plain = xr.DataArray(np.ones((4, 4)), dims=("y", "x"))
    with pytest.raises(InvalidInputError, match="coordinate reference"):
        _write(tmp_path, plain)
    with pytest.raises(InvalidInputError, match="coordinates"):
        _write(tmp_path, plain, crs="EPSG:32632")
    crooked = plain.assign_coords(x=[0.0, 1.0, 5.0, 6.0], y=[3.0, 2.0, 1.0, 0.0])
    with pytest.raises(InvalidInputError, match="regular"):
        _write(tmp_path, crooked, crs="EPSG:32632")
    with pytest.raises(InvalidInputError, match="spatial"):
        _write(tmp_path, xr.DataArray(np.ones(3), dims=("row",)))
    placed = plain.assign_coords(x=[0.0, 1, 2, 3], y=[3.0, 2, 1, 0])
    with pytest.raises(InvalidInputError, match=r"attribute .* not the number"):
        _write(tmp_path, placed.assign_attrs(scale_factor="abc"), crs="EPSG:32632")
    with pytest.raises(InvalidInputError, match="coordinates are not numbers"):
        _write(tmp_path, placed.assign_coords(x=list("abcd")), crs="EPSG:32632")


def test_times_that_cannot_be() -> None:
    second = time_axis([0, 1], {"units": "hours since 2000-1-1 0:0:0"}).stamps[1]
    assert second == np.datetime64("2000-01-01T01:00", "us")
    for values, attributes, text in (
        ([1, 2], {}, "without units"),
        ([1, 2], {"units": "fortnights"}, "CF units"),
        ([0.5, 2], {"units": "months since 2000-01-01"}, "fraction of a month"),
        (["2020-01-01"], {"units": "months since 2000-01-01"}, "fixed length"),
        ([1, 2], {"units": "days since 2000-01-01", "calendar": "maya"}, "calendar"),
        (["2020-01-01", "2020-01-01"], {}, "same time"),
    ):
        with pytest.raises(InvalidInputError, match=text):
            time_axis(values, attributes)


def test_a_raster_on_a_server(tmp_path: Path, http_server: HttpServer) -> None:
    source = utm(tmp_path / "a.tif", noise((150, 200), "int16"), nodata=-1)
    right = _write(tmp_path, source).read_bytes()
    url = http_server.put("a.tif", source.read_bytes())
    assert _write(tmp_path, url).read_bytes() == right
    with pytest.raises(ObjectNotFoundError):
        _write(tmp_path, url.replace("a.tif", "b.tif"))
