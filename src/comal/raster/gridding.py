"""Position of a raster on the Web Mercator plane, and the zoom and tiles that it needs.

Positions are fractions of the world: 0 is its western or northern edge, 1 the eastern or southern.
A raster across the antimeridian extends below 0 or above 1 and is split there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely
from affine import Affine
from rasterio.crs import CRS
from rasterio.features import rasterize

from comal.errors import InvalidInputError, InvalidMetadataError
from comal.geo.crs import projection
from comal.grid.mercator import CIRCUMFERENCE, LATITUDE_LIMIT, latitude, xy_to_lonlat
from comal.public import warn
from comal.raster.describing import RasterInfo, Transform
from comal.raster.values import Mask

Floats = npt.NDArray[np.float64]
Box = tuple[float, float, float, float]
"""West, north, east and south edge in fractions of the world."""

MAX_ZOOM = 26
STRATEGIES = ("auto", "lower", "upper")
SNAP = 0.01
"""An edge within this fraction of a pixel of a tile edge snaps to it."""
_SIDE = 128
_INSIDE = 21
_PART = 0.25
_WIDEST = 3
"""Worlds that the edge of a raster may reach over."""
_SURE = 1e-6
_EDGE = 1e-9


@dataclass(frozen=True, slots=True)
class Footprint:
    """Position of a raster."""

    box: Box
    """Its extent; west may be below 0 and east above 1."""
    raw: float
    """Log2 of the side of the world in pixels of its resolution."""
    ring: tuple[tuple[float, float], ...] | None
    """Its edge, if that is a simple ring on the plane."""
    clipped: bool
    """Whether it extends beyond the latitudes of the plane."""


@dataclass(frozen=True, slots=True)
class Member:
    """A raster, or a part of one, on one copy of the world.

    A raster across the antimeridian has a member on either side.
    """

    info: RasterInfo
    box: Box
    """Its extent, between 0 and 1."""
    shift: int
    """Number of worlds by which it is moved east; nonzero for longitudes beyond 180 degrees."""
    footprint: Footprint
    offset: tuple[int, int] | None
    """Column and row of its first pixel in the grid, if it is aligned with the pixels."""


@dataclass(frozen=True, slots=True)
class TileRange:
    """Tiles of one zoom; bounds are inclusive."""

    west: int
    north: int
    east: int
    south: int


@dataclass(frozen=True, slots=True)
class Grid:
    """The tiles of a converted raster."""

    zoom: int
    min_zoom: int
    block: int
    ranges: tuple[TileRange, ...]
    """One range, or one on either side of the antimeridian."""
    extent: tuple[float, float, float, float]
    """West, south, east, north of the sources in degrees; west > east across the antimeridian."""

    @property
    def hull(self) -> TileRange:
        """The smallest range that contains all ranges."""
        parts = self.ranges
        return TileRange(
            min(part.west for part in parts),
            min(part.north for part in parts),
            max(part.east for part in parts),
            max(part.south for part in parts),
        )

    @property
    def pixel_zoom(self) -> int:
        """Log2 of the side of the world in pixels."""
        return self.zoom + self.block.bit_length() - 1


@dataclass(frozen=True, slots=True)
class Window2D:
    """A rectangle of pixels of the grid; x and y count from the corner of the world."""

    x: int
    y: int
    width: int
    height: int


@lru_cache(maxsize=64)
def crs_kind(crs: str) -> str:
    """``mercator`` for EPSG:3857, ``lonlat`` for EPSG:4326 and similar CRS, else ``other``."""
    known = CRS.from_wkt(crs)
    code = known.to_epsg(confidence_threshold=70)
    if code == 3857 or known.to_epsg(confidence_threshold=25) == 3857:
        return "mercator"
    return "lonlat" if code == 4326 or (known.is_geographic and "WGS" in crs[:80]) else "other"


def on_plane(crs: str, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """World fractions of coordinates, and their latitudes; not finite where undefined."""
    kind = crs_kind(crs)
    if kind == "mercator":
        u, v = x / CIRCUMFERENCE + 0.5, 0.5 - y / CIRCUMFERENCE
        return u, v, np.degrees(np.arctan(np.sinh(np.pi * (1 - 2 * v))))
    lon, lat = (x, y) if kind == "lonlat" else projection(crs, "raster").to_lonlat(x, y)
    with np.errstate(all="ignore"):
        near = np.clip(lat, -89.999999, 89.999999)
        v = 0.5 - np.arctanh(np.sin(np.radians(near))) / (2 * np.pi)
        return lon / 360 + 0.5, v, lat


def footprint(info: RasterInfo) -> Footprint:
    """The position of a raster, from points along its edge and some points inside."""
    a, b, _, d, e, _ = info.transform
    if not np.isfinite(info.transform).all() or a * e - b * d == 0:
        raise InvalidMetadataError(
            "the geotransform cannot be inverted", where=info.where, found=info.transform
        )
    columns, rows = _ring(info.width, info.height)
    u, v, lat = on_plane(info.crs, *_placed(info.transform, columns, rows))
    inner = _lattice(info.width, info.height)
    inner_u, inner_v, inner_lat = on_plane(info.crs, *_placed(info.transform, *inner))
    ok, inner_ok = _finite(u, v, lat), _finite(inner_u, inner_v, inner_lat)
    if not ok.any() and not inner_ok.any():
        raise _nowhere(info)
    polar = False
    whole = bool(ok.all())
    if crs_kind(info.crs) == "other":
        u[ok], polar = _unwrapped(u[ok])
        inner_u = _near(inner_u, float(u[ok].mean()) if ok.any() else 0.5)
    every_lat = np.concatenate([lat[ok], inner_lat[inner_ok]])
    every_u = u[ok] if whole else np.concatenate([u[ok], inner_u[inner_ok]])
    every_v = np.concatenate([v[ok], inner_v[inner_ok]])
    west, east = float(every_u.min()), float(every_u.max())
    north, south = float(every_v.min()), float(every_v.max())
    if polar or east - west > 1:
        west, east = (0.0, 1.0) if polar else (west, min(east, west + 1))
    if polar:
        north, south = (0.0, south) if every_lat.mean() > 0 else (north, 1.0)
    # A raster that ends exactly at the limit of the plane loses nothing.
    clipped = polar or bool((np.abs(every_lat) > LATITUDE_LIMIT + _SURE).any())
    north, south = max(north, 0.0), min(south, 1.0)
    if north >= south or west >= east:
        raise _nowhere(info)
    ring = None
    if whole and polar:
        u, v = _around(u, v, pole=-0.5 if every_lat.mean() > 0 else 1.5)
    # One around several worlds is no edge on any of them.
    if whole and np.ptp(u) <= _WIDEST + _SURE:
        ring = tuple(zip(u.tolist(), np.clip(v, -0.5, 1.5).tolist(), strict=True))
    raw = -math.log2(_resolution(info))
    return Footprint((west, north, east, south), raw, ring, clipped)


def raw_zoom(prints: Sequence[Footprint], block: int) -> float:
    """Fractional zoom with the resolution of the finest raster; see `choose_zoom`."""
    raw = max(one.raw for one in prints) - math.log2(block)
    nearest = round(raw)
    return float(nearest) if abs(raw - nearest) < _SURE else raw


def choose_zoom(raw: float, strategy: str) -> int:
    """The zoom nearest to `raw`, or the next above or below; at most 26."""
    if strategy not in STRATEGIES:
        raise InvalidInputError(
            "unknown zoom strategy", found=strategy, expected=", ".join(STRATEGIES)
        )
    rounded = {"auto": round(raw), "lower": math.floor(raw), "upper": math.ceil(raw)}
    chosen = rounded[strategy]
    if chosen > MAX_ZOOM:
        warn(
            f"pixels finer than zoom {MAX_ZOOM}, the deepest of QUADBIN, become coarser",
            UserWarning,
        )
    return int(min(max(chosen, 0), MAX_ZOOM))


def overview_zoom(prints: Sequence[Footprint], block: int, zoom: int) -> int:
    """The zoom at which the diagonal of all rasters is about that of 128 x 128 pixels."""
    west, north, east, south = _union(prints)
    diagonal = math.hypot(east - west, south - north) * 2.0**32
    level = round(32 - math.log2(diagonal / math.hypot(128, 128)) - math.log2(block))
    return min(max(level, 0), zoom)


def plan_grid(
    infos: Sequence[RasterInfo],
    prints: Sequence[Footprint],
    *,
    zoom: int,
    min_zoom: int,
    block: int,
) -> tuple[Grid, tuple[Member, ...]]:
    """The tiles that rasters touch at a zoom, and the members of each raster."""
    members = [
        member
        for info, place in zip(infos, prints, strict=True)
        for member in _members(info, place, zoom, block)
    ]
    ranges = _merged([tile_range(member.box, zoom, block) for member in members])
    grid = Grid(zoom, min_zoom, block, ranges, extent(prints))
    return grid, tuple(members)


def tile_range(box: Box, zoom: int, block: int) -> TileRange:
    """Tiles that a box touches; an edge within 1/100 pixel of a tile edge snaps to it."""
    side, last = 2**zoom, 2**zoom - 1
    west, north, east, south = (_snapped(edge * side, block) for edge in box)
    left, top = min(math.floor(west), last), min(math.floor(north), last)
    return TileRange(
        max(left, 0),
        max(top, 0),
        min(max(math.ceil(east) - 1, left), last),
        min(max(math.ceil(south) - 1, top), last),
    )


def pixel_offset(info: RasterInfo, pixel_zoom: int) -> tuple[int, int] | None:
    """Column and row of the north-western pixel, if the raster is aligned with a zoom; else None.

    The tolerance of the corners is 1/100 pixel. A raster stored from south to north counts too.
    """
    a, b, c, d, e, f = info.transform
    size = CIRCUMFERENCE / 2.0**pixel_zoom
    if crs_kind(info.crs) != "mercator" or b or d or a <= 0:
        return None
    if abs(a / size - 1) > _SURE or abs(abs(e) / size - 1) > _SURE:
        return None
    top, bottom = (f, f + e * info.height) if e < 0 else (f + e * info.height, f)
    west = (c + CIRCUMFERENCE / 2) / size
    north = (CIRCUMFERENCE / 2 - top) / size
    corners = (
        (west, round(west)),
        (north, round(north)),
        (west + a / size * info.width, round(west) + info.width),
        ((CIRCUMFERENCE / 2 - bottom) / size, round(north) + info.height),
    )
    if any(abs(found - right) > SNAP for found, right in corners):
        return None
    return round(west), round(north)


def _members(info: RasterInfo, place: Footprint, zoom: int, block: int) -> list[Member]:
    west, north, east, south = place.box
    pixel_zoom = zoom + block.bit_length() - 1
    slack = SNAP / 2**pixel_zoom
    offset = pixel_offset(info, pixel_zoom)
    # The raster is moved only if its own coordinates can extend beyond 180 degrees.
    moves = crs_kind(info.crs) != "other"
    found = []
    for world in range(math.floor(west + slack), math.ceil(east - slack)):
        box = (max(west - world, 0.0), north, min(east - world, 1.0), south)
        at = None if offset is None else (offset[0] - world * 2**pixel_zoom, offset[1])
        found.append(Member(info, box, -world if moves else 0, place, at))
    return found


def _merged(ranges: list[TileRange]) -> tuple[TileRange, ...]:
    """Ranges without overlap: one, or two with a gap if rasters touch both edges of the world."""
    rows = {"north": min(r.north for r in ranges), "south": max(r.south for r in ranges)}
    found: list[TileRange] = []
    for one in sorted(ranges, key=lambda r: (r.west, r.east)):
        if found and one.west <= found[-1].east + 1:
            found[-1] = replace(found[-1], east=max(found[-1].east, one.east))
        else:
            found.append(TileRange(one.west, rows["north"], one.east, rows["south"]))
    return tuple(found)


def extent(prints: Sequence[Footprint]) -> tuple[float, float, float, float]:
    """West, south, east, north of all rasters in degrees; west > east across the antimeridian."""
    west, north, east, south = _union(prints)
    left, right = west * 360 - 180, east * 360 - 180
    if right - left >= 360:
        left, right = -180.0, 180.0
    elif left < -180 or right > 180:
        left, right = (left + 180) % 360 - 180, (right + 180) % 360 - 180
    return left, latitude(south), right, latitude(north)


def _union(prints: Sequence[Footprint]) -> Box:
    boxes = np.array([one.box for one in prints])
    # Boxes on both sides of the antimeridian are joined across it if that is shorter.
    straight = boxes[:, 2].max() - boxes[:, 0].min()
    moved = boxes.copy()
    moved[moved[:, 0] < 0.5, 0::2] += 1
    if moved[:, 2].max() - moved[:, 0].min() < straight:
        boxes = moved
    west, north = boxes[:, 0].min(), boxes[:, 1].min()
    return float(west), float(north), float(boxes[:, 2].max()), float(boxes[:, 3].max())


def _resolution(info: RasterInfo) -> float:
    """Pixel size in fractions of the world: along the diagonal, clipped to the plane."""
    first, last = _cut_rows(info)
    columns = np.array([0.0, info.width])
    u, v, lat = on_plane(info.crs, *_placed(info.transform, columns, np.array([first, last])))
    if crs_kind(info.crs) == "other":
        u[1] = _near(u[1:], float(u[0]))[0]
    beyond = np.abs(lat) > LATITUDE_LIMIT + _SURE
    if _finite(u, v, lat).all() and not beyond.any() and math.hypot(*np.ptp([u, v], axis=1)):
        return float(np.hypot(*np.ptp([u, v], axis=1)) / math.hypot(info.width, last - first))
    return _local_resolution(info)


def _cut_rows(info: RasterInfo) -> tuple[float, float]:
    """First and last row on the plane; all rows unless they are parallels of latitude."""
    _, b, _, d, e, f = info.transform
    if crs_kind(info.crs) == "other" or b or d:
        return 0.0, float(info.height)
    limit = LATITUDE_LIMIT if crs_kind(info.crs) == "lonlat" else CIRCUMFERENCE / 2
    cuts = sorted(((limit - f) / e, (-limit - f) / e))
    slack = SNAP
    first, last = math.ceil(cuts[0] - slack), math.floor(cuts[1] + slack)
    return float(max(first, 0)), float(min(last, info.height))


def _local_resolution(info: RasterInfo) -> float:
    """Median pixel size, for rasters whose corners are not on the plane."""
    columns, rows = _lattice(info.width, info.height)
    here = on_plane(info.crs, *_placed(info.transform, columns, rows))
    # A part of a pixel, for a whole one may reach around the world to where it began.
    right = on_plane(info.crs, *_placed(info.transform, columns + _PART, rows))
    down = on_plane(info.crs, *_placed(info.transform, columns, rows + _PART))
    with np.errstate(all="ignore"):
        right_u, down_u = right[0] - here[0], down[0] - here[0]
        right_u, down_u = right_u - np.round(right_u), down_u - np.round(down_u)
        area = np.abs(right_u * (down[1] - here[1]) - down_u * (right[1] - here[1]))
        usable = np.isfinite(area) & (area > 0) & (np.abs(here[2]) < LATITUDE_LIMIT)
    if not usable.any():
        raise _nowhere(info)
    return float(np.sqrt(np.median(area[usable]))) / _PART


def _ring(width: int, height: int) -> tuple[Floats, Floats]:
    along = np.linspace(0, 1, _SIDE + 1)[:-1]
    columns = np.concatenate([along, np.ones(_SIDE), 1 - along, np.zeros(_SIDE)]) * width
    rows = np.concatenate([np.zeros(_SIDE), along, np.ones(_SIDE), 1 - along]) * height
    return columns, rows


def _lattice(width: int, height: int) -> tuple[Floats, Floats]:
    along = (np.arange(_INSIDE) + 0.5) / _INSIDE
    columns, rows = np.meshgrid(along * width, along * height)
    return columns.ravel(), rows.ravel()


def _placed(transform: Transform, columns: Floats, rows: Floats) -> tuple[Floats, Floats]:
    a, b, c, d, e, f = transform
    return a * columns + b * rows + c, d * columns + e * rows + f


def _finite(*arrays: Floats) -> npt.NDArray[np.bool_]:
    return np.asarray(np.logical_and.reduce([np.isfinite(array) for array in arrays]))


def _unwrapped(u: Floats) -> tuple[Floats, bool]:
    """A ring without its jump at the antimeridian, and whether it encloses a pole."""
    if len(u) == 0:
        return u, False
    straight = np.unwrap(u, period=1.0)
    closing = straight[-1] + (u[0] - straight[-1]) - np.round(u[0] - straight[-1])
    polar = abs(closing - straight[0]) > 0.5
    straight -= np.floor(straight.mean())
    return straight, bool(polar)


def _around(u: Floats, v: Floats, pole: float) -> tuple[Floats, Floats]:
    """A ring around a pole as one on the plane: on three worlds, closed beyond the `pole`."""
    turn = np.sign(u[-1] - u[0])
    u = np.concatenate([u - turn, u, u + turn, [u[0] + 2 * turn]])
    return np.append(u, [u[-1], u[0]]), np.concatenate([v, v, v, [v[0], pole, pole]])


def _near(u: Floats, centre: float) -> Floats:
    """Positions in the copy of the world that is nearest to `centre`."""
    with np.errstate(invalid="ignore"):
        return np.asarray(u - np.round(u - centre))


def _snapped(edge: float, block: int) -> float:
    nearest = round(edge)
    return float(nearest) if abs(edge - nearest) <= SNAP / block + _EDGE else edge


def _nowhere(info: RasterInfo) -> InvalidInputError:
    return InvalidInputError(
        "no part of the raster lies within Web Mercator",
        where=info.where,
        expected=f"latitudes within {LATITUDE_LIMIT:.4f} degrees",
    )


# -- outlines --------------------------------------------------------------------------------------


_TOLERANCE = 0.05
"""Largest distance of the outline from the edge, as a fraction of a pixel."""
_MOST_POINTS = 20_000


def outline(
    footprints: Iterable[Footprint], bounds: Sequence[float], pixel_zoom: int
) -> dict[str, Any] | None:
    """The union of the areas of rasters, unless that equals their bounds.

    Parameters
    ----------
    footprints
        Positions of the rasters.
    bounds
        West, south, east, north of all, in degrees; west > east across the antimeridian.
    pixel_zoom
        The world is 2**pixel_zoom pixels wide.

    Returns
    -------
    A GeoJSON MultiPolygon in degrees, cut at the antimeridian. Its edges are straight on the Web
    Mercator plane and at most 1/20 pixel off those of the rasters. None if it equals the bounds,
    or has more than 20 000 points.
    """
    return outline_of([_polygon(one) for one in set(footprints)], bounds, pixel_zoom)


def outline_of(
    polygons: Sequence[Any], bounds: Sequence[float], pixel_zoom: int
) -> dict[str, Any] | None:
    """The union of polygons on the unit square; see `outline`."""
    pixel = 2.0**-pixel_zoom
    whole = shapely.union_all(polygons)
    if whole.is_empty:
        return None
    extent = _boxes(bounds, whole)
    if whole.symmetric_difference(extent).area <= _TOLERANCE * pixel * extent.length:
        return None
    small = whole.simplify(_TOLERANCE * pixel)
    parts = [part for part in shapely.get_parts(small) if isinstance(part, shapely.Polygon)]
    if not parts or shapely.get_num_coordinates(small) > _MOST_POINTS:
        return None
    digits = max(5, math.ceil(-math.log10(pixel * 360 * _TOLERANCE / 5)))
    coordinates = [
        [_degrees(ring, digits) for ring in (part.exterior, *part.interiors)] for part in parts
    ]
    return {"type": "MultiPolygon", "coordinates": coordinates}


def _polygon(one: Footprint) -> Any:
    """A footprint on the unit square; parts beyond its edges wrap to the other side."""
    west, north, east, south = one.box
    polygon: Any = shapely.box(west, north, east, south)
    if one.ring is not None:
        edge = shapely.Polygon(one.ring)
        polygon = edge if edge.is_valid else polygon
    world = shapely.box(0, 0, 1, 1)
    first, last = math.floor(polygon.bounds[0]), math.ceil(polygon.bounds[2])
    return shapely.union_all(
        [
            shapely.transform(polygon, lambda points, turn=turn: points - [turn, 0]) & world
            for turn in range(first, max(last, first + 1))
        ]
    )


def _boxes(bounds: Sequence[float], whole: Any) -> Any:
    """The bounds on the unit square; latitudes are those of the rasters."""
    _, north, _, south = whole.bounds
    west, east = bounds[0] / 360 + 0.5, bounds[2] / 360 + 0.5
    spans = [(west, east)] if west < east else [(west, 1.0), (0.0, east)]
    return shapely.union_all([shapely.box(left, north, right, south) for left, right in spans])


def _degrees(ring: Any, digits: int) -> list[list[float]]:
    points = shapely.get_coordinates(ring)
    lon, lat = xy_to_lonlat(points[:, 0], points[:, 1], 0)
    rounded: list[list[float]] = np.round(np.stack([lon, lat], axis=1), digits).tolist()
    return rounded


class Edge:
    """The edge of a member as a polygon in pixel coordinates of the grid."""

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
        """Pixels whose centres are in the raster; None if all are or the edge is unknown."""
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
    """Number of worlds from the ring of a raster to the copy of the world of a member."""
    west, _, east, _ = member.footprint.box
    middle = (member.box[0] + member.box[2]) / 2
    for world in range(int(np.floor(west)), int(np.ceil(east)) + 1):
        if west - world - 1e-9 <= middle <= east - world + 1e-9:
            return -world
    return 0
