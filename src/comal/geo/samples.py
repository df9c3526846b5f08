"""Footprints of many samples as places spread over them, for reading other rasters there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.geo import wkb
from comal.geo.boxes import wrap
from comal.geo.crs import LONLAT, Projection, groups, projection
from comal.geo.footprints import affine_of, places, size_of
from comal.geo.shapes import unrolled
from comal.lazy import shapely

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

# Within such an extent a map projection is a polynomial of second degree to a centimetre.
_SMOOTH = 20_000.0
_LEAST_COSINE = 0.01


@dataclass(frozen=True, slots=True)
class Footprints:
    """n areas, each a parallelogram in its CRS, cut to a geometry where there is one."""

    crs: Any
    """Arrow array of n texts; null has no footprint."""
    affine: Floats
    """Geotransforms (n, 6)."""
    size: Floats
    """Rows and columns (n, 2); zero for a mere place."""
    shapes: npt.NDArray[np.object_] | None = None
    """Shapely geometries in the CRS, None where the whole parallelogram counts."""

    def __len__(self) -> int:
        return len(self.affine)

    def is_place(self) -> npt.NDArray[np.bool_]:
        """Which footprints have no extent."""
        result: npt.NDArray[np.bool_] = (self.size == 0).all(axis=1)
        return result

    def centres(self) -> tuple[Floats, Floats]:
        """Longitude and latitude of the middles of the parallelograms."""
        lon, lat = np.full(len(self), np.nan), np.full(len(self), np.nan)
        half = np.full(1, 0.5)
        for name, rows in groups(self.crs, len(self)):
            x, y = places(self.affine[rows], self.size[rows], half, half)
            lon[rows], lat[rows] = projection(name).to_lonlat(x[:, 0], y[:, 0])
        return wrap(lon), lat

    def extents(self) -> Floats:
        """Longer side of each footprint in metres; NaN where there is none."""
        result = np.full(len(self), np.nan)
        across = np.hypot(self.affine[:, 1], self.affine[:, 4]) * self.size[:, 1]
        along = np.hypot(self.affine[:, 2], self.affine[:, 5]) * self.size[:, 0]
        _, lat = self.centres()
        cosine = np.maximum(np.cos(np.radians(lat)), _LEAST_COSINE)
        for name, rows in groups(self.crs, len(self)):
            source = projection(name)
            shrunk = across[rows] * cosine[rows] if source.is_geographic else across[rows]
            result[rows] = np.maximum(shrunk, along[rows]) * source.unit
        return np.where(np.isfinite(lat), result, np.nan)

    def take(self, rows: Rows) -> Footprints:
        """The footprints of `rows`."""
        shapes = None if self.shapes is None else self.shapes[rows]
        return Footprints(self.crs.take(pa.array(rows)), self.affine[rows], self.size[rows], shapes)

    def places(self, rows: Rows, per_side: int) -> tuple[Floats, Floats, Floats]:
        """Places spread evenly over footprints.

        Returns
        -------
        Longitude, latitude and weight, arrays (rows, per_side^2). The weight is the area that a
        place stands for, up to a factor per row; 0 outside of a geometry.
        """
        chosen = self.take(rows)
        t = (np.arange(per_side) + 0.5) / per_side
        u, v = (part.ravel() for part in np.meshgrid(t, t))
        lon = np.full((len(rows), len(u)), np.nan)
        lat, weight = lon.copy(), np.zeros(lon.shape)
        extents = chosen.extents()
        for name, mine in groups(chosen.crs, len(rows)):
            source = projection(name)
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
        """Longitude, latitude and weight of places u, v of footprints that are all in one CRS."""
        if source.transformer is None or not interpolate or len(u) <= 9:
            lon, lat = source.to_lonlat(*places(self.affine, self.size, u, v))
        else:
            lon, lat = self._interpolated(source, u, v)
        weight = np.ones(lon.shape)
        if source.is_geographic:
            weight = np.maximum(np.cos(np.radians(lat)), 0.0)
        if self.shapes is not None:
            weight *= self._inside(u, v)
        return lon, lat, weight

    def _interpolated(self, source: Projection, u: Floats, v: Floats) -> tuple[Floats, Floats]:
        """Places between nine transformed ones, by quadratic Lagrange polynomials."""
        nodes = np.array([0.0, 0.5, 1.0])
        node_u, node_v = (part.ravel() for part in np.meshgrid(nodes, nodes))
        lon, lat = source.to_lonlat(*places(self.affine, self.size, node_u, node_v))
        lon = lon[:, :1] + wrap(lon - lon[:, :1])
        weights = (_lagrange(v)[:, None, :] * _lagrange(u)[None, :, :]).reshape(9, -1)
        return lon @ weights, lat @ weights

    def _inside(self, u: Floats, v: Floats) -> Floats:
        """1 for places in their geometry; the nearest one counts where none is."""
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
    """Weights (3, m) of values at 0, 1/2 and 1 for places t."""
    return np.stack([(2 * t - 1) * (t - 1), 4 * t * (1 - t), t * (2 * t - 1)])


def raster_footprints(crs: Any, geotransform: Any, shape: Any) -> Footprints:
    """Footprints of rasters; parameters as for `comal.geo.footprint.centroids`."""
    affine, size = affine_of(geotransform), size_of(shape)
    return Footprints(_names(crs, len(affine)), affine, size)


def geometry_footprints(geometry: Any, crs: Any = LONLAT) -> Footprints:
    """Footprints of geometries given as an Arrow column of WKB in their CRS."""
    count = len(geometry)
    names = _names(crs, count)
    shapes = wkb.to_shapely(geometry)
    for name, rows in groups(names, count):
        if projection(name).is_geographic:
            shapes[rows] = unrolled(shapes[rows])
    west, south, east, north = shapely.bounds(shapes).T
    zero = np.zeros(count)
    affine = np.stack([west, east - west, zero, north, zero, south - north], axis=1)
    size = np.where(((west == east) & (south == north))[:, None], 0.0, np.ones((count, 2)))
    return Footprints(names, affine, size, shapes)


def point_footprints(points: Any) -> Footprints:
    """Places given as an Arrow column of WKB points in EPSG:4326."""
    lon, lat = wkb.points_xy(points)
    zero = np.zeros(len(lon))
    affine = np.stack([lon, zero, zero, lat, zero, zero], axis=1)
    names = pa.array([LONLAT]).take(pa.array(np.zeros(len(lon), np.int64), mask=np.isnan(lon)))
    return Footprints(names, affine, np.zeros((len(lon), 2)))


def first_known(options: list[Footprints]) -> Footprints:
    """For each row the first of `options` that has a footprint there."""
    count = len(options[0])
    chosen = np.zeros(count, np.int64)
    open_rows = np.ones(count, bool)
    for number, option in enumerate(options):
        known = option.crs.is_valid().to_numpy(zero_copy_only=False)
        known = (
            known & np.isfinite(option.affine).all(axis=1) & np.isfinite(option.size).all(axis=1)
        )
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
