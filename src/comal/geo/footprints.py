"""Centres and footprints of rasters, in longitude and latitude of EPSG:4326.

A raster is a CRS, a geotransform in GDAL order and a shape whose last two numbers are rows and
columns (``stac:crs``, ``stac:geotransform``, ``stac:tensor_shape``). All six numbers of the
geotransform count, so rotated rasters are right. Rows are grouped by CRS and each group is
transformed at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import InvalidInputError
from comal.geo import wkb
from comal.geo.boxes import (
    Corners,
    arc_width,
    boxes_intersect,
    continuous,
    edge_points,
    ring_boxes,
    union_box,
    wrap,
    wrap_arcs,
)
from comal.geo.crs import LONLAT, Projection, groups
from comal.geo.shapes import around_pole, unrolled
from comal.lazy import shapely

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]

# The chord of an arc of 2.5 km on the ground is off by 12 cm, of 5 km by half a metre.
_SMALL = 10_000.0
_FEW, _MANY = 2, 24
_TOGETHER = 64
"""Neighbours whose common outline is tested."""
_COARSE = 8
_SLACK = 0.1
_POLAR = 80.0
# Within this extent a map projection is a polynomial of second degree to a centimetre.
_SMOOTH = 20_000.0
_LEAST_COSINE = 0.01


def centroids(crs: Any, geotransform: Any, shape: Any) -> tuple[Floats, Floats]:
    """Longitude and latitude of raster centres.

    Parameters
    ----------
    crs
        Text for all rows or Arrow array of n texts.
    geotransform
        Arrow list column or array (n, 6): x0, dx, rotation, y0, rotation, dy.
    shape
        Arrow list column or array (n, k >= 2); the last two are rows and columns.

    Returns
    -------
    lon, lat in degrees, arrays of n; NaN for nulls and for centres outside of the earth.

    Raises
    ------
    InvalidInputError
        A CRS that PROJ does not know, or lists of wrong length.
    """
    return raster_footprints(crs, geotransform, shape).centres()


def footprints(crs: Any, geotransform: Any, shape: Any) -> Corners:
    """Boxes of rasters: west, south, east, north in degrees.

    Edges are densified before they are transformed, so the box includes curved edges; a raster
    across the antimeridian has west > east, one over a pole reaches it and spans all longitudes.
    Parameters and errors are those of `centroids`; a row without footprint is NaN.
    """
    affine, size = affine_of(geotransform), size_of(shape)
    result = np.full((4, len(affine)), np.nan)
    for source, rows in groups(crs, len(affine)):
        result[:, rows] = _boxes(source, affine[rows], size[rows])
    return result[0], result[1], result[2], result[3]


def possibly_within(
    crs: Any, geotransform: Any, shape: Any, bounds: Sequence[float]
) -> npt.NDArray[np.bool_]:
    """Which rasters may meet a box; the others certainly do not.

    Rasters of one CRS are grouped into cells of about 64 neighbours, whose outlines are transformed
    instead of theirs. Parameters are those of `centroids`, and the box.
    """
    affine, size = affine_of(geotransform), size_of(shape)
    result = np.ones(len(affine), np.bool_)
    for source, rows in groups(crs, len(affine)):
        result[rows] = _near(source, affine[rows], size[rows], bounds)
    return result


def _near(
    source: Projection, affine: Floats, size: Floats, bounds: Sequence[float]
) -> npt.NDArray[np.bool_]:
    result = np.ones(len(affine), np.bool_)
    x, y = places(affine, size, *edge_points(1)[:4].T)
    sides = np.stack([x.min(axis=1), x.max(axis=1), y.min(axis=1), y.max(axis=1)])
    known = np.flatnonzero(np.isfinite(sides).all(axis=0))
    if len(known) < _TOGETHER * 4:
        return result
    sides = sides[:, known]
    steps = int(np.sqrt(len(known) / _TOGETHER))
    cells = _cells(sides, steps)
    order = np.argsort(cells, kind="stable")
    starts = np.flatnonzero(np.diff(cells[order], prepend=-1))
    left, low = (np.minimum.reduceat(side[order], starts)[:, None] for side in sides[::2])
    right, high = (np.maximum.reduceat(side[order], starts)[:, None] for side in sides[1::2])
    u, v = edge_points(_COARSE).T
    x, y = left + (right - left) * u, low + (high - low) * v
    west, south, east, north = _boxes_of_rings(source, x, y)
    # Edges bulge between their points by much less than this.
    wide, tall = arc_width(west, east), north - south
    room, height = wide * _SLACK, tall * _SLACK
    met = boxes_intersect(west - room, south - height, west + wide + room, north + height, bounds)
    # Nothing is excluded if a part is outside of the earth, or near a pole.
    unsure = ~np.isfinite(source.to_lonlat(x, y)[0]).all(axis=1)
    unsure |= (south < -_POLAR) | (north > _POLAR)
    result[known[order]] = np.repeat(met | unsure, np.diff(np.append(starts, len(order))))
    return result


def _cells(sides: Floats, steps: int) -> npt.NDArray[np.int64]:
    """Cell numbers, with `steps` cells each way, for the centres of rasters."""
    cells = np.zeros(sides.shape[1], np.int64)
    for first, last in (sides[:2], sides[2:]):
        middle = (first + last) / 2
        low, high = middle.min(), middle.max()
        part = (middle - low) * (steps / (high - low) if high > low else 0.0)
        cells = cells * steps + np.minimum(part.astype(np.int64), steps - 1)
    return cells


def _boxes(source: Projection, affine: Floats, size: Floats) -> Floats:
    result = np.full((4, len(affine)), np.nan)
    with np.errstate(invalid="ignore"):
        extent = np.maximum(
            np.hypot(affine[:, 1], affine[:, 4]) * size[:, 1],
            np.hypot(affine[:, 2], affine[:, 5]) * size[:, 0],
        )
    known = np.isfinite(extent) & np.isfinite(affine).all(axis=1)
    small = known & (extent * source.unit <= _SMALL)
    for rows, per_edge in ((small, _FEW), (known & ~small, _MANY)):
        if rows.any():
            u, v = edge_points(per_edge).T
            x, y = places(affine[rows], size[rows], u, v)
            result[:, rows] = _boxes_of_rings(source, x, y)
    return result


def _boxes_of_rings(source: Projection, x: Floats, y: Floats) -> Floats:
    if source.transformer is None:
        # Longitudes are continuous already, such as 170..190 or 0..360.
        west, east = wrap_arcs(x.min(axis=1), x.max(axis=1))
        low, high = y.min(axis=1), y.max(axis=1)
        return np.stack([west, low.clip(-90, 90), east, high.clip(-90, 90)])
    lon, lat = source.to_lonlat(x, y)
    result = np.full((4, len(x)), np.nan)
    whole = np.isfinite(lon).all(axis=1)
    if not source.is_geographic:
        lon = without_poles(lon, lat)
    if whole.any():
        count, width = int(whole.sum()), lon.shape[1]
        starts = np.arange(count, dtype=np.int64) * width
        result[:, whole] = ring_boxes(lon[whole].ravel(), lat[whole].ravel(), starts)
    for row in np.flatnonzero(~whole):
        result[:, row] = _partial_box(source, x[row], y[row])
    return result


def without_poles(lon: Floats, lat: Floats) -> Floats:
    """Give each vertex on a pole, which has every longitude, that of the vertex before it."""
    polar = np.abs(lat) > 90 - 1e-9
    if not polar.any():
        return lon
    position = np.where(polar, -1, np.arange(lon.shape[1]))
    last = np.maximum.accumulate(position, axis=1)
    first = np.argmin(polar, axis=1)[:, None]
    return np.take_along_axis(lon, np.where(last < 0, first, last), axis=1)


def _partial_box(source: Projection, x: Floats, y: Floats) -> Floats:
    """Box of a raster partly outside of the earth, from points within it."""
    t = np.linspace(0, 1, 33)
    u, v = (part.ravel() for part in np.meshgrid(t, t))
    corner = np.arange(4) * ((len(x) - 1) // 4)  # the ring starts at 0, 0 and continues to 1, 0
    weights = np.stack([(1 - u) * (1 - v), u * (1 - v), u * v, (1 - u) * v])
    lon, lat = source.to_lonlat(x[corner] @ weights, y[corner] @ weights)
    box = union_box(lon, lat, lon, lat)
    return np.array(box if box is not None else [np.nan] * 4)


def places(affine: Floats, size: Floats, u: Floats, v: Floats) -> tuple[Floats, Floats]:
    """Coordinates x and y (n, m) of points in n rasters, in their CRS.

    `affine` and `size` are results of `affine_of` and `size_of`, `u` and `v` m fractions from 0 to
    1 along columns and rows.
    """
    columns, rows = size[:, 1:2] * u, size[:, 0:1] * v
    x = affine[:, 0:1] + columns * affine[:, 1:2] + rows * affine[:, 2:3]
    y = affine[:, 3:4] + columns * affine[:, 4:5] + rows * affine[:, 5:6]
    return x, y


def affine_of(geotransform: Any, where: str = "geotransform") -> Floats:
    """A column of geotransforms as an array (n, 6); NaN for null."""
    if isinstance(geotransform, pa.Array | pa.ChunkedArray):
        return _last(geotransform, 6, 6, where)
    affine = np.asarray(geotransform, np.float64)
    if affine.ndim != 2 or affine.shape[1] != 6:
        raise _wrong_length(where, affine.shape[1:], "six numbers")
    return affine


def size_of(shape: Any, where: str = "tensor_shape") -> Floats:
    """The last two numbers (rows, columns) of a column of shapes as an array (n, 2)."""
    if isinstance(shape, pa.Array | pa.ChunkedArray):
        return _last(shape, 2, None, where)
    size = np.asarray(shape, np.float64)
    if size.ndim != 2 or size.shape[1] < 2:
        raise _wrong_length(where, size.shape[1:], "at least two numbers")
    return size[:, -2:]


def _last(column: Any, count: int, exactly: int | None, where: str) -> Floats:
    """The last `count` numbers of each list; NaN for null lists."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_field))
    offsets = column.offsets.to_numpy()
    lengths = np.diff(offsets)
    known = wkb.present(column)
    wrong = known & ((lengths != exactly) if exactly else (lengths < count))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        expected = f"{exactly} numbers" if exactly else f"at least {count} numbers"
        raise _wrong_length(f"{where}, row {row}", int(lengths[row]), expected)
    result = np.full((len(column), count), np.nan)
    flat = column.values.to_numpy(zero_copy_only=False)
    result[known] = flat[offsets[1:][known, None] + np.arange(-count, 0)]
    return result


def _wrong_length(where: str, found: object, expected: str) -> InvalidInputError:
    return InvalidInputError(
        "the list has the wrong length", where=where, found=f"length {found}", expected=expected
    )


def outlines(source: Projection, affine: Floats, size: Floats) -> Objects:
    """Outlines of n rasters of one CRS; None for those partly outside of the earth.

    `affine` and `size` are results of `affine_of` and `size_of`.
    """
    lon, lat = source.to_lonlat(*places(affine, size, *edge_points(_MANY).T))
    result = np.full(len(lon), None, object)
    whole = np.flatnonzero(np.isfinite(lon).all(axis=1) & np.isfinite(lat).all(axis=1))
    if not len(whole):
        return result
    lon, lat = lon[whole], lat[whole].clip(-90, 90)
    if source.transformer is not None:  # plain longitudes may exceed 180 already
        if not source.is_geographic:
            lon = without_poles(lon, lat)
        starts = np.arange(len(lon), dtype=np.int64) * lon.shape[1]
        lon = continuous(lon.ravel(), starts).reshape(lon.shape)
    around = np.abs(lon[:, -1] - lon[:, 0]) > 180
    result[whole[~around]] = shapely.polygons(np.stack([lon, lat], axis=2)[~around])
    for row in np.flatnonzero(around):
        result[whole[row]] = around_pole(lon[row], lat[row])
    return result


# -- areas to read other rasters in ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Footprints:
    """n areas, each a parallelogram in its CRS, cut to a geometry if there is one."""

    crs: Any
    """Arrow array of n texts; null for rows without footprint."""
    affine: Floats
    """Geotransforms (n, 6)."""
    size: Floats
    """Rows and columns (n, 2); zero for a point."""
    shapes: npt.NDArray[np.object_] | None = None
    """Shapely geometries in the CRS, None for the whole parallelogram."""

    def __len__(self) -> int:
        return len(self.affine)

    def is_place(self) -> npt.NDArray[np.bool_]:
        """Which footprints have no extent."""
        result: npt.NDArray[np.bool_] = (self.size == 0).all(axis=1)
        return result

    def centres(self) -> tuple[Floats, Floats]:
        """Longitude and latitude of the centres of the parallelograms."""
        lon, lat = np.full(len(self), np.nan), np.full(len(self), np.nan)
        half = np.full(1, 0.5)
        for source, rows in groups(self.crs, len(self)):
            x, y = places(self.affine[rows], self.size[rows], half, half)
            lon[rows], lat[rows] = source.to_lonlat(x[:, 0], y[:, 0])
        return wrap(lon), lat

    def extents(self) -> Floats:
        """Longer side of each footprint in metres; NaN without footprint."""
        result = np.full(len(self), np.nan)
        across = np.hypot(self.affine[:, 1], self.affine[:, 4]) * self.size[:, 1]
        along = np.hypot(self.affine[:, 2], self.affine[:, 5]) * self.size[:, 0]
        _, lat = self.centres()
        cosine = np.maximum(np.cos(np.radians(lat)), _LEAST_COSINE)
        for source, rows in groups(self.crs, len(self)):
            shrunk = across[rows] * cosine[rows] if source.is_geographic else across[rows]
            result[rows] = np.maximum(shrunk, along[rows]) * source.unit
        return np.where(np.isfinite(lat), result, np.nan)

    def take(self, rows: Rows) -> Footprints:
        """The footprints of `rows`."""
        shapes = None if self.shapes is None else self.shapes[rows]
        return Footprints(self.crs.take(pa.array(rows)), self.affine[rows], self.size[rows], shapes)

    def places(self, rows: Rows, per_side: int) -> tuple[Floats, Floats, Floats]:
        """Points spread evenly over footprints: longitude, latitude and weight (rows, per_side^2).

        The weight is the area that a point represents, up to a factor per row; 0 outside of a
        geometry.
        """
        chosen = self.take(rows)
        t = (np.arange(per_side) + 0.5) / per_side
        u, v = (part.ravel() for part in np.meshgrid(t, t))
        lon = np.full((len(rows), len(u)), np.nan)
        lat, weight = lon.copy(), np.zeros(lon.shape)
        extents = chosen.extents()
        for source, mine in groups(chosen.crs, len(rows)):
            smooth = extents[mine] <= _SMOOTH
            for some, interpolate in ((mine[smooth], True), (mine[~smooth], False)):
                if len(some):
                    part = chosen.take(some)
                    lon[some], lat[some], weight[some] = part.spread(
                        source, u, v, interpolate=interpolate
                    )
        return wrap(lon), lat, weight

    def spread(
        self, source: Projection, u: Floats, v: Floats, *, interpolate: bool
    ) -> tuple[Floats, Floats, Floats]:
        """Longitude, latitude and weight of points u, v of footprints that share one CRS."""
        if source.transformer is None or not interpolate or len(u) <= 9:
            lon, lat = source.to_lonlat(*places(self.affine, self.size, u, v))
        else:
            lon, lat = self._interpolated(source, u, v)
        weight = np.ones(lon.shape)
        if source.is_geographic:
            # Rounded, as the last digit of a cosine differs from processor to processor.
            weight = np.maximum(np.cos(np.radians(lat)).astype(np.float32), 0.0).astype(np.float64)
        if self.shapes is not None:
            weight *= self._inside(u, v)
        return lon, lat, weight

    def _interpolated(self, source: Projection, u: Floats, v: Floats) -> tuple[Floats, Floats]:
        """Points between nine transformed ones, by quadratic Lagrange polynomials."""
        nodes = np.array([0.0, 0.5, 1.0])
        node_u, node_v = (part.ravel() for part in np.meshgrid(nodes, nodes))
        lon, lat = source.to_lonlat(*places(self.affine, self.size, node_u, node_v))
        lon = lon[:, :1] + wrap(lon - lon[:, :1])
        weights = (_lagrange(v)[:, None, :] * _lagrange(u)[None, :, :]).reshape(9, -1)
        # Not by a product of matrices, whose last digits differ from processor to processor.
        lons, lats = (
            sum(part[:, node, None] * weights[node] for node in range(9)) for part in (lon, lat)
        )
        return lons, lats

    def _inside(self, u: Floats, v: Floats) -> Floats:
        """1 for points inside their geometry; if none is, the nearest one counts."""
        assert self.shapes is not None
        result = np.ones((len(self), len(u)))
        cut = np.flatnonzero(~shapely.is_missing(self.shapes))
        if not len(cut):
            return result
        x, y = places(self.affine[cut], self.size[cut], u, v)
        geometries = self.shapes[cut, None]
        shapely.prepare(geometries)
        inside = shapely.intersects_xy(geometries, x, y)
        missed = np.flatnonzero(~inside.any(axis=1))
        if len(missed):
            distance = shapely.distance(geometries[missed], shapely.points(x[missed], y[missed]))
            inside[missed, distance.argmin(axis=1)] = True
        result[cut] = inside
        return result


def _lagrange(t: Floats) -> Floats:
    """Weights (3, m) of values at 0, 1/2 and 1 for positions t."""
    return np.stack([(2 * t - 1) * (t - 1), 4 * t * (1 - t), t * (2 * t - 1)])


def raster_footprints(crs: Any, geotransform: Any, shape: Any) -> Footprints:
    """Footprints of rasters; parameters as for `centroids`."""
    affine, size = affine_of(geotransform), size_of(shape)
    return Footprints(_names(crs, len(affine)), affine, size)


def geometry_footprints(geometry: Any, crs: Any = LONLAT) -> Footprints:
    """Footprints of geometries given as an Arrow column of WKB in their CRS."""
    count = len(geometry)
    names = _names(crs, count)
    shapes = wkb.to_shapely(geometry)
    for source, rows in groups(names, count):
        if source.is_geographic:
            shapes[rows] = unrolled(shapes[rows])
    west, south, east, north = shapely.bounds(shapes).T
    zero = np.zeros(count)
    affine = np.stack([west, east - west, zero, north, zero, south - north], axis=1)
    size = np.where(((west == east) & (south == north))[:, None], 0.0, np.ones((count, 2)))
    return Footprints(names, affine, size, shapes)


def point_footprints(points: Any) -> Footprints:
    """Points, given as an Arrow column of WKB in EPSG:4326."""
    lon, lat = wkb.points_xy(points)
    zero = np.zeros(len(lon))
    affine = np.stack([lon, zero, zero, lat, zero, zero], axis=1)
    names = pa.array([LONLAT]).take(pa.array(np.zeros(len(lon), np.int64), mask=np.isnan(lon)))
    return Footprints(names, affine, np.zeros((len(lon), 2)))


def first_known(options: list[Footprints]) -> Footprints:
    """For each row the first of `options` that has a footprint in it."""
    count = len(options[0])
    chosen = np.zeros(count, np.int64)
    open_rows = np.ones(count, bool)
    for number, option in enumerate(options):
        known = wkb.present(option.crs) & np.isfinite(option.affine).all(axis=1)
        known &= np.isfinite(option.size).all(axis=1)
        chosen[open_rows & known] = number
        open_rows &= ~known
    rows = np.arange(count)
    crs = pa.concat_arrays([option.crs for option in options]).take(pa.array(chosen * count + rows))
    empty = np.full(count, None, object)
    shapes = np.stack([empty if o.shapes is None else o.shapes for o in options])
    return Footprints(
        crs,
        np.stack([option.affine for option in options])[chosen, rows],
        np.stack([option.size for option in options])[chosen, rows],
        shapes[chosen, rows],
    )


def _names(crs: Any, count: int) -> Any:
    if isinstance(crs, str):
        return pa.array([crs], pa.string()).take(pa.array(np.zeros(count, np.int64)))
    if isinstance(crs, pa.ChunkedArray):
        crs = crs.combine_chunks()
    return crs.cast(pa.string()) if isinstance(crs, pa.Array) else pa.array(crs, pa.string())
