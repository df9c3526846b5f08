"""What stands where tiles reach beyond a raster without nodata value: never a value of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio

from comal import raquet
from comal.errors import InvalidInputError, InvalidMetadataError
from comal.raquet.writing.layout import free_value
from tests.raquet.writing.sources import noise, on_grid, utm

LATER: dict[str, Any] = {"spec_version": "0.5.0", "tile_statistics": True}
INTERLEAVED: dict[str, Any] = {**LATER, "layout": "interleaved"}


def every(dtype: str) -> Any:
    """All values of a narrow type, each about as often."""
    limits = np.iinfo(dtype)
    shape = (100, 110) if limits.bits == 8 else (300, 310)
    return np.resize(np.arange(limits.min, limits.max + 1).astype(dtype), shape)


CHOICES: dict[str, tuple[Any, Any]] = {
    "uint8 without 0": (np.clip(every("uint8"), 1, 255), 0),
    "uint8 without 255": (np.clip(every("uint8"), 0, 254), 255),
    "uint8 without 7": (np.where(every("uint8") == 7, 8, every("uint8")), 7),
    "uint8 with all": (every("uint8"), "alpha"),
    "int8 without -128": (np.clip(every("int8"), -127, 127), -128),
    "int8 with all": (every("int8"), "alpha"),
    "uint16": (noise((100, 110), "uint16") | 1, 0),
    "int16 without 32767": (np.where(np.eye(100, 110), -32768, 5).astype("int16"), 32767),
    "uint16 with all": (every("uint16"), "alpha"),
    "int32": (noise((100, 110), "int32"), -(2**31)),
    "int32 with both ends": (np.array([[-(2**31), 2**31 - 1]] * 9, "int32").repeat(9, 1), "alpha"),
    "uint64": (noise((100, 110), "uint64") | np.uint64(1), 0),
    "float32": (noise((100, 110), "float32"), math.nan),
}


CASES = [
    *((name, {}) for name in CHOICES),
    *((name, LATER) for name in ("uint8 without 255", "uint16 with all")),
    *((name, INTERLEAVED) for name in ("uint8 without 7", "int8 with all", "float32")),
]


@pytest.mark.parametrize(("name", "options"), CASES)
def test_a_value_that_no_pixel_has(tmp_path: Path, name: str, options: Any) -> None:
    pixels, expected = CHOICES[name]
    source = on_grid(tmp_path / "a.tif", pixels, column=32 * 500 + 5, row=32 * 300 + 3)
    path = tmp_path / "a.parquet"
    # Classes, so that no overview has a value of its own.
    made = raquet.write(source, path, block_size=32, zoom=10, overview_resampling="mode", **options)
    with raquet.open(path) as raster, rasterio.open(source) as own:
        band = raster.bands[0]
        if expected == "alpha":
            assert (band.nodata, made.chosen_nodata, made.added_alpha) == (None, {}, "band_2")
            assert raster.bands[1].colorinterp == "alpha"
        else:
            assert repr(band.nodata) == repr(expected)
            told = {} if pixels.dtype.kind == "f" else {"band_1": expected}
            assert (made.chosen_nodata, made.added_alpha) == (told, None)
        window = raster.read(bands=[1], masked=True)
        inside = np.s_[3 : 3 + len(pixels), 5 : 5 + pixels.shape[1]]
        np.testing.assert_array_equal(window.data[0][inside], own.read(1))
        assert window.data.count() == pixels.size
        if expected != "alpha":
            raw = raster.read(bands=[1]).data[0]
            outside = np.ma.getmaskarray(window.data[0])
            np.testing.assert_array_equal(raw[outside], np.full(outside.sum(), expected, raw.dtype))
        found = band.statistics
        assert found is not None
        assert (found.min, found.max) == (pixels.min(), pixels.max())
        assert found.mean == pytest.approx(pixels.astype(np.longdouble).mean())
        for zoom in raster.zooms:
            small = raster.read(zoom=zoom, masked=True, bands=[1]).data
            assert pixels.min() <= small.min() <= small.max() <= pixels.max()
    assert raquet.check(path, level="full", statistics=True).counts == {}


def test_means_of_overviews_are_values_too(tmp_path: Path) -> None:
    """7 is free at the full resolution, but is the mean of 6 and 8."""
    pixels = np.resize(every("uint8"), (300, 310))
    pixels[pixels == 7] = 8
    pixels[:40, :40] = np.where(np.indices((40, 40)).sum(axis=0) % 2, 6, 8)
    made = raquet.write(utm(tmp_path / "a.tif", pixels), tmp_path / "a.parquet", block_size=32)
    assert made.added_alpha == "band_2"


def test_one_value_for_all_bands_of_a_type(tmp_path: Path) -> None:
    pixels = np.stack(
        [np.clip(noise((60, 70), "uint8", n), low, 254) for n, low in [(0, 0), (1, 9)]]
    )
    source = utm(tmp_path / "a.tif", pixels)
    made = raquet.write(source, tmp_path / "a.parquet", block_size=32)
    assert made.chosen_nodata == {"band_1": 255, "band_2": 255}
    values = [np.unique(one) for one in pixels]
    assert (free_value("uint8", values[1:]), free_value("uint8", values)) == (0, 255)
    assert free_value("uint8", values, liked=[3, 255]) == 255


def test_nothing_is_chosen_where_nothing_is_padded(tmp_path: Path) -> None:
    pixels = noise((64, 64), "int16")
    source = on_grid(tmp_path / "a.tif", pixels, column=16_384, row=10_240)
    grid: dict[str, Any] = {"block_size": 32, "zoom": 10, "min_zoom": 9, "overwrite": True}
    for options in (grid, {**grid, "nodata": "none"}):
        made = raquet.write(source, tmp_path / "a.parquet", **options)
        with raquet.open(tmp_path / "a.parquet") as raster:
            assert (raster.bands[0].nodata, made.chosen_nodata) == (None, {})
    # An overview at zoom 8 has room for more tiles than there are.
    made = raquet.write(source, tmp_path / "a.parquet", **{**grid, "min_zoom": 8})
    assert made.chosen_nodata == {"band_1": -32768}


def test_a_nodata_value_out_of_range_is_replaced_in_a_time_series(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")
    coords = {"y": 5e6 - 100.0 * np.arange(60), "x": 6e5 + 100.0 * np.arange(70)}
    source = xr.DataArray(
        np.full((60, 70), 3, "uint8"),
        coords,
        ("y", "x"),
        attrs={"crs": "EPSG:32632", "_FillValue": -9999},
    )
    series = xr.concat([source, source], "time").assign_coords(
        time=np.array(["2025-01-01", "2025-02-01"], "datetime64[ns]")
    )
    path = tmp_path / "a.parquet"
    made = raquet.write(series, path, block_size=32)
    assert made.chosen_nodata == {"band_1": 0}
    with raquet.open(path) as raster:
        for day in ("2025-01-01", "2025-02-01"):
            found = raster.read(time=day, masked=True).data
            assert set(found.compressed().tolist()) == {3}
    assert raquet.check(path, level="full", statistics=True).counts == {}


@pytest.mark.parametrize("place", [utm, on_grid])
def test_an_alpha_band_that_is_not_chosen_still_hides(tmp_path: Path, place: Any) -> None:
    pixels = np.clip(noise((4, 150, 170), "uint8"), 1, 200)
    pixels[3] = 255
    pixels[3, 20:60, 30:90] = 0
    source = place(tmp_path / "a.tif", pixels, interpreted=("red", "green", "blue", "alpha"))
    raquet.write(source, tmp_path / "all.parquet", block_size=32)
    made = raquet.write(source, tmp_path / "a.parquet", block_size=32, bands=[1, 2])
    assert made.added_alpha == "band_3"
    with (
        raquet.open(tmp_path / "all.parquet") as whole,
        raquet.open(tmp_path / "a.parquet") as part,
    ):
        found, right = part.read(masked=True).data[:2], whole.read(masked=True).data[:2]
        np.testing.assert_array_equal(np.ma.getmaskarray(found), np.ma.getmaskarray(right))
        np.testing.assert_array_equal(found.compressed(), right.compressed())


@pytest.mark.parametrize("named", [{}, {"nodata": 9}, {"mask": np.tri(150, 170, dtype="uint8")}])
def test_pictures_keep_what_has_no_value(tmp_path: Path, named: Any) -> None:
    pixels = noise((3, 150, 170), "uint8")
    pixels[:, 60:90] = 9
    source = utm(tmp_path / "a.tif", pixels, **named)
    options: dict[str, Any] = {"spec_version": "0.5.0", "layout": "interleaved", "block_size": 32}
    path, exact = tmp_path / "a.parquet", tmp_path / "b.parquet"
    made = raquet.write(source, path, compression="webp", **options)
    assert made.added_alpha == "band_4"
    raquet.write(source, exact, **options)
    with raquet.open(path) as picture, raquet.open(exact) as right:
        shown = picture.read(bands=[1], masked=True).data
        own = right.read(bands=[1, 2, 3], masked=True).data
        np.testing.assert_array_equal(
            ~np.ma.getmaskarray(shown[0]), ~np.ma.getmaskarray(own).all(axis=0)
        )
    if named:
        with pytest.raises(InvalidInputError, match="cannot mark pixels without a value"):
            raquet.write(source, path, compression="jpeg", overwrite=True, **options)


@pytest.mark.parametrize("colours", [["red", "green", "blue", "alpha"], ["gray", "gray", "alpha"]])
def test_pictures_refuse_nodata_beside_alpha(tmp_path: Path, colours: list[str]) -> None:
    """One of them would be lost: the pixels of a picture are not what they were."""
    pixels = noise((len(colours), 50, 70), "uint8")
    source = utm(tmp_path / "a.tif", pixels, nodata=9, interpreted=colours)
    options: dict[str, Any] = {"spec_version": "0.5.0", "layout": "interleaved", "block_size": 32}
    with pytest.raises(InvalidInputError, match="cannot mark pixels without a value"):
        raquet.write(source, tmp_path / "a.parquet", compression="webp", **options)
    raquet.write(source, tmp_path / "a.parquet", **options)


def test_files_of_different_nodata_values_are_not_merged(tmp_path: Path) -> None:
    paths = []
    for own in (7, 9):
        source = on_grid(tmp_path / f"{own}.tif", np.full((40, 40), 5, "uint8"), nodata=own)
        paths.append(tmp_path / f"{own}.parquet")
        raquet.write(source, paths[-1], block_size=32)
    with pytest.raises(InvalidMetadataError, match=r"(?s)do not belong.*bands"):
        raquet.merge(paths, tmp_path / "m.parquet")


@pytest.mark.parametrize("place", [utm, on_grid])
def test_a_mosaic_of_different_nodata_values_keeps_all_values(tmp_path: Path, place: Any) -> None:
    """0 and 255, where 0 is a value of the second; and 1 and none, where all else occurs."""
    first, second = np.full((2, 40, 40), 5, "uint8")
    first[:5], second[:5], second[20:25] = 0, 255, 0
    apart = {"column": 32 * 302} if place is on_grid else {}
    one = place(tmp_path / "a.tif", first, nodata=0)
    other = place(tmp_path / "b.tif", second, nodata=255, **apart)
    if not apart:
        with rasterio.open(other, "r+") as dataset:
            dataset.transform = rasterio.Affine(30, 0, 603_000, 0, -30, 5_300_000)
    counts = []
    for number, sources in enumerate([[one], [other], [one, other], [other, one]]):
        path = tmp_path / f"{number}.parquet"
        raquet.write(sources, path, block_size=32, zoom=10 if apart else 13)
        with raquet.open(path) as raster:
            statistics = raster.bands[0].statistics
            assert statistics is not None
            counts.append(statistics.count or 0)
            if number > 1:
                assert (raster.bands[0].nodata, statistics.min) == (255, 0)
    assert counts[2:] == [counts[0] + counts[1]] * 2
    plain = place(tmp_path / "c.tif", every("uint8")[:40, :40])
    with pytest.raises(InvalidInputError, match="no value is free"):
        raquet.write([one, plain], tmp_path / "m.parquet", block_size=32)
