"""The engine of xarray, against what the reader itself gives and against rioxarray."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import rasterio

from comal import raquet, storage
from comal.errors import InvalidInputError
from tests.raquet.build import BLOCK, Plan, noise, write
from tests.raquet.query.test_hiding import made
from tests.support import SHARED, needs_shared

xr = pytest.importorskip("xarray")

from comal.raquet.xarray_engine import RaquetBackend, dataset  # noqa: E402

TILES = {(3, x, y): [noise(x * 8 + y, "int16")] for x in (2, 3, 5) for y in (1, 2)}
TILES[2, 1, 0] = [noise(99, "int16")]
SAID = {
    "bands": [
        {
            "name": "height",
            "type": "int16",
            "nodata": 5,
            "scale": 0.5,
            "offset": 10,
            "unit": "m",
            "description": "Height",
        }
    ]
}
PLAN = Plan(bands=[("height", "int16", None)], nested=True, change=SAID)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.parquet", TILES, PLAN)


def opened(path: Any, **named: Any) -> Any:
    return xr.open_dataset(path, engine=RaquetBackend, **named)


def test_values_and_coordinates(path: Path) -> None:
    window = raquet.open(path).read(masked=True, scaled=True)
    with opened(path) as found:
        assert found["height"].dims == ("y", "x")
        assert found["height"].shape == (2 * BLOCK, 4 * BLOCK)
        assert found["height"].attrs["units"] == "m"
        assert found["height"].attrs["long_name"] == "Height"
        values = found["height"].values
        # A tile that is not there holds nodata.
        np.testing.assert_allclose(values, window.data[0].filled(np.nan))
        assert np.isnan(values[:, 2 * BLOCK : 3 * BLOCK]).all()
        a, _, west, _, e, north = window.transform
        np.testing.assert_allclose(found["x"], west + (np.arange(4 * BLOCK) + 0.5) * a)
        np.testing.assert_allclose(found["y"], north + (np.arange(2 * BLOCK) + 0.5) * e)
        assert found["x"].attrs["units"] == "metre"


def test_stored_values(path: Path) -> None:
    with opened(path, mask_and_scale=False) as found:
        assert found["height"].dtype == np.int16
        assert found["height"].attrs["_FillValue"] == 5
        assert found["height"].attrs["scale_factor"] == 0.5
        np.testing.assert_array_equal(found["height"], raquet.open(path).read().data[0])


def test_every_way_of_indexing(path: Path) -> None:
    whole = raquet.open(path).read().data[0]
    found = opened(path, mask_and_scale=False)["height"]
    rng = np.random.default_rng(3)
    rows, columns = rng.integers(0, 32, 12), rng.integers(0, 64, 12)
    for key in (
        np.s_[3, 7],
        np.s_[-1, :],
        np.s_[::3, 60:2:-5],
        np.s_[5:5, :],
        np.s_[:, 17],
        np.s_[[1, 30, 4], :],
    ):
        np.testing.assert_array_equal(found[key], whole[key])
    np.testing.assert_array_equal(found[rows, columns], whole[np.ix_(rows, columns)])
    points = found.isel(y=xr.DataArray(rows, dims="p"), x=xr.DataArray(columns, dims="p"))
    np.testing.assert_array_equal(points, whole[rows, columns])
    nearest = found.sel(x=float(found["x"][9]), y=float(found["y"][4]), method="nearest")
    assert nearest == whole[4, 9]


def test_types_of_what_alpha_hides(tmp_path: Path) -> None:
    """Which pixels these are, and what they hold, is asked by ``test_pixel_law``."""
    types = {"a": "int32", "b": "float32", "c": "uint16", "d": "uint8"}
    bands: list[dict[str, Any]] = [{"name": name, "type": kind} for name, kind in types.items()]
    bands[0]["nodata"] = -1
    bands[2] |= {"scale": 0.5, "offset": 100}
    bands[3]["colorinterp"] = "alpha"
    pixels = [noise(n, kind) for n, kind in enumerate(types.values())]
    pixels[3][:5] = 0
    named = [(name, kind, None) for name, kind in types.items()]
    plan = Plan(bands=named, nested=True, change={"bands": bands})
    path = write(tmp_path / "a.parquet", {(0, 0, 0): pixels}, plan)
    with opened(path, mask_and_scale=False) as found:
        assert {name: found[name].dtype for name in types} == types
        np.testing.assert_array_equal(np.isnan(xr.decode_cf(found)["a"]), pixels[3] == 0)
    with opened(path) as found:
        decoded = {"a": "float64", "b": "float32", "c": "float64", "d": "uint8"}
        assert {name: found[name].dtype for name in types} == decoded


def test_null_tiles_have_no_values_where_statistics_count_them(tmp_path: Path) -> None:
    places = [(1, x, y) for x in (0, 1) for y in (0, 1)]
    tiles = {place: [noise(1), None if place == (1, 1, 1) else noise(2)] for place in places}
    bands = [("a", "uint8", None), ("b", "uint8", None)]
    plain = write(tmp_path / "plain.parquet", tiles, Plan(bands=bands))
    path = tmp_path / "a.parquet"
    pq.write_table(pq.read_table(plain), path)
    with xr.open_dataset(path, engine="raquet") as found:
        assert found["a"].dtype == np.uint8
        missing = np.isnan(found["b"].values)
    assert missing[BLOCK:, BLOCK:].all()
    assert missing.sum() == BLOCK**2
    raquet.to_geotiff(path, tmp_path / "b.tif", bands=["b"])
    with rasterio.open(tmp_path / "b.tif") as image:
        assert ((image.read_masks(1) == 0) == missing).all()


def test_it_is_lazy_and_a_chunk_is_a_tile(path: Path) -> None:
    source = storage.CountingSource(storage.open_source(path))
    file = raquet.open(source)
    source.reset()
    found = dataset(file)
    assert source.requests == 0
    found["height"][:BLOCK, :BLOCK].load()
    assert source.requests == 1
    assert found["height"].encoding["preferred_chunks"] == {"y": BLOCK, "x": BLOCK}
    source.reset()
    # Two places far apart take their tiles, not what lies between.
    dataset(raquet.open(source))["height"][[0, 31], [0, 63]].load()
    assert source.log[-1].size < 1000


def test_chunks_of_dask(path: Path) -> None:
    pytest.importorskip("dask")
    with opened(path, chunks={}) as found:
        assert found["height"].chunks == ((BLOCK,) * 2, (BLOCK,) * 4)
        expected = opened(path)["height"].mean().item()
        assert found["height"].mean().compute().item() == pytest.approx(expected)


def test_zooms(path: Path) -> None:
    with opened(path, zoom=2, mask_and_scale=False) as found:
        # The bounds touch the rows and columns of one tile above them, and a neighbour.
        np.testing.assert_array_equal(found["height"][:BLOCK, :BLOCK], TILES[2, 1, 0][0])
        assert found.attrs["zoom"] == 2
    for wrong in (4, 2.0, "x"):
        with pytest.raises(InvalidInputError, match="zoom"):
            opened(path, zoom=wrong)


# rioxarray multiplies transforms in a way that affine would rather not see.
@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_the_crs_is_understood(path: Path) -> None:
    pytest.importorskip("rioxarray")
    found = opened(path)["height"]
    assert found.rio.crs.to_epsg() == 3857
    window = raquet.open(path).read()
    assert tuple(found.rio.transform())[:6] == pytest.approx(window.transform)
    assert found.rio.bounds() == pytest.approx(window.bounds)
    clipped = found.rio.reproject("EPSG:4326")
    assert clipped.rio.crs.to_epsg() == 4326


def test_time(tmp_path: Path) -> None:
    series = {(1, x, 0, day): [noise(10 * x + day)] for x in (0, 1) for day in (0, 31, 60)}
    path = write(tmp_path / "a.parquet", series, Plan(times=True))
    with opened(path, mask_and_scale=False) as found:
        assert found["band_1"].dims == ("time", "y", "x")
        dates = np.array(["2020-01-01", "2020-02-01", "2020-03-01"], "datetime64[ns]")
        np.testing.assert_array_equal(found["time"], dates)
        np.testing.assert_array_equal(found["band_1"][1, :, BLOCK:], noise(41))
        picked = found["band_1"].sel(time="2020-03-01").isel(x=slice(0, BLOCK))
        np.testing.assert_array_equal(np.squeeze(picked), noise(60))
        np.testing.assert_array_equal(
            found["band_1"][::-2, 0, 0], [noise(60)[0, 0], noise(0)[0, 0]]
        )
        assert found["band_1"].encoding["preferred_chunks"] == {"time": 1, "y": BLOCK, "x": BLOCK}
    with opened(path, decode_times=False) as found:
        assert found["time"].values.tolist() == [0, 31, 60]
    far = write(tmp_path / "b.parquet", {(1, 0, 0, 400_000): [noise(1)]}, Plan(times=True))
    with opened(far) as found:
        assert str(found["time"].values[0])[:10] == "3115-03-02"


def test_several_bands_and_dropping(tmp_path: Path) -> None:
    plan = Plan(bands=[("a", "uint8", None), ("b", "float32", None)])
    tiles: dict[Any, Any] = {(1, 0, 0): [noise(1), noise(2, "float32")]}
    path = write(tmp_path / "a.parquet", tiles, plan)
    found = opened(path)
    assert (found["a"].dtype, found["b"].dtype) == (np.uint8, np.float32)
    assert list(opened(path, drop_variables="a")) == ["b"]
    assert list(opened(str(path), drop_variables=["b", "c"])) == ["a"]


def test_what_xarray_asks_of_each_variable(tmp_path: Path) -> None:
    path = made(tmp_path)
    with opened(path, mask_and_scale={"nir": False}, decode_coords="all") as found:
        assert (found["nir"].dtype, found["red"].dtype) == (np.uint8, np.float32)
        assert "spatial_ref" in found.coords
    with opened(path, decode_cf=False) as found:
        assert found["red"].dtype == np.uint8
    bands = [(name, "int16", 5) for name in ("a", "b")]
    tiles: dict[Any, Any] = {(1, 0, 0): [noise(0, "int16"), noise(1, "int16")]}
    both = write(tmp_path / "b.parquet", tiles, Plan(bands=bands))
    with opened(both, mask_and_scale={"b": False}) as found:
        assert (found["a"].dtype, found["b"].dtype) == (np.float32, np.int16)
    series: dict[Any, Any] = {(1, 0, 0, day): [noise(day)] for day in (0, 31)}
    with opened(
        write(tmp_path / "t.parquet", series, Plan(times=True)), decode_times={"time": False}
    ) as found:
        assert found["time"].values.tolist() == [0, 31]


def test_bands_with_names_of_coordinates(tmp_path: Path) -> None:
    names = ("x", "time", "spatial_ref", "z")
    plan = Plan(bands=[(name, "uint8", 0) for name in names])
    tiles: dict[Any, Any] = {(1, 0, 0): [noise(n) for n in range(4)]}
    with opened(write(tmp_path / "a.parquet", tiles, plan)) as found:
        assert list(found) == ["x_band", "time_band", "spatial_ref_band", "z"]
        np.testing.assert_array_equal(found["x_band"][:BLOCK, :BLOCK], noise(0))


def test_it_survives_pickle(path: Path) -> None:
    found = opened(path)
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again["height"], found["height"])


def test_what_the_engine_takes(path: Path, tmp_path: Path) -> None:
    backend = RaquetBackend()
    assert backend.guess_can_open(path)
    assert backend.guess_can_open(str(path))
    other = tmp_path / "b.parquet"
    other.write_bytes(b"PAR1")
    assert not backend.guess_can_open(other)
    assert not backend.guess_can_open("missing.parquet")
    assert not backend.guess_can_open(3)
    assert list(backend.open_dataset(raquet.open(path))) == ["height"]


def test_without_xarray_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['xarray'] = None\n"
        "from comal.errors import MissingExtraError\n"
        "try: import comal.raquet.xarray_engine\n"
        "except MissingExtraError as error: print(error.hint)\n"
    )
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert run.stdout.strip() == "pip install 'comal[xarray]'", run.stderr


@needs_shared
def test_a_calendar_that_numpy_does_not_have() -> None:
    path = SHARED / "fixtures" / "raquet" / "constructed" / "v050_time_360day.parquet"
    with opened(path) as found:
        assert found["time"].dtype == object
        assert found["time"].values[0].calendar == "360_day"
        assert found["sst"].dims == ("time", "y", "x")
