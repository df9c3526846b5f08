"""Out of RaQuet: GeoTIFF, COG and pictures, read by rasterio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

import comal.raquet
from comal.errors import InvalidInputError
from tests.raquet.writing.sources import noise, on_grid
from tests.support import SHARED, needs_shared


def _raquet(tmp_path: Path, pixels: Any, **named: Any) -> tuple[Path, Path]:
    source = on_grid(tmp_path / "a.tif", pixels, **named)
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, block_size=32, min_zoom=8)
    return source, path


@pytest.mark.parametrize("version", ["0.1.0", "0.5.0"])
@pytest.mark.parametrize("cog", [True, False])
def test_what_bands_say_of_themselves(tmp_path: Path, version: str, cog: bool) -> None:
    """Pixels and nodata values, there and back, are asked by ``test_pixel_law``."""
    source = on_grid(tmp_path / "a.tif", np.ones((200, 600), np.uint8), colours={1: (9, 8, 7, 255)})
    with rasterio.open(source, "r+") as dataset:
        dataset.set_band_description(1, "classes")
        dataset.set_band_unit(1, "kinds")
        dataset.scales, dataset.offsets = [0.5], [3.0]
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, block_size=32, spec_version=version)
    if cog:
        made = comal.raquet.to_cog(path, tmp_path / "b.tif")
    else:
        made = comal.raquet.to_geotiff(path, tmp_path / "b.tif", overviews=True)
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.colormap(1)[1] == (9, 8, 7, 255)
        assert dataset.descriptions == ("classes",)
        assert dataset.units == ("kinds",)
        assert (dataset.scales, dataset.offsets) == ((0.5,), (3.0,))
        assert dataset.overviews(1)[:2] == [2, 4]
        assert (dataset.crs.to_epsg(), dataset.dtypes) == (3857, ("uint8",))
        assert (dataset.width, dataset.height) == (made.width, made.height)
        assert (dataset.tags(ns="IMAGE_STRUCTURE").get("LAYOUT") == "COG") == cog


def test_a_nodata_value_for_all_bands(tmp_path: Path) -> None:
    pixels = noise((2, 70, 90), "uint8")
    pixels[pixels == 255] = 0
    _, path = _raquet(tmp_path, pixels, nodata=0)
    made = comal.raquet.to_geotiff(path, tmp_path / "b.tif", nodata=255)
    assert made.nodata == 255
    with comal.raquet.open(path) as raster, rasterio.open(tmp_path / "b.tif") as dataset:
        right = raster.read(masked=True).data
        np.testing.assert_array_equal(dataset.read(), right.filled(255))


@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "int64"])
def test_a_nodata_value_that_pixels_hold(tmp_path: Path, dtype: str) -> None:
    pixels = np.arange(64 * 64).reshape(64, 64) % 100
    _, path = _raquet(tmp_path, pixels.astype(dtype), nodata=0)
    with pytest.raises(InvalidInputError, match="hold the nodata value"):
        comal.raquet.to_geotiff(path, tmp_path / "b.tif", nodata=7)
    assert not (tmp_path / "b.tif").exists()
    comal.raquet.to_geotiff(path, tmp_path / "b.tif", nodata=101)
    with comal.raquet.open(path) as raster, rasterio.open(tmp_path / "b.tif") as dataset:
        right = raster.read(masked=True).data
        np.testing.assert_array_equal(dataset.read(), right.filled(101))


@pytest.mark.parametrize("nodata", [2**53 + 2, -(2**63), 2**63 - 1])
def test_a_nodata_value_that_geotiff_cannot_tell(tmp_path: Path, nodata: int) -> None:
    """rasterio writes -2**63 as text that GDAL reads as -9."""
    _, path = _raquet(tmp_path, noise((64, 64), "int64"))
    with pytest.raises(InvalidInputError, match="cannot tell"):
        comal.raquet.to_geotiff(path, tmp_path / "b.tif", nodata=nodata)


@pytest.mark.parametrize(
    ("named", "text"),
    [
        ({"bands": ["d"]}, "no such band"),
        ({"zoom": 26}, "no such zoom"),
        ({"time": 0}, "has no time"),
        ({"nodata": 10**400}, "not a value of the raster's type"),
        ({"nodata": 300}, "not a value of the raster's type"),
        ({"nodata": 0.5}, "not a value of the raster's type"),
        ({"compression": "zip"}, "unknown compression"),
    ],
)
def test_exports_that_cannot_be(tmp_path: Path, named: Any, text: str) -> None:
    _, path = _raquet(tmp_path, noise((2, 64, 64), "uint8"))
    for export in (comal.raquet.to_geotiff, comal.raquet.to_cog):
        with pytest.raises(InvalidInputError, match=text):
            export(path, tmp_path / "b.tif", **named)
        assert not (tmp_path / "b.tif").exists()
    with pytest.raises(InvalidInputError, match="one band or three"):
        comal.raquet.preview(path, bands=[1, 2])


def test_zooms_and_boxes(tmp_path: Path) -> None:
    pixels = noise((256, 256), "uint8")
    _, path = _raquet(tmp_path, pixels, column=16_384, row=10_240)
    with comal.raquet.open(path) as raster:
        for zoom in raster.zooms:
            made = comal.raquet.to_geotiff(raster, tmp_path / "z.tif", zoom=zoom, overwrite=True)
            with rasterio.open(tmp_path / "z.tif") as dataset:
                window = raster.read(zoom=zoom)
                assert dataset.transform.a == pytest.approx(window.transform[0])
                np.testing.assert_array_equal(dataset.read(), window.data)
            assert made.zoom == zoom
        west, south, _, _ = raster.bounds
        box = (west + 0.1, south + 0.1, west + 0.7, south + 0.9)
        comal.raquet.to_geotiff(raster, tmp_path / "z.tif", bbox=box, overwrite=True)
        window = raster.read(box)
        with rasterio.open(tmp_path / "z.tif") as dataset:
            np.testing.assert_array_equal(dataset.read(), window.data)
            assert dataset.bounds == pytest.approx(window.bounds)


def test_a_box_across_the_antimeridian(tmp_path: Path) -> None:
    from tests.raster.rasters import write as write_tiff

    values = np.arange(1, 101, dtype=np.uint8)[None].repeat(100, axis=0)
    source = tmp_path / "a.tif"
    write_tiff(source, values, crs="EPSG:4326", affine=(175, 0.1, 0, 5, 0, -0.1), nodata=0)
    path = tmp_path / "a.parquet"
    comal.raquet.write(source, path, block_size=32)
    made = comal.raquet.to_geotiff(path, tmp_path / "b.tif", bbox=(175, -5, -175, 5))
    assert made.width < 400
    with rasterio.open(tmp_path / "b.tif") as dataset:
        row = dataset.read(1)[dataset.height // 2]
        inside = row[row > 0].astype(int)
        assert (np.diff(inside) >= 0).all()
        assert (inside[0], inside[-1]) == (1, 100)


def test_a_box_outside_of_the_raster(tmp_path: Path) -> None:
    _, path = _raquet(tmp_path, noise((1, 64, 64), "uint8"))
    with comal.raquet.open(path) as raster:
        west, south, east, north = raster.bounds
    out = tmp_path / "b.tif"
    for box in (
        (east + 1, south, east + 2, north),
        (west, north, east, north + 1),
        (west, south - 2, east, south - 1),
        (175, south, -175, north),
    ):
        with pytest.raises(InvalidInputError, match="outside the raster"):
            comal.raquet.to_geotiff(path, out, bbox=box)
    assert not out.exists()
    # A box that counts on beyond 180 degrees is the same place.
    comal.raquet.to_geotiff(path, out, bbox=(west + 360, south, 360, north))
    with rasterio.open(out) as raster:
        assert raster.read(1).any()


def test_bands_that_differ(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    coords = {"y": 5e6 - 100.0 * np.arange(50), "x": 6e5 + 100.0 * np.arange(60)}
    data = xr.Dataset(
        {
            "a": (("y", "x"), noise((50, 60), "uint8"), {"_FillValue": 7}),
            "b": (("y", "x"), noise((50, 60), "uint8"), {"_FillValue": 9}),
            "c": (("y", "x"), noise((50, 60), "float32")),
        },
        coords=coords,
        attrs={"crs": "EPSG:32632"},
    )
    path = tmp_path / "a.parquet"
    comal.raquet.write(data, path, block_size=32)
    with pytest.raises(InvalidInputError, match="nodata"):
        comal.raquet.to_geotiff(path, tmp_path / "b.tif", bands=["a", "b"])
    made = comal.raquet.to_geotiff(path, tmp_path / "b.tif")
    assert (made.dtype, np.isnan(made.nodata or 0)) == ("float32", True)
    with comal.raquet.open(path) as raster, rasterio.open(tmp_path / "b.tif") as dataset:
        right = raster.read(masked=True).data
        np.testing.assert_array_equal(
            dataset.read(1), np.ma.filled(right[0].astype("float32"), np.nan)
        )


def test_names_and_descriptions_of_bands_are_told_apart(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    names = ["höhe (m)", 'a"b', "select", "x;--", "a b", "'"]
    coords = {"y": 5e6 - 100.0 * np.arange(40), "x": 6e5 + 100.0 * np.arange(40)}
    bands = {
        name: (("y", "x"), noise((40, 40), "uint8", at), {"long_name": f"text {at}"})
        for at, name in enumerate(names)
    }
    data = xr.Dataset(bands, coords=coords, attrs={"crs": "EPSG:32632"})
    path = tmp_path / "a.parquet"
    comal.raquet.write(data, path, block_size=32, nodata="none")
    assert comal.raquet.check(path, level="full").ok
    made = comal.raquet.to_geotiff(path, tmp_path / "b.tif", bands=names[::-1])
    assert list(made.bands) == names[::-1]
    with rasterio.open(tmp_path / "b.tif") as dataset:
        assert dataset.descriptions[0] == "text 5"
    table = comal.raquet.statistics(path, stats=["max"])
    with comal.raquet.connect(path) as connection:
        for name, row in zip(names, table.to_pylist(), strict=True):
            quoted = '"' + name.replace('"', '""') + '"'
            query = f"SELECT max(ST_RasterSummaryStats({quoted}, metadata).max) AS m FROM raster"
            assert connection.sql(query).to_pylist() == [{"m": row["max"]}]
            assert row["band"] == name
    comal.raquet.repair(path, tmp_path / "r.parquet")
    comal.raquet.partition(path, tmp_path / "parts", zoom=11)
    for other in (tmp_path / "r.parquet", tmp_path / "parts"):
        with comal.raquet.open(path) as one, comal.raquet.open(other) as two:
            assert list(two.metadata.band_names) == names
            np.testing.assert_array_equal(one.read().data, two.read().data)


@needs_shared
def test_all_steps_of_a_series_by_another_writer(tmp_path: Path) -> None:
    path = SHARED / "fixtures" / "raquet" / "raquet-io" / "v0.9.0" / "ts_sst.parquet"
    made = comal.raquet.to_geotiff(path, tmp_path / "a.tif")
    assert made.bands[1] == "band_1 2000-02-01"
    one = comal.raquet.to_geotiff(path, tmp_path / "b.tif", time="2000-03-01")
    assert len(one.bands) == 1
    with rasterio.open(tmp_path / "a.tif") as every, rasterio.open(tmp_path / "b.tif") as single:
        assert every.count == 4
        np.testing.assert_array_equal(every.read(3), single.read(1))
    assert comal.raquet.preview(path)[:4] == b"\x89PNG"


def test_pictures(tmp_path: Path) -> None:
    pixels = np.zeros((3, 256, 256), np.uint8)
    pixels[0], pixels[2, :128] = 200, 90
    _, path = _raquet(tmp_path, pixels, column=16_384, row=10_240, photometric="RGB")
    with rasterio.MemoryFile(comal.raquet.preview(path, size=128)) as memory:
        with pytest.warns(rasterio.errors.NotGeoreferencedWarning):
            dataset = memory.open()
        shown = dataset.read()
        dataset.close()
    assert shown.shape == (4, 128, 128)
    assert shown[:, 10, 10].tolist() == [200, 0, 90, 255]
    assert shown[:, 100, 10].tolist() == [200, 0, 0, 255]
    for size in (0, -5, 5000, 1.5, "large"):
        with pytest.raises(InvalidInputError, match="size"):
            comal.raquet.preview(path, size=size)  # type: ignore[arg-type]
