"""Bands that are chosen while a raster is warped: GDAL numbers them anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from pyproj import Transformer
from rasterio import Affine

from comal import raquet


@pytest.mark.parametrize("bands", [[4, 3, 2, 1], [4], {"red": 3, "nir": 4}])
def test_chosen_bands_are_the_bands_that_were_chosen(tmp_path: Path, bands: Any) -> None:
    source = tmp_path / "source.tif"
    transform = Affine(100, 0, 600_000, 0, -100, 4_500_000)
    shape = {"count": 4, "height": 64, "width": 64, "dtype": "uint16"}
    with rasterio.open(
        source, "w", driver="GTiff", crs="EPSG:32618", transform=transform, **shape
    ) as raster:
        raster.write(np.stack([np.full((64, 64), 10 * n, np.uint16) for n in range(1, 5)]))
    raquet.write(source, tmp_path / "raster.parquet", bands=bands)
    numbers = list(bands.values()) if isinstance(bands, dict) else bands
    with raquet.open(tmp_path / "raster.parquet") as file:
        assert len(file.bands) == len(numbers)
        for band, number in zip(file.bands, numbers, strict=True):
            assert band.statistics is not None
            assert (band.statistics.min, band.statistics.max) == (10 * number, 10 * number)
        middle = Transformer.from_crs(32618, 4326, always_xy=True).transform(603_200, 4_496_800)
        values = file.point(*middle)
        assert np.asarray(values).tolist() == [10 * number for number in numbers]
