"""What an alpha band hides has no value for functions of SQL, as for rasterio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
from rasterio.enums import ColorInterp

from comal import grid, raquet
from comal.errors import InvalidInputError
from tests.raquet.build import noise
from tests.raquet.writing.sources import on_grid

COLUMN, ROW = 32 * 500 + 5, 32 * 300 + 3
COLOURS = ("red", "green", "blue", "alpha")
# GDAL takes an alpha band for a mask where it is the second of two, or the fourth of four.
OPTIONS: dict[str, dict[str, Any]] = {
    "0.1.0": {},
    "0.5.0": {"spec_version": "0.5.0", "tile_statistics": True},
}


def source(path: Path, kind: str = "alpha") -> Path:
    """Three bands of 45 x 70 pixels, of which a mask hides some."""
    shown = np.full((45, 70), 255, "uint8")
    shown[10:20, 5:40] = 0
    shown[30, 50] = 1
    pixels = noise(1, shape=(3, 45, 70))
    if kind == "alpha":
        pixels = np.concatenate([pixels, shown[None]])
    on_grid(path, pixels, column=COLUMN, row=ROW)
    with rasterio.Env(GDAL_TIFF_INTERNAL_MASK=True), rasterio.open(path, "r+") as dataset:
        if kind == "alpha":
            dataset.colorinterp = [ColorInterp[name] for name in COLOURS]
        else:
            dataset.write_mask(shown)
    return path


def made(tmp_path: Path, options: str = "0.1.0", kind: str = "alpha", **named: Any) -> Path:
    """`source` as RaQuet, with the last band called ``alpha``."""
    path = tmp_path / "a.parquet"
    bands = {"red": 1, "nir": 2, "blue": 3, **({"alpha": 4} if kind == "alpha" else {})}
    named = {"zoom": 10, "min_zoom": 10, "block_size": 32, "bands": bands, **named}
    raquet.write(source(tmp_path / "a.tif", kind), path, **OPTIONS[options], **named)
    return path


def wanted(tmp_path: Path) -> Any:
    """The bands as rasterio masks them."""
    with rasterio.open(tmp_path / "a.tif") as dataset:
        return dataset.read(masked=True)[:3]


def place(column: float, row: float) -> tuple[float, float]:
    """Longitude and latitude of a pixel of the source."""
    x, y = (COLUMN + column) / 32, (ROW + row) / 32
    lon, lat = grid.xy_to_lonlat(x, y, 10)
    return float(lon), float(lat)


def box(left: float, top: float, right: float, bottom: float) -> str:
    (west, north), (east, south) = place(left, top), place(right, bottom)
    corners = ((west, south), (east, south), (east, north), (west, north), (west, south))
    return "POLYGON((" + ", ".join(f"{x!r} {y!r}" for x, y in corners) + "))"


CALLS = {
    "RasterSummaryStats": "({nir}, metadata{alpha})",
    "RegionStats": "({nir}, block, $area, metadata{alpha})",
    "Clip": "({nir}, block, $area, metadata{alpha})",
    "ClipMask": "({nir}, block, $area, metadata, -1{alpha})",
    "NormalizedDifference": "({nir}, red, metadata{alpha})",
    "NormalizedDifferenceStats": "({nir}, red, metadata{alpha})",
    "BandMath": "({nir}, red, 'subtract', metadata{alpha})",
    "RasterValue": "(block, {nir}, ST_Point($x, $y), metadata{alpha})",
}


def answer(connection: Any, function: str, alpha: str = ", alpha := alpha", **named: Any) -> Any:
    """What a function gives for all tiles: numbers of all, or counts and sums of structs."""
    call = CALLS[function].format(nir="nir", alpha=alpha)
    query = f"SELECT ST_{function}{call} v FROM raster"
    named = {name: value for name, value in named.items() if f"${name}" in query}
    rows = connection.sql(query, **named).column("v").to_pylist()
    if rows and isinstance(rows[0], dict):
        return sum(row["count"] for row in rows), sum(row["sum"] or 0 for row in rows)
    flat = [one for row in rows for one in (row if isinstance(row, list) else [row])]
    return sorted(one for one in flat if one is not None and one != -1)


@pytest.mark.parametrize(("options", "kind"), [("0.1.0", "alpha"), ("0.5.0", "mask")])
def test_what_alpha_hides_has_no_value(tmp_path: Path, options: str, kind: str) -> None:
    path = made(tmp_path, options, kind)
    red, nir, _ = wanted(tmp_path).astype(float)
    area, inside = box(2, 3, 45, 33), nir[3:33, 2:45].compressed()
    index = ((nir - red) / (nir + red)).compressed()
    with raquet.connect(path) as connection:
        expected: dict[str, Any] = {
            "RasterSummaryStats": (nir.count(), nir.sum()),
            "RegionStats": (len(inside), inside.sum()),
            "Clip": sorted(inside),
            "ClipMask": sorted(inside),
            "NormalizedDifference": sorted(index),
            "NormalizedDifferenceStats": (len(index), index.sum()),
            "BandMath": [one for one in sorted((nir - red).compressed()) if one != -1],
        }
        for function, right in expected.items():
            assert answer(connection, function, area=area) == pytest.approx(right), function
        for x, y in ((4, 12), (5, 10), (39, 19), (40, 19), (50, 30), (69, 44)):
            lon, lat = place(x + 0.5, y + 0.5)
            right = [] if nir[y, x] is np.ma.masked else [nir[y, x]]
            assert answer(connection, "RasterValue", x=lon, y=lat) == right
        for function in CALLS:
            with pytest.raises(InvalidInputError, match="hides") as caught:
                answer(connection, function, "", area=area, x=lon, y=lat)
            assert "alpha := alpha" in (caught.value.hint or "")
            with pytest.raises(InvalidInputError, match="not a blob"):
                answer(connection, function, ", alpha := 5", area=area, x=lon, y=lat)
        # A NULL tile hides all, whatever is passed counts, and the blob itself holds everything.
        assert answer(connection, "RegionStats", ", alpha := NULL::BLOB", area=area) == (0, 0)
        everything = box(0, 0, 70, 45)
        assert answer(connection, "RegionStats", ", alpha := nir", area=everything)[0] == 45 * 70
        assert connection.sql("SELECT ST_RasterSummaryStats(alpha, metadata) FROM raster")
        assert connection.sql("SELECT raquet_decode_band(nir, metadata) FROM raster")
