"""Locations of the rows of a table: by a geometry, the outline of a raster, or a centre.

The columns have the same names in every sample format. If one of them is empty in a row, the next
is used. So boxes are compared with footprints, and with centres only if there is no footprint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from comal.errors import ComalError, InvalidInputError, shown
from comal.geo import boxes, footprints, shapes, times, wkb
from comal.geo.boxes import Corners
from comal.geo.crs import LONLAT, groups
from comal.lazy import pc, shapely
from comal.parallel import cached_property

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Objects = npt.NDArray[np.object_]

FOOTPRINT, CENTROID = "footprint", "centroid"
"""How a row was located."""

GEOMETRY, GEOMETRY_CRS = "istac:geometry", "istac:crs"
CRS, GEOTRANSFORM = "stac:crs", "stac:geotransform"
SHAPES = ("stac:tensor_shape", "stac:raster_shape")
CENTROIDS = ("stac:centroid", "istac:centroid")
COLUMNS = (GEOMETRY, GEOMETRY_CRS, CRS, GEOTRANSFORM, *SHAPES, *CENTROIDS)
"""All columns with locations."""
TIMES = ("istac:time_start", "stac:time_start")
"""Columns with times; the first that exists is used."""

_ALWAYS = np.array(["1678-01-01", "2262-01-01"], "datetime64[us]")
"""Times that fit nanoseconds too."""
_BLOCK = 16_384
_WIDE = 120
"""Width of a box in degrees from which most rows meet it anyway."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to locate rows, and the columns it uses."""

    kind: str
    """``geometry`` (WKB), ``raster``, or ``text`` of points."""
    columns: tuple[str, ...]

    @property
    def by(self) -> str:
        """`FOOTPRINT` or `CENTROID`."""
        return CENTROID if self.kind == "text" or self.columns[0] in CENTROIDS else FOOTPRINT

    @property
    def in_degrees(self) -> bool:
        """Whether its coordinates are longitude and latitude."""
        return len(self.columns) == 1


def ways_of(schema: Any) -> tuple[Way, ...]:
    """The ways that the columns of a schema allow, the most precise first.

    A column whose type cannot be a location is ignored: untrusted files hold anything.
    """
    kinds = {name: schema.field(name).type for name in COLUMNS if schema.names.count(name) == 1}
    found = []
    if _is_wkb(kinds.get(GEOMETRY)):
        named = (GEOMETRY_CRS,) if _is_text(kinds.get(GEOMETRY_CRS)) else ()
        found.append(Way("geometry", (GEOMETRY, *named)))
    if _is_text(kinds.get(CRS)) and _is_numbers(kinds.get(GEOTRANSFORM)):
        shape = next((name for name in SHAPES if _is_numbers(kinds.get(name))), None)
        if shape is not None:
            found.append(Way("raster", (CRS, GEOTRANSFORM, shape)))
    ways = (_of_one(name, kinds.get(name)) for name in CENTROIDS)
    return *found, *(way for way in ways if way is not None)


def way_of(schema: Any, name: str) -> Way | None:
    """The way of one column: WKB, or text of a point; None for any other type."""
    way = _of_one(name, schema.field(name).type)
    if way is not None and name == GEOMETRY and GEOMETRY_CRS in schema.names:
        return Way(way.kind, (name, GEOMETRY_CRS))
    return way


def _of_one(name: str, kind: Any) -> Way | None:
    if _is_wkb(kind):
        return Way("geometry", (name,))
    return Way("text", (name,)) if _is_text(kind) else None


def deciding(ways: Iterable[Way]) -> tuple[str, ...]:
    """How rows are located by these ways: `FOOTPRINT`, `CENTROID`, or both in order."""
    return tuple(dict.fromkeys(way.by for way in ways))


def _is_wkb(kind: Any) -> bool:
    return kind is not None and bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_text(kind: Any) -> bool:
    return kind is not None and bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_numbers(kind: Any) -> bool:
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if kind is None or not any(test(kind) for test in tests):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


def grids(table: Any) -> tuple[list[Any], Floats, Floats]:
    """The grids of n rasters: CRS, geotransforms (n, 6), and numbers of rows and columns (n, 2).

    Null geotransforms and shapes are NaN.

    Raises
    ------
    InvalidInputError
        There are no such columns; or lists of wrong length.
    """
    way = next((way for way in ways_of(table.schema) if way.kind == "raster"), None)
    if way is None:
        raise InvalidInputError(
            "samples without CRS, geotransform and shape",
            found=", ".join(map(shown, table.column_names)) or "no columns",
            expected=", ".join((CRS, GEOTRANSFORM, SHAPES[0])),
        )
    names, affine, size = (table.column(name) for name in way.columns)
    return names.to_pylist(), footprints.affine_of(affine), footprints.size_of(size)


def periods(table: Any) -> tuple[Any, Any]:
    """First and last instants of n rows, ``datetime64[us]``; all times where none is known."""
    names = table.column_names
    start = next((name for name in TIMES if name in names), TIMES[0])
    parts = []
    for name in (start, start.replace("start", "end")):
        column = table.column(name) if name in names else pa.nulls(len(table), pa.int64())
        parts.append(times.timestamps(column, name).to_numpy(zero_copy_only=False))
    first, last = np.isnat(parts[0]), np.fmax(*parts)
    return np.where(first, _ALWAYS[0], parts[0]), np.where(np.isnat(last), _ALWAYS[1], last)


class Places:
    """Locations of the n rows of a table, by the ways that `ways_of` found in its schema.

    If `lenient`, a way that fails (a CRS that PROJ does not know) is ignored instead of raising.
    Otherwise all methods may raise: for a CRS that PROJ does not know, lists of wrong length, or
    invalid WKB.
    """

    def __init__(self, table: Any, ways: tuple[Way, ...], *, lenient: bool = False) -> None:
        self.ways = ways
        self._lenient = lenient
        names = {name for way in ways for name in way.columns}
        self._columns = {name: _one(table.column(name)) for name in names}
        self._count = table.num_rows

    @property
    def corners(self) -> Corners:
        """Boxes of all rows: west, south, east, north in degrees, NaN for rows without one."""
        west, south, east, north = self._told[0]
        return west, south, east, north

    @property
    def told_by(self) -> npt.NDArray[np.int8]:
        """Index of the way that locates each row; -1 for rows without location."""
        return self._told[1]

    def decided(self, rows: Any = slice(None)) -> tuple[str, ...]:
        """How some rows are located."""
        numbers = np.unique(self.told_by[rows])
        return deciding(self.ways[number] for number in numbers if number >= 0)

    @classmethod
    def meeting(
        cls, table: Any, ways: tuple[Way, ...], bounds: boxes.Box
    ) -> tuple[Bools, tuple[str, ...]]:
        """Which rows of a table meet a box, and how these are located; for a single box.

        Rasters that are far from it are not transformed one by one.
        """
        near = np.ones(table.num_rows, np.bool_)
        wide = boxes.arc_width(bounds.west, bounds.east) > _WIDE
        if ways and ways[0].kind == "raster" and not wide:
            crs, affine, shape = (_one(table.column(name)) for name in ways[0].columns)
            near = footprints.possibly_within(crs, affine, shape, bounds)
        rows = np.flatnonzero(near)
        places = cls(table if near.all() else table.take(pa.array(rows)), ways)
        found = np.zeros(table.num_rows, np.bool_)
        found[rows] = places.meet(bounds)
        return found, places.decided(found[rows])

    def meet(self, bounds: boxes.Box) -> Bools:
        """Which rows have a point in common with a box of `boxes.validate_bbox`."""
        corners = self.corners
        found = boxes.boxes_intersect(*corners, bounds)
        doubtful = np.flatnonzero(found & ~self._certain(bounds))
        if len(doubtful):
            for start in range(0, len(doubtful), _BLOCK):
                rows = doubtful[start : start + _BLOCK]
                found[rows] = shapes.meet(self.shapes(rows), bounds)
        return found

    def _certain(self, bounds: boxes.Box) -> Bools:
        """Which of the rows whose boxes meet `bounds` certainly do so themselves.

        An outline reaches all four sides of its box and is connected. So it meets a box that spans
        all of its longitudes or all of its latitudes. The parts of a geometry may leave gaps: it
        meets the box for certain if that spans both.
        """
        west, south, east, north = self.corners
        room = boxes.arc_width(bounds.west, bounds.east)
        with np.errstate(invalid="ignore"):
            tall = (south >= bounds.south) & (north <= bounds.north)
            wide = (room >= 360) | (
                np.mod(west - bounds.west, 360) + boxes.arc_width(west, east) <= room
            )
        whole = np.array([way.kind == "geometry" for way in self.ways] or [False])[self.told_by]
        return np.asarray(np.where(whole, tall & wide, tall | wide), np.bool_)

    def shapes(self, rows: Rows) -> Objects:
        """Shapes of some rows in degrees, with longitudes that may exceed 180."""
        result = np.full(len(rows), None, object)
        told = self.told_by[rows]
        corners = np.stack(self.corners)[:, rows]
        for number, way in enumerate(self.ways):
            mine = np.flatnonzero(told == number)
            if not len(mine):
                continue
            if way.kind == "text":
                result[mine] = shapely.points(corners[0, mine], corners[1, mine])
                continue
            columns = self._taken(way, rows[mine])
            names = _names(columns, way)
            for source, some in groups(names, len(mine)):
                part = pa.array(some)
                if way.kind == "geometry":
                    found = shapes.geometries(source, columns[0].take(part), way.columns[0])
                else:
                    affine = footprints.affine_of(columns[1].take(part))
                    found = footprints.outlines(
                        source, affine, footprints.size_of(columns[2].take(part))
                    )
                result[mine[some]] = found
        # For what is partly outside of the earth, only the box is known.
        lost = np.flatnonzero(shapely.is_missing(result) & (told >= 0))
        west, south, east, north = corners[:, lost]
        result[lost] = shapely.box(west, south, np.where(east < west, east + 360, east), north)
        return result

    @cached_property
    def _told(self) -> tuple[Floats, npt.NDArray[np.int8]]:
        corners = np.full((4, self._count), np.nan)
        told = np.full(self._count, -1, np.int8)
        for number, way in enumerate(self.ways):
            rows = np.flatnonzero(told < 0)
            if not len(rows):
                break
            try:
                found = np.stack(_boxes_by(way, self._taken(way, rows)))
            except ComalError:
                if not self._lenient:
                    raise
                continue
            known = np.isfinite(found).all(axis=0)
            corners[:, rows[known]] = found[:, known]
            told[rows[known]] = number
        return corners, told

    def _taken(self, way: Way, rows: Rows) -> list[Any]:
        columns = [self._columns[name] for name in way.columns]
        if len(rows) == self._count:
            return columns
        return [column.take(pa.array(rows)) for column in columns]


def _one(column: Any) -> Any:
    chunks = column.chunks
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type)


def _names(columns: list[Any], way: Way) -> Any:
    """The CRS of each row: a column, or one for all."""
    if way.kind == "raster":
        return columns[0]
    # A geometry without CRS is assumed to be in degrees.
    return pc.fill_null(columns[1], LONLAT) if len(columns) > 1 else LONLAT


def _boxes_by(way: Way, columns: list[Any]) -> Corners:
    if way.kind == "raster":
        return footprints.footprints(*columns)
    if way.kind == "text":
        lon, lat = wkb.text_points_xy(columns[0])
        lon = boxes.wrap(lon)
        return lon, lat, lon, lat
    west, south, east, north = wkb.bounds(columns[0], way.columns[0])
    names = _names(columns, way)
    with np.errstate(invalid="ignore"):
        pointless = (west < east) | (south < north)
    if isinstance(names, pa.Array):
        pointless |= ~np.asarray(pc.equal(names, LONLAT))
    rows = np.flatnonzero(pointless)
    if len(rows):
        part = pa.array(rows)
        crs = names.take(part) if isinstance(names, pa.Array) else names
        found = shapes.geometry_boxes(columns[0].take(part), crs)
        for side, values in zip((west, south, east, north), found, strict=True):
            side[rows] = values
    west, east = boxes.wrap_arcs(west, east)
    return west, south, east, north
