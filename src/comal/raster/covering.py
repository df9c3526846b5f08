"""Which pixels of a grid a raster covers, whatever their values are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from affine import Affine
from rasterio.features import rasterize

from comal.raster.gridding import Member

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Window2D:
    """A rectangle of pixels of the grid; x and y count from the corner of the world."""

    x: int
    y: int
    width: int
    height: int


class Edge:
    """The edge of a member as a polygon on the grid, between pixels of it."""

    def __init__(self, member: Member, pixel_zoom: int) -> None:
        self._side = 2.0**pixel_zoom
        ring = member.footprint.ring
        self._polygon: Any = None
        if ring is not None:
            points = np.array(ring)
            points[:, 0] += _turn(member)
            polygon = shapely.Polygon(points * self._side)
            if polygon.is_valid:
                shapely.prepare(polygon)
                self._polygon = polygon

    def covered(self, window: Window2D) -> Mask | None:
        """Pixels whose centres lie in the raster; None when all do or when it cannot be told."""
        if self._polygon is None:
            return None
        x, y = window.x, window.y
        box = shapely.box(x, y, x + window.width, y + window.height)
        if self._polygon.covers(box):
            return None
        shape = (window.height, window.width)
        if not self._polygon.intersects(box):
            return np.zeros(shape, bool)
        made = rasterize(
            [(self._polygon, 1)],
            out_shape=shape,
            transform=Affine.translation(x, y),
            dtype="uint8",
        )
        return np.asarray(made, bool)


def _turn(member: Member) -> int:
    """Worlds between the ring of a raster and the copy of the world that a member lies on."""
    west, _, east, _ = member.footprint.box
    middle = (member.box[0] + member.box[2]) / 2
    for world in range(int(np.floor(west)), int(np.ceil(east)) + 1):
        if west - world - 1e-9 <= middle <= east - world + 1e-9:
            return -world
    return 0
