"""Zones of a raster of 2 x 2 tiles, and the share of each pixel in them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import rasterio
import shapely
from rasterio.features import rasterize

from comal import grid

TILES = [(5, x, y) for x in (16, 17) for y in (10, 11)]


def place_of(tile: tuple[int, int, int]) -> Any:
    """Where the pixels of a tile lie in the mosaic of all, 32 x 32, row 0 at the north."""
    _, x, y = tile
    return np.s_[(y - 10) * 16 : (y - 9) * 16, (x - 16) * 16 : (x - 15) * 16]


SIZE = grid.CIRCUMFERENCE / 2**5 / 16
TRANSFORM = rasterio.Affine(SIZE, 0, 0, 0, -SIZE, grid.HALF - 10 * 16 * SIZE)


@cache
def zones() -> list[Any]:
    """In EPSG:3857: overlapping, with a hole, in two parts, everything, empty, elsewhere."""
    random = np.random.default_rng(4)
    left, top = TRANSFORM.c, TRANSFORM.f
    corners = random.uniform(0, 32, (8, 5, 2)) * SIZE
    found: list[Any] = [
        shapely.convex_hull(shapely.MultiPoint(np.c_[left + some[:, 0], top - some[:, 1]]))
        for some in corners
    ]
    found.append(found[0].difference(found[0].centroid.buffer(2.2 * SIZE)))
    found.append(found[1].symmetric_difference(found[2]))
    found.append(shapely.box(left, top - 32 * SIZE, left + 32 * SIZE, top))
    found.append(shapely.Polygon())
    found.append(shapely.box(left - 9e6, top, left - 8e6, top + 1e6))
    return found


@cache
def shares(zone: Any, method: str) -> Any:
    """Weight of each pixel in a zone, by shapely."""
    column, row = np.meshgrid(np.arange(32), np.arange(32))
    west, north = TRANSFORM.c + column * SIZE, TRANSFORM.f - row * SIZE
    boxes = shapely.box(west, north - SIZE, west + SIZE, north)
    part = shapely.area(shapely.intersection(zone, boxes)) / SIZE**2
    if method == "fractional":
        return part
    if method == "all_touched":
        return (part > 0).astype(float)
    if zone.is_empty:
        return np.zeros((32, 32))
    return rasterize([(zone, 1)], (32, 32), transform=TRANSFORM).astype(float)
