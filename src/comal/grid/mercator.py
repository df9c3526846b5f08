"""Web Mercator (EPSG:3857) as a square of tiles: x to the east and y to the south from its corner.

Positions are counted in tiles of a zoom, as fractions: at zoom z the whole square is 2**z wide.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.grid.arguments import reals

Floats = npt.NDArray[np.float64]

CIRCUMFERENCE = 2 * np.pi * 6378137.0
"""Side of the square in metres of EPSG:3857."""
HALF = CIRCUMFERENCE / 2
"""Largest coordinate of EPSG:3857 within the square, in metres."""
LATITUDE_LIMIT = 85.0511287798066
"""Latitude of the upper edge of the square, in degrees."""


def lonlat_to_xy(lon: npt.ArrayLike, lat: npt.ArrayLike, z: npt.ArrayLike) -> tuple[Any, Any]:
    """Positions of points in tiles of zoom `z`.

    Parameters
    ----------
    lon, lat
        Degrees of EPSG:4326. Longitudes beyond 180 degrees are wrapped; 180 itself is the east
        edge of the square. Latitudes beyond `LATITUDE_LIMIT` are clipped to it. NaN stays NaN.
    z
        Zooms.

    Returns
    -------
    x, y
        Fractions of tiles, from 0 to 2**z, both edges included.
    """
    longitude, latitude = reals(lon, "longitude"), reals(lat, "latitude")
    side = np.exp2(np.asarray(z, np.float64))
    with np.errstate(invalid="ignore"):
        beyond = np.abs(longitude) > 180
        if beyond.any():
            longitude = np.where(beyond, (longitude + 180) % 360 - 180, longitude)
        latitude = np.clip(latitude, -LATITUDE_LIMIT, LATITUDE_LIMIT)
        x = (longitude / 360 + 0.5) * side
        y = (0.5 - np.arctanh(np.sin(np.radians(latitude))) / (2 * np.pi)) * side
        y = np.clip(y, 0, side)
    return plain(x), plain(y)


def xy_to_lonlat(x: npt.ArrayLike, y: npt.ArrayLike, z: npt.ArrayLike) -> tuple[Any, Any]:
    """Longitude and latitude, in degrees, of positions in tiles of zoom `z`."""
    side = np.exp2(np.asarray(z, np.float64))
    lon = np.asarray(x, np.float64) / side * 360 - 180
    lat = np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * np.asarray(y, np.float64) / side))))
    return plain(lon), plain(lat)


def latitude(v: float) -> float:
    """Latitude, in degrees, of a fraction of the square from its north edge.

    NumPy's functions differ from processor to processor in the last digit, those of the C library
    do not: for what is written.
    """
    return math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * v))))


def box(z: int, left: int, top: int, right: int, bottom: int) -> tuple[float, float, float, float]:
    """West, south, east and north of a block of tiles, in degrees, as they are written."""
    side = 1 << z
    west, east = left / side * 360 - 180, right / side * 360 - 180
    return west, latitude(bottom / side), east, latitude(top / side)


def tile_box_3857(
    z: npt.ArrayLike, x: npt.ArrayLike, y: npt.ArrayLike
) -> tuple[Any, Any, Any, Any]:
    """West, south, east and north edge of tiles, in metres of EPSG:3857."""
    side = CIRCUMFERENCE / np.exp2(np.asarray(z, np.float64))
    across, down = np.asarray(x, np.float64), np.asarray(y, np.float64)
    west, east = across * side - HALF, (across + 1) * side - HALF
    north, south = HALF - down * side, HALF - (down + 1) * side
    return plain(west), plain(south), plain(east), plain(north)


def pixel_size(z: npt.ArrayLike, block: npt.ArrayLike = 256) -> Any:
    """Side of a pixel in metres of EPSG:3857, for tiles of `block` pixels at zoom `z`.

    On the ground a pixel at latitude φ is cos φ times as long.
    """
    size = CIRCUMFERENCE / np.exp2(np.asarray(z, np.float64)) / np.asarray(block, np.float64)
    return plain(size)


def plain(values: Any) -> Any:
    """Arrays unchanged, and scalars as Python numbers."""
    return values if np.ndim(values) else np.asarray(values).item()
