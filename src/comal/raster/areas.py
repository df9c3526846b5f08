"""Areas on the ground as pixels of tiles, exact in Web Mercator.

Edges are straight in the CRS of the areas: in longitude and latitude, a row of pixels has its
latitude in Web Mercator, not one interpolated within the tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from comal.errors import InvalidInputError
from comal.geo.crs import projection
from comal.geo.scanline import Edges, Method, Spans, area_spans
from comal.geo.shapes import densified
from comal.grid import HALF, LATITUDE_LIMIT, lonlat_to_xy, tile_box_3857, xy_to_lonlat
from comal.lazy import shapely
from comal.raster.zones import crs_text

_MERCATOR = 3857

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Areas:
    """n areas, prepared for the overlay with tiles."""

    edges: Edges
    """u to the east and v to the south, in degrees or in metres of EPSG:3857."""
    metric: bool
    """Whether the unit is metres of EPSG:3857."""
    first: Ints
    """Index of the first edge of each area, and at the end the number of edges."""
    boxes: Floats
    """West, south, east, north of each area in degrees, shape (n, 4); NaN for empty ones.

    Areas across the antimeridian have an east beyond 180.
    """

    def __len__(self) -> int:
        return len(self.boxes)

    @classmethod
    def of(cls, shapes: Any, crs: Any = "EPSG:4326") -> Areas:
        """Areas from shapely polygons and multipolygons; None and empty ones contain no pixel.

        `crs` is whatever `comal.raster.zones.crs_text` takes. Shapes in a CRS other than EPSG:3857
        and geographic ones are transformed to longitude and latitude, with densified edges.

        Raises
        ------
        InvalidInputError
            The shapes are not areas or invalid, or the CRS is unknown.
        """
        found = np.empty(len(shapes), object)
        found[:] = list(shapes)
        metric, found = _placed(found, crs)
        edges = Edges.of(found)
        turns = [edges] if metric else _turned(edges)
        zone = np.concatenate([one.zone for one in turns])
        order = np.argsort(zone, kind="stable")
        parts = [
            np.concatenate([getattr(one, name) for one in turns])[order]
            for name in ("zone", "u0", "v0", "u1", "v1")
        ]
        merged = Edges(*parts)
        first = np.searchsorted(merged.zone, np.arange(len(found) + 1)).astype(np.int64)
        return cls(merged, metric, first, _boxes(found, metric=metric))

    def on_tile(
        self,
        tile: tuple[int, int, int],
        shape: tuple[int, int],
        method: Method = "centre",
        chosen: Ints | None = None,
    ) -> Spans:
        """The pixels of a tile within the areas; see `comal.geo.scanline.area_spans`.

        `chosen` are the numbers of the areas that may touch it, ascending; None for all.
        """
        height, width = shape
        edges = self.edges if chosen is None else self.edges.take(self._rows(chosen))
        rows = np.arange(2 * height + 1) / 2
        z, x, y = tile
        if self.metric:
            west, south, east, north = tile_box_3857(z, x, y)
            lines = rows / height * (north - south) - north
        else:
            west, east = (column / 2**z * 360 - 180 for column in (x, x + 1))
            _, latitude = xy_to_lonlat(np.full(len(rows), x), y + rows / height, z)
            lines = -latitude
        local = edges.on(west, (east - west) / width)
        return area_spans(local, lines[::2], lines[1::2], width, method)

    def pairs(self, tiles: Ints, zoom: int) -> tuple[Ints, Ints]:
        """Pairs of tiles (n, 3) and areas whose boxes intersect, ordered by tile, then area."""
        columns, rows = self._windows(zoom)
        side = 2.0**zoom
        boxes, areas = [], []
        for turn in (0.0,) if self.metric else (-side, 0.0, side):
            left, right = columns[:, 0] + turn, columns[:, 1] + turn
            known = np.flatnonzero((left <= side) & (right >= 0) & np.isfinite(rows).all(axis=1))
            boxes.append(shapely.box(left[known], rows[known, 0], right[known], rows[known, 1]))
            areas.append(known)
        _, x, y = tiles.T
        tree = shapely.STRtree(np.concatenate(boxes))
        which, found = tree.query(shapely.box(x, y, x + 1, y + 1))
        pairs = np.unique(np.stack([which, np.concatenate(areas)[found]], axis=1), axis=0)
        return pairs[:, 0].astype(np.int64), pairs[:, 1].astype(np.int64)

    def _windows(self, zoom: int) -> tuple[Floats, Floats]:
        """West and east column, north and south row of each box, as fractions, shape (n, 2).

        Rows are NaN for areas that are empty or beyond the limit of Web Mercator.
        """
        west, south, east, north = self.boxes.T
        columns = np.stack([west, east], axis=1) / 360 * 2.0**zoom + 2.0**zoom / 2
        inside = (north > -LATITUDE_LIMIT) & (south < LATITUDE_LIMIT)
        latitudes = np.stack([north, south], axis=1)
        _, rows = lonlat_to_xy(np.zeros_like(latitudes), latitudes, zoom)
        rows[~inside] = np.nan
        return columns, rows

    def _rows(self, chosen: Ints) -> Any:
        if len(chosen) == len(self):
            return slice(None)
        start, stop = self.first[chosen], self.first[chosen + 1]
        count = stop - start
        before = np.repeat(np.cumsum(count) - count, count)
        return np.arange(len(before)) - before + np.repeat(start, count)


def _placed(shapes: Any, crs: Any) -> tuple[bool, Any]:
    """Whether the shapes are in metres of EPSG:3857, else in degrees, and the shapes."""
    # pyproj is needed for other CRS only.
    if isinstance(crs, str) and crs.upper() in {"EPSG:4326", "OGC:CRS84"}:
        return False, shapes
    source = projection(crs_text(crs), "zones")
    if source.transformer is not None and source.transformer.source_crs.to_epsg() == _MERCATOR:
        return True, shapes
    bent = shapes if source.is_geographic else densified(source, shapes)
    present = ~(shapely.is_missing(bent) | shapely.is_empty(bent))
    points, owner = shapely.get_coordinates(bent[present], return_index=True)
    lon, lat = source.to_lonlat(points[:, 0], points[:, 1])
    if not (np.isfinite(lon).all() and np.isfinite(lat).all()):
        row = int(owner[np.argmax(~(np.isfinite(lon) & np.isfinite(lat)))])
        raise InvalidInputError(
            "a zone lies where its CRS is not defined",
            where=f"zone {np.flatnonzero(present)[row]}",
        )
    result = np.array(bent, object)
    result[present] = shapely.set_coordinates(bent[present], np.stack([lon, lat], axis=1))
    return False, result


def _turned(edges: Edges) -> list[Edges]:
    """The edges, and for areas beyond 180 degrees a copy on the other side of the map."""
    found = [edges]
    for turn, beyond in (
        (360.0, np.maximum(edges.u0, edges.u1) > 180),
        (-360.0, np.minimum(edges.u0, edges.u1) < -180),
    ):
        zones = np.unique(edges.zone[beyond])
        if len(zones):
            found.append(edges.take(np.isin(edges.zone, zones)).on(turn, 1))
    return found


def _boxes(shapes: Any, *, metric: bool) -> Floats:
    boxes: Floats = shapely.bounds(shapes)
    if not metric:
        return boxes
    result = np.empty_like(boxes)
    for first in (0, 2):
        x, y = boxes[:, first], boxes[:, first + 1]
        lon, lat = xy_to_lonlat((x / HALF + 1) / 2, ((1 - y / HALF) / 2).clip(0, 1), 0)
        result[:, first], result[:, first + 1] = lon, lat
    return result
