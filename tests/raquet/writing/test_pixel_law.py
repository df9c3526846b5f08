"""A pixel has one value wherever its raster lies: what is written is what rasterio sees and warps.

The matrix of `tests.raquet.test_pixel_law`, with the axis of places: on the grid, warped, rotated,
across the antimeridian, beyond 85 degrees. Which pixels of the source have a value is read by
rasterio, band by band; it then warps them and that mask, in one piece, to the grid of the file.

The ordinary run takes each pair of two axes once; ``COMAL_FULL_SWEEP=1`` takes all combinations.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import rasterio.shutil
from rasterio.enums import ColorInterp, Resampling
from rasterio.warp import reproject

from comal import raquet
from tests.raquet.writing.sources import CIRCUMFERENCE, HALF, noise
from tests.raster.rasters import write as write_tiff

# rasterio multiplies its own transforms in a way that affine has given up.
pytestmark = [
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning"),
    # ... and compares nodata values in the type of a band.
    pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning"),
]

FULL = bool(os.environ.get("COMAL_FULL_SWEEP"))
ROWS, COLUMNS, BLOCK, ZOOM = 60, 70, 16, 7
PIXEL = CIRCUMFERENCE / (BLOCK << ZOOM)
DTYPES = ["uint8", "uint16", "int16", "uint32", "int32", "int64", "float32", "float64"]
BEYOND = "out of range"
NODATA = ["none", "zero", "max", "nan", BEYOND, "per band"]
SIDES = ["neither", "alpha", "mask"]
PLACES: dict[str, tuple[str, tuple[float, ...]]] = {
    "aligned": ("EPSG:3857", (PIXEL * 1029 - HALF, PIXEL, 0, HALF - PIXEL * 700, 0, -PIXEL)),
    "warped": ("EPSG:32632", (200_000, 12_000, 0, 5_900_000, 0, -12_000)),
    "rotated": ("EPSG:3035", (4_000_000, 9_000, 5_000, 3_500_000, 4_500, -10_000)),
    "dateline": ("EPSG:4326", (175.03, 0.15, 0, 20.02, 0, -0.15)),
    "pole": ("EPSG:4326", (-20.03, 0.2, 0, 87.01, 0, -0.1)),
}


@dataclass(frozen=True)
class Case:
    """One row of the matrix."""

    dtype: str
    nodata: str
    side: str
    place: str

    @property
    def nodata_of(self) -> tuple[Any, Any]:
        """The nodata value of each band, as a file may declare it."""
        most = ends_of(self.dtype)[1]
        beyond: Any = {"float32": 1e300, "float64": float("-inf")}.get(self.dtype, -(10**30))
        one = {"none": None, "zero": 0, "max": most, "nan": float("nan"), "per band": 0}.get(
            self.nodata, beyond
        )
        return one, most if self.nodata == "per band" else one


def ends_of(dtype: str) -> tuple[Any, Any]:
    """The ends of a type; of floats those whose squares can be summed up.

    rasterio tells nodata values as floats, and none for the greatest integer of 64 bits.
    """
    kind = np.dtype(dtype)
    if kind.kind == "f":
        return -1e30, 1e30
    if dtype == "int64":
        return int(np.iinfo(kind).min), 2**53
    return int(np.iinfo(kind).min), int(np.iinfo(kind).max)


def pixels_of(dtype: str) -> Any:
    """Two bands of all values, or of some and the ends of their type, NaN and infinity."""
    found = noise((2, ROWS, COLUMNS), dtype)
    ends = [0, *ends_of(dtype)]
    if found.dtype.kind == "f":
        ends += [np.nan, np.inf, -np.inf]
    for at, (one, other) in enumerate(product(ends, ends)):
        found[0, 5 + at, 3:20], found[1, 5 + at, 3:20] = one, other
    return found


def source_of(case: Case, folder: Path) -> tuple[Path, Any]:
    """The raster, and which of its pixels have a value: (bands, rows, columns)."""
    pixels, shown = pixels_of(case.dtype), np.full((ROWS, COLUMNS), 255, "uint8")
    if case.side != "neither":
        shown[20:50, 30:33] = shown[0, 5:] = 0
    crs, affine = PLACES[case.place]
    path = folder / "a.tif"
    planes = [*pixels, shown.astype(case.dtype)] if case.side == "alpha" else pixels
    write_tiff(path, planes, crs=crs, affine=affine, mask=shown if case.side == "mask" else None)
    if case.side == "alpha":
        with rasterio.open(path, "r+") as dataset:
            dataset.colorinterp = [ColorInterp.gray, ColorInterp.undefined, ColorInterp.alpha]
    if case.nodata != "none":
        path = with_nodata(path, case.nodata_of)
    valid = np.isfinite(pixels.astype(float)) & (shown > 0)
    for at, nodata in enumerate(case.nodata_of):
        if nodata is not None and math.isfinite(nodata):
            stored = (
                np.float32(nodata) if case.dtype == "float32" and abs(nodata) < 1e38 else nodata
            )
            valid[at] &= np.reshape(
                [one != stored for one in pixels[at].ravel().tolist()], shown.shape
            )
    return path, valid


def with_nodata(source: Path, nodata: tuple[Any, Any]) -> Path:
    """A VRT, which declares for each band what it likes."""
    path = source.with_suffix(".vrt")
    with rasterio.open(source) as dataset:
        rasterio.shutil.copy(dataset, path, driver="VRT")
    first, *bands = path.read_text().split("<VRTRasterBand ")
    for at, value in enumerate(nodata):
        start, end = bands[at].split(">", 1)
        bands[at] = f"{start}><NoDataValue>{value!r}</NoDataValue>{end}"
    path.write_text("<VRTRasterBand ".join([first, *bands]))
    return path


def warped(source: Path, valid: Any, window: Any) -> Any:
    """The two bands on the pixels of a window, masked: GDAL moves the numbers of pixels."""
    numbers = np.arange(1, valid[0].size + 1, dtype="float64").reshape(ROWS, COLUMNS)
    target = np.zeros(window.data.shape[1:])
    with rasterio.open(source) as dataset:
        pixels = dataset.read([1, 2])
        reproject(
            numbers,
            target,
            src_transform=dataset.transform,
            src_crs=dataset.crs,
            dst_transform=window.transform,
            dst_crs="EPSG:3857",
            resampling=Resampling.nearest,
        )
    at = np.maximum(target.astype(int) - 1, 0)
    moved = pixels.reshape(2, -1)[:, at], valid.reshape(2, -1)[:, at] & (target > 0)
    return np.ma.MaskedArray(moved[0], ~moved[1])


def cases() -> Iterator[Case]:
    """All of them, or enough for each pair of two axes."""
    every = [Case(*one) for one in product(DTYPES, NODATA, SIDES, PLACES)]
    # GDAL takes such values for others that the type has.
    every = [one for one in every if one.dtype != "int64" or one.nodata not in {"nan", BEYOND}]
    if FULL:
        yield from every
        return
    pairs = {(one, two) for case in every for one, two in combinations(astuple(case), 2)}
    while pairs:
        best = max(every, key=lambda case: len(pairs.intersection(combinations(astuple(case), 2))))
        pairs.difference_update(combinations(astuple(best), 2))
        yield best


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: "-".join(astuple(case)))
def test_what_is_written_is_what_rasterio_sees(tmp_path: Path, case: Case) -> None:
    source, valid = source_of(case, tmp_path)
    path = tmp_path / "a.parquet"
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the raster reaches beyond")
        raquet.write(source, path, block_size=BLOCK, zoom=ZOOM, min_zoom=ZOOM - 2)
    with raquet.open(path) as file:
        window = file.read(bands=[1, 2], masked=True)
        right = warped(source, valid, window)
        np.testing.assert_array_equal(np.ma.getmaskarray(window.data), np.ma.getmaskarray(right))
        names = ["band_1", "band_2"]
        found = raquet.statistics(file, bands=names, stats=["count", "min", "max", "mean"])
        for band, ours, row, own in zip(
            right, window.data, found.to_pylist(), file.bands, strict=False
        ):
            np.testing.assert_array_equal(ours.compressed(), band.compressed())
            numbers = band.compressed().astype(np.longdouble)
            room = float(abs(numbers).max()) * 1e-9
            true = [numbers.min(), numbers.max(), numbers.mean()]
            assert own.statistics is not None
            written = [getattr(own.statistics, key) for key in ("count", "min", "max", "mean")]
            for count, *others in (written, [row[key] for key in ("count", "min", "max", "mean")]):
                assert count == len(numbers)
                assert others == pytest.approx([float(one) for one in true], abs=room)
    assert raquet.check(path, level="full", statistics=True).counts == {}
